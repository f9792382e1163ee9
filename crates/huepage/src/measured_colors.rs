//! The colours of pages that any process has now, found by this process alone: lines of them are loaded by
//! physical address and timed against reference pages, so the process is not touched and cannot lie. What
//! that says of a partition is `cmd::verify`'s business; without one it is a baseline for `cmd::inspect`.

use comfy_table::Table;
use huepage_color::{Color, Pfn, Vpn};
use huepage_linux::color::frame_colors::FrameColors;
use huepage_linux::color::sources::ColorSource;
use huepage_linux::kernel::procfs::{Area, Categories, Pagemap, ProcRoot, ScanQuery, obstacle};
use serde::Serialize;

use crate::exit::{CmdError, residency_error};
use crate::partition::internal;
use crate::style::{self, Style};

/// Marks of the longest bar.
const BAR: u64 = 40;

/// Pages of a process by colour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeasuredPages {
    /// Resident pages of its own memory, in pages of 4 KiB that can be moved.
    pub resident_pages: u64,
    /// Of these, pages that were looked at.
    pub sampled_pages: u64,
    /// Of these, pages whose colour could not be told.
    pub undecided_pages: u64,
    /// Pages that got another frame or went meanwhile.
    pub moved_pages: u64,
    /// Pages of each colour that has any.
    pub pages_by_color: Vec<ColorPages>,
}

/// Pages of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColorPages {
    /// The colour.
    pub color: u16,
    /// Pages that were found in it.
    pub pages: u64,
}

impl MeasuredPages {
    /// Looks at about `most` pages of a process, except in some ranges of addresses. Measuring takes some 20 us
    /// for each.
    ///
    /// # Errors
    /// When the process has ended, or colours cannot be told.
    pub fn of(
        pid: i32,
        except: &[(u64, u64)],
        source: &dyn ColorSource,
        most: usize,
    ) -> Result<MeasuredPages, CmdError> {
        let root = ProcRoot::default();
        let pagemap = root.pagemap(pid).map_err(internal)?;
        let areas = root.maps(pid).map_err(internal)?;
        let all = own_pages(&pagemap, &areas, except)?;
        let (resident_pages, pages) = (all.len() as u64, spread(&all, most));
        let before = frames(&pagemap, &pages)?;
        let known: Vec<Pfn> = before.iter().flatten().copied().collect();
        let mut colors = FrameColors::open(source.method()).map_err(residency_error)?;
        let mut found = colors.colors_of(&known).map_err(residency_error)?.into_iter();
        let after = frames(&pagemap, &pages)?;
        let mut sampled = MeasuredPages { resident_pages, ..MeasuredPages::default() };
        let mut counts = vec![0; usize::from(source.universe())];
        for (before, after) in before.iter().zip(&after) {
            let color = before.and_then(|_| found.next().flatten());
            sampled.count(color, before.is_some() && before == after, &mut counts);
        }
        sampled.pages_by_color = listed(&counts);
        Ok(sampled)
    }

    fn count(&mut self, color: Option<Color>, stayed: bool, counts: &mut [u64]) {
        self.sampled_pages += 1;
        match color {
            _ if !stayed => self.moved_pages += 1,
            None => self.undecided_pages += 1,
            Some(color) => counts[usize::from(color.0)] += 1,
        }
    }

    /// Pages whose colour was told.
    pub fn decided_pages(&self) -> u64 {
        self.pages_by_color.iter().map(|entry| entry.pages).sum()
    }

    /// In a line, and a bar for each colour.
    pub fn text(&self) -> String {
        let undecided = match self.undecided_pages {
            0 => String::new(),
            n => format!(", {n} undecided"),
        };
        let moved = match self.moved_pages {
            0 => String::new(),
            n => format!(", {n} moved meanwhile"),
        };
        let all = style::count(self.resident_pages, "page", "pages");
        let (sampled, bars) = (self.sampled_pages, bars(&self.pages_by_color));
        format!(
            "{sampled} of {all} of its own memory looked at{undecided}{moved}; by colour:\n{bars}"
        )
    }
}

/// Colours that have pages.
pub fn listed(counts: &[u64]) -> Vec<ColorPages> {
    let all = (0..).zip(counts).map(|(color, &pages)| ColorPages { color, pages });
    all.filter(|entry| entry.pages > 0).collect()
}

/// A bar for each colour, the longest for the most pages.
pub fn bars(colors: &[ColorPages]) -> String {
    let most = colors.iter().map(|entry| entry.pages).max().unwrap_or(1);
    let mut table: Table = Style::stdout().table(&["  colour", "pages", ""]);
    for ColorPages { color, pages } in colors {
        let width = usize::try_from(pages * BAR / most).unwrap_or(0);
        table.add_row([color.to_string(), pages.to_string(), "#".repeat(width)]);
    }
    style::lay_out(table)
}

/// At most so many of some pages, one of each stretch, at places that no pattern of the program repeats: they
/// are apart by the golden ratio.
fn spread(pages: &[Vpn], most: usize) -> Vec<Vpn> {
    let (all, most) = (pages.len() as u64, most as u64);
    if all <= most {
        return pages.to_vec();
    }
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let place = |part: u64| {
        let [first, end] = [part, part + 1].map(|part| part * all / most);
        first + (part.wrapping_mul(GOLDEN) >> 32) % (end - first).max(1)
    };
    (0..most).filter_map(|part| pages.get(usize::try_from(place(part)).ok()?).copied()).collect()
}

/// Single pages that can be moved, outside of some ranges.
fn own_pages(
    pagemap: &Pagemap,
    areas: &[Area],
    except: &[(u64, u64)],
) -> Result<Vec<Vpn>, CmdError> {
    let query = ScanQuery {
        none_of: Categories::PFNZERO | Categories::HUGE | Categories::FILE,
        ..ScanQuery::present()
    };
    let apart =
        |area: &Area| except.iter().any(|(start, end)| area.start < *end && *start < area.end);
    let mut found = Vec::new();
    for area in areas.iter().filter(|area| obstacle(area).is_none() && !apart(area)) {
        pagemap.scan(area.start..area.end, &query, &mut found).map_err(internal)?;
    }
    Ok(found.iter().flat_map(|region| (region.start >> 12..region.end >> 12).map(Vpn)).collect())
}

fn frames(pagemap: &Pagemap, pages: &[Vpn]) -> Result<Vec<Option<Pfn>>, CmdError> {
    let frame = |&page: &Vpn| pagemap.entry(page).map(|entry| entry.pfn());
    pages.iter().map(frame).collect::<Result<_, _>>().map_err(internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_all_pages_without_a_pattern() {
        let all: Vec<Vpn> = (0..10_000).map(Vpn).collect();
        let some = spread(&all, 1000);
        assert!(some.len() == 1000 && some.is_sorted_by(|a, b| a.0 < b.0), "{some:?}");
        assert!(some.last() >= Some(&Vpn(9990)));
        let of = |rest| some.iter().filter(|page| page.0 % 16 == rest).count();
        assert!(
            (0..16).all(|rest| (40..85).contains(&of(rest))),
            "{:?}",
            (0..16).map(of).collect::<Vec<_>>()
        );
        assert_eq!((spread(&all[..5], 10).len(), spread(&[], 3).len()), (5, 0));
    }

    #[test]
    fn pages_are_counted_by_what_became_of_them() {
        let (mut sampled, mut counts) = (MeasuredPages::default(), vec![0; 4]);
        for (color, stayed) in [(Some(2), true), (Some(2), false), (None, true), (Some(3), true)] {
            sampled.count(color.map(Color), stayed, &mut counts);
        }
        sampled.pages_by_color = listed(&counts);
        let MeasuredPages { sampled_pages, undecided_pages, moved_pages, .. } = sampled;
        assert_eq!((sampled_pages, undecided_pages, moved_pages), (4, 1, 1));
        let each = |color| ColorPages { color, pages: 1 };
        assert_eq!(
            (sampled.decided_pages(), &sampled.pages_by_color),
            (2, &vec![each(2), each(3)])
        );
        let text = sampled.text();
        assert!(text.contains("1 undecided, 1 moved meanwhile"), "{text}");
        assert_eq!(text.matches('#').count(), 80, "{text}");
    }
}
