//! A column-associative cache (Agarwal & Pudar, ISCA 1993; compared in Romer 1998, 5.5.2): a
//! direct-mapped cache in which a line may also be in the set whose highest index bit is
//! flipped. A rehash bit per set says that what is there is away from home. A line found at
//! the second place changes places with the one at its home, so that the next use is fast.
//!
//! Rehash bits are set in the beginning, so that an empty set takes a line without a second
//! look.

use super::Found;
use super::sets::{CacheEntry, Sets};

/// The rehash bits of a cache, whose lines are kept elsewhere, one way per set.
#[derive(Clone, Debug)]
pub(super) struct Column {
    rehashed: Vec<bool>,
}

impl Column {
    pub(super) fn new(sets: usize) -> Column {
        Column { rehashed: vec![true; sets] }
    }

    /// Where else a line of this set may be.
    pub(super) const fn other(&self, set: usize) -> usize {
        set ^ (self.rehashed.len() / 2)
    }

    /// Whether what a set holds is away from home.
    pub(super) fn is_rehashed(&self, set: usize) -> bool {
        self.rehashed[set]
    }

    /// Looks a line up: first at home; then, unless a line away from home is there, at the
    /// other place.
    pub(super) fn find(&mut self, sets: &mut Sets, home: usize, entry: CacheEntry) -> Found {
        if sets.touch(home, entry) {
            return Found::Hit;
        }
        if self.rehashed[home] {
            return Found::Miss;
        }
        let Some(mut found) = sets.remove(self.other(home), entry.line()) else {
            return Found::Miss;
        };
        found.soil(entry);
        let _empty = self.move_out(sets, home);
        sets.fill(home, found);
        Found::Second
    }

    /// Brings a line in at its home; what leaves for it. A line that is away from home gives
    /// way; one that is at home moves to the other place.
    pub(super) fn fill(&mut self, sets: &mut Sets, home: usize, entry: CacheEntry) -> CacheEntry {
        let vacant = self.rehashed[home] || !sets.only(home).is_line();
        let gone = if vacant { CacheEntry::EMPTY } else { self.move_out(sets, home) };
        self.rehashed[home] = false;
        let replaced = sets.fill(home, entry);
        if vacant { replaced } else { gone }
    }

    /// Moves what is at home to the other place; what was there.
    fn move_out(&mut self, sets: &mut Sets, home: usize) -> CacheEntry {
        let other = self.other(home);
        self.rehashed[other] = true;
        let held = sets.only(home);
        if !held.is_line() {
            return CacheEntry::EMPTY;
        }
        sets.remove(home, held.line());
        sets.fill(other, held)
    }
}
