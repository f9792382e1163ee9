//! Page tables of x86-64 in memory that a guest writes: where an address leads, and through which entries. Nothing
//! that is read is trusted: a walk reads one entry on each level, so it ends whatever they say, and a table or page
//! outside of the guest's memory is none. (Intel SDM volume 3, chapter 4.) The plugin of the lab compiles this file
//! as well; it uses nothing else.

/// log2 of the bytes of a base page.
pub const PAGE_BITS: u32 = 12;
/// log2 of the entries of a table.
pub const TABLE_BITS: u32 = 9;
/// The most levels of a table.
pub const MAX_LEVELS: usize = 5;

/// The page or table is there.
const PRESENT: u64 = 1;
/// The entry is of a page though its level is not the last.
const LARGE: u64 = 1 << 7;
/// Where it is.
const PLACE: u64 = 0x000f_ffff_ffff_f000;

/// Where Linux has all memory, with four levels and with five; the lab's kernels put it nowhere else (`nokaslr`).
const MAPS: [(u64, u32); 2] = [(0xffff_8880_0000_0000, 4), (0xff11_0000_0000_0000, 5)];

/// A guest's memory, which has holes.
pub trait GuestMemory {
    /// Where it keeps what has a physical address; none of what is no memory.
    fn place(&self, physical: u64) -> Option<u64>;

    /// The 8 bytes at such a place.
    fn read(&self, place: u64) -> Option<u64>;
}

/// The root of a page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRoot {
    /// Its physical address.
    pub physical: u64,
    /// Levels of the table: 4 or 5.
    pub levels: u32,
}

impl TableRoot {
    /// By the address that the kernel has it at, which tells the levels as well.
    pub fn of_kernel(address: u64) -> Option<TableRoot> {
        let (base, levels) = MAPS.into_iter().find(|(base, _)| address >= *base)?;
        let physical = address - base;
        (physical & !PLACE == 0).then_some(TableRoot { physical, levels })
    }
}

/// What an entry says of where its page or table is, whoever may access it and has: 0 where it says nothing.
/// Levels count from 0, the last one's.
pub const fn translation(entry: u64, level: u32) -> u64 {
    if entry & PRESENT == 0 {
        return 0;
    }
    let large = if level > 0 { LARGE } else { 0 };
    entry & (PRESENT | PLACE | large)
}

/// Where a translation leads: to a page of that level, or to a table of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// The physical address of a page.
    Page(u64),
    /// That of a table.
    Table(u64),
}

/// Where a [`translation`] on a level leads; none if that is 0, or a page of a size that does not exist.
pub const fn leads(translation: u64, level: u32) -> Option<Leads> {
    let place = translation & PLACE;
    match (translation & PRESENT, level, translation & LARGE) {
        (0, ..) => None,
        (_, 0, _) => Some(Leads::Page(place)),
        (_, 1 | 2, LARGE) => {
            // Below the number of a large page are other bits.
            Some(Leads::Page(
                place >> (PAGE_BITS + TABLE_BITS * level) << (PAGE_BITS + TABLE_BITS * level),
            ))
        }
        (_, _, LARGE) => None,
        _ => Some(Leads::Table(place)),
    }
}

/// An entry that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkStep {
    /// Where the memory keeps it.
    pub place: u64,
    /// Its [`translation`].
    pub translation: u64,
}

/// A walk that found a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWalk {
    steps: [WalkStep; MAX_LEVELS],
    /// Levels of the table.
    levels: u32,
    /// The level of the page's entry: 0 for 4 KiB, 1 for 2 MiB, 2 for 1 GiB.
    pub level: u32,
    /// Where the memory keeps the base page that was asked for.
    pub place: u64,
}

impl PageWalk {
    /// The entries read, with their levels, the root's first.
    pub fn steps(&self) -> impl Iterator<Item = (u32, WalkStep)> + '_ {
        (self.level..self.levels).rev().zip(self.steps)
    }
}

/// Looks for a base page, by the bits of its number that count; none if a table says that it is not there.
pub fn walk(memory: &impl GuestMemory, root: TableRoot, number: u64) -> Option<PageWalk> {
    let mut steps = [WalkStep::default(); MAX_LEVELS];
    let (mut table, levels) = (root.physical, root.levels.min(5));
    for (level, step) in (0..levels).rev().zip(&mut steps) {
        let index = number >> (TABLE_BITS * level) & ((1 << TABLE_BITS) - 1);
        let place = memory.place(table)? + index * 8;
        let translation = translation(memory.read(place)?, level);
        *step = WalkStep { place, translation };
        match leads(translation, level)? {
            Leads::Table(next) => table = next,
            Leads::Page(page) => {
                let within = number & ((1 << (TABLE_BITS * level)) - 1);
                let place = memory.place(page + (within << PAGE_BITS))?;
                return Some(PageWalk { steps, levels, level, place });
            }
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;

    /// Memory of 16 MiB, all zero but for some words, of which the upper half is above 4 GiB.
    #[derive(Default)]
    pub struct Made {
        pub words: HashMap<u64, u64>,
        pub reads: Cell<usize>,
    }

    pub const HALF: u64 = 8 << 20;
    pub const HIGH: u64 = 4 << 30;

    impl GuestMemory for Made {
        fn place(&self, physical: u64) -> Option<u64> {
            match physical {
                _ if physical < HALF => Some(physical),
                _ if physical >= HIGH && physical - HIGH < HALF => Some(physical - HIGH + HALF),
                _ => None,
            }
        }

        fn read(&self, place: u64) -> Option<u64> {
            self.reads.set(self.reads.get() + 1);
            (place < 2 * HALF).then(|| self.words.get(&place).copied().unwrap_or(0))
        }
    }

    /// What Linux sets besides: writable, user, accessed, dirty, no execution.
    pub const USUAL: u64 = 0x8000_0000_0000_0066;

    impl Made {
        /// Writes entry N of a table.
        pub fn entry(&mut self, table: u64, index: u64, leads: u64) {
            self.words.insert(table + index * 8, leads | PRESENT | USUAL);
        }
    }

    const FOUR: TableRoot = TableRoot { physical: 0x1000, levels: 4 };

    /// Tables for pages 5, 512 to 1023 and the first of the second GiB.
    pub fn made() -> Made {
        let mut made = Made::default();
        made.entry(0x1000, 0, 0x2000);
        made.entry(0x2000, 0, 0x3000);
        made.entry(0x2000, 1, LARGE);
        made.entry(0x3000, 0, 0x4000);
        made.entry(0x3000, 1, (2 << 20) | LARGE | 1 << 12);
        made.entry(0x4000, 5, HIGH + 0x7000);
        made
    }

    #[test]
    fn pages_of_every_size_are_found() {
        let memory = made();
        let found = |number| walk(&memory, FOUR, number).map(|walk| (walk.level, walk.place));
        assert_eq!(found(5), Some((0, HALF + 0x7000)));
        assert_eq!(found(6), None, "not present");
        assert_eq!(found(512 + 3), Some((1, (2 << 20) + (3 << 12))));
        assert_eq!(found((1 << 18) + 700), Some((2, 700 << 12)));
        let beyond = (1 << 18) + 2048;
        assert_eq!(found(beyond), None, "a page of 1 GiB may reach beyond memory");
        assert_eq!(found(2 << 18), None);
    }

    #[test]
    fn a_walk_tells_the_entries_it_read() {
        let memory = made();
        let walk = walk(&memory, FOUR, 512).unwrap();
        let steps: Vec<_> = walk.steps().collect();
        let places: Vec<_> = steps.iter().map(|(level, step)| (*level, step.place)).collect();
        assert_eq!(places, [(3, 0x1000), (2, 0x2000), (1, 0x3008)]);
        let found = leads(steps[2].1.translation, 1);
        assert_eq!(found, Some(Leads::Page(2 << 20)), "bit 12 is no part of the number");
    }

    #[test]
    fn five_levels_have_one_more() {
        let mut memory = made();
        memory.entry(0x9000, 0x110, 0x1000);
        let root = TableRoot { physical: 0x9000, levels: 5 };
        let number = 0x110_u64 << 36 | 5;
        assert_eq!(walk(&memory, root, number).unwrap().place, HALF + 0x7000);
        assert_eq!(walk(&memory, root, 5), None);
        let same = TableRoot { levels: 4, ..FOUR };
        assert!(walk(&memory, same, number).is_some(), "four levels do not look at these bits");
    }

    #[test]
    fn damaged_tables_are_none_and_loops_end() {
        let mut memory = made();
        memory.entry(0x1000, 1, 0x1000);
        // The root is a table on each level, and then a page.
        let number = 1 << 27 | 1 << 18 | 1 << 9 | 1;
        assert_eq!(walk(&memory, FOUR, number).unwrap().place, 0x1000);
        assert_eq!(memory.reads.replace(0), 4);
        memory.entry(0x1000, 2, HALF);
        memory.entry(0x1000, 3, PLACE);
        memory.entry(0x1000, 4, LARGE);
        for wrong in [2, 3, 4] {
            assert_eq!(walk(&memory, FOUR, wrong << 27), None, "entry {wrong}");
        }
        memory.entry(0x4000, 6, HALF);
        assert_eq!(walk(&memory, FOUR, 6), None, "a page outside of memory");
        for root in [HALF, PLACE] {
            assert_eq!(walk(&memory, TableRoot { physical: root, levels: 4 }, 5), None);
        }
        let many = TableRoot { physical: 0x1000, levels: 99 };
        memory.reads.set(0);
        let _ = walk(&memory, many, number);
        assert!(memory.reads.get() <= MAX_LEVELS);
    }

    #[test]
    fn chance_never_makes_a_walk_fail() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 31
        };
        for _ in 0..2000 {
            let mut memory = Made::default();
            (0..64).for_each(|_| _ = memory.words.insert((next() % (2 * HALF)) & !7, next()));
            for level in 0..5 {
                memory.entry(0x1000 * (level + 1), next() % 4, next() & PLACE & 0xff_ffff);
            }
            let (levels, number) = (4 + (next() & 1) as u32, next() >> 19);
            let root = TableRoot { physical: 0x1000 * (1 + next() % 4), levels };
            let found = walk(&memory, root, number);
            assert!(found.is_none_or(|walk| walk.place < 2 * HALF && walk.level < 3));
        }
    }

    #[test]
    fn roots_are_known_by_where_the_kernel_has_them() {
        let root = |address| TableRoot::of_kernel(address).map(|root| (root.physical, root.levels));
        assert_eq!(root(0xffff_8880_0123_4000), Some((0x123_4000, 4)));
        assert_eq!(root(0xff11_0000_0123_4000), Some((0x123_4000, 5)));
        assert_eq!(root(0xffff_8880_0123_4008), None, "within a page");
        assert_eq!(root(0xffff_ffff_8123_4000), Some((0x777f_8123_4000, 4)), "no memory has it");
        assert_eq!((root(0), root(0x7f12_3456_7000)), (None, None));
    }

    #[test]
    fn who_may_access_a_page_is_no_part_of_a_translation() {
        assert_eq!(translation(0x5000 | PRESENT, 0), translation(0x5000 | PRESENT | USUAL, 0));
        assert_eq!(translation(0x5000, 0), 0);
        // On the last level it says how the page is cached.
        assert_eq!(translation(0x5000 | PRESENT | LARGE, 0), translation(0x5000 | PRESENT, 0));
        assert_ne!(translation(PRESENT | LARGE, 1), translation(PRESENT, 1));
    }
}
