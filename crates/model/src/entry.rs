//! What is in a set: entries, and how one is chosen to make way.
//!
//! A line is a number (physical address over line size); an entry is that number plus one,
//! shifted left by one, with the dirty flag in bit 0, so that 0 is an empty way.

use serde::{Deserialize, Serialize};

/// How a set chooses the line that makes way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The least recently used.
    #[default]
    Lru,
    /// The one that came first.
    Fifo,
    /// A binary tree of bits that point away from what was used last; ways must be 2^n.
    TreePlru,
    /// The first that was not used since all others were (one bit per line).
    Nru,
    /// Static re-reference interval prediction, two bits per line: new lines count as soon
    /// to leave until they are used again (Jaleel et al., ISCA 2010, SRRIP-HP).
    Srrip,
    /// Any, by a generator of its own.
    Random,
    /// Any but the one used last, as in the TLBs of the Alpha (Romer 1998, chapter 3, "NLU").
    NotLastUsed,
}

/// An entry: a line and whether it is dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEntry(u64);

impl CacheEntry {
    /// No line.
    pub const EMPTY: CacheEntry = CacheEntry(0);

    /// The entry of a line.
    #[inline]
    pub const fn new(line: u64, dirty: bool) -> CacheEntry {
        CacheEntry((line + 1) << 1 | dirty as u64)
    }

    /// Whether there is a line.
    #[inline]
    pub const fn is_line(self) -> bool {
        self.0 != 0
    }

    /// The line; of no meaning for [`Self::EMPTY`].
    #[inline]
    pub const fn line(self) -> u64 {
        (self.0 >> 1).wrapping_sub(1)
    }

    /// Whether the line was written since it came.
    #[inline]
    pub const fn is_dirty(self) -> bool {
        self.0 & 1 == 1
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> CacheEntry {
        CacheEntry(bits)
    }

    #[inline]
    pub(crate) const fn holds(self, other: CacheEntry) -> bool {
        (self.0 ^ other.0) < 2
    }

    /// Makes it as dirty as `other` is, at least.
    #[inline]
    pub const fn soil(&mut self, other: CacheEntry) {
        self.0 |= other.0 & 1;
    }
}

/// A sequence of random numbers (xorshift64*), the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`, taken from the high half of the word.
    #[inline]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from((high * n as u64) >> 32).unwrap_or(0)
    }

    /// A way among `ways` that is not `last`; 0 if there is one only.
    #[inline]
    pub(crate) fn other_than(&mut self, last: usize, ways: usize) -> usize {
        if ways == 1 {
            return 0;
        }
        let way = self.below(ways - 1);
        way + usize::from(way >= last)
    }
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOutcome {
    /// The line was there.
    Hit,
    /// It was not, and has taken the place of this one (or an empty way).
    Miss(CacheEntry),
}
