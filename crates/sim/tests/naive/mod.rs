//! Deliberately naive models: lists, searched from end to end, one rule after the other. They
//! share names of choices with the simulator and nothing else.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::precedence,
    reason = "small numbers; plain arithmetic is the point"
)]

pub mod hierarchy;
pub mod tlb;

use std::collections::HashMap;

use huepage_sim::cache::Replacement;

/// A line and whether it is dirty.
pub type Line = (u64, bool);

/// A set: an array of places and what is known of them.
struct Set {
    places: Vec<Option<Line>>,
    /// When each place was used last, and when it was filled.
    used_at: Vec<u64>,
    filled_at: Vec<u64>,
    recent: Vec<bool>,
    intervals: Vec<u8>,
    tree: HashMap<(usize, usize), bool>,
    last: usize,
}

/// One table of sets with its own idea of every replacement.
pub struct Table {
    ways: usize,
    replacement: Replacement,
    sets: HashMap<u64, Set>,
    clock: u64,
    dice: u64,
}

impl Table {
    pub fn new(ways: usize, replacement: Replacement, seed: u64) -> Table {
        let dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Table { ways, replacement, sets: HashMap::new(), clock: 0, dice }
    }

    fn set(&mut self, number: u64) -> &mut Set {
        let ways = self.ways;
        self.sets.entry(number).or_insert_with(|| Set {
            places: vec![None; ways],
            used_at: vec![0; ways],
            filled_at: vec![0; ways],
            recent: vec![false; ways],
            intervals: vec![3; ways],
            tree: HashMap::new(),
            last: 0,
        })
    }

    fn place_of(&mut self, set: u64, line: u64) -> Option<usize> {
        self.set(set).places.iter().position(|place| place.is_some_and(|(l, _)| l == line))
    }

    pub fn contains(&mut self, set: u64, line: u64) -> bool {
        self.place_of(set, line).is_some()
    }

    /// Whether it is there; then this was a use.
    pub fn touch(&mut self, set: u64, line: u64, write: bool) -> bool {
        let Some(place) = self.place_of(set, line) else { return false };
        if write {
            self.soil(set, line);
        }
        self.note(set, place, true);
        true
    }

    /// Brings in what is not there; what left.
    pub fn fill(&mut self, set: u64, line: u64, dirty: bool) -> Option<Line> {
        let empty = self.set(set).places.iter().position(|place| place.is_none());
        let place = empty.unwrap_or_else(|| self.victim(set));
        let gone = self.set(set).places[place].replace((line, dirty));
        self.note(set, place, false);
        gone
    }

    /// Whether the line was there; what left if not.
    pub fn access(&mut self, set: u64, line: u64, write: bool) -> (bool, Option<Line>) {
        if self.touch(set, line, write) {
            (true, None)
        } else {
            (false, self.fill(set, line, write))
        }
    }

    pub fn remove(&mut self, set: u64, line: u64) -> Option<Line> {
        let place = self.place_of(set, line)?;
        self.set(set).places[place].take()
    }

    pub fn soil(&mut self, set: u64, line: u64) -> bool {
        let Some(place) = self.place_of(set, line) else { return false };
        self.set(set).places[place] = Some((line, true));
        true
    }

    /// All lines, in order.
    pub fn lines(&self) -> Vec<Line> {
        let mut all: Vec<Line> =
            self.sets.values().flat_map(|set| set.places.iter().flatten().copied()).collect();
        all.sort_unstable();
        all
    }

    fn note(&mut self, set: u64, place: usize, again: bool) {
        self.clock += 1;
        let (now, ways, replacement) = (self.clock, self.ways, self.replacement);
        let set = self.set(set);
        set.used_at[place] = now;
        if !again {
            set.filled_at[place] = now;
        }
        set.last = place;
        set.intervals[place] = if again { 0 } else { 2 };
        set.recent[place] = true;
        if set.recent.iter().all(|recent| *recent) {
            set.recent.fill(false);
            set.recent[place] = true;
        }
        if replacement == Replacement::TreePlru {
            let (mut low, mut high) = (0, ways);
            while high - low > 1 {
                let middle = (low + high) / 2;
                let upper = place >= middle;
                set.tree.insert((low, high), !upper);
                (low, high) = if upper { (middle, high) } else { (low, middle) };
            }
        }
    }

    /// A random number below `n`, as the documentation of the random replacements has it.
    fn roll(&mut self, n: usize) -> usize {
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        let high = self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (high * n as u64 >> 32) as usize
    }

    fn victim(&mut self, set: u64) -> usize {
        let ways = self.ways;
        match self.replacement {
            Replacement::Random => return self.roll(ways),
            Replacement::NotLastUsed if ways > 1 => {
                let last = self.set(set).last;
                let others: Vec<usize> = (0..ways).filter(|way| *way != last).collect();
                return others[self.roll(ways - 1)];
            }
            _ => {}
        }
        let replacement = self.replacement;
        let set = self.set(set);
        match replacement {
            Replacement::Lru => (0..ways).min_by_key(|way| set.used_at[*way]).unwrap(),
            Replacement::Fifo => (0..ways).min_by_key(|way| set.filled_at[*way]).unwrap(),
            Replacement::Nru => set.recent.iter().position(|recent| !recent).unwrap_or(0),
            Replacement::Srrip => loop {
                if let Some(way) = set.intervals.iter().position(|i| *i == 3) {
                    return way;
                }
                set.intervals.iter_mut().for_each(|i| *i += 1);
            },
            Replacement::TreePlru => {
                let (mut low, mut high) = (0, ways);
                while high - low > 1 {
                    let middle = (low + high) / 2;
                    let upper = set.tree.get(&(low, high)).copied().unwrap_or(false);
                    (low, high) = if upper { (middle, high) } else { (low, middle) };
                }
                low
            }
            Replacement::Random | Replacement::NotLastUsed => 0,
        }
    }
}
