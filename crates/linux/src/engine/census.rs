//! Where the pages of a process are, for audits and for `huepage inspect`.
//!
//! Reads page tables and looks colours up; changes nothing. Movable are present pages of
//! private anonymous memory that may be read and written; everything else is counted by what
//! holds it. The counting itself is the policies' census, so that engine, `inspect` and
//! simulator mean the same by a word.

use huepage_color::{Color, ColorSet, Pfn, Vpn};
use huepage_policy::{AreaKind, Census, MoveRefusal, ResidentPage};

use super::scope::Scope;
use crate::kernel::procfs::{
    Area, Categories, PageEntry, Pagemap, PagemapRegion, ProcError, ScanQuery, obstacle,
};

/// A page that lies outside the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// What a policy hears of it.
    pub seen: ResidentPage,
    /// Whether no other process maps the frame.
    pub exclusive: bool,
}

impl Outside {
    /// Its address.
    pub fn address(&self) -> u64 {
        self.seen.page.0 * 4096
    }
}

/// What a census looks with.
pub struct ColorLookup<'a> {
    /// Page tables of the process.
    pub pagemap: &'a Pagemap,
    /// Colour of a frame as far as known.
    pub color_of: &'a dyn Fn(Pfn) -> Option<Color>,
    /// The partition.
    pub colors: &'a ColorSet,
    /// Ranges of ours in the process.
    pub own: &'a [(u64, u64)],
    /// Areas registered with a userfaultfd of the program's own.
    pub foreign: &'a [(u64, u64)],
    /// Pages that are passed by.
    pub except: Option<&'a Scope>,
}

impl ColorLookup<'_> {
    /// Counts every resident page of `areas`, and calls `outside` for each movable page that
    /// lies outside the partition, area by area and by ascending address; it answers what is
    /// known to be in the way of moving the page.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn count(
        &self,
        areas: &[Area],
        mut outside: impl FnMut(&Area, Outside) -> Option<MoveRefusal>,
    ) -> Result<Census, ProcError> {
        let mut census = Census::new(self.colors.clone());
        for area in areas {
            if overlaps(area, self.own) {
                continue;
            }
            let foreign = overlaps(area, self.foreign).then_some(MoveRefusal::Userfaultfd);
            match obstacle(area).or(foreign) {
                None => self.look_at(area, &mut census, &mut outside)?,
                Some(why) => census.count_held(area.kind(), why, self.resident(area)?),
            }
        }
        Ok(census)
    }

    fn regions(&self, area: &Area) -> Result<Vec<PagemapRegion>, ProcError> {
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
        Ok(self.regions(area)?.iter().map(PagemapRegion::pages).sum())
    }

    fn look_at(
        &self,
        area: &Area,
        census: &mut Census,
        outside: &mut impl FnMut(&Area, Outside) -> Option<MoveRefusal>,
    ) -> Result<(), ProcError> {
        let mut entries: Vec<PageEntry> = Vec::new();
        for region in self.regions(area)? {
            let n = usize::try_from(region.pages()).unwrap_or(0);
            let first = region.start / 4096;
            self.pagemap.entries(Vpn(first), n, &mut entries)?;
            for (i, entry) in (0u64..).zip(&entries) {
                let Some(frame) = entry.pfn() else { continue };
                if self.except.is_some_and(|scope| scope.holds((first + i) * 4096)) {
                    continue;
                }
                let (page, color) = (Vpn(first + i), (self.color_of)(frame));
                let mut seen = ResidentPage { page, color, kind: area.kind(), obstacle: None };
                if !color.is_some_and(|c| self.colors.contains(c)) {
                    let exclusive = entry.exclusive();
                    seen.obstacle = outside(area, Outside { seen, exclusive });
                }
                census.count(&seen);
            }
        }
        Ok(())
    }
}

/// Whether an area and one of these ranges have memory in common.
pub(super) fn overlaps(area: &Area, ranges: &[(u64, u64)]) -> bool {
    ranges.iter().any(|&(start, end)| area.start < end && start < area.end)
}

/// End of what a program can map; the kernel lists one mapping of its own above it.
const USER_END: u64 = 0x7fff_ffff_f000;

/// The ranges to watch: each reaches from one mapping that cannot be watched (a file, shared
/// memory, the kernel's own, one of `apart`: ours, or those of the program's own userfaultfd) to the next. Bounds at such mappings hold still; bounds at
/// an area's own ends would cut it in two when the program resizes it at that moment.
pub fn ranges(areas: &[Area], apart: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let (mut start, mut used) = (4096 * 16, false);
    for area in areas {
        if area.is_private_anonymous() && !overlaps(area, apart) {
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
    use crate::kernel::procfs::parse_maps;

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
