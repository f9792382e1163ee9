//! System calls of the mode `kernel`: those by which a program has the kernel, or itself, provide and
//! hand on its pages.
#![allow(unsafe_code, reason = "a stress target has to do to its memory what programs do")]

use std::ffi::c_ulong;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use crate::sys::{MappedMemory, PAGE};

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: i64) -> io::Result<OwnedFd> {
    let fd = i32::try_from(check(result)?).map_err(io::Error::other)?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Hands the pages of `words` to a pipe without a copy (`vmsplice`); the bytes that it took.
///
/// # Errors
/// When the pipe takes none.
pub fn lend(pipe: BorrowedFd<'_>, words: &[AtomicU64]) -> io::Result<usize> {
    let (base, len) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
    let part = libc::iovec { iov_base: base, iov_len: len };
    // SAFETY: the kernel reads the words, which live until the pipe has been read by the caller.
    let n = unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const part, 1, 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `process_madvise` of this process on all of an area: a raw `MADV_` number.
///
/// # Errors
/// When the kernel refuses.
pub fn advise_by_pidfd(area: &MappedMemory, advice: i32) -> io::Result<()> {
    let part =
        libc::iovec { iov_base: area.address() as *mut libc::c_void, iov_len: area.pages() * PAGE };
    // SAFETY: plain calls with a live vector; contents are only seen through atomics.
    unsafe {
        let own = owned(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0))?;
        let call = libc::SYS_process_madvise;
        check(libc::syscall(call, own.as_raw_fd(), &raw const part, 1, advice, 0)).map(|_| ())
    }
}

/// The least size of a signal stack here, in bytes.
pub fn least_signal_stack() -> usize {
    // SAFETY: plain call.
    let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    usize::try_from(least).unwrap_or(0).max(libc::MINSIGSTKSZ)
}

/// Handles one SIGUSR1 of the calling thread on a part of an area, in bytes from its start.
///
/// # Errors
/// When the part is too small.
pub fn signal_within(area: &MappedMemory, part: Range<usize>) -> io::Result<()> {
    assert!(part.end <= area.pages() * PAGE);
    let at = (area.address() + part.start) as *mut libc::c_void;
    let new = libc::stack_t { ss_sp: at, ss_flags: 0, ss_size: part.len() };
    // SAFETY: all-zero is a valid stack_t to be overwritten; the part is ours for the time of the
    // signal, which is synchronous, and what was there before is put back.
    unsafe {
        let mut old: libc::stack_t = std::mem::zeroed();
        check(libc::sigaltstack(&raw const new, &raw mut old).into())?;
        let raised = check(libc::raise(libc::SIGUSR1).into());
        check(libc::sigaltstack(&raw const old, std::ptr::null_mut()).into())?;
        raised.map(|_| ())
    }
}

/// A userfaultfd of the program's own: faults of an area wait until the program serves them.
#[derive(Debug)]
pub struct OwnFaults(OwnedFd);

impl OwnFaults {
    const API: c_ulong = 0xc018_aa3f;
    const REGISTER: c_ulong = 0xc020_aa00;
    const UNREGISTER: c_ulong = 0x8010_aa01;
    const COPY: c_ulong = 0xc028_aa03;

    /// One that watches nothing yet.
    ///
    /// # Errors
    /// When the kernel allows no userfaultfd.
    pub fn open() -> io::Result<OwnFaults> {
        const USER_MODE_ONLY: i32 = 1;
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: plain call.
        let own = OwnFaults(owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?);
        own.ask(Self::API, [0xaa, 0, 0, 0, 0])?;
        Ok(own)
    }

    /// Watches an area for missing pages.
    ///
    /// # Errors
    /// `EBUSY` while another userfaultfd watches the area.
    pub fn watch(&self, area: &MappedMemory) -> io::Result<()> {
        let (start, bytes) = (area.address() as u64, (area.pages() * PAGE) as u64);
        self.ask(Self::REGISTER, [start, bytes, 1, 0, 0])
    }

    /// Waits up to `millis` for a fault and gives its address. A fault that a signal interrupts is gone again
    /// before it is read, with or without huepage.
    ///
    /// # Errors
    /// When the descriptor cannot be read, or tells of something else.
    pub fn next(&self, millis: i32) -> io::Result<Option<usize>> {
        let mut ready = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut message = [0u64; 4];
        // SAFETY: live structures of the sizes that are given.
        let n = unsafe {
            if libc::poll(&raw mut ready, 1, millis) <= 0 {
                return Ok(None);
            }
            libc::read(self.0.as_raw_fd(), message.as_mut_ptr().cast(), size_of_val(&message))
        };
        match (n, message[0] & 0xff) {
            (32, 0x12) => Ok(Some(usize::try_from(message[2]).map_err(io::Error::other)?)),
            (32, event) => Err(io::Error::other(format!("event {event:#x} instead of a fault"))),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Puts a copy of a page where a fault waits.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn serve(&self, address: usize, page: &[AtomicU64]) -> io::Result<()> {
        assert_eq!(size_of_val(page), PAGE);
        let to = (address & !(PAGE - 1)) as u64;
        self.ask(Self::COPY, [to, page.as_ptr().addr() as u64, PAGE as u64, 0, 0])
    }

    /// Stops watching.
    ///
    /// # Errors
    /// When the area is not watched.
    pub fn release(&self, area: &MappedMemory) -> io::Result<()> {
        let (start, bytes) = (area.address() as u64, (area.pages() * PAGE) as u64);
        self.ask(Self::UNREGISTER, [start, bytes, 0, 0, 0])
    }

    fn ask(&self, request: c_ulong, mut words: [u64; 5]) -> io::Result<()> {
        // SAFETY: every request reads and writes at most five words; pages come only to areas of
        // the caller's that are seen through atomics.
        let r = unsafe { libc::ioctl(self.0.as_raw_fd(), request, words.as_mut_ptr()) };
        check(r.into()).map(|_| ())
    }
}
