//! Hardware counters of a process and of those it starts, where the machine has them: what a cache
//! was asked for and what it missed. Virtual machines seldom have any; that is an answer too.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

/// What the last level was asked for, and what it did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// References, scaled where counters were shared.
    pub references: u64,
    /// Misses, scaled where counters were shared.
    pub misses: u64,
}

/// Counts of a process.
pub struct MissCounters {
    references: Counter,
    misses: Counter,
}

impl MissCounters {
    /// Counts from now on, in the process and its later children.
    ///
    /// # Errors
    /// With the kernel's words when there are no such counters or they are not for us.
    pub fn open(pid: i32) -> std::io::Result<MissCounters> {
        let references = open(pid, Hardware::CACHE_REFERENCES)?;
        Ok(MissCounters { references, misses: open(pid, Hardware::CACHE_MISSES)? })
    }

    /// What was counted.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn read(&mut self) -> std::io::Result<Misses> {
        Ok(Misses { references: scaled(&mut self.references)?, misses: scaled(&mut self.misses)? })
    }
}

fn open(pid: i32, event: impl Event) -> std::io::Result<Counter> {
    let mut counter = Builder::new(event).observe_pid(pid).any_cpu().inherit(true).build()?;
    counter.enable()?;
    Ok(counter)
}

/// A count, as if the counter had been there all the time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, rounded")]
fn scaled(counter: &mut Counter) -> std::io::Result<u64> {
    let found = counter.read_count_and_time()?;
    let share = found.time_enabled as f64 / found.time_running.max(1) as f64;
    Ok((found.count as f64 * share.max(1.0)).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    /// By an event that every kernel has: faults of a child, and of a child of that.
    #[test]
    fn counts_of_a_process_include_those_it_starts() {
        let work = "sleep 0.3; for i in 1 2 3 4 5 6 7 8; do /bin/true; done";
        let mut child = std::process::Command::new("sh").args(["-c", work]).spawn().unwrap();
        let pid = child.id().cast_signed();
        let counter = open(pid, Software::PAGE_FAULTS);
        child.wait().unwrap();
        let name = "counts_of_a_process_include_those_it_starts";
        let Some(mut counter) = crate::kernel::testing::live(name, counter) else { return };
        // A start of /bin/true takes some dozens of faults.
        let faults = scaled(&mut counter).unwrap();
        assert!(faults > 8 * 20, "{faults}");
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        let own = std::process::id().cast_signed();
        if let Err(e) = MissCounters::open(own) {
            let known = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::EOPNOTSUPP];
            assert!(e.raw_os_error().is_some_and(|code| known.contains(&code)), "{e}");
        }
    }
}
