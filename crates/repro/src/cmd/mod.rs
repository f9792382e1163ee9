//! The command line. What is run is a paper's module; here traces are opened, threads started, and
//! results written.

mod all;
pub mod args;
mod experiment;
pub mod found;
mod html;
pub mod markdown;
mod text;

use huepage::exit::CmdError;

use args::{PaperArgs, ReproCli};
use experiment::experiment;

use crate::{coloris, rocs, romer, scolari, srm};

/// Runs the command.
pub fn run(cli: ReproCli) -> Result<u8, CmdError> {
    match cli.paper {
        PaperArgs::Romer(args) => experiment::<romer::RomerStudy>(&args.asked()),
        PaperArgs::Rocs(asked) => experiment::<rocs::RocsStudy>(&asked),
        PaperArgs::Coloris(asked) => experiment::<coloris::ColorisStudy>(&asked),
        PaperArgs::Srm(asked) => experiment::<srm::SrmStudy>(&asked),
        PaperArgs::Scolari(asked) => experiment::<scolari::ScolariStudy>(&asked),
        PaperArgs::All(args) => all::run(&args),
    }
}
