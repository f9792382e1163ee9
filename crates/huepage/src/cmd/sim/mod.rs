//! `huepage sim`: runs on simulated machines, sweeps over their numbers, and the output of both.
//! What a run is lives in `huepage_sim::experiment`; here files are opened, threads started
//! and results printed.

pub mod args;
mod merge;
mod output;
mod source;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use huepage_sim::experiment::{Experiment, points};
use huepage_sim::machine::Machine;
use huepage_sim::schedule::{Plan, Schedule, ScheduleError};
use huepage_sim::system::Report;

use crate::exit::{CmdError, ExitCode};
use args::{RunArgs, SimArgs, SimCommand};
use output::Row;

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<u8, CmdError> {
    match &args.command {
        Some(SimCommand::Merge(args)) => merge::run(args),
        None => simulate(&args.run),
    }
}

fn simulate(args: &RunArgs) -> Result<u8, CmdError> {
    let experiment = experiment(args)?;
    if args.traces.is_empty() && args.workload.is_empty() {
        return Err(usage("nothing to run; name a trace, or a workload with --workload"));
    }
    let all = points(&args.sweep);
    let count = all.len();
    let mine = all.into_iter().enumerate();
    let mine: Vec<_> = mine.filter(|(at, _)| args.shard.is_none_or(|s| s.has(*at))).collect();
    // All wishes are checked before hours are spent on the first.
    let mut runs = Vec::new();
    for (number, point) in mine {
        let mut experiment = experiment.clone();
        for (key, value) in &point {
            experiment.set(key, value).map_err(|e| usage(&e.to_string()))?;
        }
        experiment.build().map_err(|e| usage(&e.to_string()))?;
        runs.push((number, point, experiment));
    }
    let quiet = count > 1;
    let work = |(number, point, experiment): &(usize, Vec<(String, String)>, Experiment)| {
        let report = one(args, experiment, quiet)?;
        Ok(Row { point: *number, parameters: point.clone(), report })
    };
    let rows = in_parallel(&runs, work)?;
    output::print(args, &rows)?;
    Ok(ExitCode::Ok.status())
}

fn experiment(args: &RunArgs) -> Result<Experiment, CmdError> {
    let path =
        args.machine.as_deref().ok_or_else(|| usage("no machine; name one with --machine"))?;
    let named = |what: String| usage(&format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|e| named(format!("{e}; name a machine file, see machines/")))?;
    let machine = Machine::parse(&text).map_err(|e| named(e.to_string()))?;
    Ok(Experiment {
        machine,
        level: args.level,
        mapping: args.mapping,
        partitions: args.colors.clone(),
        audit: args.audit,
        fragment: args.fragment,
    })
}

/// One run from start to end.
fn one(args: &RunArgs, experiment: &Experiment, quiet: bool) -> Result<Report, CmdError> {
    let plan = Plan {
        quantum: args.quantum,
        restart: args.restart,
        warm_up: args.warm_up,
        limit: args.limit,
    };
    let mut system = experiment.build().map_err(|e| usage(&e.to_string()))?;
    let mut schedule = Schedule::new(experiment.machine.cores, plan);
    for source in source::open(args, quiet)? {
        schedule.add(source);
    }
    let announce = |system: &mut _, program, space| {
        experiment.confine(system, program, space).map_err(|e| usage(&e.to_string()))
    };
    schedule.run(&mut system, announce, |_| {}).map_err(|error| match error {
        ScheduleError::Run(error) => usage(&error.to_string()),
        ScheduleError::Source(error) => error,
    })?;
    system.finish();
    system.check().map_err(|what| {
        CmdError::new(ExitCode::Internal, format!("the simulator lost count: {what}; report it"))
    })?;
    Ok(system.report())
}

/// Does all of the work on all CPUs; the results in order, or the first error.
fn in_parallel<T: Sync, R: Send>(
    work: &[T],
    run: impl Fn(&T) -> Result<R, CmdError> + Sync,
) -> Result<Vec<R>, CmdError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = work.get(at) else { return };
                    let result = run(item);
                    let failed = result.is_err();
                    results
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((at, result));
                    if failed {
                        next.store(work.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|&(at, _)| at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn usage(what: &str) -> CmdError {
    CmdError::new(ExitCode::Usage, what.to_owned())
}
