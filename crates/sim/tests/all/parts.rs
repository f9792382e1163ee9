//! Parts of a run: windows that add up to the whole on any machine, and samples of one machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use huepage_sim::experiment::Shard;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::partial::{SamplePlan, TracePart, half_width, rates, run, sum};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::schedule::{AccessSource, Overseer, Schedule, SchedulePlan};
use huepage_sim::system::System;
use serde_json::Value;

/// Accesses of the trace.
const ACCESSES: usize = 60_000;

/// Plain; sliced with prefetchers; write buffers that know the time; TLBs that software fills;
/// inclusive; exclusive victims of several cores.
const MACHINES: [&str; 6] = [
    include_str!("../../../../machines/cascade-lake-like.toml"),
    include_str!("../../../../machines/cascade-lake.toml"),
    include_str!("../../../../machines/alpha-3000-500.toml"),
    include_str!("../../../../machines/romer-tlb.toml"),
    include_str!("../../../../machines/core-i7-860.toml"),
    include_str!("../../../../machines/client-8-core.toml"),
];

/// Some accesses, a few at a time.
struct Few(Vec<Record>, usize);

impl AccessSource<()> for Few {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, ()> {
        let end = self.0.len().min(self.1 + 777);
        *batch = self.0[self.1..end].to_vec();
        self.1 = end;
        Ok(!batch.is_empty())
    }

    fn restart(&mut self) -> Result<(), ()> {
        self.1 = 0;
        Ok(())
    }
}

/// Lets programs be.
struct Nobody;

impl Overseer<()> for Nobody {
    fn announce(&mut self, _: &mut System, _: usize, _: u16) -> Result<(), ()> {
        Ok(())
    }

    fn tick(&mut self, _: &mut System, _: u64, _: u64) {}
}

fn trace() -> Vec<Record> {
    let vary = |(at, record): (usize, Record)| {
        let fetch = at % 5 == 0;
        let kind = if fetch { AccessKind::Fetch } else { record.kind };
        Record { kind, instructions: u16::from(fetch) * 4, ..record }
    };
    MixStream::new(Mix::MissHeavy).take(ACCESSES).enumerate().map(vary).collect()
}

/// What parts of a trace count on a machine.
fn parts(machine: &str, trace: &[Record], parts: &[TracePart]) -> Vec<Value> {
    let machine = Machine::parse(machine).unwrap();
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    let mut system = System::new(machine, frames);
    let place = |n: u64| usize::try_from(n).unwrap();
    let read = |part: &TracePart| trace[place(part.from)..place(part.end)].to_vec();
    let mut schedule = Schedule::new(system.cores(), SchedulePlan::default());
    schedule.add(Box::new(Few(parts.iter().flat_map(read).collect(), 0)));
    let counted = run(parts, trace.len() as u64, &mut schedule, &mut system, &mut Nobody).unwrap();
    system.check().unwrap();
    counted
}

/// The report of the whole trace, run as always.
fn whole(machine: &str, trace: &[Record]) -> Value {
    let machine = Machine::parse(machine).unwrap();
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    let mut system = System::new(machine, frames);
    let mut schedule = Schedule::new(system.cores(), SchedulePlan::default());
    schedule.add(Box::new(Few(trace.to_vec(), 0)));
    schedule.oversee(&mut system, &mut Nobody).unwrap();
    system.finish();
    serde_json::to_value(system.report()).unwrap()
}

#[test]
fn fully_warmed_windows_add_up_to_the_whole_run_on_every_kind_of_machine() {
    let trace = trace();
    for machine in MACHINES {
        let whole = whole(machine, &trace);
        for count in [1, 3, 7] {
            let window = |number| {
                let shard = Shard { number, parts: count };
                let window = TracePart::window(shard, ACCESSES as u64, u64::MAX);
                parts(machine, &trace, &[window]).remove(0)
            };
            let all: Vec<Value> = (1..=count).map(window).collect();
            let added =
                all[1..].iter().fold(all[0].clone(), |sum_so_far, next| sum(&sum_so_far, next));
            assert_eq!(added, whole, "{count} windows of {}", whole["machine"]);
        }
    }
}

#[test]
fn windows_count_their_own_accesses_alone() {
    let trace = trace();
    let window = TracePart { from: 20_001, first: 20_500, end: 30_003 };
    let counted = parts(MACHINES[0], &trace, &[window]);
    assert_eq!(counted[0]["spaces"][0]["accesses"], 9503);
}

#[test]
fn a_sample_that_is_always_warm_holds_the_whole_in_its_intervals() {
    let trace = trace();
    let sample = SamplePlan { units: 40, length: 300 };
    let sample = sample.parts(ACCESSES as u64, u64::MAX).unwrap();
    let counted = parts(MACHINES[0], &trace, &sample);
    let (units, truth) =
        (counted.iter().map(rates).collect::<Vec<_>>(), whole(MACHINES[0], &trace));
    for (at, figure) in rates(&truth).iter().enumerate() {
        let units: Vec<[f64; 2]> = units.iter().map(|u| [u[at].events, u[at].of]).collect();
        let total = |of: usize| units.iter().map(|unit| unit[of]).sum::<f64>();
        let (rate, half) = (total(0) / total(1), half_width(&units, 0.2));
        assert!(
            (rate - figure.rate()).abs() <= half,
            "{}: {rate} ± {half}, {}",
            figure.name,
            figure.rate()
        );
        assert!(half > 0.0 && half < 0.5 * rate, "{}: {rate} ± {half}", figure.name);
    }
}

/// Whoever runs it, its counts would be wrong, and nobody may wait for it for ever.
#[test]
fn a_thread_that_panics_ends_the_run() {
    let machine = Machine::parse(MACHINES[0]).unwrap();
    let records: Vec<_> = MixStream::new(Mix::MissHeavy).take(200_000).collect();
    let ends = |harmed: Option<usize>| {
        let mut system = System::new(machine.clone(), Frames::new(1 << 16, Choice::InOrder, None));
        system.use_threads(3).unwrap();
        assert!(harmed.is_none_or(|part| system.spoil_part(part)), "there is such a part");
        let records = &records;
        let run = AssertUnwindSafe(move || {
            system.run(0, records).unwrap();
            system.finish();
            system.report()
        });
        catch_unwind(run).is_ok()
    };
    assert!(ends(None), "the machine, the threads and the accesses are sound");
    assert!(!ends(Some(0)) && !ends(Some(7)));
}
