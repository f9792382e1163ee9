//! Sets that are searched way by way, with every replacement there is. Entries are kept in
//! words of 64 bits, or of 32 where line numbers are small; only [`Sets`](crate::sets::Sets) uses
//! it, and knows which.

use crate::entry::{AccessOutcome, CacheEntry, Dice, Replacement};
use crate::lanes::{EntryWord, lru};

/// The sets.
#[derive(Clone, Debug)]
pub(crate) struct Searched<T> {
    ways: usize,
    entries: Vec<T>,
    /// Where the first set begins: at a cache line of the processor that simulates, so that
    /// sets of 8 and 16 ways take one line or two.
    start: usize,
    replacement: Replacement,
    /// Per set: tree bits, used bits, two bits per way, or the way used last.
    state: Vec<u64>,
    dice: Dice,
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
        let entries = vec![T::EMPTY; sets * ways + Self::PER_LINE];
        let start = entries.as_ptr().align_offset(HOST_LINE).min(Self::PER_LINE);
        let fresh = if replacement == Replacement::Srrip { u64::MAX } else { 0 };
        let (state, dice) = (vec![fresh; sets], Dice::new(seed));
        Searched { ways, entries, start, replacement, state, dice }
    }

    pub(crate) fn sets(&self) -> usize {
        self.state.len()
    }

    #[inline]
    pub(crate) fn access(&mut self, set: usize, entry: CacheEntry) -> AccessOutcome {
        if self.replacement == Replacement::Lru {
            // The common widths with bounds that the compiler knows.
            return match self.ways {
                1 => self.lru::<1>(set, entry),
                2 => self.lru::<2>(set, entry),
                4 => self.lru::<4>(set, entry),
                8 => self.lru::<8>(set, entry),
                12 => self.lru::<12>(set, entry),
                16 => self.lru::<16>(set, entry),
                _ => self.any(set, entry),
            };
        }
        self.any(set, entry)
    }

    /// What is not a common LRU.
    fn any(&mut self, set: usize, entry: CacheEntry) -> AccessOutcome {
        if self.touch(set, entry) {
            AccessOutcome::Hit
        } else {
            AccessOutcome::Miss(self.fill(set, entry))
        }
    }

    #[inline(always)]
    fn lru<const W: usize>(&mut self, set: usize, entry: CacheEntry) -> AccessOutcome {
        let first = self.start + set * W;
        let ways: &mut [T] = &mut self.entries[first..first + W];
        match <&mut [T; W]>::try_from(ways) {
            Ok(ways) => match lru(ways, T::pack(entry)) {
                (true, _) => AccessOutcome::Hit,
                (false, gone) => AccessOutcome::Miss(gone.entry()),
            },
            Err(_) => unreachable!("a slice of W entries"),
        }
    }

    #[inline(always)]
    pub(crate) fn fetch_ahead(&self, set: usize) {
        let first = self.start + set * self.ways;
        crate::hint::fetch(&self.entries[first]);
        if self.ways > Self::PER_LINE {
            crate::hint::fetch(&self.entries[first + Self::PER_LINE]);
        }
    }

    pub(crate) fn touch(&mut self, set: usize, entry: CacheEntry) -> bool {
        let lru = self.replacement == Replacement::Lru;
        let (ways, entry) = (self.set_mut(set), T::pack(entry));
        let Some(way) = ways.iter().position(|here| here.holds(entry)) else { return false };
        ways[way] = ways[way].soiled(entry);
        if lru {
            ways[..=way].rotate_right(1);
        } else {
            self.used(set, way, true);
        }
        true
    }

    pub(crate) fn fill(&mut self, set: usize, entry: CacheEntry) -> CacheEntry {
        let entry = T::pack(entry);
        if matches!(self.replacement, Replacement::Lru | Replacement::Fifo) {
            let ways = self.set_mut(set);
            ways.rotate_right(1);
            return std::mem::replace(&mut ways[0], entry).entry();
        }
        let empty = self.set(set).iter().position(|&here| here == T::EMPTY);
        let way = empty.unwrap_or_else(|| self.choose(set));
        self.used(set, way, false);
        std::mem::replace(&mut self.set_mut(set)[way], entry).entry()
    }

    /// All sets, which have `W` ways.
    pub(crate) fn all<const W: usize>(&mut self) -> &mut [[T; W]] {
        let (start, sets) = (self.start, self.sets());
        &mut self.entries[start..].as_chunks_mut::<W>().0[..sets]
    }

    pub(crate) fn contains(&self, set: usize, wanted: CacheEntry) -> bool {
        self.set(set).iter().any(|here| here.entry().holds(wanted))
    }

    pub(crate) fn remove(&mut self, set: usize, wanted: CacheEntry) -> Option<CacheEntry> {
        let lru = matches!(self.replacement, Replacement::Lru | Replacement::Fifo);
        let ways = self.set_mut(set);
        let place = ways.iter().position(|here| here.entry().holds(wanted))?;
        let gone = ways[place];
        if lru {
            ways[place..].rotate_left(1);
            ways[ways.len() - 1] = T::EMPTY;
        } else {
            ways[place] = T::EMPTY;
        }
        Some(gone.entry())
    }

    pub(crate) fn soil(&mut self, set: usize, wanted: CacheEntry) -> bool {
        let found = self.set_mut(set).iter_mut().find(|here| here.entry().holds(wanted));
        found.map(|here| *here = here.soiled(T::pack(wanted))).is_some()
    }

    /// What the first way of a set holds.
    pub(crate) fn first(&self, set: usize) -> CacheEntry {
        self.set(set)[0].entry()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, CacheEntry)> + '_ {
        let places = self.entries[self.start..].iter().enumerate();
        let full = places.filter(|&(_, &here)| here != T::EMPTY);
        full.map(|(place, here)| (place / self.ways, here.entry()))
    }

    /// Puts another line in the place of each, as dirty as it is.
    pub(crate) fn change_lines(&mut self, line: impl Fn(u64) -> u64) {
        for here in self.entries.iter_mut().filter(|here| **here != T::EMPTY) {
            let entry = here.entry();
            *here = T::pack(CacheEntry::new(line(entry.line()), entry.is_dirty()));
        }
    }

    fn set(&self, set: usize) -> &[T] {
        &self.entries[self.start + set * self.ways..][..self.ways]
    }

    fn set_mut(&mut self, set: usize) -> &mut [T] {
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
