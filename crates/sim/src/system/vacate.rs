//! Memory that is fragmented: the block of which fewest frames are in use is vacated for a
//! superpage, if its policy was told the price and still wants it (Romer 1998, section 3.8.2).
//! Base pages of programs can be moved, whoever they belong to; superpages, page tables, pages
//! of files and frames that are nobody's cannot.

use std::collections::HashMap;

use huepage_color::{ColorSet, NumberHash, Pfn, Vpn};
use huepage_policy::{Construction, Event, MoveRefusal};

use super::System;
use super::misses::Owners;

/// A block that can be vacated: its first frame, and the pages to move.
type Plan = (Pfn, Vec<(Pfn, (u16, Vpn))>);

impl System {
    /// What a superpage takes for which no block is free; remembers it for [`Self::vacate`].
    pub(super) fn price_of_vacating(
        &mut self,
        space: u16,
        first: Vpn,
        pages: u64,
        order: u32,
    ) -> Construction {
        let Some((_, moves)) = self.cheapest_block(space, order) else {
            return Construction::Impossible(MoveRefusal::NoFrame);
        };
        let others = moves.len() as u64;
        self.spaces[usize::from(space)].priced.insert((first, order), others);
        Construction::Vacate { pages, others }
    }

    /// Vacates a block for a superpage: the block, which is taken, and the cycles.
    ///
    /// # Errors
    /// When the price was not asked for, or has risen, or a page has nowhere to go.
    pub(super) fn vacate(
        &mut self,
        core: usize,
        space: u16,
        first: Vpn,
        order: u32,
    ) -> Result<(Pfn, u64), MoveRefusal> {
        let said = self.spaces[usize::from(space)].priced.remove(&(first, order));
        let said = said.ok_or(MoveRefusal::NoFrame)?;
        let plan = self.cheapest_block(space, order);
        let (block, moves) =
            plan.filter(|(_, moves)| moves.len() as u64 <= said).ok_or(MoveRefusal::NoFrame)?;
        let used = |frame: &Pfn| moves.iter().any(|(used, _)| used == frame);
        let free: Vec<Pfn> =
            (block.0..block.0 + (1 << order)).map(Pfn).filter(|frame| !used(frame)).collect();
        // First of all, so that no page is moved from one end of the block to the other.
        if !self.frames.take_these(&free) {
            return Err(MoveRefusal::NoFrame);
        }
        let mut cycles = 0;
        for (at, &(frame, owner)) in moves.iter().enumerate() {
            let Some(spent) = self.move_out(core, frame, owner) else {
                let vacated = moves[..at].iter().map(|&(frame, _)| frame);
                free.into_iter().chain(vacated).for_each(|f| self.frames.give_back(f, 0));
                return Err(MoveRefusal::NoFrame);
            };
            cycles += spent;
        }
        Ok((block, cycles))
    }

    /// Moves a page to a frame of the same colour, or of any if its program is in no partition.
    /// Its old frame stays taken. The cycles; none if there is no such frame.
    fn move_out(&mut self, core: usize, old: Pfn, (space, page): (u16, Vpn)) -> Option<u64> {
        let color = self.frames.color(old);
        let same = color.and_then(|color| self.frames.take_color_only(color));
        let bound = self.frames.partition_of(space).is_some();
        let frame = same.or_else(|| (!bound).then(|| self.frames.take_own().ok()).flatten())?;
        let cycles = self.copy_page(core, old, frame);
        self.replace(space, page, old, frame);
        let color = self.frames.color(frame);
        if let Some(watch) = &mut self.spaces[usize::from(space)].watch {
            watch.tell(Event::Placed { page, color });
        }
        Some(cycles)
    }

    /// The block with the fewest pages to move, the lowest of several, for a program in whose
    /// colours it has to lie. Looks at every page of every program, and at blocks in the order
    /// of the pages in them until one will do.
    fn cheapest_block(&self, space: u16, order: u32) -> Option<Plan> {
        let set = self.frames.partition_of(space);
        let owners = self.movable();
        let mut pages: HashMap<u64, u64, NumberHash> = HashMap::default();
        owners.keys().for_each(|frame| *pages.entry(frame >> order).or_default() += 1);
        let mut blocks: Vec<(u64, u64)> = (0..self.frames.total() >> order)
            .map(|block| (pages.get(&block).copied().unwrap_or(0), block))
            .collect();
        blocks.sort_unstable();
        // What is free in the block itself is no place to move to.
        let room = self.frames.available() >= 1 << order;
        blocks.into_iter().filter(|_| room).find_map(|(_, block)| {
            let first = Pfn(block << order);
            Some((first, self.moves(first, order, &owners, set.as_ref())?))
        })
    }

    /// The pages in a block, if all else in it is free.
    fn moves(
        &self,
        first: Pfn,
        order: u32,
        owners: &Owners,
        set: Option<&ColorSet>,
    ) -> Option<Vec<(Pfn, (u16, Vpn))>> {
        let mut moves = Vec::new();
        for frame in (first.0..first.0 + (1 << order)).map(Pfn) {
            let color = self.frames.color(frame);
            if set.is_some_and(|set| color.is_none_or(|color| !set.contains(color))) {
                return None;
            }
            match owners.get(&frame.0) {
                Some(&owner) => moves.push((frame, owner)),
                None if self.frames.is_free(frame) => {}
                None => return None,
            }
        }
        Some(moves)
    }

    /// The frames of base pages of programs, and whose they are.
    fn movable(&self) -> Owners {
        let mut owners = Owners::default();
        for (space, state) in (0..).zip(&self.spaces) {
            let single = state.table.pages().filter(|(_, at)| at.order() == 0);
            owners.extend(single.map(|(page, at)| (at.frame().0, (space, page))));
        }
        owners
    }
}
