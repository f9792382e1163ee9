//! The page table of one address space: pages of any power of two of base pages, looked up
//! for every access. Memory is in proportion to the pages that are mapped (a leaf covers 512).
//!
//! Which frame a page gets is decided elsewhere; this table only remembers.

use std::collections::HashMap;

use huepage_color::{NumberHash, Pfn, Vpn};

const LEAF_BITS: u32 = 9;
const LEAF: usize = 1 << LEAF_BITS;
/// Leaves that are found without hashing.
const RECENT_BITS: u32 = 9;
/// The largest page: 2^18 base pages, 1 GiB.
pub const MAX_ORDER: u32 = 18;

/// Where a base page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping(u64);

impl Mapping {
    const NONE: Mapping = Mapping(0);

    const fn new(frame: Pfn, order: u32) -> Mapping {
        Mapping(frame.0 << 8 | (order as u64) << 1 | 1)
    }

    /// The frame of the base page, in the middle of a superpage or not.
    pub const fn frame(self) -> Pfn {
        Pfn(self.0 >> 8)
    }

    /// log2 of the base pages of the page it belongs to.
    pub const fn order(self) -> u32 {
        (self.0 >> 1 & 0x7f) as u32
    }

    const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// A page table.
#[derive(Clone, Debug)]
pub struct Space {
    /// Leaves, one after the other, so that an entry is one load away from its leaf's number.
    leaves: Vec<Mapping>,
    places: HashMap<u64, u32, NumberHash>,
    recent: Box<[(u64, u32); 1 << RECENT_BITS]>,
    mapped: u64,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            leaves: Vec::new(),
            places: HashMap::default(),
            recent: Box::new([(u64::MAX, 0); 1 << RECENT_BITS]),
            mapped: 0,
        }
    }
}

impl Space {
    /// An empty table.
    pub fn new() -> Space {
        Space::default()
    }

    /// Base pages that are mapped.
    pub const fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Where a base page is.
    #[inline]
    pub fn find(&mut self, page: Vpn) -> Option<Mapping> {
        let number = page.0 >> LEAF_BITS;
        // Regions begin at round addresses: mixed, they do not meet in a slot.
        let slot = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_BITS)) as usize;
        if self.recent[slot].0 != number {
            self.recent[slot] = (number, *self.places.get(&number)?);
        }
        let at = self.recent[slot].1 as usize * LEAF + place_in_leaf(page);
        self.leaves.get(at).copied().filter(|mapping| mapping.is_some())
    }

    /// Maps the page of 2^`order` base pages that begins at `page` to the frames from `frame`
    /// on, in place of whatever was there.
    ///
    /// # Panics
    /// If page or frame are not aligned to the page's size, or it is larger than 1 GiB.
    pub fn map(&mut self, page: Vpn, frame: Pfn, order: u32) {
        assert!(order <= MAX_ORDER, "a page of 2^{order} base pages");
        let mask = (1_u64 << order) - 1;
        assert!(page.0 & mask == 0 && frame.0 & mask == 0, "{page} at {frame}, order {order}");
        for i in 0..=mask {
            let place = self.place(Vpn(page.0 + i));
            self.mapped += u64::from(!place.is_some());
            *self.place(Vpn(page.0 + i)) = Mapping::new(Pfn(frame.0 + i), order);
        }
    }

    /// Unmaps the page that a base page belongs to: its first base page, and where it was.
    pub fn unmap(&mut self, page: Vpn) -> Option<(Vpn, Mapping)> {
        let order = self.find(page)?.order();
        let first = Vpn(page.0 >> order << order);
        let was = self.find(first)?;
        for i in 0..1 << order {
            *self.place(Vpn(first.0 + i)) = Mapping::NONE;
            self.mapped -= 1;
        }
        Some((first, was))
    }

    /// Every mapped page, by its first base page, in no order.
    pub fn pages(&self) -> impl Iterator<Item = (Vpn, Mapping)> + '_ {
        self.places.iter().flat_map(|(number, &leaf)| {
            let entries = (0..).zip(&self.leaves[leaf as usize * LEAF..][..LEAF]);
            entries.filter(|(_, mapping)| mapping.is_some()).filter_map(move |(i, &mapping)| {
                let page = number << LEAF_BITS | i;
                (page & ((1 << mapping.order()) - 1) == 0).then_some((Vpn(page), mapping))
            })
        })
    }

    fn place(&mut self, page: Vpn) -> &mut Mapping {
        let leaves = &mut self.leaves;
        let leaf = *self.places.entry(page.0 >> LEAF_BITS).or_insert_with(|| {
            leaves.resize(leaves.len() + LEAF, Mapping::NONE);
            u32::try_from(leaves.len() / LEAF - 1).unwrap_or(u32::MAX)
        });
        &mut self.leaves[leaf as usize * LEAF + place_in_leaf(page)]
    }
}

#[allow(clippy::cast_possible_truncation, reason = "below 512")]
const fn place_in_leaf(page: Vpn) -> usize {
    (page.0 % LEAF as u64) as usize
}
