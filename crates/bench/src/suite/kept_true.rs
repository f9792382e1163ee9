//! Do colours stay true while a host moves pages? A program of some memory is confined for minutes and
//! asks itself, every minute, which colours some hundred of its pages have: the slow way
//! (`probe::slow_color`), which shares no judgement with what huepage goes by. What huepage says of itself
//! stands beside it: pages found moved, and the CPU time for that.

use std::io::{self, BufRead};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use huepage_color::{CacheLevel, Color, ColorSet};
use huepage_linux::color::probe::{
    OwnPages, ProbeParams, open_reference, quietest_cpu, slow_color,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures};
use crate::host_machine::cache;
use crate::launch::Dialogue;
use crate::mix::Rng;
use crate::verdict::SuiteVerdict;

/// Compliance once the host has been still for a minute.
const STILL: f64 = 0.99;
/// The host is still if fewer pages than this share of all were found moved in a minute.
const FEW: f64 = 0.001;
/// Pages moved in a minute from which on all are measured again, and minutes in which that goes on: at two percent
/// of a CPU it takes a minute, which begins when the burst is seen. The start counts as one.
const BURST: u64 = 2;
const AFTERMATH: u32 = 3;
const MINUTE: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct KeptTrue {
    /// Minutes
    #[arg(long, default_value_t = 30)]
    minutes: u32,
    /// Memory of the program, in MiB
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// Pages tested every minute
    #[arg(long, default_value_t = 300)]
    pages: usize,
    /// The share of the cache
    #[arg(long, default_value = "25%")]
    share: String,
}

/// The program that is confined.
#[derive(Args, Clone, Debug)]
pub struct KeptTarget {
    /// Its memory, in MiB
    #[arg(long)]
    mib: usize,
    /// Pages tested each time that it is told to
    #[arg(long)]
    pages: usize,
}

/// What the program says.
#[derive(Deserialize, Serialize)]
struct Tested {
    pid: u32,
    colors: Vec<u16>,
}

/// What huepage says of itself.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Kept {
    measured: u64,
    moved: u64,
    cpu_seconds: f64,
}

/// Is the program: reads a line, tests some pages, says what it found.
///
/// # Errors
/// When colours cannot be measured.
pub fn target(setting: &KeptTarget) -> io::Result<()> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let params = ProbeParams::for_cache(&cache(CacheLevel::L2)?).map_err(|e| other(&e))?;
    let pages = OwnPages::reserve(setting.mib * 256).map_err(|e| other(&e))?;
    pages.populate(false).map_err(|e| other(&e))?;
    let (pages, mut rng) = (Arc::new(pages), Rng::with_seed(7));
    say(Vec::new())?;
    for line in io::stdin().lock().lines() {
        line?;
        // The reference pages are sorted anew each time: they move as well.
        let set = open_reference(&params, quietest_cpu()).map_err(|e| other(&e))?.set;
        let mut bench = set.bench(quietest_cpu()).map_err(|e| other(&e))?;
        bench.allow_pages(&pages);
        let mut colors = Vec::with_capacity(setting.pages);
        for seed in 0..setting.pages {
            let page = pages.base() + rng.usize(..pages.count()) as u64 * 4096;
            // Beside a machine full of work the slow test errs now and then, too: two of three decide.
            let mut test = |turn: usize| slow_color(&set, &mut bench, page, seed + turn * 1009);
            let (one, two) = (test(0).map_err(|e| other(&e))?, test(1).map_err(|e| other(&e))?);
            let found = if one == two { one } else { test(2).map_err(|e| other(&e))? };
            colors.push(found.0);
        }
        say(colors)?;
    }
    Ok(())
}

fn say(colors: Vec<u16>) -> io::Result<()> {
    let tested = Tested { pid: std::process::id(), colors };
    println!("{}", serde_json::to_string(&tested)?);
    Ok(())
}

impl Suite for KeptTrue {
    const FIGURES: SuiteFigures =
        &[("P24", &["inside", "worst minute", "CPU at rest", "CPU in a burst"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        minutes(verdict, bench, self)
    }
}

fn minutes(verdict: &mut SuiteVerdict, bench: Bench<'_>, setting: &KeptTrue) -> io::Result<()> {
    let mut running = start(bench, setting)?;
    let pid = running.line::<Tested>()?.pid;
    let (mut before, mut calm) = (Kept::default(), 0);
    let mut minutes: Vec<Minute> = Vec::new();
    let (began, mut looked) = (Instant::now(), Instant::now());
    for minute in 1..=setting.minutes {
        std::thread::sleep((MINUTE * minute).saturating_sub(began.elapsed()));
        running.go()?;
        let found = running.line::<Tested>()?;
        let seen = bench.huepage.inspect(pid)?;
        let kept: Kept = serde_json::from_value(seen["engine"]["upkeep"].clone())?;
        let took = looked.elapsed().as_secs_f64();
        looked = Instant::now();
        let (tested, inside) = (found.colors.len(), count_inside(&seen, &found)?);
        calm = if kept.moved - before.moved < BURST { calm + 1 } else { 0 };
        let row = Minute { minute, tested, inside, kept, before, took, calm };
        before = kept;
        row.note(verdict, &seen);
        minutes.push(row);
    }
    running.end()?;
    require_still(verdict, &minutes, setting.mib);
    figures(verdict, &minutes);
    verdict.total("pages measured again by huepage", before.measured);
    verdict.total("pages found moved by the host", before.moved);
    verdict.total("CPU seconds for it", round(before.cpu_seconds));
    verdict.total("share of one CPU", round(before.cpu_seconds / began.elapsed().as_secs_f64()));
    Ok(())
}

/// The program, confined.
fn start(bench: Bench<'_>, setting: &KeptTrue) -> io::Result<Dialogue> {
    let mut target = Command::new(std::env::current_exe()?);
    target.args(["kept-target", "--mib", &setting.mib.to_string()]);
    target.args(["--pages", &setting.pages.to_string()]);
    let options = ["--share", &setting.share];
    Dialogue::start(&mut bench.huepage.run(options.iter().chain(bench.options), &target))
}

/// Of the tested pages, those in the partition's colours.
fn count_inside(seen: &Value, found: &Tested) -> io::Result<usize> {
    let partition = &seen["partition"];
    let of = partition["of"].as_u64().and_then(|of| u16::try_from(of).ok());
    let colors = partition["colors"].as_str().zip(of);
    let (colors, of) = colors.ok_or_else(|| io::Error::other("inspect says no partition"))?;
    let colors = ColorSet::parse(colors, of).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(found.colors.iter().filter(|&&color| color < of && colors.contains(Color(color))).count())
}

/// One minute.
struct Minute {
    minute: u32,
    tested: usize,
    inside: usize,
    kept: Kept,
    before: Kept,
    took: f64,
    /// Minutes since a burst, this one included.
    calm: u32,
}

/// The figures of the promise.
fn figures(verdict: &mut SuiteVerdict, minutes: &[Minute]) {
    let sum = |of: fn(&Minute) -> usize| minutes.iter().map(of).sum::<usize>();
    let (tested, inside) = (sum(|minute| minute.tested), sum(|minute| minute.inside));
    verdict.total("pages tested", tested);
    verdict.total("of these inside", inside);
    let inside = 100.0 * inside as f64 / tested.max(1) as f64;
    let worst = minutes.iter().map(Minute::share).fold(f64::INFINITY, f64::min) * 100.0;
    let most = |at_rest: bool| {
        let those = minutes.iter().filter(|minute| minute.is_at_rest() == at_rest);
        those.map(Minute::cpu).fold(f64::NAN, f64::max) * 100.0
    };
    let found = [
        ("inside", inside),
        ("worst minute", worst),
        ("CPU at rest", most(true)),
        ("CPU in a burst", most(false)),
    ];
    found.into_iter().for_each(|(of, figure)| verdict.worst("P24", of, figure, None));
}

/// Pages lie right where the host was still. What it moves is found as the pages are measured again, so that a minute
/// says it together with the one before and the one after.
fn require_still(verdict: &mut SuiteVerdict, minutes: &[Minute], mib: usize) {
    for [before, minute, after] in minutes.array_windows() {
        let still = [before, minute, after].iter().all(|one| one.is_still(mib));
        verdict.require(!still || minute.share() >= STILL, || {
            let (number, share) = (minute.minute, minute.share());
            format!("minute {number}: {share:.4} inside though nothing moved for a minute")
        });
    }
}

impl Minute {
    fn moved(&self) -> u64 {
        self.kept.moved.saturating_sub(self.before.moved)
    }

    fn is_still(&self, mib: usize) -> bool {
        (self.moved() as f64) < mib as f64 * 256.0 * FEW
    }

    fn is_at_rest(&self) -> bool {
        self.calm >= AFTERMATH
    }

    fn share(&self) -> f64 {
        self.inside as f64 / self.tested.max(1) as f64
    }

    fn cpu(&self) -> f64 {
        (self.kept.cpu_seconds - self.before.cpu_seconds) / self.took
    }

    /// Adds a row, and what it misses.
    fn note(&self, verdict: &mut SuiteVerdict, seen: &Value) {
        let (minute, share, cpu) = (self.minute, self.share(), self.cpu());
        eprintln!(
            "minute {minute}: {:.2} % of {} inside, {} moved, {:.3} % of a CPU",
            100.0 * share,
            self.tested,
            self.moved(),
            100.0 * cpu
        );
        verdict.row([
            ("minute", minute.into()),
            ("tested", self.tested.into()),
            ("inside", round(share)),
            ("by_huepage", seen["compliance"]["share"].clone()),
            ("measured_again", (self.kept.measured - self.before.measured).into()),
            ("moved", self.moved().into()),
            ("cpu_share", round(cpu)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes in which so many of 300 pages were inside, and so many were found moved.
    fn minutes(found: &[(usize, u64)]) -> Vec<Minute> {
        let one = |&(inside, moved): &(usize, u64)| Minute {
            minute: 1,
            tested: 300,
            inside,
            kept: Kept { moved, ..Kept::default() },
            before: Kept::default(),
            took: 60.0,
            calm: 9,
        };
        found.iter().map(one).collect()
    }

    #[test]
    fn a_minute_beside_one_with_moves_says_nothing_of_a_host_that_is_still() {
        let missed = |found: &[(usize, u64)]| {
            let mut verdict = SuiteVerdict::new("kept-true");
            require_still(&mut verdict, &minutes(found), 256);
            verdict.missed.len()
        };
        assert_eq!(missed(&[(300, 0), (293, 0), (300, 0)]), 1);
        assert_eq!(missed(&[(300, 0), (298, 0), (300, 0)]), 0);
        assert_eq!(missed(&[(300, 0), (293, 0), (300, 300)]), 0);
        assert_eq!(missed(&[(300, 300), (293, 0), (300, 0)]), 0);
        assert_eq!(missed(&[(300, 0), (293, 300), (300, 0)]), 0);
    }
}
