//! The progress line of what is measured for a time that is known before, with an estimate of what
//! is left: on a terminal only.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::progress;

/// A bar on standard error that goes away when it is dropped.
pub struct Steps {
    bar: ProgressBar,
    what: Cell<&'static str>,
    began: Instant,
}

impl Steps {
    /// A bar over what is planned to take `planned` in all.
    pub fn new(planned: Duration) -> Steps {
        Steps::shown(true, planned)
    }

    fn shown(wanted: bool, planned: Duration) -> Steps {
        let bar = progress::bar(wanted, Some(millis(planned)), "{bar:30} {msg}");
        Steps { bar, what: Cell::new(""), began: Instant::now() }
    }

    /// A bar that nobody sees, for tests.
    #[cfg(test)]
    pub fn hidden() -> Steps {
        Steps::shown(false, Duration::from_secs(10))
    }

    /// Says what happens now.
    pub fn say(&self, what: &'static str) {
        self.what.set(what);
        self.show();
    }

    /// Updates the estimate.
    pub fn show(&self) {
        self.show_at(self.began.elapsed());
    }

    fn show_at(&self, elapsed: Duration) {
        let planned = self.bar.length().unwrap_or(0);
        self.bar.set_position(millis(elapsed).min(planned));
        let left = planned.saturating_sub(millis(elapsed)).div_ceil(1000).max(1);
        self.bar.set_message(format!("{}, about {left} s left", self.what.get()));
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_what_is_left_of_the_plan() {
        let steps = Steps::hidden();
        steps.say("walking");
        steps.show_at(Duration::from_millis(7200));
        assert_eq!(steps.bar.message(), "walking, about 3 s left");
        steps.show_at(Duration::from_secs(99));
        assert_eq!(
            (steps.bar.message().as_str(), steps.bar.position()),
            ("walking, about 1 s left", 10_000)
        );
    }
}
