//! `huepage run`: start a program inside a partition and stand in for it.

use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use huepage_linux::counters::Counters;
use huepage_linux::engine::EngineError;
use huepage_linux::filecache::kin::Heads;
use huepage_linux::inject::Session;
use huepage_linux::launch::{self, ChildEvent, Ending, LaunchError, Launched, Original};

use super::page_cache::supervisor::Service;
use super::page_cache::{decided, native};
use crate::args::RunArgs;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::progress::Gathering;
use crate::report::RunReport;
use crate::supervise::Supervisor;
use huepage_linux::launch::relay::{SignalRelay, exit_like, stop_like};

/// Runs the program; the status is its own.
pub fn run(args: RunArgs) -> Result<u8, CmdError> {
    if is_alone(&args)? {
        return native::run(&args);
    }
    let original = Original::capture();
    let began = Instant::now();
    let plan = partition::prepare(&args.partition)?;
    check_program(&args)?;
    let relay = SignalRelay::new().map_err(launch_error)?;
    let facts = Facts::of(&plan);
    let no_superpages = args.superpages.refuse(&plan, args.quiet);
    let costs = args.superpages.costs(&plan);
    let text = args.text.start(&plan)?;
    let partition = decided(&args.partition, &plan);
    let mut supervisor = Supervisor::open(plan)?;
    supervisor.place_text(text);
    supervisor.refuse_superpages(no_superpages.clone());
    let own = Heads::Below(std::process::id().cast_signed());
    let files = Service::start_if_wanted(&args.page_cache, &partition, own, args.quiet)?;
    let launched = launch::spawn(&args.command, &original).map_err(launch_error)?;
    let prepared = began.elapsed().as_secs_f64();
    let mut counters = args.counters.then(|| Counters::of(launched.pid()).ok()).flatten();
    let gather = begin(&mut supervisor, &launched, args.quiet)?;
    let desk = supervisor.group.desk();
    supervisor.build_superpages(args.superpages.start_in(desk, costs, &[launched.pid()]));
    let started = Instant::now();
    let ending = stand_in(&mut supervisor, &launched, &relay)?;
    let seconds = started.elapsed().as_secs_f64();
    let superpages = supervisor.end_superpages();
    supervisor.group.tend();
    let mut report = facts.report(&supervisor, [seconds, gather, prepared]);
    report.text = supervisor.text();
    (report.superpages, report.no_superpages) = (superpages, no_superpages);
    report.page_cache = files.map(Service::finish);
    report.counters = counters.as_mut().and_then(|counters| counters.read().ok());
    let exhausted = supervisor.group.is_exhausted();
    tell(&args, &report)?;
    drop((supervisor, relay));
    end(exhausted, ending)
}

/// Refuses what is no program that can be confined.
fn check_program(args: &RunArgs) -> Result<(), CmdError> {
    let program = launch::resolve(&args.command[0]).map_err(launch_error)?;
    launch::check_program(&program).map_err(launch_error)
}

/// Whether there is no partition, only something that needs none; refuses what cannot be.
fn is_alone(args: &RunArgs) -> Result<bool, CmdError> {
    let placed = args.text.check(true).is_err() || args.page_cache.is_on();
    let other = placed || args.superpages.is_on() || args.pollute.is_on();
    args.conflicts.check(&args.partition, other)?;
    if args.conflicts.is_on() {
        return Ok(true);
    }
    let alone = args.page_cache.is_alone(&args.partition, &args.superpages, &args.pollute)?;
    args.text.check(alone)?;
    args.pollute.check(alone, args.superpages.is_on())?;
    args.superpages.check()?;
    Ok(alone)
}

/// What is said of the partition at the end, kept since the plan is used up.
struct Facts {
    colors: huepage_color::ColorSet,
    level: String,
    colors_from: String,
}

impl Facts {
    fn of(plan: &partition::Plan) -> Facts {
        Facts {
            colors: plan.config.colors.clone(),
            level: plan.cache.level.to_string(),
            colors_from: plan.provenance.to_string(),
        }
    }

    fn report(self, supervisor: &Supervisor, seconds: [f64; 3]) -> RunReport {
        RunReport::new(
            &self.colors,
            self.level,
            self.colors_from,
            supervisor.group.report(),
            seconds,
        )
    }
}

/// Confines the stopped program and lets it go; returns the seconds that gathering took.
fn begin(supervisor: &mut Supervisor, launched: &Launched, quiet: bool) -> Result<f64, CmdError> {
    let start = Instant::now();
    supervisor.place_text_of(launched.pid());
    let mut gathering = Gathering::new(quiet);
    let taken = Session::take_over(launched.pid()).map_err(EngineError::from).and_then(|session| {
        supervisor
            .group
            .take_stopped(launched.pid(), session, |done, all| gathering.show(done, all))
    });
    gathering.finish();
    if let Err(error) = taken {
        // It has not run a single instruction of its own: nothing is lost by not starting it.
        rustix::process::Pid::from_raw(launched.pid())
            .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        return Err(engine_error(error));
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Relays signals and looks after the group until the program ends.
fn stand_in(
    supervisor: &mut Supervisor,
    launched: &Launched,
    relay: &SignalRelay,
) -> Result<Ending, CmdError> {
    let wake = [launched.pidfd().as_raw_fd(), relay.as_fd().as_raw_fd()];
    loop {
        supervisor.turn(&wake)?;
        relay.relay_to(launched).map_err(launch_error)?;
        match launched.try_event().map_err(launch_error)? {
            Some(ChildEvent::Ended(ending)) => return Ok(ending),
            Some(ChildEvent::Stopped(signal)) => stop_like(signal),
            _ => {}
        }
        if supervisor.group.is_exhausted() {
            rustix::process::Pid::from_raw(launched.pid())
                .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
    }
}

/// As the program ended, unless its partition did.
fn end(exhausted: bool, ending: Ending) -> Result<u8, CmdError> {
    if exhausted {
        return Err(CmdError::new(ExitCode::Exhausted, EngineError::Exhausted));
    }
    exit_like(ending)
}

/// Writes the report where it was asked for.
fn tell(args: &RunArgs, report: &RunReport) -> Result<(), CmdError> {
    let json = serde_json::to_string_pretty(report).map_err(internal)?;
    write_report(args, &json)?;
    let mut out = std::io::stderr();
    if args.json {
        let _ = writeln!(out, "{json}");
    } else if !args.quiet {
        let _ = writeln!(out, "{}", report.text());
    }
    Ok(())
}

/// Writes the file of `--report`.
pub fn write_report(args: &RunArgs, json: &str) -> Result<(), CmdError> {
    let Some(path) = &args.report else { return Ok(()) };
    std::fs::write(path, json.to_owned() + "\n").map_err(|e| {
        let what = format!("cannot write {}: {e}; choose another --report", path.display());
        CmdError::new(ExitCode::Internal, what)
    })
}

/// A failure to start the program, with the status that shells use for it.
pub fn launch_error(error: LaunchError) -> CmdError {
    let code = match (&error, error.exit_code()) {
        (_, Some(126)) => ExitCode::NotExecutable,
        (_, Some(127)) => ExitCode::NotFound,
        (LaunchError::NotX8664(_), _) => ExitCode::NotX8664,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

/// A failure of the engine with its status.
pub fn engine_error(error: EngineError) -> CmdError {
    use huepage_linux::agent::AgentError;
    use huepage_linux::inject::InjectError;
    let code = match &error {
        EngineError::Agent(AgentError::Inject(InjectError::Filtered { .. })) => ExitCode::Sandboxed,
        EngineError::NotNative(_)
        | EngineError::Agent(AgentError::Inject(InjectError::NotNative(_))) => ExitCode::NotX8664,
        EngineError::Exhausted => ExitCode::Exhausted,
        EngineError::Kernel(_) => ExitCode::Permission,
        EngineError::Agent(AgentError::Inject(InjectError::Denied(_))) => ExitCode::Permission,
        EngineError::Proc(e) if e.is_gone() => ExitCode::NoSuchProcess,
        e if e.is_gone() => ExitCode::TargetExited,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}
