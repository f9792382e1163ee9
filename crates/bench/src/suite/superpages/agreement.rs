//! Superpages chosen from accessed bits against those chosen from every TLB miss, on the traced
//! programs of the workload library: how much of what either chooses both choose. Nothing runs here
//! but the simulation; no process is looked at, and the machine only says how large its TLB is.
//!
//! The rule for how long, made before anything was measured: the run that hears of every miss goes
//! on for 2 simulated seconds, and then until it has built nothing in the last half of its time, for
//! 8 at most; the one with accessed bits gets the same time. Workloads that keep only a few buffers
//! and the files they scan are left out: there is nothing to choose in them. Pages of files are
//! none of the program's and are not told.

use std::io;

use clap::Args;
use huepage_color::Vpn;
use huepage_linux::sensors::tlb::TlbShape;
use huepage_linux::services::superpages::offline::{
    MissInput, Setting as Run, SuperpageSelection, TraceReplay,
};
use huepage_sim::record::Record;
use huepage_sim::workloads::{FileNumber, WorkloadSpec, WorkloadSpecError, WorkloadStream, find};

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, wanted};
use crate::verdict::SuiteVerdict;

/// Workloads and their sizes, 64 to 256 MiB; of hash-join the table that the hash table is made of,
/// which is 35 times as large.
const WORKLOADS: [(&str, u64); 21] = [
    ("sequential", 128),
    ("random", 128),
    ("chase", 256),
    ("gups", 256),
    ("stream", 192),
    ("matmul", 64),
    ("lu", 64),
    ("cholesky", 64),
    ("gauss", 64),
    ("spmv", 128),
    ("block-tridiagonal", 64),
    ("fft", 128),
    ("tomcatv", 64),
    ("swim", 178),
    ("swim-across", 128),
    ("mgrid", 64),
    ("art", 64),
    ("twolf", 64),
    ("mergesort", 128),
    ("hash-join", 2048),
    ("btree", 128),
];
/// Simulated seconds, at least and at most.
const SECONDS: [f64; 2] = [2.0, 8.0];
/// Rounds times size that a workload may be given.
const WORK: u64 = 1 << 44;

/// What is compared.
#[derive(Args, Clone, Debug)]
pub struct SuperpageAgreement {
    /// Only this workload; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Pages that the TLB holds [default: as many as this machine's]
    #[arg(long)]
    entries: Option<usize>,
    /// Nanoseconds of a TLB miss [default: a rule of thumb for this machine]
    #[arg(long)]
    walk_ns: Option<u64>,
    /// How many times as large as usual the workloads are
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    scale: u64,
    /// What is chosen by chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl SuperpageAgreement {
    fn run(&self) -> Run {
        let known = TlbShape::read();
        let entries = self.entries.map_or(known.entries, |entries| entries.max(4));
        let walk_ns = self.walk_ns.unwrap_or(known.walk_ns).max(1);
        Run::usual(TlbShape { entries, walk_ns, ..known })
    }

    fn workloads(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        WORKLOADS.into_iter().filter(|(name, _)| wanted(&self.only, name))
    }
}

impl Suite for SuperpageAgreement {
    const FIGURES: SuiteFigures = &[("U7", &[""])];

    fn measure(&self, _bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let run = self.run();
        for only in &self.only {
            let known = WORKLOADS.iter().any(|(name, _)| name == only);
            verdict.require(known, || format!("there is no workload `{only}` here"));
        }
        let (mut both, mut any) = (0.0, 0.0);
        for (name, mib) in self.workloads() {
            let found = compare(name, mib * self.scale, &run, self.seed);
            let Some(found) = verdict.attempt(name, found) else { continue };
            let all = (found[0].blocks.len() + found[1].blocks.len()) as f64;
            let share = found[0].agreement(&found[1]);
            // |A and B| = share |A or B|, and both together have |A| + |B| blocks.
            any += all / (1.0 + share);
            both += all * share / (1.0 + share);
            note(verdict, name, &found);
        }
        let overall = if any > 0.0 { both / any } else { 1.0 };
        verdict.total("TLB entries", run.shape.entries);
        verdict.total("ns a miss", run.shape.walk_ns);
        verdict.is_part = verdict.rows.len() < WORKLOADS.len();
        verdict.figure("U7", "", &[100.0 * overall]);
        Ok(())
    }
}

fn note(verdict: &mut SuiteVerdict, name: &str, found: &[SuperpageSelection; 2]) {
    let [exact, sensed] = found;
    let half = |chosen: &SuperpageSelection| chosen.half().map_or(serde_json::Value::Null, round);
    verdict.row([
        ("workload", name.into()),
        ("blocks", exact.resident.into()),
        ("by misses", exact.blocks.len().into()),
        ("by bits", sensed.blocks.len().into()),
        ("agreement", round(exact.agreement(sensed))),
        ("half by misses", half(exact)),
        ("half by bits", half(sensed)),
        ("seconds", round(exact.seconds)),
        ("misses %", round(exact.misses as f64 * 100.0 / exact.accesses.max(1) as f64)),
        ("looks", sensed.looks.into()),
    ]);
}

/// Why a workload was not run.
#[derive(Debug, thiserror::Error)]
enum NotRun {
    /// It cannot have the size.
    #[error(transparent)]
    Spec(#[from] WorkloadSpecError),
    /// It has no thread.
    #[error("no thread for it: {0}")]
    Thread(#[from] std::io::Error),
}

/// What is chosen by misses, and in the same time by accessed bits.
fn compare(name: &str, mib: u64, run: &Run, seed: u64) -> Result<[SuperpageSelection; 2], NotRun> {
    let workload =
        find(name).ok_or_else(|| WorkloadSpecError::Unknown { name: name.to_owned() })?;
    let size = mib << 20;
    let rounds = usize::try_from(WORK / size).unwrap_or(1);
    let spec = WorkloadSpec::new(workload, size, seed, rounds)?;
    let exact = play(spec, TraceReplay::new(*run, MissInput::Misses, seed), |offline| {
        let least = SECONDS[0].max(2.0 * offline.last());
        offline.seconds() >= least.min(SECONDS[1])
    })?;
    let bits = TraceReplay::new(*run, MissInput::AccessedBits, seed);
    let sensed = play(spec, bits, |offline| offline.seconds() >= exact.seconds)?;
    Ok([exact, sensed])
}

/// Plays a workload, again if it ends, until it is done.
fn play(
    spec: WorkloadSpec,
    mut offline: TraceReplay,
    is_done: impl Fn(&TraceReplay) -> bool,
) -> std::io::Result<SuperpageSelection> {
    loop {
        let mut stream = WorkloadStream::start(spec)?;
        while let Some(block) = stream.next_block() {
            block.records.iter().for_each(|record| tell(&mut offline, record));
            if is_done(&offline) {
                return Ok(offline.chosen());
            }
        }
    }
}

#[inline]
fn tell(offline: &mut TraceReplay, record: &Record) {
    if FileNumber::of(record.address).is_none() {
        offline.access(Vpn(record.address.0 / huepage_color::PAGE_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_there_and_takes_its_size() {
        for (name, mib) in WORKLOADS {
            let workload = find(name).unwrap_or_else(|| panic!("{name}"));
            assert!(
                WorkloadSpec::new(
                    workload,
                    mib << 20,
                    1,
                    usize::try_from(WORK / (mib << 20)).unwrap()
                )
                .is_ok()
            );
        }
    }
}
