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

use super::EngineError;
use super::audit::{Judge, Wishes};
use super::census::Eyes;
use super::member::Member;
use super::scope::Scope;

/// Time between two exchanges of the stock for pages that came anew.
const PAUSE: Duration = Duration::from_secs(5);
/// They are worth it once they are this part of the buffer's pages.
const WORTH: usize = 20;

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
    fn is_due(&self, wishes: &Wishes, census: &Census) -> bool {
        let outside: usize = wishes.iter().map(|(_, pages)| pages.len()).sum();
        let all = usize::try_from(census.total().movable()).unwrap_or(usize::MAX);
        self.moved.elapsed() >= PAUSE && outside.saturating_mul(WORTH) > all
    }
}

impl Member {
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
        self.tend_buffer(true)?;
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
        self.tend_buffer(true)
    }

    /// Looks where the buffer's pages are, and moves them there: at once, or when it is worth it.
    pub(super) fn tend_buffer(&mut self, at_once: bool) -> Result<(), EngineError> {
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
        let (census, wishes) = self.look_in(buffer)?;
        let due = at_once || buffer.is_due(&wishes, &census);
        if wishes.is_empty() || !due || !self.know_words()? {
            return Ok(census);
        }
        self.move_into(buffer, &wishes)?;
        Ok(self.look_in(buffer)?.0)
    }

    fn look_in(&self, buffer: &mut Buffer) -> Result<(Census, Wishes), EngineError> {
        let areas = buffer.scope.cut(&self.root.maps(self.pid)?);
        let own = self.agent.own_ranges();
        let color_of = |frame| self.source.vouched(frame);
        let eyes = Eyes {
            pagemap: &self.pagemap,
            color_of: &color_of,
            colors: &buffer.colors,
            own: &own,
            foreign: self.foreign.areas(),
            except: None,
        };
        let mut judge = Judge::new(&mut buffer.policy, &self.words, &self.chosen, None);
        let census = eyes.look(&areas, |area, page| judge.hear(area, page))?;
        Ok((census, judge.wishes))
    }

    /// Moves pages with the buffer's policy and a stock of its colours.
    fn move_into(&mut self, buffer: &mut Buffer, wishes: &Wishes) -> Result<(), EngineError> {
        std::mem::swap(&mut self.policy, &mut buffer.policy);
        let moved = self.hold_stock_of(buffer.colors.clone()).and_then(|()| self.repair(wishes));
        std::mem::swap(&mut self.policy, &mut buffer.policy);
        buffer.moved = Instant::now();
        moved?;
        self.hold_stock_of(self.config.colors.clone())?;
        self.refill();
        Ok(())
    }
}
