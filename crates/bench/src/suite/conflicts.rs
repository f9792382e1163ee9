//! What `--recolor-conflicts` brings: a walk through pages that were put into few colours, let go, and left
//! there or looked after; and what it costs walks and scans that have no conflicts. Rounds are
//! interleaved; ratios are of the runs of one round.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use huepage_color::CacheLevel;
use huepage_linux::services::conflicts;
use huepage_linux::services::pollute::SensorKind;
use serde_json::Value;

use super::pollute::{KernelRuns, overall};
use crate::conflict::ConflictReady;
use crate::figures::{median, ratios, round};
use crate::harness::{Bench, Suite, SuiteFigures, interleaved, wanted};
use crate::host_machine::cache;
use crate::launch::{Dialogue, succeeds};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// Programs with nothing to gain.
const HARMLESS: [&str; 3] = ["hot", "large", "stream"];
/// How long coming to two colours may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct Conflicts {
    /// Only this: crowd, hot, large or stream; may be repeated
    #[arg(long)]
    only: Vec<String>,
    #[command(flatten)]
    runs: KernelRuns,
    /// Colours that the crowd lies in
    #[arg(long, default_value = "0-1")]
    crowd: String,
}

struct Comparison<'a> {
    bench: Bench<'a>,
    setting: &'a Conflicts,
}

/// A run: operations per second over all of it and in its last third, and what huepage says.
struct Run {
    overall: f64,
    steady: f64,
    report: Value,
}

impl Run {
    fn new(speed: &Speed, report: &Value) -> Run {
        let report = report["conflicts"]["processes"][0].clone();
        Run { overall: overall(speed), steady: speed.steady, report }
    }
}

impl Suite for Conflicts {
    const FIGURES: SuiteFigures = &[("C3", &[""]), ("C4", &["walk", "three caches", "scan"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        if let Some(why) = obstacle() {
            verdict.skip(why);
            return Ok(());
        }
        let bench = Comparison { bench, setting: self };
        for name in ["crowd"].into_iter().chain(HARMLESS).filter(|name| wanted(&self.only, name)) {
            eprintln!("{name} ...");
            let found = bench.compare(verdict, name);
            verdict.attempt(name, found);
        }
        Ok(())
    }
}

/// Why conflicts in the L2 cannot be seen here.
fn obstacle() -> Option<String> {
    match cache(CacheLevel::L2) {
        Ok(l2) => conflicts::obstacle(&l2, SensorKind::Residency),
        Err(why) => Some(why.to_string()),
    }
}

impl Comparison<'_> {
    /// The program's command line.
    fn target(&self, name: &str) -> io::Result<Command> {
        let kind = if name == "crowd" { "hot" } else { name };
        self.setting.runs.command("huepage-conflict", kind)
    }

    fn compare(&self, verdict: &mut SuiteVerdict, name: &str) -> io::Result<()> {
        let [without, with] =
            interleaved(self.setting.runs.rounds, [false, true], |watched| match name {
                "crowd" => self.crowd(watched),
                _ => self.harmless(name, watched),
            })?;
        let median_of = |runs: &[Run], of: fn(&Run) -> f64| median(runs.iter().map(of));
        let speeds = |runs: &[Run], of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<_>>();
        let ratios = |of| ratios(&speeds(&with, of), &speeds(&without, of));
        let (all, last) = (ratios(|run| run.overall), ratios(|run| run.steady));
        let report = with.last().map_or(Value::Null, |run| run.report.clone());
        verdict.row([
            ("program", name.into()),
            ("without_per_s", round(median_of(&without, |run| run.steady))),
            ("with_per_s", round(median_of(&with, |run| run.steady))),
            ("ratio", round(median(&all))),
            ("ratio_last_third", round(median(&last))),
            ("recoloured", report["recolored"].clone()),
            ("there_before", report["residency_before"].clone()),
            ("there", report["residency"].clone()),
            ("what", report["stage"].clone()),
        ]);
        match name {
            "crowd" => verdict.figure("C3", "", &last),
            "hot" => verdict.figure("C4", "walk", &all),
            "large" => verdict.figure("C4", "three caches", &all),
            _ => verdict.figure("C4", "scan", &all),
        }
        Ok(())
    }

    /// A walk through pages in few colours, whose partition was dissolved before it begins.
    fn crowd(&self, watched: bool) -> io::Result<Run> {
        let Bench { huepage, options, .. } = self.bench;
        let mut target = self.target("crowd")?;
        let few = ["--colors", &self.setting.crowd];
        let run = huepage.run(few.iter().chain(options), target.arg("--hold"));
        let mut running = Dialogue::start(&mut { run })?;
        let pid = running.line::<ConflictReady>()?.ready;
        self.wait_inside(pid)?;
        succeeds(huepage.command(["detach"]).arg(pid.to_string()), PATIENCE)?;
        if watched {
            let mut attach = huepage.command(["attach", "--quiet", "--recolor-conflicts"]);
            succeeds(attach.args(options).arg(pid.to_string()), PATIENCE)?;
        }
        running.go()?;
        let speed: Speed = running.line()?;
        let report = if watched { huepage.inspect(pid)? } else { Value::Null };
        running.end()?;
        Ok(Run::new(&speed, &report))
    }

    /// A program as it comes, alone or looked after from its start.
    fn harmless(&self, name: &str, watched: bool) -> io::Result<Run> {
        let (mut command, report) = (self.target(name)?, tempfile::NamedTempFile::new()?);
        if watched {
            let path = report.path().to_string_lossy();
            let options = ["--recolor-conflicts", "--report", &path];
            let options = options.iter().chain(self.bench.options);
            command = self.bench.huepage.run(options, &command);
        }
        let mut running = Dialogue::start(&mut command)?;
        running.line::<ConflictReady>()?;
        let speed: Speed = running.line()?;
        running.end()?;
        let found = if watched { std::fs::read(report.path())? } else { b"null".to_vec() };
        Ok(Run::new(&speed, &serde_json::from_slice(&found)?))
    }

    /// Until all of it lies in its partition, what it touched before anybody saw it too.
    fn wait_inside(&self, pid: u32) -> io::Result<()> {
        let started = Instant::now();
        let share =
            || Ok::<_, io::Error>(self.bench.huepage.inspect(pid)?["compliance"]["share"].as_f64());
        while share()? < Some(0.99) {
            if started.elapsed() > PATIENCE {
                return Err(io::Error::other("it does not come to its colours"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}
