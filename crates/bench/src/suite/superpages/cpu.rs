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
use crate::harness::{Bench, Suite, interleaved};
use crate::superpages::pace::Speed;
use crate::verdict::SuiteVerdict;

/// Promised, in per cent of one CPU.
pub const PERCENT: f64 = 1.0;
/// For resident memory up to this, in MiB.
pub const UP_TO: usize = 4096;
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
            Pattern::Dense => "all of it",
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
            match runs(bench, setting, pattern, *mib) {
                Ok(runs) => ends.push(row(verdict, pattern, *mib, &runs)),
                Err(error) => verdict.miss(format!("{mib} MiB, {}: {error}", pattern.name())),
            }
        }
        if let (Some(first), Some(last)) = (ends.first(), ends.last()) {
            verdict.total(&format!("policy CPU grows by, {}", pattern.name()), round(last / first));
        }
    }
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

/// Adds a row and judges it; gives the policy's CPU time per second.
fn row(verdict: &mut SuiteVerdict, pattern: Pattern, mib: usize, runs: &[Run]) -> f64 {
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
    // Written so that what is no number does not hold.
    let holds = mib > UP_TO || percent <= PERCENT;
    verdict.require(holds, || format!("{mib} MiB, {}: {percent:.2} % of a CPU", pattern.name()));
    percent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(mib: usize, policy_cpu_seconds: f64) -> usize {
        let own =
            SuperpageCounts { policy_cpu_seconds, seconds: 10.0, ..SuperpageCounts::default() };
        let runs = [Run { own, resident_mib: 1.0, head_cpu: 1.0 }];
        let mut verdict = SuiteVerdict::new("superpage-cpu");
        row(&mut verdict, Pattern::Dense, mib, &runs);
        verdict.missed.len()
    }

    #[test]
    fn one_per_cent_is_allowed_up_to_four_gibibytes() {
        assert_eq!((missed(4096, 0.1), missed(4096, 0.11), missed(16384, 0.2)), (0, 1, 0));
        assert_eq!(missed(256, f64::NAN), 1);
    }
}
