//! The static partition: keep the pages of one address space in a fixed set of colours.
//!
//! An audit tells the policy of each resident page (or of each outside the partition; pages
//! inside may be left out). A page inside is kept. A page outside, or of unknown colour, is
//! to be recoloured, targets rotating over the partition so that all colours fill evenly. A
//! page of unknown colour is treated as outside because moving it to a known frame is cheaper
//! than probing the frame it has.
//!
//! A page that refuses is not hammered: after its first refusal it rests for one audit, then
//! two, four and so on up to a longest rest, and after a number of refusals it is given up
//! until it is found inside, moves, or is not told of for a whole audit. All waiting is
//! counted in audits, so tests and simulations behave like the live engine. A refusal
//! for lack of stock, or because the program was faster, is not the page's fault and is not
//! held against it.
//!
//! Memory: one small entry per page that refused lately; nothing for the others. Not here:
//! how pages are found and moved, and the choice of the colours.

use std::collections::HashMap;

use huepage_color::{ColorSet, NumberHash, Vpn};
use huepage_frames::RoundRobin;

use crate::event::{Action, Event, LeaveReason, MoveRefusal, Policy, ResidentPage};
use crate::input::InputKind;

/// How patiently a page that refuses is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest rest between two attempts, in audits; at least 1.
    pub longest: u32,
    /// Refusals after which a page is given up; at least 1.
    pub attempts: u32,
}

impl Default for Backoff {
    /// Rests of 1, 2, 4 .. 64 audits and 16 attempts: 655 audits in all. Input and output in
    /// flight is over by the second attempt; a page pinned for good costs next to nothing.
    fn default() -> Backoff {
        Backoff { longest: 64, attempts: 16 }
    }
}

impl Backoff {
    /// Audits without an attempt after this many refusals in a row.
    fn rest(self, refusals: u32) -> u32 {
        let doubled = 1_u32.checked_shl(refusals.saturating_sub(1)).unwrap_or(u32::MAX);
        doubled.min(self.longest.max(1))
    }
}

/// A page that refused lately.
#[derive(Clone, Copy, Debug)]
struct Stubborn {
    why: MoveRefusal,
    refusals: u32,
    /// The first audit in which it may be tried again.
    due: u32,
    /// The last audit that told of it.
    seen: u32,
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct StaticPartition {
    colors: ColorSet,
    backoff: Backoff,
    order: RoundRobin,
    audit: u32,
    stubborn: HashMap<Vpn, Stubborn, NumberHash>,
}

impl StaticPartition {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::Audits];

    /// A policy for one address space, with the usual patience.
    pub fn new(colors: ColorSet) -> StaticPartition {
        StaticPartition::with_backoff(colors, Backoff::default())
    }

    /// As [`Self::new`], with another patience.
    pub fn with_backoff(colors: ColorSet, backoff: Backoff) -> StaticPartition {
        let order = RoundRobin::new();
        StaticPartition { colors, backoff, order, audit: 0, stubborn: HashMap::default() }
    }

    /// The partition.
    pub const fn colors(&self) -> &ColorSet {
        &self.colors
    }

    /// Changes the partition. What refused before may be tried at once: most likely the
    /// person who changed it waits for the effect.
    pub fn set_colors(&mut self, colors: ColorSet) {
        self.colors = colors;
        self.stubborn.clear();
    }

    /// How many pages refused lately and are resting or given up.
    pub fn stubborn(&self) -> usize {
        self.stubborn.len()
    }

    /// How often in a row a page refused lately; 0 for a page that did not.
    pub fn refusals(&self, page: Vpn) -> u32 {
        self.stubborn.get(&page).map_or(0, |entry| entry.refusals)
    }

    /// How many audits pass before one tries a page again that refused; `None` if none will.
    pub fn next_attempt(&self) -> Option<u32> {
        let tried =
            self.stubborn.values().filter(|page| page.refusals < self.backoff.attempts.max(1));
        tried.map(|page| page.due.saturating_sub(self.audit.saturating_add(1))).min()
    }

    /// So many audits were not made, as nothing had changed: they count for pages that rest.
    pub fn skip_audits(&mut self, audits: u32) {
        let pages = self.stubborn.values_mut();
        pages.for_each(|page| page.due = page.due.saturating_sub(audits));
    }

    /// Notes that an audit begins, and forgets pages that the last one did not mention.
    pub fn begin_audit(&mut self) {
        let last = self.audit;
        self.stubborn.retain(|_, page| page.seen >= last);
        self.audit = self.audit.saturating_add(1);
    }

    /// What to do with a resident page; at once the answer to [`Event::Resident`].
    pub fn judge(&mut self, seen: &ResidentPage) -> Action {
        let page = seen.page;
        if seen.color.is_some_and(|color| self.colors.contains(color)) {
            self.forget(page);
            return Action::Keep { page };
        }
        match seen.obstacle.map(LeaveReason::Obstacle).or_else(|| self.resting(page)) {
            Some(reason) => Action::Leave { page, reason },
            None => match self.order.next(&self.colors) {
                Some(to) => Action::Recolour { page, to },
                None => Action::Leave { page, reason: LeaveReason::EmptyPartition },
            },
        }
    }

    /// Notes that a page was recoloured.
    pub fn moved(&mut self, page: Vpn) {
        self.forget(page);
    }

    /// Notes that a page could not be recoloured.
    pub fn refused(&mut self, page: Vpn, why: MoveRefusal) {
        if matches!(why, MoveRefusal::NoFrame | MoveRefusal::Raced) {
            return;
        }
        let audit = self.audit;
        let fresh = Stubborn { why, refusals: 0, due: 0, seen: audit };
        let entry = self.stubborn.entry(page).or_insert(fresh);
        entry.why = why;
        entry.seen = audit;
        entry.refusals = entry.refusals.saturating_add(1);
        let rest = self.backoff.rest(entry.refusals);
        entry.due = audit.saturating_add(rest).saturating_add(1);
    }

    /// Most address spaces have no stubborn page, and then this costs one comparison.
    fn forget(&mut self, page: Vpn) {
        if !self.stubborn.is_empty() {
            self.stubborn.remove(&page);
        }
    }

    /// Why the page is not to be tried in this audit; `None` if it may be.
    fn resting(&mut self, page: Vpn) -> Option<LeaveReason> {
        if self.stubborn.is_empty() {
            return None;
        }
        let entry = self.stubborn.get_mut(&page)?;
        entry.seen = self.audit;
        let why = entry.why;
        if entry.refusals >= self.backoff.attempts.max(1) {
            return Some(LeaveReason::GivenUp { why });
        }
        let audits = entry.due.saturating_sub(self.audit);
        (audits > 0).then_some(LeaveReason::BackingOff { why, audits })
    }
}

impl Policy for StaticPartition {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Audit => self.begin_audit(),
            Event::Resident(seen) => actions.push(self.judge(&seen)),
            Event::Moved { page } => self.moved(page),
            Event::Refused { page, why } => self.refused(page, why),
            _ => {}
        }
    }
}
