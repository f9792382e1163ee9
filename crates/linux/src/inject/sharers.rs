//! Who shares memory or descriptors with a process: such a process runs while the other is held, could take what is
//! sent to an agent that starts, and could change its code.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::InjectError;
use crate::kernel::procfs::ProcRoot;

/// What kcmp(2) compares.
const MEMORY: libc::c_int = 1;
const DESCRIPTORS: libc::c_int = 2;
/// Rounds of looking for processes that came meanwhile: of those that share with it only one can make another.
const ROUNDS: usize = 50;
/// How long a process is waited for that shares.
const MOMENT: Duration = Duration::from_millis(100);

/// Whether two processes use the same memory, as clone(2) with CLONE_VM makes them. False where the
/// kernel is built without kcmp(2).
pub fn same_memory(one: i32, other: i32) -> bool {
    is_same(one, other, MEMORY)
}

fn is_same(one: i32, other: i32, what: libc::c_int) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, what, 0, 0) == 0 }
}

/// Who still shares after a moment: a child on its way to another program (vfork(2)) shares for some milliseconds.
///
/// # Errors
/// As [`sharer`].
pub fn lasting_sharer(pid: i32) -> Result<Option<i32>, InjectError> {
    let began = Instant::now();
    loop {
        let found = sharer(pid)?;
        if found.is_none() || began.elapsed() > MOMENT {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Another process that has the memory or the descriptors of this one, whose threads are all held. About 2 us a
/// process of the system.
///
/// # Errors
/// When `/proc` cannot be read, or processes come faster than they can be looked at.
pub fn sharer(pid: i32) -> Result<Option<i32>, InjectError> {
    let (root, mut seen) = (ProcRoot::default(), HashSet::from([pid]));
    for _ in 0..ROUNDS {
        let fresh: Vec<i32> =
            root.pids()?.into_iter().filter(|&other| seen.insert(other)).collect();
        if fresh.is_empty() {
            return Ok(None);
        }
        let shares = |&other: &i32| same_memory(pid, other) || is_same(pid, other, DESCRIPTORS);
        if let Some(other) = fresh.into_iter().find(shares) {
            return Ok(Some(other));
        }
    }
    Err(InjectError::Stuck(pid))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().expect("a child")
    }

    #[test]
    fn processes_that_share_memory_are_told_from_others() {
        let own = std::process::id().cast_signed();
        let mut child = sleeper();
        let other = child.id().cast_signed();
        let found = (same_memory(own, own), same_memory(own, other));
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert_eq!(found, (true, false), "this kernel has no kcmp(2)");
        assert!(!same_memory(own, i32::MAX));
    }

    /// A child that has the descriptors of its parent, as clone(2) with CLONE_FILES makes it.
    #[test]
    fn who_has_the_same_descriptors_is_found() {
        let mut alone = sleeper();
        let nobody = sharer(alone.id().cast_signed()).expect("a quiet system");
        alone.kill().and_then(|()| alone.wait()).expect("ended");
        assert_eq!(nobody, None);
        let flags = libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: as fork(2); the child does nothing but wait for its end.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if child == 0 {
            loop {
                // SAFETY: it takes nothing.
                unsafe { libc::pause() };
            }
        }
        let child = i32::try_from(child).expect("a pid");
        let found = sharer(std::process::id().cast_signed());
        // SAFETY: a child of this process, which is waited for.
        unsafe {
            (libc::kill(child, libc::SIGKILL), libc::waitpid(child, std::ptr::null_mut(), 0))
        };
        // Or a program that a test beside this one starts, which shares its memory for a moment.
        assert!(found.expect("a quiet system").is_some());
    }
}
