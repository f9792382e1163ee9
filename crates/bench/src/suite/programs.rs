//! Real programs natively and in a share of the cache: the same output, the same ending, and
//! (seen by the independent reader) nearly all movable pages inside the share.

use std::io::{self, BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, wanted};
use crate::launch::{self, Huepage, RunOutcome, shell_status};
use crate::programs::{BenchProgram, PROGRAMS};
use crate::sys;
use crate::verdict::SuiteVerdict;

/// The compliance that is promised.
pub const COMPLIANCE: f64 = 0.99;
/// Runs of a program, at most, until the promised compliance is seen: a neighbour who takes the CPU
/// from the engine while a program throws all its memory away several times a second spoils a run.
/// What a program prints and how it ends must be right in each of them.
const TRIES: usize = 3;

/// The programs whose names are in `only`; all, when that is empty.
pub fn selected(only: &[String]) -> impl Iterator<Item = &'static BenchProgram> {
    PROGRAMS.iter().filter(move |program| wanted(only, program.name))
}

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct RealPrograms {
    /// Only this program; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// The share of the cache
    #[arg(long, default_value = "50%")]
    share: String,
    /// No program: only how programs end, and signals
    #[arg(long, conflicts_with = "only")]
    endings: bool,
}

impl Suite for RealPrograms {
    const FIGURES: SuiteFigures = &[("P1", &[""]), ("P2", &[""]), ("P3", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", &self.share]].concat();
        for program in selected(&self.only).filter(|_| !self.endings) {
            eprintln!("{} ...", program.name);
            let bench = Bench { options: &options, ..bench };
            let found = one(verdict, bench, program);
            verdict.attempt(program.name, found);
        }
        if self.only.is_empty() {
            endings(verdict, bench.huepage, &options);
            passed_on(verdict, bench.huepage, &options);
        }
        if self.only.is_empty() && !self.endings {
            figures(verdict);
        }
        Ok(())
    }
}

/// The figures of the promises about all programs.
fn figures(verdict: &mut SuiteVerdict) {
    let same = verdict.rows.iter().filter(|row| row["output"] == "same").count();
    verdict.is_part = !verdict.skipped.is_empty();
    let seen: Vec<f64> = verdict.column("seen").iter().map(|share| 100.0 * share).collect();
    verdict.extreme("P3", "", |spread| spread.min, &seen);
    if !verdict.is_part {
        verdict.figure("P1", "", &[same as f64]);
    }
}

fn one(verdict: &mut SuiteVerdict, bench: Bench<'_>, program: &BenchProgram) -> io::Result<()> {
    let name = program.name;
    let ready = match program.prepare(bench.dir) {
        Ok(ready) => ready,
        Err(error) => {
            verdict.skip(format!("{name}: {error}"));
            return Ok(());
        }
    };
    let native = launch::native(&ready)?;
    verdict
        .require(native.end.status == 0, || format!("{name}: fails natively: {}", native.end.err));
    for tries in 1..=TRIES {
        let confined = launch::confined(bench.huepage, bench.options, &ready)?;
        let share = compliance(&confined);
        if share >= COMPLIANCE || tries == TRIES || confined.difference(&native).is_some() {
            judge(verdict, name, &native, &confined, tries);
            break;
        }
        eprintln!("{name}: compliance {share:.4} in run {tries} of {TRIES}; once more");
    }
    Ok(())
}

/// What was seen of a run, or else what it says of itself.
fn compliance(confined: &RunOutcome) -> f64 {
    let reported = || confined.report.as_ref().map_or(0.0, |report| report.compliance.share);
    confined.observation.steady().unwrap_or_else(reported)
}

fn judge(
    verdict: &mut SuiteVerdict,
    name: &str,
    native: &RunOutcome,
    confined: &RunOutcome,
    tries: usize,
) {
    add_row(verdict, name, (native, confined), tries);
    let difference = confined.difference(native);
    verdict.require(difference.is_none(), || format!("{name}: {}", difference.unwrap_or_default()));
    verdict.require(confined.report.is_some(), || format!("{name}: no report was written"));
    if let Some(again) = confined.observation.verified {
        let right = again.as_believed * 1000 >= again.measured * 990;
        verdict.require(right, || format!("{name}: measured again, colours differ: {again:?}"));
    }
    let compliance = compliance(confined);
    verdict.require(compliance >= COMPLIANCE, || {
        format!("{name}: compliance {compliance:.4} is below {COMPLIANCE}")
    });
}

/// The row of a program.
fn add_row(
    verdict: &mut SuiteVerdict,
    name: &str,
    (native, confined): (&RunOutcome, &RunOutcome),
    tries: usize,
) {
    let difference = confined.difference(native);
    let report = confined.report.clone().unwrap_or_default();
    let seen = confined.observation.steady();
    let last = confined.observation.counts.last().copied().unwrap_or_default();
    let verified = confined.observation.verified;
    verdict.row([
        ("program", name.into()),
        ("output", difference.map_or("same".into(), Value::from)),
        ("status", confined.end.status.into()),
        ("seen", seen.map_or(Value::Null, round)),
        ("looks", confined.observation.counts.len().into()),
        ("runs", tries.into()),
        ("unknown", last.unknown.into()),
        ("elsewhere", last.elsewhere.into()),
        (
            "verified",
            verified.map_or(Value::Null, |v| format!("{}/{}", v.as_believed, v.measured).into()),
        ),
        ("reported", round(report.compliance.share)),
        ("movable", report.compliance.movable.into()),
        ("faults", report.faults_served.into()),
        ("recolored", report.recolored.into()),
        ("fallback", report.fallback_pages.into()),
        ("native_s", round(native.end.wall)),
        ("program_s", round(report.program_seconds)),
        ("gather_s", round(report.gather_seconds)),
    ]);
}

/// Programs that end in every way a program can end.
fn endings(verdict: &mut SuiteVerdict, huepage: &Huepage, options: &[&str]) {
    let scripts = [
        ("exit 0", "exit 0"),
        ("exit 7", "exit 7"),
        ("exit 255", "exit 255"),
        ("SIGTERM", "kill -TERM $$"),
        ("SIGKILL", "kill -KILL $$"),
        ("SIGSEGV", "kill -SEGV $$"),
        ("in a child", "(exit 3); exit $?"),
    ];
    let mut right = 0;
    for (name, script) in scripts {
        let native = std::process::Command::new("sh").args(["-c", script]).status();
        let mut command = huepage.command(["run", "--quiet"]);
        let confined = command.args(options).args(["--", "sh", "-c", script]).status();
        let both = native.map(shell_status).ok().zip(confined.map(shell_status).ok());
        let same = both.is_some_and(|(native, confined)| native == confined);
        verdict.require(same, || format!("ending {name}: native and confined give {both:?}"));
        right += usize::from(same);
    }
    verdict.figure("P2", "", &[right as f64]);
}

/// A signal sent to huepage must reach the program, whose answer to it must come back.
fn passed_on(verdict: &mut SuiteVerdict, huepage: &Huepage, options: &[&str]) {
    let script = "trap 'exit 9' TERM; trap 'exit 8' INT; echo ready; \
                  while :; do sleep 0.05; done";
    for (signal, expected) in [(libc::SIGTERM, 9), (libc::SIGINT, 8)] {
        let mut command = huepage.command(["run", "--quiet"]);
        // Who starts this in the background ignores SIGINT, and a shell cannot trap what it
        // finds ignored.
        command.args(options).args(["--", "env", "--default-signal=TERM,INT", "sh", "-c", script]);
        command.stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return verdict.miss("cannot start huepage") };
        if let Some(out) = child.stdout.take() {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
        }
        std::thread::sleep(Duration::from_millis(100));
        let sent = sys::kill(child.id(), signal);
        let status = child.wait().map(shell_status);
        let right = sent.is_ok() && matches!(status, Ok(s) if s == expected);
        verdict.require(right, || format!("signal {signal}: {status:?} instead of {expected}"));
    }
}
