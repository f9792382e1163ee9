//! ONLINE (Romer 1998, section 3.4.2): APPROX-ONLINE that also charges misses to superpages that
//! would have kept a page in the TLB by taking less room there. It sees TLB misses with their
//! victims. Finding those superpages takes the order in which pages were last used, of which
//! misses show what is in the TLB and the order of the rest (footnote 2 of section 3.3.2).

use std::collections::{HashMap, VecDeque};

use huepage_color::{NumberHash, Vpn};

use super::approx::{Settings, note_outcome};
use super::sizes::PageSizes;
use super::tree::{Node, Tree, key};
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// Pages out of the TLB whose order is remembered. A superpage has to take the place of more
/// pages than were thrown out since, so that those of longer ago profit from few.
const REMEMBERED: usize = 128;

/// First base page and order.
type Page = (u64, u32);

/// What is in the TLB, and what was, the latest first.
#[derive(Clone, Debug)]
struct Stack {
    sizes: PageSizes,
    /// In order of place: nobody knows when these were used last.
    tlb: Vec<Page>,
    gone: VecDeque<Page>,
    /// Room for pages in order of place.
    sorted: Vec<Page>,
    /// The group told last, by size.
    told: Vec<u64>,
}

impl Stack {
    fn new(sizes: PageSizes) -> Stack {
        let (tlb, gone, sorted) = (Vec::new(), VecDeque::new(), Vec::new());
        Stack { told: vec![0; sizes.orders().len()], sizes, tlb, gone, sorted }
    }

    /// Tells the superpages that would have kept a page in the TLB: those without it that take
    /// the place of as many pages used since as had to go for it to go, and one more. So many
    /// neighbours in order of place lie in one superpage if the first and the last do.
    fn keepers(&mut self, page: Page, mut tell: impl FnMut(Vpn, u32)) {
        let Some(behind) = self.gone.iter().position(|&gone| gone == page) else { return };
        self.sorted.clear();
        self.sorted.extend(self.tlb.iter().chain(self.gone.iter().take(behind)));
        if behind > 0 {
            self.sorted.sort_unstable();
        }
        self.told.fill(u64::MAX);
        for window in self.sorted.windows(behind + 2) {
            let (first, last) = (window[0].0, window[behind + 1].0);
            let around = u64::BITS - (first ^ last).leading_zeros();
            let sizes = self.sizes.orders().iter().zip(&mut self.told).rev();
            for (&order, told) in sizes.take_while(|&(&order, _)| order >= around.max(1)) {
                let group = first >> order;
                if std::mem::replace(told, group) != group && group != page.0 >> order {
                    tell(Vpn(group << order), order);
                }
            }
        }
    }

    fn enter(&mut self, page: Page, victim: Option<Page>) {
        if let Some(at) = self.gone.iter().position(|&gone| gone == page) {
            self.gone.remove(at);
        }
        if let Some(victim) = victim {
            if let Ok(at) = self.tlb.binary_search(&victim) {
                self.tlb.remove(at);
            }
            self.gone.push_front(victim);
            self.gone.truncate(REMEMBERED);
        }
        if let Err(at) = self.tlb.binary_search(&page) {
            self.tlb.insert(at, page);
        }
    }

    /// The TLB is empty, and what went before is no sign that it is too small.
    fn clear(&mut self) {
        self.tlb.clear();
        self.gone.clear();
    }

    /// A superpage came or went: none of its parts is a page any more, or it is none.
    fn forget(&mut self, first: u64, order: u32) {
        let inside = |page: &Page| page.1 <= order && page.0 >> order == first >> order;
        self.tlb.retain(|page| !inside(page));
        self.gone.retain(|page| !inside(page));
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Online {
    /// Its books of prefetch charges.
    pub tree: Tree,
    /// Capacity charges that promote, by size.
    limits: Vec<u32>,
    /// Capacity charges, and since which promotion they count, by superpage.
    capacity: HashMap<u64, (u32, u32), NumberHash>,
    promotions: u32,
    stack: Stack,
}

impl Online {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::TlbMisses];

    /// With nothing seen yet. Takes no notice of `by_construction`.
    pub fn new(settings: &Settings) -> Online {
        let settings = Settings { by_construction: false, ..settings.clone() };
        let (prefetch, capacity) =
            (settings.limits(settings.prefetch), settings.limits(settings.capacity));
        Online::with_limits(settings.sizes, prefetch, capacity, settings.tlbs)
    }

    /// With these charges that promote, by size.
    pub(crate) fn with_limits(
        sizes: PageSizes,
        prefetch: Vec<u32>,
        capacity: Vec<u32>,
        tlbs: u16,
    ) -> Online {
        let (charges, stack) = (HashMap::default(), Stack::new(sizes.clone()));
        let tree = Tree::new(sizes, prefetch, tlbs, false);
        Online { tree, limits: capacity, capacity: charges, promotions: 0, stack }
    }

    /// Capacity charges of a superpage since the last promotion of any.
    pub fn capacity(&self, page: Vpn, order: u32) -> u32 {
        let kept = self.capacity.get(&key(page.0 >> order << order, order));
        kept.filter(|kept| kept.1 == self.promotions).map_or(0, |kept| kept.0)
    }

    fn miss(
        &mut self,
        page: Vpn,
        order: u32,
        victim: Option<(Vpn, u32)>,
        actions: &mut Vec<Action>,
    ) {
        let Some(at) = self.tree.node(page, order) else { return };
        let prefetch = self.tree.miss(at);
        let capacity = self.charge_capacity((page.0, order));
        if let Some(ready) = prefetch.or(capacity) {
            let (page, order) = self.tree.ask(ready);
            actions.push(Action::Promote { page, order });
        }
        if let Some((page, order)) = victim {
            self.tree.leave(page, order);
        }
        self.stack.enter((page.0, order), victim.map(|(page, order)| (page.0, order)));
    }

    /// Gives the smallest superpage that has capacity charges enough by this miss.
    fn charge_capacity(&mut self, page: Page) -> Option<Node> {
        let Online { tree, limits, capacity, promotions, stack } = self;
        let mut ready: Option<(u32, Node)> = None;
        stack.keepers(page, |first, order| {
            let kept = capacity.entry(key(first.0, order)).or_default();
            *kept = if kept.1 == *promotions { (kept.0 + 1, kept.1) } else { (1, *promotions) };
            let limit = tree.sizes().level(order).map_or(0, usize::from);
            if kept.0 >= limits[limit]
                && ready.is_none_or(|(smallest, _)| order < smallest)
                && let Some(node) = tree.node(first, order)
                && tree.can_be_asked(node)
            {
                ready = Some((order, node));
            }
        });
        ready.map(|(_, node)| node)
    }
}

impl Policy for Online {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::TlbMiss { page, order, victim } => {
                return self.miss(page, order, victim, actions);
            }
            Event::Promoted { page, order } => {
                // All start anew: what a promotion takes from each would need every miss kept
                // (section 3.4.2).
                self.promotions = self.promotions.wrapping_add(1);
                self.stack.forget(page.0, order);
            }
            Event::Demoted { page, order, .. } => self.stack.forget(page.0, order),
            Event::Moved { page } | Event::Placed { page, .. } => self.stack.forget(page.0, 0),
            // Nothing had to go for these to go.
            Event::TlbFlushed => self.stack.clear(),
            Event::NotPromoted { page, order, .. } => {
                self.capacity.remove(&key(page.0, order));
            }
            _ => {}
        }
        note_outcome(&mut self.tree, event);
    }
}
