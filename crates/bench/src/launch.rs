//! Starting programs, natively and under `huepage run`, and what came of it.
//!
//! An outcome holds everything that must not differ between the two: exit status, standard
//! output, the files left behind. Runs that do not end are killed with all they started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use crate::observe::{self, RunObservation};
use crate::programs::ReadyProgram;
use crate::sys;

/// After so long a run counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The `huepage` binary under test.
#[derive(Clone, Debug)]
pub struct Huepage {
    /// Its path.
    pub path: PathBuf,
}

impl Huepage {
    /// The binary given, or the one beside this program.
    ///
    /// # Errors
    /// When there is none; the text says how to build it.
    pub fn find(given: Option<&Path>) -> Result<Huepage, String> {
        let beside = std::env::current_exe().map(|own| own.with_file_name("huepage"));
        let path = given.map(Path::to_owned).or(beside.ok()).unwrap_or_default();
        if path.is_file() {
            return Ok(Huepage { path: path.canonicalize().unwrap_or(path) });
        }
        let path = path.display();
        Err(format!("{path} does not exist; build it with `cargo build --release --workspace`"))
    }

    /// `huepage` with arguments.
    pub fn command<I>(&self, args: I) -> Command
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut command = Command::new(&self.path);
        command.args(args.into_iter().map(Into::into));
        command
    }
}

/// The part of a run's report that the benchmarks look at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    /// From exec to exit, in seconds, without gathering.
    pub program_seconds: f64,
    /// Gathering and probing frames before the program started, in seconds.
    pub gather_seconds: f64,
    /// Compliance at the end or the last look.
    pub compliance: ReportedCompliance,
    /// Faults that the engine served.
    pub faults_served: u64,
    /// Pages moved to another frame while they held data.
    pub recolored: u64,
    /// Pages that got a frame of a colour outside the partition.
    pub fallback_pages: u64,
    /// Pages left alone, by reason.
    #[serde(alias = "refused")]
    pub left_alone: Value,
    /// Everything else.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// Pages inside the partition.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReportedCompliance {
    /// Movable resident pages.
    pub movable: u64,
    /// Of these, in the partition's colours.
    pub in_colors: u64,
    /// Their share, 0 to 1.
    pub share: f64,
}

/// What came of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// How it ended: a status, or 128 + the signal.
    pub status: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it said on standard error.
    pub stderr: String,
    /// The files it left, or `None` for one that is missing.
    pub files: BTreeMap<String, Option<Vec<u8>>>,
    /// From start to end, in seconds, everything included.
    pub wall: f64,
    /// CPU time of it and of all its children, in seconds.
    pub cpu: f64,
    /// Whether it had to be killed for not ending.
    pub hung: bool,
    /// What the independent reader saw.
    pub observation: RunObservation,
    /// The report, if one was asked for and written.
    pub report: Option<Report>,
}

impl RunOutcome {
    /// What differs from a native run, in one line; `None` when nothing does.
    pub fn difference(&self, native: &RunOutcome) -> Option<String> {
        if self.hung {
            return Some("it did not end".to_owned());
        }
        if self.status != native.status {
            let said = self.stderr.lines().last().unwrap_or_default();
            return Some(format!("status {} instead of {}: {said}", self.status, native.status));
        }
        if self.stdout != native.stdout {
            return Some("another standard output".to_owned());
        }
        let differs = |(name, contents): (&String, _)| {
            (native.files.get(name) != Some(contents)).then(|| format!("another {name}"))
        };
        self.files.iter().find_map(differs)
    }
}

/// The shell's view of an exit status.
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Runs a program without huepage.
///
/// # Errors
/// When it cannot be started.
pub fn native(ready: &ReadyProgram) -> io::Result<RunOutcome> {
    let work = tempfile::tempdir()?;
    let mut command = Command::new(&ready.argv[0]);
    command.args(&ready.argv[1..]);
    execute(command, ready, work.path(), None)
}

/// Runs a program under `huepage run` with `options`, watched by the independent reader if
/// the colours can be looked up.
///
/// # Errors
/// When huepage cannot be started.
pub fn confined(
    huepage: &Huepage,
    options: &[&str],
    ready: &ReadyProgram,
) -> io::Result<RunOutcome> {
    let work = tempfile::tempdir()?;
    let reports = tempfile::tempdir()?;
    let report = reports.path().join("report.json");
    let mut command = huepage.command(["run", "--quiet", "--report"]);
    command.arg(&report).args(options).arg("--").args(&ready.argv);
    let mut outcome = execute(command, ready, work.path(), Some(huepage))?;
    let text = fs::read(&report).unwrap_or_default();
    outcome.report = serde_json::from_slice(&text).ok();
    Ok(outcome)
}

fn execute(
    mut command: Command,
    ready: &ReadyProgram,
    work: &Path,
    huepage: Option<&Huepage>,
) -> io::Result<RunOutcome> {
    let capture = tempfile::tempdir()?;
    let (out, err) = (capture.path().join("out"), capture.path().join("err"));
    ready.dress(&mut command)?;
    command.current_dir(work).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let (cpu, started) = (sys::children_cpu(), Instant::now());
    let child = command.spawn()?;
    let (status, hung, observation) = attend(child, huepage)?;
    let wall = started.elapsed().as_secs_f64();
    let read = |name: &&str| ((*name).to_owned(), fs::read(work.join(name)).ok());
    Ok(RunOutcome {
        status: shell_status(status),
        stdout: fs::read(&out)?,
        stderr: String::from_utf8_lossy(&fs::read(&err)?).into_owned(),
        files: ready.program.files.iter().map(read).collect(),
        wall,
        cpu: sys::children_cpu() - cpu,
        hung,
        observation,
        report: None,
    })
}

/// Waits for a child while a second thread watches over it.
fn attend(
    mut child: Child,
    huepage: Option<&Huepage>,
) -> io::Result<(ExitStatus, bool, RunObservation)> {
    let (pid, ended) = (child.id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(pid, huepage, &ended));
        let status = child.wait();
        ended.store(true, Ordering::Release);
        let (hung, observation) = watcher.join().unwrap_or_default();
        Ok((status?, hung, observation))
    })
}

fn watch(pid: u32, huepage: Option<&Huepage>, ended: &AtomicBool) -> (bool, RunObservation) {
    let (started, mut observation) = (Instant::now(), RunObservation::default());
    let mut next = Duration::from_millis(500);
    let mut looks = 0;
    while !ended.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
        if started.elapsed() > PATIENCE {
            kill_tree(pid);
            return (true, observation);
        }
        if let Some(huepage) = huepage
            && started.elapsed() > next
        {
            observation.look(pid, &huepage.path);
            looks += 1;
            if looks == 4 {
                observation.verify(pid, &huepage.path, 200);
            }
            next = started.elapsed() + Duration::from_millis(300);
        }
    }
    (false, observation)
}

/// Runs a command to its end, with no input, for at most so long; then it is killed and its
/// status is that of the signal. Daemons that it leaves behind are not waited for.
///
/// # Errors
/// When it cannot be started.
pub fn bounded(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let capture = tempfile::tempdir()?;
    let (out, err) = (capture.path().join("out"), capture.path().join("err"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let (mut child, started) = (command.spawn()?, Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > limit {
            kill_tree(child.id());
            break child.wait()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Output { status, stdout: fs::read(&out)?, stderr: fs::read(&err)? })
}

/// Kills a process and everything below it.
pub fn kill_tree(pid: u32) {
    for pid in observe::descendants(pid).into_iter().chain([pid]) {
        let _ = sys::kill(pid, libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let started = Instant::now();
        let output = bounded(Command::new("sleep").arg("20"), Duration::from_millis(100)).unwrap();
        assert_eq!(shell_status(output.status), 128 + libc::SIGKILL);
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_daemon_left_behind_is_not_waited_for() {
        let started = Instant::now();
        let script = "sleep 15 & echo started";
        let output =
            bounded(Command::new("sh").args(["-c", script]), Duration::from_secs(30)).unwrap();
        assert_eq!(output.stdout, b"started\n");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
