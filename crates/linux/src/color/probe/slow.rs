//! The colour of a page the slow way, to check the classifier by: each class is streamed against fifteen
//! lines of the page, many times over, with nothing learnt and no controls. It shares no judgement with
//! the classifier.

use huepage_color::{Color, PAGE_BYTES};

use super::ProbeError;
use super::bench::{TimingBench, TimingJob};
use super::reference::ReferenceSet;
use super::timing::RoundDesc;

/// Rounds of each class.
const ROUNDS: usize = 24;
/// Pages and offsets of a round, and how often they are streamed. Caches that keep what was used twice
/// lose a fifth of a set to 40 lines (measured on Zen 4), all of it to three times as many.
const STREAM: usize = 40;
const OFFSETS: usize = 16;
const PASSES: u32 = 3;

/// The class whose stream evicts the page. Takes some 10 ms; `seed` chooses what is streamed.
///
/// The faster half of the rounds of each class is compared: a neighbour evicts lines in some rounds, the
/// page's own class in all of them. Classes take turns, so that no short disturbance meets one of them alone.
///
/// # Errors
/// Whatever the bench fails of.
pub fn slow_color(
    set: &ReferenceSet,
    bench: &mut dyn TimingBench,
    page: u64,
    seed: usize,
) -> Result<Color, ProbeError> {
    let classes = &set.classes.classes;
    let mut times = vec![Vec::with_capacity(ROUNDS); classes.len()];
    for turn in 0..ROUNDS {
        for (times, class) in times.iter_mut().zip(classes) {
            let start = (seed * 7 + turn * 13, turn * 3);
            let job = round(class, bench.reference_base(), page, start);
            times.push(bench.run(&job)?.latencies[0]);
        }
    }
    let fast = |times: &mut Vec<u16>| -> u64 {
        times.sort_unstable();
        times[..ROUNDS / 2].iter().copied().map(u64::from).sum()
    };
    let sums = times.iter_mut().map(fast).enumerate();
    let slowest = sums.max_by_key(|&(_, sum)| sum).map_or(0, |(color, _)| color);
    Ok(Color(slowest as u16))
}

/// Streams pages of a class from the first one of `start` on, at offsets from the second on.
fn round(class: &[u32], base: u64, page: u64, start: (usize, usize)) -> TimingJob {
    let chosen = class.iter().cycle().skip(start.0 % class.len()).take(STREAM.min(class.len()));
    let stream: Vec<u64> = chosen.map(|&i| base + u64::from(i) * PAGE_BYTES).collect();
    TimingJob {
        rounds: vec![RoundDesc { first: 0, len: stream.len() as u32 }],
        stream,
        offsets: (0..OFFSETS).map(|i| ((i * 5 + start.1) % 64 * 64) as u16).collect(),
        passes: PASSES,
        reload: vec![page],
        prime: true,
        depth: OFFSETS as u32 - 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::classes::ColorClasses;
    use super::super::model::{ModelBench, Replacement};
    use super::super::params::ProbeParams;
    use super::super::reference_memory::ReferenceMemory;
    use super::*;

    #[test]
    fn it_finds_the_colours_of_pages() {
        let (base, pool) = (1 << 30, 1 << 40);
        let params = ProbeParams::new(8, 8, 64, 512).with_clock(26);
        let mut model = ModelBench::new(&params, Replacement::Random, base);
        model.populate(base, params.candidates, 8);
        let mut classes = vec![Vec::new(); 8];
        for i in 0..params.candidates as u32 {
            classes[usize::from(model.color(base + u64::from(i) * 4096))].push(i);
        }
        let memory = Arc::new(ReferenceMemory::private(1).unwrap());
        let classes = ColorClasses { params, classes };
        let set = ReferenceSet { memory, classes, generation: 1 };
        for (seed, page) in model.populate(pool, 40, 8).into_iter().enumerate() {
            let found = slow_color(&set, &mut model, page, seed).unwrap();
            assert_eq!(found.0, model.color(page));
        }
    }
}
