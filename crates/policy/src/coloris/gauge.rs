//! From readings to wants: a reading counts only where all of its margin is beyond a bound, and only after
//! some in a row said the same.

use serde::{Deserialize, Serialize};

/// How a program is doing: a number of which more is worse.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The number.
    pub value: f64,
    /// How far off it may be, plus or minus.
    pub margin: f64,
}

/// Between which readings a program is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Below it colours can be spared.
    pub low: f64,
    /// Above it colours are wanted.
    pub high: f64,
}

impl Bounds {
    /// No recolouring at all of a miss rate (table 2, C3; section 4.4 for a program that thrashes).
    pub const OFF: Bounds = Bounds { low: 0.0, high: 1.0 };
}

/// What a program wants, from the most to the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Want {
    /// More.
    More,
    /// What it has; also where nothing is known.
    #[default]
    Same,
    /// It can do with less.
    Less,
    /// Nothing: nobody is there to use the cache.
    Nothing,
}

/// Readings of a program, as far as they matter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauge {
    /// The last reading.
    pub last: Option<Reading>,
    want: Want,
    row: u32,
}

impl Gauge {
    /// A new reading; none while nobody is there to have one.
    pub fn note(&mut self, reading: Option<Reading>, bounds: Bounds) {
        // What is no number says nothing.
        let reading = reading.filter(|r| r.value.is_finite() && r.margin.is_finite());
        let want = match reading {
            None => Want::Nothing,
            Some(r) if r.value - r.margin > bounds.high => Want::More,
            Some(r) if r.value + r.margin < bounds.low => Want::Less,
            Some(_) => Want::Same,
        };
        self.row = if want == self.want { self.row.saturating_add(1) } else { 1 };
        (self.last, self.want) = (reading, want);
    }

    /// What was read before does not count any more: it is of other colours.
    pub fn forget(&mut self) {
        *self = Gauge { last: self.last, ..Gauge::default() };
    }

    /// What is wanted, once `patience` readings in a row said so.
    pub fn want(&self, patience: u32) -> Want {
        if self.row >= patience.max(1) { self.want } else { Want::Same }
    }

    /// Whether so many readings came since they were forgotten last, whatever they said last in a row.
    pub const fn is_settled(&self, patience: u32) -> bool {
        self.row >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { low: 0.2, high: 0.6 };

    fn note(gauge: &mut Gauge, value: f64, margin: f64) -> Want {
        gauge.note(Some(Reading { value, margin }), BOUNDS);
        gauge.want(2)
    }

    #[test]
    fn one_reading_is_none() {
        let mut gauge = Gauge::default();
        assert_eq!(note(&mut gauge, 0.9, 0.1), Want::Same);
        assert_eq!(note(&mut gauge, 0.9, 0.1), Want::More);
        assert_eq!(note(&mut gauge, 0.1, 0.05), Want::Same);
        assert_eq!(note(&mut gauge, 0.1, 0.05), Want::Less);
        gauge.forget();
        assert_eq!((gauge.want(1), gauge.is_settled(1)), (Want::Same, false));
        assert!(gauge.last.is_some());
    }

    #[test]
    fn the_margin_counts_against_a_change() {
        let mut gauge = Gauge::default();
        for value in [0.65, 0.15] {
            for _ in 0..5 {
                assert_eq!(note(&mut gauge, value, 0.1), Want::Same);
            }
        }
        assert_eq!(note(&mut gauge, f64::NAN, 0.1), Want::Same);
        gauge.note(None, BOUNDS);
        assert_eq!(gauge.want(2), Want::Nothing);
    }
}
