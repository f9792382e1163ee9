//! What the gate has seen and done, in figures, as it is handed on and printed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wait_queue::GateEvent;
use crate::services::files::PlacementTally;

/// Waits of which the lengths are kept, for the median; further ones only count.
const KEPT_WAITS: usize = 1 << 16;

/// Figures since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// Files that the group opened, regular and not empty.
    pub opens: u64,
    /// Opens of other processes, which were let at once.
    pub foreign: u64,
    /// Opens of files that are not wanted: of another size or elsewhere.
    pub unwanted: u64,
    /// Opens of files that had been placed a moment before.
    pub known: u64,
    /// Opens that were let at once since too much waited or the placing of the file went on.
    pub let_by: u64,
    /// Opens that waited for the file to be placed.
    pub delayed: u64,
    /// Those that did for as long as is allowed.
    pub timeouts: u64,
    /// The longest wait, in microseconds.
    pub longest_wait_us: u64,
    /// The wait that half of those who waited stayed below, in microseconds.
    pub median_wait_us: u64,
    /// Opens that the kernel refused as it could not open the file a second time.
    pub unreadable: u64,
    /// Files all of whose pages were looked at.
    pub files: u64,
    /// Files that were still to be placed, in whole or in part; with those that were left, as they
    /// were removed or all who opened them had ended.
    pub unfinished: u64,
    /// Pages that were looked at.
    pub pages: u64,
    /// Brought into their colours.
    pub placed: u64,
    /// Were there already.
    pub already: u64,
    /// Left where they are, by reason.
    #[serde(rename = "left_alone")]
    pub refused: BTreeMap<String, u64>,
    /// Pages of files that are read again and again, spread over all colours.
    pub spread: u64,
    /// What went wrong last, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl GateReport {
    /// Counts what the placer's thread tells.
    pub fn count(&mut self, events: &GateEvent) {
        match events {
            GateEvent::Slice(tally, unwritten) => self.add(tally, *unwritten),
            GateEvent::Done(..) => self.files += 1,
            GateEvent::Left(..) => self.unfinished += 1,
            GateEvent::Spread(pages) => self.spread += pages,
            GateEvent::Trouble(why) | GateEvent::Failed(_, _, why) => {
                self.trouble = Some(why.clone())
            }
        }
    }

    /// Adds what became of pages.
    fn add(&mut self, tally: &PlacementTally, unwritten: u64) {
        self.pages += tally.pages + unwritten;
        if unwritten > 0 {
            *self.refused.entry("not on the disk yet".to_owned()).or_default() += unwritten;
        }
        self.placed += tally.placed;
        self.already += tally.already;
        for (why, pages) in &tally.refused {
            *self.refused.entry(why.text().to_owned()).or_default() += pages;
        }
    }
}

/// The lengths of waits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    lengths: Vec<u32>,
    longest: Duration,
}

impl Waits {
    /// One more.
    pub fn add(&mut self, length: Duration) {
        self.longest = self.longest.max(length);
        if self.lengths.len() < KEPT_WAITS {
            self.lengths.push(u32::try_from(length.as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// Writes the figures into a report. Takes time linear in the waits.
    pub fn summarize(&mut self, report: &mut GateReport) {
        report.longest_wait_us = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        let middle = self.lengths.len() / 2;
        if middle < self.lengths.len() {
            let (_, median, _) = self.lengths.select_nth_unstable(middle);
            report.median_wait_us = u64::from(*median);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::files::PlacementRefusal;

    #[test]
    fn the_median_is_that_of_all_waits() {
        let (mut waits, mut report) = (Waits::default(), GateReport::default());
        waits.summarize(&mut report);
        assert_eq!((report.longest_wait_us, report.median_wait_us), (0, 0));
        for us in [5, 900, 7, 3, 8] {
            waits.add(Duration::from_micros(us));
        }
        waits.summarize(&mut report);
        assert_eq!((report.longest_wait_us, report.median_wait_us), (900, 7));
    }

    #[test]
    fn tallies_are_added_by_reason() {
        let mut report = GateReport::default();
        let mut tally =
            PlacementTally { pages: 9, placed: 4, already: 2, ..PlacementTally::default() };
        tally.refuse(PlacementRefusal::Mapped, 3);
        report.count(&GateEvent::Slice(tally.clone(), 0));
        report.count(&GateEvent::Slice(tally, 5));
        assert_eq!((report.pages, report.placed, report.already), (23, 8, 4));
        assert_eq!(report.refused["not on the disk yet"], 5);
        assert_eq!(report.refused[PlacementRefusal::Mapped.text()], 6);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<GateReport>(&text).unwrap(), report);
    }
}
