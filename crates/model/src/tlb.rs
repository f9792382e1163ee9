//! Translation look-aside buffers: which pages a core can translate at once.
//!
//! A level holds pages of the sizes it was made for; the size of a page is known from the
//! page table before a level is asked, so a look-up probes one size only. Who fills it on a
//! miss, and what that costs, is decided by the machine: [`Tlb::access`] is a level that fills
//! itself; [`Tlb::look_up`] and [`Tlb::fill`] are one that software fills, which sees every
//! miss and what each fill threw out.

use huepage_color::Vpn;

use crate::lanes::{EntryWord, Isa, LaneJob, Lru};
use crate::sets::{AccessOutcome, CacheEntry, Replacement, Sets};

/// Bits of a page number that count: those of canonical 57-bit addresses. The order of a page
/// is written as a 1 below its number, so that the two take one bit more together; the space
/// stands above.
const PAGE_BITS: u32 = 45;
/// Bits of a page number in 64-bit addresses.
const ALL_BITS: u32 = 52;

/// A page as a TLB knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlbPage {
    /// Address space.
    pub space: u16,
    /// The first base page, divided by the base pages of the page.
    pub number: u64,
    /// log2 of its base pages.
    pub order: u32,
}

impl TlbPage {
    /// The page of this order that a base page belongs to.
    pub const fn of(space: u16, base: Vpn, order: u32) -> TlbPage {
        TlbPage { space, number: base.0 >> order, order }
    }

    /// Whether a base page of a space belongs to it.
    pub const fn covers(self, space: u16, base: Vpn) -> bool {
        self.space == space && base.0 >> self.order == self.number
    }

    /// What stands for it in a set.
    #[inline(always)]
    pub const fn entry(self) -> CacheEntry {
        CacheEntry::new(self.tag(), false)
    }

    #[inline(always)]
    const fn tag(self) -> u64 {
        let number = (self.number << 1 | 1) << self.order & ((1 << (PAGE_BITS + 1)) - 1);
        (self.space as u64) << (PAGE_BITS + 1) | number
    }

    #[expect(clippy::cast_possible_truncation, reason = "16 bits are above the number")]
    const fn from_tag(tag: u64) -> TlbPage {
        let order = tag.trailing_zeros();
        let base = (tag & ((1 << (PAGE_BITS + 1)) - 1)) >> 1;
        // Canonical addresses repeat their highest bit.
        let high = base >> (PAGE_BITS - 1) & 1;
        let base = base | (high * ((1 << (ALL_BITS - PAGE_BITS)) - 1)) << PAGE_BITS;
        TlbPage { space: (tag >> (PAGE_BITS + 1)) as u16, number: base >> order, order }
    }
}

/// Look-ups and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TlbCounts {
    /// Look-ups.
    pub accesses: u64,
    /// Of these, misses.
    pub misses: u64,
}

/// One level.
#[derive(Clone, Debug)]
pub struct Tlb {
    sets: Sets,
    /// Orders of the page sizes that it can hold, a bit each.
    orders: u64,
    /// What was counted so far.
    pub counts: TlbCounts,
}

impl Tlb {
    /// A level of `entries` entries in sets of `ways`; `orders` are log2 of base pages. A
    /// look-up takes time in proportion to the ways, except in a fully associative level of
    /// more than 32 entries that is replaced by age or by chance: constant time there.
    ///
    /// # Panics
    /// If `ways` does not divide `entries`, or no size is given.
    pub fn new(entries: usize, ways: usize, orders: &[u32], replacement: Replacement) -> Tlb {
        assert!(ways > 0 && entries.is_multiple_of(ways), "{entries} entries in sets of {ways}");
        assert!(!orders.is_empty(), "a TLB for no page size");
        let sets = Sets::new(entries / ways, ways, replacement, 1);
        let orders = orders.iter().fold(0, |bits, order| bits | 1 << order);
        Tlb { sets, orders, counts: TlbCounts::default() }
    }

    /// Whether it can hold pages of this order.
    #[inline]
    pub const fn takes(&self, order: u32) -> bool {
        self.orders >> order & 1 == 1
    }

    /// Looks a page up and enters it if it is missing; then `Some` of what made way, if
    /// anything did. A level that does not take the page's size has no part in it: a miss
    /// that is not counted.
    #[inline]
    pub fn access(&mut self, page: TlbPage) -> Result<(), Option<TlbPage>> {
        if !self.takes(page.order) {
            return Err(None);
        }
        self.counts.accesses += 1;
        let set = self.set_of(page.number);
        match self.sets.access(set, page.entry()) {
            AccessOutcome::Hit => Ok(()),
            AccessOutcome::Miss(victim) => {
                self.counts.misses += 1;
                Err(victim.is_line().then(|| TlbPage::from_tag(victim.line())))
            }
        }
    }

    /// The bits of a page's number by which sets differ, if looking for what was looked for last in a set
    /// changes nothing; no bits where sets are not chosen by bits.
    #[inline]
    pub fn free_repeats(&self) -> Option<u64> {
        let sets = self.sets.sets();
        let mask = if sets.is_power_of_two() { sets as u64 - 1 } else { 0 };
        (self.sets.plain_slots() != 0).then_some(mask)
    }

    /// [`Self::access`] for one base page of a space after the other; those that were missing
    /// are left at the front: how many.
    pub fn access_pages(&mut self, space: u16, pages: &mut [PageLookUp]) -> usize {
        let missing = match self.sets.plain_slots() {
            1 => self.pass::<1>(space, pages),
            2 => self.pass::<2>(space, pages),
            4 => self.pass::<4>(space, pages),
            8 => self.pass::<8>(space, pages),
            12 => self.pass::<12>(space, pages),
            16 => self.pass::<16>(space, pages),
            32 => self.pass::<32>(space, pages),
            _ => None,
        };
        missing.unwrap_or_else(|| {
            let mut missing = 0;
            for at in 0..pages.len() {
                let hit = self.access(TlbPage::of(space, pages[at].page(), 0)).is_ok();
                pages[missing] = pages[at];
                missing += usize::from(!hit);
            }
            missing
        })
    }

    /// The same over `W` slots at once, where that is possible.
    fn pass<const W: usize>(&mut self, space: u16, pages: &mut [PageLookUp]) -> Option<usize> {
        let (sets, ways) = (self.sets.sets(), self.sets.ways());
        if !sets.is_power_of_two() {
            return None;
        }
        let plain = self.sets.plain::<u64, W>()?;
        let mask = sets as u64 - 1;
        let missing = Isa::best().run(Pass { sets: plain, ways, mask, space, pages });
        self.counts.accesses += pages.len() as u64;
        self.counts.misses += missing as u64;
        Some(missing)
    }

    /// Looks a page up and enters nothing. As in [`Self::access`], a page of a size that the
    /// level does not take is not counted.
    #[inline]
    pub fn look_up(&mut self, page: TlbPage) -> bool {
        if !self.takes(page.order) {
            return false;
        }
        let found = self.sets.touch(self.set_of(page.number), page.entry());
        self.counts.accesses += 1;
        self.counts.misses += u64::from(!found);
        found
    }

    /// Enters a page, which counts as its use; what made way. Does nothing for a size that the
    /// level does not take. Entries of smaller pages that the new one covers stay until they
    /// are shot down.
    #[inline]
    pub fn fill(&mut self, page: TlbPage) -> Option<TlbPage> {
        if !self.takes(page.order) {
            return None;
        }
        match self.sets.access(self.set_of(page.number), page.entry()) {
            AccessOutcome::Miss(victim) if victim.is_line() => {
                Some(TlbPage::from_tag(victim.line()))
            }
            _ => None,
        }
    }

    /// Drops a page, as when its mapping changes; whether it was there.
    #[inline]
    pub fn forget(&mut self, page: TlbPage) -> bool {
        self.sets.remove(self.set_of(page.number), page.tag()).is_some()
    }

    /// Drops every page, of any size, that a base page belongs to (a shootdown); how many.
    pub fn shoot_down(&mut self, space: u16, base: Vpn) -> usize {
        let orders = self.orders;
        let takes = (0..u64::BITS).filter(|order| orders >> order & 1 == 1);
        takes.filter(|&order| self.forget(TlbPage::of(space, base, order))).count()
    }

    /// Drops all pages of a space; how many. Takes time in proportion to the entries.
    pub fn flush_space(&mut self, space: u16) -> usize {
        self.drop_where(|page| page.space == space)
    }

    /// Drops everything, as a context switch does without address-space numbers; how many
    /// pages that were.
    pub fn flush(&mut self) -> usize {
        self.drop_where(|_| true)
    }

    fn drop_where(&mut self, which: impl Fn(TlbPage) -> bool) -> usize {
        let doomed: Vec<TlbPage> = self.pages().filter(|&page| which(page)).collect();
        doomed.iter().for_each(|&page| _ = self.forget(page));
        doomed.len()
    }

    /// Every page that is there, in no order of meaning.
    pub fn pages(&self) -> impl Iterator<Item = TlbPage> + '_ {
        self.sets.lines().map(|(_, entry)| TlbPage::from_tag(entry.line()))
    }

    /// Whether a page is there; changes nothing.
    #[inline]
    pub fn contains(&self, page: TlbPage) -> bool {
        self.sets.contains(self.set_of(page.number), page.tag())
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
    #[inline]
    fn set_of(&self, number: u64) -> usize {
        let sets = self.sets.sets() as u64;
        let mask = sets - 1;
        (if sets & mask == 0 { number & mask } else { number % sets }) as usize
    }
}

/// A base page to look up, and for whom: 8 bytes, since every level reads and writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLookUp(u64);

impl PageLookUp {
    /// Bits that tell who asks.
    pub const ASKER_BITS: u32 = 64 - ALL_BITS;

    /// For one of at most 2^[`Self::ASKER_BITS`] askers.
    #[inline(always)]
    pub const fn new(page: Vpn, asker: u16) -> PageLookUp {
        PageLookUp(page.0 << Self::ASKER_BITS | asker as u64)
    }

    /// The page.
    #[inline(always)]
    pub const fn page(self) -> Vpn {
        Vpn(self.0 >> Self::ASKER_BITS)
    }

    /// Who asks.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "of 12 bits")]
    pub const fn asker(self) -> u16 {
        (self.0 & ((1 << Self::ASKER_BITS) - 1)) as u16
    }
}

/// The loop over pages, at a level of `W` slots.
struct Pass<'a, const W: usize> {
    sets: &'a mut [[u64; W]],
    ways: usize,
    mask: u64,
    space: u16,
    pages: &'a mut [PageLookUp],
}

impl<const W: usize> LaneJob for Pass<'_, W> {
    type Output = usize;

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
    fn run<L: Lru>(self) -> usize {
        let Pass { sets, ways, mask, space, pages } = self;
        if let [set] = sets {
            return Aged::new(set, ways).pass::<L>(space, pages);
        }
        let mut missing = 0;
        for at in 0..pages.len() {
            let asked = pages[at];
            let page = asked.page();
            let set = &mut sets[(page.0 & mask) as usize];
            let entry = u64::pack(TlbPage::of(space, page, 0).entry());
            let (hit, _) = L::access(set, ways, entry);
            pages[missing] = asked;
            missing += usize::from(!hit);
        }
        missing
    }
}

/// One set whose entries stay in their places and have ages instead, so that a look-up does not
/// wait for what the one before it has moved.
struct Aged<'a, const W: usize> {
    set: &'a mut [u64; W],
    /// The low halves of the entries, of which twice as many are compared at once.
    keys: [u32; W],
    /// For each place when it was used last, and below that the place.
    used: [u32; W],
    now: u32,
}

impl<'a, const W: usize> Aged<'a, W> {
    /// Bits of a place.
    const PLACE_BITS: u32 = 5;

    /// A set of so many ways in the order of their last use.
    #[expect(clippy::cast_possible_truncation, reason = "at most 32 places")]
    fn new(set: &'a mut [u64; W], ways: usize) -> Self {
        // Slots beyond the ways never leave.
        let used = std::array::from_fn(|at| match at < ways {
            true => ((W - at) as u32) << Self::PLACE_BITS | at as u32,
            false => u32::MAX,
        });
        let keys = set.map(Self::key);
        Aged { set, keys, used, now: W as u32 }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a part of the entry")]
    const fn key(entry: u64) -> u32 {
        entry as u32
    }

    /// [`Lru::find`] in the set.
    #[inline(always)]
    fn find<L: Lru>(&self, entry: u64) -> u32 {
        if !W.is_multiple_of(8) {
            return L::find(self.set, entry);
        }
        let found = L::find(&self.keys, Self::key(entry));
        let place = found.trailing_zeros() as usize & (W.next_power_of_two() - 1);
        if found == 0 || self.set[place].holds(entry) {
            return found;
        }
        // Pages far from each other may have the same low half.
        L::find(self.set, entry)
    }

    #[inline(always)]
    fn pass<L: Lru>(mut self, space: u16, pages: &mut [PageLookUp]) -> usize {
        assert!(pages.len() < 1 << 26, "as many ages as pages");
        let mut missing = 0;
        for at in 0..pages.len() {
            let asked = pages[at];
            let entry = u64::pack(TlbPage::of(space, asked.page(), 0).entry());
            let found = self.find::<L>(entry);
            let place = if found == 0 {
                // A loop, since a closure would not be made for wide registers.
                let mut oldest = u32::MAX;
                for &used in &self.used {
                    oldest = oldest.min(used);
                }
                let place = oldest & ((1 << Self::PLACE_BITS) - 1);
                self.set[place as usize] = entry;
                self.keys[place as usize] = Self::key(entry);
                place
            } else {
                found.trailing_zeros()
            };
            self.now += 1;
            self.used[place as usize] = self.now << Self::PLACE_BITS | place;
            pages[missing] = asked;
            missing += usize::from(found == 0);
        }
        self.put_in_order();
        missing
    }

    /// The entries in the order of their last use again.
    fn put_in_order(self) {
        let (old, mut used) = (*self.set, self.used);
        let held = used.iter().filter(|&&used| used != u32::MAX).count();
        used.sort_unstable();
        let latest_first = used[..held].iter().rev();
        for (to, used) in self.set.iter_mut().zip(latest_first) {
            *to = old[(used & ((1 << Self::PLACE_BITS) - 1)) as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pages whose entries have the same low half among them.
        #[test]
        fn pages_in_batches_are_found_as_one_by_one(
            asked in proptest::collection::vec((0_u64..20, 0_u64..3), 1..300),
            ways in 1_usize..33,
        ) {
            let all: Vec<Vpn> = asked.iter().map(|(low, high)| Vpn(high << 30 | low)).collect();
            let tlb = || Tlb::new(ways, ways, &[0], Replacement::Lru);
            let (mut batches, mut single) = (tlb(), tlb());
            for part in all.chunks(70) {
                let mut pages: Vec<PageLookUp> =
                    part.iter().map(|&page| PageLookUp::new(page, 0)).collect();
                let missing = batches.access_pages(3, &mut pages);
                let misses = |page: &&Vpn| single.access(TlbPage::of(3, **page, 0)).is_err();
                let missed: Vec<Vpn> = part.iter().filter(misses).copied().collect();
                let found: Vec<Vpn> = pages[..missing].iter().map(|of| of.page()).collect();
                prop_assert_eq!(found, missed);
            }
            prop_assert_eq!(batches.counts, single.counts);
        }
    }
}
