//! A child with a process group of its own, which is ended with it: first asked, then killed.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use huepage_linux::inject::launch::LaunchError;
use huepage_linux::inject::launch::relay::own_child;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::exit::{CmdError, launch_error};
use crate::partition::internal;

/// How long it may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);

/// A child with a process group of its own, which ends with this value.
pub struct GroupedChild {
    child: Child,
    pidfd: std::os::fd::OwnedFd,
}

impl GroupedChild {
    pub fn start(mut command: Command) -> Result<GroupedChild, CmdError> {
        let name = command.get_program().to_owned();
        own_child(&mut command);
        let child = command.process_group(0).spawn().map_err(|error| cannot(&name, error))?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(internal)?;
        Ok(GroupedChild { child, pidfd })
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits up to `limit` for its end.
    pub fn ended(&mut self, limit: Duration) -> Result<Option<ExitStatus>, CmdError> {
        huepage_linux::kernel::wait::wait(&[(self.pidfd.as_fd().as_raw_fd(), libc::POLLIN)], limit);
        self.child.try_wait().map_err(internal)
    }
}

/// The same words and statuses as those of `huepage run`.
fn cannot(program: &OsStr, source: std::io::Error) -> CmdError {
    let program = PathBuf::from(program);
    launch_error(match source.kind() {
        ErrorKind::NotFound => LaunchError::NotFound(program),
        _ => LaunchError::NotExecutable { program, source },
    })
}

impl Drop for GroupedChild {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        for (signal, limit) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
            // Also after its end: a shell may have left others of its group.
            let left = kill_process_group(group, signal).is_ok();
            if !left || !matches!(self.ended(limit), Ok(None)) && signal == Signal::KILL {
                break;
            }
        }
        let _ = self.child.wait();
    }
}
