//! Files that others may read and never write. A descriptor for reading is not enough: whoever has it can open the
//! file anew by `/proc/self/fd`, for writing if the file's mode lets him, which it does root, of a container, too.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::SealFlags;

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// The same file below a mount of its own that is read-only and attached nowhere. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// When the kernel refuses.
pub fn reopen(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mount = match own_mount(file) {
        // Memory without a name lies below no mount that could be copied; it is nobody else's.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return sealed(file),
        mount => mount?,
    };
    let read_only = libc::MOUNT_ATTR_RDONLY
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    let attributes =
        MountAttributes { set: read_only, clear: 0, propagation: 0, user_namespace: 0 };
    let size = size_of::<MountAttributes>();
    // SAFETY: the path is empty and ends with a zero; the attributes live through the call and have that size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    File::open(format!("/proc/self/fd/{}", mount.as_raw_fd())).map(OwnedFd::from)
}

/// The same memory, which keeps its length whoever opens it anew.
fn sealed(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW)?;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map(OwnedFd::from)
}

/// A copy of the mount that the file lies in, with the file as its root.
fn own_mount(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const CLONE: libc::c_uint = 1;
    let flags = CLONE | (libc::O_CLOEXEC | libc::AT_EMPTY_PATH).cast_unsigned();
    // SAFETY: the path is empty and ends with a zero.
    let mount =
        unsafe { libc::syscall(libc::SYS_open_tree, file.as_raw_fd(), c"".as_ptr(), flags) };
    let mount = i32::try_from(mount).map_err(|_| io::ErrorKind::InvalidData)?;
    if mount < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(mount) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn nobody_writes_it_through_a_descriptor_made_of_it() {
        if !rustix::process::geteuid().is_root() {
            return huepage_testing::skip("read-only files", "not root");
        }
        let mut file = tempfile::tempfile_in("/dev/shm").expect("a file");
        file.write_all(b"colours").expect("room");
        let reopened = reopen(file.as_fd()).expect("root may");
        let path = format!("/proc/self/fd/{}", reopened.as_raw_fd());
        let written = File::options().write(true).open(&path).expect_err("read-only");
        assert_eq!(written.raw_os_error(), Some(libc::EROFS));
        let cut = File::create(&path).expect_err("read-only");
        assert_eq!(cut.raw_os_error(), Some(libc::EROFS));
        let mut text = String::new();
        File::open(&path).and_then(|mut file| file.read_to_string(&mut text)).expect("readable");
        assert_eq!(text, "colours");
    }

    #[test]
    fn memory_without_a_name_keeps_its_length() {
        if !rustix::process::geteuid().is_root() {
            return huepage_testing::skip("memory without a name", "not root");
        }
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create(c"pages", flags).expect("memory");
        rustix::fs::ftruncate(&memory, 4096).expect("room");
        let reopened = reopen(memory.as_fd()).expect("it can be sealed");
        let path = format!("/proc/self/fd/{}", reopened.as_raw_fd());
        let anew = File::options().write(true).open(path).expect("root may");
        assert_eq!(anew.set_len(0).expect_err("sealed").raw_os_error(), Some(libc::EPERM));
        assert_eq!(anew.metadata().expect("its length").len(), 4096);
    }
}
