//! COMBINED (Romer 1998, section 6.6): a policy that promotes and one that recolours, side by
//! side. The thesis lets both do as they like and finds that a few pages are promoted and
//! recoloured in turns (its table 6-4, `go`). Here a page that was recoloured may not be made
//! part of a superpage for a while, twice as long each time: in a time t it is copied at most
//! about 2 log2(t / hold) times for both. Needs what its parts need, and the time.
//!
//! An event costs what it costs the parts; a wish to promote takes logarithmic time in the
//! pages that were recoloured.

use std::collections::{BTreeMap, HashSet};

use huepage_color::{NumberHash, Vpn};

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

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct Combined<P, R> {
    promoting: P,
    recoloring: R,
    hold: u64,
    now: u64,
    held: BTreeMap<u64, Held>,
    /// Recolourings without an answer.
    asked: HashSet<Vpn, NumberHash>,
    withheld: u64,
    wishes: Vec<Action>,
}

impl<P: Policy, R: Policy> Combined<P, R> {
    /// Both, with the usual hold.
    pub fn new(promoting: P, recoloring: R) -> Combined<P, R> {
        Combined::with_hold(promoting, recoloring, HOLD)
    }

    /// Both; `hold` in cycles, 0: as the thesis has it.
    pub fn with_hold(promoting: P, recoloring: R, hold: u64) -> Combined<P, R> {
        Combined {
            promoting,
            recoloring,
            hold,
            now: 0,
            held: BTreeMap::new(),
            asked: HashSet::default(),
            withheld: 0,
            wishes: Vec::new(),
        }
    }

    /// The part that promotes.
    pub const fn promoting(&self) -> &P {
        &self.promoting
    }

    /// The part that recolours.
    pub const fn recoloring(&self) -> &R {
        &self.recoloring
    }

    /// Promotions that were withheld so far.
    pub const fn withheld(&self) -> u64 {
        self.withheld
    }

    fn tell_recoloring(&mut self, event: Event, actions: &mut Vec<Action>) {
        let from = actions.len();
        self.recoloring.handle(event, actions);
        for action in &actions[from..] {
            if let Action::Recolour { page, .. } = *action {
                self.asked.insert(page);
                let held = self.held.entry(page.0).or_insert(Held { times: 0, until: 0 });
                held.until = self.now.saturating_add(self.hold << held.times);
                held.times = (held.times + 1).min(32);
            }
        }
    }

    /// What the promoting part wants is passed on, but for pages that are held: that is refused
    /// in the engine's stead.
    fn tell_promoting(&mut self, event: Event, actions: &mut Vec<Action>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.promoting.handle(event, &mut wishes);
        let mut at = 0;
        while let Some(&wish) = wishes.get(at) {
            at += 1;
            match wish {
                Action::Promote { page, order } if self.holds(page, order) => {
                    self.withheld += 1;
                    let refused = Event::Refused { page, why: Refusal::Other };
                    self.promoting.handle(refused, &mut wishes);
                }
                _ => actions.push(wish),
            }
        }
        wishes.clear();
        self.wishes = wishes;
    }

    /// Whether a page of 2^`order` base pages has a part that is held.
    fn holds(&self, page: Vpn, order: u32) -> bool {
        let first = page.0 >> order << order;
        let mut parts = self.held.range(first..first + (1 << order));
        parts.any(|(_, held)| held.until > self.now)
    }
}

impl<P: Policy, R: Policy> Policy for Combined<P, R> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Progress { cycles, .. } => self.now = cycles,
            Event::Moved { page } => _ = self.asked.remove(&page),
            // Each part hears of its own wishes only.
            Event::Refused { page, .. } => {
                if self.asked.remove(&page) {
                    self.tell_recoloring(event, actions);
                } else {
                    self.tell_promoting(event, actions);
                }
                return;
            }
            _ => {}
        }
        self.tell_recoloring(event, actions);
        self.tell_promoting(event, actions);
    }
}
