//! One large set, replaced by age or by chance: a hash table from lines to places and a list of
//! places by age, so that an access costs the same for 64 lines and for 1536. Gives exactly
//! what searching a set would give; only [`Sets`](crate::sets::Sets) uses it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use huepage_color::NumberHash;

use crate::entry::{CacheEntry, Dice, Replacement};

/// The end of the list.
const NONE: usize = usize::MAX;

#[derive(Clone, Debug)]
struct Place {
    entry: CacheEntry,
    newer: usize,
    older: usize,
}

/// The set.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    ways: usize,
    replacement: Replacement,
    found: HashMap<u64, usize, NumberHash>,
    /// Places used so far.
    places: Vec<Place>,
    /// Places that lost their line.
    free: BinaryHeap<Reverse<usize>>,
    newest: usize,
    oldest: usize,
    /// The place used last.
    last: usize,
    dice: Dice,
}

impl Full {
    /// Whether it knows such a replacement.
    pub(crate) const fn can(replacement: Replacement) -> bool {
        matches!(
            replacement,
            Replacement::Lru | Replacement::Fifo | Replacement::Random | Replacement::NotLastUsed
        )
    }

    pub(crate) fn new(ways: usize, replacement: Replacement, seed: u64) -> Full {
        Full {
            ways,
            replacement,
            found: HashMap::default(),
            places: Vec::new(),
            free: BinaryHeap::new(),
            newest: NONE,
            oldest: NONE,
            last: 0,
            dice: Dice::new(seed),
        }
    }

    pub(crate) fn touch(&mut self, entry: CacheEntry) -> bool {
        let Some(&place) = self.found.get(&entry.line()) else { return false };
        self.places[place].entry.soil(entry);
        self.last = place;
        if self.replacement == Replacement::Lru && self.newest != place {
            self.unlink(place);
            self.link(place);
        }
        true
    }

    pub(crate) fn fill(&mut self, entry: CacheEntry) -> CacheEntry {
        let (place, gone) = self.room();
        self.found.insert(entry.line(), place);
        self.places[place].entry = entry;
        self.link(place);
        self.last = place;
        gone
    }

    /// A place that is not in the list, and what had to leave it.
    fn room(&mut self) -> (usize, CacheEntry) {
        if let Some(Reverse(place)) = self.free.pop() {
            return (place, CacheEntry::EMPTY);
        }
        if self.places.len() < self.ways {
            self.places.push(Place { entry: CacheEntry::EMPTY, newer: NONE, older: NONE });
            return (self.places.len() - 1, CacheEntry::EMPTY);
        }
        let place = match self.replacement {
            Replacement::Random => self.dice.below(self.ways),
            Replacement::NotLastUsed => self.dice.other_than(self.last, self.ways),
            _ => self.oldest,
        };
        self.unlink(place);
        let gone = self.places[place].entry;
        self.found.remove(&gone.line());
        (place, gone)
    }

    pub(crate) fn contains(&self, entry: CacheEntry) -> bool {
        self.found.contains_key(&entry.line())
    }

    pub(crate) fn remove(&mut self, entry: CacheEntry) -> Option<CacheEntry> {
        let place = self.found.remove(&entry.line())?;
        self.unlink(place);
        self.free.push(Reverse(place));
        Some(std::mem::replace(&mut self.places[place].entry, CacheEntry::EMPTY))
    }

    pub(crate) fn soil(&mut self, entry: CacheEntry) -> bool {
        let place = self.found.get(&entry.line());
        place.map(|&place| self.places[place].entry.soil(entry)).is_some()
    }

    /// Every line, by place.
    pub(crate) fn entries(&self) -> impl Iterator<Item = CacheEntry> + '_ {
        self.places.iter().map(|place| place.entry).filter(|entry| entry.is_line())
    }

    /// Puts a place at the young end of the list.
    fn link(&mut self, place: usize) {
        let second = std::mem::replace(&mut self.newest, place);
        (self.places[place].newer, self.places[place].older) = (NONE, second);
        match self.places.get_mut(second) {
            Some(second) => second.newer = place,
            None => self.oldest = place,
        }
    }

    fn unlink(&mut self, place: usize) {
        let Place { newer, older, .. } = self.places[place];
        match self.places.get_mut(newer) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.places.get_mut(older) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}
