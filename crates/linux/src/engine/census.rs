//! Where the pages of a process are: the audit's eyes, and those of `huepage inspect`.
//!
//! Reads page tables and looks colours up; changes nothing. Movable are present pages of
//! private anonymous memory that may be read and written; everything else is counted by the
//! reason why it is left alone.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet, Pfn, Vpn};
use serde::{Deserialize, Serialize};

use crate::procfs::{Area, AreaKind, Categories, PageEntry, Pagemap, ProcError, Region, ScanQuery};

/// Pages of one kind of area.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct KindCount {
    /// Resident pages that can be moved.
    pub movable: u64,
    /// Of these, pages in the partition's colours.
    pub in_colors: u64,
    /// Of these, pages of unknown colour.
    pub unknown: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Census {
    /// Movable pages per kind of area.
    pub kinds: BTreeMap<String, KindCount>,
    /// Movable pages per colour.
    pub per_color: Vec<u64>,
    /// Resident pages left alone, by reason.
    pub left_alone: BTreeMap<String, u64>,
}

impl Census {
    /// Resident pages that can be moved.
    pub fn movable(&self) -> u64 {
        self.kinds.values().map(|k| k.movable).sum()
    }

    /// Movable pages in the partition's colours.
    pub fn in_colors(&self) -> u64 {
        self.kinds.values().map(|k| k.in_colors).sum()
    }

    /// Compliance: the share of movable resident pages in the partition; 1 without any.
    pub fn compliance(&self) -> f64 {
        let movable = self.movable();
        if movable == 0 { 1.0 } else { self.in_colors() as f64 / movable as f64 }
    }
}

/// A page outside the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Its address.
    pub address: u64,
    /// Its colour, if known.
    pub color: Option<Color>,
    /// Whether no other process maps the frame.
    pub exclusive: bool,
    /// The kind of its area.
    pub kind: AreaKind,
}

/// Why pages of an area are left alone; `None` when they can be moved.
pub fn immovable(area: &Area) -> Option<&'static str> {
    use AreaKind::{HugeTlb, PrivateFile, SharedFile, SharedMemory, Special};
    match area.kind() {
        PrivateFile => return Some("private file pages"),
        SharedFile => return Some("shared file pages"),
        SharedMemory => return Some("shared memory"),
        Special => return Some("kernel's own mappings"),
        HugeTlb => return Some("hugetlb pages"),
        _ => {}
    }
    if !area.is_private_anonymous() {
        return Some("shared memory");
    }
    if area.prot.exec {
        return Some("executable anonymous memory");
    }
    if !area.prot.write || !area.prot.read {
        return Some("write-protected anonymous memory");
    }
    None
}

/// What a census looks with.
pub struct Eyes<'a> {
    /// Page tables of the process.
    pub pagemap: &'a Pagemap,
    /// Colour of a frame as far as known.
    pub color_of: &'a dyn Fn(Pfn) -> Option<Color>,
    /// The partition.
    pub colors: &'a ColorSet,
    /// Ranges of ours in the process.
    pub own: &'a [(u64, u64)],
}

impl Eyes<'_> {
    /// Counts every resident page of `areas`, and calls `outside` for each movable page that
    /// lies outside the partition, area by area and by ascending address.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn look(
        &self,
        areas: &[Area],
        mut outside: impl FnMut(&Area, Outside),
    ) -> Result<Census, ProcError> {
        let mut census =
            Census { per_color: vec![0; usize::from(self.colors.universe())], ..Census::default() };
        for area in areas {
            if self.own.iter().any(|&(start, end)| area.start < end && start < area.end) {
                continue;
            }
            match immovable(area) {
                None => self.look_at(area, &mut census, &mut outside)?,
                Some(why) => {
                    let n = self.resident(area)?;
                    if n > 0 {
                        *census.left_alone.entry(why.into()).or_default() += n;
                    }
                }
            }
        }
        Ok(census)
    }

    fn regions(&self, area: &Area) -> Result<Vec<Region>, ProcError> {
        let mut query = ScanQuery::present();
        query.none_of = Categories::PFNZERO;
        query.report = Categories::PRESENT;
        let mut regions = Vec::new();
        self.pagemap.scan(area.start..area.end, &query, &mut regions)?;
        Ok(regions)
    }

    fn resident(&self, area: &Area) -> Result<u64, ProcError> {
        if area.kind() == AreaKind::Special {
            return Ok(0);
        }
        Ok(self.regions(area)?.iter().map(Region::pages).sum())
    }

    fn look_at(
        &self,
        area: &Area,
        census: &mut Census,
        outside: &mut impl FnMut(&Area, Outside),
    ) -> Result<(), ProcError> {
        let mut count = KindCount::default();
        let mut entries: Vec<PageEntry> = Vec::new();
        for region in self.regions(area)? {
            let n = usize::try_from(region.pages()).unwrap_or(0);
            self.pagemap.entries(Vpn(region.start / 4096), n, &mut entries)?;
            for (i, entry) in (0u64..).zip(&entries) {
                let Some(frame) = entry.pfn() else { continue };
                count.movable += 1;
                let color = (self.color_of)(frame);
                if let Some(c) = color {
                    census.per_color[usize::from(c.0)] += 1;
                } else {
                    count.unknown += 1;
                }
                if color.is_some_and(|c| self.colors.contains(c)) {
                    count.in_colors += 1;
                } else {
                    let address = region.start + i * 4096;
                    let exclusive = entry.exclusive();
                    outside(area, Outside { address, color, exclusive, kind: area.kind() });
                }
            }
        }
        if count.movable > 0 {
            let total = census.kinds.entry(kind_name(area.kind())).or_default();
            total.movable += count.movable;
            total.in_colors += count.in_colors;
            total.unknown += count.unknown;
        }
        Ok(())
    }
}

/// The name of a kind as reports print it.
pub fn kind_name(kind: AreaKind) -> String {
    match kind {
        AreaKind::Heap => "heap",
        AreaKind::MainStack => "stack",
        AreaKind::ThreadStack => "thread stack",
        AreaKind::Anonymous => "anonymous",
        AreaKind::Bss => "bss",
        AreaKind::PrivateFile => "private file",
        AreaKind::SharedFile => "shared file",
        AreaKind::SharedMemory => "shared memory",
        AreaKind::Special => "special",
        AreaKind::HugeTlb => "hugetlb",
    }
    .into()
}

/// End of what a program can map; the kernel lists one mapping of its own above it.
const USER_END: u64 = 0x7fff_ffff_f000;

/// The ranges to watch: each reaches from one mapping that cannot be watched (a file, shared
/// memory, the kernel's own, ours) to the next. Bounds at such mappings hold still; bounds at
/// an area's own ends would cut it in two when the program resizes it at that moment.
pub fn ranges(areas: &[Area], own: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let ours = |a: &Area| own.iter().any(|&(start, end)| a.start < end && start < a.end);
    let mut out = Vec::new();
    let (mut start, mut used) = (4096 * 16, false);
    for area in areas {
        if area.is_private_anonymous() && !ours(area) {
            used = true;
        } else {
            let end = area.start.min(USER_END);
            if used && start < end {
                out.push((start, end));
            }
            (start, used) = (area.end, false);
        }
    }
    if let (true, Some(last)) = (used, areas.last()) {
        out.push((start, last.end));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::procfs::parse_maps;

    #[test]
    fn ranges_end_at_mappings_that_hold_still() {
        let text = b"\
10000-20000 r-xp 00000000 08:01 77 /bin/x
20000-21000 rw-p 00010000 08:01 77 /bin/x
30000-50000 rw-p 00000000 00:00 0 [heap]
700000-710000 rw-p 00000000 00:00 0
710000-711000 ---p 00000000 00:00 0
720000-730000 rw-p 00000000 00:00 0
740000-750000 r-xp 00000000 08:01 78 /lib/y
760000-770000 rw-p 00000000 00:00 0
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";
        let areas = parse_maps(text, Path::new("maps")).expect("well formed");
        let found = ranges(&areas, &[(0x72_0000, 0x73_0000)]);
        assert_eq!(found, [(0x2_1000, 0x72_0000), (0x75_0000, USER_END)]);
    }
}
