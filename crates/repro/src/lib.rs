//! `huepage-repro`: the experiments of five papers run again in the simulator, with the papers' own
//! figures and statements. A module for each paper says which programs run on which machines under
//! which policies, and what comes of it; `cmd` reads arguments, opens traces, starts threads and
//! writes results.

pub mod asked;
mod cmd;
pub mod coloris;
mod drawing;
pub mod engine;
pub mod report;
pub mod rocs;
pub mod romer;
pub mod run;
pub mod scolari;
pub mod srm;
pub mod work;

use huepage::exit::CmdError;
use huepage::style::Style;

/// Reads the arguments, runs an experiment, and reports how it ended.
pub fn main() -> std::process::ExitCode {
    match cmd::run(cmd::args::ReproCli::read()) {
        Ok(status) => status.into(),
        Err(CmdError { code, message }) => {
            eprintln!("{} {message}", Style::stderr().red("huepage-repro:"));
            code.status().into()
        }
    }
}
