//! `huepage experiment`: reproductions of papers. What is run lives in
//! `huepage_sim::experiments`; here traces are opened, threads started, and results written.

pub mod args;
mod coloris;
mod found;
mod markdown;
mod rocs;
mod romer;
mod scolari;
mod srm;
pub mod svg;
mod text;
mod work;

use crate::exit::CmdError;
use args::{Experiment, ExperimentArgs};

/// Runs the command.
pub fn run(args: &ExperimentArgs) -> Result<u8, CmdError> {
    match &args.command {
        Experiment::Romer(args) => romer::run(args),
        Experiment::Rocs(args) => rocs::run(args),
        Experiment::Coloris(args) => coloris::run(args),
        Experiment::Srm(args) => srm::run(args),
        Experiment::Scolari(args) => scolari::run(args),
    }
}
