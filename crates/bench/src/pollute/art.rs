//! A neural network that scans an image, as art does (ROCS 2008, section 3.2.2): two arrays of weights of
//! 250 pages each pass by, and one layer of neurons of 160 pages is gone over again and again between
//! them, on a cache of 128 pages. The layer makes 56 % of the requests and the weights 39 %.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::PolluterOptions;
use crate::mix::Rng;
use crate::sys::{self, MappedMemory};

/// Words of a neuron, and weights that it has in each array.
const NEURON: usize = 8;
const WEIGHTS: usize = 12;
/// Passes over the layer for one over each array of weights: requests are lines.
const PASSES: usize = 4;

/// Runs it.
///
/// # Errors
/// When there is no memory, or nobody to talk to.
pub fn run(options: &PolluterOptions) -> io::Result<()> {
    let mut rng = Rng::with_seed(3);
    let layer = MappedMemory::private(options.of_cache(160.0 / 128.0) / sys::PAGE)?;
    let neurons = layer.words().len() / NEURON;
    let pages = (neurons * WEIGHTS * 8).div_ceil(sys::PAGE);
    let (up, down) = (MappedMemory::private(pages)?, MappedMemory::private(pages)?);
    for word in up.words().iter().chain(down.words()).chain(layer.words()) {
        word.store(f64::to_bits(rng.usize(..1000) as f64 / 10_000.0), Relaxed);
    }
    let mut winner = 0;
    options.present(&[&up, &down], &[&layer], || {
        for pass in 0..PASSES {
            settle(&layer, pass);
        }
        winner = strongest(&layer, &up, neurons);
        learn(&layer, &down, neurons, winner);
        (neurons * (PASSES + 2)) as u64
    })?;
    std::hint::black_box(winner);
    Ok(())
}

fn number(word: &std::sync::atomic::AtomicU64) -> f64 {
    f64::from_bits(word.load(Relaxed))
}

/// One pass over the layer: each neuron from what it was and its neighbour.
fn settle(layer: &MappedMemory, pass: usize) {
    let mut before = 0.0;
    for neuron in layer.words().chunks(NEURON) {
        let value = 0.5 * number(&neuron[pass % NEURON]) + 0.25 * before;
        neuron[(pass + 1) % NEURON].store(value.to_bits(), Relaxed);
        before = value;
    }
}

/// Which neuron of the second layer answers most.
fn strongest(layer: &MappedMemory, weights: &MappedMemory, neurons: usize) -> usize {
    let mut answers = [0.0; WEIGHTS];
    for neuron in 0..neurons {
        let value = number(&layer.words()[neuron * NEURON]);
        let row = &weights.words()[neuron * WEIGHTS..(neuron + 1) * WEIGHTS];
        answers.iter_mut().zip(row).for_each(|(answer, weight)| *answer += value * number(weight));
    }
    (0..WEIGHTS).max_by(|a, b| answers[*a].total_cmp(&answers[*b])).unwrap_or(0)
}

/// The winner's weights move towards the layer.
fn learn(layer: &MappedMemory, weights: &MappedMemory, neurons: usize, winner: usize) {
    for neuron in 0..neurons {
        let weight = &weights.words()[neuron * WEIGHTS + winner];
        let value = number(&layer.words()[neuron * NEURON + 1]);
        weight.store((0.9 * number(weight) + 0.1 * value).to_bits(), Relaxed);
    }
}
