//! How fast the simulator is on machine files: against bare loops over arrays that do what the caches and TLBs
//! of these machines do and nothing more, and on two threads against one. The accesses are the two synthetic
//! streams and those of two programs that are recorded for it (`accesses`), from memory. What is compared runs in
//! turns and must count the same misses.
//!
//! Against the loop CPU time of this thread counts: what others do on the machine is not ours. Threads are
//! about the time that passes, so that the machine has to be idle for them. A host may put two of its guest's CPUs
//! on one core for seconds: only those pairs of runs count before and after which they were apart, if there are any.

mod accesses;
mod bare;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use huepage_color::Vpn;
use huepage_linux::color::doctor::siblings::{self, CpuRelation};
use huepage_linux::kernel::cpus::allowed_cpus;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::system::{Report, System};
use rustix::time::{ClockId, clock_gettime};

use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Suite, SuiteFigures, progress, wanted};
use crate::spec;
use crate::verdict::SuiteVerdict;
use accesses::Stream;
use bare::Bare;

/// How much faster two threads are to be on most machine files.
const GAIN: f64 = 1.7;
/// Pairs of runs at most for each that counts.
const TRIES: usize = 4;
/// The machine of S1, and its streams, which are those of S14, too.
const PLAIN: &str = "cascade-lake-like";
const OF_PLAIN: [&str; 2] = ["misses", "hits"];
/// Accesses that are handed to the simulator at once, as a reader of traces does.
const AT_ONCE: usize = 1 << 16;

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct SimSpeed {
    /// Only this machine file, by its name without .toml; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// A directory of machine files [default: that of this checkout]
    #[arg(long)]
    machines: Option<PathBuf>,
    /// How often
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Accesses of each stream; of a program, the second so many
    #[arg(long, default_value_t = 10_000_000)]
    accesses: usize,
    /// Threads that are compared with one
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// What a machine file gave on a stream.
#[derive(Default)]
struct Speed {
    /// Million accesses a second, and how many times as long as the bare loop.
    own: Vec<f64>,
    ratios: Vec<f64>,
    /// How many times as fast by several threads; nothing where one runs it.
    gains: Vec<f64>,
    /// Whether the CPUs were apart around all of these.
    calm: bool,
}

/// What the figures are of.
const OF: &[&str] = &[
    "misses",
    "hits",
    "bzip2",
    "gcc",
    "slowest on misses",
    "slowest on hits",
    "slowest on bzip2",
    "slowest on gcc",
];

impl Suite for SimSpeed {
    const FIGURES: SuiteFigures = &[("S1", &OF_PLAIN), ("S13", OF), ("S14", &["machine files"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let machines = self.machine_files()?;
        let mut gained = vec![f64::INFINITY; machines.len()];
        let dir = bench.dir.join("sim-speed");
        for Stream { name: stream, of } in accesses::STREAMS {
            let trace = match of.accesses(self.accesses, bench.huepage, &dir) {
                Ok(trace) => trace,
                Err(what) => {
                    verdict.skip(format!("{stream}: {what}"));
                    continue;
                }
            };
            let mut speeds = Vec::new();
            for ((name, machine), gained) in machines.iter().zip(&mut gained) {
                progress(&format!("{name}, {stream}"));
                let speed = self.speed(machine, &trace, cpus_are_apart);
                if OF_PLAIN.contains(&stream) {
                    let gain = if speed.gains.is_empty() { 0.0 } else { median(&speed.gains) };
                    *gained = gained.min(gain);
                }
                row(verdict, (name, stream), &speed);
                speeds.push((name, speed));
            }
            judge(verdict, stream, &speeds, !self.only.is_empty());
        }
        if self.only.is_empty() && self.threads == 2 {
            let many = gained.iter().filter(|&&gain| gain >= GAIN).count();
            verdict.figure("S14", "machine files", &[many as f64]);
        }
        Ok(())
    }
}

impl SimSpeed {
    fn machine_files(&self) -> io::Result<Vec<(String, Machine)>> {
        let dir = self.machines.clone().unwrap_or_else(|| spec::root().join("machines"));
        let paths = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
        let mut all = paths.collect::<io::Result<Vec<PathBuf>>>()?;
        all.retain(|path| path.extension().is_some_and(|kind| kind == "toml"));
        all.sort();
        let named =
            |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let all = all.iter().map(|path| (named(path), path));
        let parsed = all.filter(|(name, _)| wanted(&self.only, name)).map(|(name, path)| {
            let machine = Machine::parse(&std::fs::read_to_string(path)?);
            machine.map(|machine| (name, machine)).map_err(io::Error::other)
        });
        parsed.collect()
    }

    fn speed(&self, machine: &Machine, trace: &[Record], apart: impl Fn() -> bool) -> Speed {
        let mut speed = Speed::default();
        for _ in 0..self.rounds {
            let (own, bare) = against_bare_loop(machine, trace);
            speed.own.push(trace.len() as f64 / own / 1e6);
            speed.ratios.push(own / bare);
        }
        (speed.gains, speed.calm) = self.gains(machine, trace, apart);
        speed
    }

    /// The gains that count, and whether the CPUs were apart around all of them.
    fn gains(
        &self,
        machine: &Machine,
        trace: &[Record],
        apart: impl Fn() -> bool,
    ) -> (Vec<f64>, bool) {
        let (mut calm, mut all, mut before) = (Vec::new(), Vec::new(), apart());
        while calm.len() < self.rounds && all.len() < TRIES * self.rounds {
            let (single, whole) = by_threads(machine, trace, 1);
            let (divided, parts) = by_threads(machine, trace, self.threads);
            let Some(parts) = parts else { break };
            assert_eq!(whole, Some(parts), "counts of {} by threads", machine.name);
            all.push(single / divided);
            let after = apart();
            calm.extend((before && after).then_some(single / divided));
            before = after;
        }
        if calm.is_empty() { (all, false) } else { (calm, true) }
    }
}

/// Whether two CPUs that this process may use share no core now.
fn cpus_are_apart() -> bool {
    let [first, second, ..] = allowed_cpus()[..] else { return false };
    let pair = siblings::measure([first, second]);
    pair.is_some_and(|pair| pair.relation == CpuRelation::Apart)
}

/// How many pairs of runs a gain is of, and in what time.
fn pairs(speed: &Speed) -> String {
    match (speed.gains.len(), speed.calm) {
        (0, _) => "-".to_owned(),
        (count, true) => format!("{count} apart"),
        (count, false) => format!("{count}, never apart"),
    }
}

fn row(verdict: &mut SuiteVerdict, (name, stream): (&str, &str), speed: &Speed) {
    let Spread { median, min, max } = Spread::of(&speed.own);
    verdict.row([
        ("machine", name.into()),
        ("stream", stream.into()),
        ("M/s", round(median)),
        ("min", round(min)),
        ("max", round(max)),
        ("of bare loop", round(Spread::of(&speed.ratios).median)),
        ("gain by threads", Spread::of(&speed.gains).text()),
        ("pairs", pairs(speed).into()),
    ]);
}

fn judge(verdict: &mut SuiteVerdict, stream: &str, speeds: &[(&String, Speed)], is_part: bool) {
    let ratio = |(_, speed): &(&String, Speed)| median(&speed.ratios);
    let slow = |(_, speed): &(&String, Speed)| median(&speed.own);
    let [ratios, speed] = [
        speeds.iter().map(ratio).collect::<Vec<f64>>(),
        speeds.iter().map(slow).collect::<Vec<f64>>(),
    ];
    verdict.is_part = is_part;
    verdict.extreme("S13", stream, |spread| spread.max, &ratios);
    verdict.extreme("S13", &format!("slowest on {stream}"), |spread| spread.min, &speed);
    verdict.is_part = false;
    let plain = speeds.iter().find(|(name, _)| *name == PLAIN);
    if let Some((_, plain)) = plain.filter(|_| OF_PLAIN.contains(&stream)) {
        verdict.figure("S1", stream, &plain.ratios);
    }
}

/// CPU time of this thread.
fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn seconds(what: impl FnOnce()) -> f64 {
    let start = thread_seconds();
    what();
    thread_seconds() - start
}

fn system(machine: &Machine) -> System {
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Random(1), None);
    System::new(machine.clone(), frames)
}

/// Seconds of the simulator, and of the loop.
///
/// # Panics
/// If they do not miss as often.
fn against_bare_loop(machine: &Machine, trace: &[Record]) -> (f64, f64) {
    let mut system = system(machine);
    let own = seconds(|| system.run(0, trace).expect("enough frames"));
    system.check().expect("a sound state");
    let mut bare = Bare::new(machine);
    for (page, frame) in (0..).map(Vpn).zip(&mut bare.table) {
        let at = system.mapping(0, page).map_or(0, |mapping| mapping.frame().0);
        *frame = u32::try_from(at).expect("few frames");
    }
    let other = seconds(|| bare.run(trace));
    // Page tables lie elsewhere in the bare loop.
    if machine.walk.is_none() {
        let report = system.report();
        let missed = |&at: &usize| report.caches[at].1.missed();
        let misses: Vec<u64> = machine.data_path().iter().map(missed).collect();
        assert_eq!(misses, bare.misses(), "misses of the simulator and of the bare loop");
    }
    (own, other)
}

/// Seconds that pass, and what was counted unless one thread runs it though more were asked for.
fn by_threads(machine: &Machine, trace: &[Record], threads: usize) -> (f64, Option<Report>) {
    let mut system = system(machine);
    let divided = system.use_threads(threads);
    let start = Instant::now();
    for part in trace.chunks(AT_ONCE) {
        system.run(0, part).expect("enough frames");
    }
    let divided = divided.is_ok() && (threads < 2 || system.runs_by_threads());
    system.finish();
    let seconds = start.elapsed().as_secs_f64();
    system.check().expect("a sound state");
    (seconds, divided.then(|| system.report()))
}

#[cfg(test)]
mod tests {
    use huepage_sim::generators::{Mix, MixStream};

    use super::*;

    #[test]
    fn every_machine_file_misses_as_its_bare_loop_and_counts_by_threads_as_by_one() {
        let (only, machines) = (Vec::new(), None);
        // Several blocks of those that threads share.
        let suite = SimSpeed { only, machines, rounds: 1, accesses: 100_000, threads: 2 };
        let files = suite.machine_files().unwrap();
        assert!(files.len() >= 13);
        let trace: Vec<Record> = MixStream::new(Mix::MissHeavy).take(suite.accesses).collect();
        let speeds: Vec<Speed> =
            files.iter().map(|(_, of)| suite.speed(of, &trace, || true)).collect();
        assert!(speeds.iter().all(|speed| speed.ratios.len() == 1));
        assert!(speeds.iter().filter(|speed| !speed.gains.is_empty()).count() >= 10);
        assert!(speeds.iter().all(|speed| speed.calm != speed.gains.is_empty()));
        let (_, machine) = files.iter().find(|(name, _)| name == PLAIN).unwrap();
        let shared = suite.speed(machine, &trace, || false);
        assert_eq!(pairs(&shared), "4, never apart");
    }
}
