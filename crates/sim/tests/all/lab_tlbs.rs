//! The TLBs below a guest of the lab: the simulator's counts and cycles, whose accesses miss, and what leaves them.

use std::collections::HashMap;

use huepage_model::lab::{LabMark, LabPage, LabWord, OWNER_STRIDE};
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::lab::EmulatedCaches;
use huepage_sim::lab::tlbs::TlbWork;
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;

const MACHINE: &str = r#"
    name = "small"
    cores = 2
    memory = "4M"
    memory_latency = 100
    walk_latency = 30
    [[cache]]
    level = 1
    size = "1K"
    ways = 2
    latency = 1
    [[tlb]]
    level = 1
    kind = "data"
    entries = 8
    ways = 2
    [[tlb]]
    level = 1
    kind = "instruction"
    entries = 8
    ways = 2
    [[tlb]]
    level = 2
    entries = 32
    ways = 4
    pages = ["4K", "2M"]
    latency = 7
"#;

/// The roots of the tables of two programs.
const ROOTS: [u64; 2] = [40, 50];

fn machine(more: &str) -> Machine {
    Machine::parse(&MACHINE.replace("walk_latency = 30", more)).unwrap()
}

/// Caches and TLBs of a machine, which count.
fn watched(machine: &Machine) -> EmulatedCaches {
    let mut caches = EmulatedCaches::new(machine, 2).unwrap();
    assert!(caches.with_tlbs(machine));
    caches.run(&[LabWord::mark(0, LabMark::Start), LabWord::mark(0, LabMark::Begin)]);
    caches
}

fn load(cpu: u32, address: u64) -> LabWord {
    LabWord::access(cpu, address, 3, false, false)
}

fn root(cpu: u32, space: usize) -> LabWord {
    LabWord::told(cpu, LabMark::Root, ROOTS[space])
}

/// A first access to a page of some level, in a frame.
fn first(cpu: u32, number: u64, level: u32, frame: u64) -> [LabWord; 2] {
    let page = LabPage::new(number, Some(level));
    [LabWord::told(cpu, LabMark::Page, page.0), load(cpu, frame << 12)]
}

fn gone(cpu: u32, number: u64, level: u32) -> LabWord {
    LabWord::told(cpu, LabMark::Gone, LabPage::new(number, Some(level)).0)
}

fn work(caches: &EmulatedCaches) -> TlbWork {
    caches.class(0).tlb.unwrap()
}

/// Accesses of two programs by two cores, to more pages than all TLBs hold.
fn many() -> Vec<Record> {
    let mut at = 1_u64;
    let mut next = move || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        at >> 33
    };
    let mut record = move || {
        let (page, within) = (next() % 12 * (next() % 9), next() % 512 * 8);
        let record = Record::plain(page << 12 | within, AccessKind::Load);
        Record { space: (next() & 1) as u16, thread: (next() & 1) as u16, ..record }
    };
    (0..50_000).map(|_| record()).collect()
}

/// The same as an emulator tells it: each page of a program has a frame of its own.
fn told(records: &[Record]) -> Vec<LabWord> {
    let (mut frames, mut words) = (HashMap::new(), Vec::new());
    for record in records {
        let (cpu, number) = (u32::from(record.thread), record.address.0 >> 12);
        words.push(root(cpu, usize::from(record.space)));
        let fresh = frames.len() as u64;
        let frame = *frames.entry((record.space, number)).or_insert(fresh);
        if frame == fresh {
            words.push(first(cpu, number, 0, frame)[0]);
        }
        words.push(load(cpu, frame << 12 | record.address.0 & 4095));
    }
    words
}

#[test]
fn the_simulator_counts_the_same_misses_and_cycles() {
    let handler = "handler_latency = 25";
    for (text, software) in [("walk_latency = 30", false), (handler, true)] {
        let text = MACHINE.replace("walk_latency = 30", text);
        let software = if software { "latency = 7\n fill = \"software\"" } else { "latency = 7" };
        let machine = Machine::parse(&text.replace("latency = 7", software)).unwrap();
        let (mut caches, records) = (watched(&machine), many());
        caches.run(&told(&records));
        let mut system = System::new(machine.clone(), Frames::new(1024, Choice::InOrder, None));
        records.iter().for_each(|one| system.access(usize::from(one.thread), one).unwrap());
        let totals = caches.tlb_totals();
        let own: Vec<_> = totals.iter().map(|row| (row.tlb.clone(), row.counts)).collect();
        assert_eq!(own, system.report().tlbs);
        assert!(own[0].1.misses > own[2].1.misses && own[2].1.misses > 1000, "{own:?}");
        let found = work(&caches);
        let cycles = [0, 1].map(|space| system.costs(space).tlb_cycles);
        assert_eq!((found.cycles, found.unknown), (cycles[0] + cycles[1], 0));
        assert_eq!(found.tlbs, [totals[0].clone(), totals[2].clone()]);
        assert_eq!(found.walks, own[2].1.misses);
    }
}

#[test]
fn a_walk_reads_as_many_entries_as_in_the_simulator() {
    for table in ["{ levels = 4 }", "{ table = \"hashed\" }", "{ levels = 4, caches = [4, 4] }"] {
        let machine = machine(&format!("walk_latency = 30\nwalk = {table}"));
        let mut caches = watched(&machine);
        caches.run(&[root(0, 0)]);
        let mut system = System::new(machine.clone(), Frames::new(1024, Choice::InOrder, None));
        // The first walk finds nothing in a cache, the second what the first one read, or the caches of walkers know.
        for number in [5, 6] {
            caches.run(&first(0, number, 0, number));
            system.access(0, &Record::plain(number << 12, AccessKind::Load)).unwrap();
            assert_eq!(work(&caches).cycles, system.costs(0).tlb_cycles, "{table} {number}");
        }
        assert!(work(&caches).cycles > 2 * 30 + 2 * 7, "{table}: reads");
    }
}

#[test]
fn a_page_that_has_lost_its_frame_is_not_found() {
    let mut caches = watched(&machine("walk_latency = 30"));
    caches.run(&[root(0, 0), root(1, 1)]);
    caches.run(&first(0, 5, 0, 5));
    caches.run(&first(1, 5, 0, 6));
    let walks = |caches: &mut EmulatedCaches, words: &[LabWord]| {
        let before = work(caches).walks;
        caches.run(words);
        work(caches).walks - before
    };
    assert_eq!(walks(&mut caches, &[load(0, 5 << 12), load(1, 6 << 12)]), 0);
    // What processor 1 loses is of its own table, whoever uses it.
    assert_eq!(walks(&mut caches, &[gone(1, 5, 0), load(0, 5 << 12), load(1, 6 << 12)]), 1);
    caches.run(&[root(0, 1), gone(0, 5, 0), root(0, 0)]);
    assert_eq!(walks(&mut caches, &[load(0, 5 << 12), load(1, 6 << 12)]), 1);
    assert_eq!(walks(&mut caches, &first(0, 5, 0, 7)), 1, "in another frame, and nothing was told");
}

#[test]
fn pages_are_as_large_as_the_table_says() {
    let mut caches = watched(&machine("walk_latency = 30"));
    caches.run(&[root(0, 0)]);
    let mut pages: Vec<LabWord> = (0..200).flat_map(|n| first(0, 512 + n, 1, 512 + n)).collect();
    caches.run(&pages);
    let large = work(&caches);
    let [nearest, second] = [large.tlbs[0].counts, large.tlbs[1].counts];
    assert_eq!((large.walks, nearest.accesses), (1, 0), "the nearest takes no such pages");
    assert_eq!((second.accesses, second.misses), (200, 1));
    assert_eq!(large.cycles, 200 * 7 + 30);
    caches.run(&[gone(0, 512, 1), load(0, 600 << 12)]);
    assert_eq!(work(&caches).walks, 2, "all of the page is gone");
    pages = (0..200).flat_map(|n| first(0, 1024 + n, 0, 512 + n)).collect();
    caches.run(&pages);
    assert_eq!(work(&caches).walks, 202);
    caches.run(&first(0, 1 << 18, 2, 300));
    caches.run(&first(0, (1 << 18) + 512, 2, 812));
    assert_eq!(work(&caches).walks, 204, "a page of 1 GiB is entered as several");
}

#[test]
fn look_ups_belong_to_who_accesses_and_pages_without_a_table_to_nobody() {
    let machine = machine("walk_latency = 30");
    let mut caches = watched(&machine);
    caches.with_pmu(&machine);
    let page = load(0, 0x8000);
    caches.run(&[LabWord::mark(0, LabMark::TurnPage), page]);
    let turn = LabWord::access(0, 0x8000 + OWNER_STRIDE, 3, true, true);
    caches.run(&[root(0, 0), turn, LabWord::told(0, LabMark::Instructions, 10)]);
    caches.run(&first(0, 5, 0, 5));
    let none = LabPage::new(9, None).0;
    caches.run(&[LabWord::told(0, LabMark::Page, none), load(0, 9 << 12), load(0, 9 << 12)]);
    let own = caches.class(1);
    let tlb = own.tlb.unwrap();
    assert_eq!((tlb.walks, tlb.unknown, tlb.tlbs[0].counts.accesses), (1, 2, 1));
    assert_eq!(own.work.unwrap().cycles, 10 + 2 * 99 + 37, "two lines from memory, and a walk");
    assert_eq!(work(&caches).unknown, 1, "the page of turns was not told");
}

#[test]
fn a_machine_without_tlbs_for_data_has_none_to_count() {
    let text = MACHINE.split("[[tlb]]").next().unwrap();
    let machine = Machine::parse(text).unwrap();
    let mut caches = EmulatedCaches::new(&machine, 2).unwrap();
    assert!(!caches.with_tlbs(&machine));
    caches.run(&first(0, 5, 0, 5));
    assert!(caches.tlb_totals().is_empty() && caches.class(0).tlb.is_none());
}
