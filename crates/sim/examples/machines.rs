//! How fast the simulator is on every machine file.

mod shared;

use huepage_sim::frames::{Choice, Frames};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::system::System;
use rustix::time::{ClockId, clock_gettime};

fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(3);
    let n: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let files: Vec<String> = arguments.collect();
    for mix in [Mix::MissHeavy, Mix::Hot] {
        let trace: Vec<Record> = MixStream::new(mix).take(n).collect();
        for file in &files {
            let text = std::fs::read_to_string(file).expect("a file");
            let mut best = f64::MAX;
            let mut report = String::new();
            for _ in 0..rounds {
                let machine = Machine::parse(&text).expect("a sound description");
                let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
                let mut system = System::new(machine, frames);
                let start = thread_seconds();
                system.run(0, &trace).expect("enough frames");
                best = best.min(thread_seconds() - start);
                system.finish();
                report = format!("{:?}", system.report());
            }
            let sum = report.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            let name = file.rsplit('/').next().unwrap_or(file);
            println!("{mix:?} {name:<24} {:6.1} M/s {:6.1} ns  {sum:016x}", n as f64 / best / 1e6, best * 1e9 / n as f64);
        }
    }
}
