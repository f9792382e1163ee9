//! APPROX-ONLINE (Romer 1998, section 3.4.3): a superpage is built once the misses that it would
//! have prevented by bringing a page in with its neighbours make a share of what building it
//! costs. It sees TLB misses with their victims, and nothing else.
//!
//! Beyond the thesis (its section 3.8.2): the threshold can follow the real cost of construction,
//! which the engine is asked for once a superpage has charges enough for the cheapest one.

use huepage_color::Vpn;

use super::sizes::PageSizes;
use super::tree::{Node, Tree};
use crate::event::{Action, Construction, Event, Policy};
use crate::input::InputKind;
use crate::prices::Prices;

/// The parameters of [`ApproxOnline`] and [`super::Online`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The page sizes.
    pub sizes: PageSizes,
    /// What misses and superpages cost.
    pub prices: Prices,
    /// Prefetch charges that promote, as a share of R; 0.125 in the thesis, 1 for the competitive
    /// bound.
    pub prefetch: f64,
    /// Capacity charges that promote, as a share of R; 0.625. ONLINE only.
    pub capacity: f64,
    /// TLBs that can have the same page, such as one for data and one for instructions: 2.
    pub tlbs: u16,
    /// Whether charges of sizes above 64 KiB are put off. Makes no difference to what is built.
    pub deferred: bool,
    /// Whether the engine is asked what a superpage would take, and the threshold follows.
    pub by_construction: bool,
}

impl Default for Settings {
    /// The thesis's: sections 3.2, 3.4.2 and 3.5.
    fn default() -> Settings {
        Settings {
            sizes: PageSizes::romer(),
            prices: Prices::default(),
            prefetch: 0.125,
            capacity: 0.625,
            tlbs: 2,
            deferred: true,
            by_construction: false,
        }
    }
}

impl Settings {
    /// The charges that promote, by size; those at which the engine is asked what it would take,
    /// one at least, if that decides.
    pub(crate) fn limits(&self, share: f64) -> Vec<u32> {
        let asked = self.by_construction;
        let copied = |&order: &u32| if asked { 0 } else { 1 << order };
        let cycles = self.sizes.orders().iter().map(|order| self.prices.build(copied(order)));
        let limits = cycles.map(|cycles| self.prices.threshold(cycles, share));
        limits.map(|limit| limit.max(u32::from(asked))).collect()
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct ApproxOnline {
    settings: Settings,
    /// Its books.
    pub tree: Tree,
}

impl ApproxOnline {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::TlbMisses];

    /// With nothing seen yet.
    pub fn new(settings: Settings) -> ApproxOnline {
        let limits = settings.limits(settings.prefetch);
        let tree = Tree::new(settings.sizes.clone(), limits, settings.tlbs, settings.deferred);
        ApproxOnline { settings, tree }
    }

    /// What misses and superpages cost from now on, as far as the engine is asked what they take
    /// ([`Settings::by_construction`]): prices that the engine measures while it builds.
    pub const fn reprice(&mut self, prices: Prices) {
        self.settings.prices = prices;
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes every TLB to be empty.
    pub(crate) fn forget_entries(&mut self) {
        self.tree.forget_entries();
    }

    fn miss(
        &mut self,
        page: Vpn,
        order: u32,
        victim: Option<(Vpn, u32)>,
        actions: &mut Vec<Action>,
    ) {
        if let Some(at) = self.tree.node(page, order)
            && let Some(ready) = self.tree.miss(at)
        {
            self.ask(ready, actions);
        }
        if let Some((page, order)) = victim {
            self.tree.leave(page, order);
        }
    }

    #[cold]
    fn ask(&mut self, ready: Node, actions: &mut Vec<Action>) {
        let (page, order) = self.tree.ask(ready);
        actions.push(match self.settings.by_construction {
            true => Action::Quote { page, order },
            false => Action::Promote { page, order },
        });
    }

    fn quoted(
        &mut self,
        page: Vpn,
        order: u32,
        construction: Construction,
        actions: &mut Vec<Action>,
    ) {
        let Some(at) = self.tree.node(page, order) else { return };
        let copied = match construction {
            Construction::InPlace => 0,
            Construction::Copy { pages } => pages,
            Construction::Vacate { pages, others } => pages + others,
            Construction::Impossible(_) => return self.tree.refused(at),
        };
        let cycles = self.settings.prices.build(copied);
        let limit = self.settings.prices.threshold(cycles, self.settings.prefetch);
        if self.tree.limit(at, limit) {
            actions.push(Action::Promote { page, order });
        }
    }
}

impl Policy for ApproxOnline {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::TlbMiss { page, order, victim } => self.miss(page, order, victim, actions),
            Event::Quoted { page, order, construction } => {
                self.quoted(page, order, construction, actions);
            }
            Event::Priced { prices } => self.reprice(prices),
            _ => note_outcome(&mut self.tree, event),
        }
    }
}

/// What became of superpages, for every policy with books.
pub(crate) fn note_outcome(tree: &mut Tree, event: Event) {
    let (page, order) = match event {
        // What has another frame has lost its translation.
        Event::Moved { page } | Event::Placed { page, .. } => return tree.shot_down(page),
        Event::Promoted { page, order }
        | Event::NotPromoted { page, order, .. }
        | Event::Demoted { page, order, .. } => (page, order),
        Event::TlbFlushed => return tree.forget_entries(),
        _ => return,
    };
    let Some(at) = tree.node(page, order) else { return };
    match event {
        Event::Promoted { .. } => tree.promoted(at),
        Event::NotPromoted { .. } => tree.refused(at),
        _ => tree.demoted(at),
    }
}
