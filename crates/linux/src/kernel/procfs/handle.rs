//! One process for good: a number that is free again may be given to another process, so who acts on a
//! process later holds a descriptor of it (pidfd) from the first look on, and asks before each act
//! whether the number still names that process. Nothing here signals or stops a process.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::{ProcError, ProcRoot};

/// A process that is told from a later one of the same number by when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KnownProcess {
    /// Its pid.
    pub pid: i32,
    /// Its start in clock ticks since boot.
    pub start_time: u64,
}

impl KnownProcess {
    /// The process of this number now.
    ///
    /// # Errors
    /// When there is none, or `/proc` cannot be read.
    pub fn read(root: &ProcRoot, pid: i32) -> Result<KnownProcess, ProcError> {
        Ok(KnownProcess { pid, start_time: root.stat(pid)?.start_time })
    }

    /// Holds it, if it runs.
    pub fn hold(&self, root: &ProcRoot) -> Option<ProcessHandle> {
        ProcessHandle::open(root, self.pid).ok().filter(|handle| handle.known() == *self)
    }

    /// Whether it runs: it has not ended, and its number is not another's. Good for one moment; who acts
    /// on the process afterwards holds a [`ProcessHandle`].
    pub fn is_alive(&self, root: &ProcRoot) -> bool {
        root.stat(self.pid).is_ok_and(|s| s.start_time == self.start_time && !s.is_dead())
    }
}

/// A process, held from the first look at it; see the module's head. It costs one descriptor.
#[derive(Debug)]
pub struct ProcessHandle {
    known: KnownProcess,
    root: ProcRoot,
    /// None under a root of canned files, where only the start time tells processes apart.
    pidfd: Option<OwnedFd>,
}

impl ProcessHandle {
    /// Holds the process that has this number now.
    ///
    /// # Errors
    /// `NoProcess` when there is none or it has ended, `Io` when no descriptor is left.
    pub fn open(root: &ProcRoot, pid: i32) -> Result<ProcessHandle, ProcError> {
        // The descriptor comes first: what is read while it names a live process is of that process.
        let failed = |e| ProcError::of_pid(pid, &root.pid_path(pid, ""), e);
        let live = (*root == ProcRoot::default()).then(|| pidfd(pid).map_err(failed));
        let pidfd = live.transpose()?;
        let known = KnownProcess::read(root, pid)?;
        let handle = ProcessHandle { known, root: root.clone(), pidfd };
        handle.check()?;
        Ok(handle)
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.known.pid
    }

    /// What tells it from others, to be kept on the disk.
    pub fn known(&self) -> KnownProcess {
        self.known
    }

    /// Whether it runs still, and so has its number. A process that this one calls alive was alive when
    /// the caller stopped it, read of it or opened files of it just before.
    pub fn is_alive(&self) -> bool {
        !self.pidfd.as_ref().is_some_and(has_ended) && self.known.is_alive(&self.root)
    }

    /// The same as an error: call it after each stop and before each act.
    ///
    /// # Errors
    /// `NoProcess` when it has ended.
    pub fn check(&self) -> Result<(), ProcError> {
        if self.is_alive() { Ok(()) } else { Err(ProcError::NoProcess(self.known.pid)) }
    }
}

/// A descriptor of a process (pidfd), which no later process of its number has.
///
/// # Errors
/// ESRCH when there is none.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    let number = Some(pid).filter(|&pid| pid > 0).and_then(Pid::from_raw);
    Ok(pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty())?)
}

/// A pidfd is readable once all threads of its process have ended, be it waited for or not.
fn has_ended(pidfd: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd as _;
    crate::kernel::wait::ready(&[(pidfd.as_raw_fd(), libc::POLLIN)], std::time::Duration::ZERO)[0]
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::fake::{Fake, own_pid};
    use super::*;

    fn stat(pid: i32, start_time: u64, state: char) -> String {
        let zeroes = "0 ".repeat(18);
        format!("{pid} (x) {state} {zeroes}{start_time}{}\n", " 0".repeat(30))
    }

    #[test]
    fn a_number_that_is_another_s_now_is_told() {
        let fake = Fake::new();
        fake.put("7/stat", stat(7, 1000, 'S'));
        let handle = ProcessHandle::open(&fake.root, 7).unwrap();
        assert_eq!(handle.known(), KnownProcess { pid: 7, start_time: 1000 });
        assert!(handle.known().hold(&fake.root).is_some());
        assert!(KnownProcess { pid: 7, start_time: 999 }.hold(&fake.root).is_none());
        assert!(handle.is_alive() && handle.check().is_ok());
        // Another process of the same number.
        fake.put("7/stat", stat(7, 1001, 'S'));
        assert!(!handle.is_alive() && handle.check().unwrap_err().is_gone());
        // The dead that wait for their parent are no process any more.
        fake.put("7/stat", stat(7, 1000, 'Z'));
        assert!(!handle.is_alive());
        assert!(ProcessHandle::open(&fake.root, 7).unwrap_err().is_gone());
        assert!(ProcessHandle::open(&fake.root, 8).unwrap_err().is_gone());
    }

    #[test]
    fn a_process_is_alive_until_it_ends() {
        let own = ProcessHandle::open(&ProcRoot::default(), own_pid()).unwrap();
        assert!(own.is_alive() && own.pidfd.is_some());
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let handle = ProcessHandle::open(&ProcRoot::default(), child.id().cast_signed()).unwrap();
        assert!(handle.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!handle.is_alive());
        assert!(ProcessHandle::open(&ProcRoot::default(), handle.pid()).unwrap_err().is_gone());
    }

    #[test]
    fn what_is_no_number_of_a_process_is_none() {
        for pid in [0, -1, i32::MAX] {
            assert!(ProcessHandle::open(&ProcRoot::default(), pid).unwrap_err().is_gone(), "{pid}");
        }
    }
}
