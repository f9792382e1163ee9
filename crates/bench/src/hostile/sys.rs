//! The system calls with which a hostile program attacks the threads that a supervisor put into it.
//!
//! The attacked memory belongs to no Rust object of ours: addresses come from `/proc/self/maps`, and
//! every store goes through the kernel, which refuses what is not mapped. The wrappers know nothing
//! of huepage; what an attack means is said in `attack`.
#![allow(unsafe_code, reason = "an attacker does to its memory what a hostile program does")]

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `PIDFD_THREAD`: a pidfd of one thread.
const PIDFD_THREAD: c_int = libc::O_EXCL;

fn check(result: impl Into<i64>) -> io::Result<i64> {
    let result = result.into();
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Number of the calling thread.
pub fn own_thread() -> i32 {
    // SAFETY: plain call.
    unsafe { libc::gettid() }
}

/// The effective user.
pub fn own_user() -> u32 {
    // SAFETY: plain call.
    unsafe { libc::geteuid() }
}

/// A copy of descriptor `number` of a thread, which may have a table of its own.
///
/// # Errors
/// When the thread has no such descriptor, or may not be looked at.
pub fn steal(thread: i32, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain calls that take numbers; the results are checked and owned by nobody else.
    unsafe {
        let pidfd = check(libc::syscall(libc::SYS_pidfd_open, thread, PIDFD_THREAD))?;
        let pidfd = OwnedFd::from_raw_fd(i32::try_from(pidfd).map_err(io::Error::other)?);
        let fd = check(libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0))?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?))
    }
}

/// Stores bytes at an address of this process; the kernel refuses what cannot be written.
///
/// # Errors
/// When nothing that can be written is mapped there.
pub fn poke(address: usize, bytes: &[u8]) -> io::Result<()> {
    let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let to = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel reads `bytes` and checks the target, which is memory of no Rust object: the
    // caller takes it from areas that this program did not map.
    let n =
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const from, 1, &raw const to, 1, 0) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `mprotect` of memory that this program did not map: `PROT_` bits.
///
/// # Errors
/// When the kernel refuses.
pub fn protect(start: usize, bytes: usize, prot: c_int) -> io::Result<()> {
    // SAFETY: no Rust object lies there, as above.
    check(unsafe { libc::mprotect(start as *mut c_void, bytes, prot) }).map(|_| ())
}

/// `munmap` of memory that this program did not map.
///
/// # Errors
/// When the kernel refuses.
pub fn unmap(start: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: no Rust object lies there, as above.
    check(unsafe { libc::munmap(start as *mut c_void, bytes) }).map(|_| ())
}

/// Moves memory that this program did not map to a place of the kernel's choice.
///
/// # Errors
/// When the kernel refuses.
pub fn move_away(start: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: no Rust object lies there, as above; the kernel picks an unused place.
    let to = unsafe {
        libc::mremap(
            start as *mut c_void,
            bytes,
            bytes,
            libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP,
        )
    };
    if to == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `madvise` of memory that this program did not map: a raw `MADV_` number.
///
/// # Errors
/// When the kernel refuses.
pub fn advise(start: usize, bytes: usize, advice: c_int) -> io::Result<()> {
    // SAFETY: no Rust object lies there, as above.
    check(unsafe { libc::madvise(start as *mut c_void, bytes, advice) }).map(|_| ())
}

/// Maps all of an object shared, for writing if `write`, and gives its place back; it stays mapped.
///
/// # Errors
/// When the kernel refuses.
pub fn map_shared(fd: BorrowedFd<'_>, bytes: usize, write: bool) -> io::Result<usize> {
    let prot = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.addr()) }
}

/// The seals of a memfd.
///
/// # Errors
/// When the object has none.
pub fn seals(fd: BorrowedFd<'_>) -> io::Result<c_int> {
    // SAFETY: plain call.
    let seals = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
    c_int::try_from(seals).map_err(io::Error::other)
}

/// Whether a descriptor may be written through.
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: plain call.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Sends bytes on a socket without waiting.
///
/// # Errors
/// When it cannot take them.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes live through the call.
    let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives what waits on a socket, without waiting.
///
/// # Errors
/// When nothing waits.
pub fn receive(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer lives through the call.
    let n = unsafe {
        libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Closes a descriptor by its number, whoever's it is, or puts `/dev/null`'s over it.
pub fn close_or_cover(number: i32, over: Option<BorrowedFd<'_>>) {
    // SAFETY: the caller gives numbers that none of its own objects has.
    unsafe {
        match over {
            Some(fd) => libc::dup2(fd.as_raw_fd(), number),
            None => libc::close(number),
        };
    }
}

/// Becomes another user for good, with all threads that the C library knows.
///
/// # Errors
/// When the caller has not the right to.
pub fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: plain calls.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(id, id, id))?;
        check(libc::setresuid(id, id, id))?;
        // What `become` is for: a process that dropped its rights and goes on as services do.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)).map(|_| ())
    }
}

/// Becomes another user in the calling thread alone.
///
/// # Errors
/// When the caller has not the right to.
pub fn become_user_alone(id: u32) -> io::Result<()> {
    // SAFETY: plain calls; credentials are per thread.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, id, id, id))?;
        check(libc::syscall(libc::SYS_setresuid, id, id, id)).map(|_| ())
    }
}

/// `unshare` with raw `CLONE_` bits.
///
/// # Errors
/// When the kernel refuses.
pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { libc::unshare(flags) }).map(|_| ())
}

/// `setns` into what a descriptor of a namespace or a process names.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(fd: BorrowedFd<'_>, kinds: c_int) -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { libc::setns(fd.as_raw_fd(), kinds) }).map(|_| ())
}

/// Lowers a limit of this process: a raw `RLIMIT_` number.
///
/// # Errors
/// When the kernel refuses.
pub fn limit(which: u32, most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a live structure.
    check(unsafe { libc::setrlimit(which, &raw const limit) }).map(|_| ())
}

/// Sends a signal to one thread of this process.
///
/// # Errors
/// When there is no such thread.
pub fn signal_thread(thread: i32, signal: c_int) -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) }).map(|_| ())
}

/// Becomes the tracer of a thread without stopping it, then stops it.
///
/// # Errors
/// When the kernel refuses.
pub fn trace(thread: i32) -> io::Result<()> {
    // SAFETY: plain calls with numbers.
    unsafe {
        check(libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0))?;
        check(libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0)).map(|_| ())
    }
}

/// Names the calling thread.
///
/// # Errors
/// Never, for a terminated name.
pub fn name_thread(name: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: a terminated string.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr() as c_ulong, 0, 0, 0) }).map(|_| ())
}

/// Has this process ended when its parent ends.
///
/// # Errors
/// Never, for a valid signal.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(|_| ())
}

/// Ignores a signal: `SIG_IGN`.
pub fn ignore(signal: c_int) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}
