//! Order by chance, the same in every run that begins with the same seed (xorshift).

/// A small, fast generator: the probe shuffles offsets and classes so that no pattern of the
/// cache or the prefetchers repeats. Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Shuffler(u64);

impl Shuffler {
    /// A generator with the given seed.
    pub(crate) fn new(seed: u64) -> Shuffler {
        Shuffler(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next pseudo-random number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`, which must not be 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    /// Puts the items in a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
