//! Many accesses in a row: what [`System::access`] does, in batches that go stage by stage
//! (pages and the nearest TLB, further TLBs, each cache level) where the machine and what is
//! watched allow it. Counts and contents come out the same; a test compares the two.

use huepage_color::{Pfn, VirtAddr, Vpn};

use super::{RunError, State, System};
use crate::cache::batch::{Lists, Touch};
use crate::cost::MAX_DEPTH;
use crate::machine::TlbFill;
use crate::record::{Kind, Record};
use crate::space::Mapping;
use crate::tlb::Page;

/// Accesses in a batch: what is kept of them stays near while the stages pass over it.
const BATCH: usize = 512;

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    touches: Vec<Touch>,
    /// The page of each; later those that the TLBs so far lacked.
    pages: Vec<Vpn>,
    /// How many there are of both.
    filled: usize,
    lists: Lists,
}

impl Room {
    /// Nothing in it, and room for a batch.
    fn clear(&mut self) {
        self.filled = 0;
        self.touches.resize(2 * BATCH, Touch::default());
        self.pages.resize(2 * BATCH, Vpn(0));
    }
}

/// Why finding pages stopped before the end of a batch.
enum Stop {
    /// All were found.
    Done,
    /// The next access is of another space, or no data.
    Other,
    /// The next access touches this page, which has no frame yet.
    Unmapped(Vpn),
}

impl System {
    /// Accesses by a core, one after the other.
    ///
    /// # Errors
    /// As [`Self::access`]; what came before has been done.
    pub fn run(&mut self, core: usize, records: &[Record]) -> Result<(), RunError> {
        if !self.is_staged(core) {
            return records.iter().try_for_each(|record| self.access(core, record));
        }
        let mut rest = records;
        while let Some(record) = rest.first() {
            // What is copied goes back and forth between a file and memory.
            let copied = rest.get(1).is_some_and(|next| self.touches_file(next));
            let done = if self.can_stage(record) && !copied {
                self.stage(core, &rest[..rest.len().min(BATCH)])?
            } else {
                self.access(core, record)?;
                1
            };
            rest = &rest[done..];
        }
        Ok(())
    }

    fn is_staged(&self, core: usize) -> bool {
        let path = &self.cores[core].paths[0];
        !self.extras
            && self.heat.is_none()
            && self.machine.walk.is_none()
            && self.hierarchy.is_staged(path)
    }

    /// Whether an access goes the way of data and nobody watches it.
    fn can_stage(&self, record: &Record) -> bool {
        let state = self.spaces.get(usize::from(record.space));
        record.kind != Kind::Fetch
            && state.is_some_and(|state| state.watch.is_none())
            && !self.touches_file(record)
    }

    /// Does accesses of one space, from the first on; how many.
    fn stage(&mut self, core: usize, batch: &[Record]) -> Result<usize, RunError> {
        let space = batch[0].space;
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        let (mut done, mut outcome) = (0, Ok(()));
        loop {
            let state = &mut self.spaces[usize::from(space)];
            let (more, stop) = find(state, &batch[done..], &mut room, self.line_bits);
            done += more;
            let Stop::Unmapped(page) = stop else { break };
            if self.is_file_page(space, page) {
                break;
            }
            if let Err(error) = self.fault(space, page) {
                outcome = Err(error);
                break;
            }
        }
        self.ask_tlbs(core, space, &mut room.pages[..room.filled]);
        let (path, touches) = (&self.cores[core].paths[0], &mut room.touches[..room.filled]);
        self.hierarchy.run_staged(path, touches, &mut room.lists);
        self.after_misses(space, touches);
        self.last_depth = touches.last().map_or(0, |touch| usize::from(touch.depth));
        self.room = room;
        outcome.map(|()| done)
    }

    /// What TLBs say of the pages of a batch, level by level, and the cycles that takes.
    fn ask_tlbs(&mut self, core: usize, space: u16, pages: &mut [Vpn]) {
        let mine = &mut self.cores[core];
        let levels = &mine.tlb_paths[0];
        let Some(&last) = levels.last() else { return };
        let plain = self.spaces[usize::from(space)].table.is_plain()
            && levels.iter().all(|&level| mine.tlbs[level].takes(0));
        let cycles = if plain {
            let (mut cycles, mut missing) = (0, pages.len());
            for (depth, &level) in levels.iter().enumerate() {
                // The nearest one's latency counts only where it has to ask further.
                let asked = missing as u64;
                missing = mine.tlbs[level].access_pages(space, &mut pages[..missing]);
                let paid = if depth == 0 { missing as u64 } else { asked };
                cycles += paid * self.machine.tlb[level].latency;
            }
            self.walks += missing as u64;
            let software = self.machine.tlb[last].fill == TlbFill::Software;
            let machine = &self.machine;
            let each = if software { machine.handler_latency } else { machine.walk_latency };
            cycles + each * missing as u64
        } else {
            self.ask_tlbs_by_size(core, space, pages)
        };
        self.spaces[usize::from(space)].costs.tlb_cycles += cycles;
    }

    /// The same where there are superpages, or levels that do not take pages of all sizes.
    fn ask_tlbs_by_size(&mut self, core: usize, space: u16, pages: &[Vpn]) -> u64 {
        let before = self.spaces[usize::from(space)].costs.tlb_cycles;
        for &number in pages {
            let table = &mut self.spaces[usize::from(space)].table;
            let order = table.find(number).map_or(0, Mapping::order);
            let page = Page::of(space, number, order);
            let mine = &mut self.cores[core];
            let nearest = mine.tlb_paths[0].first();
            if let Some(victim) = nearest.and_then(|&at| mine.tlbs[at].access(page).err()) {
                // Staged machines have no walks that could fail.
                let _ = self.fill_from(core, 0, page, victim);
            }
        }
        let costs = &mut self.spaces[usize::from(space)].costs;
        costs.tlb_cycles - std::mem::replace(&mut costs.tlb_cycles, before)
    }

    /// What [`Self::after_miss`] does, for a batch that nobody watches.
    fn after_misses(&mut self, space: u16, touches: &[Touch]) {
        let mut found = [0_u64; u8::MAX as usize + 1];
        for touch in touches {
            found[usize::from(touch.depth)] += 1;
        }
        let costs = &mut self.spaces[usize::from(space)].costs;
        for (depth, &stall) in self.stalls[0].iter().enumerate().skip(1) {
            costs.miss_cycles[(depth - 1).min(MAX_DEPTH - 1)] += stall * found[depth];
        }
        costs.memory += found[self.stalls[0].len() - 1];
        if self.colored.is_some() {
            for touch in touches.iter().filter(|touch| touch.depth > 0) {
                self.note_color(Pfn(touch.physical >> 12), usize::from(touch.depth));
            }
        }
    }
}

/// Where accesses of a space go, two places if one reaches into the next line. How many were
/// found, and why no more.
fn find(state: &mut State, batch: &[Record], room: &mut Room, line_bits: u32) -> (usize, Stop) {
    let Some(&Record { space, .. }) = batch.first() else { return (0, Stop::Done) };
    let (mut instructions, mut done, mut stop) = (0, 0, Stop::Done);
    let mut table = state.table.view();
    let (touches, pages) = (room.touches.as_mut_slice(), room.pages.as_mut_slice());
    let mut at = room.filled;
    let mut add = |page: Vpn, frame: Pfn, address: u64, store: bool| {
        touches[at] = Touch { physical: frame.0 << 12 | address & 4095, store, depth: 0 };
        pages[at] = page;
        at += 1;
    };
    for record in batch {
        if record.space != space || record.kind == Kind::Fetch {
            stop = Stop::Other;
            break;
        }
        let first = record.address.0;
        let last = first + u64::from(record.bytes.max(1) - 1);
        let page = VirtAddr(first).vpn();
        let Some(frame) = table.frame(page) else {
            stop = Stop::Unmapped(page);
            break;
        };
        let store = record.kind == Kind::Store;
        if (first ^ last) >> line_bits != 0 {
            let next = VirtAddr(last).vpn();
            let Some(second) = table.frame(next) else {
                stop = Stop::Unmapped(next);
                break;
            };
            add(page, frame, first, store);
            add(next, second, last, store);
        } else {
            add(page, frame, first, store);
        }
        instructions += u64::from(record.instructions);
        done += 1;
    }
    room.filled = at;
    state.costs.accesses += done as u64;
    state.costs.instructions += instructions;
    (done, stop)
}
