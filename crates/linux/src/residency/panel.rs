//! Which pages of a process are looked at: some of every area, in proportion to what it has resident,
//! and where they are. Chooses; counts are kept by `huepage_policy::residency::Tally`.

use huepage_color::{PAGE_BYTES, Pfn, Vpn};
use huepage_policy::AreaKind;
use huepage_policy::residency::Tally;

use crate::probe::Shuffler;
use crate::procfs::{Area, Categories, Pagemap, ProcError, ProcRoot, Region, ScanQuery};

/// Pages of all areas together.
const SEATS: u64 = 4096;
/// Pages of one area, at least, if it has as many.
const FEWEST: u64 = 16;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Panel {
    pub(super) tally: Tally,
    /// Where the page on each seat is, as far as is known.
    pub(super) frames: Vec<Option<Pfn>>,
}

impl Panel {
    /// Chooses pages of a process. Costs some nanoseconds for each page it has resident.
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn choose(root: &ProcRoot, pid: i32, random: &mut Shuffler) -> Result<Panel, ProcError> {
        let pagemap = root.pagemap(pid)?;
        let mut found: Vec<(Area, Vec<Region>)> = Vec::new();
        for area in root.maps(pid)?.into_iter().filter(is_watched) {
            let mut regions = Vec::new();
            pagemap.scan(area.start..area.end, &query(), &mut regions)?;
            if !regions.is_empty() {
                found.push((area, regions));
            }
        }
        Ok(Panel::of(found, random))
    }

    fn of(found: Vec<(Area, Vec<Region>)>, random: &mut Shuffler) -> Panel {
        let resident = |regions: &[Region]| regions.iter().map(Region::pages).sum::<u64>();
        let all: u64 = found.iter().map(|(_, regions)| resident(regions)).sum();
        let mut panel = Panel::default();
        for (area, regions) in found {
            let own = resident(&regions);
            let seats = (SEATS * own / all.max(1)).max(FEWEST).min(own);
            let pages = spread(&regions, own, seats, random);
            let (place, kind) = ((area.start, area.end), area.kind());
            panel.tally.add(place, (kind, area.name), own, pages);
        }
        panel.frames.resize(panel.tally.seats.len(), None);
        panel
    }

    /// Of these pages, ascending.
    pub fn of_pages(pages: &[Vpn]) -> Panel {
        let mut panel = Panel::default();
        if let (Some(first), Some(last)) = (pages.first(), pages.last()) {
            let place = (first.0 * PAGE_BYTES, (last.0 + 1) * PAGE_BYTES);
            let what = (AreaKind::Heap, String::from("pages in use"));
            panel.tally.add(place, what, pages.len() as u64, pages.iter().copied());
        }
        panel.frames.resize(pages.len(), None);
        panel
    }

    /// Looks up where the pages are now.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn locate(&mut self, pagemap: &Pagemap) -> Result<(), ProcError> {
        for (frame, seat) in self.frames.iter_mut().zip(&self.tally.seats) {
            *frame = pagemap.entry(seat.page)?.pfn().filter(|frame| frame.0 != 0);
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
fn spread(regions: &[Region], resident: u64, seats: u64, random: &mut Shuffler) -> Vec<Vpn> {
    let mut chosen = Vec::new();
    let (mut before, mut next) = (0, 0);
    let mut place = |seat: u64| {
        let (first, last) = (seat * resident / seats, (seat + 1) * resident / seats);
        let room = usize::try_from(last - first).unwrap_or(1).max(1);
        first + random.below(room) as u64
    };
    let mut wanted = place(0);
    for region in regions {
        while next < seats && wanted < before + region.pages() {
            chosen.push(Vpn(region.start / PAGE_BYTES + wanted - before));
            next += 1;
            if next < seats {
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
    use crate::procfs::parse_maps;

    fn area(start: u64, pages: u64) -> (Area, Vec<Region>) {
        let end = start + pages * 4096;
        let line = format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        let area = parse_maps(line.as_bytes(), "maps".as_ref()).unwrap().remove(0);
        (area, vec![Region { start, end, categories: Categories::PRESENT }])
    }

    #[test]
    fn every_area_has_its_share_of_seats_and_small_ones_some() {
        let found = vec![area(0x10_0000, 3), area(0x7f00_0000_0000, 1 << 20), area(1 << 30, 500)];
        let panel = Panel::of(found, &mut Shuffler::new(3));
        let seats = |at| panel.tally.seats.iter().filter(|seat| seat.area == at).count();
        assert_eq!((seats(0), seats(2)), (3, 16));
        assert!((4000..=4096).contains(&seats(1)), "{}", seats(1));
        let mut pages: Vec<u64> = panel.tally.seats.iter().map(|seat| seat.page.0).collect();
        assert!(pages.iter().all(|page| {
            panel.tally.areas.iter().any(|area| (area.start..area.end).contains(&(page * 4096)))
        }));
        pages.dedup();
        assert_eq!(pages.len(), panel.tally.seats.len(), "no page twice");
    }

    #[test]
    fn pages_are_spread_over_all_regions() {
        let region = |start: u64, pages: u64| Region {
            start: start * 4096,
            end: (start + pages) * 4096,
            categories: Categories::PRESENT,
        };
        let regions = [region(100, 10), region(1000, 1), region(5000, 89)];
        for seed in 1..50 {
            let pages = spread(&regions, 100, 10, &mut Shuffler::new(seed));
            assert_eq!(pages.len(), 10);
            assert!((100..110).contains(&pages[0].0), "{pages:?}");
            assert!(pages[1].0 == 1000 || (5000..5010).contains(&pages[1].0), "{pages:?}");
            assert!(pages.is_sorted());
        }
        let all = spread(&regions, 100, 100, &mut Shuffler::new(1));
        assert_eq!(all.len(), 100);
    }
}
