//! `huepage detach`: release a process. Its pages stay where they are, which harms nothing.

use std::time::Duration;

use clap::Args;
use huepage_linux::control::socket::SupervisorRequest;

use crate::exit::CmdError;
use crate::partition;
use crate::target::ask;

/// Release a process: it keeps running, and its pages stay where they are
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  huepage detach 4711")]
pub struct DetachArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pid: u32,
}

/// A supervisor answers within some seconds, whether or not the process runs.
const LIMIT: Duration = Duration::from_secs(30);

/// Detaches; returns when the agent has left the process, or after some seconds where the process is
/// stopped: it is let go when it goes on.
pub fn run(args: DetachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    let answer = ask(pid, &SupervisorRequest::Detach { pid }, LIMIT)?;
    if answer["releasing"].is_null() {
        eprintln!("huepage: process {pid} is released; its pages stay where they are");
    } else {
        eprintln!("huepage: process {pid} is stopped or busy; it is let go when it goes on");
    }
    Ok(0)
}
