//! How soon a program is fast: random updates from the program's start, slice by slice, until
//! their speed is nine tenths of what it is in the end. khugepaged takes minutes for as much, so
//! it is given seconds of its own, and is measured against the speed with the kernel's large
//! pages from the start: its own last speed may be far from the end.

use std::io;

use clap::Args;

use super::programs::{Held, held, workload};
use super::target::LargePages;
use super::{SuperpageBench, SuperpageSetup, with_large_pages};
use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Suite, SuiteFigures, interleaved, progress, word};
use crate::superpages::pace::{SLICE, Speed};
use crate::verdict::SuiteVerdict;

/// The share of the final speed.
const SHARE: f64 = 0.9;
/// So many slices in a row tell of a speed: one alone may be noise.
const WINDOW: usize = 3;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct SuperpageStart {
    /// Size of the table, in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// Seconds of a run
    #[arg(long, default_value_t = 12.0)]
    pub seconds: f64,
    /// Seconds of khugepaged's run, which is made once; 0 leaves it out
    #[arg(long, default_value_t = 420.0)]
    pub khugepaged: f64,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// How huepage is asked for superpages.
    #[command(flatten)]
    pub wish: SuperpageSetup,
}

/// Seconds from the start until the speed is `SHARE` of a final one, which is its own if none is given; if it ever is.
fn until(speed: &Speed, of: Option<f64>) -> Option<f64> {
    let of = of.unwrap_or(speed.steady);
    let windows = speed.slices.windows(WINDOW);
    let at = windows.clone().position(|window| median(window) >= SHARE * of)?;
    Some(speed.setup_seconds + (at + 1) as f64 * SLICE.as_secs_f64())
}

impl Suite for SuperpageStart {
    const FIGURES: SuiteFigures = &[("U4", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| measure(verdict, bench, self))
    }
}

fn gups(
    bench: SuperpageBench<'_>,
    setting: &SuperpageStart,
    variant: LargePages,
    seconds: f64,
) -> io::Result<Held<Speed>> {
    held(bench, variant, &workload("gups", "--mib", setting.mib, seconds)?)
}

fn measure(
    verdict: &mut SuiteVerdict,
    bench: SuperpageBench<'_>,
    setting: &SuperpageStart,
) -> io::Result<()> {
    let variants = [LargePages::Never, LargePages::Always, LargePages::Huepage];
    let all = interleaved(setting.rounds, variants, |variant| {
        gups(bench, setting, variant, setting.seconds)
    })?;
    let always = median(all[1].iter().map(|held| held.found.steady));
    for (variant, runs) in variants.into_iter().zip(&all) {
        row(verdict, variant, runs, None, always);
    }
    // Without large pages it would be as fast as it ever is at once.
    let built = median(all[2].iter().map(|held| held.memory.huge_mib())) > 0.0;
    verdict.require(built, || "no superpage was built".to_owned());
    let seconds: Vec<f64> = all[2].iter().filter_map(|held| until(&held.found, None)).collect();
    verdict.require(!seconds.is_empty(), || "it is never fast".to_owned());
    verdict.figure("U4", "", &seconds);
    if setting.khugepaged > 0.0 {
        progress("khugepaged");
        let held = gups(bench, setting, LargePages::Khugepaged, setting.khugepaged)?;
        row(verdict, LargePages::Khugepaged, &[held], Some(always), always);
    }
    Ok(())
}

/// The row of a variant, whose runs are fast when they come near a final speed: their own if none is given.
fn row(
    verdict: &mut SuiteVerdict,
    variant: LargePages,
    runs: &[Held<Speed>],
    of: Option<f64>,
    always: f64,
) {
    let speed = median(runs.iter().map(|held| held.found.steady));
    let seconds: Vec<f64> = runs.iter().filter_map(|held| until(&held.found, of)).collect();
    verdict.row([
        ("large pages", word(variant).into()),
        ("rounds", runs.len().into()),
        ("seconds until fast", Spread::of(&seconds).text()),
        ("not fast", (runs.len() - seconds.len()).into()),
        ("updates per second", round(speed)),
        ("of always", round(speed / always)),
        ("MiB in large", round(median(runs.iter().map(|held| held.memory.huge_mib())))),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_fast_has_the_set_up_in_it_and_no_noise() {
        let slices = vec![10.0, 99.0, 10.0, 10.0, 95.0, 99.0, 101.0, 100.0];
        let speed = Speed { setup_seconds: 0.5, slices, ..Speed::default() };
        // The first window of which most are fast begins with the fourth slice.
        assert!((until(&speed, Some(100.0)).unwrap() - 0.9).abs() < 1e-9);
        assert_eq!(until(&speed, Some(200.0)), None);
    }
}
