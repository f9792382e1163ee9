//! The page sizes that a machine has, and what TLB misses and superpages cost on it: from the
//! two follows how many misses a superpage has to promise before it is built. Nothing here
//! counts anything.

/// The largest order: 2^18 base pages, 1 GiB.
const LARGEST: u32 = 18;

/// Page sizes, as orders (log2 of base pages), ascending; 4 KiB is always one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    orders: Vec<u32>,
    /// Place of each order, plus one; 0 for sizes that there are not.
    levels: [u8; LARGEST as usize + 1],
}

impl Sizes {
    /// These orders and 0; none if one of them is above 18 (1 GiB).
    pub fn new(orders: &[u32]) -> Option<Sizes> {
        let mut all = [orders, &[0]].concat();
        all.sort_unstable();
        all.dedup();
        let mut levels = [0; LARGEST as usize + 1];
        for (place, &order) in (1_u8..).zip(&all) {
            *levels.get_mut(order as usize)? = place;
        }
        Some(Sizes { orders: all, levels })
    }

    /// Every power of two from 4 KiB to 8 MiB (Romer 1998, section 3.2).
    pub fn romer() -> Sizes {
        Sizes::powers(11)
    }

    /// Every power of two from 4 KiB to 2^`largest` base pages, 1 GiB at most.
    pub fn powers(largest: u32) -> Sizes {
        let orders: Vec<u32> = (0..=largest.min(LARGEST)).collect();
        Sizes::new(&orders).unwrap_or_else(|| unreachable!("orders up to 18"))
    }

    /// Those of x86-64: 4 KiB, 2 MiB, 1 GiB.
    pub fn x86() -> Sizes {
        Sizes::new(&[9, 18]).unwrap_or_else(|| unreachable!("orders up to 18"))
    }

    /// Orders, ascending from 0.
    pub fn orders(&self) -> &[u32] {
        &self.orders
    }

    /// The largest order.
    pub fn largest(&self) -> u32 {
        self.orders[self.orders.len() - 1]
    }

    /// The place of an order among the sizes.
    pub(crate) fn level(&self, order: u32) -> Option<u8> {
        self.levels.get(order as usize)?.checked_sub(1)
    }
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes::romer()
    }
}

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
