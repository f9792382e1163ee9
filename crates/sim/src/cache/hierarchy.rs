//! Caches that work together: a request goes down until a cache has the line; on the way back
//! up each level takes the line, and what has to leave for it is written back, kept below, or
//! taken from the caches above, as the levels were told to include each other or not.
//!
//! The order is that of a machine that does one thing at a time: the line arrives first, then
//! the victim leaves. What waits in a write buffer belongs to the level above it. Coherence
//! between cores is not modelled: a line may be in two private caches. Nor is timing, except
//! for cycles on top of a level's latency: second looks and write buffers.

use serde::{Deserialize, Serialize};

use super::{At, Cache, CacheCounts, CacheEntry, Found, Prefetch, WritePolicy};
use crate::record::AccessKind;

/// A line that has left a cache with nothing below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its first physical address.
    pub line: u64,
    /// A physical address in the line that has its place: the one that was asked for, or one that a cache above
    /// handed down for that.
    pub newcomer: u64,
}

/// How a level goes with the levels above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// Neither: lines are brought in on the way up and leave when they must.
    #[default]
    None,
    /// It has all that the levels above have: what leaves here leaves there too.
    Inclusive,
    /// It has what the level above threw out and no level above has, and gives it up when it
    /// is asked for. It takes lines that leave, but is not filled on the way up.
    Exclusive,
}

/// The caches that a core's requests of one kind go through, nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub(super) first: usize,
    levels: usize,
    /// Whether each cache can be looked up and filled in one go: it has nothing special, and nothing
    /// that happens below can touch it in between.
    pub(super) plain: bool,
}

/// The most levels that a plain path can have.
pub(super) const PLAIN: usize = 8;

impl Path {
    /// The number of the nearest cache.
    pub const fn first(&self) -> usize {
        self.first
    }

    /// How many caches it has.
    pub const fn levels(&self) -> usize {
        self.levels
    }
}

/// How a cache stands to the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    /// The cache below; memory if none.
    pub(super) next: Option<usize>,
    pub(super) inclusion: Inclusion,
    /// The caches directly or further above.
    pub(super) above: Vec<usize>,
    /// Of these, those that may hold anything.
    pub(super) busy: Vec<usize>,
    /// Whether it was asked as the nearest cache of a path, so that it and those below may hold
    /// something.
    begun: bool,
    /// On a path already.
    placed: bool,
}

/// Where a line was found, counted from the cache that was asked, and whether it comes with
/// writes that are nowhere else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub(super) depth: usize,
    dirty: bool,
}

/// An access that prefetchers have yet to learn of.
#[derive(Clone, Copy, Debug)]
struct Lesson {
    cache: usize,
    at: At,
    fresh: bool,
}

/// Any number of caches and the paths through them.
#[derive(Clone, Debug, Default)]
pub struct Hierarchy {
    pub(super) caches: Vec<Cache>,
    pub(super) links: Vec<Link>,
    lessons: Vec<Lesson>,
    /// Lines, with log2 of their bytes, that have left inclusive caches in this access.
    pub(super) departed: Vec<(u64, u32)>,
    /// Lines that prefetchers want; room that is used again.
    pub(super) wanted: Vec<u64>,
    /// The cache whose misses are written down, and the first address of each line missed.
    pub(super) watched: Option<(usize, Vec<u64>)>,
    /// Lines that have left caches with nothing below them, if asked for.
    pub(super) logged: Option<Vec<Departure>>,
    extra: u64,
    /// The time in cycles, set by the caller: write buffers go by it.
    pub now: u64,
    /// Cycles until a line that was prefetched from memory is there; who asks for it before waits
    /// for the rest. 0: at once, whatever [`Self::now`].
    pub prefetch_latency: u64,
    /// Dirty lines and writes that reached memory.
    pub memory_writes: u64,
    /// Lines that memory was asked for.
    pub memory_reads: u64,
    /// Of these, for prefetchers.
    pub memory_prefetches: u64,
}

impl Link {
    /// Whether it was asked as the nearest cache of a path.
    pub(super) const fn has_begun(&self) -> bool {
        self.begun
    }
}

impl Hierarchy {
    /// Nothing yet.
    pub fn new() -> Hierarchy {
        Hierarchy::default()
    }

    /// Adds a cache; gives its number.
    pub fn add(&mut self, cache: Cache) -> usize {
        self.caches.push(cache);
        self.links.push(Link::default());
        self.caches.len() - 1
    }

    /// Adds a path through caches, nearest first, each with its relation to those above. A
    /// cache has the same caches below it on every path.
    ///
    /// # Panics
    /// If a cache is not there, the path is empty or contradicts another, lines get shorter
    /// on the way down, or an exclusive cache writes through or has other lines than the
    /// cache above.
    pub fn path(&mut self, caches: &[(usize, Inclusion)]) -> Path {
        assert!(!caches.is_empty(), "a path through no cache");
        let bits: Vec<u32> = caches.iter().map(|&(c, _)| self.caches[c].line_bits).collect();
        assert!((1..caches.len()).all(|at| bits[at - 1] <= bits[at]), "lines get shorter");
        for (depth, &(cache, inclusion)) in caches.iter().enumerate() {
            let exclusive = inclusion == Inclusion::Exclusive;
            assert!(!exclusive || self.caches[cache].write.is_back(), "exclusive: write back");
            assert!(!exclusive || depth == 0 || bits[depth - 1] == bits[depth], "other lines");
            self.link(cache, inclusion, caches.get(depth + 1).map(|&(next, _)| next));
            for &(upper, _) in &caches[..depth] {
                if !self.links[cache].above.contains(&upper) {
                    self.links[cache].above.push(upper);
                }
            }
        }
        let first = caches[0].0;
        let simple = |&(cache, inclusion): &(usize, Inclusion)| {
            inclusion == Inclusion::None && self.caches[cache].is_simple()
        };
        let plain = caches.len() <= PLAIN && caches.iter().all(simple);
        Path { first, levels: caches.len(), plain }
    }

    fn link(&mut self, cache: usize, inclusion: Inclusion, next: Option<usize>) {
        let link = &mut self.links[cache];
        let same = link.inclusion == inclusion && link.next == next;
        assert!(!link.placed || same, "cache {cache} has other relations on another path");
        (link.placed, link.inclusion, link.next) = (true, inclusion, next);
    }

    /// The caches, by number.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// Whether the nearest cache of a path is indexed by virtual addresses.
    pub fn is_virtual(&self, path: &Path) -> bool {
        self.caches[path.first].is_virtual()
    }

    /// Sets all counts to zero and leaves contents as they are: the end of a warm-up.
    pub fn forget_counts(&mut self) {
        for cache in &mut self.caches {
            cache.counts = CacheCounts::default();
            // What was prefetched before counts as any other line.
            cache.prefetcher.iter_mut().for_each(|prefetcher| prefetcher.unused.clear());
        }
        (self.memory_reads, self.memory_writes, self.memory_prefetches) = (0, 0, 0);
    }

    /// Switches a prefetcher of a cache on or off; whether it has such a one.
    pub fn switch(&mut self, cache: usize, which: Prefetch, on: bool) -> bool {
        self.caches[cache].switch(which, on)
    }

    /// Writes the misses of one cache down, demand and writes from above, until told
    /// otherwise; for sensors that see addresses (the CML buffer of Romer 1998, chapter 5).
    pub fn watch(&mut self, cache: Option<usize>) {
        self.watched = cache.map(|cache| (cache, Vec::new()));
    }

    /// Takes the misses written down so far, the oldest first: the first physical address of
    /// each line.
    pub fn missed(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.watched.iter_mut().flat_map(|(_, lines)| lines.drain(..))
    }

    /// Cycles since the last call on top of the latencies of the levels that answered: hits
    /// in the second place, waiting for write buffers, and for prefetched lines on their way.
    #[inline]
    pub fn take_extra(&mut self) -> u64 {
        std::mem::take(&mut self.extra)
    }

    /// Gives such cycles back, to be taken later.
    pub const fn give_extra(&mut self, cycles: u64) {
        self.extra += cycles;
    }

    /// A request for an address. Gives the depth of the cache that had it, 0 for the nearest;
    /// the length of the path stands for memory. A store that a cache passes on without
    /// taking the line in is done when it is passed on: depth 0.
    #[inline]
    pub fn access(&mut self, path: &Path, address: u64, kind: AccessKind) -> usize {
        self.access_virtual(path, address, address, kind)
    }

    /// The same, with the virtual address for a cache that is indexed by it.
    #[inline]
    pub fn access_virtual(
        &mut self,
        path: &Path,
        address: u64,
        virtual_address: u64,
        kind: AccessKind,
    ) -> usize {
        self.begin_once(path.first);
        self.departed.clear();
        let index = if self.is_virtual(path) { virtual_address } else { address };
        self.request(path.first, At { physical: address, index }, kind)
    }

    /// A read that prefetchers do not learn from, which follow loads: that of a page walker that passes the
    /// nearest cache by.
    pub fn read_aside(&mut self, path: &Path, address: u64) -> usize {
        self.begin_once(path.first);
        self.departed.clear();
        let at = At { physical: address, index: address };
        let depth = self.read(path.first, at, Some(AccessKind::Load), false).depth;
        self.lessons.clear();
        depth
    }

    /// The caches of a path may hold something from now on.
    #[inline(always)]
    pub(super) fn begin_once(&mut self, first: usize) {
        if !self.links[first].begun {
            self.begin(first);
        }
    }

    #[cold]
    fn begin(&mut self, first: usize) {
        self.links[first].begun = true;
        let path = std::iter::successors(Some(first), |&cache| self.links[cache].next);
        let path: Vec<usize> = path.collect();
        for (depth, &cache) in path.iter().enumerate() {
            let busy = &mut self.links[cache].busy;
            let new = path[..depth].iter().filter(|&upper| !busy.contains(upper));
            let new: Vec<usize> = new.copied().collect();
            busy.extend(new);
        }
    }

    /// An access to a nearest cache.
    fn request(&mut self, first: usize, at: At, kind: AccessKind) -> usize {
        let write = self.caches[first].write;
        let depth = if kind != AccessKind::Store || write == WritePolicy::BackAllocate {
            self.read(first, at, Some(kind), kind == AccessKind::Store).depth
        } else if write == WritePolicy::ThroughAllocate {
            let depth = self.read(first, at, Some(kind), false).depth;
            self.write_out(first, at.physical, 0);
            depth
        } else {
            let found = self.look_up(first, at, Some(kind), write.is_back());
            if found == Found::Miss || !write.is_back() {
                self.write_out(first, at.physical, 0);
            }
            0
        };
        self.learn();
        depth
    }

    /// Looks a line up, counts, and leaves a lesson for the prefetchers.
    #[inline]
    fn look_up(&mut self, number: usize, at: At, ask: Option<AccessKind>, dirty: bool) -> Found {
        let cache = &mut self.caches[number];
        let found = cache.find(at, dirty);
        if cache.prefetcher.is_some() && ask.is_some() {
            let arrival = if found == Found::Miss { None } else { cache.used(at.physical) };
            let fresh = found == Found::Miss || arrival.is_some();
            self.extra += arrival.unwrap_or(0).saturating_sub(self.now);
            self.lessons.push(Lesson { cache: number, at, fresh });
        }
        self.note(number, at.physical, ask, found);
        found
    }

    #[inline]
    fn note(&mut self, number: usize, address: u64, ask: Option<AccessKind>, found: Found) {
        let cache = &mut self.caches[number];
        cache.counts.note(ask, found == Found::Miss);
        if found == Found::Second && ask.is_some() {
            cache.counts.second_hits += 1;
            self.extra += cache.extras.as_ref().map_or(0, |extras| extras.second);
        }
        if found == Found::Miss && ask.is_some() {
            self.write_down(number, address);
        }
    }

    #[inline]
    fn write_down(&mut self, number: usize, address: u64) {
        let bits = self.caches[number].line_bits;
        if let Some((_, lines)) = self.watched.as_mut().filter(|(watched, _)| *watched == number) {
            lines.push(address >> bits << bits);
        }
    }

    /// Asks a cache for a line, which it keeps; `write`: makes it dirty.
    fn read(&mut self, number: usize, at: At, ask: Option<AccessKind>, write: bool) -> Got {
        let found = self.look_up(number, at, ask, write);
        if found != Found::Miss {
            return Got { depth: 0, dirty: false };
        }
        self.bring(number, at, ask, write)
    }

    /// Brings a line in that was looked up and not found.
    pub(super) fn bring(
        &mut self,
        number: usize,
        at: At,
        ask: Option<AccessKind>,
        write: bool,
    ) -> Got {
        let got = self.below(number, at.physical, ask);
        let dirty = write || got.dirty;
        if self.passed_by(number, at.physical) {
            self.refuse(number, at.physical, dirty);
        } else {
            self.fill(number, at, dirty);
        }
        Got { depth: got.depth, dirty: false }
    }

    /// Whether a line has left an inclusive cache below again before it arrived here: what made room for
    /// it on its way was written there in its place. Then it is used once and not kept.
    #[inline]
    fn passed_by(&self, number: usize, address: u64) -> bool {
        if !self.departed.iter().any(|&(line, bits)| address >> bits == line) {
            return false;
        }
        let mut below = std::iter::successors(self.links[number].next, |&c| self.links[c].next);
        below.any(|cache| {
            let inclusive = self.links[cache].inclusion == Inclusion::Inclusive;
            inclusive && !self.caches[cache].contains(address)
        })
    }

    /// Brings in a line that has arrived; then its victim leaves.
    #[inline]
    fn fill(&mut self, number: usize, at: At, dirty: bool) {
        let exclusive = self.links[number].inclusion == Inclusion::Exclusive;
        if exclusive && self.is_above(number, at.physical) {
            return self.refuse(number, at.physical, dirty);
        }
        let victim = self.caches[number].fill(at, dirty);
        self.evict(number, victim, at.physical);
    }

    /// Asks what is below a cache for a line.
    #[inline]
    pub(super) fn below(&mut self, number: usize, address: u64, ask: Option<AccessKind>) -> Got {
        if self.caches[number].buffer.is_some() {
            self.wait_for(number, address);
        }
        let got = match self.links[number].next {
            None => {
                self.memory_reads += 1;
                self.memory_prefetches += u64::from(ask.is_none());
                Got { depth: 0, dirty: false }
            }
            Some(next) if self.links[next].inclusion == Inclusion::Exclusive => {
                self.give_up(next, address, ask)
            }
            Some(next) => self.read(next, At::physical(address), ask, false),
        };
        Got { depth: got.depth + 1, ..got }
    }

    /// Asks an exclusive cache for a line, which it gives up.
    fn give_up(&mut self, number: usize, address: u64, ask: Option<AccessKind>) -> Got {
        let found = self.look_up(number, At::physical(address), ask, false);
        if found == Found::Miss {
            return self.below(number, address, ask);
        }
        let cache = &mut self.caches[number];
        let dirty = cache.take(address).is_some_and(CacheEntry::is_dirty);
        // Gone to a prefetcher above: that is a use as well.
        let _ = cache.used(address);
        Got { depth: 0, dirty }
    }

    /// A line has left a cache for another one: takes it from above where that must be, and hands it down.
    fn evict(&mut self, number: usize, victim: CacheEntry, newcomer: u64) {
        if !victim.is_line() {
            return;
        }
        let cache = &mut self.caches[number];
        cache.left(victim);
        let (address, bits) = (cache.address(victim), cache.line_bits);
        let link = &self.links[number];
        let (inclusive, next) = (link.inclusion == Inclusion::Inclusive, link.next);
        if let (Some(logged), None) = (&mut self.logged, next) {
            logged.push(Departure { line: address, newcomer });
        }
        if inclusive {
            self.departed.push((victim.line(), bits));
        }
        let dirty = victim.is_dirty() | (inclusive && self.take_above(number, address));
        match next {
            Some(next) if self.links[next].inclusion == Inclusion::Exclusive => {
                self.caches[number].counts.writes_out += u64::from(dirty);
                self.keep(next, address, dirty);
            }
            _ if dirty => self.write_out(number, address, bits),
            _ => {}
        }
    }

    /// An exclusive cache gets a line that left the cache above, unless another cache above
    /// has it.
    fn keep(&mut self, number: usize, address: u64, dirty: bool) {
        self.caches[number].counts.writes_in += u64::from(dirty);
        if self.is_above(number, address) {
            return self.refuse(number, address, dirty);
        }
        let at = At::physical(address);
        if self.caches[number].find(at, dirty) != Found::Miss {
            return;
        }
        self.caches[number].counts.write_misses += u64::from(dirty);
        let victim = self.caches[number].fill(at, dirty);
        self.evict(number, victim, at.physical);
    }

    /// A cache does not take a line: writes to it go further down.
    fn refuse(&mut self, number: usize, address: u64, dirty: bool) {
        if dirty {
            self.write_out(number, address, self.caches[number].line_bits);
        }
    }

    /// Whether a cache above has any of a line, or waits to write it.
    #[inline]
    fn is_above(&self, number: usize, address: u64) -> bool {
        let bits = self.caches[number].line_bits;
        self.links[number].busy.iter().any(|&upper| {
            let upper = &self.caches[upper];
            let waits = |part| upper.buffer.as_ref().is_some_and(|buffer| buffer.holds(part));
            parts(address, bits, upper.line_bits).any(|part| waits(part) || upper.contains(part))
        })
    }

    /// Takes every line that the line at `address` of a cache covers out of the caches above
    /// it and their write buffers; whether one of them had been written.
    fn take_above(&mut self, number: usize, address: u64) -> bool {
        let bits = self.caches[number].line_bits;
        let mut dirty = false;
        for at in 0..self.links[number].busy.len() {
            let upper = &mut self.caches[self.links[number].busy[at]];
            for part in parts(address, bits, upper.line_bits) {
                let waiting = upper.buffer.as_mut().map_or(0, |buffer| buffer.take(part));
                upper.counts.merged += waiting;
                dirty |= waiting > 0;
                if let Some(entry) = upper.take(part) {
                    upper.counts.invalidated += 1;
                    upper.left(entry);
                    dirty |= entry.is_dirty();
                }
            }
        }
        dirty
    }

    /// A write leaves a cache: of a line of 2^`bits` bytes, or of less if 0.
    pub(super) fn write_out(&mut self, number: usize, address: u64, bits: u32) {
        self.caches[number].counts.writes_out += 1;
        if self.caches[number].buffer.is_none() {
            return self.deliver(number, address, bits);
        }
        // It waits from now on: nobody below may think that the line is gone from here.
        if let Some(buffer) = &mut self.caches[number].buffer {
            buffer.push(address, bits, self.now);
        }
        while let Some(held) = self.caches[number].buffer.as_mut().and_then(|b| b.due(self.now)) {
            self.deliver(number, held.address, held.bits);
        }
        let cache = &mut self.caches[number];
        let Some(buffer) = &mut cache.buffer else { return };
        if buffer.merge_last() {
            cache.counts.merged += 1;
        } else if buffer.delay_last() {
            self.retire(number);
        }
    }

    /// Waits until the oldest write of a buffer is retired.
    fn retire(&mut self, number: usize) {
        let cache = &mut self.caches[number];
        let Some((held, done)) = cache.buffer.as_mut().and_then(|b| b.retire()) else { return };
        let wait = done.saturating_sub(self.now);
        cache.counts.stalls += u64::from(wait > 0);
        cache.counts.stall_cycles += wait;
        self.extra += wait;
        self.now += wait;
        self.deliver(number, held.address, held.bits);
    }

    /// Before a line is read from below: what waits to be written to it goes first, and what
    /// was written before that.
    fn wait_for(&mut self, number: usize, address: u64) {
        while self.caches[number].buffer.as_ref().is_some_and(|buffer| buffer.holds(address)) {
            self.retire(number);
        }
    }

    /// Retires all that waits in write buffers, without stalling or prefetching: the end of a
    /// run.
    pub fn flush_buffers(&mut self) {
        let waits = |cache: &Cache| cache.buffered() > 0;
        while let Some(number) = self.caches.iter().position(waits) {
            let oldest = self.caches[number].buffer.as_mut().and_then(|b| b.retire());
            oldest.iter().for_each(|(held, _)| self.deliver(number, held.address, held.bits));
        }
        self.lessons.clear();
    }

    fn deliver(&mut self, number: usize, address: u64, bits: u32) {
        match self.links[number].next {
            Some(next) => self.write_in(next, address, bits),
            None => self.memory_writes += 1,
        }
    }

    /// A write arrives from above.
    fn write_in(&mut self, number: usize, address: u64, bits: u32) {
        let exclusive = self.links[number].inclusion == Inclusion::Exclusive;
        let cache = &mut self.caches[number];
        cache.counts.writes_in += 1;
        let (back, allocates) = (cache.write.is_back(), cache.write.allocates() && !exclusive);
        let at = At::physical(address);
        let missed = cache.find(at, back) == Found::Miss;
        if missed {
            cache.counts.write_misses += 1;
            // A line that is not written from end to end is needed from below.
            let partial = bits < cache.line_bits;
            self.write_down(number, address);
            if allocates {
                let fetched = partial && self.below(number, address, Some(AccessKind::Store)).dirty;
                self.fill(number, at, back || fetched);
            }
        }
        if !back || missed && !allocates {
            self.write_out(number, address, bits);
        }
    }

    /// Lets the prefetchers learn from what they saw, and fetches what they want.
    pub(super) fn learn(&mut self) {
        let mut next = 0;
        // What is fetched can be a lesson, too.
        while let Some(&Lesson { cache: number, at, fresh }) = self.lessons.get(next) {
            next += 1;
            let cache = &mut self.caches[number];
            let bits = cache.line_bits;
            let Some(prefetcher) = &mut cache.prefetcher else { continue };
            let mut wanted = std::mem::take(&mut self.wanted);
            prefetcher.note(at.physical >> bits, bits, fresh, &mut wanted);
            for line in wanted.drain(..) {
                let physical = line << bits;
                let index = at.index & !4095 | physical & 4095;
                let index = if at.index == at.physical { physical } else { index };
                self.prefetch(number, At { physical, index });
            }
            self.wanted = wanted;
        }
        self.lessons.clear();
    }

    /// Brings a line into a cache that nobody has asked for.
    fn prefetch(&mut self, number: usize, at: At) {
        let exclusive = self.links[number].inclusion == Inclusion::Exclusive;
        if self.caches[number].contains(at.physical)
            || exclusive && self.is_above(number, at.physical)
        {
            return;
        }
        let got = self.below(number, at.physical, None);
        if self.passed_by(number, at.physical) {
            return self.refuse(number, at.physical, got.dirty);
        }
        let caches = std::iter::successors(self.links[number].next, |&c| self.links[c].next);
        let memory = got.depth > caches.count();
        let arrival = if memory { self.now + self.prefetch_latency } else { 0 };
        let cache = &mut self.caches[number];
        cache.counts.prefetched += 1;
        let line = at.physical >> cache.line_bits;
        cache.prefetcher.iter_mut().for_each(|prefetcher| {
            prefetcher.unused.insert(line, arrival);
        });
        let victim = cache.fill(at, got.dirty);
        self.evict(number, victim, at.physical);
    }
}

/// The first addresses of the lines of 2^`upper` bytes in the line of 2^`bits` at `address`.
fn parts(address: u64, bits: u32, upper: u32) -> impl Iterator<Item = u64> {
    let first = address >> bits << bits;
    (0..1_u64 << (bits - upper)).map(move |part| first + (part << upper))
}
