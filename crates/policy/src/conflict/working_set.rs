//! Conflict or capacity: what Romer 1998, section 5.7 leaves open. As long as the pages that a
//! program touches fit into the cache, each of their lines has to be missed once; misses
//! beyond that are conflicts. Once the pages touched do not fit, recolouring cannot help,
//! however they lie. The pages touched are those of TLB misses after a flush.

use std::collections::HashSet;

use huepage_color::{NumberHash, Vpn};

use super::CacheShape;

/// What the misses so far stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too early to say.
    Open,
    /// More misses than first touches account for.
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
    /// Pages when misses were last counted, and misses when there were last more.
    known: u64,
    grown: u64,
}

/// Misses without a new page after which the pages touched are taken to be all: first touches of
/// their other lines are rarer in a program that has run for a while.
pub const SETTLED: u64 = 2_000;

impl WorkingSet {
    /// Nothing seen yet.
    pub fn new(shape: CacheShape) -> WorkingSet {
        WorkingSet { shape, seen: HashSet::default(), pages: 0, misses: 0, known: 0, grown: 0 }
    }

    /// A page of 2^`order` base pages was touched; whether it is new. Once too many were, none
    /// is.
    pub fn touch(&mut self, page: Vpn, order: u32) -> bool {
        let new = self.pages <= self.shape.pages() && self.seen.insert(page);
        self.pages += u64::from(new) << order.min(32);
        new
    }

    /// Misses happened.
    pub const fn miss(&mut self, misses: u64) {
        self.misses += misses;
        // Growth in this period counts as growth at its end.
        if self.known < self.pages {
            (self.known, self.grown) = (self.pages, self.misses);
        }
    }

    /// What it looks like. Conflicts are misses beyond one for each line and a quarter, and
    /// those since the last new page once they are [`SETTLED`].
    pub const fn cause(&self) -> Cause {
        let every_line = self.misses * 4 > self.pages * self.shape.lines_per_page * 5;
        if self.pages > self.shape.pages() {
            Cause::Capacity
        } else if every_line || self.misses - self.grown >= SETTLED {
            Cause::Conflict
        } else {
            Cause::Open
        }
    }

    /// Starts again.
    pub fn clear(&mut self) {
        self.seen.clear();
        (self.pages, self.misses, self.known, self.grown) = (0, 0, 0, 0);
    }
}
