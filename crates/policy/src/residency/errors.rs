//! How often looks at lines are wrong.

use serde::{Deserialize, Serialize};

/// Looks that were wrong, as shares of looks at lines of which the answer is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// Lines that were not there and were found; 0 to 1.
    pub found: f64,
    /// Lines that were there and were not found; 0 to 1.
    pub lost: f64,
}

impl Errors {
    /// The share of lines that are there if `share` of them were found; both 0 to 1.
    pub fn correct(self, share: f64) -> f64 {
        let span = (1.0 - self.found - self.lost).max(0.1);
        ((share - self.found) / span).clamp(0.0, 1.0)
    }
}
