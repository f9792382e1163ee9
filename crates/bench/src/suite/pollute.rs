//! What `huepage run --pollute-buffer` brings: programs with memory that passes by what they use again,
//! as they are, with the buffer found by huepage, and with what passes by confined by hand; and real
//! programs as they are and under it. Rounds are interleaved; ratios of kernels are of the
//! runs of one round, those of programs of medians.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::figures::{median, ratios, round};
use crate::harness::{Bench, Suite, SuiteFigures, interleaved, tool, wanted};
use crate::launch::{self, Dialogue, succeeds};
use crate::pollute::PolluterReady;
use crate::programs::{BenchProgram, PROGRAMS, STREAMS};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// The kernels with something to gain.
const KERNELS: [&str; 3] = ["join", "cg", "art"];
/// How long confining by hand may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How kernels of this package run that say when they are ready and how fast they were.
#[derive(Args, Clone, Debug)]
pub struct KernelRuns {
    /// Rounds
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds of a kernel's run
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// KiB of the cache that sizes are multiples of
    #[arg(long, default_value_t = 2048)]
    cache_kib: usize,
    /// CPU of the kernels
    #[arg(long, default_value_t = 1)]
    cpu: usize,
}

impl KernelRuns {
    /// The command line of a kernel.
    ///
    /// # Errors
    /// When the program is not there.
    pub fn command(&self, program: &str, kernel: &str) -> io::Result<Command> {
        let KernelRuns { seconds, cache_kib, cpu, .. } = self;
        let words = format!("{kernel} --seconds {seconds} --cache-kib {cache_kib} --cpu {cpu}");
        let mut command = Command::new(tool(program)?);
        command.args(words.split(' '));
        Ok(command)
    }
}

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct Pollute {
    /// Only this kernel or program; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Only look for a real program that gains, among some that stream
    #[arg(long)]
    search: bool,
    #[command(flatten)]
    runs: KernelRuns,
    /// The buffer
    #[arg(long, default_value = "1/16")]
    buffer: String,
}

/// What every measurement is given.
struct Kernels<'a> {
    bench: Bench<'a>,
    setting: &'a Pollute,
}

/// How a kernel runs.
#[derive(Clone, Copy)]
enum Placing {
    Alone,
    Auto,
    ByHand,
}

impl Suite for Pollute {
    const FIGURES: SuiteFigures = &[
        ("B2", &["join", "join against by hand", "art", "worst program"]),
        ("B3", &[""]),
        ("B4", &[""]),
    ];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let bench = Kernels { bench, setting: self };
        for kernel in
            KERNELS.into_iter().filter(|kernel| !self.search && wanted(&self.only, kernel))
        {
            eprintln!("{kernel} ...");
            let found = bench.kernel(verdict, kernel);
            verdict.attempt(kernel, found);
        }
        let programs: &[BenchProgram] = if self.search { &STREAMS } else { &PROGRAMS };
        for program in programs.iter().filter(|program| wanted(&self.only, program.name)) {
            eprintln!("{} ...", program.name);
            let found = bench.program(verdict, program);
            verdict.attempt(program.name, found);
        }
        let speeds = verdict.column("auto");
        verdict.is_part = !self.only.is_empty();
        if self.search {
            verdict.extreme("B4", "", |spread| spread.max, &speeds);
        } else {
            verdict.extreme("B2", "worst program", |spread| spread.min, &speeds);
        }
        Ok(())
    }
}

impl Kernels<'_> {
    fn buffer(&self) -> String {
        format!("--pollute-buffer={}", self.setting.buffer)
    }

    /// A run of a kernel; its speed, and what huepage reports where it finds the buffer.
    fn run(&self, kernel: &str, placing: Placing) -> io::Result<(f64, Value)> {
        let (plain, report) = (
            self.setting.runs.command("huepage-polluter", kernel)?,
            tempfile::NamedTempFile::new()?,
        );
        let path = report.path().to_string_lossy();
        let (buffer, quiet) = (self.buffer(), ["--report", &path]);
        let options = quiet
            .iter()
            .copied()
            .chain([buffer.as_str()])
            .chain(self.bench.options.iter().copied());
        let mut running = match placing {
            Placing::Alone => Dialogue::start(&mut { plain })?,
            Placing::Auto => Dialogue::start(&mut self.bench.huepage.run(options, &plain))?,
            Placing::ByHand => Dialogue::start({ plain }.arg("--hold"))?,
        };
        let ready: PolluterReady = running.line()?;
        if matches!(placing, Placing::ByHand) {
            self.confine(&ready)?;
            running.go()?;
        }
        let speed: Speed = running.line()?;
        running.end()?;
        let report: Value = match placing {
            Placing::Auto => serde_json::from_slice(&std::fs::read(report.path())?)?,
            Placing::Alone | Placing::ByHand => Value::Null,
        };
        Ok((overall(&speed), report["pollute"]["processes"][0].clone()))
    }

    /// Confines everything that passes by, before it begins.
    fn confine(&self, ready: &PolluterReady) -> io::Result<()> {
        let mut attach = self.bench.huepage.command(["attach", "--quiet", &self.buffer()]);
        attach.args(ready.passes.iter().map(|(start, end)| format!("--confine={start:x}-{end:x}")));
        attach.args(self.bench.options).arg(ready.ready.to_string());
        succeeds(&mut attach, PATIENCE)?;
        let pages: usize = ready.passes.iter().map(|(start, end)| (end - start) / 4096).sum();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let seen = self.bench.huepage.inspect(ready.ready).unwrap_or_default();
            let inside = seen["pollute"]["processes"][0]["pages_in_buffer"].as_u64();
            if inside >= Some(pages as u64 * 95 / 100) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other("what passes by was not confined in time"))
    }

    fn kernel(&self, verdict: &mut SuiteVerdict, kernel: &str) -> io::Result<()> {
        let ways = [Placing::Alone, Placing::Auto, Placing::ByHand];
        let runs = interleaved(self.setting.runs.rounds, ways, |way| self.run(kernel, way))?;
        let speeds = runs.each_ref().map(|runs| runs.iter().map(|run| run.0).collect::<Vec<_>>());
        let [gains, best, of_best] =
            [(1, 0), (2, 0), (1, 2)].map(|(own, other)| ratios(&speeds[own], &speeds[other]));
        let reports = runs[1].iter().map(|(_, report)| report);
        let placed: Vec<f64> = reports.filter_map(|own| own["placed_after"].as_f64()).collect();
        let last = runs[1].last().map_or(Value::Null, |(_, report)| report.clone());
        let figures = [median(&speeds[0]), median(&gains), median(&best)];
        row(verdict, kernel, figures, round(median(&placed)), &last);
        match kernel {
            "join" => {
                verdict.figure("B2", "join", &gains);
                verdict.figure("B2", "join against by hand", &of_best);
                verdict.figure("B3", "", &placed);
            }
            "art" => verdict.figure("B2", "art", &gains),
            _ => {}
        }
        Ok(())
    }

    /// A real program as it is and under huepage: the same output, hardly more time.
    fn program(&self, verdict: &mut SuiteVerdict, program: &BenchProgram) -> io::Result<()> {
        let name = program.name;
        let ready = match program.prepare(self.bench.dir) {
            Ok(ready) => ready,
            Err(error) => {
                verdict.skip(format!("{name}: {error}"));
                return Ok(());
            }
        };
        let buffer = self.buffer();
        let options = [self.bench.options, &[buffer.as_str()]].concat();
        let [native, under] = interleaved(self.setting.runs.rounds, [false, true], |under| {
            if under {
                launch::confined(self.bench.huepage, &options, &ready)
            } else {
                launch::native(&ready)
            }
        })?;
        for (native, under) in native.iter().zip(&under) {
            let difference = under.difference(native);
            verdict.require(difference.is_none(), || {
                format!("{name}: {}", difference.unwrap_or_default())
            });
        }
        let base = median(native.iter().map(|run| run.end.wall));
        let reports = || under.iter().map(|run| run.report.clone().unwrap_or_default());
        let auto = base / median(reports().map(|report| report.program_seconds));
        let last = reports().next_back().and_then(|report| report.rest.get("pollute").cloned());
        let last = last.map_or(Value::Null, |own| own["processes"][0].clone());
        row(verdict, name, [1.0 / base, auto, f64::NAN], last["placed_after"].clone(), &last);
        Ok(())
    }
}

/// The row of a program: how often it runs in a second alone, its speed against that by itself and by hand.
fn row(
    verdict: &mut SuiteVerdict,
    name: &str,
    [alone, auto, hand]: [f64; 3],
    placed: Value,
    last: &Value,
) {
    verdict.row([
        ("program", name.into()),
        ("alone_per_s", round(alone)),
        ("auto", round(auto)),
        ("hand", round(hand)),
        ("placed_s", placed),
        ("confined", last["pages_in_buffer"].clone()),
        ("miss_rate_before", last["miss_rate_before"].clone()),
        ("miss_rate", last["miss_rate"].clone()),
        ("what", last["stage"].clone()),
    ]);
}

/// Operations per second over all of a run, finding and moving pages included.
pub(super) fn overall(speed: &Speed) -> f64 {
    speed.operations as f64 / speed.seconds
}
