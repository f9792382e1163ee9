//! `huepage detach`: release a process. Its pages stay where they are, which harms nothing.

use std::time::Duration;

use huepage_linux::control::Request;

use super::attach::ask;
use crate::args::DetachArgs;
use crate::exit::CmdError;
use crate::partition;

/// A supervisor answers within some seconds, whether or not the process runs.
const LIMIT: Duration = Duration::from_secs(30);

/// Detaches; returns when the agent has left the process, or after some seconds where the process is
/// stopped: it is let go when it goes on.
pub fn run(args: DetachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    let answer = ask(pid, &Request::Detach { pid }, LIMIT)?;
    if answer["releasing"].is_null() {
        eprintln!("huepage: process {pid} is on its own again");
    } else {
        eprintln!("huepage: process {pid} is stopped or busy; it is let go when it goes on");
    }
    Ok(0)
}
