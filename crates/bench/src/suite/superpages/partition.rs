//! Superpages of a program in a partition: random updates in a share of the colours, without
//! superpages, with those that the partition allows, and with those that pay for leaving it. Beside the speed stands how
//! many of its pages still lie in its colours, as huepage itself reports: superpages take it out.
//!
//! Judged: superpages that leave it are worth it, and who respects the partition stays in it. There nothing
//! is built, so its speed tells of nothing but noise. All of it in probed colours and in declared ones, if the options
//! for huepage do not say how colours are known.

use std::io;

use clap::Args;

use super::programs::{Held, held, workload};
use super::target::LargePages;
use super::{SuperpageBench, SuperpageSetup, with_large_pages};
use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Suite, SuiteFigures, interleaved};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// Share of pages inside, where the partition is respected.
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

/// How colours are known: what the figures are of, and the option.
const KNOWN: [(&str, &str); 2] =
    [("probed", "--colors-from=probe"), ("declared", "--colors-from=declared")];

/// Speeds by CPU time against those of the same rounds of others.
fn against(own: &[Held<Speed>], other: &[Held<Speed>]) -> Vec<f64> {
    let pairs = own.iter().zip(other);
    pairs.map(|(own, other)| own.found.steady_cpu / other.found.steady_cpu).collect()
}

/// The ways in which colours are known that options leave, each with its options.
fn known<'a>(options: &[&'a str]) -> Vec<(&'static str, Vec<&'a str>)> {
    let is_said = options.iter().any(|option| option.starts_with("--colors-from"));
    // As one word, or as two.
    let is_meant =
        |own: &str| options.iter().any(|said| own == *said || own.ends_with(&format!("={said}")));
    let left = KNOWN.into_iter().filter(|(_, own)| !is_said || is_meant(own));
    let more = |own| if is_said { vec![] } else { vec![own] };
    left.map(|(of, own)| (of, [options, &more(own)].concat())).collect()
}

/// What the figures are of.
const OF: &[&str] = &[KNOWN[0].0, KNOWN[1].0];

impl Suite for SuperpagePartition {
    const FIGURES: SuiteFigures = &[("U10", OF)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| {
            for (of, options) in known(bench.options) {
                let bench = SuperpageBench { options: &options, ..bench };
                let found = all(verdict, bench, self, of);
                verdict.attempt(of, found);
            }
            Ok(())
        })
    }
}

fn all(
    verdict: &mut SuiteVerdict,
    bench: SuperpageBench<'_>,
    setting: &SuperpagePartition,
    of: &str,
) -> io::Result<()> {
    let all = interleaved(setting.rounds, Way::ALL, |way| way.run(bench, setting))?;
    let [plain, respect, benefit] = &all;
    Way::ALL.iter().zip(&all).for_each(|(way, runs)| row(verdict, (of, *way), runs, plain));
    verdict.figure("U10", of, &against(benefit, plain));
    let inside = median(respect.iter().filter_map(|held| held.compliance));
    verdict.require(inside >= INSIDE, || {
        format!("{of} colours: {inside:.3} of the pages are in the partition")
    });
    Ok(())
}

fn row(
    verdict: &mut SuiteVerdict,
    (of, way): (&str, Way),
    runs: &[Held<Speed>],
    plain: &[Held<Speed>],
) {
    let promoted = |held: &Held<Speed>| held.superpages.as_ref().map_or(0, |own| own.promoted);
    verdict.row([
        ("colours", of.into()),
        ("superpages", way.name().into()),
        ("rounds", runs.len().into()),
        ("updates per second", round(median(runs.iter().map(|held| held.found.steady)))),
        ("by CPU time, of none asked for", Spread::of(against(runs, plain)).text()),
        ("built", round(median(runs.iter().map(|held| promoted(held) as f64)))),
        ("MiB in large", round(median(runs.iter().map(|held| held.memory.huge_mib())))),
        ("share inside", round(median(runs.iter().filter_map(|held| held.compliance)))),
    ]);
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryUse;
    use super::*;

    #[test]
    fn rounds_are_compared_with_each_other() {
        let held = |steady_cpu| Held {
            found: Speed { steady_cpu, ..Speed::default() },
            memory: MemoryUse::default(),
            head_cpu: None,
            superpages: None,
            compliance: None,
        };
        let ratios = against(&[2.0, 9.0, 4.0].map(held), &[1.0, 3.0, 4.0].map(held));
        assert_eq!(ratios, [2.0, 3.0, 1.0]);
    }

    #[test]
    fn both_ways_to_know_colours_are_measured_but_where_one_is_asked_for() {
        let of = |options: &[&str]| known(options).iter().map(|(of, _)| *of).collect::<Vec<_>>();
        assert_eq!(of(&["--quiet"]), ["probed", "declared"]);
        assert_eq!(of(&["--colors-from=declared"]), ["declared"]);
        assert_eq!(of(&["--colors-from", "probe", "--quiet"]), ["probed"]);
        assert!(of(&["--colors-from", "pfn"]).is_empty(), "nothing is promised of those");
        assert_eq!(known(&["--quiet"])[0].1, ["--quiet", "--colors-from=probe"]);
    }

    #[test]
    fn only_who_is_asked_to_leaves_the_partition() {
        let options = Way::ALL.map(Way::option);
        assert_eq!(options, ["respect", "respect", "benefit"]);
    }
}
