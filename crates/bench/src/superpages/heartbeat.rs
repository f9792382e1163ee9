//! A heart that should beat every 100 us, in a program that makes random updates in another
//! thread: the longest time between two beats is the longest stall of the program. Each beat
//! also writes to the table, since a page that is being moved stalls only who touches it.
//!
//! What else runs on the machine stalls it too: compare, never read alone.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::gups::GupsTable;
use super::pace::{Pace, Speed};
use crate::mix::Rng;
use crate::sys;

/// The time between two beats.
const BEAT: Duration = Duration::from_micros(100);
/// Updates between two looks at the clock.
const BATCH: usize = 4096;

/// What to do.
#[derive(Args, Clone, Copy, Debug)]
pub struct Heartbeat {
    /// Size of the table, in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatResult {
    /// Of the thread that updates.
    pub speed: Speed,
    /// Beats.
    pub beats: usize,
    /// The longest time between two of them, in microseconds.
    pub longest_us: f64,
    /// The time that 999 in 1000 were shorter than, in microseconds.
    pub p999_us: f64,
}

/// Beats until `done`; gives the times between two beats, in microseconds.
fn beat(table: &GupsTable, done: &AtomicBool) -> Vec<f64> {
    let (mut gaps, mut rng, mut last) = (Vec::new(), Rng::with_seed(8), Instant::now());
    while !done.load(Relaxed) {
        std::thread::sleep(BEAT);
        table.touch(&mut rng);
        let now = Instant::now();
        gaps.push((now - last).as_secs_f64() * 1e6);
        last = now;
    }
    gaps
}

fn summary(speed: Speed, mut gaps: Vec<f64>) -> HeartbeatResult {
    gaps.sort_by(f64::total_cmp);
    let at = |per_mille: usize| gaps.get(gaps.len() * per_mille / 1000).copied();
    let longest_us = gaps.last().copied().unwrap_or(f64::NAN);
    let p999_us = at(999).unwrap_or(longest_us);
    HeartbeatResult { speed, beats: gaps.len(), longest_us, p999_us }
}

/// Runs it.
///
/// # Errors
/// Those of memory, and of standard input and output.
pub fn run(options: &Heartbeat) -> io::Result<()> {
    let (table, done) = (GupsTable::new(options.mib)?, AtomicBool::new(false));
    sys::sleep_exactly()?;
    options.pace.present(|setup| {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut rng = Rng::with_seed(1);
                let speed = options.pace.measure(setup, || {
                    table.update(&mut rng, BATCH);
                    BATCH as u64
                });
                done.store(true, Relaxed);
                speed
            });
            let gaps = beat(&table, &done);
            summary(worker.join().unwrap_or_default(), gaps)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_found() {
        let mut gaps = vec![100.0; 2000];
        gaps[77] = 9000.0;
        let found = summary(Speed::default(), gaps);
        assert_eq!((found.beats, found.longest_us, found.p999_us), (2000, 9000.0, 100.0));
    }

    #[test]
    fn the_heart_beats_until_it_is_told() {
        let (table, done) = (GupsTable::new(1).unwrap(), AtomicBool::new(false));
        let gaps = std::thread::scope(|scope| {
            let heart = scope.spawn(|| beat(&table, &done));
            std::thread::sleep(Duration::from_millis(20));
            done.store(true, Relaxed);
            heart.join().unwrap()
        });
        assert!(!gaps.is_empty() && gaps.iter().all(|gap| *gap >= 100.0));
    }
}
