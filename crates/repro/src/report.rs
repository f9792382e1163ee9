//! What an experiment finds, whatever its paper: tables with the paper's own figures below ours,
//! statements with a bar each, and numbers to draw. Who prints or draws them how is the caller's
//! business.

use serde::Serialize;

/// A figure of a table; none where nothing was run.
pub type TableCell = Option<f64>;

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Its number in the paper; with an `f` before it that of a figure.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Digits after the point.
    pub digits: usize,
    /// A row for each workload.
    pub rows: Vec<TableRow>,
}

/// A workload's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableRow {
    /// The workload.
    pub program: String,
    /// Its figures.
    pub cells: Vec<TableCell>,
    /// The paper's program that it stands for.
    pub stands_for: Option<String>,
    /// The paper's figures for that; fewer than columns where it has none for the last.
    pub paper: Option<Vec<f64>>,
}

impl TableRow {
    /// The figures of a workload that stands for a program; the paper's are added by the table.
    pub fn of(program: &str, stands_for: &str, cells: Vec<TableCell>) -> TableRow {
        let stands_for = Some(stands_for.to_owned());
        TableRow { program: program.to_owned(), cells, stands_for, paper: None }
    }

    /// The figures of a row that the paper may have under the same name.
    pub fn named(name: impl Into<String>, cells: Vec<TableCell>) -> TableRow {
        TableRow { program: name.into(), cells, stands_for: None, paper: None }
    }
}

/// A statement and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatementResult {
    /// The statement, with its bar.
    pub text: String,
    /// What was measured.
    pub measured: String,
    /// Whether that meets the bar.
    pub holds: bool,
}

/// An experiment on statements that do not hold: what is found of them where one thing is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExperimentResult {
    /// What is changed.
    pub title: String,
    /// Why that, and how.
    pub about: String,
    /// What was found.
    pub claims: Vec<StatementResult>,
}

/// How many statements there are, hold, and hold in an experiment only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatementCounts {
    /// All.
    pub statements: usize,
    /// Those that hold.
    pub hold: usize,
    /// Of the others, those that hold in an experiment.
    pub explained: usize,
}

impl StatementCounts {
    /// Counts them.
    pub fn of(claims: &[StatementResult], experiments: &[ExperimentResult]) -> StatementCounts {
        let holds = |text: &str, all: &[StatementResult]| {
            all.iter().any(|claim| claim.holds && claim.text == text)
        };
        let explained = |claim: &&StatementResult| {
            !claim.holds && experiments.iter().any(|own| holds(&claim.text, &own.claims))
        };
        StatementCounts {
            statements: claims.len(),
            hold: claims.iter().filter(|claim| claim.holds).count(),
            explained: claims.iter().filter(explained).count(),
        }
    }

    /// The same in words.
    pub fn text(&self) -> String {
        let StatementCounts { statements, hold, explained } = self;
        let more = match explained {
            0 => String::new(),
            n => format!("; {n} more hold in an experiment that changes one thing or two"),
        };
        format!("{hold} of {statements} statements hold{more}")
    }
}

/// Names with figures, or `none`.
pub fn list(names: &[(String, f64)], digits: usize) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let each = names.iter().map(|(name, value)| format!("{name} {value:.digits$}"));
    each.collect::<Vec<_>>().join(", ")
}

/// The mean of some figures; none of none.
pub fn mean(values: impl IntoIterator<Item = f64>) -> TableCell {
    let all: Vec<f64> = values.into_iter().collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// A drawing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drawing {
    /// A file's name without ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Its numbers.
    pub shape: Shape,
}

/// A drawing of that name.
pub fn figure(name: &str, title: impl Into<String>, shape: Shape) -> Drawing {
    Drawing { name: name.to_owned(), title: title.into(), shape }
}

/// Bars of one workload: a policy and the heights of its parts each.
pub type BarGroup = (String, Vec<(String, Vec<f64>)>);

/// The numbers of a drawing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Lines through points.
    Points {
        /// Below the horizontal axis.
        across: &'static str,
        /// Beside the vertical axis.
        up: &'static str,
        /// Whether the points of a series are joined.
        joined: bool,
        /// Name and points of each.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Stacked bars in groups.
    Bars {
        /// Beside the vertical axis.
        up: &'static str,
        /// Names of the parts, the lowest first.
        parts: Vec<&'static str>,
        /// Groups.
        groups: Vec<BarGroup>,
    },
    /// Shades over two sizes.
    Shades {
        /// Below the horizontal axis, and its values.
        across: (&'static str, Vec<usize>),
        /// Beside the vertical axis, and its values.
        up: (&'static str, Vec<usize>),
        /// For each value of the vertical axis, a row.
        rows: Vec<Vec<f64>>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_in_an_experiment_only_is_explained() {
        let claim = |text: &str, holds| {
            let (text, measured) = (text.to_owned(), String::new());
            StatementResult { text, measured, holds }
        };
        let all = [claim("a", true), claim("b", false), claim("c", false)];
        let experiment = |claims| {
            let [title, about] = ["", ""].map(str::to_owned);
            ExperimentResult { title, about, claims }
        };
        let experiments = [
            experiment(vec![claim("a", true), claim("b", false)]),
            experiment(vec![claim("b", true)]),
        ];
        let counts = StatementCounts::of(&all, &experiments);
        assert_eq!(counts, StatementCounts { statements: 3, hold: 1, explained: 1 });
        assert!(counts.text().starts_with("1 of 3 statements hold; 1 more hold"));
        assert_eq!(StatementCounts::of(&all, &[]).text(), "1 of 3 statements hold");
    }

    #[test]
    fn lists_name_each_with_its_figure() {
        assert_eq!(list(&[], 1), "none");
        assert_eq!(list(&[("a".into(), 1.25), ("b".into(), 2.0)], 1), "a 1.2, b 2.0");
    }
}
