//! What recolouring a page takes while the program writes to it: one thread that writes all
//! the time, and everything it has is moved again and again. The agent's own clock counts
//! whole commands, with the copies, the waiting for readers and the faults served in between.

use super::storm::{Storm, slice};
use super::{Verdict, median, round};
use crate::launch::Huepage;

/// Microseconds per page promised.
pub const BOUND: f64 = 1.0;

/// Runs so many slices of `seconds` each; `options` are those of `huepage run`.
pub fn run(huepage: &Huepage, options: &[&str], slices: u64, seconds: f64) -> Verdict {
    let mut verdict = Verdict::new("recolour");
    let (mode, seed) = ("writers".to_owned(), 1);
    let storm = Storm { recolors: 0, slice: seconds, mode, threads: Some(1), mib: 16, seed };
    let mut all = Vec::new();
    for number in 0..slices {
        match slice(huepage, options, &storm, seed + number) {
            Ok(slice) => {
                verdict.require(slice.status == 0, || format!("slice {number}: wrong memory"));
                all.extend(note(&mut verdict, &slice));
            }
            Err(error) => verdict.miss(format!("slice {number} cannot be run: {error}")),
        }
    }
    let overall = median(&all);
    verdict.total("us_per_page", round(overall));
    verdict.require(overall <= BOUND, || format!("{overall:.2} us per page is above {BOUND}"));
    verdict
}

/// A row; gives microseconds per page by the clock.
fn note(verdict: &mut Verdict, slice: &super::storm::Slice) -> Option<f64> {
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
