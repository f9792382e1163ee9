//! A program under measurement: started with one of the ways of getting large pages, told when
//! to go on, and waited for. SIGINT and SIGTERM end every wait with an error, and whatever was
//! started is killed when dropped.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Deserialize;

use super::SuperpageBench;
use super::damon::{self, Damon};
use crate::launch::{Dialogue, Report, go_on};
use crate::sys;

/// Where large pages come from.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// What it says.
    pub talk: Dialogue,
    report: tempfile::NamedTempFile,
    bench: SuperpageBench<'a>,
    /// Where its large pages come from.
    pub variant: LargePages,
    /// Watches as long as the program runs.
    damon: Option<Damon>,
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
        let report = tempfile::NamedTempFile::new()?;
        let talk = Dialogue::start(&mut dressed(bench, variant, plain, report.path()))?;
        Ok(SuperpageTarget { talk, report, bench, variant, damon: None })
    }

    /// The process that was started: the program, or huepage above it.
    pub fn head(&self) -> u32 {
        self.talk.guard.id()
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
        match self.talk.end()? {
            0 => Ok((self.report(), self.share_inside())),
            status => Err(io::Error::other(format!("{status}: {}", self.talk.last()))),
        }
    }

    /// Has it end before its time; what huepage reported.
    ///
    /// # Errors
    /// When it hangs.
    pub fn stop(mut self) -> io::Result<Option<SuperpageCounts>> {
        // It may have ended by itself.
        let _ = sys::kill(self.head(), libc::SIGTERM);
        self.talk.end().map(|_| self.report())
    }

    fn report(&self) -> Option<SuperpageCounts> {
        SuperpageCounts::of(&self.whole_report()?)
    }

    fn share_inside(&self) -> Option<f64> {
        let report = self.whole_report()?;
        report.rest.contains_key("colors").then_some(report.compliance.share)
    }

    fn whole_report(&self) -> Option<Report> {
        serde_json::from_slice(&std::fs::read(self.report.path()).ok()?).ok()
    }
}

/// A command as it is, or under huepage.
fn dressed(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    plain: &Command,
    report: &Path,
) -> Command {
    let mut command = if variant == LargePages::Huepage {
        let report = ["--report".to_owned(), report.to_string_lossy().into_owned()];
        bench.huepage.run(report.into_iter().chain(wished(bench)), plain)
    } else {
        let mut command = Command::new(plain.get_program());
        command.args(plain.get_args());
        command
    };
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    plain.get_current_dir().map(|dir| command.current_dir(dir));
    command
}

/// The options of `huepage run` and `attach` that ask for superpages.
pub fn wished(bench: SuperpageBench<'_>) -> Vec<String> {
    let wish = bench.wish;
    let own = ["--superpages", &wish.policy, "--memory-overhead", &wish.overhead];
    own.iter().chain(bench.options).map(|word| (*word).to_owned()).collect()
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
