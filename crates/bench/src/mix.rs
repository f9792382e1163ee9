//! Pseudo-random numbers and patterns: small, seeded, the same on every machine.
//!
//! Not for secrets. Patterns are functions of their place, so that a page that ends up in
//! another page's place, or an old copy of it, never looks right.

/// SplitMix64's finaliser: every bit of the result depends on every bit of `x`.
pub const fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What word `word` of page `page` holds in epoch `epoch`; never zero.
pub const fn pattern(page: u64, epoch: u64, word: u64) -> u64 {
    let mixed = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ epoch.rotate_left(40) ^ (word << 52);
    mixed.wrapping_mul(0xd129_42f0_9d2e_6d4d) | 1
}

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed; streams of different seeds are unrelated.
    pub const fn new(seed: u64) -> Rng {
        Rng(scramble(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// A range of at least 1 and at most `most` places within `0..len`.
    pub fn range(&mut self, len: usize, most: usize) -> std::ops::Range<usize> {
        let size = 1 + self.below(most.min(len));
        let start = self.below(len - size + 1);
        start..start + size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn patterns_differ_between_places_and_epochs() {
        let mut seen = HashSet::new();
        for page in 0..64 {
            for epoch in 0..16 {
                for word in 0..512 {
                    let value = pattern(page, epoch, word);
                    assert_ne!(value, 0);
                    seen.insert(value);
                }
            }
        }
        assert_eq!(seen.len(), 64 * 16 * 512);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut rng = Rng::new(1);
        let seen: HashSet<usize> = (0..1000).map(|_| rng.below(10)).collect();
        assert_eq!(seen.len(), 10);
        assert!(seen.iter().all(|n| *n < 10));
    }

    #[test]
    fn ranges_stay_inside() {
        let mut rng = Rng::new(2);
        for _ in 0..1000 {
            let range = rng.range(20, 7);
            assert!(!range.is_empty() && range.len() <= 7 && range.end <= 20);
        }
    }
}
