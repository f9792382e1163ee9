//! Accesses and misses by page, on request, and their picture: pages in regions of neighbours,
//! each region in a given number of bins. Drawing them is the caller's business.
//!
//! While pages are counted, accesses are not done in batches, which takes longer.

use std::collections::HashMap;

use huepage_color::Vpn;

/// What a page saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Lines asked for, fetches included.
    pub accesses: u64,
    /// Of these, those that the cache level whose colours count did not have, nor a nearer one;
    /// where no level has colours, those that went to memory.
    pub misses: u64,
}

impl PageCounts {
    fn add(&mut self, other: PageCounts) {
        self.accesses += other.accesses;
        self.misses += other.misses;
    }
}

/// Counts by page of all address spaces.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    pages: HashMap<(u16, u64), PageCounts>,
}

/// Neighbouring pages of one address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatRegion {
    /// The address space.
    pub space: u16,
    /// The first page that was touched.
    pub first: Vpn,
    /// Pages from the first to the last that was touched.
    pub span: u64,
    /// Of these, touched ones.
    pub touched: u64,
    /// Sums over the region, one for each bin of [`Self::pages_per_bin`] pages from the first on.
    pub bins: Vec<PageCounts>,
    /// Pages in a bin; the last bin may reach beyond the region.
    pub pages_per_bin: u64,
}

impl Heat {
    /// Counts an access to a page.
    pub fn note(&mut self, space: u16, page: Vpn, missed: bool) {
        let counts = self.pages.entry((space, page.0)).or_default();
        counts.add(PageCounts { accesses: 1, misses: u64::from(missed) });
    }

    /// Everything starts at zero.
    pub fn forget(&mut self) {
        self.pages.clear();
    }

    /// Sums over all pages.
    pub fn total(&self) -> PageCounts {
        let mut sum = PageCounts::default();
        self.pages.values().for_each(|&counts| sum.add(counts));
        sum
    }

    /// The pages in regions, by space and address, each with at most `width` bins of equal
    /// size. The smallest gap that divides regions doubles until there are at most `most`
    /// of them, or one for each space. Time: in proportion to n log n for n pages.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn regions(&self, most: usize, width: usize) -> Vec<HeatRegion> {
        let mut pages: Vec<_> = self.pages.iter().map(|(&at, &counts)| (at, counts)).collect();
        pages.sort_unstable_by_key(|&(at, _)| at);
        let mut gap = 1;
        loop {
            let near = |a: &((u16, u64), _), b: &((u16, u64), _)| {
                let ((a_space, a_page), (b_space, b_page)) = (a.0, b.0);
                a_space == b_space && b_page - a_page <= gap
            };
            let count = pages.chunk_by(near).count();
            if count <= most || gap > u64::MAX >> 13 {
                return pages.chunk_by(near).map(|pages| region(pages, width)).collect();
            }
            gap *= 2;
        }
    }
}

/// A region of these pages, which are in order and not none.
fn region(pages: &[((u16, u64), PageCounts)], width: usize) -> HeatRegion {
    let ((space, first), _) = pages[0];
    let ((_, last), _) = pages[pages.len() - 1];
    let span = last - first + 1;
    let pages_per_bin = span.div_ceil(width as u64);
    let bins = usize::try_from(span.div_ceil(pages_per_bin)).unwrap_or(width);
    let mut bins = vec![PageCounts::default(); bins];
    for &((_, page), counts) in pages {
        let bin = usize::try_from((page - first) / pages_per_bin).unwrap_or(usize::MAX);
        bins[bin].add(counts);
    }
    let touched = pages.len() as u64;
    HeatRegion { space, first: Vpn(first), span, touched, bins, pages_per_bin }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_one_region_and_spaces_never_are() {
        let mut heat = Heat::default();
        for (space, page) in [(0, 7), (0, 8), (0, 100), (1, 101), (0, 7)] {
            heat.note(space, Vpn(page), page == 7);
        }
        let all = heat.regions(10, 4);
        let places: Vec<_> = all.iter().map(|r| (r.space, r.first.0, r.span, r.touched)).collect();
        assert_eq!(places, [(0, 7, 2, 2), (0, 100, 1, 1), (1, 101, 1, 1)]);
        assert_eq!(all[0].bins[0], PageCounts { accesses: 2, misses: 2 });
        let few = heat.regions(1, 4);
        let places: Vec<_> = few.iter().map(|r| (r.space, r.first.0, r.span, r.touched)).collect();
        assert_eq!(places, [(0, 7, 94, 3), (1, 101, 1, 1)]);
        assert_eq!(few[0].pages_per_bin, 24);
        heat.forget();
        assert!(heat.regions(1, 4).is_empty());
    }

    proptest! {
        /// Against adding up each bin by hand.
        #[test]
        fn bins_hold_every_access_once(
            touches in prop::collection::vec((0_u16..3, 0_u64..5000, any::<bool>()), 1..300),
            most in 1_usize..20,
            width in 1_usize..80,
        ) {
            let mut heat = Heat::default();
            touches.iter().for_each(|&(space, page, missed)| heat.note(space, Vpn(page), missed));
            let regions = heat.regions(most, width);
            prop_assert!(regions.len() <= most.max(3));
            let mut seen = 0;
            for region in &regions {
                prop_assert!(region.bins.len() <= width);
                for (at, bin) in (0_u64..).zip(&region.bins) {
                    let from = region.first.0 + at * region.pages_per_bin;
                    let to = (from + region.pages_per_bin).min(region.first.0 + region.span);
                    let mine = touches.iter()
                        .filter(|t| t.0 == region.space && (from..to).contains(&t.1));
                    let (accesses, misses) =
                        (mine.clone().count() as u64, mine.filter(|t| t.2).count() as u64);
                    prop_assert_eq!(*bin, PageCounts { accesses, misses });
                    seen += accesses;
                }
            }
            prop_assert_eq!(seen, touches.len() as u64);
            prop_assert_eq!(heat.total().accesses, seen);
        }
    }
}
