//! What recolouring a page takes while the program writes to it: one thread that writes all
//! the time, and everything it has is moved again and again. The agent's own clock counts
//! whole commands, with the copies, the waiting for readers and the faults served in between.

use std::io;

use clap::Args;

use super::storm::{Storm, slice};
use crate::figures::{median, round};
use crate::harness::{Bench, Suite};
use crate::verdict::SuiteVerdict;

/// Microseconds per page promised.
pub const BOUND: f64 = 1.0;

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct Recolour {
    /// Slices
    #[arg(long, default_value_t = 5)]
    slices: u64,
    /// Seconds of one slice
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
}

impl Suite for Recolour {
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", "50%"]].concat();
        let storm = Storm::of_one_writer(self.seconds);
        let mut all = Vec::new();
        for number in 0..self.slices {
            match slice(bench.huepage, &options, &storm, 1 + number) {
                Ok(slice) => {
                    verdict.require(slice.status == 0, || format!("slice {number}: wrong memory"));
                    all.extend(note(verdict, &slice));
                }
                Err(error) => verdict.miss(format!("slice {number} cannot be run: {error}")),
            }
        }
        let overall = median(&all);
        verdict.total("us_per_page", round(overall));
        verdict.figure("P13", "idle", &all);
        verdict.require(overall <= BOUND, || format!("{overall:.2} us per page is above {BOUND}"));
        Ok(())
    }
}

/// A row; gives microseconds per page by the clock.
fn note(verdict: &mut SuiteVerdict, slice: &super::storm::Slice) -> Option<f64> {
    let engine = slice.report.rest.get("processes")?.get(0)?;
    let pages = engine["recolored"].as_f64().filter(|pages| *pages > 0.0)?;
    let us = |place: usize| engine["recolor_seconds"][place].as_f64().map(|s| s * 1e6 / pages);
    let (wall, cpu) = (us(0)?, us(1)?);
    verdict.row([
        ("pages", engine["recolored"].clone()),
        ("us_per_page", round(wall)),
        ("cpu_us_per_page", round(cpu)),
        ("checks", slice.found["checks"].clone()),
        ("wrong", slice.found["wrong"].clone()),
    ]);
    Some(wall)
}
