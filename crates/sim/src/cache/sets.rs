//! The sets of one cache and how they replace: which lines are there, and which one leaves.
//!
//! A line is a number (physical address over line size); an entry is that number plus one,
//! shifted left by one, with the dirty flag in bit 0, so that 0 is an empty way. Where a line
//! belongs and what follows from a miss is decided elsewhere. One large set is handed to
//! `Full`, which hashes instead of searching and is otherwise the same.

use serde::{Deserialize, Serialize};

use super::full::Full;

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
    ways: usize,
    entries: Vec<Entry>,
    /// Where the first set begins: at a cache line of the processor that simulates, so that
    /// sets of 8 and 16 ways take one line and two.
    start: usize,
    replacement: Replacement,
    /// Per set: tree bits, used bits, two bits per way, or the way used last.
    state: Vec<u64>,
    dice: Dice,
    /// Instead of all that, where there is one large set.
    full: Option<Box<Full>>,
}

/// Bytes of a cache line of the processor that simulates.
const HOST_LINE: usize = 64;
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
            let full = Some(Box::new(Full::new(ways, replacement, seed)));
            let (entries, state, dice) = (Vec::new(), vec![0], Dice::new(seed));
            return Sets { ways, entries, start: 0, replacement, state, dice, full };
        }
        Sets::searched(sets, ways, replacement, seed)
    }

    /// The same, always by searching: what the hashed set is checked against.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn searched(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Sets {
        assert!(sets > 0 && ways > 0, "a cache of {sets} sets and {ways} ways");
        let most = match replacement {
            Replacement::Srrip => 32,
            Replacement::TreePlru | Replacement::Nru => 64,
            _ => usize::MAX,
        };
        assert!(ways <= most, "{replacement:?} handles at most {most} ways, not {ways}");
        let tree = replacement == Replacement::TreePlru;
        assert!(!tree || ways.is_power_of_two(), "a tree over {ways} ways");
        let entries = vec![Entry::EMPTY; sets * ways + HOST_LINE / 8];
        let start = entries.as_ptr().align_offset(HOST_LINE).min(HOST_LINE / 8);
        let fresh = if replacement == Replacement::Srrip { u64::MAX } else { 0 };
        let (state, dice) = (vec![fresh; sets], Dice::new(seed));
        Sets { ways, entries, start, replacement, state, dice, full: None }
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.state.len()
    }

    /// How many ways each has.
    pub const fn ways(&self) -> usize {
        self.ways
    }

    /// Looks for a line and brings it in if it is not there; `entry` dirty means a write.
    #[inline]
    pub fn access(&mut self, set: usize, entry: Entry) -> Outcome {
        if self.replacement == Replacement::Lru {
            // The common widths with bounds that the compiler knows.
            return match self.ways {
                1 => self.lru::<1>(set, entry),
                2 => self.lru::<2>(set, entry),
                4 => self.lru::<4>(set, entry),
                8 => self.lru::<8>(set, entry),
                12 => self.lru::<12>(set, entry),
                16 => self.lru::<16>(set, entry),
                _ => self.wide(set, entry),
            };
        }
        self.wide(set, entry)
    }

    /// Whether this is plain LRU over so many ways, so that [`Self::lru`] may be called.
    pub(crate) fn is_lru(&self, ways: usize) -> bool {
        self.replacement == Replacement::Lru && self.ways == ways && self.full.is_none()
    }

    /// The ways, if this is plain LRU, so that [`Self::lru`] may be called; else 0.
    pub(crate) fn plain_ways(&self) -> usize {
        if self.is_lru(self.ways) { self.ways } else { 0 }
    }

    /// Asks the processor to have a set at hand soon.
    #[inline(always)]
    pub(super) fn fetch_ahead(&self, set: usize) {
        let first = self.start + set * self.ways;
        crate::hint::fetch(&self.entries[first]);
        if self.ways > HOST_LINE / 8 {
            crate::hint::fetch(&self.entries[first + HOST_LINE / 8]);
        }
    }

    /// What is not a common LRU.
    fn wide(&mut self, set: usize, entry: Entry) -> Outcome {
        if self.touch(set, entry) { Outcome::Hit } else { Outcome::Miss(self.fill(set, entry)) }
    }

    /// Looks for a line and notes its use; brings nothing in.
    pub fn touch(&mut self, set: usize, entry: Entry) -> bool {
        if let Some(full) = &mut self.full {
            return full.touch(entry);
        }
        let lru = self.replacement == Replacement::Lru;
        let ways = self.set_mut(set);
        let Some(way) = ways.iter().position(|here| here.holds(entry)) else { return false };
        ways[way].soil(entry);
        if lru {
            ways[..=way].rotate_right(1);
        } else {
            self.used(set, way, true);
        }
        true
    }

    /// Brings a line in that is known not to be there; what leaves for it.
    pub fn fill(&mut self, set: usize, entry: Entry) -> Entry {
        if let Some(full) = &mut self.full {
            return full.fill(entry);
        }
        if matches!(self.replacement, Replacement::Lru | Replacement::Fifo) {
            let ways = self.set_mut(set);
            ways.rotate_right(1);
            return std::mem::replace(&mut ways[0], entry);
        }
        let empty = self.set(set).iter().position(|here| !here.is_line());
        let way = empty.unwrap_or_else(|| self.choose(set));
        self.used(set, way, false);
        std::mem::replace(&mut self.set_mut(set)[way], entry)
    }

    /// [`Self::access`] for plain LRU over `W` ways.
    #[inline(always)]
    pub(crate) fn lru<const W: usize>(&mut self, set: usize, entry: Entry) -> Outcome {
        let first = self.start + set * W;
        let ways: &mut [Entry] = &mut self.entries[first..first + W];
        match <&mut [Entry; W]>::try_from(ways) {
            Ok(ways) => lru(ways, entry),
            Err(_) => unreachable!("a slice of W entries"),
        }
    }

    /// All sets as they are, if they are plain LRU over `W` ways.
    pub(crate) fn plain<const W: usize>(&mut self) -> Option<&mut [[Entry; W]]> {
        if !self.is_lru(W) {
            return None;
        }
        let (start, sets) = (self.start, self.sets());
        Some(&mut self.entries[start..].as_chunks_mut::<W>().0[..sets])
    }

    /// Whether a line is there; changes nothing.
    pub fn contains(&self, set: usize, line: u64) -> bool {
        let wanted = Entry::new(line, false);
        if let Some(full) = &self.full {
            return full.contains(wanted);
        }
        self.set(set).iter().any(|entry| entry.holds(wanted))
    }

    /// Takes a line out, for inclusion, exclusion and frames that go away.
    pub fn remove(&mut self, set: usize, line: u64) -> Option<Entry> {
        let wanted = Entry::new(line, false);
        if let Some(full) = &mut self.full {
            return full.remove(wanted);
        }
        let lru = matches!(self.replacement, Replacement::Lru | Replacement::Fifo);
        let ways = self.set_mut(set);
        let place = ways.iter().position(|entry| entry.holds(wanted))?;
        let gone = ways[place];
        if lru {
            ways[place..].rotate_left(1);
            ways[ways.len() - 1] = Entry::EMPTY;
        } else {
            ways[place] = Entry::EMPTY;
        }
        Some(gone)
    }

    /// Marks a line dirty if it is there, without counting as a use; whether it is.
    pub fn soil(&mut self, set: usize, line: u64) -> bool {
        let wanted = Entry::new(line, true);
        if let Some(full) = &mut self.full {
            return full.soil(wanted);
        }
        let found = self.set_mut(set).iter_mut().find(|entry| entry.holds(wanted));
        found.map(|entry| entry.soil(wanted)).is_some()
    }

    /// What a set of one way holds.
    pub(super) fn only(&self, set: usize) -> Entry {
        self.set(set)[0]
    }

    /// Every line, with the set it is in.
    pub fn lines(&self) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let hashed = self.full.iter().flat_map(|full| full.entries());
        let places = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_line());
        let set = |place| (place - self.start) / self.ways;
        places.map(move |(place, &entry)| (set(place), entry)).chain(hashed.map(|e| (0, e)))
    }

    fn set(&self, set: usize) -> &[Entry] {
        &self.entries[self.start + set * self.ways..][..self.ways]
    }

    fn set_mut(&mut self, set: usize) -> &mut [Entry] {
        &mut self.entries[self.start + set * self.ways..][..self.ways]
    }

    /// Notes that a way was used (`again`), or filled.
    fn used(&mut self, set: usize, way: usize, again: bool) {
        let (ways, state) = (self.ways, &mut self.state[set]);
        match self.replacement {
            Replacement::TreePlru => point_away(state, ways, way),
            Replacement::Nru => {
                *state |= 1 << way;
                if state.count_ones() as usize == ways {
                    *state = 1 << way;
                }
            }
            Replacement::Srrip => {
                let interval = if again { 0 } else { 2 };
                *state = *state & !(3 << (2 * way)) | interval << (2 * way);
            }
            Replacement::NotLastUsed => *state = way as u64,
            Replacement::Lru | Replacement::Fifo | Replacement::Random => {}
        }
    }

    /// The way that makes room, in a full set.
    fn choose(&mut self, set: usize) -> usize {
        let (ways, state) = (self.ways, &mut self.state[set]);
        match self.replacement {
            Replacement::TreePlru => follow(*state, ways),
            Replacement::Nru => (!*state).trailing_zeros() as usize % ways,
            Replacement::Srrip => distant(state, ways),
            Replacement::NotLastUsed => {
                let last = usize::try_from(*state).unwrap_or(0);
                self.dice.other_than(last, ways)
            }
            Replacement::Lru | Replacement::Fifo | Replacement::Random => self.dice.below(ways),
        }
    }
}

/// Ways in the order of their last use, the latest first.
#[inline(always)]
pub(super) fn lru<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> Outcome {
    let first = ways[0];
    if first.holds(entry) {
        ways[0].soil(entry);
        return Outcome::Hit;
    }
    let mut carried = first;
    for way in &mut ways[1..] {
        let here = std::mem::replace(way, carried);
        if here.holds(entry) {
            ways[0] = Entry(here.0 | entry.0 & 1);
            return Outcome::Hit;
        }
        carried = here;
    }
    ways[0] = entry;
    Outcome::Miss(carried)
}

/// Makes every node on the way to `way` point to the other side. Node 1 is the root; the
/// children of node n are 2n and 2n+1; a bit of 1 points to the upper half.
fn point_away(tree: &mut u64, ways: usize, way: usize) {
    let mut node = 1;
    let mut half = ways / 2;
    while half > 0 {
        let upper = way & half != 0;
        if upper {
            *tree &= !(1 << node);
        } else {
            *tree |= 1 << node;
        }
        node = 2 * node + usize::from(upper);
        half /= 2;
    }
}

/// The way that the tree points to.
fn follow(tree: u64, ways: usize) -> usize {
    let (mut node, mut way) = (1, 0);
    let mut half = ways / 2;
    while half > 0 {
        let upper = tree >> node & 1 == 1;
        way += if upper { half } else { 0 };
        node = 2 * node + usize::from(upper);
        half /= 2;
    }
    way
}

/// The first way with the longest interval, after making all longer until there is one.
fn distant(intervals: &mut u64, ways: usize) -> usize {
    loop {
        if let Some(way) = (0..ways).find(|way| *intervals >> (2 * way) & 3 == 3) {
            return way;
        }
        for way in 0..ways {
            *intervals += 1 << (2 * way);
        }
    }
}
