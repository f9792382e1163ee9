//! COMBINED (Romer 1998, section 6.6): a policy that promotes and one that recolours, side by
//! side. The thesis lets both do as they like and finds that a few pages are promoted and
//! recoloured in turns (its table 6-4, `go`). Here a page that was recoloured may not be made
//! part of a superpage for a while, twice as long each time: in a time t it is copied at most
//! about 2 log2(t / hold) times for both. Needs what its parts need, and the time.
//!
//! An event costs what it costs the parts; a wish to promote takes logarithmic time in the
//! pages that were recoloured.

use std::collections::BTreeMap;

use huepage_color::Vpn;

use crate::event::{Action, Event, Policy, Refusal};

/// Cycles that a page is held after its first recolouring: the time between two clearings of
/// the CML buffer, in which a conflict of the new place would show (section 5.3.1).
pub const HOLD: u64 = 5_000_000;

/// A page that was recoloured.
#[derive(Clone, Copy, Debug)]
struct Held {
    times: u32,
    until: u64,
}

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
    hold: u64,
    now: u64,
    held: BTreeMap<u64, Held>,
    withheld: u64,
    wishes: Vec<Action>,
}

impl<P: Policy, R: Policy> Combined<P, R> {
    /// Both, with the usual hold.
    pub const fn new(promoting: P, recoloring: R) -> Combined<P, R> {
        Combined::with_hold(promoting, recoloring, HOLD)
    }

    /// Both; `hold` in cycles, 0: as the thesis has it.
    pub const fn with_hold(promoting: P, recoloring: R, hold: u64) -> Combined<P, R> {
        Combined {
            promoting: Part { policy: promoting, listens: true },
            recoloring: Part { policy: recoloring, listens: true },
            hold,
            now: 0,
            held: BTreeMap::new(),
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

    /// Promotions that were withheld so far.
    pub const fn withheld(&self) -> u64 {
        self.withheld
    }

    const fn listens(&self) -> bool {
        self.promoting.listens || self.recoloring.listens
    }

    fn tell_recoloring(&mut self, event: Event, actions: &mut Vec<Action>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.recoloring.policy.handle(event, &mut wishes);
        for wish in wishes.drain(..) {
            match wish {
                Action::TellTlbMisses(on) => self.recoloring.listens = on,
                Action::Recolour { page, .. } => {
                    self.hold(page);
                    actions.push(wish);
                }
                _ => actions.push(wish),
            }
        }
        self.wishes = wishes;
    }

    fn hold(&mut self, page: Vpn) {
        let held = self.held.entry(page.0).or_insert(Held { times: 0, until: 0 });
        held.until = self.now.saturating_add(self.hold.saturating_mul(1 << held.times));
        held.times = (held.times + 1).min(32);
    }

    /// What the promoting part wants is passed on, but for pages that are held: that is refused
    /// in the engine's stead.
    fn tell_promoting(&mut self, event: Event, actions: &mut Vec<Action>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.promoting.policy.handle(event, &mut wishes);
        let asked = wishes.len();
        let mut at = 0;
        while let Some(&wish) = wishes.get(at) {
            match wish {
                Action::TellTlbMisses(on) => self.promoting.listens = on,
                Action::Promote { page, order } if self.holds(page, order) => {
                    self.withheld += 1;
                    let page = Vpn(range_of(page, order).start);
                    let refused = Event::NotPromoted { page, order, why: Refusal::Other };
                    // A policy that insists at once has to wait for the next event.
                    if at < asked {
                        self.promoting.policy.handle(refused, &mut wishes);
                    }
                }
                _ => actions.push(wish),
            }
            at += 1;
        }
        wishes.clear();
        self.wishes = wishes;
    }

    /// Whether a page of 2^`order` base pages has a part that is held.
    fn holds(&self, page: Vpn, order: u32) -> bool {
        let mut parts = self.held.range(range_of(page, order));
        parts.any(|(_, held)| held.until > self.now)
    }
}

/// The base pages of the page of 2^`order` of them around a page.
fn range_of(page: Vpn, order: u32) -> std::ops::Range<u64> {
    let order = order.min(52);
    let first = page.0 >> order << order;
    first..first.saturating_add(1 << order)
}

impl<P: Policy, R: Policy> Policy for Combined<P, R> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        let listened = self.listens();
        if let Event::Progress { cycles, .. } = event {
            self.now = cycles;
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
