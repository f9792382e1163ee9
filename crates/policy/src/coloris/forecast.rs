//! What other sizes are worth: the miss rate that a program would have with another number of colours, from
//! how often lines of its pages are found in the cache now.
//!
//! Che, Tung and Wang (2002): in a cache that throws out what was not used for longest, a line is found with
//! probability 1 - exp(-r T), where r is how often it is used and T how long a line stays, which is the
//! same for all. So what is found tells r T of each page; with another size T is another, such that as many
//! lines are found as fit. Holds for programs that use their memory at random; one that goes round in it
//! has a step where this has a slope, which is why a division is kept only while it turns out well.

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

#[cfg(test)]
mod tests {
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
}
