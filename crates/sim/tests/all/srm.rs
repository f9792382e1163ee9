//! SRM-buffer at work on a small machine: what the policy hears, where its blocks lie, what makes
//! way for them, and programs beside others whose end nobody waits for.

use std::sync::{Arc, Mutex};

use huepage_color::{Color, ColorSet};
use huepage_policy::{Action, Event, MoveRefusal, Policy, Rescan, SrmBuffer, SrmSettings};
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::feedback::Sense;
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::pagecache::FilePage;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::schedule::{AccessSource, Schedule, SchedulePlan};
use huepage_sim::system::{System, file_number};
use huepage_sim::workloads::FileNumber;
use proptest::prelude::*;

const COLORS: u16 = 8;

/// 4,096 frames of 8 colours, and a file system for each of the programs.
fn system(keys: &str, programs: u16) -> System {
    let text =
        include_str!("../small.toml").replacen("\n\n[[cache]]", &format!("\n{keys}\n[[cache]]"), 1);
    let experiment = Experiment {
        machine: Machine::parse(&text).expect("a sound machine"),
        level: None,
        mapping: FrameMapping::Random(3),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    };
    let mut system = experiment.build().expect("a sound experiment");
    (0..programs).for_each(|space| system.use_files(space, 0).expect("a space"));
    system
}

fn page(file: u32, block: u64) -> FilePage {
    FilePage { file: file_number(0, FileNumber(file)), block }
}

fn touch(system: &mut System, space: u16, file: u32, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        let address = FileNumber(file).address(block * 4096);
        let record = Record { address, space, ..Record::plain(0, AccessKind::Load) };
        system.run(0, &[record]).expect("memory enough");
    }
}

fn colors(system: &System, file: u32) -> Vec<u64> {
    let mut seen = vec![0; usize::from(COLORS)];
    let own = system.page_cache().pages().filter(|at| at.page.file == page(file, 0).file);
    own.for_each(|at| seen[usize::from(at.color.expect("known").0)] += 1);
    seen
}

/// One policy for all programs.
struct Shared(Arc<Mutex<SrmBuffer>>);

impl Policy for Shared {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.0.lock().expect("one thread").handle(event, actions);
    }
}

fn govern(system: &mut System, programs: u16, settings: SrmSettings, sense: Sense) {
    let policy = Arc::new(Mutex::new(SrmBuffer::new(settings)));
    for space in 0..programs {
        system.govern(space, Box::new(Shared(policy.clone())), sense).expect("a space");
    }
}

fn paper(threshold: u64) -> SrmSettings {
    SrmSettings { threshold, ..SrmSettings::paper(COLORS) }
}

#[test]
fn blocks_lie_in_the_colours_of_their_sequences() {
    let mut system = system("", 2);
    let sense = Sense { file_miss_cost: 5, ..Sense::default() };
    govern(&mut system, 2, paper(16), sense);
    system.set_file_size(page(1, 0).file, 40 * 4096);
    touch(&mut system, 0, 1, 0..40);
    assert_eq!(colors(&system, 1), [16, 16, 8, 0, 0, 0, 0, 0]);
    // Small files by who asks for them.
    touch(&mut system, 0, 2, 0..8);
    touch(&mut system, 1, 3, 0..8);
    touch(&mut system, 0, 4, 0..8);
    assert_eq!((colors(&system, 2)[3], colors(&system, 4)[3], colors(&system, 3)[4]), (8, 8, 8));
    // A file that nobody has said the size of is small until it is not.
    touch(&mut system, 1, 5, 0..20);
    assert_eq!(colors(&system, 5)[4], 8);
    assert_eq!(colors(&system, 5).iter().sum::<u64>(), 20);
    assert_eq!(system.costs(0).policy_cycles, 5 * (40 + 8 + 8));
    // A deleted file gives its mark back and is another when it comes again.
    system.delete_file(page(1, 0).file);
    touch(&mut system, 0, 1, 0..1);
    assert_eq!(colors(&system, 1).iter().sum::<u64>(), 1);
    system.check().expect("every frame has one owner");
}

/// Memory full of file pages: sequences take the oldest of a colour, programs all colours in turns,
/// and the zone is refilled when one has run out.
#[test]
fn a_colour_that_has_run_out_is_refilled_from_the_old_end() {
    let mut system = system("", 2);
    touch(&mut system, 0, 1, 0..4096);
    govern(&mut system, 1, paper(32), Sense::default());
    assert_eq!(system.stock_by_color(), [0; 8]);
    system.set_file_size(page(2, 0).file, 100 * 4096);
    touch(&mut system, 0, 2, 0..100);
    let found = colors(&system, 2);
    assert_eq!(found.iter().filter(|n| **n == 32).count(), 3, "{found:?}");
    assert_eq!(found.iter().sum::<u64>(), 100);
    // What went was old: nothing from the younger half.
    let kept = (2048..4096).filter(|&block| system.page_cache().get(page(1, block)).is_some());
    assert_eq!(kept.count(), 2048);
    system.frames_mut().choose_for(1, Choice::Partition(ColorSet::all(COLORS)));
    let pages =
        (0..800).map(|at| Record { space: 1, ..Record::plain(at << 12, AccessKind::Store) });
    system.run(0, &pages.collect::<Vec<_>>()).expect("file pages make way");
    let report = system.report();
    let space = report.spaces.iter().find(|space| space.space == 1).expect("it ran");
    assert_eq!(space.pages_by_color, [100; 8]);
    assert!(report.page_cache.expect("files").zone > 0, "more was refilled than taken");
    system.check().expect("every frame has one owner");
}

#[test]
fn a_block_can_be_given_another_frame_while_programs_use_it() {
    let mut system = system("", 2);
    touch(&mut system, 0, 1, 0..1);
    touch(&mut system, 1, 1, 0..1);
    let old = system.page_cache().get(page(1, 0)).expect("there");
    let to = Color((old.color.expect("known").0 + 1) % COLORS);
    system.recolor_block(0, 0, page(1, 0), to).expect("frames are free");
    let new = system.page_cache().get(page(1, 0)).expect("still there");
    assert_eq!((new.color, new.standing, new.dirty), (Some(to), old.standing, old.dirty));
    assert_ne!(new.frame, old.frame);
    let costs = system.costs(0);
    assert!(costs.recolorings == 1 && costs.recolor_cycles > 64, "{costs:?}");
    // Reading on goes to the new frame: nothing of the old one is in memory any more.
    let next = FileNumber(1).address(8);
    let record = Record { address: next, space: 1, ..Record::plain(0, AccessKind::Load) };
    system.run(0, &[record]).expect("memory enough");
    assert_eq!(system.report().frames_used, 1);
    assert_eq!(system.recolor_block(0, 0, page(1, 1), to), Err(MoveRefusal::Raced));
    assert_eq!(system.recolor_block(0, 0, page(1, 0), Color(COLORS)), Err(MoveRefusal::NoFrame));
    system.check().expect("every frame has one owner");
}

#[test]
fn a_file_that_is_scanned_again_and_again_is_spread_and_paid_for() {
    let mut system = system("", 1);
    let settings = SrmSettings { rescan: Some(Rescan::new(256)), ..paper(32) };
    govern(&mut system, 1, settings, Sense { file_use_cost: Some(3), ..Sense::default() });
    system.set_file_size(page(1, 0).file, 96 * 4096);
    touch(&mut system, 0, 1, 0..96);
    assert_eq!(colors(&system, 1), [32, 32, 32, 0, 0, 0, 0, 0]);
    touch(&mut system, 0, 1, 0..96);
    let before = system.costs(0);
    assert_eq!((before.recolorings, before.policy_cycles), (0, 3 * 96));
    (0..2).for_each(|_| touch(&mut system, 0, 1, 0..96));
    assert_eq!(colors(&system, 1), [12; 8]);
    let costs = system.costs(0);
    assert_eq!((costs.recolorings, costs.refusals), (60, 0));
    assert!(costs.recolor_cycles > 60 * 64);
    assert_eq!(costs.file_misses, 96);
    system.check().expect("every frame has one owner");
}

/// So many loads, again and again.
struct Loads {
    count: u64,
    at: u64,
}

impl AccessSource<()> for Loads {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, ()> {
        batch.clear();
        while self.at < self.count && batch.len() < 100 {
            batch.push(Record::plain(self.at * 8 % 4096, AccessKind::Load));
            self.at += 1;
        }
        Ok(!batch.is_empty())
    }

    fn restart(&mut self) -> Result<(), ()> {
        self.at = 0;
        Ok(())
    }
}

#[test]
fn nobody_waits_for_programs_beside() {
    for (count, rounds) in [(300, true), (50_000_000, false), (0, false)] {
        let mut system = system("", 0);
        let plan = SchedulePlan { restart: true, warm_up: 1000, ..SchedulePlan::default() };
        let mut schedule = Schedule::new(2, plan).with_spaces_from(5);
        schedule.add(Box::new(Loads { count: 20_000, at: 0 }));
        schedule.add_beside(Box::new(Loads { count, at: 0 }));
        let ran = schedule.run(&mut system, |_, _, _| Ok(()), |_| {});
        ran.expect("nothing in the way");
        let spaces = schedule.spaces();
        assert_eq!(spaces[0], [5]);
        // The warm-up is over at the end of a step of 512 at most.
        let own = system.costs(5).accesses;
        assert!((18_400..=19_000).contains(&own), "{own}");
        let other: u64 = spaces[1].iter().map(|&space| system.costs(space).accesses).sum();
        // Both take a cycle an access, so that the one beside is as far.
        let near = other.abs_diff(own) < 3_000;
        assert_eq!(near, count > 0, "{count}: {other}");
        assert_eq!(other > count, rounds, "{count}: {other}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever programs read, write and delete in little memory: no frame gets lost, no more
    /// memory is taken than there is, and what is placed has a colour of its sequence.
    #[test]
    fn the_machine_stays_sound_when_memory_is_short(
        steps in prop::collection::vec((0_u16..3, 0_u32..6, 0_u64..900, 0_u8..20), 1..60),
        threshold in 1_u64..80,
        limit in prop::option::of(100_u64..3000),
    ) {
        let keys = limit.map_or(String::new(), |kib| format!("page_cache = {{ size = \"{}K\" }}", kib * 4));
        let mut system = system(&keys, 3);
        let settings = SrmSettings { rescan: Some(Rescan::new(300)), ..paper(threshold) };
        govern(&mut system, 3, settings, Sense { file_use_cost: Some(1), ..Sense::default() });
        system.frames_mut().choose_for(0, Choice::Partition(ColorSet::all(COLORS)));
        for (space, file, first, what) in steps {
            match what {
                0 => _ = system.delete_file(page(file, 0).file),
                1 => {
                    let at = |i: u64| Record { space, ..Record::plain((first + i) << 12, AccessKind::Store) };
                    system.run(0, &(0..200).map(at).collect::<Vec<_>>()).expect("file pages make way");
                }
                _ => touch(&mut system, space, file, first..first + 150),
            }
            system.check().map_err(TestCaseError::fail)?;
            if let Some(limit) = limit {
                prop_assert!(system.page_cache().len() <= limit);
            }
        }
        let costs = (0..3).map(|space| system.costs(space));
        let left: u64 = costs.map(|costs| costs.file_misses - costs.file_evictions).sum();
        prop_assert!(left >= system.page_cache().len(), "deleted ones are no evictions");
    }
}
