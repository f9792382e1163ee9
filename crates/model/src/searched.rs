//! Sets that are searched way by way, with every replacement there is. Entries are kept in
//! words of 64 bits, or of 32 where line numbers are small; only [`Sets`](crate::sets::Sets) uses
//! it, and knows which.

use crate::entry::{AccessOutcome, CacheEntry, Dice, Replacement};
use crate::lanes::{EntryWord, NOWHERE, SetLoops};

/// The sets.
#[derive(Clone, Debug)]
pub(crate) struct Searched<T> {
    ways: usize,
    /// Entries from one set to the next: the ways, and some that hold nothing, ever, so that the
    /// set fills registers.
    slots: usize,
    entries: Vec<T>,
    /// Where the first set begins: at a cache line of the processor that simulates, so that
    /// sets of 8 and 16 ways take one line or two.
    start: usize,
    replacement: Replacement,
    /// Per set: tree bits, used bits, two bits per way, or the way used last.
    state: Vec<u64>,
    dice: Dice,
    loops: SetLoops<T>,
}

/// Bytes of a cache line of the processor that simulates.
const HOST_LINE: usize = 64;

impl<T: EntryWord> Searched<T> {
    /// Entries on a line of the processor that simulates.
    const PER_LINE: usize = HOST_LINE / size_of::<T>();

    pub(crate) fn new(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Self {
        assert!(sets > 0 && ways > 0, "a cache of {sets} sets and {ways} ways");
        let most = match replacement {
            Replacement::Srrip => 32,
            Replacement::TreePlru | Replacement::Nru => 64,
            _ => usize::MAX,
        };
        assert!(ways <= most, "{replacement:?} handles at most {most} ways, not {ways}");
        let tree = replacement == Replacement::TreePlru;
        assert!(!tree || ways.is_power_of_two(), "a tree over {ways} ways");
        let fresh = if replacement == Replacement::Srrip { u64::MAX } else { 0 };
        Searched::empty(ways, replacement, vec![fresh; sets], Dice::new(seed))
    }

    /// The same sets as these, which are empty, in words of another size.
    pub(crate) fn like<U>(other: Searched<U>) -> Self {
        Searched::empty(other.ways, other.replacement, other.state, other.dice)
    }

    fn empty(ways: usize, replacement: Replacement, state: Vec<u64>, dice: Dice) -> Self {
        let lanes = HOST_LINE / 2 / size_of::<T>();
        let wide = (3..=MOST_LANES).contains(&ways);
        let slots = if wide { ways.next_multiple_of(lanes) } else { ways };
        let entries = vec![T::EMPTY; state.len() * slots + Self::PER_LINE];
        let start = entries.as_ptr().align_offset(HOST_LINE).min(Self::PER_LINE);
        let loops = SetLoops::of(slots);
        Searched { ways, slots, entries, start, replacement, state, dice, loops }
    }

    pub(crate) fn sets(&self) -> usize {
        self.state.len()
    }

    /// Entries from one set to the next.
    pub(crate) const fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of all entries.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.entries.as_slice())
    }

    #[inline]
    pub(crate) fn access(&mut self, set: usize, entry: CacheEntry) -> AccessOutcome {
        if self.touch(set, entry) {
            AccessOutcome::Hit
        } else {
            AccessOutcome::Miss(self.fill(set, entry))
        }
    }

    #[inline(always)]
    pub(crate) fn fetch_ahead(&self, set: usize) {
        let first = self.start + set * self.slots;
        crate::hint::fetch(&self.entries[first]);
        if self.slots > Self::PER_LINE {
            crate::hint::fetch(&self.entries[first + Self::PER_LINE]);
        }
    }

    #[inline]
    pub(crate) fn touch(&mut self, set: usize, entry: CacheEntry) -> bool {
        let entry = T::pack(entry);
        if self.replacement == Replacement::Lru {
            let slots = &mut self.entries[self.start + set * self.slots..][..self.slots];
            return self.loops.touch(slots, entry);
        }
        let place = self.place(set, entry);
        if place == NOWHERE {
            return false;
        }
        let here = &mut self.set_mut(set)[place as usize];
        *here = here.soiled(entry);
        self.used(set, place as usize, true);
        true
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "2^28 ways at most")]
    pub(crate) fn fill(&mut self, set: usize, entry: CacheEntry) -> CacheEntry {
        let entry = T::pack(entry);
        if matches!(self.replacement, Replacement::Lru | Replacement::Fifo) {
            let last = self.ways - 1;
            let gone = self.set(set)[last];
            self.push(set, last as u32, entry);
            return gone.entry();
        }
        self.fill_chosen(set, entry).entry()
    }

    /// Fills a set whose entries keep their places.
    fn fill_chosen(&mut self, set: usize, entry: T) -> T {
        let empty = self.place(set, T::EMPTY) as usize;
        let way = if empty < self.ways { empty } else { self.choose(set) };
        self.used(set, way, false);
        std::mem::replace(&mut self.set_mut(set)[way], entry)
    }

    /// All sets, which have `W` slots.
    pub(crate) fn all<const W: usize>(&mut self) -> &mut [[T; W]] {
        let (start, sets) = (self.start, self.sets());
        &mut self.entries[start..].as_chunks_mut::<W>().0[..sets]
    }

    #[inline]
    pub(crate) fn contains(&self, set: usize, wanted: CacheEntry) -> bool {
        self.place(set, T::pack(wanted)) != NOWHERE
    }

    pub(crate) fn remove(&mut self, set: usize, wanted: CacheEntry) -> Option<CacheEntry> {
        let place = self.place(set, T::pack(wanted));
        if place == NOWHERE {
            return None;
        }
        let ordered = matches!(self.replacement, Replacement::Lru | Replacement::Fifo);
        let (place, ways) = (place as usize, self.set_mut(set));
        let gone = std::mem::replace(&mut ways[place], T::EMPTY);
        if ordered {
            ways[place..].rotate_left(1);
        }
        Some(gone.entry())
    }

    pub(crate) fn soil(&mut self, set: usize, wanted: CacheEntry) -> bool {
        let entry = T::pack(wanted);
        let here = self.place(set, entry) as usize;
        let here = self.set_mut(set).get_mut(here);
        here.map(|here| *here = here.soiled(entry)).is_some()
    }

    /// What leaves a set that is replaced by age next, or nothing.
    #[inline(always)]
    pub(crate) fn oldest(&self, set: usize) -> CacheEntry {
        let ordered = matches!(self.replacement, Replacement::Lru | Replacement::Fifo);
        if ordered { self.set(set)[self.ways - 1].entry() } else { CacheEntry::EMPTY }
    }

    /// What the first way of a set holds.
    pub(crate) fn first(&self, set: usize) -> CacheEntry {
        self.set(set)[0].entry()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, CacheEntry)> + '_ {
        let places = self.entries[self.start..].iter().enumerate();
        let full = places.filter(|&(_, &here)| here != T::EMPTY);
        full.map(|(place, here)| (place / self.slots, here.entry()))
    }

    /// Puts another line in the place of each, as dirty as it is.
    pub(crate) fn change_lines(&mut self, line: impl Fn(u64) -> u64) {
        for here in self.entries.iter_mut().filter(|here| **here != T::EMPTY) {
            let entry = here.entry();
            *here = T::pack(CacheEntry::new(line(entry.line()), entry.is_dirty()));
        }
    }

    /// The ways of a set.
    #[inline(always)]
    fn set(&self, set: usize) -> &[T] {
        &self.entries[self.start + set * self.slots..][..self.ways]
    }

    #[inline(always)]
    fn set_mut(&mut self, set: usize) -> &mut [T] {
        &mut self.entries[self.start + set * self.slots..][..self.ways]
    }

    /// Puts slots back.
    #[inline(always)]
    pub(crate) fn put_back(&mut self, set: usize, slots: &[T]) {
        self.entries[self.start + set * self.slots..][..self.slots].copy_from_slice(slots);
    }

    #[inline(always)]
    fn place(&self, set: usize, entry: T) -> u32 {
        let slots = &self.entries[self.start + set * self.slots..][..self.slots];
        self.loops.find(slots, entry)
    }

    #[inline(always)]
    fn push(&mut self, set: usize, place: u32, first: T) {
        let slots = &mut self.entries[self.start + set * self.slots..][..self.slots];
        self.loops.push(slots, place, first);
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

/// The most ways that are searched in registers.
const MOST_LANES: usize = 32;

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
