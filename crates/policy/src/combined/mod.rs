//! COMBINED (Romer 1998, section 6.6): a policy that promotes and one that recolours, side by
//! side. The thesis lets both do as they like and finds that a few pages are promoted and
//! recoloured in turns (its table 6-4, `go`). Here [`Tradeoff`] says whether a range is worth more as a
//! superpage or in its colours: a promotion that it withholds waits, and a move out of a superpage that it
//! protects is refused. What is left of a broken superpage is put together at once in the largest
//! pieces, which takes no copy (section 3.7.2). Needs what its parts need, and the time.
//!
//! Live, where the promoting policy asks what a superpage takes, [`Tradeoff`] answers by itself, by what a [`SuperpageGate`] has seen.
//!
//! An event costs what it costs the parts; a wish takes logarithmic time in the pages that
//! were recoloured and in superpages, and the time time in proportion to the promotions that wait.

mod gate;
mod tradeoff;

use std::collections::BTreeSet;

use huepage_color::Vpn;

use crate::event::{Action, Event, MoveRefusal, Policy};
use crate::input::InputKind;
use crate::superpage_holds::range_of;

pub use gate::{GateSettings, SuperpageGate, TouchedGroup};
pub use tradeoff::{
    Benefit, CombinedSettings, Costs, Expected, HOLD, L2_FILL_NS, LINES_PER_PAGE, LLC_FILL_NS,
    Tradeoff, Withheld,
};

/// What THROTTLE and CML side by side hear of.
pub const NEEDS: &[InputKind] = &[
    InputKind::Faults,
    InputKind::TlbMisses,
    InputKind::CmlBuffer,
    InputKind::Cycles,
    InputKind::Instructions,
];

/// One of the two policies.
#[derive(Clone, Debug)]
struct Part<P> {
    policy: P,
    /// It wants to hear of TLB misses.
    listens: bool,
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct Combined<P, R> {
    promoting: Part<P>,
    recoloring: Part<R>,
    tradeoff: Tradeoff,
    now: u64,
    /// Promotions that wait, by order and first base page.
    waiting: BTreeSet<(u32, u64)>,
    /// Promotions that had to wait so far.
    pub withheld: u64,
    wishes: Vec<Action>,
}

impl<P: Policy, R: Policy> Combined<P, R> {
    /// Both, with the usual settings.
    pub fn new(promoting: P, recoloring: R) -> Combined<P, R> {
        Combined::with(promoting, recoloring, CombinedSettings::default())
    }

    /// Both, as the thesis has it: each does as it likes.
    pub fn thesis(promoting: P, recoloring: R) -> Combined<P, R> {
        Combined::with(promoting, recoloring, CombinedSettings::thesis())
    }

    /// Both, with other settings.
    pub fn with(promoting: P, recoloring: R, settings: CombinedSettings) -> Combined<P, R> {
        Combined {
            promoting: Part { policy: promoting, listens: true },
            recoloring: Part { policy: recoloring, listens: true },
            tradeoff: Tradeoff::new(settings),
            now: 0,
            waiting: BTreeSet::new(),
            withheld: 0,
            wishes: Vec::new(),
        }
    }

    /// The part that promotes.
    pub const fn promoting(&self) -> &P {
        &self.promoting.policy
    }

    /// The part that recolours.
    pub const fn recoloring(&self) -> &R {
        &self.recoloring.policy
    }

    const fn listens(&self) -> bool {
        self.promoting.listens || self.recoloring.listens
    }

    fn tell_recoloring(&mut self, event: Event, actions: &mut Vec<Action>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.recoloring.policy.handle(event, &mut wishes);
        let asked = wishes.len();
        let mut at = 0;
        while let Some(&wish) = wishes.get(at) {
            match wish {
                Action::TellTlbMisses(on) => self.recoloring.listens = on,
                Action::Recolour { page, .. } if self.tradeoff.protects(page) => {
                    let refused = Event::Refused { page, why: MoveRefusal::Huge };
                    // A policy that insists at once has to wait for the next event.
                    if at < asked {
                        self.recoloring.policy.handle(refused, &mut wishes);
                    }
                }
                Action::Recolour { page, .. } => {
                    self.tradeoff.recolored(page, self.now);
                    actions.push(wish);
                }
                _ => actions.push(wish),
            }
            at += 1;
        }
        wishes.clear();
        self.wishes = wishes;
    }

    /// What becomes of superpages, and what conflicts cost them.
    fn note(&mut self, event: Event) {
        match event {
            Event::Progress { cycles, .. } => self.now = cycles,
            Event::Conflict { page, misses } => self.tradeoff.conflict(page, misses),
            Event::Promoted { page, order } => {
                self.tradeoff.promoted(page, order);
                let range = range_of(page, order);
                self.waiting.retain(|&(small, first)| small > order || !range.contains(&first));
            }
            Event::Demoted { page, order, .. } => self.tradeoff.demoted(page, order),
            _ => {}
        }
    }

    /// Has the largest parts of a broken superpage built that have no page that is held.
    fn rebuild(&self, first: u64, order: u32, actions: &mut Vec<Action>) {
        let sizes = self.tradeoff.settings().sizes.iter().flat_map(|sizes| sizes.orders());
        let below = sizes.copied().filter(|&smaller| smaller > 0 && smaller < order).max();
        let Some(below) = below else { return };
        for part in (first..first + (1 << order)).step_by(1 << below) {
            if self.holds(Vpn(part), below) {
                self.rebuild(part, below, actions);
            } else {
                actions.push(Action::Promote { page: Vpn(part), order: below });
            }
        }
    }

    /// Promotions that need not wait any longer.
    fn release(&mut self, actions: &mut Vec<Action>) {
        let free: Vec<(u32, u64)> = self
            .waiting
            .iter()
            .copied()
            .filter(|&(order, first)| !self.holds(Vpn(first), order))
            .collect();
        // The largest first: those inside are not wanted any more when it is built.
        for (order, first) in free.into_iter().rev() {
            self.waiting.remove(&(order, first));
            actions.push(Action::Promote { page: Vpn(first), order });
        }
    }

    /// What the promoting part wants is passed on, but for pages that are held: that waits.
    fn tell_promoting(&mut self, event: Event, actions: &mut Vec<Action>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.promoting.policy.handle(event, &mut wishes);
        for wish in wishes.drain(..) {
            match wish {
                Action::TellTlbMisses(on) => self.promoting.listens = on,
                Action::Promote { page, order } if self.holds(page, order) => {
                    let first = range_of(page, order).start;
                    self.withheld += u64::from(self.waiting.insert((order, first)));
                }
                _ => actions.push(wish),
            }
        }
        self.wishes = wishes;
    }

    /// Whether a page of 2^`order` base pages has a part that is held.
    fn holds(&self, page: Vpn, order: u32) -> bool {
        self.tradeoff.ask(page, order, None, self.now).is_err()
    }
}

impl<P: Policy, R: Policy> Policy for Combined<P, R> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        let listened = self.listens();
        self.note(event);
        if matches!(event, Event::Progress { .. }) && !self.waiting.is_empty() {
            self.release(actions);
        }
        if let Event::Demoted { page, order, .. } = event
            && self.holds(page, 0)
        {
            self.rebuild(range_of(page, order).start, order.min(52), actions);
        }
        let miss = matches!(event, Event::TlbMiss { .. });
        if !miss || self.recoloring.listens {
            self.tell_recoloring(event, actions);
        }
        // Only recolourings are refused so; superpages are not promoted.
        let other = matches!(event, Event::Refused { .. });
        if !other && (!miss || self.promoting.listens) {
            self.tell_promoting(event, actions);
        }
        if listened != self.listens() {
            actions.push(Action::TellTlbMisses(!listened));
        }
    }
}
