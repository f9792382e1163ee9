//! Many accesses one after the other, as where a level can tell another what to do: what leaves
//! an inclusive level leaves those above, an exclusive one gives up what it is asked for, and
//! writes that are passed on find other lines than reads. The nearest cache's loop is made for its
//! kind, since most accesses end there; the sets of large caches further on are fetched ahead.

use std::ops::Range;

use huepage_model::lanes::{EntryWord, Isa, LaneJob, Lru};

use super::batch::LineRequest;
use super::{At, CacheCounts, CacheEntry, Hierarchy, Inclusion, Path, WritePolicy};
use crate::record::AccessKind;

/// How many requests are done until sets are fetched for the next ones.
const CHUNK: usize = 16;
/// Bytes of sets that the processor that simulates has at hand anyway.
const SMALL: usize = 32 << 10;

/// Requests of a core.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    /// The lines, of 2^`line_bits` bytes.
    pub lines: &'a [LineRequest],
    /// log2 of the bytes of a line.
    pub line_bits: u32,
    /// The virtual address of each, if the nearest cache is indexed by it; else nothing.
    pub indexes: &'a [u64],
    /// The way of what is read of page tables.
    pub walk_path: &'a Path,
}

impl Requests<'_> {
    #[inline(always)]
    pub(super) fn at(&self, at: usize) -> At {
        let physical = self.lines[at].line() << self.line_bits;
        At { physical, index: self.indexes.get(at).copied().unwrap_or(physical) }
    }
}

/// What goes on beside the accesses.
pub trait Beside {
    /// Whether page tables are read for an access.
    fn is_due(&self, at: usize) -> bool;
    /// Whether it is so for any.
    fn is_ever_due(&self) -> bool;
    /// When an access begins that does not end in the nearest cache, if caches go by the time.
    fn start(&self, at: usize) -> Option<u64>;
    /// The next entry of a page table that is read for an access.
    fn entry(&mut self, at: usize) -> Option<u64>;
    /// It was read: from which depth of the walker's way, and cycles that were waited beside. The cycles of
    /// the read.
    fn walked(&mut self, depth: usize, waited: u64) -> u64;
    /// The nearest cache had the line.
    fn hit(&mut self, at: usize);
    /// The same of several that follow each other.
    fn hits(&mut self, all: Range<usize>) {
        all.for_each(|at| self.hit(at));
    }
    /// What was started is done: the depth that answered, the time, and the cycles waited beside.
    fn done(&mut self, at: usize, depth: usize, now: u64, waited: u64);
}

impl Hierarchy {
    /// Runs requests through the caches of a path.
    pub fn run_in_order(&mut self, path: &Path, all: Requests<'_>, beside: &mut impl Beside) {
        self.begin_once(path.first);
        if let Some(second) = self.pair(path, &all, beside.is_ever_due()) {
            return self.run_pair([path.first, second], all, beside);
        }
        let run = Run { caches: self, path, all, beside };
        match run.caches.nearest_slots(path) {
            1 => run.by_words::<1>(),
            2 => run.by_words::<2>(),
            4 => run.by_words::<4>(),
            8 => run.by_words::<8>(),
            12 => run.by_words::<12>(),
            16 => run.by_words::<16>(),
            _ => run.one_by_one(),
        }
    }

    /// Whether the nearest cache of a path keeps no writes, and nothing below can take a line from it: then
    /// all that it answers is known before others are asked.
    pub(super) fn nearest_is_apart(&self, first: usize) -> bool {
        let mut below = std::iter::successors(self.links[first].next, |&c| self.links[c].next);
        let passes_on = self.caches[first].write == WritePolicy::ThroughNoAllocate;
        passes_on
            && self.logged.is_none()
            && below.all(|cache| self.links[cache].inclusion == Inclusion::None)
    }

    /// An access that a nearest cache which is apart passes on.
    fn ask_below(&mut self, first: usize, address: u64, kind: AccessKind) -> usize {
        self.departed.clear();
        let depth = match kind {
            AccessKind::Store => {
                self.write_out(first, address, 0);
                0
            }
            _ => self.below(first, address, Some(kind)).depth,
        };
        self.learn();
        depth
    }

    /// Entries from one set to the next of a path's nearest cache, if it has a loop of its own;
    /// else 0.
    fn nearest_slots(&self, path: &Path) -> usize {
        let cache = &self.caches[path.first];
        let plain = cache.extras.is_none() && cache.prefetcher.is_none();
        if plain && cache.placing.mask().is_some() && self.watched.is_none() {
            cache.sets.plain_slots()
        } else {
            0
        }
    }

    /// Fetches the sets that addresses will look at behind the nearest cache, and those to which
    /// what leaves for them goes.
    fn fetch_sets(&self, path: &Path, addresses: &[u64]) {
        let mut upper = path.first;
        while let Some(at) = self.links[upper].next {
            let (above, cache) = (&self.caches[upper], &self.caches[at]);
            let takes_all = self.links[at].inclusion == Inclusion::Exclusive;
            if cache.sets.bytes() > SMALL {
                for &address in addresses {
                    cache.sets.fetch_ahead(cache.set_of(address));
                    let leaves = above.sets.oldest(above.set_of(address));
                    if takes_all || leaves.is_dirty() {
                        cache.sets.fetch_ahead(cache.set_of(above.address(leaves)));
                    }
                }
            }
            upper = at;
        }
    }

    /// The nearest cache of a path was looked up and does not have a line.
    fn miss_nearest(&mut self, path: &Path, at: At, kind: AccessKind) -> usize {
        self.departed.clear();
        self.caches[path.first].counts.note(Some(kind), true);
        let depth = self.bring(path.first, at, Some(kind), kind == AccessKind::Store).depth;
        self.learn();
        depth
    }
}

/// A loop over requests.
struct Run<'a, B> {
    caches: &'a mut Hierarchy,
    path: &'a Path,
    all: Requests<'a>,
    beside: &'a mut B,
}

impl<B: Beside> Run<'_, B> {
    fn by_words<const W: usize>(self) {
        let sets = &mut self.caches.caches[self.path.first].sets;
        match sets.plain::<u32, W>().is_some() {
            true => Isa::best().run(Nearest::<_, u32, W>(self, std::marker::PhantomData)),
            false => Isa::best().run(Nearest::<_, u64, W>(self, std::marker::PhantomData)),
        }
    }

    /// Without a loop made for the nearest cache.
    fn one_by_one(mut self) {
        for from in (0..self.all.lines.len()).step_by(CHUNK) {
            let chunk = from..self.all.lines.len().min(from + CHUNK);
            let mut ahead = [0; CHUNK];
            chunk.clone().zip(&mut ahead).for_each(|(at, to)| *to = self.all.at(at).physical);
            self.caches.fetch_sets(self.path, &ahead[..chunk.len()]);
            chunk.for_each(|at| self.whole(at));
        }
    }

    /// What comes before an access that does not end in the nearest cache's loop.
    fn prepare(&mut self, at: usize) {
        if let Some(now) = self.beside.start(at) {
            self.caches.now = now;
        }
        while let Some(entry) = self.beside.entry(at) {
            let depth = match self.all.walk_path.first == self.path.first {
                true => self.caches.access(self.all.walk_path, entry, AccessKind::Load),
                false => self.caches.read_aside(self.all.walk_path, entry),
            };
            let waited = self.caches.take_extra();
            self.caches.now += self.beside.walked(depth, waited);
        }
    }

    fn done(&mut self, at: usize, depth: usize) {
        let waited = self.caches.take_extra();
        self.beside.done(at, depth, self.caches.now, waited);
    }

    /// All of an access.
    fn whole(&mut self, at: usize) {
        self.prepare(at);
        let (place, kind) = (self.all.at(at), self.all.lines[at].access_kind());
        let depth = self.caches.access_virtual(self.path, place.physical, place.index, kind);
        self.done(at, depth);
    }

    /// What the nearest cache has passed on goes through the others.
    fn ask_others(&mut self, passed_on: &[u16]) {
        let mut next = 0;
        for chunk in passed_on.chunks(CHUNK) {
            let mut ahead = [0; CHUNK];
            let places = chunk.iter().map(|&at| self.all.at(usize::from(at)).physical);
            ahead.iter_mut().zip(places).for_each(|(to, physical)| *to = physical);
            self.caches.fetch_sets(self.path, &ahead[..chunk.len()]);
            for at in chunk.iter().map(|&at| usize::from(at)) {
                self.beside.hits(next..at);
                self.prepare(at);
                let (address, kind) = (self.all.at(at).physical, self.all.lines[at].access_kind());
                let depth = self.caches.ask_below(self.path.first, address, kind);
                self.done(at, depth);
                next = at + 1;
            }
        }
        self.beside.hits(next..self.all.lines.len());
    }

    /// The rest of a write that the nearest cache does not keep, and was looked up for.
    fn pass_on(&mut self, at: usize) {
        self.prepare(at);
        self.caches.departed.clear();
        self.caches.write_out(self.path.first, self.all.at(at).physical, 0);
        self.caches.learn();
        self.done(at, 0);
    }

    /// The rest of an access that the nearest cache's loop has not found.
    fn missed(&mut self, at: usize) {
        self.prepare(at);
        let kind = self.all.lines[at].access_kind();
        let depth = self.caches.miss_nearest(self.path, self.all.at(at), kind);
        self.done(at, depth);
    }
}

/// Why the nearest cache's loop stopped.
enum Stop {
    /// The line is not there.
    Missed,
    /// It is written, and the cache keeps no writes.
    PassOn,
    /// The access is more than a look-up.
    Other,
}

/// The loop over the sets of a nearest cache of `W` slots, chosen by bits and plain LRU.
struct Nearest<'a, B, T, const W: usize>(Run<'a, B>, std::marker::PhantomData<T>);

impl<B: Beside, T: EntryWord, const W: usize> LaneJob for Nearest<'_, B, T, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lru>(self) {
        let mut run = self.0;
        if run.caches.nearest_is_apart(run.path.first) && !run.beside.is_ever_due() {
            let cache = &mut run.caches.caches[run.path.first];
            let (bits, ways) = (cache.line_bits, cache.sets.ways());
            let synonyms = cache.synonym_step();
            let (Some(mask), Some(sets)) = (cache.placing.mask(), cache.sets.plain::<T, W>())
            else {
                unreachable!("the loop was chosen for it");
            };
            let counts = &mut cache.counts;
            let apart = Apart { sets, ways, bits, mask, synonyms, counts };
            let passed_on = apart.answer::<L>(run.all);
            return run.ask_others(&passed_on);
        }
        let (mut at, len) = (0, run.all.lines.len());
        expect::<B, T, L, W>(&mut run, 0..len.min(CHUNK));
        while at < len {
            let end = len.min(at + CHUNK);
            expect::<B, T, L, W>(&mut run, end..len.min(end + CHUNK));
            while let Some(stop) = hits::<B, T, L, W>(&mut run, &mut at, end) {
                match stop {
                    Stop::Missed => run.missed(at),
                    Stop::PassOn => run.pass_on(at),
                    Stop::Other => run.whole(at),
                }
                at += 1;
            }
        }
    }
}

/// Fetches what accesses will look at that the nearest cache seems not to have.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
fn expect<B: Beside, T: EntryWord, L: Lru, const W: usize>(
    run: &mut Run<'_, B>,
    chunk: std::ops::Range<usize>,
) {
    let (mut lacking, mut n) = ([0; CHUNK], 0);
    let cache = &mut run.caches.caches[run.path.first];
    let (bits, mask) = (cache.line_bits, cache.placing.mask().unwrap_or(0));
    let Some(sets) = cache.sets.plain::<T, W>() else { return };
    for at in chunk {
        let place = run.all.at(at);
        let entry = T::pack(CacheEntry::new(place.physical >> bits, false));
        lacking[n] = place.physical;
        n += usize::from(L::find(&sets[(place.index >> bits & mask) as usize], entry) == 0);
    }
    run.caches.fetch_sets(run.path, &lacking[..n]);
}

/// Goes on as long as the nearest cache has the lines; why no longer, if the end was not reached.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
fn hits<B: Beside, T: EntryWord, L: Lru, const W: usize>(
    run: &mut Run<'_, B>,
    at: &mut usize,
    end: usize,
) -> Option<Stop> {
    let cache = &mut run.caches.caches[run.path.first];
    let (bits, mask) = (cache.line_bits, cache.placing.mask()?);
    let keeps_writes = cache.write == WritePolicy::BackAllocate;
    let passes_on = cache.write == WritePolicy::ThroughNoAllocate;
    let sets = cache.sets.plain::<T, W>()?;
    while *at < end {
        let kind = run.all.lines[*at].access_kind();
        let store = kind == AccessKind::Store;
        if run.beside.is_due(*at) || store && !keeps_writes && !passes_on {
            return Some(Stop::Other);
        }
        let place = run.all.at(*at);
        let set = &mut sets[(place.index >> bits & mask) as usize];
        let entry = T::pack(CacheEntry::new(place.physical >> bits, store && keeps_writes));
        let found = L::touch(set, entry);
        if store && passes_on {
            cache.counts.note(Some(kind), !found);
            return Some(Stop::PassOn);
        }
        if !found {
            return Some(Stop::Missed);
        }
        cache.counts.accesses[kind as usize] += 1;
        run.beside.hit(*at);
        *at += 1;
    }
    None
}

/// A nearest cache of `W` slots that is apart.
pub(super) struct Apart<'a, T, const W: usize> {
    pub(super) sets: &'a mut [[T; W]],
    pub(super) ways: usize,
    /// log2 of the bytes of a line.
    pub(super) bits: u32,
    pub(super) mask: u64,
    /// The distance of sets where a line may be under other virtual addresses.
    pub(super) synonyms: Option<usize>,
    pub(super) counts: &'a mut CacheCounts,
}

impl<T: EntryWord, const W: usize> Apart<'_, T, W> {
    /// What it answers; the accesses that it passes on.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "sets fit, as do places in a batch")]
    pub(super) fn answer<L: Lru>(self, all: Requests<'_>) -> Vec<u16> {
        let Apart { sets, ways, bits, mask, synonyms, counts } = self;
        let (mut passed_on, mut len) = (vec![0; all.lines.len() + 1], 0);
        let (mut counted, mut moved) = ([[0_u64; 2]; 3], 0);
        let step = synonyms.unwrap_or(0);
        let is_direct = W == 1 && (step == 0 || 2 * step == sets.len());
        for (at, request) in all.lines.iter().enumerate() {
            let (place, kind) = (all.at(at), request.access_kind());
            let store = kind == AccessKind::Store;
            let home = (place.index >> bits & mask) as usize;
            let entry = T::pack(CacheEntry::new(place.physical >> bits, false));
            let found = if is_direct {
                let (found, taken) = access_direct(sets, home, step, entry, store);
                moved += u64::from(taken);
                found
            } else if store {
                L::touch(&mut sets[home], entry)
            } else {
                L::access(&mut sets[home], ways, entry).0
            };
            counted[kind as usize][usize::from(found)] += 1;
            passed_on[len] = at as u16;
            len += usize::from(store | !found);
            if !store & !found & !is_direct
                && let Some(step) = synonyms
            {
                moved += take_synonyms::<T, L, W>(sets, home, step, entry).1;
            }
        }
        for (kind, [missed, had]) in counted.into_iter().enumerate() {
            counts.accesses[kind] += missed + had;
            counts.misses[kind] += missed;
        }
        counts.invalidated += moved;
        passed_on.truncate(len);
        passed_on
    }
}

/// An access to a set of one way, whose line may be in one more set, so far from it, if that is not 0: whether
/// it was there, and whether it was taken out of the other. There is no branch, as nothing foretells either.
#[inline(always)]
fn access_direct<T: EntryWord, const W: usize>(
    sets: &mut [[T; W]],
    home: usize,
    step: usize,
    entry: T,
    store: bool,
) -> (bool, bool) {
    let (here, there) = (sets[home][0], sets[home ^ step][0]);
    let found = here.holds(entry);
    let taken = !store & !found & there.holds(entry);
    // The same set twice where there is no other.
    sets[home ^ step][0] = if taken { T::EMPTY } else { there };
    sets[home][0] = if found | store { here } else { entry };
    (found, taken)
}

/// Takes a line out of the sets, so far from each other, where it was under other virtual addresses: the
/// entry, as dirty as it was there, and from how many. Both the sets and the distance are powers of two.
#[inline(always)]
pub(super) fn take_synonyms<T: EntryWord, L: Lru, const W: usize>(
    sets: &mut [[T; W]],
    home: usize,
    step: usize,
    mut entry: T,
) -> (T, u64) {
    let (mut taken, mut apart) = (0, step);
    // Without a division, which takes as long as all the rest: there is one other set in most caches.
    while apart < sets.len() {
        let other = home ^ apart;
        apart += step;
        let there = L::find(&sets[other], entry);
        if there != 0 {
            entry = entry.soiled(L::take(&mut sets[other], there.trailing_zeros()));
            taken += 1;
        }
    }
    (entry, taken)
}
