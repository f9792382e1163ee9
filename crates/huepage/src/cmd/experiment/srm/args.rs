//! The arguments of `huepage experiment srm` and the help that explains them.

use clap::Args;
use huepage_sim::experiments::srm::tables;

use crate::cmd::experiment::args::{Common, one_of};

const EXAMPLES: &str = "\
Examples:
  huepage experiment srm --quick                       every figure on short runs
  huepage experiment srm --figure f2 --only mergesort  figure 2 alone
  huepage experiment srm --trace join=join.trace --trace scan=scan.trace --figure traces
  huepage experiment srm --svg figures --markdown docs/reproductions/srm-buffer.md

A trace named scan runs beside each of the others; without it grep does. scripts/trace-srm.sh
records PostgreSQL. Short runs show that everything works, not what the statements say.";

/// Colours for the page cache: the figures of SRM-buffer (2011) beside ours
///
/// Runs memory-bound programs beside programs that go through files, on the paper's two machines,
/// with frames as Linux chooses them and as SRM-buffer does, on all CPUs, and says which of the
/// paper's statements hold.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct SrmArgs {
    /// A figure (f2, f8, f10 to f16, 4.5 for the random reader, 4.5r for repeated scans, traces),
    /// or all; may be repeated
    #[arg(long, value_name = "FIGURE", default_value = "all")]
    #[arg(value_parser = one_of(tables::ALL.iter().map(|(id, ..)| *id)))]
    pub figure: Vec<String>,

    /// What every experiment is told.
    #[command(flatten)]
    pub common: Common,
}
