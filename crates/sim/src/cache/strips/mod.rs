//! Hierarchies that differ in frames only, side by side. What their nearest cache does is the same
//! for all: its sets are chosen within a page. So it runs once, and each of the others follows what it
//! passed on. Lines whose lowest bits differ never meet in a set of any level, so that accesses are
//! sorted by these bits into strips, each with one set of the nearest cache: what a hierarchy holds of a
//! strip is a few KiB, which the processor that simulates has at hand while a strip passes.
//!
//! Where the last level tells the nearest what to do, each event comes with what the nearest set held
//! at that time. An exclusive level asks only whether a line is there. An inclusive one may take a line
//! out: then this hierarchy goes on with a set of its own for that strip, access by access, until it
//! holds again what the shared one does (`follow`). Where sets of the nearest cache are chosen by bits of
//! the frame, each hierarchy has a nearest cache of its own; look-ups of pages and TLBs are shared. Counts and contents come out as alone; tests
//! compare. All lines have the names that they have in the nearest cache that is shared; where they lie
//! in another hierarchy is looked up by page.

mod follow;

pub use follow::{Follow, PointCounts, follower, stack};

use huepage_model::lanes::{EntryWord, Isa, LaneJob, Lru};

use super::batch::LineRequest;
use super::{Cache, CacheCounts, CacheEntry, Hierarchy, Inclusion, Path};
use crate::record::AccessKind;

/// Slots of a set of the nearest cache; it may have fewer ways.
pub const NEAR: usize = 16;
/// Most slots of a set of another.
const MOST: usize = 24;
/// log2 of the lines that a level may tell apart within a strip: they fit a word with two bits more.
const LINE_BITS: u32 = 30;
/// log2 of the most sets of a strip in a level.
const SET_BITS: u32 = 16;
/// Accesses that wait until they are followed: enough that what a hierarchy holds of a strip is read in
/// for some thousand accesses.
const WAITING: usize = 1 << 19;

/// A set of the nearest cache, the line used last first.
pub type NearSet = [u32; NEAR];

/// An entry as sets keep it.
#[inline(always)]
fn word(tag: u32, dirty: bool) -> u32 {
    u32::pack(CacheEntry::new(u64::from(tag), dirty))
}

/// The line of an entry, by its name within a strip.
#[inline(always)]
const fn tag_of(word: u32) -> u32 {
    (word >> 1).wrapping_sub(1)
}

/// What is common to hierarchies that can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripShape {
    /// log2 of the strips: the bits of a line that choose its set in the nearest cache.
    pub bits: u32,
    /// Lowest bits of a line that are not of its page's number.
    pub page_bits: u32,
    /// How the last level goes with those above.
    pub last: Inclusion,
    /// Whether sets of the nearest cache are chosen within a page, so that it is the same for all. Else
    /// each has its own, and what is shared is what pages and TLBs are asked.
    pub shared: bool,
}

/// What the nearest cache passes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Event {
    /// A line of the strip, and [`Event::WRITE`] if it was written and left, else the kind of access.
    what: u32,
    /// The access of the strip that it comes from.
    at: u32,
}

impl Event {
    const WRITE: u32 = 3;

    #[inline(always)]
    const fn new(tag: u32, kind: u32, at: u32) -> Event {
        Event { what: tag << 2 | kind, at }
    }

    #[inline(always)]
    const fn tag(self) -> u32 {
        self.what >> 2
    }

    #[inline(always)]
    const fn kind(self) -> u32 {
        self.what & 3
    }

    /// The same as a request.
    #[inline(always)]
    const fn request(self) -> LineRequest {
        let line = self.tag() as u64;
        if self.kind() == Event::WRITE {
            return LineRequest::write(line);
        }
        LineRequest::new(line, self.is_store())
    }

    /// Whether it is a store that missed.
    #[inline(always)]
    const fn is_store(self) -> bool {
        self.kind() == AccessKind::Store as u32
    }
}

/// An access within a strip: its line and whether it stores.
#[inline(always)]
const fn access(tag: u32, store: bool) -> u32 {
    tag << 1 | store as u32
}

/// The kind of an access, as counts have it.
#[inline(always)]
const fn kind_of(access: u32) -> u32 {
    if access & 1 == 1 { AccessKind::Store as u32 } else { AccessKind::Load as u32 }
}

/// A row of accesses of one space in a strip: where they and their events end.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    space: u16,
    accesses: usize,
    events: usize,
}

/// What the nearest cache did with the accesses of a strip.
#[derive(Debug, Default)]
pub struct StripLog {
    accesses: Vec<u32>,
    events: Vec<Event>,
    /// The same as requests, where nothing else matters.
    requests: Vec<LineRequest>,
    /// What the set held when each event began, where that matters.
    sets: Vec<NearSet>,
    rows: Vec<Row>,
}

/// The nearest cache of all, and what waits for it.
#[derive(Debug)]
pub struct Strips {
    shape: StripShape,
    sets: Vec<NearSet>,
    ways: usize,
    waiting: Vec<Vec<u32>>,
    waits: usize,
    /// Whose accesses wait: a space, and where they end in each strip.
    owners: Vec<(u16, Vec<usize>)>,
    log: StripLog,
    counts: CacheCounts,
    /// The core whose caches these are.
    core: usize,
}

impl Hierarchy {
    /// How hierarchies like this one can follow one of them in what the nearest cache of a path does, if
    /// frames are all that differs and there are so many; `line_bits` is that of the machine.
    ///
    /// Not where a level but the last tells others what to do, or one has extras or is no LRU: what the
    /// nearest cache does depends on the time then, or on what others do at any moment. Nor on a processor
    /// without AVX2, for which the loops are not made.
    pub fn strip_shape(&self, path: &Path, line_bits: u32, frames: u64) -> Option<StripShape> {
        let along: Vec<usize> =
            std::iter::successors(Some(path.first), |&at| self.links[at].next).collect();
        let (nearest, page_bits) = (&self.caches[path.first], 12_u32.checked_sub(line_bits)?);
        let sets = nearest.placing.mask()? + 1;
        let (bits, last) = (sets.trailing_zeros(), self.links[*along.last()?].inclusion);
        let shared = bits <= page_bits;
        let bits = bits.min(page_bits);
        let lru = |cache: &Cache, most: usize| {
            let slots = cache.sets.plain_slots();
            let few = cache.sets.sets() >> bits <= 1 << SET_BITS;
            few && cache.is_simple() && cache.line_bits == line_bits && (1..=most).contains(&slots)
        };
        let near = lru(nearest, NEAR) && (shared || nearest.placing.strip(bits).is_some());
        let behind = along.get(1..).filter(|behind| (1..=2).contains(&behind.len()))?;
        // Lines that share a set behind share one of the nearest cache: those of a strip do if it has one.
        let fits = |&at: &usize| {
            let cache = &self.caches[at];
            let strips = cache.placing.strip(bits).is_some();
            lru(cache, MOST) && strips && (shared || cache.placing.refines(&nearest.placing))
        };
        let fits = near && behind.iter().all(fits);
        let middle = behind.len() == 2;
        let told = middle && self.links[behind[0]].inclusion != Inclusion::None
            || !middle && last == Inclusion::Exclusive;
        let small = frames << (page_bits - bits) < 1 << LINE_BITS;
        let unseen = self.watched.is_none() && self.logged.is_none();
        let shape = StripShape { bits, page_bits, last, shared };
        (fits && !told && small && unseen && Isa::best().is_wide()).then_some(shape)
    }
}

impl Strips {
    /// The nearest cache of a path of a hierarchy of this shape, empty; the path is that of a core.
    pub fn new(shape: StripShape, hierarchy: &Hierarchy, path: &Path, core: usize) -> Strips {
        let strips = 1 << shape.bits;
        Strips {
            shape,
            sets: vec![[0; NEAR]; if shape.shared { strips } else { 0 }],
            ways: hierarchy.caches[path.first].sets.ways(),
            waiting: vec![Vec::new(); strips],
            waits: 0,
            owners: Vec::new(),
            log: StripLog::default(),
            counts: CacheCounts::default(),
            core,
        }
    }

    /// The core whose accesses may come: others have caches of their own.
    pub const fn core(&self) -> usize {
        self.core
    }

    /// Has accesses of a space wait; whether it is time to follow.
    pub fn wait(&mut self, space: u16, requests: &[LineRequest]) -> bool {
        let (bits, low) = (self.shape.bits, (1 << self.shape.bits) - 1);
        for request in requests {
            let line = request.line();
            #[expect(clippy::cast_possible_truncation, reason = "the shape says that they fit")]
            let (strip, tag) = ((line & low) as usize, (line >> bits) as u32);
            let store = request.access_kind() == AccessKind::Store;
            self.waiting[strip].push(access(tag, store));
        }
        self.waits += requests.len();
        if self.owners.last().is_none_or(|last| last.0 != space) {
            self.owners.push((space, Vec::new()));
        }
        let ends = self.waiting.iter().map(Vec::len);
        let last = self.owners.last_mut().map(|last| &mut last.1);
        last.into_iter().for_each(|last| {
            last.clear();
            last.extend(ends.clone());
        });
        self.waits >= WAITING
    }

    /// Runs what waits, strip by strip; `follow` is told what each did.
    pub fn run(&mut self, mut follow: impl FnMut(usize, &StripLog)) {
        for strip in 0..self.waiting.len() {
            if !self.waiting[strip].is_empty() {
                self.run_strip(strip);
                follow(strip, &self.log);
            }
        }
        self.owners.clear();
        self.waits = 0;
    }

    fn run_strip(&mut self, strip: usize) {
        let Strips { shape, sets, ways, waiting, owners, log, counts, .. } = self;
        std::mem::swap(&mut log.accesses, &mut waiting[strip]);
        waiting[strip].clear();
        let most = 2 * log.accesses.len() + 1;
        log.events.resize(most, Event::default());
        let told = shape.last != Inclusion::None;
        log.sets.resize(if told { most } else { 1 }, [0; NEAR]);
        log.rows.clear();
        log.requests.clear();
        let (mut from, mut events) = (0, 0);
        for (space, ends) in owners {
            if !shape.shared {
                count(&log.accesses[from..ends[strip]], counts);
                from = ends[strip];
                log.rows.push(Row { space: *space, accesses: from, events });
                continue;
            }
            let (accesses, set) = (&log.accesses[from..ends[strip]], &mut sets[strip]);
            let (at, out) = (from, &mut log.events[events..]);
            let held = if told { &mut log.sets[events..] } else { &mut log.sets[..] };
            let nearest = Nearest { set, ways: *ways, accesses, at, events: out, held, told };
            let (more, counted) = Isa::best().run_wide(nearest);
            counts.add(&counted);
            if !told {
                let those = &log.events[events..events + more];
                log.requests.extend(those.iter().map(|event| event.request()));
            }
            (from, events) = (ends[strip], events + more);
            log.rows.push(Row { space: *space, accesses: from, events });
        }
    }

    /// Forgets what the nearest cache has counted.
    pub fn forget_counts(&mut self) {
        self.counts = CacheCounts::default();
    }
}

/// Counts accesses by kind.
fn count(accesses: &[u32], counts: &mut CacheCounts) {
    for &access in accesses {
        counts.accesses[kind_of(access) as usize] += 1;
    }
}

/// A set of the nearest cache and the accesses that it is asked for.
struct Nearest<'a> {
    set: &'a mut NearSet,
    ways: usize,
    accesses: &'a [u32],
    /// The place of the first in its strip.
    at: usize,
    events: &'a mut [Event],
    held: &'a mut [NearSet],
    told: bool,
}

impl LaneJob for Nearest<'_> {
    type Output = (usize, CacheCounts);

    #[inline(always)]
    fn run<L: Lru>(self) -> Self::Output {
        match self.told {
            true => self.pass::<L, true>(),
            false => self.pass::<L, false>(),
        }
    }
}

impl Nearest<'_> {
    /// How many events there are, and what is counted. Without a branch that depends on what is found.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "places among those that wait")]
    fn pass<L: Lru, const TOLD: bool>(self) -> (usize, CacheCounts) {
        let Nearest { set, ways, accesses, at, events, held, .. } = self;
        let (mut len, mut stores, mut missed, mut missed_stores, mut out) = (0, 0, 0_u64, 0_u64, 0);
        for (number, &access) in (at as u32..).zip(accesses) {
            if TOLD {
                held[len] = *set;
            }
            let (tag, store) = (access >> 1, access & 1);
            let (hit, gone) = L::access(set, ways, word(tag, store == 1));
            events[len] = Event::new(tag, kind_of(access), number);
            len += usize::from(!hit);
            if TOLD {
                held[len] = *set;
            }
            events[len] = Event::new(tag_of(gone), Event::WRITE, number);
            len += (gone & 1) as usize;
            stores += u64::from(store);
            missed += u64::from(!hit);
            missed_stores += u64::from(!hit & (store == 1));
            out += u64::from(gone & 1);
        }
        let mut counts = CacheCounts { writes_out: out, ..CacheCounts::default() };
        counts.accesses[AccessKind::Load as usize] = accesses.len() as u64 - stores;
        counts.accesses[AccessKind::Store as usize] = stores;
        counts.misses[AccessKind::Load as usize] = missed - missed_stores;
        counts.misses[AccessKind::Store as usize] = missed_stores;
        (len, counts)
    }
}
