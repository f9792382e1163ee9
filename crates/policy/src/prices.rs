//! What TLB misses and superpages cost on a machine: from the two follows how many misses a superpage has to promise
//! before it is built. Nothing here counts anything.

/// What misses and superpages cost, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// A TLB miss without any bookkeeping; at least 1.
    pub miss: u64,
    /// Copying a KiB, its cache misses included.
    pub per_kib: u64,
    /// What every superpage costs, copied or not: page table entries and shoot-downs.
    pub setup: u64,
}

impl Default for Prices {
    /// Romer 1998, section 3.5.1: 30 cycles a miss, 3,000 a KiB, nothing else.
    fn default() -> Prices {
        Prices { miss: 30, per_kib: 3000, setup: 0 }
    }
}

impl Prices {
    /// Cycles for a superpage of which so many base pages have to be copied.
    pub const fn build(&self, copied: u64) -> u64 {
        self.setup + copied * 4 * self.per_kib
    }

    /// The charges at which a superpage is built: the whole misses in `share` of R, the cycles of
    /// construction per cycle of a miss (Romer 1998, section 3.3.3), and at least 1. It is 0,
    /// at the first miss, for what costs less than that miss alone: whoever waits there pays
    /// more than 2 + o/b times the optimum. So does rounding up: the miss that nothing could have
    /// prevented makes up for the fraction.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
    pub fn threshold(&self, cycles: u64, share: f64) -> u32 {
        let miss = self.miss.max(1);
        let least = f64::from(u8::from(cycles >= miss));
        (share * cycles as f64 / miss as f64).floor().max(least) as u32
    }
}
