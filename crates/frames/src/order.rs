//! The order in which colours are handed out: one after the other over a set, for ever. Pages
//! that are touched one after the other then lie in different colours, which is what keeps a
//! partition's own pages from competing. The order knows nothing of stocks.

use huepage_color::{Color, ColorSet};

/// Rotates over colour sets. The set may change between calls: the rotation goes on from the
/// last colour, whether or not it is still a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    last: Option<Color>,
}

impl RoundRobin {
    /// A rotation that starts at the lowest colour.
    pub const fn new() -> RoundRobin {
        RoundRobin { last: None }
    }

    /// A rotation whose first colour is the one after `color`; with different starts, the
    /// processes of one group do not all begin with the same colour.
    pub const fn after(color: Color) -> RoundRobin {
        RoundRobin { last: Some(color) }
    }

    /// The colour that is due; `None` only if the set is empty.
    pub fn peek(&self, set: &ColorSet) -> Option<Color> {
        self.last.map_or_else(|| set.first_color(), |last| set.next_after(last))
    }

    /// Notes that `color` was handed out.
    pub const fn advance(&mut self, color: Color) {
        self.last = Some(color);
    }

    /// Hands out the colour that is due.
    pub fn next(&mut self, set: &ColorSet) -> Option<Color> {
        let due = self.peek(set)?;
        self.advance(due);
        Some(due)
    }
}
