//! What recolouring a page takes while the program writes to it: one thread that writes all
//! the time, and everything it has is moved again and again. The agent's own clock counts
//! whole commands, with the copies, the waiting for readers and the faults served in between.

use std::io;

use clap::Args;

use super::noise::{BackgroundLoad, Noise};
use super::storm::{Storm, slice};
use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, wanted};
use crate::verdict::SuiteVerdict;

/// What else runs.
const LOADS: [(&str, BackgroundLoad); 2] =
    [("idle", BackgroundLoad::Idle), ("loaded", BackgroundLoad::Walk)];

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct Recolour {
    /// Slices
    #[arg(long, default_value_t = 5)]
    slices: u64,
    /// Seconds of one slice
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Only this: idle, or loaded by a random walk over 16 MiB on the last CPU
    #[arg(long)]
    only: Vec<String>,
}

impl Suite for Recolour {
    const FIGURES: SuiteFigures = &[("P13", &["idle", "loaded"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", "50%"]].concat();
        let storm = Storm::of_one_writer(self.seconds);
        for (of, load) in LOADS.into_iter().filter(|(of, _)| wanted(&self.only, of)) {
            let _noise = Noise::start(load)?;
            let mut all = Vec::new();
            for number in 0..self.slices {
                let name = format!("{of}, slice {number}");
                let slice = slice(bench.huepage, &options, &storm, 1 + number);
                let Some(slice) = verdict.attempt(&name, slice) else { continue };
                verdict.require(slice.status == 0, || format!("{name}: wrong memory"));
                all.extend(note(verdict, of, &slice));
            }
            verdict.require(!all.is_empty(), || format!("{of}: no page was moved"));
            verdict.figure("P13", of, &all);
        }
        Ok(())
    }
}

/// A row; gives microseconds per page by the clock.
fn note(verdict: &mut SuiteVerdict, of: &str, slice: &super::storm::Slice) -> Option<f64> {
    let engine = slice.report.rest.get("processes")?.get(0)?;
    let pages = engine["recolored"].as_f64().filter(|pages| *pages > 0.0)?;
    let us = |place: usize| engine["recolor_seconds"][place].as_f64().map(|s| s * 1e6 / pages);
    let (wall, cpu) = (us(0)?, us(1)?);
    verdict.row([
        ("load", of.into()),
        ("pages", engine["recolored"].clone()),
        ("us_per_page", round(wall)),
        ("cpu_us_per_page", round(cpu)),
        ("checks", slice.found["checks"].clone()),
        ("wrong", slice.found["wrong"].clone()),
    ]);
    Some(wall)
}
