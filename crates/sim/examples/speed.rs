//! How fast the simulator is, against a plain loop over arrays that does the same work and
//! nothing more: three cache levels, two TLB levels and a page table, on the two synthetic
//! streams. Both run in turns; what counts is the ratio. Prints accesses per second, the
//! medians and the ratio, and ends with 1 when a promise is missed.
//!
//! `cargo run --release -p huepage-sim --example speed [-- ROUNDS]`

mod shared;

use huepage_sim::frames::{Choice, Frames};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;
use rustix::time::{ClockId, clock_gettime};
use shared::median;

const ACCESSES: usize = 10_000_000;
/// The simulator may take this many times as long as the plain loop.
const BOUND: f64 = 1.5;
/// The machine of the plain loop.
const MACHINE: &str = include_str!("../../../machines/cascade-lake-like.toml");

/// A cache or TLB as bare arrays, least recently used, most recent first.
struct Plain<const WAYS: usize> {
    sets: Vec<[u64; WAYS]>,
    misses: u64,
}

impl<const WAYS: usize> Plain<WAYS> {
    fn new(sets: usize) -> Self {
        Plain { sets: vec![[0; WAYS]; sets], misses: 0 }
    }

    #[inline(always)]
    fn access(&mut self, line: u64) -> bool {
        let place = usize::try_from(line & (self.sets.len() as u64 - 1)).unwrap_or(0);
        let set = &mut self.sets[place];
        let key = line + 1;
        if set[0] == key {
            return true;
        }
        let mut carried = set[0];
        for way in &mut set[1..] {
            let here = std::mem::replace(way, carried);
            if here == key {
                set[0] = key;
                return true;
            }
            carried = here;
        }
        set[0] = key;
        self.misses += 1;
        false
    }
}

/// The plain loop: first-level misses and accesses per second.
fn plain(trace: &[Record]) -> (u64, f64) {
    let (mut l1, mut l2, mut l3) =
        (Plain::<8>::new(64), Plain::<16>::new(1024), Plain::<16>::new(16384));
    let (mut t1, mut t2) = (Plain::<4>::new(16), Plain::<12>::new(128));
    let mut table = vec![0_u32; 1 << 20];
    let mut frames = 1_u32;
    let start = thread_seconds();
    for record in trace {
        let address = record.address.0;
        let page = address >> 12;
        if !t1.access(page) {
            t2.access(page);
        }
        let place = &mut table[page as usize & ((1 << 20) - 1)];
        if *place == 0 {
            *place = (frames.wrapping_mul(2_654_435_761) % (1 << 20)) | 1;
            frames += 1;
        }
        let line = ((u64::from(*place) << 12) | (address & 4095)) >> 6;
        if !l1.access(line) && !l2.access(line) {
            l3.access(line);
        }
    }
    (l1.misses, trace.len() as f64 / (thread_seconds() - start))
}

/// The simulator: first-level misses and accesses per second.
fn simulated(trace: &[Record]) -> (u64, f64) {
    let machine = Machine::parse(MACHINE).expect("a sound description");
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    let mut system = System::new(machine, frames);
    let start = thread_seconds();
    system.run(0, trace).expect("enough frames");
    let speed = trace.len() as f64 / (thread_seconds() - start);
    system.check().expect("a sound state");
    (system.report().caches[0].1.missed(), speed)
}

/// CPU time of this thread: what others do on the machine does not count as ours.
fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut missed = false;
    for (name, mix, want, floor) in
        [("miss-heavy", Mix::MissHeavy, 5_488_175, 20.0), ("hot", Mix::Hot, 1_324_127, 30.0)]
    {
        let trace: Vec<Record> = MixStream::new(mix).take(ACCESSES).collect();
        let loads: Vec<Record> =
            trace.iter().map(|r| Record { kind: AccessKind::Load, ..*r }).collect();
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..rounds {
            let (misses, speed) = plain(&trace);
            assert_eq!(misses, want, "misses of the plain loop");
            let (counted, own) = simulated(&trace);
            assert_eq!(counted, want, "misses of the simulator");
            theirs.push(speed / 1e6);
            ours.push(own / 1e6);
            ratios.push(speed / own);
        }
        let (_, reading) = simulated(&loads);
        let (own, plain, ratio) = (median(&mut ours), median(&mut theirs), median(&mut ratios));
        println!(
            "{name:<11} simulator {own:6.1} M/s   plain loop {plain:6.1} M/s   ratio {ratio:.2}   \
             (loads only {:.1} M/s; {want} first-level misses in both)",
            reading / 1e6
        );
        missed |= ratio > BOUND || own < floor;
    }
    if missed {
        println!("MISSED: a ratio above {BOUND}, or fewer than 20 and 30 M/s");
        std::process::exit(1);
    }
}
