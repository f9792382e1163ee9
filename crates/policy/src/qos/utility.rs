//! Division by what colours are worth: the miss rate that a program would have with another number of
//! colours, from how often lines of its pages are found in the cache now, and the division of the cache that
//! is best by these.
//!
//! Che, Tung and Wang (2002): in a cache that throws out what was not used for longest, a line is found with
//! probability 1 - exp(-r T), where r is how often it is used and T how long a line stays, which is the
//! same for all. So what is found tells r T of each page; with another size T is another, such that as many
//! lines are found as fit. Holds for programs that use their memory at random; one that goes round in it
//! has a step where this has a slope, which is why a division is kept only while it turns out well.

use super::Spec;
use crate::coloris::sizes::{Demand, best, price};

/// Of a page: lines looked at, and those of them that were found.
pub type Found = (u32, u32);

/// Weight of what is found of all pages in what is believed of one.
const PRIOR: f64 = 0.5;
/// Kinds of pages that are told apart.
const BINS: usize = 128;
/// Sizes for which rates are calculated, about.
const SIZES: u16 = 64;
/// Halvings of the range in which the factor of T is looked for: to a thousandth.
const HALVINGS: u32 = 16;
/// T is looked for between these times that of now.
const NEAREST: f64 = 1e-6;
const FARTHEST: f64 = 1e6;

/// Miss rates, 0 to 1, with 0 to `universe` colours, of a program that has `now` of them. None where nothing
/// was looked at. Takes time to sort the pages, and a millisecond.
pub fn curve(pages: &[Found], now: u16, universe: u16) -> Option<Vec<f64>> {
    let (looked, found) = pages.iter().fold((0_u64, 0_u64), |(looked, found), page| {
        (looked + u64::from(page.0), found + u64::from(page.1))
    });
    if looked == 0 || now == 0 {
        return None;
    }
    let bins = bins(pages, found as f64 / looked as f64);
    let all: f64 = bins.iter().map(|bin| bin.uses * bin.pages).sum();
    if all <= 0.0 {
        return Some(vec![1.0; usize::from(universe) + 1]);
    }
    let filled = occupied(&bins, 1.0);
    let rate = |colors: u16| {
        let factor = factor_for(&bins, filled * f64::from(colors) / f64::from(now));
        bins.iter().map(|bin| bin.pages * bin.uses * (-bin.uses * factor).exp()).sum::<f64>() / all
    };
    // Between the sizes that are calculated lies a line.
    let step = (universe / SIZES).max(1);
    let known: Vec<f64> = (0..=universe.div_ceil(step)).map(|n| rate(n * step)).collect();
    let between = |colors: u16| {
        let (at, part) = (usize::from(colors / step), f64::from(colors % step) / f64::from(step));
        let next = known.get(at + 1).copied().unwrap_or(known[at]);
        known[at] + part * (next - known[at])
    };
    Some((0..=universe).map(between).collect())
}

/// Pages that are used about as often.
#[derive(Clone, Copy, Debug)]
struct Bin {
    /// r T of each.
    uses: f64,
    pages: f64,
}

/// Pages put together by how often they are used, the same number of them each.
fn bins(pages: &[Found], mean: f64) -> Vec<Bin> {
    let uses = pages.iter().filter(|page| page.0 > 0).map(|&(looked, found)| {
        let share = (f64::from(found) + PRIOR * mean) / (f64::from(looked) + PRIOR);
        -(1.0 - share.min(1.0 - 1e-6)).ln()
    });
    let mut uses: Vec<f64> = uses.collect();
    uses.sort_by(f64::total_cmp);
    let together = |some: &[f64]| {
        let pages = some.len() as f64;
        Bin { uses: some.iter().sum::<f64>() / pages, pages }
    };
    uses.chunks(uses.len().div_ceil(BINS).max(1)).map(together).collect()
}

/// Pages found, if T were so many times what it is.
fn occupied(bins: &[Bin], factor: f64) -> f64 {
    bins.iter().map(|bin| bin.pages * (1.0 - (-bin.uses * factor).exp())).sum()
}

/// The factor with which as many are found as there is room.
fn factor_for(bins: &[Bin], room: f64) -> f64 {
    let (mut low, mut high) = (NEAREST, FARTHEST);
    if occupied(bins, low) >= room {
        return 0.0;
    }
    for _ in 0..HALVINGS {
        // By the mean of their logarithms: factors differ by orders.
        let middle = f64::sqrt(low * high);
        if occupied(bins, middle) < room { low = middle } else { high = middle }
    }
    high
}

/// A group that takes part in a division.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What is asked for it.
    pub spec: &'a Spec,
    /// Its miss rates by the number of colours.
    pub rates: &'a [f64],
    /// Colours that it has.
    pub size: u16,
}

/// A division that is better than the one there is.
#[derive(Clone, Debug, PartialEq)]
pub struct Better {
    /// Colours of each part.
    pub sizes: Vec<u16>,
    /// The share of all misses that is saved, weighed by priorities.
    pub saved: f64,
    /// Upper bounds that hold only then.
    pub mended: u32,
}

/// The best division of `colors` among the parts, if it breaks fewer upper bounds than the one there is, or
/// as many and saves more than `margin` of the misses. A priority is how much a miss weighs. Colours that
/// nobody may have are left over. Takes time in proportion to parts times the square of the colours.
pub fn better(parts: &[Part<'_>], colors: u16, margin: f64) -> Option<Better> {
    let floors: u16 = parts.iter().map(|part| part.spec.floor).sum();
    let count = u16::try_from(parts.len()).ok()?;
    let room = colors.checked_sub(floors)?.checked_add(count)?;
    // One unit of `best` stands for the floor, and each further one for a colour more.
    let demands: Vec<Vec<Demand>> = parts.iter().map(|part| vec![part.demand()]).collect();
    let now: Vec<u16> = parts.iter().map(|part| part.size + 1 - part.spec.floor).collect();
    let (found, old) = (best(&demands, room, 1)?, price(&demands, &now));
    let mended = old.broken.saturating_sub(found.price.broken);
    let saved = if old.misses > 0.0 { 1.0 - found.price.misses / old.misses } else { 0.0 };
    let worth =
        found.price.broken < old.broken || found.price.broken == old.broken && saved > margin;
    let size = |(part, n): (&Part<'_>, &u16)| (n - 1 + part.spec.floor).min(part.spec.ceiling);
    let sizes = parts.iter().zip(&found.colors).map(size).collect();
    worth.then_some(Better { sizes, saved, mended })
}

impl Part<'_> {
    fn demand(&self) -> Demand {
        let last = self.rates.len().saturating_sub(1);
        let ceiling = usize::from(self.spec.ceiling).min(last);
        let floor = usize::from(self.spec.floor).min(ceiling);
        // The place for no unit is never asked for.
        let mut rates = vec![1.0];
        rates.extend_from_slice(self.rates.get(floor..=ceiling).unwrap_or_default());
        let bound = self.spec.bounds.map(|bounds| bounds.high);
        Demand { rates, requests: f64::from(self.spec.priority.max(1)), bound }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bounds;
    use super::*;

    /// A cache that throws out what was not used for longest, under a program that uses its pages with
    /// weights: the share that misses, and per page how often it is there when it is looked at.
    fn simulated(weights: &[f64], room: usize) -> (f64, Vec<Found>) {
        let (mut seed, mut recent): (u64, Vec<usize>) = (1, Vec::new());
        let all: f64 = weights.iter().sum();
        let mut pages = vec![(0_u32, 0_u32); weights.len()];
        let (mut misses, rounds) = (0, 60_000);
        for round in 0..rounds + 5_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut left = (seed >> 11) as f64 / (1_u64 << 53) as f64 * all;
            let used = weights.iter().position(|w| {
                left -= w;
                left < 0.0
            });
            let used = used.unwrap_or(0);
            let at = recent.iter().position(|&page| page == used);
            misses += u32::from(at.is_none() && round >= 5_000);
            match at {
                Some(at) => recent[..=at].rotate_right(1),
                None => {
                    recent.truncate(room - 1);
                    recent.insert(0, used);
                }
            }
            if round >= 5_000 && round % 100 == 0 {
                for (page, seen) in pages.iter_mut().enumerate() {
                    *seen = (seen.0 + 1, seen.1 + u32::from(recent.contains(&page)));
                }
            }
        }
        (f64::from(misses) / f64::from(rounds), pages)
    }

    #[test]
    fn what_is_foretold_comes_true() {
        // A hot set of 40 pages, 80 used less and less, and a colour of ten pages.
        let weights: Vec<f64> =
            (0..120).map(|page| if page < 40 { 1.0 } else { 8.0 / f64::from(page) }).collect();
        let (rate, pages) = simulated(&weights, 50);
        let curve = curve(&pages, 5, 12).unwrap();
        assert!((curve[5] - rate).abs() < 0.03, "{} and {rate}", curve[5]);
        for colors in [2_u16, 4, 8, 11] {
            let (rate, _) = simulated(&weights, usize::from(colors) * 10);
            let foretold = curve[usize::from(colors)];
            assert!((foretold - rate).abs() < 0.06, "{colors}: {foretold} and {rate}");
        }
        assert!(curve.is_sorted_by(|a, b| a >= b) && curve[12] < 0.01, "{curve:?}");
    }

    #[test]
    fn where_nothing_is_found_everything_misses() {
        let curve = super::curve(&[(10, 0), (10, 0)], 4, 8).unwrap();
        assert!(curve.iter().all(|&rate| rate == 1.0), "{curve:?}");
        assert_eq!(super::curve(&[(0, 0)], 4, 8), None);
        assert_eq!(super::curve(&[(4, 2)], 0, 8), None);
    }

    fn spec(floor: u16, ceiling: u16, priority: u8) -> Spec {
        let bounds = Some(Bounds { low: 0.1, high: 0.5 });
        Spec { name: "x".to_owned(), floor, ceiling, priority, bounds, measure: "miss rate" }
    }

    #[test]
    fn colours_go_where_they_are_worth_most() {
        let steep: Vec<f64> = (0..=16).map(|n| 1.0 - f64::from(n) / 20.0).collect();
        let flat = vec![0.4; 17];
        let (one, two) = (spec(1, 16, 1), spec(2, 16, 1));
        let parts = |sizes: [u16; 2]| {
            [
                Part { spec: &one, rates: &steep, size: sizes[0] },
                Part { spec: &two, rates: &flat, size: sizes[1] },
            ]
        };
        let found = better(&parts([8, 8]), 16, 0.05).unwrap();
        assert_eq!((found.sizes, found.mended), (vec![14, 2], 1));
        assert_eq!(better(&parts([14, 2]), 16, 0.05), None);
        let limited = spec(1, 10, 1);
        let mut parts = parts([8, 8]);
        parts[0].spec = &limited;
        let found = better(&parts, 16, 0.01).unwrap();
        assert_eq!(found.sizes[0], 10, "a ceiling");
    }

    #[test]
    fn priorities_weigh() {
        let rates: Vec<f64> = (0..=16).map(|n| 0.4 - f64::from(n) / 60.0).collect();
        let (low, high) = (spec(1, 16, 1), spec(1, 16, 3));
        let parts = [&low, &high].map(|spec| Part { spec, rates: &rates, size: 8 });
        assert_eq!(better(&parts, 16, 0.01).unwrap().sizes, [1, 15]);
    }
}
