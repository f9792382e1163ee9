//! `huepage sim`: runs on simulated machines, sweeps over their numbers, and the output of both.
//! What a run is lives in `huepage_sim::experiment`; here files are opened, threads started
//! and results kept and printed.

pub mod args;
mod curve;
pub(super) mod flat;
pub mod heat;
mod interrupt;
mod journal;
mod merge;
pub(super) mod output;
mod part;
mod progress;
pub mod source;
pub mod svg;
pub mod table;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use huepage_policy::registry::{Family, Settings};
use huepage_policy::superpage::OfflinePlan as Superpages;
use huepage_sim::experiment::{Experiment, FrameMapping, WishError, points};
use huepage_sim::governed::{Governed, Overseeing};
use huepage_sim::machine::TlbSpec;
use huepage_sim::schedule::{Schedule, ScheduleError, SchedulePlan};
use huepage_sim::system::System;
use serde_json::Value;

use crate::cmd::policy::PolicyChoice;
use crate::exit::{CmdError, ExitCode};
use crate::machine_files::read_machine;
use crate::partition::internal;
use crate::report::SCHEMA;
use crate::signals::Interrupt;
use crate::style;
use crate::whole_file;
use args::{HeatOf, SimArgs, SimCommand, SimRunArgs};
use journal::SweepJournal;
use output::{Single, SweepRow};
use part::TraceParts;
use progress::SweepProgress;

/// Pieces of a trace that are compared where a sweep goes on, and bytes of each.
const PIECES: u64 = 64;
const PIECE_BYTES: usize = 4096;

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<u8, CmdError> {
    match &args.command {
        Some(SimCommand::Merge(args)) => merge::run(args),
        None => simulate(&args.run),
    }
}

/// A point that is to be run: its number, what is set, and the run.
type Work = (usize, Vec<(String, String)>, Governed);

fn simulate(args: &SimRunArgs) -> Result<u8, CmdError> {
    if let Some(PolicyChoice::Text(text)) = &args.policy {
        style::print(text).map_err(|e| internal(e.to_string()))?;
        return Ok(ExitCode::Ok.status());
    }
    let (read, written) =
        (args.traces.iter().chain(&args.machine), args.svg.iter().chain(&args.html));
    whole_file::can_be_written_apart(written, read.chain(&args.resume))?;
    let interrupt = Interrupt::listen_impatiently()?;
    let (rows, single, whole) = points_of(args, &interrupt)?;
    if rows.len() == whole || !rows.is_empty() {
        output::print(args, &rows, single.as_ref())?;
    }
    if rows.len() == whole {
        return Ok(ExitCode::Ok.status());
    }
    Ok(say_interrupted(args, rows.len(), whole, interrupt.signal()))
}

/// The results of a sweep, in its order; fewer than it has points if a signal asked for the end.
pub fn rows(args: &SimRunArgs, interrupt: &Interrupt) -> Result<Vec<Value>, CmdError> {
    points_of(args, interrupt).map(|(rows, ..)| rows)
}

/// Colours of a machine's cache, the farthest with more than one if no level is named.
pub fn colors_of(args: &SimRunArgs) -> Result<u16, CmdError> {
    let Governed { experiment, .. } = governed(args)?;
    let found = experiment.colors().map_err(|e| usage(&e.to_string()))?;
    let what = format!("no cache of {} has more than one colour", experiment.machine.name);
    found.map(|(map, _)| map.colors()).ok_or_else(|| usage(&format!("{what}; see its file")))
}

/// Results, the whole of a single run, and how many points there were to be.
type Points = (Vec<Value>, Option<Single>, usize);

fn points_of(args: &SimRunArgs, interrupt: &Interrupt) -> Result<Points, CmdError> {
    let experiment = governed(args)?;
    warn_of_small_tlbs(&experiment);
    let mut work = work(args, &experiment)?;
    let whole = work.len();
    source::check_read_once(args, whole > 1 || experiment.needs_stream())?;
    let journal = args.resume.as_deref();
    let journal =
        journal.map(|path| SweepJournal::open(path, &name(args, &experiment))).transpose()?;
    let mut rows = finished_rows(journal.as_ref(), &mut work);
    let parts = TraceParts::of(args)?;
    let known = parts.as_ref().map(|parts| parts.length(args));
    let progress = SweepProgress::new(args, work.len(), known);
    let groups = groups(args, work);
    let (outcomes, failed) = in_parallel(&groups, |group| {
        let finished = match (&parts, group.as_slice()) {
            (Some(parts), [work]) => vec![part_run(args, work, parts, interrupt, &progress)?],
            (_, group) => group_run(args, group, interrupt, &progress)?,
        };
        for (row, _) in &finished {
            journal.iter().try_for_each(|journal| journal.write(row))?;
            progress.finish_point();
        }
        Ok(finished)
    });
    drop(progress);
    let signal = interrupt.signal();
    if let Some(error) = failed.filter(|_| signal.is_none()) {
        return Err(error);
    }
    let mut single = None;
    for (at, finished) in outcomes {
        for ((number, ..), (row, one)) in groups[at].iter().zip(finished) {
            rows.insert(*number, row);
            single = Some(one).filter(|_| args.sweep.is_empty() && parts.is_none());
        }
    }
    Ok((rows.into_values().collect(), single, whole))
}

/// What a journal has of the work, which is then what is left.
fn finished_rows(journal: Option<&SweepJournal>, work: &mut Vec<Work>) -> BTreeMap<usize, Value> {
    let Some(journal) = journal else { return BTreeMap::new() };
    let mine = |point: &usize| work.iter().any(|(number, ..)| number == point);
    let done = journal.done.clone().into_iter();
    let rows: BTreeMap<usize, Value> = done.filter(|(point, _)| mine(point)).collect();
    work.retain(|(number, ..)| !rows.contains_key(number));
    rows
}

/// Points that follow each other and may be run at once, see [`Experiment::may_share`]; about as
/// many groups as there are CPUs, or more where what is finished is written down.
fn groups(args: &SimRunArgs, work: Vec<Work>) -> Vec<Vec<Work>> {
    let one = args.traces.len() + args.workload.len() == 1;
    let whole = args.window.is_none() && args.sample.is_none();
    let alone = one && whole && args.heat == HeatOf::Colors;
    let share = work.len().div_ceil(cpus()).min(if args.resume.is_some() { 4 } else { 16 });
    let mut groups: Vec<Vec<Work>> = Vec::new();
    for point in work {
        let last = groups.last_mut().filter(|group| alone && group.len() < share);
        match last.filter(|group| group[0].2.may_share(&point.2)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    groups
}

/// All points of this part of the sweep. Wishes are checked before hours are spent on the first.
fn work(args: &SimRunArgs, experiment: &Governed) -> Result<Vec<Work>, CmdError> {
    if args.traces.is_empty() && args.workload.is_empty() {
        return Err(usage("nothing to run; name a trace, or a workload with --workload"));
    }
    if args.heat != HeatOf::Colors && !args.sweep.is_empty() {
        return Err(usage("--heat pages and --heat accesses show one run; leave out --sweep"));
    }
    check_sweeps(args)?;
    let mut work = Vec::new();
    for (number, point) in points(&args.sweep).into_iter().enumerate() {
        if args.shard.is_some_and(|shard| !shard.has(number)) {
            continue;
        }
        let experiment = at_point(experiment, &point)?;
        let built = experiment.experiment.build().map(drop).and_then(|()| experiment.check());
        built.map_err(|e| usage(&e.to_string()))?;
        work.push((number, point, experiment));
    }
    let colored = |(.., e): &Work| matches!(e.experiment.colors(), Ok(Some(_)));
    if args.svg.is_some() && args.heat == HeatOf::Colors && !work.iter().all(colored) {
        let what = "has no cache with colours to draw; give --heat pages";
        return Err(usage(&format!("{} {what}", experiment.experiment.machine.name)));
    }
    Ok(work)
}

/// Refuses to vary what another option says, or to vary it twice: one of both would count for nothing.
fn check_sweeps(args: &SimRunArgs) -> Result<(), CmdError> {
    let swept = |key: &str| args.sweep.iter().filter(|sweep| sweep.key == key).count();
    if let Some(twice) = args.sweep.iter().find(|sweep| swept(&sweep.key) > 1) {
        let key = &twice.key;
        return Err(usage(&format!("--sweep {key} is given twice; give all values at once")));
    }
    if swept("colors") > 0 && !args.colors.is_empty() {
        return Err(usage("--sweep colors is a partition for all; leave it out, or --colors"));
    }
    if swept("seed") > 0 && args.mapping.is_some_and(|mapping| !is_random(mapping)) {
        return Err(usage(SEED));
    }
    Ok(())
}

const SEED: &str = "--sweep seed is of random frames, and here they are chosen otherwise; leave it out, or give \
                    --mapping random";

const fn is_random(mapping: FrameMapping) -> bool {
    matches!(mapping, FrameMapping::Random(_))
}

/// The run at a point of the sweep; how frames are chosen follows the policy as it is there.
fn at_point(experiment: &Governed, point: &[(String, String)]) -> Result<Governed, CmdError> {
    let mut experiment = experiment.clone();
    for (key, value) in point {
        experiment.set(key, value).map_err(|e| usage(&e.to_string()))?;
    }
    experiment.reserve();
    let seeded = point.iter().any(|(key, _)| key == "seed");
    if seeded && !is_random(experiment.experiment.mapping) {
        return Err(usage(SEED));
    }
    Ok(experiment)
}

/// What tells this run from others: everything but which part of it is run and how it is shown.
fn name(args: &SimRunArgs, experiment: &Governed) -> String {
    let mut same = args.clone();
    (same.machine, same.shard, same.resume) = (None, None, None);
    (same.json, same.csv, same.svg, same.html) = (false, false, None, None);
    same.heat = HeatOf::Colors;
    let mut hash = DefaultHasher::new();
    format!("{experiment:?} {same:?}").hash(&mut hash);
    for trace in &args.traces {
        // Of what cannot be read again nothing is known.
        let _ = sample(trace, &mut hash);
    }
    format!("{:016x}", hash.finish())
}

/// The length of a trace, and pieces of it at even distances: another trace of the same name differs there.
fn sample(trace: &Path, hash: &mut DefaultHasher) -> std::io::Result<()> {
    let found = std::fs::metadata(trace)?;
    found.len().hash(hash);
    if !found.is_file() {
        return Ok(());
    }
    let file = std::fs::File::open(trace)?;
    let mut piece = vec![0; PIECE_BYTES];
    for at in 0..=PIECES {
        let from = found.len().saturating_sub(PIECE_BYTES as u64) * at / PIECES;
        let read = file.read_at(&mut piece, from)?;
        piece[..read].hash(hash);
    }
    Ok(())
}

/// Says on standard error what was finished before a signal came; gives the exit status.
fn say_interrupted(args: &SimRunArgs, done: usize, whole: usize, signal: Option<i32>) -> u8 {
    let how = match &args.resume {
        Some(_) => "the same command goes on from there",
        None if args.sweep.is_empty() => "run it again",
        None => "with --resume FILE it could go on from there",
    };
    eprintln!("huepage: interrupted with {done} of {whole} points finished; {how}");
    // As a shell reports what a signal ended.
    signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(ExitCode::Internal.status())
}

fn governed(args: &SimRunArgs) -> Result<Governed, CmdError> {
    let path =
        args.machine.as_deref().ok_or_else(|| usage("no machine; name one with --machine"))?;
    let machine = read_machine(path)?;
    let experiment = Experiment {
        machine,
        level: args.level,
        mapping: args.mapping.unwrap_or(FrameMapping::Random(1)),
        partitions: args.colors.clone(),
        audit: None,
        fragment: args.fragment,
    };
    Ok(Governed { experiment, policy: policy(args)?, as_mapped: args.mapping.is_some() })
}

/// Says that superpages are built in vain.
fn warn_of_small_tlbs(Governed { experiment, policy, .. }: &Governed) {
    let large = |tlb: &TlbSpec| tlb.pages.iter().any(|size| size.0 > 4096);
    if policy.entry().family == Family::Superpages && !experiment.machine.tlb.iter().any(large) {
        let (machine, name) = (&experiment.machine.name, policy.name());
        eprintln!("huepage: no TLB of {machine} keeps superpages: {name} can save nothing there");
    }
}

fn policy(args: &SimRunArgs) -> Result<Settings, CmdError> {
    let named = |text: &str| Settings::parse(text).map_err(|e| usage(&e.to_string()));
    let audited = args.audit.or_else(|| first_audit(args)?.parse().ok());
    match (&args.policy, audited) {
        (Some(PolicyChoice::Policy(policy)), _) => Ok(policy.clone()),
        (_, Some(every)) => named(&format!("static:every={every}")),
        _ => named("none"),
    }
}

/// The first of the numbers of cycles between audits in a sweep over them.
fn first_audit(args: &SimRunArgs) -> Option<&str> {
    let sweep = args.sweep.iter().find(|sweep| sweep.key == "audit")?;
    sweep.values.first().map(String::as_str)
}

/// Points from start to end, at once if they can be.
fn group_run(
    args: &SimRunArgs,
    group: &[Work],
    interrupt: &Interrupt,
    progress: &SweepProgress,
) -> Result<Vec<(Value, Single)>, CmdError> {
    let build = |(.., run): &Work| run.experiment.build().map_err(|e| usage(&e.to_string()));
    let mut systems = group.iter().map(build).collect::<Result<Vec<System>, _>>()?;
    if let [system] = systems.as_mut_slice() {
        if args.heat != HeatOf::Colors {
            system.count_pages();
        }
        use_threads(args, system);
        govern_to_the_end(args, &group[0].2, system, interrupt, progress)?;
    } else {
        let Ok(mut leader) = System::leading(systems) else {
            let each = group.chunks(1).map(|one| group_run(args, one, interrupt, progress));
            return Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect());
        };
        let confine = |leader: &mut System, program, space| {
            let mut points = group.iter().enumerate();
            points.try_for_each(|(number, (.., run))| match leader.twin_mut(number) {
                Some(system) => run.experiment.confine(system, program, space),
                None => Ok(()),
            })
        };
        run_to_the_end(args, group.len() as u64, &mut leader, confine, interrupt, progress)?;
        systems = leader.into_twins();
    }
    group.iter().zip(systems).map(|(work, system)| finish(work, system)).collect()
}

/// Has a machine run by the threads that are asked for, or says why one does it all.
fn use_threads(args: &SimRunArgs, system: &mut System) {
    if args.threads < 2 {
        return;
    }
    let why = if args.traces.len() + args.workload.len() > 1 {
        "which program runs next depends on the cycles of all".to_owned()
    } else if args.heat != HeatOf::Colors {
        "accesses are counted page by page".to_owned()
    } else if let Err(why) = system.use_threads(usize::from(args.threads)) {
        why.to_string()
    } else {
        return;
    };
    eprintln!("huepage: one thread runs this: {why}");
}

/// Runs the parts of a trace, and the whole of it if that was asked for.
fn part_run(
    args: &SimRunArgs,
    work: &Work,
    parts: &TraceParts,
    interrupt: &Interrupt,
    progress: &SweepProgress,
) -> Result<(Value, Single), CmdError> {
    let build = || work.2.experiment.build().map_err(|e| usage(&e.to_string()));
    let mut system = build()?;
    let counted = parts.run(args, &work.2, &mut system, interrupt, progress)?;
    let whole = args.against_whole.then(|| {
        let (mut system, args) = (build()?, SimRunArgs { warm_up: None, ..args.clone() });
        govern_to_the_end(&args, &work.2, &mut system, interrupt, progress)?;
        finish(work, system).map(|(row, _)| row)
    });
    let whole = whole.transpose()?.map(|row| row["report"].clone());
    let (mut row, single) = row(work, &system)?;
    [row["report"], row["part"]] = parts.row(args, &counted, whole.as_ref());
    Ok((row, single))
}

/// Runs all programs on a machine under the policy of a point.
fn govern_to_the_end(
    args: &SimRunArgs,
    run: &Governed,
    system: &mut System,
    interrupt: &Interrupt,
    progress: &SweepProgress,
) -> Result<(), CmdError> {
    let plans = if run.needs_stream() { plans(args, run, interrupt)? } else { Vec::new() };
    let mut oversight = run.oversight(plans).map_err(|e| usage(&e.to_string()))?;
    let mut heard = progress.of_a_point();
    let error = |e: WishError| usage(&e.to_string());
    let mut overseeing = Overseeing { oversight: &mut oversight, error, heard: &mut heard };
    let mut schedule = schedule(args, system.cores(), interrupt)?;
    schedule.oversee(system, &mut overseeing).map_err(ended)
}

/// What the streams of all programs are worth in superpages, known before the run.
fn plans(
    args: &SimRunArgs,
    run: &Governed,
    interrupt: &Interrupt,
) -> Result<Vec<Vec<Superpages>>, CmdError> {
    let sources = source::open(args, true)?.into_iter();
    let plan = |source| run.plans(interrupt::guard(source, interrupt), args.limit);
    sources.map(plan).collect()
}

fn schedule<'a>(
    args: &SimRunArgs,
    cores: usize,
    interrupt: &'a Interrupt,
) -> Result<Schedule<'a, CmdError>, CmdError> {
    let plan = SchedulePlan {
        quantum: args.quantum,
        restart: args.restart,
        warm_up: args.warm_up.unwrap_or(0),
        limit: args.limit,
    };
    let mut schedule = Schedule::new(cores, plan);
    for source in source::open(args, !args.sweep.is_empty() || args.against_whole)? {
        schedule.add(interrupt::guard(source, interrupt));
    }
    Ok(schedule)
}

fn ended(error: ScheduleError<CmdError>) -> CmdError {
    match error {
        ScheduleError::Run(error) => usage(&error.to_string()),
        ScheduleError::Source(error) => error,
    }
}

/// Runs all programs on a machine, or on those of so many points that it leads.
fn run_to_the_end(
    args: &SimRunArgs,
    points: u64,
    system: &mut System,
    confine: impl Fn(&mut System, usize, u16) -> Result<(), WishError>,
    interrupt: &Interrupt,
    progress: &SweepProgress,
) -> Result<(), CmdError> {
    let mut schedule = schedule(args, system.cores(), interrupt)?;
    let announce = |system: &mut System, program, space| {
        confine(system, program, space).map_err(|e| usage(&e.to_string()))
    };
    let mut heard = progress.of_a_point();
    let ran = schedule.run(system, announce, |accesses| heard(accesses * points));
    ran.map_err(ended)
}

/// What came of a point that ran to its end.
fn finish(work: &Work, mut system: System) -> Result<(Value, Single), CmdError> {
    system.finish();
    row(work, &system)
}

/// What came of a point.
fn row((number, point, run): &Work, system: &System) -> Result<(Value, Single), CmdError> {
    system.check().map_err(|what| {
        CmdError::new(ExitCode::Internal, format!("the simulator lost count: {what}; report it"))
    })?;
    let policy = (!run.is_free()).then(|| run.policy.to_string());
    let named = policy.clone().map(|policy| ("policy".to_owned(), policy));
    let parameters = named.into_iter().chain(point.clone()).collect();
    let level = run.experiment.colored_level().map_err(|e| usage(&e.to_string()))?;
    let level = level.map(|level| format!("L{level}"));
    let (schema, point, report) = (SCHEMA, *number, system.report());
    let row = SweepRow { schema, point, parameters, level, report };
    let value = serde_json::to_value(&row).map_err(|e| internal(e.to_string()))?;
    Ok((value, Single { policy, report: row.report, heat: system.heat().cloned() }))
}

/// Results by their place in the work, and the first error.
type Results<R> = (BTreeMap<usize, R>, Option<CmdError>);

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does the work on all CPUs, until all is done or something fails.
fn in_parallel<T: Sync, R: Send>(
    work: &[T],
    run: impl Fn(&T) -> Result<R, CmdError> + Sync,
) -> Results<R> {
    let threads = cpus().min(work.len());
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
