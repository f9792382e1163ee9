//! What machines charge, and when: TLBs filled by software or hardware, and write buffers that
//! go by the clock of their core, against naive models.

use crate::naive;

use std::sync::{Arc, Mutex};

use huepage_color::{VirtAddr, Vpn};
use huepage_policy::{Action, Event, Policy};
use huepage_sim::cache::{Inclusion, Replacement, WritePolicy};
use huepage_sim::feedback::Sense;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::{MemoryWait, System};
use huepage_sim::tlb::TlbPage;
use huepage_sim::workloads::FileNumber;
use naive::hierarchy::{Index, Level, Model, Shape};
use proptest::prelude::*;

fn system(text: &str) -> System {
    let machine = Machine::parse(text).expect("a sound machine");
    let frames = machine.memory.0 >> 12;
    System::new(machine, Frames::new(frames, Choice::InOrder, None))
}

/// A miss as a policy hears of it: page, order, victim.
type Miss = (u64, u32, Option<(u64, u32)>);

struct Listener(Arc<Mutex<Vec<Miss>>>);

impl Policy for Listener {
    fn handle(&mut self, event: Event, _: &mut Vec<Action>) {
        if let Event::TlbMiss { page, order, victim } = event {
            let victim = victim.map(|(page, order)| (page.0, order));
            self.0.lock().expect("one thread").push((page.0, order, victim));
        }
    }
}

/// A level of TLB: sets, ways, orders, cycles.
type Tlb = (usize, usize, Vec<u32>, u64);

fn tlb() -> impl Strategy<Value = Tlb> {
    let orders = prop::sample::select(vec![vec![0], vec![0, 4], vec![4], vec![0, 2, 4]]);
    (1_usize..4, 1_usize..6, orders, 0_u64..9)
}

fn tlb_machine(levels: &[Tlb], software: bool) -> String {
    let mut text = String::from(
        "name = \"any\"\nmemory = \"64M\"\nmemory_latency = 9\nwalk_latency = 17\n\
         handler_latency = 40\n[[cache]]\nlevel = 1\nsize = \"4K\"\nways = 1\nlatency = 1\n",
    );
    for (at, (sets, ways, orders, latency)) in levels.iter().enumerate() {
        let pages: Vec<String> = orders.iter().map(|order| (4096 << order).to_string()).collect();
        let last = software && at + 1 == levels.len();
        text += &format!(
            "[[tlb]]\nlevel = {}\nentries = {}\nways = {ways}\npages = [{}]\nlatency = {latency}\nfill = \"{}\"\n",
            at + 1,
            sets * ways,
            pages.join(", "),
            if last { "software" } else { "hardware" },
        );
    }
    text
}

/// The cycles of a translation, and what is told of it if nobody had it.
fn translate(
    levels: &mut [(naive::tlb::Tlb, &Tlb)],
    page: TlbPage,
    fill: u64,
) -> (u64, Option<Miss>) {
    let (mut cycles, mut victim) = (0, None);
    for (at, (tlb, (_, _, orders, latency))) in levels.iter_mut().enumerate() {
        if !orders.contains(&page.order) {
            continue;
        }
        match tlb.access(page) {
            Ok(()) if at == 0 => return (0, None),
            Ok(()) => return (cycles + latency, None),
            Err(gone) => (cycles, victim) = (cycles + latency, gone),
        }
    }
    let first = |page: TlbPage| page.number << page.order;
    let victim = victim.filter(|gone: &TlbPage| gone.space == page.space);
    let miss = (first(page), page.order, victim.map(|gone| (first(gone), gone.order)));
    (cycles + fill, Some(miss))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Levels that cannot hold a page take no time; software hears of every miss.
    #[test]
    fn translations_cost_what_the_levels_say(
        levels in prop::collection::vec(tlb(), 1..4),
        software in any::<bool>(),
        trap in prop::option::of(0_u64..50),
        pages in prop::collection::vec((0_u16..2, 0_u64..96), 1..400),
    ) {
        // Software fills the last level, and no page size may pass it by.
        let mut levels = levels;
        if software {
            levels.iter_mut().for_each(|level| level.2 = vec![0, 4]);
        }
        let mut system = system(&tlb_machine(&levels, software));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sense = Sense { tlb_miss_cost: trap, ..Sense::default() };
        let shape = |(sets, ways, orders, _): &Tlb| {
            naive::tlb::Tlb::new(*sets, *ways, orders, Replacement::Lru)
        };
        let mut naive: Vec<_> = levels.iter().map(|level| (shape(level), level)).collect();
        // Everything is mapped beforehand, the last third in superpages of 64 KiB.
        for space in 0..2 {
            let all = (0..96_u64).map(|page| Record { space, ..Record::plain(page << 12, AccessKind::Load) });
            let all: Vec<Record> = all.collect();
            all.iter().try_for_each(|record| system.access(0, record)).expect("memory enough");
            for record in &all {
                let page = TlbPage::of(space, VirtAddr(record.address.0).vpn(), 0);
                translate(&mut naive, page, 0);
            }
            for first in [64, 80] {
                system.promote(0, space, Vpn(first), 4).expect("memory in one piece");
                for (tlb, _) in &mut naive {
                    let gone = |page: TlbPage| page.order == 0 && page.number >> 4 == first >> 4;
                    tlb.drop_where(|page| page.space == space && gone(page));
                }
            }
        }
        system.govern(0, Box::new(Listener(heard.clone())), sense).expect("a space");
        system.forget_counts();
        let (mut cycles, mut misses, mut walks) = ([0, 0], Vec::new(), 0);
        for &(space, number) in &pages {
            let order = if number < 64 { 0 } else { 4 };
            let page = TlbPage::of(space, Vpn(number), order);
            let (taken, miss) = translate(&mut naive, page, if software { 40 } else { 17 });
            cycles[usize::from(space)] += taken;
            walks += u64::from(miss.is_some());
            if let Some(miss) = miss.filter(|_| space == 0) {
                cycles[0] += trap.unwrap_or(0);
                misses.extend((software || trap.is_some()).then_some(miss));
            }
            let record = Record { space, ..Record::plain(number << 12, AccessKind::Load) };
            system.access(0, &record).expect("mapped");
        }
        prop_assert_eq!([system.costs(0).tlb_cycles, system.costs(1).tlb_cycles], cycles);
        prop_assert_eq!(system.report().walks, walks);
        prop_assert_eq!(&*heard.lock().expect("one thread"), &misses);
    }
}

fn shape(sets: u64, ways: usize, write: WritePolicy, buffer: Option<(usize, u64, bool)>) -> Shape {
    Shape {
        sets,
        ways,
        line: 32,
        replacement: Replacement::Lru,
        write,
        inclusion: Inclusion::None,
        index: Index::Modulo,
        by_virtual: false,
        victims: 0,
        column: false,
        buffer,
        next_line: None,
        stride: None,
    }
}

fn buffer_machine((entries, retire, merge): (usize, u64, bool)) -> String {
    format!(
        "name = \"any\"\ncores = 2\nmemory = \"64M\"\nmemory_latency = 31\n\
         [[cache]]\nlevel = 1\nsize = \"1K\"\nways = 1\nline = 32\nwrite = \"through-no-allocate\"\n\
         latency = 1\nwrite_buffer = {{ entries = {entries}, retire = {retire}, merge = {merge} }}\n\
         [[cache]]\nlevel = 2\nsize = \"8K\"\nways = 2\nline = 32\nlatency = 6\nshared_by = 2\n"
    )
}

/// The stalls of both cores, by a clock for each that is kept here.
struct Clocks {
    model: Model,
    time: [u64; 2],
    stalls: [u64; 2],
}

impl Clocks {
    fn new(buffer: (usize, u64, bool)) -> Clocks {
        let mut model = Model::default();
        for _ in 0..2 {
            model.add(Level::new(shape(32, 1, WritePolicy::ThroughNoAllocate, Some(buffer)), 1));
        }
        model.add(Level::new(shape(128, 2, WritePolicy::BackAllocate, None), 1));
        model.path(&[0, 2]);
        model.path(&[1, 2]);
        Clocks { model, time: [0; 2], stalls: [0; 2] }
    }

    fn touch(&mut self, core: usize, physical: u64, kind: AccessKind) {
        self.model.now = self.time[core];
        let depth = self.model.access(core, physical, physical, kind);
        let wait = std::mem::take(&mut self.model.extra);
        self.stalls[core] += wait;
        self.time[core] += wait + [0, 5, 30][depth];
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Instructions and stalls in between give a buffer time to drain; each core has its own.
    #[test]
    fn write_buffers_go_by_the_clock_of_their_core(
        buffer in (1_usize..6, 0_u64..20, any::<bool>()),
        accesses in prop::collection::vec(
            (0_usize..2, 0_u64..3 << 12, 1_u8..=40, 0_u16..30, any::<bool>()), 1..500),
    ) {
        let mut system = system(&buffer_machine(buffer));
        let mut clocks = Clocks::new(buffer);
        for (core, address, bytes, instructions, store) in accesses {
            let kind = if store { AccessKind::Store } else { AccessKind::Load };
            let space = u16::try_from(core).expect("two cores");
            let plain = Record::plain(address, kind);
            let record = Record { space, bytes, instructions, ..plain };
            system.access(core, &record).expect("memory enough");
            let mut physical = |address: u64| {
                let at = system.mapping(space, VirtAddr(address).vpn()).expect("touched");
                at.frame().base().0 + address % 4096
            };
            let last = address + u64::from(bytes) - 1;
            clocks.time[core] += u64::from(instructions);
            for line in address / 32..=last / 32 {
                clocks.touch(core, physical(address.max(32 * line)), kind);
            }
            prop_assert_eq!(system.costs(space).buffer_cycles, clocks.stalls[core]);
            prop_assert_eq!(system.cycles(space), clocks.time[core]);
        }
        system.finish();
        system.check().map_err(TestCaseError::fail)?;
    }
}

/// Stores one after the other fill the buffer; with work in between it never stalls.
#[test]
fn a_write_buffer_drains_while_the_program_works() {
    for (instructions, stalls) in [(1, true), (8, false)] {
        let mut system = system(&buffer_machine((4, 5, false)));
        for at in 0..1000 {
            let plain = Record::plain(at * 32 % 1024, AccessKind::Store);
            system.access(0, &Record { instructions, ..plain }).expect("memory enough");
        }
        assert_eq!(system.costs(0).buffer_cycles > 0, stalls, "{instructions} instructions");
    }
}

/// A walk reads its group from memory once, later from the second level; the group's page and
/// those of programs have frames of their own.
#[test]
fn walks_of_a_hashed_table_go_through_the_caches() {
    let mut system = system(
        "name = \"any\"\nmemory = \"64M\"\nmemory_latency = 300\nwalk_latency = 126\n\
         walk = { table = \"hashed\", from = 2 }\n\
         [[cache]]\nlevel = 1\nsize = \"4K\"\nways = 1\nline = 128\nlatency = 2\n\
         [[cache]]\nlevel = 2\nsize = \"512K\"\nways = 8\nline = 128\nlatency = 12\n\
         [[tlb]]\nlevel = 1\nentries = 1\nways = 1\n",
    );
    let pages: Vec<Record> =
        (0..10).map(|i| Record::plain((i % 2) * 4224, AccessKind::Load)).collect();
    system.run(0, &pages).expect("memory enough");
    assert_eq!(system.costs(0).tlb_cycles, 2 * (126 + 298) + 8 * (126 + 10));
    let report = system.report();
    let pages = report.spaces[0].pages;
    // A group of 128 bytes for every two of 16,384 frames.
    assert_eq!((report.walks, pages, report.frames_used), (10, 2, 2 + 256));
    assert_eq!(report.caches[0].1.total(), 10, "the first level sees no walk");
    assert_eq!(report.caches[1].1.total(), 12);
    system.check().expect("every frame has one owner");
}

/// Memory full of file pages: tables get frames all the same.
#[test]
fn file_pages_make_way_for_page_tables() {
    let text = include_str!("../small.toml").replacen("cores = 2", "cores = 2\nwalk = {}", 1);
    let mut system = system(&text);
    system.use_files(0, 0).expect("a space");
    let blocks = (0..5000).map(|at| huepage_sim::workloads::FileNumber(1).address(at << 12).0);
    let blocks: Vec<Record> = blocks.map(|at| Record::plain(at, AccessKind::Load)).collect();
    system.run(0, &blocks).expect("the page cache makes way for itself");
    let before = system.costs(0).file_evictions;
    // Far apart: each page needs tables of its own but the root, which both share.
    let pages: Vec<Record> = (0..2).map(|at| Record::plain(at << 39, AccessKind::Load)).collect();
    system.run(0, &pages).expect("memory enough");
    assert_eq!(system.costs(0).file_evictions - before, 2 + 1 + 2 * 3);
    assert_eq!(system.report().frames_used, 4096);
    system.check().expect("every frame has one owner");
}

/// A machine of two cores that share nothing but memory.
fn pair() -> System {
    system(
        "name = \"pair\"\ncores = 2\nmemory = \"64M\"\nmemory_latency = 101\n\
         [[cache]]\nlevel = 1\nsize = \"4K\"\nways = 1\nlatency = 1\n",
    )
}

/// Lines in a row of a space, each for the first time.
fn lines(space: u16, first: u64, count: u64) -> Vec<Record> {
    let record = |line| Record { space, ..Record::plain(line << 6, AccessKind::Load) };
    (first..first + count).map(record).collect()
}

#[test]
fn what_a_program_hides_of_memory_costs_nothing() {
    let mut whole = pair();
    whole.run(0, &lines(0, 0, 1000)).expect("memory enough");
    assert_eq!(whole.costs(0).stall_cycles(), 100_000);
    let mut hides = pair();
    hides
        .wait_for(0, MemoryWait { memory: 25, ..MemoryWait::default() })
        .expect("a space that can be");
    hides.run(0, &lines(0, 0, 1000)).expect("memory enough");
    assert_eq!(hides.costs(0).stall_cycles(), 25_000);
    let same = |system: &System| (system.costs(0).memory, system.costs(0).instructions);
    assert_eq!(same(&hides), same(&whole));
}

#[test]
fn hits_beyond_the_nearest_cache_have_a_share_of_their_own() {
    let mut system = system(
        "name = \"two\"\nmemory = \"64M\"\nmemory_latency = 101\n\
         [[cache]]\nlevel = 1\nsize = \"4K\"\nways = 1\nlatency = 1\n\
         [[cache]]\nlevel = 2\nsize = \"64K\"\nways = 4\nlatency = 11\n",
    );
    system
        .wait_for(0, MemoryWait { caches: 50, ..MemoryWait::default() })
        .expect("a space that can be");
    for _ in 0..3 {
        system.run(0, &lines(0, 0, 256)).expect("memory enough");
    }
    assert_eq!(system.costs(0).miss_cycles[..2], [2 * 256 * 5, 256 * 100]);
}

#[test]
fn lines_of_files_have_a_share_of_their_own() {
    let mut system = pair();
    system.use_files(0, 0).expect("a space that can be");
    system
        .wait_for(0, MemoryWait { files: 10, ..MemoryWait::default() })
        .expect("a space that can be");
    let file = FileNumber(0).address(0).0 >> 6;
    system.run(0, &lines(0, file, 64)).expect("memory enough");
    system.run(0, &lines(0, 0, 64)).expect("memory enough");
    assert_eq!(system.costs(0).stall_cycles(), 64 * 10 + 64 * 100);
}

#[test]
fn a_bus_makes_cores_wait_for_each_other() {
    let mut system = pair();
    system.share_bus(40);
    system.run(0, &lines(0, 0, 1000)).expect("memory enough");
    let alone = system.costs(0).stall_cycles();
    assert_eq!(alone, 100_000, "nobody else asks");
    assert_eq!(system.memory_cycles(0), alone);
    for turn in 1..20 {
        system.run(1, &lines(1, 1 << 20 | turn << 10, 1000)).expect("memory enough");
        system.run(0, &lines(0, turn << 10, 1000)).expect("memory enough");
    }
    let both = system.costs(0).stall_cycles();
    // A line in 101 cycles: the bus is busy for two fifths of the time, and a line waits for a third of another.
    let more = both as f64 / (20.0 * alone as f64);
    assert!((1.08..1.14).contains(&more), "{more}");
}
