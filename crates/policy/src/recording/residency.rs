//! The form in which what a residency sensor saw is saved, and the reader of it. One object of JSON a
//! line: a head with the process's areas and the pages that were looked at, then the looks, then the
//! totals. What is read counts in a [`ResidencyTally`], as it did for the sensor. Lines in, counts out: files
//! are opened elsewhere, and nothing in a line is believed before it fits the head.

use huepage_color::{PAGE_BYTES, Vpn};
use serde::{Deserialize, Serialize};

use super::{Heard, LAST, VERSION, parsed};
use crate::AreaKind;
use crate::residency::{AreaSeen, Errors, Estimate, ResidencyTally};

/// Pages that a sensor looks at in all, at most: far more than any does.
const MOST_PAGES: usize = 1 << 22;
/// Lines that one look times, at most: far more than any does.
const MOST_LINES: usize = 1 << 16;
/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidencyHead {
    /// [`VERSION`].
    pub huepage_recording: u64,
    /// Who saw it, such as `residency`.
    pub sensor: String,
    /// The process.
    pub pid: i32,
    /// Bytes of the cache that was watched.
    pub cache_bytes: u64,
    /// The areas of the process by address.
    pub areas: Vec<HeadArea>,
    /// Of a recording of pages in use alone: their colours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<InUseColors>,
}

/// The colours of pages in use: pages that were used again and again at the beginning, and no others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InUseColors {
    /// Colours of the cache, 2 to 4096.
    pub colors: u16,
    /// Lines of a set of it, 1 to 1024.
    pub ways: u16,
    /// The colour of each page, in the order of the areas and their pages; none where it is not known.
    pub of: Vec<Option<u16>>,
}

/// An area of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadArea {
    /// Its first byte.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// What it is for.
    pub kind: AreaKind,
    /// Its file, or what the kernel calls it.
    pub name: String,
    /// Pages that it has resident.
    pub resident: u64,
    /// The pages of it that are looked at, ascending; addresses divided by 4096.
    pub pages: Vec<u64>,
}

/// A look: the pages of lines that were in the cache, and of those that were not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidencyLook {
    /// Seconds since the beginning.
    pub at: f64,
    /// Page numbers of lines that were in the cache.
    pub found: Vec<u64>,
    /// Page numbers of those that were not.
    pub missed: Vec<u64>,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidencyTail {
    /// The totals.
    pub end: ResidencyTotals,
}

/// What the sensor counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidencyTotals {
    /// Lines timed.
    pub samples: u64,
    /// Those that were in the cache.
    pub found: u64,
    /// Looks while the process ran, those that saw nothing included.
    pub looks: u64,
    /// Seconds that it lasted.
    pub seconds: f64,
    /// CPU seconds that it took.
    pub cpu_seconds: f64,
    /// Nanoseconds of a line in the cache and of one that is not, if that was known.
    pub latencies: Option<[u64; 2]>,
    /// How often looks were wrong, if it was told; older recordings do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors>,
    /// Whether the process ended meanwhile.
    pub ended: bool,
}

impl ResidencyHead {
    /// Of a process whose areas and pages are these.
    pub fn of(pid: i32, cache_bytes: u64, tally: &ResidencyTally) -> ResidencyHead {
        let pages = |at: usize| {
            let own =
                tally.sampled_pages.iter().filter(move |sampled_page| sampled_page.area == at);
            own.map(|sampled_page| sampled_page.page.0).collect()
        };
        let area = |(at, area): (usize, &AreaSeen)| HeadArea {
            start: area.start,
            end: area.end,
            kind: area.kind,
            name: area.name.clone(),
            resident: area.resident,
            pages: pages(at),
        };
        let areas = tally.areas.iter().enumerate().map(area).collect();
        let sensor = "residency".to_owned();
        ResidencyHead { huepage_recording: VERSION, sensor, pid, cache_bytes, areas, in_use: None }
    }

    /// Whether areas follow each other and pages lie in them; in a few words, why not.
    fn check(&self) -> Result<(), String> {
        let (mut before, mut pages) = (0, 0);
        for HeadArea { start, end, resident, pages: own, .. } in &self.areas {
            let place = format!("the area {start:x}-{end:x}");
            let whole = start % PAGE_BYTES == 0 && end % PAGE_BYTES == 0;
            if !(whole && before <= *start && start < end && *end <= LAST) {
                return Err(format!("{place} is no range of pages behind those before it"));
            }
            if *resident > (end - start) / PAGE_BYTES || own.len() as u64 > *resident {
                return Err(format!("{place} has no room for the pages that it is to have"));
            }
            let inside = |page: &u64| (start / PAGE_BYTES..end / PAGE_BYTES).contains(page);
            if !own.iter().all(inside) || own.windows(2).any(|two| two[0] >= two[1]) {
                return Err(format!("pages of {place} are outside of it or out of order"));
            }
            (before, pages) = (*end, pages + own.len());
        }
        if pages > MOST_PAGES {
            return Err(format!("{pages} pages are more than any sensor looks at"));
        }
        let fits = |in_use: &InUseColors| in_use.of.len() == pages && in_use.is_sound();
        if !self.in_use.as_ref().is_none_or(fits) {
            return Err("the colours are not those of the pages".to_owned());
        }
        Ok(())
    }

    fn tally(&self) -> ResidencyTally {
        let mut tally = ResidencyTally::default();
        for area in &self.areas {
            let (place, named) = ((area.start, area.end), (area.kind, area.name.clone()));
            tally.add(place, named, area.resident, area.pages.iter().copied().map(Vpn));
        }
        tally
    }
}

impl InUseColors {
    fn is_sound(&self) -> bool {
        let InUseColors { colors, ways, of } = self;
        (2..=4096).contains(colors)
            && (1..=1024).contains(ways)
            && of.iter().flatten().all(|color| color < colors)
    }
}

/// Any line behind the first.
#[derive(Deserialize)]
#[serde(untagged)]
enum Behind {
    Look(ResidencyLook),
    Tail(ResidencyTail),
}

/// What a recording holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidencyRecording {
    /// Whose it is.
    pub head: ResidencyHead,
    /// What was seen of pages and areas: the same as the sensor had at the end.
    pub tally: ResidencyTally,
    /// Looks that saw something.
    pub looks: u64,
    /// When the last of them was, in seconds since the beginning.
    pub last: f64,
    /// The totals; `None` of a recording that was cut short.
    pub totals: Option<ResidencyTotals>,
}

impl ResidencyRecording {
    /// How often looks were wrong, as far as the recording says.
    pub fn errors(&self) -> Errors {
        self.totals.as_ref().and_then(|totals| totals.errors).unwrap_or_default()
    }

    /// The share of requests that miss, as the sensor had it at the end.
    pub fn estimate(&self) -> Option<Estimate> {
        self.tally.estimate_with(self.errors())
    }

    /// What a head says, of which nothing was seen yet.
    pub(super) fn begin(text: &[u8]) -> Result<ResidencyRecording, String> {
        let head: ResidencyHead = parsed(text)?;
        head.check()?;
        let tally = head.tally();
        Ok(ResidencyRecording { head, tally, looks: 0, last: 0.0, totals: None })
    }

    /// Takes a line behind the head and before the totals.
    pub(super) fn line(&mut self, text: &[u8]) -> Result<Heard, String> {
        match parsed::<Behind>(text) {
            Ok(Behind::Look(look)) => {
                self.note(&look)?;
                Ok(Heard::Look(look))
            }
            Ok(Behind::Tail(ResidencyTail { end })) => {
                self.check_totals(&end)?;
                self.totals = Some(end);
                Ok(Heard::Frame)
            }
            Err(_) => Err("it is neither a look nor the totals".to_owned()),
        }
    }

    fn note(&mut self, look: &ResidencyLook) -> Result<(), String> {
        let ResidencyLook { at, found, missed } = look;
        if !(self.last <= *at && at.is_finite()) {
            return Err(format!("{at} s is before the look before it"));
        }
        if found.len() + missed.len() > MOST_LINES {
            return Err("more lines than any sensor looks at".to_owned());
        }
        for (pages, found) in [(found, true), (missed, false)] {
            for page in pages {
                if !self.tally.note_page(*page, found) {
                    return Err(format!("page {page} is not in the head"));
                }
            }
        }
        self.looks += 1;
        self.last = *at;
        Ok(())
    }

    fn check_totals(&self, totals: &ResidencyTotals) -> Result<(), String> {
        let [samples, found] = [self.tally.samples(), self.tally.found()];
        if (totals.samples, totals.found) != (samples, found) {
            let said = format!("{} of {}", totals.found, totals.samples);
            return Err(format!(
                "the totals say {said} lines found, the looks {found} of {samples}"
            ));
        }
        let times = [totals.seconds, totals.cpu_seconds];
        if totals.looks < self.looks || times.iter().any(|time| !(0.0..=1e9).contains(time)) {
            return Err("the totals cannot be those of these looks".to_owned());
        }
        Ok(())
    }
}
