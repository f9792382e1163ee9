//! How much faster one run is on several threads, machine file by machine file, on the two synthetic
//! streams: wall-clock time, both in turns, medians; counts must be the same.
//!
//! `cargo run --release -p huepage-sim --example threads [-- THREADS [ROUNDS [ACCESSES [FILE ...]]]]`

#[path = "shared/machines.rs"]
mod machines;
#[path = "shared/mod.rs"]
mod shared;

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use huepage_sim::frames::{Choice, Frames};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::system::{Report, System};
use shared::median;

/// One run: seconds, what was counted, and why it stayed on one thread.
fn run(machine: &Machine, trace: &[Record], threads: usize) -> (f64, Report, Option<String>) {
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    let mut system = System::new(machine.clone(), frames);
    let why = system.use_threads(threads).err().map(|why| why.to_string());
    let start = Instant::now();
    for part in trace.chunks(1 << 16) {
        system.run(0, part).expect("enough frames");
    }
    system.finish();
    let seconds = start.elapsed().as_secs_f64();
    system.check().expect("a sound state");
    (seconds, system.report(), why)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().map_or(Ok(2), |n| n.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |n| n.parse())?;
    let accesses: usize = arguments.next().map_or(Ok(10_000_000), |n| n.parse())?;
    let mut files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    if files.is_empty() {
        files = machines::machine_files()?;
    }
    println!("{:<20} {:<7} {:>8} {:>8} {:>6}", "machine", "stream", "1 (s)", "n (s)", "gain");
    for (name, mix) in [("misses", Mix::MissHeavy), ("hits", Mix::Hot)] {
        let trace: Vec<Record> = MixStream::new(mix).take(accesses).collect();
        for file in &files {
            let machine = Machine::parse(&std::fs::read_to_string(file)?)?;
            let (mut one, mut many, mut gains) = (vec![], vec![], vec![]);
            let mut reason = String::new();
            for _ in 0..rounds {
                let (single, whole, _) = run(&machine, &trace, 1);
                let (divided, parts, why) = run(&machine, &trace, threads);
                assert_eq!(whole, parts, "{}", file.display());
                (one.push(single), many.push(divided), gains.push(single / divided));
                reason = why.map_or_else(String::new, |why| format!("  one thread: {why}"));
            }
            let file = file.file_stem().unwrap_or_default().to_string_lossy();
            let (one, many, gain) = (median(&mut one), median(&mut many), median(&mut gains));
            println!("{file:<20} {name:<7} {one:>8.3} {many:>8.3} {gain:>6.2}{reason}");
        }
    }
    Ok(())
}
