//! The benchmarks: each compares huepage with its promises and says whether they hold.
//!
//! A suite gives back a [`Verdict`]: rows for a table, the same as JSON, and what was missed.
//! A suite never stops at the first miss; it stops only when it cannot run at all.

pub mod acts;
pub mod anyone;
pub mod bad_input;
pub mod confine;
pub mod conflicts;
pub mod cost;
pub mod daemon;
pub mod first_command;
mod frames;
pub mod hostile;
pub mod kept;
pub mod kill;
pub mod pagecache;
pub mod pollute;
pub mod programs;
pub mod recolour;
pub mod residency;
pub mod storm;
pub mod superpages;
pub mod traces;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;

/// What a suite found.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// The suite.
    pub suite: &'static str,
    /// The columns, in order.
    #[serde(skip)]
    columns: Vec<String>,
    /// One object per row; all with the same keys.
    pub rows: Vec<serde_json::Map<String, Value>>,
    /// Figures over all rows.
    pub totals: serde_json::Map<String, Value>,
    /// Promises that do not hold, in words.
    pub missed: Vec<String>,
    /// What could not be measured here, and why.
    pub skipped: Vec<String>,
}

impl Verdict {
    /// An empty verdict.
    pub fn new(suite: &'static str) -> Verdict {
        Verdict { suite, ..Verdict::default() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [(&str, Value); N]) {
        if self.columns.is_empty() {
            self.columns = cells.iter().map(|(name, _)| (*name).to_owned()).collect();
        }
        self.rows.push(cells.map(|(name, value)| (name.to_owned(), value)).into_iter().collect());
    }

    /// Adds a figure over all rows.
    pub fn total(&mut self, name: &str, value: impl Into<Value>) {
        self.totals.insert(name.to_owned(), value.into());
    }

    /// Notes a promise that does not hold.
    pub fn miss(&mut self, what: impl Into<String>) {
        let what = what.into();
        eprintln!("MISSED {}: {what}", self.suite);
        self.missed.push(what);
    }

    /// Notes a promise that must hold.
    pub fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.miss(what());
        }
    }

    /// Says loudly that something cannot be measured here.
    pub fn skip(&mut self, what: impl Into<String>) {
        let what = what.into();
        eprintln!("SKIPPED {}: {what}", self.suite);
        self.skipped.push(what);
    }

    /// What a machine that should be able to measure everything did not measure.
    pub fn unmeasured(&self) -> Vec<&String> {
        self.skipped.iter().filter(|what| !what.starts_with("kernel too old")).collect()
    }

    /// The table for people.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(self.columns.iter().map(|name| cell(&row[name])));
        }
        let mut text = format!("{table}\n");
        for (name, value) in &self.totals {
            text.push_str(&format!("{name}: {}\n", plain(value)));
        }
        let nothing = self.rows.is_empty() && !self.skipped.is_empty();
        let verdict = match self.missed.is_empty() {
            true if nothing => "not measured",
            true => "holds",
            false => "MISSED",
        };
        text.push_str(&format!("{}: {verdict}\n", self.suite));
        self.missed.iter().for_each(|m| text.push_str(&format!("  {m}\n")));
        text
    }
}

fn cell(value: &Value) -> Cell {
    let cell = Cell::new(plain(value));
    if value.is_number() { cell.set_alignment(CellAlignment::Right) } else { cell }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or(f64::NAN))
        }
        other => other.to_string(),
    }
}

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (n, half) if n % 2 == 1 => sorted[half],
        (_, half) => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Rounds for JSON: four digits behind the point are more than is measured.
pub fn round(value: f64) -> Value {
    Value::from((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_missed_promise_shows_in_the_text() {
        let mut verdict = Verdict::new("cost");
        verdict.row([("program", "xz".into()), ("ratio", round(1.23456))]);
        assert!(verdict.text().contains("cost: holds") && verdict.text().contains("1.235"));
        let mut skipped = Verdict::new("cost");
        skipped.skip("xz is not installed");
        assert!(skipped.text().contains("cost: not measured"));
        verdict.require(false, || "xz is slow".to_owned());
        assert!(verdict.text().contains("xz is slow") && !verdict.text().contains("holds"));
    }
}
