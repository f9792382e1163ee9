//! Checks that reference classes behave: each evicts its own pages and no others. Pages that
//! do not fit are dropped; the classes hold if enough are left of each. Takes a few ms.

use super::bench::{TimingBench, TimingJob, TimingResult};
use super::calibrate::quantile;
use super::classes::ColorClasses;
use super::params::{MAX_RELOAD, MAX_ROUNDS, WARMERS};
use super::timing::RoundDesc;
use super::{ProbeError, Shuffler};

/// What a validation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Pages that were tested.
    pub tested: usize,
    /// Pages that were dropped from their class.
    pub dropped: usize,
    /// The fewest pages left in a class.
    pub smallest: usize,
}

impl Validation {
    /// Whether classes can be used after the drops.
    pub fn holds(&self, classes: &ColorClasses) -> bool {
        self.smallest >= classes.params.least_refs() && self.dropped * 10 <= self.tested
    }

    /// [`Self::holds`] or an error.
    ///
    /// # Errors
    /// `Classes`.
    pub fn must_hold(&self, classes: &ColorClasses) -> Result<(), ProbeError> {
        if self.holds(classes) {
            return Ok(());
        }
        let least = classes.params.least_refs();
        let good = classes.classes.iter().filter(|c| c.len() >= least).count();
        Err(ProbeError::Classes {
            found: good as u16,
            expected: classes.colors(),
            why: format!("{} of {} pages do not fit their class", self.dropped, self.tested),
        })
    }
}

/// Votes per streamed half.
const VOTES: usize = 3;
/// Repetitions of rounds that were interrupted or noisy.
const REPEATS: usize = 20;

/// Tests all pages of all classes and drops those that do not fit.
///
/// # Errors
/// `Stale` if every attempt is interrupted, and whatever the bench fails of.
pub fn validate(
    bench: &mut dyn TimingBench,
    classes: &mut ColorClasses,
) -> Result<Validation, ProbeError> {
    let mut random = Shuffler::new(classes.pages().map(u64::from).sum::<u64>() + 1);
    let mut ballots = Ballots::new(classes);
    for vote in 0..2 * VOTES {
        for part in parts(classes) {
            count_votes(bench, classes, vote % 2, &part, &mut ballots, &mut random)?;
        }
    }
    Ok(drop_wrong(classes, &ballots))
}

/// For every page and every class that was streamed: how often it was judged, and how often
/// the answer contradicted its class. Kept apart by class, so that noise does not add up.
struct Ballots {
    cells: Vec<Vec<(u8, u8)>>,
    colors: usize,
}

impl Ballots {
    fn new(classes: &ColorClasses) -> Ballots {
        let colors = classes.classes.len();
        let cells = classes.classes.iter().map(|c| vec![(0, 0); c.len() * colors]).collect();
        Ballots { cells, colors }
    }

    fn note(&mut self, (of, place): Place, streamed: usize, contradicts: bool) {
        let cell = &mut self.cells[of][place * self.colors + streamed];
        cell.0 += 1;
        cell.1 += u8::from(contradicts);
    }

    /// Whether most answers of some class contradict.
    fn wrong(&self, (of, place): Place) -> bool {
        let cells = &self.cells[of][place * self.colors..][..self.colors];
        cells.iter().any(|&(judged, against)| against * 2 > judged)
    }
}

/// A page under test: its class, and its place in the class.
type Place = (usize, usize);

/// All pages, in stretches that fit one job.
fn parts(classes: &ColorClasses) -> Vec<Vec<Place>> {
    let most = classes.params.keep_refs().max(classes.params.least_refs());
    let all: Vec<Place> = (0..most)
        .flat_map(|place| (0..classes.classes.len()).map(move |class| (class, place)))
        .filter(|&(class, place)| place < classes.classes[class].len())
        .collect();
    all.chunks(classes.params.timed(MAX_RELOAD - WARMERS)).map(<[Place]>::to_vec).collect()
}

/// One vote on a stretch of pages: streams one half of each class. Rounds in which too many
/// pages of other classes look evicted are noise and are repeated, but not for ever: a wrong
/// class would look the same.
fn count_votes(
    bench: &mut dyn TimingBench,
    classes: &ColorClasses,
    half: usize,
    part: &[Place],
    ballots: &mut Ballots,
    random: &mut Shuffler,
) -> Result<(), ProbeError> {
    let mut open: Vec<usize> = (0..classes.classes.len()).collect();
    for attempt in 1..=REPEATS {
        let mut noisy = Vec::new();
        for streamed in open.chunks(MAX_ROUNDS) {
            let (job, result) = run_valid(bench, classes, half, part, streamed, random)?;
            for (round, &class) in streamed.iter().enumerate() {
                let latencies = &result.round(round, job.reload.len())[WARMERS..];
                let evicted = judge(classes, part, latencies, class);
                if attempt < REPEATS && is_noisy(part, &evicted, class) {
                    noisy.push(class);
                    continue;
                }
                note(classes, half, part, &evicted, class, ballots);
            }
        }
        open = noisy;
    }
    Ok(())
}

/// Whether more than one in eight pages of other classes looks evicted.
fn is_noisy(part: &[Place], evicted: &[bool], class: usize) -> bool {
    let others = part.iter().filter(|p| p.0 != class).count();
    let out = part.iter().zip(evicted).filter(|(p, out)| p.0 != class && **out).count();
    out * 8 > others
}

fn note(
    classes: &ColorClasses,
    half: usize,
    part: &[Place],
    evicted: &[bool],
    class: usize,
    ballots: &mut Ballots,
) {
    for (&(of, place), &out) in part.iter().zip(evicted) {
        let own = of == class;
        if !(own && half_of(classes, half, of).contains(&place)) {
            ballots.note((of, place), class, out != own);
        }
    }
}

/// Which latencies of a round mean "evicted". The base comes from pages of other classes, in
/// stretches, as latencies drift.
fn judge(classes: &ColorClasses, part: &[Place], latencies: &[u16], class: usize) -> Vec<bool> {
    let mut evicted = Vec::with_capacity(part.len());
    for (places, ticks) in part.chunks(256).zip(latencies.chunks(256)) {
        let others: Vec<u16> =
            places.iter().zip(ticks).filter(|(p, _)| p.0 != class).map(|(_, &t)| t).collect();
        let threshold = quantile(&others, 50) + classes.calibration.gap;
        evicted.extend(ticks.iter().map(|&t| t > threshold));
    }
    evicted
}

/// The places of a class that are streamed in this half.
fn half_of(classes: &ColorClasses, half: usize, class: usize) -> std::ops::Range<usize> {
    let size = classes.classes[class].len();
    let take = classes.params.stream.min(size);
    let start = if half == 0 { 0 } else { (size - take).min(take) };
    start..start + take
}

fn run_valid(
    bench: &mut dyn TimingBench,
    classes: &ColorClasses,
    half: usize,
    part: &[Place],
    streamed: &[usize],
    random: &mut Shuffler,
) -> Result<(TimingJob, TimingResult), ProbeError> {
    for _ in 0..REPEATS {
        let job = job(bench.reference_base(), classes, half, part, streamed, random);
        let result = bench.run(&job)?;
        let loads = classes.params.stream * job.offsets.len() * job.passes as usize;
        let limit = classes.calibration.limit(loads, job.reload.len() * job.depth as usize);
        if result.elapsed.iter().all(|&ticks| ticks <= limit) {
            return Ok((job, result));
        }
    }
    Err(ProbeError::Stale { invalid: REPEATS as u32 })
}

fn job(
    base: u64,
    classes: &ColorClasses,
    half: usize,
    part: &[Place],
    streamed: &[usize],
    random: &mut Shuffler,
) -> TimingJob {
    let params = &classes.params;
    let (passes, depth) = (params.passes, params.depth);
    let mut job = TimingJob { passes, depth, prime: true, ..TimingJob::default() };
    job.offsets = params.offsets(random);
    let address = |(class, place): Place| base + u64::from(classes.classes[class][place]) * 4096;
    for &class in streamed {
        let range = half_of(classes, half, class);
        let round = RoundDesc { first: job.stream.len() as u32, len: range.len() as u32 };
        job.stream.extend(range.map(|place| address((class, place))));
        job.rounds.push(round);
    }
    let lines = job.offsets.len();
    let mut line = |&place: &Place| address(place) + u64::from(job.offsets[random.below(lines)]);
    let first: Vec<u64> = part.iter().take(1).map(&mut line).collect();
    job.reload = first.iter().copied().cycle().take(WARMERS * first.len()).collect();
    job.reload.extend(part.iter().map(&mut line));
    job
}

fn drop_wrong(classes: &mut ColorClasses, ballots: &Ballots) -> Validation {
    let tested = classes.classes.iter().map(|c| c.len().min(classes.params.keep_refs())).sum();
    let mut dropped = 0;
    for (of, class) in classes.classes.iter_mut().enumerate() {
        let before = class.len();
        let mut place = 0..;
        class.retain(|_| place.next().is_none_or(|place| !ballots.wrong((of, place))));
        dropped += before - class.len();
    }
    let smallest = classes.classes.iter().map(Vec::len).min().unwrap_or(0);
    Validation { tested, dropped, smallest }
}

#[cfg(test)]
mod tests {
    use super::super::calibrate::Calibration;
    use super::super::model::ModelBench;
    use super::super::params::ProbeParams;
    use super::*;

    const BASE: u64 = 1 << 30;

    fn classes(model: &mut ModelBench, colors: u16) -> ColorClasses {
        let params = ProbeParams::new(colors, 16, 64, 64 * u32::from(colors));
        model.populate(BASE, usize::from(colors) * 90, colors);
        let mut classes = vec![Vec::new(); usize::from(colors)];
        for i in 0..u32::from(colors) * 90 {
            classes[usize::from(model.color(BASE + u64::from(i) * 4096))].push(i);
        }
        classes.iter_mut().for_each(|c| c.truncate(params.keep_refs()));
        let calibration = Calibration { gap: 20, pace: 10.0 };
        ColorClasses { params, calibration, classes }
    }

    #[test]
    fn good_classes_hold_and_lose_nothing() {
        for colors in [2, 16, 100] {
            let mut model = ModelBench::new(16, BASE, 1);
            let mut classes = classes(&mut model, colors);
            let found = validate(&mut model, &mut classes).unwrap();
            assert_eq!(found.dropped, 0, "{colors} colours");
            assert!(found.holds(&classes), "{found:?}");
        }
    }

    #[test]
    fn a_page_in_the_wrong_class_is_dropped() {
        let mut model = ModelBench::new(16, BASE, 2);
        let mut good = classes(&mut model, 16);
        let stray = good.classes[3][40];
        good.classes[5].insert(7, stray);
        let found = validate(&mut model, &mut good).unwrap();
        assert_eq!(found.dropped, 1);
        assert!(!good.classes[5].contains(&stray) && good.classes[3].contains(&stray));
    }

    #[test]
    fn classes_whose_frames_changed_do_not_hold() {
        let mut model = ModelBench::new(16, BASE, 3);
        let mut old = classes(&mut model, 16);
        model.populate(BASE, 16 * 90, 16);
        let found = validate(&mut model, &mut old).unwrap();
        assert!(!found.holds(&old), "{found:?}");
        assert!(found.must_hold(&old).is_err());
    }
}
