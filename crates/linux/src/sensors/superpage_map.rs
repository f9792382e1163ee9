//! Where superpages could be built in a process: the areas that the kernel builds them in, and of
//! each aligned 2 MiB in them how many pages are resident and whether they are one already, from
//! `/proc` or from page tables. Asks nobody to build anything.

use std::collections::BTreeMap;
use std::ops::Range;

use huepage_policy::AreaKind;
use serde::Serialize;

use super::pages_between::{BytesBySize, PagesBetween};
use crate::kernel::machine::SysRoot;
pub use crate::kernel::page_tables::BlockResidency;
use crate::kernel::page_tables::{AddressSpace, PageTables, TablesError};
use crate::kernel::process_memory::{SUPERPAGE_BYTES, SUPERPAGE_PAGES};
use crate::kernel::procfs::{
    Area, Categories, Pagemap, PagemapRegion, ProcError, ProcRoot, ScanQuery,
};

/// Bytes of an area that are looked at in one piece: what the kernel says of them takes memory.
const SCAN_BYTES: usize = 1 << 30;

/// Blocks of an area above which `/proc` tells sooner what is resident: it passes what is not there
/// a gigabyte at a time. 256 GiB.
const VAST_BLOCKS: u64 = 1 << 17;

/// A process at one moment.
#[derive(Clone, Debug, Default)]
pub struct SuperpageMap {
    /// Blocks with a resident page, by address divided by 2 MiB; those that lie whole in an area
    /// in which superpages are built.
    pub blocks: BTreeMap<u64, BlockResidency>,
    /// Pages of the blocks.
    pub resident_pages: u64,
}

/// What an area of a program is made of, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AreaSizes {
    /// Its first byte.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub start: u64,
    /// One past its last byte.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub end: u64,
    /// What it is for.
    pub kind: AreaKind,
    /// Resident in pages of 2 MiB.
    pub huge: u64,
    /// Resident in pages of sizes between, by the size in KiB.
    pub between: BytesBySize,
    /// Resident in single pages.
    pub small: u64,
    /// Whether superpages are built in it.
    pub builds: bool,
}

/// The areas of a process that have anything resident, by ascending address. Costs some nanoseconds
/// for each resident page, and some ten where the kernel gives pages of sizes between.
///
/// # Errors
/// When the process has ended or cannot be read.
pub fn area_sizes(root: &ProcRoot, sys: &SysRoot, pid: i32) -> Result<Vec<AreaSizes>, ProcError> {
    let (pagemap, looker) = (root.pagemap(pid)?, PagesBetween::open(root, sys));
    let (mut found, mut regions) = (Vec::new(), Vec::new());
    for area in root.maps(pid)?.into_iter().filter(is_memory) {
        regions.clear();
        pagemap.scan(area.start..area.end, &ScanQuery::present(), &mut regions)?;
        let is_huge = |region: &&PagemapRegion| region.categories.contains(Categories::HUGE);
        let (huge, others): (Vec<_>, Vec<_>) = regions.iter().partition(is_huge);
        let bytes =
            |regions: &[&PagemapRegion]| regions.iter().map(|r| r.end - r.start).sum::<u64>();
        let (huge, others_bytes) = (bytes(&huge), bytes(&others));
        let mut between = BytesBySize::new();
        if let Some(looker) = looker.as_ref().filter(|_| area.is_private_anonymous()) {
            for region in others {
                looker.count(&pagemap, &(region.start..region.end), &mut between)?;
            }
        }
        // Pages come and go between the two looks.
        let small = others_bytes.saturating_sub(between.values().sum());
        let Area { start, end, .. } = area;
        let (kind, builds) = (area.kind(), builds(&area));
        found.push(AreaSizes { start, end, kind, huge, between, small, builds });
    }
    found.retain(|area| area.resident() > 0);
    Ok(found)
}

impl AreaSizes {
    /// Bytes that are resident.
    pub fn resident(&self) -> u64 {
        self.huge + self.between.values().sum::<u64>() + self.small
    }
}

impl SuperpageMap {
    /// Blocks with small pages that are resident, by address divided by 2 MiB.
    pub(crate) fn small_blocks(&self) -> Vec<u64> {
        let small = self.blocks.iter().filter(|(_, block)| !block.huge && block.resident > 0);
        small.map(|(&at, _)| at).collect()
    }

    /// Looks at a process with what `/proc` says. Costs some 20 ns for each page of the areas.
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn from_proc(root: &ProcRoot, pid: i32) -> Result<SuperpageMap, ProcError> {
        let (mut map, pagemap) = (SuperpageMap::default(), root.pagemap(pid)?);
        for blocks in wholes(root.maps(pid)?) {
            map.scan(&pagemap, blocks)?;
        }
        Ok(map)
    }

    /// Looks at a process with its page tables. Costs a nanosecond for each page of the areas.
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn from_tables<E: From<ProcError> + From<TablesError>>(
        root: &ProcRoot,
        tables: &mut PageTables,
        space: &AddressSpace,
    ) -> Result<SuperpageMap, E> {
        let (mut map, pagemap) = (SuperpageMap::default(), root.pagemap(space.pid())?);
        for blocks in wholes(root.maps(space.pid())?) {
            if blocks.end - blocks.start > VAST_BLOCKS {
                map.scan(&pagemap, blocks)?;
            } else {
                tables.count(space, blocks, |at, count| map.count(at, count))?;
            }
        }
        Ok(map)
    }

    fn scan(&mut self, pagemap: &Pagemap, blocks: Range<u64>) -> Result<(), ProcError> {
        let (bytes, mut regions) =
            (blocks.start * SUPERPAGE_BYTES..blocks.end * SUPERPAGE_BYTES, Vec::new());
        for start in bytes.clone().step_by(SCAN_BYTES) {
            let end = bytes.end.min(start.saturating_add(SCAN_BYTES as u64));
            regions.clear();
            pagemap.scan(start..end, &ScanQuery::present(), &mut regions)?;
            self.take(&regions);
        }
        Ok(())
    }

    fn count(&mut self, at: u64, block: BlockResidency) {
        if block.resident + block.zero > 0 {
            self.blocks.insert(at, block);
            self.resident_pages += u64::from(block.resident);
        }
    }

    fn take(&mut self, regions: &[PagemapRegion]) {
        // A sparse heap has a region for each of its pages, some dozens in a block.
        let mut open = (0, BlockResidency::default());
        for region in regions {
            self.add(region.start..region.end, region.categories, &mut open);
        }
        self.close(open);
    }

    /// Adds pages to the block at hand, or closes it and goes on with the next.
    fn add(&mut self, bytes: Range<u64>, categories: Categories, open: &mut (u64, BlockResidency)) {
        let Range { start: mut at, end } = bytes;
        while at < end {
            let next = ((at / SUPERPAGE_BYTES + 1) * SUPERPAGE_BYTES).min(end);
            let pages = (next - at) / huepage_color::PAGE_BYTES;
            if open.0 != at / SUPERPAGE_BYTES {
                self.close(std::mem::replace(
                    open,
                    (at / SUPERPAGE_BYTES, BlockResidency::default()),
                ));
            }
            let block = &mut open.1;
            let count = u16::try_from(pages).unwrap_or(0);
            if categories.contains(Categories::PFNZERO) {
                block.zero += count;
            } else {
                block.resident += count;
                block.huge |= categories.contains(Categories::HUGE);
                self.resident_pages += pages;
            }
            at = next;
        }
    }

    /// A block may have been seen in part before.
    fn close(&mut self, (at, block): (u64, BlockResidency)) {
        if block != BlockResidency::default() {
            let known = self.blocks.entry(at).or_default();
            known.resident += block.resident;
            known.zero += block.zero;
            known.huge |= block.huge;
        }
    }
}

/// Base pages that a superpage would add to what is resident.
pub fn holes(block: BlockResidency) -> u64 {
    SUPERPAGE_PAGES - u64::from(block.resident).min(SUPERPAGE_PAGES)
}

/// The blocks that lie whole in areas in which superpages are built.
fn wholes(areas: Vec<Area>) -> impl Iterator<Item = Range<u64>> {
    let whole = |area: Area| area.start.div_ceil(SUPERPAGE_BYTES)..area.end / SUPERPAGE_BYTES;
    areas.into_iter().filter(builds).map(whole).filter(|blocks| !blocks.is_empty())
}

/// Whether an area is the program's at all, and not the kernel's own.
pub(crate) fn is_memory(area: &Area) -> bool {
    area.kind() != AreaKind::Special
}

/// Whether superpages are built in an area: private memory without a file that can be written.
/// Stacks are left, as they grow.
fn builds(area: &Area) -> bool {
    area.is_private_anonymous()
        && area.kind() != AreaKind::MainStack
        && area.prot.read
        && area.prot.write
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::parse_maps;

    fn region(start: u64, pages: u64, categories: Categories) -> PagemapRegion {
        PagemapRegion {
            start,
            end: start + pages * 4096,
            categories: Categories::PRESENT | categories,
        }
    }

    fn area(line: &str) -> Area {
        parse_maps(line.as_bytes(), "maps".as_ref()).unwrap().remove(0)
    }

    #[test]
    fn pages_are_counted_by_block() {
        let base = 0x7f00_0020_0000_u64;
        let mut map = SuperpageMap::default();
        map.take(&[
            region(base, 10, Categories::NONE),
            region(base + 20 * 4096, 5, Categories::PFNZERO),
            region(base + 0x20_0000, 512, Categories::HUGE),
        ]);
        let blocks: Vec<BlockResidency> = map.blocks.values().copied().collect();
        let small = BlockResidency { resident: 10, zero: 5, huge: false };
        assert_eq!(blocks, [small, BlockResidency { resident: 512, zero: 0, huge: true }]);
        assert_eq!(map.resident_pages, 522);
        assert_eq!(holes(small), 502);
    }

    #[test]
    fn a_block_that_is_seen_in_two_pieces_is_one() {
        let base = 0x7f00_0000_0000_u64;
        let mut map = SuperpageMap::default();
        map.take(&[region(base, 100, Categories::NONE)]);
        map.take(&[region(base + 100 * 4096, 30, Categories::NONE)]);
        for at in [0x20_0000, 0x30_0000] {
            map.take(&[region(base + at, 256, Categories::HUGE)]);
        }
        let blocks: Vec<BlockResidency> = map.blocks.values().copied().collect();
        let small = BlockResidency { resident: 130, zero: 0, huge: false };
        assert_eq!(blocks, [small, BlockResidency { resident: 512, zero: 0, huge: true }]);
        assert_eq!(map.resident_pages, 642);
    }

    #[test]
    fn only_whole_blocks_of_private_memory_that_can_be_written_count() {
        let areas = [
            ("7f0000100000-7f0000a00000 rw-p 00000000 00:00 0 \n", Some(4)),
            ("7f0000100000-7f0000200000 rw-p 00000000 00:00 0 \n", None),
            ("7f0000100000-7f0000500000 rw-p 00000000 00:00 0 [heap]\n", Some(1)),
            ("7f0000000000-7f0000400000 rw-s 00000000 00:05 77 /dev/shm/x\n", None),
            ("7f0000000000-7f0000400000 r--p 00000000 00:00 0 \n", None),
            ("7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0 [stack]\n", None),
        ];
        for (line, wanted) in areas {
            let blocks = wholes(vec![area(line)]).next();
            assert_eq!(blocks.map(|blocks| blocks.end - blocks.start), wanted, "{line}");
        }
        let mut found = wholes(vec![area(areas[0].0)]);
        assert_eq!(
            found.next(),
            Some(0x7f00_0020_0000 / SUPERPAGE_BYTES..0x7f00_00a0_0000 / SUPERPAGE_BYTES)
        );
    }
}
