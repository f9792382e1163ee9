//! Placement of cells on a chip by simulated annealing: small steps over pointer structures
//! that together are larger than the cache, some parts of which are used far more than others.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Cells that a net joins.
const PINS: usize = 4;
/// Nets that a cell is in, and nets per cell.
const NETS: usize = 4;
/// Bytes per cell: place, nets, and the one net that there is for each cell.
const CELL_BYTES: usize = 8 + 4 * NETS + 4 * PINS + 8;
/// Cells within which a net list is shuffled: those that are joined are near each other in memory, as a
/// list of parts names them.
const NEAR: usize = 64;
/// One cell in so many belongs to a part of the chip that is still being worked on,
const WORKED_ON: usize = 16;
/// and this share of all attempts is made there.
const ATTEMPTED: f64 = 0.75;
/// Instructions of an attempt without access but those of looking at nets.
const WORK: u32 = 45;

/// Swaps cells at random as long as it pays or the temperature allows, one attempt for every
/// cell and round.
///
/// Stands for twolf and vpr (ROCS tables 2 and 3: 1,530 and 812 pages; 35 % and 25 % of L2
/// requests miss): each attempt picks two cells, follows them to their nets and these to all their
/// cells, some hundred bytes in a dozen places. Some cells are picked far more often than others,
/// so that some pages miss seldom and others nearly always (figure 2). Both shares and the
/// instructions are fitted to table 2.
pub fn anneal<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let mut chip = Chip::new(m, (p.size / CELL_BYTES).max(4), p.seed);
    let mut random = SplitMix::new(p.seed ^ 1);
    let mut temperature = chip.side as f64 / 4.0;
    let mut sum = Checksum::default();
    for _ in 0..p.rounds {
        for _ in 0..chip.cells {
            chip.attempt(m, &mut random, temperature);
        }
        temperature *= 0.8;
        sum.add(chip.cost.cast_unsigned());
    }
    sum.value()
}

struct Chip {
    cells: usize,
    side: usize,
    x: Array<i32>,
    y: Array<i32>,
    /// The nets of each cell.
    nets: Array<u32>,
    /// The cells of each net.
    pins: Array<u32>,
    /// Half the way around each net's cells.
    lengths: Array<u64>,
    cost: i64,
}

impl Chip {
    fn new<M: ProgramMemory>(m: &mut M, cells: usize, seed: u64) -> Chip {
        let mut random = SplitMix::new(seed);
        let side = cells.isqrt() + 1;
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let x = m.filled(cells, |cell| number(cell % side));
        let y = m.filled(cells, |cell| number(cell / side));
        let (nets, pins) = joined(m, cells, &mut random);
        let lengths = m.array(cells);
        let mut chip = Chip { cells, side, x, y, nets, pins, lengths, cost: 0 };
        for net in 0..cells {
            let length = chip.length(m, net);
            m.store(&mut chip.lengths, net, length);
            chip.cost += length.cast_signed();
        }
        chip
    }

    /// Half the way around the cells of a net.
    fn length<M: ProgramMemory>(&self, m: &mut M, net: usize) -> u64 {
        let (mut xs, mut ys) = ((i32::MAX, i32::MIN), (i32::MAX, i32::MIN));
        for pin in 0..PINS {
            let cell = m.load(&self.pins, net * PINS + pin) as usize;
            let (x, y) = (m.load(&self.x, cell), m.load(&self.y, cell));
            m.work(6);
            xs = (xs.0.min(x), xs.1.max(x));
            ys = (ys.0.min(y), ys.1.max(y));
        }
        u64::from(xs.0.abs_diff(xs.1) + ys.0.abs_diff(ys.1))
    }

    /// Swaps two cells, and back if it was too dear.
    fn attempt<M: ProgramMemory>(&mut self, m: &mut M, random: &mut SplitMix, temperature: f64) {
        m.work(WORK);
        let [one, other] = [(); 2].map(|()| self.pick(random));
        let before = self.around(m, [one, other], false);
        self.swap(m, one, other);
        let change = self.around(m, [one, other], true) - before;
        if change > 0 && random.unit() >= (-(change as f64) / temperature).exp() {
            self.swap(m, one, other);
            self.around(m, [one, other], true);
        } else {
            self.cost += change;
        }
    }

    /// A cell, most often of the part that is worked on.
    fn pick(&self, random: &mut SplitMix) -> usize {
        let part = if random.unit() < ATTEMPTED { WORKED_ON } else { 1 };
        random.below(self.cells.div_ceil(part))
    }

    fn swap<M: ProgramMemory>(&mut self, m: &mut M, one: usize, other: usize) {
        for array in [&mut self.x, &mut self.y] {
            let (a, b) = (m.load(array, one), m.load(array, other));
            m.store(array, one, b);
            m.store(array, other, a);
        }
    }

    /// The lengths of all nets that two cells are in, each net once; measured anew or as
    /// remembered.
    fn around<M: ProgramMemory>(&mut self, m: &mut M, cells: [usize; 2], anew: bool) -> i64 {
        let mut seen = [u32::MAX; 2 * NETS];
        let mut sum = 0;
        for at in 0..2 * NETS {
            let net = m.load(&self.nets, cells[at / NETS] * NETS + at % NETS);
            m.work(8);
            if seen[..at].contains(&net) {
                continue;
            }
            seen[at] = net;
            let net = net as usize;
            if anew {
                let length = self.length(m, net);
                m.store(&mut self.lengths, net, length);
            }
            sum += m.load(&self.lengths, net).cast_signed();
        }
        sum
    }
}

/// Joins cells that are near each other in an order that the layout does not follow: the nets
/// of each cell, and the cells of each net.
fn joined<M: ProgramMemory>(
    m: &mut M,
    cells: usize,
    random: &mut SplitMix,
) -> (Array<u32>, Array<u32>) {
    let mut order: Vec<u32> = (0..).take(cells).collect();
    for block in order.chunks_mut(NEAR) {
        (1..block.len()).rev().for_each(|i| block.swap(i, random.below(i + 1)));
    }
    // Net i joins places i, i + 1, i + 3 and i + 7 of the order, so a cell is in four.
    let steps = [0, 1, 3, 7];
    let pins = m.filled(cells * PINS, |at| order[(at / PINS + steps[at % PINS]) % cells]);
    let mut nets = m.array(cells * NETS);
    for net in 0..cells {
        for (slot, step) in steps.into_iter().enumerate() {
            let cell = order[(net + step) % cells] as usize;
            m.work(3);
            m.store(&mut nets, cell * NETS + slot, u32::try_from(net).unwrap_or(0));
        }
    }
    (nets, pins)
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    #[test]
    fn the_cost_is_kept_right_and_falls() {
        let mut chip = Chip::new(&mut Native, 400, 1);
        let mut random = SplitMix::new(2);
        let start = chip.cost;
        let mut temperature = 5.0;
        // Most attempts are in a corner: one in twenty swaps cells that are both elsewhere.
        for _ in 0..1200 {
            (0..400).for_each(|_| chip.attempt(&mut Native, &mut random, temperature));
            temperature *= 0.995;
        }
        let anew: u64 = (0..400).map(|net| chip.length(&mut Native, net)).sum();
        assert_eq!(chip.cost, anew.cast_signed());
        assert!(chip.cost < start * 6 / 10, "from {start} to {}", chip.cost);
        let mut places: Vec<_> = chip.x.peek().iter().zip(chip.y.peek()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 400, "no two cells in one place");
    }

    #[test]
    fn nets_and_pins_agree() {
        let chip = Chip::new(&mut Native, 100, 3);
        for cell in 0..100 {
            for &net in &chip.nets.peek()[cell * NETS..(cell + 1) * NETS] {
                let at = net as usize * PINS;
                assert!(chip.pins.peek()[at..at + PINS].contains(&u32::try_from(cell).unwrap()));
            }
        }
    }
}
