//! Private pages of this process, populated and kept small, to be probed. Nothing here looks
//! at their colours.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::ProbeError;

/// A private anonymous area without huge pages, unmapped on drop.
#[derive(Debug)]
pub struct OwnPages {
    base: NonNull<c_void>,
    count: usize,
}

// SAFETY: the area is owned and none of it depends on the thread.
unsafe impl Send for OwnPages {}
// SAFETY: as above; shared references only hand out addresses.
unsafe impl Sync for OwnPages {}

impl OwnPages {
    /// Reserves `count` pages and leaves them empty.
    ///
    /// # Errors
    /// `Os`.
    pub fn reserve(count: usize) -> Result<OwnPages, ProbeError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let bytes = count * 4096;
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, prot, flags) }
            .map_err(|e| ProbeError::rustix("reserving pages", e))?;
        let base = NonNull::new(base).ok_or(ProbeError::os("reserving pages"))?;
        let pages = OwnPages { base, count };
        // SAFETY: the area was mapped above; the advice changes no contents. Kernels without
        // huge pages refuse it, which is as good.
        let _ = unsafe { mm::madvise(pages.base.as_ptr(), bytes, Advice::LinuxNoHugepage) };
        Ok(pages)
    }

    /// `count` pages with zeroed frames of their own.
    ///
    /// # Errors
    /// `Os`, for want of memory.
    pub fn populated(count: usize) -> Result<OwnPages, ProbeError> {
        let pages = Self::reserve(count)?;
        // SAFETY: the area is owned; populating writes zeroes to pages that had no frame.
        unsafe { mm::madvise(pages.base.as_ptr(), count * 4096, Advice::LinuxPopulateWrite) }
            .map_err(|e| ProbeError::rustix("populating pages", e))?;
        Ok(pages)
    }

    /// Number of pages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Address of the first page.
    pub fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// The addresses covered, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.base()..self.base() + self.count as u64 * 4096
    }

    /// The address of every page.
    pub fn addresses(&self) -> Vec<u64> {
        self.range().step_by(4096).collect()
    }

    /// The area as memory. It is readable and writable for `count() * 4096` bytes while this
    /// value lives; pages that were moved away read as zeroes.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base.as_ptr().cast()
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // SAFETY: the area is owned by this value; benches that load from it keep it alive.
        let _ = unsafe { mm::munmap(self.base.as_ptr(), self.count * 4096) };
    }
}
