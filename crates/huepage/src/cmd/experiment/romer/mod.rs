//! `huepage experiment romer`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
mod books;
pub mod page;
mod work;

use std::collections::BTreeSet;

use huepage_sim::experiments::romer::{
    Outcome, Part, Program, another, claims, figures, programs, tables, variants,
};

use self::args::RomerArgs;
use self::work::{AT_ONCE, job};
use super::args::{Common, named, take_name};
use super::found::{Shown, experiment};
use super::markdown::{Page, word};
use super::work::Job;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &RomerArgs) -> Result<u8, CmdError> {
    let common = &args.common;
    common.output.check()?;
    let mut taken = built_in();
    args.workload.iter().try_for_each(|(name, spec)| take_name(&mut taken, name, spec))?;
    common.traces.check(taken)?;
    let ids = named(&args.table);
    let shown = |outcomes: &[Outcome]| Shown {
        tables: tables(outcomes, &ids),
        claims: claims(outcomes).into_iter().chain(ids.is_empty().then(books::claim)).collect(),
        figures: figures::figures(outcomes),
    };
    let page = Page { told: told(args), ..page::page(|part| wanted(args, part), common.quick) };
    experiment(common, &plan(args, &ids), || nothing(common), shown, &page)
}

/// The options that make a run another than the whole one.
fn told(args: &RomerArgs) -> Vec<String> {
    let accesses = args.accesses.iter().map(|count| format!("--accesses {count}"));
    let workload =
        |(name, spec): &(String, String)| format!("--workload {}", word(&format!("{name}={spec}")));
    let common = args.common.told("table", &args.table).into_iter();
    common.chain(accesses).chain(args.workload.iter().map(workload)).collect()
}

/// The work for these tables, all of them if none is named: each workload with some of the
/// variants of its part, so that all CPUs have something to do.
fn plan<'a>(args: &'a RomerArgs, ids: &[&str]) -> Vec<Job<'a, Outcome>> {
    let asked = |part: Part| {
        let mut known = tables::ALL.iter().filter(|(.., of)| *of == part);
        ids.is_empty() || known.any(|(id, ..)| ids.contains(id))
    };
    let mut all = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| asked(*part)) {
        let variants = variants(part);
        let named = |program: &Program| args.common.wants(&program.name);
        for program in wanted(args, part).into_iter().filter(named) {
            for some in variants.chunks(AT_ONCE) {
                all.push(job(&args.common, program.clone(), some.to_vec()));
            }
        }
    }
    all
}

/// The workloads of a part, the frozen ones first, as long as was asked for.
fn wanted(args: &RomerArgs, part: Part) -> Vec<Program> {
    let names = args.common.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    let more = args.workload.iter().filter(|_| part != Part::Buffer);
    let more = more.map(|(name, spec)| another(part, name, Some(spec)));
    let length = |program: Program| Program {
        limit: args.accesses.unwrap_or(program.limit),
        quick: args.accesses.unwrap_or(program.quick),
        ..program
    };
    programs(part, &traces).into_iter().chain(more).map(length).collect()
}

/// The workloads that are no traces.
fn built_in() -> BTreeSet<String> {
    let all = Part::ALL.into_iter().flat_map(|part| programs(part, &[]));
    all.map(|program| program.name).collect()
}

fn nothing(args: &Common) -> CmdError {
    let names = built_in().into_iter().collect::<Vec<_>>().join(", ");
    let what = format!(
        "no workload `{}` for these tables; give {names}, or a trace's name",
        args.only.join(", ")
    );
    CmdError::new(ExitCode::Usage, what)
}
