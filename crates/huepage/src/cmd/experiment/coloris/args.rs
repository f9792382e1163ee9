//! The arguments of `huepage experiment coloris` and the help that explains them.

use clap::Args;
use huepage_sim::experiments::coloris;

use crate::cmd::experiment::args::Traces;
use crate::cmd::experiment::found::Output;

const EXAMPLES: &str = "\
Examples:
  huepage experiment coloris --quick                 every table on short runs
  huepage experiment coloris --figure f7 --figure 5  isolation, and what partitions settle at
  huepage experiment coloris --figure 3 --only C1 --json > c1.json
  huepage experiment coloris --trace gnugo=gnugo.trace --trace povray=povray.trace \\
    --trace hmmer=hmmer.trace --trace bzip2=bzip2.trace --markdown docs/reproductions/coloris.md

scripts/trace-coloris.sh records these four. The first trace is the foreground, up to three more run
beside it. Short runs end before partitions have settled: --quick shows that everything works, not what
the claims say.";

/// Cache partitions that follow what programs need: the tables of COLORIS (2014) beside ours
///
/// Runs programs that stand for the paper's on its simulated machines, several at a time, without
/// partitions, with fixed ones, under the paper's manager and under one that measures miss-rate
/// curves, on all CPUs, and says which of the paper's statements hold.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct ColorisArgs {
    /// A figure (f7, f8, f9, f10, f10m, f11, f11m), a table (3, 4, 5, 4.2 for section 4.2), the
    /// traces (real), or all; may be repeated
    #[arg(long, value_name = "FIGURE", default_value = "all", value_parser = parse_figure)]
    pub figure: Vec<String>,

    /// Short runs: under a minute on two CPUs
    #[arg(long)]
    pub quick: bool,

    /// Real programs, run together.
    #[command(flatten)]
    pub traces: Traces,

    /// Only this configuration (F, S, H, H+P ... C1 to C9) or foreground program; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

fn parse_figure(text: &str) -> Result<String, String> {
    let known = || coloris::tables::ALL.iter().map(|(id, ..)| *id);
    if text == "all" || known().any(|id| id == text) {
        return Ok(text.to_owned());
    }
    Err(format!("expected all or one of {}", known().collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_checked_before_anything_runs() {
        assert_eq!(parse_figure("f7"), Ok("f7".to_owned()));
        assert!(parse_figure("f99").unwrap_err().contains("f10"));
    }
}
