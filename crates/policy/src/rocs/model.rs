//! How many pages to confine, worked out from a profile without trying (not of ROCS 2008, which
//! finds prediction too expensive in its section 5.2 since it wants a miss-rate curve).
//!
//! Under LRU the share of the cache that some pages have is about their share of the misses, and
//! their hits there are in the profile: one point of the curve of their hits over the room they
//! have. The other end is known too: all of their requests hit when all of them fit. A straight line
//! between both says what they gain from the room that confined pages leave. Hits of confined pages
//! count as lost. The line is too low for loads at random and too high for loops that are larger than
//! the cache, except that it is right where everything kept fits, which is where it ends.
//!
//! Linear in the pages.

use super::profile::PageRate;

/// How many pages from the start of an order to confine; 0 if nothing is gained by it. `cache`:
/// pages that fit into the cache, `kept`: those that fit beside the pollute buffer.
pub fn pages_to_confine(stack: &[PageRate], cache: u64, kept: u64) -> usize {
    if stack.len() as u64 <= kept {
        return 0;
    }
    let misses = stack.iter().map(|page| page.misses).sum::<u64>() as f64;
    let mut rest = Rest::of(stack);
    let (mut best, mut chosen) = (rest.hits, 0);
    for (confined, page) in (1..).zip(stack) {
        rest.leave(page);
        let hits = rest.hits_in(cache as f64, kept as f64, misses);
        // Of equal ones the last: it is the safest, as more of what is kept fits.
        if hits > best || chosen > 0 && hits >= best {
            (best, chosen) = (hits, confined);
        }
    }
    chosen
}

/// How many pages from the top of a miss-rate stack have no hits to lose: as many as lose `share` of all
/// requests at most, 0 to 1, should all of their hits be lost. What room they leave goes to what there are no
/// samples of, such as page tables; what that is worth, only a trial can tell.
pub fn pages_without_hits(stack: &[PageRate], share: f64) -> usize {
    let requests: u64 = stack.iter().map(|page| page.accesses).sum();
    let hits = stack.iter().scan(0, |sum, page| {
        *sum += page.accesses - page.misses;
        Some(*sum as f64)
    });
    hits.take_while(|hits| *hits <= share * requests as f64).count()
}

/// Sums over the pages that are kept.
struct Rest {
    pages: f64,
    accesses: f64,
    hits: f64,
}

impl Rest {
    fn of(stack: &[PageRate]) -> Rest {
        let mut all = Rest { pages: stack.len() as f64, accesses: 0.0, hits: 0.0 };
        for page in stack {
            all.accesses += page.accesses as f64;
            all.hits += (page.accesses - page.misses) as f64;
        }
        all
    }

    fn leave(&mut self, page: &PageRate) {
        self.pages -= 1.0;
        self.accesses -= page.accesses as f64;
        self.hits -= (page.accesses - page.misses) as f64;
    }

    /// Their hits when they have the cache but for the buffer.
    fn hits_in(&self, cache: f64, kept: f64, misses: f64) -> f64 {
        if self.pages <= kept {
            return self.accesses;
        }
        let own = self.accesses - self.hits;
        let room = (cache * own / misses.max(1.0)).min(self.pages);
        let more = ((kept - room) / (self.pages - room).max(1.0)).max(0.0);
        self.hits + own * more
    }
}
