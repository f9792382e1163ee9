//! Given pages of a member go to given colours, each to its own: frames of all colours that are wanted
//! are gathered together, and those of one colour at a time are the stock while its pages are moved.
//! Moves are the same as those of audits, and so is what they leave alone. Asked for by others only for members of
//! whom no other page is anybody's business (see [`crate::engine::scope`]), and by the member itself so that its
//! pages use all colours alike (see [`huepage_policy::balance`]); nothing is kept where it was put.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_frames::ColorPool;
use huepage_policy::settled::Audited;

use super::Member;
use super::growth::GrowthMode;
use super::moves::{Flags, MoveList, add_move, held_by};
use crate::engine::EngineError;
use crate::engine::census::{ColorLookup, Outside};
use crate::engine::scope::Scope;
use crate::kernel::procfs::Area;

/// What became of a page: where it was to go, and whether it is there.
pub type Placed = (Vpn, bool);

/// Pages recoloured with one command.
const PAGES_PER_COMMAND: usize = 1024;

impl Member {
    /// Moves each page to its colour; what became of each, in any order. The frames that they had are
    /// given back.
    pub(super) fn place(&mut self, moves: &[(Vpn, Color)]) -> Result<Vec<Placed>, EngineError> {
        if self.config.scope.is_some() && self.foreign.may_move() && self.know_clear_tid()? {
            let areas = self.root.maps(self.pid)?;
            self.find_ranges(&areas);
            self.place_each(moves, &areas)?;
        }
        self.look_where(moves)
    }

    /// The pages of a partition are to use its colours alike, where nobody else decides which of them are used
    /// how: after an audit, whose own moves come first. How many pages were moved for that.
    pub(super) fn even_out(&mut self, found: &Audited) -> Result<usize, EngineError> {
        let apart = !self.serves() || self.config.growth != GrowthMode::Even;
        // It takes the whole stock, which is gathered anew: not while the process grows.
        let grows = !self.settling.pace.is_still();
        let busy = self.stock.filling || self.stock.is_short() || self.config.storm || grows;
        if apart || busy || !self.settling.balance.is_due(found) {
            return Ok(0);
        }
        let (mut pages, colors) = (Vec::new(), self.config.colors.clone());
        self.look_at_free(
            |color| colors.contains(color),
            |_, page| pages.extend(page.seen.color.map(|color| (page.seen.page, color))),
        )?;
        let moves = self.settling.balance.plan(&colors, &pages);
        let mut moved = 0;
        if !moves.is_empty() && self.foreign.may_move() && self.know_clear_tid()? {
            self.place_each(&moves, &self.root.maps(self.pid)?)?;
            self.refill();
            moved = self.look_where(&moves)?.iter().filter(|page| page.1).count();
        }
        self.settling.balance.evened(moved);
        Ok(moved)
    }

    fn place_each(&mut self, moves: &[(Vpn, Color)], areas: &[Area]) -> Result<(), EngineError> {
        let mut by_color: BTreeMap<u16, Vec<Vpn>> = BTreeMap::new();
        moves.iter().for_each(|(page, color)| by_color.entry(color.0).or_default().push(*page));
        let flags = self.flags()?;
        let mut frames = self.frames_for(&by_color)?;
        for (&color, pages) in &by_color {
            self.stock_only(Color(color), pages.len(), &mut frames)?;
            let pages = self.movable(areas, pages.iter().copied())?;
            self.move_all(&pages, &flags)?;
        }
        self.hold_stock_of(self.config.colors.clone())?;
        self.note_counters();
        Ok(())
    }

    /// Frames of the colours that are wanted, still where they were gathered.
    fn frames_for(
        &mut self,
        by_color: &BTreeMap<u16, Vec<Vpn>>,
    ) -> Result<ColorPool<u64>, EngineError> {
        let mut colors = ColorSet::empty(self.source.universe());
        by_color.keys().for_each(|&color| _ = colors.insert(Color(color)));
        self.hold_stock_of(colors)?;
        let wanted: Vec<(Color, usize)> =
            by_color.iter().map(|(&color, pages)| (Color(color), pages.len())).collect();
        self.pool_filler.collect(&mut self.agent, &self.pagemap, &mut *self.source, &wanted)
    }

    /// The stock is so many frames of one colour, or as many as there are.
    fn stock_only(
        &mut self,
        color: Color,
        n: usize,
        frames: &mut ColorPool<u64>,
    ) -> Result<(), EngineError> {
        self.agent.drop_recycled()?;
        self.agent.empty_stock()?;
        let pages: Vec<u64> = (0..n).map_while(|_| frames.take(color)).collect();
        self.agent.fill(&pages)?;
        Ok(())
    }

    /// Those of some pages that can be moved as far as is known, by area.
    fn movable(
        &self,
        areas: &[Area],
        pages: impl Iterator<Item = Vpn>,
    ) -> Result<MoveList, EngineError> {
        let range = |page: Vpn| (page.0 * PAGE_BYTES, (page.0 + 1) * PAGE_BYTES);
        let scope = Scope::new(pages.map(range).collect());
        let (own, nothing) = (self.agent.own_ranges(), ColorSet::empty(self.source.universe()));
        let lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &|_| None,
            colors: &nothing,
            own: &own,
            foreign: self.foreign.areas(),
            except: None,
        };
        let mut moves = MoveList::new();
        lookup.count(&scope.cut(areas), |area, page: Outside| {
            if !self.clear_tid.holds(page.address()) && !self.pinned.holds(page.seen.page) {
                add_move(&mut moves, area, page);
            }
            None
        })?;
        Ok(moves)
    }

    /// Moves pages to what is in stock, as far as that goes.
    fn move_all(&mut self, moves: &MoveList, flags: &Flags) -> Result<(), EngineError> {
        for (area, pages) in moves {
            let free =
                flags.of(area).is_some_and(|of| held_by(of, self.watches(), false).is_none());
            let Some(range) = self.range_of(area).filter(|_| free) else { continue };
            for chunk in pages.chunks(PAGES_PER_COMMAND) {
                let stock = usize::try_from(self.agent.stock()).unwrap_or(usize::MAX);
                let chunk = self.without_clear_tid(&chunk[..chunk.len().min(stock)])?;
                let addresses: Vec<u64> = chunk.iter().map(Outside::address).collect();
                let results = self.agent.recolor(&addresses, range, self.watches())?;
                for (page, errno) in chunk.iter().zip(results) {
                    self.note_result(page, errno.cast_signed())?;
                }
                self.agent.drop_recycled()?;
            }
        }
        Ok(())
    }

    /// Which pages are in their colours, by page tables and what was measured.
    fn look_where(&self, moves: &[(Vpn, Color)]) -> Result<Vec<Placed>, EngineError> {
        let placed = |&(page, color): &(Vpn, Color)| {
            let frame = self.pagemap.entry(page)?.pfn();
            Ok((page, frame.and_then(|frame| self.source.vouched(frame)) == Some(color)))
        };
        moves.iter().map(placed).collect()
    }
}
