//! Whether memory is short right now, by the stall times of the kernel (PSI). Reads `/proc/pressure/memory`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::kernel::procfs::ProcRoot;

/// Time between two looks at the pressure.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long after a look with pressure the memory counts as short.
const CALM_AFTER: Duration = Duration::from_millis(500);

/// Whether somebody waits for memory: the stall times of PSI, of the machine.
#[derive(Debug)]
pub struct Pressure {
    path: PathBuf,
    /// When it was looked at, and the microseconds of stalls until then.
    last: Option<(Instant, u64)>,
    short_until: Option<Instant>,
}

impl Pressure {
    /// The pressure on the memory of the machine below this root.
    pub fn new(root: &ProcRoot) -> Pressure {
        Pressure { path: root.0.join("pressure/memory"), last: None, short_until: None }
    }

    /// Whether memory is short: in the last tenth of a second some task waited for it in more than
    /// a tenth of the time, or did so half a second ago. False where the kernel keeps no such books.
    pub fn is_short(&mut self) -> bool {
        let now = Instant::now();
        if self.last.is_none_or(|(at, _)| now - at >= LOOK_INTERVAL)
            && let Some(total) = self.stalled()
        {
            if self.last.is_some_and(|last| pressed(last, (now, total))) {
                self.short_until = Some(now + CALM_AFTER);
            }
            self.last = Some((now, total));
        }
        self.short_until.is_some_and(|until| now < until)
    }

    fn stalled(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.path).ok()?;
        let some = text.lines().find(|line| line.starts_with("some"))?;
        some.rsplit_once("total=")?.1.trim().parse().ok()
    }
}

/// More than a tenth of the time between two looks was stalled.
fn pressed(before: (Instant, u64), after: (Instant, u64)) -> bool {
    let micros = (after.0 - before.0).as_micros();
    u128::from(after.1.saturating_sub(before.1)) * 10 > micros
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    #[test]
    fn stalls_of_a_tenth_of_the_time_are_pressure() {
        let start = Instant::now();
        let later = start + Duration::from_millis(100);
        assert!(!pressed((start, 500), (later, 10_500)));
        assert!(pressed((start, 500), (later, 10_501)));
    }

    #[test]
    fn memory_stays_short_for_a_while_and_a_missing_file_is_no_pressure() {
        let fake = Fake::new();
        fake.put("pressure/memory", "some avg10=0.00 total=0\nfull total=7\n");
        let mut pressure = Pressure::new(&fake.root);
        assert!(!pressure.is_short());
        fake.put("pressure/memory", "some avg10=9 total=90000000\n");
        std::thread::sleep(LOOK_INTERVAL);
        assert!(pressure.is_short());
        std::thread::sleep(LOOK_INTERVAL);
        assert!(pressure.is_short(), "calm comes later");
        assert!(!Pressure::new(&ProcRoot("/nowhere".into())).is_short());
    }
}
