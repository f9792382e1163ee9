//! Whether memory or CPU time is short right now, by the stall times of the kernel (PSI). Reads `/proc/pressure`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::kernel::procfs::ProcRoot;

/// Time between two looks at the pressure.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Shares of the time in which some task waits for memory, or for a CPU, from which on it is short. A third busy task
/// on two CPUs is nearly all of the time.
const MOST_STALLED: f64 = 0.1;
const MOST_WAITING: f64 = 0.5;
/// How long after a look with pressure there still counts as being some.
const CALM_AFTER: Duration = Duration::from_millis(500);

/// Whether somebody waits: the stall times of PSI, of the machine.
#[derive(Debug)]
pub struct Pressure {
    path: PathBuf,
    /// It is short where tasks wait in more than this share of the time.
    most_stalled: f64,
    /// When it was looked at, and the microseconds of stalls until then.
    last: Option<(Instant, u64)>,
    short_until: Option<Instant>,
}

impl Pressure {
    /// The pressure on the memory of the machine below this root.
    pub fn on_memory(root: &ProcRoot) -> Pressure {
        Pressure::new(root, "pressure/memory", MOST_STALLED)
    }

    /// The pressure on its CPUs: tasks that wake each other wait a little all the time.
    pub fn on_cpus(root: &ProcRoot) -> Pressure {
        Pressure::new(root, "pressure/cpu", MOST_WAITING)
    }

    fn new(root: &ProcRoot, file: &str, most_stalled: f64) -> Pressure {
        Pressure { path: root.0.join(file), most_stalled, last: None, short_until: None }
    }

    /// Whether it is short: in the last tenth of a second some task waited for it in too much
    /// of the time, or did so half a second ago. False where the kernel keeps no such books.
    pub fn is_short(&mut self) -> bool {
        let now = Instant::now();
        if self.last.is_none_or(|(at, _)| now - at >= LOOK_INTERVAL)
            && let Some(total) = self.total()
        {
            if self.last.is_some_and(|last| stalled(last, (now, total)) > self.most_stalled) {
                self.short_until = Some(now + CALM_AFTER);
            }
            self.last = Some((now, total));
        }
        self.short_until.is_some_and(|until| now < until)
    }

    fn total(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.path).ok()?;
        let some = text.lines().find(|line| line.starts_with("some"))?;
        some.rsplit_once("total=")?.1.trim().parse().ok()
    }
}

/// The share of the time between two looks that was stalled.
fn stalled(before: (Instant, u64), after: (Instant, u64)) -> f64 {
    after.1.saturating_sub(before.1) as f64 * 1e-6 / (after.0 - before.0).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    #[test]
    fn stalls_are_a_share_of_the_time() {
        let start = Instant::now();
        let later = start + Duration::from_millis(100);
        assert!((stalled((start, 500), (later, 10_500)) - 0.1).abs() < 1e-9);
        assert!(stalled((start, 500), (later, 400)) < 1e-9, "a count that began anew");
    }

    #[test]
    fn tasks_wait_for_cpus_for_longer_than_for_memory_before_they_are_short() {
        let fake = Fake::new();
        let mut both = [Pressure::on_memory(&fake.root), Pressure::on_cpus(&fake.root)];
        let mut are_short = |micros: u128| {
            for file in ["pressure/memory", "pressure/cpu"] {
                fake.put(file, format!("some avg10=0.00 total={micros}\n"));
            }
            both.each_mut().map(Pressure::is_short)
        };
        let began = Instant::now();
        assert_eq!(are_short(0), [false; 2]);
        std::thread::sleep(LOOK_INTERVAL);
        let a_third = began.elapsed().as_micros() / 3;
        assert_eq!(are_short(a_third), [true, false]);
        std::thread::sleep(LOOK_INTERVAL);
        assert_eq!(are_short(1_000_000_000), [true; 2]);
    }

    #[test]
    fn memory_stays_short_for_a_while_and_a_missing_file_is_no_pressure() {
        let fake = Fake::new();
        fake.put("pressure/memory", "some avg10=0.00 total=0\nfull total=7\n");
        let mut pressure = Pressure::on_memory(&fake.root);
        assert!(!pressure.is_short());
        fake.put("pressure/memory", "some avg10=9 total=90000000\n");
        std::thread::sleep(LOOK_INTERVAL);
        assert!(pressure.is_short());
        std::thread::sleep(LOOK_INTERVAL);
        assert!(pressure.is_short(), "calm comes later");
        assert!(!Pressure::on_memory(&ProcRoot("/nowhere".into())).is_short());
    }
}
