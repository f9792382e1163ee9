//! Random numbers for sampling: small, fast, the same for the same seed. Not for secrets.

/// A generator (xorshift64*, Marsaglia 2003 and Vigna 2016).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of a seed; any seed will do.
    pub const fn new(seed: u64) -> Dice {
        // Xorshift stays at 0 for ever, and small seeds begin alike: spread them first.
        let mixed = (seed ^ 0x6a09_e667_f3bc_c909).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Dice((mixed ^ mixed >> 29) | 1)
    }

    /// The next number.
    pub const fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = u128::from(self.bits()) * n as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with probability `share` (0 to 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    pub fn chance(&mut self, share: f64) -> bool {
        ((self.bits() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    /// Puts items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_range_and_reach_all_of_it() {
        let mut dice = Dice::new(1);
        let mut seen = [0_u32; 7];
        (0..7000).for_each(|_| seen[dice.below(7)] += 1);
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        let hits = (0..10_000).filter(|_| dice.chance(0.3)).count();
        assert!((2850..3150).contains(&hits), "{hits}");
    }
}
