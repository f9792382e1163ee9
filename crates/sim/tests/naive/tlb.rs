//! A TLB level as a table of names.

use huepage_sim::cache::Replacement;
use huepage_sim::tlb::TlbPage;

use super::Table;

pub struct Tlb {
    table: Table,
    sets: u64,
    orders: Vec<u32>,
    pages: Vec<TlbPage>,
    pub accesses: u64,
    pub misses: u64,
}

impl Tlb {
    pub fn new(sets: usize, ways: usize, orders: &[u32], replacement: Replacement) -> Tlb {
        let table = Table::new(ways, replacement, 1);
        let orders = orders.to_vec();
        Tlb { table, sets: sets as u64, orders, pages: Vec::new(), accesses: 0, misses: 0 }
    }

    /// The place of a page in a list of all pages ever seen: its name.
    fn name(&mut self, page: TlbPage) -> u64 {
        let known = self.pages.iter().position(|p| *p == page);
        known.unwrap_or_else(|| {
            self.pages.push(page);
            self.pages.len() - 1
        }) as u64
    }

    /// As the real one: hit, or what made way.
    pub fn access(&mut self, page: TlbPage) -> Result<(), Option<TlbPage>> {
        if !self.orders.contains(&page.order) {
            return Err(None);
        }
        let name = self.name(page);
        self.accesses += 1;
        let (hit, gone) = self.table.access(page.number % self.sets, name, false);
        if hit {
            return Ok(());
        }
        self.misses += 1;
        Err(gone.map(|(name, _)| self.pages[name as usize]))
    }

    /// Drops all pages for which `which` holds: how many were there.
    pub fn drop_where(&mut self, which: impl Fn(TlbPage) -> bool) -> usize {
        let mut dropped = 0;
        for (name, page) in self.pages.iter().enumerate() {
            if which(*page) && self.table.remove(page.number % self.sets, name as u64).is_some() {
                dropped += 1;
            }
        }
        dropped
    }
}
