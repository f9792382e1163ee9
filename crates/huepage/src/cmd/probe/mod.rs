//! `huepage probe`: what can be measured of the caches. The hash that spreads lines over
//! slices is all there is so far; colours of frames are probed where they are needed.

pub mod args;
mod hash;

use crate::exit::CmdError;
use args::{ProbeArgs, ProbeCommand};

/// Runs one of the probes.
pub fn run(args: &ProbeArgs) -> Result<u8, CmdError> {
    match &args.command {
        ProbeCommand::Hash(args) => hash::run(args),
    }
}
