//! A machine file as a bare loop over arrays: what its caches and TLBs do for loads and stores of one
//! core, written out as shortly as it can be, with nothing beside. One access after the other, way by
//! way, without batches, wide registers or fetching ahead. Shares with the simulator the machine
//! file and the frames that pages got.
#![allow(clippy::cast_possible_truncation, reason = "set numbers fit, as the sets do")]

use huepage_color::IndexFunction;
use huepage_sim::cache::{BufferSpec, Inclusion, IndexBy, StrideSpec, WritePolicy};
use huepage_sim::machine::{CacheSpec, Machine, TlbFill};
use huepage_sim::record::{AccessKind, Record};

/// The same for sets of so many ways, as the compiler likes it best.
macro_rules! by_ways {
    ($ways:expr, $w:ident => $what:expr) => {
        by_ways!(@ $ways, $w, $what, 1 2 3 4 8 11 12 16 20 24 32)
    };
    (@ $ways:expr, $w:ident, $what:expr, $($n:literal)*) => {
        match $ways {
            $($n => {
                const $w: usize = $n;
                $what
            })*
            ways => panic!("a bare loop over {ways} ways"),
        }
    };
}

/// Sets of lines, the latest used first. An entry is a line plus one and whether it is dirty.
struct Sets {
    entries: Vec<u64>,
    ways: usize,
}

impl Sets {
    fn new(sets: usize, ways: usize) -> Sets {
        Sets { entries: vec![0; sets * ways], ways }
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, entry: u64) -> bool {
        by_ways!(self.ways, W => {
            let set: &mut [u64; W] = (&mut self.entries[set * W..][..W]).try_into().unwrap();
            let Some(way) = set.iter().position(|&here| (here ^ entry) < 2) else { return false };
            let here = set[way] | entry & 1;
            set.copy_within(..way, 1);
            set[0] = here;
            true
        })
    }

    #[inline(always)]
    fn insert(&mut self, set: usize, entry: u64) -> u64 {
        by_ways!(self.ways, W => {
            let set: &mut [u64; W] = (&mut self.entries[set * W..][..W]).try_into().unwrap();
            let gone = set[W - 1];
            set.copy_within(..W - 1, 1);
            set[0] = entry;
            gone
        })
    }

    /// Takes a line out; 0 if it is not there.
    fn take(&mut self, set: usize, entry: u64) -> u64 {
        let set = &mut self.entries[set * self.ways..][..self.ways];
        let Some(way) = set.iter().position(|&here| (here ^ entry) < 2) else { return 0 };
        let gone = std::mem::take(&mut set[way]);
        set[way..].rotate_left(1);
        gone
    }
}

struct Level {
    sets: Sets,
    set_mask: u64,
    line_bits: u32,
    masks: Vec<u64>,
    inclusion: Inclusion,
    by_virtual: bool,
    through: bool,
    stride: Option<StrideSpec>,
    latency: u64,
    misses: u64,
}

impl Level {
    fn new(spec: &CacheSpec) -> Level {
        let (masks, slices) = match &spec.index {
            Some(IndexFunction::Xor { slice_masks, .. }) => {
                (slice_masks.clone(), slice_masks.len())
            }
            Some(index) => panic!("a bare loop over {index:?}"),
            None => (Vec::new(), 0),
        };
        Level {
            sets: Sets::new(spec.sets(), spec.real_ways()),
            set_mask: (spec.sets() as u64 >> slices) - 1,
            line_bits: spec.line.0.ilog2(),
            masks,
            inclusion: spec.inclusion,
            by_virtual: spec.index_by == IndexBy::Virtual,
            through: spec.write == WritePolicy::ThroughNoAllocate,
            stride: spec.stride,
            latency: spec.latency,
            misses: 0,
        }
    }

    #[inline(always)]
    fn set(&self, address: u64) -> usize {
        let mut slice = 0;
        for (bit, mask) in self.masks.iter().enumerate() {
            slice |= u64::from((address & mask).count_ones() & 1) << bit;
        }
        (slice * (self.set_mask + 1) + (address >> self.line_bits & self.set_mask)) as usize
    }

    #[inline(always)]
    fn entry(&self, address: u64, dirty: bool) -> u64 {
        ((address >> self.line_bits) + 1) << 1 | u64::from(dirty)
    }
}

/// What is known of the accesses to a frame: the frame, the last line, the stride, how sure it is.
type Walk = (u64, u64, u64, u8);

pub struct Bare {
    levels: Vec<Level>,
    tlbs: Vec<(Sets, u64, u64)>,
    /// Frames by page.
    pub table: Vec<u32>,
    walk_cycles: u64,
    walks: bool,
    buffer: Option<BufferSpec>,
    /// Writes that wait: where, and when they came.
    waiting: Vec<(u64, u64)>,
    idle_since: u64,
    prefetch_latency: u64,
    walked: Vec<Walk>,
    /// Prefetched lines that were not asked for, and when they arrive.
    unused: std::collections::HashMap<u64, u64>,
    memory_latency: u64,
    timed: bool,
    /// The line that is to be prefetched, and the level.
    wanted: Option<(usize, u64)>,
    now: u64,
    extra: u64,
    clock: u64,
}

impl Bare {
    pub fn new(machine: &Machine) -> Bare {
        let tlb_path = machine.tlb_path(false);
        let tlbs = tlb_path.iter().map(|&at| {
            let spec = &machine.tlb[at];
            let sets = spec.entries / spec.real_ways();
            (Sets::new(sets, spec.real_ways()), sets as u64 - 1, spec.latency)
        });
        let software = tlb_path.last().is_some_and(|&at| machine.tlb[at].fill == TlbFill::Software);
        let path = machine.data_path();
        let levels: Vec<Level> = path.iter().map(|&at| Level::new(&machine.cache[at])).collect();
        let buffer = machine.cache[path[0]].write_buffer;
        Bare {
            tlbs: tlbs.collect(),
            table: vec![0; 1 << 20],
            walk_cycles: if software { machine.handler_latency } else { machine.walk_latency },
            walks: machine.walk.is_some(),
            timed: buffer.is_some() || machine.prefetch_latency > 0,
            buffer,
            waiting: Vec::new(),
            idle_since: 0,
            prefetch_latency: machine.prefetch_latency,
            walked: vec![
                (u64::MAX, 0, 0, 0);
                levels.iter().filter_map(|l| l.stride).map(|s| s.table).sum()
            ],
            unused: Default::default(),
            memory_latency: machine.memory_latency,
            wanted: None,
            now: 0,
            extra: 0,
            clock: 0,
            levels,
        }
    }

    /// Misses of each level.
    pub fn misses(&self) -> Vec<u64> {
        self.levels.iter().map(|level| level.misses).collect()
    }

    pub fn run(&mut self, trace: &[Record]) {
        for record in trace {
            let (address, store) = (record.address.0, record.kind == AccessKind::Store);
            let page = address >> 12;
            let frame = self.table[page as usize & ((1 << 20) - 1)];
            let physical = u64::from(frame) << 12 | address & 4095;
            self.now = self.clock + 1;
            let translated = self.translate(page);
            let depth = self.access(physical, address, store);
            if self.timed {
                let stall = self.latency(depth).saturating_sub(self.levels[0].latency);
                self.clock += 1 + translated + stall + std::mem::take(&mut self.extra);
            }
        }
    }

    #[inline(always)]
    fn translate(&mut self, page: u64) -> u64 {
        let mut cycles = 0;
        for (depth, (sets, mask, latency)) in self.tlbs.iter_mut().enumerate() {
            let (set, entry) = ((page & *mask) as usize, (page + 1) << 1);
            if sets.touch(set, entry) {
                return if depth == 0 { 0 } else { cycles + *latency };
            }
            sets.insert(set, entry);
            cycles += *latency;
        }
        if self.walks {
            // A table of its own, with a group of 128 bytes for every page.
            let group = (page ^ page >> 16) << 7 & ((64 << 20) - 1);
            let depth = 1 + self.read(1, 1 << 31 | group, 1 << 31 | group, false, true).0;
            let read = self.latency(depth).saturating_sub(self.levels[0].latency);
            self.now += read;
            cycles += read;
        }
        cycles + self.walk_cycles
    }

    fn latency(&self, depth: usize) -> u64 {
        self.levels.get(depth).map_or(self.memory_latency, |level| level.latency)
    }

    #[inline(always)]
    fn access(&mut self, physical: u64, virtual_address: u64, store: bool) -> usize {
        let first = &mut self.levels[0];
        let index = if first.by_virtual { virtual_address } else { physical };
        if !(first.through && store) {
            let depth = self.read(0, physical, index, store, true).0;
            self.prefetch();
            return depth;
        }
        let (set, entry) = (first.set(index), first.entry(physical, false));
        first.misses += u64::from(!first.sets.touch(set, entry));
        self.pass_on(physical);
        self.prefetch();
        0
    }

    /// Asks a level for a line: how far it was, and whether it comes with writes.
    fn read(&mut self, n: usize, at: u64, index: u64, store: bool, asked: bool) -> (usize, bool) {
        let Some(level) = self.levels.get_mut(n) else { return (0, false) };
        let (set, entry) = (level.set(index), level.entry(at, store));
        if level.inclusion == Inclusion::Exclusive {
            let found = level.sets.take(set, entry);
            if found != 0 {
                return (0, found & 1 != 0);
            }
            level.misses += 1;
            let (depth, dirty) = self.read(n + 1, at, at, false, asked);
            return (depth + 1, dirty);
        }
        let (hit, learns) = (level.sets.touch(set, entry), level.stride.is_some() && asked);
        if learns {
            self.learn(n, at, hit);
        }
        if hit {
            return (0, false);
        }
        self.levels[n].misses += u64::from(asked);
        if n == 0 && self.buffer.is_some() {
            self.wait_for(at);
        }
        let (depth, dirty) = self.read(n + 1, at, at, false, asked);
        self.place(n, at, index, store | dirty);
        (depth + 1, false)
    }

    fn place(&mut self, n: usize, at: u64, index: u64, dirty: bool) {
        let level = &mut self.levels[n];
        let (set, entry) = (level.set(index), level.entry(at, dirty));
        let gone = level.sets.insert(set, entry);
        if gone == 0 {
            return;
        }
        let (line, mut dirty) = (((gone >> 1) - 1) << level.line_bits, gone & 1 != 0);
        if level.stride.is_some() {
            self.unused.remove(&line);
        }
        if self.levels[n].inclusion == Inclusion::Inclusive {
            dirty |= (0..n).fold(false, |was, upper| {
                let upper = &mut self.levels[upper];
                was | (upper.sets.take(upper.set(line), upper.entry(line, false)) & 1 != 0)
            });
        }
        self.leave(n + 1, line, dirty);
    }

    /// A line has left the level above.
    fn leave(&mut self, n: usize, line: u64, dirty: bool) {
        if self.levels.get(n).is_none_or(|level| level.inclusion != Inclusion::Exclusive) {
            return if dirty {
                self.write(n, line, false)
            };
        }
        let above = (0..n).any(|upper| {
            let upper = &self.levels[upper];
            let (set, entry) = (upper.set(line), upper.entry(line, false));
            let ways = &upper.sets.entries[set * upper.sets.ways..][..upper.sets.ways];
            ways.iter().any(|&here| (here ^ entry) < 2)
        });
        if above {
            return if dirty {
                self.write(n + 1, line, false)
            };
        }
        let level = &mut self.levels[n];
        let (set, entry) = (level.set(line), level.entry(line, dirty));
        if !level.sets.touch(set, entry) {
            self.place(n, line, line, dirty);
        }
    }

    /// A write arrives: of a line, or of less.
    fn write(&mut self, n: usize, at: u64, partial: bool) {
        let Some(level) = self.levels.get_mut(n) else { return };
        let (set, entry) = (level.set(at), level.entry(at, true));
        if !level.sets.touch(set, entry) {
            let fetched = partial && self.read(n + 1, at, at, false, true).1;
            _ = fetched;
            self.place(n, at, at, true);
        }
    }

    /// A store that the nearest level does not keep.
    fn pass_on(&mut self, at: u64) {
        let Some(spec) = self.buffer else { return self.write(1, at, true) };
        self.waiting.push((at, self.now));
        while self.waiting.len() > 1 && self.done(spec) <= self.now {
            self.retire(spec);
        }
        let bits = self.levels[0].line_bits;
        let (older, last) = (self.waiting.len() - 1, self.waiting[self.waiting.len() - 1]);
        if spec.merge && self.waiting[..older].iter().any(|held| held.0 >> bits == last.0 >> bits) {
            self.waiting.pop();
        } else if self.waiting.len() > spec.entries {
            self.waiting[older].1 = last.1.max(self.done(spec));
            self.stall(spec);
        }
    }

    fn done(&self, spec: BufferSpec) -> u64 {
        self.idle_since.max(self.waiting[0].1) + spec.retire
    }

    fn retire(&mut self, spec: BufferSpec) {
        self.idle_since = self.done(spec);
        let (at, _) = self.waiting.remove(0);
        self.write(1, at, true);
    }

    fn stall(&mut self, spec: BufferSpec) {
        let wait = self.done(spec).saturating_sub(self.now);
        self.extra += wait;
        self.now += wait;
        self.retire(spec);
    }

    fn wait_for(&mut self, at: u64) {
        let bits = self.levels[0].line_bits;
        while let Some(spec) = self.buffer {
            if self.waiting.iter().all(|held| held.0 >> bits != at >> bits) {
                return;
            }
            self.stall(spec);
        }
    }

    /// The stride prefetcher of a level hears of a line.
    fn learn(&mut self, n: usize, at: u64, hit: bool) {
        let (bits, line) = (self.levels[n].line_bits, at >> self.levels[n].line_bits);
        if hit && let Some(arrival) = self.unused.remove(&(line << bits)) {
            self.extra += arrival.saturating_sub(self.now);
        }
        let frame = at >> 12;
        let known = self.walked.iter().position(|walk| walk.0 == frame);
        let last = known.unwrap_or(self.walked.len() - 1);
        self.walked[..=last].rotate_right(1);
        let walk = &mut self.walked[0];
        if known.is_none() {
            *walk = (frame, line, 0, 0);
        }
        let step = line.wrapping_sub(walk.1);
        if step == 0 {
            return;
        }
        walk.1 = line;
        match step == walk.2 {
            true => walk.3 = (walk.3 + 1).min(3),
            false if walk.3 > 0 => walk.3 -= 1,
            false => walk.2 = step,
        }
        let next = line.wrapping_add(walk.2);
        if walk.3 >= 2 && next << bits >> 12 == frame {
            self.wanted = Some((n, next << bits));
        }
    }

    /// Brings in the line that the prefetcher wants.
    fn prefetch(&mut self) {
        let Some((n, at)) = self.wanted.take() else { return };
        let level = &self.levels[n];
        let (set, entry) = (level.set(at), level.entry(at, false));
        let ways = &level.sets.entries[set * level.sets.ways..][..level.sets.ways];
        if ways.iter().all(|&here| (here ^ entry) >= 2) {
            self.read(n + 1, at, at, false, false);
            self.unused.insert(at, self.now + self.prefetch_latency);
            self.place(n, at, at, false);
        }
    }
}
