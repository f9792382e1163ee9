//! The experiments of COLORIS (2014), section 4: [`mod@programs`] are the workloads, frozen before
//! they were run, [`mod@cases`] which of them run together under what, [`mod@corun`] runs them on
//! the cores of one machine with a manager over all, [`mod@tables`] and [`mod@figures`] order the
//! outcomes as the paper does, and [`mod@measures`] computes what its statements ask for. No file is
//! opened here.

pub(crate) mod apps;
pub mod cases;
pub mod corun;
pub mod figures;
pub mod measures;
pub mod outcome;
pub mod programs;
pub mod tables;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use huepage::exit::CmdError;

use crate::asked::Asked;
use crate::engine::{MeasuredFigures, Named as _, Paper, StatementExperiment, Study, TableSpec};
use crate::report::{Drawing, TableRow};
use crate::work::StudyJob;
pub use cases::{ColorisCase, ColorisChange, ColorisPart, Placing, cases, changed};
pub use corun::run;
pub use outcome::{ColorisOutcome, ColorisProgramResult};
pub use programs::{ColorisProgram, PROGRAMS, WORK};
use tables::ColorisResults;

/// The paper's figures, statements and words.
pub fn paper() -> &'static Paper {
    static PAPER: LazyLock<Paper> = LazyLock::new(|| {
        let page = include_str!("../../../../docs/reproductions/coloris.md");
        Paper::read(include_str!("../../papers/coloris.toml"), page)
    });
    &PAPER
}

/// The experiments.
pub struct ColorisStudy;

impl Study for ColorisStudy {
    type Outcome = ColorisOutcome;

    fn paper() -> &'static Paper {
        paper()
    }

    /// Stand-ins and traces never run together: a trace may be named as one of them.
    fn reserved(_asked: &Asked) -> Result<BTreeSet<String>, CmdError> {
        Ok(BTreeSet::new())
    }

    fn names(asked: &Asked) -> BTreeSet<String> {
        let all = ColorisPart::all().flat_map(|part| of_part(asked, part));
        let names = |case: ColorisCase| {
            let foreground = case.foreground().map(str::to_owned);
            [case.config.to_owned()].into_iter().chain(foreground)
        };
        all.flat_map(names).collect()
    }

    fn plan(asked: &Asked) -> Vec<StudyJob<'_, ColorisOutcome>> {
        let ids = asked.ids();
        let parts = ColorisPart::all().filter(|part| paper().needs(part.name(), &ids));
        let wanted = |case: &ColorisCase| {
            asked.wants(case.config) || case.foreground().is_some_and(|name| asked.wants(name))
        };
        // A figure alone is of the paper's cases.
        let changes = ColorisChange::experiments().filter(|_| ids.is_empty());
        let all = parts.flat_map(|part| of_part(asked, part)).chain(changes.flat_map(changed));
        let all = all.filter(wanted);
        all.map(|case| job(asked, case)).collect()
    }

    fn workloads(asked: &Asked) -> String {
        let mut text = String::from(
            "| | workload | instructions more at each access | why |\n|---|---|---:|---|\n",
        );
        for (name, spec, why) in PROGRAMS {
            let work = WORK.iter().find(|(own, _)| *own == name).map_or(0, |(_, work)| *work);
            let _ = writeln!(text, "| {name} | `{spec}` | {work} | {why} |");
        }
        text + if asked.quick { "\nRuns are an eighth as long.\n" } else { "" }
    }

    fn parts(outcomes: &[ColorisOutcome]) -> BTreeSet<&'static str> {
        outcomes.iter().map(|outcome| outcome.part.name()).collect()
    }

    fn experiments(outcomes: &mut Vec<ColorisOutcome>) -> Vec<StatementExperiment<ColorisOutcome>> {
        let experiment = |change: ColorisChange| StatementExperiment {
            title: change.name().to_owned(),
            about: change.reason().to_owned(),
            outcomes: ColorisResults(outcomes).changed(change),
            of_statements: "",
        };
        ColorisChange::experiments().map(experiment).collect()
    }

    fn measure(outcomes: &[ColorisOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
        measures::measure(outcomes, name, told)
    }

    fn rows(outcomes: &[ColorisOutcome], table: &TableSpec) -> Vec<TableRow> {
        tables::rows(outcomes, table)
    }

    fn figures(outcomes: &[ColorisOutcome]) -> Vec<Drawing> {
        figures::figures(outcomes)
    }
}

fn of_part(asked: &Asked, part: ColorisPart) -> Vec<ColorisCase> {
    cases(part, &asked.traces.names(), asked.quick)
}

/// A case, in cycles: how many accesses there will be is not known beforehand.
fn job(asked: &Asked, case: ColorisCase) -> StudyJob<'_, ColorisOutcome> {
    let mut cores: Vec<u16> = case.programs.iter().map(|&(_, core, _)| core).collect();
    cores.sort_unstable();
    cores.dedup();
    let most = case.times(asked.quick).end * cores.len() as u64;
    StudyJob::new(case.name(), most, move |heard| {
        let open = |program: &ColorisProgram| asked.begin(program.spec.as_deref(), &program.name);
        run(&case, asked.quick, &open, heard).map(|outcome| vec![outcome])
    })
}
