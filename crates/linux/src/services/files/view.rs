//! A window on the cached pages of a file: which have been read, and which frames they lie in. The
//! pages are mapped for that as long as the window lives, which keeps them from being dropped; no
//! byte of them is loaded here, so that a file that becomes shorter meanwhile harms nobody. Windows
//! on one file can share a mapping: to make and remove one stops all faults of this process.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use huepage_color::{PAGE_BYTES, Pfn, Vpn};
use rustix::mm::{self, Advice, MapFlags, MlockFlags, ProtFlags};

use crate::kernel::page_cache;
use crate::kernel::procfs::{PageEntry, Pagemap, ProcError};

/// A cached page and its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPage {
    /// Index of the page in the file.
    pub page: u64,
    /// Where it lies.
    pub frame: Pfn,
}

/// Pages of a file that are mapped for the windows of a [`Views`] together, at most.
const SHARED_PAGES: u64 = 1 << 15;

/// See the module's head.
#[derive(Debug)]
pub struct View {
    mapping: Arc<Mapping>,
    pages: Range<u64>,
}

/// Pages of a file, mapped until this goes.
#[derive(Debug)]
struct Mapping {
    base: NonNull<c_void>,
    pages: Range<u64>,
}

// SAFETY: the mapping is owned and nothing about it depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: it is not changed through this value, and its contents are never looked at.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, pages: Range<u64>) -> io::Result<Mapping> {
        let offset = pages.start * PAGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody, and its
        // contents are never looked at.
        let base = unsafe {
            let (len, none) = (length(&pages), ptr::null_mut());
            mm::mmap(none, len, ProtFlags::READ, MapFlags::SHARED, file, offset)
        }?;
        let base = NonNull::new(base).ok_or_else(io::Error::last_os_error)?;
        let mapping = Mapping { base, pages };
        // Pages that left meanwhile would come back with all their neighbours.
        mapping.advise(&mapping.pages, Advice::Random)?;
        Ok(mapping)
    }

    fn address(&self, page: u64) -> u64 {
        self.base.as_ptr() as u64 + (page - self.pages.start) * PAGE_BYTES
    }

    fn advise(&self, pages: &Range<u64>, advice: Advice) -> io::Result<()> {
        let at = self.address(pages.start) as *mut c_void;
        // SAFETY: a part of the mapping, which is owned; the advices used change no contents.
        unsafe { mm::madvise(at, length(pages), advice) }.map_err(io::Error::from)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value; whoever loads from it borrows it.
        let _ = unsafe { mm::munmap(self.base.as_ptr(), length(&self.pages)) };
    }
}

/// Bytes of some pages.
fn length(pages: &Range<u64>) -> usize {
    usize::try_from((pages.end - pages.start) * PAGE_BYTES).unwrap_or(usize::MAX)
}

/// Makes windows on one file after the other: when one goes, nothing that others show stays mapped.
/// It keeps the last file open and mapped, with no page of it, until [`Self::clear`].
#[derive(Debug, Default)]
pub struct Views(Option<(Arc<File>, Arc<Mapping>)>);

impl Views {
    /// As [`View::new`].
    ///
    /// # Errors
    /// As [`View::new`].
    pub fn view(&mut self, file: &Arc<File>, pages: &Range<u64>) -> io::Result<View> {
        let fits = |(known, mapping): &&(Arc<File>, Arc<Mapping>)| {
            let all = &mapping.pages;
            Arc::ptr_eq(known, file) && all.start <= pages.start && pages.end <= all.end
        };
        if let Some((_, mapping)) = self.0.as_ref().filter(fits) {
            return Ok(View { mapping: Arc::clone(mapping), pages: pages.clone() });
        }
        // No further than the file goes: most are smaller than one window.
        let end = file.metadata()?.len().div_ceil(PAGE_BYTES).min(pages.start + SHARED_PAGES);
        let mapping = Arc::new(Mapping::new(file, pages.start..end.max(pages.end))?);
        self.0 = Some((Arc::clone(file), Arc::clone(&mapping)));
        Ok(View { mapping, pages: pages.clone() })
    }

    /// Lets go of the last file.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl View {
    /// Maps pages of a file, which may end before them; nothing is read.
    ///
    /// # Errors
    /// When the file cannot be mapped (a directory, a pipe, no right to read), or `pages` is empty.
    pub fn new(file: &File, pages: Range<u64>) -> io::Result<View> {
        let mapping = Arc::new(Mapping::new(file, pages.clone())?);
        Ok(View { mapping, pages })
    }

    /// The pages of the file that it shows, those behind its end included.
    pub fn pages(&self) -> &Range<u64> {
        &self.pages
    }

    /// Where a page of the file is mapped.
    pub fn address(&self, page: u64) -> u64 {
        self.mapping.address(page)
    }

    /// Which of the pages have been read into the cache.
    ///
    /// # Errors
    /// What mincore(2) says.
    pub fn in_core(&self) -> io::Result<Vec<bool>> {
        let pages = usize::try_from(self.pages.end - self.pages.start).unwrap_or(0);
        page_cache::in_core(self.address(self.pages.start), pages)
    }

    /// Maps pages that are cached, waiting for those that are being read; others are read one
    /// by one.
    ///
    /// # Errors
    /// When some cannot be read or are not there any more; those before them are mapped.
    pub fn populate(&self, pages: &Range<u64>) -> io::Result<()> {
        self.mapping.advise(pages, Advice::LinuxPopulateRead)
    }

    /// Keeps the pages that are cached now in memory for as long as the window lives; nothing is read.
    ///
    /// # Errors
    /// What mlock2(2) or mincore(2) says; fewer may be kept then.
    pub fn hold(&self) -> io::Result<()> {
        let at = self.address(self.pages.start) as *mut c_void;
        // SAFETY: a part of the mapping, which is owned; locking changes no contents, and unmapping undoes it.
        unsafe { mm::mlock_with(at, length(&self.pages), MlockFlags::ONFAULT) }?;
        for run in runs(&self.in_core()?) {
            // A page that went away in between cannot be kept.
            let _ = self.populate(&(self.pages.start + run.start..self.pages.start + run.end));
        }
        Ok(())
    }

    /// Has the kernel reclaim pages that nobody else maps, into swap if they are memory only.
    ///
    /// # Errors
    /// What madvise(2) says; pages that cannot be reclaimed are no error.
    pub fn page_out(&self, pages: &Range<u64>) -> io::Result<()> {
        self.mapping.advise(pages, Advice::LinuxPageOut)
    }

    /// The frames of the pages that are cached now.
    ///
    /// # Errors
    /// When page tables cannot be read, or what mincore(2) says.
    pub fn resident(&self, pagemap: &Pagemap) -> Result<Vec<CachedPage>, ProcError> {
        for run in runs(&self.in_core().unwrap_or_default()) {
            let pages = self.pages.start + run.start..self.pages.start + run.end;
            // A page that went away in between shows in the page tables.
            let _ = self.populate(&pages);
        }
        self.mapped(pagemap)
    }

    /// The frames of the pages that this window has mapped.
    ///
    /// # Errors
    /// When page tables cannot be read.
    pub fn mapped(&self, pagemap: &Pagemap) -> Result<Vec<CachedPage>, ProcError> {
        let pages = usize::try_from(self.pages.end - self.pages.start).unwrap_or(0);
        let mut entries: Vec<PageEntry> = Vec::new();
        pagemap.entries(Vpn(self.address(self.pages.start) / PAGE_BYTES), pages, &mut entries)?;
        let found = self.pages.clone().zip(&entries);
        Ok(found.filter_map(|(page, e)| Some(CachedPage { page, frame: e.pfn()? })).collect())
    }
}

impl Drop for View {
    /// A page that stays mapped could not be dropped from the cache. The kernel maps neighbours of
    /// what it maps, so all of the mapping is emptied.
    fn drop(&mut self) {
        if Arc::strong_count(&self.mapping) > 1 {
            let _ = self.mapping.advise(&self.mapping.pages, Advice::LinuxDontNeed);
        }
    }
}

/// The runs of `true`, as ranges of indices.
pub(super) fn runs(flags: &[bool]) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for (i, _) in (0u64..).zip(flags).filter(|(_, flag)| **flag) {
        match found.last_mut() {
            Some(last) if last.end == i => last.end += 1,
            _ => found.push(i..i + 1),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn runs_are_maximal() {
        assert_eq!(runs(&[true, true, false, true]), [0..2, 3..4]);
        assert!(runs(&[false]).is_empty());
    }

    #[test]
    fn pages_in_the_cache_are_seen_and_those_behind_the_end_are_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 4096 + 5]).unwrap();
        let view = View::new(&file, 0..6).unwrap();
        assert_eq!(view.in_core().unwrap()[..4], [true; 4]);
        assert!(view.populate(&(0..4)).is_ok());
        assert!(view.populate(&(0..6)).is_err(), "there is nothing behind the end");
        file.set_len(4096).unwrap();
        assert!(view.populate(&(0..1)).is_ok() && view.populate(&(1..2)).is_err());
        assert_eq!(view.address(2) - view.address(0), 8192);
    }

    #[test]
    fn what_is_held_is_locked_and_nothing_is_read_for_it() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4 * 4096]).unwrap();
        file.set_len(16 * 4096).unwrap();
        let view = View::new(&file, 0..16).unwrap();
        let cached = |view: &View| view.in_core().unwrap().iter().filter(|there| **there).count();
        let before = cached(&view);
        view.hold().unwrap();
        assert_eq!(cached(&view), before);
        let locked = of_mapping(view.address(0), "Locked:");
        assert!(locked >= Some(16), "four pages were written: {locked:?} KiB");
    }

    #[test]
    fn windows_on_one_file_share_a_mapping_which_maps_nothing_between_them() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8 * 4096]).unwrap();
        let (file, mut views) = (Arc::new(file), Views::default());
        let first = views.view(&file, &(0..2)).unwrap();
        first.populate(&(0..2)).unwrap();
        let at = first.address(0);
        let mapped = mapped_kib(at).unwrap();
        assert!((8..=32).contains(&mapped), "{mapped} KiB: neighbours may be mapped too");
        drop(first);
        assert_eq!(mapped_kib(at), Some(0));
        let second = views.view(&file, &(6..8)).unwrap();
        assert_eq!(second.address(6), at + 6 * 4096);
        let beyond = views.view(&file, &(7..12)).unwrap();
        assert_eq!(beyond.pages().end, 12, "another mapping, as the file was shorter");
        drop((second, beyond));
        views.clear();
        assert_eq!(mapped_kib(at), None);
    }

    /// Resident memory of the mapping at an address.
    fn mapped_kib(at: u64) -> Option<u64> {
        of_mapping(at, "Rss:")
    }

    fn of_mapping(at: u64, field: &str) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let area = text.split_once(&format!("\n{at:x}-"))?.1;
        let value = area.lines().find_map(|line| line.strip_prefix(field))?;
        value.split_whitespace().next()?.parse().ok()
    }
}
