//! What a sweep over 16 points costs against one of its runs: 16 sizes of a partition, or 16 numbers of
//! ways of the last level. On the two synthetic streams, in memory, with as many threads as there are
//! processors, as `huepage sim --sweep` goes about it. Both in turns; prints medians of wall time and
//! their ratio, beside it that of processor time, which other programs disturb less, and ends with 1 when
//! the promise is missed.
//!
//! `cargo run --release -p huepage-sim --example sweep_speed [-- ROUNDS [ways] [MACHINE FILE...]]`

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
const BOUND: f64 = 2.0;
const POINTS: u64 = 16;
const MACHINE: &str = include_str!("../../../machines/cascade-lake-like.toml");

/// What varies.
struct Swept {
    machine: Machine,
    level: u8,
    ways: bool,
}

impl Swept {
    /// A point of 1 to [`POINTS`].
    fn point(&self, number: u64) -> Experiment {
        let mut experiment = Experiment {
            machine: self.machine.clone(),
            level: (!self.ways).then_some(self.level),
            mapping: FrameMapping::Random(1),
            partitions: Vec::new(),
            audit: None,
            fragment: 0.0,
        };
        let (key, value) = if self.ways {
            (format!("l{}.ways", self.level), number)
        } else {
            let colors = experiment.colors().expect("a level").map_or(1, |(map, _)| map.colors());
            ("colors".to_owned(), u64::from(colors) * number / POINTS)
        };
        experiment.set(&key, &value.to_string()).expect("so many");
        experiment
    }
}

/// A result, and seconds by the clock and of processors.
type Timed<T> = (T, [f64; 2]);

/// Seconds of processor time of this thread so far.
fn spent() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// One point by itself.
fn alone(point: &Experiment, trace: &[Record]) -> Timed<Report> {
    let (start, before) = (Instant::now(), spent());
    let mut system = point.build().expect("a sound experiment");
    point.confine(&mut system, 0, 0).expect("colours that are there");
    system.run(0, trace).expect("frames enough");
    (system.report(), [start.elapsed().as_secs_f64(), spent() - before])
}

/// Points led through the trace together, or one after the other where they cannot be.
fn together(points: &[Experiment], trace: &[Record]) -> Timed<Vec<Report>> {
    let (start, before) = (Instant::now(), spent());
    let systems = points.iter().map(|point| point.build().expect("a sound experiment"));
    let reports = match System::leading(systems.collect()) {
        Ok(mut leader) => {
            for (number, point) in points.iter().enumerate() {
                let system = leader.twin_mut(number).expect("as many as points");
                point.confine(system, 0, 0).expect("colours that are there");
            }
            leader.run(0, trace).expect("frames enough");
            leader.into_twins().iter().map(System::report).collect()
        }
        Err(_) => points.iter().map(|point| alone(point, trace).0).collect(),
    };
    (reports, [start.elapsed().as_secs_f64(), spent() - before])
}

/// The sweep, on all processors.
fn sweep(points: &[Experiment], trace: &[Record]) -> Timed<Vec<Report>> {
    let start = Instant::now();
    let share = points.len().div_ceil(available_parallelism().map_or(1, usize::from));
    let parts: Vec<Timed<Vec<Report>>> = scope(|scope| {
        let threads: Vec<_> =
            points.chunks(share).map(|part| scope.spawn(move || together(part, trace))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let processors = parts.iter().map(|(_, [_, spent])| spent).sum();
    let reports = parts.into_iter().flat_map(|(reports, _)| reports).collect();
    (reports, [start.elapsed().as_secs_f64(), processors])
}

/// Compares on a stream; whether the promise is kept.
fn compare(swept: &Swept, mix: Mix, rounds: usize) -> bool {
    let trace: Vec<Record> = MixStream::new(mix).take(ACCESSES).collect();
    let points: Vec<Experiment> = (1..=POINTS).map(|number| swept.point(number)).collect();
    let [mut ones, mut all, mut ratios, mut work] = [const { Vec::new() }; 4];
    for round in 0..rounds {
        // Every other point in turn is the one that is run alone.
        let one = (7 + round) % points.len();
        let (report, [clock, spent]) = alone(&points[one], &trace);
        let (reports, [clock_of_all, spent_by_all]) = sweep(&points, &trace);
        assert_eq!(reports[one], report, "point {one} is the run alone");
        ones.push(clock);
        all.push(clock_of_all);
        ratios.push(clock_of_all / clock);
        work.push(spent_by_all / spent);
    }
    let (name, ratio, work) = (&swept.machine.name, median(&mut ratios), median(&mut work));
    let [one, sixteen] = [median(&mut ones), median(&mut all)];
    println!(
        "{name:<24} {mix:<9} one run {one:5.2} s   16 points {sixteen:5.2} s   ratio {ratio:5.2}   of processor time {work:5.2}",
        mix = if mix == Mix::Hot { "hits" } else { "misses" }
    );
    ratio <= BOUND
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.first().and_then(|n| n.parse().ok()).unwrap_or(5);
    args.retain(|arg| arg.parse::<usize>().is_err());
    let ways = args.iter().any(|arg| arg == "ways");
    args.retain(|arg| arg != "ways");
    let read =
        |path: &String| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let own = args.is_empty();
    let texts = if own { vec![MACHINE.to_owned()] } else { args.iter().map(read).collect() };
    let mut kept = true;
    for text in texts {
        let machine = Machine::parse(&text).expect("a sound description");
        let last = machine.cache.iter().map(|cache| cache.level).max().unwrap_or(1);
        // Of the yardstick, the level that has 16 colours.
        let swept = Swept { machine, level: if own && !ways { 2 } else { last }, ways };
        for mix in [Mix::MissHeavy, Mix::Hot] {
            kept &= compare(&swept, mix, rounds);
        }
    }
    if !kept {
        println!("MISSED: a ratio above {BOUND}");
        std::process::exit(1);
    }
}
