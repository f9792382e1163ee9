//! What samples say of pages: how often each is asked for beyond the nearest cache, and how often
//! memory answers (ROCS 2008, section 3.2); and the miss-rate stack made of that (section 5.2).
//! Does not know where pages are.
//!
//! A sample takes constant time, the stack n log n for n pages.

use std::collections::HashMap;

use huepage_color::{NumberHash, Vpn};

/// A page in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRate {
    /// The page.
    pub page: Vpn,
    /// Samples of it; at least 1.
    pub accesses: u64,
    /// Of these, those that memory answered.
    pub misses: u64,
}

impl PageRate {
    /// Misses per access, 0 to 1.
    pub fn miss_rate(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }
}

/// The samples of a time.
#[derive(Clone, Debug, Default)]
pub struct MissProfile {
    pages: HashMap<Vpn, (u64, u64), NumberHash>,
    /// All samples.
    pub samples: u64,
}

impl MissProfile {
    /// Notes a sample.
    pub fn note(&mut self, page: Vpn, missed: bool) {
        self.add(page, 1, u64::from(missed));
    }

    /// Notes so many samples of a page, of which so many missed.
    pub fn add(&mut self, page: Vpn, samples: u64, missed: u64) {
        let (accesses, misses) = self.pages.entry(page).or_default();
        *accesses += samples;
        *misses += missed;
        self.samples += samples;
    }

    /// What is known of a page; none if it was not sampled.
    pub fn rate(&self, page: Vpn) -> Option<PageRate> {
        let &(accesses, misses) = self.pages.get(&page)?;
        Some(PageRate { page, accesses, misses })
    }

    /// Misses of all samples, 0 to 1; 0 without any.
    pub fn miss_rate(&self) -> f64 {
        let misses: u64 = self.pages.values().map(|(_, misses)| misses).sum();
        misses as f64 / self.samples.max(1) as f64
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.samples = 0;
    }

    fn rates(&self) -> Vec<PageRate> {
        let rate = |(&page, &(accesses, misses))| PageRate { page, accesses, misses };
        self.pages.iter().map(rate).collect()
    }

    /// The pages by miss rate, the highest first. Of equal ones the least used is first: if it
    /// should not have been confined, least is lost.
    pub fn stack(&self) -> Vec<PageRate> {
        let mut stack = self.rates();
        stack.sort_unstable_by(|a, b| {
            // Fractions are compared by multiplying, so that equal ones are equal.
            let (left, right) = (a.misses * b.accesses, b.misses * a.accesses);
            right.cmp(&left).then(a.accesses.cmp(&b.accesses)).then(a.page.cmp(&b.page))
        });
        stack
    }

    /// The pages by use, the least used first (not of the paper): what they would gain from room,
    /// however little they have now. Of equal ones the one that misses more is first.
    pub fn by_use(&self) -> Vec<PageRate> {
        let mut pages = self.rates();
        pages.sort_unstable_by_key(|a| (a.accesses, u64::MAX - a.misses, a.page));
        pages
    }
}
