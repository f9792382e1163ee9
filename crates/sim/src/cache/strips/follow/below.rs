//! What one access does behind the nearest cache: in a middle level, or none, and the last one. The
//! middle level takes a line in before the last level is asked, in one go with looking for it; what
//! the last level takes out of it meanwhile is put right ([`Below::take_middle`]).

use huepage_model::lanes::Lru;

use super::{Behind, DEPTHS, NearSet, Ways};
use crate::cache::Inclusion;
use crate::cache::strips::{NEAR, SET_BITS, tag_of, word};

/// Where a line of a strip belongs: its sets in the nearest level, the middle one and the last, and the
/// colour of its page. In one word, since it is looked up for every request, by lines in no order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place(u64);

impl Place {
    /// From these four, of 16 bits each.
    pub(super) fn new(parts: [u16; 4]) -> Place {
        Place(parts.iter().rev().fold(0, |word, &part| word << SET_BITS | u64::from(part)))
    }

    #[inline(always)]
    pub(super) const fn near(self) -> usize {
        self.part(0)
    }

    #[inline(always)]
    pub(super) const fn middle(self) -> usize {
        self.part(1)
    }

    #[inline(always)]
    pub(super) const fn last(self) -> usize {
        self.part(2)
    }

    #[inline(always)]
    pub(super) const fn color(self) -> usize {
        self.part(3)
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a part of a word")]
    const fn part(self, number: u32) -> usize {
        (self.0 >> (number * SET_BITS)) as u16 as usize
    }
}

/// The sets of a level that a strip has.
pub(super) struct LevelStrip<'a, const W: usize> {
    pub(super) sets: &'a mut [Ways<W>],
    pub(super) ways: usize,
}

impl<const W: usize> LevelStrip<'_, W> {
    /// Asks a set for a line and brings it in: whether it was there, and else what left.
    #[inline(always)]
    pub(super) fn access<L: Lru>(&mut self, set: usize, entry: u32) -> (bool, u32) {
        L::access(&mut self.sets[set].0, self.ways, entry)
    }
}

/// A level between the nearest and the last, or none.
pub(super) trait Middle<const W: usize> {
    /// The depth of the level behind it.
    const LAST: usize;
    /// Asks it for a line and brings it in: whether it was there, and else what left.
    fn ask<L: Lru>(&mut self, set: usize, entry: u32) -> (bool, u32);
    /// Takes a line out of a set; what it was, or 0.
    fn take<L: Lru>(&mut self, set: usize, entry: u32) -> u32;
    /// Puts back what left a set that has room again.
    fn put_back(&mut self, set: usize, entry: u32);
    /// What was brought into a set last is as dirty as this is.
    fn soil(&mut self, set: usize, entry: u32);
}

/// None.
pub(super) struct NoMiddle;

impl<const W: usize> Middle<W> for NoMiddle {
    const LAST: usize = 1;

    #[inline(always)]
    fn ask<L: Lru>(&mut self, _: usize, _: u32) -> (bool, u32) {
        (false, 0)
    }

    #[inline(always)]
    fn take<L: Lru>(&mut self, _: usize, _: u32) -> u32 {
        0
    }

    #[inline(always)]
    fn put_back(&mut self, _: usize, _: u32) {}

    #[inline(always)]
    fn soil(&mut self, _: usize, _: u32) {}
}

impl<const W: usize> Middle<W> for LevelStrip<'_, W> {
    const LAST: usize = 2;

    #[inline(always)]
    fn ask<L: Lru>(&mut self, set: usize, entry: u32) -> (bool, u32) {
        self.access::<L>(set, entry)
    }

    #[inline(always)]
    fn take<L: Lru>(&mut self, set: usize, entry: u32) -> u32 {
        let ways = &mut self.sets[set].0;
        match L::find(ways, entry) {
            0 => 0,
            found => L::take(ways, found.trailing_zeros()),
        }
    }

    #[inline(always)]
    fn put_back(&mut self, set: usize, entry: u32) {
        self.sets[set].0[self.ways - 1] = entry;
    }

    #[inline(always)]
    fn soil(&mut self, set: usize, entry: u32) {
        self.sets[set].0[0] |= entry & 1;
    }
}

/// What lies behind the nearest cache in a strip, but for the middle level.
pub(super) struct Below<'a, const W: usize> {
    pub(super) last: LevelStrip<'a, W>,
    pub(super) relation: Inclusion,
    /// Whether lines that share a set of the last level share one of the middle level.
    pub(super) nested: bool,
    pub(super) places: &'a [Place],
    pub(super) colored: usize,
    pub(super) found: &'a mut [[u64; DEPTHS]; 3],
    pub(super) colors: &'a mut [[u64; 2]],
    pub(super) behind: &'a mut Behind,
}

/// A request on its way down.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// What the nearest set holds now.
    near: &'a NearSet,
    /// The set of the middle level that it has passed.
    set: usize,
    /// What left that set for it and has not been handed on.
    left: u32,
}

impl<const W: usize> Below<'_, W> {
    /// Has the set of a line in the last level at hand soon: of a strip that has come up just now none is.
    #[inline(always)]
    pub(super) fn expect(&self, tag: u32) {
        let set = &self.last.sets[self.places[tag as usize].last()].0;
        set.iter().step_by(16).for_each(huepage_model::hint::fetch);
    }

    /// A line is read that the nearest cache lacks. What the last level takes out of the nearest set
    /// because of it, or 0.
    #[inline(always)]
    pub(super) fn read<L: Lru, M: Middle<W>>(
        &mut self,
        middle: &mut M,
        tag: u32,
        kind: usize,
        near: &NearSet,
    ) -> u32 {
        let place = self.places[tag as usize];
        let (entry, set) = (word(tag, false), place.middle());
        let (hit, left) = middle.ask::<L>(set, entry);
        let (mut depth, mut taken) = (1, 0);
        if !hit {
            let mut asked = Asked { near, set, left };
            let there = if self.relation == Inclusion::Exclusive {
                self.give_up::<L, M>(middle, &asked, place, entry)
            } else {
                let (there, gone) = self.last.access::<L>(place.last(), entry);
                taken = self.leave::<L, M>(middle, &mut asked, gone);
                there
            };
            depth = M::LAST + usize::from(!there);
            self.hand_on::<L, M>(middle, asked);
        }
        self.found[kind][depth] += 1;
        self.colors[place.color()][0] += u64::from(depth >= self.colored);
        self.colors[place.color()][1] += u64::from(depth > self.colored);
        taken
    }

    /// A dirty line has left the nearest cache, which holds this then.
    #[inline(always)]
    pub(super) fn write<L: Lru, M: Middle<W>>(&mut self, middle: &mut M, tag: u32, near: &NearSet) {
        let entry = word(tag, true);
        if M::LAST == 1 {
            return self.keep::<L, M>(middle, Asked { near, set: 0, left: entry });
        }
        let set = self.places[tag as usize].middle();
        let (hit, left) = middle.ask::<L>(set, entry);
        let [came, lacked, _] = &mut self.behind.written[0];
        *came += 1;
        *lacked += u64::from(!hit);
        self.hand_on::<L, M>(middle, Asked { near, set, left });
    }

    /// The exclusive last level is asked for a line, which it gives up; whether it had it.
    #[inline(always)]
    fn give_up<L: Lru, M: Middle<W>>(
        &mut self,
        middle: &mut M,
        asked: &Asked<'_>,
        place: Place,
        entry: u32,
    ) -> bool {
        let ways = &mut self.last.sets[place.last()].0;
        let found = L::find(ways, entry);
        if found != 0 {
            middle.soil(asked.set, L::take(ways, found.trailing_zeros()));
        }
        found != 0
    }

    /// What left the middle level goes on to the last, if that takes it.
    #[inline(always)]
    fn hand_on<L: Lru, M: Middle<W>>(&mut self, middle: &mut M, asked: Asked<'_>) {
        let (left, dirty) = (asked.left, u64::from(asked.left & 1));
        self.behind.written[0][2] += dirty;
        if self.relation != Inclusion::Exclusive {
            if dirty == 1 {
                self.keep::<L, M>(middle, asked);
            }
        } else if left != 0 {
            if L::find(asked.near, left) == 0 {
                return self.keep::<L, M>(middle, asked);
            }
            // The nearest has it: only the write goes on.
            self.behind.written[1][0] += dirty;
            self.behind.written[1][2] += dirty;
        }
    }

    /// The last level gets what has left the one above.
    #[inline(always)]
    fn keep<L: Lru, M: Middle<W>>(&mut self, middle: &mut M, mut asked: Asked<'_>) {
        let entry = std::mem::take(&mut asked.left);
        let set = self.places[tag_of(entry) as usize].last();
        let (hit, gone) = self.last.access::<L>(set, entry);
        let dirty = u64::from(entry & 1);
        let [came, lacked, _] = &mut self.behind.written[1];
        *came += dirty;
        *lacked += dirty & u64::from(!hit);
        let taken = self.leave::<L, M>(middle, &mut asked, gone);
        debug_assert!(taken == 0, "what is written to an inclusive cache is there");
    }

    /// A line, or none, has left the last level; what is taken out of the nearest set for it, or 0.
    #[inline(always)]
    fn leave<L: Lru, M: Middle<W>>(
        &mut self,
        middle: &mut M,
        asked: &mut Asked<'_>,
        gone: u32,
    ) -> u32 {
        let (mut dirty, mut taken) = (gone & 1, 0);
        if gone != 0 && self.relation == Inclusion::Inclusive {
            let near = L::find(asked.near, gone);
            if near != 0 {
                taken = gone;
                dirty |= asked.near[near.trailing_zeros() as usize % NEAR] & 1;
                self.behind.taken[0] += 1;
            }
            if M::LAST > 1 {
                dirty |= self.take_middle::<L, M>(middle, asked, gone);
            }
        }
        self.behind.written[1][2] += u64::from(dirty);
        taken
    }

    /// Takes a line that has left the last level out of the middle one; whether it was dirty there. The
    /// middle level has brought in what it was asked for already: what left for that stays if there is
    /// room now, since the line that is taken had gone before.
    #[inline(always)]
    fn take_middle<L: Lru, M: Middle<W>>(
        &mut self,
        middle: &mut M,
        asked: &mut Asked<'_>,
        gone: u32,
    ) -> u32 {
        if asked.left != 0 && (asked.left ^ gone) < 2 {
            self.behind.taken[1] += 1;
            return std::mem::take(&mut asked.left) & 1;
        }
        let set = match self.nested {
            true => asked.set,
            false => self.places[tag_of(gone) as usize].middle(),
        };
        let held = middle.take::<L>(set, gone);
        if held != 0 {
            self.behind.taken[1] += 1;
            if set == asked.set && asked.left != 0 {
                middle.put_back(set, std::mem::take(&mut asked.left));
            }
        }
        held & 1
    }
}
