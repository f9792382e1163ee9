//! One bit for each of the 512 base pages of a 2 MiB block.

use std::ops::{BitAnd, BitOr};

/// A set of base pages of one aligned 2 MiB block: page `i` begins `i` × 4 KiB behind its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bits512(pub [u64; 8]);

impl Bits512 {
    /// No page.
    pub const NONE: Bits512 = Bits512([0; 8]);
    /// Every page.
    pub const ALL: Bits512 = Bits512([u64::MAX; 8]);

    /// Number of pages in the set, 0 to 512.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is no page in it.
    pub fn is_empty(&self) -> bool {
        *self == Bits512::NONE
    }

    /// Whether page `index` is in the set; `false` from 512 on.
    pub fn get(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Adds page `index`; nothing happens from 512 on.
    pub fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Takes page `index` away; nothing happens from 512 on.
    pub fn clear(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// The pages in it, by ascending index.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.0.into_iter().enumerate().flat_map(|(i, word)| {
            let rest = |left: &u64| Some(left & (left - 1)).filter(|rest| *rest != 0);
            let lefts = std::iter::successors(Some(word).filter(|word| *word != 0), rest);
            lefts.map(move |left| i * 64 + left.trailing_zeros() as usize)
        })
    }
}

impl BitAnd for Bits512 {
    type Output = Bits512;
    fn bitand(self, other: Bits512) -> Bits512 {
        Bits512(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl BitOr for Bits512 {
    type Output = Bits512;
    fn bitor(self, other: Bits512) -> Bits512 {
        Bits512(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pages: &[usize]) -> Bits512 {
        let mut bits = Bits512::NONE;
        pages.iter().for_each(|page| bits.set(*page));
        bits
    }

    #[test]
    fn pages_come_back_in_order() {
        let pages = [0, 1, 63, 64, 127, 300, 448, 511];
        let bits = of(&pages);
        assert_eq!(bits.iter().collect::<Vec<_>>(), pages);
        assert_eq!(bits.count(), 8);
        assert!((0..600).all(|i| bits.get(i) == pages.contains(&i)));
        assert_eq!(of(&[512, 9999]), Bits512::NONE);
        let mut less = bits;
        [0, 64, 64, 100, 600].into_iter().for_each(|page| less.clear(page));
        assert_eq!(less, of(&[1, 63, 127, 300, 448, 511]));
        assert_eq!(Bits512::ALL.iter().count(), 512);
        assert!(Bits512::NONE.is_empty() && Bits512::NONE.iter().next().is_none());
    }

    #[test]
    fn sets_meet_and_join() {
        let (a, b) = (of(&[1, 70, 511]), of(&[70, 200]));
        assert_eq!(a & b, of(&[70]));
        assert_eq!(a | b, of(&[1, 70, 200, 511]));
    }
}
