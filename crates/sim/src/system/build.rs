//! From a description to a machine: caches with their copies, the ways of each core through
//! them, and TLBs.

use huepage_color::CacheKind;

use super::files::Files;
use super::{ColorCounts, CopyCost, Core, System};
use crate::cache::{Hierarchy, Path};
use crate::frames::Frames;
use crate::machine::{CacheSpec, Machine, TlbFill, TlbSpec, WalkSpec};
use crate::pagecache::PageCache;
use crate::walk::{HashedTable, TableKind, WalkCache};

impl System {
    /// An idle machine; its description was checked. `frames` say which frame a page gets.
    pub fn new(machine: Machine, frames: Frames) -> System {
        let (data, fetch) = (machine.data_path(), machine.fetch_path());
        // A machine without a way for instructions sends them the way of data.
        let fetch = if fetch.is_empty() { data.clone() } else { fetch };
        let memory = machine.memory.0.max(frames.total() << 12);
        let (mut hierarchy, specs, paths) = caches(&machine, memory, &data, &fetch);
        hierarchy.prefetch_latency = machine.prefetch_latency;
        let late = machine.prefetch_latency > 0;
        let pages = machine.page_cache.unwrap_or_default();
        let walk_depth = machine.walk.as_ref().map_or(0, |spec| depth_of(&machine, &data, spec));
        System {
            cores: paths.into_iter().map(|paths| core(&machine, paths)).collect(),
            stalls: [stalls(&machine, &data), stalls(&machine, &fetch)],
            tlb_stalls: tlb_stalls(&machine),
            walks_tables: machine.walk.is_some() && tlb_fill(&machine) == Some(TlbFill::Hardware),
            hierarchy,
            specs,
            spaces: Vec::new(),
            files: Files::new(PageCache::new(pages.replacement, frames.colors())),
            frames,
            line_bits: line_bits(&machine),
            walks: 0,
            hashed: hashed(&machine),
            last_depth: 0,
            room: super::fast::Room::default(),
            extras: late || machine.cache.iter().any(takes_time),
            timed: late || machine.cache.iter().any(|spec| spec.write_buffer.is_some()),
            walk_depth,
            walk_stalls: walk_stalls(&machine, &data),
            copy: CopyCost::Simulated,
            colored: None,
            colors: ColorCounts::default(),
            owners: None,
            heat: None,
            twins: super::twins::Twins::default(),
            threads: None,
            waits: super::waits::Waits::default(),
            machine,
        }
    }
}

/// Bits of the smallest line of data.
fn line_bits(machine: &Machine) -> u32 {
    let lines = machine.cache.iter().filter(|c| c.kind != CacheKind::Instruction);
    lines.map(|c| c.line.0.ilog2()).min().unwrap_or(6)
}

/// A core with its ways to data and instructions and that of its page-table walker.
fn core(machine: &Machine, [data, fetch, walk_path]: [Path; 3]) -> Core {
    Core {
        paths: [data, fetch],
        walk_path,
        tlbs: machine.tlb.iter().map(TlbSpec::build).collect(),
        tlb_paths: [machine.tlb_path(false), machine.tlb_path(true)],
        walker: machine.walk.as_ref().map(|spec| WalkCache::new(&spec.caches)),
        clock: 0,
    }
}

/// The page table, where it is a hash table.
fn hashed(machine: &Machine) -> Option<HashedTable> {
    let is_hashed = machine.walk.as_ref().is_some_and(|spec| spec.table == TableKind::Hashed);
    is_hashed.then(|| HashedTable::new(machine.memory.0 >> 12))
}

/// All caches, the description that each follows, and the ways of each core.
pub(crate) fn caches(
    machine: &Machine,
    memory: u64,
    data: &[usize],
    fetch: &[usize],
) -> (Hierarchy, Vec<usize>, Vec<[Path; 3]>) {
    let (mut hierarchy, mut specs) = (Hierarchy::new(), Vec::new());
    let mut numbers: Vec<Vec<usize>> = Vec::new();
    for (i, spec) in machine.cache.iter().enumerate() {
        let copies = (0..machine.cores / spec.shared_by).map(|copy| {
            specs.push(i);
            hierarchy.add(spec.build(copy as u64).for_memory(memory))
        });
        numbers.push(copies.collect());
    }
    let mut way = |core: usize, path: &[usize]| {
        let place = |&i: &usize| {
            (numbers[i][core / machine.cache[i].shared_by], machine.cache[i].inclusion)
        };
        hierarchy.path(&path.iter().map(place).collect::<Vec<_>>())
    };
    let passed = machine.walk.as_ref().map_or(0, |spec| depth_of(machine, data, spec));
    let walk = &data[passed..];
    let ways = |core| [way(core, data), way(core, fetch), way(core, walk)];
    let paths = (0..machine.cores).map(ways).collect();
    (hierarchy, specs, paths)
}

/// Cycles beyond the nearest cache's, by the depth that answers.
pub(crate) fn stalls(machine: &Machine, path: &[usize]) -> Vec<u64> {
    let nearest = path.first().map_or(0, |&i| machine.cache[i].latency);
    let caches = path.iter().map(|&i| machine.cache[i].latency);
    caches.chain([machine.memory_latency]).map(|cycles| cycles.saturating_sub(nearest)).collect()
}

/// Cycles of a walker's read, by the depth from the first cache that it asks on.
pub(crate) fn walk_stalls(machine: &Machine, data: &[usize]) -> Vec<u64> {
    let passed = machine.walk.as_ref().map_or(0, |spec| depth_of(machine, data, spec));
    stalls(machine, data).split_off(passed)
}

/// Cycles of a look-up for data, by the level of TLB that answers: the nearest one's count only
/// where it has to ask further.
fn tlb_stalls(machine: &Machine) -> Vec<u64> {
    let path = machine.tlb_path(false);
    let latency = |depth: usize| path.get(depth).map_or(0, |&at| machine.tlb[at].latency);
    let mut all = vec![0];
    for depth in 1..=path.len() {
        let nearest = if depth == 1 { latency(0) } else { 0 };
        all.push(all[depth - 1] + nearest + latency(depth));
    }
    let last = all.len() - 1;
    all[last] += match tlb_fill(machine) {
        Some(TlbFill::Software) => machine.handler_latency,
        Some(TlbFill::Hardware) => machine.walk_latency,
        None => 0,
    };
    all
}

/// Who fills the farthest TLB for data.
fn tlb_fill(machine: &Machine) -> Option<TlbFill> {
    machine.tlb_path(false).last().map(|&last| machine.tlb[last].fill)
}

/// Whether a cache takes cycles that depend on more than its level.
fn takes_time(spec: &CacheSpec) -> bool {
    spec.victim.is_some() || spec.column_associative.is_some() || spec.write_buffer.is_some()
}

/// How many caches of the data path the walker passes by.
fn depth_of(machine: &Machine, data: &[usize], spec: &WalkSpec) -> usize {
    data.iter().take_while(|&&i| machine.cache[i].level < spec.from).count()
}
