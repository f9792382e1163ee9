//! `huepage experiment coloris`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
pub mod page;
mod work;

use std::collections::BTreeSet;

use huepage_sim::experiments::coloris::{Case, Outcome, Part, cases, claims, figures, tables};

use self::args::ColorisArgs;
use self::work::job;
use super::args::{Common, named};
use super::found::{Shown, experiment};
use super::markdown::Page;
use super::work::Job;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &ColorisArgs) -> Result<u8, CmdError> {
    let common = &args.common;
    common.output.check()?;
    // Stand-ins and traces never run together: a trace may be named as one of them.
    common.traces.check(BTreeSet::new())?;
    let ids = named(&args.figure);
    let shown = |outcomes: &[Outcome]| Shown {
        tables: tables(outcomes, &ids),
        claims: claims(outcomes),
        figures: figures::figures(outcomes),
    };
    let page = Page { told: common.told("figure", &args.figure), ..page::page(common.quick) };
    experiment(common, &plan(common, &ids), || nothing(common), shown, &page)
}

/// The cases for these tables, all of them if none is named.
fn plan<'a>(args: &'a Common, ids: &[&str]) -> Vec<Job<'a, Outcome>> {
    let wanted = |part: Part| {
        let mut known = tables::ALL.iter().filter(|(.., of)| *of == part);
        ids.is_empty() || known.any(|(id, ..)| ids.contains(id))
    };
    let parts = Part::ALL.into_iter().filter(|part| wanted(*part));
    let all = parts.flat_map(|part| of_part(args, part));
    let wanted = |case: &Case| {
        args.wants(case.config) || case.foreground().is_some_and(|name| args.wants(name))
    };
    all.filter(wanted).map(|case| job(args, case)).collect()
}

fn of_part(args: &Common, part: Part) -> Vec<Case> {
    let names = args.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    cases(part, &traces, args.quick)
}

fn nothing(args: &Common) -> CmdError {
    if args.only.is_empty() {
        let what = "`real` is about traces; give --trace NAME=FILE, or another --figure";
        return CmdError::new(ExitCode::Usage, what);
    }
    let all = Part::ALL.into_iter().flat_map(|part| of_part(args, part));
    let names: BTreeSet<String> = all
        .flat_map(|case| {
            let foreground = case.foreground().map(str::to_owned);
            [case.config.to_owned()].into_iter().chain(foreground)
        })
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let what =
        format!("nothing named `{}` for these figures; give one of {names}", args.only.join(", "));
    CmdError::new(ExitCode::Usage, what)
}
