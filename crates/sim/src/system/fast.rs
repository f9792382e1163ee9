//! Many accesses in a row: what [`System::access`] does, in batches that go stage by stage
//! (pages and the nearest TLB, further TLBs, each cache level) where the machine and what is
//! watched allow it. Counts and contents come out the same; a test compares the two.

use huepage_color::{Pfn, VirtAddr, Vpn};

use super::{RunError, State, System};
use crate::cache::batch::{Lists, Touch};
use crate::record::{Kind, Record};
use crate::space::Mapping;
use crate::tlb::{Page, Tlb};

/// Accesses in a batch: what is kept of them stays near while the stages pass over it.
const BATCH: usize = 512;

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    touches: Vec<Touch>,
    /// Pages that the nearest TLB lacked.
    missed: Vec<Page>,
    lists: Lists,
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
            && self.owners.is_none()
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
        room.touches.clear();
        room.missed.clear();
        let (mut done, mut outcome) = (0, Ok(()));
        loop {
            let (more, stop) = self.find_pages(core, &batch[done..], &mut room);
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
        for &page in &room.missed {
            self.fill_tlbs(core, 0, page)?;
        }
        let path = &self.cores[core].paths[0];
        self.hierarchy.run_staged(path, &mut room.touches, &mut room.lists);
        for touch in room.touches.iter().filter(|touch| touch.depth > 0) {
            let (frame, depth) = (Pfn(touch.physical >> 12), usize::from(touch.depth));
            self.after_miss(space, 0, frame, depth);
        }
        self.last_depth = room.touches.last().map_or(0, |touch| usize::from(touch.depth));
        self.room = room;
        outcome.map(|()| done)
    }

    fn find_pages(&mut self, core: usize, batch: &[Record], room: &mut Room) -> (usize, Stop) {
        let state = &mut self.spaces[usize::from(batch[0].space)];
        let mine = &mut self.cores[core];
        let Some(&nearest) = mine.tlb_paths[0].first() else {
            return find::<0>(state, None, batch, room, self.line_bits);
        };
        let tlb = &mut mine.tlbs[nearest];
        match [4, 6, 8].into_iter().find(|&ways| tlb.is_lru(ways)) {
            Some(4) => find::<4>(state, Some(tlb), batch, room, self.line_bits),
            Some(6) => find::<6>(state, Some(tlb), batch, room, self.line_bits),
            Some(8) => find::<8>(state, Some(tlb), batch, room, self.line_bits),
            _ => find::<0>(state, Some(tlb), batch, room, self.line_bits),
        }
    }
}

/// Where accesses of a space go, two places if one reaches into the next line, and what the
/// nearest TLB says (`W`: its ways if it is plain, else 0). How many were found, and why no more.
fn find<const W: usize>(
    state: &mut State,
    mut tlb: Option<&mut Tlb>,
    batch: &[Record],
    room: &mut Room,
    line_bits: u32,
) -> (usize, Stop) {
    let Some(&Record { space, .. }) = batch.first() else { return (0, Stop::Done) };
    let (mut instructions, mut done, mut stop) = (0, 0, Stop::Done);
    for record in batch {
        if record.space != space || record.kind == Kind::Fetch {
            stop = Stop::Other;
            break;
        }
        let first = record.address.0;
        let last = first + u64::from(record.bytes.max(1) - 1);
        let page = VirtAddr(first).vpn();
        let Some(mapping) = state.table.find(page) else {
            stop = Stop::Unmapped(page);
            break;
        };
        let mut second = None;
        if (first ^ last) >> line_bits != 0 {
            let page = VirtAddr(last).vpn();
            let Some(mapping) = state.table.find(page) else {
                stop = Stop::Unmapped(page);
                break;
            };
            second = Some((page, mapping));
        }
        let kind = record.kind;
        ask::<W>(&mut tlb, space, page, mapping, &mut room.missed);
        room.touches.push(Touch { physical: place(mapping, first), kind, depth: 0 });
        if let Some((page, mapping)) = second {
            ask::<W>(&mut tlb, space, page, mapping, &mut room.missed);
            room.touches.push(Touch { physical: place(mapping, last), kind, depth: 0 });
        }
        instructions += u64::from(record.instructions);
        done += 1;
    }
    state.costs.accesses += done as u64;
    state.costs.instructions += instructions;
    (done, stop)
}

#[inline(always)]
const fn place(mapping: Mapping, address: u64) -> u64 {
    mapping.frame().0 << 12 | address & 4095
}

#[inline(always)]
fn ask<const W: usize>(
    tlb: &mut Option<&mut Tlb>,
    space: u16,
    page: Vpn,
    mapping: Mapping,
    missed: &mut Vec<Page>,
) {
    let Some(tlb) = tlb else { return };
    let order = mapping.order();
    let page = Page { space, number: page.0 >> order, order };
    let hit = if W == 0 { tlb.access(page).is_ok() } else { tlb.access_lru::<W>(page) };
    if !hit {
        missed.push(page);
    }
}
