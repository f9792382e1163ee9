//! What a sweep over 16 partition sizes costs against one of its runs: on the two synthetic
//! streams, in memory, with as many threads as there are processors, as `huepage sim --sweep`
//! goes about it. Both in turns, wall time; prints the medians and their ratio, and ends with 1
//! when the promise is missed.
//!
//! `cargo run --release -p huepage-sim --example sweep_speed [-- ROUNDS]`

mod shared;

use std::thread::{available_parallelism, scope};
use std::time::Instant;

use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::system::{Report, System};
use shared::median;

const ACCESSES: usize = 10_000_000;
/// The sweep may take this many times as long as one run.
const BOUND: f64 = 4.0;
const MACHINE: &str = include_str!("../../../machines/cascade-lake-like.toml");

fn point(colors: usize) -> Experiment {
    let mut experiment = Experiment {
        machine: Machine::parse(MACHINE).expect("a sound description"),
        level: Some(2),
        mapping: FrameMapping::Random(1),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    };
    experiment.set("colors", &colors.to_string()).expect("so many colours");
    experiment
}

/// One point by itself.
fn alone(trace: &[Record]) -> Report {
    let point = point(8);
    let mut system = point.build().expect("a sound experiment");
    point.confine(&mut system, 0, 0).expect("colours that are there");
    system.run(0, trace).expect("frames enough");
    system.report()
}

/// Points led through the trace together.
fn together(points: &[Experiment], trace: &[Record]) -> Vec<Report> {
    let systems = points.iter().map(|point| point.build().expect("a sound experiment"));
    let mut leader = System::leading(systems.collect()).expect("they differ in frames only");
    for (number, point) in points.iter().enumerate() {
        let system = leader.twin_mut(number).expect("as many as points");
        point.confine(system, 0, 0).expect("colours that are there");
    }
    leader.run(0, trace).expect("frames enough");
    leader.into_twins().iter().map(System::report).collect()
}

/// The sweep, on all processors.
fn sweep(trace: &[Record]) -> Vec<Report> {
    let points: Vec<Experiment> = (1..=16).map(point).collect();
    let share = points.len().div_ceil(available_parallelism().map_or(1, usize::from));
    scope(|scope| {
        let threads: Vec<_> =
            points.chunks(share).map(|part| scope.spawn(move || together(part, trace))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut missed = false;
    for (name, mix) in [("miss-heavy", Mix::MissHeavy), ("hot", Mix::Hot)] {
        let trace: Vec<Record> = MixStream::new(mix).take(ACCESSES).collect();
        let (mut ones, mut all, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..rounds {
            let start = Instant::now();
            let one = alone(&trace);
            ones.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let reports = sweep(&trace);
            all.push(start.elapsed().as_secs_f64());
            assert_eq!(reports[7], one, "the eighth point is the run alone");
            ratios.push(all[all.len() - 1] / ones[ones.len() - 1]);
        }
        let (one, sixteen, ratio) = (median(&mut ones), median(&mut all), median(&mut ratios));
        println!("{name:<11} one run {one:5.2} s   16 points {sixteen:5.2} s   ratio {ratio:.2}");
        missed |= ratio > BOUND;
    }
    if missed {
        println!("MISSED: a ratio above {BOUND}");
        std::process::exit(1);
    }
}
