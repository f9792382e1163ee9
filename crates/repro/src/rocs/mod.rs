//! The experiments of ROCS (2008), section 6: [`mod@programs`] are the workloads, which were fitted to
//! the paper's table 2 and frozen before any policy ran on them ([`mod@fit`]);
//! [`mod@variants`] what each runs under, [`mod@run`] runs one under all of them and searches
//! exhaustively, [`mod@tables`] and [`mod@figures`] order the outcomes as the paper does,
//! [`mod@measures`] computes what its statements ask for, and `experiments` what those hang on that do
//! not hold. No file is opened here.

mod experiments;
pub mod figures;
pub mod fit;
pub mod measures;
mod notes;
mod offline;
pub mod profiles;
pub mod programs;
pub mod run;
mod stream;
pub mod tables;
pub mod variants;
pub mod window;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::asked::Asked;
use crate::engine::{MeasuredFigures, Paper, StatementExperiment, Study, TableSpec};
use crate::report::{Drawing, TableRow};
use crate::work::StudyJob;
pub use programs::{RocsProgram, programs};
pub use run::RocsOutcome;
pub use variants::RocsVariant;
pub use window::{Lengths, RunPolicies};

/// The paper's figures, statements and words.
pub fn paper() -> &'static Paper {
    static PAPER: LazyLock<Paper> = LazyLock::new(|| {
        let page = include_str!("../../../../docs/reproductions/rocs.md");
        Paper::read(include_str!("../../papers/rocs.toml"), page)
    });
    &PAPER
}

/// The experiments.
pub struct RocsStudy;

impl Study for RocsStudy {
    type Outcome = RocsOutcome;

    fn paper() -> &'static Paper {
        paper()
    }

    fn names(_asked: &Asked) -> BTreeSet<String> {
        programs(&[], false).into_iter().map(|program| program.name).collect()
    }

    fn plan(asked: &Asked) -> Vec<StudyJob<'_, RocsOutcome>> {
        // What is asked for by name is run, however long it takes.
        let programs = programs(&asked.traces.names(), asked.quick && asked.only.is_empty());
        let wanted = programs.into_iter().filter(|program| asked.wants(&program.name));
        let wanted: Vec<RocsProgram> = wanted.collect();
        // Table 2, which workloads are fitted to, is of plain Linux.
        let policies = if asked.ids() == ["2"] { RunPolicies::None } else { RunPolicies::All };
        let more = experiments::programs(&wanted)
            .into_iter()
            .filter(|_| policies == RunPolicies::All && !asked.quick);
        let more = more.map(|(program, policies)| job(asked, program, policies));
        let whole = wanted.into_iter().map(|program| job(asked, program, policies));
        whole.chain(more).collect()
    }

    fn workloads(asked: &Asked) -> String {
        workloads(&programs(&asked.traces.names(), asked.quick))
    }

    fn parts(outcomes: &[RocsOutcome]) -> BTreeSet<&'static str> {
        outcomes.iter().map(|_| "").collect()
    }

    fn measure(outcomes: &[RocsOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
        measures::measure(outcomes, name, told)
    }

    fn rows(outcomes: &[RocsOutcome], table: &TableSpec) -> Vec<TableRow> {
        tables::rows(&table.id, outcomes)
    }

    fn notes(outcomes: &[RocsOutcome]) -> String {
        notes::notes(outcomes)
    }

    fn experiments(outcomes: &mut Vec<RocsOutcome>) -> Vec<StatementExperiment<RocsOutcome>> {
        experiments::experiments(outcomes)
    }

    fn figures(outcomes: &[RocsOutcome]) -> Vec<Drawing> {
        figures::figures(outcomes)
    }
}

/// A workload under some policies.
fn job(asked: &Asked, program: RocsProgram, policies: RunPolicies) -> StudyJob<'_, RocsOutcome> {
    let whole = Lengths::of(&program, asked.quick);
    // What ROCS costs in a long run is not asked of an experiment on how well it chooses.
    let cycles = if policies == RunPolicies::Model { 0 } else { whole.cycles };
    let lengths = Lengths { policies, cycles, ..whole };
    StudyJob::new(program.name.clone(), most(&program, lengths), move |heard| {
        let open = || asked.begin(program.spec, &program.name);
        run::run(&program, lengths, &open, heard).map(|outcome| vec![outcome])
    })
}

/// An access in three instructions, more or less; most end long before.
fn most(program: &RocsProgram, lengths: Lengths) -> u64 {
    let offline = (lengths.offline + 1) * (lengths.steps as u64 + 2);
    let trials = 4 * lengths.most() + offline + profiles::TRIALS;
    (program.start + trials * program.trial) / 3
}

fn workloads(programs: &[RocsProgram]) -> String {
    let mut text = String::from(
        "| | stands for | workload | instructions of a trial | steps | samples |\n|---|---|---|---:|---:|---:|\n",
    );
    for program in programs {
        let spec = program.spec.map_or("a trace".to_owned(), |spec| format!("`{spec}`"));
        let stands_for = if program.stands_for.is_empty() { "-" } else { program.stands_for };
        let millions = program.trial as f64 / 1e6;
        let _ = writeln!(
            text,
            "| {} | {stands_for} | {spec} | {millions:.1} million | {} | {} |",
            program.name,
            program.steps(),
            program.samples
        );
    }
    text
}
