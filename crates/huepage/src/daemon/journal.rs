//! What was decided, with the reason: a line on standard error for each, which systemd keeps, and the last
//! ones in memory for `huepage ctl decisions`.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A decision, or something else worth a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Seconds since 1970.
    pub at: f64,
    /// The group.
    pub group: String,
    /// Its colours before.
    pub from: String,
    /// Its colours from then on; the same where nothing changed.
    pub to: String,
    /// Why.
    pub reason: String,
}

/// A decision for a person.
pub fn line(entry: &JournalEntry) -> String {
    if entry.from == entry.to {
        return format!("{}: stays at {}: {}", entry.group, entry.to, entry.reason);
    }
    format!("{}: {} -> {}: {}", entry.group, entry.from, entry.to, entry.reason)
}

/// The journal.
#[derive(Clone, Debug)]
pub struct Journal {
    entries: VecDeque<JournalEntry>,
    most: usize,
    total: u64,
}

impl Journal {
    /// Remembers the last `most` entries.
    pub fn new(most: usize) -> Journal {
        Journal { entries: VecDeque::new(), most: most.max(1), total: 0 }
    }

    /// Remembers so many from now on.
    pub fn resize(&mut self, most: usize) {
        self.most = most.max(1);
        self.entries.truncate(self.most);
    }

    /// Notes a decision, and prints it.
    pub fn note(&mut self, group: &str, from: &str, to: &str, reason: &str) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let text = |text: &str| text.to_owned();
        let (group, from, to, reason) = (text(group), text(from), text(to), text(reason));
        let entry = JournalEntry { at, group, from, to, reason };
        say(&line(&entry));
        self.total += 1;
        if self.entries.len() == self.most {
            self.entries.pop_back();
        }
        self.entries.push_front(entry);
    }

    /// The last ones, the latest first.
    pub fn last(&self, n: usize) -> Vec<JournalEntry> {
        self.entries.iter().take(n).cloned().collect()
    }

    /// All since the beginning.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

/// A line for whoever keeps the log.
pub fn say(text: &str) {
    use std::io::Write as _;
    // A log that nobody reads any more is no reason to end.
    let _ = writeln!(std::io::stderr(), "huepage: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_are_remembered() {
        let mut journal = Journal::new(3);
        for n in 0..100 {
            journal.note("web", "0-3", &format!("0-{n}"), "because");
        }
        let last = journal.last(10);
        let to: Vec<&str> = last.iter().map(|entry| entry.to.as_str()).collect();
        assert_eq!((to, journal.total()), (vec!["0-99", "0-98", "0-97"], 100));
        journal.resize(1);
        assert_eq!(journal.last(10).len(), 1);
        assert_eq!(line(&last[0]), "web: 0-3 -> 0-99: because");
    }
}
