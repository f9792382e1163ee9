//! The memory behind the reference classes: pages of a shared memory object, so that every
//! process, an agent in a target included, can map the same frames. This file maps, populates
//! and releases pages; which page is in which class is the business of `classes`. What fails, fails with `Os`.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{self, Advice};

use super::ProbeError;
use super::classes::ColorClasses;
use crate::kernel::mapping::Mapping;

/// A shared mapping of a file or memfd, unmapped on drop. The bytes are never looked at.
#[derive(Debug)]
pub struct ReferenceMemory {
    fd: OwnedFd,
    mapping: Mapping,
}

// SAFETY: this type only hands out the address; no method changes what a shared reference can see.
unsafe impl Sync for ReferenceMemory {}

impl ReferenceMemory {
    /// Memory of its own, of at most `pages` pages; there are none before [`Self::populate`].
    pub fn private(pages: usize) -> Result<ReferenceMemory, ProbeError> {
        let fd =
            memfd_create(c"huepage-reference", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(ProbeError::os("memfd_create for reference pages"))?;
        Self::map(fd, pages)
    }

    /// The first `pages` pages of a file on tmpfs, which must be that long before they are touched, and stay
    /// so. Nothing is populated: a file may have holes where pages were released.
    pub fn map(fd: OwnedFd, pages: usize) -> Result<ReferenceMemory, ProbeError> {
        let mapping = Mapping::shared(&fd, pages * 4096)
            .map_err(ProbeError::os("mapping the reference pages"))?;
        Ok(ReferenceMemory { fd, mapping })
    }

    /// Address of page 0 in this process.
    pub fn base(&self) -> u64 {
        self.mapping.base().as_ptr() as u64
    }

    /// Pages, holes included.
    pub fn pages(&self) -> usize {
        self.mapping.bytes() / 4096
    }

    /// The same memory without the pages from `pages` on.
    pub(crate) fn shortened(&self, pages: usize) -> Result<ReferenceMemory, ProbeError> {
        let file = self.file()?;
        self.resize(pages)?;
        Self::map(file.into(), pages)
    }

    /// Has the file reach so far; pages beyond are freed and must not be touched.
    pub(super) fn resize(&self, pages: usize) -> Result<(), ProbeError> {
        ftruncate(&self.fd, pages as u64 * 4096)
            .map_err(ProbeError::os("sizing the reference pages"))
    }

    /// Gives pages `first..first + count`, up to which the file is made to reach, frames of their own.
    pub fn populate(&self, first: usize, count: usize) -> Result<(), ProbeError> {
        if count == 0 {
            return Ok(());
        }
        self.resize(first + count)?;
        self.advise(first, count, Advice::LinuxPopulateWrite)
            .map_err(ProbeError::os("populating reference pages"))
    }

    fn advise(&self, first: usize, count: usize, advice: Advice) -> rustix::io::Result<()> {
        assert!(first + count <= self.pages(), "pages {first}+{count} of {}", self.pages());
        // SAFETY: the range lies within the mapping that this value owns, and neither advice
        // used here changes its contents.
        unsafe { mm::madvise(self.at(first), count * 4096, advice) }
    }

    fn at(&self, page: usize) -> *mut c_void {
        self.mapping.base().as_ptr().wrapping_byte_add(page * 4096)
    }

    /// Frees the frames of all pages from `first` on that are not in `keep`, and holds the
    /// others in memory if the limit on locked memory allows.
    ///
    /// # Errors
    /// `Os` if the file cannot have holes.
    pub fn release_others(&self, first: usize, keep: &ColorClasses) -> Result<(), ProbeError> {
        let mut used = vec![false; self.pages()];
        used[..first].fill(true);
        keep.pages().for_each(|page| used[page as usize] = true);
        let mut start = first;
        for run in used[first..].chunk_by(|a, b| a == b) {
            let (offset, len) = (start as u64 * 4096, run.len() as u64 * 4096);
            if run[0] {
                // SAFETY: within the mapping; locking changes no contents. Best effort:
                // without swap nothing would be lost anyway.
                let _ = unsafe { mm::mlock(self.at(start), len as usize) };
            } else {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.fd, mode, offset, len)
                    .map_err(ProbeError::os("releasing reference pages"))?;
            }
            start += run.len();
        }
        Ok(())
    }

    /// Another descriptor of the same memory, to be sent to whoever shall map it. Map it
    /// without populating, as the holes would be filled.
    pub fn file(&self) -> Result<File, ProbeError> {
        let copy = self.fd.try_clone();
        copy.map(File::from).map_err(ProbeError::os("duplicating the reference descriptor"))
    }
}

impl AsFd for ReferenceMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::color::probe::params::ProbeParams;

    #[test]
    fn released_pages_become_holes_and_kept_ones_stay() {
        let memory = ReferenceMemory::private(64).unwrap();
        memory.populate(0, 64).unwrap();
        let params = ProbeParams::new(2, 2, 64, 128);
        let classes = vec![vec![3, 4, 5], vec![60]];
        let keep = ColorClasses { params, classes };
        memory.release_others(0, &keep).unwrap();
        let blocks = rustix::fs::fstat(&memory).unwrap().st_blocks;
        assert_eq!(blocks, 4 * 8);
    }
}
