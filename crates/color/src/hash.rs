//! A hasher for tables keyed by page and frame numbers. Those come in runs and nobody attacks
//! the tables, so one multiplication spreads them well enough; the standard hasher costs
//! several times as much. Not for keys that an adversary picks.

use std::hash::{BuildHasherDefault, Hasher};

/// What to give a `HashMap` keyed by [`Pfn`](crate::Pfn), [`Vpn`](crate::Vpn) or an integer.
pub type NumberHash = BuildHasherDefault<NumberHasher>;

/// The hasher behind [`NumberHash`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
