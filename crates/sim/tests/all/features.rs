//! Every feature of a machine with every other: batches come out as single accesses do, and what
//! must hold of caches and frames does.

use huepage_color::{IndexFunction, VirtAddr};
use huepage_sim::bytes::Bytes;
use huepage_sim::cache::{
    BufferSpec, Inclusion, IndexBy, NextLineSpec, Replacement, StrideSpec, WritePolicy,
};
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::machine::{ColumnSpec, Machine, TlbFill, VictimSpec, WalkSpec};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;
use huepage_sim::walk::TableKind;

/// Three levels and two of TLB, without anything special.
const BASE: &str = "name = \"any\"\ncores = 2\nmemory = \"64M\"\nmemory_latency = 90\nwalk_latency = 7\n\
    [[cache]]\nlevel = 1\nsize = \"2K\"\nways = 2\nlatency = 1\n\
    [[cache]]\nlevel = 2\nsize = \"8K\"\nways = 4\nlatency = 5\n\
    [[cache]]\nlevel = 3\nsize = \"32K\"\nways = 8\nlatency = 20\n\
    [[tlb]]\nlevel = 1\nentries = 16\nways = 4\nlatency = 1\n\
    [[tlb]]\nlevel = 2\nentries = 32\nways = 0\nlatency = 5\n";

type Feature = (&'static str, fn(&mut Machine));

const WALK: WalkSpec = WalkSpec { table: TableKind::Radix, levels: 4, from: 1, caches: Vec::new() };

/// Says how many ways and sets of how many lines a level has.
fn shape(machine: &mut Machine, level: usize, ways: usize, sets: u64) {
    let cache = &mut machine.cache[level];
    cache.ways = ways;
    cache.size = Bytes(ways as u64 * sets * cache.line.0);
}

fn lines(machine: &mut Machine, from: usize, bytes: u64) {
    machine.cache[from..].iter_mut().for_each(|cache| cache.line = Bytes(bytes));
}

fn slices(machine: &mut Machine, level: usize) {
    let function = IndexFunction::xor(6, 4, vec![0x1_1240, 0x2_2480]).expect("sound");
    shape(machine, level, 8, 64);
    machine.cache[level].index = Some(function);
}

const FEATURES: &[Feature] = &[
    ("inclusive L2", |m| m.cache[1].inclusion = Inclusion::Inclusive),
    ("inclusive L3", |m| m.cache[2].inclusion = Inclusion::Inclusive),
    ("exclusive L2", |m| m.cache[1].inclusion = Inclusion::Exclusive),
    ("exclusive L3", |m| m.cache[2].inclusion = Inclusion::Exclusive),
    ("sliced L3", |m| slices(m, 2)),
    ("sliced L1", |m| slices(m, 0)),
    ("L3 by a base sequence", |m| {
        let base = vec![0, 1, 2, 0, 2, 1, 1, 2];
        let function = IndexFunction::permuted(6, 4, base, vec![0x1200, 0x2400, 0xa00]);
        shape(m, 2, 8, 48);
        m.cache[2].index = Some(function.expect("sound"));
    }),
    ("an odd number of sets", |m| shape(m, 1, 4, 37)),
    ("one way", |m| shape(m, 0, 1, 32)),
    ("three ways", |m| shape(m, 0, 3, 16)),
    ("eleven ways", |m| shape(m, 2, 11, 64)),
    ("twenty ways", |m| shape(m, 2, 20, 32)),
    ("forty ways", |m| shape(m, 2, 40, 16)),
    ("one large set", |m| shape(m, 0, 40, 1)),
    ("lines twice as long from L3 on", |m| lines(m, 2, 128)),
    ("short lines", |m| lines(m, 0, 32)),
    ("virtual L1", |m| {
        shape(m, 0, 1, 256);
        m.cache[0].index_by = IndexBy::Virtual;
    }),
    ("victims of L1", |m| m.cache[0].victim = Some(VictimSpec { entries: 3, latency: 2 })),
    ("victims of L3", |m| m.cache[2].victim = Some(VictimSpec { entries: 5, latency: 2 })),
    ("column-associative L1", |m| {
        shape(m, 0, 1, 32);
        m.cache[0].column_associative = Some(ColumnSpec { latency: 3 });
    }),
    ("L1 writes through, buffered", |m| {
        m.cache[0].write = WritePolicy::ThroughNoAllocate;
        m.cache[0].write_buffer = Some(BufferSpec { entries: 4, retire: 5, merge: true });
    }),
    ("L1 writes through and allocates", |m| m.cache[0].write = WritePolicy::ThroughAllocate),
    ("L1 does not allocate", |m| m.cache[0].write = WritePolicy::BackNoAllocate),
    ("L2 writes through", |m| m.cache[1].write = WritePolicy::ThroughNoAllocate),
    ("L2 is buffered", |m| {
        m.cache[1].write_buffer = Some(BufferSpec { entries: 2, retire: 30, merge: false });
    }),
    ("L1 fetches the next line", |m| {
        m.cache[0].next_line = Some(NextLineSpec { degree: 2, on: true });
    }),
    ("L2 learns strides", |m| {
        m.cache[1].stride = Some(StrideSpec { degree: 2, table: 3, on: true });
    }),
    ("L3 fetches the next line, late", |m| {
        m.cache[2].next_line = Some(NextLineSpec { degree: 1, on: true });
        m.prefetch_latency = 90;
    }),
    ("random L1", |m| m.cache[0].replacement = Replacement::Random),
    ("tree PLRU in L2", |m| m.cache[1].replacement = Replacement::TreePlru),
    ("random L3", |m| m.cache[2].replacement = Replacement::Random),
    ("NRU in L3", |m| m.cache[2].replacement = Replacement::Nru),
    ("SRRIP in L2", |m| m.cache[1].replacement = Replacement::Srrip),
    ("FIFO in L1", |m| m.cache[0].replacement = Replacement::Fifo),
    ("cores share L3", |m| m.cache[2].shared_by = 2),
    ("cores share L2 and L3", |m| (m.cache[1].shared_by, m.cache[2].shared_by) = (2, 2)),
    ("walks from L1", |m| m.walk = Some(WALK)),
    ("walks from L2 with caches", |m| {
        m.walk = Some(WalkSpec { from: 2, caches: vec![4, 2], ..WALK });
    }),
    ("walks of a hashed table", |m| {
        m.walk = Some(WalkSpec { table: TableKind::Hashed, from: 2, ..WALK });
    }),
    ("a TLB that software fills", |m| m.tlb[1].fill = TlbFill::Software),
    ("a TLB of 32 entries in one set", |m| (m.tlb[0].entries, m.tlb[0].ways) = (32, 0)),
    ("a TLB not last used", |m| m.tlb[0].replacement = Replacement::NotLastUsed),
    ("large pages in the second TLB", |m| m.tlb[1].pages = vec![Bytes(4096), Bytes(2 << 20)]),
    ("only large pages in the second TLB", |m| m.tlb[1].pages = vec![Bytes(2 << 20)]),
    // Last, since others change what these take away.
    ("one TLB", |m| _ = m.tlb.pop()),
    ("no TLB", |m| m.tlb.clear()),
];

/// Accesses of two programs: rows of near ones, and far ones; some reach into the next line or page.
fn records() -> Vec<Record> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut at = 0;
    let mut next = || {
        at = match random.u32(..8) {
            0 => random.u64(..160 << 10),
            1 => random.u64(..6 << 10),
            _ => at + 8 * random.u64(..4),
        };
        let kind = match random.u32(..40) {
            0 => AccessKind::Fetch,
            kind if kind < 13 => AccessKind::Store,
            _ => AccessKind::Load,
        };
        Record {
            address: VirtAddr(at),
            space: u16::from(random.u32(..50) == 0),
            thread: 0,
            instructions: random.u16(..4),
            bytes: random.u8(1..20),
            kind,
        }
    };
    (0..4000).map(|_| next()).collect()
}

fn system(machine: &Machine) -> System {
    let experiment = Experiment {
        machine: machine.clone(),
        level: None,
        mapping: FrameMapping::Random(3),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    };
    experiment.build().expect("a sound experiment")
}

/// The same machine with two levels: without the second, or without the last.
fn shallow(machine: &Machine) -> [Machine; 2] {
    [1, 2].map(|gone| {
        let mut machine = machine.clone();
        machine.cache.remove(gone);
        machine.cache[1].level = 2;
        machine
    })
}

/// The same accesses in batches and one by one, by two cores in turns.
fn compare(names: &[&str], machine: &Machine, records: &[Record]) {
    let (mut batches, mut singles) = (system(machine), system(machine));
    for (turn, part) in records.chunks(700).enumerate() {
        batches.run(turn % 2, part).expect("memory enough");
        part.iter().try_for_each(|r| singles.access(turn % 2, r)).expect("memory enough");
    }
    batches.finish();
    singles.finish();
    assert_eq!(batches.report(), singles.report(), "{names:?}");
    batches.check().unwrap_or_else(|what| panic!("{names:?}: {what}"));
}

/// The same loads and stores by three threads, with a warm-up, and by one; whether the machine can.
fn divide(names: &[&str], machine: &Machine, data: &[Record]) -> bool {
    let (mut threads, mut single) = (system(machine), system(machine));
    if threads.use_threads(3).is_err() {
        return false;
    }
    for (turn, part) in data.chunks(700).enumerate() {
        for system in [&mut threads, &mut single] {
            system.run(turn % 2, part).expect("memory enough");
            if turn == 1 {
                system.forget_counts();
            }
        }
    }
    assert!(threads.runs_by_threads(), "{names:?}: put together before the end");
    threads.finish();
    single.finish();
    assert_eq!(threads.report(), single.report(), "{names:?} by threads");
    threads.check().unwrap_or_else(|what| panic!("{names:?} by threads: {what}"));
    true
}

#[test]
fn every_two_features_go_together_in_batches_as_one_by_one() {
    let (base, records) = (Machine::parse(BASE).expect("a sound machine"), records());
    let mut data = records.clone();
    data.retain(|record| record.kind != AccessKind::Fetch);
    let (mut pairs, mut divided, mut with_two_levels) = (0, 0, 0);
    for (at, (one, first)) in FEATURES.iter().enumerate() {
        for (other, second) in &FEATURES[at..] {
            let mut machine = base.clone();
            first(&mut machine);
            second(&mut machine);
            // What contradicts each other is refused.
            if machine.check().is_ok() {
                compare(&[one, other], &machine, &records);
                divided += u32::from(divide(&[one, other], &machine, &data));
                pairs += 1;
            }
            for machine in shallow(&machine).iter().filter(|machine| machine.check().is_ok()) {
                compare(&[one, other, "two levels"], machine, &records);
                with_two_levels += 1;
            }
        }
    }
    assert!(with_two_levels > 1200, "{with_two_levels} pairs with two levels");
    assert!(divided > 40, "{divided} of {pairs} pairs by threads");
    assert!(pairs > 900, "{pairs} pairs of {}", FEATURES.len());
}
