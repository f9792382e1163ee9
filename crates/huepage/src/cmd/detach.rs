//! `huepage detach`: release a process. Its pages stay where they are, which harms nothing.

use std::time::Duration;

use huepage_linux::control::Request;

use super::attach::ask;
use crate::args::DetachArgs;
use crate::exit::CmdError;
use crate::partition;

/// Detaches; returns when the agent has left the process.
pub fn run(args: DetachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    ask(pid, &Request::Detach { pid }, Duration::from_secs(30))?;
    eprintln!("huepage: process {pid} is on its own again");
    Ok(0)
}
