//! What is left of a colour in a block of 2^k frames: the *mcolor* (Scolari 2016, section 4.2),
//! here for any linear colour function. A block that begins at frame b contains the colours
//! C(b) + S, S being spanned by the colours of the low k frame bits, which alignment leaves free
//! inside the block. Blocks with the same coset of S are alike, so the mcolor is the colour modulo
//! S. Nothing here holds frames.

use huepage_color::{Color, LinearColors, Pfn, addr::PAGE_BYTES};

/// The mcolors of a colour function for orders 0 to some largest.
#[derive(Clone, Debug)]
pub struct Mcolors {
    colors: LinearColors,
    /// What each of the low frame bits does to the colour.
    columns: Vec<u16>,
    /// Per order the start in `table` of the mcolor of each colour; orders that forget no more
    /// than the one before share theirs.
    starts: Vec<usize>,
    /// Per order, how many mcolors there are.
    counts: Vec<u16>,
    table: Vec<u16>,
}

impl Mcolors {
    /// The mcolors of blocks of up to 2^`largest` frames. Takes time and memory for each colour
    /// and each frame bit that matters.
    pub fn new(colors: LinearColors, largest: u32) -> Mcolors {
        let column = |bit: u32| colors.color(Pfn(1 << bit)).0;
        let columns: Vec<u16> = (0..largest).map(column).collect();
        let all = colors.colors();
        let mut found = Mcolors { colors, columns, starts: vec![], counts: vec![], table: vec![] };
        let mut basis: Vec<u16> = Vec::new();
        found.add_order(&basis, all);
        for at in 0..found.columns.len() {
            let forgets = extend(&mut basis, found.columns[at]);
            if forgets {
                found.add_order(&basis, all);
            } else {
                found.starts.push(found.starts[at]);
                found.counts.push(found.counts[at]);
            }
        }
        found
    }

    fn add_order(&mut self, basis: &[u16], all: u16) {
        self.starts.push(self.table.len());
        self.counts.push(all >> basis.len());
        let pivots = basis.iter().map(|row| row & row.wrapping_neg()).fold(0, |all, bit| all | bit);
        self.table.extend((0..all).map(|color| compress(reduce(basis, color), pivots)));
    }

    /// The largest order.
    pub fn largest(&self) -> u32 {
        u32::try_from(self.columns.len()).unwrap_or(u32::MAX)
    }

    /// How many mcolors blocks of an order have: a power of two.
    pub fn count(&self, order: u32) -> u16 {
        self.counts[order as usize]
    }

    /// The colours of single frames.
    pub const fn colors(&self) -> &LinearColors {
        &self.colors
    }

    /// The mcolor of the blocks of an order that contain a colour, below [`Self::count`]. Constant
    /// time.
    #[inline]
    pub fn lookup(&self, color: Color, order: u32) -> u16 {
        self.table[self.starts[order as usize] + usize::from(color.0)]
    }

    /// The mcolor of a block by its first frame. Constant time.
    #[inline]
    pub fn of_block(&self, first: Pfn, order: u32) -> u16 {
        self.lookup(self.colors.color(first), order)
    }

    /// The colour of the upper half of a block whose lower half, of this order, has `lower`.
    #[inline]
    pub(super) fn upper(&self, lower: Color, half: u32) -> Color {
        Color(lower.0 ^ self.columns[half as usize])
    }

    /// Whether an address bit of a frame matters to the colour at all.
    pub fn uses(&self, frame_bit: u32) -> bool {
        let bit = PAGE_BYTES << frame_bit;
        self.colors.masks().iter().any(|mask| mask & bit != 0)
    }
}

/// Adds a vector to a reduced basis whose pivots are the lowest bits; false if it was in its span.
fn extend(basis: &mut Vec<u16>, vector: u16) -> bool {
    let rest = reduce(basis, vector);
    if rest == 0 {
        return false;
    }
    let pivot = rest & rest.wrapping_neg();
    basis.iter_mut().filter(|row| **row & pivot != 0).for_each(|row| *row ^= rest);
    basis.push(rest);
    true
}

/// A colour without the pivots of a reduced basis.
fn reduce(basis: &[u16], color: u16) -> u16 {
    let set = |row: &&u16| color & **row & row.wrapping_neg() != 0;
    basis.iter().filter(set).fold(color, |color, row| color ^ row)
}

/// The bits outside `pivots`, moved together.
fn compress(color: u16, pivots: u16) -> u16 {
    let kept = (0..u16::BITS).filter(|bit| pivots >> bit & 1 == 0);
    kept.zip(0..).fold(0, |all, (from, to)| all | (color >> from & 1) << to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use huepage_color::{IndexFunction, hash_aware};
    use proptest::prelude::*;

    fn paper() -> Mcolors {
        let last = IndexFunction::xor(6, 11, vec![0x1b_5f57_5440, 0x2e_b5fa_a880]).expect("index");
        let private = IndexFunction::linear(6, 9).expect("index");
        Mcolors::new(hash_aware(&last, Some(&private)).expect("colors"), 10)
    }

    #[test]
    fn the_papers_mcolors_come_out_by_themselves() {
        let found = paper();
        let counts: Vec<u16> = (0..=10).map(|order| found.count(order)).collect();
        assert_eq!(counts, [16, 16, 16, 16, 8, 4, 2, 1, 1, 1, 1], "the lists of figure 8");
        for color in (0..16).map(Color) {
            let [c3, c2] = [color.0 >> 3 & 1, color.0 >> 2 & 1];
            (0..=3).for_each(|order| assert_eq!(found.lookup(color, order), color.0));
            assert_eq!(found.lookup(color, 4), color.0 >> 1);
            assert_eq!(found.lookup(color, 5), color.0 >> 2);
            assert_eq!(found.lookup(color, 6), c3 ^ c2, "the special case of bit 17");
            (7..=10).for_each(|order| assert_eq!(found.lookup(color, order), 0));
        }
    }

    proptest! {
        #[test]
        fn blocks_are_alike_when_they_hold_the_same_colors(
            masks in prop::collection::vec(0_u64..1 << 9, 0..5), order in 0_u32..7, color in 0_u16..16,
        ) {
            let masks = masks.into_iter().map(|mask| mask << 12).collect();
            let Ok(colors) = LinearColors::new(masks) else { return Ok(()) };
            let found = Mcolors::new(colors.clone(), 6.max(order));
            let of = |first: u64| -> BTreeSet<u16> {
                (first..first + (1 << order)).map(|f| colors.color(Pfn(f)).0).collect()
            };
            let blocks: Vec<u64> = (0..512_u64 >> order).map(|block| block << order).collect();
            for &block in &blocks {
                let own = found.of_block(Pfn(block), order);
                prop_assert!(own < found.count(order));
                let alike = of(block) == of(blocks[0]);
                prop_assert_eq!(own == found.of_block(Pfn(blocks[0]), order), alike);
                let color = Color(color % colors.colors());
                prop_assert_eq!(found.lookup(color, order) == own, of(block).contains(&color.0));
            }
        }
    }
}
