//! The arguments of `huepage experiment scolari` and the help that explains them.

use clap::Args;

use crate::cmd::experiment::args::{Common, one_of};

const EXAMPLES: &str = "\
Examples:
  huepage experiment scolari --quick                 every figure on short runs
  huepage experiment scolari --figure 9 --only omnetpp --svg figures
  huepage experiment scolari --figure 10 --only W2 --json > w2.json
  huepage experiment scolari --figure 9 --trace gnugo=gnugo.trace
  huepage experiment scolari --markdown docs/reproductions/scolari.md

A program or workload named with --only also runs whatever it is compared with. Short runs have three
shares and end before large arrays are warm: --quick shows that everything works, not what the claims say.";

/// What stands here for a workload.
const ONLY: &str = "\
Only this program (figure 9) or workload (W1 to W4, X1 to X4); may be repeated";

/// Colours that know the slice hash beside colours that do not: the figures of Scolari (2016)
///
/// Runs programs that stand for the paper's on its simulated Xeon E5-1410, alone in growing shares
/// of the last cache and beside three others that have the rest, on all CPUs, and says which of the
/// paper's statements hold.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("only", |only| only.help(ONLY)))]
pub struct ScolariArgs {
    /// A figure, or all; may be repeated
    #[arg(long, value_name = "FIGURE", default_value = "all")]
    #[arg(value_parser = one_of(["9", "10", "11"].into_iter()))]
    pub figure: Vec<String>,

    /// What every experiment is told.
    #[command(flatten)]
    pub common: Common,
}
