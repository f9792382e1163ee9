//! Many accesses in a row: what [`System::access`] does, in batches that go stage by stage:
//! pages, each level of TLB, and the caches. These go level by level where no level can tell
//! another what to do; else access by access, with what they will look at fetched ahead. Counts
//! and contents come out the same; a test compares the two.

use huepage_color::{Color, Pfn, VirtAddr, Vpn};

use super::{ColorCounts, Core, RunError, State, System};
use crate::cache::batch::{LineRequest, Lists, MOST_DEPTHS, RequestTally};
use crate::cache::optimistic::Stages;
use crate::cost::MAX_DEPTH;
use crate::feedback::Watch;
use crate::frames::Frames;
use crate::machine::TlbFill;
use crate::record::{AccessKind, Record};
use crate::space::{PageMapping, View};
use crate::tlb::{PageLookUp, Tlb, TlbPage};

/// Accesses in a batch: what is kept of them stays near while the stages pass over it.
const BATCH: usize = 512;
/// Requests of a batch at most: an access that reaches into another line is two.
pub(super) const MOST_REQUESTS: usize = 2 * BATCH;
/// Groups of a TLB's sets whose newest pages are known: as many as the usual TLB has sets.
const TLB_GROUPS: usize = 16;
/// Accesses whose entries of the page table are looked for, and fetched, before any is used.
const GROUP: usize = 16;

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    pub(super) requests: Vec<LineRequest>,
    /// For each request, the record of the batch that it is part of.
    records: Vec<u16>,
    /// How many requests there are.
    pub(super) filled: usize,
    /// The pages they are for, with the number of the request; one that TLBs know as the newest of
    /// its set is left out where that makes no difference to them. Later those that the TLBs so far lacked.
    pub(super) pages: Vec<PageLookUp>,
    /// How many pages there are.
    pub(super) listed: usize,
    /// For each request the level of TLB that had its page, where that matters.
    pub(super) depths: Vec<u8>,
    /// The virtual address of each request, where a cache is indexed by it.
    pub(super) indexes: Vec<u64>,
    /// Entries of page tables that are read for a request, in the order of requests.
    pub(super) walks: Vec<(u16, u64)>,
    /// What each request takes, where caches have to know the time.
    pub(super) ticks: Vec<Tick>,
    lists: Lists,
    stages: Stages,
}

/// Cycles of a request beside those of its caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    /// Instructions of its record.
    pub(super) instructions: u64,
    /// What has passed when it is over: its translation, and with the last line of a record the
    /// instructions.
    pub(super) cycles: u64,
}

impl Room {
    /// Nothing in it, and room for a batch.
    fn clear(&mut self) {
        (self.filled, self.listed) = (0, 0);
        self.requests.resize(MOST_REQUESTS, LineRequest::default());
        self.records.resize(MOST_REQUESTS, 0);
        self.pages.resize(MOST_REQUESTS, PageLookUp::default());
        self.depths.clear();
        self.depths.resize(MOST_REQUESTS, 0);
    }

    pub(super) fn requests(&self) -> &[LineRequest] {
        &self.requests[..self.filled]
    }

    /// The virtual address of a request.
    fn touch(&self, at: usize, batch: &[Record]) -> u64 {
        let place = self.records[at];
        let record = &batch[usize::from(place)];
        let second = at > 0 && self.records[at - 1] == place;
        if second { record.last() } else { record.address.0 }
    }

    /// Finds the virtual address of each request.
    pub(super) fn index(&mut self, batch: &[Record]) {
        let mut indexes = std::mem::take(&mut self.indexes);
        indexes.extend((0..self.filled).map(|at| self.touch(at, batch)));
        self.indexes = indexes;
    }

    /// Works out what each request takes; a translation by the level of TLB that had the page.
    pub(super) fn tick(&mut self, batch: &[Record], tlb_stalls: &[u64]) {
        self.ticks.clear();
        let places = &self.records[..self.filled];
        let depths = self.depths.iter();
        self.ticks.extend(places.iter().zip(depths).enumerate().map(|(at, (&place, &depth))| {
            let instructions = u64::from(batch[usize::from(place)].instructions);
            let last = places.get(at + 1) != Some(&place);
            let translated = tlb_stalls[usize::from(depth)];
            Tick { instructions, cycles: translated + if last { instructions } else { 0 } }
        }));
    }
}

/// Why finding pages stopped before the end of a batch.
enum Stop {
    /// All were found.
    Done,
    /// The next access is of another space, of more than two lines, or no data.
    Other,
    /// The next access touches this page, which has no frame yet.
    Unmapped(Vpn),
}

impl System {
    /// Accesses by a core, one after the other; by all twins, too.
    ///
    /// # Errors
    /// As [`Self::access`]; what came before has been done.
    pub fn run(&mut self, core: usize, records: &[Record]) -> Result<(), RunError> {
        if self.waits.charged {
            self.run_waiting(core, records)
        } else {
            self.run_all(core, records)
        }
    }

    /// The same with all of memory's latency.
    pub(super) fn run_all(&mut self, core: usize, records: &[Record]) -> Result<(), RunError> {
        let shared = self.run_here(core, records)?;
        self.run_apart(core, &records[shared..])
    }

    /// The same without twins that go by themselves. How many were for all of them.
    fn run_here(&mut self, core: usize, records: &[Record]) -> Result<usize, RunError> {
        if self.has_parted() {
            return Ok(0);
        }
        let leads = !self.leads() || self.can_lead(core);
        if !leads || !self.is_staged(core) {
            self.put_together();
            self.part();
            if self.has_parted() {
                return Ok(0);
            }
            records.iter().try_for_each(|record| self.access(core, record))?;
            return Ok(0);
        }
        let mut at = 0;
        while let Some(record) = records.get(at) {
            let shares = self.leads() || self.threads.is_some();
            if shares && self.spaces.len() <= usize::from(record.space) {
                self.share_space(record.space)?;
            }
            // What is copied goes back and forth between a file and memory.
            let copied = records.get(at + 1).is_some_and(|next| self.touches_file(next));
            let mut done = 0;
            if self.can_stage(record) && !copied {
                done = self.stage(core, &records[at..records.len().min(at + BATCH)])?;
            }
            if done == 0 {
                self.put_together();
                self.part();
                if self.has_parted() {
                    break;
                }
                self.access(core, record)?;
                done = 1;
            }
            at += done;
        }
        Ok(at)
    }

    /// Whether nobody watches what a batch would hide.
    pub(super) fn is_staged(&self, core: usize) -> bool {
        let plain = !self.tells_tlbs() || self.cores[core].is_plain();
        self.heat.is_none() && self.owners.is_none() && plain
    }

    /// Whether the caches of a core can go level by level.
    pub(super) fn goes_by_levels(&self, core: usize) -> bool {
        let path = &self.cores[core].paths[0];
        !self.tells_tlbs() && self.is_staged(core) && self.hierarchy.is_staged(path, self.line_bits)
    }

    /// Whether they can go level by level and be taken back.
    pub(super) fn goes_by_trial(&self, core: usize) -> bool {
        let path = &self.cores[core].paths[0];
        !self.tells_tlbs() && self.hierarchy.is_optimistic(path, self.line_bits)
    }

    /// Whether caches have to know which level of TLB had the page of an access: for the time it
    /// took, or because page tables are read through them.
    pub(super) const fn tells_tlbs(&self) -> bool {
        self.timed || self.walks_tables
    }

    /// Whether an access goes the way of data and nobody watches it.
    fn can_stage(&self, record: &Record) -> bool {
        let state = self.spaces.get(usize::from(record.space));
        record.kind != AccessKind::Fetch
            && state.is_some_and(|state| {
                let plain = !self.tells_tlbs() || state.table.is_plain();
                self.is_quiet(state) && state.requests.is_none() && plain
            })
            && !self.touches_file(record)
    }

    /// Whether the policy of a space, if it has one, hears of no access but to a page that is new or a file's.
    fn is_quiet(&self, state: &State) -> bool {
        let hears_nothing = |watch: &Watch| {
            watch.is_quiet() && self.machine.tlb.iter().all(|tlb| tlb.fill == TlbFill::Hardware)
        };
        state.alarm == u64::MAX && state.watch.as_deref().is_none_or(hears_nothing)
    }

    /// Does accesses of one space, from the first on; how many. None if the first touches a page that is new
    /// and a policy has to hear of that.
    fn stage(&mut self, core: usize, batch: &[Record]) -> Result<usize, RunError> {
        let space = batch[0].space;
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        let plain = self.spaces[usize::from(space)].table.is_plain() && self.cores[core].is_plain();
        let newest = if plain { self.cores[core].free_repeats() } else { None };
        let (mut done, mut outcome) = (0, Ok(()));
        loop {
            let state = &mut self.spaces[usize::from(space)];
            let (more, stop) = find(state, batch, done, &mut room, self.line_bits, newest);
            done += more;
            let Stop::Unmapped(page) = stop else { break };
            let watched = self.spaces[usize::from(space)].watch.is_some();
            if watched || self.is_file_page(space, page) {
                break;
            }
            if let Err(error) = self.fault_for_all(space, page) {
                outcome = Err(error);
                break;
            }
        }
        if !plain {
            self.put_together();
        }
        match plain {
            true if self.threads.is_some() => self.share_pages(core, space, &room),
            true => self.ask_tlbs(core, space, &mut room),
            false => self.ask_tlbs_by_size(core, space, &room.pages[..room.listed]),
        }
        let asked = self.ask_whatever_caches(core, &batch[..done], &mut room);
        self.room = room;
        asked.and(outcome).map(|()| done)
    }

    /// Runs a batch of one space through the caches in the fastest way that there is for them.
    fn ask_whatever_caches(
        &mut self,
        core: usize,
        batch: &[Record],
        room: &mut Room,
    ) -> Result<(), RunError> {
        let Some(&Record { space, .. }) = batch.first() else { return Ok(()) };
        if self.threads.is_some() {
            self.share_requests(core, space, room.requests());
        } else if self.share_accesses(space, room.requests()) {
            // They wait for those of others.
        } else if self.goes_by_levels(core) {
            self.ask_caches(core, space, room);
        } else if self.goes_by_trial(core) {
            self.ask_caches_by_trial(core, space, room);
        } else {
            self.ask_caches_in_order(core, batch, room)?;
        }
        Ok(())
    }

    /// What TLBs that know pages of one size only say of a batch, level by level.
    fn ask_tlbs(&mut self, core: usize, space: u16, room: &mut Room) {
        let (told, repeats) = (self.tells_tlbs(), (room.filled - room.listed) as u64);
        let (mine, depths) = (&mut self.cores[core], &mut room.depths);
        let lacking = |pages: &[PageLookUp]| {
            if told {
                pages.iter().for_each(|page| depths[usize::from(page.asker())] += 1);
            }
        };
        let (levels, pages) = (&mine.tlb_paths[0], &mut room.pages[..room.listed]);
        let asked = (space, repeats, &self.tlb_stalls[..]);
        let (missing, cycles) = look_up(&mut mine.tlbs, levels, pages, asked, lacking);
        self.walks += missing as u64;
        room.listed = missing;
        self.spaces[usize::from(space)].costs.tlb_cycles += cycles;
    }

    /// The same where there are superpages, or levels that do not take pages of all sizes.
    fn ask_tlbs_by_size(&mut self, core: usize, space: u16, pages: &[PageLookUp]) {
        for number in pages.iter().map(|asked| asked.page()) {
            let table = &mut self.spaces[usize::from(space)].table;
            let mapping = table.find(number);
            if mapping.is_some_and(PageMapping::is_untouched) {
                self.first_touch(space, number);
            }
            let order = mapping.map_or(0, PageMapping::order);
            let page = TlbPage::of(space, number, order);
            let mine = &mut self.cores[core];
            let nearest = mine.tlb_paths[0].first();
            if let Some(victim) = nearest.and_then(|&at| mine.tlbs[at].access(page).err()) {
                // Such machines have no walks that could fail.
                let _ = self.fill_from(core, 0, page, victim);
            }
        }
    }

    fn fault_for_all(&mut self, space: u16, page: Vpn) -> Result<(), RunError> {
        let frame = self.fault(space, page)?.frame();
        if self.walks_tables {
            // No TLB has a page that is new: its table gets a frame as soon as it has.
            self.find_entries(space, page, 0)?;
        }
        self.share_fault(space, page, frame)
    }

    /// Runs a batch through the caches level by level, and does what [`Self::after_miss`] does for
    /// one access that nobody watches.
    fn ask_caches(&mut self, core: usize, space: u16, room: &mut Room) {
        let (path, requests) = (&self.cores[core].paths[0], &room.requests[..room.filled]);
        let asked = self.hierarchy.run_nearest(path, requests, &mut room.lists);
        if self.leads() {
            return self.share_misses(core, space, room.lists.left());
        }
        self.ask_further_caches(core, space, asked, &mut room.lists);
    }

    /// What a nearest cache asked for goes through the caches below, in other frames.
    pub(super) fn ask_translated(
        &mut self,
        core: usize,
        space: u16,
        requests: &[LineRequest],
        line: impl Fn(u64) -> u64,
    ) {
        let mut lists = std::mem::take(&mut self.room.lists);
        for part in requests.chunks(MOST_REQUESTS) {
            let asked = lists.take_over(part, &line);
            self.ask_further_caches(core, space, asked, &mut lists);
        }
        self.room.lists = lists;
    }

    fn ask_further_caches(
        &mut self,
        core: usize,
        space: u16,
        asked: RequestTally,
        lists: &mut Lists,
    ) {
        let System { cores, hierarchy, frames, colors, line_bits, colored, .. } = self;
        let note = color_notes(colors_of(frames, *line_bits), colors, *colored);
        let mut found = [0; MOST_DEPTHS];
        hierarchy.run_further(&cores[core].paths[0], asked, lists, &mut found, note);
        self.charge_misses(space, &found);
    }

    /// Runs a batch through caches of which one can tell another what to do.
    fn ask_caches_by_trial(&mut self, core: usize, space: u16, room: &mut Room) {
        let System { cores, hierarchy, frames, colors, line_bits, colored, .. } = self;
        let note = color_notes(colors_of(frames, *line_bits), colors, *colored);
        let (path, asked) = (&cores[core].paths[0], &room.requests[..room.filled]);
        let mut found = [0; MOST_DEPTHS];
        hierarchy.run_optimistic(path, asked, &mut room.stages, &mut found, note);
        self.charge_misses(space, &found);
    }

    /// Accounts for accesses by the depth that answered; those of the nearest cache cost nothing.
    pub(super) fn charge_misses(&mut self, space: u16, found: &[u64]) {
        let costs = &mut self.spaces[usize::from(space)].costs;
        for (depth, &stall) in self.stalls[0].iter().enumerate().skip(1) {
            costs.miss_cycles[(depth - 1).min(MAX_DEPTH - 1)] += stall * found[depth];
            costs.beyond_second += stall.saturating_sub(self.stalls[0][1]) * found[depth];
        }
        costs.memory += found[self.stalls[0].len() - 1];
    }
}

/// The colour of the frame that a request is for.
fn colors_of(frames: &Frames, line_bits: u32) -> impl Fn(&LineRequest) -> Option<Color> {
    move |request| frames.color(Pfn(request.line() << line_bits >> 12))
}

/// Counts what a depth is asked for by its colour, at the level that is coloured.
pub(super) fn color_notes(
    color: impl Fn(&LineRequest) -> Option<Color>,
    colors: &mut ColorCounts,
    level: Option<usize>,
) -> impl FnMut(&[LineRequest], usize) {
    let level = level.unwrap_or(usize::MAX);
    move |requests, depth| {
        // Counted with their times, not filtered: which are accesses cannot be guessed.
        let those = requests.iter().map(|request| (color(request), u64::from(request.is_access())));
        // The nearest level's hits are not told.
        if depth == level.max(1) {
            colors.note_all(those.clone(), false);
        }
        if depth == level.saturating_add(1) {
            colors.note_all(those, true);
        }
    }
}

/// Asks levels of TLBs for pages of a space, leaves those that all lack at the front, and gives how many these
/// are and the cycles of all; with how often pages were asked for that the nearest level has, and the cycles by
/// the level that answers. `lacking` hears what each level lacks.
pub(super) fn look_up(
    tlbs: &mut [Tlb],
    levels: &[usize],
    pages: &mut [PageLookUp],
    (space, repeats, stalls): (u16, u64, &[u64]),
    mut lacking: impl FnMut(&[PageLookUp]),
) -> (usize, u64) {
    let Some(&first) = levels.first() else { return (0, 0) };
    // Those left out would have been found.
    tlbs[first].counts.accesses += repeats;
    let (mut missing, mut cycles) = (pages.len(), 0);
    for (&level, spent) in levels.iter().zip(stalls.windows(2)) {
        missing = tlbs[level].access_pages(space, &mut pages[..missing]);
        cycles += missing as u64 * (spent[1] - spent[0]);
        lacking(&pages[..missing]);
    }
    (missing, cycles)
}

impl Core {
    /// Whether all levels take base pages.
    pub(super) fn is_plain(&self) -> bool {
        self.tlb_paths[0].iter().all(|&level| self.tlbs[level].takes(0))
    }

    /// The bits of a page's number by which sets of the nearest TLB differ, if it stays as it is when a page
    /// is asked for that is the newest of its set.
    fn free_repeats(&self) -> Option<u64> {
        self.tlb_paths[0].first().and_then(|&level| self.tlbs[level].free_repeats())
    }
}

/// Where accesses of a space go, from one of a batch on, two requests if one reaches into the
/// next line. How many accesses were found, and why no more. Pages are left out that are the newest of the
/// TLB's set, which the bits of `newest` choose.
fn find(
    state: &mut State,
    batch: &[Record],
    from: usize,
    room: &mut Room,
    line_bits: u32,
    newest: Option<u64>,
) -> (usize, Stop) {
    let Some(&Record { space, .. }) = batch.first() else { return (0, Stop::Done) };
    let (mut done, mut instructions, mut stop) = (from, 0, Stop::Done);
    while let Some(record) = batch.get(done) {
        let (more, retired) = find_simple(state, batch, done, room, line_bits, newest);
        (done, instructions) = (done + more, instructions + retired);
        if more > 0 {
            continue;
        }
        let long = record.more_lines(line_bits) > 1;
        if record.space != space || record.kind == AccessKind::Fetch || long {
            stop = Stop::Other;
            break;
        }
        if let Err(page) = find_one(state, record, done, room, line_bits) {
            stop = Stop::Unmapped(page);
            break;
        }
        (done, instructions) = (done + 1, instructions + u64::from(record.instructions));
    }
    state.costs.accesses += (done - from) as u64;
    state.costs.instructions += instructions;
    (done - from, stop)
}

/// The same for as many as stay within a line, are of this space, and touch pages
/// whose part of the page table was used lately; how many, and their instructions.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "places in a batch")]
fn find_simple(
    state: &mut State,
    batch: &[Record],
    from: usize,
    room: &mut Room,
    line_bits: u32,
    newest: Option<u64>,
) -> (usize, u64) {
    let (table, space, filled) = (state.table.view(), batch[0].space, room.filled);
    let (requests, pages) = (&mut room.requests[filled..], room.pages.as_mut_slice());
    let (mut listed, mut last) = (room.listed, [Vpn(u64::MAX); TLB_GROUPS]);
    let (all, groups) = (newest.is_none(), newest.unwrap_or(0) as usize % TLB_GROUPS);
    let (mut instructions, mut done) = (0, 0);
    let mut to = requests.iter_mut().zip(&mut room.records[filled..]);
    'batch: for group in batch[from..].chunks(GROUP) {
        let entries = expect_entries(&table, group);
        for ((record, &entry), (request, place)) in group.iter().zip(&entries).zip(to.by_ref()) {
            let first = record.address.0;
            let crosses = (first ^ record.last()) >> line_bits != 0;
            if crosses | (record.space != space) | (record.kind == AccessKind::Fetch) {
                break 'batch;
            }
            let Some(frame) = table.frame_at(entry) else { break 'batch };
            let physical = frame.0 << 12 | first & 4095;
            *request = LineRequest::new(physical >> line_bits, record.kind == AccessKind::Store);
            *place = (from + done) as u16;
            let page = VirtAddr(first).vpn();
            pages[listed] = PageLookUp::new(page, (filled + done) as u16);
            let last = &mut last[page.0 as usize & groups];
            listed += usize::from((page != *last) | all);
            *last = page;
            instructions += u64::from(record.instructions);
            done += 1;
        }
    }
    room.filled += done;
    room.listed = listed;
    (done, instructions)
}

/// The places of the entries of a group's pages, which are fetched.
#[inline(always)]
fn expect_entries(table: &View<'_>, group: &[Record]) -> [usize; GROUP] {
    let mut entries = [0; GROUP];
    for (entry, record) in entries.iter_mut().zip(group) {
        *entry = table.recent_entry(VirtAddr(record.address.0).vpn());
    }
    entries
}

/// The same for one access of any kind; else the page that has no frame yet.
#[cold]
#[expect(clippy::cast_possible_truncation, reason = "places in a batch")]
fn find_one(
    state: &mut State,
    record: &Record,
    place: usize,
    room: &mut Room,
    line_bits: u32,
) -> Result<(), Vpn> {
    let mut table = state.table.view();
    let ends = [record.address.0, record.last()];
    let lines = 1 + usize::from(record.more_lines(line_bits) > 0);
    let mut frames = [Pfn(0); 2];
    for (&address, frame) in ends.iter().zip(&mut frames).take(lines) {
        let page = VirtAddr(address).vpn();
        *frame = table.frame(page).ok_or(page)?;
    }
    for (&address, frame) in ends.iter().zip(frames).take(lines) {
        let physical = frame.0 << 12 | address & 4095;
        room.requests[room.filled] =
            LineRequest::new(physical >> line_bits, record.kind == AccessKind::Store);
        room.records[room.filled] = place as u16;
        room.pages[room.listed] = PageLookUp::new(VirtAddr(address).vpn(), room.filled as u16);
        (room.filled, room.listed) = (room.filled + 1, room.listed + 1);
    }
    Ok(())
}
