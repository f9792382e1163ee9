//! Asking the kernel what its userfaultfd can do, without registering any memory.
//!
//! Only for [`super::features`]; the engine opens its own descriptors.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// `UFFDIO_MOVE` exists.
pub(super) const FEATURE_MOVE: u64 = 1 << 16;
/// Forks are reported.
pub(super) const FEATURE_FORK: u64 = 1 << 1;
/// Remaps are reported.
pub(super) const FEATURE_REMAP: u64 = 1 << 2;
/// Discards are reported.
pub(super) const FEATURE_REMOVE: u64 = 1 << 3;
/// Unmaps are reported.
pub(super) const FEATURE_UNMAP: u64 = 1 << 6;

/// All that the engine relies on.
pub(super) const WANTED: u64 =
    FEATURE_MOVE | FEATURE_FORK | FEATURE_REMAP | FEATURE_REMOVE | FEATURE_UNMAP;

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
const UFFD_USER_MODE_ONLY: libc::c_int = 1;

/// How a userfaultfd was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// The system call, faults in the kernel included.
    Syscall,
    /// `/dev/userfaultfd`.
    Device,
    /// The system call, but only for faults in user mode: no use for real programs.
    UserModeOnly,
}

#[repr(C)]
#[derive(Default)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Opens a userfaultfd in the best way that is allowed.
pub(super) fn open(dev: &Path) -> io::Result<(OwnedFd, Via)> {
    let refused = match syscall(0) {
        Ok(fd) => return Ok((fd, Via::Syscall)),
        Err(e) => e,
    };
    if let Ok(fd) = device(dev) {
        return Ok((fd, Via::Device));
    }
    syscall(UFFD_USER_MODE_ONLY).map(|fd| (fd, Via::UserModeOnly)).map_err(|_| refused)
}

/// The features the kernel offers; asked of `fd`, which then has shaken hands and is spent.
pub(super) fn offered(fd: &OwnedFd) -> io::Result<u64> {
    handshake(fd, 0)
}

/// Whether a fresh userfaultfd really grants these features.
pub(super) fn grants(dev: &Path, features: u64) -> io::Result<bool> {
    let (fd, _) = open(dev)?;
    handshake(&fd, features).map(|got| got & features == features)
}

fn handshake(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut api = UffdioApi { api: UFFD_API, features, ioctls: 0 };
    // SAFETY: the kernel reads and writes one `uffdio_api`, which `api` is laid out as.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) };
    if rc == 0 { Ok(api.features) } else { Err(io::Error::last_os_error()) }
}

fn syscall(extra: libc::c_int) -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | extra;
    // SAFETY: takes one integer and returns a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    owned(fd)
}

fn device(dev: &Path) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(dev.join("userfaultfd"))?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: this request takes its flags by value and returns a descriptor or an error.
    let fd = unsafe { libc::ioctl(file.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
    owned(fd.into())
}

/// Takes the descriptor that a system call returned, or its error.
pub(super) fn owned(rc: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(rc) {
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
