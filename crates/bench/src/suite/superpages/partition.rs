//! Superpages of a program in a partition: random updates in a share of the colours, without
//! superpages, with those that the partition allows, and with those that pay for leaving it. Beside the speed stands how
//! many of its pages still lie in its colours, as huepage itself reports: superpages take it out.
//!
//! Judged: superpages that leave it are worth it, and who respects the partition stays in it. There nothing
//! is built, so its speed tells of nothing but noise.

use std::io;

use clap::Args;

use super::programs::{Held, held, workload};
use super::target::LargePages;
use super::{SuperpageBench, SuperpageSetup, with_large_pages};
use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Suite, progress};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// Promised of the speed in the partition without superpages, where they may leave it.
pub const OF_PLAIN: f64 = 0.99;
/// Promised share of pages inside where the partition is respected.
pub const INSIDE: f64 = 0.99;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct SuperpagePartition {
    /// Size of the table, in MiB
    #[arg(long, default_value_t = 256)]
    pub mib: usize,
    /// Seconds of a run
    #[arg(long, default_value_t = 12.0)]
    pub seconds: f64,
    /// The program's share of the colours
    #[arg(long, default_value = "50%")]
    pub share: String,
    /// Repetitions
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How huepage is asked for superpages.
    #[command(flatten)]
    pub wish: SuperpageSetup,
}

/// How superpages and the partition get along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Respect,
    Benefit,
}

impl Way {
    const ALL: [Way; 3] = [Way::Plain, Way::Respect, Way::Benefit];

    fn name(self) -> &'static str {
        match self {
            Way::Plain => "none asked for",
            Way::Respect => "within the partition",
            Way::Benefit => "where they pay",
        }
    }

    fn option(self) -> &'static str {
        if self == Way::Benefit { "benefit" } else { "respect" }
    }

    /// One run.
    fn run(
        self,
        bench: SuperpageBench<'_>,
        setting: &SuperpagePartition,
    ) -> io::Result<Held<Speed>> {
        let policy = if self == Way::Plain { "off" } else { bench.wish.policy.as_str() };
        let wish = SuperpageSetup { policy: policy.to_owned(), ..bench.wish.clone() };
        let own = ["--share", &setting.share, "--superpages-in-partition", self.option()];
        let options = [bench.options, &own].concat();
        let bench = SuperpageBench { wish: &wish, options: &options, ..bench };
        let command = workload("gups", "--mib", setting.mib, setting.seconds)?;
        held(bench, LargePages::Huepage, &command)
    }
}

/// What came of the runs of one way.
#[derive(Debug, Default)]
struct Runs {
    speeds: Vec<f64>,
    by_cpu: Vec<f64>,
    huge: Vec<f64>,
    inside: Vec<f64>,
    promoted: Vec<f64>,
}

impl Runs {
    fn push(&mut self, held: &Held<Speed>) {
        self.speeds.push(held.found.steady);
        self.by_cpu.push(held.found.steady_cpu);
        self.huge.push(held.memory.huge_kib as f64 / 1024.0);
        self.inside.extend(held.compliance);
        self.promoted.push(held.superpages.as_ref().map_or(0.0, |own| own.promoted as f64));
    }

    /// Speeds by CPU time against those of the same rounds of others.
    fn of(&self, other: &Runs) -> Spread {
        let ratios = self.by_cpu.iter().zip(&other.by_cpu).map(|(own, other)| own / other);
        Spread::of(&ratios.collect::<Vec<f64>>())
    }
}

impl Suite for SuperpagePartition {
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| all(verdict, bench, self))
    }
}

fn all(
    verdict: &mut SuiteVerdict,
    bench: SuperpageBench<'_>,
    setting: &SuperpagePartition,
) -> io::Result<()> {
    let mut all = Way::ALL.map(|way| (way, Runs::default()));
    measure(bench, setting, &mut all)?;
    let [(_, plain), (_, respect), (_, benefit)] = &all;
    for (way, runs) in &all {
        row(verdict, *way, runs, plain);
    }
    let speed = benefit.of(plain).median;
    verdict.require(speed >= OF_PLAIN, || format!("{speed:.3} times the speed without superpages"));
    let inside = median(&respect.inside);
    verdict.require(inside >= INSIDE, || format!("{inside:.3} of the pages are in the partition"));
    Ok(())
}

fn measure(
    bench: SuperpageBench<'_>,
    setting: &SuperpagePartition,
    all: &mut [(Way, Runs); 3],
) -> io::Result<()> {
    for turn in 0..setting.rounds {
        for (way, runs) in all.iter_mut() {
            progress(&format!("round {} of {}: {}", turn + 1, setting.rounds, way.name()));
            runs.push(&way.run(bench, setting)?);
        }
    }
    Ok(())
}

fn row(verdict: &mut SuiteVerdict, way: Way, runs: &Runs, plain: &Runs) {
    verdict.row([
        ("superpages", way.name().into()),
        ("rounds", runs.speeds.len().into()),
        ("updates per second", round(median(&runs.speeds))),
        ("by CPU time, of none asked for", runs.of(plain).text()),
        ("built", round(median(&runs.promoted))),
        ("MiB in large", round(median(&runs.huge))),
        ("share inside", round(median(&runs.inside))),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_each_other() {
        let runs = |by_cpu: &[f64]| Runs { by_cpu: by_cpu.to_vec(), ..Runs::default() };
        let ratio = runs(&[2.0, 9.0, 4.0]).of(&runs(&[1.0, 3.0, 4.0]));
        assert_eq!((ratio.min, ratio.median, ratio.max), (1.0, 2.0, 3.0));
    }

    #[test]
    fn only_who_is_asked_to_leaves_the_partition() {
        let options = Way::ALL.map(Way::option);
        assert_eq!(options, ["respect", "respect", "benefit"]);
    }
}
