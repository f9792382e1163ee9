//! Speed and density of the trace format on the two synthetic streams: nanoseconds of CPU time a
//! record to encode and to decode, medians of interleaved rounds, and bytes a record; and what a
//! simulation from a trace file costs against one of the same records in memory, in CPU time
//! of all threads and in wall time. Ends with 1 when that promise is missed.
//!
//! `cargo run --release -p huepage-sim --example trace_speed [ROUNDS [FILE]]`; with the name
//! of a trace it measures that as well. A copy of the same records in memory is measured
//! beside, since that is what reading a trace replaces.

mod shared;

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use huepage_sim::frames::{Choice, Frames};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::schedule::{AccessSource, Schedule, SchedulePlan};
use huepage_sim::system::System;
use huepage_sim::trace::{Ahead, Batches, Header, TraceError, TraceReader, Writer};
use rustix::time::{ClockId, clock_gettime};
use shared::median;

const RECORDS: usize = 5_000_000;
/// A simulation from the file may take this many times as long as one from memory.
const BOUND: f64 = 1.1;
/// The machine of the promise.
const MACHINE: &str = include_str!("../../../machines/cascade-lake-like.toml");

struct Case {
    name: String,
    records: Vec<Record>,
    bytes: Vec<u8>,
    /// Nanoseconds a record, a row per round: encode, decode, copy.
    rounds: [Vec<f64>; 3],
    /// The same for simulations, by [`WAYS`].
    simulated: [Vec<Cost>; 3],
}

/// Where the records of a simulation come from.
const WAYS: [&str; 3] = ["memory", "the file", "the file, ahead"];

/// Nanoseconds a record: of all threads' CPU time, and of wall time.
type Cost = [f64; 2];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Failure> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(9), |n| n.parse())?;
    let stream = |mix| MixStream::new(mix).take(RECORDS).collect();
    let mut cases =
        vec![case("miss-heavy", stream(Mix::MissHeavy))?, case("hot", stream(Mix::Hot))?];
    for path in arguments {
        let trace = TraceReader::new(std::fs::File::open(&path)?)?;
        cases.push(case(&path, trace.take(4 * RECORDS).collect::<Result<_, _>>()?)?);
    }
    for number in 0..rounds {
        cases.iter_mut().try_for_each(round)?;
        cases.iter_mut().try_for_each(|case| simulations(case, number))?;
    }
    print_format(&mut cases);
    let missed = cases.iter_mut().filter_map(|case| (!print_simulated(case)).then_some(())).count();
    Ok(ExitCode::from(u8::from(missed > 0)))
}

fn print_format(cases: &mut [Case]) {
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>12}",
        "ns/record", "encode", "decode", "copy", "bytes/record"
    );
    for case in cases {
        let [encode, decode, copy] = case.rounds.each_mut().map(|times| median(times));
        let bytes = case.bytes.len() as f64 / case.records.len() as f64;
        println!("{:<24} {encode:>10.2} {decode:>10.2} {copy:>10.2} {bytes:>12.3}", case.name);
    }
}

/// Prints what reading from the file adds; whether the promise is kept. Ratios are medians
/// over pairs of the same round.
fn print_simulated(case: &mut Case) -> bool {
    println!("\n{}", case.name);
    println!(
        "{:<24} {:>8} {:>8} {:>9} {:>9}",
        "simulation from", "CPU ns", "wall ns", "CPU", "wall"
    );
    let [memory, ..] = &case.simulated;
    let mut ratios = [[1.0; 2]; WAYS.len()];
    for ((way, costs), ratios) in WAYS.iter().zip(&case.simulated).zip(&mut ratios) {
        let of = |at: usize| median(&mut costs.iter().map(|cost| cost[at]).collect::<Vec<_>>());
        let ratio = |at: usize| {
            median(&mut costs.iter().zip(memory).map(|(f, m)| f[at] / m[at]).collect::<Vec<_>>())
        };
        *ratios = [ratio(0), ratio(1)];
        let [cpu, wall] = *ratios;
        println!("{way:<24} {:>8.1} {:>8.1} {cpu:>8.3}x {wall:>8.3}x", of(0), of(1));
    }
    let kept = ratios[1][0] <= BOUND;
    println!("bound {BOUND}x of the CPU time: {}", if kept { "kept" } else { "MISSED" });
    kept
}

fn case(name: &str, records: Vec<Record>) -> io::Result<Case> {
    let bytes = encode(&records)?;
    Ok(Case {
        name: name.to_owned(),
        records,
        bytes,
        rounds: Default::default(),
        simulated: Default::default(),
    })
}

fn round(case: &mut Case) -> Result<(), Failure> {
    let per_record = |start: f64| (cpu_seconds() - start) * 1e9 / case.records.len() as f64;
    let start = cpu_seconds();
    black_box(encode(&case.records)?);
    case.rounds[0].push(per_record(start));

    let start = cpu_seconds();
    let mut reader = TraceReader::new(case.bytes.as_slice())?;
    let (mut batch, mut sum, mut count) = (Vec::new(), 0_u64, 0);
    while reader.next_block(&mut batch)? {
        count += batch.len();
        sum = sum.wrapping_add(batch[batch.len() / 2].address.0);
    }
    black_box(sum);
    case.rounds[1].push(per_record(start));
    assert_eq!(count, case.records.len(), "records were lost");

    let start = cpu_seconds();
    for part in case.records.chunks(4096) {
        batch.clear();
        batch.extend_from_slice(part);
        black_box(&batch);
    }
    case.rounds[2].push(per_record(start));
    Ok(())
}

/// A simulation each way, beginning with another in each round. All must count the same.
fn simulations(case: &mut Case, round: usize) -> Result<(), Failure> {
    let path = std::env::temp_dir().join(format!("trace_speed-{}", std::process::id()));
    std::fs::write(&path, &case.bytes)?;
    let mut reports = Vec::new();
    for way in (0..WAYS.len()).map(|way| (way + round) % WAYS.len()) {
        let mut system = machine()?;
        let (start, cpu) = (Instant::now(), cpu_seconds());
        if way > 0 {
            let source = Box::new(Trace { path: path.clone(), ahead: way == 2, reader: None });
            let mut schedule = Schedule::new(1, SchedulePlan::default());
            schedule.add(source);
            let ran = schedule.run(&mut system, |_, _, _| Ok(()), |_| {});
            ran.map_err(|error| format!("{error:?}"))?;
        } else {
            for part in case.records.chunks(4096) {
                system.run(0, part)?;
            }
        }
        let costs = [cpu_seconds() - cpu, start.elapsed().as_secs_f64()];
        let records = case.records.len() as f64;
        case.simulated[way].push(costs.map(|s| s * 1e9 / records));
        system.finish();
        reports.push(serde_json::to_value(system.report())?);
    }
    std::fs::remove_file(&path)?;
    let same = reports.iter().all(|report| *report == reports[0]);
    assert!(same, "the file gives another result than memory");
    Ok(())
}

fn machine() -> Result<System, Failure> {
    let machine = Machine::parse(MACHINE)?;
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    Ok(System::new(machine, frames))
}

/// A trace file as `huepage sim` reads it.
struct Trace {
    path: std::path::PathBuf,
    /// Whether a thread of its own decodes.
    ahead: bool,
    reader: Option<Box<dyn Batches + Send>>,
}

impl AccessSource<TraceError> for Trace {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        if self.reader.is_none() {
            self.restart()?;
        }
        self.reader.as_mut().map_or(Ok(false), |reader| reader.next_batch(batch))
    }

    fn restart(&mut self) -> Result<(), TraceError> {
        let file = File::open(&self.path);
        let file = file.map_err(|source| TraceError::Read { offset: 0, source })?;
        let reader = Box::new(TraceReader::new(file)?);
        let failed = |source| TraceError::Read { offset: 0, source };
        self.reader =
            Some(if self.ahead { Box::new(Ahead::new(reader).map_err(failed)?) } else { reader });
        Ok(())
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn encode(records: &[Record]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default())?;
    records.iter().try_for_each(|record| writer.push(record))?;
    writer.finish()?;
    Ok(bytes)
}
