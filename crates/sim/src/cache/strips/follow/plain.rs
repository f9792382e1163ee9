//! What lies behind the nearest cache in a strip where no level tells another what to do: in batches,
//! level by level, in the loop that whole hierarchies have ([`crate::cache::batch`]).

use std::marker::PhantomData;

use huepage_model::lanes::{EntryWord, LaneJob, Lru};

use super::below::{LevelStrip, Place};
use super::{AHEAD, Behind, DEPTHS, expect};
use crate::cache::batch::{Ask, LineRequest, List, further};
use crate::cache::{CacheCounts, CacheEntry};

/// Requests that go through a level before the next is asked: what they are stays at hand.
const BATCH: usize = 1024;

/// Room that is used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Between {
    passed: List,
    rest: List,
}

/// Requests of a strip that go through its levels.
pub(super) struct Plain<'a, const W: usize> {
    pub(super) middle: Option<LevelStrip<'a, W>>,
    pub(super) last: LevelStrip<'a, W>,
    pub(super) places: &'a [Place],
    pub(super) requests: &'a [LineRequest],
    pub(super) between: &'a mut Between,
    pub(super) colored: usize,
    pub(super) found: &'a mut [[u64; DEPTHS]; 3],
    pub(super) colors: &'a mut [[u64; 2]],
    pub(super) behind: &'a mut Behind,
}

impl<const W: usize> LaneJob for Plain<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lru>(mut self) {
        for batch in self.requests.chunks(BATCH) {
            self.note(batch, 1);
            let Between { mut passed, mut rest } = std::mem::take(self.between);
            let mut asked = batch;
            let mut depth = 1;
            if let Some(LevelStrip { sets, ways }) = &mut self.middle {
                let (places, ways, how) = (self.places, *ways, PhantomData::<L>);
                let level = Strip::<L, W, false> { sets, ways, places, how };
                let counts = further(level, batch, &mut passed);
                self.count(&counts, 0, depth);
                self.note(passed.all(), 2);
                (asked, depth) = (passed.all(), 2);
            }
            let LevelStrip { sets, ways } = &mut self.last;
            let (places, ways, how) = (self.places, *ways, PhantomData::<L>);
            let level = Strip::<L, W, true> { sets, ways, places, how };
            let counts = further(level, asked, &mut rest);
            self.count(&counts, 1, depth);
            self.note(rest.all(), depth + 1);
            *self.between = Between { passed, rest };
        }
    }
}

impl<const W: usize> Plain<'_, W> {
    /// Counts what a level of this depth did, of which the last one's misses are answered by memory.
    #[inline(always)]
    fn count(&mut self, counts: &CacheCounts, level: usize, depth: usize) {
        for (kind, found) in self.found.iter_mut().enumerate() {
            found[depth] += counts.accesses[kind] - counts.misses[kind];
            found[depth + 1] += if level == 1 { counts.misses[kind] } else { 0 };
        }
        let [came, lacked, left] = &mut self.behind.written[level];
        *came += counts.writes_in;
        *lacked += counts.write_misses;
        *left += counts.writes_out;
    }

    /// Counts by colour what a depth is asked for, at the level whose colours are counted.
    #[inline(always)]
    fn note(&mut self, requests: &[LineRequest], depth: usize) {
        let Some(which @ (0 | 1)) = depth.checked_sub(self.colored) else { return };
        for (at, request) in requests.iter().enumerate() {
            if let Some(ahead) = requests.get(at + AHEAD) {
                expect(self.places, tag(ahead.line()));
            }
            let place = self.places[tag(request.line()) as usize];
            self.colors[place.color()][which] += u64::from(request.is_access());
        }
    }
}

/// The name of a line in a strip.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a line of a strip")]
const fn tag(line: u64) -> u32 {
    line as u32
}

/// The sets of a strip in a level, as the loop needs them.
struct Strip<'a, L, const W: usize, const LAST: bool> {
    sets: &'a mut [super::Ways<W>],
    ways: usize,
    places: &'a [Place],
    how: PhantomData<L>,
}

impl<L, const W: usize, const LAST: bool> Strip<'_, L, W, LAST> {
    #[inline(always)]
    fn set_of(&self, line: u64) -> usize {
        let place = self.places[tag(line) as usize];
        if LAST { place.last() } else { place.middle() }
    }
}

impl<L: Lru, const W: usize, const LAST: bool> Ask for Strip<'_, L, W, LAST> {
    #[inline(always)]
    fn ask(&mut self, line: u64, dirty: bool) -> (bool, CacheEntry) {
        let set = self.set_of(line);
        let entry = u32::pack(CacheEntry::new(line, dirty));
        let (hit, gone) = L::access(&mut self.sets[set].0, self.ways, entry);
        (hit, gone.entry())
    }

    #[inline(always)]
    fn expect(&self, line: u64) {
        // Of a strip that has come up just now no set is at hand.
        let set = &self.sets[self.set_of(line)].0;
        set.iter().step_by(16).for_each(huepage_model::hint::fetch);
    }

    #[inline(always)]
    fn is_large(&self) -> bool {
        true
    }

    fn finish(self) {}
}
