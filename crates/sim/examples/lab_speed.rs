//! How fast the caches of the lab are: a victim that walks 5 MiB in random order on one core and a stream of
//! 16 MiB on another, in turns, as `huepage lab` feeds them. Nearly every access misses everywhere.

use std::time::Instant;

use huepage_model::lab::{LabMark, LabWord};
use huepage_sim::lab::EmulatedCaches;
use huepage_sim::machine::Machine;

const TURN: u64 = 2048;
const ACCESSES: u64 = 50_000_000;

fn main() {
    let machine =
        Machine::parse(include_str!("../../../machines/lab-4-core.toml")).expect("it parses");
    let mut caches = EmulatedCaches::new(&machine, 2).expect("it fits");
    let mut words = vec![LabWord::mark(0, LabMark::Begin)];
    let (victim, stream) = ((5 << 20) / 64, (16 << 20) / 64);
    let (mut walked, mut streamed) = (0, 0);
    let mut seconds = 0.0;
    for turn in 0..ACCESSES / TURN {
        for _ in 0..TURN {
            let (cpu, line) = if turn % 2 == 0 {
                // A full cycle: the factor is odd and no multiple of 5.
                walked = (walked + 48_271) % victim;
                (0, walked)
            } else {
                streamed = (streamed + 1) % stream;
                (1, victim + streamed)
            };
            words.push(LabWord::access(cpu, line * 64, 3, false, false));
        }
        if words.len() > 60_000 {
            let began = Instant::now();
            caches.run(&words);
            seconds += began.elapsed().as_secs_f64();
            words.clear();
        }
    }
    let misses = caches.class(0).levels.last().map_or(0, |last| last.misses);
    println!(
        "{:.1} M accesses/s, {misses} misses of the last level",
        caches.seen as f64 / 1e6 / seconds
    );
}
