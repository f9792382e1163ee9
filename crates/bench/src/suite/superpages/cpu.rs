//! CPU time of sensing and deciding, by resident memory: a dense table, of which superpages are
//! soon built, and memory used one page in eight, of which none may be, so that the policy goes on
//! looking. The figure is huepage's own; beside it stands what the kernel says that its process
//! used in all, with building and starting.

use std::io;
use std::process::Command;

use clap::Args;

use super::memory::available_mib;
use super::programs::{Held, held, workload};
use super::target::{LargePages, SuperpageCounts};
use super::{SuperpageBench, SuperpageSetup, with_large_pages};
use crate::figures::{median, round};
use crate::harness::{Bench, Suite, SuiteFigures, interleaved};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// The second pattern: one page in so many.
const EVERY: usize = 8;
/// MiB that must remain available.
const REST: u64 = 1024;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct SuperpageCpu {
    /// Resident memory, in MiB, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "256,1024,4096,16384")]
    pub mib: Vec<usize>,
    /// Seconds of a run
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Repetitions
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How huepage is asked for superpages.
    #[command(flatten)]
    pub wish: SuperpageSetup,
}

/// How memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Dense,
    Sparse,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::Dense => "dense",
            Pattern::Sparse => "one page in 8",
        }
    }

    fn command(self, mib: usize, seconds: f64) -> io::Result<Command> {
        match self {
            Pattern::Dense => workload("gups", "--mib", mib, seconds),
            Pattern::Sparse => {
                let mut command = workload("sparse", "--mib", mib * EVERY, seconds)?;
                command.args(["--every", &EVERY.to_string()]);
                Ok(command)
            }
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
struct Run {
    own: SuperpageCounts,
    resident_mib: f64,
    head_cpu: f64,
}

impl Run {
    /// Per cent of one CPU.
    fn percent(&self) -> f64 {
        100.0 * self.own.policy_cpu_seconds / self.own.seconds
    }
}

impl Suite for SuperpageCpu {
    const FIGURES: SuiteFigures = &[("U6", &["dense", "one page in 8"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| {
            all(verdict, bench, self);
            Ok(())
        })
    }
}

fn all(verdict: &mut SuiteVerdict, bench: SuperpageBench<'_>, setting: &SuperpageCpu) {
    for pattern in [Pattern::Dense, Pattern::Sparse] {
        let mut ends = Vec::new();
        for mib in &setting.mib {
            let available = available_mib().unwrap_or(0);
            if available < *mib as u64 + REST {
                verdict.skip(format!("{mib} MiB: only {available} MiB are available"));
                continue;
            }
            let name = format!("{mib} MiB, {}", pattern.name());
            if let Some(runs) = verdict.attempt(&name, runs(bench, setting, pattern, *mib)) {
                ends.extend(row(verdict, pattern, *mib, &runs));
            }
        }
        figure(verdict, pattern, &ends, setting.mib.len());
    }
}

/// The figure: the worst size, of which none may lack.
fn figure(verdict: &mut SuiteVerdict, pattern: Pattern, percent: &[f64], sizes: usize) {
    if let [first, .., last] = percent {
        verdict.total(&format!("policy CPU grows by, {}", pattern.name()), round(last / first));
    }
    verdict.is_part = percent.len() < sizes;
    verdict.extreme("U6", pattern.name(), |spread| spread.max, percent);
}

fn runs(
    bench: SuperpageBench<'_>,
    setting: &SuperpageCpu,
    pattern: Pattern,
    mib: usize,
) -> io::Result<Vec<Run>> {
    let [runs] = interleaved(setting.rounds, [pattern], |pattern| {
        let command = pattern.command(mib, setting.seconds)?;
        let held: Held<Speed> = held(bench, LargePages::Huepage, &command)?;
        let nothing = || io::Error::other("huepage reported nothing of superpages");
        let own = held.superpages.ok_or_else(nothing)?;
        let resident_mib = held.memory.anonymous_kib as f64 / 1024.0;
        Ok(Run { own, resident_mib, head_cpu: held.head_cpu.unwrap_or(f64::NAN) })
    })?;
    Ok(runs)
}

/// Adds a row; the policy's CPU time in per cent of one CPU, where there was something to decide.
fn row(verdict: &mut SuiteVerdict, pattern: Pattern, mib: usize, runs: &[Run]) -> Option<f64> {
    let middle = |figure: fn(&Run) -> f64| median(runs.iter().map(figure));
    let percent = middle(Run::percent);
    let most = runs.iter().map(Run::percent).fold(f64::NAN, f64::max);
    verdict.row([
        ("memory used", pattern.name().into()),
        ("MiB", mib.into()),
        ("rounds", runs.len().into()),
        ("MiB at the end", round(middle(|run| run.resident_mib))),
        ("seconds", round(middle(|run| run.own.seconds))),
        ("policy CPU %", round(percent)),
        ("policy CPU %, most", round(most)),
        ("building CPU s", round(middle(|run| run.own.construction_cpu_seconds))),
        ("huepage CPU s", round(middle(|run| run.head_cpu))),
        ("built", round(middle(|run| run.own.promoted as f64))),
        ("misses by", runs.first().map_or("-", |run| run.own.source.as_str()).into()),
    ]);
    let deaf = runs.iter().any(|run| run.own.source == "none");
    if deaf {
        verdict.skip("nothing tells huepage of misses here, so there is nothing to decide");
    }
    verdict.require(!percent.is_nan(), || format!("{mib} MiB: huepage reports no time"));
    (!deaf && !percent.is_nan()).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(percent: &[f64], source: &str, sizes: usize) -> SuiteVerdict {
        let (mut verdict, mut found) = (SuiteVerdict::new("superpage-cpu"), Vec::new());
        for percent in percent {
            let source = source.to_owned();
            let own = SuperpageCounts {
                policy_cpu_seconds: percent / 10.0,
                seconds: 10.0,
                source,
                ..SuperpageCounts::default()
            };
            let runs = [Run { own, resident_mib: 1.0, head_cpu: 1.0 }];
            found.extend(row(&mut verdict, Pattern::Dense, 256, &runs));
        }
        figure(&mut verdict, Pattern::Dense, &found, sizes);
        verdict
    }

    #[test]
    fn one_per_cent_is_allowed_at_any_size() {
        let held = verdict(&[0.5, 1.0], "bits", 2);
        assert!(held.missed.is_empty(), "{:?}", held.missed);
        assert_eq!((held.figures[0].figure, held.figures[0].spread), (1.0, Some([0.5, 1.0])));
        let missed = verdict(&[0.5, 1.1], "bits", 2).missed;
        assert_eq!(missed, ["U6 dense: 1.1 % of a CPU is not <= 1 % of a CPU"]);
    }

    #[test]
    fn sizes_that_were_not_measured_and_sensors_that_tell_nothing_give_no_figure() {
        let part = verdict(&[0.5, 1.1], "bits", 3);
        assert_eq!((part.figures.len(), part.missed.len()), (0, 1));
        assert_eq!(verdict(&[f64::NAN], "bits", 1).missed.len(), 1);
        let deaf = verdict(&[0.0], "none", 1);
        assert_eq!((deaf.figures.len(), deaf.skipped.len()), (0, 1));
    }
}
