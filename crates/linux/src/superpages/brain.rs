//! Which of Romer's policies decides, and what it has to know of this machine: everything is told
//! in nanoseconds of CPU time, as nobody counts cycles and instructions here.

use huepage_policy::superpage::{
    ApproxOnline, Asap, Bounds, Online, Prices, Settings, Sizes, Throttle,
};
use huepage_policy::{Action, Event, Policy};
use serde::{Deserialize, Serialize};

use super::hands::ORDER;
use super::replay::WEIGHT;
use super::tlb::TlbShape;

/// What a superpage costs before one was built, in nanoseconds.
pub(super) const FIRST_PRICE: u64 = 1_200_000;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Superpages once the misses that they would have prevented make an eighth of their cost.
    ApproxOnline,
    /// The same, resting when that does not help.
    Throttle,
    /// Superpages as soon as all of their pages were touched, whatever that brings.
    Asap,
    /// As `ApproxOnline`, and by what would have stayed in the TLB.
    Online,
}

impl Choice {
    /// The name as the command line has it.
    pub const fn text(self) -> &'static str {
        match self {
            Choice::ApproxOnline => "approx-online",
            Choice::Throttle => "throttle",
            Choice::Asap => "asap",
            Choice::Online => "online",
        }
    }

    /// Whether it hears of TLB misses at all.
    pub const fn needs_misses(self) -> bool {
        !matches!(self, Choice::Asap)
    }
}

/// The policy of one process.
#[derive(Debug)]
pub(super) enum Brain {
    Approx(Box<ApproxOnline>),
    Throttle(Box<Throttle>),
    Online(Box<Online>),
    Asap(Box<Asap>),
}

/// 4 KiB and what the kernel builds on request.
pub(super) fn sizes() -> Sizes {
    Sizes::new(&[ORDER]).unwrap_or_else(|| unreachable!("an order below 18"))
}

/// A told miss stands for many.
fn prices(shape: &TlbShape, build_ns: u64) -> Prices {
    Prices { miss: shape.walk_ns * WEIGHT, per_kib: 0, setup: build_ns }
}

impl Brain {
    pub fn new(choice: Choice, shape: &TlbShape) -> Brain {
        let settings = Settings {
            sizes: sizes(),
            prices: prices(shape, FIRST_PRICE),
            by_construction: true,
            ..Settings::default()
        };
        match choice {
            Choice::ApproxOnline => Brain::Approx(Box::new(ApproxOnline::new(settings))),
            Choice::Online => Brain::Online(Box::new(Online::new(&settings))),
            Choice::Asap => Brain::Asap(Box::new(Asap::new(sizes()))),
            Choice::Throttle => {
                let inner = ApproxOnline::new(settings);
                Brain::Throttle(Box::new(Throttle::new(inner, bounds())))
            }
        }
    }

    /// A superpage takes so many nanoseconds of CPU time.
    pub fn reprice(&mut self, shape: &TlbShape, build_ns: u64) {
        match self {
            Brain::Approx(policy) => policy.reprice(prices(shape, build_ns)),
            Brain::Throttle(policy) => policy.reprice(prices(shape, build_ns)),
            Brain::Online(_) | Brain::Asap(_) => {}
        }
    }
}

/// The thesis's (section 6.5.2), where an instruction is a nanosecond of the program's: it rests
/// when it has cost a fiftieth of that, after windows of 10 ms. Bookkeeping is not charged to the
/// program's time, as it is done on ours.
fn bounds() -> Bounds {
    let thesis = Bounds::default();
    Bounds { frequency: thesis.frequency / WEIGHT as f64, bookkeeping: 0, ..thesis }
}

impl Policy for Brain {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match self {
            Brain::Approx(policy) => policy.handle(event, actions),
            Brain::Throttle(policy) => policy.handle(event, actions),
            Brain::Online(policy) => policy.handle(event, actions),
            Brain::Asap(policy) => policy.handle(event, actions),
        }
    }
}

#[cfg(test)]
mod tests {
    use huepage_color::Vpn;
    use huepage_policy::Construction;

    use super::*;

    const SHAPE: TlbShape = TlbShape { entries: 1536, known: true, walk_ns: 30 };

    /// Misses told until a superpage is wanted, at most so many.
    fn misses_until_wanted(brain: &mut Brain, most: u64) -> Option<u64> {
        let mut actions = Vec::new();
        (0..most).find(|i| {
            let page = Vpn(512 + i % 512);
            brain.handle(Event::TlbMiss { page, order: 0, victim: None }, &mut actions);
            while let Some(action) = actions.pop() {
                match action {
                    Action::Quote { page, order } => {
                        let construction = Construction::Copy { pages: 512 };
                        let quoted = Event::Quoted { page, order, construction };
                        brain.handle(quoted, &mut actions);
                    }
                    Action::Promote { page, order } => return (page.0, order) == (512, ORDER),
                    _ => {}
                }
            }
            false
        })
    }

    #[test]
    fn a_superpage_is_wanted_for_an_eighth_of_its_price() {
        // 1.2 ms / 8 at 30 ns a miss are 5,000 misses: 39 told ones.
        for choice in [Choice::ApproxOnline, Choice::Throttle] {
            let found = misses_until_wanted(&mut Brain::new(choice, &SHAPE), 1000);
            assert!(found.is_some_and(|n| (38..=41).contains(&n)), "{choice:?} {found:?}");
        }
        let found = misses_until_wanted(&mut Brain::new(Choice::Online, &SHAPE), 1000);
        assert!(found.is_some(), "the books of ONLINE");
    }

    #[test]
    fn dearer_superpages_take_more_misses() {
        let mut brain = Brain::new(Choice::ApproxOnline, &SHAPE);
        brain.reprice(&SHAPE, 4 * FIRST_PRICE);
        let found = misses_until_wanted(&mut brain, 1000);
        assert!(found.is_some_and(|n| (154..=160).contains(&n)), "{found:?}");
    }

    #[test]
    fn asap_wants_what_is_full() {
        let mut brain = Brain::new(Choice::Asap, &SHAPE);
        let mut actions = Vec::new();
        for page in 512..1024 {
            assert!(actions.is_empty());
            brain.handle(Event::Faulted { page: Vpn(page), color: None }, &mut actions);
        }
        assert_eq!(actions, [Action::Promote { page: Vpn(512), order: ORDER }]);
    }
}
