//! What a cache evicts: which share of a set's lines is gone after 1, 2, 3, 5 times as many others as
//! it has ways were loaded into it. Where the oldest goes first all are gone after one time the ways;
//! few caches work like that, and how much has to be streamed decides what telling colours costs.
//!
//! A page and one of another colour are loaded, pages of the first one's colour are streamed, and both
//! are timed. Shares come from means, so that they hold too where a clock cannot time single lines, and
//! are relative to the page of the other colour, so that what neighbours evict does not count.

use serde::Serialize;

use super::SIGMAS;
use crate::color::probe::ProbeError;
use crate::color::probe::bench::{TimingBench, TimingJob};
use crate::color::probe::classes::ColorClasses;
use crate::color::probe::timing::RoundDesc;
use fastrand::Rng;

/// Times the ways that are streamed.
pub const MULTIPLES: [u32; 4] = [1, 2, 3, 5];
/// Rounds for each, and pauses between that noise ends in as often as not: rounds take turns.
const ROUNDS: usize = 250;
/// Lines of a page that are streamed: few, so that a round is over soon.
const OFFSETS: usize = 12;
/// Times the ways of which surely nothing is left: of 16 ways with random replacement 1 in 160,000.
const SURELY: usize = 12;
/// Latencies count for so many times that of a miss at most: longer ones are interruptions, or had to
/// wait for more than the next level.
const LONGEST: f64 = 1.25;
/// The least by which misses are slower than hits, in ticks per line, to be told apart at all.
const LEAST_TICKS: f64 = 2.0;

/// What is left of a set after so much was streamed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EvictionPoint {
    /// Lines streamed, as multiples of the ways.
    pub times_ways: u32,
    /// Share of lines evicted, 0 to 1.
    pub evicted: f64,
    /// 95 % of such measurements are within this of the truth.
    pub error: f64,
}

/// Latencies of the page whose colour was streamed, and of the other one.
#[derive(Clone, Debug, Default)]
struct Timed {
    own: Vec<f64>,
    other: Vec<f64>,
}

/// Measures the curve of the cache that the classes are of. Multiples for which a class has too few
/// pages are left out.
///
/// # Errors
/// `Stale` if misses cannot be told from hits, and whatever the bench fails of.
pub fn measure(
    bench: &mut dyn TimingBench,
    classes: &ColorClasses,
) -> Result<Vec<EvictionPoint>, ProbeError> {
    let ways = classes.params.ways as usize;
    let mut random = Rng::with_seed(bench.reference_base() ^ 0xd0c);
    let largest = classes.classes.iter().map(Vec::len).max().unwrap_or(0);
    let fits = |times: &u32| *times as usize * ways < largest;
    let multiples: Vec<u32> = MULTIPLES.into_iter().filter(fits).collect();
    let mut timed = vec![Timed::default(); multiples.len()];
    let mut gone = Timed::default();
    for _ in 0..ROUNDS {
        for (times, timed) in multiples.iter().zip(&mut timed) {
            round(bench, classes, (*times as usize * ways, 1), timed, &mut random)?;
        }
        let passes = (SURELY * ways).div_ceil(largest.max(2) - 1) as u32;
        round(bench, classes, (largest - 1, passes), &mut gone, &mut random)?;
    }
    curve(&multiples, &timed, &gone, classes.params.depth)
        .ok_or(ProbeError::Stale { rounds: (ROUNDS * (multiples.len() + 1)) as u64 })
}

/// Streams so many pages of a class, so many times, between loading and timing one of its pages and
/// one of another class.
fn round(
    bench: &mut dyn TimingBench,
    classes: &ColorClasses,
    (pages, passes): (usize, u32),
    timed: &mut Timed,
    random: &mut Rng,
) -> Result<(), ProbeError> {
    let base = bench.reference_base();
    let address = |page: u32| base + u64::from(page) * 4096;
    let all = &classes.classes;
    // A class that has enough pages, and any other.
    let rich: Vec<usize> = (0..all.len()).filter(|&class| all[class].len() > pages).collect();
    let class = rich[random.usize(..rich.len())];
    let other = (class + 1 + random.usize(..all.len() - 1)) % all.len();
    let mut own = all[class].clone();
    random.shuffle(&mut own);
    let mut offsets = classes.params.offsets(random);
    offsets.truncate(OFFSETS.max(2 * classes.params.depth as usize + 1));
    let (here, there) = (own[pages], all[other][random.usize(..all[other].len())]);
    let pages_timed = if random.usize(..2) == 0 { [here, there] } else { [there, here] };
    let job = TimingJob {
        stream: own[..pages].iter().map(|&page| address(page)).collect(),
        rounds: vec![RoundDesc { first: 0, len: pages as u32 }],
        reload: pages_timed.map(|page| address(page) + u64::from(offsets[0])).to_vec(),
        offsets,
        passes,
        prime: true,
        depth: classes.params.depth,
    };
    for (&latency, page) in bench.run(&job)?.latencies.iter().zip(pages_timed) {
        let list = if page == here { &mut timed.own } else { &mut timed.other };
        list.push(f64::from(latency));
    }
    Ok(())
}

/// Shares by means: 0 is a page whose colour was not streamed, 1 one of which surely nothing is left.
/// `None` if the two cannot be told apart.
fn curve(
    multiples: &[u32],
    timed: &[Timed],
    gone: &Timed,
    depth: u32,
) -> Option<Vec<EvictionPoint>> {
    let longest = LONGEST * middle(&gone.own);
    let (missing, missing_error) = mean(&gone.own, longest)?;
    let point = |(&times_ways, timed): (&u32, &Timed)| {
        let (hit, hit_error) = mean(&timed.other, longest)?;
        let (own, own_error) = mean(&timed.own, longest)?;
        let range = missing - hit;
        if range < LEAST_TICKS * f64::from(depth.max(1)) {
            return None;
        }
        let error = [hit_error, own_error, missing_error].iter().map(|e| e * e).sum::<f64>().sqrt();
        let evicted = ((own - hit) / range).clamp(0.0, 1.0);
        Some(EvictionPoint { times_ways, evicted, error: SIGMAS * error / range })
    };
    multiples.iter().zip(timed).map(point).collect()
}

fn middle(latencies: &[f64]) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The mean of latencies that count for `longest` at most, and its standard error.
fn mean(latencies: &[f64], longest: f64) -> Option<(f64, f64)> {
    let n = latencies.len() as f64;
    if latencies.len() < 2 {
        return None;
    }
    let counted = || latencies.iter().map(|ticks| ticks.min(longest));
    let mean = counted().sum::<f64>() / n;
    let variance = counted().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some((mean, (variance / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::super::colors::modelled;
    use super::*;
    use crate::color::probe::model::Replacement;

    /// The evicted shares of a modelled cache of 8 ways.
    fn shares(replacement: Replacement, step: u32, evicted: usize) -> Vec<f64> {
        let (mut model, classes) = modelled(replacement, step);
        model.evicted = evicted;
        let curve = measure(&mut model, &classes).unwrap();
        assert_eq!(curve.iter().map(|p| p.times_ways).collect::<Vec<_>>(), MULTIPLES);
        assert!(curve.iter().all(|p| p.error < 0.15), "{curve:?}");
        curve.iter().map(|p| p.evicted).collect()
    }

    #[test]
    fn the_oldest_goes_first_or_does_not() {
        for step in [1, 26, 36] {
            let oldest = shares(Replacement::Lru, step, 0);
            assert!(oldest.iter().all(|&share| share > 0.95), "{step}: {oldest:?}");
            // Of 8 ways, a line is hit by none of n random choices with (7/8)^n.
            let random = shares(Replacement::Random, step, 0);
            for (share, times) in random.iter().zip(MULTIPLES) {
                let expected = 1.0 - (7.0f64 / 8.0).powi(8 * times as i32);
                assert!((share - expected).abs() < 0.1, "{step}: {random:?} {times}");
            }
        }
    }

    #[test]
    fn what_neighbours_evict_does_not_count() {
        let random = shares(Replacement::Random, 26, 30);
        assert!((random[0] - 0.66).abs() < 0.12 && random[3] > 0.9, "{random:?}");
    }

    #[test]
    fn a_cache_that_shows_nothing_is_told() {
        let (mut model, classes) = modelled(Replacement::Lru, 26);
        model.evicted = 100;
        assert!(matches!(measure(&mut model, &classes), Err(ProbeError::Stale { .. })));
    }

    #[test]
    fn classes_of_few_pages_have_a_shorter_curve() {
        let (mut model, mut classes) = modelled(Replacement::Lru, 26);
        classes.classes.iter_mut().for_each(|class| class.truncate(20));
        let curve = measure(&mut model, &classes).unwrap();
        assert_eq!(curve.iter().map(|p| p.times_ways).collect::<Vec<_>>(), [1, 2]);
    }
}
