//! `huepage experiment rocs`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
mod page;
mod work;

use std::time::Instant;

use huepage_sim::experiments::rocs::{claims, figures, programs, tables};

use self::args::RocsArgs;
use self::work::Work;
use super::found::Found;
use super::work::all;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &RocsArgs) -> Result<u8, CmdError> {
    args.output.check()?;
    args.traces.check(programs(&[], false).into_iter().map(|program| program.name).collect())?;
    let started = Instant::now();
    let ids: Vec<&str> = args.figure.iter().map(String::as_str).filter(|id| *id != "all").collect();
    let plan = plan(args);
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
    args.output.write(&found, &page::page(&found.traces, args.quick))?;
    Ok(ExitCode::Ok.status())
}

fn plan(args: &RocsArgs) -> Vec<Work<'_>> {
    let names = args.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    // What is asked for by name is run, however long it takes.
    let programs = programs(&traces, args.quick && args.only.is_empty());
    let named = |name: &String| args.only.is_empty() || args.only.contains(name);
    let wanted = programs.into_iter().filter(|program| named(&program.name));
    wanted.map(|program| Work { args, program }).collect()
}

fn nothing(args: &RocsArgs) -> CmdError {
    let names: Vec<String> = programs(&[], false).into_iter().map(|program| program.name).collect();
    let what = format!(
        "no workload `{}`; give {}, or a trace's name",
        args.only.join(", "),
        names.join(", ")
    );
    CmdError::new(ExitCode::Usage, what)
}
