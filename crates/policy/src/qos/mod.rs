//! Quality of service: who of some groups of processes has which colours of a cache, decided again and
//! again from how each is doing. The monitor of COLORIS (2014, section 3.2) made fit for running
//! unattended on estimates instead of counters: groups have floors, ceilings and priorities of their own;
//! partitions stay disjoint; a reading counts only beyond its margin and some times in a row; what turned
//! out to be a mistake is taken back and not tried again for a time that doubles; and colours change hands
//! no faster than a bucket allows, since recolouring pays only while it is rare (COLORIS, section 4.3).
//!
//! Or, in place of that monitor, the division is looked for that is best by foretold miss rates.
//!
//! [`Governor`] is the state machine; [`utility`] foretells and compares divisions; [`gauge`] turns
//! readings into wants, [`bucket`] is the cap, [`mod@divide`] the division that everything begins
//! with. Time is an argument, in seconds from any start. Feedback: one number per group, of which
//! more is worse, such as an estimated miss rate or a latency. Memory: constant for each group.
//! Not here: where readings come from, and how pages come to their colours.

pub mod bucket;
pub mod divide;
pub mod gauge;
mod governor;
pub mod offline;
pub mod utility;

pub use bucket::Bucket;
pub use divide::divide;
pub use gauge::{Bounds, Gauge, Reading, Want};
pub use governor::Governor;

use huepage_color::ColorSet;
use serde::{Deserialize, Serialize};

/// A group, by its place among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GroupId(pub usize);

/// What is asked for a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What explanations call it.
    pub name: String,
    /// Colours that it keeps, at least 1.
    pub floor: u16,
    /// Colours that it has, at most.
    pub ceiling: u16,
    /// Who of two has to give and who may take: more goes first.
    pub priority: u8,
    /// Between which readings it is left alone; none: it is never changed.
    pub bounds: Option<Bounds>,
    /// What explanations call its readings, such as `miss rate`.
    pub measure: &'static str,
}

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Groups above their bounds take from those below theirs, as in COLORIS.
    #[default]
    Coloris,
    /// The division with the fewest misses that keeps upper bounds, by what is foretold of other sizes.
    Utility,
}

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Who decides.
    pub engine: Engine,
    /// Colours that change hands at a time, at most; at least 1.
    pub unit: u16,
    /// Readings in a row that have to say the same before it counts; at least 1.
    pub patience: u32,
    /// Seconds in which a group that was changed is left alone: its pages are on their way, and its
    /// readings are of before.
    pub rest: f64,
    /// Colours that may change hands in a second, and at once after a quiet time.
    pub cap: (f64, f64),
    /// Part of a reading by which it has to improve for colours to count as useful.
    pub gain: f64,
    /// Seconds after which what was a mistake is tried again; they double with each mistake in a row.
    pub again: f64,
}

impl Settings {
    /// Ours, for a cache of so many colours: the largest step is an eighth of it.
    pub fn new(colors: u16) -> Settings {
        let unit = (colors / 8).max(1);
        Settings {
            engine: Engine::Coloris,
            unit,
            patience: 2,
            rest: 6.0,
            cap: (1.0, 2.0 * f64::from(unit)),
            gain: 0.03,
            again: 120.0,
        }
    }
}

/// Longest time after which a mistake is tried again, in seconds.
pub(crate) const LONGEST_AGAIN: f64 = 3600.0;

/// A change of the colours of a group, or, where both are the same, why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The group.
    pub group: GroupId,
    /// What it had.
    pub from: ColorSet,
    /// What it has from now on.
    pub to: ColorSet,
    /// Why, in one line.
    pub reason: String,
}

impl Decision {
    /// Colours that came or went.
    pub fn moved(&self) -> u16 {
        self.from.difference(&self.to).len() + self.to.difference(&self.from).len()
    }
}
