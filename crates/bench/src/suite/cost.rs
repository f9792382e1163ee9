//! What huepage costs when it is free to use all colours: paired runs, native and confined in
//! turns, the ratio of each pair, and the median over the pairs.
//!
//! The program's time is taken from exec to exit, as reported; gathering frames comes before
//! it and is listed apart. Pairs alternate in order, so that drift hits both sides alike.

use std::io;

use clap::Args;

use super::programs::selected;
use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Suite, SuiteFigures, interleaved};
use crate::launch::{self, Huepage};
use crate::programs::ReadyProgram;
use crate::verdict::SuiteVerdict;

/// What is compared.
#[derive(Args, Clone, Debug)]
pub struct Cost {
    /// Only this program; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Pairs of runs per program
    #[arg(long, default_value_t = 5)]
    pairs: usize,
}

impl Suite for Cost {
    const FIGURES: SuiteFigures = &[("P11", &[""]), ("P12", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", "100%", "--wait"]].concat();
        let mut medians = Vec::new();
        for program in selected(&self.only) {
            eprintln!("{} ...", program.name);
            let ratios = match program.prepare(bench.dir) {
                Ok(ready) => one(verdict, bench.huepage, &options, &ready, self.pairs),
                Err(error) => {
                    verdict.skip(format!("{}: {error}", program.name));
                    continue;
                }
            };
            if ratios.is_empty() {
                verdict.miss(format!("{}: no pair could be measured", program.name));
            } else if program.allocating {
                verdict.figure("P12", "", &ratios);
            } else {
                medians.push(median(&ratios));
            }
        }
        verdict.is_part = !self.only.is_empty() || !verdict.skipped.is_empty();
        verdict.figure("P11", "", &medians);
        Ok(())
    }
}

/// The pairs of one program; gives their ratios.
fn one(
    verdict: &mut SuiteVerdict,
    huepage: &Huepage,
    options: &[&str],
    ready: &ReadyProgram,
    pairs: usize,
) -> Vec<f64> {
    let (mut ratios, mut cpu, mut natives, mut gathers) = (vec![], vec![], vec![], vec![]);
    // The first native run warms the page cache and is not counted.
    let _ = launch::native(ready);
    let runs = interleaved(pairs, [false, true], |confined| {
        let run = || launch::confined(huepage, options, ready);
        Ok(if confined { run() } else { launch::native(ready) }.ok())
    });
    let [natively, under] = runs.unwrap_or_default();
    for (native, confined) in natively.into_iter().zip(under) {
        let (Some(native), Some(confined)) = (native, confined) else { continue };
        let Some(report) = &confined.report else { continue };
        if confined.difference(&native).is_none() {
            ratios.push(report.program_seconds / native.end.wall);
            cpu.push(confined.cpu / native.cpu);
            natives.push(native.end.wall);
            gathers.push(report.gather_seconds);
        }
    }
    let ratio = Spread::of(&ratios);
    verdict.row([
        ("program", ready.program.name.into()),
        ("pairs", ratios.len().into()),
        ("native_s", round(median(&natives))),
        ("ratio", round(ratio.median)),
        ("ratio_min", round(ratio.min)),
        ("ratio_max", round(ratio.max)),
        ("cpu_ratio", round(median(&cpu))),
        ("gather_s", round(median(&gathers))),
    ]);
    ratios
}
