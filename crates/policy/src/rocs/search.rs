//! FindPollutePages (ROCS 2008, algorithm 1): how many pages from the top of a miss-rate stack
//! to confine, by trying. Knows numbers of pages only; who confines and measures is the caller.

use std::ops::Range;

/// A search under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    size: usize,
    step: usize,
    least: usize,
    mapped: usize,
    /// How many pages are to be confined.
    pub chosen: usize,
    best: f64,
}

impl Search {
    /// In a stack of `size` pages, `step` more at a time (at least 1), as long as more than `least`
    /// are left. A mapping has to be better than `bar` to be chosen at all; the paper leaves open
    /// what the first is compared with.
    pub fn new(size: usize, step: usize, least: usize, bar: f64) -> Search {
        Search { size, step: step.max(1), least, mapped: 0, chosen: 0, best: bar }
    }

    /// The places in the stack to confine for the next trial; none when the search is over.
    pub fn more(&mut self) -> Option<Range<usize>> {
        if self.size - self.mapped <= self.least {
            return None;
        }
        let from = self.mapped;
        self.mapped = (from + self.step).min(self.size);
        Some(from..self.mapped)
    }

    /// The performance of what was confined last; more is better.
    pub fn judge(&mut self, performance: f64) {
        if performance > self.best {
            self.best = performance;
            self.chosen = self.mapped;
        }
    }

    /// The places that are confined now and should not be.
    pub const fn excess(&self) -> Range<usize> {
        self.chosen..self.mapped
    }
}
