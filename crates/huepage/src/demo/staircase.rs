//! The latency staircase: a random walk over growing footprints, in all the colours of the
//! cache and in ever smaller shares of them. Each share is a smaller cache, so its step comes
//! earlier.
//!
//! Shares take turns within a repetition, so that slow periods of the machine hit all alike.

use std::time::Duration;

use serde::Serialize;

use super::Cache;
use super::pool::Pool;
use super::stats::Repeated;
use super::steps::Steps;
use super::walk::Walk;
use crate::exit::CmdError;

/// Footprints as sixteenths of the cache: from well inside to twice its size.
const FOOTPRINTS: [usize; 9] = [1, 2, 4, 6, 8, 12, 16, 24, 32];
const QUICK_FOOTPRINTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Shares of the colours, as divisors.
const SHARES: [u16; 5] = [1, 2, 4, 8, 16];
/// A cell whose quartiles are further apart than this share of its median is unsteady.
const UNSTEADY: f64 = 0.5;
/// A smaller share may be faster than a larger one by this factor before it is a contradiction.
const TOLERANCE: f64 = 0.8;
/// The least effect that counts: half a cache of memory in a quarter of the colours.
const LEAST_EFFECT: f64 = 1.3;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Repetitions.
    pub rounds: usize,
    /// Time for each cell and repetition.
    pub cell: Duration,
    /// Footprints, in sixteenths of the cache.
    pub footprints: &'static [usize],
}

impl Effort {
    /// The effort of a full or of a quick demonstration.
    pub const fn new(quick: bool) -> Effort {
        match quick {
            false => Effort { rounds: 7, cell: Duration::from_millis(55), footprints: &FOOTPRINTS },
            true => {
                let footprints = &QUICK_FOOTPRINTS;
                Effort { rounds: 5, cell: Duration::from_millis(40), footprints }
            }
        }
    }

    /// The planned time.
    pub fn time(&self) -> Duration {
        let cells = self.rounds * self.footprints.len() * SHARES.len();
        self.cell * u32::try_from(cells).unwrap_or(u32::MAX)
    }
}

/// The walks in one share of the colours.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// Colours in the share.
    pub colors: u16,
    /// Nanoseconds per access, for each footprint.
    pub ns: Vec<Repeated>,
}

/// All walks.
#[derive(Clone, Debug, Serialize)]
pub struct Staircase {
    /// Footprints in KiB, ascending.
    pub footprints_kib: Vec<usize>,
    /// Shares, the largest first.
    pub shares: Vec<Share>,
}

/// Measures the staircase of a cache.
///
/// # Errors
/// When the pool lacks pages of a colour.
pub fn measure(
    pool: &mut Pool,
    cache: Cache,
    effort: Effort,
    steps: &Steps,
) -> Result<Staircase, CmdError> {
    steps.say("latency staircase");
    let counts = shares_of(cache.colors);
    let bytes: Vec<usize> = effort.footprints.iter().map(|f| f * cache.bytes / 16).collect();
    let most = bytes.iter().max().copied().unwrap_or(0) / 4096;
    let order = pool.richest_first();
    let pick = |&count: &u16| pool.pick(&order[..usize::from(count)], most);
    let areas = counts.iter().map(pick).collect::<Result<Vec<_>, _>>()?;
    let mut cells = vec![vec![Vec::new(); bytes.len()]; counts.len()];
    for round in 0..effort.rounds {
        for (f, &footprint) in bytes.iter().enumerate() {
            for turn in 0..counts.len() {
                let share = (turn + round) % counts.len();
                let pages = &areas[share][..footprint / 4096];
                let seed = 0x5eed + 2 * round as u64;
                let mut walk = Walk::link(pool.words(), pages, cache.line_bytes / 8, seed);
                cells[share][f].push(walk.measure(effort.cell));
                steps.done(effort.cell);
            }
        }
    }
    let shares = counts.iter().zip(&cells).map(|(&colors, cells)| Share {
        colors,
        ns: cells.iter().map(|reps| Repeated::of(reps)).collect(),
    });
    let footprints_kib = bytes.iter().map(|b| b / 1024).collect();
    Ok(Staircase { footprints_kib, shares: shares.collect() })
}

/// All, half, a quarter, ... of the colours, as far as there are whole colours.
fn shares_of(colors: u16) -> Vec<u16> {
    SHARES.iter().map(|divisor| colors / divisor).filter(|&n| n > 0).collect()
}

impl Staircase {
    /// The cell of a share nearest to a footprint.
    fn near(&self, share: usize, kib: usize) -> Option<f64> {
        let distance = |at: &(usize, &usize)| at.1.abs_diff(kib);
        let (at, _) = self.footprints_kib.iter().enumerate().min_by_key(distance)?;
        Some(self.shares.get(share)?.ns[at].median)
    }

    /// How much slower half a cache of memory is in a quarter of the colours than in all.
    pub fn effect(&self, cache: Cache) -> Option<f64> {
        let half = cache.bytes / 2048;
        Some(self.near(2, half)? / self.near(0, half)?)
    }

    /// Why these figures should not be believed; empty when they may.
    pub fn doubts(&self, cache: Cache) -> Vec<String> {
        let mut doubts = Vec::new();
        let inside = self.inside(cache);
        let cells = || self.shares.iter().flat_map(|s| &s.ns[..inside]);
        let unsteady = cells().filter(|c| c.spread.is_nan() || c.spread > UNSTEADY).count();
        if unsteady * 3 > cells().count() {
            let (all, percent) = (cells().count(), UNSTEADY * 100.0);
            doubts.push(format!(
                "{unsteady} of {all} walks moved by over {percent:.0} % between repetitions"
            ));
        }
        let (wrong, pairs) = self.contradictions(inside);
        if wrong * 10 > pairs {
            doubts.push(format!("{wrong} of {pairs} walks were faster in fewer colours"));
        }
        match self.effect(cache) {
            Some(effect) if effect >= LEAST_EFFECT => {}
            Some(effect) => doubts.push(format!(
                "half a cache of memory is only {effect:.2}x slower in a quarter of the colours"
            )),
            None => doubts.push("the cache has too few colours for a staircase".into()),
        }
        doubts
    }

    /// Footprints that fit the whole cache. Beyond it the next level is measured, which others
    /// share and which is no part of the verdict.
    fn inside(&self, cache: Cache) -> usize {
        self.footprints_kib.iter().filter(|&&kib| kib * 1024 <= cache.bytes).count()
    }

    /// Neighbouring shares in the wrong order, and pairs looked at.
    fn contradictions(&self, inside: usize) -> (usize, usize) {
        let both = |s: &'_ [Share]| -> Vec<(f64, f64)> {
            let medians = |share: &Share| share.ns[..inside].iter().map(|c| c.median).collect();
            let (more, fewer): (Vec<f64>, Vec<f64>) = (medians(&s[0]), medians(&s[1]));
            more.into_iter().zip(fewer).collect()
        };
        let pairs: Vec<(f64, f64)> = self.shares.windows(2).flat_map(both).collect();
        let wrong = pairs.iter().filter(|(more, fewer)| *fewer < more * TOLERANCE).count();
        (wrong, pairs.len())
    }
}

/// Staircases for tests of judgement and of drawing.
#[cfg(test)]
pub mod examples {
    use super::*;

    /// The cache of the examples.
    pub const CACHE: Cache = Cache { bytes: 1 << 20, line_bytes: 64, colors: 16 };

    /// What a good machine shows: 5 ns inside the share, 25 ns outside.
    pub fn ideal() -> Staircase {
        let footprints_kib: Vec<usize> = FOOTPRINTS.iter().map(|f| f * 64).collect();
        let ns = |colors: u16| {
            let inside = |&kib: &usize| (f64::from(colors) * 64.0 / kib as f64).min(1.0);
            let cell = |kib| 25.0 - 20.0 * inside(kib);
            let cells = footprints_kib.iter().map(cell);
            cells.map(|median| Repeated { median, spread: 0.02 }).collect()
        };
        let shares = [16, 8, 4, 2, 1].map(|colors| Share { colors, ns: ns(colors) }).into();
        Staircase { footprints_kib, shares }
    }
}

#[cfg(test)]
mod tests {
    use super::examples::{CACHE, ideal};
    use super::*;

    #[test]
    fn a_clean_staircase_raises_no_doubt() {
        let stairs = ideal();
        assert_eq!(stairs.doubts(CACHE), [""; 0]);
        assert_eq!(stairs.effect(CACHE), Some(3.0));
    }

    #[test]
    fn unsteady_walks_are_doubted() {
        let mut stairs = ideal();
        stairs.shares[..2].iter_mut().flat_map(|s| &mut s.ns).for_each(|c| c.spread = 0.6);
        let doubts = stairs.doubts(CACHE);
        assert!(doubts.len() == 1 && doubts[0].starts_with("14 of 35 walks moved"), "{doubts:?}");
    }

    #[test]
    fn what_lies_beyond_the_cache_is_no_reason_for_doubt() {
        let mut stairs = ideal();
        stairs.shares.iter_mut().flat_map(|s| &mut s.ns[7..]).for_each(|c| c.spread = 3.0);
        assert_eq!(stairs.doubts(CACHE), [""; 0]);
    }

    #[test]
    fn a_contradictory_order_is_doubted() {
        let mut stairs = ideal();
        stairs.shares.swap(0, 4);
        let doubts = stairs.doubts(CACHE);
        assert!(doubts.iter().any(|d| d.contains("faster in fewer")), "{doubts:?}");
    }

    #[test]
    fn a_flat_staircase_is_no_proof() {
        let mut stairs = ideal();
        stairs.shares.iter_mut().flat_map(|s| &mut s.ns).for_each(|c| c.median = 5.0);
        let doubts = stairs.doubts(CACHE);
        assert!(doubts.len() == 1 && doubts[0].contains("only 1.00x"), "{doubts:?}");
    }

    #[test]
    fn every_share_and_footprint_is_measured() {
        let cache = Cache { bytes: 1 << 16, line_bytes: 64, colors: 8 };
        let (cell, footprints) = (Duration::from_micros(50), &QUICK_FOOTPRINTS);
        let effort = Effort { rounds: 2, cell, footprints };
        let stairs = measure(&mut Pool::plain(8, 512), cache, effort, &Steps::hidden()).unwrap();
        let counts: Vec<u16> = stairs.shares.iter().map(|s| s.colors).collect();
        assert_eq!(counts, [8, 4, 2, 1]);
        assert_eq!(stairs.footprints_kib, [4, 8, 16, 32, 64, 128]);
        assert!(stairs.shares.iter().flat_map(|s| &s.ns).all(|c| c.median > 0.0));
    }
}
