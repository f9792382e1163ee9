//! What looks at lines of a process's pages have found: a seat for each page that is looked at, a row
//! for each area. The sensor counts here while it watches, and a replay of its recording counts here
//! again, so that both come to the same. Chooses no pages and times nothing.

use huepage_color::{PAGE_BYTES, Vpn};
use serde::{Serialize, Serializer};

use super::{Errors, Estimate, PageSeen, Segment, segments};
use crate::AreaKind;

/// A page that is looked at, and what was seen of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SampledPage {
    /// The page; in JSON the address of its first byte.
    #[serde(rename = "address", serialize_with = "address")]
    pub page: Vpn,
    /// Looks at a line of it.
    pub samples: u32,
    /// Those that found the line in the cache.
    pub found: u32,
    /// Its area, by its place in the list.
    #[serde(skip)]
    pub area: usize,
}

fn address<S: Serializer>(page: &Vpn, to: S) -> Result<S::Ok, S::Error> {
    huepage_color::as_hex(&(page.0 * PAGE_BYTES), to)
}

/// An area of the process, and what was seen of its pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AreaSeen {
    /// Its first byte.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub start: u64,
    /// One past its last byte.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub end: u64,
    /// What it is for.
    pub kind: AreaKind,
    /// Its file, or what the kernel calls it.
    pub name: String,
    /// Pages that it has resident.
    pub resident: u64,
    /// Looks at lines of its pages.
    pub samples: u64,
    /// Those that found the line in the cache.
    pub found: u64,
}

impl AreaSeen {
    /// The share of its lines that is in the cache, as estimated, 0 to 1.
    pub fn share(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.found as f64 / self.samples as f64)
    }

    /// Bytes of it in the cache, as estimated.
    pub fn cached_bytes(&self) -> f64 {
        self.share().unwrap_or(0.0) * self.resident as f64 * PAGE_BYTES as f64
    }
}

/// A page of which lines are found was used, whatever its accessed bit says: while its translation
/// stays in a TLB nobody sets that again.
fn seen(page: Vpn, (samples, found, used): (u32, u32, bool)) -> PageSeen {
    PageSeen { page, samples, found, used: used || 4 * found > samples }
}

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResidencyTally {
    /// By address.
    pub areas: Vec<AreaSeen>,
    /// Those of an area beside each other, by address.
    pub sampled_pages: Vec<SampledPage>,
    /// What was seen of each since it was last forgotten: looks, those that found the line, and whether
    /// the page was used.
    lately: Vec<(u32, u32, bool)>,
}

impl ResidencyTally {
    /// Adds an area of which nothing was seen yet, and sampled_pages for these pages of it.
    pub fn add(
        &mut self,
        (start, end): (u64, u64),
        (kind, name): (AreaKind, String),
        resident: u64,
        pages: impl IntoIterator<Item = Vpn>,
    ) {
        let area = self.areas.len();
        let sampled_page = |page| SampledPage { page, samples: 0, found: 0, area };
        self.sampled_pages.extend(pages.into_iter().map(sampled_page));
        self.lately.resize(self.sampled_pages.len(), (0, 0, true));
        self.areas.push(AreaSeen { start, end, kind, name, resident, samples: 0, found: 0 });
    }

    /// A line of the page on a seat was looked at. What is no seat counts for nothing.
    pub fn note(&mut self, sampled_page: usize, found: bool) {
        if let Some((samples, hits, _)) = self.lately.get_mut(sampled_page) {
            *samples = samples.saturating_add(1);
            *hits = hits.saturating_add(u32::from(found));
        }
        let Some(sampled_page) = self.sampled_pages.get_mut(sampled_page) else { return };
        sampled_page.samples = sampled_page.samples.saturating_add(1);
        sampled_page.found = sampled_page.found.saturating_add(u32::from(found));
        let area = &mut self.areas[sampled_page.area];
        area.samples += 1;
        area.found += u64::from(found);
    }

    /// The same by the page; whether it is one that is looked at. Areas and the pages in them have to be
    /// ascending.
    pub fn note_page(&mut self, page: u64, found: bool) -> bool {
        let place = self.sampled_pages.binary_search_by_key(&page, |own| own.page.0);
        place.map(|place| self.note(place, found)).is_ok()
    }

    /// Looks in all.
    pub fn samples(&self) -> u64 {
        self.areas.iter().map(|area| area.samples).sum()
    }

    /// Those that found the line in the cache.
    pub fn found(&self) -> u64 {
        self.areas.iter().map(|area| area.found).sum()
    }

    /// What was seen of pages lately is forgotten, and all are taken to be used.
    pub fn forget(&mut self) {
        self.lately.fill((0, 0, true));
    }

    /// Says of each page whether it was used at all.
    pub fn note_uses(&mut self, used: impl Fn(Vpn) -> bool) {
        let pages = self.sampled_pages.iter().zip(&mut self.lately);
        pages.for_each(|(sampled_page, lately)| lately.2 = used(sampled_page.page));
    }

    /// The segments of each area, by what was seen of it lately, with its place in the list.
    pub fn segments(&self) -> Vec<(usize, Segment)> {
        let mut all = Vec::new();
        for (at, area) in self.areas.iter().enumerate() {
            let own = self
                .sampled_pages
                .iter()
                .zip(&self.lately)
                .filter(|(sampled_page, _)| sampled_page.area == at);
            let seen: Vec<PageSeen> =
                own.map(|(sampled_page, lately)| seen(sampled_page.page, *lately)).collect();
            all.extend(segments(&seen, area.resident).into_iter().map(|segment| (at, segment)));
        }
        all
    }

    /// Segments with what was seen lately of their pages in place of what was seen before.
    pub fn recount(&self, segments: &[(usize, Segment)]) -> Vec<Segment> {
        let mut counted: Vec<Segment> = Vec::with_capacity(segments.len());
        for (_, segment) in segments {
            let first = self
                .sampled_pages
                .partition_point(|sampled_page| sampled_page.page < segment.first);
            let inside = self.sampled_pages[first..]
                .iter()
                .take_while(|sampled_page| sampled_page.page <= segment.last);
            let (mut samples, mut found) = (0, 0);
            for (_, lately) in inside.zip(&self.lately[first..]) {
                samples += u64::from(lately.0);
                found += u64::from(lately.1);
            }
            counted.push(Segment { samples, found, ..*segment });
        }
        counted
    }

    /// How often the process misses the cache, by what was seen lately; `None` before anything was.
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimate_with(Errors::default())
    }

    /// The same where it is known how often looks are wrong.
    pub fn estimate_with(&self, errors: Errors) -> Option<Estimate> {
        let segments: Vec<Segment> = self.segments().into_iter().map(|(_, s)| s).collect();
        Estimate::of(&segments, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_counts_for_the_page_and_its_area() {
        let mut tally = ResidencyTally::default();
        for start in [0x10_0000, 1 << 30] {
            let pages = [Vpn(start / 4096), Vpn(start / 4096 + 1)];
            tally.add((start, start + 8192), (AreaKind::Heap, String::new()), 2, pages);
        }
        assert_eq!(tally.estimate(), None);
        tally.note(2, true);
        tally.note(2, false);
        tally.note(3, true);
        tally.note(99, true);
        assert_eq!((tally.sampled_pages[2].samples, tally.sampled_pages[2].found), (2, 1));
        assert_eq!((tally.areas[0].share(), tally.areas[1].share()), (None, Some(2.0 / 3.0)));
        assert!((tally.areas[1].cached_bytes() - 8192.0 * 2.0 / 3.0).abs() < 1e-6);
        assert_eq!((tally.samples(), tally.found()), (3, 2));
        assert_eq!(tally.estimate().unwrap().samples, 3);
    }
}
