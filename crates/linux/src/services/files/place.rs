//! The placer: brings ranges of files into colours. Each window of a request goes through the same
//! steps: what is cached in other colours leaves, frames of wanted colours are freed on this
//! CPU and reading begins, which takes them; some windows later, when the pages have been read,
//! it is seen where they landed, and what missed goes through the steps again, a few times. A
//! page is never written to.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, PAGE_BYTES};

use super::budget::Budget;
use super::evict::Evictor;
use super::filesystem::{Placeable, placeable};
use super::gather::Gatherer;
use super::lookup::{CachedColors, cached_pages};
use super::view::{CachedPage, View, Views, runs};
use super::zone::{Zone, ZoneUse};
use super::{FileCacheError, FileRequest, PlacementRefusal, PlacementTally};
use crate::color::sources::ColorSource;
use crate::kernel::cpus::{allowed_cpus, node_of};
use crate::kernel::page_cache::{self, FrameRelease};
use crate::kernel::procfs::ProcRoot;

/// Pages looked at together.
pub(super) const WINDOW_PAGES: u64 = 512;
/// Pages whose reading may be under way before the oldest are looked at: enough to keep a disk
/// busy.
const PAGES_UNDER_WAY: usize = 4096;
/// Frames freed at a time, at most: the kernel's list of a CPU is not emptied into the others at
/// that, and readahead(2) of every disk takes as many.
const MOST_FRAMES_FREED: u64 = 128;
/// And at least: on a busy CPU fewer are lost to others.
const FEWEST_FRAMES_FREED: u64 = 8;
/// How often pages are brought in without one that comes right before they are given up.
pub(super) const TRIES_PER_PAGE: u32 = 6;
/// Share of first tries that come right below which the others are given up.
const HOPELESS_SHARE: f64 = 0.3;
/// How long to wait for frames.
const FRAME_WAIT: Duration = Duration::from_secs(5);
/// How long to wait on where there are none for a while, for pages that nobody waits for: a busy
/// machine takes seconds to find some.
const LONG_FRAME_WAIT: Duration = Duration::from_secs(30);
/// How often it is seen whether there are some again.
const LONG_FRAME_WAIT_STEP: Duration = Duration::from_millis(20);

/// How a placer works.
#[derive(Clone, Debug, Default)]
pub struct PlacerOptions {
    /// The CPU that frames are freed on and files are read on; the last that is allowed if not
    /// given.
    pub cpu: Option<usize>,
    /// Bound of the stock of frames in bytes; 0.8 % of all memory if not given. An eighth of what
    /// is available is never exceeded.
    pub memory: Option<u64>,
    /// Once it is set nothing is waited for any more: frames that are not there are done without.
    pub stop: Arc<AtomicBool>,
}

/// See the module's head. It pins the thread that makes it to a CPU until it is dropped, and
/// cannot leave that thread.
pub struct Placer {
    colors: CachedColors,
    evictor: Evictor,
    views: Views,
    give: FrameRelease,
    under_way: VecDeque<Window>,
    pages_under_way: usize,
    /// Frames to free at a time.
    chunk: u64,
    /// The share of pages that lately came right at the first try.
    hits: f64,
    /// Since when there have been no frames.
    dry_since: Option<Instant>,
    swap: bool,
    tally: PlacementTally,
    /// The bound of the stock that was asked for, in bytes.
    memory: Option<u64>,
    budget: Budget,
    stop: Arc<AtomicBool>,
    zone: Arc<Zone>,
    _gatherer: Gatherer,
}

/// Pages of a file on their way.
pub(super) struct Window {
    file: Arc<File>,
    pages: Range<u64>,
    want: ColorSet,
    /// Not in a wanted colour yet, and not given up; ascending.
    pub open: Vec<u64>,
    /// Pages for which there was no frame.
    pub dry: bool,
}

impl Placer {
    /// Starts one whose requests will want colours of `wanted`.
    ///
    /// # Errors
    /// When frames cannot be looked at, or the CPU cannot be used.
    pub fn start(
        source: Box<dyn ColorSource>,
        wanted: ColorSet,
        options: &PlacerOptions,
    ) -> Result<Placer, FileCacheError> {
        let cpus = allowed_cpus();
        let last = cpus.last().copied().unwrap_or(0);
        let cpu = options.cpu.unwrap_or(last);
        // Frames of another node would not be handed out for what is read on this one.
        let node = node_of(cpu);
        let others = cpus.iter().copied().filter(|&c| c != cpu && node_of(c) == node);
        let other = others.max().unwrap_or(cpu);
        let zone = Arc::new(Zone::new(wanted, Arc::clone(&options.stop)));
        // The gatherer is started before this thread is pinned, as it inherits what is allowed.
        let gatherer = Gatherer::start(&zone, source.another(), other, options.memory);
        Ok(Placer {
            colors: CachedColors::new(source, cpu)?,
            evictor: Evictor::new(&ProcRoot::default())?,
            views: Views::default(),
            give: FrameRelease::new().map_err(FileCacheError::os("pidfd_open"))?,
            under_way: VecDeque::new(),
            pages_under_way: 0,
            chunk: MOST_FRAMES_FREED / 2,
            hits: 1.0,
            dry_since: None,
            swap: std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1),
            tally: PlacementTally::default(),
            memory: options.memory,
            budget: Budget::of_node(node),
            stop: Arc::clone(&options.stop),
            zone,
            _gatherer: gatherer,
        })
    }

    /// Colours of the cache.
    pub fn universe(&self) -> u16 {
        self.colors.universe()
    }

    /// Pages that the stock may have now.
    pub fn bound(&self) -> u64 {
        self.budget.bound(self.memory) / PAGE_BYTES
    }

    /// Frames in stock by colour; with `refill`, after waiting until one of `colors` has more than
    /// `above`, if that is possible at all.
    pub fn stock(&self, colors: &ColorSet, above: u64, refill: bool) -> Vec<u64> {
        let patience = if refill { FRAME_WAIT } else { Duration::ZERO };
        self.zone.stock(colors, usize::try_from(above).unwrap_or(usize::MAX), patience)
    }

    /// Whether it was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What the stock took so far.
    pub fn zone(&self) -> ZoneUse {
        self.zone.used()
    }

    /// Brings pages of a file on their way; returns when reading has begun. They are looked after
    /// by later calls, at the latest by [`Self::settle`]. Once it was told to stop no more are begun.
    ///
    /// # Errors
    /// When frames cannot be had or looked at at all. What becomes of single pages is in the tally.
    pub fn place(&mut self, request: &FileRequest) -> Result<(), FileCacheError> {
        let end = size_in_pages(&request.file).min(request.first.saturating_add(request.pages));
        let mut first = request.first;
        while first < end && !self.is_stopped() {
            let pages = first..end.min(first + WINDOW_PAGES);
            first = pages.end;
            self.count(pages.end - pages.start);
            let mut window = self.window(&request.file, pages, &request.want);
            if placeable(&window.file) == Placeable::Memory {
                self.place_in_memory(&mut window)?;
                continue;
            }
            self.begin(&mut window)?;
            self.pages_under_way += window.open.len();
            self.under_way.push_back(window);
            self.conclude_down_to(PAGES_UNDER_WAY)?;
        }
        Ok(())
    }

    pub(super) fn window(&self, file: &Arc<File>, pages: Range<u64>, want: &ColorSet) -> Window {
        let (file, open) = (Arc::clone(file), pages.clone().collect());
        Window { file, open, pages, want: want.clone(), dry: false }
    }

    /// So many more pages were asked for.
    pub(super) fn count(&mut self, pages: u64) {
        self.tally.pages += pages;
    }

    /// So many pages were given up.
    pub(super) fn refuse_all(&mut self, why: PlacementRefusal, pages: u64) {
        self.tally.refuse(why, pages);
    }

    /// Frames to free at a time at a first or later try.
    pub(super) fn chunk_for(&self, attempt: u32) -> u64 {
        if attempt == 0 { self.chunk } else { FEWEST_FRAMES_FREED }
    }

    /// The colours of the cached pages of a window.
    ///
    /// # Errors
    /// As [`CachedColors::look`].
    pub fn look(
        &mut self,
        view: &View,
    ) -> Result<Vec<(CachedPage, Option<Color>)>, FileCacheError> {
        self.colors.look(view)
    }

    /// Looks after everything that is under way; what became of all pages since the last call.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub fn settle(&mut self) -> Result<PlacementTally, FileCacheError> {
        self.conclude_down_to(0)?;
        self.views.clear();
        Ok(std::mem::take(&mut self.tally))
    }

    fn conclude_down_to(&mut self, pages: usize) -> Result<(), FileCacheError> {
        while self.pages_under_way > pages || pages == 0 && !self.under_way.is_empty() {
            let Some(mut window) = self.under_way.pop_front() else { break };
            self.pages_under_way -= window.open.len();
            self.conclude(&mut window)?;
        }
        Ok(())
    }

    /// Has what is cached in other colours leave, and begins to read what is not there.
    fn begin(&mut self, window: &mut Window) -> Result<(), FileCacheError> {
        if cached_pages(&window.file, &window.pages) > 0 {
            self.sort_out(window)?;
        }
        self.read(window)
    }

    /// Takes pages that lie right out of the open ones and evicts those that lie wrong; refuses
    /// those that stay.
    fn sort_out(&mut self, window: &mut Window) -> Result<(), FileCacheError> {
        let Ok(view) = self.views.view(&window.file, &window.pages) else { return Ok(()) };
        let found = self.colors.look(&view)?;
        drop(view);
        let (right, mut wrong): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|(_, color)| color.is_some_and(|c| window.want.contains(c)));
        if !self.zone.is_hopeful(&window.want) {
            // To drop them for nothing would only cost whoever reads them.
            wrong
                .iter()
                .for_each(|(page, _)| self.refuse(window, page.page, PlacementRefusal::NoFrames));
            wrong.clear();
        }
        let out = self.evict(window, wrong.iter().map(|(page, _)| *page))?;
        let stay = |page: &u64| !out.iter().any(|range| range.contains(page));
        let right: Vec<u64> = right.into_iter().map(|(page, _)| page.page).filter(stay).collect();
        self.tally.already += right.len() as u64;
        window.open.retain(|page| right.binary_search(page).is_err());
        Ok(())
    }

    /// Evicts pages with all that share their folios, and refuses those that stay. Says what was
    /// to leave.
    fn evict(
        &mut self,
        window: &mut Window,
        pages: impl Iterator<Item = CachedPage>,
    ) -> Result<Vec<Range<u64>>, FileCacheError> {
        let pages: Vec<CachedPage> = pages.collect();
        let mut out: Vec<Range<u64>> = Vec::new();
        for page in &pages {
            if out.last().is_some_and(|last| last.contains(&page.page)) {
                continue;
            }
            let folio = self.evictor.folio(page.page, page.frame);
            match out.last_mut() {
                Some(last) if last.end >= folio.start => last.end = last.end.max(folio.end),
                _ => out.push(folio),
            }
        }
        for range in &out {
            // What cannot be written back or dropped is still there, and is told as that.
            let _ = self.evictor.evict(&window.file, range);
        }
        for page in &pages {
            if cached_pages(&window.file, &(page.page..page.page + 1)) > 0 {
                let why = self.evictor.why(&window.file, page.page, page.frame);
                self.refuse(window, page.page, why);
            }
        }
        Ok(out)
    }

    fn refuse(&mut self, window: &mut Window, page: u64, why: PlacementRefusal) {
        if let Ok(at) = window.open.binary_search(&page) {
            window.open.remove(at);
            self.tally.refuse(why, 1);
        }
    }

    /// Frees frames and begins to read the open pages, a chunk at a time.
    fn read(&mut self, window: &mut Window) -> Result<(), FileCacheError> {
        for range in ranges(&window.open, self.chunk) {
            let mut first = range.start;
            while first < range.end {
                let got = self.hand_out(range.end - first, &window.want)?;
                if got == 0 {
                    window.dry = true;
                    break;
                }
                // Where it fails the page is not there when it is looked for.
                let _ = page_cache::read_ahead(&window.file, &(first..first + got));
                first += got;
            }
        }
        Ok(())
    }

    /// Frees up to `n` frames of wanted colours on this CPU; how many.
    pub(super) fn hand_out(&mut self, n: u64, want: &ColorSet) -> Result<u64, FileCacheError> {
        let n = usize::try_from(n).unwrap_or(0);
        let frames = self.zone.take(n, want, FRAME_WAIT)?;
        self.colors.hand(frames.iter().map(|(c, page)| (page.frame, *c)), self.pages_under_way);
        let addresses: Vec<u64> = frames.iter().map(|(_, page)| page.address).collect();
        self.give
            .release(&page_cache::ranges(&addresses))
            .map_err(FileCacheError::os("freeing frames"))?;
        Ok(frames.len() as u64)
    }

    /// As [`Self::hand_out`], for pages that nobody waits for: where there is no frame at the moment
    /// it waits until there are some, or have been none for long.
    pub(super) fn hand_out_patiently(
        &mut self,
        n: u64,
        want: &ColorSet,
    ) -> Result<u64, FileCacheError> {
        loop {
            let got = self.hand_out(n, want)?;
            if got > 0 {
                self.dry_since = None;
                return Ok(got);
            }
            let dry = self.dry_since.get_or_insert_with(Instant::now).elapsed();
            if dry >= LONG_FRAME_WAIT || !self.zone.rest(LONG_FRAME_WAIT_STEP) {
                return Ok(0);
            }
        }
    }

    /// Looks where the pages of a window landed, and tries again for those that missed.
    fn conclude(&mut self, window: &mut Window) -> Result<(), FileCacheError> {
        // On a busy CPU others take frames in between: it takes longer there, and comes right.
        let (mut attempt, mut in_vain) = (0, 0);
        loop {
            let before = window.open.len();
            let wrong = self.verify(window, attempt)?;
            in_vain = if window.open.len() < before { 0 } else { in_vain + 1 };
            attempt += 1;
            if window.open.is_empty()
                || in_vain == TRIES_PER_PAGE
                || attempt > 1 && self.is_hopeless()
                || self.is_stopped()
            {
                break;
            }
            self.evict(window, wrong.into_iter())?;
            self.read_again(window)?;
        }
        let end = size_in_pages(&window.file);
        for page in std::mem::take(&mut window.open) {
            let there = cached_pages(&window.file, &(page..page + 1)) > 0;
            let why = match (there, window.dry) {
                (true, _) => PlacementRefusal::Missed,
                (false, true) if page < end => PlacementRefusal::NoFrames,
                _ => PlacementRefusal::Vanished,
            };
            self.tally.refuse(why, 1);
        }
        Ok(())
    }

    /// Takes pages that lie right out of the open ones; those that lie wrong.
    pub(super) fn verify(
        &mut self,
        window: &mut Window,
        attempt: u32,
    ) -> Result<Vec<CachedPage>, FileCacheError> {
        let Ok(view) = self.views.view(&window.file, &window.pages) else {
            return Ok(Vec::new());
        };
        wait_for(&window.file, &view, &window.open);
        let mut pages = view.mapped(self.colors.pagemap())?;
        pages.retain(|page| window.open.binary_search(&page.page).is_ok());
        let found = self.colors.colors(&view, pages)?;
        let right = |color: &Option<Color>| color.is_some_and(|c| window.want.contains(c));
        let (right, wrong): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, c)| right(c));
        self.tally.placed += right.len() as u64;
        let asked = window.open.len();
        window.open.retain(|p| right.binary_search_by_key(p, |(page, _)| page.page).is_err());
        if attempt == 0 {
            self.adapt(asked, right.len());
        }
        Ok(wrong.into_iter().map(|(page, _)| page).collect())
    }

    /// Where hardly a frame is taken by whom it was meant for, as in a control group at its limit
    /// (the kernel frees others in between), trying on costs more than it brings.
    fn is_hopeless(&self) -> bool {
        self.hits < HOPELESS_SHARE
    }

    /// Fewer frames at a time where others take some of them, more where they do not.
    fn adapt(&mut self, asked: usize, right: usize) {
        #[allow(clippy::cast_precision_loss, reason = "pages of a window")]
        let share = right as f64 / asked.max(1) as f64;
        self.hits = self.hits.mul_add(0.9, share * 0.1);
        if right + asked / 16 < asked {
            self.chunk = (self.chunk / 2).max(FEWEST_FRAMES_FREED);
        } else if right == asked {
            self.chunk = (self.chunk + FEWEST_FRAMES_FREED).min(MOST_FRAMES_FREED);
        }
    }

    /// As [`Self::read`] for pages that missed: a few at a time, and waiting for each, since
    /// readahead(2) may have refused them.
    fn read_again(&mut self, window: &mut Window) -> Result<(), FileCacheError> {
        let _ = page_cache::read_singly(&window.file);
        let mut bytes = vec![0; usize::try_from(FEWEST_FRAMES_FREED * PAGE_BYTES).unwrap_or(0)];
        for range in ranges(&window.open, FEWEST_FRAMES_FREED) {
            let got = self.hand_out(range.end - range.start, &window.want)?;
            window.dry |= got < range.end - range.start;
            let len = usize::try_from(got * PAGE_BYTES).unwrap_or(0);
            let _ = window.file.read_at(&mut bytes[..len], range.start * PAGE_BYTES);
        }
        Ok(())
    }

    /// As the whole of [`Self::place`] for pages that are memory only: through swap.
    fn place_in_memory(&mut self, window: &mut Window) -> Result<(), FileCacheError> {
        let Ok(view) = View::new(&window.file, window.pages.clone()) else { return Ok(()) };
        let resident: Vec<u64> =
            view.resident(self.colors.pagemap())?.iter().map(|page| page.page).collect();
        // Holes stay holes, and what is in swap stays there.
        self.tally.pages -= (window.open.len() - resident.len()) as u64;
        window.open = resident;
        for attempt in 0..TRIES_PER_PAGE {
            let placed = self.tally.placed;
            let wrong = self.verify(window, attempt + 1)?;
            if attempt == 0 {
                self.tally.already += self.tally.placed - placed;
                self.tally.placed = placed;
            }
            if wrong.is_empty() || !self.swap || attempt + 1 == TRIES_PER_PAGE {
                break;
            }
            self.swap_over(window, &view)?;
        }
        let why = if self.swap { PlacementRefusal::Missed } else { PlacementRefusal::MemoryOnly };
        self.tally.refuse(why, window.open.len() as u64);
        Ok(())
    }

    /// Has open pages go to swap and come back.
    fn swap_over(&mut self, window: &mut Window, view: &View) -> Result<(), FileCacheError> {
        for range in ranges(&window.open, self.chunk) {
            let _ = view.page_out(&range);
            let gone = view.in_core().map_err(FileCacheError::os("mincore"))?;
            let (from, to) = (range.start - window.pages.start, range.end - window.pages.start);
            let at = |i: u64| usize::try_from(i).unwrap_or(0);
            let absent: Vec<bool> = gone[at(from)..at(to)].iter().map(|core| !core).collect();
            for run in runs(&absent) {
                self.hand_out(run.end - run.start, &window.want)?;
                let _ = view.populate(&(range.start + run.start..range.start + run.end));
            }
        }
        Ok(())
    }
}

/// Maps the open pages of a window, waiting for those that are being read; others are left out.
fn wait_for(file: &File, view: &View, open: &[u64]) {
    // What is being read there cannot be told from what is not.
    let stacked = placeable(file) == Placeable::Stacked;
    for range in ranges(open, WINDOW_PAGES) {
        let all = stacked || cached_pages(file, &range) == range.end - range.start;
        if all && view.populate(&range).is_ok() {
            continue;
        }
        for page in range {
            if cached_pages(file, &(page..page + 1)) == 1 {
                let _ = view.populate(&(page..page + 1));
            }
        }
    }
}

/// Ascending pages as ranges of no more than `most`.
pub(super) fn ranges(pages: &[u64], most: u64) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for &page in pages {
        match found.last_mut() {
            Some(last) if last.end == page && last.end - last.start < most => last.end += 1,
            _ => found.push(page..page + 1),
        }
    }
    found
}

/// Pages of a file, the last of which may be partial; 0 when it cannot be told.
pub(super) fn size_in_pages(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.len().div_ceil(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_ranges_of_bounded_length() {
        assert_eq!(ranges(&[1, 2, 3, 7, 8], 2), [1..3, 3..4, 7..9]);
        assert!(ranges(&[], 2).is_empty());
    }
}
