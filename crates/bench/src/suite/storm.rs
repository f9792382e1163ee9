//! The torture target under a storm: everything it can do to its memory while huepage moves
//! every page again and again. Not one byte may be wrong.
//!
//! It runs in slices, each with another seed, until enough pages have been moved.

use std::io;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, bounded, tool};
use crate::launch::{Huepage, PATIENCE, Report};
use crate::verdict::SuiteVerdict;

/// Times in a slice that the kernel may refuse the target to register memory with a userfaultfd of its own:
/// until huepage has seen the first, and where a page is moved at that moment.
const BUSY: u64 = 8;

/// How a storm is made.
#[derive(Args, Clone, Debug)]
pub struct Storm {
    /// The machine has more to do than it has CPUs: how often memory cannot be registered for a moment is no miss
    #[arg(long)]
    pub loaded: bool,
    /// Moved pages to reach
    #[arg(long = "recolours", default_value_t = 1_000_000)]
    recolors: u64,
    /// Seconds of one slice
    #[arg(long, default_value_t = 20.0)]
    slice: f64,
    /// Mode of the target
    #[arg(long, default_value = "all")]
    mode: String,
    /// Threads per mode; as many as the target likes if not given.
    #[arg(skip)]
    threads: Option<u8>,
    /// Memory per mode, in MiB
    #[arg(long, default_value_t = 16)]
    mib: u16,
    /// Seed of the first slice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Storm {
    /// One thread that writes, for slices of so many seconds.
    pub(super) fn of_one_writer(seconds: f64) -> Storm {
        let (mode, threads) = ("writers".to_owned(), Some(1));
        Storm { loaded: false, recolors: 0, slice: seconds, mode, threads, mib: 16, seed: 1 }
    }
}

impl Suite for Storm {
    const FIGURES: SuiteFigures = &[("P14", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", "50%"]].concat();
        let (mut recolored, mut wrong, mut checks, mut slices) = (0, 0, 0, 0);
        while recolored < self.recolors && verdict.missed.is_empty() {
            let slice = slice(bench.huepage, &options, self, self.seed + slices);
            slices += 1;
            let name = format!("slice {slices}");
            let Some(slice) = verdict.attempt(&name, slice) else { break };
            recolored += slice.report.recolored;
            wrong += slice.found["wrong"].as_u64().unwrap_or(0);
            checks += slice.found["checks"].as_u64().unwrap_or(0);
            note(verdict, slices, &slice, self.loaded);
        }
        verdict.total("recolored", recolored);
        verdict.total("checks", checks);
        verdict.total("wrong", wrong);
        verdict.is_part = recolored < self.recolors;
        verdict.figure("P14", "", &[wrong as f64]);
        Ok(())
    }
}

/// One slice: how it ended, what the target found, what huepage did.
pub(super) struct Slice {
    pub(super) status: i32,
    pub(super) found: Value,
    pub(super) report: Report,
    stderr: String,
}

fn note(verdict: &mut SuiteVerdict, number: u64, slice: &Slice, loaded: bool) {
    verdict.row([
        ("slice", number.into()),
        ("status", slice.status.into()),
        ("seconds", round(slice.found["seconds"].as_f64().unwrap_or(f64::NAN))),
        ("checks", slice.found["checks"].clone()),
        ("wrong", slice.found["wrong"].clone()),
        ("hung", slice.found["hung"].clone()),
        ("busy", slice.found["busy"].clone()),
        ("remaps_refused", slice.found["remaps_refused"].clone()),
        ("recolored", slice.report.recolored.into()),
        ("faults", slice.report.faults_served.into()),
        ("compliance", round(slice.report.compliance.share)),
        ("left_alone", slice.report.left_alone.clone()),
    ]);
    eprintln!("slice {number}: status {}, {} moved", slice.status, slice.report.recolored);
    let right = slice.status == 0 && slice.found["wrong"] == 0;
    verdict.require(right, || {
        let said: Vec<&str> = slice.stderr.lines().rev().take(5).collect();
        format!("slice {number}: status {}, {}: {}", slice.status, slice.found, said.join(" | "))
    });
    let refused = |what: &str| slice.found[what].as_u64();
    verdict.require(loaded || refused("busy").is_some_and(|times| times <= BUSY), || {
        format!("slice {number}: registering memory was refused {:?} times", refused("busy"))
    });
    verdict.require(refused("remaps_refused") == Some(0), || {
        format!("slice {number}: mremap was refused {:?} times", refused("remaps_refused"))
    });
    verdict.require(slice.report.recolored > 0, || format!("slice {number}: no page was moved"));
}

pub(super) fn slice(
    huepage: &Huepage,
    options: &[&str],
    storm: &Storm,
    seed: u64,
) -> std::io::Result<Slice> {
    let report = tempfile::NamedTempFile::new()?;
    let mut target = Command::new(tool("huepage-torture")?);
    target.args([&storm.mode, "--seconds", &storm.slice.to_string()]);
    target.args(["--mib", &storm.mib.to_string(), "--seed", &seed.to_string()]);
    target.args(storm.threads.map(|n| format!("--threads={n}")));
    let path = report.path().to_string_lossy();
    let options = ["--storm", "--report", &path].into_iter().chain(options.iter().copied());
    let limit = PATIENCE + Duration::from_secs_f64(storm.slice);
    let end = bounded(&mut huepage.run(options, &target), limit)?;
    Ok(Slice {
        status: if end.hung { -1 } else { end.status },
        found: end.json().unwrap_or_default(),
        report: serde_json::from_slice(&std::fs::read(report.path())?).unwrap_or_default(),
        stderr: end.err,
    })
}
