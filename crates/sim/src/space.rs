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
/// Set beside the order of a base page that came with a superpage and was never touched.
const UNTOUCHED: u8 = 0x40;

/// Where a base page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMapping(u64);

impl PageMapping {
    /// `tag` is the order and, if the base page was never touched, [`UNTOUCHED`].
    const fn new(frame: Pfn, tag: u8) -> PageMapping {
        PageMapping(frame.0 << 8 | (tag as u64) << 1 | 1)
    }

    /// The frame of the base page, in the middle of a superpage or not.
    pub const fn frame(self) -> Pfn {
        Pfn(self.0 >> 8)
    }

    /// log2 of the base pages of the page it belongs to.
    pub const fn order(self) -> u32 {
        (self.0 >> 1 & 0x1f) as u32
    }

    /// Whether the base page came with a superpage and nobody has touched it.
    pub const fn is_untouched(self) -> bool {
        self.0 >> 1 & UNTOUCHED as u64 != 0
    }
}

/// A page table.
#[derive(Clone, Debug)]
pub struct Space {
    /// Leaves, one after the other, so that an entry is one load away from its leaf's number:
    /// frames plus one, 0 for what is not mapped. Small, since most look-ups miss the caches of
    /// the processor that simulates.
    leaves: Vec<u32>,
    /// The orders of the same entries, once there was a superpage.
    orders: Vec<u8>,
    places: HashMap<u64, u32, NumberHash>,
    recent: Box<[(u64, u32); 1 << RECENT_BITS]>,
    mapped: u64,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            leaves: Vec::new(),
            orders: Vec::new(),
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
    pub fn find(&mut self, page: Vpn) -> Option<PageMapping> {
        self.view().find(page)
    }

    /// Whether there never was a superpage.
    pub(crate) const fn is_plain(&self) -> bool {
        self.orders.is_empty()
    }

    /// Itself taken apart, so that nothing has to be loaded again for every look-up.
    #[inline(always)]
    pub(crate) fn view(&mut self) -> View<'_> {
        View {
            leaves: &self.leaves,
            orders: &self.orders,
            places: &self.places,
            recent: &mut self.recent,
        }
    }

    #[inline]
    fn mapping(&self, at: usize) -> Option<PageMapping> {
        mapping(&self.leaves, &self.orders, at)
    }

    /// Maps the page of 2^`order` base pages that begins at `page` to the frames from `frame`
    /// on, in place of whatever was there. Base pages of a superpage that were not mapped count
    /// as untouched; those that were stay as they are, and a page by itself is touched.
    ///
    /// # Panics
    /// If page or frame are not aligned to the page's size, or it is larger than 1 GiB.
    pub fn map(&mut self, page: Vpn, frame: Pfn, order: u32) {
        assert!(order <= MAX_ORDER, "a page of 2^{order} base pages");
        let mask = (1_u64 << order) - 1;
        assert!(page.0 & mask == 0 && frame.0 & mask == 0, "{page} at {frame}, order {order}");
        for i in 0..=mask {
            let at = self.place(Vpn(page.0 + i));
            let is_new = self.leaves[at] == 0;
            self.mapped += u64::from(is_new);
            self.leaves[at] = u32::try_from(frame.0 + i + 1).unwrap_or(u32::MAX);
            self.set_order(at, order, is_new);
        }
    }

    fn set_order(&mut self, at: usize, order: u32, is_new: bool) {
        if order > 0 {
            self.orders.resize(self.leaves.len(), 0);
        }
        if let Some(place) = self.orders.get_mut(at) {
            let untouched = if is_new && order > 0 { UNTOUCHED } else { 0 };
            let kept = if is_new { 0 } else { *place & UNTOUCHED };
            *place = u8::try_from(order).unwrap_or(0) | untouched | kept;
        }
    }

    /// A base page that is mapped is touched; whether it was not before.
    pub fn touch(&mut self, page: Vpn) -> bool {
        let untouched = self.find(page).is_some_and(PageMapping::is_untouched);
        if untouched {
            let at = self.place(page);
            self.orders[at] &= !UNTOUCHED;
        }
        untouched
    }

    /// Breaks the superpage that a base page belongs to into base pages, which stay where they
    /// are: its first base page and its order, if there was one.
    pub fn split(&mut self, page: Vpn) -> Option<(Vpn, u32)> {
        let order = self.find(page)?.order();
        let first = Vpn(page.0 >> order << order);
        for i in 0..1 << order {
            let at = self.place(Vpn(first.0 + i));
            self.set_order(at, 0, false);
        }
        (order > 0).then_some((first, order))
    }

    /// Every mapped page, by its first base page, in no order.
    pub fn pages(&self) -> impl Iterator<Item = (Vpn, PageMapping)> + '_ {
        self.places.iter().flat_map(move |(number, &leaf)| {
            let entries = (0..LEAF).map(move |i| (i as u64, leaf as usize * LEAF + i));
            entries.filter_map(move |(i, at)| {
                let (page, mapping) = (number << LEAF_BITS | i, self.mapping(at)?);
                (page & ((1 << mapping.order()) - 1) == 0).then_some((Vpn(page), mapping))
            })
        })
    }

    /// Where the entry of a page is, in a leaf that is made if need be.
    fn place(&mut self, page: Vpn) -> usize {
        let leaves = &mut self.leaves;
        let leaf = *self.places.entry(page.0 >> LEAF_BITS).or_insert_with(|| {
            leaves.resize(leaves.len() + LEAF, 0);
            u32::try_from(leaves.len() / LEAF - 1).unwrap_or(u32::MAX)
        });
        leaf as usize * LEAF + place_in_leaf(page)
    }
}

/// A page table for many look-ups.
pub(crate) struct View<'a> {
    leaves: &'a [u32],
    orders: &'a [u8],
    places: &'a HashMap<u64, u32, NumberHash>,
    recent: &'a mut [(u64, u32); 1 << RECENT_BITS],
}

impl View<'_> {
    /// Where a base page is.
    #[inline(always)]
    pub(crate) fn find(&mut self, page: Vpn) -> Option<PageMapping> {
        let number = page.0 >> LEAF_BITS;
        let slot = slot(number);
        if self.recent[slot].0 != number {
            self.remember(slot, number)?;
        }
        mapping(self.leaves, self.orders, self.recent[slot].1 as usize * LEAF + place_in_leaf(page))
    }

    /// The frame of a base page, whatever page it belongs to.
    #[inline(always)]
    pub(crate) fn frame(&mut self, page: Vpn) -> Option<Pfn> {
        let number = page.0 >> LEAF_BITS;
        let slot = slot(number);
        if self.recent[slot].0 != number {
            self.remember(slot, number)?;
        }
        let at = self.recent[slot].1 as usize * LEAF + place_in_leaf(page);
        Some(Pfn(u64::from(self.leaves[at].checked_sub(1)?)))
    }

    /// The place of a base page's entry, which is fetched; one behind all if its leaf was not used lately.
    #[inline(always)]
    pub(crate) fn recent_entry(&self, page: Vpn) -> usize {
        let number = page.0 >> LEAF_BITS;
        let (known, leaf) = self.recent[slot(number)];
        let at = leaf as usize * LEAF + place_in_leaf(page);
        if let Some(entry) = self.leaves.get(at) {
            huepage_model::hint::fetch(entry);
        }
        if known == number { at } else { usize::MAX }
    }

    /// The frame in an entry.
    #[inline(always)]
    pub(crate) fn frame_at(&self, entry: usize) -> Option<Pfn> {
        Some(Pfn(u64::from(self.leaves.get(entry)?.checked_sub(1)?)))
    }

    #[cold]
    fn remember(&mut self, slot: usize, number: u64) -> Option<()> {
        self.recent[slot] = (number, *self.places.get(&number)?);
        Some(())
    }
}

#[inline(always)]
fn mapping(leaves: &[u32], orders: &[u8], at: usize) -> Option<PageMapping> {
    let frame = leaves[at].checked_sub(1)?;
    let tag = orders.get(at).copied().unwrap_or(0);
    Some(PageMapping::new(Pfn(u64::from(frame)), tag))
}

#[allow(clippy::cast_possible_truncation, reason = "below 512")]
const fn place_in_leaf(page: Vpn) -> usize {
    (page.0 % LEAF as u64) as usize
}

/// Where a leaf is remembered. Regions begin at round addresses: mixed, they do not meet.
#[allow(clippy::cast_possible_truncation, reason = "a few bits")]
const fn slot(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_BITS)) as usize
}
