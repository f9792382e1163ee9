//! Starting programs, natively and under `huepage run`, and what came of it.
//!
//! An outcome holds everything that must not differ between the two: exit status, standard
//! output, the files left behind. Runs that do not end are killed with all they started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::observe::{self, RunObservation};
use crate::programs::ReadyProgram;
use crate::sys;

/// After so long a run counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// After so long a program that should say something counts as hanging.
const HANGS: Duration = Duration::from_secs(1800);
/// Longest wait for one command of huepage's.
const LONGEST: Duration = Duration::from_secs(90);
/// The status of a program that got its answer right: nobody else ends so.
pub const RIGHT: i32 = 42;

/// The `huepage` binary under test.
#[derive(Clone, Debug, Default)]
pub struct Huepage {
    /// Its path.
    pub path: PathBuf,
    /// Directories that it is to use in place of the machine's, by variable.
    pub places: Vec<(&'static str, PathBuf)>,
}

impl Huepage {
    /// The binary given, or the one beside this program.
    ///
    /// # Errors
    /// When there is none; the text says how to build it.
    pub fn find(given: Option<&Path>) -> io::Result<Huepage> {
        let path = given.map_or_else(|| tool("huepage"), |path| built(path.to_owned()))?;
        Ok(Huepage { path: path.canonicalize().unwrap_or(path), places: Vec::new() })
    }

    /// The same, with a runtime directory of its own.
    pub fn within(&self, dir: PathBuf) -> Huepage {
        Huepage { path: self.path.clone(), places: vec![("HUEPAGE_RUNTIME_DIR", dir)] }
    }

    /// `huepage` with arguments.
    pub fn command<I>(&self, args: I) -> Command
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut command = Command::new(&self.path);
        command.args(args.into_iter().map(Into::into)).stdin(Stdio::null());
        command.envs(self.places.iter().map(|(name, dir)| (name, dir)));
        command
    }

    /// What a command says, which is JSON.
    ///
    /// # Errors
    /// When it fails; with the last line that it said.
    pub fn json<T: DeserializeOwned>(&self, args: &[&str]) -> io::Result<T> {
        bounded(&mut self.command(args), LONGEST)?.json()
    }

    /// What it says of a process.
    ///
    /// # Errors
    /// When it says nothing of it.
    pub fn inspect(&self, pid: u32) -> io::Result<Value> {
        self.json(&["inspect", "--json", &pid.to_string()])
    }

    /// A plain command under `huepage run` with options.
    pub fn run<I>(&self, options: I, plain: &Command) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = self.command(["run", "--quiet"]);
        command.args(options).arg("--").arg(plain.get_program()).args(plain.get_args());
        command
    }
}

/// A program of this package.
///
/// # Errors
/// When it is not beside this one.
pub fn tool(name: &str) -> io::Result<PathBuf> {
    built(std::env::current_exe()?.with_file_name(name))
}

fn built(path: PathBuf) -> io::Result<PathBuf> {
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    let what = format!("{path} does not exist; build it with `cargo build --release --workspace`");
    Err(io::Error::new(io::ErrorKind::NotFound, what))
}

/// The self-checking program with an answer that is known in advance: it computes in so many MiB for so many
/// seconds, or until SIGTERM, and ends with [`RIGHT`] if its answer is.
///
/// # Errors
/// When it is not built.
pub fn answering(mib: u32, seconds: f64) -> io::Result<Command> {
    let mut command = Command::new(tool("huepage-torture")?);
    command.args(["answer", "--right", &RIGHT.to_string(), "--mib", &mib.to_string()]);
    command.args(["--seconds", &seconds.to_string()]).stdin(Stdio::null());
    Ok(command)
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

/// A child that is killed, with all below it, when dropped.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Guard {
    /// Starts a command that says nothing.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn quiet(command: &mut Command) -> io::Result<Guard> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard(command.spawn()?))
    }

    /// Starts a load that never ends by itself: it is killed also when this process is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn load(command: &Command) -> io::Result<Guard> {
        let mut tied = Command::new(std::env::current_exe()?);
        tied.args(["tied", &std::process::id().to_string(), "--"]);
        tied.arg(command.get_program()).args(command.get_args());
        let given = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        tied.envs(given).current_dir(command.get_current_dir().unwrap_or(Path::new(".")));
        Guard::quiet(&mut tied)
    }

    /// Starts a command and waits until it says `ready`; gives its further output.
    ///
    /// # Errors
    /// When it cannot be started, or ends before.
    pub fn ready(command: &mut Command) -> io::Result<(Guard, BufReader<ChildStdout>)> {
        let mut guard = Guard(command.stdout(Stdio::piped()).spawn()?);
        let out = guard.0.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let (mut out, mut line) = (BufReader::new(out), String::new());
        out.read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err(io::Error::other("a tool ended before it was ready"));
        }
        Ok((guard, out))
    }

    /// Its pid.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Whether it ends within some time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let started = Instant::now();
        while self.alive() {
            if started.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Waits for its end, and kills it, with all below it, when it takes too long; its status as a shell has it.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn end(&mut self, limit: Duration) -> io::Result<i32> {
        if !self.ends_within(limit) {
            kill_tree(self.id());
        }
        self.0.wait().map(shell_status)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The number of one that has ended may be another's.
        if self.alive() {
            kill_tree(self.id());
            let _ = self.0.wait();
        }
    }
}

/// An error once SIGINT or SIGTERM has arrived, where these are noticed.
///
/// # Errors
/// As said.
pub fn go_on() -> io::Result<()> {
    if sys::stop_asked() { Err(io::Error::other("interrupted")) } else { Ok(()) }
}

/// A program that says lines of JSON, and may wait for a line of ours. Interruptions end every wait.
#[derive(Debug)]
pub struct Dialogue {
    /// The program.
    pub guard: Guard,
    lines: Receiver<String>,
    stdin: Option<ChildStdin>,
    err: tempfile::NamedTempFile,
}

impl Dialogue {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Dialogue> {
        let err = tempfile::NamedTempFile::new()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err.reopen()?);
        let mut guard = Guard(command.spawn()?);
        let out = guard.0.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Nobody may listen any more, but a full pipe would stop the program.
                let _ = sender.send(line);
            }
        });
        let stdin = guard.0.stdin.take();
        Ok(Dialogue { guard, lines, stdin, err })
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// When it ends instead, says something else, or nothing for too long.
    pub fn line<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let started = Instant::now();
        while started.elapsed() < HANGS {
            go_on()?;
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return serde_json::from_str(&line).map_err(io::Error::other),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = shell_status(self.guard.0.wait()?);
                    return Err(io::Error::other(format!("{status}: {}", self.last())));
                }
            }
        }
        Err(io::Error::other("hangs"))
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn go(&mut self) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"))
    }

    /// Ends its input and waits for its end; its status as a shell has it.
    ///
    /// # Errors
    /// When it hangs.
    pub fn end(&mut self) -> io::Result<i32> {
        drop(self.stdin.take());
        let started = Instant::now();
        while self.guard.alive() {
            go_on()?;
            if started.elapsed() > HANGS {
                return Err(io::Error::other("hangs"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.guard.0.wait().map(shell_status)
    }

    /// The last line that it said on standard error.
    pub fn last(&self) -> String {
        let text = fs::read_to_string(self.err.path()).unwrap_or_default();
        text.lines().last().unwrap_or_default().to_owned()
    }
}

/// Runs a command for as long as the process `parent`, which started this one, lives: then it is killed
/// with all below it, whatever became of the parent.
///
/// # Errors
/// When it cannot be started or watched.
pub fn tied(parent: u32, command: &[OsString]) -> io::Result<ExitStatus> {
    let [program, arguments @ ..] = command else { return Err(io::Error::other("no command")) };
    let own = getppid().filter(|own| own.as_raw_pid().cast_unsigned() == parent);
    let gone = || io::Error::other("who started this has ended");
    let watched = pidfd_open(own.ok_or_else(gone)?, PidfdFlags::empty())?;
    let mut guard = Guard(Command::new(program).args(arguments).spawn()?);
    let child = pidfd_open(Pid::from_child(&guard.0), PidfdFlags::empty())?;
    let mut both = [PollFd::new(&watched, PollFlags::IN), PollFd::new(&child, PollFlags::IN)];
    poll(&mut both, None)?;
    if both[1].revents().is_empty() { Err(gone()) } else { guard.0.wait() }
}

/// A program at work, what it says in files.
#[derive(Debug)]
pub struct Captured {
    guard: Guard,
    files: tempfile::TempDir,
    started: Instant,
}

impl Captured {
    /// Starts a command; its input is the caller's affair.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Captured> {
        let files = tempfile::tempdir()?;
        let [out, err] = ["out", "err"].map(|name| File::create(files.path().join(name)));
        command.stdout(out?).stderr(err?);
        let started = Instant::now();
        Ok(Captured { guard: Guard(command.spawn()?), files, started })
    }

    /// Its pid.
    pub fn id(&self) -> u32 {
        self.guard.id()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.guard.alive()
    }

    /// Since when.
    pub fn running_for(&self) -> Duration {
        self.started.elapsed()
    }

    /// What it said on standard error so far.
    pub fn err(&self) -> String {
        let text = fs::read(self.files.path().join("err")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits for its end, however long that takes.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(mut self) -> io::Result<End> {
        let status = shell_status(self.guard.0.wait()?);
        let wall = self.started.elapsed().as_secs_f64();
        let out = fs::read(self.files.path().join("out"))?;
        Ok(End { status, out, err: self.err(), wall, hung: false })
    }

    /// Waits for its end for at most so long; then it is killed with all below it.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn end(mut self, limit: Duration) -> io::Result<End> {
        let hung = !self.guard.ends_within(limit);
        if hung {
            kill_tree(self.id());
        }
        Ok(End { hung, ..self.wait()? })
    }
}

/// How a program ended and what it said.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Its status, or 128 + the signal.
    pub status: i32,
    /// What it printed.
    pub out: Vec<u8>,
    /// What it said on standard error.
    pub err: String,
    /// From start to end, in seconds.
    pub wall: f64,
    /// Whether it had to be killed for not ending.
    pub hung: bool,
}

impl End {
    /// The last line that it said on standard error.
    pub fn last(&self) -> &str {
        self.err.lines().last().unwrap_or_default()
    }

    /// What it printed, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// The JSON that it printed.
    ///
    /// # Errors
    /// When it printed something else; with its status and the last line that it said.
    pub fn json<T: DeserializeOwned>(&self) -> io::Result<T> {
        let failed = |_| io::Error::other(format!("{}: {}", self.status, self.last()));
        serde_json::from_slice(&self.out).map_err(failed)
    }

    /// Whether it did what it was to do; else what it said, which must be one line.
    ///
    /// # Errors
    /// The line, or how it is other than one.
    pub fn done(&self) -> Result<(), String> {
        let said = self.err.trim_end().to_owned();
        match said.lines().count() {
            _ if self.status == 0 => Ok(()),
            1 => Err(said),
            _ => Err(format!("in other than one line: {said:?}")),
        }
    }

    /// What differs from a native run, in one line; `None` when nothing does.
    pub fn difference(&self, native: &End) -> Option<String> {
        if self.hung {
            return Some("it did not end".to_owned());
        }
        if self.status != native.status {
            let (own, other) = (self.status, native.status);
            return Some(format!("status {own} instead of {other}: {}", self.last()));
        }
        (self.out != native.out).then(|| "another standard output".to_owned())
    }

    /// What is wrong with the end of a program of [`answering`].
    pub fn wrong_answer(&self) -> Option<String> {
        let value: Value = serde_json::from_slice(&self.out).unwrap_or_default();
        let right = value["answer"].is_string() && value["answer"] == value["expected"];
        (self.status != RIGHT || !right).then(|| self.to_string())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.text();
        write!(f, "ended as {} and said {:?} {:?}", self.status, said.trim_end(), self.last())
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// How it ended.
    pub end: End,
    /// The files it left, or `None` for one that is missing.
    pub files: BTreeMap<String, Option<Vec<u8>>>,
    /// CPU time of it and of all its children, in seconds.
    pub cpu: f64,
    /// What the independent reader saw.
    pub observation: RunObservation,
    /// The report, if one was asked for and written.
    pub report: Option<Report>,
}

impl RunOutcome {
    /// What differs from a native run, in one line; `None` when nothing does.
    pub fn difference(&self, native: &RunOutcome) -> Option<String> {
        let differs = |(name, contents): (&String, _)| {
            (native.files.get(name) != Some(contents)).then(|| format!("another {name}"))
        };
        self.end.difference(&native.end).or_else(|| self.files.iter().find_map(differs))
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
    let mut command = Command::new(&ready.argv[0]);
    execute(command.args(&ready.argv[1..]), ready, None)
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
    let report = tempfile::NamedTempFile::new()?;
    let mut command = huepage.command(["run", "--quiet", "--report"]);
    command.arg(report.path()).args(options).arg("--").args(&ready.argv);
    let outcome = execute(&mut command, ready, Some(huepage))?;
    let report = serde_json::from_slice(&fs::read(report.path())?).ok();
    Ok(RunOutcome { report, ..outcome })
}

fn execute(
    command: &mut Command,
    ready: &ReadyProgram,
    huepage: Option<&Huepage>,
) -> io::Result<RunOutcome> {
    let work = tempfile::tempdir()?;
    ready.dress(command)?;
    let cpu = sys::children_cpu();
    let (end, observation) = attend(command.current_dir(&work), huepage)?;
    let read = |name: &&str| ((*name).to_owned(), fs::read(work.path().join(name)).ok());
    Ok(RunOutcome {
        end,
        files: ready.program.files.iter().map(read).collect(),
        cpu: sys::children_cpu() - cpu,
        observation,
        report: None,
    })
}

/// Runs a command to its end while a second thread watches over it.
fn attend(command: &mut Command, huepage: Option<&Huepage>) -> io::Result<(End, RunObservation)> {
    let (run, ended) = (Captured::start(command)?, AtomicBool::new(false));
    let pid = run.id();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(pid, huepage, &ended));
        let end = run.wait();
        ended.store(true, Ordering::Release);
        let (hung, observation) = watcher.join().unwrap_or_default();
        Ok((End { hung, ..end? }, observation))
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

/// Runs a command to its end, with no input, for at most so long; then it is killed. Daemons that it
/// leaves behind are not waited for.
///
/// # Errors
/// When it cannot be started.
pub fn bounded(command: &mut Command, limit: Duration) -> io::Result<End> {
    Captured::start(command.stdin(Stdio::null()))?.end(limit)
}

/// Runs a command that must succeed.
///
/// # Errors
/// When it fails; with its status and the last line that it said.
pub fn succeeds(command: &mut Command, limit: Duration) -> io::Result<End> {
    let end = bounded(command, limit)?;
    let failed = || io::Error::other(format!("{:?}: {}", command.get_program(), end.last()));
    if end.status == 0 { Ok(end) } else { Err(failed()) }
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
        let end = bounded(Command::new("sleep").arg("20"), Duration::from_millis(100)).unwrap();
        assert_eq!((end.status, end.hung), (128 + libc::SIGKILL, true));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_daemon_left_behind_is_not_waited_for() {
        let started = Instant::now();
        let script = "sleep 15 & echo started";
        let end =
            bounded(Command::new("sh").args(["-c", script]), Duration::from_secs(30)).unwrap();
        assert_eq!((end.out.as_slice(), end.hung), (&b"started\n"[..], false));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_missing_tool_is_said_in_one_line() {
        let error = tool("huepage-no-such-tool").unwrap_err().to_string();
        assert!(error.contains("huepage-no-such-tool does not exist; build it"), "{error}");
    }

    #[test]
    fn what_is_tied_to_another_process_is_not_started() {
        assert!(tied(1 << 30, &["true".into()]).is_err());
        assert_eq!(
            tied(std::os::unix::process::parent_id(), &["true".into()]).unwrap().code(),
            Some(0)
        );
    }

    #[test]
    fn answers_are_compared_and_refusals_are_one_line() {
        let end = |status, out: &str| End { status, out: out.into(), ..End::default() };
        let right = r#"{"answer":"ab","expected":"ab"}"#;
        assert_eq!(end(42, right).wrong_answer(), None);
        assert!(end(0, right).wrong_answer().is_some() && end(42, "{}").wrong_answer().is_some());
        assert!(end(42, r#"{"answer":"ab","expected":"ac"}"#).wrong_answer().is_some());
        assert!(end(42, "").wrong_answer().is_some());
        let refused = |err: &str| End { status: 1, err: err.into(), ..End::default() }.done();
        assert_eq!(refused("no\n"), Err("no".to_owned()));
        assert!(refused("no\nno\n").is_err_and(|why| why.contains("other than one line")));
        assert!(refused("").is_err() && end(0, "").done().is_ok());
    }
}
