//! The progress line of the demo, with an estimate of what is left: on a terminal only.
//! Every step is announced with the time that it is planned to take, and takes about that.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error that goes away when it is dropped.
pub struct Steps {
    bar: ProgressBar,
    what: Cell<&'static str>,
}

impl Steps {
    /// A bar over steps that are planned to take `planned` in all.
    pub fn new(planned: Duration) -> Steps {
        let shown = std::io::stderr().is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(millis(planned)), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}") {
            bar.set_style(style);
        }
        Steps { bar, what: Cell::new("") }
    }

    /// A bar that nobody sees, for tests.
    #[cfg(test)]
    pub fn hidden() -> Steps {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        Steps { bar, what: Cell::new("") }
    }

    /// Says what happens now.
    pub fn say(&self, what: &'static str) {
        self.what.set(what);
        self.show();
    }

    /// More will be done than was planned.
    pub fn plan(&self, more: Duration) {
        self.bar.inc_length(millis(more));
    }

    /// A step that was planned to take so long is over.
    pub fn done(&self, planned: Duration) {
        self.bar.inc(millis(planned));
        self.show();
    }

    fn show(&self) {
        let left = self.bar.length().unwrap_or(0).saturating_sub(self.bar.position());
        self.bar.set_message(format!("{}, about {} s left", self.what.get(), left.div_ceil(1000)));
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
        steps.plan(Duration::from_millis(2500));
        steps.say("walking");
        steps.done(Duration::from_millis(1200));
        assert_eq!(steps.bar.message(), "walking, about 2 s left");
    }
}
