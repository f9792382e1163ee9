//! Many accesses level by level instead of one by one: first all of them at the nearest cache,
//! then what it passes on at the next, and so on. Where no level can tell another what to do
//! (plain paths: write-back, nothing inclusive or exclusive), each level sees the same
//! requests in the same order as one by one, so that counts and contents come out the same; a
//! test compares the two. A level's loop is short, knows the sets it will look at well ahead, and
//! has no branch that depends on hit or miss: the processor that simulates need not wait for its
//! own memory, nor guess.

use std::marker::PhantomData;

use super::{AccessOutcome, Cache, CacheCounts, CacheEntry, Hierarchy, Path};
use crate::record::AccessKind;
use huepage_model::lanes::{EntryWord, Isa, LaneJob, Lru};

/// How many requests ahead a level's sets are fetched.
const AHEAD: usize = 8;
/// Answers that there can be to an access on a staged path: its caches, and memory.
pub const MOST_DEPTHS: usize = super::hierarchy::PLAIN + 1;
/// Bits of what a request is: a load, a store, or a dirty line that left another level.
const KIND_BITS: u32 = 2;
const STORE: u64 = 1;
const WRITE: u64 = 2;
/// Bits of a count in a word of counts by what requests are.
const COUNT_BITS: u64 = 20;

/// What a level is asked for: a line, and why. 8 bytes, since every level reads and writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRequest(u64);

impl LineRequest {
    /// An access to a line; batches hold no fetches.
    #[inline(always)]
    pub const fn new(line: u64, store: bool) -> LineRequest {
        LineRequest(line << KIND_BITS | store as u64)
    }

    /// The line, which is a physical address over the line size.
    #[inline(always)]
    pub const fn line(self) -> u64 {
        self.0 >> KIND_BITS
    }

    /// Whether it is one of a program, and not a line that is written back.
    #[inline(always)]
    pub const fn is_access(self) -> bool {
        self.kind() != WRITE
    }

    /// What an access does.
    #[inline(always)]
    pub const fn access_kind(self) -> AccessKind {
        if self.kind() == STORE { AccessKind::Store } else { AccessKind::Load }
    }

    #[inline(always)]
    const fn kind(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }
}

/// Requests, with room for more.
#[derive(Clone, Debug, Default)]
struct List {
    items: Vec<LineRequest>,
    len: usize,
}

impl List {
    /// Empties it and makes room for `most`.
    fn clear(&mut self, most: usize) {
        self.len = 0;
        if self.items.len() < most {
            self.items.resize(most, LineRequest::default());
        }
    }

    fn all(&self) -> &[LineRequest] {
        &self.items[..self.len]
    }

    /// What is filled.
    fn end(&mut self) -> End<'_> {
        End { items: &mut self.items, len: 0 }
    }
}

/// An empty list that is being filled: what it knows stays in registers.
struct End<'a> {
    items: &'a mut [LineRequest],
    len: usize,
}

impl End<'_> {
    /// Adds one if `wanted`, without a branch.
    #[inline(always)]
    fn put(&mut self, request: LineRequest, wanted: bool) {
        self.items[self.len] = request;
        self.len += usize::from(wanted);
    }
}

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    now: List,
    next: List,
}

impl Lists {
    /// What [`Hierarchy::run_nearest`] left.
    pub fn left(&self) -> &[LineRequest] {
        self.now.all()
    }

    /// Holds such requests as if it were left them, for other lines; what they are.
    pub fn take_over(
        &mut self,
        requests: &[LineRequest],
        line: impl Fn(u64) -> u64,
    ) -> RequestTally {
        self.now.clear(requests.len());
        let mut all = 0;
        for (own, &request) in self.now.items.iter_mut().zip(requests) {
            *own = LineRequest(line(request.line()) << KIND_BITS | request.kind());
            all += 1 << (COUNT_BITS * request.kind());
        }
        self.now.len = requests.len();
        RequestTally::of(all)
    }
}

/// Requests by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTally {
    loads: u64,
    stores: u64,
    writes: u64,
}

impl RequestTally {
    /// From counts in one word.
    const fn of(word: u64) -> RequestTally {
        let mask = (1 << COUNT_BITS) - 1;
        RequestTally {
            loads: word & mask,
            stores: word >> (COUNT_BITS * STORE) & mask,
            writes: word >> (COUNT_BITS * WRITE) & mask,
        }
    }

    /// Accesses by programs.
    const fn accesses(self) -> u64 {
        self.loads + self.stores
    }

    fn by_kind(self) -> [u64; 3] {
        let mut counts = [0; 3];
        counts[AccessKind::Load as usize] = self.loads;
        counts[AccessKind::Store as usize] = self.stores;
        counts
    }
}

impl Hierarchy {
    /// Whether a path can be run level by level, by lines of so many bits.
    pub fn is_staged(&self, path: &Path, line_bits: u32) -> bool {
        let mut number = Some(path.first);
        while let Some(at) = number {
            if self.caches[at].line_bits != line_bits {
                return false;
            }
            number = self.links[at].next;
        }
        path.plain && self.watched.is_none() && self.logged.is_none()
    }

    /// Runs a batch through the nearest cache of a path that [`Self::is_staged`]; what it asks
    /// of the next is left in `lists`.
    pub fn run_nearest(
        &mut self,
        path: &Path,
        batch: &[LineRequest],
        lists: &mut Lists,
    ) -> RequestTally {
        lists.now.clear(2 * batch.len());
        by_width(&mut self.caches[path.first], batch, STORE, &mut lists.now)
    }

    /// Runs what [`Self::run_nearest`] left through the rest of the path. `found[d]` is how many
    /// accesses the cache of depth d answered, as [`Hierarchy::access`] gives it, the last one
    /// memory; the nearest one's are not counted. `note` is told of each access that a depth is
    /// asked for, 1 and more: which, and the depth; in the order of depths.
    pub fn run_further(
        &mut self,
        path: &Path,
        mut asked: RequestTally,
        lists: &mut Lists,
        found: &mut [u64; MOST_DEPTHS],
        mut note: impl FnMut(&[LineRequest], usize),
    ) {
        let (mut number, mut depth) = (self.links[path.first].next, 1);
        while let Some(at) = number {
            note(lists.now.all(), depth);
            lists.next.clear(2 * lists.now.len);
            let cache = &mut self.caches[at];
            let missed = by_width(cache, lists.now.all(), WRITE, &mut lists.next);
            found[depth] = asked.accesses() - missed.accesses();
            std::mem::swap(&mut lists.now, &mut lists.next);
            (number, asked, depth) = (self.links[at].next, missed, depth + 1);
        }
        note(lists.now.all(), depth);
        self.memory_writes += asked.writes;
        self.memory_reads += asked.accesses();
        found[depth] = asked.accesses();
    }

    /// Whether the nearest cache is plain LRU and chooses one of at most so many sets by bits of
    /// the line.
    pub fn sets_within(&self, path: &Path, lines: u64) -> bool {
        let cache = &self.caches[path.first];
        let few = cache.placing.mask().is_some_and(|mask| mask < lines);
        few && cache.sets.plain_slots() != 0
    }

    /// Makes the nearest cache, which is plain LRU, what that of another hierarchy of the same
    /// shape is, with other lines in the same sets.
    pub fn copy_nearest(&mut self, path: &Path, from: &Hierarchy, line: impl Fn(u64) -> u64) {
        let (own, model) = (&mut self.caches[path.first], &from.caches[path.first]);
        own.sets = model.sets.with_lines(line);
        own.counts = model.counts;
    }
}

/// A cache as a loop needs it, taken apart so that nothing has to be loaded again for every
/// access. A type for each kind of cache and processor, so that all of a loop is made for it.
trait Ask {
    /// Whether the line was there, and else what left for it.
    fn ask(&mut self, line: u64, dirty: bool) -> (bool, CacheEntry);
    /// A hint that a line will be asked for soon.
    fn expect(&self, line: u64);
    /// Whether it is too large to be at hand without hints.
    fn is_large(&self) -> bool;
}

/// Bytes of sets that the processor that simulates has at hand anyway.
const SMALL: usize = 16 << 10;

/// Sets chosen by plain bits, of `W` slots, replaced by plain LRU.
struct Plain<'a, T, L, const W: usize> {
    sets: &'a mut [[T; W]],
    ways: usize,
    mask: u64,
    how: PhantomData<L>,
}

impl<T, L, const W: usize> Plain<'_, T, L, W> {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
    const fn set_of(&self, line: u64) -> usize {
        (line & self.mask) as usize
    }
}

impl<T: EntryWord, L: Lru, const W: usize> Ask for Plain<'_, T, L, W> {
    #[inline(always)]
    fn ask(&mut self, line: u64, dirty: bool) -> (bool, CacheEntry) {
        let set = self.set_of(line);
        let entry = T::pack(CacheEntry::new(line, dirty));
        let (hit, gone) = L::access(&mut self.sets[set], self.ways, entry);
        (hit, gone.entry())
    }

    #[inline(always)]
    fn expect(&self, line: u64) {
        let set = &self.sets[self.set_of(line)];
        for way in set.iter().step_by(64 / size_of::<T>()) {
            huepage_model::hint::fetch(way);
        }
    }

    #[inline(always)]
    fn is_large(&self) -> bool {
        size_of_val(self.sets) > SMALL
    }
}

/// Any other.
struct Any<'a>(&'a mut Cache);

impl Ask for Any<'_> {
    #[inline(always)]
    fn ask(&mut self, line: u64, dirty: bool) -> (bool, CacheEntry) {
        match self.0.access(line << self.0.line_bits, dirty) {
            AccessOutcome::Hit => (true, CacheEntry::EMPTY),
            AccessOutcome::Miss(victim) => (false, victim),
        }
    }

    fn expect(&self, line: u64) {
        self.0.sets.fetch_ahead(self.0.set_of(line << self.0.line_bits));
    }

    fn is_large(&self) -> bool {
        self.0.sets.sets() * self.0.sets.ways() * size_of::<CacheEntry>() > SMALL
    }
}

/// What a level does with what it is asked for.
struct Level<'a> {
    asked: &'a [LineRequest],
    /// The kind of requests that leaves a line dirty: a store at the nearest level; further
    /// ones are asked for the line only, and get it dirty when it is written back.
    soiled_by: u64,
    /// What it asks of the next.
    out: &'a mut List,
}

/// A level's requests, in the loop made for its kind; what it asks of the next.
fn by_width(
    cache: &mut Cache,
    asked: &[LineRequest],
    soiled_by: u64,
    out: &mut List,
) -> RequestTally {
    let level = Level { asked, soiled_by, out };
    let (next, counts) = match cache.sets.plain_slots() {
        1 => of_width::<1>(cache, level),
        2 => of_width::<2>(cache, level),
        4 => of_width::<4>(cache, level),
        8 => of_width::<8>(cache, level),
        12 => of_width::<12>(cache, level),
        16 => of_width::<16>(cache, level),
        20 => of_width::<20>(cache, level),
        24 => of_width::<24>(cache, level),
        _ => level.run(Any(cache)),
    };
    cache.counts.add(&counts);
    next
}

fn of_width<const W: usize>(cache: &mut Cache, level: Level<'_>) -> (RequestTally, CacheCounts) {
    match cache.sets.plain::<u32, W>() {
        Some(_) => of_words::<u32, W>(cache, level),
        None => of_words::<u64, W>(cache, level),
    }
}

fn of_words<T: EntryWord, const W: usize>(
    cache: &mut Cache,
    level: Level<'_>,
) -> (RequestTally, CacheCounts) {
    let (Some(mask), ways) = (cache.placing.mask(), cache.sets.ways()) else {
        return level.run(Any(cache));
    };
    match cache.sets.plain::<T, W>() {
        Some(sets) => Isa::best().run(PlainLevel { sets, ways, mask, level }),
        None => level.run(Any(cache)),
    }
}

/// The loop of a level over `W` slots.
struct PlainLevel<'a, T, const W: usize> {
    sets: &'a mut [[T; W]],
    ways: usize,
    mask: u64,
    level: Level<'a>,
}

impl<T: EntryWord, const W: usize> LaneJob for PlainLevel<'_, T, W> {
    type Output = (RequestTally, CacheCounts);

    #[inline(always)]
    fn run<L: Lru>(self) -> Self::Output {
        let PlainLevel { sets, ways, mask, level } = self;
        level.run(Plain { sets, ways, mask, how: PhantomData::<L> })
    }
}

impl Level<'_> {
    /// Its requests, one after the other: what it asks of the next, and what it counted.
    #[inline(always)]
    fn run(self, mut cache: impl Ask) -> (RequestTally, CacheCounts) {
        let Level { asked, soiled_by, out } = self;
        let (mut all, mut missed) = (0_u64, 0_u64);
        let mut end = out.end();
        let large = cache.is_large();
        for (at, &request) in asked.iter().enumerate() {
            if large && let Some(ahead) = asked.get(at + AHEAD) {
                cache.expect(ahead.line());
            }
            let kind = request.kind();
            let write = kind == WRITE;
            let (hit, victim) = cache.ask(request.line(), kind == soiled_by);
            all += 1 << (COUNT_BITS * kind);
            missed += u64::from(!hit) << (COUNT_BITS * kind);
            end.put(request, !hit & !write);
            end.put(LineRequest(victim.line() << KIND_BITS | WRITE), victim.is_dirty());
        }
        out.len = end.len;
        outcome(RequestTally::of(all), RequestTally::of(missed), out.len as u64)
    }
}

/// What a level asks of the next, so many requests in all, and what it counted.
fn outcome(all: RequestTally, missed: RequestTally, passed_on: u64) -> (RequestTally, CacheCounts) {
    let next = RequestTally { writes: passed_on - missed.accesses(), ..missed };
    let counts = CacheCounts {
        accesses: all.by_kind(),
        misses: missed.by_kind(),
        writes_in: all.writes,
        write_misses: missed.writes,
        writes_out: next.writes,
        ..CacheCounts::default()
    };
    (next, counts)
}
