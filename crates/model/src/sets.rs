//! The sets of one cache and how they replace: which lines are there, and which one leaves.
//!
//! Where a line belongs and what follows from a miss is decided elsewhere. What searches sets is `Searched`;
//! one large set is handed to `Full`, which hashes instead and is otherwise the same.

pub use crate::entry::{AccessOutcome, CacheEntry, Replacement};
use crate::full::Full;
use crate::lanes::EntryWord;
use crate::searched::Searched;

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

    /// The same, empty, for lines whose numbers are below `lines`: in half the space where they
    /// are small.
    pub fn for_lines_below(self, lines: u64) -> Sets {
        let Sets { replacement, ways, body } = self;
        let body = match body {
            Body::Wide(sets) if lines < 1 << (u32::BITS - 1) => Body::Narrow(Searched::like(sets)),
            body => body,
        };
        Sets { replacement, ways, body }
    }

    /// The same sets with other lines, which belong to the same sets, if this is plain LRU.
    pub fn with_lines(&self, line: impl Fn(u64) -> u64) -> Sets {
        let mut copy = self.clone();
        each!(&mut copy.body, sets => sets.change_lines(line), _full => ());
        copy
    }

    /// How many sets there are.
    #[inline]
    pub fn sets(&self) -> usize {
        each!(&self.body, sets => sets.sets(), _full => 1)
    }

    /// How many ways each has.
    #[inline]
    pub const fn ways(&self) -> usize {
        self.ways
    }

    /// Looks for a line and brings it in if it is not there; `entry` dirty means a write.
    #[inline]
    pub fn access(&mut self, set: usize, entry: CacheEntry) -> AccessOutcome {
        each!(&mut self.body, sets => sets.access(set, entry), full => {
            match full.touch(entry) {
                true => AccessOutcome::Hit,
                false => AccessOutcome::Miss(full.fill(entry)),
            }
        })
    }

    /// Entries from one set to the next, if this is plain LRU that is searched; else 0.
    #[inline]
    pub fn plain_slots(&self) -> usize {
        let lru = self.replacement == Replacement::Lru;
        each!(&self.body, sets => if lru { sets.slots() } else { 0 }, _full => 0)
    }

    /// Whether entries are kept in words of 32 bits.
    #[inline]
    pub const fn is_narrow(&self) -> bool {
        matches!(self.body, Body::Narrow(_))
    }

    /// Puts back what the slots of a set held, as [`Self::plain`] gave them.
    ///
    /// # Panics
    /// If entries are not [narrow](Self::is_narrow).
    #[inline]
    pub fn put_back(&mut self, set: usize, slots: &[u32]) {
        match &mut self.body {
            Body::Narrow(sets) => sets.put_back(set, slots),
            _ => unreachable!("words of another size"),
        }
    }

    /// Bytes in which the lines are searched.
    pub fn bytes(&self) -> usize {
        each!(&self.body, sets => sets.bytes(), _full => 0)
    }

    /// Asks the processor to have a set at hand soon.
    #[inline(always)]
    pub fn fetch_ahead(&self, set: usize) {
        each!(&self.body, sets => sets.fetch_ahead(set), _full => ());
    }

    /// What leaves a set next, if that is known and anything does.
    #[inline(always)]
    pub fn oldest(&self, set: usize) -> CacheEntry {
        each!(&self.body, sets => sets.oldest(set), _full => CacheEntry::EMPTY)
    }

    /// Looks for a line and notes its use; brings nothing in.
    #[inline]
    pub fn touch(&mut self, set: usize, entry: CacheEntry) -> bool {
        each!(&mut self.body, sets => sets.touch(set, entry), full => full.touch(entry))
    }

    /// Brings a line in that is known not to be there; what leaves for it.
    #[inline]
    pub fn fill(&mut self, set: usize, entry: CacheEntry) -> CacheEntry {
        each!(&mut self.body, sets => sets.fill(set, entry), full => full.fill(entry))
    }

    /// All sets as they are, if they are plain LRU over `W` slots in words of this size; the
    /// slots beyond [`Self::ways`] hold nothing, ever.
    #[inline]
    pub fn plain<T: EntryWord, const W: usize>(&mut self) -> Option<&mut [[T; W]]> {
        if self.plain_slots() != W {
            return None;
        }
        each!(&mut self.body, sets => T::of(sets.all()), _full => None)
    }

    /// Whether a line is there; changes nothing.
    #[inline]
    pub fn contains(&self, set: usize, line: u64) -> bool {
        let wanted = CacheEntry::new(line, false);
        each!(&self.body, sets => sets.contains(set, wanted), full => full.contains(wanted))
    }

    /// Takes a line out, for inclusion, exclusion and frames that go away.
    #[inline]
    pub fn remove(&mut self, set: usize, line: u64) -> Option<CacheEntry> {
        let wanted = CacheEntry::new(line, false);
        each!(&mut self.body, sets => sets.remove(set, wanted), full => full.remove(wanted))
    }

    /// Marks a line dirty if it is there, without counting as a use; whether it is.
    #[inline]
    pub fn soil(&mut self, set: usize, line: u64) -> bool {
        let wanted = CacheEntry::new(line, true);
        each!(&mut self.body, sets => sets.soil(set, wanted), full => full.soil(wanted))
    }

    /// What a set of one way holds.
    #[inline]
    pub fn only(&self, set: usize) -> CacheEntry {
        each!(&self.body, sets => sets.first(set), _full => unreachable!("one way is searched"))
    }

    /// Every line, with the set it is in.
    pub fn lines(&self) -> impl Iterator<Item = (usize, CacheEntry)> + '_ {
        let all: Box<dyn Iterator<Item = (usize, CacheEntry)>> = each!(
            &self.body,
            sets => Box::new(sets.lines()),
            full => Box::new(full.entries().map(|entry| (0, entry)))
        );
        all
    }
}
