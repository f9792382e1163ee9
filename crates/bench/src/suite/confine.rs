//! Whether confinement is real: a walk that fits the whole cache but not a quarter of it, and
//! a hot set beside a stream that may or may not pollute the whole cache.
//!
//! The hot set and the stream are two processes that take turns on one CPU, each in its own
//! partition; "unconfined" means both without huepage. Everything is repeated in turns and
//! what is measured in one round is compared. Beside that stands what `huepage demo` measures of the same.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::figures::{Spread, ratios, round};
use crate::harness::{Bench, Guard, Suite, SuiteFigures, interleaved, measured, tool};
use crate::launch::{PATIENCE, Report, succeeds};
use crate::verdict::SuiteVerdict;
use crate::walk::Latency;

/// What to measure, and where.
#[derive(Args, Clone, Copy, Debug)]
pub struct Confine {
    /// CPU for walk and stream
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Colours of the cache
    #[arg(long = "count", default_value_t = 16)]
    colors: usize,
    /// Footprint of walk and hot set, in KiB
    #[arg(long = "hot", default_value_t = 512)]
    hot_kib: usize,
    /// Footprint of the stream, in KiB
    #[arg(long = "stream", default_value_t = 1024)]
    stream_kib: usize,
    /// Repetitions
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What the figures are of.
const OF: &[&str] = &["bench", "demo"];

impl Suite for Confine {
    const FIGURES: SuiteFigures = &[("P4", OF), ("P5", OF), ("P6", &[""])];
    const TOOLS: &'static [&'static str] = &["huepage-walk", "huepage-stream", "huepage-torture"];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        walks(verdict, bench, *self)?;
        streams(verdict, bench, *self)?;
        start(verdict, bench)?;
        demo(verdict, bench)
    }
}

/// The same command under `huepage run` in some colours.
fn inside(bench: Bench<'_>, colors: &str, plain: &Command) -> Command {
    bench.huepage.run(["--wait", "--colors", colors].iter().chain(bench.options), plain)
}

fn list(colors: std::ops::Range<usize>) -> String {
    format!("{}-{}", colors.start, colors.end - 1)
}

fn walks(verdict: &mut SuiteVerdict, bench: Bench<'_>, setting: Confine) -> io::Result<()> {
    let mut walk = Command::new(tool("huepage-walk")?);
    let (kib, cpu) = (setting.hot_kib.to_string(), setting.cpu.to_string());
    walk.args(["--kib", &kib, "--cpu", &cpu, "--seconds", "1", "--settle", "0.7"]);
    let shares = [setting.colors, setting.colors / 2, setting.colors / 4];
    let latencies = interleaved(setting.rounds, shares, |share: usize| {
        let mut walk = inside(bench, &list(0..share.max(1)), &walk);
        measured(&mut walk, PATIENCE).map(|found: Latency| found.p50)
    })?;
    for (share, latencies) in shares.iter().zip(&latencies) {
        row(verdict, &format!("walk {kib} KiB in {share} colours"), latencies);
    }
    verdict.figure("P4", "bench", &ratios(&latencies[2], &latencies[0]));
    Ok(())
}

fn row(verdict: &mut SuiteVerdict, name: &str, latencies: &[f64]) {
    let Spread { median, min, max } = Spread::of(latencies);
    verdict.row([
        ("measurement", name.into()),
        ("ns", round(median)),
        ("min", round(min)),
        ("max", round(max)),
    ]);
}

/// The hot set's latency beside the stream; `partitions` are those of hot set and stream.
fn beside(bench: Bench<'_>, setting: Confine, partitions: Option<(&str, &str)>) -> io::Result<f64> {
    let dir = tempfile::tempdir()?;
    let pipes = [dir.path().join("to-stream"), dir.path().join("to-walk")];
    for pipe in &pipes {
        if !Command::new("mkfifo").arg(pipe).status()?.success() {
            return Err(io::Error::other("mkfifo failed"));
        }
    }
    let hot = turns("huepage-walk", setting.cpu, setting.hot_kib, &pipes[1], &pipes[0])?;
    let stream = turns("huepage-stream", setting.cpu, setting.stream_kib, &pipes[0], &pipes[1])?;
    let (mut hot, mut stream) = match partitions {
        None => (hot, stream),
        Some((h, s)) => (inside(bench, h, &hot), inside(bench, s, &stream)),
    };
    let log = dir.path().join("stream.err");
    let stream = stream.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let mut guard = Guard(stream.spawn()?);
    let child = Guard(hot.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    finish(child, &mut guard, &log)
}

/// Waits for the hot set, unless the stream fails first (the two wait for each other).
fn finish(mut hot: Guard, stream: &mut Guard, log: &Path) -> io::Result<f64> {
    loop {
        if hot.0.try_wait()?.is_some() {
            let out = hot.0.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
            return Ok(serde_json::from_reader::<_, Latency>(out)?.p50);
        }
        if stream.0.try_wait()?.is_some_and(|status| !status.success()) {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            return Err(io::Error::other(format!("the stream failed: {}", said.trim())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn turns(name: &str, cpu: usize, kib: usize, take: &Path, give: &Path) -> io::Result<Command> {
    let mut command = Command::new(tool(name)?);
    command.args(["--kib", &kib.to_string(), "--cpu", &cpu.to_string()]);
    command.args(["--seconds", "1", "--settle", "0.7"]);
    command.arg("--turn-in").arg(take).arg("--turn-out").arg(give);
    Ok(command)
}

fn streams(verdict: &mut SuiteVerdict, bench: Bench<'_>, setting: Confine) -> io::Result<()> {
    let (most, last) = (list(0..setting.colors - 1), (setting.colors - 1).to_string());
    let [free, confined] = interleaved(setting.rounds, [false, true], |inside| {
        beside(bench, setting, inside.then_some((most.as_str(), last.as_str())))
    })?;
    row(verdict, "hot set beside an unconfined stream", &free);
    row(verdict, "hot set beside a stream in one colour", &confined);
    verdict.figure("P5", "bench", &ratios(&free, &confined));
    Ok(())
}

/// From the command to a running 64 MiB program.
fn start(verdict: &mut SuiteVerdict, bench: Bench<'_>) -> io::Result<()> {
    let report = tempfile::NamedTempFile::new()?;
    let mut target = Command::new(tool("huepage-torture")?);
    target.args(["answer", "--mib", "64", "--rounds", "3"]);
    let path = report.path().to_string_lossy();
    let options = ["--share", "25%", "--report", &path];
    let mut command = bench.huepage.run(options.iter().chain(bench.options), &target);
    let wall = succeeds(&mut command, PATIENCE)?.wall;
    let report: Report = serde_json::from_slice(&std::fs::read(report.path())?)?;
    let before = wall - report.program_seconds;
    verdict.figure("P6", "", &[before]);
    Ok(())
}

/// What `huepage demo` measures of the same: figures that it has no doubts about.
fn demo(verdict: &mut SuiteVerdict, bench: Bench<'_>) -> io::Result<()> {
    demonstrated(verdict, &bench.huepage.json(&["demo", "--json"])?);
    Ok(())
}

fn demonstrated(verdict: &mut SuiteVerdict, shown: &Value) {
    for (id, part, figure) in [("P4", "staircase", "effect"), ("P5", "beside", "ratio")] {
        let found = shown[part][figure]["median"].as_f64();
        match (found, shown[part]["doubts"].as_array()) {
            (Some(found), Some(doubts)) if doubts.is_empty() => {
                verdict.figure(id, "demo", &[found]);
            }
            (_, doubts) => verdict.skip(format!("{id} demo: {doubts:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_of_the_demonstration_is_taken_where_it_has_no_doubts() {
        let mut verdict = SuiteVerdict::new("confine");
        let shown = serde_json::json!({
            "staircase": { "effect": { "median": 3.5, "spread": 0.1 }, "doubts": [] },
            "beside": { "ratio": { "median": 1.1, "spread": 0.9 }, "doubts": ["too unsteady"] },
        });
        demonstrated(&mut verdict, &shown);
        assert_eq!((verdict.figures[0].id, verdict.figures[0].figure), ("P4", 3.5));
        assert_eq!((verdict.figures.len(), verdict.skipped.len()), (1, 1));
        assert!(verdict.skipped[0].contains("too unsteady"));
    }
}
