//! The memory behind the reference classes: pages of a shared memory object, so that every
//! process, an agent in a target included, can map the same frames. This file maps, populates
//! and releases pages; which page is in which class is the business of `classes`.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use huepage_color::PAGE_BYTES;

use super::bench::LocalBench;
use super::classes::{ColorClasses, build_classes};
use super::params::ProbeParams;
use super::{ProbeError, TimingBench};
use crate::cgroup::MOUNT;
use crate::memory_room::{MemoryRoom, available_bytes};
use crate::procfs::ProcRoot;

/// A shared mapping of a file or memfd, unmapped on drop. The bytes are never looked at.
#[derive(Debug)]
pub struct ReferenceMemory {
    fd: OwnedFd,
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping is owned, and this type only hands out its address; nothing about it
// depends on the thread.
unsafe impl Send for ReferenceMemory {}
// SAFETY: as above; no method changes what a shared reference can see.
unsafe impl Sync for ReferenceMemory {}

impl ReferenceMemory {
    /// Memory of its own, of `pages` populated pages.
    ///
    /// # Errors
    /// `Os`.
    pub fn private(pages: usize) -> Result<ReferenceMemory, ProbeError> {
        let fd = memfd_create(c"huepage-reference", MemfdFlags::CLOEXEC)
            .map_err(|e| ProbeError::rustix("memfd_create for reference pages", e))?;
        ftruncate(&fd, pages as u64 * 4096)
            .map_err(|e| ProbeError::rustix("sizing the reference pages", e))?;
        let memory = Self::map(fd, pages)?;
        memory.populate(0, pages)?;
        Ok(memory)
    }

    /// The first `pages` pages of a file on tmpfs, which must be at least that long and stay
    /// so. Nothing is populated: a file may have holes where pages were released.
    ///
    /// # Errors
    /// `Os`.
    pub fn map(fd: OwnedFd, pages: usize) -> Result<ReferenceMemory, ProbeError> {
        let bytes = pages * 4096;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe { mm::mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, &fd, 0) }
            .map_err(|e| ProbeError::rustix("mapping the reference pages", e))?;
        let base = NonNull::new(base).ok_or(ProbeError::os("mapping the reference pages"))?;
        Ok(ReferenceMemory { fd, base, bytes })
    }

    /// Address of page 0 in this process.
    pub fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Pages, holes included.
    pub fn pages(&self) -> usize {
        self.bytes / 4096
    }

    /// Gives pages `first..first + count` frames of their own.
    ///
    /// # Errors
    /// `Os`, for want of memory.
    pub fn populate(&self, first: usize, count: usize) -> Result<(), ProbeError> {
        self.advise(first, count, Advice::LinuxPopulateWrite)
            .map_err(|e| ProbeError::rustix("populating reference pages", e))
    }

    fn advise(&self, first: usize, count: usize, advice: Advice) -> rustix::io::Result<()> {
        assert!(first + count <= self.pages(), "pages {first}+{count} of {}", self.pages());
        // SAFETY: the range lies within the mapping that this value owns, and neither advice
        // used here changes its contents.
        unsafe { mm::madvise(self.at(first), count * 4096, advice) }
    }

    fn at(&self, page: usize) -> *mut c_void {
        self.base.as_ptr().wrapping_byte_add(page * 4096)
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
                    .map_err(|e| ProbeError::rustix("releasing reference pages", e))?;
            }
            start += run.len();
        }
        Ok(())
    }

    /// Another descriptor of the same memory, to be sent to whoever shall map it. Map it
    /// without populating, as the holes would be filled.
    ///
    /// # Errors
    /// `Os`.
    pub fn file(&self) -> Result<File, ProbeError> {
        let copy = self.fd.try_clone();
        copy.map(File::from).map_err(|_| ProbeError::os("duplicating the reference descriptor"))
    }
}

impl AsFd for ReferenceMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ReferenceMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value, and benches that load from it hold it
        // alive by an Arc.
        let _ = unsafe { mm::munmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Reference pages together with their classes.
#[derive(Clone, Debug)]
pub struct ReferenceSet {
    /// The pages.
    pub memory: Arc<ReferenceMemory>,
    /// Which of them have which colour.
    pub classes: ColorClasses,
    /// Identifies this set among all of this machine: colours of two sets with the same
    /// number mean the same.
    pub generation: u64,
}

impl ReferenceSet {
    /// Builds a set in private memory, measuring on `cpu` for at most `limit` of CPU time.
    ///
    /// # Errors
    /// `Classes`, `Pin`, `Os`.
    pub fn build_private(
        params: &ProbeParams,
        cpu: usize,
        limit: Duration,
    ) -> Result<ReferenceSet, ProbeError> {
        let memory = Arc::new(ReferenceMemory::private(pool_pages(params))?);
        Self::build_in(memory, 0, params, cpu, limit)
    }

    /// Builds a set out of the populated pages from `first` on, and releases the others.
    pub(crate) fn build_in(
        memory: Arc<ReferenceMemory>,
        first: usize,
        params: &ProbeParams,
        cpu: usize,
        limit: Duration,
    ) -> Result<ReferenceSet, ProbeError> {
        let candidates: Vec<u32> = (first as u32..memory.pages() as u32).collect();
        let mut bench = LocalBench::with_reference(cpu, &memory)?;
        let classes = build_classes(&mut bench, params, &candidates, limit)?;
        memory.release_others(first, &classes)?;
        Ok(ReferenceSet { memory, classes, generation: new_generation(&bench) })
    }

    /// A bench in this process, on `cpu`, that can load from these reference pages.
    ///
    /// # Errors
    /// `Pin`.
    pub fn bench(&self, cpu: usize) -> Result<LocalBench, ProbeError> {
        LocalBench::with_reference(cpu, &self.memory)
    }
}

/// Pages to draw candidates from: as many as are wanted, where an eighth of what this machine and the control
/// groups of this process leave is enough for that.
pub(crate) fn pool_pages(params: &ProbeParams) -> usize {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let group = MemoryRoom::new(ProcRoot::default(), Path::new(MOUNT), own).left();
    let least = group.into_iter().chain(available_bytes()).min();
    let room = least.map_or(usize::MAX, |bytes| (bytes / 8 / PAGE_BYTES) as usize);
    params.pool().min(room).max(params.candidates)
}

/// A number that no other set of this machine has: the time, the process and the address.
fn new_generation(bench: &dyn TimingBench) -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |d| d.as_nanos() as u64);
    let mixed = nanos ^ (u64::from(std::process::id()) << 40) ^ bench.reference_base() >> 12;
    mixed.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_become_holes_and_kept_ones_stay() {
        let memory = ReferenceMemory::private(64).unwrap();
        let params = ProbeParams::new(2, 2, 64, 128);
        let classes = vec![vec![3, 4, 5], vec![60]];
        let keep = ColorClasses { params, classes };
        memory.release_others(0, &keep).unwrap();
        let blocks = rustix::fs::fstat(&memory).unwrap().st_blocks;
        assert_eq!(blocks, 4 * 8);
    }
}
