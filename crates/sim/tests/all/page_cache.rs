//! The page cache against a naive model, and machines whose programs use files: who shares
//! what, what makes way for whom, what a policy hears and can place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use huepage_color::{Color, ColorSet, Pfn, Vpn};
use huepage_policy::{Action, Event, MoveRefusal, Policy};
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::feedback::Sense;
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::pagecache::{FilePage, PageCache, PageReplacement, Standing};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::{System, file_number};
use huepage_sim::workloads::FileNumber;
use proptest::prelude::*;

const SMALL: &str = include_str!("../small.toml");
const COLORS: u16 = 4;

/// The lists as vectors, the oldest page first; everything by searching.
#[derive(Default)]
struct Naive {
    lru: bool,
    active: Vec<Row>,
    inactive: Vec<Row>,
    zone: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    page: (u64, u64),
    frame: u64,
    referenced: bool,
    dirty: bool,
}

impl Row {
    const fn color(self) -> u64 {
        self.frame % COLORS as u64
    }
}

fn color_of(frame: u64) -> Color {
    Color(u16::try_from(frame % u64::from(COLORS)).expect("few colours"))
}

fn take(list: &mut Vec<Row>, which: impl Fn(&Row) -> bool) -> Option<Row> {
    list.iter().position(which).map(|at| list.remove(at))
}

impl Naive {
    fn find(&mut self, page: (u64, u64)) -> Option<u64> {
        let mine = |row: &Row| row.page == page;
        if let Some(row) = self.active.iter_mut().find(|row| mine(row)) {
            row.referenced = true;
            return Some(row.frame);
        }
        if let Some(row) = self.inactive.iter_mut().find(|row| mine(row))
            && !row.referenced
            && !self.lru
        {
            row.referenced = true;
            return Some(row.frame);
        }
        let mut row = take(&mut self.inactive, mine).or_else(|| take(&mut self.zone, mine))?;
        let frame = row.frame;
        if row.referenced && !self.lru {
            row.referenced = false;
            self.active.push(row);
        } else {
            row.referenced = !self.lru;
            self.inactive.push(row);
        }
        Some(frame)
    }

    fn enter(&mut self, page: (u64, u64), frame: u64) {
        self.inactive.push(Row { page, frame, referenced: true, dirty: false });
    }

    fn balance(&mut self) {
        while self.active.len() > self.inactive.len() {
            let row = self.active.remove(0);
            self.inactive.push(row);
        }
    }

    fn evict(&mut self) -> Option<Row> {
        if !self.zone.is_empty() {
            return Some(self.zone.remove(0));
        }
        self.balance();
        (!self.inactive.is_empty()).then(|| self.inactive.remove(0))
    }

    fn evict_color(&mut self, color: u64) -> Option<Row> {
        take(&mut self.zone, |row| row.color() == color).or_else(|| {
            self.balance();
            take(&mut self.inactive, |row| row.color() == color)
        })
    }

    fn refill(&mut self, threshold: usize) {
        let has = |zone: &[Row], color| zone.iter().filter(|row| row.color() == color).count();
        while (0..u64::from(COLORS)).any(|color| has(&self.zone, color) <= threshold) {
            self.balance();
            if self.inactive.is_empty() {
                return;
            }
            self.zone.push(self.inactive.remove(0));
        }
    }

    fn lists(&mut self) -> [&mut Vec<Row>; 3] {
        [&mut self.active, &mut self.inactive, &mut self.zone]
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Found, or entered.
    Use(u64, u64, bool),
    Evict,
    EvictColor(u64),
    Remove(u64, u64),
    RemoveFile(u64),
    Refill(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let page = || (0_u64..4, 0_u64..24);
    prop_oneof![
        20 => (page(), any::<bool>()).prop_map(|((f, b), w)| Step::Use(f, b, w)),
        4 => Just(Step::Evict),
        2 => (0..u64::from(COLORS)).prop_map(Step::EvictColor),
        1 => page().prop_map(|(f, b)| Step::Remove(f, b)),
        1 => (0_u64..4).prop_map(Step::RemoveFile),
        1 => (0_usize..5).prop_map(Step::Refill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lists_agree_with_a_naive_model(
        lru in any::<bool>(), steps in prop::collection::vec(step(), 0..400),
    ) {
        let replacement =
            if lru { PageReplacement::Lru } else { PageReplacement::ActiveInactive };
        let mut real = PageCache::new(replacement, COLORS);
        let mut naive = Naive { lru, ..Naive::default() };
        let mut next = 0;
        let row = |gone: Option<huepage_sim::pagecache::Cached>| {
            gone.map(|gone| ((gone.page.file, gone.page.block), gone.frame.0, gone.dirty))
        };
        let plain = |row: Option<Row>| row.map(|row| (row.page, row.frame, row.dirty));
        for step in steps {
            match step {
                Step::Use(file, block, write) => {
                    let page = FilePage { file, block };
                    let found = real.find(page);
                    prop_assert_eq!(found.map(|frame| frame.0), naive.find((file, block)));
                    if found.is_none() {
                        let color = color_of(next);
                        real.enter(page, Pfn(next), Some(color));
                        naive.enter((file, block), next);
                        next += 1;
                    }
                    if write {
                        real.soil(page);
                        let rows = naive.lists().into_iter().flatten();
                        rows.filter(|row| row.page == (file, block)).for_each(|r| r.dirty = true);
                    }
                }
                Step::Evict => prop_assert_eq!(row(real.evict()), plain(naive.evict())),
                Step::EvictColor(color) => {
                    let gone = real.evict_color(color_of(color));
                    prop_assert_eq!(row(gone), plain(naive.evict_color(color)));
                }
                Step::Remove(file, block) => {
                    let gone = real.remove(FilePage { file, block });
                    let lists = naive.lists().into_iter();
                    let mut rows = lists.filter_map(|l| take(l, |r| r.page == (file, block)));
                    prop_assert_eq!(row(gone), plain(rows.next()));
                }
                Step::RemoveFile(file) => {
                    let gone = real.remove_file(file).len();
                    let mut dropped = 0;
                    for list in naive.lists() {
                        let before = list.len();
                        list.retain(|row| row.page.0 != file);
                        dropped += before - list.len();
                    }
                    prop_assert_eq!(gone, dropped);
                }
                Step::Refill(threshold) => {
                    real.refill(threshold as u64, &[]);
                    naive.refill(threshold);
                }
            }
            real.check().map_err(TestCaseError::fail)?;
            let inactive: Vec<u64> = real.inactive().map(|page| page.frame.0).collect();
            let wanted: Vec<u64> = naive.inactive.iter().map(|row| row.frame).collect();
            prop_assert_eq!(inactive, wanted);
            let (active, zone) = (real.lengths().0, real.zone());
            prop_assert_eq!(active, naive.active.len() as u64);
            prop_assert_eq!(zone.iter().sum::<u64>(), naive.zone.len() as u64);
        }
    }
}

fn experiment(keys: &str) -> Experiment {
    // Keys of the machine come before its first table.
    let text = SMALL.replacen("\n\n[[cache]]", &format!("\n{keys}\n[[cache]]"), 1);
    Experiment {
        machine: Machine::parse(&text).expect("a sound machine"),
        level: None,
        mapping: FrameMapping::Random(3),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    }
}

fn system(keys: &str, programs: u16) -> System {
    let mut system = experiment(keys).build().expect("a sound experiment");
    (0..programs).for_each(|space| system.use_files(space, 0).expect("a space"));
    system
}

fn record(space: u16, address: u64, kind: AccessKind) -> Record {
    Record { space, bytes: 16, ..Record::plain(address, kind) }
}

fn block(space: u16, file: u32, block: u64, kind: AccessKind) -> Vec<Record> {
    let at = FileNumber(file).address(block * 4096).0;
    (0..4).map(|i| record(space, at + i * 16, kind)).collect()
}

/// Loads of the beginnings of blocks.
fn read(space: u16, file: u32, blocks: impl Iterator<Item = u64>) -> Vec<Record> {
    blocks.flat_map(|number| block(space, file, number, AccessKind::Load)).collect()
}

#[test]
fn a_page_is_shared_by_all_programs_and_pieces_of_it_are_one_use() {
    let mut system = system("page_cache = { miss_latency = 1000 }", 2);
    for space in [0, 1, 0] {
        system.run(0, &read(space, 7, 0..10)).expect("memory enough");
    }
    let (one, other) = (system.costs(0), system.costs(1));
    assert_eq!((one.file_misses, one.file_hits), (10, 10));
    assert_eq!((other.file_misses, other.file_hits), (0, 10));
    assert_eq!((one.file_cycles, other.file_cycles), (10_000, 0));
    assert_eq!(one.cycles(), one.instructions + one.stall_cycles() + 10_000);
    let report = system.report();
    assert_eq!(report.frames_used, 10, "one frame per block, none for the programs");
    let ratios: Vec<_> = report.spaces.iter().map(|s| s.file_hit_ratio).collect();
    assert_eq!(ratios, [Some(0.5), Some(1.0)]);
    let cache = report.page_cache.expect("files were used");
    assert_eq!((cache.pages, cache.dirty, cache.active), (10, 0, 10));
    assert_eq!(cache.pages_by_color.iter().sum::<u64>(), 10);
    assert_eq!(report.tlbs[0].1.accesses, 0, "the direct map needs no translations");
    system.check().expect("every frame has one owner");
}

/// Without being told of files the machine takes the same addresses for memory, as it must for
/// traces: programs are loaded there.
#[test]
fn addresses_are_memory_unless_a_program_has_files() {
    let mut system = system("", 0);
    system.run(0, &read(0, 0x1555, 0..10)).expect("memory enough");
    let report = system.report();
    assert_eq!((report.spaces[0].pages, report.page_cache), (10, None));
    assert_eq!(report.spaces[0].file_hit_ratio, None);
}

/// A bound of 8 pages: a scan evicts what was used once, not what was used twice; under plain
/// LRU it evicts everything.
#[test]
fn a_scan_leaves_active_pages_alone() {
    for (replacement, kept) in [("active-inactive", 3), ("lru", 0)] {
        let keys = format!("page_cache = {{ size = \"32K\", replacement = \"{replacement}\" }}");
        let mut system = system(&keys, 1);
        for _ in 0..2 {
            system.run(0, &read(0, 1, 0..3)).expect("memory enough");
        }
        system.run(0, &read(0, 2, 0..100)).expect("memory enough");
        assert_eq!(system.page_cache().len(), 8);
        let hot = (0..3).filter(|&block| {
            let page = FilePage { file: file_number(0, FileNumber(1)), block };
            system.page_cache().get(page).is_some_and(|at| at.standing == Standing::Active)
        });
        assert_eq!(hot.count(), kept, "{replacement}");
        let costs = system.costs(0);
        assert_eq!(costs.file_misses - costs.file_evictions, 8);
        assert_eq!(costs.file_writes, 0);
        system.check().expect("every frame has one owner");
    }
}

#[test]
fn dirty_pages_are_written_before_their_frames_are_used_again() {
    let keys = "page_cache = { size = \"16K\", miss_latency = 500, write_latency = 300 }";
    let mut system = system(keys, 1);
    let whole: Vec<Record> = (0..4).flat_map(|at| block(0, 1, at, AccessKind::Store)).collect();
    system.run(0, &whole).expect("memory enough");
    let costs = system.costs(0);
    assert_eq!((costs.file_misses, costs.file_cycles), (4, 0), "whole blocks are not read first");
    assert_eq!(system.report().page_cache.map(|cache| cache.dirty), Some(4));
    // In the middle of a block: what surrounds it has to be read.
    let part = record(0, FileNumber(2).address(64).0, AccessKind::Store);
    system.run(0, &[part]).expect("memory enough");
    system.run(0, &read(0, 3, 0..2)).expect("memory enough");
    let costs = system.costs(0);
    assert_eq!((costs.file_evictions, costs.file_writes), (3, 3));
    assert_eq!(costs.file_cycles, 3 * 500 + 3 * 300);
    // What is deleted is never written.
    assert_eq!(system.delete_file(file_number(0, FileNumber(2))), 1);
    assert_eq!(system.delete_file(file_number(0, FileNumber(1))), 1);
    assert_eq!(system.costs(0), costs);
    assert_eq!(system.report().frames_used, 2);
    system.check().expect("every frame has one owner");
}

/// Programs that need memory get it from the page cache, to the last frame; then it is over.
#[test]
fn file_pages_make_way_for_memory() {
    for choice in [Choice::InOrder, Choice::Random(5), Choice::BinHopping, Choice::Reservation(5)] {
        let mut system = system("", 1);
        system.frames_mut().choose_for(0, choice.clone());
        system.run(0, &read(0, 1, 0..5000)).expect("the page cache makes way for itself");
        assert_eq!(system.report().frames_used, 4096);
        let pages: Vec<Record> = (0..4096).map(|p| record(0, p << 12, AccessKind::Store)).collect();
        system.run(0, &pages).expect("as many pages as frames");
        assert!(system.page_cache().is_empty(), "{choice:?}");
        assert_eq!(system.costs(0).file_evictions, 5000);
        system.check().unwrap_or_else(|what| panic!("{choice:?}: {what}"));
        let error = system.run(0, &read(0, 1, 0..1)).expect_err("no frame is left");
        assert_eq!(error.to_string(), "all 4096 frames are in use; give the machine more memory");
        system.check().unwrap_or_else(|what| panic!("{choice:?}: {what}"));
    }
}

/// Memory full of file pages: a program in a partition still gets its colours, and file pages
/// of these go, not others.
#[test]
fn colours_are_reclaimed_where_colours_are_chosen() {
    let mut system = system("", 1);
    system.run(0, &read(0, 1, 0..5000)).expect("the page cache makes way for itself");
    let set = ColorSet::parse("2,5", 8).expect("colours");
    system.frames_mut().choose_for(0, Choice::Partition(set));
    let pages: Vec<Record> = (0..600).map(|p| record(0, p << 12, AccessKind::Load)).collect();
    system.run(0, &pages).expect("memory enough");
    let report = system.report();
    assert_eq!(report.spaces[0].pages_by_color, [0, 0, 300, 0, 0, 300, 0, 0]);
    assert_eq!(report.frames_outside, 0);
    let files = report.page_cache.expect("files were used").pages_by_color;
    assert_eq!(files, [512, 512, 212, 512, 512, 212, 512, 512]);
    system.recolor(0, 0, Vpn(0), Color(6)).expect("a file page of the colour makes way");
    assert_eq!(system.report().page_cache.expect("files").pages_by_color[6], 511);
    let at = FileNumber(1).address(4096 * 4999).vpn();
    assert_eq!(system.recolor(0, 0, at, Color(1)), Err(MoveRefusal::File));
    system.check().expect("every frame has one owner");
}

/// By file, else by the program that asks, else as memory lies that nobody chose for.
#[test]
fn files_lie_where_they_are_placed() {
    let mut system = system("", 2);
    let set = |text: &str| Some(Choice::Partition(ColorSet::parse(text, 8).expect("colours")));
    system.frames_mut().choose_for_files_of(0, set("3"));
    system.frames_mut().choose_for_file(file_number(0, FileNumber(9)), set("0-1"));
    let colors = |system: &mut System, space: u16, file: u32| {
        system.run(0, &read(space, file, 0..40)).expect("memory enough");
        let number = file_number(0, FileNumber(file));
        let mut seen = [0; 8];
        let pages = system.page_cache().pages().filter(|page| page.page.file == number);
        pages.for_each(|page| seen[usize::from(page.color.expect("known").0)] += 1);
        seen
    };
    assert_eq!(colors(&mut system, 0, 1), [0, 0, 0, 40, 0, 0, 0, 0]);
    assert_eq!(colors(&mut system, 0, 9), [20, 20, 0, 0, 0, 0, 0, 0]);
    assert_eq!(colors(&mut system, 1, 9), [20, 20, 0, 0, 0, 0, 0, 0], "there already");
    assert!(colors(&mut system, 1, 2).iter().filter(|&&n| n > 0).count() > 4, "anywhere");
    system.frames_mut().choose_for_files_of(0, None);
    assert!(colors(&mut system, 0, 3).iter().filter(|&&n| n > 0).count() > 4, "anywhere again");
}

/// SRM-buffer's zone: filled from the old end, still found, next to go, and never short of a
/// colour while inactive pages are left.
#[test]
fn the_coloured_zone_shares_one_order_with_the_lists() {
    let mut system = system("", 1);
    system.run(0, &read(0, 1, 0..4096)).expect("memory enough");
    assert_eq!(system.stock_by_color(), [0; 8], "no frame is free");
    let moved = system.refill_zone(9);
    let stock = system.stock_by_color();
    assert!(stock.iter().all(|&n| n >= 10) && stock.contains(&10), "{stock:?}");
    assert_eq!(stock.iter().sum::<u64>(), moved);
    let page = |block| FilePage { file: file_number(0, FileNumber(1)), block };
    let in_zone = |system: &System, block| {
        system.page_cache().get(page(block)).map(|at| at.standing == Standing::Zone)
    };
    assert!((0..moved).all(|block| in_zone(&system, block) == Some(true)), "the oldest");
    // A hit brings it back; what goes first is the oldest of the zone.
    system.run(0, &read(0, 1, 0..1)).expect("memory enough");
    assert_eq!(in_zone(&system, 0), Some(false));
    system.run(0, &[record(0, 0, AccessKind::Load)]).expect("memory enough");
    assert_eq!((in_zone(&system, 1), in_zone(&system, 2)), (None, Some(true)));
    // Of a colour, it is the oldest of the zone's list.
    let color = system.page_cache().get(page(2)).and_then(|at| at.color).expect("known");
    let only = ColorSet::from_colors([color], 8).expect("a colour");
    system.frames_mut().choose_for(0, Choice::Partition(only));
    system.run(0, &[record(0, 4096, AccessKind::Load)]).expect("memory enough");
    assert_eq!(in_zone(&system, 2), None);
    assert!(system.reclaim(0, page(3)), "one in particular");
    assert!(!system.reclaim(0, page(3)));
    assert_eq!(system.stock_by_color().iter().sum::<u64>(), moved - 3, "one is free now");
    system.check().expect("every frame has one owner");
}

type Heard = Arc<Mutex<Vec<(u64, u64)>>>;

struct Listener(Heard);

impl Policy for Listener {
    fn handle(&mut self, event: Event, _: &mut Vec<Action>) {
        if let Event::FileMiss { file, block, .. } = event {
            self.0.lock().expect("one thread").push((file, block));
        }
    }
}

#[test]
fn policies_hear_of_every_block_that_was_missing() {
    let mut system = system("page_cache = { size = \"16K\" }", 2);
    let heard = Heard::default();
    let sense = Sense { file_miss_cost: 11, ..Sense::default() };
    system.govern(0, Box::new(Listener(heard.clone())), sense).expect("a space");
    system.run(0, &read(0, 5, 0..6)).expect("memory enough");
    system.run(0, &read(1, 5, 0..6)).expect("memory enough");
    system.run(0, &read(0, 5, 5..6)).expect("memory enough");
    let file = file_number(0, FileNumber(5));
    let wanted: Vec<_> = (0..6).map(|block| (file, block)).collect();
    assert_eq!(*heard.lock().expect("one thread"), wanted, "its own, each once, in order");
    assert_eq!(system.costs(0).policy_cycles, 66);
}

/// What programs that use files should be charged where memory is never short.
struct Counts {
    cache: Naive,
    /// File, block, offset and end of the latest access of a program to a file.
    positions: Vec<(u16, u32, u64, u64)>,
    /// Hits, misses, evictions and writes of each program.
    sums: [[u64; 4]; 3],
    cycles: [u64; 3],
    frames: u64,
}

impl Counts {
    fn new(lru: bool) -> Counts {
        let cache = Naive { lru, ..Naive::default() };
        let (sums, cycles) = ([[0; 4]; 3], [0; 3]);
        Counts { cache, positions: Vec::new(), sums, cycles, frames: 0 }
    }

    fn access(&mut self, record: &Record, bound: u64) {
        let (first, end) = (record.address.0, record.address.0 + u64::from(record.bytes));
        let write = record.kind == AccessKind::Store;
        self.touch(record.space, first, end, write, bound);
        if first / 64 != (end - 1) / 64 {
            self.touch(record.space, end - 1, end, write, bound);
        }
    }

    fn touch(&mut self, space: u16, at: u64, end: u64, write: bool, bound: u64) {
        let at = huepage_color::VirtAddr(at);
        let Some((FileNumber(file), offset)) = FileNumber::of(at).filter(|_| space < 2) else {
            return;
        };
        let (end, page) = (offset + end - at.0, (u64::from(file), offset / 4096));
        let mine = self.positions.iter().position(|p| (p.0, p.1) == (space, file));
        let before = mine.map(|at| self.positions.remove(at));
        self.positions.push((space, file, offset, end));
        let goes_on = before
            .is_some_and(|(_, _, from, to)| from / 4096 == page.1 && from < offset && offset <= to);
        let who = usize::from(space);
        if !self.cache.lists().into_iter().flatten().any(|row| row.page == page) {
            self.miss(who, page, write && offset % 4096 == 0, bound);
        } else if !goes_on {
            self.cache.find(page);
            self.sums[who][0] += 1;
        }
        let rows = self.cache.lists().into_iter().flatten();
        rows.filter(|row| row.page == page).for_each(|row| row.dirty |= write);
    }

    fn miss(&mut self, who: usize, page: (u64, u64), fresh: bool, bound: u64) {
        let there: usize = self.cache.lists().iter().map(|list| list.len()).sum();
        if there as u64 == bound {
            let gone = self.cache.evict().expect("it is full");
            self.sums[who][2] += 1;
            self.sums[who][3] += u64::from(gone.dirty);
            self.cycles[who] += if gone.dirty { 9 } else { 0 };
        }
        self.sums[who][1] += 1;
        self.cycles[who] += if fresh { 0 } else { 70 };
        self.cache.enter(page, self.frames);
        self.frames += 1;
    }
}

/// An access to a file, or to memory.
#[derive(Clone, Debug)]
struct Access {
    space: u16,
    place: Result<(u32, u64), u64>,
    bytes: u8,
    kind: AccessKind,
}

fn access() -> impl Strategy<Value = Access> {
    // Few places, so that one access often goes on where another ended.
    let offset = prop_oneof![(0_u64..6).prop_map(|at| at * 16), 0_u64..4096];
    let file = (0_u32..3, 0_u64..20, offset).prop_map(|(f, b, at)| Ok((f, b << 12 | at)));
    let place = prop_oneof![file, (0_u64..60 << 12).prop_map(Err)];
    let kind = prop::sample::select(vec![AccessKind::Load, AccessKind::Load, AccessKind::Store]);
    (0_u16..3, place, 1_u8..=64, kind).prop_map(|(space, place, bytes, kind)| Access {
        space,
        place,
        bytes,
        kind,
    })
}

fn to_record(access: &Access) -> Record {
    let address = match access.place {
        Ok((file, offset)) => FileNumber(file).address(offset).0,
        Err(address) => address,
    };
    Record { space: access.space, bytes: access.bytes, ..Record::plain(address, access.kind) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// And both as the naive model says, where memory is never short.
    #[test]
    fn files_in_batches_come_out_as_one_by_one(
        accesses in prop::collection::vec(access(), 0..1500),
        pages in prop::sample::select(vec![1_u64, 2, 7, 30, 4000]),
        lru in any::<bool>(),
        mapping in prop::sample::select(vec![FrameMapping::InOrder, FrameMapping::Random(2), FrameMapping::BinHopping]),
        memory in prop::sample::select(vec!["16M", "512K"]),
    ) {
        let replacement = if lru { "lru" } else { "active-inactive" };
        let keys = format!(
            "page_cache = {{ size = {}, miss_latency = 70, write_latency = 9, replacement = \"{replacement}\" }}",
            pages << 12
        );
        let mut experiment = experiment(&keys);
        experiment.mapping = mapping;
        experiment.set("memory", memory).expect("a size");
        let build = || {
            let mut system = experiment.build().expect("a sound experiment");
            // The third program's addresses are memory.
            (0..2).for_each(|space| system.use_files(space, 0).expect("a space"));
            system
        };
        let (mut batches, mut singles) = (build(), build());
        let records: Vec<Record> = accesses.iter().map(to_record).collect();
        let mut done = Ok(());
        for part in records.chunks(700) {
            done = done.and_then(|()| batches.run(0, part));
        }
        let single = records.iter().try_for_each(|record| singles.access(0, record));
        prop_assert_eq!(&done, &single);
        if done.is_ok() {
            prop_assert_eq!(batches.report(), singles.report());
        }
        if memory == "16M" {
            let mut counts = Counts::new(lru);
            records.iter().for_each(|record| counts.access(record, pages));
            for space in 0..3_u16 {
                let costs = singles.costs(space);
                let found =
                    [costs.file_hits, costs.file_misses, costs.file_evictions, costs.file_writes];
                prop_assert_eq!(found, counts.sums[usize::from(space)]);
                prop_assert_eq!(costs.file_cycles, counts.cycles[usize::from(space)]);
            }
        }
        batches.check().map_err(TestCaseError::fail)?;
        singles.check().map_err(TestCaseError::fail)?;
        let (mut misses, mut gone) = (0, 0);
        for space in 0..3 {
            let costs = singles.costs(space);
            prop_assert!(costs.file_writes <= costs.file_evictions);
            misses += costs.file_misses;
            gone += costs.file_evictions;
        }
        prop_assert_eq!(misses - gone, singles.page_cache().len());
        prop_assert!(singles.page_cache().len() <= pages);
    }
}

/// Read-ahead in memory without end, worked out block by block.
#[derive(Default)]
struct Ahead {
    there: BTreeSet<(u32, u64)>,
    last: BTreeMap<(u16, u32), u64>,
    windows: BTreeMap<(u16, u32), (u64, u64)>,
    waits: [u64; 2],
}

const FILE_BLOCKS: u64 = 60;

impl Ahead {
    fn read(&mut self, (space, file): (u16, u32), block: u64, most: u64) {
        let before = self.last.insert((space, file), block);
        if self.there.contains(&(file, block)) {
            return;
        }
        self.waits[usize::from(space)] += 1;
        let goes_on = before.is_some_and(|before| before + 1 == block);
        let size = match self.windows.get(&(space, file)) {
            Some(&(size, end)) if size > 1 && end == block => 2 * size,
            _ if block == 0 || goes_on => 4,
            _ => 1,
        };
        let size = size.min(most.max(1));
        let end = (block + size).min(FILE_BLOCKS);
        self.windows.insert((space, file), (size, end));
        self.there.extend((block..end).map(|block| (file, block)));
    }
}

proptest! {
    #[test]
    fn files_are_read_ahead_as_far_as_the_naive_model_says(
        runs in prop::collection::vec(((0_u16..2, 0_u32..2), 0..FILE_BLOCKS, 1_u64..30), 0..40),
        most in prop::sample::select(vec![0_u64, 1, 2, 5, 32]),
    ) {
        let keys = format!("page_cache = {{ miss_latency = 10, read_ahead = {most} }}");
        let mut system = system(&keys, 2);
        (0..2).for_each(|file| {
            system.set_file_size(file_number(0, FileNumber(file)), FILE_BLOCKS << 12);
        });
        let mut naive = Ahead::default();
        for (who, first, count) in runs {
            for block in first..(first + count).min(FILE_BLOCKS) {
                system.run(0, &read(who.0, who.1, block..block + 1)).expect("memory enough");
                naive.read(who, block, most);
            }
        }
        let cached: BTreeSet<_> =
            system.page_cache().pages().map(|there| (there.page.file, there.page.block)).collect();
        let wanted: BTreeSet<_> = naive.there.iter().map(|&(f, b)| (u64::from(f), b)).collect();
        prop_assert_eq!(cached, wanted);
        for space in 0..2_u16 {
            prop_assert_eq!(system.costs(space).file_cycles, 10 * naive.waits[usize::from(space)]);
        }
        system.check().map_err(TestCaseError::fail)?;
    }
}

/// A page cache of three pages under a window of 32 blocks: what was asked for is there at the end.
#[test]
fn what_is_read_ahead_does_not_take_the_frame_that_is_asked_for() {
    let mut system = system("page_cache = { size = \"12K\", read_ahead = 32 }", 1);
    system.set_file_size(file_number(0, FileNumber(1)), 64 << 12);
    for number in 0..64 {
        system.run(0, &read(0, 1, number..number + 1)).expect("memory enough");
        let asked = FilePage { file: file_number(0, FileNumber(1)), block: number };
        assert!(system.page_cache().get(asked).is_some(), "{number}");
    }
    system.check().expect("every frame has one owner");
}
