//! `huepage probe hash`: observations from a source, a hash from the solvers, and words for
//! both. Solving is `huepage_recover`'s; observing is done by the modules beside this one.

mod given;
mod live;
mod report;
mod sim;
mod solve;
mod source;
mod verify;

use huepage_recover::{Observations, render};

use super::args::{HashArgs, HashMethod, SourceKind};
use crate::exit::{CmdError, ExitCode};
use crate::whole_file;
use report::Report;
use solve::Solver;
use source::{LineChoice, ObservationSource};

/// Observes, solves and reports.
pub fn run(args: &HashArgs) -> Result<u8, CmdError> {
    let mut source = open(args)?;
    if let Some(hash) = &args.verify {
        let hash = given::hash(hash)?;
        let seen = observed(source.as_mut(), LineChoice::Random, args)?;
        return verify::run(&hash, &seen, &source.describe(), args);
    }
    let mut report = Report::new(source.describe(), source.hidden());
    let mut solver = Solver { args, source: source.as_mut() };
    if args.method != HashMethod::Ilp {
        report.add(solver.algebra()?);
    }
    if args.method != HashMethod::Algebra {
        report.add(solver.clusters()?);
    }
    finish(&report, args)
}

/// The source that the options name.
fn open(args: &HashArgs) -> Result<Box<dyn ObservationSource>, CmdError> {
    let kind = args.source.unwrap_or(match (&args.file, &args.hidden) {
        (Some(_), _) => SourceKind::File,
        (None, Some(_)) => SourceKind::Sim,
        (None, None) => SourceKind::Live,
    });
    let lacks = |what: &str| CmdError::new(ExitCode::Usage, what);
    match (kind, &args.file, &args.hidden) {
        (SourceKind::File, Some(path), _) => Ok(Box::new(source::RecordedLines::open(path)?)),
        (SourceKind::File, None, _) => Err(lacks("--source file needs a recording; add --file")),
        (SourceKind::Sim, None, Some(hash)) => {
            Ok(Box::new(sim::Simulated::new(&given::hash(hash)?, args)?))
        }
        (SourceKind::Sim, ..) => {
            Err(lacks("--source sim needs a hash to hide and no file; add --hidden"))
        }
        (SourceKind::Live, None, None) => Ok(Box::new(live::LiveCache::open(args)?)),
        (SourceKind::Live, ..) => {
            Err(lacks("--source live measures this machine; leave out --file and --hidden"))
        }
    }
}

/// What a plan shows, recorded if that is asked for.
fn observed(
    source: &mut dyn ObservationSource,
    plan: LineChoice,
    args: &HashArgs,
) -> Result<Observations, CmdError> {
    let none = || CmdError::new(ExitCode::Usage, "this source cannot observe that; use another");
    let seen = source.observe(plan)?.ok_or_else(none)?;
    if let Some(path) = &args.record {
        whole_file::save(path, &render(&seen))?;
    }
    Ok(seen)
}

fn finish(report: &Report, args: &HashArgs) -> Result<u8, CmdError> {
    let file = report.file();
    if let (Some(path), Some(file)) = (&args.output, &file) {
        whole_file::save(path, &file.render().map_err(crate::partition::internal)?)?;
    }
    let text = if args.json { report.json() } else { report.text() };
    crate::style::print(&text).map_err(crate::partition::internal)?;
    if args.output.is_some() && file.is_none() {
        let what = format!("no file written: {}", report.unwritten());
        return Err(CmdError::new(ExitCode::Noisy, what));
    }
    match report.failure() {
        None => Ok(0),
        Some(why) => Err(CmdError::new(ExitCode::Noisy, why)),
    }
}
