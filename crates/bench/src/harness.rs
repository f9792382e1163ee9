//! The harness of all suites. A suite says its settings, which are the options of its command, the tools
//! that it runs, and how it measures; what it finds is a [`SuiteVerdict`]. The harness checks beforehand what
//! is needed, pairs and repeats what is compared, ends what is left over, and names a suite that could
//! not be run.

use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use crate::figures::{Spread, median, round};
use crate::launch::{self, Huepage};
use crate::verdict::SuiteVerdict;

/// A measurement against promises; its fields are the options of its command.
pub trait Suite {
    /// Programs of this package that it runs only after a while.
    fn tools(&self) -> &'static [&'static str] {
        &[]
    }

    /// Measures and judges.
    ///
    /// # Errors
    /// When it cannot go on; what was found before stays in the verdict.
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()>;
}

/// What every suite is given.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The binary under test.
    pub huepage: &'a Huepage,
    /// Further options for its commands.
    pub options: &'a [&'a str],
    /// Where files go.
    pub dir: &'a Path,
}

/// Runs a suite under the name of its command.
pub fn run(name: &str, suite: &dyn Suite, bench: Bench<'_>) -> SuiteVerdict {
    let mut verdict = SuiteVerdict::new(name);
    let ready = suite.tools().iter().try_for_each(|name| tool(name).map(drop));
    let ready = ready.and_then(|()| std::fs::create_dir_all(bench.dir));
    if let Err(error) = ready.and_then(|()| suite.measure(bench, &mut verdict)) {
        verdict.miss(format!("cannot be measured: {error}"));
    }
    progress("");
    verdict
}

/// A program of this package.
///
/// # Errors
/// When it is not beside this one.
pub fn tool(name: &str) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    let what = format!("{path} does not exist; build it with `cargo build --release --workspace`");
    Err(io::Error::new(io::ErrorKind::NotFound, what))
}

/// Whether something is wanted: what is named, or all where nothing is.
pub fn wanted(named: &[String], name: &str) -> bool {
    named.is_empty() || named.iter().any(|only| only == name)
}

/// Measures every variant in each round, the last one first in every other round, so that drift of the
/// machine hits all alike.
///
/// # Errors
/// With the first that fails.
pub fn interleaved<V: Copy>(
    rounds: usize,
    variants: &[V],
    mut one: impl FnMut(V) -> io::Result<()>,
) -> io::Result<()> {
    for turn in 0..rounds {
        progress(&format!("round {} of {rounds}", turn + 1));
        let mut order = variants.to_vec();
        if turn % 2 == 1 {
            order.reverse();
        }
        order.into_iter().try_for_each(&mut one)?;
    }
    Ok(())
}

/// Says how far a long measurement is, where somebody watches.
pub fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
        if what.is_empty() {
            eprint!("\r");
        }
    }
}

/// Samples by name, in the order in which the names came up.
#[derive(Debug, Default)]
pub struct NamedSamples(Vec<(String, Vec<f64>)>);

impl NamedSamples {
    /// Adds one.
    pub fn push(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    /// The median of a name; NaN if there is none.
    pub fn median(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map_or(f64::NAN, |(_, values)| median(values))
    }

    /// A row per name: median and both ends, in `unit`.
    pub fn rows(&self, verdict: &mut SuiteVerdict, unit: &str) {
        for (name, values) in &self.0 {
            let Spread { median, min, max } = Spread::of(values);
            verdict.row([
                ("measurement", name.as_str().into()),
                ("median", round(median)),
                ("min", round(min)),
                ("max", round(max)),
                ("unit", unit.into()),
                ("rounds", values.len().into()),
            ]);
        }
    }
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

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        launch::kill_tree(self.0.id());
        let _ = self.0.wait();
    }
}

/// Runs a command for as long as the process `parent`, which started this one, lives: then it is killed
/// with all below it, whatever became of the parent.
///
/// # Errors
/// When it cannot be started or watched.
pub fn tied(parent: u32, command: &[std::ffi::OsString]) -> io::Result<ExitStatus> {
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

/// Times a command that must succeed, in seconds.
///
/// # Errors
/// When it cannot be started, or fails.
pub fn timed(command: &mut Command) -> io::Result<f64> {
    let started = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let took = started.elapsed().as_secs_f64();
    if status.success() { Ok(took) } else { Err(io::Error::other(format!("{command:?} failed"))) }
}

/// Runs a command that prints one JSON value, for at most so long.
///
/// # Errors
/// When it fails; with the last line that it said.
pub fn measured<T: serde::de::DeserializeOwned>(
    command: &mut Command,
    patience: Duration,
) -> io::Result<T> {
    let output = launch::bounded(command, patience)?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let status = launch::shell_status(output.status);
        io::Error::other(format!("{status}: {}", said.lines().last().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_their_order_and_give_medians() {
        let mut samples = NamedSamples::default();
        let all = [("b", 3.0), ("a", 1.0), ("b", 5.0), ("b", 4.0)];
        all.into_iter().for_each(|(n, v)| samples.push(n, v));
        let mut verdict = SuiteVerdict::new("warm-cost");
        samples.rows(&mut verdict, "s");
        assert_eq!(verdict.rows[0]["measurement"], "b");
        assert_eq!((verdict.rows[0]["median"].clone(), verdict.rows.len()), (4.0.into(), 2));
        assert!(samples.median("c").is_nan() && samples.median("a") == 1.0);
    }

    #[test]
    fn variants_take_turns_and_change_places() {
        let mut order = Vec::new();
        let one = |variant| {
            order.push(variant);
            Ok(())
        };
        interleaved(3, &["a", "b"], one).unwrap();
        assert_eq!(order, ["a", "b", "b", "a", "a", "b"]);
        let failing = |_| Err(io::Error::other("no"));
        assert!(interleaved(1, &["a"], failing).is_err());
    }

    #[test]
    fn a_missing_tool_is_said_in_one_line() {
        let error = tool("huepage-no-such-tool").unwrap_err().to_string();
        assert!(error.contains("huepage-no-such-tool does not exist; build it"), "{error}");
    }

    #[test]
    fn suites_that_cannot_be_run_are_missed_and_those_without_tools_not_begun() {
        struct Broken(&'static [&'static str]);
        impl Suite for Broken {
            fn tools(&self) -> &'static [&'static str] {
                self.0
            }
            fn measure(&self, _: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
                verdict.total("begun", 1);
                Err(io::Error::other("no luck"))
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let huepage = Huepage { path: "/nonexistent".into() };
        let bench = Bench { huepage: &huepage, options: &[], dir: dir.path() };
        let verdict = run("broken", &Broken(&[]), bench);
        assert_eq!(verdict.missed, ["cannot be measured: no luck"]);
        assert_eq!(verdict.totals["begun"], 1);
        let verdict = run("broken", &Broken(&["huepage-no-such-tool"]), bench);
        assert!(verdict.missed[0].contains("does not exist") && verdict.totals.is_empty());
    }

    #[test]
    fn what_is_tied_to_another_process_is_not_started() {
        assert!(tied(1 << 30, &["true".into()]).is_err());
        assert_eq!(
            tied(std::os::unix::process::parent_id(), &["true".into()]).unwrap().code(),
            Some(0)
        );
    }
}
