//! Programs in turns.

use std::collections::BTreeMap;

use huepage_sim::experiment::{Experiment, Mapping};
use huepage_sim::machine::Machine;
use huepage_sim::record::{Kind, Record};
use huepage_sim::schedule::{Plan, Schedule, ScheduleError, Source};
use huepage_sim::system::{Report, System};

/// So many loads, one after the other, and how often it was begun.
struct Loads {
    count: u64,
    at: u64,
    spaces: u16,
}

impl Source<String> for Loads {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, String> {
        batch.clear();
        while self.at < self.count && batch.len() < 100 {
            let space = u16::try_from(self.at % u64::from(self.spaces)).expect("below the spaces");
            batch.push(Record { space, ..Record::plain(self.at * 8 % 4096, Kind::Load) });
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

impl Source<String> for Broken {
    fn next(&mut self, _: &mut Vec<Record>) -> Result<bool, String> {
        Err("unreadable".into())
    }

    fn restart(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn system() -> System {
    let machine = Machine::parse(include_str!("small.toml")).expect("a sound machine");
    let (mapping, partitions) = (Mapping::InOrder, Vec::new());
    Experiment { machine, level: None, mapping, partitions, audit: None, fragment: 0.0 }
        .build()
        .expect("a sound experiment")
}

/// Runs programs of so many loads; the report and the spaces of each program.
fn run(counts: &[u64], spaces: u16, plan: Plan) -> (Report, BTreeMap<usize, Vec<u16>>) {
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
        let plan = Plan { quantum, ..Plan::default() };
        let (report, told) = run(&[5000, 700, 1, 3000, 0], 1, plan);
        assert_eq!(accesses(&report), [5000, 700, 1, 3000], "quantum {quantum}");
        assert_eq!(told.len(), 4, "the empty one has no space");
    }
    let (report, told) = run(&[4000, 4000], 2, Plan::default());
    assert_eq!(accesses(&report), [2000; 4]);
    assert_eq!(told.values().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn short_programs_begin_again_until_the_longest_has_ended() {
    let plan = Plan { quantum: 1000, restart: true, ..Plan::default() };
    let (report, _) = run(&[20_000, 500], 1, plan);
    let counts = accesses(&report);
    assert_eq!(counts[0], 20_000);
    // On a core of its own it has about as much time.
    assert!((15_000..25_000).contains(&counts[1]), "{counts:?}");
}

#[test]
fn limits_and_warm_ups_count() {
    let plan = Plan { limit: 1234, ..Plan::default() };
    assert_eq!(accesses(&run(&[5000, 700], 1, plan).0), [1234, 700]);
    let plan = Plan { warm_up: 2000, ..Plan::default() };
    let counts = accesses(&run(&[5000, 5000], 1, plan).0);
    assert!(counts.iter().all(|n| (1000..=3000).contains(n)), "{counts:?}");
}

#[test]
fn errors_of_sources_end_the_run() {
    let mut schedule = Schedule::new(1, Plan::default());
    schedule.add(Box::new(Broken));
    let ended = schedule.run(&mut system(), |_, _, _| Ok(()), |_| {});
    assert_eq!(ended, Err(ScheduleError::Source("unreadable".into())));
}
