//! Whether confinement is real: a walk that fits the whole cache but not a quarter of it, and
//! a hot set beside a stream that may or may not pollute the whole cache.
//!
//! The hot set and the stream are two processes that take turns on one CPU, each in its own
//! partition; "unconfined" means both without huepage. Everything is repeated in turns and
//! the medians are compared.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;

use crate::figures::{median, round};
use crate::harness::{Bench, Guard, Suite, interleaved, tool};
use crate::launch::{Huepage, Report};
use crate::verdict::SuiteVerdict;
use crate::walk::Latency;

/// A walk in a quarter of the colours is promised to be slower by this factor.
pub const WALK: f64 = 2.0;
/// A hot set beside a confined stream is promised to be faster by this factor.
pub const STREAM: f64 = 2.5;
/// A 64 MiB program is promised to run so many seconds after the command.
pub const START: f64 = 10.0;

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

impl Suite for Confine {
    fn tools(&self) -> &'static [&'static str] {
        &["huepage-walk", "huepage-stream", "huepage-torture"]
    }

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let Bench { huepage, options, .. } = bench;
        walks(verdict, huepage, options, *self)?;
        streams(verdict, huepage, options, *self)?;
        start(verdict, huepage, options)
    }
}

/// The same command under `huepage run` in some colours.
fn inside(huepage: &Huepage, options: &[&str], colors: &str, plain: &Command) -> Command {
    let mut command = huepage.command(["run", "--quiet", "--wait", "--colors", colors]);
    command.args(options).arg("--").arg(plain.get_program()).args(plain.get_args());
    command
}

fn measured(command: &mut Command) -> io::Result<Latency> {
    let output = command.stdin(Stdio::null()).output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    })
}

fn list(colors: std::ops::Range<usize>) -> String {
    format!("{}-{}", colors.start, colors.end - 1)
}

fn walks(
    verdict: &mut SuiteVerdict,
    huepage: &Huepage,
    options: &[&str],
    setting: Confine,
) -> io::Result<()> {
    let mut walk = Command::new(tool("huepage-walk")?);
    let (kib, cpu) = (setting.hot_kib.to_string(), setting.cpu.to_string());
    walk.args(["--kib", &kib, "--cpu", &cpu, "--seconds", "1", "--settle", "0.7"]);
    let shares = [setting.colors, setting.colors / 2, setting.colors / 4];
    let mut latencies = [const { Vec::new() }; 3];
    interleaved(setting.rounds, &[0, 1, 2], |at: usize| {
        let colors = list(0..shares[at].max(1));
        latencies[at].push(measured(&mut inside(huepage, options, &colors, &walk))?.p50);
        Ok(())
    })?;
    for (share, latencies) in shares.iter().zip(&latencies) {
        row(verdict, &format!("walk {kib} KiB in {share} colours"), latencies);
    }
    let ratio = median(&latencies[2]) / median(&latencies[0]);
    verdict.total("walk, a quarter of the colours against all", round(ratio));
    verdict.figure("P4", "bench", &[ratio]);
    verdict.require(ratio >= WALK, || format!("the walk is only {ratio:.2}x slower"));
    Ok(())
}

fn row(verdict: &mut SuiteVerdict, name: &str, latencies: &[f64]) {
    verdict.row([
        ("measurement", name.into()),
        ("ns", round(median(latencies))),
        ("min", round(latencies.iter().copied().fold(f64::INFINITY, f64::min))),
        ("max", round(latencies.iter().copied().fold(0.0, f64::max))),
    ]);
}

/// The hot set's latency beside the stream; `partitions` are those of hot set and stream.
fn beside(
    huepage: &Huepage,
    options: &[&str],
    setting: Confine,
    partitions: Option<(&str, &str)>,
) -> io::Result<f64> {
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
        Some((h, s)) => (inside(huepage, options, h, &hot), inside(huepage, options, s, &stream)),
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
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn turns(name: &str, cpu: usize, kib: usize, take: &Path, give: &Path) -> io::Result<Command> {
    let mut command = Command::new(tool(name)?);
    command.args(["--kib", &kib.to_string(), "--cpu", &cpu.to_string()]);
    command.args(["--seconds", "1", "--settle", "0.7"]);
    command.arg("--turn-in").arg(take).arg("--turn-out").arg(give);
    Ok(command)
}

fn streams(
    verdict: &mut SuiteVerdict,
    huepage: &Huepage,
    options: &[&str],
    setting: Confine,
) -> io::Result<()> {
    let (most, last) = (list(0..setting.colors - 1), (setting.colors - 1).to_string());
    let (mut free, mut confined) = (vec![], vec![]);
    interleaved(setting.rounds, &[false, true], |inside| {
        let partitions = inside.then_some((most.as_str(), last.as_str()));
        let found = beside(huepage, options, setting, partitions)?;
        if inside {
            confined.push(found)
        } else {
            free.push(found)
        }
        Ok(())
    })?;
    row(verdict, "hot set beside an unconfined stream", &free);
    row(verdict, "hot set beside a stream in one colour", &confined);
    let ratio = median(&free) / median(&confined);
    verdict.total("hot set, stream confined against unconfined", round(ratio));
    verdict.figure("P5", "bench", &[ratio]);
    verdict.require(ratio >= STREAM, || format!("the hot set gains only {ratio:.2}x"));
    Ok(())
}

/// From the command to a running 64 MiB program.
fn start(verdict: &mut SuiteVerdict, huepage: &Huepage, options: &[&str]) -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("report");
    let mut target = Command::new(tool("huepage-torture")?);
    target.args(["answer", "--mib", "64", "--rounds", "3"]);
    let mut command = huepage.command(["run", "--quiet", "--share", "25%", "--report"]);
    command.arg(&path).args(options).arg("--").arg(target.get_program()).args(target.get_args());
    let started = std::time::Instant::now();
    let output = command.output()?;
    let wall = started.elapsed().as_secs_f64();
    let report: Report = serde_json::from_slice(&std::fs::read(&path)?)?;
    let before = wall - report.program_seconds;
    verdict.total("seconds from the command to a running 64 MiB program", round(before));
    verdict.require(output.status.success(), || "the 64 MiB program failed".to_owned());
    verdict.figure("P6", "", &[before]);
    verdict.require(before <= START, || format!("a start takes {before:.1} s"));
    Ok(())
}
