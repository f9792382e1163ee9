//! The sets of one cache and how they replace: which lines are there, and which one leaves.
//!
//! A line is a number (physical address over line size); an entry is that number plus one,
//! shifted left by one, with the dirty flag in bit 0, so that 0 is an empty way. Where a line
//! belongs and what follows from a miss is decided elsewhere. What searches sets is `Searched`;
//! one large set is handed to `Full`, which hashes instead and is otherwise the same.

use serde::{Deserialize, Serialize};

use super::full::Full;
use super::searched::{Searched, Word};

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
pub struct Entry(u64);

impl Entry {
    /// No line.
    pub const EMPTY: Entry = Entry(0);

    /// The entry of a line.
    pub const fn new(line: u64, dirty: bool) -> Entry {
        Entry((line + 1) << 1 | dirty as u64)
    }

    /// Whether there is a line.
    pub const fn is_line(self) -> bool {
        self.0 != 0
    }

    /// The line; of no meaning for [`Self::EMPTY`].
    pub const fn line(self) -> u64 {
        (self.0 >> 1).wrapping_sub(1)
    }

    /// Whether the line was written since it came.
    pub const fn is_dirty(self) -> bool {
        self.0 & 1 == 1
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) const fn from_bits(bits: u64) -> Entry {
        Entry(bits)
    }

    pub(super) const fn holds(self, other: Entry) -> bool {
        (self.0 ^ other.0) < 2
    }

    /// Makes it as dirty as `other` is, at least.
    pub(super) const fn soil(&mut self, other: Entry) {
        self.0 |= other.0 & 1;
    }
}

/// A sequence of random numbers (xorshift64*), the same for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`, taken from the high half of the word.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from((high * n as u64) >> 32).unwrap_or(0)
    }

    /// A way among `ways` that is not `last`; 0 if there is one only.
    pub(super) fn other_than(&mut self, last: usize, ways: usize) -> usize {
        if ways == 1 {
            return 0;
        }
        let way = self.below(ways - 1);
        way + usize::from(way >= last)
    }
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The line was there.
    Hit,
    /// It was not, and has taken the place of this one (or an empty way).
    Miss(Entry),
}

/// The sets of a cache.
#[derive(Clone, Debug)]
pub struct Sets {
    replacement: Replacement,
    ways: usize,
    body: Body,
}

/// How lines are kept.
#[derive(Clone, Debug)]
enum Body {
    Wide(Searched<u64>),
    /// Entries of half the size, where line numbers are small and many ways fit a register.
    Narrow(Searched<u32>),
    /// Where there is one large set.
    Full(Box<Full>),
}

/// The same for whatever kind of body.
macro_rules! each {
    ($body:expr, $sets:ident => $searched:expr, $full:ident => $hashed:expr) => {
        match $body {
            Body::Wide($sets) => $searched,
            Body::Narrow($sets) => $searched,
            Body::Full($full) => $hashed,
        }
    };
}

/// Ways from which on one set is hashed: below, searching costs less.
const HASHED: usize = 33;

impl Sets {
    /// Empty sets. `seed` matters for random replacement only. An access costs time in
    /// proportion to the ways, except in a single set of more than 32 ways that is replaced
    /// by age or by chance: constant time there.
    ///
    /// # Panics
    /// If there are no sets, no ways, more than 64 ways for a replacement that keeps bits
    /// (32 for SRRIP), or a number of ways for a tree that is no power of two.
    pub fn new(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Sets {
        if sets == 1 && ways >= HASHED && Full::can(replacement) {
            let body = Body::Full(Box::new(Full::new(ways, replacement, seed)));
            return Sets { replacement, ways, body };
        }
        Sets::searched(sets, ways, replacement, seed)
    }

    /// The same, always by searching: what the hashed set is checked against.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn searched(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Sets {
        let body = Body::Wide(Searched::new(sets, ways, replacement, seed));
        Sets { replacement, ways, body }
    }

    /// The same, empty, for lines whose numbers are below `lines`: in half the space where that
    /// makes accesses faster.
    pub fn for_lines_below(self, lines: u64) -> Sets {
        let Sets { replacement, ways, .. } = self;
        let small = lines < 1 << (u32::BITS - 1);
        if small && ways.is_multiple_of(8) && self.is_lru(ways) {
            let body = Body::Narrow(Searched::new(self.sets(), ways, replacement, 1));
            return Sets { replacement, ways, body };
        }
        self
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        each!(&self.body, sets => sets.sets(), _full => 1)
    }

    /// How many ways each has.
    pub const fn ways(&self) -> usize {
        self.ways
    }

    /// Looks for a line and brings it in if it is not there; `entry` dirty means a write.
    #[inline]
    pub fn access(&mut self, set: usize, entry: Entry) -> Outcome {
        each!(&mut self.body, sets => sets.access(set, entry), full => {
            match full.touch(entry) {
                true => Outcome::Hit,
                false => Outcome::Miss(full.fill(entry)),
            }
        })
    }

    fn is_lru(&self, ways: usize) -> bool {
        let full = matches!(self.body, Body::Full(_));
        self.replacement == Replacement::Lru && self.ways == ways && !full
    }

    /// The ways, if this is plain LRU that is searched; else 0.
    pub(crate) fn plain_ways(&self) -> usize {
        if self.is_lru(self.ways) { self.ways } else { 0 }
    }

    /// Asks the processor to have a set at hand soon.
    #[inline(always)]
    pub(super) fn fetch_ahead(&self, set: usize) {
        each!(&self.body, sets => sets.fetch_ahead(set), _full => ());
    }

    /// Looks for a line and notes its use; brings nothing in.
    pub fn touch(&mut self, set: usize, entry: Entry) -> bool {
        each!(&mut self.body, sets => sets.touch(set, entry), full => full.touch(entry))
    }

    /// Brings a line in that is known not to be there; what leaves for it.
    pub fn fill(&mut self, set: usize, entry: Entry) -> Entry {
        each!(&mut self.body, sets => sets.fill(set, entry), full => full.fill(entry))
    }

    /// All sets as they are, if they are plain LRU over `W` ways in words of this size.
    pub(crate) fn plain<T: Word, const W: usize>(&mut self) -> Option<&mut [[T; W]]> {
        if !self.is_lru(W) {
            return None;
        }
        each!(&mut self.body, sets => T::all(sets), _full => None)
    }

    /// Whether a line is there; changes nothing.
    pub fn contains(&self, set: usize, line: u64) -> bool {
        let wanted = Entry::new(line, false);
        each!(&self.body, sets => sets.contains(set, wanted), full => full.contains(wanted))
    }

    /// Takes a line out, for inclusion, exclusion and frames that go away.
    pub fn remove(&mut self, set: usize, line: u64) -> Option<Entry> {
        let wanted = Entry::new(line, false);
        each!(&mut self.body, sets => sets.remove(set, wanted), full => full.remove(wanted))
    }

    /// Marks a line dirty if it is there, without counting as a use; whether it is.
    pub fn soil(&mut self, set: usize, line: u64) -> bool {
        let wanted = Entry::new(line, true);
        each!(&mut self.body, sets => sets.soil(set, wanted), full => full.soil(wanted))
    }

    /// What a set of one way holds.
    pub(super) fn only(&self, set: usize) -> Entry {
        each!(&self.body, sets => sets.first(set), _full => unreachable!("one way is searched"))
    }

    /// Every line, with the set it is in.
    pub fn lines(&self) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let all: Box<dyn Iterator<Item = (usize, Entry)>> = each!(
            &self.body,
            sets => Box::new(sets.lines()),
            full => Box::new(full.entries().map(|entry| (0, entry)))
        );
        all
    }
}
