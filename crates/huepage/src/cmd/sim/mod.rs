//! `huepage sim`: runs on simulated machines, sweeps over their numbers, and the output of both.
//! What a run is lives in `huepage_sim::experiment`; here files are opened, threads started
//! and results kept and printed.

pub mod args;
mod flat;
mod heat;
mod interrupt;
mod journal;
mod merge;
mod output;
mod parquet;
mod progress;
mod source;
mod svg;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use huepage_sim::experiment::{Experiment, points};
use huepage_sim::machine::Machine;
use huepage_sim::schedule::{Plan, Schedule, ScheduleError};
use serde_json::Value;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use args::{HeatOf, RunArgs, SimArgs, SimCommand};
use interrupt::Interrupt;
use journal::Journal;
use output::{Row, Single};
use progress::Progress;

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<u8, CmdError> {
    match &args.command {
        Some(SimCommand::Merge(args)) => merge::run(args),
        None => simulate(&args.run),
    }
}

/// A point that is to be run: its number, what is set, and the run.
type Work = (usize, Vec<(String, String)>, Experiment);

fn simulate(args: &RunArgs) -> Result<u8, CmdError> {
    let interrupt = Interrupt::listen()?;
    let experiment = experiment(args)?;
    let mut work = work(args, &experiment)?;
    let whole = work.len();
    let journal = args.resume.as_deref();
    let journal = journal.map(|path| Journal::open(path, &name(args, &experiment))).transpose()?;
    let mut rows = BTreeMap::new();
    if let Some(journal) = &journal {
        let mine = |point: &usize| work.iter().any(|(number, ..)| number == point);
        rows.extend(journal.done.clone().into_iter().filter(|(point, _)| mine(point)));
        work.retain(|(number, ..)| !rows.contains_key(number));
    }
    let progress = Progress::new(args, work.len());
    let (outcomes, failed) = in_parallel(&work, |(number, point, experiment)| {
        let (row, single) = one(args, (*number, point, experiment), &interrupt, &progress)?;
        journal.iter().try_for_each(|journal| journal.write(&row))?;
        progress.finish_point();
        Ok((row, single))
    });
    drop(progress);
    let signal = interrupt.signal();
    if let Some(error) = failed.filter(|_| signal.is_none()) {
        return Err(error);
    }
    let mut single = None;
    for (at, (row, one)) in outcomes {
        rows.insert(work[at].0, row);
        single = Some(one).filter(|_| args.sweep.is_empty());
    }
    let rows: Vec<Value> = rows.into_values().collect();
    if rows.len() == whole {
        output::print(args, &rows, single.as_ref())?;
        return Ok(ExitCode::Ok.status());
    }
    if !rows.is_empty() {
        output::print(args, &rows, single.as_ref())?;
    }
    Ok(say_interrupted(args, rows.len(), whole, signal))
}

/// All points of this part of the sweep. Wishes are checked before hours are spent on the first.
fn work(args: &RunArgs, experiment: &Experiment) -> Result<Vec<Work>, CmdError> {
    if args.traces.is_empty() && args.workload.is_empty() {
        return Err(usage("nothing to run; name a trace, or a workload with --workload"));
    }
    if args.heat != HeatOf::Colors && !args.sweep.is_empty() {
        return Err(usage("--heat pages and --heat accesses show one run; leave out --sweep"));
    }
    let mut work = Vec::new();
    for (number, point) in points(&args.sweep).into_iter().enumerate() {
        if args.shard.is_some_and(|shard| !shard.has(number)) {
            continue;
        }
        let mut experiment = experiment.clone();
        for (key, value) in &point {
            experiment.set(key, value).map_err(|e| usage(&e.to_string()))?;
        }
        experiment.build().map_err(|e| usage(&e.to_string()))?;
        work.push((number, point, experiment));
    }
    let colored = |(.., e): &Work| matches!(e.colors(), Ok(Some(_)));
    if args.svg.is_some() && args.heat == HeatOf::Colors && !work.iter().all(colored) {
        let what = "has no cache with colours to draw; give --heat pages";
        return Err(usage(&format!("{} {what}", experiment.machine.name)));
    }
    Ok(work)
}

/// What tells this run from others: everything but which part of it is run and how it is shown.
fn name(args: &RunArgs, experiment: &Experiment) -> String {
    let mut same = args.clone();
    (same.machine, same.shard, same.resume) = (None, None, None);
    (same.json, same.csv, same.parquet, same.svg) = (false, false, None, None);
    same.heat = HeatOf::Colors;
    let mut hash = DefaultHasher::new();
    format!("{experiment:?} {same:?}").hash(&mut hash);
    for trace in &args.traces {
        std::fs::metadata(trace).map(|found| found.len()).ok().hash(&mut hash);
    }
    format!("{:016x}", hash.finish())
}

/// Says on standard error what was finished before a signal came; gives the exit status.
fn say_interrupted(args: &RunArgs, done: usize, whole: usize, signal: Option<i32>) -> u8 {
    let how = match &args.resume {
        Some(_) => "the same command goes on from there",
        None if args.sweep.is_empty() => "run it again",
        None => "with --resume FILE it could go on from there",
    };
    eprintln!("huepage: interrupted with {done} of {whole} points finished; {how}");
    // As a shell reports what a signal ended.
    signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(ExitCode::Internal.status())
}

fn experiment(args: &RunArgs) -> Result<Experiment, CmdError> {
    let path =
        args.machine.as_deref().ok_or_else(|| usage("no machine; name one with --machine"))?;
    let named = |what| CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()));
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
fn one(
    args: &RunArgs,
    (number, point, experiment): (usize, &[(String, String)], &Experiment),
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<(Value, Single), CmdError> {
    let plan = Plan {
        quantum: args.quantum,
        restart: args.restart,
        warm_up: args.warm_up,
        limit: args.limit,
    };
    let mut system = experiment.build().map_err(|e| usage(&e.to_string()))?;
    if args.heat != HeatOf::Colors {
        system.count_pages();
    }
    let mut schedule = Schedule::new(experiment.machine.cores, plan);
    for source in source::open(args, !args.sweep.is_empty())? {
        schedule.add(interrupt.guard(source));
    }
    let announce = |system: &mut _, program, space| {
        experiment.confine(system, program, space).map_err(|e| usage(&e.to_string()))
    };
    let ran = schedule.run(&mut system, announce, progress.of_a_point());
    ran.map_err(|error| match error {
        ScheduleError::Run(error) => usage(&error.to_string()),
        ScheduleError::Source(error) => error,
    })?;
    system.finish();
    system.check().map_err(|what| {
        CmdError::new(ExitCode::Internal, format!("the simulator lost count: {what}; report it"))
    })?;
    let row = Row { point: number, parameters: point.to_vec(), report: system.report() };
    let value = serde_json::to_value(&row).map_err(|e| internal(e.to_string()))?;
    Ok((value, Single { report: row.report, heat: system.heat().cloned() }))
}

/// Results by their place in the work, and the first error.
type Results<R> = (BTreeMap<usize, R>, Option<CmdError>);

/// Does the work on all CPUs, until all is done or something fails.
fn in_parallel<T: Sync, R: Send>(
    work: &[T],
    run: impl Fn(&T) -> Result<R, CmdError> + Sync,
) -> Results<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    let (next, results) = (AtomicUsize::new(0), Mutex::new((BTreeMap::new(), None)));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = work.get(at) else { return };
                    let result = run(item);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(result) => _ = results.0.insert(at, result),
                        Err(error) => {
                            results.1.get_or_insert(error);
                            next.store(work.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn usage(what: &str) -> CmdError {
    CmdError::new(ExitCode::Usage, what.to_owned())
}
