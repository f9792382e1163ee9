//! `huepage run`: start a program inside a partition and stand in for it. The program starts at once; its
//! colours are found and its stock is gathered while it runs, unless it is to wait.

use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use huepage_linux::counters::Counters;
use huepage_linux::engine::EngineError;
use huepage_linux::filecache::kin::Heads;
use huepage_linux::inject::Session;
use huepage_linux::launch::namespaces::may_make_namespaces;
use huepage_linux::launch::{self, ChildEvent, Ending, LaunchError, Launched, Original};
use huepage_linux::probe::is_stored;

use super::page_cache::supervisor::Service;
use super::page_cache::{decided, native};
use crate::args::RunArgs;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, First, internal};
use crate::progress::Gathering;
use crate::report::RunReport;
use crate::supervise::Supervisor;
use huepage_linux::launch::relay::{SignalRelay, exit_like, stop_like};

/// How long a program waits for colours that most likely can be told in a moment, counted from when they
/// are looked for: taken before its first instruction it needs no second stop. Nobody notices that.
const MOMENT: Duration = Duration::from_millis(100);

/// How long a program that may give itself namespaces is left alone: the kernel refuses that to who shares
/// memory with our threads, and launchers of containers do it first of all.
const NAMESPACES: Duration = Duration::from_millis(100);

/// Runs the program; the status is its own.
pub fn run(args: RunArgs) -> Result<u8, CmdError> {
    if is_alone(&args)? {
        return native::run(&args);
    }
    let original = Original::capture();
    let began = Instant::now();
    let wait = waits(&args);
    let mut plan =
        if wait { partition::prepare } else { partition::prepare_at_once }(&args.partition)?;
    plan.config.since = began;
    let program = check_program(&args)?;
    let relay = SignalRelay::new().map_err(launch_error)?;
    let facts = Facts::of(&plan);
    let no_superpages = args.superpages.refuse(&plan, args.quiet);
    let costs = args.superpages.costs(&plan);
    let text = args.text.start(&plan)?;
    let partition = decided(&args.partition, &plan);
    let mut supervisor = Supervisor::open(plan)?;
    supervisor.place_text(text);
    supervisor.refuse_superpages(no_superpages.clone());
    let patience = look_for_colors(&mut supervisor);
    let own = Heads::Below(std::process::id().cast_signed());
    let files = Service::start_if_wanted(&args.page_cache, &partition, own, args.quiet)?;
    let launched = launch::spawn(&args.command, &original).map_err(launch_error)?;
    let prepared = began.elapsed().as_secs_f64();
    let mut counters = args.counters.then(|| Counters::of(launched.pid()).ok()).flatten();
    let pace = Pace::of(&program, wait, patience);
    let gather = begin(&mut supervisor, &launched, pace, args.quiet)?;
    let desk = supervisor.group.desk();
    supervisor.build_superpages(args.superpages.start_in(desk, costs, &[launched.pid()]));
    let started = Instant::now();
    let ending = stand_in(&mut supervisor, &launched, &relay)?;
    let seconds = started.elapsed().as_secs_f64();
    let superpages = supervisor.end_superpages();
    supervisor.group.tend();
    let mut report = facts.report(&supervisor, [seconds, gather, prepared], began);
    report.text = supervisor.text();
    (report.superpages, report.no_superpages) = (superpages, no_superpages);
    report.page_cache = files.map(Service::finish);
    report.counters = counters.as_mut().and_then(|counters| counters.read().ok());
    report.core_may_lack_pages = dumps_core(ending) && report.recolored > 0;
    let exhausted = supervisor.group.is_exhausted();
    tell(&args, &report)?;
    drop((supervisor, relay));
    end(exhausted, ending)
}

/// Whether the program starts only when all is ready: what is strict has nothing to start with, and the
/// others are told the colours of files, or what lies in them whole, when they begin.
fn waits(args: &RunArgs) -> bool {
    let told = args.text.is_on() || args.page_cache.is_on() || args.superpages.is_on();
    args.wait || args.partition.strict || told
}

/// Begins to find out colours; until when it is worth to wait for them.
fn look_for_colors(supervisor: &mut Supervisor) -> Instant {
    let now = Instant::now();
    supervisor.group.colors_known_by(now);
    if is_stored() { now + MOMENT } else { now }
}

/// Refuses what is no program that can be confined.
fn check_program(args: &RunArgs) -> Result<PathBuf, CmdError> {
    let program = launch::resolve(&args.command[0]).map_err(launch_error)?;
    launch::check_program(&program).map_err(launch_error)?;
    Ok(program)
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
}

impl Facts {
    fn of(plan: &partition::Plan) -> Facts {
        Facts { colors: plan.config.colors.clone(), level: plan.cache.level.to_string() }
    }

    fn report(self, supervisor: &Supervisor, seconds: [f64; 3], began: Instant) -> RunReport {
        let group = &supervisor.group;
        let from = group.provenance().to_string();
        let mut report = RunReport::new(&self.colors, self.level, from, group.report(), seconds);
        let known = group.colors_known();
        report.colors_seconds = known.map(|at| at.duration_since(began).as_secs_f64());
        report
    }
}

/// When a program is taken.
#[derive(Clone, Copy)]
enum Pace {
    /// Before its first instruction, with all gathered.
    Wait,
    /// Before its first instruction where colours are known until then, else as soon as they are.
    Until(Instant),
    /// When it has run for so long.
    After(Duration),
}

impl Pace {
    /// Of a program that is to `wait` for all, or for colours until then.
    fn of(program: &Path, wait: bool, patience: Instant) -> Pace {
        match wait {
            true => Pace::Wait,
            false if may_make_namespaces(program) => Pace::After(NAMESPACES),
            false => Pace::Until(patience),
        }
    }
}

/// Confines the stopped program and lets it go. Returns the seconds that gathering took.
fn begin(
    supervisor: &mut Supervisor,
    launched: &Launched,
    pace: Pace,
    quiet: bool,
) -> Result<f64, CmdError> {
    let (start, pid, wait) = (Instant::now(), launched.pid(), matches!(pace, Pace::Wait));
    supervisor.place_text_of(pid);
    let _first = First::go();
    let group = &mut supervisor.group;
    let (known, delay) = match pace {
        Pace::Wait => (true, Duration::ZERO),
        Pace::Until(until) => (group.colors_known_by(until), Duration::ZERO),
        Pace::After(delay) => (false, delay),
    };
    let mut gathering = Gathering::new(quiet || !wait);
    let taken = Session::take_over(pid).map_err(EngineError::from).and_then(|session| {
        if known {
            group.take_stopped(pid, session, wait, |done, all| gathering.show(done, all))
        } else {
            group.take_later(pid, session, delay)
        }
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

/// Whether a program ended in a way in which the kernel may write a core dump.
fn dumps_core(ending: Ending) -> bool {
    use libc::{
        SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ,
    };
    const DUMPING: [i32; 10] =
        [SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS];
    matches!(ending, Ending::Signaled(signal) if DUMPING.contains(&signal))
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
