//! Whole machines: batches against single accesses, partitions, paging and policies.

use huepage_color::{Color, ColorSet, VirtAddr, Vpn};
use huepage_policy::{Action, Event, Policy, StaticPartition};
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::frames::Choice;
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::{CopyCost, System};
use proptest::prelude::*;

const SMALL: &str = include_str!("../small.toml");

fn experiment(machine: &str) -> Experiment {
    Experiment {
        machine: Machine::parse(machine).expect("a sound machine"),
        level: None,
        mapping: FrameMapping::Random(3),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    }
}

fn system(machine: &str) -> System {
    experiment(machine).build().expect("a sound experiment")
}

fn load(space: u16, address: u64) -> Record {
    Record { space, ..Record::plain(address, AccessKind::Load) }
}

fn record() -> impl Strategy<Value = Record> {
    let kind = prop_oneof![8 => Just(AccessKind::Load), 4 => Just(AccessKind::Store), 1 => Just(AccessKind::Fetch)];
    (0_u64..1 << 19, 0_u16..3, prop_oneof![9 => 1_u8..=70, 1 => 71_u8..], 0_u16..5, kind).prop_map(
        |(at, space, bytes, instructions, kind)| Record {
            address: VirtAddr(at * 3),
            space,
            thread: 0,
            instructions,
            bytes,
            kind,
        },
    )
}

/// A machine of some levels of LRU, or one that cannot be run in stages.
fn machine() -> impl Strategy<Value = String> {
    let ways = || prop::sample::select(vec![1_u32, 2, 3, 4, 8, 12, 16]);
    let replacement = prop::sample::select(vec!["lru", "lru", "lru", "random", "nru"]);
    let inclusion = prop::sample::select(vec!["none", "none", "none", "inclusive", "exclusive"]);
    (ways(), ways(), ways(), 1_u32..=3, ways(), replacement, inclusion).prop_map(
        |(w1, w2, w3, levels, tlb, replacement, inclusion)| {
            let mut text = String::from("name = \"any\"\nmemory = \"64M\"\nmemory_latency = 90\n");
            for (level, ways, sets) in [(1, w1, 8_u32), (2, w2, 128), (3, w3, 256)] {
                if level > levels {
                    break;
                }
                let size = ways * sets * 64;
                text += &format!("[[cache]]\nlevel = {level}\nsize = {size}\nways = {ways}\nlatency = {}\n", 4 * level);
                if level > 1 {
                    text += &format!("replacement = \"{replacement}\"\ninclusion = \"{inclusion}\"\n");
                }
            }
            text + &format!("[[tlb]]\nlevel = 1\nentries = {}\nways = {tlb}\n[[tlb]]\nlevel = 2\nentries = 32\nways = 0\nlatency = 5\n", tlb * 4)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn batches_come_out_as_single_accesses_do(
        machine in machine(),
        records in prop::collection::vec(record(), 0..3000),
    ) {
        let (mut batches, mut singles) = (system(&machine), system(&machine));
        for part in records.chunks(1100) {
            batches.run(0, part).expect("memory enough");
            part.iter().try_for_each(|r| singles.access(0, r)).expect("memory enough");
        }
        prop_assert_eq!(batches.report(), singles.report());
        batches.check().map_err(TestCaseError::fail)?;
        let n: u64 = batches.report().spaces.iter().map(|s| s.costs.accesses).sum();
        prop_assert_eq!(n, records.len() as u64);
    }
}

#[test]
fn an_access_asks_for_every_line_that_it_touches() {
    for (line, asked) in [(32, 9), (64, 5), (128, 3)] {
        let machine = SMALL.replace("[[cache]]", &format!("[[cache]]\nline = {line}"));
        let mut one = system(&machine);
        // 24 bytes of a line, and the rest in lines behind it, across the end of a page.
        let record = Record { bytes: 255, ..load(0, 2 * 4096 - 24) };
        one.run(0, &[record, record]).expect("memory enough");
        let level = one.report().caches[0].1;
        let counted = (level.total(), level.missed());
        assert_eq!(counted, (2 * asked, asked), "lines of {line} bytes");
    }
}

/// Moves the first page of its program at every third that is touched.
#[derive(Default)]
struct Mover {
    faults: u32,
    first: Option<Vpn>,
}

impl Policy for Mover {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        let Event::Faulted { page, .. } = event else { return };
        self.faults += 1;
        let page = *self.first.get_or_insert(page);
        if self.faults.is_multiple_of(3) {
            let to = Color(u16::try_from(self.faults / 3 % 2).expect("below 2"));
            actions.push(Action::Recolour { page, to });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_policy_that_hears_of_new_pages_alone_does_not_change_what_batches_do(
        machine in machine(),
        records in prop::collection::vec(record(), 0..3000),
    ) {
        let governed = || {
            let mut system = system(&machine);
            for space in 0..2 {
                let policy = Box::new(Mover::default());
                system.govern(space, policy, Sense::default()).expect("a space that can be");
            }
            system
        };
        let (mut batches, mut singles) = (governed(), governed());
        for part in records.chunks(1100) {
            batches.run(0, part).expect("memory enough");
            part.iter().try_for_each(|r| singles.access(0, r)).expect("memory enough");
        }
        prop_assert_eq!(batches.report(), singles.report());
        batches.check().map_err(TestCaseError::fail)?;
    }
}

/// Only the colours of the partition are used, and what misses does so in them.
#[test]
fn partitions_hold_and_show_in_the_counts_by_colour() {
    let mut experiment = experiment(SMALL);
    experiment.partitions = vec!["0-1".into(), "5".into()];
    let mut system = experiment.build().expect("a sound experiment");
    let colors = system.frames_mut().colors();
    assert_eq!(colors, 8);
    for (program, space) in [(0, 0), (1, 1)] {
        experiment.confine(&mut system, program, space).expect("colours that are there");
    }
    let walk = (0..200_000_u64).map(|i| load((i % 2) as u16, i * 64 % (2 << 20)));
    let records: Vec<Record> = walk.collect();
    system.run(0, &records).expect("memory enough");
    let report = system.report();
    system.check().expect("sound");
    for (color, &misses) in report.colors.expect("counted").misses.iter().enumerate() {
        assert_eq!(misses > 0, [0, 1, 5].contains(&color), "colour {color}: {misses}");
    }
    let by_color: Vec<_> = report.spaces.iter().map(|s| s.pages_by_color.clone()).collect();
    assert_eq!(by_color[0], [256, 256, 0, 0, 0, 0, 0, 0]);
    assert_eq!(by_color[1], [0, 0, 0, 0, 0, 512, 0, 0]);
    assert_eq!(report.frames_outside, 0);
}

/// The live engine's policy, told by audits, brings every page into its partition.
#[test]
fn the_live_policy_moves_pages_by_audits() {
    let mut system = system(SMALL);
    let set = ColorSet::parse("2,3", 8).expect("colours");
    let sense = Sense { audit: Some(Every { every: 10_000, cost: 50 }), ..Sense::default() };
    system.govern(0, Box::new(StaticPartition::new(set)), sense).expect("a space");
    let records: Vec<Record> = (0..60_000_u64).map(|i| load(0, i * 64 % (1 << 19))).collect();
    system.run(0, &records).expect("memory enough");
    let report = system.report();
    let space = &report.spaces[0];
    // Those that lay right by chance stay.
    let inside = space.pages_by_color[2] + space.pages_by_color[3];
    assert_eq!((inside, space.pages), (128, 128), "{:?}", space.pages_by_color);
    assert!(space.costs.recolorings >= 64, "{} moved", space.costs.recolorings);
    assert!(space.costs.recolor_cycles > 0 && space.costs.policy_cycles > 0);
    system.check().expect("every frame has one owner");
}

#[test]
fn superpages_are_built_by_copying_or_in_place_and_broken_again() {
    for (mapping, copies) in
        [(FrameMapping::Random(3), true), (FrameMapping::Reservation(4), false)]
    {
        let mut experiment = experiment(SMALL);
        experiment.mapping = mapping;
        let mut system = experiment.build().expect("a sound experiment");
        let touch = |system: &mut System| {
            let pages: Vec<Record> = (0..12).map(|page| load(0, page << 12)).collect();
            system.run(0, &pages).expect("memory enough");
        };
        touch(&mut system);
        system.promote(0, 0, Vpn(3), 4).expect("memory in one piece");
        let costs = system.costs(0);
        assert_eq!(costs.promotion_cycles > 0, copies, "{mapping:?}");
        let (first, last) = (system.mapping(0, Vpn(0)), system.mapping(0, Vpn(15)));
        let (first, last) = (first.expect("mapped"), last.expect("filled up"));
        assert_eq!((first.order(), last.order()), (4, 4));
        assert_eq!(last.frame().0 - first.frame().0, 15);
        system.check().expect("every frame has one owner");
        assert_eq!(system.report().spaces[0].memory_overhead, 4.0 / 12.0);
        // One translation for all of it.
        let before = system.report().walks;
        touch(&mut system);
        assert_eq!(system.report().walks, before + 1);
        system.demote(0, Vpn(7));
        assert_eq!(system.mapping(0, Vpn(7)).map(|at| at.order()), Some(0));
        system.recolor(0, 0, Vpn(7), Color(6)).expect("a frame of the colour");
        let at = system.mapping(0, Vpn(7)).expect("mapped").frame();
        assert_eq!(system.frames_mut().color(at), Some(Color(6)));
        system.check().expect("every frame has one owner");
    }
}

#[test]
fn copies_are_charged_as_was_said() {
    let mut system = system(SMALL);
    system.charge_copies(CopyCost::PerKib(3000));
    system.run(0, &[load(0, 0)]).expect("memory enough");
    let old = system.mapping(0, Vpn(0)).expect("mapped").frame();
    let to = Color((system.frames_mut().color(old).expect("known").0 + 1) % 8);
    system.recolor(0, 0, Vpn(0), to).expect("a frame of the colour");
    assert_eq!(system.costs(0).recolor_cycles, 12_000);
}

#[test]
fn superpages_can_have_a_price_while_recolouring_goes_through_caches() {
    let mut system = system(SMALL);
    system.charge_copies(CopyCost::SuperpagesPerKib(3000));
    system.run(0, &[load(0, 0)]).expect("memory enough");
    system.promote(0, 0, Vpn(0), 2).expect("memory in one piece");
    // Four base pages, of which one was touched.
    assert_eq!(system.costs(0).promotion_cycles, 4 * 12_000);
    system.recolor(0, 0, Vpn(0), Color(5)).expect("a frame of the colour");
    let cycles = system.costs(0).recolor_cycles;
    assert!(cycles > 0 && cycles != 12_000, "{cycles}");
}

/// Says what it heard of, through its wishes: each page is moved when it first misses in the TLB.
struct Greedy(std::collections::HashMap<Vpn, u32>);

impl Policy for Greedy {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        if let Event::TlbMiss { page, .. } = event {
            let seen = self.0.entry(page).or_default();
            *seen += 1;
            if *seen == 1 {
                actions.push(Action::Recolour { page, to: Color(7) });
            }
        }
    }
}

#[test]
fn policies_act_on_tlb_misses_and_their_handlers_cost() {
    let mut system = system(SMALL);
    let sense = Sense { tlb_miss_cost: Some(30), ..Sense::default() };
    system.govern(0, Box::new(Greedy(Default::default())), sense).expect("a space");
    // More pages than TLB entries, in turns: every touch misses.
    let turns: Vec<Record> = (0..3 * 64).map(|i| load(0, (i % 64) << 12)).collect();
    system.run(0, &turns).expect("memory enough");
    let report = system.report();
    assert_eq!(report.walks, 3 * 64);
    assert_eq!(report.spaces[0].pages_by_color[7], 64, "all pages moved");
    assert!(report.spaces[0].costs.tlb_cycles >= 3 * 64 * (30 + 20));
    system.check().expect("every frame has one owner");
}

/// What the choice of frames does to the same accesses: nothing to the first level, which is
/// indexed within a page; a little to the second with random frames; a fifth more misses where
/// only half the colours are used, as with odd frame numbers alone.
#[test]
fn the_choice_of_frames_shows_at_the_second_level() {
    const MACHINE: &str = include_str!("../../../../machines/cascade-lake-like.toml");
    let records: Vec<Record> = MixStream::new(Mix::MissHeavy).take(10_000_000).collect();
    let misses = |mapping, partition: &[&str]| {
        let mut experiment = experiment(MACHINE);
        (experiment.mapping, experiment.level) = (mapping, Some(2));
        experiment.partitions = partition.iter().map(|&set| set.into()).collect();
        let mut system = experiment.build().expect("a sound experiment");
        experiment.confine(&mut system, 0, 0).expect("sixteen colours");
        system.run(0, &records).expect("memory enough");
        system.check().expect("sound");
        let report = system.report();
        assert_eq!(report.caches[0].1.missed(), 5_488_175);
        report.caches[1].1.missed() as f64
    };
    let plain = misses(FrameMapping::InOrder, &[]);
    let random = misses(FrameMapping::Random(1), &[]) / plain;
    let odd = misses(FrameMapping::InOrder, &["1,3,5,7,9,11,13,15"]) / plain;
    assert!((1.001..1.02).contains(&random), "random frames: {random}");
    assert!((1.15..1.25).contains(&odd), "odd frames: {odd}");
}

#[test]
fn memory_ends_with_an_error_that_names_it() {
    let mut system = system(SMALL);
    let pages: Vec<Record> = (0..5000).map(|page| load(0, page << 12)).collect();
    let error = system.run(0, &pages).expect_err("16 MiB are 4096 frames");
    assert_eq!(error.to_string(), "all 4096 frames are in use; give the machine more memory");
    assert_eq!(system.report().frames_used, 4096);
    system.check().expect("what came before is sound");
    assert!(system.access(0, &load(4096, 0)).is_err());
}

#[test]
fn every_choice_of_frames_hands_each_out_once() {
    let choices = [
        Choice::InOrder,
        Choice::Random(5),
        Choice::Coloring,
        Choice::BinHopping,
        Choice::Partition(ColorSet::parse("1,4", 8).expect("colours")),
        Choice::Reservation(5),
    ];
    for choice in choices {
        let mut system = system(SMALL);
        system.frames_mut().choose_for(0, choice.clone());
        let pages: Vec<Record> = (0..4096).map(|i| load(0, (i * 7 % 4096) << 12)).collect();
        system.run(0, &pages).expect("as many pages as frames");
        let report = system.report();
        assert_eq!(report.frames_used, 4096, "{choice:?}");
        system.check().unwrap_or_else(|what| panic!("{choice:?}: {what}"));
        let even = report.spaces[0].pages_by_color.iter().all(|&n| n == 512);
        assert!(even, "{choice:?}: {:?}", report.spaces[0].pages_by_color);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Systems that share what their nearest caches answer come out as each alone, whether all
    /// accesses can be shared or not.
    #[test]
    fn twins_come_out_as_each_alone(
        machine in machine(),
        records in prop::collection::vec(record(), 0..3000),
        fetches in any::<bool>(),
        forget in any::<bool>(),
        partitions in prop::collection::vec(prop::sample::select(vec!["0", "1-2", "0-3", "7"]), 3),
    ) {
        let records: Vec<Record> =
            records.into_iter().filter(|r| fetches || r.kind != AccessKind::Fetch).collect();
        let alone = |partition: &str| {
            let mut experiment = experiment(&machine);
            experiment.mapping = FrameMapping::Random(partition.len() as u64);
            let mut system = experiment.build().expect("a sound experiment");
            let colors = system.frames_mut().colors();
            if let Some(set) = ColorSet::parse(partition, colors).ok().filter(|_| colors > 1) {
                (0..3).for_each(|space| {
                    system.frames_mut().choose_for(space, Choice::Partition(set.clone()));
                });
            }
            system
        };
        let run = |system: &mut System| {
            for (number, part) in records.chunks(1100).enumerate() {
                system.run(0, part).expect("memory enough");
                if number == 0 && forget {
                    system.forget_counts();
                }
            }
        };
        let all = partitions.iter().map(|partition| alone(partition)).collect();
        let systems = match System::leading(all) {
            Ok(mut leader) => {
                run(&mut leader);
                leader.into_twins()
            }
            Err(mut apart) => {
                apart.iter_mut().for_each(run);
                apart
            }
        };
        prop_assert_eq!(systems.len(), 3);
        for (system, partition) in systems.iter().zip(&partitions) {
            let mut own = alone(partition);
            run(&mut own);
            prop_assert_eq!(system.report(), own.report());
            system.check().map_err(TestCaseError::fail)?;
        }
    }
}

#[test]
fn an_access_that_would_reach_beyond_the_last_address_ends_there() {
    for (address, lines) in [(u64::MAX, 1), (u64::MAX - 3, 1), (u64::MAX - 66, 2)] {
        let mut system = system(SMALL);
        system.access(0, &load(0, address)).expect("room");
        assert_eq!(system.report().caches[0].1.total(), lines, "{address:#x}");
    }
}
