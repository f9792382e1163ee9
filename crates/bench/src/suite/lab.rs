//! The lab: a victim that fits its share of an emulated machine's last level beside streams on the other
//! processors, alone, beside them, and each in its share. What is counted is exact, so one run of a case says all.
//! A case tells of the shares only where the streams ruin the victim without them and are as busy with them; it is
//! missed otherwise.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, chosen, progress, word};
use crate::launch::bounded;
use crate::spec::root;
use crate::sys::{MappedMemory, children_cpu};
use crate::verdict::SuiteVerdict;
use crate::walk::LINE;

/// Misses of the last level per access of the victim alone, at most: it fits.
const ALONE: f64 = 0.001;
/// The same beside the streams, at least: they take all of the cache.
const BESIDE: f64 = 0.9;
/// By how much the accesses of the streams for each of the victim's may differ with huepage.
const AS_BUSY: f64 = 1.2;
/// Three guests take minutes, on a busy machine more.
const LONGEST: Duration = Duration::from_secs(3 * 3600);
/// KiB of a stream: twice the last level.
const STREAM_KIB: usize = 16 << 10;

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct LabShares {
    /// Only this case; may be repeated
    #[arg(long)]
    only: Vec<LabCase>,
    /// The kernel, as `huepage lab --kernel` takes it
    #[arg(long)]
    kernel: Option<String>,
}

/// A machine with programs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LabCase {
    /// Colours are bits of the address, 2 processors
    Plain2,
    /// Slices are chosen by a hash, 2 processors
    Hashed2,
    /// Colours are bits of the address, 4 processors
    Plain4,
    /// Slices are chosen by a hash, 4 processors
    Hashed4,
}

impl LabCase {
    const fn machine(self) -> &'static str {
        match self {
            LabCase::Plain2 | LabCase::Plain4 => "lab-4-core.toml",
            LabCase::Hashed2 | LabCase::Hashed4 => "lab-hashed.toml",
        }
    }

    /// KiB of the victim, and the shares, its own first. What the guest's kernel keeps for each processor lies one way
    /// of the last level apart, so that each processor takes a way of the same sets: the victim leaves as many ways of
    /// its share as there are processors.
    const fn programs(self) -> (usize, &'static str) {
        match self {
            LabCase::Plain2 => (5120, "75%,25%"),
            LabCase::Hashed2 => (5120, "85%,15%"),
            LabCase::Plain4 => (2560, "49%,17%,17%,17%"),
            LabCase::Hashed4 => (2560, "55%,15%,15%,15%"),
        }
    }
}

/// A program of the lab: it runs for ever and reads no clock, whose page all programs have in common.
#[derive(Args, Clone, Debug)]
pub struct LabTarget {
    /// Reads from end to end, in place of lines far from each other
    #[arg(long)]
    stream: bool,
    /// Its memory
    #[arg(long)]
    kib: usize,
}

/// Is such a program. It goes through all of its lines before it comes to one again.
///
/// # Errors
/// When there is not enough memory, or when it does not hold what was written.
pub fn target(target: &LabTarget) -> io::Result<()> {
    let area = MappedMemory::private((target.kib / 4).max(1))?;
    area.advise(0..area.pages(), libc::MADV_NOHUGEPAGE)?;
    let words = area.words();
    words.iter().step_by(LINE).for_each(|word| word.store(0, Relaxed));
    let step = if target.stream { LINE } else { far(words.len() / LINE) * LINE };
    // One access a turn and nothing else in memory: processors of the lab take turns by accesses, so that a
    // stream that had others besides would leave the victim in peace. No address hangs on what was read before: the
    // emulator would wait for the memory of the machine below at each, and its speed would be that memory's.
    let mut at = 0;
    while words[at].load(Relaxed) == 0 {
        at += step;
        at -= if at >= words.len() { words.len() } else { 0 };
    }
    Err(io::Error::other("its memory holds what it never wrote"))
}

/// A step through so many lines that comes to all of them, each far from the last.
fn far(lines: usize) -> usize {
    let shares_no_factor = |step: &usize| gcd(*step, lines) == 1;
    // The golden section, so that no few steps in a row lead back to the same place.
    (lines * 618 / 1000..lines).find(shares_no_factor).unwrap_or(1)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What the figures are of.
const OF: &[&str] = &["plain2", "hashed2", "plain4", "hashed4"];

impl Suite for LabShares {
    const FIGURES: SuiteFigures = &[("L1", OF), ("L2", OF), ("L3", OF), ("L5", OF)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        for case in chosen(&self.only) {
            progress(&format!("{}: three guests", word(case)));
            let before = children_cpu();
            let said = self.run(case, bench)?;
            let cpu = children_cpu() - before;
            match Found::of(&said) {
                Some(found) => found.note(case, cpu, verdict),
                None => verdict.miss(format!("{}: not all columns: {said}", word(case))),
            }
        }
        Ok(())
    }
}

impl LabShares {
    /// What the lab says of a case.
    fn run(&self, case: LabCase, bench: Bench<'_>) -> io::Result<Value> {
        let (kib, shares) = case.programs();
        let own = std::env::current_exe()?;
        let mut command = bench.huepage.command(["lab", "--json", "--speed", "--shares", shares]);
        command.arg("--machine").arg(machine(case.machine()));
        self.kernel.iter().for_each(|kernel| _ = command.arg("--kernel").arg(kernel));
        for number in 0..shares.split(',').count() {
            let program = if number == 0 {
                format!("{} lab-target --kib {kib}", own.display())
            } else {
                format!("{} lab-target --stream --kib {STREAM_KIB}", own.display())
            };
            command.args(["--on", &number.to_string(), &program]);
        }
        bounded(command.args(bench.options), LONGEST)?.json()
    }
}

/// The path of a machine file.
pub(super) fn machine(name: &str) -> PathBuf {
    root().join("machines").join(name)
}

/// What was found of the victim, in the columns alone, beside and with huepage.
struct Found {
    misses: [f64; 3],
    /// Of its lines that were asked for at the last level, those not found.
    missed_beside: f64,
    /// Its lines that the streams evicted, beside them and with huepage.
    evicted: [f64; 2],
    /// Accesses of the streams for each of its own with huepage, over the same without.
    busy: f64,
    unsettled: Option<String>,
    accesses: f64,
    /// Millions of accesses in a CPU second of the emulator, in all guests.
    speed: f64,
}

impl Found {
    fn of(said: &Value) -> Option<Found> {
        let columns = said["columns"].as_array().filter(|columns| columns.len() == 3)?;
        let streams = said["cpus"].as_u64()? - 1;
        let victim = |column: usize| &columns[column]["programs"][0];
        let misses = |column: usize| victim(column)["miss_share"].as_f64();
        let over_streams = |values: &Value, one: &dyn Fn(&Value) -> Option<f64>| {
            let values = values.as_array()?.get(1..=usize::try_from(streams).ok()?)?;
            values.iter().map(one).sum::<Option<f64>>()
        };
        let intensity = |program: &Value| program["intensity"].as_f64();
        let busy = |column: usize| over_streams(&columns[column]["programs"], &intensity);
        let evicted =
            |column: usize| over_streams(&columns[column]["evictions"][0], &Value::as_f64);
        let last = victim(1)["levels"].as_array()?.last()?;
        let sum = |what: &str| -> Option<f64> {
            columns.iter().map(|column| column["speed"][what].as_f64()).sum()
        };
        Some(Found {
            speed: sum("accesses")? / sum("emulator_cpu_seconds")?.max(1e-9) / 1e6,
            misses: [misses(0)?, misses(1)?, misses(2)?],
            missed_beside: last["misses"].as_f64()? / last["requests"].as_f64()?.max(1.0),
            evicted: [evicted(1)?, evicted(2)?],
            busy: busy(2)? / busy(1)?,
            unsettled: columns[2]["unsettled"].as_str().map(str::to_owned),
            accesses: columns.iter().filter_map(|column| column["accesses"].as_f64()).sum(),
        })
    }

    /// What speaks against a comparison.
    fn flaw(&self) -> Option<String> {
        let [alone, ..] = self.misses;
        let even = (1.0 / AS_BUSY..=AS_BUSY).contains(&self.busy);
        let flaws = [
            (alone >= ALONE).then(|| format!("{:.3} % misses alone", alone * 100.0)),
            (self.missed_beside <= BESIDE)
                .then(|| format!("only {:.1} % missed beside", self.missed_beside * 100.0)),
            (self.evicted[0] <= 0.0).then(|| "the streams evict nothing".to_owned()),
            (!even).then(|| format!("streams {:.2} times as busy with huepage", self.busy)),
            self.unsettled.clone(),
        ];
        flaws.into_iter().flatten().next()
    }

    /// A row, the figures, and what is missed.
    fn note(&self, case: LabCase, cpu: f64, verdict: &mut SuiteVerdict) {
        let name = word(case);
        let percent = self.misses.map(|share| share * 100.0);
        verdict.row([
            ("case", name.as_str().into()),
            ("alone_percent", round(percent[0])),
            ("beside_percent", round(percent[1])),
            ("with_percent", round(percent[2])),
            ("evicted_beside", round(self.evicted[0])),
            ("evicted_with", round(self.evicted[1])),
            ("busy", round(self.busy)),
            ("million_accesses", round(self.accesses / 1e6)),
            ("cpu_seconds", round(cpu)),
            ("million_accesses_per_second", round(self.speed)),
        ]);
        if let Some(flaw) = self.flaw() {
            return verdict.miss(format!("{name} says nothing of the shares: {flaw}"));
        }
        let figures =
            [("L1", percent[2]), ("L2", self.evicted[1]), ("L3", cpu), ("L5", self.speed)];
        for (id, figure) in figures {
            verdict.figure(id, &name, &[figure]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::far;

    #[test]
    fn steps_come_to_all_lines() {
        for lines in [1, 2, 3, 64, 1000, 40960, 81920] {
            let mut seen = vec![false; lines];
            (0..lines).for_each(|step| seen[step * far(lines) % lines] = true);
            assert!(seen.iter().all(|seen| *seen), "{lines}");
        }
    }
}
