//! The colours of pages in the cache: known from the frame number, remembered of frames that were
//! just handed to a file, or measured through a window on the file. Moves nothing.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;

use huepage_color::{Color, NumberHash, PAGE_BYTES, Pfn};

use super::FileCacheError;
use super::fault::Guard;
use super::filesystem::{Placeable, placeable};
use super::gather::bench_for;
use super::view::{CachedPage, View};
use crate::color::probe::LocalBench;
use crate::color::sources::{Candidate, ColorSource};
use crate::kernel::memory_room::available_bytes;
use crate::kernel::page_cache;
use crate::kernel::procfs::{Pagemap, ProcRoot};

/// Frames that are remembered at most, unless more are under way.
const REMEMBERED_FRAMES: usize = 1 << 17;

/// Learns colours of cached pages on one CPU, which its thread is pinned to as long as it lives.
pub struct CachedColors {
    source: Box<dyn ColorSource>,
    bench: LocalBench,
    pagemap: Pagemap,
    handed: HashMap<Pfn, Color, NumberHash>,
}

impl CachedColors {
    /// With colours from `source`.
    ///
    /// # Errors
    /// When the CPU cannot be used, or page tables cannot be read.
    pub fn new(source: Box<dyn ColorSource>, cpu: usize) -> Result<CachedColors, FileCacheError> {
        let bench = bench_for(&*source, cpu)?;
        let pagemap = ProcRoot::default().pagemap(std::process::id().cast_signed())?;
        Ok(CachedColors { source, bench, pagemap, handed: HashMap::default() })
    }

    /// Colours of the cache.
    pub fn universe(&self) -> u16 {
        self.source.universe()
    }

    /// Page tables of this process.
    pub(super) fn pagemap(&self) -> &Pagemap {
        &self.pagemap
    }

    /// Frames of known colours are handed to a file now.
    pub(super) fn hand(&mut self, frames: impl Iterator<Item = (Pfn, Color)>, under_way: usize) {
        if self.source.reference().is_none() {
            return;
        }
        if self.handed.len() > REMEMBERED_FRAMES.max(4 * under_way) {
            self.handed.clear();
        }
        self.handed.extend(frames);
    }

    /// The pages of a window that are cached now, with their colours as far as they can be told.
    /// Measured colours cost some microseconds a page, others next to nothing.
    ///
    /// # Errors
    /// When page tables cannot be read or colours cannot be measured.
    pub fn look(
        &mut self,
        view: &View,
    ) -> Result<Vec<(CachedPage, Option<Color>)>, FileCacheError> {
        let pages = view.resident(&self.pagemap)?;
        self.colors(view, pages)
    }

    /// The colours of pages that a window has mapped.
    pub(super) fn colors(
        &mut self,
        view: &View,
        pages: Vec<CachedPage>,
    ) -> Result<Vec<(CachedPage, Option<Color>)>, FileCacheError> {
        let measured = self.source.reference().is_some();
        let known = |page: &CachedPage| match measured {
            true => self.handed.get(&page.frame).copied(),
            false => self.source.known(page.frame),
        };
        let mut found: Vec<(CachedPage, Option<Color>)> =
            pages.into_iter().map(|page| (page, known(&page))).collect();
        if measured && found.iter().any(|(_, color)| color.is_none()) {
            self.measure(view, &mut found)?;
        }
        Ok(found)
    }

    /// Measures what is not known, and forgets it again where the page is another by now.
    fn measure(
        &mut self,
        view: &View,
        found: &mut [(CachedPage, Option<Color>)],
    ) -> Result<(), FileCacheError> {
        let unknown: Vec<usize> = (0..found.len()).filter(|&i| found[i].1.is_none()).collect();
        let candidate = |&i: &usize| {
            let CachedPage { page, frame } = found[i].0;
            Candidate { address: view.address(page), frame }
        };
        let candidates: Vec<Candidate> = unknown.iter().map(candidate).collect();
        let range = view.address(view.pages().start)..view.address(view.pages().end);
        let guard = Guard::over(range.clone());
        // SAFETY: the window is mapped as long as `view` lives, and the guard replaces pages that
        // went meanwhile.
        unsafe { self.bench.allow(range.clone()) };
        let colors = self.source.measure(&mut self.bench, &candidates, None);
        self.bench.forbid(&range);
        drop(guard);
        let now: HashMap<u64, Pfn> =
            view.mapped(&self.pagemap)?.into_iter().map(|page| (page.page, page.frame)).collect();
        for (i, color) in unknown.into_iter().zip(colors?) {
            let (page, known) = &mut found[i];
            *known = color.filter(|_| now.get(&page.page) == Some(&page.frame));
        }
        Ok(())
    }
}

/// Keeps the cached pages of files in memory until what it returns goes: others may need memory meanwhile.
/// No more than half of what the machine can give is kept; files that cannot be mapped are left out.
pub fn hold(files: impl Iterator<Item = File>) -> Vec<View> {
    let mut room = available_bytes().map_or(u64::MAX, |bytes| bytes / 2 / PAGE_BYTES);
    let mut held = Vec::new();
    for file in files {
        let pages = 0..file.metadata().map_or(0, |found| found.len().div_ceil(PAGE_BYTES));
        let cached = cached_pages(&file, &pages);
        if cached == 0 || cached > room {
            continue;
        }
        let Ok(view) = View::new(&file, pages) else { continue };
        if view.hold().is_ok() {
            room -= cached;
            held.push(view);
        }
    }
    held
}

/// How many of some pages were in the cache and are not, since the kernel has reclaimed them: for
/// want of memory, or because somebody asks it to keep memory free (a limit, DAMON). Pages that were
/// dropped on request are not among them. 0 where the kernel does not tell; one system call.
pub fn reclaimed_pages(file: &File, pages: &Range<u64>) -> u64 {
    page_cache::cached(file, pages).map_or(0, |found| found.evicted)
}

/// How many of some pages are in the cache, read or being read; of a file of overlayfs, how many have
/// been read.
pub(super) fn cached_pages(file: &File, pages: &Range<u64>) -> u64 {
    let found = page_cache::cached(file, pages).map_or(0, |found| found.pages);
    if found > 0 || pages.is_empty() || placeable(file) != Placeable::Stacked {
        return found;
    }
    let view = View::new(file, pages.clone());
    let read = view.and_then(|view| view.in_core()).unwrap_or_default();
    read.into_iter().filter(|read| *read).count() as u64
}
