//! The file of a paper.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::statement::Statement;
use crate::report::{Table, TableRow};

/// A paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Paper {
    /// Its command.
    pub name: String,
    /// Its page in `docs/reproductions`, without ending.
    pub page: String,
    /// The command in a line.
    pub about: String,
    /// The command in a few.
    pub description: String,
    /// Examples, and what they do not show.
    pub examples: String,
    /// What `--only` takes.
    pub only: Option<String>,
    /// The option that names tables.
    pub option: String,
    /// What that takes.
    pub option_help: String,
    /// The words of its page.
    #[serde(skip)]
    pub words: Words,
    /// Its tables and figures.
    #[serde(rename = "table")]
    pub tables: Vec<TableSpec>,
    /// What it says.
    #[serde(rename = "statement")]
    pub statements: Vec<Statement>,
    /// Figures that are computed with, by name.
    #[serde(default)]
    pub figures: BTreeMap<String, Vec<f64>>,
}

/// What a page says around its results. The committed page is where these words are.
#[derive(Debug, Default)]
pub struct Words {
    /// Title and what the page is about.
    pub introduction: String,
    /// Why some statements do not hold where the whole is run.
    pub reasons: String,
    /// What differs from the paper's experiment.
    pub differences: String,
}

impl Words {
    /// What is before, between and behind what a run writes: its command, the statements, the workloads
    /// and the tables.
    fn of(page: &str) -> Option<Words> {
        let (introduction, rest) = page.split_once("\nWritten by `")?;
        let (_, rest) = rest.split_once("## Statements\n")?;
        let (statements, rest) = rest.split_once("## Workloads\n")?;
        let (workloads, _) = rest.split_once("\n## ")?;
        let introduction = introduction.to_owned();
        let [reasons, differences] = [statements, workloads].map(below_tables);
        Some(Words { introduction, reasons, differences: differences + "\n" })
    }
}

/// What is below the last row of a table.
fn below_tables(text: &str) -> String {
    let last = text.rfind("|\n").map_or(0, |at| at + 2);
    text[last..].to_owned()
}

impl Paper {
    /// Reads files that are part of this program: the paper's, and its page.
    ///
    /// # Panics
    /// When one is wrong; a test reads all of them.
    pub fn read(text: &str, page: &str) -> Paper {
        let paper: Paper =
            toml::from_str(text).unwrap_or_else(|error| panic!("a paper's file: {error}"));
        let words = Words::of(page).unwrap_or_else(|| panic!("no page: {page}"));
        Paper { words, ..paper }
    }

    /// A table.
    ///
    /// # Panics
    /// When there is none of this number.
    pub fn table(&self, id: &str) -> &TableSpec {
        let found = self.tables.iter().find(|table| table.id == id);
        found.unwrap_or_else(|| panic!("no table {id}"))
    }

    /// What tables can be asked for by.
    pub fn groups(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.tables.iter().map(TableSpec::group).collect();
        all.dedup();
        all
    }

    /// Whether a part is needed for any of these tables, or none is named.
    pub fn needs(&self, part: &str, ids: &[&str]) -> bool {
        ids.is_empty()
            || self.tables.iter().any(|own| own.part == part && ids.contains(&own.group()))
    }
}

/// A table or figure of a paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TableSpec {
    /// Its number; with an `f` before it that of a figure.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The part of the experiment that it is made of; empty where there is one part only.
    #[serde(default)]
    pub part: String,
    /// What several tables are asked for by, where that is not each one's number.
    group: Option<String>,
    /// Digits after the point.
    pub digits: usize,
    /// Names of the columns, where they are not made of outcomes.
    #[serde(default)]
    pub head: Vec<String>,
    /// The paper's figures, by the program that a row stands for or the row's own name.
    #[serde(default)]
    pub paper: BTreeMap<String, Published>,
}

/// A row of the paper.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// Figures under the name of the row.
    Plain(Vec<f64>),
    /// Figures under another name.
    Named {
        /// The name.
        program: String,
        /// The figures, those of the last columns left out where there are none.
        figures: Vec<f64>,
    },
}

impl Published {
    /// The figures.
    pub fn figures(&self) -> &[f64] {
        match self {
            Published::Plain(figures) | Published::Named { figures, .. } => figures,
        }
    }
}

impl TableSpec {
    /// What it is asked for by.
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or(&self.id)
    }

    /// The paper's figures for a program.
    pub fn of(&self, program: &str) -> Option<&[f64]> {
        self.paper.get(program).map(Published::figures)
    }

    /// The table of these rows, the paper's figures below those that have them.
    pub fn with_paper(&self, head: Vec<String>, rows: Vec<TableRow>) -> Table {
        let rows = rows.into_iter().filter(|row| row.cells.iter().any(Option::is_some));
        let rows: Vec<TableRow> = rows.map(|row| self.beside_paper(row)).collect();
        let (id, title, digits) = (self.id.clone(), self.title.clone(), self.digits);
        Table { id, title, head, digits, rows }
    }

    fn beside_paper(&self, row: TableRow) -> TableRow {
        let key = row.stands_for.as_ref().unwrap_or(&row.program);
        let (name, figures) = match self.paper.get(key) {
            _ if row.paper.is_some() => return row,
            Some(Published::Plain(figures)) => (key.clone(), figures),
            Some(Published::Named { program, figures }) => (program.clone(), figures),
            None => return TableRow { stands_for: None, ..row },
        };
        TableRow { stands_for: Some(name), paper: Some(figures.clone()), ..row }
    }
}
