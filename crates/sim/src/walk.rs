//! What a hardware walker reads: the physical addresses of the entries of a radix page table
//! of 512-entry levels, one per level from the root down, which then go through the caches like
//! any access (what ROCS found to cost its swim 443 cycles a walk, or 136 when pages that pollute
//! the cache are confined; ROCS 2008, section 6).
//!
//! PowerPC's table is another: one for all of memory, in which the page's number is hashed to a
//! group of eight entries that fill a line of 128 bytes.
//!
//! Only where the tables are is modelled here, not what their entries say. Pages of sizes
//! between those of the levels have the entry of each base page filled in (Talluri et al.), so
//! a walk for one ends as deep as for a base page.

use std::collections::HashMap;

use huepage_color::{NumberHash, Pfn, PhysAddr, Vpn};
use serde::{Deserialize, Serialize};

use crate::cache::{AccessOutcome, CacheEntry, Replacement, Sets};

/// A table has 2^9 entries of 2^3 bytes.
const TABLE_BITS: u32 = 9;
const ENTRY_BITS: u32 = 3;
/// The most levels there are: 57-bit addresses.
pub const MAX_LEVELS: usize = 5;

/// How a machine's page tables are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// One tree for each address space.
    #[default]
    Radix,
    /// One table for all, found by hashing (PowerPC architecture, book III, "page table").
    Hashed,
}

/// The entries that a walk reads, the root's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableWalk {
    entries: [PhysAddr; MAX_LEVELS],
    levels: usize,
}

impl TableWalk {
    /// A walk that ends with the first entry it reads.
    pub const fn one(entry: PhysAddr) -> TableWalk {
        TableWalk { entries: [entry; MAX_LEVELS], levels: 1 }
    }

    /// The entries to read, all or, after `skip` levels that a page-walk cache knew, the rest.
    /// The last is read always.
    pub fn entries(&self, skip: usize) -> &[PhysAddr] {
        &self.entries[skip.min(self.levels - 1)..self.levels]
    }
}

/// Where the tables of one address space are.
#[derive(Clone, Debug)]
pub struct Tables {
    levels: u32,
    /// By level (0 points to base pages) and by what the virtual pages under it have in common.
    frames: [HashMap<u64, Pfn, NumberHash>; MAX_LEVELS],
}

impl Tables {
    /// Of so many levels: 4 for 48-bit addresses, 5 for 57.
    ///
    /// # Panics
    /// If not 1 to 5.
    pub fn new(levels: usize) -> Tables {
        assert!((1..=MAX_LEVELS).contains(&levels), "a page table of {levels} levels");
        Tables { levels: u32::try_from(levels).unwrap_or(0), frames: Default::default() }
    }

    /// Frames that hold tables.
    pub fn frames(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.frames.iter().flat_map(|level| level.values().copied())
    }

    /// The walk for a page of 2^`order` base pages. Tables that are not there yet get a frame
    /// from `allocate`, the root first.
    ///
    /// # Errors
    /// What `allocate` says.
    pub fn walk<E>(
        &mut self,
        page: Vpn,
        order: u32,
        mut allocate: impl FnMut() -> Result<Pfn, E>,
    ) -> Result<TableWalk, E> {
        let leaf = (order / TABLE_BITS).min(self.levels - 1);
        let mut walk = TableWalk { entries: [PhysAddr(0); MAX_LEVELS], levels: 0 };
        for level in (leaf..self.levels).rev() {
            let index = page.0 >> (level * TABLE_BITS);
            // Bits above the root's do not count.
            let top = (1_u64 << ((self.levels - level) * TABLE_BITS)) - 1;
            let place = (index & top) >> TABLE_BITS;
            let frame = match self.frames[level as usize].get(&place) {
                Some(&frame) => frame,
                None => {
                    let frame = allocate()?;
                    self.frames[level as usize].insert(place, frame);
                    frame
                }
            };
            let entry = (index & ((1 << TABLE_BITS) - 1)) << ENTRY_BITS;
            walk.entries[walk.levels] = PhysAddr(frame.base().0 + entry);
            walk.levels += 1;
        }
        Ok(walk)
    }
}

/// log2 of the bytes of a group of entries: eight of 16 bytes.
const GROUP_BITS: u32 = 7;

/// log2 of the frames of a hashed page table that are taken at once, at most.
const PIECE: u32 = 11;

/// A hashed page table. It is in one piece of memory (PowerPC architecture, book III: its place is a
/// multiple of its size), so that groups that follow each other are in sets that do; here that piece
/// is taken in aligned parts, which are more than any cache has colours. A page is taken to be in
/// its first group; collisions that would put it into the second are not modelled, and rare at the
/// usual size of a group for two pages.
#[derive(Clone, Debug)]
pub struct HashedTable {
    groups: u64,
    /// log2 of the frames of a part.
    order: u32,
    /// The first frame of each part that was read.
    parts: Vec<Option<Pfn>>,
}

impl HashedTable {
    /// For a memory of so many frames: a group for every two, to the next 2^n.
    pub fn new(frames: u64) -> HashedTable {
        let groups = (frames / 2).max(32).next_power_of_two();
        let order = (groups >> (12 - GROUP_BITS)).ilog2().min(PIECE);
        HashedTable { groups, order, parts: Vec::new() }
    }

    /// Frames of the table that are in use.
    pub fn frames(&self) -> impl Iterator<Item = Pfn> + '_ {
        let first = self.parts.iter().flatten();
        first.flat_map(|first| (first.0..first.0 + (1 << self.order)).map(Pfn))
    }

    /// Where the group of a page is. The hash is the architecture's: the number within its
    /// segment of 256 MiB XOR that of the segment, which is scattered over all segments of
    /// all spaces as Linux does it, by a multiplication. Parts of the table that were not
    /// read yet get 2^n frames from `allocate`, which is told n.
    ///
    /// # Errors
    /// What `allocate` says.
    pub fn group<E>(
        &mut self,
        space: u16,
        page: Vpn,
        allocate: impl FnOnce(u32) -> Result<Pfn, E>,
    ) -> Result<PhysAddr, E> {
        const SEGMENT_BITS: u32 = 16;
        // Linux 2.6, `vsid_scramble`: a 28-bit prime, modulo 2^36 - 1.
        const MULTIPLIER: u64 = 200_730_139;
        const MODULUS: u64 = (1 << 36) - 1;
        // Of 36 bits, so that the product fits 64.
        let segment = u64::from(space) << 19 | page.0 >> SEGMENT_BITS;
        let scattered = segment * MULTIPLIER % MODULUS;
        let low = page.0 & ((1 << SEGMENT_BITS) - 1);
        let group = (scattered ^ low) & (self.groups - 1);
        let bits = self.order + 12 - GROUP_BITS;
        let (part, within) = (group >> bits, group & ((1 << bits) - 1));
        let part = usize::try_from(part).unwrap_or(usize::MAX);
        if self.parts.len() <= part {
            self.parts.resize(part + 1, None);
        }
        let first = match self.parts[part] {
            Some(first) => first,
            None => *self.parts[part].insert(allocate(self.order)?),
        };
        Ok(PhysAddr((first.0 << 12) + (within << GROUP_BITS)))
    }
}

/// Page-walk caches: for each level above the last, which tables below it a core has found
/// lately, so that a walk starts there (Barr et al., ISCA 2010, "translation caches").
#[derive(Clone, Debug)]
pub struct WalkCache {
    /// The deepest first: pointers to tables of level 0, then 1, and so on.
    levels: Vec<Option<Sets>>,
}

impl WalkCache {
    /// Fully associative ones of so many entries, the deepest first; 0 for none at a level.
    pub fn new(entries: &[usize]) -> WalkCache {
        let level = |&n: &usize| (n > 0).then(|| Sets::new(1, n, Replacement::Lru, 1));
        WalkCache { levels: entries.iter().map(level).collect() }
    }

    /// How many levels of a walk of a table of `levels` levels can be left out for a page of
    /// 2^`order` base pages; enters what the walk will find.
    pub fn skip(&mut self, space: u16, page: Vpn, order: u32, levels: usize) -> usize {
        let leaf = (order / TABLE_BITS) as usize;
        let mut skipped = 0;
        for (level, sets) in self.levels.iter_mut().enumerate().skip(leaf) {
            let Some(sets) = sets.as_mut().filter(|_| level + 1 < levels) else { continue };
            let shift = TABLE_BITS * (u32::try_from(level).unwrap_or(0) + 1);
            let name = u64::from(space) << 43 | page.0 >> shift & ((1 << 43) - 1);
            let hit = sets.access(0, CacheEntry::new(name, false)) == AccessOutcome::Hit;
            if hit && skipped == 0 {
                skipped = levels - 1 - level;
            }
        }
        skipped
    }

    /// Drops everything, as when tables change.
    pub fn flush(&mut self) {
        for sets in self.levels.iter_mut().flatten() {
            *sets = Sets::new(1, sets.ways(), Replacement::Lru, 1);
        }
    }
}
