//! A partition from tolerances: how much of a cache each of some programs needs so that it is no slower than it
//! may be, found with few runs, and how to share the cache out among them. Measures nothing.
//!
//! The curve of a program falls: more cache never makes it slower. So halving finds the smallest share that
//! is enough, and a share that was not tried lies between its neighbours. What programs do to each other beyond
//! the cache (memory bandwidth, a shared core) is a factor on the curve, learnt from a run of all of them.

use serde::Serialize;

/// Slowdowns closer to the limit than this, as a share of it, are measured again.
const CLOSE: f64 = 0.03;
/// Most runs of one share.
const RUNS: usize = 3;
/// Shares are told apart by this part of the cache, at the finest.
const GRAIN: u16 = 32;

/// The search for the smallest share in which a program is no slower than its limit.
#[derive(Clone, Debug)]
pub struct ShareSearch {
    limit: f64,
    most: u16,
    /// Runs by colours, ascending.
    tried: Vec<(u16, Vec<f64>)>,
}

/// A share that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TriedShare {
    /// Colours.
    pub colors: u16,
    /// Median time over that by itself, without a partition.
    pub slowdown: f64,
    /// Runs.
    pub runs: usize,
}

impl ShareSearch {
    /// Of a program that may take `limit` times as long as by itself, in at most so many colours.
    ///
    /// # Panics
    /// Without a colour.
    pub fn new(limit: f64, most: u16) -> ShareSearch {
        assert!(most > 0, "a program has a colour");
        ShareSearch { limit, most, tried: Vec::new() }
    }

    /// How much longer it may take, as a factor.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The share to run it in next; none when the search is over.
    pub fn next(&self) -> Option<u16> {
        if let Some((colors, _)) = self.tried.iter().find(|(_, runs)| self.is_unclear(runs)) {
            return Some(*colors);
        }
        let (low, high) = self.bounds();
        let grain = (self.most / GRAIN).max(1);
        if high - low > grain {
            return Some(low + (high - low) / 2);
        }
        if high > self.most && low < self.most {
            return Some(self.most);
        }
        // What disturbs a run makes it longer: the share that is said to be too small has a second chance.
        let once = |tried: &&(u16, Vec<f64>)| tried.0 == low && tried.1.len() == 1;
        self.tried.iter().find(once).map(|tried| tried.0)
    }

    /// Whether some runs are too close to the limit to say on which side of it they are, or lie on both.
    fn is_unclear(&self, runs: &[f64]) -> bool {
        let kept = runs.iter().filter(|&&slowdown| slowdown <= self.limit).count();
        let apart = kept > 0 && kept < runs.len();
        let close = (median(runs) / self.limit - 1.0).abs() < CLOSE;
        runs.len() < RUNS && (apart || close)
    }

    /// Largest share that is too small, and the smallest that is enough: 0 and one more than there are where
    /// none was found.
    fn bounds(&self) -> (u16, u16) {
        let enough = |(_, runs): &&(u16, Vec<f64>)| median(runs) <= self.limit;
        let low = self.tried.iter().rfind(|tried| !enough(tried)).map_or(0, |tried| tried.0);
        let high = self.tried.iter().find(|tried| enough(tried) && tried.0 > low);
        (low, high.map_or(self.most + 1, |tried| tried.0))
    }

    /// A run in so many colours took so many times as long as one by itself.
    pub fn note(&mut self, colors: u16, slowdown: f64) {
        match self.tried.binary_search_by_key(&colors, |tried| tried.0) {
            Ok(at) => self.tried[at].1.push(slowdown),
            Err(at) => self.tried.insert(at, (colors, vec![slowdown])),
        }
    }

    /// The smallest share that is enough, as far as was tried; none where not even the largest is.
    pub fn need(&self) -> Option<u16> {
        Some(self.bounds().1).filter(|&colors| colors <= self.most)
    }

    /// What was tried, by colours.
    pub fn tried(&self) -> Vec<TriedShare> {
        let share = |(colors, runs): &(u16, Vec<f64>)| TriedShare {
            colors: *colors,
            slowdown: median(runs),
            runs: runs.len(),
        };
        self.tried.iter().map(share).collect()
    }

    /// The slowdown to expect in a share: on the line between those tried next to it. Below the smallest, what is
    /// lost grows as the share shrinks.
    pub fn expected(&self, colors: u16) -> f64 {
        let mut points = self.tried();
        // Noise does not make a curve rise.
        let mut least = 0.0_f64;
        for point in points.iter_mut().rev() {
            least = least.max(point.slowdown);
            point.slowdown = least;
        }
        let next = points.partition_point(|point| point.colors < colors);
        match (next.checked_sub(1).map(|at| points[at]), points.get(next)) {
            (Some(below), Some(above)) => {
                let whole = f64::from(above.colors - below.colors);
                let part = f64::from(colors - below.colors) / whole;
                below.slowdown + part * (above.slowdown - below.slowdown)
            }
            (Some(only), None) => only.slowdown,
            (None, Some(least)) if colors < least.colors => {
                let smaller = f64::from(least.colors) / f64::from(colors.max(1));
                least.slowdown + (least.slowdown - 1.0).max(0.0) * (smaller - 1.0)
            }
            (None, Some(only)) => only.slowdown,
            (None, None) => 1.0,
        }
    }
}

/// A program that is to have a share, and by how much it is slower beside the others than its curve says.
#[derive(Clone, Debug)]
pub struct SharingProgram {
    /// Its curve.
    pub search: ShareSearch,
    /// Factor on the curve; 1 before all were run together.
    pub beside: f64,
}

impl SharingProgram {
    /// The slowdown to expect over the one allowed.
    pub fn strain(&self, colors: u16) -> f64 {
        // Between what is too small and what is enough nothing was tried: it counts as too small.
        let small = self.search.need().is_some_and(|need| colors < need);
        let least = if small { 1.0 + f64::EPSILON } else { 0.0 };
        self.beside * (self.search.expected(colors) / self.search.limit).max(least)
    }

    /// How much it wants another colour: first those come that are too slow and that colours can help.
    fn wish(&self, colors: u16) -> (bool, f64) {
        let strain = self.strain(colors);
        (strain > 1.0 && self.strain(self.search.most) <= 1.0, strain)
    }

    /// It took so many times as long in so many colours, beside the others.
    pub fn learn(&mut self, colors: u16, slowdown: f64) {
        self.beside = slowdown / self.search.expected(colors);
    }
}

/// Shares all colours out so that the largest expected slowdown, over the one that is allowed, is as small as can
/// be: each colour goes where that is largest, and first to who can be helped. Where all limits can be kept they
/// are.
///
/// # Panics
/// With fewer colours than programs.
pub fn share_out(programs: &[SharingProgram], colors: u16) -> Vec<u16> {
    let count = u16::try_from(programs.len()).unwrap_or(u16::MAX);
    assert!(count <= colors, "each program has a colour");
    let mut sizes = vec![1; programs.len()];
    for _ in count..colors {
        let wish = |at: usize| (programs[at].wish(sizes[at]), u16::MAX - sizes[at]);
        let most = (0..sizes.len()).max_by(|&a, &b| {
            let ((a, a_left), (b, b_left)) = (wish(a), wish(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a_left.cmp(&b_left))
        });
        most.into_iter().for_each(|at| sizes[at] += 1);
    }
    sizes
}

/// The middle of some values; infinite of none.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::INFINITY,
        len if len % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A program that fits `fits` colours: `worst` times as slow in none of them.
    fn slowdown(fits: u16, worst: f64, colors: u16) -> f64 {
        1.0 + (worst - 1.0) * f64::from(fits.saturating_sub(colors)) / f64::from(fits)
    }

    fn searched(limit: f64, most: u16, mut slow: impl FnMut(u16) -> f64) -> (ShareSearch, usize) {
        let (mut search, mut runs) = (ShareSearch::new(limit, most), 0);
        while let Some(colors) = search.next() {
            search.note(colors, slow(colors));
            runs += 1;
        }
        (search, runs)
    }

    #[test]
    fn few_runs_find_what_is_enough() {
        let (search, runs) = searched(1.05, 31, |colors| if colors < 11 { 2.0 } else { 1.0 });
        assert_eq!(search.need(), Some(11));
        assert!(runs <= 6, "{runs}");
        let (search, runs) = searched(1.05, 31, |_| 1.5);
        assert_eq!((search.need(), runs), (None, 6));
        let (search, runs) = searched(1.05, 31, |_| 1.0);
        assert_eq!((search.need(), runs), (Some(1), 5));
        let (search, _) = searched(1.2, 1, |_| 1.0);
        assert_eq!(search.need(), Some(1));
    }

    #[test]
    fn the_whole_cache_is_tried_before_nothing_is_enough() {
        for most in [1, 2, 63, 64, 127, 128, 255, 512, 1000] {
            let (search, _) = searched(1.05, most, |colors| if colors < most { 2.0 } else { 1.0 });
            assert_eq!(search.need(), Some(most));
            let (search, _) = searched(1.05, most, |_| 2.0);
            assert_eq!(search.need(), None);
        }
    }

    #[test]
    fn one_disturbed_run_decides_nothing() {
        let mut disturbed = true;
        let (search, _) = searched(1.05, 31, |colors| {
            let slow = colors < 8 || colors == 12 && std::mem::take(&mut disturbed);
            if slow { 1.5 } else { 1.0 }
        });
        assert_eq!(search.need(), Some(8), "{:?}", search.tried());
    }

    #[test]
    fn who_cannot_be_helped_takes_nothing_from_who_can() {
        let (flat, _) = searched(1.05, 31, |_| 1.0);
        let (steep, _) = searched(1.05, 31, |colors| slowdown(20, 2.2, colors));
        let sharing = |search| SharingProgram { search, beside: 1.0 };
        let mut programs = [sharing(flat), sharing(steep)];
        programs[0].learn(10, 1.1);
        let sizes = share_out(&programs, 32);
        assert!(programs[1].strain(sizes[1]) <= 1.0, "{sizes:?}");
    }

    #[test]
    fn what_is_close_to_the_limit_is_measured_again() {
        let mut search = ShareSearch::new(1.10, 3);
        search.note(2, 1.11);
        assert_eq!(search.next(), Some(2));
        search.note(2, 1.08);
        search.note(2, 1.08);
        assert_eq!(search.next(), Some(1), "in the median it was fast enough");
        assert_eq!(search.tried(), [TriedShare { colors: 2, slowdown: 1.08, runs: 3 }]);
    }

    #[test]
    fn a_share_between_two_is_expected_between_them() {
        let mut search = ShareSearch::new(1.1, 16);
        assert!((search.expected(3) - 1.0).abs() < 1e-9);
        for (colors, slowdown) in [(4, 2.0), (8, 1.0), (12, 1.02)] {
            search.note(colors, slowdown);
        }
        for (colors, expected) in [(1, 5.0), (4, 2.0), (6, 1.51), (8, 1.02), (16, 1.02)] {
            assert!((search.expected(colors) - expected).abs() < 1e-9, "{colors}");
        }
    }

    #[test]
    fn what_was_learnt_beside_others_moves_the_shares() {
        let curve = |fits| searched(1.1, 31, |colors| slowdown(fits, 3.0, colors)).0;
        let mut programs = [8, 8].map(|fits| SharingProgram { search: curve(fits), beside: 1.0 });
        assert_eq!(share_out(&programs, 32), [16, 16]);
        programs[0].learn(16, 1.2);
        let sizes = share_out(&programs, 32);
        assert!(sizes[0] > 16 && sizes[1] >= 8, "{sizes:?}");
    }

    proptest! {
        #[test]
        fn limits_that_can_be_kept_are(
            wanted in prop::collection::vec((1_u16..20, 1.2_f64..4.0, 1.02_f64..1.5), 1..5),
            colors in 8_u16..512,
        ) {
            let most = colors + 1 - u16::try_from(wanted.len()).unwrap();
            let programs: Vec<SharingProgram> = wanted
                .iter()
                .map(|&(fits, worst, limit)| {
                    let (search, runs) =
                        searched(limit, most, |colors| slowdown(fits, worst, colors));
                    prop_assert!(runs <= 3 * 10);
                    Ok(SharingProgram { search, beside: 1.0 })
                })
                .collect::<Result<_, TestCaseError>>()?;
            let sizes = share_out(&programs, colors);
            prop_assert_eq!(sizes.iter().sum::<u16>(), colors);
            let needs: Option<Vec<u16>> = programs.iter().map(|p| p.search.need()).collect();
            let fits = needs.is_some_and(|needs| needs.iter().sum::<u16>() <= colors);
            for (size, &(fits_in, worst, limit)) in sizes.iter().zip(&wanted) {
                prop_assert!(!fits || slowdown(fits_in, worst, *size) <= limit + 1e-9);
            }
        }
    }
}
