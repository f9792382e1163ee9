//! Another partition for a process that runs: other colours, or another part of its memory. The
//! stock is exchanged, pages that have to leave are moved, or left until they are touched (`lazy`), and where
//! colours were gained some pages move there, so that they are used. Which colours is decided elsewhere.

use huepage_color::{Color, ColorSet};
use huepage_policy::StaticPartition;

use super::Member;
use super::moves::MoveList;
use crate::engine::EngineError;
use crate::engine::census::{ColorLookup, Outside};
use crate::engine::scope::Scope;
use crate::kernel::procfs::Area;
use crate::kernel::trace_points;

impl Member {
    /// The partition is `colors` from now on. Pages in colours that were lost are moved by the next
    /// audits, or wait as [`Shrink`](crate::engine::Shrink) says; of the others some move to colours that were gained: as many as it takes for all to be
    /// used alike, or as [`GrowthMode`](crate::engine::GrowthMode) says.
    pub(super) fn retune(&mut self, colors: ColorSet) -> Result<(), EngineError> {
        if colors == self.config.colors || colors.is_empty() {
            return Ok(());
        }
        let gained = colors.difference(&self.config.colors);
        if !gained.is_empty() && self.config.scope.is_none() {
            let pages = match self.pages_to_grow(&gained, &colors)? {
                Some(pages) => pages,
                None => self.pages_to_spread(&gained, &colors)?,
            };
            self.hold_stock_of(gained)?;
            if !pages.is_empty() && self.know_clear_tid()? {
                self.repair(&pages)?;
            }
        }
        self.hold_stock_of(colors.clone())?;
        self.leave(&colors)?;
        self.take_colors(colors);
        Ok(())
    }

    /// The partition is for these pages from now on. Those that it is no longer for go back to
    /// colours outside of it. Where a buffer is kept, that is what is meant.
    pub(super) fn rescope(&mut self, scope: Scope) -> Result<(), EngineError> {
        if self.buffer.is_some() {
            return self.fill_buffer(scope);
        }
        let released = match &self.config.scope {
            Some(before) => before.without(&scope),
            None => return Ok(()),
        };
        let (inside, outside) = (self.config.colors.clone(), self.config.colors.complement());
        if !released.is_empty() && !outside.is_empty() {
            self.config.scope = Some(released);
            self.hold_stock_of(outside.clone())?;
            self.take_colors(outside);
            self.audit()?;
            self.hold_stock_of(inside.clone())?;
            self.take_colors(inside);
        }
        self.config.scope = Some(scope);
        self.audit_now();
        Ok(())
    }

    /// Exchanges the stock.
    pub(super) fn hold_stock_of(&mut self, colors: ColorSet) -> Result<(), EngineError> {
        self.pool_filler.end_round(&mut self.agent)?;
        self.agent.drop_recycled()?;
        self.agent.empty_stock()?;
        self.pool_filler.set_colors(colors);
        Ok(())
    }

    fn take_colors(&mut self, colors: ColorSet) {
        trace_points::retuned(self.pid, colors.len());
        self.policy = StaticPartition::new(colors.clone());
        self.config.colors = colors;
        // What was counted was counted for the other partition.
        self.with_status(|status| status.census = None);
        self.refill();
        self.audit_now();
    }

    /// Movable pages that lie in colours that are kept, evenly chosen: as many as the gained
    /// colours are of all.
    fn pages_to_spread(&self, gained: &ColorSet, all: &ColorSet) -> Result<MoveList, EngineError> {
        let (mut moves, mut due) = (MoveList::new(), 0);
        let stays = |color| all.contains(color) && !gained.contains(color);
        self.look_at_free(stays, |area, page| {
            due += gained.len();
            if due >= all.len() {
                due -= all.len();
                super::moves::add_move(&mut moves, area, page);
            }
        })?;
        Ok(moves)
    }

    /// Looks at the pages of certain colours that nothing holds where they are and that no buffer is for.
    pub(super) fn look_at_free(
        &self,
        which: impl Fn(Color) -> bool,
        mut each: impl FnMut(&Area, Outside),
    ) -> Result<(), EngineError> {
        let nothing = ColorSet::empty(self.source.universe());
        let own = self.agent.own_ranges();
        let lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &|frame| self.source.vouched(frame),
            colors: &nothing,
            own: &own,
            foreign: self.foreign.areas(),
            except: self.apart(),
        };
        lookup.count(&self.root.maps(self.pid)?, |area, page| {
            let held = self.clear_tid.holds(page.address()) || self.pinned.holds(page.seen.page);
            if page.seen.color.is_some_and(&which) && !held {
                each(area, page);
            }
            None
        })?;
        Ok(())
    }
}
