//! `huepage experiment romer`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
mod books;
mod page;
mod work;

use std::collections::BTreeSet;
use std::time::Instant;

use huepage_sim::experiments::romer::{Part, claims, figures, programs, tables, variants};

use self::args::RomerArgs;
use self::work::{AT_ONCE, Work};
use super::found::Found;
use super::work::all;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &RomerArgs) -> Result<u8, CmdError> {
    args.output.check()?;
    args.traces.check(built_in())?;
    let started = Instant::now();
    let ids: Vec<&str> =
        args.table.iter().map(String::as_str).filter(|table| *table != "all").collect();
    let plan = plan(args, &ids);
    if plan.is_empty() {
        return Err(nothing(args));
    }
    let outcomes = all(&plan)?;
    let mut claims = claims(&outcomes);
    if ids.is_empty() {
        claims.push(books::claim());
    }
    let found = Found {
        quick: args.quick,
        traces: args.traces.names(),
        tables: tables(&outcomes, &ids),
        claims,
        figures: figures::figures(&outcomes),
        seconds: started.elapsed().as_secs_f64(),
        outcomes,
    };
    args.output.write(&found, &page::page(&found.traces, args.quick))?;
    Ok(ExitCode::Ok.status())
}

/// The work for these tables, all of them if none is named: each workload with some of the
/// variants of its part, so that all CPUs have something to do.
fn plan<'a>(args: &'a RomerArgs, ids: &[&str]) -> Vec<Work<'a>> {
    let wanted = |part: Part| {
        let mut known = tables::ALL.iter().filter(|(.., of)| *of == part);
        ids.is_empty() || known.any(|(id, ..)| ids.contains(id))
    };
    let names = args.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut all = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| wanted(*part)) {
        let variants = variants(part);
        let named = |name: &String| args.only.is_empty() || args.only.contains(name);
        for program in programs(part, &traces).into_iter().filter(|p| named(&p.name)) {
            for some in variants.chunks(AT_ONCE) {
                all.push(Work { args, program: program.clone(), variants: some.to_vec() });
            }
        }
    }
    all
}

/// The workloads that are no traces.
fn built_in() -> BTreeSet<String> {
    let all = Part::ALL.into_iter().flat_map(|part| programs(part, &[]));
    all.map(|program| program.name).collect()
}

fn nothing(args: &RomerArgs) -> CmdError {
    let names = built_in().into_iter().collect::<Vec<_>>().join(", ");
    let what = format!(
        "no workload `{}` for these tables; give {names}, or a trace's name",
        args.only.join(", ")
    );
    CmdError::new(ExitCode::Usage, what)
}
