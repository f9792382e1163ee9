//! What the benchmark of conflict recolouring runs: a walk over lines that are used again and again, or
//! a scan of lines that are not. Every visit of a line is counted in the line, and in the end all counts
//! are compared with the visits made, so that no store can get lost unseen. Where its pages lie is
//! for others to say; nothing here knows huepage.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::mix::{Rng, pattern};
use crate::superpages::pace::Pace;
use crate::sys::{self, MappedMemory};

/// Words of a line, and of them: the next line, visits, and what never changes.
const LINE: usize = 8;
const NEXT: usize = 0;
const VISITS: usize = 1;
const FIXED: usize = 2;
/// Lines visited between two looks at the clock.
const BATCH: usize = 1 << 14;

/// What the program can be told.
#[derive(Args, Clone, Copy, Debug)]
pub struct ConflictOptions {
    /// KiB of the cache that sizes are multiples of
    #[arg(long, default_value_t = 2048)]
    pub cache_kib: usize,
    /// Memory in use, in times of the cache [default: 0.5 for hot, 3 for large, 16 for stream]
    #[arg(long)]
    pub times: Option<f64>,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// What it says when it has its memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ConflictReady {
    /// Its process.
    pub ready: u32,
    /// Where its memory is: first address, and one past the last.
    pub hot: (usize, usize),
}

/// In which order lines are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitOrder {
    /// Each after the one before, by chance.
    Walk,
    /// One beside the other.
    Scan,
}

/// Lines in a cycle.
struct Lines {
    area: MappedMemory,
    at: usize,
    visits: u64,
}

impl Lines {
    fn new(pages: usize, order: VisitOrder) -> io::Result<Lines> {
        let area = MappedMemory::private(pages)?;
        let n = area.words().len() / LINE;
        let mut next: Vec<usize> = (0..n).collect();
        match order {
            // Sattolo's shuffle: one cycle through all.
            VisitOrder::Walk => {
                let mut rng = Rng::with_seed(7);
                (1..n).rev().for_each(|at| next.swap(at, rng.usize(..at)));
            }
            VisitOrder::Scan => next.rotate_left(1),
        }
        for (at, next) in next.into_iter().enumerate() {
            let line = &area.words()[at * LINE..];
            line[NEXT].store(next as u64, Relaxed);
            line[FIXED].store(pattern(at as u64, 0, 0), Relaxed);
        }
        Ok(Lines { area, at: 0, visits: 0 })
    }

    fn visit(&mut self) -> u64 {
        let words = self.area.words();
        for _ in 0..BATCH {
            let line = &words[self.at * LINE..];
            line[VISITS].store(line[VISITS].load(Relaxed) + 1, Relaxed);
            self.at = usize::try_from(line[NEXT].load(Relaxed)).unwrap_or(0);
        }
        self.visits += BATCH as u64;
        BATCH as u64
    }

    /// Whether every store is where it was made.
    fn is_right(&self) -> bool {
        let lines = self.area.words().chunks(LINE);
        let fixed = |(at, line): (usize, &[_])| {
            let line: &[std::sync::atomic::AtomicU64] = line;
            line[FIXED].load(Relaxed) == pattern(at as u64, 0, 0)
        };
        let visits: u64 = lines.clone().map(|line| line[VISITS].load(Relaxed)).sum();
        visits == self.visits && lines.enumerate().all(fixed)
    }
}

/// Runs it with memory of so many caches, unless told otherwise. SIGTERM ends the walk, not what comes after it.
///
/// # Errors
/// When there is no memory, nobody to talk to, or memory has not what was stored there.
pub fn run(options: &ConflictOptions, times: f64, order: VisitOrder) -> io::Result<()> {
    let bytes = options.cache_kib as f64 * 1024.0 * options.times.unwrap_or(times);
    // Some gigabytes at most.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    let pages = (bytes as usize / sys::PAGE).max(1);
    let mut lines = Lines::new(pages, order)?;
    let first = lines.area.address();
    let hot = (first, first + pages * sys::PAGE);
    let (ready, mut right) = (ConflictReady { ready: std::process::id(), hot }, true);
    options.pace.take_turns(&ready, || {
        // Not before: whoever waits for others ends at once.
        sys::install_handlers()?;
        let speed = options.pace.measure(Duration::ZERO, || lines.visit());
        right = lines.is_right();
        Ok(speed)
    })?;
    if right { Ok(()) } else { Err(io::Error::other("a store is not where it was made")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_visited_and_a_lost_store_is_noticed() {
        for order in [VisitOrder::Walk, VisitOrder::Scan] {
            let mut lines = Lines::new(4, order).unwrap();
            assert_eq!(lines.visit(), BATCH as u64);
            let visits = lines.area.words().chunks(LINE).map(|line| line[VISITS].load(Relaxed));
            assert!(visits.into_iter().all(|n| n == (BATCH / 256) as u64), "{order:?}");
            assert!(lines.is_right());
            lines.area.words()[LINE + VISITS].fetch_sub(1, Relaxed);
            assert!(!lines.is_right());
        }
    }
}
