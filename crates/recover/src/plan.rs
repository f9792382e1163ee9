//! Which lines to observe. Random ones serve algebra best; clustering needs neighbours at
//! distance one and two of some lines; a base sequence needs a block of lines in a row. Plans
//! are lists of addresses: whether a machine has them is another matter.

use huepage_color::PhysAddr;

use crate::synth;
use fastrand::Rng;

/// The address bits that lines may differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Address bits of the memory: addresses are below 2^`bits`.
    pub bits: u32,
    /// log2 of the line size.
    pub line_bits: u32,
    /// log2 of the sets, if all lines are to be of one set; 0 if the set does not matter.
    pub set_bits: u32,
}

/// `count` random lines.
pub fn random(reach: Reach, count: usize, dice: &mut Rng) -> Vec<PhysAddr> {
    let like = PhysAddr(dice.u64(..));
    synth::lines(reach.bits, reach.line_bits, reach.set_bits, like, dice).take(count).collect()
}

/// Random lines, each followed by all that differ from it in one or two bits, `count` in all.
pub fn neighbours(reach: Reach, count: usize, dice: &mut Rng) -> Vec<PhysAddr> {
    let bits: Vec<u32> = (reach.line_bits + reach.set_bits..reach.bits).collect();
    let pairs = bits.iter().enumerate().flat_map(|(at, a)| {
        bits[at..].iter().map(move |b| if a == b { 1_u64 << a } else { 1 << a | 1 << b })
    });
    let flips: Vec<u64> = std::iter::once(0).chain(pairs).collect();
    let centres = count.div_ceil(flips.len());
    let around = |centre: PhysAddr| flips.iter().map(move |flip| PhysAddr(centre.0 ^ flip));
    let centres = random(reach, centres, dice);
    centres.into_iter().flat_map(around).take(count).collect()
}

/// Lines in a row at `blocks` places, and a row of `each` lines (64: a page) for every single
/// address bit that can be above a base sequence: what [`crate::recover_permuted`] needs.
pub fn sweep(reach: Reach, row_bits: u32, blocks: u32, each: u64) -> Vec<PhysAddr> {
    let row = |start: u64, lines: u64| (0..lines).map(move |l| start | l << reach.line_bits);
    let places = (0..u64::from(blocks)).map(|block| block << (reach.line_bits + row_bits));
    let bits = (reach.line_bits + 3..reach.bits).map(|bit| 1 << bit);
    let rows = places.flat_map(|at| row(at, 1 << row_bits));
    let lines = rows.chain(bits.flat_map(|at| row(at, each)));
    lines.filter(|line| line >> reach.bits == 0).map(PhysAddr).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: Reach = Reach { bits: 33, line_bits: 6, set_bits: 11 };

    #[test]
    fn neighbours_differ_in_at_most_two_bits_and_none_that_choose_the_set() {
        let lines = neighbours(REACH, 2 * 137, &mut Rng::with_seed(1));
        assert_eq!(lines.len(), 2 * 137);
        for centre in lines.chunks(137) {
            let distance = |line: &PhysAddr| (line.0 ^ centre[0].0).count_ones();
            assert_eq!(centre.iter().filter(|l| distance(l) == 1).count(), 16);
            assert_eq!(centre.iter().filter(|l| distance(l) == 2).count(), 120);
            assert!(centre.iter().all(|l| (l.0 ^ centre[0].0) & 0x1_ffff == 0));
        }
    }

    #[test]
    fn a_sweep_covers_its_rows_and_every_bit_above() {
        let reach = Reach { set_bits: 0, ..REACH };
        let lines = sweep(reach, 9, 2, 16);
        let row = |block: u64| lines.iter().filter(|l| l.0 >> 15 == block).count();
        assert!(row(0) >= 512 && row(1) >= 512);
        for bit in 15..33 {
            assert!(lines.iter().filter(|l| l.0 >> 15 << 15 == 1 << bit).count() >= 16, "{bit}");
        }
    }
}
