//! Programs in turns.

use std::collections::BTreeMap;

use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::schedule::{AccessSource, Schedule, ScheduleError, SchedulePlan};
use huepage_sim::system::{Report, System, file_number};
use huepage_sim::workloads::FileNumber;

/// So many loads, one after the other, and how often it was begun.
struct Loads {
    count: u64,
    at: u64,
    spaces: u16,
}

impl AccessSource<String> for Loads {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, String> {
        batch.clear();
        while self.at < self.count && batch.len() < 100 {
            let space = u16::try_from(self.at % u64::from(self.spaces)).expect("below the spaces");
            batch.push(Record { space, ..Record::plain(self.at * 8 % 4096, AccessKind::Load) });
            self.at += 1;
        }
        Ok(!batch.is_empty())
    }

    fn restart(&mut self) -> Result<(), String> {
        self.at = 0;
        Ok(())
    }
}

struct Broken;

impl AccessSource<String> for Broken {
    fn next(&mut self, _: &mut Vec<Record>) -> Result<bool, String> {
        Err("unreadable".into())
    }

    fn restart(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn system() -> System {
    let machine = Machine::parse(include_str!("../small.toml")).expect("a sound machine");
    let (mapping, partitions) = (FrameMapping::InOrder, Vec::new());
    Experiment { machine, level: None, mapping, partitions, audit: None, fragment: 0.0 }
        .build()
        .expect("a sound experiment")
}

/// Runs programs of so many loads; the report and the spaces of each program.
fn run(counts: &[u64], spaces: u16, plan: SchedulePlan) -> (Report, BTreeMap<usize, Vec<u16>>) {
    let (mut system, mut told) = (system(), BTreeMap::<usize, Vec<u16>>::new());
    let mut schedule = Schedule::new(2, plan);
    counts.iter().for_each(|&count| schedule.add(Box::new(Loads { count, at: 0, spaces })));
    let announce = |_: &mut System, program, space| {
        told.entry(program).or_default().push(space);
        Ok(())
    };
    schedule.run(&mut system, announce, |_| {}).expect("nothing in the way");
    let (all, none) = (schedule.spaces(), Vec::new());
    assert!(all.iter().enumerate().all(|(at, found)| found == told.get(&at).unwrap_or(&none)));
    system.check().expect("sound");
    (system.report(), told)
}

fn accesses(report: &Report) -> Vec<u64> {
    report.spaces.iter().map(|s| s.costs.accesses).collect()
}

#[test]
fn every_program_runs_to_its_end_in_spaces_of_its_own() {
    for quantum in [1000, 50_000, u64::MAX] {
        let plan = SchedulePlan { quantum, ..SchedulePlan::default() };
        let (report, told) = run(&[5000, 700, 1, 3000, 0], 1, plan);
        assert_eq!(accesses(&report), [5000, 700, 1, 3000], "quantum {quantum}");
        assert_eq!(told.len(), 4, "the empty one has no space");
    }
    let (report, told) = run(&[4000, 4000], 2, SchedulePlan::default());
    assert_eq!(accesses(&report), [2000; 4]);
    assert_eq!(told.values().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn short_programs_begin_again_until_the_longest_has_ended() {
    let plan = SchedulePlan { quantum: 1000, restart: true, ..SchedulePlan::default() };
    let (report, _) = run(&[20_000, 500], 1, plan);
    let counts = accesses(&report);
    assert_eq!(counts[0], 20_000);
    // On a core of its own it has about as much time.
    assert!((15_000..25_000).contains(&counts[1]), "{counts:?}");
}

#[test]
fn limits_and_warm_ups_count() {
    let plan = SchedulePlan { limit: 1234, ..SchedulePlan::default() };
    assert_eq!(accesses(&run(&[5000, 700], 1, plan).0), [1234, 700]);
    let plan = SchedulePlan { warm_up: 2000, ..SchedulePlan::default() };
    let counts = accesses(&run(&[5000, 5000], 1, plan).0);
    assert!(counts.iter().all(|n| (1000..=3000).contains(n)), "{counts:?}");
}

/// Reads a file of eight blocks, deletes it, and writes a new one of the same number.
struct Replaced(u32, Vec<(usize, FileNumber)>);

impl AccessSource<String> for Replaced {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, String> {
        batch.clear();
        self.1.clear();
        self.0 += 1;
        if self.0 > 2 {
            // The last batch has deletions only, or nothing.
            self.1.extend((self.0 == 3).then_some((0, FileNumber(6))));
            return Ok(self.0 == 3);
        }
        for (file, kind) in [
            (5, AccessKind::Load),
            (5, AccessKind::Load),
            (5, AccessKind::Store),
            (6, AccessKind::Load),
        ] {
            let blocks = (0..8).map(|at| FileNumber(file).address(at << 12).0);
            batch
                .extend(blocks.map(|address| Record { bytes: 16, ..Record::plain(address, kind) }));
        }
        self.1.push((16, FileNumber(5)));
        Ok(true)
    }

    fn restart(&mut self) -> Result<(), String> {
        self.0 = 0;
        Ok(())
    }

    fn volume(&self) -> Option<u32> {
        Some(3)
    }

    fn deletions(&self) -> &[(usize, FileNumber)] {
        &self.1
    }
}

/// What was deleted is not found again under its number, and is gone at its turn, not before.
#[test]
fn files_are_deleted_between_the_accesses_around_it() {
    let mut system = system();
    let mut schedule = Schedule::new(2, SchedulePlan::default());
    schedule.add(Box::new(Replaced(0, Vec::new())));
    schedule.run(&mut system, |_, _, _| Ok(()), |_| {}).expect("nothing in the way");
    let costs = system.costs(0);
    // First round: 8 missed, 8 found, 8 new, 8 missed. Second: 8 + 8 found, 8 new, 8 found.
    assert_eq!((costs.file_misses, costs.file_hits), (32, 32));
    let files: Vec<u64> = system.page_cache().pages().map(|page| page.page.file).collect();
    assert_eq!(files, [file_number(3, FileNumber(5)); 8], "the other was deleted at the end");
    system.check().expect("sound");
}

#[test]
fn errors_of_sources_end_the_run() {
    let mut schedule = Schedule::new(1, SchedulePlan::default());
    schedule.add(Box::new(Broken));
    let ended = schedule.run(&mut system(), |_, _, _| Ok(()), |_| {});
    assert_eq!(ended, Err(ScheduleError::Source("unreadable".into())));
}
