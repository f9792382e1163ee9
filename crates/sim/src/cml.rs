//! The cache miss look-aside buffer (Romer 1998, section 5.2): counts of misses for the few
//! frames that miss most. A frame that misses enters the LRU segment; when its count exceeds
//! one of the HOT segment the two change places, so that frames with few misses do not push
//! out those with many; the FIXED segment holds what software put there. Whose frames these
//! are, and what an interrupt costs, is decided elsewhere.

use std::collections::VecDeque;

use huepage_color::Pfn;
use serde::{Deserialize, Serialize};

/// A buffer's size, threshold and costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cml {
    /// Frames in the LRU segment, at least 1; the thesis has 16.
    pub entries: usize,
    /// Frames in the HOT segment; the thesis has 16.
    #[serde(default)]
    pub hot: usize,
    /// Frames in the FIXED segment; the thesis does not use it.
    #[serde(default)]
    pub fixed: usize,
    /// Misses of one frame that raise an interrupt.
    pub threshold: u64,
    /// Cycles of an interrupt, reading the buffer and thinking included.
    #[serde(default)]
    pub cost: u64,
    /// References are counted by colour too, as no hardware does.
    #[serde(default)]
    pub references: bool,
}

impl Cml {
    /// The thesis's: 16 frames each in LRU and HOT, an interrupt at the lines of a page and 64
    /// (section 5.3.1), 600 cycles for reading it and 300 for thinking (table 5-1).
    pub const fn thesis(lines_per_page: u64) -> Cml {
        let threshold = lines_per_page + 64;
        Cml { entries: 16, hot: 16, fixed: 0, threshold, cost: 900, references: false }
    }
}

/// A buffer at work. A miss takes time in proportion to its frames.
#[derive(Clone, Debug)]
pub struct CmlBuffer {
    spec: Cml,
    /// The latest last.
    lru: Vec<(Pfn, u64)>,
    hot: Vec<(Pfn, u64)>,
    fixed: VecDeque<(Pfn, u64)>,
}

impl CmlBuffer {
    /// An empty one.
    pub const fn new(spec: Cml) -> CmlBuffer {
        CmlBuffer { spec, lru: Vec::new(), hot: Vec::new(), fixed: VecDeque::new() }
    }

    /// A frame missed; its misses, if they have just reached the threshold.
    pub fn miss(&mut self, frame: Pfn) -> Option<u64> {
        let fixed = self.fixed.iter_mut();
        let misses = match self.hot.iter_mut().chain(fixed).find(|entry| entry.0 == frame) {
            Some((_, misses)) => {
                *misses += 1;
                *misses
            }
            None => self.miss_in_lru(frame),
        };
        (misses == self.spec.threshold.max(1)).then_some(misses)
    }

    fn miss_in_lru(&mut self, frame: Pfn) -> u64 {
        let found = self.lru.iter().position(|&(held, _)| held == frame);
        let misses = found.map_or(0, |at| self.lru.remove(at).1) + 1;
        if self.lru.len() == self.spec.entries.max(1) {
            self.lru.remove(0);
        }
        if let Some(entry) = self.swap_into_hot((frame, misses)) {
            self.lru.push(entry);
        }
        misses
    }

    /// Enters what is hotter than something in HOT; gives what has to stay in LRU.
    fn swap_into_hot(&mut self, entry: (Pfn, u64)) -> Option<(Pfn, u64)> {
        if self.hot.len() < self.spec.hot {
            self.hot.push(entry);
            return None;
        }
        match self.hot.iter_mut().min_by_key(|held| held.1) {
            Some(coldest) if coldest.1 < entry.1 => Some(std::mem::replace(coldest, entry)),
            _ => Some(entry),
        }
    }

    /// Everything it holds: HOT, LRU and FIXED.
    pub fn entries(&self) -> impl Iterator<Item = (Pfn, u64)> + '_ {
        self.hot.iter().chain(&self.lru).chain(&self.fixed).copied()
    }

    /// All counts start at zero; FIXED keeps its frames.
    pub fn clear(&mut self) {
        self.lru.clear();
        self.hot.clear();
        self.fixed.iter_mut().for_each(|entry| entry.1 = 0);
    }

    /// Drops a frame that no page is in any more, with its count.
    pub fn forget(&mut self, frame: Pfn) {
        self.lru.retain(|entry| entry.0 != frame);
        self.hot.retain(|entry| entry.0 != frame);
        self.fixed.retain(|entry| entry.0 != frame);
    }

    /// Puts a frame into FIXED with the count that it has; the oldest there makes way. False if
    /// there is no such segment or the frame is in it.
    pub fn fix(&mut self, frame: Pfn) -> bool {
        if self.spec.fixed == 0 || self.fixed.iter().any(|entry| entry.0 == frame) {
            return false;
        }
        let count = self.entries().find(|entry| entry.0 == frame).map_or(0, |entry| entry.1);
        self.hot.retain(|entry| entry.0 != frame);
        self.lru.retain(|entry| entry.0 != frame);
        if self.fixed.len() == self.spec.fixed {
            self.fixed.pop_front();
        }
        self.fixed.push_back((frame, count));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(entries: usize, hot: usize, fixed: usize, threshold: u64) -> CmlBuffer {
        CmlBuffer::new(Cml { entries, hot, fixed, threshold, cost: 0, references: false })
    }

    fn held(buffer: &CmlBuffer) -> Vec<(u64, u64)> {
        let mut held: Vec<_> = buffer.entries().map(|(frame, n)| (frame.0, n)).collect();
        held.sort_unstable();
        held
    }

    #[test]
    fn without_hot_the_least_recent_leaves_and_its_count_is_lost() {
        let mut b = buffer(2, 0, 0, 3);
        let told: Vec<_> = [1, 2, 1, 3, 2, 3, 2].map(|f| b.miss(Pfn(f))).to_vec();
        assert!(told.iter().all(Option::is_none), "page 2 was pushed out in between: {told:?}");
        assert_eq!(held(&b), [(2, 2), (3, 2)]);
        assert_eq!(b.miss(Pfn(3)), Some(3));
        assert_eq!(b.miss(Pfn(3)), None, "once, when it is reached");
    }

    #[test]
    fn a_hot_frame_outlives_a_stream_of_cold_ones() {
        let mut b = buffer(2, 1, 0, 5);
        b.miss(Pfn(9));
        (0..3).for_each(|_| _ = b.miss(Pfn(1)));
        (100..200).for_each(|f| _ = b.miss(Pfn(f)));
        assert_eq!(held(&b), [(1, 3), (198, 1), (199, 1)]);
        b.miss(Pfn(1));
        assert_eq!(b.miss(Pfn(1)), Some(5));
    }

    #[test]
    fn fixed_frames_stay_until_software_wants_their_place() {
        let mut b = buffer(1, 0, 1, 100);
        b.miss(Pfn(7));
        assert!(b.fix(Pfn(7)) && !b.fix(Pfn(7)));
        (0..9).for_each(|f| _ = b.miss(Pfn(f)));
        assert_eq!(held(&b), [(7, 2), (8, 1)]);
        b.clear();
        assert_eq!(held(&b), [(7, 0)]);
        assert!(b.fix(Pfn(3)));
        assert_eq!(held(&b), [(3, 0)]);
        assert!(!buffer(1, 0, 0, 9).fix(Pfn(3)));
    }

    #[test]
    fn a_frame_that_is_forgotten_starts_at_zero_wherever_it_was() {
        let mut b = buffer(1, 1, 1, 9);
        (0..3).for_each(|_| _ = b.miss(Pfn(1)));
        b.miss(Pfn(2));
        b.fix(Pfn(3));
        (1..4).for_each(|frame| b.forget(Pfn(frame)));
        assert_eq!(held(&b), []);
        b.miss(Pfn(1));
        assert_eq!(held(&b), [(1, 1)]);
    }
}
