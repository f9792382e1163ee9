//! The experiments of Romer 1998, chapters 3 to 6: [`mod@programs`] are the workloads, frozen before
//! they were run, [`mod@variants`] what each runs under, [`mod@run`] runs many variants over one stream,
//! [`mod@tables`] and [`mod@figures`] order the outcomes as the thesis does, [`mod@measures`] computes
//! what its statements ask for, `watched` notes what policies do page by page, and `books` measures what
//! bookkeeping takes. No file is opened here.

mod alpha;
mod books;
pub mod changes;
pub mod figures;
pub mod fit;
mod latency;
pub mod made;
pub mod measures;
mod notes;
pub mod programs;
pub mod results;
pub mod run;
mod stability;
mod sweeps;
pub mod tables;
pub mod variants;
mod watched;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use huepage::exit::CmdError;

use crate::asked::{Asked, take_name};
use crate::engine::{MeasuredFigures, Named as _, Paper, StatementExperiment, Study, TableSpec};
use crate::report::{Drawing, StatementResult, TableRow};
use crate::run::BatchReader;
use crate::work::StudyJob;
use made::{MadeProgram, MadeStream};
pub use programs::{RomerProgram, another, programs};
pub use run::{RomerOutcome, RomerRun};
pub use variants::{Initial, RomerChange, RomerPart, RomerVariant, variants};

/// The experiments.
pub struct RomerStudy;

impl Study for RomerStudy {
    type Outcome = RomerOutcome;

    fn paper() -> &'static Paper {
        static PAPER: LazyLock<Paper> = LazyLock::new(|| {
            let page = include_str!("../../../../docs/reproductions/romer.md");
            Paper::read(include_str!("../../papers/romer.toml"), page)
        });
        &PAPER
    }

    fn reserved(asked: &Asked) -> Result<BTreeSet<String>, CmdError> {
        let mut taken = RomerStudy::names(asked);
        let more = &asked.more.workload;
        more.iter().try_for_each(|(name, spec)| take_name(&mut taken, name, spec))?;
        // A trace takes the place of a stream that was made.
        let all = RomerPart::all().flat_map(|part| programs(part, &[]));
        let kept = |program: RomerProgram| program.made.map(|_| program.name);
        let made: BTreeSet<String> = all.filter_map(kept).collect();
        Ok(&taken - &made)
    }

    fn names(_asked: &Asked) -> BTreeSet<String> {
        let all = RomerPart::all().flat_map(|part| programs(part, &[]));
        all.map(|program| program.name).collect()
    }

    fn plan(asked: &Asked) -> Vec<StudyJob<'_, RomerOutcome>> {
        let ids = asked.ids();
        let parts = RomerPart::all().filter(|part| RomerStudy::paper().needs(part.name(), &ids));
        let all = parts.flat_map(|part| plan_of(asked, part));
        // A table alone is of runs with nothing changed.
        let changes = RomerChange::experiments().filter(|_| ids.is_empty());
        all.chain(changes.flat_map(|change| plan_of_change(asked, change))).collect()
    }

    fn workloads(asked: &Asked) -> String {
        workloads(asked)
    }

    fn more_claims(asked: &Asked) -> Option<StatementResult> {
        asked.ids().is_empty().then(books::claim)
    }

    fn notes(outcomes: &[RomerOutcome]) -> String {
        notes::notes(outcomes)
    }

    fn experiments(outcomes: &mut Vec<RomerOutcome>) -> Vec<StatementExperiment<RomerOutcome>> {
        notes::experiments(outcomes)
    }

    fn parts(outcomes: &[RomerOutcome]) -> BTreeSet<&'static str> {
        outcomes.iter().map(|outcome| outcome.variant.part.name()).collect()
    }

    fn measure(outcomes: &[RomerOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
        measures::measure(outcomes, name, told)
    }

    fn rows(outcomes: &[RomerOutcome], table: &TableSpec) -> Vec<TableRow> {
        tables::rows(outcomes, table)
    }

    fn figures(outcomes: &[RomerOutcome]) -> Vec<Drawing> {
        figures::figures(outcomes)
    }
}

/// Variants that share one stream of accesses: enough to make it worth while, few enough to
/// keep all CPUs busy to the end.
const AT_ONCE: usize = 8;
/// Accesses that a stream makes at a time.
const AT_A_TIME: usize = 1 << 12;

/// Each workload of a part with some of the variants.
fn plan_of(asked: &Asked, part: RomerPart) -> Vec<StudyJob<'_, RomerOutcome>> {
    let wanted = wanted(asked, part).into_iter().filter(|program| asked.wants(&program.name));
    wanted.flat_map(|program| jobs(asked, &program, &variants(part))).collect()
}

/// The runs of an experiment.
fn plan_of_change(asked: &Asked, change: RomerChange) -> Vec<StudyJob<'_, RomerOutcome>> {
    let is = |program: &RomerProgram| {
        let name = program.name.as_str();
        change.programs().contains(&name) && program.made.is_some() && asked.wants(name)
    };
    let of_part = |&part: &RomerPart| {
        let programs = wanted(asked, part).into_iter().filter(is);
        programs.flat_map(move |own| jobs(asked, &change.of(own), &change.variants(part)))
    };
    change.parts().iter().flat_map(of_part).collect()
}

fn jobs<'a>(
    asked: &'a Asked,
    program: &RomerProgram,
    variants: &[RomerVariant],
) -> Vec<StudyJob<'a, RomerOutcome>> {
    // Machines that share a stream have pages of one size.
    let alike = variants.chunk_by(|one, other| one.halvings() == other.halvings());
    let some = alike.flat_map(|alike| alike.chunks(AT_ONCE));
    some.map(|some| job(asked, program.clone(), some.to_vec())).collect()
}

/// A workload under some variants of one part.
fn job(
    asked: &Asked,
    program: RomerProgram,
    variants: Vec<RomerVariant>,
) -> StudyJob<'_, RomerOutcome> {
    let each = if asked.quick { program.quick } else { program.limit };
    let most = each * variants.len() as u64;
    StudyJob::new(program.name.clone(), most, move |heard| {
        let open = || match program.made {
            Some(made) => Ok(made_reader(made)),
            None => asked.begin(program.spec.as_deref(), &program.name),
        };
        run::run(&program, &variants, asked.quick, &open, heard)
    })
}

/// The accesses of a stream that has no end.
fn made_reader<E>(made: MadeProgram) -> BatchReader<'static, E> {
    let mut stream = MadeStream::new(made);
    Box::new(move |batch| {
        stream.fill(batch, AT_A_TIME);
        Ok(true)
    })
}

/// The workloads of a part, the frozen ones first, as long as was asked for.
fn wanted(asked: &Asked, part: RomerPart) -> Vec<RomerProgram> {
    let more = asked.more.workload.iter().filter(|_| !part.tries_settings());
    let more = more.map(|(name, spec)| another(part, name, Some(spec)));
    let length = |program: RomerProgram| RomerProgram {
        limit: asked.more.accesses.unwrap_or(program.limit),
        quick: asked.more.accesses.unwrap_or(program.quick),
        ..program
    };
    programs(part, &asked.traces.names()).into_iter().chain(more).map(length).collect()
}

fn workloads(asked: &Asked) -> String {
    let mut text =
        String::from("| | stands for | workload | accesses at most |\n|---|---|---|---|\n");
    let parts = [
        (RomerPart::Superpages, "chapter 3"),
        (RomerPart::Conflicts, "chapters 4 and 5"),
        (RomerPart::Combined, "chapter 6"),
    ];
    for (part, chapter) in parts {
        for program in wanted(asked, part) {
            let made = program.made.map(|made| made.text());
            let spec = program.spec.map(|spec| format!("`{spec}`")).or(made);
            let spec = spec.unwrap_or_else(|| "a trace".to_owned());
            let limit = if asked.quick { program.quick } else { program.limit };
            let stands_for = if program.stands_for.is_empty() { "-" } else { program.stands_for };
            let _ = writeln!(
                text,
                "| {}, {chapter} | {stands_for} | {spec} | {} million |",
                program.name,
                limit as f64 / 1e6
            );
        }
    }
    text
}
