//! What became of the files of a run, in figures: as JSON and in a few lines of text.

use std::path::PathBuf;

use huepage_linux::services::files::gate::GateReport;
use serde::{Deserialize, Serialize};

/// The part of a report that is about files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageCacheReport {
    /// Milliseconds that an open could wait, at most.
    pub wait_ms: u64,
    /// What was seen and done.
    #[serde(flatten)]
    pub gate: GateReport,
    /// Directories that were not watched though they were named, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<(PathBuf, String)>,
    /// Why the service ended before the program; files opened after that were not placed.
    pub service_died: Option<String>,
}

impl PageCacheReport {
    /// Lines for a person, without a last newline.
    pub fn text(&self) -> String {
        let gate = &self.gate;
        let mut text = format!(
            "huepage: {} files placed: {} of {} pages, {} already in place",
            gate.files, gate.placed, gate.pages, gate.already
        );
        if gate.spread > 0 {
            text += &format!(", {} spread as they are read again and again", gate.spread);
        }
        if gate.unfinished > 0 {
            text += &format!("; {} files not finished", gate.unfinished);
        }
        let refused: Vec<String> =
            gate.refused.iter().map(|(why, n)| format!("{n} {why}")).collect();
        if !refused.is_empty() {
            text += &format!("\nhuepage: left alone: {}", refused.join(", "));
        }
        text += &format!("\nhuepage: {}", self.waits());
        for (path, why) in &self.skipped {
            text += &format!("\nhuepage: {} was not watched: {why}", path.display());
        }
        let trouble = gate.trouble.iter().map(|why| format!("some files were not placed: {why}"));
        let died = self.service_died.iter();
        let died = died.map(|why| format!("placing of files ended before the program: {why}"));
        trouble.chain(died).for_each(|line| text += &format!("\nhuepage: {line}"));
        text
    }

    fn waits(&self) -> String {
        let gate = &self.gate;
        let mut text = format!("{} files opened, {} times waited", gate.opens, gate.delayed);
        if gate.delayed > 0 {
            let (median, longest) = (gate.median_wait_us, gate.longest_wait_us);
            text += &format!(" (median {}, longest {})", time(median), time(longest));
        }
        if gate.timeouts > 0 {
            text += &format!(", {} times as long as allowed", gate.timeouts);
        }
        if gate.let_by > 0 {
            text += &format!(", {} times let at once while files were being placed", gate.let_by);
        }
        text
    }
}

/// Microseconds, for a person.
fn time(us: u64) -> String {
    if us < 1000 { format!("{us} us") } else { format!("{}.{} ms", us / 1000, us % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> PageCacheReport {
        let gate = GateReport {
            opens: 12,
            delayed: 3,
            timeouts: 1,
            longest_wait_us: 200_120,
            median_wait_us: 750,
            files: 3,
            pages: 900,
            placed: 880,
            already: 15,
            refused: [("in use by several processes".to_owned(), 5)].into(),
            ..GateReport::default()
        };
        PageCacheReport { wait_ms: 200, gate, skipped: Vec::new(), service_died: None }
    }

    #[test]
    fn the_text_has_what_a_reader_asks_for() {
        assert_eq!(
            report().text(),
            "huepage: 3 files placed: 880 of 900 pages, 15 already in place\n\
             huepage: left alone: 5 in use by several processes\n\
             huepage: 12 files opened, 3 times waited (median 750 us, longest 200.1 ms), 1 times as long as allowed"
        );
    }

    #[test]
    fn a_service_that_died_is_told_of() {
        let died = PageCacheReport { service_died: Some("it was killed".into()), ..report() };
        assert!(died.text().ends_with("placing of files ended before the program: it was killed"));
        let json = serde_json::to_value(&died).unwrap();
        assert_eq!(json["service_died"], "it was killed");
        assert_eq!((json["placed"].as_u64(), json["wait_ms"].as_u64()), (Some(880), Some(200)));
    }
}
