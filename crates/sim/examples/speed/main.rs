//! How fast the simulator is on machine files, against bare loops over arrays that do what the
//! caches and TLBs of these machines do and nothing more, on the two synthetic streams. Both run in
//! turns; what counts is the ratio. Prints accesses per second and the ratio of each, medians, and
//! ends with 1 when a promise is missed.
//!
//! `cargo run --release -p huepage-sim --example speed [-- ROUNDS [ACCESSES [FILE ...]]]`

mod bare;
#[path = "../shared/machines.rs"]
mod machines;
#[path = "../shared/mod.rs"]
mod shared;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use bare::Bare;
use huepage_color::Vpn;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::system::System;
use rustix::time::{ClockId, clock_gettime};
use shared::median;

/// The simulator may take this many times as long as the bare loop.
const BOUND: f64 = 1.3;
/// Million accesses a second that are promised of each stream.
const FLOORS: [(&str, Mix, f64); 2] = [("misses", Mix::MissHeavy, 20.0), ("hits", Mix::Hot, 30.0)];

/// CPU time of this thread: what others do on the machine does not count as ours.
fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn seconds(what: impl FnOnce()) -> f64 {
    let start = thread_seconds();
    what();
    thread_seconds() - start
}

fn system(machine: &Machine) -> System {
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    System::new(machine.clone(), frames)
}

/// What one file gave on one stream: million accesses a second, and the ratio.
struct Speed {
    own: f64,
    bare: f64,
    ratio: f64,
}

/// Both in turns.
///
/// # Panics
/// If they do not miss as often.
fn measure(machine: &Machine, trace: &[Record], rounds: usize) -> Speed {
    let (mut own, mut theirs, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..rounds {
        let mut system = system(machine);
        let ours = seconds(|| system.run(0, trace).expect("enough frames"));
        system.check().expect("a sound state");
        let mut bare = Bare::new(machine);
        for (page, frame) in (0..).map(Vpn).zip(&mut bare.table) {
            let at = system.mapping(0, page).map_or(0, |mapping| mapping.frame().0);
            *frame = u32::try_from(at).expect("few frames");
        }
        let other = seconds(|| bare.run(trace));
        compare(machine, &system, &bare);
        own.push(trace.len() as f64 / ours / 1e6);
        theirs.push(trace.len() as f64 / other / 1e6);
        ratios.push(ours / other);
    }
    Speed { own: median(&mut own), bare: median(&mut theirs), ratio: median(&mut ratios) }
}

fn compare(machine: &Machine, system: &System, bare: &Bare) {
    let report = system.report();
    let missed = |&at: &usize| report.caches[at].1.missed();
    let own: Vec<u64> = machine.data_path().iter().map(missed).collect();
    // Page tables lie elsewhere in the bare loop.
    if machine.walk.is_none() {
        assert_eq!(own, bare.misses(), "misses of the simulator and of the bare loop");
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(3), |n| n.parse())?;
    let accesses: usize = arguments.next().map_or(Ok(10_000_000), |n| n.parse())?;
    let mut files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    if files.is_empty() {
        files = machines::machine_files()?;
    }
    let mut missed = 0;
    println!("{:<20} {:<7} {:>10} {:>10} {:>6}", "machine", "stream", "M/s", "bare loop", "ratio");
    for (name, mix, floor) in FLOORS {
        let trace: Vec<Record> = MixStream::new(mix).take(accesses).collect();
        for file in &files {
            let machine = Machine::parse(&std::fs::read_to_string(file)?)?;
            let Speed { own, bare, ratio } = measure(&machine, &trace, rounds);
            let file = file.file_stem().unwrap_or_default().to_string_lossy();
            let kept = ratio <= BOUND && own >= floor;
            missed += usize::from(!kept);
            let mark = if kept { "" } else { "  MISSED" };
            println!("{file:<20} {name:<7} {own:>10.1} {bare:>10.1} {ratio:>6.2}{mark}");
        }
    }
    if missed > 0 {
        println!("{missed} of {} are above {BOUND}x or below 20 and 30 M/s", 2 * files.len());
    }
    Ok(ExitCode::from(u8::from(missed > 0)))
}
