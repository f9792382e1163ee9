//! What looks at lines of memory say of a program: a look finds a line in the cache or not. The share
//! of looks that do is taken for how often a page is used ([`estimate`]), neighbouring pages that are
//! used alike are taken together ([`mod@segments`]), and both make the profile that policies want
//! ([`profile`]). A [`ResidencyTally`] counts, for the sensor as for a replay of its [recording](crate::recording::residency).
//! Looks at nothing itself.
//!
//! All of it rests on one observation (Che, Tung and Wang 2002, of web caches): a line that is used at
//! random is in a cache of which lines fall out after a time T unused with the probability 1 - exp(-rT),
//! r being how often it is used. So r is -ln(1 - p) in units of 1/T, and T cancels out of every
//! ratio. Of a loop that is larger than the cache, p is about T over its length, and so is -ln(1 - p).

mod errors;
pub mod estimate;
pub mod profile;
pub mod segments;
mod tally;

use huepage_color::Vpn;

pub use errors::Errors;
pub use estimate::{Estimate, misses_in_a_turnover};
pub use segments::{Segment, segments};
pub use tally::{AreaSeen, ResidencyTally, SampledPage};

/// The nearest whole number; 0 for less.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// What was seen of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSeen {
    /// The page.
    pub page: Vpn,
    /// Looks at a line of it.
    pub samples: u32,
    /// Those that found the line in the cache; at most `samples`.
    pub found: u32,
    /// Whether it was used at all meanwhile; true where nobody can tell.
    pub used: bool,
}
