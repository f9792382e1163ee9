//! The latency staircase: a random walk over growing footprints, in all the colours of the
//! cache and in ever smaller shares of them. Each share is a smaller cache, so its step comes
//! earlier.
//!
//! Shares take turns within a repetition, so that slow periods of the machine hit all alike.

use std::time::Duration;

use serde::Serialize;

use super::DemoCache;
use super::lab::{Lab, Limits, repeat, too_few};
use super::stats::Repeated;
use crate::exit::CmdError;
use crate::steps::Steps;

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
/// The share whose effect is told: a quarter.
const QUARTER: usize = 2;

/// How much is measured in a round.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Time for each walk.
    pub cell: Duration,
    /// Footprints, in sixteenths of the cache.
    pub footprints: &'static [usize],
}

impl Effort {
    /// The effort of a full or of a quick demonstration.
    pub const fn new(quick: bool) -> Effort {
        let footprints: &[usize] = if quick { &QUICK_FOOTPRINTS } else { &FOOTPRINTS };
        Effort { cell: Duration::from_millis(30), footprints }
    }
}

/// The walks in one share of the colours.
#[derive(Clone, Debug, Serialize)]
pub struct WalkedShare {
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
    pub shares: Vec<WalkedShare>,
    /// How much slower half a cache of memory is in a quarter of the colours than in all, where
    /// there are as many shares.
    pub effect: Option<Repeated>,
    /// Repetitions in which it was slower at all.
    pub slower: usize,
    /// Repetitions.
    pub rounds: usize,
}

/// Nanoseconds per access of one round, by share and footprint.
type Round = Vec<Vec<f64>>;

/// Measures the staircase of a cache.
///
/// # Errors
/// When the pool lacks pages of a colour.
pub fn measure(
    lab: &mut dyn Lab,
    cache: DemoCache,
    effort: Effort,
    limits: Limits,
    steps: &Steps,
) -> Result<Staircase, CmdError> {
    steps.say("latency staircase");
    let counts = shares_of(cache.colors);
    let pages: Vec<usize> = effort.footprints.iter().map(|f| f * cache.bytes / 16 / 4096).collect();
    let most = pages.iter().max().copied().unwrap_or(0);
    let order = lab.richest_first();
    let pick = |&count: &u16| lab.pick(&order[..usize::from(count)], most);
    let areas = counts.iter().map(pick).collect::<Result<Vec<_>, _>>()?;
    let round = |lab: &mut dyn Lab, round: usize| {
        steps.show();
        let mut cells = vec![Vec::new(); areas.len()];
        for &footprint in &pages {
            for turn in 0..areas.len() {
                if lab.now() >= limits.until {
                    return None;
                }
                let share = (turn + round) % areas.len();
                let seed = 0x5eed + 2 * round as u64;
                cells[share].push(lab.walk(&areas[share][..footprint], seed, effort.cell));
            }
        }
        Some(cells)
    };
    let summed = |rounds: &[Round]| Staircase::of(cache, &counts, &pages, rounds);
    let rounds = repeat(lab, limits, round, |rounds| summed(rounds).doubts(cache).is_empty());
    Ok(summed(&rounds))
}

/// All, half, a quarter, ... of the colours, as far as there are whole colours.
fn shares_of(colors: u16) -> Vec<u16> {
    SHARES.iter().map(|divisor| colors / divisor).filter(|&n| n > 0).collect()
}

impl Staircase {
    /// Sums rounds up.
    fn of(cache: DemoCache, counts: &[u16], pages: &[usize], rounds: &[Round]) -> Staircase {
        let cell = |share: usize, at: usize| {
            let all: Vec<f64> = rounds.iter().map(|round| round[share][at]).collect();
            Repeated::of(&all)
        };
        let shares = counts.iter().enumerate().map(|(share, &colors)| WalkedShare {
            colors,
            ns: (0..pages.len()).map(|at| cell(share, at)).collect(),
        });
        let half = nearest(pages, cache.bytes / 4096 / 2);
        let ratio = |round: &Round| Some(round.get(QUARTER)?[half] / round[0][half]);
        let ratios: Vec<f64> = rounds.iter().filter_map(ratio).collect();
        Staircase {
            footprints_kib: pages.iter().map(|pages| pages * 4).collect(),
            shares: shares.collect(),
            effect: (counts.len() > QUARTER).then(|| Repeated::of(&ratios)),
            slower: ratios.iter().filter(|&&ratio| ratio > 1.0).count(),
            rounds: rounds.len(),
        }
    }

    /// Why these figures should not be believed; empty when they may.
    pub fn doubts(&self, cache: DemoCache) -> Vec<String> {
        if let Some(why) = too_few(self.rounds) {
            return vec![why];
        }
        let Some(effect) = self.effect else {
            return vec!["the cache has too few colours for a staircase".into()];
        };
        let mut doubts = Vec::new();
        let (wrong, pairs) = self.contradictions(self.inside(cache));
        if wrong * 10 > pairs {
            doubts.push(format!("{wrong} of {pairs} walks were faster in fewer colours"));
        }
        let (slower, rounds) = (self.slower, self.rounds);
        if slower * 4 < rounds * 3 {
            doubts.push(format!(
                "half a cache of memory was slower in a quarter of the colours in {slower} of \
                 {rounds} repetitions"
            ));
        }
        if effect.median.is_nan() || effect.median < LEAST_EFFECT {
            doubts.push(format!(
                "half a cache of memory is only {:.2}x slower in a quarter of the colours",
                effect.median
            ));
        }
        doubts
    }

    /// What a reader should know of figures that may be believed; nothing if they were steady.
    pub fn remark(&self, cache: DemoCache) -> Option<String> {
        let cells = || self.shares.iter().flat_map(|s| &s.ns[..self.inside(cache)]);
        let unsteady = cells().filter(|c| c.spread.is_nan() || c.spread > UNSTEADY).count();
        let (all, percent) = (cells().count(), UNSTEADY * 100.0);
        let what =
            || format!("a busy machine: {unsteady} of {all} walks varied by over {percent:.0} %");
        (unsteady * 3 > all).then(what)
    }

    /// Footprints that fit the whole cache. Beyond it the next level is measured, which others
    /// share and which is no part of the verdict.
    fn inside(&self, cache: DemoCache) -> usize {
        self.footprints_kib.iter().filter(|&&kib| kib * 1024 <= cache.bytes).count()
    }

    /// Neighbouring shares in the wrong order, and pairs looked at.
    fn contradictions(&self, inside: usize) -> (usize, usize) {
        let both = |s: &'_ [WalkedShare]| -> Vec<(f64, f64)> {
            let medians =
                |share: &WalkedShare| share.ns[..inside].iter().map(|c| c.median).collect();
            let (more, fewer): (Vec<f64>, Vec<f64>) = (medians(&s[0]), medians(&s[1]));
            more.into_iter().zip(fewer).collect()
        };
        let pairs: Vec<(f64, f64)> = self.shares.windows(2).flat_map(both).collect();
        let wrong = pairs.iter().filter(|(more, fewer)| *fewer < more * TOLERANCE).count();
        (wrong, pairs.len())
    }
}

/// Where the number nearest to `wanted` is.
fn nearest(numbers: &[usize], wanted: usize) -> usize {
    let near = |&at: &usize| numbers[at].abs_diff(wanted);
    (0..numbers.len()).min_by_key(near).unwrap_or(0)
}

/// Staircases for tests of judgement and of drawing.
#[cfg(test)]
pub mod examples {
    use super::*;

    /// What a good machine shows: 5 ns inside the share, 25 ns outside.
    pub fn ideal() -> Staircase {
        let footprints_kib: Vec<usize> = FOOTPRINTS.iter().map(|f| f * 64).collect();
        let ns = |colors: u16| {
            let inside = |&kib: &usize| (f64::from(colors) * 64.0 / kib as f64).min(1.0);
            let cell = |kib| 25.0 - 20.0 * inside(kib);
            let cells = footprints_kib.iter().map(cell);
            cells.map(|median| Repeated { median, spread: 0.02 }).collect()
        };
        let shares = [16, 8, 4, 2, 1].map(|colors| WalkedShare { colors, ns: ns(colors) }).into();
        let effect = Some(Repeated { median: 3.0, spread: 0.1 });
        Staircase { footprints_kib, shares, effect, slower: 7, rounds: 7 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lab::model::{CACHE, ModelLab};
    use super::examples::ideal;
    use super::*;

    #[test]
    fn a_clean_staircase_raises_no_doubt() {
        let stairs = ideal();
        assert_eq!((stairs.doubts(CACHE), stairs.remark(CACHE)), (vec![], None));
    }

    #[test]
    fn unsteady_walks_are_remarked_upon() {
        let mut stairs = ideal();
        stairs.shares[..2].iter_mut().flat_map(|s| &mut s.ns).for_each(|c| c.spread = 0.6);
        let remark = stairs.remark(CACHE).unwrap();
        assert!(remark.contains("14 of 35 walks"), "{remark}");
        assert_eq!(stairs.doubts(CACHE), [""; 0]);
    }

    #[test]
    fn what_lies_beyond_the_cache_is_not_remarked_upon() {
        let mut stairs = ideal();
        stairs.shares.iter_mut().flat_map(|s| &mut s.ns[7..]).for_each(|c| c.spread = 3.0);
        assert_eq!(stairs.remark(CACHE), None);
    }

    #[test]
    fn a_contradictory_order_is_doubted() {
        let mut stairs = ideal();
        stairs.shares.swap(0, 4);
        let doubts = stairs.doubts(CACHE);
        assert!(doubts.iter().any(|d| d.contains("faster in fewer")), "{doubts:?}");
    }

    #[test]
    fn small_rare_and_few_effects_are_doubted() {
        let doubts = |change: fn(&mut Staircase)| {
            let mut stairs = ideal();
            change(&mut stairs);
            stairs.doubts(CACHE).concat()
        };
        let flat = |s: &mut Staircase| s.effect = Some(Repeated { median: 1.0, spread: 0.0 });
        assert!(doubts(flat).contains("only 1.00x"));
        assert!(doubts(|s| s.slower = 4).contains("in 4 of 7"));
        assert!(doubts(|s| s.rounds = 2).contains("only 2 of 3"));
        assert!(doubts(|s| s.effect = None).contains("too few colours"));
    }

    /// A full measurement on a modelled processor, and when it was over.
    fn measured(mut lab: ModelLab, seconds: [u64; 2]) -> (Staircase, Duration) {
        let [aim, until] = seconds.map(Duration::from_secs);
        let (limits, steps) = (Limits { aim, until }, Steps::hidden());
        let found = measure(&mut lab, CACHE, Effort::new(false), limits, &steps).unwrap();
        (found, lab.now())
    }

    #[test]
    fn processors_ten_times_slower_and_faster_take_the_same_time() {
        for slowness in [0.1, 1.0, 10.0] {
            let (stairs, over) = measured(ModelLab::new(slowness), [12, 20]);
            assert_eq!(stairs.doubts(CACHE), [""; 0], "{slowness}");
            let effect = stairs.effect.unwrap().median;
            assert!((2.0..5.0).contains(&effect), "{slowness}: {effect}");
            assert!((12..20).contains(&over.as_secs()), "{slowness}: {over:?}");
        }
    }

    #[test]
    fn what_takes_too_long_or_shows_nothing_ends_in_time() {
        let (stairs, over) = measured(ModelLab::new(1000.0), [12, 20]);
        assert!(stairs.doubts(CACHE)[0].contains("repetitions fitted"), "{stairs:?}");
        // No walk begins when the time is up, and none takes longer than four laps.
        assert!(over < Duration::from_secs(24), "{over:?}");
        let mut flat = ModelLab::new(1.0);
        flat.has_colors = false;
        let (stairs, over) = measured(flat, [12, 20]);
        assert!(stairs.doubts(CACHE).concat().contains("only 1.0"), "{:?}", stairs.doubts(CACHE));
        assert!((20..21).contains(&over.as_secs()), "in doubt it takes all the time: {over:?}");
    }
}
