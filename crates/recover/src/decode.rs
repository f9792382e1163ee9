//! One trial of information-set decoding: guess that a few random observations are all right,
//! and solve for the masks that give them the parities they must then have. Finding a parity
//! among wrong examples is decoding a random linear code; guessing an error-free information
//! set is Prange's algorithm (1962), and stopping a few equations early, so that several
//! candidates come of one elimination, is Lee and Brickell's gain (1988) in another form.

use huepage_color::gf2;

use crate::vectors::VectorGroup;
use fastrand::Rng;

/// Dimensions left open by a trial: a wrong equation less for every one of them, and 2^n - 1
/// candidates to be looked at.
pub const OPEN: usize = 4;
/// Dimensions that a trial may leave open if observations settle no more: with eight masks and
/// no wrong observation, eight stay open however much is drawn.
const MOST_OPEN: usize = 10;

/// Rows in echelon form, by their highest bit.
struct Echelon {
    rows: [u64; 64],
    rank: usize,
}

impl Echelon {
    fn add(&mut self, mut row: u64) {
        while row != 0 {
            let top = row.ilog2() as usize;
            if self.rows[top] == 0 {
                self.rows[top] = row;
                self.rank += 1;
                return;
            }
            row ^= self.rows[top];
        }
    }

    /// A basis of the masks whose parity is 0 for every row.
    fn annihilator(&self, bits: usize) -> Vec<u64> {
        let free = (0..bits).filter(|&bit| self.rows[bit] == 0);
        free.map(|bit| self.complete(1 << bit)).collect()
    }

    /// Sets the pivot bits of a mask whose free bits are given, the lowest pivot first, as a
    /// row's other bits are all below its pivot.
    fn complete(&self, mut mask: u64) -> u64 {
        for (top, &row) in self.rows.iter().enumerate().filter(|(_, row)| **row != 0) {
            mask |= gf2::parity(mask, row & !(1 << top)) << top;
        }
        mask
    }
}

/// Draws until all but [`OPEN`] dimensions of `bits` are settled or nothing drawn settles more,
/// and gives a basis of the candidates; empty if more than [`MOST_OPEN`] stay open. `weights`
/// are running totals of the sizes of the groups.
pub fn trial(groups: &[VectorGroup], weights: &[usize], bits: usize, dice: &mut Rng) -> Vec<u64> {
    let want = bits.saturating_sub(OPEN);
    let mut found = Echelon { rows: [0; 64], rank: 0 };
    let total = weights.last().copied().unwrap_or(0);
    let mut draws = 0;
    while found.rank < want && draws < 8 * bits {
        let at = dice.usize(..total);
        let group = &groups[weights.partition_point(|&end| end <= at)];
        draws += 1 + fill(group, want, &mut found, dice);
    }
    if bits - found.rank > MOST_OPEN { Vec::new() } else { found.annihilator(bits) }
}

/// Adds the differences to one member, or the vectors themselves if the group is anchored,
/// until there are enough or most of the group has been drawn; how many were.
fn fill(group: &VectorGroup, want: usize, found: &mut Echelon, dice: &mut Rng) -> usize {
    let vectors = &group.vectors;
    let origin = if group.anchored { 0 } else { vectors[dice.usize(..vectors.len())] };
    let mut draws = 0;
    while found.rank < want && draws < vectors.len() {
        found.add(vectors[dice.usize(..vectors.len())] ^ origin);
        draws += 1;
    }
    draws
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obs::LineGroupId;

    #[test]
    fn without_wrong_observations_every_candidate_space_holds_the_mask() {
        let mut dice = Rng::with_seed(9);
        let mask = 0x2d_4a51;
        let draw = |dice: &mut Rng, parity| {
            std::iter::repeat_with(|| dice.u64(..) >> 40)
                .filter(|&v| gf2::parity(v, mask) == parity)
                .take(40)
                .collect()
        };
        let groups = [0, 1].map(|parity| VectorGroup {
            id: LineGroupId(0),
            vectors: draw(&mut dice, parity),
            anchored: false,
        });
        for _ in 0..20 {
            let basis = trial(&groups, &[40, 80], 24, &mut dice);
            assert_eq!(basis.len(), OPEN);
            let with = [basis.clone(), vec![mask]].concat();
            assert_eq!(gf2::rank(&with), OPEN, "{mask:#x} is not in {basis:x?}");
        }
    }
}
