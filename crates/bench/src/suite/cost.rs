//! What huepage costs when it is free to use all colours: paired runs, native and confined in
//! turns, the ratio of each pair, and the median over the pairs.
//!
//! The program's time is taken from exec to exit, as reported; gathering frames comes before
//! it and is listed apart. Pairs alternate in order, so that drift hits both sides alike.

use std::io;

use clap::Args;

use super::programs::selected;
use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Suite, interleaved};
use crate::launch::{self, Huepage};
use crate::programs::{BenchProgram, ReadyProgram};
use crate::verdict::SuiteVerdict;

/// Median slow-down promised over the programs.
pub const BOUND: f64 = 1.01;
/// Slow-down promised for a program that does little but allocate.
pub const BOUND_ALLOCATING: f64 = 1.10;

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
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", "100%", "--wait"]].concat();
        let mut medians = Vec::new();
        for program in selected(&self.only) {
            eprintln!("{} ...", program.name);
            let ratio = match program.prepare(bench.dir) {
                Ok(ready) => one(verdict, bench.huepage, &options, &ready, self.pairs),
                Err(error) => {
                    verdict.skip(format!("{}: {error}", program.name));
                    continue;
                }
            };
            judge(verdict, program, ratio);
            if !program.allocating {
                medians.push(ratio);
            }
        }
        if !medians.is_empty() {
            let overall = median(&medians);
            verdict.total("median", round(overall));
            verdict.figure("P11", "", &medians);
            verdict.require(overall <= BOUND, || format!("median {overall:.4} is above {BOUND}"));
        }
        Ok(())
    }
}

fn judge(verdict: &mut SuiteVerdict, program: &BenchProgram, ratio: f64) {
    let (name, bound) = (program.name, BOUND_ALLOCATING);
    if !ratio.is_finite() {
        verdict.miss(format!("{name}: no pair could be measured"));
    } else if program.allocating {
        verdict.figure("P12", "", &[ratio]);
        verdict.require(ratio <= bound, || format!("{name}: {ratio:.4} is above {bound}"));
    }
}

/// The pairs of one program; gives the median ratio.
fn one(
    verdict: &mut SuiteVerdict,
    huepage: &Huepage,
    options: &[&str],
    ready: &ReadyProgram,
    pairs: usize,
) -> f64 {
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
    ratio.median
}
