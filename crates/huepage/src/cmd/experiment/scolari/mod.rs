//! `huepage experiment scolari`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
pub mod page;
mod work;

use std::collections::BTreeSet;

use huepage_sim::experiments::scolari::cases::COLORS;
use huepage_sim::experiments::scolari::programs::PROGRAMS;
use huepage_sim::experiments::scolari::{
    Case, Outcome, Part, Scheme, cases, claims, figures, tables,
};

use self::args::ScolariArgs;
use self::work::job;
use super::args::{Common, named};
use super::found::{Shown, experiment};
use super::markdown::Page;
use super::work::Job;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &ScolariArgs) -> Result<u8, CmdError> {
    let common = &args.common;
    common.output.check()?;
    common.traces.check(PROGRAMS.iter().map(|own| own.name.to_owned()).collect())?;
    let ids = named(&args.figure);
    let wanted = |part: &Part| ids.is_empty() || ids.contains(&part.figure());
    let parts: Vec<Part> = Part::ALL.into_iter().filter(wanted).collect();
    let shown = |outcomes: &[Outcome]| Shown {
        tables: tables(outcomes, &parts),
        claims: claims(outcomes),
        figures: figures(outcomes),
    };
    let page = Page { told: common.told("figure", &args.figure), ..page::page(common.quick) };
    experiment(common, &plan(common, &parts), || nothing(common), shown, &page)
}

/// The cases of these figures, and those that they are compared with.
fn plan<'a>(args: &'a Common, parts: &[Part]) -> Vec<Job<'a, Outcome>> {
    let traces = args.traces.names();
    let of = |part: &Part| cases(*part, &traces, args.quick);
    let wanted = |case: &Case| args.wants(&case.workload);
    let chosen: Vec<Case> = parts.iter().flat_map(of).filter(wanted).collect();
    let mut all: Vec<Case> = of(&Part::Alone);
    all.retain(|case| chosen.contains(case) || is_compared(case, &chosen));
    all.extend(chosen.into_iter().filter(|case| case.part != Part::Alone));
    all.into_iter().map(|case| job(args, case)).collect()
}

/// Whether what a program does alone is what a chosen case is compared with: in the whole cache,
/// and as the target in the same share.
fn is_compared(alone: &Case, chosen: &[Case]) -> bool {
    let whole = (alone.scheme, alone.share) == (Scheme::Aware, COLORS);
    chosen.iter().any(|case| {
        let same = (case.scheme, case.share) == (alone.scheme, alone.share);
        case.programs[0] == alone.workload && same
            || whole && case.programs.contains(&alone.workload)
    })
}

fn nothing(args: &Common) -> CmdError {
    let traces = args.traces.names();
    let all = Part::ALL.into_iter().flat_map(|part| cases(part, &traces, true));
    let names: BTreeSet<String> = all.map(|case| case.workload).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let what =
        format!("nothing named `{}` for these figures; give one of {names}", args.only.join(", "));
    CmdError::new(ExitCode::Usage, what)
}
