//! The arguments of `huepage plan` and the help that explains them.

use std::ffi::OsString;

use clap::Args;

use crate::cmd::profile::runs::TimedProgram;
use crate::partition::{ColorsFrom, Level, parse_colors_from};

const EXAMPLES: &str = "\
Examples:
  huepage plan '5%: ./control --steps 9000' '20%: bzip2 -kc big.tar'
  huepage plan --level llc '2%: ./a' '10%: ./b' '50%: ./c'
  huepage plan --repeat 5 --json '5%: ./a' '20%: ./b' | jq .programs

A program has to end by itself, do the same work each time, also beside itself, and run for a second or longer. \
It is run about ten times alone, then again and again beside the others, and whole runs are compared; its standard \
output is discarded. Ctrl-C ends what runs and leaves nothing behind.

Programs share the L2 where they share a core, so pin them to it (`5%: taskset -c 0 ./a`), and the last level \
(--level llc) wherever they run. What else they share, as memory bandwidth, no partition divides: a limit that \
fails for that is told.";

/// Find shares of the cache in which each program is no slower than it may be
///
/// Takes a limit for each program (how much longer than by itself a run may take), finds the smallest share that is
/// enough for it, shares the cache out, and tries that with all of them together. Status 113 if no partition
/// keeps the limits.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct PlanArgs {
    /// A limit and a shell command, as `5%: ./control`
    #[arg(required = true, value_name = "LIMIT: CMD", value_parser = parse_limited)]
    pub programs: Vec<LimitedProgram>,

    /// Runs of each program beside the others
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,

    /// The cache to partition
    #[arg(long, value_enum, default_value_t = Level::L2)]
    pub level: Level,

    /// How the colour of a frame is known [default: what `huepage info` finds]
    #[arg(long, value_name = "SOURCE", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A program and how much slower it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitedProgram {
    /// Time that is allowed over the time by itself.
    pub limit: f64,
    /// For a shell.
    pub command: String,
}

impl LimitedProgram {
    /// What is run, as these arguments say.
    pub fn timed(&self, args: &PlanArgs) -> TimedProgram {
        TimedProgram {
            command: ["sh", "-c", &self.command].map(OsString::from).to_vec(),
            level: args.level,
            colors_from: args.colors_from.clone(),
            co_run: None,
        }
    }
}

fn parse_limited(word: &str) -> Result<LimitedProgram, String> {
    let wrong = || "expected a limit in percent and a command, as '5%: ./control'".to_owned();
    let (limit, command) = word.split_once(':').ok_or_else(wrong)?;
    let percent = limit.trim().strip_suffix('%').ok_or_else(wrong)?;
    let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
    if !(0.1..=1000.0).contains(&percent) {
        return Err(format!("a limit of {percent} %; expected 0.1 to 1000"));
    }
    let command = command.trim().to_owned();
    if command.is_empty() {
        return Err(wrong());
    }
    Ok(LimitedProgram { limit: 1.0 + percent / 100.0, command })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_and_a_command() {
        let program = parse_limited("5 % : ./a --to x:y").unwrap();
        assert!((program.limit - 1.05).abs() < 1e-12);
        assert_eq!(program.command, "./a --to x:y");
        for wrong in ["./a", "5: ./a", "x%: ./a", "5%:", "0%: ./a", "NaN%: ./a", "9999%: ./a"] {
            assert!(parse_limited(wrong).is_err(), "{wrong}");
        }
    }
}
