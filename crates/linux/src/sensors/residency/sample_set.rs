//! Which pages of a process are looked at: some of every area, in proportion to what it has resident,
//! and where they are. Chooses; counts are kept by `huepage_policy::residency::Tally`.

use huepage_color::{PAGE_BYTES, Pfn, Vpn};
use huepage_policy::AreaKind;
use huepage_policy::residency::ResidencyTally;

use crate::kernel::procfs::{
    Area, Categories, Pagemap, PagemapRegion, ProcError, ProcRoot, ScanQuery,
};
use fastrand::Rng;

/// Pages of all areas together.
const SAMPLED_PAGES: u64 = 4096;
/// Pages of one area, at least, if it has as many.
const FEWEST_PAGES_PER_AREA: u64 = 16;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleSet {
    pub(super) tally: ResidencyTally,
    /// Where each sampled page is, as far as is known.
    pub(super) frames: Vec<Option<Pfn>>,
}

impl SampleSet {
    /// Chooses pages of a process. Costs some nanoseconds for each page it has resident.
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn choose(root: &ProcRoot, pid: i32, random: &mut Rng) -> Result<SampleSet, ProcError> {
        let pagemap = root.pagemap(pid)?;
        let mut found: Vec<(Area, Vec<PagemapRegion>)> = Vec::new();
        for area in root.maps(pid)?.into_iter().filter(is_watched) {
            let mut regions = Vec::new();
            pagemap.scan(area.start..area.end, &query(), &mut regions)?;
            if !regions.is_empty() {
                found.push((area, regions));
            }
        }
        Ok(SampleSet::of(found, random))
    }

    fn of(found: Vec<(Area, Vec<PagemapRegion>)>, random: &mut Rng) -> SampleSet {
        let resident =
            |regions: &[PagemapRegion]| regions.iter().map(PagemapRegion::pages).sum::<u64>();
        let all: u64 = found.iter().map(|(_, regions)| resident(regions)).sum();
        let mut sample_set = SampleSet::default();
        for (area, regions) in found {
            let own = resident(&regions);
            let sampled_pages =
                (SAMPLED_PAGES * own / all.max(1)).max(FEWEST_PAGES_PER_AREA).min(own);
            let pages = spread(&regions, own, sampled_pages, random);
            let (place, kind) = ((area.start, area.end), area.kind());
            sample_set.tally.add(place, (kind, area.name), own, pages);
        }
        sample_set.frames.resize(sample_set.tally.sampled_pages.len(), None);
        sample_set
    }

    /// Of these pages, ascending.
    pub fn of_pages(pages: &[Vpn]) -> SampleSet {
        let mut sample_set = SampleSet::default();
        if let (Some(first), Some(last)) = (pages.first(), pages.last()) {
            let place = (first.0 * PAGE_BYTES, (last.0 + 1) * PAGE_BYTES);
            let what = (AreaKind::Heap, String::from("pages in use"));
            sample_set.tally.add(place, what, pages.len() as u64, pages.iter().copied());
        }
        sample_set.frames.resize(pages.len(), None);
        sample_set
    }

    /// Looks up where the pages are now.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn locate(&mut self, pagemap: &Pagemap) -> Result<(), ProcError> {
        for (frame, sampled_page) in self.frames.iter_mut().zip(&self.tally.sampled_pages) {
            *frame = pagemap.entry(sampled_page.page)?.pfn().filter(|frame| frame.0 != 0);
        }
        Ok(())
    }
}

/// Memory of the program's own and of files; what belongs to devices is the kernel's word for it.
fn is_watched(area: &Area) -> bool {
    let memory = ["/dev/shm/", "/dev/zero"].iter().any(|place| area.name.starts_with(place));
    area.kind() != AreaKind::Special && (memory || !area.name.starts_with("/dev/"))
}

fn query() -> ScanQuery {
    let mut query = ScanQuery::present();
    query.none_of = Categories::PFNZERO;
    query.report = Categories::PRESENT;
    query
}

/// So many pages of some regions, one of each stretch of equal length, at a place by chance.
fn spread(
    regions: &[PagemapRegion],
    resident: u64,
    sampled_pages: u64,
    random: &mut Rng,
) -> Vec<Vpn> {
    let mut chosen = Vec::new();
    let (mut before, mut next) = (0, 0);
    let mut place = |sampled_page: u64| {
        let (first, last) = (
            sampled_page * resident / sampled_pages,
            (sampled_page + 1) * resident / sampled_pages,
        );
        let room = usize::try_from(last - first).unwrap_or(1).max(1);
        first + random.usize(..room) as u64
    };
    let mut wanted = place(0);
    for region in regions {
        while next < sampled_pages && wanted < before + region.pages() {
            chosen.push(Vpn(region.start / PAGE_BYTES + wanted - before));
            next += 1;
            if next < sampled_pages {
                wanted = place(next);
            }
        }
        before += region.pages();
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::parse_maps;

    fn area(start: u64, pages: u64) -> (Area, Vec<PagemapRegion>) {
        let end = start + pages * 4096;
        let line = format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        let area = parse_maps(line.as_bytes(), "maps".as_ref()).unwrap().remove(0);
        (area, vec![PagemapRegion { start, end, categories: Categories::PRESENT }])
    }

    #[test]
    fn every_area_has_its_share_of_seats_and_small_ones_some() {
        let found = vec![area(0x10_0000, 3), area(0x7f00_0000_0000, 1 << 20), area(1 << 30, 500)];
        let sample_set = SampleSet::of(found, &mut Rng::with_seed(3));
        let sampled_pages = |at| {
            sample_set
                .tally
                .sampled_pages
                .iter()
                .filter(|sampled_page| sampled_page.area == at)
                .count()
        };
        assert_eq!((sampled_pages(0), sampled_pages(2)), (3, 16));
        assert!((4000..=4096).contains(&sampled_pages(1)), "{}", sampled_pages(1));
        let mut pages: Vec<u64> =
            sample_set.tally.sampled_pages.iter().map(|sampled_page| sampled_page.page.0).collect();
        assert!(pages.iter().all(|page| {
            sample_set
                .tally
                .areas
                .iter()
                .any(|area| (area.start..area.end).contains(&(page * 4096)))
        }));
        pages.dedup();
        assert_eq!(pages.len(), sample_set.tally.sampled_pages.len(), "no page twice");
    }

    #[test]
    fn pages_are_spread_over_all_regions() {
        let region = |start: u64, pages: u64| PagemapRegion {
            start: start * 4096,
            end: (start + pages) * 4096,
            categories: Categories::PRESENT,
        };
        let regions = [region(100, 10), region(1000, 1), region(5000, 89)];
        for seed in 1..50 {
            let pages = spread(&regions, 100, 10, &mut Rng::with_seed(seed));
            assert_eq!(pages.len(), 10);
            assert!((100..110).contains(&pages[0].0), "{pages:?}");
            assert!(pages[1].0 == 1000 || (5000..5010).contains(&pages[1].0), "{pages:?}");
            assert!(pages.is_sorted());
        }
        let all = spread(&regions, 100, 100, &mut Rng::with_seed(1));
        assert_eq!(all.len(), 100);
    }
}
