//! The colour of a page the slow way, to check the classifier by: each class is streamed against fifteen
//! lines of the page, many times over, with nothing learnt and no controls. It shares no judgement with
//! the classifier.

use huepage_color::Color;

use super::ProbeError;
use super::bench::{TimingBench, TimingJob};
use super::reference::ReferenceSet;
use super::timing::RoundDesc;

/// Rounds of each class, and pages and offsets of a round.
const ROUNDS: usize = 24;
const STREAM: usize = 40;
const OFFSETS: usize = 16;
/// Ticks that a round counts at most: an interrupt must not decide.
const MOST: u16 = 900;

/// The class that slows the page down most. Takes some milliseconds; `seed` chooses what is streamed.
///
/// # Errors
/// Whatever the bench fails of.
pub fn slow_color(
    set: &ReferenceSet,
    bench: &mut dyn TimingBench,
    page: u64,
    seed: usize,
) -> Result<Color, ProbeError> {
    let mut sums = vec![0u64; set.classes.classes.len()];
    for turn in 0..ROUNDS {
        for (sum, class) in sums.iter_mut().zip(&set.classes.classes) {
            let start = (seed * 7 + turn * 13) % class.len();
            let chosen = class.iter().cycle().skip(start).take(STREAM.min(class.len()));
            let stream: Vec<u64> =
                chosen.map(|&i| bench.reference_base() + u64::from(i) * 4096).collect();
            let offset = |i: usize| ((i * 5 + turn * 3) % 64 * 64) as u16;
            let job = TimingJob {
                rounds: vec![RoundDesc { first: 0, len: stream.len() as u32 }],
                stream,
                offsets: (0..OFFSETS).map(offset).collect(),
                passes: 1,
                reload: vec![page],
                prime: true,
                depth: OFFSETS as u32 - 1,
            };
            *sum += u64::from(bench.run(&job)?.latencies[0].min(MOST));
        }
    }
    let slowest = (0..sums.len()).max_by_key(|&class| sums[class]).unwrap_or(0);
    Ok(Color(slowest as u16))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::classes::ColorClasses;
    use super::super::model::{ModelBench, Replacement};
    use super::super::params::ProbeParams;
    use super::super::reference::ReferenceMemory;
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
