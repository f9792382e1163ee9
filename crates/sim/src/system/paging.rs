//! What policies have done to pages: another frame, a superpage, base pages again. Copies are
//! paid for, through the caches of the core that copies or by a price per KiB.

use huepage_color::{Color, Pfn, Vpn};
use huepage_policy::{Construction, MoveRefusal};

use super::{CopyCost, System};
use crate::cache::Prefetch;
use crate::frames::Frames;
use crate::record::AccessKind;
use crate::space::{MAX_ORDER, PageMapping};
use crate::tlb::TlbPage;

impl System {
    /// Moves a page to a frame of another colour, for which file pages of that colour make way;
    /// a superpage is broken first.
    ///
    /// # Errors
    /// When the page is not mapped or a file's, or no frame of the colour is to be had.
    pub fn recolor(
        &mut self,
        core: usize,
        space: u16,
        page: Vpn,
        to: Color,
    ) -> Result<(), MoveRefusal> {
        if self.is_file_page(space, page) {
            return Err(MoveRefusal::File);
        }
        let old = self.mapping(space, page).ok_or(MoveRefusal::Raced)?;
        if old.order() > 0 {
            self.demote_and_tell(space, page);
        }
        let known = to.0 < self.frames.colors();
        let frame = known.then(|| self.frame_of(space, to, false)).flatten();
        let frame = frame.ok_or(MoveRefusal::NoFrame)?;
        let cycles = self.copy_page(core, old.frame(), frame);
        self.replace(space, page, old.frame(), frame);
        self.frames.give_back(old.frame(), 0);
        let costs = &mut self.spaces[usize::from(space)].costs;
        costs.recolor_cycles += cycles;
        costs.recolorings += 1;
        Ok(())
    }

    /// Gives a page another frame. The old one stays taken.
    pub(super) fn replace(&mut self, space: u16, page: Vpn, old: Pfn, frame: Pfn) {
        self.count_color(space, old, false);
        self.count_color(space, frame, true);
        self.spaces[usize::from(space)].table.map(page, frame, 0);
        self.forget_owner(old);
        self.note_owner(space, page, frame);
        self.forget_page(TlbPage { space, number: page.0, order: 0 });
    }

    /// Makes one page of the 2^`order` base pages around `page`. Pages that were never touched
    /// get memory. Nothing is copied if all that are mapped lie where they have to already.
    ///
    /// # Errors
    /// When it is one already or larger than the largest, nothing of it is mapped, or there is no
    /// free memory in one piece and nobody has asked for the price of some ([`Self::construction`]).
    pub fn promote(
        &mut self,
        core: usize,
        space: u16,
        page: Vpn,
        order: u32,
    ) -> Result<(), MoveRefusal> {
        if order == 0 || order > MAX_ORDER {
            return Err(MoveRefusal::Other);
        }
        let first = Vpn(page.0 >> order << order);
        let parts = self.parts(space, first, order);
        if parts.is_empty() || parts.iter().any(|(_, at)| at.order() >= order) {
            return Err(MoveRefusal::Other);
        }
        let cycles = match self.in_place(first, &parts, order) {
            Some(block) => {
                self.join(space, first, block, &parts, order);
                self.charged_anyway(1 << order)
            }
            None => self.gather(core, space, first, parts, order)?,
        };
        let state = &mut self.spaces[usize::from(space)];
        state.most_mapped = state.most_mapped.max(state.table.mapped());
        state.costs.promotion_cycles += cycles;
        state.costs.promotions += 1;
        Ok(())
    }

    /// What a superpage would take now. Where no block is free, that of the fewest pages can be
    /// vacated, if these can move and somewhere else is room; a [`Self::promote`] of the same
    /// superpage then does that, if it takes no more moves than were said.
    pub fn construction(&mut self, space: u16, page: Vpn, order: u32) -> Construction {
        if order == 0 || order > MAX_ORDER {
            return Construction::Impossible(MoveRefusal::Other);
        }
        let first = Vpn(page.0 >> order << order);
        let parts = self.parts(space, first, order);
        if parts.is_empty() || parts.iter().any(|(_, at)| at.order() >= order) {
            return Construction::Impossible(MoveRefusal::Other);
        }
        let given = |frames: &mut Frames, block: Pfn| {
            let at =
                |offset: &u64| parts.binary_search_by_key(&(first.0 + offset), |part| part.0.0);
            let missing = (0..1_u64 << order).filter(|offset| at(offset).is_err());
            missing.for_each(|offset| frames.give_back(Pfn(block.0 + offset), 0));
        };
        if let Some(block) = self.in_place(first, &parts, order) {
            given(&mut self.frames, block);
            return Construction::InPlace;
        }
        match self.block_for(space, &parts, order) {
            Some(block) => {
                self.frames.give_back(block, order);
                Construction::Copy { pages: parts.len() as u64 }
            }
            None => self.price_of_vacating(space, first, parts.len() as u64, order),
        }
    }

    /// A free block for a superpage of these parts: one of its colours for a program in a
    /// partition; else one in the colours of which the program has the fewest pages. (Romer
    /// 1998, section 6.4 takes the cache offsets in turn, which knows nothing of other pages.)
    fn block_for(&mut self, space: u16, parts: &[(Vpn, PageMapping)], order: u32) -> Option<Pfn> {
        match self.frames.partition_of(space) {
            Some(set) => self.frames.take_block_of(order, &set),
            None => {
                let crowd = self.crowd(space, parts);
                self.frames.take_even_block(order, &crowd)
            }
        }
    }

    /// A space's base pages by colour without those of a superpage that is to be built.
    fn crowd(&self, space: u16, parts: &[(Vpn, PageMapping)]) -> Vec<u64> {
        let mut crowd = self.spaces[usize::from(space)].by_color.clone();
        for color in parts.iter().filter_map(|(_, at)| self.frames.color(at.frame())) {
            crowd[usize::from(color.0)] -= 1;
        }
        crowd
    }

    /// Counts a base page's frame among those of a space, or no more.
    pub(super) fn count_color(&mut self, space: u16, frame: Pfn, more: bool) {
        let Some(color) = self.frames.color(frame) else { return };
        let counts = &mut self.spaces[usize::from(space)].by_color;
        counts.resize(usize::from(self.frames.colors()), 0);
        let count = &mut counts[usize::from(color.0)];
        *count = if more { *count + 1 } else { *count - 1 };
    }

    /// The mapped base pages of a range.
    fn parts(&mut self, space: u16, first: Vpn, order: u32) -> Vec<(Vpn, PageMapping)> {
        let Some(state) = self.spaces.get_mut(usize::from(space)) else { return Vec::new() };
        let pages = (first.0..first.0 + (1 << order)).map(Vpn);
        pages.filter_map(|page| Some((page, state.table.find(page)?))).collect()
    }

    /// The block that the parts are in already, each at its place and the rest free.
    fn in_place(&mut self, first: Vpn, parts: &[(Vpn, PageMapping)], order: u32) -> Option<Pfn> {
        let (page, at) = *parts.first()?;
        let block = Pfn(at.frame().0.checked_sub(page.0 - first.0)?);
        let aligned = block.0.is_multiple_of(1 << order);
        let fits = |&(page, at): &(Vpn, PageMapping)| at.frame().0 == block.0 + page.0 - first.0;
        if !aligned || !parts.iter().all(fits) {
            return None;
        }
        let missing: Vec<Pfn> = (0..1_u64 << order)
            .filter(|offset| parts.iter().all(|(page, _)| page.0 != first.0 + offset))
            .map(|offset| Pfn(block.0 + offset))
            .collect();
        self.frames.take_these(&missing).then_some(block)
    }

    fn join(
        &mut self,
        space: u16,
        first: Vpn,
        block: Pfn,
        parts: &[(Vpn, PageMapping)],
        order: u32,
    ) {
        for &(page, at) in parts {
            self.forget_page(TlbPage { space, number: page.0 >> at.order(), order: at.order() });
            self.count_color(space, at.frame(), false);
            if at.frame().0 != block.0 + page.0 - first.0 {
                self.forget_owner(at.frame());
            }
        }
        (0..1_u64 << order).for_each(|i| self.count_color(space, Pfn(block.0 + i), true));
        self.spaces[usize::from(space)].table.map(first, block, order);
        self.tell_places(space, first, block, order);
    }

    /// Copies the parts to a new block; the cycles that takes.
    fn gather(
        &mut self,
        core: usize,
        space: u16,
        first: Vpn,
        mut parts: Vec<(Vpn, PageMapping)>,
        order: u32,
    ) -> Result<u64, MoveRefusal> {
        let (block, mut cycles) = match self.block_for(space, &parts, order) {
            Some(block) => (block, 0),
            None => self.vacate(core, space, first, order)?,
        };
        // Some may have been in the block.
        parts = self.parts(space, first, order);
        for &(page, at) in &parts {
            cycles += match self.copy {
                CopyCost::SuperpagesPerKib(cycles) => 4 * cycles,
                _ => self.copy_page(core, at.frame(), Pfn(block.0 + page.0 - first.0)),
            };
        }
        self.join(space, first, block, &parts, order);
        parts.iter().for_each(|(_, at)| self.frames.give_back(at.frame(), 0));
        Ok(cycles + self.charged_anyway((1 << order) - parts.len() as u64))
    }

    /// Cycles that so many base pages of a superpage cost though nothing of them is copied.
    const fn charged_anyway(&self, pages: u64) -> u64 {
        match self.copy {
            CopyCost::AlwaysPerKib(cycles) | CopyCost::SuperpagesPerKib(cycles) => {
                4 * cycles * pages
            }
            _ => 0,
        }
    }

    /// Breaks the superpage that a base page belongs to; its frames stay.
    pub fn demote(&mut self, space: u16, page: Vpn) {
        let Some(state) = self.spaces.get_mut(usize::from(space)) else { return };
        let Some((first, order)) = state.table.split(page) else { return };
        state.costs.demotions += 1;
        self.forget_page(TlbPage { space, number: first.0 >> order, order });
    }

    /// Switches all prefetchers on or off.
    pub fn switch_prefetchers(&mut self, on: bool) {
        for cache in 0..self.hierarchy.caches().len() {
            self.hierarchy.switch(cache, Prefetch::NextLine, on);
            self.hierarchy.switch(cache, Prefetch::Stride, on);
        }
    }

    /// Where a page is.
    pub fn mapping(&mut self, space: u16, page: Vpn) -> Option<PageMapping> {
        self.spaces.get_mut(usize::from(space))?.table.find(page)
    }

    /// No TLB translates a base page any more, whatever page it belongs to.
    pub(super) fn shoot_down(&mut self, space: u16, page: Vpn) {
        for tlb in self.cores.iter_mut().flat_map(|core| &mut core.tlbs) {
            tlb.shoot_down(space, page);
        }
    }

    /// No TLB translates a page any more.
    pub(super) fn forget_page(&mut self, page: TlbPage) {
        for tlb in self.cores.iter_mut().flat_map(|core| &mut core.tlbs) {
            tlb.forget(page);
        }
    }

    /// Copies a base page; the cycles that takes: a load and a store for each line, and an
    /// instruction for each.
    pub(super) fn copy_page(&mut self, core: usize, from: Pfn, to: Pfn) -> u64 {
        if let CopyCost::PerKib(cycles) | CopyCost::AlwaysPerKib(cycles) = self.copy {
            return 4 * cycles;
        }
        let mut cycles = 0;
        for offset in (0..4096).step_by(1 << self.line_bits) {
            for (frame, kind) in [(from, AccessKind::Load), (to, AccessKind::Store)] {
                let path = &self.cores[core].paths[0];
                let depth = self.hierarchy.access(path, frame.0 << 12 | offset, kind);
                let taken = 1 + self.stalls[0][depth];
                self.hierarchy.now += taken;
                cycles += taken + self.hierarchy.take_extra();
            }
        }
        cycles
    }
}
