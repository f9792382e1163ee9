//! Latency targets: a random pointer walk over a footprint, and a stream.
//!
//! The walk is one cycle through every cache line of its footprint in random order, timed lap
//! by lap; the stream reads its footprint from end to end. Two processes can take turns on
//! one CPU through a pair of named pipes, so that a stream pollutes the cache once per lap
//! of the walk, as a program with a hot set and a stream does. Neither checks its data.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::mix::Rng;
use crate::sys::{self, MappedMemory};

/// 64-bit words of a cache line.
pub(crate) const LINE: usize = 8;

/// What both targets can be told.
#[derive(Args, Clone, Debug)]
pub struct WalkOptions {
    /// Footprint in KiB (a multiple of 4)
    #[arg(long, default_value_t = 512)]
    pub kib: usize,
    /// Seconds to measure
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Laps to measure, however long they take, in place of seconds
    #[arg(long, conflicts_with = "seconds")]
    pub laps: Option<usize>,
    /// Seconds to run before measuring
    #[arg(long, default_value_t = 0.5)]
    pub settle: f64,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Leave it to the kernel and to huepage how large pages are: else they have 4 KiB
    #[arg(long)]
    pub any_pages: bool,
    /// Named pipe that gives this process its turn
    #[arg(long, requires = "turn_out")]
    pub turn_in: Option<PathBuf>,
    /// Named pipe that gives the other process its turn
    #[arg(long, requires = "turn_in")]
    pub turn_out: Option<PathBuf>,
}

/// Nanoseconds per access over the laps of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Footprint in KiB.
    pub kib: usize,
    /// Laps measured.
    pub laps: usize,
    /// The lap that a tenth of all laps were faster than.
    pub p10: f64,
    /// The median lap.
    pub p50: f64,
    /// The lap that nine tenths of all laps were faster than.
    pub p90: f64,
    /// The lap that 99 in 100 laps were faster than.
    pub p99: f64,
    /// CPU time of the process for an access, of all of these laps: what others take is not in it.
    pub cpu: f64,
}

/// Links every line of `area` into one random cycle: each line's first word holds the
/// number of the next line's first word.
pub(crate) fn link(area: &MappedMemory, rng: &mut Rng) {
    let words = area.words();
    let mut order: Vec<usize> = (0..words.len() / LINE).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.usize(..last + 1));
    }
    for (at, line) in order.iter().enumerate() {
        let next = order[(at + 1) % order.len()] * LINE;
        words[line * LINE].store(next as u64, Relaxed);
    }
}

/// Follows the cycle once from `start`; gives where it ended.
pub(crate) fn lap(area: &MappedMemory, start: usize) -> usize {
    let words = area.words();
    let mut at = start;
    for _ in 0..words.len() / LINE {
        // Line numbers always fit: they were made from a usize.
        at = usize::try_from(words[at].load(Relaxed)).unwrap_or(0);
    }
    at
}

/// The two pipes; both processes hold one of them each way.
struct Turns {
    give: File,
    take: File,
}

impl Turns {
    /// Opens both; waits for the other process. The walker gives the first turn.
    fn open(options: &WalkOptions, first: bool) -> io::Result<Option<Turns>> {
        let (Some(take), Some(give)) = (&options.turn_in, &options.turn_out) else {
            return Ok(None);
        };
        let give_end = || File::options().write(true).open(give);
        // Opening blocks until the other end is open, so the two must go in opposite order.
        let (give, take) = if first {
            let give = give_end()?;
            (give, File::open(take)?)
        } else {
            let take = File::open(take)?;
            (give_end()?, take)
        };
        Ok(Some(Turns { give, take }))
    }

    fn give(&mut self) -> io::Result<()> {
        self.give.write_all(b"!")
    }

    /// Waits for the turn; false when the other process has ended.
    fn wait(&mut self) -> io::Result<bool> {
        Ok(self.take.read(&mut [0])? == 1)
    }
}

fn prepare(options: &WalkOptions) -> io::Result<MappedMemory> {
    if let Some(cpu) = options.cpu {
        sys::pin(cpu)?;
    }
    let area = MappedMemory::private((options.kib / 4).max(1))?;
    if !options.any_pages {
        area.advise(0..area.pages(), libc::MADV_NOHUGEPAGE)?;
    }
    Ok(area)
}

/// The walk: settles, then measures.
///
/// # Errors
/// When memory, the CPU or the pipes cannot be had.
pub fn walk(options: &WalkOptions) -> io::Result<Latency> {
    let area = prepare(options)?;
    link(&area, &mut Rng::with_seed(5));
    let mut turns = Turns::open(options, true)?;
    let settled = Instant::now() + Duration::from_secs_f64(options.settle);
    let end = settled + Duration::from_secs_f64(options.seconds);
    let (mut laps, mut at, mut cpu) = (Vec::new(), 0, 0.0);
    loop {
        if let Some(turns) = &mut turns {
            turns.give()?;
            if !turns.wait()? {
                break;
            }
        }
        let (started, own) = (Instant::now(), sys::thread_cpu());
        at = lap(&area, at);
        let took = started.elapsed();
        if started >= settled {
            cpu += (sys::thread_cpu() - own).as_secs_f64();
            laps.push(took.as_secs_f64() * 1e9 / (area.words().len() / LINE) as f64);
        }
        let done = options.laps.map_or(started + took >= end, |most| laps.len() >= most);
        if done {
            break;
        }
    }
    std::hint::black_box(at);
    let accesses = laps.len() * (area.words().len() / LINE);
    Ok(latency(options.kib, laps, cpu * 1e9 / accesses as f64))
}

fn latency(kib: usize, mut laps: Vec<f64>, cpu: f64) -> Latency {
    laps.sort_by(f64::total_cmp);
    let at = |per_mille: usize| {
        laps.get((laps.len() * per_mille / 1000).min(laps.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    let [p10, p50, p90, p99] = [100, 500, 900, 990].map(at);
    Latency { kib, laps: laps.len(), p10, p50, p90, p99, cpu }
}

/// The stream: one pass per turn, or pass after pass; gives the number of passes.
///
/// # Errors
/// As for [`walk`].
pub fn stream(options: &WalkOptions) -> io::Result<u64> {
    let area = prepare(options)?;
    area.words().iter().step_by(LINE).for_each(|word| word.store(1, Relaxed));
    let mut turns = Turns::open(options, false)?;
    let end = Instant::now() + Duration::from_secs_f64(options.settle + options.seconds);
    let (mut passes, mut sum) = (0, 0u64);
    loop {
        let go_on = match &mut turns {
            Some(turns) => turns.wait()?,
            None => Instant::now() < end,
        };
        if !go_on {
            break;
        }
        let words = area.words().iter().step_by(LINE);
        sum += words.map(|word| word.load(Relaxed)).sum::<u64>();
        passes += 1;
        // The walker may have ended just now; the next wait will tell.
        if turns.as_mut().is_some_and(|turns| turns.give().is_err()) {
            break;
        }
    }
    std::hint::black_box(sum);
    Ok(passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_visits_every_line_once() {
        let area = MappedMemory::private(3).unwrap();
        link(&area, &mut Rng::with_seed(1));
        let (mut seen, mut at) = (vec![false; 3 * 64], 0);
        for _ in 0..seen.len() {
            assert!(!std::mem::replace(&mut seen[at / LINE], true));
            at = usize::try_from(area.words()[at].load(Relaxed)).unwrap();
        }
        assert_eq!(at, 0);
        assert_eq!(lap(&area, 0), 0);
    }

    #[test]
    fn percentiles_are_laps() {
        let latency = latency(4, (1..=100).map(f64::from).collect(), 50.0);
        assert_eq!((latency.p10, latency.p50, latency.p99), (11.0, 51.0, 100.0));
    }
}
