//! A hot set walked beside a stream, in turns on one CPU. Unconfined, both use all colours
//! and the stream washes the hot set out of the cache; confined, the stream has one colour
//! and the hot set the others.
//!
//! The two settings alternate, and each repetition gives one ratio of its own.

use std::time::Duration;

use serde::Serialize;

use super::DemoCache;
use super::lab::{Lab, Limits, repeat, too_few};
use super::stats::Repeated;
use crate::exit::CmdError;
use crate::steps::Steps;

/// The least ratio that counts as an effect.
const LEAST_EFFECT: f64 = 1.5;
/// Time for each setting in each repetition: short, so that the two of a pair meet the same noise.
const RUN: Duration = Duration::from_millis(100);

/// What the hot set felt.
#[derive(Clone, Debug, Serialize)]
pub struct HotSet {
    /// Footprint of the hot set in KiB.
    pub hot_kib: usize,
    /// Footprint of the stream in KiB.
    pub stream_kib: usize,
    /// Nanoseconds per access of the hot set, nothing confined.
    pub unconfined_ns: Repeated,
    /// The same with the stream in one colour and the hot set in the others.
    pub confined_ns: Repeated,
    /// How much faster the hot set is when the stream is confined.
    pub ratio: Repeated,
    /// Repetitions in which it was faster at all.
    pub faster: usize,
    /// Repetitions.
    pub rounds: usize,
}

/// One setting: the hot set's pages and the stream's.
struct Pair {
    hot: Vec<usize>,
    stream: Vec<usize>,
}

/// Measures with half a cache of hot set and a whole cache of stream.
///
/// # Errors
/// When the pool lacks pages of a colour.
pub fn measure(
    lab: &mut dyn Lab,
    cache: DemoCache,
    limits: Limits,
    steps: &Steps,
) -> Result<HotSet, CmdError> {
    steps.say("hot set beside a stream");
    let pages = cache.bytes / 4096;
    let colors = lab.richest_first();
    let mut all = lab.pick(&colors, pages / 2 + pages)?;
    let free = Pair { stream: all.split_off(pages / 2), hot: all };
    let confined =
        Pair { hot: lab.pick(&colors[1..], pages / 2)?, stream: lab.pick(&colors[..1], pages)? };
    let round = |lab: &mut dyn Lab, round: usize| {
        steps.show();
        let mut run = |pair: &Pair| {
            lab.walk_beside(&pair.hot, &pair.stream, 0x000b_e51d + 2 * round as u64, RUN)
        };
        // Each setting goes first in every other repetition.
        let early = (round % 2 == 1).then(|| run(&confined));
        let without = run(&free);
        Some((without, early.unwrap_or_else(|| run(&confined))))
    };
    let convincing = |pairs: &[_]| HotSet::of(cache, pairs).doubts().is_empty();
    Ok(HotSet::of(cache, &repeat(lab, limits, round, convincing)))
}

impl HotSet {
    /// Sums pairs of (unconfined, confined) nanoseconds up.
    fn of(cache: DemoCache, pairs: &[(f64, f64)]) -> HotSet {
        let ratios: Vec<f64> = pairs.iter().map(|(without, with)| without / with).collect();
        let (without, with): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        HotSet {
            hot_kib: cache.bytes / 2048,
            stream_kib: cache.bytes / 1024,
            unconfined_ns: Repeated::of(&without),
            confined_ns: Repeated::of(&with),
            ratio: Repeated::of(&ratios),
            faster: ratios.iter().filter(|&&r| r > 1.0).count(),
            rounds: pairs.len(),
        }
    }

    /// Why the ratio should not be believed; empty when it may.
    pub fn doubts(&self) -> Vec<String> {
        if let Some(why) = too_few(self.rounds) {
            return vec![why];
        }
        let mut doubts = Vec::new();
        if self.faster * 4 < self.rounds * 3 {
            let (faster, rounds) = (self.faster, self.rounds);
            doubts.push(format!("the hot set gained in only {faster} of {rounds} repetitions"));
        }
        if self.ratio.median.is_nan() || self.ratio.median < LEAST_EFFECT {
            let ratio = self.ratio.median;
            doubts.push(format!("confining the stream changed the hot set by only {ratio:.2}x"));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::super::lab::model::{CACHE, ModelLab};
    use super::*;

    #[test]
    fn a_steady_gain_raises_no_doubt() {
        let beside = HotSet::of(CACHE, &[(25.0, 8.0), (26.0, 8.0), (24.0, 7.5), (25.0, 8.1)]);
        assert_eq!(beside.doubts(), [""; 0]);
        assert!((beside.ratio.median - 3.2).abs() < 0.1);
        assert_eq!((beside.hot_kib, beside.stream_kib), (512, 1024));
    }

    #[test]
    fn no_gain_and_contradictory_gains_are_doubted() {
        let flat = HotSet::of(CACHE, &[(8.0, 8.0); 4]).doubts();
        assert!(flat.iter().any(|d| d.contains("only 1.00x")), "{flat:?}");
        let wild = HotSet::of(CACHE, &[(25.0, 8.0), (8.0, 25.0), (30.0, 4.0), (8.0, 20.0)]);
        let doubts = wild.doubts();
        assert!(doubts.iter().any(|d| d.contains("only 2 of 4")), "{doubts:?}");
    }

    #[test]
    fn fast_and_slow_processors_show_the_gain_in_the_same_time() {
        for slowness in [0.1, 1.0, 10.0] {
            let mut lab = ModelLab::new(slowness);
            let [aim, until] = [6, 9].map(Duration::from_secs);
            let found = measure(&mut lab, CACHE, Limits { aim, until }, &Steps::hidden()).unwrap();
            assert_eq!(found.doubts(), [""; 0], "{slowness}");
            assert!((4.0..7.0).contains(&found.ratio.median), "{slowness}: {found:?}");
            assert!((6..9).contains(&lab.now().as_secs()), "{slowness}: {:?}", lab.now());
        }
    }

    #[test]
    fn where_there_is_no_gain_it_is_looked_for_until_the_time_is_up() {
        let mut lab = ModelLab::new(1.0);
        lab.has_colors = false;
        let [aim, until] = [2, 4].map(Duration::from_secs);
        let found = measure(&mut lab, CACHE, Limits { aim, until }, &Steps::hidden()).unwrap();
        assert!(found.doubts().iter().any(|d| d.contains("by only 1.0")), "{:?}", found.doubts());
        assert_eq!(lab.now().as_secs(), 4);
    }
}
