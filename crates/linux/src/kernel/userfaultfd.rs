//! Descriptors of userfaultfd: having one, and asking the kernel what it can do. What memory
//! is registered, and what becomes of faults, is up to the callers.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// `UFFDIO_MOVE` exists.
pub(crate) const FEATURE_MOVE: u64 = 1 << 16;
/// Forks are reported.
const FEATURE_FORK: u64 = 1 << 1;
/// Remaps are reported.
const FEATURE_REMAP: u64 = 1 << 2;
/// Discards are reported.
const FEATURE_REMOVE: u64 = 1 << 3;
/// Unmaps are reported.
const FEATURE_UNMAP: u64 = 1 << 6;

/// All that the engine relies on.
pub(crate) const WANTED: u64 =
    FEATURE_MOVE | FEATURE_FORK | FEATURE_REMAP | FEATURE_REMOVE | FEATURE_UNMAP;

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const USERFAULTFD_IOC_NEW: libc::Ioctl = 0xaa00;
const UFFD_USER_MODE_ONLY: u32 = 1;

/// How a userfaultfd was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// The system call, faults in the kernel included.
    Syscall,
    /// `/dev/userfaultfd`.
    Device,
    /// The system call, but only for faults in user mode: no use for real programs.
    UserModeOnly,
}

/// Opens a userfaultfd in the best way that is allowed.
pub(crate) fn open(dev: &Path) -> io::Result<(OwnedFd, Via)> {
    let refused = match syscall(0) {
        Ok(fd) => return Ok((fd, Via::Syscall)),
        Err(e) => e,
    };
    if let Ok(fd) = device(dev) {
        return Ok((fd, Via::Device));
    }
    syscall(UFFD_USER_MODE_ONLY).map(|fd| (fd, Via::UserModeOnly)).map_err(|_| refused)
}

/// Whether a fresh userfaultfd really grants these features.
pub(crate) fn grants(dev: &Path, features: u64) -> io::Result<bool> {
    let (fd, _) = open(dev)?;
    handshake(&fd, features).map(|got| got & features == features)
}

/// Asks for features, once for each descriptor; those that the kernel offers.
pub(crate) fn handshake(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    // `struct uffdio_api`: which interface, features, requests.
    let mut api = [UFFD_API, features, 0];
    // SAFETY: laid out as the kernel defines it for this request, and it lives across the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } {
        0 => Ok(api[1]),
        _ => Err(io::Error::last_os_error()),
    }
}

fn syscall(extra: u32) -> io::Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: the descriptor has no memory registered yet.
    Ok(unsafe { userfaultfd(flags | UserfaultfdFlags::from_bits_retain(extra)) }?)
}

fn device(dev: &Path) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(dev.join("userfaultfd"))?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: this request takes its flags by value and returns a descriptor or an error.
    match unsafe { libc::ioctl(file.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) } {
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        fd if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
