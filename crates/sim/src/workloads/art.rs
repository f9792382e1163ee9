//! A neural network that scans an image, as in art: two large arrays of weights that stream
//! by, and one layer of neurons that is used again and again between them. The loops are in the
//! order of the program's: every second neuron that is still in question goes over all rows of
//! weights, a number of each.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Numbers per neuron of the first layer: 64 bytes.
const PARTS: usize = 8;
/// Neurons of the second layer, each with one weight up and one down per first neuron. Together
/// with `PARTS` this gives the layer a quarter of the size, as 160 of 660 pages in ROCS 3.2.2.
const SECOND: usize = 12;
/// Second neurons that are still in question when a window is matched. With these, weights make two
/// fifths of the requests as in section 3.2.2.
const ASKED: usize = 4;
/// Bytes of weights, and of the layer, per neuron of the first layer: what the arrays begin with, in
/// this order.
pub const NEURON_BYTES: [usize; 2] = [8 * 2 * SECOND, 8 * PARTS];
/// Points of the image per neuron: what is not of the three arrays in table 3 of ROCS, 205 of 865 pages.
const POINTS: usize = 80;

/// Neurons of the first layer in a network of so many bytes, its image included.
pub const fn neurons(size: usize) -> usize {
    size / (NEURON_BYTES[0] + NEURON_BYTES[1] + POINTS)
}

/// Presents `rounds` windows of an image to the network.
///
/// Stands for art (ROCS section 3.2.2): `tds` and `bus`, two arrays of weights over 500 pages,
/// make 39 % of the L2 requests and miss four times in five; `f1_layer`, 160 pages of neurons,
/// makes 56 % and misses 42 %. The layer would fit in the 512 KiB L2 nearly alone, but the
/// weights pass through between its uses: the case a pollute buffer is made for. Instructions
/// between accesses are fitted to its misses per instruction (table 2).
pub fn art<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let mut network = Network::new(m, neurons(p.size), p.seed);
    let mut random = SplitMix::new(p.seed ^ 1);
    let mut sum = Checksum::default();
    for _ in 0..p.rounds {
        let winner = network.present(m, random.below(network.image.len()));
        sum.add(winner as u64);
    }
    sum.add(Checksum::of(m, &network.layer));
    sum.value()
}

/// Instructions without access for a neuron in a pass over the layer, and for a weight that is matched.
const WORK: u32 = 7;
const MATCHED: u32 = 14;

/// Places of a neuron's numbers.
const INPUT: usize = 0;
const W: usize = 1;
const X: usize = 2;
const V: usize = 3;
const U: usize = 4;
const P: usize = 5;
const Q: usize = 6;

struct Network {
    neurons: usize,
    layer: Array<f64>,
    bus: Array<f64>,
    tds: Array<f64>,
    image: Array<u8>,
}

impl Network {
    fn new<M: ProgramMemory>(m: &mut M, neurons: usize, seed: u64) -> Network {
        let mut random = SplitMix::new(seed);
        let tds = m.filled(neurons * SECOND, |_| random.unit() * 0.1);
        let bus = m.filled(neurons * SECOND, |_| random.unit() * 0.1);
        let layer = m.filled(neurons * PARTS, |_| 0.0);
        let image = m.filled(neurons * POINTS, |_| u8::try_from(random.below(256)).unwrap_or(0));
        Network { neurons, layer, bus, tds, image }
    }

    /// Shows the window that begins at a point, lets the layers settle, and gives the second neuron
    /// that answers most.
    fn present<M: ProgramMemory>(&mut self, m: &mut M, from: usize) -> usize {
        for neuron in 0..self.neurons {
            m.work(6);
            let value = m.load(&self.image, (from + neuron) % self.image.len());
            m.store(&mut self.layer, neuron * PARTS + INPUT, f64::from(value) / 256.0);
        }
        let mut winner = 0;
        for _ in 0..2 {
            self.settle(m, winner);
            winner = self.match_weights(m);
        }
        self.learn(m, winner);
        winner
    }

    /// Passes over the layer until noise is gone; the winner's expectation comes from `tds`.
    fn settle<M: ProgramMemory>(&mut self, m: &mut M, winner: usize) {
        let mut square = 1e-12;
        self.each(m, |m, neuron, layer| {
            let value = m.load(layer, neuron + INPUT) + m.load(layer, neuron + U);
            m.store(layer, neuron + W, value);
            square += value * value;
        });
        let norm = square.sqrt();
        self.each(m, |m, neuron, layer| {
            let value = m.load(layer, neuron + W) / norm;
            m.store(layer, neuron + X, value);
        });
        let mut square = 1e-12;
        self.each(m, |m, neuron, layer| {
            let value = m.load(layer, neuron + X);
            let kept = if value > 1e-4 { value } else { 0.0 };
            let value = kept + 0.1 * m.load(layer, neuron + Q);
            m.store(layer, neuron + V, value);
            square += value * value;
        });
        let (norm, mut square) = (square.sqrt(), 1e-12);
        self.each(m, |m, neuron, layer| {
            let value = m.load(layer, neuron + V) / norm;
            m.store(layer, neuron + U, value);
        });
        for neuron in 0..self.neurons {
            let at = neuron * PARTS;
            m.work(WORK);
            let expected = m.load(&self.tds, neuron * SECOND + winner);
            let value = m.load(&self.layer, at + U) + 0.9 * expected;
            m.store(&mut self.layer, at + P, value);
            square += value * value;
        }
        let norm = square.sqrt();
        self.each(m, |m, neuron, layer| {
            let value = m.load(layer, neuron + P) / norm;
            m.store(layer, neuron + Q, value);
        });
    }

    fn each<M: ProgramMemory>(
        &mut self,
        m: &mut M,
        mut act: impl FnMut(&mut M, usize, &mut Array<f64>),
    ) {
        for neuron in 0..self.neurons {
            m.work(WORK);
            act(m, neuron * PARTS, &mut self.layer);
        }
    }

    /// The second neuron whose weights up go best with the layer, of those that are still in question.
    fn match_weights<M: ProgramMemory>(&self, m: &mut M) -> usize {
        let mut sums = [0.0; ASKED];
        for (second, sum) in sums.iter_mut().enumerate() {
            for neuron in 0..self.neurons {
                m.work(MATCHED);
                let p = m.load(&self.layer, neuron * PARTS + P);
                *sum += p * m.load(&self.bus, neuron * SECOND + second);
            }
        }
        (0..ASKED).max_by(|&a, &b| sums[a].total_cmp(&sums[b])).unwrap_or(0)
    }

    /// Moves the winner's weights towards what the layer shows.
    fn learn<M: ProgramMemory>(&mut self, m: &mut M, winner: usize) {
        for neuron in 0..self.neurons {
            m.work(8);
            let (u, at) = (m.load(&self.layer, neuron * PARTS + U), neuron * SECOND + winner);
            m.update(&mut self.tds, at, |weight| weight + 0.2 * (u - weight));
            m.update(&mut self.bus, at, |weight| weight + 0.2 * (u - weight));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    #[test]
    fn the_layer_is_a_quarter_as_in_the_paper() {
        let network = Network::new(&mut Native, 100, 1);
        let weights = network.bus.len() + network.tds.len();
        let share = network.layer.len() as f64 / (network.layer.len() + weights) as f64;
        assert!((share - 160.0 / 660.0).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_window_shown_again_finds_the_neuron_that_learnt_it() {
        let mut network = Network::new(&mut Native, 400, 1);
        let winner = (0..10).map(|_| network.present(&mut Native, 3)).last();
        let dot = |second: usize| -> f64 {
            let at = |n: usize| network.layer.peek()[n * PARTS + U];
            (0..400).map(|n| at(n) * network.bus.peek()[n * SECOND + second]).sum()
        };
        let winner = winner.unwrap();
        assert!((0..ASKED).all(|other| other == winner || dot(other) < dot(winner)));
        let norm: f64 = (0..400).map(|n| network.layer.peek()[n * PARTS + U].powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-9, "u is a unit vector, not of {norm}");
    }
}
