//! `huepage experiment rocs`: from arguments to outcomes, and these to whatever was asked for.

pub mod args;
pub mod page;
mod work;

use huepage_sim::experiments::rocs::{Outcome, claims, figures, programs, tables};

use self::args::RocsArgs;
use self::work::job;
use super::args::{Common, named};
use super::found::{Shown, experiment};
use super::markdown::Page;
use super::work::Job;
use crate::exit::{CmdError, ExitCode};

/// Runs the command.
pub fn run(args: &RocsArgs) -> Result<u8, CmdError> {
    let common = &args.common;
    common.output.check()?;
    common.traces.check(programs(&[], false).into_iter().map(|program| program.name).collect())?;
    let shown = |outcomes: &[Outcome]| Shown {
        tables: tables(outcomes, &named(&args.figure)),
        claims: claims(outcomes),
        figures: figures::figures(outcomes),
    };
    let told = common.told("figure", &args.figure);
    let page = Page { told, ..page::page(&common.traces.names(), common.quick) };
    experiment(common, &plan(common), || nothing(common), shown, &page)
}

fn plan(args: &Common) -> Vec<Job<'_, Outcome>> {
    let names = args.traces.names();
    let traces: Vec<&str> = names.iter().map(String::as_str).collect();
    // What is asked for by name is run, however long it takes.
    let programs = programs(&traces, args.quick && args.only.is_empty());
    let wanted = programs.into_iter().filter(|program| args.wants(&program.name));
    wanted.map(|program| job(args, program)).collect()
}

fn nothing(args: &Common) -> CmdError {
    let names: Vec<String> = programs(&[], false).into_iter().map(|program| program.name).collect();
    let what = format!(
        "no workload `{}`; give {}, or a trace's name",
        args.only.join(", "),
        names.join(", ")
    );
    CmdError::new(ExitCode::Usage, what)
}
