//! The colour probe by itself: CPU time to build the classes of the L2 from nothing and to sort pages, in calls of
//! many, of few and of one, and agreement with a slow exhaustive test; idle and in three kinds of noise.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use huepage_color::{CacheLevel, Color};
use huepage_linux::color::probe::{
    Classifier, LocalBench, OwnPages, PageVerdict, ProbeParams, ReferenceSet, slow_color,
};
use huepage_linux::kernel::process_memory::thread_time;
use serde_json::Value;

use super::noise::{BackgroundLoad, Noise};
use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, chosen, progress, word};
use crate::host_machine::cache;
use crate::verdict::SuiteVerdict;

/// The CPU that is probed on: the stream's.
const CPU: usize = 0;
/// The longest that the classes may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pages of a call that something is promised of.
const CALL: usize = 700;
/// Looks that one answer must be ahead of every other, and looks at most: in noise a single look of either way
/// may be wrong, and the slow one, which takes 10 ms, more often than the fast one.
const LEAD: usize = 2;
const MOST_LOOKS: usize = 15;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct ProbeCost {
    /// Times that the classes are built
    #[arg(long, default_value_t = 5)]
    builds: usize,
    /// Pages that are sorted
    #[arg(long, default_value_t = 16384)]
    pages: usize,
    /// Pages that are tested the slow way, which takes 10 ms each
    #[arg(long, default_value_t = 5600)]
    tested: usize,
    /// The load; may be repeated [default: all]
    #[arg(long, value_enum)]
    load: Vec<BackgroundLoad>,
}

/// What the figures are of.
const OF: &[&str] = &["idle", "loaded"];

impl Suite for ProbeCost {
    const FIGURES: SuiteFigures =
        &[("P7", &["idle", "loaded", "alone"]), ("P8", OF), ("P9", &[""])];

    const TOOLS: &'static [&'static str] = &["huepage-walk", "huepage-stream"];

    fn measure(&self, _: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let params = ProbeParams::for_cache(&cache(CacheLevel::L2)?).map_err(io::Error::other)?;
        let mut all = Vec::new();
        for load in chosen(&self.load) {
            progress(&word(load));
            let _noise = Noise::start(load)?;
            let found = self.case(&params).map_err(|error| io::Error::other(error.to_string()))?;
            found.row(verdict, load);
            all.push((load, found));
        }
        figures(verdict, &all, self.load.is_empty());
        Ok(())
    }
}

/// What was found in one kind of noise. Times are of the CPU.
struct Case {
    /// Seconds that the classes took, each time.
    builds: Vec<f64>,
    /// Microseconds a page and pages in another colour than at first, by pages of a call.
    calls: Vec<(usize, f64, usize)>,
    /// Pages tested the slow way, and those of another colour than the probe says.
    tested: usize,
    differ: usize,
}

impl ProbeCost {
    fn case(&self, params: &ProbeParams) -> Result<Case, Box<dyn Error>> {
        let (mut builds, mut set) = (Vec::new(), None);
        for _ in 0..self.builds.max(1) {
            let used = thread_time();
            set = Some(ReferenceSet::build_private(params, CPU, PATIENCE)?);
            builds.push((thread_time() - used).as_secs_f64());
        }
        let set = set.ok_or("no classes")?;
        let own = Arc::new(OwnPages::populated(self.pages)?);
        let mut bench = set.bench(CPU)?;
        bench.allow_pages(&own);
        let pages = own.addresses();
        let mut classifier = Classifier::new(set.classes.clone());
        let first = classifier.classify(&mut bench, &pages)?;
        let mut calls = Vec::new();
        for (call, most) in
            [(usize::MAX, usize::MAX), (CALL, usize::MAX), (64, 4096), (8, 512), (1, 512)]
        {
            let some = &pages[..pages.len().min(most)];
            let (us, found) = sort(&mut classifier, &mut bench, some, call)?;
            calls.push((call.min(pages.len()), us, differing(&found, &first)));
        }
        let some = &pages[..pages.len().min(self.tested)];
        let (tested, differ) = slow_check(&set, &mut bench, &mut classifier, some)?;
        Ok(Case { builds, calls, tested, differ })
    }
}

/// Sorts pages in calls of so many; CPU time for each page, in microseconds.
fn sort(
    classifier: &mut Classifier,
    bench: &mut LocalBench,
    pages: &[u64],
    call: usize,
) -> Result<(f64, Vec<PageVerdict>), Box<dyn Error>> {
    let (used, mut found) = (thread_time(), Vec::with_capacity(pages.len()));
    for some in pages.chunks(call) {
        found.extend(classifier.classify(bench, some)?);
    }
    Ok(((thread_time() - used).as_secs_f64() * 1e6 / pages.len() as f64, found))
}

/// Pages that have a colour by both and not the same.
fn differing(found: &[PageVerdict], first: &[PageVerdict]) -> usize {
    let both = found.iter().zip(first).filter_map(|(a, b)| Some((a.color?, b.color?)));
    both.filter(|(a, b)| a != b).count()
}

/// Pages that were tested the slow way, and those of which both ways differ for good. The host may move a page
/// between the two, so both look again at those of which they differ.
fn slow_check(
    set: &ReferenceSet,
    bench: &mut LocalBench,
    classifier: &mut Classifier,
    pages: &[u64],
) -> Result<(usize, usize), Box<dyn Error>> {
    let (mut tested, mut differ) = (0, 0);
    for part in pages.chunks(CALL) {
        let found = classifier.classify(bench, part)?;
        for (&page, verdict) in part.iter().zip(found) {
            let Some(color) = verdict.color else { continue };
            tested += 1;
            if slow_color(set, bench, page, tested)? != color {
                differ += usize::from(still_differ(set, bench, classifier, page, tested)?);
            }
        }
    }
    Ok((tested, differ))
}

/// Whether both ways differ of a page when each looks until one answer leads. One that never answers differs.
fn still_differ(
    set: &ReferenceSet,
    bench: &mut LocalBench,
    classifier: &mut Classifier,
    page: u64,
    seed: usize,
) -> Result<bool, Box<dyn Error>> {
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    while leading(&fast).is_none() && fast.len() < MOST_LOOKS {
        fast.push(classifier.classify(bench, &[page])?[0].color);
    }
    while leading(&slow).is_none() && slow.len() < MOST_LOOKS {
        slow.push(Some(slow_color(set, bench, page, seed + 7 * (slow.len() + 1))?));
    }
    let differ = leading(&fast).is_none() || leading(&fast) != leading(&slow);
    if differ {
        eprintln!("page {seed} of those tested is {fast:?} and, the slow way, {slow:?}");
    }
    Ok(differ)
}

/// The colour that is ahead of every other by [`LEAD`] looks; looks without an answer count for none.
fn leading(looks: &[Option<Color>]) -> Option<Color> {
    let votes = |color: Color| looks.iter().filter(|look| **look == Some(color)).count();
    let first = looks.iter().flatten().copied().max_by_key(|&color| votes(color))?;
    let others = looks.iter().flatten().filter(|&&color| color != first);
    let second = others.map(|&color| votes(color)).max().unwrap_or(0);
    (votes(first) >= second + LEAD).then_some(first)
}

impl Case {
    /// Microseconds for each page in calls of so many.
    fn us(&self, call: usize) -> f64 {
        let found = self.calls.iter().find(|(of, ..)| *of == call);
        found.map_or(f64::NAN, |(_, us, _)| *us)
    }

    /// The share of pages of which the slow test says the same, in percent.
    fn agreement(&self) -> f64 {
        100.0 * (self.tested - self.differ) as f64 / self.tested as f64
    }

    /// Adds the row.
    fn row(&self, verdict: &mut SuiteVerdict, load: BackgroundLoad) {
        let built = crate::figures::median(&self.builds);
        let us: Vec<Value> = self.calls.iter().map(|(_, us, _)| round(*us)).collect();
        let differ: usize = self.calls.iter().map(|(.., differ)| differ).sum();
        verdict.row([
            ("load", word(load).into()),
            ("classes s", round(built)),
            ("us/page of all", us[0].clone()),
            ("of 700", us[1].clone()),
            ("of 64", us[2].clone()),
            ("of 8", us[3].clone()),
            ("alone", us[4].clone()),
            ("other than at first", differ.into()),
            ("tested", self.tested.into()),
            ("slow test differs", self.differ.into()),
        ]);
    }
}

/// The figures of the promises: idle, and the worst of the noises.
fn figures(verdict: &mut SuiteVerdict, all: &[(BackgroundLoad, Case)], whole: bool) {
    let is_idle = |load: &BackgroundLoad| *load == BackgroundLoad::Idle;
    for (of, idle) in [("idle", true), ("loaded", false)] {
        let cases: Vec<&Case> =
            all.iter().filter(|(load, _)| is_idle(load) == idle).map(|(_, case)| case).collect();
        let worst = |figure: &dyn Fn(&Case) -> f64| {
            cases.iter().map(|case| figure(case)).fold(f64::NAN, f64::max)
        };
        verdict.is_part = !idle && !whole;
        verdict.worst("P7", of, worst(&|case| case.us(CALL)), None);
        if idle {
            verdict.worst("P7", "alone", worst(&|case| case.us(1)), None);
        }
        let builds: Vec<f64> = cases.iter().flat_map(|case| case.builds.clone()).collect();
        verdict.figure("P8", of, &builds);
    }
    let agree = all.iter().map(|(_, case)| case.agreement()).fold(f64::NAN, f64::min);
    verdict.is_part = !whole;
    verdict.worst("P9", "", agree, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_of_two_looks_decides() {
        let of = |looks: &[u16]| {
            let looks: Vec<_> = looks.iter().map(|&c| (c < 99).then_some(Color(c))).collect();
            leading(&looks)
        };
        assert_eq!(of(&[3, 3]), Some(Color(3)));
        assert_eq!(of(&[7, 3, 3]), None, "one ahead");
        assert_eq!(of(&[7, 3, 3, 3]), Some(Color(3)));
        assert_eq!(of(&[3, 7, 3, 7, 3, 7]), None);
        assert_eq!(of(&[1, 2, 3, 3, 2]), None);
        assert_eq!(of(&[99, 99, 3]), None, "no answer is none");
        assert_eq!((of(&[]), of(&[99, 3, 3])), (None, Some(Color(3))));
    }

    #[test]
    fn figures_are_of_the_worst_noise_and_misses_are_told() {
        let case = |us: f64, differ| Case {
            builds: vec![0.4, 0.2, 0.3],
            calls: vec![(9000, 1.0, 0), (CALL, us, 1), (64, 9.0, 0), (8, 30.0, 0), (1, 90.0, 0)],
            tested: 1000,
            differ,
        };
        let all = [
            (BackgroundLoad::Idle, case(4.0, 0)),
            (BackgroundLoad::Walk, case(16.0, 2)),
            (BackgroundLoad::Build, case(9.0, 1)),
        ];
        let mut verdict = SuiteVerdict::new("probe");
        all.iter().for_each(|(load, case)| case.row(&mut verdict, *load));
        figures(&mut verdict, &all, true);
        let found: Vec<(&str, &str, f64)> =
            verdict.figures.iter().map(|own| (own.id, own.of.as_str(), own.figure)).collect();
        let expected = [
            ("P7", "idle", 4.0),
            ("P7", "alone", 90.0),
            ("P8", "idle", 0.3),
            ("P7", "loaded", 16.0),
            ("P8", "loaded", 0.3),
            ("P9", "", 99.8),
        ];
        assert_eq!(found, expected);
        let expected = ["P7 loaded: 16 us is not <= 15 us", "P9: 99.8 % is not >= 99.9 %"];
        assert_eq!(verdict.missed, expected);
    }
}
