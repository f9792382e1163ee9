//! The progress line of the demo, with an estimate of what is left: on a terminal only.
//! Every step is announced with the time that it is planned to take.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error that goes away when it is dropped.
pub struct Steps(ProgressBar);

impl Steps {
    /// A bar over steps that are planned to take `planned` in all.
    pub fn new(planned: Duration) -> Steps {
        let shown = std::io::stderr().is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(millis(planned)), target);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} about {eta} left") {
            bar.set_style(style);
        }
        Steps(bar)
    }

    /// A bar that nobody sees, for tests.
    #[cfg(test)]
    pub fn hidden() -> Steps {
        Steps(ProgressBar::hidden())
    }

    /// Says what happens now.
    pub fn say(&self, what: &'static str) {
        self.0.set_message(what);
    }

    /// More will be done than was planned.
    pub fn plan(&self, more: Duration) {
        self.0.inc_length(millis(more));
    }

    /// A step that was planned to take so long is over.
    pub fn done(&self, planned: Duration) {
        self.0.inc(millis(planned));
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
