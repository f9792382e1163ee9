//! A hot set walked beside a stream, in turns on one CPU. Unconfined, both use all colours
//! and the stream washes the hot set out of the cache; confined, the stream has one colour
//! and the hot set the others.
//!
//! The two settings alternate, and each repetition gives one ratio of its own.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Cache;
use super::pool::Pool;
use super::stats::{Repeated, median};
use super::steps::Steps;
use super::walk::{Walk, stream};
use crate::exit::CmdError;

/// Ratios whose quartiles are further apart than this share of their median are unsteady.
const UNSTEADY: f64 = 0.5;
/// The least ratio that counts as an effect.
const LEAST_EFFECT: f64 = 1.2;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Repetitions of both settings.
    pub rounds: usize,
    /// Time for each.
    pub run: Duration,
}

impl Effort {
    /// The effort of a full or of a quick demonstration.
    pub const fn new(quick: bool) -> Effort {
        let rounds = if quick { 7 } else { 15 };
        Effort { rounds, run: Duration::from_millis(250) }
    }

    /// The planned time.
    pub fn time(&self) -> Duration {
        self.run * u32::try_from(2 * self.rounds).unwrap_or(u32::MAX)
    }
}

/// What the hot set felt.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
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
    pool: &mut Pool,
    cache: Cache,
    effort: Effort,
    steps: &Steps,
) -> Result<Beside, CmdError> {
    steps.say("hot set beside a stream");
    let pages = cache.bytes / 4096;
    let colors = pool.richest_first();
    let mut all = pool.pick(&colors, pages / 2 + pages)?;
    let free = Pair { stream: all.split_off(pages / 2), hot: all };
    let confined =
        Pair { hot: pool.pick(&colors[1..], pages / 2)?, stream: pool.pick(&colors[..1], pages)? };
    let mut pairs = Vec::new();
    for round in 0..effort.rounds {
        let early = (round % 2 == 1).then(|| run(pool, &confined, cache, effort, round));
        let without = run(pool, &free, cache, effort, round);
        let with = early.unwrap_or_else(|| run(pool, &confined, cache, effort, round));
        pairs.push((without, with));
        steps.done(effort.run * 2);
    }
    Ok(Beside::of(cache, &pairs))
}

/// The median lap of the hot set, the stream read once before each.
fn run(pool: &mut Pool, pair: &Pair, cache: Cache, effort: Effort, round: usize) -> f64 {
    let (words, line_words) = (pool.words(), cache.line_bytes / 8);
    let mut walk = Walk::link(words, &pair.hot, line_words, 0x000b_e51d + 2 * round as u64);
    walk.lap();
    let (end, mut laps) = (Instant::now() + effort.run, Vec::new());
    while laps.is_empty() || Instant::now() < end {
        stream(walk.words(), &pair.stream, line_words);
        laps.push(walk.timed_lap());
    }
    median(&laps)
}

impl Beside {
    /// Sums pairs of (unconfined, confined) nanoseconds up.
    fn of(cache: Cache, pairs: &[(f64, f64)]) -> Beside {
        let ratios: Vec<f64> = pairs.iter().map(|(without, with)| without / with).collect();
        let (without, with): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        Beside {
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
        let mut doubts = Vec::new();
        if self.faster * 4 < self.rounds * 3 {
            let (faster, rounds) = (self.faster, self.rounds);
            doubts.push(format!("the hot set gained in only {faster} of {rounds} repetitions"));
        }
        if self.ratio.spread.is_nan() || self.ratio.spread > UNSTEADY {
            let percent = self.ratio.spread * 100.0;
            doubts.push(format!("the hot set's gain moved by {percent:.0} % between repetitions"));
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
    use super::super::staircase::examples::CACHE;
    use super::*;

    #[test]
    fn a_steady_gain_raises_no_doubt() {
        let beside = Beside::of(CACHE, &[(25.0, 8.0), (26.0, 8.0), (24.0, 7.5), (25.0, 8.1)]);
        assert_eq!(beside.doubts(), [""; 0]);
        assert!((beside.ratio.median - 3.2).abs() < 0.1);
        assert_eq!((beside.hot_kib, beside.stream_kib), (512, 1024));
    }

    #[test]
    fn no_gain_and_contradictory_gains_are_doubted() {
        let flat = Beside::of(CACHE, &[(8.0, 8.0); 4]).doubts();
        assert!(flat.iter().any(|d| d.contains("only 1.00x")), "{flat:?}");
        let wild = Beside::of(CACHE, &[(25.0, 8.0), (8.0, 25.0), (30.0, 4.0), (8.0, 20.0)]);
        let doubts = wild.doubts();
        assert!(doubts.iter().any(|d| d.contains("only 2 of 4")), "{doubts:?}");
        assert!(doubts.iter().any(|d| d.contains("moved by")), "{doubts:?}");
    }

    #[test]
    fn both_settings_are_measured() {
        let cache = Cache { bytes: 1 << 16, line_bytes: 64, colors: 4 };
        let effort = Effort { rounds: 3, run: Duration::from_micros(500) };
        let beside = measure(&mut Pool::plain(4, 128), cache, effort, &Steps::hidden()).unwrap();
        assert_eq!(beside.rounds, 3);
        assert!(beside.confined_ns.median > 0.0 && beside.unconfined_ns.median > 0.0);
    }
}
