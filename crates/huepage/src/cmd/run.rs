//! `huepage run`: start a program under a plan and stand in for it. In a partition the program starts at once; its
//! colours are found and its stock is gathered while it runs, unless it is to wait. Without one it runs as it
//! would without huepage, and only what services do is done.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use huepage_linux::color::probe::is_stored;
use huepage_linux::engine::EngineError;
use huepage_linux::inject::launch::namespaces::may_make_namespaces;
use huepage_linux::inject::launch::relay::{SignalRelay, exit_like, stop_like};
use huepage_linux::inject::launch::{ChildEvent, Ending, Launched, Original};
use huepage_linux::inject::{Session, launch};
use huepage_linux::kernel::counters::MissCounters;
use huepage_linux::kernel::process_tree::ProcessRoots;

use crate::exit::{CmdError, ExitCode, engine_error, launch_error};
use crate::headings::TUNING;
use crate::json::pretty;
use crate::partition::{self, First, PartitionArgs, Prepared};
use crate::plan::Plan;
use crate::progress::GatheringBar;
use crate::report::RunReport;
use crate::supervise::Supervisor;
use crate::whole_file;

/// How long a program waits for colours that most likely can be told in a moment, counted from when they
/// are looked for: taken before its first instruction it needs no second stop. Nobody notices that.
const MOMENT: Duration = Duration::from_millis(100);

/// How long a program that may give itself namespaces is left alone: the kernel refuses that to who shares
/// memory with our threads, and launchers of containers do it first of all.
const NAMESPACES: Duration = Duration::from_millis(100);

const RUN_EXAMPLES: &str = "\
Examples:
  huepage run --share 25% -- sqlite3 my.db < queries.sql
  huepage run --colors 0-7 -- python3 script.py
  huepage run --level llc --colors 0-3,12 --colors-from pfn -- ./server
  huepage run --share 50% --report run.json -q -- make -j2
  huepage run --share 25% --wait -- ./benchmark
  huepage run --page-cache srm-rescan -- grep -r error /srv/logs
  huepage run --superpages approx-online -- ./solver
  huepage run --pollute-buffer -- ./join
  huepage run --recolor-conflicts -- ./solver

Standard input and output, signals and the exit status are the program's own. `huepage --help` lists the \
statuses of huepage itself (100-127).";

/// Run a program inside a share of the cache
///
/// Starts CMD, keeps its memory in frames of the chosen colours, and does the same for its
/// children. What cannot be moved (shared memory, private file pages, pinned pages) is left
/// alone, counted and reported.
#[derive(Args, Debug)]
#[command(after_long_help = RUN_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    pub plan: Plan,

    /// Find colours and gather frames before the program starts, so that all of its pages come in them
    ///
    /// Without it the program starts at once: pages that come before colours are known lie anywhere, and
    /// are moved while it runs. A program that ends before runs as it would without huepage. --strict, --text
    /// place, --page-cache and --superpages imply --wait.
    #[arg(long)]
    pub wait: bool,

    /// Write a report of the run to FILE, as JSON, when it ends
    ///
    /// The report holds pages per colour and kind of area, compliance, faults served, pages
    /// recoloured, and pages refused with the reason.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print the closing report on standard error as JSON instead of as text
    #[arg(long)]
    pub json: bool,

    /// Count cache misses of the program in hardware where that is possible, for the report
    #[arg(long, help_heading = TUNING, hide_short_help = true)]
    pub counters: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(
        required = true,
        value_name = "CMD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// Runs the program; the status is its own.
pub fn run(args: RunArgs) -> Result<u8, CmdError> {
    args.plan.check()?;
    args.report.iter().try_for_each(|path| whole_file::can_be_written_in_place(path))?;
    let original = Original::capture();
    let began = Instant::now();
    let wait = args.waits();
    let mut prepared = args.plan.prepare(args.opening(wait))?;
    prepared.config.since = began;
    let program = args.check_program()?;
    let relay = SignalRelay::new().map_err(launch_error)?;
    let mut report = RunReport::new(&args.plan, &prepared);
    let roots = ProcessRoots::Below(std::process::id().cast_signed());
    let mut supervisor = Supervisor::open(&args.plan, prepared, roots, args.quiet)?;
    let patience = look_for_colors(&mut supervisor);
    let launched = launch::spawn(&args.command, &original).map_err(launch_error)?;
    report.prepare_seconds = began.elapsed().as_secs_f64();
    let counters = args.counters.then(|| MissCounters::open(launched.pid()).ok()).flatten();
    let started = Instant::now();
    let start = Start::of(&program, wait, patience);
    begin(&mut supervisor, &launched, start, args.quiet)?;
    report.gather_seconds = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let ending = stand_in(&mut supervisor, &launched, &relay)?;
    report.program_seconds = started.elapsed().as_secs_f64();
    report.finish(&mut supervisor, counters, began, dumps_core(ending));
    let exhausted = supervisor.group.is_exhausted();
    args.print(&report)?;
    drop((supervisor, relay));
    end(exhausted, ending)
}

impl RunArgs {
    /// Whether the program starts only when all is ready: what is strict has nothing to start with, and
    /// services are given the colours of files, or what lies in them whole, when they begin.
    fn waits(&self) -> bool {
        let plan = &self.plan;
        let needs = plan.text.is_on() || plan.page_cache.is_on() || plan.superpages.is_on();
        self.wait || plan.partition.strict || needs || plan.conflicts.is_on()
    }

    /// How the cache is opened: at once, or as colours are needed.
    fn opening(&self, wait: bool) -> fn(&PartitionArgs) -> Result<Prepared, CmdError> {
        match (wait, self.plan.confines()) {
            (true, _) => partition::prepare,
            (false, true) => partition::prepare_at_once,
            (false, false) => partition::prepare_for_later,
        }
    }

    /// Refuses what is no program, or none that can be confined.
    fn check_program(&self) -> Result<PathBuf, CmdError> {
        let program = launch::resolve(&self.command[0]).map_err(launch_error)?;
        if self.plan.confines() {
            launch::check_program(&program).map_err(launch_error)?;
        }
        Ok(program)
    }

    /// Writes the report where it was asked for.
    fn print(&self, report: &RunReport) -> Result<(), CmdError> {
        let json = pretty(report)?;
        if let Some(path) = &self.report
            && let Err(error) = whole_file::save_in_place(path, &json)
        {
            // The program has run, and its status counts.
            error.report();
        }
        let mut out = std::io::stderr();
        if self.json {
            let _ = write!(out, "{json}");
        } else if !self.quiet {
            let _ = writeln!(out, "{}", report.text());
        }
        Ok(())
    }
}

/// Begins to find out colours; until when it is worth to wait for them.
fn look_for_colors(supervisor: &mut Supervisor) -> Instant {
    let now = Instant::now();
    if supervisor.confines() {
        supervisor.group.colors_known_by(now);
    }
    if is_stored() { now + MOMENT } else { now }
}

/// When a program is taken.
#[derive(Clone, Copy)]
enum Start {
    /// Before its first instruction, with all gathered.
    WhenReady,
    /// Before its first instruction where colours are known until then, else as soon as they are.
    ByThen(Instant),
    /// When it has run for so long.
    After(Duration),
}

impl Start {
    /// Of a program that is to `wait` for all, or for colours until then.
    fn of(program: &Path, wait: bool, patience: Instant) -> Start {
        match wait {
            true => Start::WhenReady,
            false if may_make_namespaces(program) => Start::After(NAMESPACES),
            false => Start::ByThen(patience),
        }
    }
}

/// Lets the stopped program go, confined or watched.
fn begin(
    supervisor: &mut Supervisor,
    launched: &Launched,
    start: Start,
    quiet: bool,
) -> Result<(), CmdError> {
    supervisor.prepare(launched.pid());
    if supervisor.confines() {
        return confine(supervisor, launched, start, quiet);
    }
    supervisor.watch(&[launched.pid()])?;
    launched.detach().map_err(launch_error)
}

/// Has the engine take the stopped program.
fn confine(
    supervisor: &mut Supervisor,
    launched: &Launched,
    start: Start,
    quiet: bool,
) -> Result<(), CmdError> {
    let (pid, wait) = (launched.pid(), matches!(start, Start::WhenReady));
    let _first = First::go();
    let group = &mut supervisor.group;
    let (known, delay) = match start {
        Start::WhenReady => (true, Duration::ZERO),
        Start::ByThen(until) => (group.colors_known_by(until), Duration::ZERO),
        Start::After(delay) => (false, delay),
    };
    let mut gathering = GatheringBar::new(quiet || !wait);
    let taken = Session::take_over(pid).map_err(EngineError::from).and_then(|session| {
        if known {
            group.take_stopped(pid, session, wait, |done, all| gathering.show(done, all))
        } else {
            group.take_later(pid, session, delay)
        }
    });
    gathering.finish();
    taken.map_err(|error| {
        // It has not run a single instruction of its own: nothing is lost by not starting it.
        kill(launched);
        engine_error(error)
    })
}

fn kill(launched: &Launched) {
    use rustix::process::{Pid, Signal, kill_process};
    Pid::from_raw(launched.pid()).map(|pid| kill_process(pid, Signal::KILL));
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
            kill(launched);
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

/// What `huepage run OPTIONS -- ls` is taken for, or what is said against it.
#[cfg(test)]
pub fn parsed(options: &[&str]) -> Result<RunArgs, String> {
    use clap::FromArgMatches as _;
    let words = [&["run"], options, &["--", "ls"]].concat();
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let matches = command.try_get_matches_from(words).map_err(|e| e.to_string())?;
    RunArgs::from_arg_matches(&matches).map_err(|e| e.to_string())
}

/// The plan of that.
#[cfg(test)]
pub fn parsed_plan(options: &[&str]) -> Result<Plan, String> {
    parsed(options).map(|args| args.plan)
}
