//! Sweeps in one pass: systems that are led through a trace together come out as each by itself, on
//! machines of any shape that allows it, and on every machine that is shipped.

use huepage_color::{ColorSet, VirtAddr};
use huepage_model::lanes::Isa;
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::frames::Choice;
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;

/// One point of a sweep: the machine with frames of so many colours, from a first one on.
fn point(machine: &Machine, level: Option<u8>, colors: (u16, u16)) -> System {
    let experiment = Experiment {
        machine: machine.clone(),
        level,
        mapping: FrameMapping::Random(u64::from(colors.0)),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    };
    let mut system = experiment.build().expect("a sound experiment");
    let universe = system.frames_mut().colors();
    let (first, last) = (colors.0.min(universe - 1), colors.1.clamp(1, universe) - 1);
    if universe > 1 && first <= last {
        let set = ColorSet::parse(&format!("{first}-{last}"), universe).expect("colours");
        (0..3).for_each(|space| {
            system.frames_mut().choose_for(space, Choice::Partition(set.clone()));
        });
    }
    system
}

/// Runs records in pieces, with counts forgotten after the first if so wished.
fn run(system: &mut System, records: &[Record], piece: usize, forget: bool) {
    for (number, part) in records.chunks(piece).enumerate() {
        system.run(0, part).expect("memory enough");
        if number == 0 && forget {
            system.forget_counts();
        }
    }
}

/// A point: its machine and colours.
type Point = (Machine, (u16, u16));

/// Whether points can be led, and then are what each is alone.
fn compare(points: &[Point], level: Option<u8>, records: &[Record], forget: bool) -> bool {
    let piece = records.len() / 3 + 1;
    let all = points.iter().map(|(machine, colors)| point(machine, level, *colors)).collect();
    let Ok(mut leader) = System::leading(all) else { return false };
    run(&mut leader, records, piece, forget);
    for (system, (machine, colors)) in leader.into_twins().iter().zip(points) {
        let mut alone = point(machine, level, *colors);
        run(&mut alone, records, piece, forget);
        assert_eq!(system.report(), alone.report(), "{colors:?} of {machine:#?}");
        system.check().unwrap_or_else(|what| panic!("{colors:?} of {machine:#?}: {what}"));
    }
    true
}

/// The machine with so many ways in its last level, and as many sets as before.
fn with_ways(machine: &Machine, ways: usize) -> Machine {
    let mut machine = machine.clone();
    let last = *machine.data_path().last().expect("a cache");
    let cache = &mut machine.cache[last];
    cache.size.0 = cache.size.0 / cache.ways as u64 * ways as u64;
    cache.ways = ways;
    machine
}

/// A machine of two or three levels, of which the last goes with the others in this way.
fn any_machine(dice: &mut fastrand::Rng, inclusion: &str) -> Machine {
    let mut text = String::from("name = \"any\"\nmemory = \"64M\"\nmemory_latency = 90\n");
    let levels = if inclusion == "exclusive" || dice.bool() { 3 } else { 2 };
    // Up to four times as many sets as a page has lines.
    let near = 1_u32 << dice.u32(0..=8);
    for level in 1..=levels {
        let (last, grown) = (level == levels, 1 << (level - 1));
        let odd = if last && dice.u8(..5) == 0 { 3 } else { 1 };
        let sets = near * if level == 1 { 1 } else { grown * 2 * odd };
        let ways = if level == 1 { dice.u32(1..=12) } else { dice.u32(1..=24) };
        let sliced = last && odd == 1 && dice.u8(..4) == 0;
        let sets = if sliced { 4 * sets } else { sets };
        text += &format!(
            "[[cache]]\nlevel = {level}\nsize = {}\nways = {ways}\nlatency = {}\n",
            ways * sets * 64,
            4 * level
        );
        if last {
            text += &format!("inclusion = \"{inclusion}\"\n");
        }
        if sliced {
            let bits = (sets / 4).trailing_zeros();
            text += &format!(
                "index = {{ kind = \"xor\", line_bits = 6, set_bits = {bits}, slice_masks = [0x35240, 0x1a480] }}\n"
            );
        }
    }
    text += "[[tlb]]\nlevel = 1\nentries = 8\nways = 2\n";
    Machine::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Accesses of some programs to a few lines often and to others at times, some in two lines.
fn any_records(dice: &mut fastrand::Rng) -> Vec<Record> {
    let (near, far) = (64 << dice.u32(1..10), 4096 << dice.u32(1..8));
    let (stores, spaces) = (dice.u8(..10), dice.u16(1..=3));
    let mut step = 0;
    let mut next = || {
        step += 24;
        let address = match dice.u8(..4) {
            0 => dice.u64(..far),
            1 => step % far,
            _ => dice.u64(..near),
        };
        let kind = if dice.u8(..10) < stores { AccessKind::Store } else { AccessKind::Load };
        let space = if dice.u8(..40) == 0 { dice.u16(..spaces) } else { 0 };
        let (instructions, bytes) = (dice.u16(..4), dice.u8(1..20));
        Record { address: VirtAddr(address), space, thread: 0, instructions, bytes, kind }
    };
    (0..6000).map(|_| next()).collect()
}

#[test]
fn points_that_are_led_come_out_as_each_alone() {
    if !Isa::best().is_wide() {
        return huepage_testing::lacks(
            "points_that_are_led_come_out_as_each_alone",
            "none is led on a processor without AVX2",
        );
    }
    let mut dice = fastrand::Rng::with_seed(23);
    for inclusion in ["none", "inclusive", "exclusive"] {
        let mut led = 0;
        for _ in 0..150 {
            let (machine, records) = (any_machine(&mut dice, inclusion), any_records(&mut dice));
            let points: Vec<Point> =
                (0..3).map(|at| (machine.clone(), (at, dice.u16(1..9)))).collect();
            led += u32::from(compare(&points, None, &records, dice.bool()));
        }
        assert!(led > 120, "{led} of 150 led, {inclusion}");
    }
}

#[test]
fn any_sizes_and_ways_of_further_levels_go_together() {
    let mut dice = fastrand::Rng::with_seed(24);
    for inclusion in ["none", "inclusive", "exclusive"] {
        let mut led = 0;
        for _ in 0..150 {
            let (machine, records) = (any_machine(&mut dice, inclusion), any_records(&mut dice));
            let colors = (0, dice.u16(1..9));
            let mut point = || {
                let mut one = with_ways(&machine, dice.usize(1..=24));
                if dice.u8(..4) == 0 && one.cache[1].index.is_none() {
                    one.cache[1].size.0 *= 2;
                    one.cache[1].latency += 3;
                }
                (one, if dice.u8(..5) == 0 { (1, 2) } else { colors })
            };
            let points: Vec<Point> = (0..5).map(|_| point()).collect();
            led += u32::from(compare(&points, None, &records, dice.bool()));
        }
        assert!(led > 100, "{led} of 150 led, {inclusion}");
    }
}

/// Frames that look the same at first and are not: those that follow together part.
#[test]
fn points_whose_frames_differ_late_part() {
    let mut dice = fastrand::Rng::with_seed(25);
    for _ in 0..40 {
        let (machine, records) = (any_machine(&mut dice, "none"), any_records(&mut dice));
        let points = [3, 9, 24].map(|ways| with_ways(&machine, ways));
        let late = |system: &mut System| {
            let colors = system.frames_mut().colors();
            let set = ColorSet::parse("0", colors).expect("a colour");
            (0..3).for_each(|space| {
                system.frames_mut().choose_for(space, Choice::Partition(set.clone()));
            });
        };
        let build = |machine: &Machine| point(machine, None, (0, 8));
        if build(&machine).frames_mut().colors() == 1 {
            continue;
        }
        let halves = records.split_at(records.len() / 2);
        let leader = System::leading(points.iter().map(build).collect());
        let mut leader = leader.unwrap_or_else(|_| panic!("not led: {machine:#?}"));
        leader.run(0, halves.0).expect("memory enough");
        late(leader.twin_mut(1).expect("the second"));
        leader.run(0, halves.1).expect("memory enough");
        for (number, (system, machine)) in leader.into_twins().iter().zip(&points).enumerate() {
            let mut alone = build(machine);
            alone.run(0, halves.0).expect("memory enough");
            if number == 1 {
                late(&mut alone);
            }
            alone.run(0, halves.1).expect("memory enough");
            assert_eq!(system.report(), alone.report(), "point {number} of {machine:#?}");
        }
    }
}

/// Machines whose points cannot share, and why.
const APART: [&str; 3] = [
    "alpha-3000-500", // a write buffer goes by the time, which misses behind it make
    "romer-tlb",      // as well
    "powerpc-970fx",  // page tables are read through caches, and prefetches take time
];

#[test]
fn sweeps_on_every_machine_file_are_led_and_exact() {
    if !Isa::best().is_wide() {
        return huepage_testing::lacks(
            "sweeps_on_every_machine_file_are_led_and_exact",
            "none is led on a processor without AVX2",
        );
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let (mut found, mut led) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).expect("machine files") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let machine = Machine::parse(&std::fs::read_to_string(&path).expect("text")).expect(&name);
        let level = machine.cache.iter().map(|cache| cache.level).max();
        for (mix, points) in
            [(Mix::MissHeavy, [(0, 1), (0, 8), (3, 16)]), (Mix::Hot, [(0, 1), (0, 3), (0, 500)])]
        {
            let records: Vec<Record> = MixStream::new(mix).take(600_000).collect();
            let mut all: Vec<Point> =
                points.iter().map(|&colors| (machine.clone(), colors)).collect();
            if mix == Mix::Hot {
                all.extend([1, 5, 16].map(|ways| (with_ways(&machine, ways), points[2])));
            }
            if compare(&all, level, &records, mix == Mix::Hot) {
                led.push(name.clone());
            }
        }
        found += 1;
    }
    led.dedup();
    assert!(found >= 15, "{found} machine files");
    assert_eq!(led.len() + APART.len(), found, "led: {led:?}");
    assert!(APART.iter().all(|name| !led.contains(&(*name).to_owned())), "led: {led:?}");
}
