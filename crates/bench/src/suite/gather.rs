//! How long it takes to bring a running program into a small share: a sixteenth of the colours, probed, for which some
//! sixteen times its memory is looked at. From the command to 99 % of its pages lying inside, by a reader of page
//! maps that shares no code with the engine.

use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use super::superpages::memory::available_mib;
use crate::figures::{Spread, round};
use crate::harness::{Bench, Guard, Suite, SuiteFigures, bounded, progress};
use crate::launch::Huepage;
use crate::observe;
use crate::verdict::SuiteVerdict;

/// Memory of the programs that are promised something, in MiB.
const PROMISED: [u64; 2] = [64, 1024];
/// The share, and how many times a program's memory has to be available for it.
const SHARE: &str = "6.25%";
const TIMES: u64 = 20;
/// The share of its pages that has to be inside.
const INSIDE: f64 = 0.99;
/// Longest wait for that, and for what a program had to be free again.
const LONGEST: Duration = Duration::from_secs(120);
const FREED: Duration = Duration::from_secs(8);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct Gather {
    /// Memory of a program, in MiB; may be repeated
    #[arg(long, default_values_t = PROMISED)]
    mib: Vec<u64>,
    /// Programs of each size
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

impl Suite for Gather {
    const FIGURES: SuiteFigures = &[("P31", &["64 MiB", "1 GiB"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        for &mib in &self.mib {
            if available_mib().is_some_and(|available| available < mib * TIMES) {
                verdict.skip(format!("{mib} MiB: fewer than {} MiB are available", mib * TIMES));
                continue;
            }
            let mut seconds = Vec::with_capacity(self.rounds);
            for turn in 1..=self.rounds {
                progress(&format!("{mib} MiB, {turn} of {}", self.rounds));
                match inside_after(bench.huepage, bench.options, mib)? {
                    Some(took) => seconds.push(took.as_secs_f64()),
                    None => verdict.miss(format!("{mib} MiB: not inside after {LONGEST:?}")),
                }
            }
            note(verdict, mib, &seconds);
        }
        Ok(())
    }
}

fn note(verdict: &mut SuiteVerdict, mib: u64, seconds: &[f64]) {
    let of = Spread::of(seconds);
    verdict.row([
        ("mib", mib.into()),
        ("programs", seconds.len().into()),
        ("median_s", round(of.median)),
        ("least_s", round(of.min)),
        ("most_s", round(of.max)),
    ]);
    for (promised, name) in PROMISED.into_iter().zip(["64 MiB", "1 GiB"]) {
        if promised == mib && !seconds.is_empty() {
            verdict.figure("P31", name, seconds);
        }
    }
}

/// How long it takes until a program of so much memory is inside, if it gets there.
fn inside_after(huepage: &Huepage, with: &[&str], mib: u64) -> io::Result<Option<Duration>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["settled-target", "--mib", &mib.to_string()]).stdin(Stdio::piped());
    let (program, _output) = Guard::ready(&mut command)?;
    let pid = program.0.id();
    let began = Instant::now();
    let mut attach = huepage.command(["attach", "--quiet", "--share", SHARE]);
    bounded(attach.args(with).arg(pid.to_string()), LONGEST)?.done().map_err(io::Error::other)?;
    let mut took = None;
    while took.is_none() && began.elapsed() < LONGEST {
        std::thread::sleep(LOOK);
        took = is_inside(huepage, pid).then(|| began.elapsed());
    }
    drop(program);
    // A supervisor and some GiB of candidates end with it.
    std::thread::sleep(if mib < PROMISED[1] { Duration::from_secs(1) } else { FREED });
    Ok(took)
}

/// What huepage says comes first, since reading all page maps takes time.
fn is_inside(huepage: &Huepage, pid: u32) -> bool {
    let inspection = huepage.inspect(pid).unwrap_or_default();
    let said = inspection["compliance"]["share"].as_f64();
    said >= Some(INSIDE)
        && observe::confined(pid, &inspection).is_some_and(|(count, _)| count.share() >= INSIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_promised_sizes_give_figures() {
        let mut verdict = SuiteVerdict::new("gather");
        note(&mut verdict, 64, &[0.4, 0.6, 0.7]);
        note(&mut verdict, 128, &[0.4]);
        note(&mut verdict, 1024, &[]);
        let given: Vec<_> =
            verdict.figures.iter().map(|own| (own.of.as_str(), own.figure)).collect();
        assert_eq!(given, [("64 MiB", 0.6)]);
        assert_eq!(verdict.missed, ["P31 64 MiB: 0.6 s is not <= 0.5 s"]);
    }
}
