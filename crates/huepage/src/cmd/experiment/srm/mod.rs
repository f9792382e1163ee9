//! `huepage experiment srm`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
pub mod page;
mod work;

use std::collections::BTreeSet;

use huepage_sim::experiments::srm::{Case, Outcome, Part, cases, claims, figures, hits, tables};

use self::args::SrmArgs;
use self::work::{hits_job, job};
use super::args::{Common, named};
use super::found::{Shown, experiment};
use super::markdown::Page;
use super::work::Job;
use crate::exit::{CmdError, ExitCode};

/// The name under which the page cache alone is asked for.
const POSTMARK: &str = "postmark";

/// Runs the command.
pub fn run(args: &SrmArgs) -> Result<u8, CmdError> {
    let common = &args.common;
    common.output.check()?;
    common.traces.check(built_in(common.quick))?;
    let ids = named(&args.figure);
    let parts = parts(&ids, common);
    let shown = |outcomes: &[Outcome]| Shown {
        tables: tables(outcomes, &ids),
        claims: claims(outcomes, &parts),
        figures: figures::figures(outcomes, &parts),
    };
    let told = common.told("figure", &args.figure);
    let page = Page { told, ..page::page(&common.traces.names(), common.quick) };
    experiment(common, &plan(common, &parts), || nothing(common), shown, &page)
}

/// The parts for these figures, all of them if none is named; traces only if there are any.
fn parts(ids: &[&str], args: &Common) -> Vec<Part> {
    let wanted = |part: &Part| {
        let mut known = tables::ALL.iter().filter(|(.., of)| of == part);
        ids.is_empty() || known.any(|(id, ..)| ids.contains(id))
    };
    let there = |part: &Part| *part != Part::Traces || !args.traces.trace.is_empty();
    Part::ALL.into_iter().filter(wanted).filter(there).collect()
}

/// The work for these parts, each case once.
fn plan<'a>(args: &'a Common, parts: &[Part]) -> Vec<Job<'a, Outcome>> {
    let names = args.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    let each = parts.iter().flat_map(|&part| cases(part, args.quick, &traces));
    let cases = cases::distinct(each.collect());
    let asked = |case: &Case| {
        args.only.is_empty()
            || case.programs.iter().any(|program| args.only.iter().any(|name| is(program, name)))
    };
    let mut all: Vec<Job<'_, Outcome>> =
        cases.into_iter().filter(asked).map(|case| job(args, case)).collect();
    if parts.contains(&Part::Hits) && args.wants(POSTMARK) {
        let memories = if args.quick { &hits::QUICK[..] } else { &hits::MEMORIES };
        all.extend(memories.iter().map(|&memory| hits_job(args, memory)));
    }
    all
}

/// Whether a program has this name, `mergesort` being that of all its sizes.
fn is(program: &huepage_sim::experiments::srm::programs::Program, name: &str) -> bool {
    program.name == name || program.name.split_once(' ').is_some_and(|(first, _)| first == name)
}

/// The programs that are no traces. `scan` is left out: a trace may take its place beside others.
fn built_in(quick: bool) -> BTreeSet<String> {
    let all = Part::ALL.into_iter().flat_map(|part| cases(part, quick, &[]));
    let all = all.flat_map(|case| case.programs.into_iter().chain(case.others));
    let names = all.map(|program| program.name).chain([POSTMARK.to_owned()]);
    names.filter(|name| name != cases::SCAN).collect()
}

fn nothing(args: &Common) -> CmdError {
    let what = if args.only.is_empty() {
        "no trace for this figure; give --trace join=FILE --trace scan=FILE".to_owned()
    } else {
        let names = built_in(args.quick).into_iter().collect::<Vec<_>>().join(", ");
        format!(
            "no program `{}` for these figures; give one that counts there, of {names}, or a \
             trace's name",
            args.only.join(", ")
        )
    };
    CmdError::new(ExitCode::Usage, what)
}
