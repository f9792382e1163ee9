//! What a policy of superpages has to know of this machine, where everything is told in nanoseconds of CPU
//! time, as nobody counts cycles and instructions here. Which policy it is, and what it decides, is
//! `huepage_policy`'s.

use std::collections::HashMap;
use std::fmt;

use huepage_color::Vpn;
use huepage_policy::registry::{Host, Settings};
use huepage_policy::superpage::{PacingSettings, PageSizes};
use huepage_policy::{Action, Event, InputKind, Policy, Prices};

use crate::kernel::process_memory::{SUPERPAGE_ORDER, SUPERPAGE_PAGES};
use crate::sensors::superpage_map::SuperpageMap;
use crate::sensors::tlb::TlbShape;
use crate::sensors::tlb::replay::MISSES_PER_SAMPLE;

/// When superpages are built, and what finding out may cost.
pub(super) const PACING: PacingSettings = PacingSettings::USUAL;

/// The policy that is meant when none is named: APPROX-ONLINE.
pub fn usual_policy() -> Settings {
    Settings::parse("approx-online").unwrap_or_else(|_| unreachable!("the registry has it"))
}

/// Whether a policy hears of TLB misses at all.
pub fn needs_misses(policy: &Settings) -> bool {
    policy.entry().needs.contains(&InputKind::TlbMisses)
}

/// Pages that a policy of first touches was told of. Of a block it is known how many pages are resident and not
/// which, and no policy asks which: they are told as if they were touched in order.
#[derive(Debug, Default)]
pub(super) struct TouchedPages {
    /// Pages told, by block.
    told: HashMap<u64, u16>,
    /// Whether one page of a block says as much as all of them: FIXED asks for the same at each.
    one_of_each: bool,
}

impl TouchedPages {
    /// For a policy; none if it does not go by first touches.
    pub fn wanted_by(policy: &Settings) -> Option<TouchedPages> {
        let wanted = policy.entry().needs.contains(&InputKind::Faults);
        let one_of_each = policy.name() == "fixed";
        wanted.then(|| TouchedPages { told: HashMap::new(), one_of_each })
    }

    /// Those of blocks that are no superpages which were not told before.
    pub fn new_in(&mut self, map: &SuperpageMap) -> Vec<Vpn> {
        let mut pages = Vec::new();
        for (&at, block) in map.blocks.iter().filter(|(_, block)| !block.huge) {
            let there = block.resident;
            let told = self.told.entry(at).or_insert(0);
            let news = *told..there;
            *told = there.max(*told);
            let most = if self.one_of_each { 1 } else { usize::MAX };
            let first = at * SUPERPAGE_PAGES;
            pages.extend(news.rev().take(most).map(|page| Vpn(first + u64::from(page))));
        }
        pages
    }

    /// A block has other pages than before.
    pub fn forget(&mut self, at: u64) {
        self.told.remove(&at);
    }
}

/// The policy of one process.
pub(super) struct LivePolicy(Box<dyn Policy + Send>);

impl fmt::Debug for LivePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePolicy").finish_non_exhaustive()
    }
}

/// 4 KiB and what the kernel builds on request.
pub(super) fn sizes() -> PageSizes {
    PageSizes::new(&[SUPERPAGE_ORDER]).unwrap_or_else(|| unreachable!("an order below 18"))
}

/// A told miss stands for many.
const fn prices(shape: &TlbShape, build_ns: u64) -> Prices {
    Prices { miss: shape.walk_ns * MISSES_PER_SAMPLE, per_kib: 0, setup: build_ns }
}

/// An instruction is a nanosecond of the program's; bookkeeping is not charged to it, as it is done on ours.
pub(super) fn host(shape: &TlbShape) -> Host {
    let (sizes, prices) = (sizes(), prices(shape, PACING.first_price_ns));
    Host { sizes, prices, quotes: true, weight: MISSES_PER_SAMPLE, ..Host::default() }
}

impl LivePolicy {
    pub fn new(settings: &Settings, shape: &TlbShape) -> LivePolicy {
        let made = settings.make(&host(shape)).or_else(|_| usual_policy().make(&host(shape)));
        LivePolicy(made.unwrap_or_else(|_| unreachable!("APPROX-ONLINE lacks nothing")))
    }

    /// With something around it.
    pub fn inside(
        self,
        around: impl FnOnce(Box<dyn Policy + Send>) -> Box<dyn Policy + Send>,
    ) -> LivePolicy {
        LivePolicy(around(self.0))
    }

    /// A superpage takes so many nanoseconds of CPU time.
    pub fn reprice(&mut self, shape: &TlbShape, build_ns: u64) {
        let prices = prices(shape, build_ns);
        self.0.handle(Event::Priced { prices }, &mut Vec::new());
    }
}

impl Policy for LivePolicy {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.0.handle(event, actions);
    }
}

#[cfg(test)]
mod tests {
    use huepage_policy::Construction;

    use super::*;

    fn named(text: &str) -> Settings {
        Settings::parse(text).unwrap()
    }

    const SHAPE: TlbShape = TlbShape { entries: 1536, known: true, walk_ns: 30 };

    /// Misses told until a superpage is wanted, at most so many.
    fn misses_until_wanted(live_policy: &mut LivePolicy, most: u64) -> Option<u64> {
        let mut actions = Vec::new();
        (0..most).find(|i| {
            let page = Vpn(512 + i % 512);
            live_policy.handle(Event::TlbMiss { page, order: 0, victim: None }, &mut actions);
            while let Some(action) = actions.pop() {
                match action {
                    Action::Quote { page, order } => {
                        let construction = Construction::Copy { pages: 512 };
                        let quoted = Event::Quoted { page, order, construction };
                        live_policy.handle(quoted, &mut actions);
                    }
                    Action::Promote { page, order } => {
                        return (page.0, order) == (512, SUPERPAGE_ORDER);
                    }
                    _ => {}
                }
            }
            false
        })
    }

    #[test]
    fn a_superpage_is_wanted_for_an_eighth_of_its_price() {
        // 1.2 ms / 8 at 30 ns a miss are 5,000 misses: 39 told ones.
        for choice in ["approx-online", "throttle", "throttle:prefetch=1/8"] {
            let found = misses_until_wanted(&mut LivePolicy::new(&named(choice), &SHAPE), 1000);
            assert!(found.is_some_and(|n| (38..=41).contains(&n)), "{choice:?} {found:?}");
        }
        let found = misses_until_wanted(&mut LivePolicy::new(&named("online"), &SHAPE), 1000);
        assert!(found.is_some(), "the books of ONLINE");
    }

    #[test]
    fn dearer_superpages_take_more_misses() {
        let mut live_policy = LivePolicy::new(&named("approx-online"), &SHAPE);
        live_policy.reprice(&SHAPE, 4 * PACING.first_price_ns);
        let found = misses_until_wanted(&mut live_policy, 1000);
        assert!(found.is_some_and(|n| (154..=160).contains(&n)), "{found:?}");
    }

    #[test]
    fn asap_wants_what_is_full() {
        let mut live_policy = LivePolicy::new(&named("asap"), &SHAPE);
        let mut actions = Vec::new();
        for page in 512..1024 {
            assert!(actions.is_empty());
            live_policy.handle(Event::Faulted { page: Vpn(page), color: None }, &mut actions);
        }
        assert_eq!(actions, [Action::Promote { page: Vpn(512), order: SUPERPAGE_ORDER }]);
    }
}
