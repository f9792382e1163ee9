//! The machines that are shipped: each parses, has the geometry of its source, and runs.

use std::collections::BTreeSet;
use std::path::Path;

use huepage_color::{
    CacheKind, CacheLevel, ColorMap, IndexFunction, PageClasses, PageSize, PhysAddr, Provenance,
};
use huepage_sim::cache::IndexBy;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::{CacheSpec, Machine, TlbFill};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;
use huepage_sim::walk::TableKind;
use huepage_sim::workloads::{self, WorkloadSpec};

/// Per level of data: sets (slices included), ways, bytes per line, cores that share it, and
/// colours of pages of 4 KiB.
type Level = (usize, usize, u64, usize, u64);
/// File, cores, levels of the data path, and entries of the data TLBs.
type Shipped = (&'static str, usize, &'static [Level], &'static [usize]);

const SHIPPED: &[Shipped] = &[
    // 16 colours: the pollute buffer of 1/16 is one of them (ROCS section 6).
    ("powerpc-970fx", 1, &[(128, 2, 128, 1, 4), (512, 8, 128, 1, 16)], &[128, 1024]),
    // 64 colours (SRM-buffer section 2).
    ("xeon-5355", 8, &[(64, 8, 64, 1, 1), (4096, 16, 64, 2, 64)], &[16, 256]),
    (
        "core-i7-860",
        4,
        &[(64, 8, 64, 1, 1), (512, 8, 64, 1, 8), (8192, 16, 64, 4, 128)],
        &[64, 512],
    ),
    ("xeon-7560", 8, &[(64, 8, 64, 1, 1), (512, 8, 64, 1, 8), (16384, 24, 64, 8, 256)], &[64, 512]),
    // Bits 12 to 16 and two of the hash; three of these are bits of the L2, which leaves the
    // 16 colours of Scolari section 4.2.
    (
        "xeon-e5-1410",
        4,
        &[(64, 8, 64, 1, 1), (512, 8, 64, 1, 8), (8192, 20, 64, 4, 128)],
        &[64, 512],
    ),
    // 64 colours (COLORIS section 4).
    ("xeon-e5506", 4, &[(64, 8, 64, 1, 1), (512, 8, 64, 1, 8), (4096, 16, 64, 4, 64)], &[64, 512]),
    (
        "core-i3-2100",
        2,
        &[(64, 8, 64, 1, 1), (512, 8, 64, 1, 8), (4096, 12, 64, 2, 64)],
        &[64, 512],
    ),
    ("alpha-3000-500", 1, &[(256, 1, 32, 1, 2), (16384, 1, 32, 1, 128)], &[32]),
    ("romer-tlb", 1, &[(256, 1, 32, 1, 2), (16384, 1, 32, 1, 128)], &[32]),
    (
        "client-8-core",
        8,
        &[(64, 12, 64, 1, 1), (1024, 8, 64, 1, 16), (16384, 16, 64, 8, 256)],
        &[64, 2048],
    ),
    (
        "cascade-lake",
        16,
        &[(64, 8, 64, 1, 1), (1024, 16, 64, 1, 16), (32768, 11, 64, 16, 512)],
        &[64, 1536],
    ),
    (
        "cascade-lake-like",
        1,
        &[(64, 8, 64, 1, 1), (1024, 16, 64, 1, 16), (16384, 16, 64, 1, 256)],
        &[64, 1536],
    ),
    (
        "lab-4-core",
        4,
        &[(64, 8, 64, 1, 1), (1024, 8, 64, 1, 16), (8192, 16, 64, 4, 128)],
        &[64, 1536],
    ),
    (
        "lab-hashed",
        4,
        &[(64, 8, 64, 1, 1), (1024, 8, 64, 1, 16), (8192, 16, 64, 4, 128)],
        &[64, 1536],
    ),
    ("arm-4-core", 4, &[(256, 2, 64, 1, 4), (1024, 16, 64, 4, 16)], &[32, 1024]),
];

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines"))
}

fn read(name: &str) -> Machine {
    let text = std::fs::read_to_string(folder().join(name).with_extension("toml")).unwrap();
    Machine::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn level(spec: &CacheSpec) -> Level {
    let index = spec.index.clone().unwrap_or_else(|| {
        IndexFunction::linear(spec.line.0.ilog2(), spec.sets().ilog2()).unwrap()
    });
    let colors = PageClasses::new(&index, PageSize::BASE).unwrap().colors();
    (spec.sets(), spec.real_ways(), spec.line.0, spec.shared_by, colors)
}

#[test]
fn every_file_is_known_here() {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let found: BTreeSet<String> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "toml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, SHIPPED.iter().map(|(name, ..)| (*name).to_owned()).collect());
}

#[test]
fn geometry_is_that_of_the_sources() {
    for (name, cores, levels, tlbs) in SHIPPED {
        let machine = read(name);
        assert_eq!(machine.cores, *cores, "{name}");
        let found: Vec<Level> =
            machine.data_path().into_iter().map(|at| level(&machine.cache[at])).collect();
        assert_eq!(found, *levels, "{name}");
        let entries: Vec<usize> =
            machine.tlb_path(false).into_iter().map(|at| machine.tlb[at].entries).collect();
        assert_eq!(entries, *tlbs, "{name}");
        let without = "cascade-lake-like";
        let fetch = machine.cache.iter().any(|cache| cache.kind == CacheKind::Instruction);
        assert_eq!(fetch, *name != without, "{name} has a first level for instructions");
    }
}

#[test]
fn further_levels_take_longer() {
    for (name, ..) in SHIPPED {
        let machine = read(name);
        let path = machine.data_path().into_iter().map(|at| machine.cache[at].latency);
        let latencies: Vec<u64> = path.chain([machine.memory_latency]).collect();
        assert!(latencies.is_sorted_by(|a, b| a < b), "{name}: {latencies:?}");
    }
}

#[test]
fn sets_of_sliced_caches_are_all_used() {
    for (name, ..) in SHIPPED {
        for spec in read(name).cache {
            let Some(index) = &spec.index else { continue };
            let lines = spec.sets() as u64 * 4;
            let mut used = vec![0_u32; spec.sets()];
            for line in 0..lines {
                let at = index.locate(PhysAddr(line * spec.line.0));
                used[usize::from(at.slice) << index.set_bits() | at.set as usize] += 1;
            }
            assert!(used.iter().all(|&n| n == 4), "{name}: four lines fall on every set");
        }
    }
}

/// The example with every key is a machine, and has each key that one can have.
#[test]
fn the_readme_describes_a_machine() {
    let text = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let machine = Machine::parse(example).unwrap();
    machine.page_cache.unwrap();
    // What a machine is written as has all its keys but those that it has not.
    let written = toml::to_string(&machine).unwrap();
    for key in written.lines().filter_map(|line| line.split_once(" = ")).map(|pair| pair.0) {
        assert!(example.contains(&format!("{key} = ")), "{key} is not in machines/README.md");
    }
}

/// Romer tables 4-2 and 6-2, and how ROCS's machine walks its table.
#[test]
fn the_papers_machines_have_their_peculiarities() {
    for name in ["alpha-3000-500", "romer-tlb"] {
        let machine = read(name);
        assert!(machine.tlb.iter().all(|tlb| tlb.fill == TlbFill::Software), "{name}");
        assert_eq!((machine.handler_latency, machine.walk_latency), (30, 0), "{name}");
        let first = machine.cache.iter().filter(|cache| cache.level == 1);
        assert!(first.clone().all(|cache| cache.index_by == IndexBy::Virtual), "{name}");
        let buffers: Vec<usize> = first.filter_map(|c| Some(c.write_buffer?.entries)).collect();
        assert_eq!(buffers, [4], "{name}: the level that is written through");
    }
    let rocs = read("powerpc-970fx");
    let walk = rocs.walk.expect("walks go through its caches");
    assert_eq!((walk.table, walk.from), (TableKind::Hashed, 2));
}

/// A handler's cycles for every miss of the Alpha's TLB, and stalls of its write buffer where
/// stores follow each other.
#[test]
fn the_alpha_charges_its_handler_and_its_write_buffer() {
    let machine = read("alpha-3000-500");
    let frames = Frames::new(machine.memory.0 >> 12, Choice::InOrder, None);
    let mut system = System::new(machine, frames);
    let stores: Vec<Record> =
        (0..64_000).map(|i| Record::plain(i * 32 % (64 << 12), AccessKind::Store)).collect();
    system.run(0, &stores).unwrap();
    let report = system.report();
    // 64 pages in turns through 32 entries: each comes anew in every round.
    assert_eq!(report.walks, 64_000 / 128);
    let costs = report.spaces[0].costs;
    assert_eq!(costs.tlb_cycles, 30 * report.walks);
    // A write retires every 5 cycles, a store comes every cycle: it waits for the other 4, but
    // while a handler runs, which gives the buffer 30 cycles.
    let (waits, most) = (costs.buffer_cycles, 4 * 64_000);
    assert!((most - 30 * report.walks - 100..=most).contains(&waits), "{waits} of {most}");
    system.check().unwrap();
}

/// Every machine runs a program on its last core, and no level counts more than the one above.
#[test]
fn they_run() {
    for (name, ..) in SHIPPED {
        let machine = read(name);
        let core = machine.cores - 1;
        let frames = Frames::new(machine.memory.0 >> 12, Choice::InOrder, None);
        let mut system = System::new(machine, frames);
        let mut count = 0;
        let spec: WorkloadSpec = "fft:size=256K".parse().unwrap();
        spec.run(&mut |record: Record| {
            count += 1;
            system.access(core, &record).unwrap();
        });
        system.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        let report = system.report();
        let data = report.caches.iter().find(|(part, _)| part == "L1 data cache").unwrap();
        assert_eq!(data.1.total(), count, "{name}");
        assert!(data.1.missed() > 4096, "{name}: 256 KiB cannot stay in a first level");
    }
}

/// Romer table 4-3: with frames that follow virtual order each reference of strawman misses
/// the L2, and with one page elsewhere none does.
#[test]
fn strawman_conflicts_in_the_alpha_and_a_page_of_another_colour_cures_it() {
    let misses = |size: u64| {
        let machine = read("alpha-3000-500");
        let frames = machine.memory.0 >> 12;
        let index = IndexFunction::linear(5, 14).unwrap();
        let level = CacheLevel::L2;
        let map = ColorMap::computed(level, &index, Provenance::Declared).unwrap();
        let mut system = System::new(machine, Frames::new(frames, Choice::Coloring, Some(map)));
        let mut accesses = 0;
        let strawman = workloads::find("strawman").unwrap();
        let spec = WorkloadSpec::new(strawman, size, 1, 50).unwrap();
        spec.run(&mut |record: Record| {
            accesses += u64::from(record.kind == AccessKind::Load);
            system.access(0, &record).unwrap();
        });
        let report = system.report();
        let (_, l2) = report.caches.iter().find(|(part, _)| part.starts_with("L2")).unwrap();
        l2.misses[AccessKind::Load as usize] as f64 / accesses as f64
    };
    assert!(misses(512 << 10) > 0.99, "{}", misses(512 << 10));
    assert!(misses(516 << 10) < 0.01, "{}", misses(516 << 10));
}
