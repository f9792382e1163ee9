//! Accesses to files: through a page cache that all programs share, in frames from the same
//! memory as theirs, which it gives up again when they need it.
//!
//! The kernel copies between file pages and buffers through its direct map of all memory, which
//! takes no entries of a TLB worth counting (Alpha's kseg, PowerPC's large pages, x86's of
//! 1 GiB); caches see every line. A program waits for its own reads and for the writing of dirty
//! pages in its way; no other program runs meanwhile, and the disk's own transfers leave the
//! caches as they are.

use std::collections::HashMap;

use huepage_color::{Color, NumberHash, PAGE_BYTES, Pfn, VirtAddr, Vpn};
use huepage_policy::MoveRefusal;
use serde::Serialize;

use super::{RunError, System};
use crate::frames::{OutOfFrames, Owner};
use crate::pagecache::{Cached, FilePage, PageCache, Standing};
use crate::record::{AccessKind, Record};
use crate::workloads::FileNumber;

/// The number of a file among those of all volumes, as events and placements have it.
pub const fn file_number(volume: u32, file: FileNumber) -> u64 {
    (volume as u64) << 32 | file.0 as u64
}

/// A place in a file, and how far the access there reaches.
#[derive(Clone, Copy, Debug)]
struct Place {
    page: FilePage,
    offset: u64,
    end: u64,
}

/// Where a program is in a file.
#[derive(Clone, Copy, Debug)]
struct Position {
    block: u64,
    offset: u64,
    end: u64,
}

impl Position {
    /// Whether an access goes on from here, so that it is no use of its own: reading a block
    /// piece by piece uses it once (as the kernel's `prev_pos` sees to it).
    const fn leads_to(&self, place: &Place) -> bool {
        self.block == place.page.block && self.offset < place.offset && place.offset <= self.end
    }
}

/// The page that a program used last, so that most accesses to files find theirs at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    file: u64,
    position: Position,
    frame: Pfn,
    dirty: bool,
    /// The page cache's departures at the time: the page is still there while they stay.
    departures: u64,
}

/// Blocks of the first window of read-ahead (Linux's for reads of a page: `mm/readahead.c`).
const FIRST_WINDOW: u64 = 4;

/// The blocks that were read at a time last.
#[derive(Clone, Copy, Debug)]
struct Window {
    blocks: u64,
    /// The first block behind.
    end: u64,
}

/// Files as the machine has them.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) cache: PageCache,
    positions: HashMap<(u16, u64), Position, NumberHash>,
    /// What each program read ahead of each file.
    windows: HashMap<(u16, u64), Window, NumberHash>,
    /// Pages of each file, as far as is known.
    pages: HashMap<u64, u64, NumberHash>,
    /// Where a policy wants the block that is missing.
    placed: Option<(FilePage, Color)>,
    /// Frames of each colour that a refill leaves more than in stock; none: nobody asked for one.
    stock_above: Option<u64>,
}

impl Files {
    pub(super) fn new(cache: PageCache) -> Files {
        let (positions, windows, pages) =
            (HashMap::default(), HashMap::default(), HashMap::default());
        Files { cache, positions, windows, pages, placed: None, stock_above: None }
    }

    /// Pages that a file has, as far as is known.
    pub(super) fn pages_of(&self, file: u64) -> u64 {
        self.pages.get(&file).copied().unwrap_or(0)
    }

    fn grow(&mut self, page: FilePage) {
        let pages = self.pages.entry(page.file).or_default();
        *pages = (*pages).max(page.block + 1);
    }
}

/// The page cache at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageCacheState {
    /// Pages in it.
    pub pages: u64,
    /// Of these, written and not on the disk yet.
    pub dirty: u64,
    /// Of these, on the active list.
    pub active: u64,
    /// Of these, on the inactive list.
    pub inactive: u64,
    /// Of these, in the coloured zone.
    pub zone: u64,
    /// Its pages by colour, where the machine has colours.
    pub pages_by_color: Vec<u64>,
}

impl System {
    /// Lets a program's addresses from [`crate::workloads::file_access::FILES`] on stand for files of
    /// a volume; without this they are memory. Programs of one volume share its files.
    ///
    /// # Errors
    /// When the space cannot be.
    pub fn use_files(&mut self, space: u16, volume: u32) -> Result<(), RunError> {
        if usize::from(space) >= self.spaces.len() {
            self.make_room(space)?;
        }
        self.spaces[usize::from(space)].volume = Some(volume);
        self.each_twin(|twin| twin.use_files(space, volume))
    }

    /// The pages of files in memory.
    pub const fn page_cache(&self) -> &PageCache {
        &self.files.cache
    }

    /// A file is gone: its pages leave memory, and nothing is written. How many there were.
    pub fn delete_file(&mut self, file: u64) -> u64 {
        // Never refused.
        let _ = self.each_twin(|twin| {
            twin.delete_file(file);
            Ok(())
        });
        self.files.pages.remove(&file);
        self.tell_file_gone(file);
        let gone = self.files.cache.remove_file(file);
        gone.iter().for_each(|page| self.frames.give_back(page.frame, 0));
        gone.len() as u64
    }

    /// Says how large a file is that was there before the run; what is written makes it larger.
    /// Policies hear of it; without this a file is as large as the last block used.
    pub fn set_file_size(&mut self, file: u64, bytes: u64) {
        self.files.pages.insert(file, bytes.div_ceil(PAGE_BYTES));
    }

    /// Gives a page of a file that is in memory a frame of another colour, for which file pages of
    /// that colour make way.
    ///
    /// # Errors
    /// When it is not in memory, or no frame of the colour is to be had.
    pub fn recolor_block(
        &mut self,
        core: usize,
        space: u16,
        page: FilePage,
        to: Color,
    ) -> Result<(), MoveRefusal> {
        let old = self.files.cache.get(page).ok_or(MoveRefusal::Raced)?;
        let known = to.0 < self.frames.colors();
        let frame = known.then(|| self.frame_of(space, to, false)).flatten();
        let frame = frame.ok_or(MoveRefusal::NoFrame)?;
        let cycles = self.copy_page(core, old.frame, frame);
        let color = self.frames.color(frame);
        self.files.cache.replace(page, frame, color);
        self.frames.give_back(old.frame, 0);
        let recent = self.spaces.iter_mut().filter_map(|state| state.recent_file.as_mut());
        let here =
            |recent: &&mut Recent| recent.file == page.file && recent.position.block == page.block;
        recent.filter(here).for_each(|recent| recent.frame = frame);
        let costs = &mut self.spaces[usize::from(space)].costs;
        costs.recolor_cycles += cycles;
        costs.recolorings += 1;
        Ok(())
    }

    /// Where the block goes that is missing now.
    pub(super) const fn place_next(&mut self, page: FilePage, to: Color) {
        self.files.placed = Some((page, to));
    }

    /// Refills the coloured zone, now and whenever a colour has run out.
    pub(super) fn keep_stock(&mut self, above: u64) {
        self.files.stock_above = Some(above);
        self.refill_zone(above);
    }

    /// Takes a page of a file out of memory on behalf of a program, which waits if it has to be
    /// written first; whether it was there. Its frame is free then.
    pub fn reclaim(&mut self, space: u16, page: FilePage) -> bool {
        let Some(gone) = self.files.cache.remove(page) else { return false };
        self.note_eviction(space, &gone);
        self.frames.give_back(gone.frame, 0);
        true
    }

    /// Frames of each colour that can be had without touching the active and inactive lists:
    /// free ones and those in the coloured zone. The first call looks at all of memory.
    pub fn stock_by_color(&mut self) -> Vec<u64> {
        let mut stock = self.frames.free_by_color();
        stock.iter_mut().zip(self.files.cache.zone()).for_each(|(n, zone)| *n += zone);
        stock
    }

    /// Moves the oldest inactive pages to the coloured zone until every colour has more than
    /// `threshold` frames in stock, or no inactive page is left; how many were moved (the
    /// refill of SRM-buffer 2011, figure 6).
    pub fn refill_zone(&mut self, threshold: u64) -> u64 {
        let free = self.frames.free_by_color();
        self.files.cache.refill(threshold, &free)
    }

    /// The file and block that an address of a program stands for, and the offset there.
    fn file_at(&self, space: u16, address: u64) -> Option<(FilePage, u64)> {
        let volume = self.spaces.get(usize::from(space))?.volume?;
        let (file, offset) = FileNumber::of(VirtAddr(address))?;
        let page = FilePage { file: file_number(volume, file), block: offset / PAGE_BYTES };
        Some((page, offset))
    }

    /// Whether a record touches a file.
    pub(super) fn touches_file(&self, record: &Record) -> bool {
        [record.address.0, record.last()].iter().any(|&at| self.file_at(record.space, at).is_some())
    }

    /// Whether a page of a space stands for a block of a file.
    pub(super) fn is_file_page(&self, space: u16, page: Vpn) -> bool {
        self.file_at(space, page.base().0).is_some()
    }

    /// The frame of the file page that an access touches; nothing if it is memory it touches.
    pub(super) fn file_frame(
        &mut self,
        core: usize,
        record: &Record,
        address: u64,
    ) -> Result<Option<Pfn>, RunError> {
        let Some((page, offset)) = self.file_at(record.space, address) else { return Ok(None) };
        let end = offset + u64::from(record.bytes.max(1)) - (address - record.address.0);
        let place = Place { page, offset, end };
        let write = record.kind == AccessKind::Store;
        if let Some(frame) = self.goes_on(record.space, &place, write) {
            return Ok(Some(frame));
        }
        self.look_up_file(core, record.space, &place, write).map(Some)
    }

    /// The frame, if the access goes on in the page that the program used last.
    fn goes_on(&mut self, space: u16, place: &Place, write: bool) -> Option<Pfn> {
        let recent = self.spaces[usize::from(space)].recent_file.as_mut()?;
        let here = recent.file == place.page.file
            && recent.position.leads_to(place)
            && recent.departures == self.files.cache.departures();
        if !here {
            return None;
        }
        (recent.position.offset, recent.position.end) = (place.offset, place.end);
        if write && !recent.dirty {
            recent.dirty = true;
            self.files.cache.soil(place.page);
        }
        Some(recent.frame)
    }

    fn look_up_file(
        &mut self,
        core: usize,
        space: u16,
        place: &Place,
        write: bool,
    ) -> Result<Pfn, RunError> {
        let page = place.page;
        self.save_position(space);
        let before = self.files.positions.get(&(space, page.file));
        let resumed = before.is_some_and(|position| position.leads_to(place));
        let there = self.files.cache.get(page).map(|there| there.frame);
        let frame = match there {
            Some(frame) => {
                if resumed {
                    frame
                } else {
                    self.use_file(core, space, page).unwrap_or(frame)
                }
            }
            // A block that is written from its start on need not be read first.
            None => {
                self.file_miss(core, space, page, write && place.offset.is_multiple_of(PAGE_BYTES))?
            }
        };
        if write {
            self.files.cache.soil(page);
        }
        let &Place { offset, end, .. } = place;
        let position = Position { block: page.block, offset, end };
        let departures = self.files.cache.departures();
        let recent = Recent { file: page.file, position, frame, dirty: write, departures };
        self.spaces[usize::from(space)].recent_file = Some(recent);
        Ok(frame)
    }

    /// A cached block is used; its frame, which may be another one after its policy has heard.
    fn use_file(&mut self, core: usize, space: u16, page: FilePage) -> Option<Pfn> {
        self.files.cache.find(page);
        self.spaces[usize::from(space)].costs.file_hits += 1;
        self.tell_file_use(core, space, page.file, page.block);
        self.files.cache.get(page).map(|there| there.frame)
    }

    /// Remembers where a program is in the file that it used last, for when it comes back.
    fn save_position(&mut self, space: u16) {
        if let Some(recent) = self.spaces[usize::from(space)].recent_file {
            self.files.positions.insert((space, recent.file), recent.position);
        }
    }

    /// A block that is not in memory: unless it is `fresh`, it is read, and others behind it.
    fn file_miss(
        &mut self,
        core: usize,
        space: u16,
        page: FilePage,
        fresh: bool,
    ) -> Result<Pfn, RunError> {
        self.files.grow(page);
        let frame = self.bring_in(core, space, page)?;
        if fresh {
            return Ok(frame);
        }
        let latency = self.page_cache_spec().miss_latency;
        self.spaces[usize::from(space)].costs.file_cycles += latency;
        if self.page_cache_spec().read_ahead < 2 {
            return Ok(frame);
        }
        for block in page.block + 1..self.window_end(space, page) {
            let ahead = FilePage { block, ..page };
            if self.files.cache.get(ahead).is_none() {
                self.bring_in(core, space, ahead)?;
            }
        }
        // Where there is little memory, those behind it may have taken its frame.
        match self.files.cache.get(page) {
            Some(there) => Ok(there.frame),
            None => self.bring_in(core, space, page),
        }
    }

    /// Where the blocks end that are read together with a missing one: right behind it, but for a
    /// program that begins with its file, goes on from the block before, or from where the
    /// last window ended.
    fn window_end(&mut self, space: u16, page: FilePage) -> u64 {
        let (most, key) = (self.page_cache_spec().read_ahead, (space, page.file));
        let before = self.files.positions.get(&key).map(|position| position.block + 1);
        let blocks = match self.files.windows.get(&key) {
            Some(window) if window.blocks > 1 && window.end == page.block => 2 * window.blocks,
            _ if page.block == 0 || before == Some(page.block) => FIRST_WINDOW,
            _ => 1,
        };
        let blocks = blocks.min(most);
        let end = (page.block + blocks).min(self.files.pages_of(page.file));
        self.files.windows.insert(key, Window { blocks, end });
        end
    }

    /// The policy hears of a missing block first and may say where it should lie, then it gets a frame.
    fn bring_in(&mut self, core: usize, space: u16, page: FilePage) -> Result<Pfn, RunError> {
        self.tell_file_miss(core, space, page.file, page.block);
        let frame = self.frame_for_block(space, page)?;
        let color = self.frames.color(frame);
        self.files.cache.enter(page, frame, color);
        self.spaces[usize::from(space)].costs.file_misses += 1;
        Ok(frame)
    }

    /// A frame for a block, where its policy wants it, else by its owner's choice.
    fn frame_for_block(&mut self, space: u16, page: FilePage) -> Result<Pfn, OutOfFrames> {
        let mut full = self.files.cache.len() >= self.page_cache_spec().pages().max(1);
        let placed = self.files.placed.take().filter(|&(wanted, _)| wanted == page);
        if let Some((_, color)) = placed.filter(|(_, color)| color.0 < self.frames.colors()) {
            if let Some(frame) = self.frame_of(space, color, full) {
                return Ok(frame);
            }
            // One has made way, of another colour.
            full = false;
        }
        let owner = Owner::File { space, file: page.file };
        // Where pages choose by number, files begin at colours of their own.
        let number = Vpn(page.file.wrapping_add(page.block));
        self.frame_for(space, owner, number, full)
    }

    fn page_cache_spec(&self) -> crate::pagecache::PageCacheSpec {
        self.machine.page_cache.unwrap_or_default()
    }

    /// A frame for a page, by its owner's choice. For a partition, file pages of the colour that
    /// is due make way before another colour is taken; for other choices, the page makes way
    /// whose turn it is, once memory is used up. `full`: one has to make way in any case.
    ///
    /// # Errors
    /// When nothing is left that could make way.
    pub(super) fn frame_for(
        &mut self,
        space: u16,
        owner: Owner,
        page: Vpn,
        mut full: bool,
    ) -> Result<Pfn, OutOfFrames> {
        let due = self.frames.due(owner, page);
        if let Some(color) = due.filter(|_| self.frames.insists(owner)) {
            if let Some(frame) = self.frame_of(space, color, full) {
                return Ok(frame);
            }
            // One has made way, of another colour.
            full = false;
        }
        loop {
            if full && !self.make_way(space) {
                return Err(self.frames.none_left());
            }
            let found = match due {
                Some(color) => self.frames.take_color(color),
                None => self.frames.take_for(owner, page),
            };
            if found.is_ok() {
                return found;
            }
            full = true;
        }
    }

    /// A frame of a colour and no other: a free one, or one that a file page gives up.
    pub(super) fn frame_of(&mut self, space: u16, color: Color, full: bool) -> Option<Pfn> {
        if !full && let Some(frame) = self.frames.take_color_only(color) {
            return Some(frame);
        }
        if let Some(above) = self.files.stock_above.filter(|_| self.files.cache.zone_of(color) == 0)
        {
            self.refill_zone(above);
        }
        if let Some(gone) = self.files.cache.evict_color(color) {
            self.note_eviction(space, &gone);
            // The frame goes from one owner to the next and is never free.
            return Some(gone.frame);
        }
        (full && self.make_way(space)).then(|| self.frames.take_color_only(color)).flatten()
    }

    /// Takes the file page out whose turn it is; false if there is none.
    pub(super) fn make_way(&mut self, space: u16) -> bool {
        let Some(gone) = self.files.cache.evict() else { return false };
        self.note_eviction(space, &gone);
        self.frames.give_back(gone.frame, 0);
        true
    }

    fn note_eviction(&mut self, space: u16, gone: &Cached) {
        let latency = self.page_cache_spec().write_latency;
        let Some(state) = self.spaces.get_mut(usize::from(space)) else { return };
        state.costs.file_evictions += 1;
        if gone.dirty {
            state.costs.file_writes += 1;
            state.costs.file_cycles += latency;
        }
    }

    /// What is in the page cache; none if no file was ever touched.
    pub(super) fn page_cache_report(&self) -> Option<PageCacheState> {
        let cache = &self.files.cache;
        if cache.is_empty() && cache.departures() == 0 {
            return None;
        }
        let colors = usize::from(self.frames.colors());
        let mut by_color = vec![0; if colors > 1 { colors } else { 0 }];
        let mut report = PageCacheState { pages: cache.len(), ..PageCacheState::default() };
        for page in cache.pages() {
            report.dirty += u64::from(page.dirty);
            match page.standing {
                Standing::Active => report.active += 1,
                Standing::Inactive => report.inactive += 1,
                Standing::Zone => report.zone += 1,
            }
            let at = page.color.map_or(usize::MAX, |color| usize::from(color.0));
            by_color.get_mut(at).into_iter().for_each(|n| *n += 1);
        }
        report.pages_by_color = by_color;
        Some(report)
    }
}
