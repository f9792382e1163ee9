//! What an experiment has found.

use serde::Serialize;

use crate::report::{Drawing, ExperimentResult, StatementCounts, StatementResult, Table};

/// Everything that was found; its JSON form is the output of `--json`.
#[derive(Debug, Serialize)]
pub struct StudyResults<'a, O> {
    /// Whether runs were short.
    pub quick: bool,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// Traces among the workloads.
    pub traces: Vec<&'a str>,
    /// Tables.
    pub tables: Vec<Table>,
    /// What holds.
    pub claims: Vec<StatementResult>,
    /// How many statements hold.
    pub counts: StatementCounts,
    /// What comes of the others where one thing is changed.
    pub experiments: Vec<ExperimentResult>,
    /// What can be drawn.
    pub figures: Vec<Drawing>,
    /// Every run.
    pub outcomes: Vec<O>,
}
