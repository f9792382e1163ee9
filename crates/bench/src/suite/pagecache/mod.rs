//! What `huepage warm` promises: where pages are, what it costs, what it gains, what it may not
//! harm. Each file is one command of `huepage-bench`; here is what they share.

pub mod adverse;
pub mod cost;
pub mod effect;
pub mod grep;
pub mod join;
pub mod place;
pub mod pressure;
pub mod server;
pub mod torture;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::launch::{self, Huepage};

/// After so long `huepage warm` counts as hanging.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The commands.
#[derive(Subcommand, Clone, Debug)]
pub enum Ask {
    /// Page cache: whether pages are where they should be
    WarmPlace(place::Setting),
    /// Page cache: what placing costs, against a cold read and a copy
    WarmCost(cost::Setting),
    /// Page cache: a hot set beside a scan of a placed file, and beside grep
    WarmEffect(effect::Setting),
    /// Page cache: random reads, and a file that fits the cache
    WarmAdverse(adverse::Setting),
    /// Page cache: files that are written while they are placed
    WarmTorture(torture::Setting),
    /// Page cache: a hash join of PostgreSQL beside a sequential scan
    WarmJoin(join::Setting),
    /// Page cache: a control group near its limit
    WarmPressure(pressure::Setting),
}

/// Runs one of the commands; `options` are further ones for `huepage warm`, and files go below
/// `dir`.
pub fn run(ask: &Ask, huepage: &Huepage, options: &[&str], dir: &Path) -> Verdict {
    let bench = Bench { huepage, options, dir };
    if let Err(error) = std::fs::create_dir_all(dir) {
        let mut verdict = Verdict::new("warm");
        verdict.miss(format!("cannot make {}: {error}", dir.display()));
        return verdict;
    }
    match ask {
        Ask::WarmPlace(setting) => place::run(bench, setting),
        Ask::WarmCost(setting) => cost::run(bench, setting),
        Ask::WarmEffect(setting) => effect::run(bench, setting),
        Ask::WarmAdverse(setting) => adverse::run(bench, setting),
        Ask::WarmTorture(setting) => torture::run(bench, setting),
        Ask::WarmJoin(setting) => join::run(bench, setting),
        Ask::WarmPressure(setting) => pressure::run(bench, setting),
    }
}

/// What every suite is given.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The binary under test.
    pub huepage: &'a Huepage,
    /// Further options for `huepage warm`.
    pub options: &'a [&'a str],
    /// Where files go.
    pub dir: &'a Path,
}

/// The part of a warm's JSON that is looked at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Warmed {
    /// Files.
    pub files: u64,
    /// Their pages.
    pub pages: u64,
    /// Pages brought into their colour.
    pub placed: u64,
    /// Pages that were in it before.
    pub already: u64,
    /// Pages left where they were, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Files not looked at, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Time it took by its own account, in seconds.
    pub seconds: f64,
    /// Colours of the cache.
    pub of: u16,
    /// The frames kept for it.
    pub zone: Zone,
    /// From start to end of the process, in seconds; not in the JSON.
    pub wall: f64,
}

/// Frames kept.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Zone {
    /// The bound, in pages.
    pub limit_pages: u64,
    /// The most there ever were, in pages.
    pub peak_pages: u64,
}

impl Warmed {
    /// The share of pages that it says are in their colours, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.pages == 0 { 0.0 } else { (self.placed + self.already) as f64 / self.pages as f64 }
    }
}

impl Bench<'_> {
    /// `huepage warm` with arguments.
    pub fn warm_command<I>(&self, args: I) -> Command
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut command = self.huepage.command(["warm", "--json"]);
        command.args(self.options).args(args.into_iter().map(Into::into));
        command
    }

    /// Runs `huepage warm` to its end.
    ///
    /// # Errors
    /// When it fails or says no JSON; with the last line that it said.
    pub fn warm<I>(&self, args: I) -> io::Result<Warmed>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let started = Instant::now();
        let output = launch::bounded(&mut self.warm_command(args), PATIENCE)?;
        let wall = started.elapsed().as_secs_f64();
        let status = launch::shell_status(output.status);
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or_default();
        if status != 0 {
            return Err(io::Error::other(format!("huepage warm ended with {status}: {said}")));
        }
        let warmed: Warmed = serde_json::from_slice(&output.stdout)
            .map_err(|e| io::Error::other(format!("huepage warm said no JSON ({e}): {said}")))?;
        Ok(Warmed { wall, ..warmed })
    }

    /// A directory of its own for files, gone when dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("warm-").tempdir_in(self.dir)
    }
}

/// A tool of this package.
///
/// # Errors
/// When the path of this program cannot be had.
pub fn tool() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("huepage-pagecache"))
}

/// Runs a command that prints one JSON value.
///
/// # Errors
/// When it fails; with the last line that it said.
pub fn measured<T: serde::de::DeserializeOwned>(command: &mut Command) -> io::Result<T> {
    let output = launch::bounded(command, PATIENCE)?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let status = launch::shell_status(output.status);
        io::Error::other(format!("{status}: {}", said.lines().last().unwrap_or_default()))
    })
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

    /// Starts a command and waits until it says `ready`; gives its further output.
    ///
    /// # Errors
    /// When it cannot be started, or ends before.
    pub fn ready(
        command: &mut Command,
    ) -> io::Result<(Guard, BufReader<std::process::ChildStdout>)> {
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
pub struct Samples(Vec<(String, Vec<f64>)>);

impl Samples {
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
        found.map_or(f64::NAN, |(_, values)| super::median(values))
    }

    /// A row per name: median and both ends, in `unit`.
    pub fn rows(&self, verdict: &mut Verdict, unit: &str) {
        for (name, values) in &self.0 {
            verdict.row([
                ("measurement", name.as_str().into()),
                ("median", super::round(super::median(values))),
                ("min", super::round(values.iter().copied().fold(f64::INFINITY, f64::min))),
                ("max", super::round(values.iter().copied().fold(0.0, f64::max))),
                ("unit", unit.into()),
                ("rounds", values.len().into()),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_their_order_and_give_medians() {
        let mut samples = Samples::default();
        let all = [("b", 3.0), ("a", 1.0), ("b", 5.0), ("b", 4.0)];
        all.into_iter().for_each(|(n, v)| samples.push(n, v));
        let mut verdict = Verdict::new("warm-cost");
        samples.rows(&mut verdict, "s");
        assert_eq!(verdict.rows[0]["measurement"], "b");
        assert_eq!((verdict.rows[0]["median"].clone(), verdict.rows.len()), (4.0.into(), 2));
        assert!(samples.median("c").is_nan() && samples.median("a") == 1.0);
    }

    #[test]
    fn a_warm_s_json_is_read_and_its_failure_told() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("huepage");
        let huepage = Huepage { path: script.clone() };
        let bench = Bench { huepage: &huepage, options: &[], dir: dir.path() };
        let says = |body: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(&script, format!("#!/bin/sh\n{body}\n")).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&script, mode).unwrap();
            bench.warm(["x"])
        };
        let warmed = says(r#"echo '{"pages":10,"placed":7,"already":2,"of":16}'"#).unwrap();
        assert!((warmed.share() - 0.9).abs() < 1e-9 && warmed.of == 16);
        let error = says("echo so it was >&2; exit 102").unwrap_err().to_string();
        assert!(error.contains("102") && error.contains("so it was"), "{error}");
        assert!(says("echo nonsense").is_err());
    }
}
