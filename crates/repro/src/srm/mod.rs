//! The experiments of SRM-buffer 2011, sections 2 and 4: [`mod@programs`] are the workloads, frozen
//! before they were run, [`mod@cases`] which of them run beside which on which machine,
//! [`mod@variants`] how frames are chosen, [`mod@run`] runs a case, [`mod@hits`] the page cache alone
//! (figure 15). [`mod@tables`] and [`mod@figures`] order the outcomes as the paper does, and
//! [`mod@measures`] computes what its statements ask for. Nothing is left out but what only the
//! paper's drawings show.

pub mod cases;
mod changed;
pub mod changes;
pub mod figures;
pub mod hits;
pub mod measures;
pub mod place;
pub mod pool;
pub mod programs;
pub mod results;
pub mod run;
pub mod tables;
pub mod variants;
pub mod waits;
mod work;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::asked::Asked;
use crate::engine::{MeasuredFigures, Named as _, Paper, StatementExperiment, Study, TableSpec};
use crate::report::{Drawing, TableRow};
use crate::work::StudyJob;
pub use cases::{SrmCase, SrmPart, cases};
pub use changes::SrmChange;
use programs::SrmProgram;
use results::SrmResults;
pub use run::{SrmOutcome, run};
pub use variants::SrmVariant;

/// The name under which the page cache alone is asked for.
const POSTMARK: &str = "postmark";

/// The experiments.
pub struct SrmStudy;

impl Study for SrmStudy {
    type Outcome = SrmOutcome;

    fn paper() -> &'static Paper {
        static PAPER: LazyLock<Paper> = LazyLock::new(|| {
            let page = include_str!("../../../../docs/reproductions/srm-buffer.md");
            Paper::read(include_str!("../../papers/srm.toml"), page)
        });
        &PAPER
    }

    /// The programs that are no traces. `scan` is left out: a trace may take its place beside others.
    fn names(asked: &Asked) -> BTreeSet<String> {
        let all = SrmPart::all().flat_map(|part| cases(part, asked.quick, &[]));
        let all = all.flat_map(|case| case.programs.into_iter().chain(case.others));
        let names = all.map(|program| program.name).chain([POSTMARK.to_owned()]);
        names.filter(|name| name != programs::SCAN).collect()
    }

    /// The work for these parts, each case once.
    fn plan(asked: &Asked) -> Vec<StudyJob<'_, SrmOutcome>> {
        let (parts, traces) = (wanted(asked), asked.traces.names());
        let each = parts.iter().flat_map(|&part| cases(part, asked.quick, &traces));
        // A figure alone is of the paper's cases.
        let changes = SrmChange::experiments().filter(|_| asked.ids().is_empty());
        let each = each.chain(changes.flat_map(|change| change.cases(asked.quick, &traces)));
        let cases = cases::distinct(each.collect()).into_iter();
        let cases = cases.filter(|case| asked.only.is_empty() || is_asked(case, &asked.only));
        let mut all: Vec<StudyJob<'_, SrmOutcome>> =
            cases.map(|case| work::job(asked, case)).collect();
        if parts.contains(&SrmPart::Hits) && asked.wants(POSTMARK) {
            let memories = if asked.quick { &hits::QUICK[..] } else { &hits::MEMORIES };
            all.extend(memories.iter().map(|&memory| work::hits_job(asked, memory)));
        }
        all
    }

    fn workloads(asked: &Asked) -> String {
        workloads(&asked.traces.names(), asked.quick)
    }

    fn asked(asked: &Asked) -> Vec<&'static str> {
        wanted(asked).into_iter().map(SrmPart::name).collect()
    }

    fn parts(outcomes: &[SrmOutcome]) -> BTreeSet<&'static str> {
        outcomes.iter().map(|outcome| outcome.part.name()).collect()
    }

    fn experiments(outcomes: &mut Vec<SrmOutcome>) -> Vec<StatementExperiment<SrmOutcome>> {
        let experiment = |change: SrmChange| StatementExperiment {
            title: change.name().to_owned(),
            about: change.reason().to_owned(),
            outcomes: SrmResults(outcomes).changed(change),
            of_statements: "",
        };
        SrmChange::experiments().map(experiment).collect()
    }

    fn measure(outcomes: &[SrmOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
        measures::measure(outcomes, name, told)
    }

    fn rows(outcomes: &[SrmOutcome], table: &TableSpec) -> Vec<TableRow> {
        tables::rows(outcomes, table)
    }

    fn figures(outcomes: &[SrmOutcome]) -> Vec<Drawing> {
        figures::figures(outcomes, SrmPart::all())
    }
}

/// The parts for these figures, all of them if none is named; traces only if there are any.
fn wanted(asked: &Asked) -> Vec<SrmPart> {
    let ids = asked.ids();
    let there = |part: &SrmPart| *part != SrmPart::Traces || !asked.traces.trace.is_empty();
    let wanted = |part: &SrmPart| SrmStudy::paper().needs(part.name(), &ids);
    SrmPart::all().filter(wanted).filter(there).collect()
}

/// Whether a program of a case has one of these names, `mergesort` being that of all its sizes.
fn is_asked(case: &SrmCase, names: &[String]) -> bool {
    let first =
        |program: &SrmProgram| program.name.split(' ').next().unwrap_or_default().to_owned();
    let is =
        |program: &SrmProgram| names.contains(&program.name) || names.contains(&first(program));
    case.programs.iter().any(is)
}

fn workloads(traces: &[&str], quick: bool) -> String {
    let mut text = String::from("| | workload | accesses, after |\n|---|---|---|\n");
    let mut seen = BTreeSet::new();
    for case in SrmPart::all().flat_map(|part| cases(part, quick, traces)) {
        let millions = |n: u64| n as f64 / 1e6;
        let length = format!("{:.1} million, {:.1}", millions(case.limit), millions(case.warm_up));
        let counts = case.programs.iter().map(|program| (program, length.as_str()));
        let beside = case.others.iter().map(|program| (program, "as long as those that count"));
        for (program, length) in counts.chain(beside) {
            let spec = program.spec.as_ref();
            let spec = spec.map_or("a trace".to_owned(), |spec| format!("`{spec}`"));
            if seen.insert((program.name.clone(), spec.clone())) {
                let _ = writeln!(text, "| {} | {spec} | {length} |", program.name);
            }
        }
    }
    text + "\n" + &waits::table()
}
