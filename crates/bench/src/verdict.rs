//! What a suite gives back: rows for a table, the same as JSON, figures of promises, and what was missed.

use std::fmt::Display;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;

use crate::figures::Spread;
use crate::promises::bar;

/// A figure of a promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromiseFigure {
    /// The promise.
    pub id: &'static str,
    /// Which of its bars; empty where there is one.
    pub of: String,
    /// In the unit of the bar, with three digits after the point.
    pub figure: f64,
    /// The lowest and the highest, where there were several.
    pub spread: Option<[f64; 2]>,
}

impl PromiseFigure {
    /// A line with its bar.
    fn text(&self) -> String {
        let (bar, name) = (bar(self.id, &self.of), named(self.id, &self.of));
        let ends = self.spread.map_or(String::new(), |[low, high]| format!(" [{low}, {high}]"));
        format!("{name}: {} {}{ends}, promised {}\n", self.figure, bar.unit, bar.text)
    }
}

/// What a suite found.
#[derive(Debug, Default, Serialize)]
pub struct SuiteVerdict {
    /// The suite.
    pub suite: String,
    /// The columns, in order.
    #[serde(skip)]
    columns: Vec<String>,
    /// One object per row; all with the same keys.
    pub rows: Vec<serde_json::Map<String, Value>>,
    /// Figures over all rows.
    pub totals: serde_json::Map<String, Value>,
    /// Figures of promises.
    pub figures: Vec<PromiseFigure>,
    /// Whether a part of what figures are over is left out: they are judged then all the same, and not given.
    #[serde(skip)]
    pub is_part: bool,
    /// Promises that do not hold, in words.
    pub missed: Vec<String>,
    /// What could not be measured here, and why.
    pub skipped: Vec<String>,
}

impl SuiteVerdict {
    /// An empty verdict.
    pub fn new(suite: &str) -> SuiteVerdict {
        SuiteVerdict { suite: suite.to_owned(), ..SuiteVerdict::default() }
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

    /// Adds the figure of a promise, the median of what was measured, and judges it by its bar. Nothing of nothing.
    pub fn figure(&mut self, id: &'static str, of: &str, values: &[f64]) {
        let Spread { median, min, max } = Spread::of(values);
        self.worst(id, of, median, (values.len() > 1).then_some([min, max]));
    }

    /// Adds a figure that is not in the middle of its spread.
    pub fn worst(&mut self, id: &'static str, of: &str, figure: f64, spread: Option<[f64; 2]>) {
        if !figure.is_finite() {
            return;
        }
        let (bar, figure, spread) =
            (bar(id, of), rounded(figure), spread.map(|ends| ends.map(rounded)));
        if !self.is_part {
            self.figures.push(PromiseFigure { id, of: of.to_owned(), figure, spread });
        }
        let what = || format!("{}: {figure} {} is not {}", named(id, of), bar.unit, bar.text);
        self.require(bar.holds(figure), what);
    }

    /// Adds a figure that is the highest of some values, or the lowest, with both ends. Nothing of nothing.
    pub fn extreme(
        &mut self,
        id: &'static str,
        of: &str,
        which: fn(Spread) -> f64,
        values: &[f64],
    ) {
        let spread = Spread::of(values);
        let ends = (values.len() > 1).then_some([spread.min, spread.max]);
        self.worst(id, of, which(spread), ends);
    }

    /// Adds the figure of a promise of which nothing may be missed: what was, so far.
    pub fn figure_of_missed(&mut self, id: &'static str, of: &str) {
        self.worst(id, of, self.missed.len() as f64, None);
    }

    /// The numbers of a column.
    pub fn column(&self, name: &str) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.get(name)?.as_f64()).collect()
    }

    /// Notes a promise that does not hold.
    pub fn miss(&mut self, what: impl Into<String>) {
        let what = what.into();
        eprintln!("MISSED {}: {what}", self.suite);
        self.missed.push(what);
    }

    /// What came of a part that is measured; where nothing did, that is missed under its name.
    pub fn attempt<T>(&mut self, part: &str, found: Result<T, impl Display>) -> Option<T> {
        found.map_err(|error| self.miss(format!("{part}: cannot be measured: {error}"))).ok()
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

    /// Whether nothing was found, missed or skipped.
    pub fn is_of_nothing(&self) -> bool {
        let nothing = self.rows.is_empty() && self.totals.is_empty() && self.figures.is_empty();
        nothing && self.missed.is_empty() && self.skipped.is_empty()
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
        self.figures.iter().for_each(|own| text.push_str(&own.text()));
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

/// A figure's name: its promise, and of what it is.
pub fn named(id: &str, of: &str) -> String {
    format!("{id} {of}").trim_end().to_owned()
}

/// Three digits after the point.
fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::round;

    #[test]
    fn figures_are_medians_with_their_ends_and_nothing_of_nothing() {
        let mut verdict = SuiteVerdict::new("confine");
        verdict.figure("P4", "bench", &[3.0, 1.0, 2.0]);
        verdict.figure("P5", "bench", &[]);
        verdict.figure("P6", "", &[0.5]);
        let found: Vec<_> =
            verdict.figures.iter().map(|own| (own.id, own.figure, own.spread)).collect();
        assert_eq!(found, [("P4", 2.0, Some([1.0, 3.0])), ("P6", 0.5, None)]);
        assert!(verdict.missed.is_empty(), "{:?}", verdict.missed);
    }

    #[test]
    fn figures_are_judged_by_their_bars() {
        let mut verdict = SuiteVerdict::new("confine");
        verdict.extreme("P4", "bench", |spread| spread.min, &[3.0, 1.5, 2.0]);
        verdict.figure("P6", "", &[10.0004]);
        verdict.is_part = true;
        verdict.figure("P6", "", &[11.0]);
        assert_eq!(verdict.figures[0].spread, Some([1.5, 3.0]));
        let text = verdict.text();
        assert!(text.contains("P4 bench: 1.5 x [1.5, 3], promised >= 2 x\n"), "{text}");
        assert!(text.contains("P6: 10 s, promised <= 10 s\n"), "{text}");
        assert_eq!(verdict.missed, ["P4 bench: 1.5 x is not >= 2 x", "P6: 11 s is not <= 10 s"]);
        assert_eq!(verdict.figures.len(), 2);
    }

    #[test]
    fn a_missed_promise_shows_in_the_text() {
        let mut verdict = SuiteVerdict::new("cost");
        verdict.row([("program", "xz".into()), ("ratio", round(1.23456))]);
        assert!(verdict.text().contains("cost: holds") && verdict.text().contains("1.235"));
        let mut skipped = SuiteVerdict::new("cost");
        skipped.skip("xz is not installed");
        assert!(skipped.text().contains("cost: not measured"));
        verdict.require(false, || "xz is slow".to_owned());
        assert_eq!(verdict.attempt("gcc", Ok::<_, String>(7)), Some(7));
        assert_eq!(verdict.attempt("gcc", Err::<u8, _>("no luck")), None);
        assert_eq!(verdict.missed[1], "gcc: cannot be measured: no luck");
        assert!(verdict.text().contains("xz is slow") && !verdict.text().contains("holds"));
    }
}
