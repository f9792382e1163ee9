//! What the residency sensor says of the workload library against the simulator: the same kernel runs
//! as a program that is recorded, and through caches of this machine's geometry, its arrays at the
//! addresses that they had in the program. Compared are the order of pages by how much of them is in
//! the private caches, the miss rate of the L2, and the speed of the program with and without the
//! sensor.
//!
//! Rules made before anything was measured: pages count from ten samples on; where the simulator has
//! all pages alike (the middle 80 % of them within a tenth) their order means nothing and is not
//! judged; of rounds the median counts. The simulated L1 and L2 have LRU and no prefetchers. Pages
//! lie in the colours that they have in the program, found out while it stands still; where colours
//! cannot be told, by chance, evenly in all of them.

use std::collections::HashMap;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use huepage_color::{CacheGeometry, CacheLevel};
use huepage_sim::cache::{
    Cache, Hierarchy, Inclusion, Path as Way, Replacement, Sets, WritePolicy,
};
use huepage_sim::record::AccessKind;
use huepage_sim::workloads::memory::SplitMix;
use huepage_sim::workloads::{FileAccess, ProgramMemory, WorkloadSpec, find};
use serde_json::Value;

use crate::figures::{median, round};
use crate::harness::{Bench, Suite, SuiteFigures, measured, tool, wanted};
use crate::host_machine::cache;
use crate::launch::{Dialogue, Huepage};
use crate::residency::Said;
use crate::suite::frames::{self, FramesByPage};
use crate::verdict::SuiteVerdict;

/// Workloads and their sizes in KiB: around and above private caches, with pages that differ.
const WORKLOADS: [(&str, u64); 8] = [
    ("random", 8 << 10),
    ("btree", 16 << 10),
    ("spmv", 16 << 10),
    ("art", 8 << 10),
    ("twolf", 4 << 10),
    ("hash-join", 256),
    ("mergesort", 8 << 10),
    ("sequential", 32 << 10),
];
/// How far miss rates may be apart, relatively.
const MISSES: f64 = 0.15;
/// The share of a CPU that the promise is about.
const PROMISED: &str = "1%";
/// Samples of a page from which on it counts.
const SURE: u64 = 10;
/// Simulated accesses before anything counts, and those that count.
const ACCESSES: [u64; 2] = [30_000_000, 60_000_000];
/// Accesses between two looks at what is in the simulated caches.
const LOOK: u64 = 200_000;
const PAGE: u64 = 4096;
/// Bytes times rounds that a workload may be given.
const WORK: u64 = 1 << 44;

/// What is compared.
#[derive(Args, Clone, Debug)]
pub struct ResidencyAgreement {
    /// Only this workload; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// How often
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a recording
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// What recording may cost, as shares of one CPU: a row for each, of which 1% is judged
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = PROMISED)]
    shares: Vec<String>,
    /// The CPU that the program runs on
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

impl Suite for ResidencyAgreement {
    const FIGURES: SuiteFigures =
        &[("W5", &["worst rank", "miss rates within 15 %", "worst speed"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let Bench { huepage, .. } = bench;
        let caches = match private_caches() {
            Ok(caches) => caches,
            Err(why) => {
                verdict.skip(why.to_string());
                return Ok(());
            }
        };
        let mut promised = Vec::new();
        for (name, kib) in WORKLOADS.into_iter().filter(|(name, _)| wanted(&self.only, name)) {
            for share in &self.shares {
                let bench = Recordings { setting: self, share, huepage, caches: &caches };
                let rounds: Result<Vec<Round>, String> =
                    (0..self.rounds.max(1)).map(|_| bench.round(name, kib << 10)).collect();
                let Some(rounds) = verdict.attempt(name, rounds) else { continue };
                let agreement = note(verdict, (name, share), &rounds);
                promised.extend((share == PROMISED).then_some(agreement));
            }
        }
        verdict.is_part = promised.len() < WORKLOADS.len();
        figures(verdict, &promised);
        Ok(())
    }
}

/// How sensor and simulator agree of a workload: in the order of pages, in the miss rate, relatively, and how fast it
/// is with the sensor.
struct Agreement {
    ranks: f64,
    off: f64,
    speed: f64,
}

/// The figures over all workloads.
fn figures(verdict: &mut SuiteVerdict, all: &[Agreement]) {
    let of = |figure: fn(&Agreement) -> f64| -> Vec<f64> { all.iter().map(figure).collect() };
    // The order of pages that are all alike means nothing.
    let ranks: Vec<f64> = of(|one| one.ranks).into_iter().filter(|ranks| !ranks.is_nan()).collect();
    verdict.extreme("W5", "worst rank", |spread| spread.min, &ranks);
    let near = all.iter().filter(|one| one.off <= MISSES).count();
    verdict.figure("W5", "miss rates within 15 %", &[100.0 * near as f64 / all.len() as f64]);
    verdict.extreme("W5", "worst speed", |spread| spread.min, &of(|one| one.speed));
}

/// L1 for data and L2 of this machine.
fn private_caches() -> io::Result<[CacheGeometry; 2]> {
    Ok([cache(CacheLevel::L1)?, cache(CacheLevel::L2)?])
}

/// What came of a round.
struct Round {
    /// Order of pages by sensor and simulator; none where the simulator has them alike.
    ranks: Option<f64>,
    pages: usize,
    /// Pages whose colour was told.
    known: usize,
    samples: u64,
    /// Miss rates of both.
    misses: [f64; 2],
    /// Speed with the sensor against without.
    speed: f64,
}

/// Adds a row; what it says over the rounds.
fn note(verdict: &mut SuiteVerdict, (name, share): (&str, &str), rounds: &[Round]) -> Agreement {
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
    let ranks = median(rounds.iter().filter_map(|round| round.ranks));
    let [sensed, simulated] = [of(|round| round.misses[0]), of(|round| round.misses[1])];
    let off = (sensed / simulated.max(1e-9) - 1.0).abs();
    let speed = of(|round| round.speed);
    verdict.row([
        ("workload", name.into()),
        ("of a CPU", share.into()),
        ("pages", rounds.first().map_or(0, |round| round.pages).into()),
        ("of known colour", rounds.first().map_or(0, |round| round.known).into()),
        ("samples", rounds.iter().map(|round| round.samples).sum::<u64>().into()),
        ("ranks", round(ranks)),
        ("misses sensed", round(sensed)),
        ("simulated", round(simulated)),
        ("off by", round(off)),
        ("slower by", round(1.0 - speed)),
    ]);
    Agreement { ranks, off, speed }
}

struct Recordings<'a> {
    setting: &'a ResidencyAgreement,
    share: &'a str,
    huepage: &'a Huepage,
    caches: &'a [CacheGeometry; 2],
}

impl Recordings<'_> {
    fn round(&self, name: &str, size: u64) -> Result<Round, String> {
        let workload = find(name).ok_or("there is no such workload")?;
        let rounds = usize::try_from(WORK / size).unwrap_or(1);
        let spec = WorkloadSpec::new(workload, size, 1, rounds).map_err(|e| e.to_string())?;
        let alone = self.ended(self.program(spec)?)?;
        let program = self.program(spec)?;
        let pid = program.guard.id();
        std::thread::sleep(Duration::from_secs(1));
        let (seen, misses) = self.record(pid).map_err(|e| e.to_string())?;
        let begin = Instant::now();
        let frames = frames::of(pid, &self.caches[1]).unwrap_or_default();
        let still = begin.elapsed();
        let with = self.ended(program)?;
        let known = frames.len();
        let speed = with.speed(still) / alone.speed(Duration::ZERO);
        let mut simulated = Simulated::new(self.caches, with.arrays, frames);
        simulated.run(spec);
        let samples = seen.values().map(|(samples, _)| samples).sum();
        let both = simulated.beside(&seen);
        let (pages, ranks) = (both.len(), ranks(&both));
        let misses = [misses, simulated.misses()];
        Ok(Round { ranks, pages, known, samples, misses, speed })
    }

    fn program(&self, spec: WorkloadSpec) -> Result<Dialogue, String> {
        let mut command = Command::new(tool("huepage-kernel").map_err(|e| e.to_string())?);
        command.arg(spec.to_string()).arg("--cpu").arg(self.setting.cpu.to_string());
        command.arg("--seconds").arg((self.setting.seconds + 3.0).to_string());
        Dialogue::start(&mut command).map_err(|e| format!("huepage-kernel: {e}"))
    }

    /// What a program says until its end.
    fn ended(&self, mut program: Dialogue) -> Result<Ended, String> {
        let mut arrays = Vec::new();
        loop {
            match program.line().map_err(|e| format!("huepage-kernel: {e}"))? {
                Said::Array(start, bytes) => arrays.push((start, bytes)),
                Said::Steady(..) => {}
                Said::Done(work, seconds) => {
                    return Ok(Ended { arrays, work: work as f64, seconds });
                }
            }
        }
    }

    /// Samples of each page with those found, and the estimated miss rate.
    fn record(&self, pid: u32) -> io::Result<(Seen, f64)> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("looks");
        let patience = Duration::from_secs_f64(2.0 * self.setting.seconds + 300.0);
        let mut record = self.huepage.command(["record", "--json", "--cpu", self.share]);
        record.args(["--seconds", &self.setting.seconds.to_string(), "--output"]).arg(&file);
        let recorded: Value = measured(record.arg(pid.to_string()), patience)?;
        let mut replay = self.huepage.command(["replay", "--json", "--policy", "none"]);
        let replayed: Value = measured(replay.arg(&file), patience)?;
        let number = |page: &Value, name: &str| page[name].as_u64().unwrap_or(0);
        let place = |page: &Value| {
            let digits = page["address"].as_str().and_then(|text| text.strip_prefix("0x"));
            digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0) >> 12
        };
        let page = |p: &Value| (place(p), (number(p, "samples"), number(p, "found")));
        let none = |what| move || io::Error::other(what);
        let pages = recorded["pages"].as_array().ok_or_else(none("no pages in the recording"))?;
        let misses = replayed["estimate"]["miss_rate"].as_f64().ok_or_else(none("no estimate"))?;
        Ok((pages.iter().map(page).collect(), misses))
    }
}

/// Samples and found, by page number.
type Seen = HashMap<u64, (u64, u64)>;

/// What a kernel said.
struct Ended {
    arrays: Vec<(u64, u64)>,
    work: f64,
    seconds: f64,
}

impl Ended {
    /// Work a second, if it stood still for so long.
    fn speed(&self, still: Duration) -> f64 {
        self.work / (self.seconds - still.as_secs_f64())
    }
}

/// What is known of a simulated page.
#[derive(Clone, Copy, Default)]
struct SimPage {
    frame: u64,
    looks: u64,
    found: u64,
}

/// The same accesses through caches like those of this machine.
struct Simulated {
    arrays: std::vec::IntoIter<(u64, u64)>,
    hierarchy: Hierarchy,
    way: Way,
    pages: HashMap<u64, SimPage>,
    /// Frames of pages, as far as they are known.
    frames: FramesByPage,
    /// The page of the access before, as most are beside it.
    last: (u64, u64),
    random: SplitMix,
    /// Colours of the L2, in an order by chance; the next pages get them from the end.
    colors: Vec<u64>,
    all_colors: u64,
    accesses: u64,
    requests: u64,
    missed: u64,
}

/// Why a kernel ends early.
struct Enough;

impl Simulated {
    fn new(
        caches: &[CacheGeometry; 2],
        arrays: Vec<(u64, u64)>,
        frames: FramesByPage,
    ) -> Simulated {
        let mut hierarchy = Hierarchy::new();
        let made = caches.each_ref().map(|geometry| {
            let ways = usize::try_from(geometry.ways).unwrap_or(8);
            let lines = usize::try_from(geometry.size_bytes / 64).unwrap_or(512);
            let sets = Sets::new(lines / ways, ways, Replacement::Lru, 1);
            hierarchy.add(Cache::new(sets, 6, WritePolicy::BackAllocate))
        });
        let way = hierarchy.path(&made.map(|cache| (cache, Inclusion::None)));
        Simulated {
            arrays: arrays.into_iter(),
            hierarchy,
            way,
            pages: HashMap::new(),
            frames,
            last: (u64::MAX, 0),
            random: SplitMix::new(1),
            colors: Vec::new(),
            all_colors: (u64::from(caches[1].sets) * 64 / PAGE).max(1),
            accesses: 0,
            requests: 0,
            missed: 0,
        }
    }

    fn run(&mut self, spec: WorkloadSpec) {
        // A kernel has no way to be stopped but this; no message is printed.
        let _ = panic::catch_unwind(AssertUnwindSafe(|| spec.run_in(self)));
    }

    fn frame(&mut self, page: u64) -> u64 {
        if self.last.0 != page {
            let known = self.pages.get(&page).map(|page| page.frame);
            let frame = known.unwrap_or_else(|| {
                let frame = self.frames.get(&page).copied();
                let frame = frame.unwrap_or_else(|| self.fresh_frame());
                self.pages.insert(page, SimPage { frame, ..SimPage::default() });
                frame
            });
            self.last = (page, frame);
        }
        self.last.1
    }

    /// A frame by chance, of a colour that no more pages have than any other.
    fn fresh_frame(&mut self) -> u64 {
        if self.colors.is_empty() {
            self.colors = (0..self.all_colors).collect();
            for at in (1..self.colors.len()).rev() {
                let other = self.random.below(at + 1);
                self.colors.swap(at, other);
            }
        }
        let color = self.colors.pop().unwrap_or(0);
        (self.random.word() >> 28) / self.all_colors * self.all_colors + color
    }

    /// A line of every page, whether it is in a cache.
    fn look(&mut self) {
        for page in self.pages.values_mut() {
            let line = page.frame * PAGE + self.random.below(64) as u64 * 64;
            page.looks += 1;
            let caches = self.hierarchy.caches();
            page.found += u64::from(caches.iter().any(|cache| cache.contains(line)));
        }
    }

    /// Requests to the L2 that miss it.
    fn misses(&self) -> f64 {
        self.missed as f64 / self.requests.max(1) as f64
    }

    /// Shares found by sensor and simulator, of the pages that both know well.
    fn beside(&self, seen: &Seen) -> Vec<[f64; 2]> {
        let known = seen.iter().filter(|(_, (samples, _))| *samples >= SURE);
        let both = known.filter_map(|(page, (samples, found))| {
            let own = self.pages.get(page).filter(|own| own.looks > 0)?;
            Some([*found as f64 / *samples as f64, own.found as f64 / own.looks as f64])
        });
        both.collect()
    }
}

impl ProgramMemory for Simulated {
    fn reserve(&mut self, bytes: u64) -> u64 {
        match self.arrays.next() {
            Some((start, length)) if length == bytes => start,
            // The program was stopped before it came so far.
            _ => panic::resume_unwind(Box::new(Enough)),
        }
    }

    fn touch(&mut self, address: u64, _: u8, kind: AccessKind) {
        let physical = self.frame(address / PAGE) * PAGE + address % PAGE;
        let depth = self.hierarchy.access(&self.way, physical, kind);
        self.accesses += 1;
        let [warm, counted] = ACCESSES;
        if self.accesses > warm {
            self.requests += u64::from(depth > 0);
            self.missed += u64::from(depth > 1);
            if self.accesses.is_multiple_of(LOOK) {
                self.look();
            }
        }
        if self.accesses >= warm + counted {
            panic::resume_unwind(Box::new(Enough));
        }
    }

    fn work(&mut self, _: u32) {}

    fn note(&mut self, _: FileAccess) {}
}

/// Spearman's rank correlation of both; none where the second has all alike.
fn ranks(both: &[[f64; 2]]) -> Option<f64> {
    let mut second: Vec<f64> = both.iter().map(|pair| pair[1]).collect();
    second.sort_by(f64::total_cmp);
    let (low, high) = (second.get(second.len() / 10)?, second.get(second.len() * 9 / 10)?);
    if high - low < 0.1 {
        return None;
    }
    let [a, b] =
        [0, 1].map(|which| places(&both.iter().map(|pair| pair[which]).collect::<Vec<_>>()));
    let middle = (both.len() - 1) as f64 / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - middle) * (y - middle)).sum()
    };
    Some(product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt())
}

/// The place of each value in their order; of equal ones the middle.
fn places(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut places = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let place = before as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|&at| places[at] = place);
        before += equal.len();
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_whatever_the_scale_and_ties_are_shared() {
        assert_eq!(places(&[3.0, 1.0, 3.0, 0.0]), [2.5, 1.0, 2.5, 0.0]);
        let both = |second: fn(f64) -> f64| -> Vec<[f64; 2]> {
            (0..100).map(f64::from).map(|n| [n / 100.0, second(n)]).collect()
        };
        let near = |found: Option<f64>, right: f64| (found.unwrap() - right).abs() < 1e-9;
        assert!(near(ranks(&both(|n| n * n)), 1.0));
        assert!(near(ranks(&both(|n| -n)), -1.0));
        assert_eq!(ranks(&both(|_| 0.5)), None, "all alike");
        assert_eq!(ranks(&[]), None);
    }

    #[test]
    fn the_figures_are_of_the_worst_and_of_how_many_miss_rates_are_near() {
        let agreement = |(ranks, off, speed)| Agreement { ranks, off, speed };
        let all = [(0.9, 0.1, 0.995), (f64::NAN, 0.2, 1.01), (0.7, 0.0, 1.0), (0.8, 0.15, 0.98)];
        let mut verdict = SuiteVerdict::new("residency-agreement");
        figures(&mut verdict, &all.map(agreement));
        let given: Vec<_> = verdict.figures.iter().map(|own| (own.figure, own.spread)).collect();
        assert_eq!(given, [(0.7, Some([0.7, 0.9])), (75.0, None), (0.98, Some([0.98, 1.01]))]);
        assert_eq!(verdict.missed.len(), 3, "{:?}", verdict.missed);
    }

    #[test]
    fn every_workload_is_there_and_takes_its_size() {
        for (name, kib) in WORKLOADS {
            let rounds = usize::try_from(WORK / (kib << 10)).unwrap();
            assert!(WorkloadSpec::new(find(name).unwrap(), kib << 10, 1, rounds).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_simulated_hot_array_is_found_and_a_long_scan_is_not() {
        let l2 = |size: u64| CacheGeometry {
            size_bytes: size,
            ..private_caches().map_or_else(|e| panic!("{e}"), |[_, l2]| l2)
        };
        let caches = [l2(32 << 10), l2(256 << 10)];
        let arrays = vec![(0x1000_0000, 64 << 10), (0x2000_0000, 8 << 20)];
        let mut simulated = Simulated::new(&caches, arrays, FramesByPage::new());
        let [hot, scan] = [64 << 10, 8 << 20].map(|bytes| simulated.reserve(bytes));
        simulated.accesses = ACCESSES[0];
        for at in 0..2_000_000_u64 {
            simulated.touch(hot + at * 64 % (64 << 10), 8, AccessKind::Load);
            if at % 4 == 0 {
                simulated.touch(scan + at * 16 % (8 << 20), 8, AccessKind::Load);
            }
        }
        let share = |address: u64| {
            let page = simulated.pages[&(address / PAGE)];
            page.found as f64 / page.looks as f64
        };
        assert!(share(hot) > 0.9 && share(scan) < 0.2, "{} {}", share(hot), share(scan));
        assert!((0.1..0.4).contains(&simulated.misses()), "{}", simulated.misses());
    }
}
