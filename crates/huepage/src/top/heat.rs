//! Residency by address: stretches of a process's areas and how much of each was found in the cache.
//! An area with many pages that were looked at takes several rows, a small one a row of its own.

use huepage_policy::AreaKind;
use huepage_policy::residency::{AreaSeen, SampledPage};
use serde::Serialize;

/// Rows of one area, at most.
const MOST_ROWS: usize = 8;
const PAGE: u64 = huepage_color::PAGE_BYTES;

/// Some cells in a row, all of equal length, of one area.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatRow {
    /// The first byte of the first cell.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub start: u64,
    /// One past the last byte of the last cell.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub end: u64,
    /// What the area is for.
    pub kind: AreaKind,
    /// The file of the area, or what the kernel calls it.
    pub name: String,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Looks of all cells.
    pub samples: u64,
    /// Those that found the line in the cache.
    pub found: u64,
    /// The cells by address.
    pub cells: Vec<HeatCell>,
}

impl HeatRow {
    /// The share that was found, 0 to 1.
    pub fn share(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.found as f64 / self.samples as f64)
    }
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeatCell {
    /// Looks at lines of its pages.
    pub samples: u64,
    /// Those that found the line in the cache.
    pub found: u64,
}

impl HeatCell {
    /// How hot it is: 0 where nothing was found, then 1 to 4 by quarters of the looks; `None` where
    /// nothing was looked at.
    pub fn level(self) -> Option<usize> {
        let quarters = (self.found * 4).checked_div(self.samples)?;
        let level = if self.found == 0 { 0 } else { (quarters + 1).min(4) };
        usize::try_from(level).ok()
    }
}

/// The map, by address, with at most `width` cells in a row. Areas that were not looked at have none.
pub fn rows(areas: &[AreaSeen], sampled_pages: &[SampledPage], width: usize) -> Vec<HeatRow> {
    let mut rows = Vec::new();
    for (at, area) in areas.iter().enumerate().filter(|(_, area)| area.samples > 0) {
        let own: Vec<&SampledPage> =
            sampled_pages.iter().filter(|sampled_page| sampled_page.area == at).collect();
        rows.extend(rows_of(area, &own, width.max(1)));
    }
    rows.sort_by_key(|row| row.start);
    rows
}

/// From the first page that was looked at to the last: much of a large area may be empty.
fn rows_of(area: &AreaSeen, sampled_pages: &[&SampledPage], width: usize) -> Vec<HeatRow> {
    let pages = sampled_pages.iter().map(|sampled_page| sampled_page.page.0);
    let (Some(first), Some(last)) = (pages.clone().min(), pages.max()) else { return Vec::new() };
    let lines = sampled_pages.len().div_ceil(width).clamp(1, MOST_ROWS);
    let span = last - first + 1;
    let cell = span.div_ceil((lines * width) as u64);
    let mut cells = vec![HeatCell::default(); usize::try_from(span.div_ceil(cell)).unwrap_or(0)];
    for sampled_page in sampled_pages {
        let Ok(at) = usize::try_from((sampled_page.page.0 - first) / cell) else { continue };
        cells[at].samples += u64::from(sampled_page.samples);
        cells[at].found += u64::from(sampled_page.found);
    }
    let row = |(line, cells): (usize, &[HeatCell])| {
        let start = first + (line * width) as u64 * cell;
        HeatRow {
            start: start * PAGE,
            end: (start + cells.len() as u64 * cell).min(last + 1) * PAGE,
            kind: area.kind,
            name: area.name.clone(),
            cell_bytes: cell * PAGE,
            samples: cells.iter().map(|cell| cell.samples).sum(),
            found: cells.iter().map(|cell| cell.found).sum(),
            cells: cells.to_vec(),
        }
    };
    cells.chunks(width).enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use huepage_color::Vpn;
    use huepage_policy::residency::ResidencyTally;

    use super::*;

    fn tally() -> ResidencyTally {
        let mut tally = ResidencyTally::default();
        let kind = |kind| (kind, String::new());
        tally.add((0x20_0000, 0x40_0000), kind(AreaKind::Heap), 512, (0x210..0x250).map(Vpn));
        tally.add((0x1000, 0x2000), kind(AreaKind::Bss), 1, [Vpn(1)]);
        tally.add((0x9000, 0xa000), kind(AreaKind::Bss), 1, [Vpn(9)]);
        tally
    }

    #[test]
    fn cells_lie_between_the_first_and_the_last_page_that_was_looked_at() {
        let mut tally = tally();
        (0..8).for_each(|sampled_page| tally.note(sampled_page, true));
        (8..64).for_each(|sampled_page| tally.note(sampled_page, false));
        tally.note(64, true);
        let rows = rows(&tally.areas, &tally.sampled_pages, 16);
        let starts: Vec<u64> = rows.iter().map(|row| row.start).collect();
        assert_eq!(starts, [0x1000, 0x21_0000, 0x22_0000, 0x23_0000, 0x24_0000]);
        assert_eq!((rows[4].end, rows[1].cell_bytes, rows[1].cells.len()), (0x25_0000, 4096, 16));
        assert_eq!(rows[1].cells[7], HeatCell { samples: 1, found: 1 });
        assert_eq!((rows[1].found, rows[2].found), (8, 0));
        assert_eq!(rows[1].share(), Some(0.5));
    }

    #[test]
    fn many_pages_take_few_rows_and_nothing_is_lost() {
        let mut tally = tally();
        (0..64).for_each(|sampled_page| tally.note(sampled_page, sampled_page % 2 == 0));
        let rows = rows(&tally.areas, &tally.sampled_pages, 3);
        assert!(rows.len() <= MOST_ROWS, "{}", rows.len());
        assert!(rows.iter().all(|row| row.cells.len() <= 3));
        assert_eq!(rows.iter().map(|row| row.samples).sum::<u64>(), 64);
        assert_eq!(rows.iter().map(|row| row.found).sum::<u64>(), 32);
        assert_eq!(rows.last().map(|row| row.end), Some(0x25_0000));
    }

    #[test]
    fn what_was_found_once_is_not_shown_as_nothing() {
        let level = |samples, found| HeatCell { samples, found }.level();
        assert_eq!(level(0, 0), None);
        assert_eq!([level(9, 0), level(9, 1), level(9, 5), level(9, 9)], [0, 1, 3, 4].map(Some));
    }
}
