//! A pollute buffer within a partition: pages of a scope that somebody else decides on are to lie in colours
//! that are kept for them, and all others are not. The audit of the partition passes such pages by; here they
//! are looked after.
//!
//! The agent has one stock. To move pages into the buffer it is exchanged for one of the buffer's colours,
//! and back afterwards; a page that comes anew meanwhile comes in the buffer and is brought back by the next
//! audit. So pages that were forgotten are gathered and moved together, not one by one.

use std::time::{Duration, Instant};

use huepage_color::ColorSet;
use huepage_policy::{Census, StaticPartition};

use super::Member;
use super::moves::{AuditPass, MoveList};
use crate::engine::EngineError;
use crate::engine::census::ColorLookup;
use crate::engine::scope::Scope;

/// Time between two exchanges of the stock for pages that came anew.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(5);
/// They are worth it once they are this part of the buffer's pages.
const WORTH_PARTS: usize = 20;

/// The buffer of one process.
pub(super) struct Buffer {
    colors: ColorSet,
    scope: Scope,
    policy: StaticPartition,
    /// When pages were moved last.
    moved: Instant,
}

impl Buffer {
    /// Of these colours, for no page yet.
    pub fn new(colors: ColorSet) -> Buffer {
        let policy = StaticPartition::new(colors.clone());
        Buffer { colors, scope: Scope::default(), policy, moved: Instant::now() }
    }

    /// What it is for.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether it is time to move so many pages that are not in it, of all that should be.
    fn is_due(&self, moves: &MoveList, census: &Census) -> bool {
        let outside: usize = moves.iter().map(|(_, pages)| pages.len()).sum();
        let all = usize::try_from(census.total().movable()).unwrap_or(usize::MAX);
        self.moved.elapsed() >= EXCHANGE_INTERVAL && outside.saturating_mul(WORTH_PARTS) > all
    }
}

impl Member {
    /// Whether no page waits to be moved into the buffer, as far as is known.
    pub(super) fn buffer_lies_right(&self) -> bool {
        let Some(buffer) = &self.buffer else { return true };
        let status = self.status.lock().ok();
        let census = status.and_then(|status| Some(status.buffer.as_ref()?.total()));
        buffer.scope.is_empty() || census.is_some_and(|of| of.inside == of.movable())
    }

    /// What of the memory is not looked at with the partition, if anything.
    pub(super) fn apart(&self) -> Option<&Scope> {
        self.buffer.as_ref().map(Buffer::scope).filter(|scope| !scope.is_empty())
    }

    /// The buffer is for these pages from now on. Those that it is no longer for go back with the next
    /// audit.
    pub(super) fn fill_buffer(&mut self, scope: Scope) -> Result<(), EngineError> {
        if let Some(buffer) = &mut self.buffer {
            buffer.scope = scope;
        }
        self.update_buffer(true)?;
        self.audit_now();
        Ok(())
    }

    /// The buffer has these colours from now on, or there is none.
    pub(super) fn recolor_buffer(&mut self, colors: Option<ColorSet>) -> Result<(), EngineError> {
        let Some(colors) = colors else {
            self.buffer = None;
            self.with_status(|status| status.buffer = None);
            self.audit_now();
            return Ok(());
        };
        let buffer = self.buffer.get_or_insert_with(|| Buffer::new(colors.clone()));
        if buffer.colors != colors {
            buffer.policy = StaticPartition::new(colors.clone());
            buffer.colors = colors;
        }
        self.update_buffer(true)
    }

    /// Looks where the buffer's pages are, and moves them there: at once, or when it is worth it.
    pub(super) fn update_buffer(&mut self, at_once: bool) -> Result<(), EngineError> {
        let Some(mut buffer) = self.buffer.take() else { return Ok(()) };
        let census = self.tend(&mut buffer, at_once);
        self.buffer = Some(buffer);
        let census = census?;
        self.with_status(|status| status.buffer = Some(census));
        Ok(())
    }

    fn tend(&mut self, buffer: &mut Buffer, at_once: bool) -> Result<Census, EngineError> {
        if buffer.scope.is_empty() {
            return Ok(Census::new(buffer.colors.clone()));
        }
        buffer.policy.begin_audit();
        let (census, moves) = self.look_in(buffer)?;
        let due = at_once || buffer.is_due(&moves, &census);
        if moves.is_empty() || !due || !self.know_clear_tid()? {
            return Ok(census);
        }
        self.move_into(buffer, &moves)?;
        Ok(self.look_in(buffer)?.0)
    }

    fn look_in(&self, buffer: &mut Buffer) -> Result<(Census, MoveList), EngineError> {
        let areas = buffer.scope.cut(&self.root.maps(self.pid)?);
        let own = self.agent.own_ranges();
        let color_of = |frame| self.source.vouched(frame);
        let lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &color_of,
            colors: &buffer.colors,
            own: &own,
            foreign: self.foreign.areas(),
            except: None,
        };
        let mut pass = AuditPass::new(&mut buffer.policy, &self.clear_tid, &self.pinned, None);
        let census = lookup.count(&areas, |area, page| pass.consider(area, page))?;
        Ok((census, pass.moves))
    }

    /// Moves pages with the buffer's policy and a stock of its colours.
    fn move_into(&mut self, buffer: &mut Buffer, moves: &MoveList) -> Result<(), EngineError> {
        std::mem::swap(&mut self.policy, &mut buffer.policy);
        let moved = self.hold_stock_of(buffer.colors.clone()).and_then(|()| self.repair(moves));
        std::mem::swap(&mut self.policy, &mut buffer.policy);
        buffer.moved = Instant::now();
        moved?;
        self.hold_stock_of(self.config.colors.clone())?;
        self.refill();
        Ok(())
    }
}
