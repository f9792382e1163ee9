//! What is done to the pages of another process: 2 MiB are made one page or single pages again, and
//! pages are marked as not touched. Each is one call of process_madvise(2), which changes no byte
//! of the program's and leaves it correct wherever it ends. Decides nothing.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use huepage_color::PAGE_BYTES;
use huepage_policy::combined::Withheld;
use serde::{Deserialize, Serialize};

use crate::kernel::procfs::pidfd;

/// log2 of the base pages of the superpages that the kernel builds on request.
pub const SUPERPAGE_ORDER: u32 = 9;
/// Their base pages.
pub const SUPERPAGE_PAGES: u64 = 1 << SUPERPAGE_ORDER;
/// Their bytes.
pub const SUPERPAGE_BYTES: u64 = SUPERPAGE_PAGES * PAGE_BYTES;
/// Advice that has the kernel build a huge page now (Linux 6.1).
pub(crate) const MADV_COLLAPSE: libc::c_int = 25;
/// Ranges that process_madvise(2) takes at a time.
const RANGES_PER_CALL: usize = 1024;

/// Why a superpage was not built, or is not worth asking for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    thiserror::Error,
)]
#[serde(rename_all = "snake_case")]
pub enum NotBuilt {
    /// Its holes would take more memory than allowed.
    #[error("too sparse")]
    Sparse,
    /// No 2 MiB in a row are free, or the control group is at its limit.
    #[error("no memory")]
    NoMemory,
    /// Somebody holds one of its pages for the moment.
    #[error("held")]
    Held,
    /// The kernel builds none in such an area.
    #[error("area of another kind")]
    Kind,
    /// It is shared with another process until one of them writes.
    #[error("copy on write")]
    Shared,
    /// The process has ended, or has unmapped it.
    #[error("gone")]
    Gone,
    /// The kernel does not let us.
    #[error("not permitted")]
    Denied,
    /// In a partition: it would cost more isolation of the cache than TLB misses saved are worth.
    #[error("cost more isolation than they save")]
    Isolation,
    /// In a partition: nobody knows what it would save.
    #[error("of unknown benefit")]
    Unknown,
    /// In a partition: it was one not long ago, and its pages were recoloured since.
    #[error("recoloured lately")]
    Recoloured,
    /// In a partition: the process is not confined, or not yet.
    #[error("not confined")]
    Unconfined,
}

impl From<Withheld> for NotBuilt {
    fn from(why: Withheld) -> NotBuilt {
        match why {
            Withheld::Unknown => NotBuilt::Unknown,
            Withheld::Isolation => NotBuilt::Isolation,
            Withheld::Recoloured => NotBuilt::Recoloured,
        }
    }
}

impl NotBuilt {
    pub(crate) fn from_errno(error: &io::Error) -> NotBuilt {
        match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EBUSY) => NotBuilt::NoMemory,
            Some(libc::EAGAIN) => NotBuilt::Held,
            Some(libc::ESRCH | libc::EFAULT) => NotBuilt::Gone,
            Some(libc::EPERM | libc::EACCES) => NotBuilt::Denied,
            _ => NotBuilt::Kind,
        }
    }
}

/// The way to the pages of one process; a process that gets its pid later is not reached.
#[derive(Debug)]
pub struct ProcessMemory {
    pidfd: OwnedFd,
    clock: libc::clockid_t,
}

impl ProcessMemory {
    /// Of a process.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(pid: i32) -> io::Result<ProcessMemory> {
        let pidfd = pidfd(pid)?;
        let mut clock = 0;
        // SAFETY: the kernel writes the number of a clock.
        match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
            0 => Ok(ProcessMemory { pidfd, clock }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// CPU time of the process so far, all threads together; zero once it has ended.
    pub fn cpu_time(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes a time; a clock of a process that has ended is an error.
        match unsafe { libc::clock_gettime(self.clock, &raw mut time) } {
            0 => {
                let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
                Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
            }
            _ => Duration::ZERO,
        }
    }

    /// Makes 2 MiB one page, holes filled with zeroes. Takes 1 to 5 ms, in the last third of which
    /// the process waits if it touches them or changes its mappings.
    ///
    /// # Errors
    /// Why the kernel did not.
    pub fn build(&self, block: u64) -> Result<(), NotBuilt> {
        let range = block * SUPERPAGE_BYTES..(block + 1) * SUPERPAGE_BYTES;
        match self.advise(&[vector(&range)], MADV_COLLAPSE) {
            Ok(done) if done == SUPERPAGE_BYTES as usize => Ok(()),
            Ok(_) => Err(NotBuilt::Held),
            Err(error) => Err(NotBuilt::from_errno(&error)),
        }
    }

    /// Makes a superpage single pages; those that hold only zeroes give their memory back. A page
    /// of it is called cold for that.
    ///
    /// # Errors
    /// What process_madvise(2) says.
    pub fn split(&self, address: u64) -> io::Result<()> {
        let page = address / PAGE_BYTES * PAGE_BYTES;
        self.advise(&[vector(&(page..page + PAGE_BYTES))], libc::MADV_COLD).map(|_| ())
    }

    /// Marks pages as not touched since: about 1 us a range and 60 ns a page. Ranges after one that
    /// is not there, or locked, are left; how many were done.
    pub fn forget(&self, ranges: &[Range<u64>]) -> usize {
        let mut done = 0;
        for some in ranges.chunks(RANGES_PER_CALL) {
            let vectors: Vec<libc::iovec> = some.iter().map(vector).collect();
            let asked: usize = vectors.iter().map(|vector| vector.iov_len).sum();
            let Ok(bytes) = self.advise(&vectors, libc::MADV_COLD) else { return done };
            if bytes < asked {
                return done + whole(&vectors, bytes);
            }
            done += some.len();
        }
        done
    }

    fn advise(&self, ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<usize> {
        // SAFETY: none of the advices used changes what the process reads from its memory.
        unsafe { advise(self.pidfd.as_fd(), ranges, advice) }
    }
}

/// Calls process_madvise(2): the bytes that were advised, fewer than asked for if the kernel stopped at a range.
///
/// # Safety
/// An advice that changes contents must be for ranges of this process that the caller owns, and whose contents
/// nobody needs.
pub(crate) unsafe fn advise(
    process: BorrowedFd<'_>,
    ranges: &[libc::iovec],
    advice: libc::c_int,
) -> io::Result<usize> {
    let (fd, at, count) = (process.as_raw_fd(), ranges.as_ptr(), ranges.len());
    // SAFETY: the vector lives across the call; for its ranges the caller vouches.
    let done = unsafe { libc::syscall(libc::SYS_process_madvise, fd, at, count, advice, 0) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

fn vector(range: &Range<u64>) -> libc::iovec {
    let len = usize::try_from(range.end - range.start).unwrap_or(0);
    libc::iovec { iov_base: range.start as *mut c_void, iov_len: len }
}

/// How many of some ranges lie within the first so many bytes.
fn whole(ranges: &[libc::iovec], mut bytes: usize) -> usize {
    let fits = |range: &&libc::iovec| {
        let fits = range.iov_len <= bytes;
        bytes = bytes.saturating_sub(range.iov_len);
        fits
    };
    ranges.iter().take_while(fits).count()
}

/// CPU time of this thread so far.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_within_some_bytes_are_counted() {
        let ranges = [vector(&(0..10)), vector(&(20..30)), vector(&(40..50))];
        assert_eq!([0, 10, 15, 20, 30].map(|bytes| whole(&ranges, bytes)), [0, 1, 1, 2, 3]);
    }

    #[test]
    fn errors_have_their_reasons() {
        let reason = |code| NotBuilt::from_errno(&io::Error::from_raw_os_error(code));
        assert_eq!(reason(libc::ENOMEM), NotBuilt::NoMemory);
        assert_eq!(reason(libc::EAGAIN), NotBuilt::Held);
        assert_eq!(reason(libc::EINVAL), NotBuilt::Kind);
        assert_eq!(reason(libc::ESRCH), NotBuilt::Gone);
    }

    #[test]
    fn the_time_of_a_process_passes_while_it_works() {
        let process = ProcessMemory::open(std::process::id().cast_signed()).unwrap();
        let before = process.cpu_time();
        while process.cpu_time() <= before {}
        assert!(process.cpu_time() >= thread_time());
    }

    #[test]
    fn nobody_has_pid_0_or_lives_there() {
        assert!(ProcessMemory::open(0).is_err() && ProcessMemory::open(i32::MAX).is_err());
    }
}
