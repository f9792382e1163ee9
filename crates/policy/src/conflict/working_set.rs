//! Conflict or capacity: what Romer 1998, section 5.7 leaves open. As long as the pages that a
//! program touches fit into the cache, each of their lines has to be missed once; misses
//! beyond that are conflicts. Once the pages touched do not fit, recolouring cannot help,
//! however they lie. The pages touched are those of TLB misses, so what the TLB covers all the
//! time is not seen: the TLB has to cover much less than the cache.

use std::collections::HashSet;

use huepage_color::{NumberHash, Vpn};

use super::CacheShape;

/// What the misses so far stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too early to say.
    Open,
    /// More misses than the pages touched have lines.
    Conflict,
    /// More pages touched than fit.
    Capacity,
}

/// Counts pages touched and misses since it was cleared. Memory in proportion to the pages of
/// the cache; constant time per page.
#[derive(Clone, Debug)]
pub struct WorkingSet {
    shape: CacheShape,
    seen: HashSet<Vpn, NumberHash>,
    pages: u64,
    misses: u64,
}

impl WorkingSet {
    /// Nothing seen yet.
    pub fn new(shape: CacheShape) -> WorkingSet {
        WorkingSet { shape, seen: HashSet::default(), pages: 0, misses: 0 }
    }

    /// A page of 2^`order` base pages was touched.
    pub fn touch(&mut self, page: Vpn, order: u32) {
        if self.pages <= self.shape.pages() && self.seen.insert(page) {
            self.pages += 1 << order.min(32);
        }
    }

    /// Misses happened.
    pub const fn miss(&mut self, misses: u64) {
        self.misses += misses;
    }

    /// What it looks like. A quarter more misses than lines are asked for, since snapshots and
    /// other programs leave some behind.
    pub const fn cause(&self) -> Cause {
        if self.pages > self.shape.pages() {
            Cause::Capacity
        } else if self.misses * 4 > self.pages * self.shape.lines_per_page * 5 {
            Cause::Conflict
        } else {
            Cause::Open
        }
    }

    /// Starts again.
    pub fn clear(&mut self) {
        self.seen.clear();
        (self.pages, self.misses) = (0, 0);
    }
}
