//! How a workload measures itself: operations per second in slices of 100 ms, so that one can
//! see when it became fast, and the speed of its last third.
//!
//! With `--hold` it takes turns with whoever started it: it says that it is ready and waits for
//! a line, and after its figures it keeps its memory until standard input ends, so that the
//! memory can be looked at. It does not judge its speed.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::figures::median;
use crate::sys::{self, MappedMemory, thread_cpu};

/// The time of a slice.
pub const SLICE: Duration = Duration::from_millis(100);

/// How long, and whether to wait for others.
#[derive(Args, Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Say when ready and wait for a line; afterwards stay until standard input ends
    #[arg(long)]
    pub hold: bool,
}

/// What a workload says before it measures.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WorkloadReady {
    /// Its process.
    pub ready: u32,
}

/// How fast a workload was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Speed {
    /// Its process.
    pub pid: u32,
    /// From its start until it was ready, in seconds.
    pub setup_seconds: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Operations in them.
    pub operations: u64,
    /// Operations per second in the last third: the median slice.
    pub steady: f64,
    /// The same by the CPU time of the thread: what other programs take is not in it, nor are
    /// waits in the kernel.
    pub steady_cpu: f64,
    /// Operations per second in each slice.
    pub slices: Vec<f64>,
}

impl Pace {
    /// Waits for the start, measures, prints what was measured and holds. What `measure`
    /// borrows stays in memory until the end.
    ///
    /// # Errors
    /// Those of standard input and output.
    pub fn present<T: Serialize>(&self, measure: impl FnOnce(Duration) -> T) -> io::Result<()> {
        let setup = uptime();
        if !self.hold {
            return say(&measure(setup));
        }
        self.take_turns(&WorkloadReady { ready: std::process::id() }, || {
            notice_me()?;
            Ok(measure(setup))
        })
    }

    /// Says that it is ready, measures and says what was measured; with `--hold` it waits for a line
    /// before, and for the end of standard input afterwards.
    ///
    /// # Errors
    /// Those of `measure` and of standard input and output.
    pub fn take_turns<T: Serialize>(
        &self,
        ready: &impl Serialize,
        measure: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<()> {
        say(ready)?;
        if self.hold {
            io::stdin().read_line(&mut String::new())?;
        }
        say(&measure()?)?;
        if self.hold {
            io::stdin().read_to_end(&mut Vec::new())?;
        }
        Ok(())
    }

    /// Does `batch`, which gives how many operations it did and takes a few milliseconds at
    /// most, until the time is over or, where [`sys::install_handlers`] was called, somebody asks for the end.
    pub fn measure(&self, setup: Duration, mut batch: impl FnMut() -> u64) -> Speed {
        let (begun, mut operations) = (Instant::now(), 0);
        let (mut slices, mut by_cpu) = (Vec::new(), Vec::new());
        let ends = || begun.elapsed().as_secs_f64() >= self.seconds || sys::stop_asked();
        while slices.is_empty() || !ends() {
            let (started, cpu, mut done) = (Instant::now(), thread_cpu(), 0);
            while started.elapsed() < SLICE {
                done += batch();
            }
            slices.push(done as f64 / started.elapsed().as_secs_f64());
            by_cpu.push(done as f64 / (thread_cpu() - cpu).as_secs_f64());
            operations += done;
        }
        Speed {
            pid: std::process::id(),
            setup_seconds: setup.as_secs_f64(),
            seconds: begun.elapsed().as_secs_f64(),
            operations,
            steady: steady(&slices),
            steady_cpu: steady(&by_cpu),
            slices,
        }
    }
}

/// The median slice of the last third.
pub fn steady(slices: &[f64]) -> f64 {
    median(&slices[slices.len() * 2 / 3..])
}

fn say<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}

/// A new mapping: khugepaged learns of a process only when it maps something while large pages
/// are switched on, and they may have been switched on while this process waited.
fn notice_me() -> io::Result<()> {
    let area = MappedMemory::private(1024)?;
    area.page(0)[0].store(1, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// How long this process has been there; nothing before [`born`] was called.
fn uptime() -> Duration {
    BORN.get().map_or(Duration::ZERO, Instant::elapsed)
}

static BORN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

/// To be called first of all: set-up is counted from here.
pub fn born() {
    BORN.get_or_init(Instant::now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_the_last_third() {
        assert_eq!(steady(&[1.0, 1.0, 1.0, 1.0, 5.0, 7.0]), 6.0);
        assert_eq!(steady(&[3.0]), 3.0);
    }

    #[test]
    fn operations_are_counted_in_slices() {
        let pace = Pace { seconds: 0.15, hold: false };
        let speed = pace.measure(Duration::from_secs(2), || 3);
        assert!(speed.slices.len() >= 2 && speed.operations.is_multiple_of(3), "{speed:?}");
        assert!(speed.setup_seconds == 2.0 && speed.steady > 0.0);
    }
}
