//! One run of the profiled program, by itself or through `huepage run`. It has a process group of
//! its own, which is ended when a signal asks for the end: first asked, then killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use huepage_linux::counters::Misses;
use huepage_linux::launch::relay::own_child;
use huepage_linux::launch::{check_program, resolve};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Deserialize;
use tempfile::TempDir;

use super::args::ProfileArgs;
use super::beside::Beside;
use crate::args::Level;
use crate::cmd::run::launch_error;
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::signals::Interrupt;

/// How long a run may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);
/// Share of the pages that has to be in the colours, over time, for a run to speak of them.
const INSIDE: f64 = 0.95;
/// Between looks at signals.
const LOOK: Duration = Duration::from_millis(50);

/// How a run ended.
pub struct Ended {
    /// From the program's first instruction to its end; by itself, from its start.
    pub seconds: f64,
    /// Where counters exist.
    pub counters: Option<Misses>,
    /// Whether much of the program was not in the colours that it was given.
    pub outside: bool,
    status: ExitStatus,
}

impl Ended {
    /// A program that ends otherwise than before did other work, whose time says nothing.
    pub fn check_against(&self, first: &Ended, colors: Option<u16>) -> Result<(), CmdError> {
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
    missed: Vec<(i32, String)>,
}

impl Report {
    fn is_outside(&self) -> bool {
        !self.missed.is_empty()
            || self.fallback_pages * 20 > self.placed
            || self.compliance_over_time.is_some_and(|share| share < INSIDE)
    }
}

/// What all runs have in common.
pub struct Runner<'a> {
    args: &'a ProfileArgs,
    colors: u16,
    interrupt: &'a Interrupt,
    own: PathBuf,
    folder: TempDir,
    input: Option<PathBuf>,
}

impl<'a> Runner<'a> {
    /// Checks that the program can be run.
    pub fn new(
        args: &'a ProfileArgs,
        colors: u16,
        interrupt: &'a Interrupt,
    ) -> Result<Runner<'a>, CmdError> {
        let program = resolve(&args.command[0]).map_err(launch_error)?;
        check_program(&program).map_err(launch_error)?;
        let own = std::env::current_exe().map_err(internal)?;
        let folder = TempDir::new().map_err(internal)?;
        Ok(Runner { args, colors, interrupt, own, folder, input: own_input() })
    }

    /// A run outside of any partition; none if a signal asked for the end.
    pub fn native(&self) -> Result<Option<Ended>, CmdError> {
        let mut command = Command::new(&self.args.command[0]);
        command.args(&self.args.command[1..]);
        let ended = self.run(command, 0)?;
        Ok(ended.map(|(status, seconds)| Ended { seconds, counters: None, outside: false, status }))
    }

    /// A run in so many colours, the first ones.
    pub fn confined(&self, size: u16) -> Result<Option<Ended>, CmdError> {
        let report = self.folder.path().join("report.json");
        let mut command = self.huepage(&format!("0-{}", size - 1));
        command.arg("--counters").arg("--report").arg(&report).arg("--").args(&self.args.command);
        let _ = std::fs::remove_file(&report);
        let Some((status, _)) = self.run(command, size)? else { return Ok(None) };
        let text = std::fs::read(&report).map_err(|_| {
            let what = format!("`huepage run` ended with {}; try it alone", ending(status));
            CmdError::new(ExitCode::Internal, what)
        })?;
        let report: Report = serde_json::from_slice(&text).map_err(internal)?;
        let outside = report.is_outside();
        let Report { program_seconds: seconds, counters, .. } = report;
        Ok(Some(Ended { seconds, counters, outside, status }))
    }

    /// `huepage run` in these colours.
    pub(super) fn huepage(&self, colors: &str) -> Command {
        let level = match self.args.level() {
            Level::L2 => "l2",
            Level::Llc => "llc",
        };
        let mut command = Command::new(&self.own);
        // What is compared are whole runs in their colours.
        command.args(["run", "-q", "--wait", "--level", level, "--colors", colors]);
        if let Some(from) = self.args.colors_from.clone() {
            command.args(["--colors-from".to_owned(), from.into()]);
        }
        command
    }

    /// Waits for the end of a run that has `size` colours, or none of its own (0); also says how many
    /// seconds it took by itself, without what is beside it.
    fn run(&self, mut command: Command, size: u16) -> Result<Option<(ExitStatus, f64)>, CmdError> {
        let mut beside = match &self.args.co_run {
            Some(work) => Some(Beside::start(work, self.beside(size))?),
            None => None,
        };
        command.stdout(Stdio::null()).stdin(self.stdin()?);
        let started = Instant::now();
        let mut run = Run::start(command)?;
        loop {
            if let Some(status) = run.ended(LOOK)? {
                return Ok(Some((status, started.elapsed().as_secs_f64())));
            }
            if self.interrupt.signal().is_some() {
                return Ok(None);
            }
            beside.as_mut().map_or(Ok(()), Beside::keep)?;
        }
    }

    /// The command before `sh` of what runs beside: in the colours that are left, if any are.
    fn beside(&self, size: u16) -> Option<Command> {
        let rest = (1..self.colors).contains(&size);
        let mut command = rest.then(|| self.huepage(&format!("{size}-{}", self.colors - 1)))?;
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

/// A child with a process group of its own, which ends with this value.
pub struct Run {
    child: Child,
    pidfd: std::os::fd::OwnedFd,
}

impl Run {
    /// Starts it.
    pub fn start(mut command: Command) -> Result<Run, CmdError> {
        let name = command.get_program().to_owned();
        own_child(&mut command);
        let child = command.process_group(0).spawn().map_err(|error| cannot(&name, &error))?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(internal)?;
        Ok(Run { child, pidfd })
    }

    /// Waits up to `limit` for its end.
    pub fn ended(&mut self, limit: Duration) -> Result<Option<ExitStatus>, CmdError> {
        huepage_linux::wait::wait(&[(self.pidfd.as_fd().as_raw_fd(), libc::POLLIN)], limit);
        self.child.try_wait().map_err(internal)
    }
}

fn cannot(program: &OsStr, error: &std::io::Error) -> CmdError {
    let what = format!("{}: {error}; check the command", program.display());
    CmdError::new(ExitCode::NotExecutable, what)
}

impl Drop for Run {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        for (signal, limit) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
            // Also after its end: a shell may have left others of its group.
            let left = kill_process_group(group, signal).is_ok();
            if !left || !matches!(self.ended(limit), Ok(None)) && signal == Signal::KILL {
                break;
            }
        }
        let _ = self.child.wait();
    }
}
