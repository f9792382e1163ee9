//! A program under measurement: started with one of the ways of getting large pages, told when
//! to go on, and waited for. SIGINT and SIGTERM end every wait with an error, and whatever was
//! started is killed when dropped.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SuperpageBench;
use super::damon::{self, Damon};
use crate::harness::Guard;
use crate::launch::{Report, shell_status};
use crate::sys;

/// After so long a program counts as hanging.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Where large pages come from.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LargePages {
    /// Nowhere: the kernel's are off
    Never,
    /// The kernel, at every fault and later
    Always,
    /// The kernel, but only once the program has its memory: khugepaged, as it is set
    Khugepaged,
    /// DAMON's advice for hot regions
    Damon,
    /// huepage, and not the kernel
    Huepage,
}

impl LargePages {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LargePages::Never => "never",
            LargePages::Always => "always",
            LargePages::Khugepaged => "khugepaged",
            LargePages::Damon => "damon",
            LargePages::Huepage => "huepage",
        }
    }

    /// The kernel's switch while a program starts.
    fn switch(self, bench: SuperpageBench<'_>) -> &str {
        match self {
            LargePages::Never | LargePages::Khugepaged => "never",
            LargePages::Always => "always",
            LargePages::Damon => "madvise",
            LargePages::Huepage => &bench.wish.beside,
        }
    }
}

/// The part of a report that tells of superpages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SuperpageCounts {
    /// Who told of misses.
    pub source: String,
    /// Superpages built.
    pub promoted: u64,
    /// Superpages broken again.
    pub demoted: u64,
    /// Pages that they added.
    pub filled_pages: u64,
    /// CPU time of sensing and deciding, in seconds.
    pub policy_cpu_seconds: f64,
    /// CPU time of building and breaking, in seconds.
    pub construction_cpu_seconds: f64,
    /// Seconds that all this is about.
    pub seconds: f64,
    /// Seconds from the program's start to its end; from the part of the report above this.
    #[serde(skip)]
    pub program_seconds: f64,
}

impl SuperpageCounts {
    /// From the whole report.
    fn of(report: &Report) -> Option<SuperpageCounts> {
        let own: SuperpageCounts =
            serde_json::from_value(report.rest.get("superpages")?.clone()).ok()?;
        Some(SuperpageCounts { program_seconds: report.program_seconds, ..own })
    }
}

/// A running program.
#[derive(Debug)]
pub struct SuperpageTarget<'a> {
    guard: Guard,
    lines: Receiver<String>,
    stdin: Option<ChildStdin>,
    files: tempfile::TempDir,
    bench: SuperpageBench<'a>,
    /// Where its large pages come from.
    pub variant: LargePages,
    /// Watches as long as the program runs.
    damon: Option<Damon>,
}

/// An error once SIGINT or SIGTERM has arrived.
///
/// # Errors
/// As said.
pub fn go_on() -> io::Result<()> {
    if sys::stop_asked() { Err(io::Error::other("interrupted")) } else { Ok(()) }
}

/// Waits, but not after SIGINT or SIGTERM.
///
/// # Errors
/// As said.
pub fn pause(time: Duration) -> io::Result<()> {
    let started = Instant::now();
    while started.elapsed() < time {
        go_on()?;
        std::thread::sleep(Duration::from_millis(20).min(time));
    }
    Ok(())
}

impl<'a> SuperpageTarget<'a> {
    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be started, or the kernel's switch cannot be set.
    pub fn start(
        bench: SuperpageBench<'a>,
        variant: LargePages,
        plain: &Command,
    ) -> io::Result<SuperpageTarget<'a>> {
        go_on()?;
        bench.thp.set(variant.switch(bench))?;
        let files = tempfile::tempdir_in(bench.dir)?;
        let mut command = dressed(bench, variant, plain, files.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(std::fs::File::create(files.path().join("err"))?);
        let mut guard = Guard(command.spawn()?);
        let (stdin, lines) = (guard.0.stdin.take(), lines(&mut guard.0)?);
        Ok(SuperpageTarget { guard, lines, stdin, files, bench, variant, damon: None })
    }

    /// The process that was started: the program, or huepage above it.
    pub fn head(&self) -> u32 {
        self.guard.0.id()
    }

    /// To be called when the program has its memory: what comes later comes now.
    ///
    /// # Errors
    /// When the kernel's switch cannot be set, or DAMON refuses.
    pub fn ready(&mut self, pid: u32) -> io::Result<()> {
        match self.variant {
            LargePages::Khugepaged => self.bench.thp.set("always"),
            LargePages::Damon => {
                self.damon = Some(Damon::watch(Path::new(damon::ADMIN), pid)?);
                Ok(())
            }
            LargePages::Never | LargePages::Always | LargePages::Huepage => Ok(()),
        }
    }

    /// The next line that it prints, which is JSON.
    ///
    /// # Errors
    /// When it ends instead, prints something else, or nothing for too long.
    pub fn line<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            go_on()?;
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return serde_json::from_str(&line).map_err(io::Error::other),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = shell_status(self.guard.0.wait()?);
                    return Err(io::Error::other(format!("{status}: {}", self.said())));
                }
            }
        }
        Err(io::Error::other("hangs"))
    }

    /// Lets a program that waits for a line go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn go(&mut self) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"))
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.guard.alive()
    }

    /// Ends its input and waits for its end; what huepage reported.
    ///
    /// # Errors
    /// When it fails or hangs.
    pub fn end(self) -> io::Result<Option<SuperpageCounts>> {
        self.end_and_tell().map(|(own, _)| own)
    }

    /// As [`Self::end`], and the share of its pages that were in its partition, if it had one.
    ///
    /// # Errors
    /// When it fails or hangs.
    pub fn end_and_tell(mut self) -> io::Result<(Option<SuperpageCounts>, Option<f64>)> {
        match self.wait()? {
            0 => Ok((self.report(), self.share_inside())),
            status => Err(io::Error::other(format!("{status}: {}", self.said()))),
        }
    }

    /// Has it end before its time; what huepage reported.
    ///
    /// # Errors
    /// When it hangs.
    pub fn stop(mut self) -> io::Result<Option<SuperpageCounts>> {
        // It may have ended by itself.
        let _ = sys::kill(self.head(), libc::SIGTERM);
        self.wait().map(|_| self.report())
    }

    fn wait(&mut self) -> io::Result<i32> {
        drop(self.stdin.take());
        let started = Instant::now();
        while self.alive() {
            go_on()?;
            if started.elapsed() > PATIENCE {
                return Err(io::Error::other("hangs"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(shell_status(self.guard.0.wait()?))
    }

    fn report(&self) -> Option<SuperpageCounts> {
        SuperpageCounts::of(&self.whole_report()?)
    }

    fn share_inside(&self) -> Option<f64> {
        let report = self.whole_report()?;
        report.rest.contains_key("colors").then_some(report.compliance.share)
    }

    fn whole_report(&self) -> Option<Report> {
        let text = std::fs::read(self.files.path().join("report")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The last line that it said on standard error.
    fn said(&self) -> String {
        let text = std::fs::read_to_string(self.files.path().join("err")).unwrap_or_default();
        text.lines().last().unwrap_or_default().to_owned()
    }
}

/// A command as it is, or under huepage.
fn dressed(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    plain: &Command,
    files: &Path,
) -> Command {
    let mut command = if variant == LargePages::Huepage {
        let mut command = bench.huepage.command(["run", "--quiet", "--report"]);
        command.arg(files.join("report")).args(wished(bench)).arg("--").arg(plain.get_program());
        command
    } else {
        Command::new(plain.get_program())
    };
    command.args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    plain.get_current_dir().map(|dir| command.current_dir(dir));
    command
}

/// The options of `huepage run` and `attach` that ask for superpages.
pub fn wished(bench: SuperpageBench<'_>) -> Vec<String> {
    let wish = bench.wish;
    let own = ["--superpages", &wish.policy, "--memory-overhead", &wish.overhead];
    own.iter().chain(bench.options).map(|word| (*word).to_owned()).collect()
}

fn lines(child: &mut Child) -> io::Result<Receiver<String>> {
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            // Nobody may listen any more, but a full pipe would stop the program.
            let _ = sender.send(line);
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superpages_are_read_from_the_report() {
        let text = r#"{"program_seconds": 2.5, "superpages":
            {"source": "accessed-bits", "promoted": 7, "refused": {"sparse": 3}}}"#;
        let own = SuperpageCounts::of(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((own.promoted, own.program_seconds), (7, 2.5));
        assert!(SuperpageCounts::of(&serde_json::from_str("{}").unwrap()).is_none());
    }
}
