//! COMBINED (Romer 1998, section 6.6): a policy that promotes and one that recolours, side by
//! side. The thesis lets both do as they like and finds that a few pages are promoted and
//! recoloured in turns (its table 6-4, `go`). Here a page that was recoloured may not be made
//! part of a superpage for a while, twice as long each time: in a time t it is copied at most
//! about 2 log2(t / hold) times for both. And moving a part of a superpage, which breaks it, has
//! to wait until conflicts in it have cost a share of what building it did, as promotion waits
//! for TLB misses (section 3.3.2). What is left of it is put together at once in the largest
//! pieces, which takes no copy (section 3.7.2). Needs what its parts need, and the time.
//!
//! An event costs what it costs the parts; a wish takes logarithmic time in the pages that
//! were recoloured and in superpages, and the time time in proportion to the promotions that wait.

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::Vpn;

use crate::event::{Action, Event, Policy, Refusal};
use crate::holds::{Holds, range_of};
use crate::superpage::Sizes;

/// Cycles that a page is held after its first recolouring: the time between two clearings of
/// the CML buffer, in which a conflict of the new place would show (section 5.3.1).
pub const HOLD: u64 = 5_000_000;

/// How the parts are kept from undoing each other's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CombinedSettings {
    /// Cycles that a page is held after its first recolouring; 0: not at all, as the thesis has
    /// it.
    pub hold: u64,
    /// Cache misses by conflicts for each base page of a superpage that allow breaking it; 0: it
    /// is broken at once, as the thesis has it.
    pub misses_per_page: u64,
    /// The page sizes, for what is left of a superpage; none: base pages, as the thesis has it.
    pub sizes: Option<Sizes>,
}

impl Default for CombinedSettings {
    /// [`HOLD`]; and an eighth, as of promotion (section 3.4.2), of what copying a base page
    /// takes: 12,000 cycles (section 3.5.1), at 25 a miss (section 4.3.2).
    fn default() -> CombinedSettings {
        CombinedSettings { hold: HOLD, misses_per_page: 60, sizes: Some(Sizes::romer()) }
    }
}

/// A superpage.
#[derive(Clone, Copy, Debug)]
struct Whole {
    order: u32,
    /// Misses by conflicts of its parts.
    misses: u64,
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
    settings: CombinedSettings,
    now: u64,
    held: Holds,
    /// Superpages by their first base page.
    whole: BTreeMap<u64, Whole>,
    /// Promotions that wait, by order and first base page.
    waiting: BTreeSet<(u32, u64)>,
    withheld: u64,
    wishes: Vec<Action>,
}

impl<P: Policy, R: Policy> Combined<P, R> {
    /// Both, with the usual settings.
    pub fn new(promoting: P, recoloring: R) -> Combined<P, R> {
        Combined::with(promoting, recoloring, CombinedSettings::default())
    }

    /// Both, as the thesis has it: each does as it likes.
    pub fn thesis(promoting: P, recoloring: R) -> Combined<P, R> {
        let settings = CombinedSettings { hold: 0, misses_per_page: 0, sizes: None };
        Combined::with(promoting, recoloring, settings)
    }

    /// Both, with other settings.
    pub fn with(promoting: P, recoloring: R, settings: CombinedSettings) -> Combined<P, R> {
        Combined {
            promoting: Part { policy: promoting, listens: true },
            recoloring: Part { policy: recoloring, listens: true },
            held: Holds::new(settings.hold),
            settings,
            now: 0,
            whole: BTreeMap::new(),
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

    /// Promotions that had to wait so far.
    pub const fn withheld(&self) -> u64 {
        self.withheld
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
                Action::Recolour { page, .. } if self.protects(page) => {
                    let refused = Event::Refused { page, why: Refusal::Huge };
                    // A policy that insists at once has to wait for the next event.
                    if at < asked {
                        self.recoloring.policy.handle(refused, &mut wishes);
                    }
                }
                Action::Recolour { page, .. } => {
                    self.held.hold(page, self.now);
                    actions.push(wish);
                }
                _ => actions.push(wish),
            }
            at += 1;
        }
        wishes.clear();
        self.wishes = wishes;
    }

    /// The superpage around a page.
    fn whole(&mut self, page: Vpn) -> Option<&mut Whole> {
        let (&first, whole) = self.whole.range_mut(..=page.0).next_back()?;
        (page.0 - first < 1 << whole.order).then_some(whole)
    }

    /// Whether a page is part of a superpage that has not cost enough to be broken.
    fn protects(&mut self, page: Vpn) -> bool {
        let price = self.settings.misses_per_page;
        self.whole(page).is_some_and(|whole| whole.misses < price << whole.order)
    }

    /// What becomes of superpages, and what conflicts cost them.
    fn note(&mut self, event: Event) {
        match event {
            Event::Progress { cycles, .. } => self.now = cycles,
            Event::Conflict { page, misses } => {
                if let Some(whole) = self.whole(page) {
                    whole.misses += misses;
                }
            }
            Event::Promoted { page, order } => {
                let range = range_of(page, order);
                let parts: Vec<u64> = self.whole.range(range.clone()).map(|part| *part.0).collect();
                parts.iter().for_each(|part| _ = self.whole.remove(part));
                self.whole.insert(range.start, Whole { order: order.min(52), misses: 0 });
                self.waiting.retain(|&(small, first)| small > order || !range.contains(&first));
            }
            Event::Demoted { page, order, .. } => {
                self.whole.remove(&range_of(page, order).start);
            }
            _ => {}
        }
    }

    /// Has the largest parts of a broken superpage built that have no page that is held.
    fn rebuild(&self, first: u64, order: u32, actions: &mut Vec<Action>) {
        let sizes = self.settings.sizes.iter().flat_map(|sizes| sizes.orders());
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
        self.held.holds(page, order, self.now)
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
