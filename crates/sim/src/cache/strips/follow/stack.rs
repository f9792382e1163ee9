//! Hierarchies that differ in the ways of the last level only, all in one pass: where all is LRU, what a
//! set of fewer ways holds is the top of what one of more ways does, so that one stack of lines for each
//! set, the one used last on top, answers for all (Mattson, Gecsei, Slutz and Traiger, Evaluation
//! techniques for storage hierarchies, IBM Systems Journal 9(2), 1970). A line found at a depth is a hit
//! for more ways than that.
//!
//! Which of them hold it dirty is one number: it is for more ways than the deepest place where it was
//! since it was written; with fewer it has been written back (Thompson and Smith, Efficient (stack)
//! algorithms for analysis of write-back and sector memories, ACM TOCS 7(1), 1989). What was written back
//! is counted when a line comes up again, and for those that have not when counts are asked for.
//!
//! It costs about what one hierarchy does. Not where the last level is inclusive or exclusive: what the
//! levels above hold depends on its ways then.

use huepage_model::lanes::{Isa, LaneJob, Lru};

use super::below::{LevelStrip, Middle, NoMiddle, Place};
use super::{
    AHEAD, Behind, DEPTHS, Follow, FollowedPoint, Follower, Level, Pages, PointCounts, Ways,
    credit, expect, placing,
};
use crate::cache::strips::{Event, MOST, Row, StripLog, StripShape, Strips, tag_of, word};
use crate::cache::{Hierarchy, Path};

/// Accesses by who answers: the middle level, then each depth of a stack, then memory.
type Depths = [u64; MOST + 2];
/// The level of dirt of a line that no hierarchy holds dirty.
const CLEAN: u32 = u32::MAX;

/// All these hierarchies.
#[derive(Debug)]
pub(super) struct Stack<const W: usize> {
    shape: StripShape,
    middle: Option<Level<W>>,
    /// With the most ways.
    last: Level<W>,
    /// Of each line there, the deepest place since it was written.
    dirt: Vec<Ways<W>>,
    pages: Pages,
    colored: usize,
    /// By space and kind.
    found: Vec<[Depths; 3]>,
    colors: Vec<Depths>,
    written: Written,
}

/// What became of lines that were written.
#[derive(Clone, Debug)]
struct Written {
    /// Of the middle level: those that came, those that were not there, those that left.
    middle: [u64; 3],
    /// Those that came to the last level, by the depth where they were.
    came: Depths,
    /// Those that left it more with so many ways than with one way less.
    left: [i64; MOST + 2],
}

impl Written {
    const NONE: Written = Written { middle: [0; 3], came: [0; MOST + 2], left: [0; MOST + 2] };

    /// A line with this level of dirt has come to a depth: it has left sets of no more ways.
    #[inline(always)]
    fn sink(&mut self, dirt: u32, depth: u32, times: i64) {
        if dirt < depth {
            self.left[dirt as usize + 1] += times;
            self.left[depth as usize + 1] -= times;
        }
    }
}

impl<const W: usize> Stack<W> {
    /// Of hierarchies like this one, which has the most ways.
    pub(super) fn new(
        shape: StripShape,
        from: &Hierarchy,
        path: &Path,
        colored: Option<usize>,
    ) -> Self {
        let Follower { middle, last, colored, .. } = Follower::<W>::new(shape, from, path, colored);
        let dirt = vec![Ways([CLEAN; W]); last.sets.len()];
        let (found, colors) = (Vec::new(), Vec::new());
        let (pages, written) = (Pages::default(), Written::NONE);
        Stack { shape, middle, last, dirt, pages, colored, found, colors, written }
    }

    /// Counts lines that have left some hierarchies and not come up again, so often.
    fn count_sunk(&mut self, times: i64) {
        let Stack { last, dirt, written, .. } = self;
        for (tags, dirt) in last.sets.iter().zip(dirt) {
            for (depth, (&tag, &dirt)) in (0..).zip(tags.0.iter().zip(&dirt.0)) {
                written.sink(if tag == 0 { CLEAN } else { dirt }, depth, times);
            }
        }
    }

    /// What a hierarchy with so many ways counted behind the nearest cache, by space and kind.
    fn found_with(&self, ways: usize) -> Vec<[[u64; DEPTHS]; 3]> {
        let last = 1 + usize::from(self.middle.is_some());
        let depths = |depths: &Depths| {
            let mut found = [0; DEPTHS];
            found[1] = depths[0];
            found[last] += depths[1..=ways].iter().sum::<u64>();
            found[last + 1] = depths[ways + 1..].iter().sum();
            found
        };
        self.found.iter().map(|kinds| std::array::from_fn(|kind| depths(&kinds[kind]))).collect()
    }

    fn written_with(&self, ways: usize) -> Behind {
        let came = &self.written.came;
        let left: i64 = self.written.left[..=ways].iter().sum();
        let last = [came.iter().sum(), came[ways..].iter().sum(), left.unsigned_abs()];
        Behind { written: [self.written.middle, last], ..Behind::default() }
    }

    fn colors_with(&self, ways: usize) -> Vec<[u64; 2]> {
        let above = usize::from(self.middle.is_some());
        // Those that reach the level, and those that go on.
        let from = match self.colored.checked_sub(above) {
            Some(0) => [0, 1],
            Some(1) => [above, ways + 1],
            _ => return Vec::new(),
        };
        let sums = |depths: &Depths| from.map(|from| depths[from..].iter().sum());
        self.colors.iter().map(sums).collect()
    }
}

impl<const W: usize> Follow for Stack<W> {
    fn see_page(&mut self, shared: usize, own: u32, color: u16) {
        let placings = [None, placing(&self.middle), Some(&self.last.placing)];
        self.pages.note(self.shape, placings, (shared, own, color));
        let colors = self.colors.len().max(usize::from(color) + 1);
        self.colors.resize(colors, [0; MOST + 2]);
    }

    fn follow(&mut self, strip: usize, log: &StripLog) {
        let mut from = Row::default();
        for row in &log.rows {
            let space = usize::from(row.space);
            if self.found.len() <= space {
                self.found.resize(space + 1, [[0; MOST + 2]; 3]);
            }
            let stride = self.last.stride;
            let stacks = Stacks {
                last: self.last.strip(strip),
                dirt: &mut self.dirt[strip * stride..][..stride],
                places: &self.pages.places,
                found: &mut self.found[space],
                colors: &mut self.colors,
                written: &mut self.written,
            };
            let middle = self.middle.as_mut().map(|level| level.strip(strip));
            let events = &log.events[from.events..row.events];
            Isa::best().run_wide(Following { middle, stacks, events });
            from = *row;
        }
    }

    fn settle(&mut self, members: &mut [FollowedPoint<'_>]) -> Vec<PointCounts> {
        self.count_sunk(1);
        let settled = members.iter_mut().map(|(hierarchy, path)| {
            let ways = hierarchy.caches[hierarchy.end_of(path)].sets.ways();
            let (found, behind) = (self.found_with(ways), self.written_with(ways));
            let found = credit(hierarchy, path, &found, &behind);
            PointCounts { found, colors: self.colors_with(ways) }
        });
        let settled = settled.collect();
        self.found.clear();
        self.colors.iter_mut().for_each(|depths| *depths = [0; MOST + 2]);
        self.written = Written::NONE;
        // They are counted again when they come up.
        self.count_sunk(-1);
        settled
    }

    fn forget(&mut self) {}

    fn alone(&self, (hierarchy, path): (&Hierarchy, &Path)) -> Option<Box<dyn Follow>> {
        let mut one = Follower::<W>::new(self.shape, hierarchy, path, None);
        one.colored = self.colored;
        one.middle.clone_from(&self.middle);
        one.pages.clone_from(&self.pages);
        one.colors.resize(self.colors.len(), [0; 2]);
        let ways = one.last.ways;
        let stacks = self.last.sets.iter().zip(&self.dirt);
        for (set, (tags, dirt)) in one.last.sets.iter_mut().zip(stacks) {
            for at in 0..ways {
                let dirty = tags.0[at] != 0 && (dirt.0[at] as usize) < ways;
                set.0[at] = tags.0[at] | u32::from(dirty);
            }
        }
        Some(Box::new(one))
    }

    fn hand_over(&self, hierarchy: &mut Hierarchy, path: &Path, shared: &Strips) {
        let one = self.alone((hierarchy, path));
        one.into_iter().for_each(|one| one.hand_over(hierarchy, path, shared));
    }
}

/// The stacks of a strip.
struct Stacks<'a, const W: usize> {
    last: LevelStrip<'a, W>,
    dirt: &'a mut [Ways<W>],
    places: &'a [Place],
    found: &'a mut [Depths; 3],
    colors: &'a mut [Depths],
    written: &'a mut Written,
}

impl<const W: usize> Stacks<'_, W> {
    #[inline(always)]
    fn read<L: Lru, M: Middle<W>>(&mut self, middle: &mut M, tag: u32, kind: usize) {
        let place = self.places[tag as usize];
        let (hit, left) = middle.ask::<L>(place.middle(), word(tag, false));
        let mut depth = 0;
        if !hit {
            depth = 1 + self.touch::<L>(place.last(), tag, false);
            self.hand_on::<L>(left);
        }
        self.found[kind][depth] += 1;
        self.colors[place.color()][depth] += 1;
    }

    #[inline(always)]
    fn write<L: Lru, M: Middle<W>>(&mut self, middle: &mut M, tag: u32) {
        if M::LAST == 1 {
            return self.keep::<L>(tag);
        }
        let (hit, left) = middle.ask::<L>(self.places[tag as usize].middle(), word(tag, true));
        self.written.middle[0] += 1;
        self.written.middle[1] += u64::from(!hit);
        self.hand_on::<L>(left);
    }

    /// A line, or none, has left the middle level.
    #[inline(always)]
    fn hand_on<L: Lru>(&mut self, left: u32) {
        if left & 1 == 1 {
            self.written.middle[2] += 1;
            self.keep::<L>(tag_of(left));
        }
    }

    #[inline(always)]
    fn keep<L: Lru>(&mut self, tag: u32) {
        let depth = self.touch::<L>(self.places[tag as usize].last(), tag, true);
        self.written.came[depth] += 1;
    }

    /// Puts a line on top of its stack; the depth where it was, or that of the whole stack.
    #[inline(always)]
    fn touch<L: Lru>(&mut self, set: usize, tag: u32, dirty: bool) -> usize {
        let ways = self.last.ways;
        let tags: &mut [u32; W] = &mut self.last.sets[set].0;
        let dirt: &mut [u32; W] = &mut self.dirt[set].0;
        let entry = word(tag, false);
        let found = L::find(tags, entry);
        let at = (found | 1 << (ways - 1)).trailing_zeros();
        // On a miss this is the line that sinks out of the stack, or none.
        let there = dirt[at as usize % W];
        #[expect(clippy::cast_possible_truncation, reason = "few ways")]
        let depth = if found != 0 { at } else { ways as u32 };
        self.written.sink(there, depth, 1);
        let before = if found != 0 { there } else { CLEAN };
        L::push(tags, at, entry);
        L::push(dirt, at, if dirty { 0 } else { before.max(depth) });
        depth as usize
    }
}

/// Events that are followed.
struct Following<'a, const W: usize> {
    middle: Option<LevelStrip<'a, W>>,
    stacks: Stacks<'a, W>,
    events: &'a [Event],
}

impl<const W: usize> LaneJob for Following<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lru>(self) {
        let Following { middle, stacks, events } = self;
        match middle {
            Some(middle) => walk::<L, _, W>(middle, stacks, events),
            None => walk::<L, _, W>(NoMiddle, stacks, events),
        }
    }
}

#[inline(always)]
fn walk<L: Lru, M: Middle<W>, const W: usize>(
    mut middle: M,
    mut stacks: Stacks<'_, W>,
    events: &[Event],
) {
    for (at, event) in events.iter().enumerate() {
        if let Some(ahead) = events.get(at + AHEAD) {
            expect(stacks.places, ahead.tag());
        }
        match event.kind() {
            Event::WRITE => stacks.write::<L, M>(&mut middle, event.tag()),
            kind => stacks.read::<L, M>(&mut middle, event.tag(), kind as usize),
        }
    }
}
