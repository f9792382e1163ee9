//! OFFLINE (Romer 1998, section 3.4.1): superpages chosen with the whole stream of references
//! known, greedily by misses prevented per cycle of construction, round after round with what
//! is left of the misses. [`OfflinePlan::greedy`] chooses; [`Offline`] is the policy that has each
//! built at the first touch of one of its pages, and sees page faults alone.
//!
//! The best choice is NP-complete, so this is an approximation, and of all rounds' plans the
//! cheapest is taken: a greedy round may count a miss for two superpages.

use std::collections::{BTreeMap, HashMap};

use huepage_color::{NumberHash, Vpn};

use super::online::Online;
use super::sizes::PageSizes;
use super::tree::NEVER;
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;
use crate::prices::Prices;

/// First base page and order.
type Page = (u64, u32);

/// Superpages to build at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfflinePlan {
    /// Orders by first base page; none lies in another.
    pages: BTreeMap<u64, u32>,
    /// TLB misses with these superpages.
    pub misses: u64,
    /// Cycles for these misses and for construction, every base page copied.
    pub cycles: u64,
}

impl OfflinePlan {
    /// Chooses for a stream of base pages and a TLB of so many entries that is fully associative
    /// and LRU. References in a row to the same page may be left out without changing anything;
    /// the misses of 4 KiB pages alone, which the thesis analyses, give nearly the same.
    /// Takes a simulation of the stream for each round, ten or so, with the bookkeeping of ONLINE.
    pub fn greedy(
        stream: &[Vpn],
        entries: usize,
        sizes: &PageSizes,
        prices: Prices,
    ) -> OfflinePlan {
        let mut plan = OfflinePlan::default();
        let mut best: Option<OfflinePlan> = None;
        loop {
            let books = plan.simulate(stream, entries, sizes);
            let built: u64 = plan.pages.values().map(|order| prices.build(1 << order)).sum();
            plan.cycles = plan.misses * prices.miss + built;
            if best.as_ref().is_none_or(|best| plan.cycles < best.cycles) {
                best = Some(plan.clone());
            }
            if !plan.add_best(&books, prices) {
                return best.unwrap_or_default();
            }
        }
    }

    /// The superpages: first base page and order, ascending.
    pub fn pages(&self) -> impl Iterator<Item = (Vpn, u32)> + '_ {
        self.pages.iter().map(|(&first, &order)| (Vpn(first), order))
    }

    /// The superpage of the plan that a base page belongs to.
    pub fn superpage(&self, page: Vpn) -> Option<(Vpn, u32)> {
        let (&first, &order) = self.pages.range(..=page.0).next_back()?;
        (page.0 >> order == first >> order).then_some((Vpn(first), order))
    }

    /// Counts the misses that are left and what could prevent them.
    fn simulate(&mut self, stream: &[Vpn], entries: usize, sizes: &PageSizes) -> Online {
        let never = vec![NEVER; sizes.orders().len()];
        let mut books = Online::with_limits(sizes.clone(), never.clone(), never, 1);
        let mut known: HashMap<u64, Page, NumberHash> = HashMap::default();
        // The latest last.
        let mut tlb: Vec<Page> = Vec::with_capacity(entries);
        let mut nothing = Vec::new();
        self.misses = 0;
        for &page in stream {
            let find = || self.superpage(page).map_or((page.0, 0), |(first, o)| (first.0, o));
            let unit = *known.entry(page.0).or_insert_with(find);
            if let Some(at) = tlb.iter().rposition(|&held| held == unit) {
                tlb[at..].rotate_left(1);
                continue;
            }
            self.misses += 1;
            let victim = (tlb.len() >= entries.max(1)).then(|| tlb.remove(0));
            tlb.push(unit);
            let victim = victim.map(|(page, order)| (Vpn(page), order));
            let miss = Event::TlbMiss { page: Vpn(unit.0), order: unit.1, victim };
            books.handle(miss, &mut nothing);
        }
        books
    }

    /// Adds the superpages that prevent most per cycle, no two of which overlap; false if none
    /// is worth its construction.
    fn add_best(&mut self, books: &Online, prices: Prices) -> bool {
        let worth = |(first, order, prefetch): (Vpn, u32, u32)| {
            let misses = u64::from(prefetch) + u64::from(books.capacity(first, order));
            let inside = self.pages.range(first.0..first.0 + (1 << order));
            let built: u64 = inside.map(|(_, &order)| prices.build(1 << order)).sum();
            let cost = prices.build(1 << order).saturating_sub(built).max(1);
            let gain = misses * prices.miss;
            (gain > cost).then_some((gain as f64 / cost as f64, first.0, order))
        };
        let mut found: Vec<_> = books.tree.superpages().filter_map(worth).collect();
        found.retain(|&(_, first, order)| {
            self.superpage(Vpn(first)).is_none_or(|(_, there)| there < order)
        });
        found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, b.2).cmp(&(b.1, a.2))));
        let mut chosen = OfflinePlan::default();
        for &(_, first, order) in &found {
            let (end, inside) = (first + (1 << order), chosen.superpage(Vpn(first)));
            if inside.is_none() && chosen.pages.range(first..end).next().is_none() {
                chosen.pages.insert(first, order);
            }
        }
        for (&first, &order) in &chosen.pages {
            self.pages.retain(|&part, _| part >> order != first >> order);
            self.pages.insert(first, order);
        }
        !found.is_empty()
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Offline {
    plan: OfflinePlan,
}

impl Offline {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::Stream, InputKind::Faults];

    /// Builds what the plan says.
    pub const fn new(plan: OfflinePlan) -> Offline {
        Offline { plan }
    }
}

impl Policy for Offline {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        if let Event::Faulted { page, .. } = event
            && let Some((page, order)) = self.plan.superpage(page)
        {
            actions.push(Action::Promote { page, order });
        }
    }
}
