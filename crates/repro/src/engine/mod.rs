//! What all papers have in common. The data of a paper are a file of `papers/`: its own figures, its
//! statements with a bar each, and the words of its page. A paper's module runs its programs and knows
//! how to measure what statements and tables ask for by name ([`Study`]).

pub mod paper;
pub mod statement;

use std::collections::BTreeSet;

use huepage::exit::CmdError;
use serde::Serialize;

use crate::asked::Asked;
use crate::report::{Drawing, ExperimentResult, StatementResult, Table, TableRow};
use crate::work::StudyJob;
pub use paper::{Paper, TableSpec};
pub use statement::MeasuredFigures;

/// Values that papers' files have words for.
pub trait Named: Copy + PartialEq + 'static {
    /// All of them, in the order of the paper, each with its word.
    const ALL: &'static [(Self, &'static str)];

    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(own, _)| *own)
    }

    /// Its word.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(own, _)| *own == self).map_or("", |(_, name)| name)
    }

    /// The value of a word.
    ///
    /// # Panics
    /// When there is none: the file of the paper is wrong.
    fn named(name: &str) -> Self {
        let found = Self::ALL.iter().find(|(_, own)| *own == name);
        found.unwrap_or_else(|| panic!("nothing is named {name}")).0
    }
}

/// Runs in which one thing is changed, for statements that do not hold without.
#[derive(Debug)]
pub struct StatementExperiment<O> {
    /// What is changed.
    pub title: String,
    /// Why that, and how.
    pub about: String,
    /// The runs with the change, and those that it leaves as they are.
    pub outcomes: Vec<O>,
    /// How the statements begin that it is about; all if empty.
    pub of_statements: &'static str,
}

/// What a paper's experiments found, and how it is measured.
pub trait Study {
    /// What a run gives.
    type Outcome: Serialize + Send;

    /// The paper.
    fn paper() -> &'static Paper;

    /// Names that no trace may have.
    ///
    /// # Errors
    /// When two workloads that were asked for have one name.
    fn reserved(asked: &Asked) -> Result<BTreeSet<String>, CmdError> {
        Ok(Self::names(asked))
    }

    /// Names that `--only` takes.
    fn names(asked: &Asked) -> BTreeSet<String>;

    /// The runs for what is asked.
    fn plan(asked: &Asked) -> Vec<StudyJob<'_, Self::Outcome>>;

    /// The workloads of these runs, as Markdown.
    fn workloads(asked: &Asked) -> String;

    /// Parts about which something is said also where nothing of them was run.
    fn asked(_asked: &Asked) -> Vec<&'static str> {
        Vec::new()
    }

    /// What is measured and not simulated.
    fn more_claims(_asked: &Asked) -> Option<StatementResult> {
        None
    }

    /// What the runs say beside statements and tables, as a section of the page; empty if nothing.
    fn notes(_outcomes: &[Self::Outcome]) -> String {
        String::new()
    }

    /// Takes the outcomes of experiments out of all, which are about statements that do not hold.
    fn experiments(_outcomes: &mut Vec<Self::Outcome>) -> Vec<StatementExperiment<Self::Outcome>> {
        Vec::new()
    }

    /// Parts of the experiment of which there are outcomes.
    fn parts(outcomes: &[Self::Outcome]) -> BTreeSet<&'static str>;

    /// The figures that a statement asks for: the name of a measure, and what it is told.
    ///
    /// # Panics
    /// At a name that it does not know: the file of the paper is wrong.
    fn measure(outcomes: &[Self::Outcome], name: &str, told: &[&str]) -> MeasuredFigures;

    /// The rows of a table, as many cells in each as it has columns; the paper's figures are added later.
    fn rows(outcomes: &[Self::Outcome], table: &TableSpec) -> Vec<TableRow>;

    /// The columns of a table.
    fn head(_outcomes: &[Self::Outcome], table: &TableSpec) -> Vec<String> {
        table.head.clone()
    }

    /// What can be drawn.
    fn figures(outcomes: &[Self::Outcome]) -> Vec<Drawing>;
}

/// All statements about parts of which there are outcomes, or which were asked for.
pub fn claims<S: Study>(outcomes: &[S::Outcome], asked: &[&str]) -> Vec<StatementResult> {
    let mut parts = S::parts(outcomes);
    parts.extend(asked);
    let statements = S::paper().statements.iter().filter(|own| parts.contains(own.part.as_str()));
    let judge = |statement: &statement::Statement| {
        statement.judge(&|name, told| S::measure(outcomes, name, told))
    };
    statements.flat_map(judge).collect()
}

/// What experiments say of the statements that do not hold without, and of which they give other figures.
pub fn judged<S: Study>(
    experiments: Vec<StatementExperiment<S::Outcome>>,
    without: &[StatementResult],
) -> Vec<ExperimentResult> {
    let judge = |StatementExperiment { title, about, outcomes, of_statements }| {
        let other = |new: &StatementResult| {
            let of = |old: &&StatementResult| !old.holds && old.text == new.text;
            let old = without.iter().find(of);
            new.text.starts_with(of_statements)
                && old.is_some_and(|old| old.measured != new.measured)
                && !new.measured.contains("not run")
        };
        let mut claims = claims::<S>(&outcomes, &[]);
        claims.retain(other);
        ExperimentResult { title, about, claims }
    };
    let all = experiments.into_iter().map(judge);
    all.filter(|experiment| !experiment.claims.is_empty()).collect()
}

/// The tables that were asked for and have rows; all if none is named.
pub fn tables<S: Study>(outcomes: &[S::Outcome], ids: &[&str]) -> Vec<Table> {
    let wanted =
        S::paper().tables.iter().filter(|own| ids.is_empty() || ids.contains(&own.group()));
    let made = wanted.map(|own| own.with_paper(S::head(outcomes, own), S::rows(outcomes, own)));
    made.filter(|table| !table.rows.is_empty()).collect()
}
