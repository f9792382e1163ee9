//! Progress lines, on a terminal only; the one while frames are gathered.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error that goes away when gathering ends.
pub struct GatheringBar(ProgressBar);

impl GatheringBar {
    /// Hidden when quiet or when nobody watches.
    pub fn new(quiet: bool) -> GatheringBar {
        GatheringBar(bar(!quiet, None, "gathering frames {bar:30} {percent:>3} % ({eta} left)"))
    }

    /// `done` of `all` pages are in stock.
    pub fn show(&mut self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// A line on standard error of this form, which is hidden where it is not `wanted` or nobody watches.
pub fn bar(wanted: bool, length: Option<u64>, template: &str) -> ProgressBar {
    let shown = wanted && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(length, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
