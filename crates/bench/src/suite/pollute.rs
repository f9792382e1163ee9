//! What `huepage run --pollute-buffer` brings: programs with memory that passes by what they use again,
//! as they are, with the buffer found by huepage, and with what passes by confined by hand; and real
//! programs as they are and under it. Rounds are interleaved; ratios are of medians.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Guard, Suite, tool, wanted};
use crate::launch::{self, Huepage};
use crate::pollute::PolluterReady;
use crate::programs::{BenchProgram, PROGRAMS, STREAMS};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// The kernels with something to gain, and what is promised of two of them.
const KERNELS: [&str; 3] = ["join", "cg", "art"];
const GAIN: f64 = 1.25;
const OF_THE_BEST: f64 = 0.85;
/// What is promised of every program.
const NEVER_BELOW: f64 = 0.98;
/// How long confining by hand may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct Pollute {
    /// Only this kernel or program; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Only look for a real program that gains, among some that stream
    #[arg(long)]
    search: bool,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a kernel's run
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// KiB of the cache that sizes are multiples of
    #[arg(long, default_value_t = 2048)]
    cache_kib: usize,
    /// CPU of the kernels
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// The buffer
    #[arg(long, default_value = "1/16")]
    buffer: String,
}

/// What every measurement is given.
struct Kernels<'a> {
    huepage: &'a Huepage,
    options: &'a [&'a str],
    setting: &'a Pollute,
}

impl Suite for Pollute {
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let Bench { huepage, options, dir, .. } = bench;
        let bench = Kernels { huepage, options, setting: self };
        for kernel in
            KERNELS.into_iter().filter(|kernel| !self.search && wanted(&self.only, kernel))
        {
            eprintln!("{kernel} ...");
            if let Err(error) = bench.kernel(verdict, kernel) {
                verdict.miss(format!("{kernel}: cannot be measured: {error}"));
            }
        }
        let programs: &[BenchProgram] = if self.search { &STREAMS } else { &PROGRAMS };
        for program in programs.iter().filter(|program| wanted(&self.only, program.name)) {
            eprintln!("{} ...", program.name);
            bench.program(verdict, program, dir);
        }
        let gained = verdict.rows.iter().filter(|row| row["auto"].as_f64() >= Some(GAIN)).count();
        verdict.total("programs that gain a quarter", gained);
        let Spread { min, max, .. } = Spread::of(&verdict.column("auto"));
        if self.search {
            verdict.worst("B4", "", max, None);
        } else {
            verdict.worst("B2", "worst program", min, None);
        }
        let all = self.only.is_empty() && !self.search;
        verdict.require(!all || gained >= 2, || format!("{gained} programs reach {GAIN}, not 2"));
        Ok(())
    }
}

/// A kernel that runs.
pub(super) struct Running {
    guard: Guard,
    lines: BufReader<std::process::ChildStdout>,
    stdin: Option<ChildStdin>,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> io::Result<Running> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child: Child = command.spawn()?;
        let lines = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let stdin = child.stdin.take();
        Ok(Running { guard: Guard(child), lines: BufReader::new(lines), stdin })
    }

    pub(super) fn line<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(io::Error::other)
    }

    pub(super) fn go(&mut self) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"))
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        drop(self.stdin.take());
        self.guard.0.wait().map(|_| ())
    }
}

impl Kernels<'_> {
    /// A kernel's command line without the first word.
    fn arguments(&self, kernel: &str, hold: bool) -> Vec<String> {
        let Pollute { seconds, cache_kib, cpu, .. } = self.setting;
        let mut words = vec![kernel.to_owned()];
        let numbers = [
            ("--seconds", seconds.to_string()),
            ("--cache-kib", cache_kib.to_string()),
            ("--cpu", cpu.to_string()),
        ];
        words.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        words.extend(hold.then(|| "--hold".to_owned()));
        words
    }

    fn polluter(&self) -> io::Result<std::path::PathBuf> {
        tool("huepage-polluter")
    }

    fn alone(&self, kernel: &str) -> io::Result<f64> {
        let mut command = Command::new(self.polluter()?);
        let mut running = Running::start(command.args(self.arguments(kernel, false)))?;
        running.line::<PolluterReady>()?;
        let speed = running.line::<Speed>()?;
        running.end()?;
        Ok(overall(&speed))
    }

    /// Under huepage; its speed and the report.
    fn automatic(&self, kernel: &str) -> io::Result<(f64, Value)> {
        let reports = tempfile::tempdir()?;
        let report = reports.path().join("report.json");
        let buffer = format!("--pollute-buffer={}", self.setting.buffer);
        let mut command = self.huepage.command(["run", "--quiet", &buffer, "--report"]);
        command.arg(&report).args(self.options).arg("--").arg(self.polluter()?);
        let mut running = Running::start(command.args(self.arguments(kernel, false)))?;
        running.line::<PolluterReady>()?;
        let speed = running.line::<Speed>()?;
        running.end()?;
        let report: Value =
            serde_json::from_slice(&std::fs::read(&report)?).map_err(io::Error::other)?;
        Ok((overall(&speed), report["pollute"]["processes"][0].clone()))
    }

    /// With everything confined that passes by, before it begins.
    fn by_hand(&self, kernel: &str) -> io::Result<f64> {
        let mut command = Command::new(self.polluter()?);
        let mut running = Running::start(command.args(self.arguments(kernel, true)))?;
        let ready: PolluterReady = running.line()?;
        let buffer = format!("--pollute-buffer={}", self.setting.buffer);
        let mut attach = self.huepage.command(["attach", "--quiet", &buffer]);
        attach.args(ready.passes.iter().map(|(start, end)| format!("--confine={start:x}-{end:x}")));
        let attached = attach.args(self.options).arg(ready.ready.to_string()).status()?;
        if !attached.success() {
            return Err(io::Error::other("huepage attach failed"));
        }
        self.wait_confined(&ready)?;
        running.go()?;
        let speed = running.line::<Speed>()?;
        running.end()?;
        Ok(overall(&speed))
    }

    fn wait_confined(&self, ready: &PolluterReady) -> io::Result<()> {
        let pages: usize = ready.passes.iter().map(|(start, end)| (end - start) / 4096).sum();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let pid = ready.ready.to_string();
            let output = self.huepage.command(["inspect", "--json", &pid]).output()?;
            let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let inside = seen["pollute"]["processes"][0]["pages_in_buffer"].as_u64();
            if inside >= Some(pages as u64 * 95 / 100) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other("what passes by was not confined in time"))
    }

    fn kernel(&self, verdict: &mut SuiteVerdict, kernel: &str) -> io::Result<()> {
        let (mut alone, mut found, mut by_hand, mut placed) = (vec![], vec![], vec![], vec![]);
        let mut last = Value::Null;
        for _ in 0..self.setting.rounds {
            alone.push(self.alone(kernel)?);
            let (speed, report) = self.automatic(kernel)?;
            found.push(speed);
            placed.extend(report["placed_after"].as_f64());
            by_hand.push(self.by_hand(kernel)?);
            last = report;
        }
        let base = median(&alone);
        let (auto, hand) = (median(&found) / base, median(&by_hand) / base);
        let placed_after = Some(median(&placed)).filter(|seconds| seconds.is_finite());
        verdict.row([
            ("program", kernel.into()),
            ("alone_per_s", round(base)),
            ("auto", round(auto)),
            ("hand", round(hand)),
            ("placed_s", placed_after.map_or(Value::Null, round)),
            ("confined", last["pages_in_buffer"].clone()),
            ("miss_rate_before", last["miss_rate_before"].clone()),
            ("miss_rate", last["miss_rate"].clone()),
            ("what", last["stage"].clone()),
        ]);
        match kernel {
            "join" => {
                verdict.figure("B2", "join", &[auto]);
                verdict.figure("B2", "join against by hand", &[auto / hand]);
                verdict.figure("B3", "", &placed);
            }
            "art" => verdict.figure("B2", "art", &[auto]),
            _ => {}
        }
        verdict.require(auto >= NEVER_BELOW, || format!("{kernel}: {auto:.3} of alone"));
        verdict.require(hand < GAIN || auto >= OF_THE_BEST * hand, || {
            format!("{kernel}: {auto:.3} of alone where placing by hand gives {hand:.3}")
        });
        Ok(())
    }

    /// A real program as it is and under huepage: the same output, hardly more time.
    fn program(&self, verdict: &mut SuiteVerdict, program: &BenchProgram, dir: &Path) {
        let name = program.name;
        let ready = match program.prepare(dir) {
            Ok(ready) => ready,
            Err(error) => return verdict.skip(format!("{name}: {error}")),
        };
        let buffer = format!("--pollute-buffer={}", self.setting.buffer);
        let options = [self.options, &[buffer.as_str()]].concat();
        let (mut alone, mut under, mut last) = (vec![], vec![], Value::Null);
        for _ in 0..self.setting.rounds {
            let (native, confined) =
                (launch::native(&ready), launch::confined(self.huepage, &options, &ready));
            let (Ok(native), Ok(confined)) = (native, confined) else {
                return verdict.miss(format!("{name}: cannot be started"));
            };
            let difference = confined.difference(&native);
            verdict.require(difference.is_none(), || {
                format!("{name}: {}", difference.unwrap_or_default())
            });
            let report = confined.report.unwrap_or_default();
            alone.push(native.wall);
            under.push(report.program_seconds);
            last = report.rest.get("pollute").map_or(Value::Null, |p| p["processes"][0].clone());
        }
        let base = median(&alone);
        let auto = base / median(&under);
        verdict.row([
            ("program", name.into()),
            ("alone_per_s", round(1.0 / base)),
            ("auto", round(auto)),
            ("hand", Value::Null),
            ("placed_s", last["placed_after"].clone()),
            ("confined", last["pages_in_buffer"].clone()),
            ("miss_rate_before", last["miss_rate_before"].clone()),
            ("miss_rate", last["miss_rate"].clone()),
            ("what", last["stage"].clone()),
        ]);
        verdict.require(auto >= NEVER_BELOW, || format!("{name}: {auto:.3} of alone"));
    }
}

/// Operations per second over all of a run, finding and moving pages included.
pub(super) fn overall(speed: &Speed) -> f64 {
    speed.operations as f64 / speed.seconds
}
