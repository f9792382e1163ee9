//! Many accesses in a row: what [`System::access`] does, in batches that go stage by stage
//! (pages, TLBs, each cache level) where the machine and what is watched allow it. Counts and
//! contents come out the same; a test compares the two.

use huepage_color::{VirtAddr, Vpn};

use super::{RunError, System};
use crate::cache::batch::{Lists, Touch};
use crate::record::{Kind, Record};
use crate::space::Mapping;
use crate::tlb::Page;

/// Accesses in a batch: what is kept of them stays near while the stages pass over it.
const BATCH: usize = 512;

/// A touch on its way: whose, of which page, and where that lies.
#[derive(Clone, Copy, Debug)]
struct Found {
    space: u16,
    page: Vpn,
    mapping: Mapping,
}

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    found: Vec<Found>,
    touches: Vec<Touch>,
    lists: Lists,
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
        for batch in records.chunks(BATCH) {
            if batch.iter().any(|record| !self.can_stage(record)) {
                batch.iter().try_for_each(|record| self.access(core, record))?;
            } else {
                self.stage(core, batch)?;
            }
        }
        Ok(())
    }

    fn is_staged(&self, core: usize) -> bool {
        let path = &self.cores[core].paths[0];
        !self.extras && self.machine.walk.is_none() && self.hierarchy.is_staged(path)
    }

    /// Whether an access goes the way of data and nobody watches it.
    fn can_stage(&self, record: &Record) -> bool {
        let state = self.spaces.get(usize::from(record.space));
        record.kind != Kind::Fetch && state.is_some_and(|state| state.watch.is_none())
    }

    fn stage(&mut self, core: usize, batch: &[Record]) -> Result<(), RunError> {
        let mut room = std::mem::take(&mut self.room);
        room.found.clear();
        room.touches.clear();
        let outcome = self.find_pages(batch, &mut room);
        self.ask_tlbs(core, &room.found)?;
        let path = &self.cores[core].paths[0];
        self.hierarchy.run_staged(path, &mut room.touches, &mut room.lists);
        for (found, touch) in room.found.iter().zip(&room.touches) {
            if touch.depth > 0 {
                let depth = usize::from(touch.depth);
                self.after_miss(found.space, 0, found.page, found.mapping.frame(), depth);
            }
        }
        self.last_depth = room.touches.last().map_or(0, |touch| usize::from(touch.depth));
        self.room = room;
        outcome
    }

    /// Where every access goes; two places if it reaches into the next line. Those before an
    /// error are found.
    fn find_pages(&mut self, batch: &[Record], room: &mut Room) -> Result<(), RunError> {
        for record in batch {
            let first = record.address.0;
            let last = first + u64::from(record.bytes.max(1) - 1);
            self.find_page(record, first, room)?;
            if (first ^ last) >> self.line_bits != 0 {
                self.find_page(record, last, room)?;
            }
            let costs = &mut self.spaces[usize::from(record.space)].costs;
            costs.accesses += 1;
            costs.instructions += u64::from(record.instructions);
        }
        Ok(())
    }

    #[inline(always)]
    fn find_page(
        &mut self,
        record: &Record,
        address: u64,
        room: &mut Room,
    ) -> Result<(), RunError> {
        let (space, page) = (record.space, VirtAddr(address).vpn());
        let mapping = match self.spaces[usize::from(space)].table.find(page) {
            Some(mapping) => mapping,
            None => self.fault(space, page)?,
        };
        let physical = mapping.frame().0 << 12 | address & 4095;
        room.found.push(Found { space, page, mapping });
        room.touches.push(Touch { physical, kind: record.kind, depth: 0 });
        Ok(())
    }

    fn ask_tlbs(&mut self, core: usize, found: &[Found]) -> Result<(), RunError> {
        let Some(&nearest) = self.cores[core].tlb_paths[0].first() else { return Ok(()) };
        match (4..=8).find(|&ways| self.cores[core].tlbs[nearest].is_lru(ways)) {
            Some(4) => self.ask_tlb::<4>(core, nearest, found),
            Some(6) => self.ask_tlb::<6>(core, nearest, found),
            Some(8) => self.ask_tlb::<8>(core, nearest, found),
            _ => self.ask_tlb::<0>(core, nearest, found),
        }
    }

    /// `W`: the ways of a plain TLB; 0 for any.
    fn ask_tlb<const W: usize>(
        &mut self,
        core: usize,
        nearest: usize,
        found: &[Found],
    ) -> Result<(), RunError> {
        for place in found {
            let order = place.mapping.order();
            let page = Page { space: place.space, number: place.page.0 >> order, order };
            let tlb = &mut self.cores[core].tlbs[nearest];
            let hit = if W == 0 { tlb.access(page).is_ok() } else { tlb.access_lru::<W>(page) };
            if !hit {
                self.fill_tlbs(core, 0, page)?;
            }
        }
        Ok(())
    }
}
