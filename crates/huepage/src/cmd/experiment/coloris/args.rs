//! The arguments of `huepage experiment coloris` and the help that explains them.

use clap::Args;
use huepage_sim::experiments::coloris;

use crate::cmd::experiment::args::{Common, one_of};

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

/// What stands here for a workload.
const ONLY: &str = "\
Only this configuration (F, S, H, H+P ... C1 to C9) or foreground program; may be repeated";

/// Cache partitions that follow what programs need: the tables of COLORIS (2014) beside ours
///
/// Runs programs that stand for the paper's on its simulated machines, several at a time, without
/// partitions, with fixed ones, under the paper's manager and under one that measures miss-rate
/// curves, on all CPUs, and says which of the paper's statements hold.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("only", |only| only.help(ONLY)))]
pub struct ColorisArgs {
    /// A figure (f7, f8, f9, f10, f10m, f11, f11m), a table (3, 4, 5, 4.2 for section 4.2), the
    /// traces (real), or all; may be repeated
    #[arg(long, value_name = "FIGURE", default_value = "all")]
    #[arg(value_parser = one_of(coloris::tables::ALL.iter().map(|(id, ..)| *id)))]
    pub figure: Vec<String>,

    /// What every experiment is told.
    #[command(flatten)]
    pub common: Common,
}
