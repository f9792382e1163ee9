//! Two caches with nothing behind the second, in one loop made for their kinds: an access goes through both
//! at once, with all that they do besides. Writes may be passed on and wait in a buffer, the second cache
//! may take lines out of the nearest one and have prefetchers, and page tables may be read through it. All of
//! that depends on what came before, so that accesses cannot go level by level; without calls between the
//! steps each costs little. What comes out is what [`Hierarchy::access`] gives; tests compare.

use huepage_model::lanes::{EntryWord, Isa, LaneJob, Lru};

use super::batch::LineRequest;
use super::buffer::{Held, WriteBuffer};
use super::order::{Apart, Beside, Requests, take_synonyms};
use super::placing::Placing;
use super::prefetch::Prefetcher;
use super::{Cache, CacheCounts, CacheEntry, Hierarchy, Inclusion, Path, WritePolicy};
use crate::record::AccessKind;

/// How many accesses ahead sets of the second cache are fetched.
const AHEAD: usize = 8;
/// Bytes of sets that the processor that simulates has at hand anyway.
const SMALL: usize = 32 << 10;

/// An entry as sets keep it.
#[inline(always)]
fn word(line: u64, dirty: bool) -> u32 {
    u32::pack(CacheEntry::new(line, dirty))
}

impl Hierarchy {
    /// The second cache of a path that can go this way; `walks`: page tables are read on the way.
    pub(super) fn pair(&self, path: &Path, all: &Requests<'_>, walks: bool) -> Option<usize> {
        let (first, second) = (path.first, self.links[path.first].next?);
        let ([near, far], link) = ([first, second].map(|at| &self.caches[at]), &self.links[second]);
        let last = link.next.is_none() && self.watched.is_none() && self.logged.is_none();
        let lru = |cache: &Cache, slots: &[usize]| {
            cache.extras.is_none()
                && cache.sets.is_narrow()
                && slots.contains(&cache.sets.plain_slots())
                && cache.line_bits == all.line_bits
        };
        let near_fits = lru(near, &[1, 2, 8])
            && near.prefetcher.is_none()
            && near.placing.mask().is_some()
            && self.links[first].inclusion == Inclusion::None;
        let far_fits = lru(far, &[1, 8, 16])
            && far.buffer.is_none()
            && !far.by_virtual
            && far.write == WritePolicy::BackAllocate;
        let told = match link.inclusion {
            Inclusion::None => true,
            Inclusion::Inclusive => {
                link.busy == [first] && !near.by_virtual && near.buffer.is_none()
            }
            Inclusion::Exclusive => false,
        };
        let walks = !walks || all.walk_path.first == second;
        (last && near_fits && far_fits && told && walks && Isa::best().is_wide()).then_some(second)
    }

    /// Runs requests through the nearest cache and the second one, which [`Self::pair`] gave.
    pub(super) fn run_pair(
        &mut self,
        [first, second]: [usize; 2],
        all: Requests<'_>,
        beside: &mut impl Beside,
    ) {
        if beside.is_ever_due() {
            self.begin_once(second);
        }
        let apart = self.nearest_is_apart(first) && !beside.is_ever_due();
        let slots = [first, second].map(|at| self.caches[at].sets.plain_slots());
        let job = Job { hierarchy: self, numbers: [first, second], all, beside, apart };
        let isa = Isa::best();
        match slots {
            [1, 1] => isa.run_wide(PairLoop::<_, 1, 1>(job)),
            [1, 8] => isa.run_wide(PairLoop::<_, 1, 8>(job)),
            [1, _] => isa.run_wide(PairLoop::<_, 1, 16>(job)),
            [2, 1] => isa.run_wide(PairLoop::<_, 2, 1>(job)),
            [2, 8] => isa.run_wide(PairLoop::<_, 2, 8>(job)),
            [2, _] => isa.run_wide(PairLoop::<_, 2, 16>(job)),
            [_, 1] => isa.run_wide(PairLoop::<_, 8, 1>(job)),
            [_, 8] => isa.run_wide(PairLoop::<_, 8, 8>(job)),
            [_, _] => isa.run_wide(PairLoop::<_, 8, 16>(job)),
        }
    }
}

/// What is to be run.
struct Job<'a, B> {
    hierarchy: &'a mut Hierarchy,
    numbers: [usize; 2],
    all: Requests<'a>,
    beside: &'a mut B,
    /// Whether the nearest cache can answer all before the second is asked.
    apart: bool,
}

/// The same over sets of `W` and `V` slots.
struct PairLoop<'a, B, const W: usize, const V: usize>(Job<'a, B>);

impl<B: Beside, const W: usize, const V: usize> LaneJob for PairLoop<'_, B, W, V> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lru>(self) {
        let Job { hierarchy, numbers, all, beside, apart } = self.0;
        let inclusive = hierarchy.links[numbers[1]].inclusion == Inclusion::Inclusive;
        let latency = hierarchy.prefetch_latency;
        let Ok([near, far]) = hierarchy.caches.get_disjoint_mut(numbers) else {
            unreachable!("a cache behind itself")
        };
        let mut pair = Pair {
            near: Near::<W>::of(near),
            far: Far::<V>::of(far, inclusive, latency),
            bits: all.line_bits,
            now: hierarchy.now,
            waited: 0,
            wanted: std::mem::take(&mut hierarchy.wanted),
            lesson: None,
        };
        match apart {
            true => pair.run_apart::<L>(all, beside),
            false => pair.run::<L>(all, beside),
        }
        let Pair { near, far, now, wanted, .. } = pair;
        let Near { sum, counts, .. } = near;
        sum.add(&counts);
        let Far { sum, counts, memory: [reads, prefetches, writes], .. } = far;
        sum.add(&counts);
        hierarchy.memory_reads += reads;
        hierarchy.memory_prefetches += prefetches;
        hierarchy.memory_writes += writes;
        (hierarchy.now, hierarchy.wanted) = (now, wanted);
    }
}

/// The nearest cache, taken apart.
struct Near<'a, const W: usize> {
    sets: &'a mut [[u32; W]],
    ways: usize,
    mask: u64,
    /// The distance of sets where a line may be under other virtual addresses.
    synonyms: Option<usize>,
    write: WritePolicy,
    buffer: Option<&'a mut WriteBuffer>,
    /// What is counted in this run, and where it goes.
    counts: CacheCounts,
    sum: &'a mut CacheCounts,
}

impl<'a, const W: usize> Near<'a, W> {
    fn of(cache: &'a mut Cache) -> Self {
        let (ways, synonyms, write) = (cache.sets.ways(), cache.synonym_step(), cache.write);
        let Cache { sets, placing, buffer, counts, .. } = cache;
        let (Some(mask), Some(sets)) = (placing.mask(), sets.plain::<u32, W>()) else {
            unreachable!("the loop was chosen for it")
        };
        let (buffer, sum) = (buffer.as_deref_mut(), counts);
        let counts = CacheCounts::default();
        Near { sets, ways, mask, synonyms, write, buffer, counts, sum }
    }
}

/// The second cache, taken apart.
struct Far<'a, const V: usize> {
    sets: &'a mut [[u32; V]],
    ways: usize,
    placing: &'a Placing,
    prefetcher: Option<&'a mut Prefetcher>,
    /// Whether what leaves it leaves the nearest, too.
    inclusive: bool,
    /// Cycles until a prefetched line is there.
    latency: u64,
    /// What memory was asked for: lines, those of them for prefetchers, and writes.
    memory: [u64; 3],
    counts: CacheCounts,
    sum: &'a mut CacheCounts,
}

impl<'a, const V: usize> Far<'a, V> {
    fn of(cache: &'a mut Cache, inclusive: bool, latency: u64) -> Self {
        let ways = cache.sets.ways();
        let Cache { sets, placing, prefetcher, counts, .. } = cache;
        let Some(sets) = sets.plain::<u32, V>() else { unreachable!("the loop was chosen for it") };
        let (prefetcher, memory, sum) = (prefetcher.as_deref_mut(), [0; 3], counts);
        let counts = CacheCounts::default();
        Far { sets, ways, placing, prefetcher, inclusive, latency, memory, counts, sum }
    }

    /// Has the set of a line at hand soon.
    #[inline(always)]
    fn expect(&self, line: u64) {
        let set = &self.sets[self.placing.set_of(line)];
        set.iter().step_by(16).for_each(huepage_model::hint::fetch);
    }
}

/// Both.
struct Pair<'a, const W: usize, const V: usize> {
    near: Near<'a, W>,
    far: Far<'a, V>,
    /// log2 of the bytes of a line.
    bits: u32,
    now: u64,
    /// Cycles that this access has waited on top of the latency of who answers.
    waited: u64,
    /// Lines that prefetchers want; room that is used again.
    wanted: Vec<u64>,
    /// What prefetchers are to learn of this access: the line, and whether it is new.
    lesson: Option<(u64, bool)>,
}

impl<const W: usize, const V: usize> Pair<'_, W, V> {
    /// All accesses, one after the other.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
    fn run<L: Lru>(&mut self, all: Requests<'_>, beside: &mut impl Beside) {
        let large = size_of_val(self.far.sets) > SMALL;
        for (at, &request) in all.lines.iter().enumerate() {
            if large && let Some(ahead) = all.lines.get(at + AHEAD) {
                self.far.expect(ahead.line());
            }
            let due = beside.is_due(at);
            if due {
                self.begin::<L>(at, beside);
            }
            let home = (all.at(at).index >> self.bits & self.near.mask) as usize;
            let kind = request.access_kind();
            let writes = kind == AccessKind::Store;
            let entry = word(request.line(), writes && self.near.write.is_back());
            let found = L::touch(&mut self.near.sets[home], entry);
            self.near.counts.note(Some(kind), !found);
            if found && !due && (!writes || self.near.write.is_back()) {
                beside.hit(at);
                continue;
            }
            if !due {
                self.begin::<L>(at, beside);
            }
            let depth = self.go_on::<L>(request, home, entry, found);
            self.learn::<L>();
            beside.done(at, depth, self.now, std::mem::take(&mut self.waited));
        }
    }

    /// All accesses, those first that the nearest cache answers by itself.
    #[inline(always)]
    fn run_apart<L: Lru>(&mut self, all: Requests<'_>, beside: &mut impl Beside) {
        let Near { sets, ways, mask, synonyms, counts, .. } = &mut self.near;
        let (ways, bits, mask, synonyms) = (*ways, self.bits, *mask, *synonyms);
        let passed_on = Apart { sets, ways, bits, mask, synonyms, counts }.answer::<L>(all);
        let large = size_of_val(self.far.sets) > SMALL;
        let mut next = 0;
        for (number, at) in passed_on.iter().map(|&at| usize::from(at)).enumerate() {
            if large && let Some(&ahead) = passed_on.get(number + AHEAD) {
                self.far.expect(all.lines[usize::from(ahead)].line());
            }
            beside.hits(next..at);
            self.begin::<L>(at, beside);
            let (line, kind) = (all.lines[at].line(), all.lines[at].access_kind());
            let depth = if kind == AccessKind::Store {
                self.write_out::<L>(line, false);
                0
            } else {
                self.read_behind::<L>(line, kind)
            };
            self.learn::<L>();
            beside.done(at, depth, self.now, std::mem::take(&mut self.waited));
            next = at + 1;
        }
        beside.hits(next..all.lines.len());
    }

    /// What comes before an access: the time, and what is read of page tables.
    #[inline(always)]
    fn begin<L: Lru>(&mut self, at: usize, beside: &mut impl Beside) {
        if let Some(now) = beside.start(at) {
            self.now = now;
        }
        while let Some(entry) = beside.entry(at) {
            let found = self.read::<L>(entry >> self.bits, AccessKind::Load);
            // Prefetchers follow loads.
            self.lesson = None;
            let waited = std::mem::take(&mut self.waited);
            self.now += beside.walked(usize::from(!found), waited);
        }
    }

    /// The rest of an access that is not over in the nearest cache; the depth that answers.
    #[inline(always)]
    fn go_on<L: Lru>(
        &mut self,
        request: LineRequest,
        home: usize,
        entry: u32,
        found: bool,
    ) -> usize {
        let (line, kind, write) = (request.line(), request.access_kind(), self.near.write);
        let writes = kind == AccessKind::Store;
        let mut depth = 0;
        if !found && (!writes || write.allocates()) {
            depth = self.read_behind::<L>(line, kind);
            self.fill_near::<L>(home, entry);
        }
        if writes && (!write.is_back() || !found && !write.allocates()) {
            self.write_out::<L>(line, false);
        }
        depth
    }

    /// The nearest cache asks for a line; the depth that answers.
    #[inline(always)]
    fn read_behind<L: Lru>(&mut self, line: u64, kind: AccessKind) -> usize {
        while self.near.buffer.as_ref().is_some_and(|b| b.holds(line << self.bits)) {
            self.retire::<L>();
        }
        1 + usize::from(!self.read::<L>(line, kind))
    }

    /// Brings a line into the nearest cache, which lacks it; then its victim leaves.
    #[inline(always)]
    fn fill_near<L: Lru>(&mut self, home: usize, mut entry: u32) {
        let near = &mut self.near;
        if let Some(step) = near.synonyms {
            let moved;
            (entry, moved) = take_synonyms::<u32, L, W>(near.sets, home, step, entry);
            near.counts.invalidated += moved;
        }
        let (set, last) = (&mut near.sets[home], near.ways - 1);
        let gone = set[last].entry();
        #[expect(clippy::cast_possible_truncation, reason = "few ways")]
        L::push(set, last as u32, entry);
        if gone.is_dirty() {
            self.write_out::<L>(gone.line(), true);
        }
    }

    /// The second cache is asked for a line, which it keeps; whether it had it.
    #[inline(always)]
    fn read<L: Lru>(&mut self, line: u64, kind: AccessKind) -> bool {
        let far = &mut self.far;
        let set = &mut far.sets[far.placing.set_of(line)];
        let (found, gone) = L::access(set, far.ways, word(line, false));
        far.counts.note(Some(kind), !found);
        if let Some(prefetcher) = &mut far.prefetcher {
            let arrival = if found { prefetcher.unused.remove(line) } else { None };
            far.counts.useful += u64::from(arrival.is_some());
            self.waited += arrival.unwrap_or(0).saturating_sub(self.now);
            self.lesson = Some((line, !found || arrival.is_some()));
        }
        far.memory[0] += u64::from(!found);
        self.leave::<L>(gone);
        found
    }

    /// A write arrives at the second cache: of a line, or of less.
    #[inline(always)]
    fn write<L: Lru>(&mut self, line: u64, whole: bool) {
        let far = &mut self.far;
        let set = &mut far.sets[far.placing.set_of(line)];
        let (found, gone) = L::access(set, far.ways, word(line, true));
        far.counts.writes_in += 1;
        far.counts.write_misses += u64::from(!found);
        // A line that is not written from end to end is needed from memory.
        far.memory[0] += u64::from(!found && !whole);
        self.leave::<L>(gone);
    }

    /// A line, or none, has left the second cache.
    #[inline(always)]
    fn leave<L: Lru>(&mut self, gone: u32) {
        if gone == 0 {
            return;
        }
        let (far, near, gone) = (&mut self.far, &mut self.near, gone.entry());
        if let Some(prefetcher) = &mut far.prefetcher {
            let unused = prefetcher.unused.remove(gone.line()).is_some();
            far.counts.useless += u64::from(unused);
        }
        let mut dirty = gone.is_dirty();
        if far.inclusive {
            #[expect(clippy::cast_possible_truncation, reason = "a set number fits")]
            let set = &mut near.sets[(gone.line() & near.mask) as usize];
            let there = L::find(set, word(gone.line(), false));
            if there != 0 {
                near.counts.invalidated += 1;
                dirty |= L::take(set, there.trailing_zeros()).entry().is_dirty();
            }
        }
        far.counts.writes_out += u64::from(dirty);
        far.memory[2] += u64::from(dirty);
    }

    /// A write leaves the nearest cache: of a line, or of less.
    #[inline(always)]
    fn write_out<L: Lru>(&mut self, line: u64, whole: bool) {
        self.near.counts.writes_out += 1;
        let Some(buffer) = &mut self.near.buffer else { return self.write::<L>(line, whole) };
        buffer.push(line << self.bits, if whole { self.bits } else { 0 }, self.now);
        while let Some(held) = self.near.buffer.as_mut().and_then(|b| b.due(self.now)) {
            self.deliver::<L>(held);
        }
        let Some(buffer) = &mut self.near.buffer else { return };
        if buffer.merge_last() {
            self.near.counts.merged += 1;
        } else if buffer.delay_last() {
            self.retire::<L>();
        }
    }

    /// Waits until the oldest write of the buffer is retired.
    #[inline(always)]
    fn retire<L: Lru>(&mut self) {
        let Some((held, done)) = self.near.buffer.as_mut().and_then(|b| b.retire()) else { return };
        let wait = done.saturating_sub(self.now);
        self.near.counts.stalls += u64::from(wait > 0);
        self.near.counts.stall_cycles += wait;
        self.waited += wait;
        self.now += wait;
        self.deliver::<L>(held);
    }

    #[inline(always)]
    fn deliver<L: Lru>(&mut self, held: Held) {
        self.write::<L>(held.address >> self.bits, held.bits >= self.bits);
    }

    /// Lets the prefetchers learn of an access, and fetches what they want.
    #[inline(always)]
    fn learn<L: Lru>(&mut self) {
        let Some((line, fresh)) = self.lesson.take() else { return };
        let Some(prefetcher) = &mut self.far.prefetcher else { return };
        prefetcher.note(line, self.bits, fresh, &mut self.wanted);
        if !self.wanted.is_empty() {
            self.prefetch::<L>();
        }
    }

    /// Brings lines into the second cache that nobody has asked for.
    #[inline(always)]
    fn prefetch<L: Lru>(&mut self) {
        for at in 0..self.wanted.len() {
            let (line, far) = (self.wanted[at], &mut self.far);
            let set = &mut far.sets[far.placing.set_of(line)];
            if L::find(set, word(line, false)) != 0 {
                continue;
            }
            let (_, gone) = L::access(set, far.ways, word(line, false));
            far.memory[0] += 1;
            far.memory[1] += 1;
            far.counts.prefetched += 1;
            if let Some(prefetcher) = &mut far.prefetcher {
                prefetcher.unused.insert(line, self.now + far.latency);
            }
            self.leave::<L>(gone);
        }
        self.wanted.clear();
    }
}
