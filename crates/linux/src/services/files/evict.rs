//! Makes cached pages of a file leave the cache, so that they can be read again: dirty ones are
//! written back first, pages that one process maps are paged out of it, all others that are in
//! use stay. Only the kernel drops anything, and it drops nothing that is not on the disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::filesystem::{Placeable, placeable};
use super::lookup::cached_pages;
use super::{FileCacheError, PlacementRefusal};
use crate::kernel::mappers::{FileId, Mappers};
use crate::kernel::page_cache;
use crate::kernel::procfs::{FrameCounts, FrameFlagsReader, ProcRoot};
use huepage_color::Pfn;

/// How long a scan of who maps what is believed.
const MAPPERS_FRESH_FOR: Duration = Duration::from_millis(500);
/// Processes that pages are paged out of at most.
const MOST_MAPPERS: usize = 8;
/// Most pages of a folio: 2 MiB.
const FOLIO_PAGES: u64 = 512;

/// What it takes to make pages leave.
#[derive(Debug)]
pub(super) struct Evictor {
    root: ProcRoot,
    flags: FrameFlagsReader,
    counts: FrameCounts,
    mappers: Option<(Instant, Mappers)>,
}

impl Evictor {
    /// Reads what the kernel says of frames; needs root.
    pub fn new(root: &ProcRoot) -> Result<Evictor, FileCacheError> {
        Ok(Evictor {
            root: root.clone(),
            flags: FrameFlagsReader::open(root)?,
            counts: FrameCounts::open(root)?,
            mappers: None,
        })
    }

    /// Has `pages` leave the cache as far as they can. Pages of ours must not be mapped.
    ///
    /// # Errors
    /// What the kernel refuses altogether; pages that stay are no error.
    pub fn evict(&mut self, file: &File, pages: &Range<u64>) -> io::Result<()> {
        let found = page_cache::cached(file, pages)?;
        if found.dirty + found.writeback > 0 {
            page_cache::write_back(file, pages)?;
        }
        page_cache::drop_clean(file, pages)?;
        if cached_pages(file, pages) > 0 && placeable(file) == Placeable::Stacked {
            // Whether pages are dirty is not told of these.
            file.sync_data()?;
            page_cache::drop_clean(file, pages)?;
        }
        if cached_pages(file, pages) > 0 && self.page_out(file, pages) {
            page_cache::drop_clean(file, pages)?;
        }
        Ok(())
    }

    /// Pages them out of the processes that map them, of which the kernel leaves those that
    /// several do; whether any may have gone.
    fn page_out(&mut self, file: &File, pages: &Range<u64>) -> bool {
        let (Ok(id), own) = (FileId::from_file(file), std::process::id().cast_signed()) else {
            return false;
        };
        if self.mappers.as_ref().is_none_or(|(at, _)| at.elapsed() > MAPPERS_FRESH_FOR) {
            self.mappers = Mappers::read(&self.root).ok().map(|found| (Instant::now(), found));
        }
        let Some((_, mappers)) = &self.mappers else { return false };
        let mut areas = BTreeMap::<i32, Vec<libc::iovec>>::new();
        for mapping in mappers.mappings_of(id).iter().filter(|m| m.pid != own) {
            let Some(at) = mapping.addresses(pages) else { continue };
            let iov_len = usize::try_from(at.end - at.start).unwrap_or(0);
            let range = libc::iovec { iov_base: at.start as *mut _, iov_len };
            areas.entry(mapping.pid).or_default().push(range);
        }
        // What so many processes map is hardly ever mapped by one of them.
        let few = areas.len() <= MOST_MAPPERS;
        few && areas.iter().filter(|(pid, ranges)| page_out_of(**pid, ranges)).count() > 0
    }

    /// The pages that leave the cache with the page in this frame, since they share a folio: it
    /// itself, as a rule.
    pub fn folio(&self, page: u64, frame: Pfn) -> Range<u64> {
        let flags = |frame| self.flags.flags(frame).unwrap_or_default();
        let own = flags(frame);
        if !own.compound_head() && !own.compound_tail() {
            return page..page + 1;
        }
        let before = (0..FOLIO_PAGES.min(page + 1).min(frame.0 + 1))
            .find(|&back| flags(Pfn(frame.0 - back)).compound_head());
        let after = (1..FOLIO_PAGES).find(|&on| !flags(Pfn(frame.0 + on)).compound_tail());
        page - before.unwrap_or(0)..page + after.unwrap_or(1)
    }

    /// Why a page in this frame is still there.
    pub fn why(&self, file: &File, page: u64, frame: Pfn) -> PlacementRefusal {
        let dirty =
            page_cache::cached(file, &(page..page + 1)).is_ok_and(|c| c.dirty + c.writeback > 0);
        if dirty {
            return PlacementRefusal::Written;
        }
        if self.flags.flags(frame).is_ok_and(|flags| flags.unevictable()) {
            return PlacementRefusal::Locked;
        }
        match self.counts.map_count(frame) {
            Ok(0) => PlacementRefusal::Locked,
            _ => PlacementRefusal::Mapped,
        }
    }
}

/// Asks for pages of a process to be paged out; whether the kernel heard it.
fn page_out_of(pid: i32, ranges: &[libc::iovec]) -> bool {
    let process = Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
    process.is_some_and(|p| page_cache::page_out(p.as_fd(), ranges).is_ok())
}
