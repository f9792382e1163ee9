//! The page sizes that a machine has.

/// The largest order: 2^18 base pages, 1 GiB.
const LARGEST: u32 = 18;

/// Page sizes, as orders (log2 of base pages), ascending; 4 KiB is always one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSizes {
    orders: Vec<u32>,
    /// Place of each order, plus one; 0 for sizes that there are not.
    levels: [u8; LARGEST as usize + 1],
}

impl PageSizes {
    /// These orders and 0; none if one of them is above 18 (1 GiB).
    pub fn new(orders: &[u32]) -> Option<PageSizes> {
        let mut all = [orders, &[0]].concat();
        all.sort_unstable();
        all.dedup();
        let mut levels = [0; LARGEST as usize + 1];
        for (place, &order) in (1_u8..).zip(&all) {
            *levels.get_mut(order as usize)? = place;
        }
        Some(PageSizes { orders: all, levels })
    }

    /// Every power of two from 4 KiB to 8 MiB (Romer 1998, section 3.2).
    pub fn romer() -> PageSizes {
        PageSizes::powers(11)
    }

    /// Every power of two from 4 KiB to 2^`largest` base pages, 1 GiB at most.
    pub fn powers(largest: u32) -> PageSizes {
        let orders: Vec<u32> = (0..=largest.min(LARGEST)).collect();
        PageSizes::new(&orders).unwrap_or_else(|| unreachable!("orders up to 18"))
    }

    /// Those of x86-64: 4 KiB, 2 MiB, 1 GiB.
    pub fn x86() -> PageSizes {
        PageSizes::new(&[9, 18]).unwrap_or_else(|| unreachable!("orders up to 18"))
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

impl Default for PageSizes {
    fn default() -> PageSizes {
        PageSizes::romer()
    }
}
