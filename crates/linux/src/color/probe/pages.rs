//! Private pages of this process, populated and kept small, to be probed. Nothing here looks
//! at their colours. What fails, fails with `Os`, most likely for want of memory.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use rustix::mm::{self, Advice, MapFlags};

use super::ProbeError;
use crate::kernel::mapping::Mapping;

/// Bytes populated in one call. As long as it lasts no other thread can map or unmap anything, and
/// a small page takes a microsecond or two.
const PIECE: usize = 32 * 4096;
/// The same for huge pages.
const HUGE_PIECE: usize = 512 * 4096;

/// A private anonymous area without huge pages, unmapped on drop.
#[derive(Debug)]
pub struct OwnPages {
    mapping: Mapping,
    /// Bytes of the mapping before the first page.
    before: usize,
    count: usize,
}

// SAFETY: shared references only hand out addresses.
unsafe impl Sync for OwnPages {}

impl OwnPages {
    /// Reserves `count` pages and leaves them empty.
    pub fn reserve(count: usize) -> Result<OwnPages, ProbeError> {
        let mapping = Mapping::private(count * 4096, MapFlags::NORESERVE)
            .map_err(ProbeError::os("reserving pages"))?;
        let pages = OwnPages { mapping, before: 0, count };
        // SAFETY: the area was mapped above; the advice changes no contents. Kernels without
        // huge pages refuse it, which is as good.
        let _ = unsafe { mm::madvise(pages.at(), count * 4096, Advice::LinuxNoHugepage) };
        Ok(pages)
    }

    /// `count` pages with zeroed frames of their own.
    pub fn populated(count: usize) -> Result<OwnPages, ProbeError> {
        let pages = Self::reserve(count)?;
        pages.populate(false)?;
        Ok(pages)
    }

    /// Gives all pages frames of their own; with `huge` in huge pages where the kernel has them,
    /// which can be [split](Self::split). In that case every page is written to: the kernel would put
    /// its one page of zeroes in the place of others as it splits.
    pub fn populate(&self, huge: bool) -> Result<(), ProbeError> {
        let (base, bytes) = (self.at(), self.count * 4096);
        // SAFETY: the area is owned; a kernel without huge pages refuses the advice.
        let advise = |advice| unsafe { mm::madvise(base, bytes, advice) };
        if huge {
            let _ = advise(Advice::LinuxHugepage);
        }
        self.populate_by(if huge { HUGE_PIECE } else { PIECE })?;
        if huge {
            // Nobody is to build huge pages again.
            let _ = advise(Advice::LinuxNoHugepage);
            for address in self.range().step_by(4096) {
                // SAFETY: inside the area, which is writable and owned.
                unsafe { (address as *mut u8).write_volatile(1) };
            }
        }
        Ok(())
    }

    fn populate_by(&self, piece: usize) -> Result<(), ProbeError> {
        for address in self.range().step_by(piece) {
            let left = usize::try_from(self.range().end - address).unwrap_or(0);
            let at = address as *mut c_void;
            // SAFETY: a part of the owned area; populating gives pages zeroed frames.
            unsafe { mm::madvise(at, piece.min(left), Advice::LinuxPopulateWrite) }
                .map_err(ProbeError::os("populating pages"))?;
        }
        Ok(())
    }

    /// As [`Self::reserve`], and the first page lies at a multiple of 2 MiB.
    pub fn reserve_aligned(count: usize) -> Result<OwnPages, ProbeError> {
        const HUGE: usize = 512;
        let whole = Self::reserve(count + HUGE)?;
        let before = whole.at().cast::<u8>().align_offset(HUGE * 4096);
        Ok(OwnPages { before, count, ..whole })
    }

    fn at(&self) -> *mut c_void {
        self.mapping.base().as_ptr().wrapping_byte_add(self.before)
    }

    /// Splits the huge page that begins at `address` into small ones; contents stay. Does nothing
    /// where there is none, and may fail: the flags of the frames tell.
    pub fn split(&self, address: u64) {
        debug_assert!(self.range().contains(&address));
        // A part of a huge page cannot become cold, so the kernel splits it.
        // SAFETY: one page of the owned area; the advice changes no contents.
        let _ = unsafe { mm::madvise(address as *mut c_void, 4096, Advice::LinuxCold) };
    }

    /// Number of pages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Address of the first page.
    pub fn base(&self) -> u64 {
        self.at() as u64
    }

    /// The addresses covered, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.base()..self.base() + self.count as u64 * 4096
    }

    /// The address of every page.
    pub fn addresses(&self) -> Vec<u64> {
        self.range().step_by(4096).collect()
    }

    /// Loads every line of some pages, in order: some nanoseconds each.
    ///
    /// # Panics
    /// When there are not so many pages.
    pub fn load(&self, pages: Range<usize>) {
        assert!(pages.end <= self.count, "{pages:?} of {}", self.count);
        let first = self.at().cast::<u8>().cast_const();
        for line in pages.start * 64..pages.end * 64 {
            // SAFETY: within the owned area, which stays mapped; what moved away reads as zeroes. The
            // load is volatile as nobody looks at what it returns.
            unsafe { ptr::read_volatile(first.add(line * 64)) };
        }
    }

    /// The area as memory. It is readable and writable for `count() * 4096` bytes while this
    /// value lives; pages that were moved away read as zeroes.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at().cast()
    }
}
