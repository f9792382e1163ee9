//! How fast a guest is emulated: accesses that went through the caches, by the time that the emulator and the caches ran
//! for them. It depends on the machine below, so no two runs are the same.

use std::time::Instant;

use huepage_linux::kernel::process_memory::thread_time;
use huepage_linux::kernel::procfs::ProcRoot;
use serde::Serialize;

/// What the emulation of a guest took, from the first access that was told to the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LabSpeed {
    /// Accesses.
    pub accesses: u64,
    /// Seconds by the clock.
    pub seconds: f64,
    /// CPU seconds of the emulator: the guest, and telling what it does.
    pub emulator_cpu_seconds: f64,
    /// CPU seconds of the caches, which run beside it.
    pub caches_cpu_seconds: f64,
    /// Accesses in a CPU second of the emulator.
    pub accesses_per_second: f64,
}

impl LabSpeed {
    /// In a line.
    pub fn text(&self) -> String {
        let million = |accesses: f64| accesses / 1e6;
        format!(
            "emulated at {:.1} M accesses/s: {:.1} M in {:.1} s of CPU time, and {:.1} s for the caches; {:.1} s by the clock",
            million(self.accesses_per_second),
            million(self.accesses as f64),
            self.emulator_cpu_seconds,
            self.caches_cpu_seconds,
            self.seconds,
        )
    }
}

/// A moment: by the clock, and the CPU seconds of the emulator and of this thread.
#[derive(Clone, Copy, Debug)]
struct Moment {
    clock: Instant,
    emulator: f64,
    caches: f64,
}

/// Measures the emulation of a guest.
pub struct SpeedMeter {
    emulator: i32,
    began: Option<Moment>,
    ended: Option<Moment>,
}

impl SpeedMeter {
    /// Of an emulator.
    pub fn of(emulator: u32) -> SpeedMeter {
        SpeedMeter { emulator: emulator.cast_signed(), began: None, ended: None }
    }

    fn now(&self) -> Moment {
        let run_time = ProcRoot::default().run_time(self.emulator).unwrap_or(0);
        let (emulator, caches) = (run_time as f64 / 1e9, thread_time().as_secs_f64());
        Moment { clock: Instant::now(), emulator, caches }
    }

    /// The first words have come, if they have not before.
    pub fn begin(&mut self) {
        if self.began.is_none() {
            self.began = Some(self.now());
        }
    }

    /// All words were taken.
    pub fn end(&mut self) {
        self.ended = Some(self.now());
    }

    /// What was measured of so many accesses; none of a guest that did not tell them to the end.
    pub fn speed(&self, accesses: u64) -> Option<LabSpeed> {
        let (began, ended) = self.began.zip(self.ended)?;
        let emulator_cpu_seconds = ended.emulator - began.emulator;
        Some(LabSpeed {
            accesses,
            seconds: (ended.clock - began.clock).as_secs_f64(),
            emulator_cpu_seconds,
            caches_cpu_seconds: ended.caches - began.caches,
            accesses_per_second: accesses as f64 / emulator_cpu_seconds.max(1e-9),
        })
    }
}

#[cfg(test)]
impl LabSpeed {
    /// Of 30 million accesses.
    pub fn example() -> LabSpeed {
        LabSpeed {
            accesses: 30_000_000,
            seconds: 2.5,
            emulator_cpu_seconds: 2.0,
            caches_cpu_seconds: 1.5,
            accesses_per_second: 15e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_divided_by_the_time_of_the_emulator() {
        let mut meter = SpeedMeter::of(std::process::id());
        meter.begin();
        assert_eq!(meter.speed(2), None);
        let start = Instant::now();
        while start.elapsed().as_millis() < 30 {}
        meter.begin();
        meter.end();
        let speed = meter.speed(2).expect("it has ended");
        assert!(speed.accesses == 2 && speed.seconds >= 0.03, "{speed:?}");
        // This process is the emulator here: it ran as long as its thread, at least.
        assert!(speed.caches_cpu_seconds > 0.0, "{speed:?}");
        assert!(speed.emulator_cpu_seconds >= speed.caches_cpu_seconds * 0.9, "{speed:?}");
        let each = speed.accesses_per_second * speed.emulator_cpu_seconds;
        assert!((each - 2.0).abs() < 1e-6, "{speed:?}");
    }

    #[test]
    fn a_line_says_it_all() {
        let speed = LabSpeed::example();
        let text = "emulated at 15.0 M accesses/s: 30.0 M in 2.0 s of CPU time, and 1.5 s for the caches; 2.5 s by the clock";
        assert_eq!(speed.text(), text);
    }
}
