//! `huepage trace`: recording traces, and what is done with them once they exist. Formats and their reading are
//! `huepage_sim::trace`; here files are opened, unpacked, copied and described.

pub mod args;
mod copy;
mod info;
pub mod input;
mod merge;
pub mod record;
mod stats;

use std::fmt::Display;
use std::path::Path;

use huepage_sim::record::{AccessKind, Record};

use crate::exit::{CmdError, ExitCode, bad_file};
use args::{TraceArgs, TraceCommand};

/// Runs one of the commands; records a program if none is named.
pub fn run(args: &TraceArgs) -> Result<u8, CmdError> {
    let Some(command) = &args.command else { return record::run(&args.record) };
    match command {
        TraceCommand::Info(args) => info::info(args),
        TraceCommand::Head(args) => info::head(args),
        TraceCommand::Stats(args) => stats::run(args),
        TraceCommand::Slice(args) => copy::slice(args),
        TraceCommand::Merge(args) => merge::run(args),
        TraceCommand::Import(args) => copy::import(args),
    }
}

/// An output that is in the way, or a wish that a file cannot fulfil.
fn bad_wish(path: &Path, what: impl Display) -> CmdError {
    CmdError::new(ExitCode::Usage, format!("{}: {what}", path.display()))
}

/// The kind of an access as output names it.
const fn kind(record: &Record) -> &'static str {
    match record.kind {
        AccessKind::Fetch => "fetch",
        AccessKind::Load => "load",
        AccessKind::Store => "store",
    }
}
