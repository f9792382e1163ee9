//! The recolouring engine of COLORIS (2014, section 3.2): moves the pages of one address space
//! into the colours that it was told last ([`Recolorer::assign`]). What becomes of it begins with
//! the next audit, a walk of the page table, which the engine makes after every assignment.
//!
//! Colours that were taken away are left lazily: their pages are trapped, and a page moves when
//! it is touched next, to the colours in turns. New colours are filled in one of two ways.
//! *Selective Moving* moves one in n + 1 pages of each colour to the new ones at once, n being
//! the ways of the cache. *Redistribution* clears the accessed bits, waits for WIN, and traps all
//! pages that were accessed meanwhile.
//!
//! Feedback: resident pages on demand, touches of trapped pages; for Redistribution also
//! accessed bits on demand, and the time. Cost: constant time per resident page and touch; memory
//! in proportion to the trapped pages.

use std::collections::HashSet;

use huepage_color::{Color, ColorSet, NumberHash, Vpn};
use huepage_frames::RoundRobin;

use crate::event::{Action, Event, MoveRefusal, Policy, ResidentPage};

/// How new colours are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what the fields are")]
pub enum Growth {
    /// One page in `ways` + 1 of each colour at once, for a cache of so many ways.
    SelectiveMoving { ways: u32 },
    /// What is accessed within a window, when it is touched next. WIN is in cycles: 3 ms in the paper.
    Redistribution { window: u64 },
}

/// Where a window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Closed,
    /// Bits are clear; it begins with the next word of the time.
    Cleared,
    Open {
        until: u64,
    },
    /// Bits are being told.
    Reading,
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct Recolorer {
    colors: ColorSet,
    growth: Growth,
    order: RoundRobin,
    /// Colours that came with the assignments since the last audit.
    fresh: ColorSet,
    /// The rotation over these.
    fresh_order: RoundRobin,
    /// Pages of each colour seen in this audit.
    seen: Vec<u32>,
    /// The audit is to move pages into fresh colours.
    growing: bool,
    trapped: HashSet<Vpn, NumberHash>,
    window: Window,
    /// Pages moved so far.
    pub moved: u64,
}

impl Recolorer {
    /// For an address space whose pages lie in these colours.
    pub fn new(colors: ColorSet, growth: Growth) -> Recolorer {
        let universe = colors.universe();
        Recolorer {
            colors,
            growth,
            order: RoundRobin::new(),
            fresh: ColorSet::empty(universe),
            fresh_order: RoundRobin::new(),
            seen: vec![0; usize::from(universe)],
            growing: false,
            trapped: HashSet::default(),
            window: Window::Closed,
            moved: 0,
        }
    }

    /// The colours.
    pub const fn colors(&self) -> &ColorSet {
        &self.colors
    }

    /// Changes the colours; an audit has to follow.
    pub fn assign(&mut self, colors: ColorSet) {
        self.fresh = self.fresh.union(&colors.difference(&self.colors)).intersection(&colors);
        self.colors = colors;
    }

    /// Whether there is nothing to wait for: no page is trapped and no window open. Until the
    /// next assignment the policy need not hear of anything.
    pub fn is_idle(&self) -> bool {
        self.trapped.is_empty() && self.window == Window::Closed && self.fresh.is_empty()
    }

    /// A walk of the page table begins.
    fn begin_audit(&mut self, actions: &mut Vec<Action>) {
        self.seen.fill(0);
        let fresh = !self.fresh.is_empty();
        self.growing = fresh && matches!(self.growth, Growth::SelectiveMoving { .. });
        if fresh && matches!(self.growth, Growth::Redistribution { .. }) {
            self.window = Window::Cleared;
            actions.push(Action::ClearAccessed);
            self.clear_fresh();
        }
    }

    fn clear_fresh(&mut self) {
        self.fresh = ColorSet::empty(self.colors.universe());
    }

    fn resident(&mut self, seen: ResidentPage, actions: &mut Vec<Action>) {
        let ResidentPage { page, color, obstacle, .. } = seen;
        if obstacle.is_some() {
            return;
        }
        match color.filter(|&color| self.colors.contains(color)) {
            None => self.trap(page, actions),
            Some(color) if self.growing && !self.fresh.contains(color) => {
                self.move_some(page, color, actions);
            }
            Some(_) => {}
        }
    }

    /// The last of every n + 1 pages of a colour.
    fn move_some(&mut self, page: Vpn, color: Color, actions: &mut Vec<Action>) {
        let Growth::SelectiveMoving { ways } = self.growth else { return };
        let seen = &mut self.seen[usize::from(color.0)];
        *seen += 1;
        if seen.is_multiple_of(ways + 1)
            && let Some(to) = self.fresh_order.next(&self.fresh)
        {
            actions.push(Action::Recolour { page, to });
        }
    }

    fn trap(&mut self, page: Vpn, actions: &mut Vec<Action>) {
        if self.trapped.insert(page) {
            actions.push(Action::Trap { page });
        }
    }

    /// A trapped page is touched.
    fn touched(&mut self, page: Vpn, actions: &mut Vec<Action>) {
        if self.trapped.remove(&page)
            && let Some(to) = self.order.next(&self.colors)
        {
            actions.push(Action::Recolour { page, to });
        }
    }

    /// Time has passed.
    fn pass(&mut self, now: u64, actions: &mut Vec<Action>) {
        let Growth::Redistribution { window } = self.growth else { return };
        match self.window {
            Window::Cleared => self.window = Window::Open { until: now + window },
            Window::Open { until } if now >= until => {
                self.window = Window::Reading;
                actions.push(Action::ReadAccessed);
            }
            _ => {}
        }
    }

    /// A move failed. A page that nobody holds is tried again when it is touched next, if it
    /// still lies outside; the engine says so in the next audit.
    fn refused(&mut self, page: Vpn, why: MoveRefusal, actions: &mut Vec<Action>) {
        if why == MoveRefusal::Raced {
            self.trap(page, actions);
        }
    }
}

impl Policy for Recolorer {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Audit => self.begin_audit(actions),
            Event::Resident(seen) => self.resident(seen, actions),
            Event::AuditOver => {
                self.growing = false;
                self.clear_fresh();
            }
            Event::Trapped { page } => self.touched(page, actions),
            Event::Progress { cycles, .. } => self.pass(cycles, actions),
            Event::Accessed { page, order: 0 } if self.window == Window::Reading => {
                self.trap(page, actions);
            }
            Event::AccessedOver => self.window = Window::Closed,
            Event::Moved { .. } => self.moved += 1,
            Event::Refused { page, why } => self.refused(page, why, actions),
            _ => {}
        }
    }
}
