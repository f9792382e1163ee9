//! Memory of this process that is mapped as long as its owner lives. What lies in it, and who may touch it when,
//! is its owner's business.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::io;
use rustix::mm::{self, MapFlags, ProtFlags};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Readable and, but for [`Mapping::read_only`], writable memory, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the memory is owned, only its address is handed out, and nothing about it depends on the thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Private, empty memory.
    pub fn private(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        let flags = MapFlags::PRIVATE | flags;
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, flags) }?;
        Mapping::of(base, bytes)
    }

    /// The first bytes of an object, shared with whoever maps it.
    pub fn shared(object: impl AsFd, bytes: usize) -> io::Result<Mapping> {
        let (none, flags) = (ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe { mm::mmap(none, bytes, READ_WRITE, flags, object, 0) }?;
        Mapping::of(base, bytes)
    }

    /// The first bytes of an object for reading only.
    pub fn read_only(object: impl AsFd, bytes: usize) -> io::Result<Mapping> {
        let (none, flags) = (ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe { mm::mmap(none, bytes, ProtFlags::READ, flags, object, 0) }?;
        Mapping::of(base, bytes)
    }

    fn of(base: *mut c_void, bytes: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base).ok_or(io::Errno::NOMEM)?;
        Ok(Mapping { base, bytes })
    }

    /// Where it begins, at a page.
    pub fn base(&self) -> NonNull<c_void> {
        self.base
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory is owned by this value, and its owners keep it as long as anybody refers to it.
        let _ = unsafe { mm::munmap(self.base.as_ptr(), self.bytes) };
    }
}
