//! A hierarchy that follows a nearest cache shared with others, or the accesses alone: the rest is its
//! own.

mod below;
mod plain;
mod stack;

use huepage_model::lanes::{Isa, LaneJob, Lru};

use self::below::{Below, LevelStrip, Middle, NoMiddle, Place};
use self::plain::{Between, Plain};
use self::stack::Stack;
use super::{Event, NEAR, NearSet, Row, StripLog, StripShape, Strips, kind_of, tag_of, word};
use crate::cache::placing::Placing;
use crate::cache::{Cache, CacheEntry, Hierarchy, Inclusion, Path};

/// How many events ahead places are fetched.
const AHEAD: usize = 16;
/// Answers there can be to what the nearest cache passes on: two levels and memory, from 1.
const DEPTHS: usize = 4;

/// A hierarchy that is followed for, and the path through it.
pub type FollowedPoint<'a> = (&'a mut Hierarchy, &'a Path);

/// Follows strips, for one hierarchy or for several whose pages lie in the same frames.
pub trait Follow: std::fmt::Debug + Send {
    /// Frames of a page: in the nearest cache that is shared, and here; and the colour of this one.
    fn see_page(&mut self, shared: usize, own: u32, color: u16);
    /// A strip has run.
    fn follow(&mut self, strip: usize, log: &StripLog);
    /// Adds what was counted since the last time behind the nearest cache to each hierarchy; what else
    /// there is.
    fn settle(&mut self, members: &mut [FollowedPoint<'_>]) -> Vec<PointCounts>;
    /// Forgets what the nearest cache did otherwise than the shared one.
    fn forget(&mut self);
    /// What follows for one of several hierarchies from now on, after all was settled.
    fn alone(&self, member: (&Hierarchy, &Path)) -> Option<Box<dyn Follow>>;
    /// Puts into a hierarchy that has not run what it would hold, and what its nearest cache has counted.
    fn hand_over(&self, hierarchy: &mut Hierarchy, path: &Path, shared: &Strips);
}

/// What was counted that is of no cache.
#[derive(Clone, Debug, Default)]
pub struct PointCounts {
    /// By space, how many accesses each depth answered, from 1.
    pub found: Vec<[u64; DEPTHS]>,
    /// By colour, requests of the level whose colours are counted, and those that it lacked.
    pub colors: Vec<[u64; 2]>,
}

/// What is counted beside who answered.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    /// Of the middle level and the last: dirty lines that came, those of them whose line was not there, and
    /// those that left.
    written: [[u64; 3]; 2],
    /// Lines that the last level took out of the nearest and of the middle one.
    taken: [u64; 2],
    /// Misses of the nearest cache by kind, and dirty lines that left it, more than the shared one has.
    missed: [i64; 3],
    left: i64,
}

/// Ways of a set, at the beginning of a line of the processor that simulates.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Ways<const W: usize>([u32; W]);

/// A level behind the nearest: the sets of one strip after the other's.
#[derive(Clone, Debug)]
struct Level<const W: usize> {
    sets: Vec<Ways<W>>,
    /// Sets of a strip.
    stride: usize,
    ways: usize,
    placing: Placing,
}

impl<const W: usize> Level<W> {
    /// Like a cache, empty.
    fn new(cache: &Cache, shape: StripShape) -> Level<W> {
        let Some(placing) = cache.placing.strip(shape.bits) else { unreachable!("the shape") };
        let (sets, ways) = (cache.sets.sets(), cache.sets.ways());
        Level { sets: vec![Ways([0; W]); sets], stride: sets >> shape.bits, ways, placing }
    }

    fn strip(&mut self, strip: usize) -> LevelStrip<'_, W> {
        let sets = &mut self.sets[strip * self.stride..][..self.stride];
        LevelStrip { sets, ways: self.ways }
    }
}

/// A hierarchy.
#[derive(Debug)]
struct Follower<const W: usize> {
    shape: StripShape,
    /// The nearest cache, where it is not shared.
    near: Option<Level<NEAR>>,
    middle: Option<Level<W>>,
    last: Level<W>,
    /// Whether lines that share a set of the last level share one of the middle level.
    nested: bool,
    pages: Pages,
    /// The depth at which colours are counted.
    colored: usize,
    near_ways: usize,
    /// By strip, a set of the nearest cache that is not what the shared one is.
    own: Vec<Option<NearSet>>,
    /// By space and kind, accesses by the depth that answered.
    found: Vec<[[u64; DEPTHS]; 3]>,
    colors: Vec<[u64; 2]>,
    behind: Behind,
    between: Between,
}

/// What follows like a path of a hierarchy of this shape, empty; colours are counted at this depth.
pub fn follower(
    shape: StripShape,
    hierarchy: &Hierarchy,
    path: &Path,
    colored: Option<usize>,
) -> Box<dyn Follow> {
    let wide = behind(hierarchy, path).any(|at| hierarchy.caches[at].sets.ways() > 16);
    match wide {
        true => Box::new(Follower::<24>::new(shape, hierarchy, path, colored)),
        false => Box::new(Follower::<16>::new(shape, hierarchy, path, colored)),
    }
}

/// What follows like such paths of several hierarchies, which differ in the ways of the last level and
/// have pages in the same frames; none if each has to follow by itself. This one has the most ways.
pub fn stack(
    shape: StripShape,
    hierarchy: &Hierarchy,
    path: &Path,
    colored: Option<usize>,
) -> Option<Box<dyn Follow>> {
    let wide = behind(hierarchy, path).any(|at| hierarchy.caches[at].sets.ways() > 16);
    (shape.shared && shape.last == Inclusion::None).then(|| -> Box<dyn Follow> {
        match wide {
            true => Box::new(Stack::<24>::new(shape, hierarchy, path, colored)),
            false => Box::new(Stack::<16>::new(shape, hierarchy, path, colored)),
        }
    })
}

/// The caches of a path behind the nearest.
fn behind(hierarchy: &Hierarchy, path: &Path) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(path.first), |&at| hierarchy.links[at].next).skip(1)
}

impl<const W: usize> Follower<W> {
    fn new(shape: StripShape, from: &Hierarchy, path: &Path, colored: Option<usize>) -> Self {
        let mut levels = behind(from, path).map(|at| Level::new(&from.caches[at], shape));
        let (first, second) = (levels.next(), levels.next());
        let (middle, last) = if second.is_some() { (first, second) } else { (None, first) };
        let Some(last) = last else { unreachable!("the shape has a level behind the nearest") };
        Follower {
            shape,
            near: (!shape.shared).then(|| Level::new(&from.caches[path.first], shape)),
            nested: middle.as_ref().is_none_or(|middle| last.placing.refines(&middle.placing)),
            middle,
            last,
            pages: Pages::default(),
            colored: colored.unwrap_or(DEPTHS),
            near_ways: from.caches[path.first].sets.ways(),
            own: vec![None; 1 << shape.bits],
            found: Vec::new(),
            colors: Vec::new(),
            behind: Behind::default(),
            between: Between::default(),
        }
    }

    /// Goes through a row of events in batches.
    fn pass(&mut self, strip: usize, log: &StripLog, [from, row]: [Row; 2]) {
        Isa::best().run_wide(Plain {
            middle: self.middle.as_mut().map(|level| level.strip(strip)),
            last: self.last.strip(strip),
            places: &self.pages.places,
            requests: &log.requests[from.events..row.events],
            between: &mut self.between,
            colored: self.colored,
            found: &mut self.found[usize::from(row.space)],
            colors: &mut self.colors,
            behind: &mut self.behind,
        });
    }

    /// Goes through a row of events one after the other.
    fn walk(&mut self, strip: usize, log: &StripLog, rows: [Row; 2]) {
        let below = Below {
            last: self.last.strip(strip),
            relation: self.shape.last,
            nested: self.nested,
            places: &self.pages.places,
            colored: self.colored,
            found: &mut self.found[usize::from(rows[1].space)],
            colors: &mut self.colors,
            behind: &mut self.behind,
        };
        let near = self.near.as_mut().map(|level| level.strip(strip));
        let middle = self.middle.as_mut().map(|level| level.strip(strip));
        let (own, near_ways) = (self.own[strip].take(), self.near_ways);
        let following = Following { near, middle, below, near_ways, own, log, rows };
        self.own[strip] = Isa::best().run_wide(following);
    }

    /// Puts lines of a strip into a cache, the last used one last.
    fn give(&self, cache: &mut Cache, strip: usize, set: &[u32]) {
        for &entry in set.iter().rev().filter(|&&entry| entry != 0) {
            let line = self.pages.line(self.shape, tag_of(entry)) << self.shape.bits | strip as u64;
            cache.sets.fill(cache.placing.set_of(line), CacheEntry::new(line, entry & 1 == 1));
        }
    }
}

impl<const W: usize> Follower<W> {
    /// Puts all lines of a level into a cache.
    fn give_all<const V: usize>(&self, cache: &mut Cache, level: &Level<V>) {
        for (number, set) in level.sets.iter().enumerate() {
            self.give(cache, number / level.stride, &set.0);
        }
    }
}

/// How a level chooses sets, if there is one.
fn placing<const W: usize>(level: &Option<Level<W>>) -> Option<&Placing> {
    level.as_ref().map(|level| &level.placing)
}

impl<const W: usize> Follow for Follower<W> {
    fn see_page(&mut self, shared: usize, own: u32, color: u16) {
        let Follower { near, middle, last, shape, .. } = self;
        let placings =
            [near.as_ref().map(|near| &near.placing), placing(middle), Some(&last.placing)];
        self.pages.note(*shape, placings, (shared, own, color));
        if self.colors.len() <= usize::from(color) {
            self.colors.resize(usize::from(color) + 1, [0; 2]);
        }
    }

    fn follow(&mut self, strip: usize, log: &StripLog) {
        let mut from = Row::default();
        for row in &log.rows {
            let space = usize::from(row.space);
            if self.found.len() <= space {
                self.found.resize(space + 1, Default::default());
            }
            match self.shape.last {
                Inclusion::None if self.shape.shared => self.pass(strip, log, [from, *row]),
                _ => self.walk(strip, log, [from, *row]),
            }
            from = *row;
        }
    }

    fn settle(&mut self, members: &mut [FollowedPoint<'_>]) -> Vec<PointCounts> {
        let settled = members.iter_mut().map(|(hierarchy, path)| {
            let found = credit(hierarchy, path, &self.found, &self.behind);
            PointCounts { found, colors: self.colors.clone() }
        });
        let settled = settled.collect();
        self.colors.fill([0; 2]);
        self.found.clear();
        self.behind.written = [[0; 3]; 2];
        self.behind.taken[1] = 0;
        settled
    }

    fn forget(&mut self) {
        let Behind { missed, left, taken, .. } = &mut self.behind;
        (*missed, *left, taken[0]) = ([0; 3], 0, 0);
    }

    fn alone(&self, _: (&Hierarchy, &Path)) -> Option<Box<dyn Follow>> {
        None
    }

    fn hand_over(&self, hierarchy: &mut Hierarchy, path: &Path, shared: &Strips) {
        hierarchy.begin_once(path.first);
        let nearest = path.first;
        for (strip, set) in shared.sets.iter().enumerate() {
            let set = self.own[strip].as_ref().unwrap_or(set);
            self.give(&mut hierarchy.caches[nearest], strip, set);
        }
        self.near.iter().for_each(|near| self.give_all(&mut hierarchy.caches[nearest], near));
        let levels: Vec<usize> = behind(hierarchy, path).collect();
        for (at, level) in levels.into_iter().zip(self.middle.iter().chain([&self.last])) {
            self.give_all(&mut hierarchy.caches[at], level);
        }
        let Behind { missed, left, taken, .. } = &self.behind;
        let counts = &mut hierarchy.caches[path.first].counts;
        *counts = shared.counts;
        for (count, &more) in counts.misses.iter_mut().zip(missed) {
            *count = count.wrapping_add_signed(more);
        }
        counts.writes_out = counts.writes_out.wrapping_add_signed(*left);
        counts.invalidated += taken[0];
    }
}

/// Where pages lie.
#[derive(Clone, Debug, Default)]
struct Pages {
    /// By frame in the shared cache, the frame here.
    frames: Vec<u32>,
    /// By the name of a line in a strip.
    places: Vec<Place>,
}

impl Pages {
    /// Notes where a page lies: its frame in the shared cache, the one here, and its colour.
    fn note(
        &mut self,
        shape: StripShape,
        placings: [Option<&Placing>; 3],
        (shared, own, color): (usize, u32, u16),
    ) {
        let shift = shape.page_bits - shape.bits;
        if self.frames.len() <= shared {
            self.frames.resize(shared + 1, 0);
            self.places.resize((shared + 1) << shift, Place::default());
        }
        self.frames[shared] = own;
        for low in 0..1 << shift {
            let line = u64::from(own) << shift | low as u64;
            let set = |placing: &Placing| u16::try_from(placing.set_of(line)).unwrap_or(u16::MAX);
            let [near, middle, last] = placings.map(|placing| placing.map_or(0, set));
            self.places[shared << shift | low] = Place::new([near, middle, last, color]);
        }
    }

    /// Where a line of a strip lies, without the bits that choose the strip.
    fn line(&self, shape: StripShape, tag: u32) -> u64 {
        let shift = shape.page_bits - shape.bits;
        u64::from(self.frames[(tag >> shift) as usize]) << shift
            | u64::from(tag & ((1 << shift) - 1))
    }
}

/// Adds counts to the caches behind the nearest one; by space, how many accesses each depth answered.
fn credit(
    hierarchy: &mut Hierarchy,
    path: &Path,
    found: &[[[u64; DEPTHS]; 3]],
    behind_it: &Behind,
) -> Vec<[u64; DEPTHS]> {
    let levels: Vec<usize> = behind(hierarchy, path).collect();
    let memory = levels.len() + 1;
    for (depth, &at) in (1..).zip(&levels) {
        let counts = &mut hierarchy.caches[at].counts;
        for (kind, found) in found.iter().flat_map(|space| space.iter().enumerate()) {
            counts.accesses[kind] += found[depth..].iter().sum::<u64>();
            counts.misses[kind] += found[depth + 1..].iter().sum::<u64>();
        }
        let last = usize::from(depth + 1 == memory);
        let [came, lacked, left] = behind_it.written[last];
        counts.writes_in += came;
        counts.write_misses += lacked;
        counts.writes_out += left;
        counts.invalidated += if last == 1 { 0 } else { behind_it.taken[1] };
    }
    hierarchy.memory_writes += behind_it.written[1][2];
    let sum = |space: &[[u64; DEPTHS]; 3]| {
        std::array::from_fn(|depth| space.iter().map(|kind| kind[depth]).sum())
    };
    let found: Vec<[u64; DEPTHS]> = found.iter().map(sum).collect();
    hierarchy.memory_reads += found.iter().map(|depths| depths[memory]).sum::<u64>();
    found
}

/// A row of accesses that is followed.
struct Following<'a, const W: usize> {
    near: Option<LevelStrip<'a, NEAR>>,
    middle: Option<LevelStrip<'a, W>>,
    below: Below<'a, W>,
    near_ways: usize,
    own: Option<NearSet>,
    log: &'a StripLog,
    rows: [Row; 2],
}

impl<const W: usize> LaneJob for Following<'_, W> {
    type Output = Option<NearSet>;

    #[inline(always)]
    fn run<L: Lru>(self) -> Option<NearSet> {
        let Following { near, middle, below, near_ways, own, log, rows } = self;
        match middle {
            Some(middle) => Walk { middle, below, near_ways, log, rows }.run::<L>(near, own),
            None => Walk { middle: NoMiddle, below, near_ways, log, rows }.run::<L>(near, own),
        }
    }
}

/// The same, made for having a middle level or none.
struct Walk<'a, M, const W: usize> {
    middle: M,
    below: Below<'a, W>,
    near_ways: usize,
    log: &'a StripLog,
    rows: [Row; 2],
}

impl<M: Middle<W>, const W: usize> Walk<'_, M, W> {
    /// From start to end, alone where the nearest set is not the shared one; that set at the end.
    #[inline(always)]
    fn run<L: Lru>(
        mut self,
        near: Option<LevelStrip<'_, NEAR>>,
        mut own: Option<NearSet>,
    ) -> Option<NearSet> {
        if let Some(near) = near {
            self.apart::<L>(near.sets);
            return None;
        }
        let [Row { accesses: mut access, events: mut event, .. }, _] = self.rows;
        loop {
            if let Some(set) = own {
                match self.alone::<L>(set, access, event) {
                    Ok(together) => event = together,
                    Err(set) => return Some(set),
                }
            }
            (access, own) = self.together::<L>(&mut event)?;
        }
    }

    /// Does what the shared cache passed on, from an event on. If a line is taken out of the nearest set:
    /// the next access and what that set is then.
    #[inline(always)]
    fn together<L: Lru>(&mut self, event: &mut usize) -> Option<(usize, Option<NearSet>)> {
        let (log, end) = (self.log, self.rows[1].events);
        while *event < end {
            let what = log.events[*event];
            let near = &log.sets[*event];
            *event += 1;
            if let Some(ahead) = log.events.get(*event + AHEAD) {
                expect(self.below.places, ahead.tag());
            }
            if let Some(soon) = log.events[..end].get(*event + AHEAD / 2) {
                self.below.expect(soon.tag());
            }
            if what.kind() == Event::WRITE {
                self.below.write::<L, M>(&mut self.middle, what.tag(), near);
                continue;
            }
            let kind = what.kind() as usize;
            let taken = self.below.read::<L, M>(&mut self.middle, what.tag(), kind, near);
            if taken != 0 {
                let (mut own, at) = (*near, what.at as usize);
                remove(&mut own, taken);
                self.bring::<L>(&mut own, word(what.tag(), what.is_store()));
                self.skip_write(event, at);
                return Some((at + 1, Some(own)));
            }
        }
        None
    }

    /// A line comes into an own nearest set.
    #[inline(always)]
    fn bring<L: Lru>(&mut self, own: &mut NearSet, entry: u32) {
        let (_, left) = L::access(own, self.near_ways, entry);
        if left & 1 == 1 {
            self.below.behind.left += 1;
            self.below.write::<L, M>(&mut self.middle, tag_of(left), own);
        }
    }

    /// Leaves out what the shared cache wrote in an access.
    #[inline(always)]
    fn skip_write(&mut self, event: &mut usize, at: usize) {
        let next = self.log.events[..self.rows[1].events].get(*event);
        if next.is_some_and(|next| next.at as usize == at && next.kind() == Event::WRITE) {
            self.below.behind.left -= 1;
            *event += 1;
        }
    }

    /// Does accesses with an own nearest set, from one on, until it is what the shared one is: where
    /// events go on then; else the set at the end.
    #[inline(always)]
    fn alone<L: Lru>(
        &mut self,
        mut own: NearSet,
        from: usize,
        mut event: usize,
    ) -> Result<usize, NearSet> {
        let log = self.log;
        for (at, &access) in log.accesses[..self.rows[1].accesses].iter().enumerate().skip(from) {
            let next = log.events[..self.rows[1].events].get(event);
            let shared_missed = next.is_some_and(|next| next.at as usize == at);
            if shared_missed && log.sets[event] == own {
                return Ok(event);
            }
            event += usize::from(shared_missed);
            self.ask::<L>(&mut own, access);
            if shared_missed {
                self.below.behind.missed[kind_of(access) as usize] -= 1;
                self.skip_write(&mut event, at);
            }
        }
        Err(own)
    }

    /// An access with an own nearest set.
    #[inline(always)]
    fn ask<L: Lru>(&mut self, own: &mut NearSet, access: u32) {
        let (entry, kind) = (word(access >> 1, access & 1 == 1), kind_of(access) as usize);
        if L::touch(own, entry) {
            return;
        }
        let taken = self.below.read::<L, M>(&mut self.middle, access >> 1, kind, own);
        remove(own, taken);
        self.bring::<L>(own, entry);
        self.below.behind.missed[kind] += 1;
    }

    /// Does all accesses with an own nearest cache.
    #[inline(always)]
    fn apart<L: Lru>(&mut self, near: &mut [Ways<NEAR>]) {
        let (log, [from, to]) = (self.log, self.rows);
        let accesses = &log.accesses[from.accesses..to.accesses];
        for (at, &access) in accesses.iter().enumerate() {
            if let Some(ahead) = accesses.get(at + AHEAD) {
                expect(self.below.places, ahead >> 1);
            }
            let set = self.below.places[(access >> 1) as usize].near();
            self.ask::<L>(&mut near[set].0, access);
        }
    }
}

/// Has the place of a line at hand soon.
#[inline(always)]
fn expect(places: &[Place], ahead: u32) {
    places.get(ahead as usize).into_iter().for_each(huepage_model::hint::fetch);
}

/// Takes a line out of a set, if any.
fn remove(set: &mut NearSet, entry: u32) {
    let there = set.iter().position(|&here| entry != 0 && (here ^ entry) < 2);
    if let Some(place) = there {
        set.copy_within(place + 1.., place);
        set[NEAR - 1] = 0;
    }
}
