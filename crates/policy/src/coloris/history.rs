//! What a program made of changes of its colours, by priority: experiments that go on, and what was learned of those
//! that are over.

use super::{Reading, Settings};

/// Longest time after which a mistake is tried again, in seconds.
const LONGEST_AGAIN: f64 = 3600.0;

/// A change whose effect is not known yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    /// Colours before it.
    pub size: u16,
    /// What was read before it.
    pub before: Option<Reading>,
    /// Who got or gave the colours; none: they were free.
    pub partner: Option<usize>,
}

/// A limit learned from a mistake, and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lesson {
    pub size: u16,
    pub until: f64,
}

/// What came of changes of a program.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub grown: Option<Trial>,
    pub shrunk: Option<Trial>,
    /// It does worse with fewer than this.
    pub least: Option<Lesson>,
    /// More than this did nothing for it, or others missed it.
    pub most: Option<Lesson>,
    /// Its readings do not depend on its colours; until when that is believed.
    pub flat: Option<f64>,
    /// Colours that came since the last that helped.
    pub useless: u16,
    /// Seconds until the next mistake may be tried again.
    pub again: f64,
    /// Colours that it takes at a time.
    pub step: u16,
    /// Why it did not get what it wants, as it was said last.
    pub told: Option<Stuck>,
}

/// Why a program that wants more does not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    Ceiling,
    Useless,
    Nobody,
}

impl History {
    pub fn new(settings: &Settings) -> History {
        let (again, step) = (settings.again, settings.unit);
        let ((grown, shrunk), (least, most), flat) = ((None, None), (None, None), None);
        History { grown, shrunk, least, most, flat, useless: 0, again, step, told: None }
    }

    /// Its colours change.
    pub fn begin_trial(
        &mut self,
        grows: bool,
        size: u16,
        before: Option<Reading>,
        partner: Option<usize>,
    ) {
        let trial = Some(Trial { size, before, partner });
        (self.grown, self.shrunk) = if grows { (trial, None) } else { (None, trial) };
    }

    /// More colours were of use.
    pub fn helped(&mut self, settings: &Settings) {
        self.useless = 0;
        self.step = (self.step * 2).min(settings.unit);
        self.again = settings.again;
    }

    /// A mistake was made: smaller steps, and a longer time until the next.
    pub fn learned(&mut self, settings: &Settings) {
        self.again = (self.again * 2.0).min(LONGEST_AGAIN.max(settings.again));
        self.step = (self.step / 2).max(1);
        self.useless = 0;
    }
}
