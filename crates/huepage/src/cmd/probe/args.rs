//! Options of `huepage probe`, and what can be judged of them from the text alone.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Measure the caches of this machine
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  huepage probe hash --hidden intel-4 --wrong 5%")]
pub struct ProbeArgs {
    /// What to measure.
    #[command(subcommand)]
    pub command: ProbeCommand,
}

/// What can be measured.
#[derive(Subcommand, Debug)]
pub enum ProbeCommand {
    Hash(Box<HashArgs>),
}

const EXAMPLES: &str = "\
Examples:
  huepage probe hash                                  this machine, by timing
  huepage probe hash --output llc.toml --record llc.obs
  huepage probe hash --file llc.obs                   a recording
  huepage probe hash --file llc.obs --verify intel-8  do these masks explain it?
  huepage probe hash --hidden intel-8 --wrong 5%      try it on a known hash
  huepage probe hash --hidden xeon-e5-2690 --observe evictions --method both
  huepage run --level llc --colors-from declared=llc.toml --share 25% -- CMD

Exits with 0 if masks were found or the hash is not linear, with 110 if nothing can be claimed or \
--output has nothing to write, with 114 if frame numbers (a virtual machine) or the masks of --verify \
are contradicted.";

/// Recover the hash that chooses the slice of the last-level cache
///
/// One probe is one line sorted into the groups of lines that compete. Masks are printed as
/// hexadecimal numbers: bit i of the slice is the parity of the address AND mask i. With them
/// come a bound on the chance that they are wrong, and what the observations leave open.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct HashArgs {
    /// Where observations come from [default: file with --file, sim with --hidden, else live]
    #[arg(long, value_enum)]
    pub source: Option<SourceKind>,

    /// The hash that the simulator hides: masks, a hash file, or a published one by name
    #[arg(long, value_name = "HASH", conflicts_with = "file")]
    pub hidden: Option<String>,

    /// What the simulator lets be seen of a line
    #[arg(long, value_enum, default_value_t = Observe::Slices, requires = "hidden")]
    pub observe: Observe,

    /// Address bits of the simulated memory [default: as many as the hash uses]
    #[arg(long, value_name = "N", requires = "hidden",
          value_parser = clap::value_parser!(u32).range(20..=52))]
    pub address_bits: Option<u32>,

    /// Share of the simulated observations that are made wrong
    #[arg(long, value_name = "PERCENT", requires = "hidden", value_parser = parse_percent)]
    pub wrong: Option<f64>,

    /// Read observations from FILE, as --record wrote them
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Write the observations to FILE
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Lines to observe
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(64..=4_000_000))]
    pub probes: u32,

    /// Seed of all that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Slices, if known: another number is not claimed then
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=256))]
    pub slices: Option<u32>,

    /// How to solve
    #[arg(long, value_enum, default_value_t = HashMethod::Algebra)]
    pub method: HashMethod,

    /// Hold this hash (masks, a hash file or a published one) against the observations instead
    #[arg(long, value_name = "HASH", conflicts_with_all = ["output", "method"])]
    pub verify: Option<String>,

    /// Write the hash to FILE, for --colors-from declared=FILE
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where observations come from.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Evictions on this machine, timed; needs root
    Live,
    /// A simulated cache with the hash of --hidden
    Sim,
    /// A recording, given by --file
    File,
}

/// What a simulated source shows.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observe {
    /// The slice of a line by its number, as a counter would
    Slices,
    /// Which lines of one set evict each other, as timing would
    Evictions,
}

/// Solvers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashMethod {
    /// Linear algebra over GF(2), by decoding
    Algebra,
    /// Clusters of address bits by integer programming (Scolari et al. 2016)
    Ilp,
    /// Both, in one table
    Both,
}

/// Reads a share in percent: `5%`, `5` or `2.5 %`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("expected a percentage from 0 to 100, such as 5%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_and_others_refused() {
        assert_eq!(parse_percent("5%"), Ok(0.05));
        assert_eq!(parse_percent(" 2.5 %"), Ok(0.025));
        for bad in ["", "%", "-1", "101", "five", "nan"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }
}
