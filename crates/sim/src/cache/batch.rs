//! Many accesses level by level instead of one by one: first all of them at the nearest cache,
//! then what it passes on at the next, and so on. Where no level can tell another what to do
//! (plain paths: write-back, nothing inclusive or exclusive), each level sees the same
//! requests in the same order as one by one, so that counts and contents come out the same; a
//! test compares the two. Where one can, [`super::optimistic`] runs the same loop and takes it
//! back if one did. A level's loop is short, knows the sets it will look at well ahead, and
//! has no branch that depends on hit or miss: the processor that simulates need not wait for its
//! own memory, nor guess.

use std::marker::PhantomData;

use super::placing::Placing;
use super::undo::{NoLog, SetLog, UndoLog};
use super::{AccessOutcome, Cache, CacheCounts, CacheEntry, Hierarchy, Path};
use crate::record::AccessKind;
use huepage_model::lanes::{EntryWord, Isa, LaneJob, Lru};

/// How many requests ahead a level's sets are fetched.
const AHEAD: usize = 8;
/// Answers that there can be to an access on a staged path: its caches, and memory.
pub const MOST_DEPTHS: usize = super::hierarchy::PLAIN + 1;
/// Bits of what a request is: a load, a store, or a dirty or clean line that left another level.
pub(super) const KIND_BITS: u32 = 2;
pub(super) const STORE: u64 = 1;
pub(super) const WRITE: u64 = 2;
const CLEAN: u64 = 3;
/// The highest bits of a request: which access of its batch it comes from.
const NUMBER_BITS: u32 = 16;
/// Bits of a count in a word of counts by what requests are.
pub(super) const COUNT_BITS: u64 = 20;

/// What a level is asked for: a line of less than 46 bits, why, and which access of a batch it comes
/// from, if that matters. 8 bytes, since every level reads and writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRequest(pub(super) u64);

impl LineRequest {
    /// An access to a line; batches hold no fetches.
    #[inline(always)]
    pub const fn new(line: u64, store: bool) -> LineRequest {
        LineRequest(line << KIND_BITS | store as u64)
    }

    /// A line that was written and has left a level.
    #[inline(always)]
    pub(super) const fn write(line: u64) -> LineRequest {
        LineRequest(line << KIND_BITS | WRITE)
    }

    /// The line, which is a physical address over the line size.
    #[inline(always)]
    pub const fn line(self) -> u64 {
        self.0 << NUMBER_BITS >> (NUMBER_BITS + KIND_BITS)
    }

    /// Whether it is one of a program, and not a line that left another level.
    #[inline(always)]
    pub const fn is_access(self) -> bool {
        self.kind() < WRITE
    }

    /// What an access does.
    #[inline(always)]
    pub const fn access_kind(self) -> AccessKind {
        if self.kind() == STORE { AccessKind::Store } else { AccessKind::Load }
    }

    #[inline(always)]
    pub(super) const fn kind(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }

    /// The same of the access with this number.
    #[inline(always)]
    pub(super) const fn numbered(self, number: usize) -> LineRequest {
        LineRequest(self.0 | (number as u64) << (u64::BITS - NUMBER_BITS))
    }

    /// The same without the lowest bits of the line.
    #[inline(always)]
    pub(crate) const fn without(self, bits: u32) -> LineRequest {
        LineRequest(self.line() >> bits << KIND_BITS | self.kind())
    }

    /// Whether it is a line that was written.
    #[inline(always)]
    pub(super) const fn is_dirty_line(self) -> bool {
        self.kind() == WRITE
    }

    /// Which access of a batch it comes from.
    #[inline(always)]
    pub(super) const fn number(self) -> usize {
        (self.0 >> (u64::BITS - NUMBER_BITS)) as usize
    }

    /// A line that left for this one: of the same access.
    #[inline(always)]
    const fn made_leave(self, victim: CacheEntry, kind: u64) -> LineRequest {
        let number = self.0 >> (u64::BITS - NUMBER_BITS) << (u64::BITS - NUMBER_BITS);
        LineRequest(number | victim.line() << (NUMBER_BITS + KIND_BITS) >> NUMBER_BITS | kind)
    }
}

/// Requests, with room for more.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    items: Vec<LineRequest>,
    len: usize,
}

impl List {
    /// Empties it and makes room for `most`.
    pub(super) fn clear(&mut self, most: usize) {
        self.len = 0;
        if self.items.len() < most {
            self.items.resize(most, LineRequest::default());
        }
    }

    pub(super) fn all(&self) -> &[LineRequest] {
        &self.items[..self.len]
    }

    /// Adds one, for which there is room.
    pub(super) fn push(&mut self, request: LineRequest) {
        self.items[self.len] = request;
        self.len += 1;
    }

    /// Takes the first out that is so; whether there is one.
    pub(super) fn remove(&mut self, is_so: impl Fn(&LineRequest) -> bool) -> bool {
        let place = self.all().iter().position(is_so);
        if let Some(place) = place {
            self.items.copy_within(place + 1..self.len, place);
            self.len -= 1;
        }
        place.is_some()
    }

    /// What is filled.
    pub(super) fn end(&mut self) -> End<'_> {
        End { items: &mut self.items, len: 0, total: &mut self.len }
    }
}

/// An empty list that is being filled: what it knows stays in registers.
pub(super) struct End<'a> {
    items: &'a mut [LineRequest],
    len: usize,
    /// The length of the list, once it is filled.
    total: &'a mut usize,
}

impl End<'_> {
    /// Adds one if `wanted`, without a branch.
    #[inline(always)]
    pub(super) fn put(&mut self, request: LineRequest, wanted: bool) {
        self.items[self.len] = request;
        self.len += usize::from(wanted);
    }

    pub(super) fn finish(self) {
        *self.total = self.len;
    }
}

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    pub(super) now: List,
    pub(super) next: List,
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
    pub(super) writes: u64,
}

impl RequestTally {
    /// From counts in one word.
    pub(super) const fn of(word: u64) -> RequestTally {
        let mask = (1 << COUNT_BITS) - 1;
        RequestTally {
            loads: word & mask,
            stores: word >> (COUNT_BITS * STORE) & mask,
            writes: word >> (COUNT_BITS * WRITE) & mask,
        }
    }

    /// Those in a list, and so many writes.
    pub(super) fn of_list(list: &[LineRequest], writes: u64) -> RequestTally {
        let word = list.iter().fold(0, |word, request| word + (1 << (COUNT_BITS * request.kind())));
        RequestTally { writes, ..RequestTally::of(word) }
    }

    /// Takes others in.
    pub fn add(&mut self, more: RequestTally) {
        self.loads += more.loads;
        self.stores += more.stores;
        self.writes += more.writes;
    }

    /// Counts them as hits.
    pub(super) fn count_hits(self, counts: &mut CacheCounts) {
        counts.accesses.iter_mut().zip(self.by_kind()).for_each(|(sum, more)| *sum += more);
    }

    /// Accesses by programs.
    pub(super) const fn accesses(self) -> u64 {
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
pub(super) trait Ask {
    /// Whether the line was there, and else what left for it.
    fn ask(&mut self, line: u64, dirty: bool) -> (bool, CacheEntry);
    /// A hint that a line will be asked for soon.
    fn expect(&self, line: u64);
    /// Whether it is too large to be at hand without hints.
    fn is_large(&self) -> bool;
    /// Nothing more is asked for.
    fn finish(self);
}

/// Bytes of sets that the processor that simulates has at hand anyway.
const SMALL: usize = 16 << 10;

/// Sets of `W` slots, replaced by plain LRU; what they hold is written down before it changes, if it may
/// have to come back.
struct Plain<'a, T, L, U, const W: usize> {
    sets: &'a mut [[T; W]],
    ways: usize,
    placing: &'a Placing,
    log: U,
    how: PhantomData<L>,
}

impl<T: EntryWord, L: Lru, U: SetLog<T, W>, const W: usize> Ask for Plain<'_, T, L, U, W> {
    #[inline(always)]
    fn ask(&mut self, line: u64, dirty: bool) -> (bool, CacheEntry) {
        let number = self.placing.set_of(line);
        let set = &mut self.sets[number];
        self.log.keep(number, set);
        let entry = T::pack(CacheEntry::new(line, dirty));
        let (hit, gone) = L::access(set, self.ways, entry);
        (hit, gone.entry())
    }

    #[inline(always)]
    fn expect(&self, line: u64) {
        let set = &self.sets[self.placing.set_of(line)];
        for way in set.iter().step_by(64 / size_of::<T>()) {
            huepage_model::hint::fetch(way);
        }
    }

    #[inline(always)]
    fn is_large(&self) -> bool {
        size_of_val(self.sets) > SMALL
    }

    #[inline(always)]
    fn finish(self) {
        self.log.finish();
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

    fn finish(self) {}
}

/// How a level passes on what it lacks and what leaves it.
trait Passing {
    /// A line, or none, that left for what a request asked for.
    fn victim(&mut self, out: &mut End<'_>, victim: CacheEntry, asker: LineRequest);
    /// Nothing more leaves.
    fn finish(self);
}

/// Dirty lines are passed on, and nobody asks for more.
struct DirtyLines;

impl Passing for DirtyLines {
    #[inline(always)]
    fn victim(&mut self, out: &mut End<'_>, victim: CacheEntry, _: LineRequest) {
        out.put(LineRequest(victim.line() << KIND_BITS | WRITE), victim.is_dirty());
    }

    fn finish(self) {}
}

/// Every line that leaves is listed, and what is passed on says where it comes from.
struct Listed<'a> {
    gone: End<'a>,
    /// Whether clean lines are passed on as well.
    all: bool,
}

impl Passing for Listed<'_> {
    #[inline(always)]
    fn victim(&mut self, out: &mut End<'_>, victim: CacheEntry, asker: LineRequest) {
        let dirty = victim.is_dirty();
        let left = asker.made_leave(victim, if dirty { WRITE } else { CLEAN });
        self.gone.put(left, victim.is_line());
        out.put(left, dirty | (self.all & victim.is_line()));
    }

    #[inline(always)]
    fn finish(self) {
        self.gone.finish();
    }
}

/// What a level does with what it is asked for.
struct Level<'a, P> {
    asked: &'a [LineRequest],
    /// The kind of requests that leaves a line dirty: a store at the nearest level; further
    /// ones are asked for the line only, and get it dirty when it is written back.
    soiled_by: u64,
    /// What it asks of the next.
    out: &'a mut List,
    passing: P,
}

/// A level's requests, in the loop made for its kind; what it asks of the next.
pub(super) fn by_width(
    cache: &mut Cache,
    asked: &[LineRequest],
    soiled_by: u64,
    out: &mut List,
) -> RequestTally {
    let level = Level { asked, soiled_by, out, passing: DirtyLines };
    let (next, counts) = match (cache.sets.plain_slots(), cache.sets.is_narrow()) {
        (1, true) => of_words::<u32, _, _, 1>(cache, NoLog, level),
        (2, true) => of_words::<u32, _, _, 2>(cache, NoLog, level),
        (8, true) => of_words::<u32, _, _, 8>(cache, NoLog, level),
        (16, true) => of_words::<u32, _, _, 16>(cache, NoLog, level),
        (24, true) => of_words::<u32, _, _, 24>(cache, NoLog, level),
        (1, false) => of_words::<u64, _, _, 1>(cache, NoLog, level),
        (2, false) => of_words::<u64, _, _, 2>(cache, NoLog, level),
        (4, false) => of_words::<u64, _, _, 4>(cache, NoLog, level),
        (8, false) => of_words::<u64, _, _, 8>(cache, NoLog, level),
        (12, false) => of_words::<u64, _, _, 12>(cache, NoLog, level),
        (16, false) => of_words::<u64, _, _, 16>(cache, NoLog, level),
        (20, false) => of_words::<u64, _, _, 20>(cache, NoLog, level),
        (24, false) => of_words::<u64, _, _, 24>(cache, NoLog, level),
        _ => level.run(Any(cache)),
    };
    cache.counts.add(&counts);
    next
}

/// Slots of the sets for which [`run_logged`] has loops.
pub(super) const LOGGED: [usize; 5] = [1, 2, 8, 16, 24];

/// What [`run_logged`] is told beside the requests.
pub(super) struct Logged<'a> {
    pub(super) asked: &'a [LineRequest],
    /// Whether this is the nearest level.
    pub(super) nearest: bool,
    /// Whether clean lines that leave are passed on as well.
    pub(super) all: bool,
    pub(super) out: &'a mut List,
    pub(super) gone: &'a mut List,
    pub(super) undo: &'a mut UndoLog,
}

/// The same for sets in small words of [`LOGGED`] slots, and all that is needed to take it back; counts
/// are not added yet.
pub(super) fn run_logged(cache: &mut Cache, what: Logged<'_>) -> (RequestTally, CacheCounts) {
    match cache.sets.plain_slots() {
        1 => logged::<1>(cache, what),
        2 => logged::<2>(cache, what),
        8 => logged::<8>(cache, what),
        16 => logged::<16>(cache, what),
        24 => logged::<24>(cache, what),
        slots => unreachable!("no loop over {slots} slots"),
    }
}

fn logged<const W: usize>(cache: &mut Cache, what: Logged<'_>) -> (RequestTally, CacheCounts) {
    let Logged { asked, nearest, all, out, gone, undo } = what;
    let passing = Listed { gone: gone.end(), all };
    let soiled_by = if nearest { STORE } else { WRITE };
    let level = Level { asked, soiled_by, out, passing };
    of_words::<u32, _, _, W>(cache, undo.begin::<W>(asked.len()), level)
}

fn of_words<T: EntryWord, U: SetLog<T, W>, P: Passing, const W: usize>(
    cache: &mut Cache,
    log: U,
    level: Level<'_, P>,
) -> (RequestTally, CacheCounts) {
    let (ways, placing) = (cache.sets.ways(), &cache.placing);
    match cache.sets.plain::<T, W>() {
        Some(sets) => Isa::best().run(PlainLevel { sets, ways, placing, log, level }),
        None => unreachable!("the slots are of another size"),
    }
}

/// The loop of a level over `W` slots.
struct PlainLevel<'a, T, U, P, const W: usize> {
    sets: &'a mut [[T; W]],
    ways: usize,
    placing: &'a Placing,
    log: U,
    level: Level<'a, P>,
}

impl<T: EntryWord, U: SetLog<T, W>, P: Passing, const W: usize> LaneJob
    for PlainLevel<'_, T, U, P, W>
{
    type Output = (RequestTally, CacheCounts);

    #[inline(always)]
    fn run<L: Lru>(self) -> Self::Output {
        let PlainLevel { sets, ways, placing, log, level } = self;
        level.run(Plain { sets, ways, placing, log, how: PhantomData::<L> })
    }
}

impl<P: Passing> Level<'_, P> {
    /// Its requests, one after the other: what it asks of the next, and what it counted.
    #[inline(always)]
    fn run(self, mut cache: impl Ask) -> (RequestTally, CacheCounts) {
        let Level { asked, soiled_by, out, mut passing } = self;
        let (mut all, mut missed, mut dirty) = (0_u64, 0_u64, 0_u64);
        let mut end = out.end();
        let large = cache.is_large();
        for (at, &request) in asked.iter().enumerate() {
            if large && let Some(ahead) = asked.get(at + AHEAD) {
                cache.expect(ahead.line());
            }
            let kind = request.kind();
            let (hit, victim) = cache.ask(request.line(), kind == soiled_by);
            all += 1 << (COUNT_BITS * kind);
            missed += u64::from(!hit) << (COUNT_BITS * kind);
            dirty += u64::from(victim.is_dirty());
            end.put(request, !hit & request.is_access());
            passing.victim(&mut end, victim, request);
        }
        end.finish();
        passing.finish();
        cache.finish();
        outcome(RequestTally::of(all), RequestTally::of(missed), dirty)
    }
}

/// What a level behind the nearest counts that is asked for these; what it asks of the next is left in `out`.
#[inline(always)]
pub(super) fn further(cache: impl Ask, asked: &[LineRequest], out: &mut List) -> CacheCounts {
    out.clear(2 * asked.len());
    let level = Level { asked, soiled_by: WRITE, out, passing: DirtyLines };
    level.run(cache).1
}

/// What a level asks of the next, and what it counted; so many dirty lines left it.
fn outcome(all: RequestTally, missed: RequestTally, dirty: u64) -> (RequestTally, CacheCounts) {
    let next = RequestTally { writes: dirty, ..missed };
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
