//! How finely time can be read: the step of the time stamp counter, and how fast it goes.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::color::probe::clock::clock_step;
use crate::color::probe::timing::ticks;

/// How long the rate is measured.
const MEASURED: Duration = Duration::from_millis(20);

/// The clock that loads are timed with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadClock {
    /// Ticks that it moves by at least; 1 if they are fewer than 6, which do not matter.
    pub step_ticks: u32,
    /// Ticks in a microsecond.
    pub ticks_per_us: f64,
}

impl LoadClock {
    /// Measures it, which takes some 25 ms.
    pub fn measure() -> LoadClock {
        let (began, first) = (Instant::now(), ticks());
        while began.elapsed() < MEASURED {
            std::hint::spin_loop();
        }
        let (passed, last) = (began.elapsed(), ticks());
        let ticks_per_us = last.wrapping_sub(first) as f64 / (passed.as_secs_f64() * 1e6);
        LoadClock { step_ticks: clock_step(), ticks_per_us }
    }

    /// The step in nanoseconds.
    pub fn step_ns(&self) -> f64 {
        f64::from(self.step_ticks) * 1e3 / self.ticks_per_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_clock_goes_at_the_rate_of_a_processor() {
        let clock = LoadClock::measure();
        assert!((100.0..20_000.0).contains(&clock.ticks_per_us), "{clock:?}");
        assert!((0.01..100.0).contains(&clock.step_ns()), "{clock:?}");
    }

    #[test]
    fn a_step_is_told_in_nanoseconds() {
        let clock = LoadClock { step_ticks: 24, ticks_per_us: 2400.0 };
        assert!((clock.step_ns() - 10.0).abs() < 1e-9);
    }
}
