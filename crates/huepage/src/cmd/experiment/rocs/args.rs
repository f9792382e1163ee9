//! The arguments of `huepage experiment rocs` and the help that explains them.

use clap::Args;
use huepage_sim::experiments::rocs;

use crate::cmd::experiment::args::{Common, one_of};

const EXAMPLES: &str = "\
Examples:
  huepage experiment rocs --quick                    every table on short runs of some workloads
  huepage experiment rocs --only art --figure f10    one workload, one table
  huepage experiment rocs --trace cg=cg.trace --json > rocs.json
  huepage experiment rocs --svg figures --markdown docs/reproductions/rocs.md

scripts/trace-rocs.sh records a conjugate gradient solver that nobody here wrote. --quick leaves out
workloads that have to run long: it shows that everything works, not what the statements say.";

/// The pollute buffer: the tables and figures of ROCS (2008) beside ours
///
/// Runs workloads that stand for the paper's on its machine, with plain Linux, with ROCS, with ROCS
/// profiled while the prefetcher works, with a model instead of a search, and with every prefix of the
/// miss-rate stack confined; on all CPUs. Says which of the paper's statements hold.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct RocsArgs {
    /// A table (2, 3, 6-4, search, beyond), a figure as a table (f7, f8, f9, f10), or all; may be
    /// repeated
    #[arg(long, value_name = "FIGURE", default_value = "all")]
    #[arg(value_parser = one_of(rocs::tables::ALL.iter().map(|(id, ..)| *id)))]
    pub figure: Vec<String>,

    /// What every experiment is told.
    #[command(flatten)]
    pub common: Common,
}
