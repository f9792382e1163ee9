//! `huepage experiment coloris`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
mod page;
mod work;

use std::collections::BTreeSet;
use std::time::Instant;

use huepage_sim::experiments::coloris::{Case, Part, cases, claims, figures, tables};

use self::args::ColorisArgs;
use self::work::Work;
use super::found::Found;
use super::work::all;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &ColorisArgs) -> Result<u8, CmdError> {
    args.output.check()?;
    // Stand-ins and traces never run together: a trace may be named as one of them.
    args.traces.check(BTreeSet::new())?;
    let started = Instant::now();
    let ids: Vec<&str> =
        args.figure.iter().map(String::as_str).filter(|figure| *figure != "all").collect();
    let plan = plan(args, &ids);
    if plan.is_empty() {
        return Err(nothing(args));
    }
    let outcomes = all(&plan)?;
    let found = Found {
        quick: args.quick,
        traces: args.traces.names(),
        tables: tables(&outcomes, &ids),
        claims: claims(&outcomes),
        figures: figures::figures(&outcomes),
        seconds: started.elapsed().as_secs_f64(),
        outcomes,
    };
    args.output.write(&found, &page::page(args.quick))?;
    Ok(ExitCode::Ok.status())
}

/// The cases for these tables, all of them if none is named.
fn plan<'a>(args: &'a ColorisArgs, ids: &[&str]) -> Vec<Work<'a>> {
    let wanted = |part: Part| {
        let mut known = tables::ALL.iter().filter(|(.., of)| *of == part);
        ids.is_empty() || known.any(|(id, ..)| ids.contains(id))
    };
    let parts = Part::ALL.into_iter().filter(|part| wanted(*part));
    let all = parts.flat_map(|part| of_part(args, part));
    let named = |case: &Case| {
        let is = |only: &String| case.config == only || case.foreground() == Some(only.as_str());
        args.only.is_empty() || args.only.iter().any(is)
    };
    all.filter(named).map(|case| Work { args, case }).collect()
}

fn of_part(args: &ColorisArgs, part: Part) -> Vec<Case> {
    let names = args.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    cases(part, &traces, args.quick)
}

fn nothing(args: &ColorisArgs) -> CmdError {
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
