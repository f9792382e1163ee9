//! A machine at work: takes accesses one by one, translates them, finds frames for pages that
//! are touched for the first time, asks the caches, and counts what it costs.
//!
//! Everything happens in the order of the records; cores share caches but nothing waits for
//! anything. Which program runs when is decided by the caller or by [`crate::schedule`].

mod build;
mod fast;
mod files;
mod heat;
mod misses;
mod order;
mod paging;
mod report;
mod requests;
mod sense;
mod threads;
mod twins;
mod vacate;
mod waits;

use std::collections::HashMap;

use huepage_color::{Pfn, VirtAddr, Vpn};
use huepage_policy::Event;
use serde::{Deserialize, Serialize};

pub(crate) use build::{caches, stalls, walk_stalls};
pub use files::{PageCacheState, file_number};
pub use report::{ColorCounts, Report, SpaceReport};
pub use threads::OneThread;
pub use waits::MemoryWait;

use crate::cache::{Hierarchy, Path};
use crate::core_tlbs::{Further, ask_further, read_entries};
use crate::cost::{MAX_DEPTH, ProgramCosts};
use crate::feedback::Watch;
use crate::frames::{Frames, OutOfFrames, Owner};
use crate::heat::Heat;
use crate::machine::Machine;
use crate::record::{AccessKind, Record};
use crate::space::{PageMapping, Space};
use crate::tlb::{Tlb, TlbPage};
use crate::walk::{HashedTable, TableWalk, Tables, WalkCache};

/// Most address spaces: what the tags of TLBs tell apart.
pub const MAX_SPACES: u16 = 4096;

/// What a core has of its own, and its ways through what is shared.
#[derive(Clone, Debug)]
struct Core {
    /// For data and for instructions.
    paths: [Path; 2],
    tlbs: Vec<Tlb>,
    /// The TLBs that are asked, for data and for instructions.
    tlb_paths: [Vec<usize>; 2],
    /// What its walker remembers, where walks are simulated.
    walker: Option<WalkCache>,
    /// The walker's way through the caches.
    walk_path: Path,
    /// Cycles that it has spent, by which write buffers go; kept where there are any.
    clock: u64,
}

/// A program's address space and its account.
#[derive(Debug)]
struct State {
    table: Space,
    /// Where a walker finds the page table.
    tables: Option<Tables>,
    costs: ProgramCosts,
    watch: Option<Box<Watch>>,
    /// When the next of its sensors goes off, in cycles of its own.
    alarm: u64,
    /// Most base pages that were mapped at a time, and most that were touched.
    touched: u64,
    most_mapped: u64,
    /// Its base pages by the colour of their frames, where there are colours.
    by_color: Vec<u64>,
    /// Superpages for which a block can be vacated, and the moves that were said to take.
    priced: HashMap<(Vpn, u32), u64>,
    /// Whose files its high addresses stand for; none: they are memory.
    volume: Option<u32>,
    recent_file: Option<files::Recent>,
    /// Lines requested of the last cache, if asked for.
    requests: Option<Box<requests::Requests>>,
    /// What it waits for of a line from memory.
    wait: MemoryWait,
    /// Lines of files that memory gave it.
    file_lines: u64,
}

impl Default for State {
    fn default() -> State {
        let (table, costs) = (Space::new(), ProgramCosts::default());
        State {
            table,
            tables: None,
            costs,
            watch: None,
            alarm: u64::MAX,
            touched: 0,
            most_mapped: 0,
            by_color: Vec::new(),
            priced: HashMap::new(),
            volume: None,
            recent_file: None,
            requests: None,
            wait: MemoryWait::default(),
            file_lines: 0,
        }
    }
}

impl State {
    /// Whether its program ran.
    const fn is_used(&self) -> bool {
        self.touched > 0 || self.recent_file.is_some()
    }
}

/// How copying a page is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyCost {
    /// Every line is read and written through the caches of the core that copies.
    Simulated,
    /// So many cycles per KiB; caches see nothing (Romer 1998, section 3.5: 3,000).
    PerKib(u64),
    /// The same, and a superpage costs it for each of its base pages, also for those that lie as they
    /// have to or were never touched: the thesis takes all of them to be copied (section 3.4.4).
    AlwaysPerKib(u64),
    /// The same of superpages alone; base pages are copied through caches (Romer 1998, chapter 6: promotions
    /// as in section 3.5, recolourings as in section 5.4.1).
    SuperpagesPerKib(u64),
}

/// Why a run cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Memory is used up.
    #[error(transparent)]
    OutOfFrames(#[from] OutOfFrames),
    /// A record of an address space that cannot be.
    #[error(
        "address space {0}; the simulator tells 4096 apart, from 0: renumber the trace with `huepage trace merge`"
    )]
    Space(u16),
}

/// A machine with programs in it.
#[derive(Debug)]
pub struct System {
    machine: Machine,
    hierarchy: Hierarchy,
    cores: Vec<Core>,
    /// For each cache of the hierarchy, its place in the description.
    specs: Vec<usize>,
    /// Cycles beyond the nearest cache's, by depth, for data and fetches; the last is memory.
    stalls: [Vec<u64>; 2],
    /// Cycles by the level of TLB that had a base page of data; the last is none, without what a
    /// walk reads.
    tlb_stalls: Vec<u64>,
    /// Whether page tables are read through the caches for what no TLB has.
    walks_tables: bool,
    spaces: Vec<State>,
    frames: Frames,
    files: files::Files,
    line_bits: u32,
    walks: u64,
    /// The table of all spaces, where the machine's is hashed.
    hashed: Option<HashedTable>,
    /// How far the latest access went.
    last_depth: usize,
    room: fast::Room,
    /// Caches of the data path that walkers pass by.
    walk_depth: usize,
    /// Cycles of a walker's read, by the depth from there on that answers.
    walk_stalls: Vec<u64>,
    /// Whether caches ask for cycles of their own, for buffers and second looks.
    extras: bool,
    /// Whether there are write buffers, which need to know the time.
    timed: bool,
    copy: CopyCost,
    /// Depth of the data path whose colours are counted.
    colored: Option<usize>,
    colors: ColorCounts,
    /// Whose page is in which frame, where a sensor sees frames.
    owners: Option<misses::Owners>,
    /// Accesses and misses by page, if asked for.
    heat: Option<Box<Heat>>,
    /// Systems that do what this one does.
    twins: twins::Twins,
    /// Other threads that run caches.
    threads: Option<Box<threads::Threads>>,
    /// What waiting for memory takes, if that is charged behind accesses.
    waits: waits::Waits,
}

impl System {
    /// How many cores it has.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Counts accesses and misses by colour at a cache of the data path, 0 for the nearest.
    pub fn count_colors_at(&mut self, depth: usize) {
        self.colored = Some(depth);
        let zero = vec![0; usize::from(self.frames.colors())];
        self.colors = ColorCounts { accesses: zero.clone(), misses: zero };
    }

    /// Says how many cycles memory takes to answer a page walker, where programs hide a part of what it
    /// takes to answer them: a walk waits for all of its read.
    pub fn charge_walks(&mut self, memory: u64) {
        let usual = self.machine.memory_latency;
        let last = self.walk_stalls.last_mut();
        last.into_iter().for_each(|read| *read = (*read + memory).saturating_sub(usual));
    }

    /// Says how copies are paid for; simulated if nothing is said.
    pub fn charge_copies(&mut self, copy: CopyCost) {
        self.copy = copy;
    }

    /// Where frames come from.
    pub fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// The account of a program.
    pub fn costs(&self, space: u16) -> ProgramCosts {
        self.spaces.get(usize::from(space)).map_or(ProgramCosts::default(), |state| state.costs)
    }

    /// The cycles that a program has taken so far.
    #[inline]
    pub fn cycles(&self, space: u16) -> u64 {
        self.spaces.get(usize::from(space)).map_or(0, |state| state.costs.cycles())
    }

    /// One access by a core.
    ///
    /// # Errors
    /// When a page is touched for which there is no frame, or the space cannot be.
    #[inline]
    pub fn access(&mut self, core: usize, record: &Record) -> Result<(), RunError> {
        if self.threads.is_some() {
            self.put_together();
        }
        let space = usize::from(record.space);
        if space >= self.spaces.len() {
            self.make_room(record.space)?;
        }
        let first = record.address.0;
        let before = if self.timed { self.spaces[space].costs.cycles() } else { 0 };
        self.set_clock(core, record, before);
        self.touch(core, record, first)?;
        for more in 1..=record.more_lines(self.line_bits) {
            let last_of_line = (((first >> self.line_bits) + more) << self.line_bits)
                | ((1 << self.line_bits) - 1);
            self.set_clock(core, record, before);
            self.touch(core, record, record.last().min(last_of_line))?;
        }
        let state = &mut self.spaces[space];
        state.costs.accesses += 1;
        state.costs.instructions += u64::from(record.instructions);
        if state.alarm != u64::MAX {
            self.watch_clock(core, record);
        }
        if self.timed {
            self.cores[core].clock += self.spaces[space].costs.cycles() - before;
        }
        Ok(())
    }

    /// Tells write buffers the time of an access: the core's cycles, those of this record so
    /// far and its instructions included.
    #[inline]
    fn set_clock(&mut self, core: usize, record: &Record, before: u64) {
        if self.timed {
            let spent = self.spaces[usize::from(record.space)].costs.cycles() - before;
            let instructions = u64::from(record.instructions);
            self.hierarchy.now = self.cores[core].clock + spent + instructions;
        }
    }

    #[cold]
    fn make_room(&mut self, space: u16) -> Result<(), RunError> {
        if space >= MAX_SPACES {
            return Err(RunError::Space(space));
        }
        self.spaces.resize_with(usize::from(space) + 1, State::default);
        Ok(())
    }

    #[inline]
    fn touch(&mut self, core: usize, record: &Record, address: u64) -> Result<(), RunError> {
        let side = usize::from(record.kind == AccessKind::Fetch);
        let file_frame = self.file_frame(core, record, address)?;
        let (frame, index) = match file_frame {
            // The direct map: its addresses are physical ones but for a constant.
            Some(frame) => (frame, frame.base().0 | address & 4095),
            None => (self.translate(core, side, record.space, address)?, address),
        };
        let physical = frame.base().0 | address & 4095;
        let path = &self.cores[core].paths[side];
        let depth = self.hierarchy.access_virtual(path, physical, index, record.kind);
        self.last_depth = depth;
        self.note_heat(record.space, VirtAddr(address).vpn(), depth);
        if depth > 0 {
            self.after_miss(record.space, side, frame, depth);
            self.note_request(record.space, address, depth);
            if file_frame.is_some() && depth + 1 == self.stalls[side].len() {
                self.spaces[usize::from(record.space)].file_lines += 1;
            }
        }
        if self.owners.is_some() {
            self.count_misses();
        }
        if self.extras {
            let extra = self.hierarchy.take_extra();
            self.spaces[usize::from(record.space)].costs.buffer_cycles += extra;
        }
        Ok(())
    }

    /// The frame of a page of a program's memory, which has one from now on.
    #[inline]
    fn translate(
        &mut self,
        core: usize,
        side: usize,
        space: u16,
        address: u64,
    ) -> Result<Pfn, RunError> {
        let number = VirtAddr(address).vpn();
        let mapping = match self.spaces[usize::from(space)].table.find(number) {
            Some(mapping) => mapping,
            None => self.fault_in(core, space, number)?,
        };
        if mapping.is_untouched() {
            self.first_touch(space, number);
        }
        let mine = &mut self.cores[core];
        let order = mapping.order();
        let page = TlbPage { space, number: number.0 >> order, order };
        if let Some(&nearest) = mine.tlb_paths[side].first()
            && let Err(victim) = mine.tlbs[nearest].access(page)
        {
            self.fill_from(core, side, page, victim)?;
        }
        Ok(mapping.frame())
    }

    /// The nearest TLB has entered the page in place of `victim`; the others are asked in turn.
    fn fill_from(
        &mut self,
        core: usize,
        side: usize,
        page: TlbPage,
        victim: Option<TlbPage>,
    ) -> Result<(), RunError> {
        let Core { tlbs, tlb_paths, .. } = &mut self.cores[core];
        let further = ask_further(&self.machine, tlbs, &tlb_paths[side], page, victim);
        let mut cycles = further.cycles;
        if further.found.is_none() {
            cycles += self.miss_all_tlbs(core, page, &further)?;
        }
        self.spaces[usize::from(page.space)].costs.tlb_cycles += cycles;
        Ok(())
    }

    /// No TLB has the page: a walk, or the handler of a TLB that software fills; the cycles that takes.
    fn miss_all_tlbs(
        &mut self,
        core: usize,
        page: TlbPage,
        further: &Further,
    ) -> Result<u64, RunError> {
        self.walks += 1;
        let software = further.is_by_software(&self.machine);
        let cycles = if software {
            self.machine.handler_latency
        } else {
            self.machine.walk_latency + self.walk(core, page)?
        };
        Ok(cycles + self.tell_tlb_miss(page, further.victim, software))
    }

    /// Reads page table entries through the caches, where the machine's walker does; the
    /// cycles that takes.
    fn walk(&mut self, core: usize, page: TlbPage) -> Result<u64, RunError> {
        let (Some(spec), Some(cache)) = (&self.machine.walk, &mut self.cores[core].walker) else {
            return Ok(0);
        };
        let base = Vpn(page.number << page.order);
        let skip = cache.skip(page.space, base, page.order, spec.levels);
        let walk = self.find_entries(page.space, base, page.order)?;
        let way = (&self.cores[core].walk_path, self.walk_depth > 0);
        let entries = walk.entries(skip).iter().map(|entry| entry.0);
        Ok(read_entries(&mut self.hierarchy, way, &self.walk_stalls, entries))
    }

    /// Where a walk for a page leads. Tables that are not there yet get frames, for which file
    /// pages make way.
    fn find_entries(&mut self, space: u16, page: Vpn, order: u32) -> Result<TableWalk, RunError> {
        let levels = self.machine.walk.as_ref().map_or(1, |spec| spec.levels);
        loop {
            let frames = &mut self.frames;
            let found = if let Some(table) = &mut self.hashed {
                let allocate = |order| frames.take_own_block(order);
                table.group(space, page, allocate).map(TableWalk::one)
            } else {
                let state = &mut self.spaces[usize::from(space)];
                let tables = state.tables.get_or_insert_with(|| Tables::new(levels));
                tables.walk(page, order, || frames.take_own())
            };
            match found {
                Ok(walk) => return Ok(walk),
                Err(_) if self.make_way(space) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What follows from a request that the nearest cache passed on.
    fn after_miss(&mut self, space: u16, side: usize, frame: Pfn, depth: usize) {
        let stalls = &self.stalls[side];
        let memory = depth + 1 == stalls.len();
        let state = &mut self.spaces[usize::from(space)];
        state.costs.miss_cycles[(depth - 1).min(MAX_DEPTH - 1)] += stalls[depth];
        state.costs.beyond_second += stalls[depth].saturating_sub(stalls[1]);
        if side == 0 && self.colored.is_some() {
            self.note_color(frame, depth);
        }
        if memory {
            let state = &mut self.spaces[usize::from(space)];
            state.costs.memory += 1;
            if let Some(watch) = &mut state.watch {
                state.costs.policy_cycles += watch.missed();
                state.alarm = 0;
            }
        }
    }

    fn note_color(&mut self, frame: Pfn, depth: usize) {
        if let Some(level) = self.colored {
            self.colors.note(self.frames.color(frame), depth, level);
        }
    }

    /// A page that came with a superpage is used: memory for it was no waste.
    #[cold]
    fn first_touch(&mut self, space: u16, page: Vpn) {
        let state = &mut self.spaces[usize::from(space)];
        state.touched += u64::from(state.table.touch(page));
    }

    /// The first touch of a page. What its policy makes of that is done before the translation
    /// is entered anywhere, so that a machine of larger pages does not miss twice.
    #[cold]
    fn fault_in(&mut self, core: usize, space: u16, page: Vpn) -> Result<PageMapping, RunError> {
        let mapping = self.fault(space, page)?;
        self.carry_out(core, space);
        Ok(self.spaces[usize::from(space)].table.find(page).unwrap_or(mapping))
    }

    /// The first touch of a page.
    #[cold]
    fn fault(&mut self, space: u16, page: Vpn) -> Result<PageMapping, RunError> {
        let frame = self.frame_for(space, Owner::Space(space), page, false)?;
        let color = self.frames.color(frame);
        self.count_color(space, frame, true);
        let state = &mut self.spaces[usize::from(space)];
        state.costs.faults += 1;
        state.touched += 1;
        state.table.map(page, frame, 0);
        state.most_mapped = state.most_mapped.max(state.table.mapped());
        if let Some(watch) = &mut state.watch {
            watch.tell(Event::Faulted { page, color });
            state.alarm = 0;
        }
        self.note_owner(space, page, frame);
        let state = &mut self.spaces[usize::from(space)];
        Ok(state.table.find(page).unwrap_or_else(|| unreachable!("mapped just now")))
    }
}
