//! Pseudo-random numbers and patterns: small, seeded, the same on every machine.
//!
//! Not for secrets. Patterns are functions of their place, so that a page that ends up in
//! another page's place, or an old copy of it, never looks right.

pub use fastrand::Rng;

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

/// A range of at least 1 and at most `most` places within `0..len`.
pub fn range(rng: &mut Rng, len: usize, most: usize) -> std::ops::Range<usize> {
    let size = 1 + rng.usize(..most.min(len));
    let start = rng.usize(..=len - size);
    start..start + size
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
    fn ranges_stay_inside() {
        let mut rng = Rng::with_seed(2);
        for _ in 0..1000 {
            let range = range(&mut rng, 20, 7);
            assert!(!range.is_empty() && range.len() <= 7 && range.end <= 20);
        }
    }
}
