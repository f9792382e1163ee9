//! COLORIS (2014): partitions of a shared cache that follow what programs need.
//!
//! Two state machines. A [`Manager`] looks at all programs at once and says which colours each has (the
//! paper's page colour manager, section 3.2). A [`Recolorer`] for each address space moves its pages into the
//! colours it is told (the paper's recolouring engine). A program is whatever has readings of its own: a
//! process of the simulator, a group of processes of the daemon.
//!
//! One manager serves all hosts. Sections of the colours, hotness, shared colours and over-commit are the
//! paper's. [`By`] says who of several programs decides: the paper's two signals; or priorities, made fit for
//! running unattended on estimates; or what other sizes are worth. A reading is any number of which more is
//! worse, such as a miss rate or a latency ([`gauge`]). Time is an argument, in seconds from any start.
//!
//! Feedback: a reading for each program and period; by utility also the lines requested while a program is
//! measured, or forecasts by the host. Cost of a decision: programs times colours; by utility sections
//! times the square of the colours. Memory: constant for each program. Not here: where readings come from,
//! and how pages come to their colours.

pub mod bucket;
pub mod curve;
pub mod forecast;
pub mod gauge;
mod history;
mod learn;
mod manager;
pub mod offline;
mod priority;
pub mod recolor;
pub mod sections;
mod signals;
pub mod sizes;
mod utility;

use huepage_color::ColorSet;
use serde::Serialize;

pub use bucket::Bucket;
pub use curve::{Curve, CurveSettings};
pub use gauge::{Bounds, Gauge, Reading, Want};
pub use manager::Manager;
pub use recolor::{Growth, Recolorer};
pub use sizes::{Demand, Part, Sized, best};

use crate::input::InputKind;

/// What a manager hears of, with the recolourers that carry its decisions out.
pub const NEEDS: &[InputKind] = &[
    InputKind::Counters,
    InputKind::Audits,
    InputKind::Traps,
    InputKind::AccessedBits,
    InputKind::Cycles,
];
/// The same where it measures curves itself.
pub const NEEDS_OF_UTILITY: &[InputKind] = &[
    InputKind::Counters,
    InputKind::RequestedLines,
    InputKind::Audits,
    InputKind::Traps,
    InputKind::AccessedBits,
    InputKind::Cycles,
];

/// A program, as the manager numbers it: by its place among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AppId(pub usize);

/// What is asked for a program.
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
    /// Between which readings it is left alone; none: it is never changed, and shares with nobody.
    pub bounds: Option<Bounds>,
    /// What explanations call its readings, such as `miss rate`.
    pub measure: &'static str,
}

/// Who of several programs gives, and who takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Whoever is looked at next (algorithm 1): a program above its bounds calls (`isHot`), the next one below
    /// gives ([`Settings::unit`], `isCold`), the next one above takes.
    Signals,
    /// Priority, then need. Readings are estimates, so what turned out to be a mistake is taken back, and
    /// not tried again for a time that doubles.
    Priority,
    /// The division with the fewest misses that keeps upper bounds, by what other sizes would miss.
    Utility,
}

impl By {
    /// The words of the registry.
    pub const WORDS: &'static [&'static str] = &["signals", "priority", "utility"];
    const ALL: [By; 3] = [By::Signals, By::Priority, By::Utility];

    /// Its word.
    pub const fn word(self) -> &'static str {
        By::WORDS[self as usize]
    }

    /// By its word.
    pub fn named(word: &str) -> Option<By> {
        By::ALL.into_iter().find(|by| by.word() == word)
    }
}

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Who decides.
    pub by: By,
    /// Whether programs of several sections may have the same colours.
    pub shared: bool,
    /// Parts of the colours that programs begin with; 0: one for each core, or group.
    pub sections: u16,
    /// For programs without bounds of their own.
    pub bounds: Bounds,
    /// Colours that a program without a floor of its own keeps.
    pub floor: u16,
    /// Colours that change hands at a time, at least 1.
    pub unit: u16,
    /// Requests of a period below which a program counts as not using the cache: its miss rate
    /// is taken to be zero. The paper gives no number.
    pub least_requests: u64,
    /// Readings in a row that have to say the same before it counts, at least 1.
    pub patience: u32,
    /// Seconds in which a program that was changed is left alone: its pages are on their way, and its
    /// readings are of before.
    pub rest: f64,
    /// Colours that may change hands in a second; two units at once after a quiet time. Recolouring pays
    /// only while it is rare (section 4.3). 0: as many as are wanted.
    pub per_second: f64,
    /// By priority: part of a reading by which it has to improve for colours to count as useful.
    pub gain: f64,
    /// By priority: seconds after which what was a mistake is tried again; they double with each in a row.
    pub again: f64,
    /// By utility: a division is reached by single colours and a unit at a time; else in units, at once.
    pub gradual: bool,
    /// By utility: share of all misses that another division has to save.
    pub margin: f64,
    /// By utility: how far below its bound a program should be, where that can be had.
    pub caution: f64,
    /// By utility: how curves are measured; none: the host foretells ([`Manager::foretell`]).
    pub curve: Option<CurveSettings>,
    /// Counted requests of followed lines that make a curve.
    pub enough: u64,
    /// How far a miss rate may be from what a curve foretold.
    pub surprise: f64,
}

impl Settings {
    /// The paper's: C2 of table 2, UNIT of section 4.3. 2048 requests put a rate within 0.03 with 99 %
    /// certainty.
    pub const PAPER: Settings = Settings {
        by: By::Signals,
        shared: true,
        sections: 0,
        bounds: Bounds { low: 0.30, high: 0.75 },
        floor: 4,
        unit: 4,
        least_requests: 1000,
        patience: 1,
        rest: 0.0,
        per_second: 0.0,
        gain: 0.03,
        again: 120.0,
        gradual: false,
        margin: 0.05,
        caution: 0.03,
        curve: None,
        enough: 2048,
        surprise: 0.15,
    };

    /// Ours by curves that are measured so.
    pub const fn utility(curve: CurveSettings) -> Settings {
        let bounds = Bounds { high: f64::INFINITY, ..Settings::PAPER.bounds };
        Settings { by: By::Utility, shared: false, bounds, curve: Some(curve), ..Settings::PAPER }
    }

    /// Ours for running unattended, in a cache of so many colours: the largest step is an eighth of it.
    pub fn unattended(colors: u16) -> Settings {
        Settings {
            by: By::Priority,
            shared: false,
            floor: 1,
            unit: (colors / 8).max(1),
            patience: 2,
            rest: 6.0,
            per_second: 1.0,
            gradual: true,
            caution: 0.0,
            ..Settings::PAPER
        }
    }

    /// A program of which nothing is said, with other bounds where it has them.
    pub fn spec(&self, name: impl Into<String>, own: Option<Bounds>) -> Spec {
        Spec {
            name: name.into(),
            floor: self.floor,
            ceiling: u16::MAX,
            priority: 1,
            bounds: Some(own.unwrap_or(self.bounds)),
            measure: "miss rate",
        }
    }
}

/// A change of the colours of a program, or, where both are the same, why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The program.
    pub app: AppId,
    /// What it had.
    pub from: ColorSet,
    /// What it has from now on.
    pub to: ColorSet,
    /// Why, in one line.
    pub reason: String,
}

impl Decision {
    /// Whether colours came or went.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }
}
