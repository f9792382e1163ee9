//! Caches against naive models, over random accesses and machines.

use crate::naive;

use huepage_color::IndexFunction;
use huepage_sim::cache::{
    AccessOutcome, BufferSpec, Cache, CacheEntry, Hierarchy, Inclusion, NextLineSpec, Path,
    Prefetch, Replacement, Sets, StrideSpec, WritePolicy,
};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::record::AccessKind;
use naive::hierarchy::{Index, Level, Model, Shape};
use proptest::prelude::*;

const ALL: [Replacement; 7] = [
    Replacement::Lru,
    Replacement::Fifo,
    Replacement::TreePlru,
    Replacement::Nru,
    Replacement::Srrip,
    Replacement::Random,
    Replacement::NotLastUsed,
];

const WRITES: [WritePolicy; 4] = [
    WritePolicy::BackAllocate,
    WritePolicy::BackNoAllocate,
    WritePolicy::ThroughAllocate,
    WritePolicy::ThroughNoAllocate,
];

fn replacement() -> impl Strategy<Value = Replacement> {
    prop::sample::select(ALL.to_vec())
}

fn shape() -> impl Strategy<Value = (usize, usize, Replacement)> {
    let ways = prop::sample::select(vec![1_usize, 2, 3, 4, 7, 8, 12, 16, 20]);
    (1_usize..9, ways, replacement()).prop_filter("a tree needs 2^n ways", |(_, ways, r)| {
        *r != Replacement::TreePlru || ways.is_power_of_two()
    })
}

/// What can be done to a set.
#[derive(Clone, Copy, Debug)]
enum Step {
    Access(bool),
    Remove,
    Soil,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<bool>().prop_map(Step::Access),
        1 => Just(Step::Remove),
        1 => Just(Step::Soil),
    ]
}

/// The same steps in both; `find` in the test's words what differs.
fn same_steps(real: &mut Sets, ways: usize, replacement: Replacement, steps: &[(u64, Step)]) {
    let sets = real.sets() as u64;
    let mut naive = naive::Table::new(ways, replacement, 5);
    for &(line, step) in steps {
        let set = line % sets;
        let at = usize::try_from(set).unwrap();
        match step {
            Step::Access(write) => {
                let (hit, gone) = naive.access(set, line, write);
                let gone =
                    gone.map_or(CacheEntry::EMPTY, |(line, dirty)| CacheEntry::new(line, dirty));
                let want = if hit { AccessOutcome::Hit } else { AccessOutcome::Miss(gone) };
                assert_eq!(real.access(at, CacheEntry::new(line, write)), want, "line {line}");
            }
            Step::Remove => {
                let want =
                    naive.remove(set, line).map(|(line, dirty)| CacheEntry::new(line, dirty));
                assert_eq!(real.remove(at, line), want);
                assert!(!real.contains(at, line));
            }
            Step::Soil => assert_eq!(real.soil(at, line), naive.soil(set, line)),
        }
    }
    let mut lines: Vec<_> = real.lines().map(|(_, e)| (e.line(), e.is_dirty())).collect();
    lines.sort_unstable();
    assert_eq!(lines, naive.lines());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sets_replace_as_the_naive_model(
        (sets, ways, replacement) in shape(),
        steps in prop::collection::vec((0_u64..150, step()), 0..600),
    ) {
        same_steps(&mut Sets::new(sets, ways, replacement, 5), ways, replacement, &steps);
    }

    #[test]
    fn one_large_set_replaces_as_the_naive_model_hashed_or_searched(
        ways in 30_usize..70,
        replacement in prop::sample::select(vec![
            Replacement::Lru, Replacement::Fifo, Replacement::Random, Replacement::NotLastUsed,
        ]),
        steps in prop::collection::vec((0_u64..120, step()), 0..800),
    ) {
        same_steps(&mut Sets::new(1, ways, replacement, 5), ways, replacement, &steps);
        same_steps(&mut Sets::searched(1, ways, replacement, 5), ways, replacement, &steps);
    }
}

/// A machine: levels from the nearest to the farthest, each private or shared.
#[derive(Clone, Debug)]
struct Plan {
    cores: usize,
    split: bool,
    /// The first is for data, the second for instructions if split.
    levels: Vec<Shape>,
    /// From which lower level on caches are shared by the cores.
    shared_from: usize,
}

fn index() -> impl Strategy<Value = (u64, Index)> {
    let masks = prop::sample::select(vec![vec![0x1_1200_u64], vec![0x1200, 0x2a00]]);
    prop_oneof![
        3 => (1_u64..7).prop_map(|sets| (sets, Index::Modulo)),
        2 => prop::sample::select(vec![2_u64, 4, 8]).prop_map(|sets| (sets, Index::Modulo)),
        1 => (masks, prop::sample::select(vec![1_u64, 2, 4]))
            .prop_map(|(masks, sets)| (sets << masks.len(), Index::Parities(masks))),
        1 => prop::sample::select(vec![1_u64, 2]).prop_map(|sets| {
            (3 * sets, Index::Lookup(vec![0, 1, 2, 0, 2, 1, 1, 2], vec![0x1200, 0x2400, 0xa00]))
        }),
    ]
}

fn buffer() -> impl Strategy<Value = Option<(usize, u64, bool)>> {
    prop::option::weighted(0.4, (1_usize..5, 0_u64..30, any::<bool>()))
}

fn prefetchers() -> impl Strategy<Value = (Option<u64>, Option<(u64, u64)>)> {
    let next_line = prop::option::weighted(0.3, 1_u64..4);
    (next_line, prop::option::weighted(0.3, (1_u64..4, 1_u64..5)))
}

/// Any level; what depends on its neighbours is put right by `plan`.
fn level() -> impl Strategy<Value = Shape> {
    let inclusion =
        prop::sample::select(vec![Inclusion::None, Inclusion::Inclusive, Inclusion::Exclusive]);
    let extras = (any::<bool>(), prop::sample::select(vec![0_usize, 0, 1, 3]), any::<bool>());
    let write = prop::sample::select(WRITES.to_vec());
    let basics = (index(), prop::sample::select(vec![1_usize, 1, 2, 3, 4]), replacement());
    (basics, write, inclusion, 0_u32..3, extras, buffer(), prefetchers()).prop_map(
        |(((sets, index), ways, replacement), write, inclusion, grow, extras, buffer, fetch)| {
            let (by_virtual, victims, column) = extras;
            let tree = replacement == Replacement::TreePlru && !ways.is_power_of_two();
            let replacement = if tree { Replacement::Lru } else { replacement };
            let column = column && ways == 1 && sets > 1 && sets.is_power_of_two();
            let victims = if column { 0 } else { victims };
            let (next_line, stride) = fetch;
            let line = u64::from(grow / 2 + 1);
            Shape {
                sets,
                ways,
                line,
                replacement,
                write,
                inclusion,
                index,
                by_virtual,
                victims,
                column,
                buffer,
                next_line,
                stride,
            }
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let levels = prop::collection::vec(level(), 1..5);
    (1_usize..3, any::<bool>(), levels, 0_usize..3, 4_u32..7).prop_map(
        |(cores, split, levels, shared_from, line_bits)| {
            let split = split && levels.len() > 1;
            put_right(Plan { cores, split, levels, shared_from }, 1 << line_bits)
        },
    )
}

/// A plan that can be, of levels that say by how much their lines are longer than those above.
fn put_right(mut plan: Plan, mut line: u64) -> Plan {
    let firsts = if plan.split { 2 } else { 1 };
    for (i, level) in plan.levels.iter_mut().enumerate() {
        if i < firsts {
            level.inclusion = Inclusion::None;
            level.by_virtual &= !level.column;
            level.line = line;
            continue;
        }
        level.by_virtual = false;
        if level.inclusion == Inclusion::Exclusive {
            level.line = 1;
            level.write = match level.write {
                WritePolicy::ThroughAllocate => WritePolicy::BackAllocate,
                WritePolicy::ThroughNoAllocate => WritePolicy::BackNoAllocate,
                back => back,
            };
        }
        line *= level.line;
        level.line = line;
    }
    plan
}

fn real_cache(shape: &Shape, seed: u64) -> Cache {
    let sets = usize::try_from(shape.sets).unwrap();
    let lines = Sets::new(sets, shape.ways, shape.replacement, seed);
    let line_bits = shape.line.ilog2();
    let mut cache = match shape.index.clone() {
        Index::Modulo => Cache::new(lines, line_bits, shape.write),
        Index::Parities(masks) => {
            let bits = (shape.sets >> masks.len()).ilog2();
            Cache::indexed(lines, IndexFunction::xor(line_bits, bits, masks).unwrap(), shape.write)
        }
        Index::Lookup(base, masks) => {
            let bits = (shape.sets / 3).ilog2();
            let function = IndexFunction::permuted(line_bits, bits, base, masks).unwrap();
            Cache::indexed(lines, function, shape.write)
        }
    };
    if shape.column {
        cache = cache.column_associative(3);
    }
    if shape.victims > 0 {
        cache = cache.with_victims(shape.victims, 3);
    }
    if shape.by_virtual {
        cache = cache.virtually_indexed();
    }
    if let Some((entries, retire, merge)) = shape.buffer {
        cache = cache.with_buffer(BufferSpec { entries, retire, merge });
    }
    let next_line = shape.next_line.map(|degree| NextLineSpec { degree, on: true });
    let stride = shape.stride.map(|(degree, table)| StrideSpec {
        degree,
        table: usize::try_from(table).unwrap(),
        on: true,
    });
    if next_line.is_some() || stride.is_some() {
        cache = cache.with_prefetchers(next_line, stride);
    }
    cache
}

/// Both machines, and for each core the paths of data and of instructions.
struct Pair {
    real: Hierarchy,
    naive: Model,
    paths: Vec<[(Path, usize); 2]>,
}

fn build(plan: &Plan) -> Pair {
    let (mut real, mut naive) = (Hierarchy::new(), Model::default());
    let firsts = if plan.split { 2 } else { 1 };
    let mut numbers: Vec<Vec<usize>> = Vec::new();
    for (i, shape) in plan.levels.iter().enumerate() {
        let shared = i >= firsts && i - firsts >= plan.shared_from;
        let copies = if shared { 1 } else { plan.cores };
        let add = |copy: usize| {
            let seed = (i * 10 + copy) as u64;
            naive.add(Level::new(shape.clone(), seed));
            real.add(real_cache(shape, seed))
        };
        let made: Vec<usize> = (0..copies).map(add).collect();
        numbers.push((0..plan.cores).map(|core| made[core % copies]).collect());
    }
    let mut way = |core: usize, first: usize| {
        let rest = firsts..plan.levels.len();
        let levels: Vec<usize> = std::iter::once(first).chain(rest).collect();
        let caches: Vec<_> =
            levels.iter().map(|&i| (numbers[i][core], plan.levels[i].inclusion)).collect();
        naive.path(&caches.iter().map(|cache| cache.0).collect::<Vec<_>>());
        (real.path(&caches), caches[0].0)
    };
    let paths = (0..plan.cores).map(|core| [way(core, 0), way(core, firsts - 1)]).collect();
    Pair { real, naive, paths }
}

/// An access as the tests make them.
#[derive(Clone, Copy, Debug)]
struct Access {
    core: usize,
    kind: AccessKind,
    physical: u64,
    alias: u64,
    cycles: u64,
}

fn access() -> impl Strategy<Value = Access> {
    let kind = prop::sample::select(vec![
        AccessKind::Fetch,
        AccessKind::Load,
        AccessKind::Load,
        AccessKind::Store,
    ]);
    let place = prop_oneof![0_u64..0x400, 0_u64..0x4000];
    (0_usize..2, kind, place, 0_u64..3, 0_u64..20).prop_map(
        |(core, kind, physical, alias, cycles)| Access { core, kind, physical, alias, cycles },
    )
}

impl Pair {
    fn step(&mut self, access: &Access) {
        let Access { core, kind, physical, alias, cycles } = *access;
        let (path, first) =
            &self.paths[core % self.paths.len()][usize::from(kind == AccessKind::Fetch)];
        let index = physical + (alias << 12);
        self.real.now += cycles;
        self.naive.now += cycles;
        let depth = self.real.access_virtual(path, physical, index, kind);
        let want = self.naive.access(*first, physical, index, kind);
        assert_eq!(depth, want, "depth of {access:?}");
        assert_eq!(self.real.take_extra(), std::mem::take(&mut self.naive.extra));
        assert_eq!(self.real.now, self.naive.now);
    }

    fn compare(&self) {
        for (number, (cache, level)) in
            self.real.caches().iter().zip(&self.naive.levels).enumerate()
        {
            assert_eq!(cache.counts, level.counts, "counts of cache {number}");
            let counts = cache.counts;
            assert_eq!(level.hits + counts.missed(), counts.total());
            let mut lines: Vec<_> = cache.lines().collect();
            lines.sort_unstable();
            assert_eq!(lines, level.lines(), "lines of cache {number}");
            assert_eq!(cache.buffered(), self.naive.buffered(number));
        }
        let real = &self.real;
        let memory = [real.memory_reads, real.memory_writes, real.memory_prefetches];
        assert_eq!(memory, self.naive.memory);
        assert_eq!(real.check(), Ok(()));
        self.conserve_writes();
    }

    /// A write that left a level came to the next, joined another, or waits.
    fn conserve_writes(&self) {
        let caches = self.real.caches().iter();
        let (mut left, mut came) = (0, self.real.memory_writes);
        for cache in caches {
            let counts = cache.counts;
            left += counts.writes_out - counts.merged - cache.buffered() as u64;
            came += counts.writes_in;
        }
        assert_eq!(left, came, "writes that left and came");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn random_machines_agree_with_the_naive_one(
        plan in plan(), accesses in prop::collection::vec(access(), 0..500),
    ) {
        let mut pair = build(&plan);
        for (i, access) in accesses.iter().enumerate() {
            pair.step(access);
            if i % 100 == 0 {
                pair.compare();
            }
        }
        pair.compare();
        pair.real.flush_buffers();
        pair.naive.flush();
        pair.compare();
        prop_assert!(pair.real.caches().iter().all(|cache| cache.buffered() == 0));
    }

    /// Plain caches take a shorter way through the code: the same, without any extras.
    #[test]
    fn plain_machines_agree_with_the_naive_one(
        mut plan in plan(), accesses in prop::collection::vec(access(), 0..500),
    ) {
        for level in &mut plan.levels {
            level.write = WritePolicy::BackAllocate;
            (level.victims, level.column, level.by_virtual) = (0, false, false);
            (level.buffer, level.next_line, level.stride) = (None, None, None);
        }
        let mut pair = build(&plan);
        accesses.iter().for_each(|access| pair.step(access));
        pair.compare();
    }

    /// No write is lost: what was written is dirty somewhere, waits, or has gone to memory.
    #[test]
    fn no_write_is_lost(mut plan in plan(), accesses in prop::collection::vec(access(), 0..300)) {
        plan.levels.iter_mut().for_each(|level| level.buffer = None);
        let mut pair = build(&plan);
        accesses.iter().for_each(|access| pair.step(access));
        let stores = accesses.iter().filter(|access| access.kind == AccessKind::Store);
        let written: Vec<u64> = stores.map(|access| access.physical).collect();
        let mut dirty = Vec::new();
        for cache in pair.real.caches() {
            let lines = cache.lines().filter(|line| line.1);
            dirty.extend(lines.map(|line| line.0..line.0 + (1 << cache.line_bits())));
        }
        for line in &dirty {
            prop_assert!(written.iter().any(|at| line.contains(at)), "dirty unwritten {:?}", line);
        }
        for at in written.iter().filter(|_| pair.real.memory_writes == 0) {
            prop_assert!(dirty.iter().any(|line| line.contains(at)), "lost {:#x}", at);
        }
    }
}

/// A name, and what makes a plan have it.
type Feature = (&'static str, fn(&mut Plan));

/// What a level of three can have.
const FEATURES: &[Feature] = &[
    ("inclusive L2", |p| p.levels[1].inclusion = Inclusion::Inclusive),
    ("inclusive L3", |p| p.levels[2].inclusion = Inclusion::Inclusive),
    ("exclusive L2", |p| p.levels[1].inclusion = Inclusion::Exclusive),
    ("exclusive L3", |p| p.levels[2].inclusion = Inclusion::Exclusive),
    ("sliced L3", |p| p.levels[2].index = Index::Parities(vec![0x1200, 0x2a00])),
    ("L3 by a base sequence", |p| {
        p.levels[2].sets = 24;
        p.levels[2].index = Index::Lookup(vec![0, 1, 2, 0, 2, 1, 1, 2], vec![0x1200, 0x2400]);
    }),
    ("virtual L1", |p| (p.levels[0].by_virtual, p.levels[0].sets) = (true, 128)),
    ("victims of L1", |p| p.levels[0].victims = 3),
    ("victims of L3", |p| p.levels[2].victims = 2),
    ("column-associative L1", |p| (p.levels[0].column, p.levels[0].ways) = (true, 1)),
    ("three ways in L1", |p| p.levels[0].ways = 3),
    ("nine ways in L3", |p| p.levels[2].ways = 9),
    ("five sets in L2", |p| p.levels[1].sets = 5),
    ("longer lines in L3", |p| p.levels[2].line = 2),
    ("L1 writes through", |p| p.levels[0].write = WritePolicy::ThroughNoAllocate),
    ("L1 writes through and allocates", |p| p.levels[0].write = WritePolicy::ThroughAllocate),
    ("L2 does not allocate", |p| p.levels[1].write = WritePolicy::BackNoAllocate),
    ("L1 is buffered", |p| p.levels[0].buffer = Some((4, 5, true))),
    ("L2 is buffered", |p| p.levels[1].buffer = Some((2, 30, false))),
    ("L1 fetches the next line", |p| p.levels[0].next_line = Some(2)),
    ("L2 learns strides", |p| p.levels[1].stride = Some((2, 3))),
    ("random L1", |p| p.levels[0].replacement = Replacement::Random),
    ("tree PLRU in L2", |p| p.levels[1].replacement = Replacement::TreePlru),
    ("FIFO in L3", |p| p.levels[2].replacement = Replacement::Fifo),
    ("two cores share L2", |p| (p.cores, p.shared_from) = (2, 0)),
    ("two cores share L3", |p| (p.cores, p.shared_from) = (2, 1)),
];

/// A level with nothing special.
fn shape_of(sets: u64, ways: usize) -> Shape {
    Shape {
        sets,
        ways,
        line: 1,
        replacement: Replacement::Lru,
        write: WritePolicy::BackAllocate,
        inclusion: Inclusion::None,
        index: Index::Modulo,
        by_virtual: false,
        victims: 0,
        column: false,
        buffer: None,
        next_line: None,
        stride: None,
    }
}

#[test]
fn every_two_features_agree_with_the_naive_model() {
    let mut random = fastrand::Rng::with_seed(5);
    let kinds = [AccessKind::Fetch, AccessKind::Load, AccessKind::Load, AccessKind::Store];
    let access = |at: usize| Access {
        core: random.usize(..2),
        kind: kinds[random.usize(..4)],
        physical: random.u64(..[0x800, 0x8000][at % 2]),
        alias: random.u64(..3),
        cycles: random.u64(..20),
    };
    let accesses: Vec<Access> = (0..1200).map(access).collect();
    for (at, (one, first)) in FEATURES.iter().enumerate() {
        for (other, second) in &FEATURES[at..] {
            let levels = vec![shape_of(4, 2), shape_of(8, 4), shape_of(16, 8)];
            let mut plan = Plan { cores: 1, split: false, levels, shared_from: 9 };
            first(&mut plan);
            second(&mut plan);
            let level = &mut plan.levels[0];
            // A column has neither victims nor a virtual index.
            (level.victims, level.ways) =
                if level.column { (0, 1) } else { (level.victims, level.ways) };
            println!("{one}, {other}");
            let mut pair = build(&put_right(plan, 64));
            accesses.iter().for_each(|access| pair.step(access));
            pair.compare();
        }
    }
}

#[test]
fn the_synthetic_streams_miss_as_often_as_in_every_other_simulator() {
    for (mix, want) in [(Mix::MissHeavy, 5_488_175), (Mix::Hot, 1_324_127)] {
        let mut real = Hierarchy::new();
        let sets = Sets::new(64, 8, Replacement::Lru, 1);
        let first = real.add(Cache::new(sets, 6, WritePolicy::BackAllocate));
        let path = real.path(&[(first, Inclusion::None)]);
        for record in MixStream::new(mix).take(10_000_000) {
            real.access(&path, record.address.0, record.kind);
        }
        assert_eq!(real.caches()[0].counts.missed(), want);
        assert_eq!(real.memory_reads, want);
    }
}

fn direct_mapped(sets: usize) -> Cache {
    Cache::new(Sets::new(sets, 1, Replacement::Lru, 1), 6, WritePolicy::BackAllocate)
}

/// Two lines of the same set in turns: misses of a direct-mapped cache, and whose cure.
fn ping_pong(cache: Cache) -> (u64, u64) {
    let mut real = Hierarchy::new();
    let first = real.add(cache);
    let path = real.path(&[(first, Inclusion::None)]);
    for i in 0..100 {
        real.access(&path, i % 2 * 1024, AccessKind::Load);
    }
    (real.caches()[0].counts.missed(), real.take_extra())
}

#[test]
fn conflicts_are_cured_by_victim_caches_and_columns_at_a_price() {
    assert_eq!(ping_pong(direct_mapped(16)), (100, 0));
    assert_eq!(ping_pong(direct_mapped(16).with_victims(1, 5)), (2, 98 * 5));
    assert_eq!(ping_pong(direct_mapped(16).column_associative(3)), (2, 98 * 3));
}

#[test]
fn a_full_write_buffer_stalls_and_a_merging_one_does_not() {
    for (merge, stalls) in [(false, 9), (true, 0)] {
        let spec = BufferSpec { entries: 1, retire: 10, merge };
        let sets = Sets::new(4, 1, Replacement::Lru, 1);
        let cache = Cache::new(sets, 6, WritePolicy::ThroughNoAllocate).with_buffer(spec);
        let mut real = Hierarchy::new();
        let first = real.add(cache);
        let path = real.path(&[(first, Inclusion::None)]);
        (0..10).for_each(|i| assert_eq!(real.access(&path, i * 4, AccessKind::Store), 0));
        let counts = real.caches()[0].counts;
        assert_eq!((counts.stalls, counts.stall_cycles), (stalls, stalls * 10));
        assert_eq!(real.take_extra(), stalls * 10);
        real.flush_buffers();
        assert_eq!(real.memory_writes, if merge { 1 } else { 10 });
    }
}

#[test]
fn a_prefetcher_hides_a_stream_while_it_is_on() {
    let next = NextLineSpec { degree: 1, on: true };
    let stride = StrideSpec { degree: 2, table: 4, on: false };
    let mut real = Hierarchy::new();
    let first = real.add(direct_mapped(256).with_prefetchers(Some(next), Some(stride)));
    let path = real.path(&[(first, Inclusion::None)]);
    let read = |real: &mut Hierarchy, lines: std::ops::Range<u64>, step: usize| {
        let before = real.caches()[0].counts.missed();
        lines.step_by(step).for_each(|line| _ = real.access(&path, line * 64, AccessKind::Load));
        real.caches()[0].counts.missed() - before
    };
    assert_eq!(read(&mut real, 0..64, 1), 1, "one miss, then all lines were prefetched");
    assert_eq!(real.caches()[0].counts.useful, 63);
    assert!(real.switch(first, Prefetch::NextLine, false));
    assert_eq!(read(&mut real, 64..128, 1), 64);
    assert!(real.switch(first, Prefetch::Stride, true));
    assert_eq!(read(&mut real, 128..192, 3), 4, "four accesses until the stride is believed");
    assert_eq!(real.check(), Ok(()));
}

#[test]
fn a_watched_cache_writes_its_misses_down() {
    let mut real = Hierarchy::new();
    let first = real.add(direct_mapped(4));
    let path = real.path(&[(first, Inclusion::None)]);
    real.watch(Some(first));
    for address in [0, 70, 3, 256, 0] {
        real.access(&path, address, AccessKind::Load);
    }
    assert_eq!(real.missed().collect::<Vec<_>>(), [0, 64, 256, 0]);
    assert_eq!(real.missed().count(), 0);
}
