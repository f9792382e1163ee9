//! One run of a program whose time is taken, by itself or through `huepage run`. It has a process group of
//! its own, which is ended when a signal asks for the end: first asked, then killed.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use huepage_linux::inject::launch::{check_program, resolve};
use huepage_linux::kernel::counters::Misses;
use serde::Deserialize;
use tempfile::TempDir;

use super::child::GroupedChild;
use super::co_run::CoRun;
use crate::exit::{CmdError, ExitCode, launch_error};
use crate::json::parsed;
use crate::partition::{ColorsFrom, Level, PartitionArgs, internal};
use crate::plan::Plan;
use crate::signals::Interrupt;

/// Seconds that a run has to take: of shorter ones starting a process is a large part.
const SHORTEST: f64 = 0.05;
/// Share of the pages that has to be in the colours, over time, for a run to speak of them.
const INSIDE: f64 = 0.95;
/// Between looks at signals.
const LOOK: Duration = Duration::from_millis(50);

/// How a run ended.
pub struct RunEnd {
    /// From the program's first instruction to its end; by itself, from its start.
    pub seconds: f64,
    /// Where counters exist.
    pub counters: Option<Misses>,
    /// Whether much of the program was not in the colours that it was given.
    pub outside: bool,
    /// How colours were known, of a confined run.
    pub colors_from: Option<String>,
    status: ExitStatus,
}

impl RunEnd {
    /// A program that fails does not do its work, and of one that ends at once it is the start that is timed.
    pub fn check(&self) -> Result<(), CmdError> {
        let what = if !self.status.success() {
            format!("the program ended with {}; give a command that succeeds", ending(self.status))
        } else if self.seconds < SHORTEST {
            let (took, least) = (self.seconds, SHORTEST);
            format!("the program ran for {took:.3} s; give it work for {least} s at least")
        } else {
            return Ok(());
        };
        Err(CmdError::new(ExitCode::Usage, what))
    }

    /// A program that ends otherwise than before did other work, whose time says nothing.
    pub fn check_against(&self, first: &RunEnd, colors: Option<u16>) -> Result<(), CmdError> {
        if self.status == first.status {
            return Ok(());
        }
        let place = colors.map_or("outside a partition".to_owned(), |n| format!("in {n} colours"));
        let what = format!(
            "the program ended with {} and then, {place}, with {}; give it the same work each time",
            ending(first.status),
            ending(self.status)
        );
        Err(CmdError::new(ExitCode::Usage, what))
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    }
}

/// A command as one string.
pub fn words(command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// The parts of `huepage run`'s report that count here.
#[derive(Deserialize)]
struct Report {
    program_seconds: f64,
    counters: Option<Misses>,
    compliance_over_time: Option<f64>,
    placed: u64,
    fallback_pages: u64,
    missed: Vec<serde_json::Value>,
    colors_from: String,
}

impl Report {
    fn is_outside(&self) -> bool {
        !self.missed.is_empty()
            || self.fallback_pages * 20 > self.placed
            || self.compliance_over_time.is_some_and(|share| share < INSIDE)
    }
}

/// What is run, in shares of which cache.
pub struct TimedProgram {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub level: Level,
    /// How colours are known; none: what is found.
    pub colors_from: Option<ColorsFrom>,
    /// A shell command to run at the same time in the colours that are left.
    pub co_run: Option<String>,
}

impl TimedProgram {
    /// What is done to a program that has these colours: nothing else.
    pub fn plan(&self, colors: String) -> Plan {
        let (level, colors_from) = (self.level, self.colors_from.clone());
        let colors = Some(colors);
        let partition = PartitionArgs { level, colors, colors_from, ..PartitionArgs::default() };
        Plan { partition, ..Plan::default() }
    }
}

/// What all runs have in common.
pub struct Runner<'a> {
    work: &'a TimedProgram,
    colors: u16,
    interrupt: &'a Interrupt,
    stop: Option<&'a AtomicBool>,
    own: PathBuf,
    folder: TempDir,
    input: Option<PathBuf>,
}

impl<'a> Runner<'a> {
    /// Checks that the program can be run.
    pub fn new(
        work: &'a TimedProgram,
        colors: u16,
        interrupt: &'a Interrupt,
    ) -> Result<Runner<'a>, CmdError> {
        let program = resolve(&work.command[0]).map_err(launch_error)?;
        check_program(&program).map_err(launch_error)?;
        let own = std::env::current_exe().map_err(internal)?;
        let folder = TempDir::new().map_err(internal)?;
        Ok(Runner { work, colors, interrupt, stop: None, own, folder, input: own_input() })
    }

    /// Runs end early once `stop` is set.
    pub fn until(self, stop: &'a AtomicBool) -> Runner<'a> {
        Runner { stop: Some(stop), ..self }
    }

    /// A run outside of any partition; none if it was to end early.
    pub fn native(&self) -> Result<Option<RunEnd>, CmdError> {
        let mut command = Command::new(&self.work.command[0]);
        command.args(&self.work.command[1..]);
        let ended = self.run(command, 0)?;
        let (counters, outside, colors_from) = (None, false, None);
        Ok(ended.map(|(status, seconds)| RunEnd {
            seconds,
            counters,
            outside,
            colors_from,
            status,
        }))
    }

    /// A run in so many colours, from `first` on.
    pub fn confined(&self, first: u16, size: u16) -> Result<Option<RunEnd>, CmdError> {
        let report = self.folder.path().join("report.json");
        let mut command = self.huepage(format!("{first}-{}", first + size - 1));
        command.arg("--counters").arg("--report").arg(&report).arg("--").args(&self.work.command);
        let _ = std::fs::remove_file(&report);
        let Some((status, _)) = self.run(command, size)? else { return Ok(None) };
        let text = std::fs::read(&report).map_err(|_| {
            let what = format!("`huepage run` ended with {}; try it alone", ending(status));
            CmdError::new(ExitCode::Internal, what)
        })?;
        let report: Report = parsed(&text).map_err(internal)?;
        let outside = report.is_outside();
        let Report { program_seconds: seconds, counters, colors_from, .. } = report;
        Ok(Some(RunEnd { seconds, counters, outside, colors_from: Some(colors_from), status }))
    }

    /// `huepage run` in these colours.
    pub(super) fn huepage(&self, colors: String) -> Command {
        let mut command = Command::new(&self.own);
        // What is compared are whole runs in their colours.
        command.args(["run", "-q", "--wait"]).args(self.work.plan(colors).partition.options());
        command
    }

    /// Waits for the end of a run that has `size` colours, or none of its own (0); also says how many
    /// seconds it took by itself, without what is beside it.
    fn run(&self, mut command: Command, size: u16) -> Result<Option<(ExitStatus, f64)>, CmdError> {
        let mut beside = match &self.work.co_run {
            Some(work) => Some(CoRun::start(work, self.beside(size))?),
            None => None,
        };
        command.stdout(Stdio::null()).stdin(self.stdin()?);
        let started = Instant::now();
        let mut run = GroupedChild::start(command)?;
        loop {
            if let Some(status) = run.ended(LOOK)? {
                return Ok(Some((status, started.elapsed().as_secs_f64())));
            }
            let stopped = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
            if stopped || self.interrupt.signal().is_some() {
                return Ok(None);
            }
            beside.as_mut().map_or(Ok(()), CoRun::keep)?;
        }
    }

    /// The command before `sh` of what runs beside: in the colours that are left, if any are.
    fn beside(&self, size: u16) -> Option<Command> {
        let rest = (1..self.colors).contains(&size);
        let mut command = rest.then(|| self.huepage(format!("{size}-{}", self.colors - 1)))?;
        command.arg("--");
        Some(command)
    }

    fn stdin(&self) -> Result<Stdio, CmdError> {
        match &self.input {
            Some(path) => Ok(File::open(path).map_err(internal)?.into()),
            None => Ok(Stdio::null()),
        }
    }
}

/// Standard input, if it is a file that can be read again.
fn own_input() -> Option<PathBuf> {
    let path = std::fs::read_link("/proc/self/fd/0").ok()?;
    std::fs::metadata(&path).is_ok_and(|found| found.is_file()).then_some(path)
}
