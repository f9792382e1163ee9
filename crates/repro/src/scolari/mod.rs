//! The experiments of Scolari (2016), section 5: [`mod@programs`] are the stand-ins and which of
//! them run together, frozen before any was run, [`mod@cases`] under which partitions,
//! [`mod@run`] runs them on the cores of the simulated Xeon E5-1410, [`mod@tables`] and
//! [`mod@figures`] order the outcomes as the paper does, [`mod@measures`] computes what its
//! statements ask for, and [`mod@changed`] runs what [`mod@changes`] changes for those that do not hold. No file is opened here.

pub mod cases;
pub mod changed;
pub mod changes;
pub mod figures;
pub mod measures;
pub mod outcome;
pub mod parsec;
pub mod programs;
pub mod run;
pub mod tables;
pub mod threads;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use huepage::exit::CmdError;

pub use super::coloris::ColorisProgram;
use crate::asked::Asked;
use crate::engine::{MeasuredFigures, Named as _, Paper, StatementExperiment, Study, TableSpec};
use crate::report::{Drawing, TableRow};
use crate::work::StudyJob;
use cases::COLORS;
pub use cases::{Scheme, ScolariCase, ScolariPart, cases};
pub use changes::ScolariChange;
pub use outcome::{ScolariOutcome, ScolariProgramResult};
use parsec::PARSEC;
use programs::{PROGRAMS, TABLE_3, TABLE_4, TABLE_5};
pub use run::run;

/// The experiments.
pub struct ScolariStudy;

impl Study for ScolariStudy {
    type Outcome = ScolariOutcome;

    fn paper() -> &'static Paper {
        static PAPER: LazyLock<Paper> = LazyLock::new(|| {
            let page = include_str!("../../../../docs/reproductions/scolari.md");
            Paper::read(include_str!("../../papers/scolari.toml"), page)
        });
        &PAPER
    }

    fn reserved(_asked: &Asked) -> Result<BTreeSet<String>, CmdError> {
        Ok(programs::names().map(str::to_owned).collect())
    }

    fn names(asked: &Asked) -> BTreeSet<String> {
        let all = ScolariPart::all().flat_map(|part| cases(part, &asked.traces.names(), true));
        all.map(|case| case.workload).collect()
    }

    /// The cases of these figures, and those that they are compared with.
    fn plan(asked: &Asked) -> Vec<StudyJob<'_, ScolariOutcome>> {
        let (traces, ids) = (asked.traces.names(), asked.ids());
        let of = |part: ScolariPart| cases(part, &traces, asked.quick);
        let wanted = |case: &ScolariCase| asked.wants(&case.workload);
        let parts =
            ScolariPart::all().filter(|part| ScolariStudy::paper().needs(part.name(), &ids));
        let chosen: Vec<ScolariCase> = parts.flat_map(of).filter(wanted).collect();
        let mut all: Vec<ScolariCase> = of(ScolariPart::Alone);
        all.retain(|case| chosen.contains(case) || is_compared(case, &chosen));
        all.extend(chosen.into_iter().filter(|case| case.part != ScolariPart::Alone));
        // A figure alone is of the paper's cases.
        let changes = ScolariChange::experiments().filter(|_| ids.is_empty());
        all.extend(changes.flat_map(|change| change.cases(asked.quick)).filter(wanted));
        all.into_iter().map(|case| job(asked, case)).collect()
    }

    fn workloads(asked: &Asked) -> String {
        workloads(asked.quick)
    }

    fn parts(outcomes: &[ScolariOutcome]) -> BTreeSet<&'static str> {
        outcomes.iter().map(|outcome| outcome.part.name()).collect()
    }

    fn experiments(outcomes: &mut Vec<ScolariOutcome>) -> Vec<StatementExperiment<ScolariOutcome>> {
        changed::experiments(outcomes)
    }

    fn measure(outcomes: &[ScolariOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
        measures::measure(outcomes, name, told)
    }

    fn head(outcomes: &[ScolariOutcome], table: &TableSpec) -> Vec<String> {
        tables::head(outcomes, table)
    }

    fn rows(outcomes: &[ScolariOutcome], table: &TableSpec) -> Vec<TableRow> {
        tables::rows(outcomes, table)
    }

    fn figures(outcomes: &[ScolariOutcome]) -> Vec<Drawing> {
        figures::figures(outcomes)
    }
}

/// Whether what a program does alone is what a chosen case is compared with: in the whole cache,
/// and as the target in the same share; hash-aware, too, where its own colours divide the L2.
fn is_compared(alone: &ScolariCase, chosen: &[ScolariCase]) -> bool {
    let whole = (alone.scheme, alone.share) == (Scheme::Aware, COLORS);
    chosen.iter().any(|case| {
        let scheme = if case.part == ScolariPart::Profiles { Scheme::Aware } else { case.scheme };
        let same = (scheme, case.share) == (alone.scheme, alone.share);
        case.programs[0] == alone.workload && same
            || whole && case.programs.contains(&alone.workload)
    })
}

/// A case, in cycles: how many accesses there will be is not known beforehand.
fn job(asked: &Asked, case: ScolariCase) -> StudyJob<'_, ScolariOutcome> {
    let most = case.times(asked.quick).end * case.cores();
    StudyJob::new(case.name(), most, move |heard| {
        let open = |program: &ColorisProgram| asked.begin(program.spec.as_deref(), &program.name);
        run(&case, asked.quick, &open, heard).map(|outcome| vec![outcome])
    })
}

fn workloads(quick: bool) -> String {
    let mut text = String::from("| | workload | table II | why |\n|---|---|---|---|\n");
    for own in PROGRAMS {
        let class = if own.sensitive { "sensitive" } else { "insensitive" };
        let _ = writeln!(text, "| {} | `{}` | {class} | {} |", own.name, own.spec, own.why);
    }
    text.push_str("\n| | target | polluters |\n|---|---|---|\n");
    for (name, [target, polluters @ ..]) in TABLE_3.iter().chain(&TABLE_4) {
        let _ = writeln!(text, "| {name} | {target} | {} |", polluters.join(", "));
    }
    text.push_str("\n| | workload of a thread | memory of threads | why |\n|---|---|---|---|\n");
    for own in PARSEC {
        let shared = if own.shared { "shared" } else { "of their own" };
        let _ = writeln!(text, "| {} | `{}` | {shared} | {} |", own.name, own.spec, own.why);
    }
    text.push_str("\n| | target | polluter |\n|---|---|---|\n");
    for (name, [target, polluter]) in TABLE_5 {
        let _ = writeln!(text, "| {name} | {target} | {polluter} |");
    }
    if quick {
        text.push_str("\nRuns are an eighth as long, with fewer shares.\n");
    }
    text
}
