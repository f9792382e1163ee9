//! Does the frame number select sets on this machine? On bare metal, and in a guest on huge
//! pages, it does; in a guest on scattered host pages it says nothing. Given frames and their
//! measured colours, the judgement here asks how well one predicts the other.

use std::sync::Arc;

use huepage_color::{Color, Pfn, VirtAddr};
use serde::Serialize;

use super::ProbeError;
use super::bench::LocalBench;
use super::classify::Classifier;
use super::pages::OwnPages;
use crate::kernel::procfs::{PageEntry, ProcRoot};
use fastrand::Rng;

/// A frame and its measured colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSample {
    /// The frame.
    pub frame: Pfn,
    /// Its colour by measurement.
    pub color: Color,
}

/// The judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameVerdict {
    /// The low bits of the frame number give the colour.
    FrameNumberSelects,
    /// They do not: colours must be measured.
    MustProbe,
    /// Too few samples, or neither clearly.
    Unclear,
}

/// The judgement and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VerdictReport {
    /// The judgement.
    pub verdict: FrameVerdict,
    /// Frames measured.
    pub samples: usize,
    /// Number of colours; the low log2 of them bits of the frame number were tried.
    pub colors: u16,
    /// Share of samples, 0 to 1, that the best one-to-one assignment of frame number bits to
    /// colours gets right.
    pub share: f64,
    /// The same share for colours dealt out at random.
    pub chance: f64,
}

/// Samples per colour below which nothing is said.
const LEAST_PER_COLOR: usize = 8;
/// The share from which the frame number is believed.
const SELECTS: f64 = 0.97;
/// The share up to which it is certainly of no use: every fifth page would be wrong.
const USELESS: f64 = 0.80;
/// Shuffles to find the share that chance gives.
const SHUFFLES: u64 = 5;

/// Judges samples. `colors` is the number of colours of the level, from its geometry.
pub fn verdict_of(samples: &[FrameSample], colors: u16) -> VerdictReport {
    let share = best_share(samples, colors);
    let mut dealt = samples.to_vec();
    let mut chance = 0.0;
    for seed in 0..SHUFFLES {
        let mut deck: Vec<Color> = samples.iter().map(|s| s.color).collect();
        Rng::with_seed(seed + 1).shuffle(&mut deck);
        dealt.iter_mut().zip(deck).for_each(|(sample, color)| sample.color = color);
        chance += best_share(&dealt, colors) / SHUFFLES as f64;
    }
    let verdict = match share {
        _ if samples.len() < LEAST_PER_COLOR * usize::from(colors) => FrameVerdict::Unclear,
        _ if share >= SELECTS => FrameVerdict::FrameNumberSelects,
        _ if share <= USELESS.max(chance * 1.5).min(SELECTS) => FrameVerdict::MustProbe,
        _ => FrameVerdict::Unclear,
    };
    VerdictReport { verdict, samples: samples.len(), colors, share, chance }
}

/// Probes `pages` pages of this process and judges their frame numbers.
///
/// # Errors
/// `HiddenFrames` without root, `Stale`, `Os`, and what the bench fails of.
pub fn measure_verdict(
    classifier: &mut Classifier,
    bench: &mut LocalBench,
    pages: usize,
) -> Result<VerdictReport, ProbeError> {
    let own = Arc::new(OwnPages::populated(pages)?);
    let frames = frames_of(&own)?;
    bench.allow_pages(&own);
    let found = classifier.classify(bench, &own.addresses());
    bench.forbid_pages(&own);
    let samples: Vec<FrameSample> = frames
        .into_iter()
        .zip(found?)
        .filter_map(|(frame, verdict)| Some(FrameSample { frame, color: verdict.color? }))
        .collect();
    Ok(verdict_of(&samples, classifier.colors()))
}

/// The frames behind pages of this process.
///
/// # Errors
/// `HiddenFrames` if the kernel hides them, `Proc`.
pub fn frames_of(pages: &OwnPages) -> Result<Vec<Pfn>, ProbeError> {
    let pagemap = ProcRoot("/proc".into()).pagemap(std::process::id() as i32)?;
    let mut entries: Vec<PageEntry> = Vec::new();
    pagemap.entries(VirtAddr(pages.base()).vpn(), pages.count(), &mut entries)?;
    let frames: Option<Vec<Pfn>> =
        entries.iter().map(|entry| entry.pfn().filter(|frame| frame.0 != 0)).collect();
    frames.filter(|f| f.len() == pages.count()).ok_or(ProbeError::HiddenFrames)
}

/// The share of samples that the best one-to-one assignment gets right.
fn best_share(samples: &[FrameSample], colors: u16) -> f64 {
    let n = usize::from(colors);
    let mut table = vec![vec![0i64; n]; n];
    for sample in samples.iter().filter(|s| s.color.0 < colors) {
        table[(sample.frame.0 % u64::from(colors)) as usize][usize::from(sample.color.0)] += 1;
    }
    best_assignment(&table) as f64 / samples.len().max(1) as f64
}

/// The largest sum of cells of a square table with one cell per row and column, by the
/// Hungarian method.
fn best_assignment(table: &[Vec<i64>]) -> i64 {
    let n = table.len();
    let mut found = Assignment::new(table);
    (1..=n).for_each(|row| found.add_row(row));
    (1..=n).map(|column| table[found.row_of[column] - 1][column - 1]).sum()
}

/// Rows assigned to columns so far, with the potentials of both; index 0 stands for "none".
struct Assignment<'a> {
    table: &'a [Vec<i64>],
    row_potential: Vec<i64>,
    column_potential: Vec<i64>,
    row_of: Vec<usize>,
}

/// A search for the cheapest chain of columns whose rows move on by one.
struct Chain {
    slack: Vec<i64>,
    came_from: Vec<usize>,
    used: Vec<bool>,
}

impl<'a> Assignment<'a> {
    fn new(table: &'a [Vec<i64>]) -> Assignment<'a> {
        let zeroes = vec![0i64; table.len() + 1];
        let row_of = vec![0; table.len() + 1];
        Assignment { table, row_potential: zeroes.clone(), column_potential: zeroes, row_of }
    }

    /// Gives a row a column, and others another one where that is better.
    fn add_row(&mut self, row: usize) {
        let all = self.row_of.len();
        let (slack, came_from) = (vec![i64::MAX; all], vec![0; all]);
        let mut chain = Chain { slack, came_from, used: vec![false; all] };
        self.row_of[0] = row;
        let mut column = 0;
        while self.row_of[column] != 0 {
            chain.used[column] = true;
            let (step, next) = self.nearest(&mut chain, column);
            self.shift(&mut chain, step);
            column = next;
        }
        while column != 0 {
            self.row_of[column] = self.row_of[chain.came_from[column]];
            column = chain.came_from[column];
        }
    }

    /// The column that costs least to go on to, and that cost.
    fn nearest(&self, chain: &mut Chain, column: usize) -> (i64, usize) {
        let at = self.row_of[column];
        let (mut step, mut next) = (i64::MAX, 0);
        for other in (1..self.row_of.len()).filter(|&c| !chain.used[c]) {
            let cost = -self.table[at - 1][other - 1];
            let reduced = cost - self.row_potential[at] - self.column_potential[other];
            if reduced < chain.slack[other] {
                (chain.slack[other], chain.came_from[other]) = (reduced, column);
            }
            if chain.slack[other] < step {
                (step, next) = (chain.slack[other], other);
            }
        }
        (step, next)
    }

    fn shift(&mut self, chain: &mut Chain, step: i64) {
        for other in 0..self.row_of.len() {
            if chain.used[other] {
                self.row_potential[self.row_of[other]] += step;
                self.column_potential[other] -= step;
            } else {
                chain.slack[other] = chain.slack[other].saturating_sub(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(n: u64, color: impl Fn(u64, u64) -> u64) -> Vec<FrameSample> {
        let mut random = Rng::with_seed(5);
        (0..n)
            .map(|_| {
                let frame = random.u64(..) >> 30;
                FrameSample {
                    frame: Pfn(frame),
                    color: Color(color(frame, random.u64(..) >> 20) as u16),
                }
            })
            .collect()
    }

    #[test]
    fn colours_that_follow_the_frame_number_under_any_labels() {
        let report = verdict_of(&samples(2000, |frame, _| (frame * 5 + 3) % 16), 16);
        assert_eq!(report.verdict, FrameVerdict::FrameNumberSelects);
        assert_eq!(report.share, 1.0);
        assert!(report.chance < 0.2, "{report:?}");
    }

    #[test]
    fn random_colours_must_be_probed() {
        let report = verdict_of(&samples(2000, |_, random| random % 16), 16);
        assert_eq!(report.verdict, FrameVerdict::MustProbe);
        assert!((report.share - report.chance).abs() < 0.03, "{report:?}");
    }

    #[test]
    fn a_few_wrong_measurements_change_nothing_and_many_do() {
        let mostly = |frame: u64, random: u64, wrong: u64| {
            if random % 100 < wrong { random / 100 % 16 } else { frame % 16 }
        };
        let verdict = |wrong| verdict_of(&samples(4000, |f, r| mostly(f, r, wrong)), 16).verdict;
        assert_eq!(verdict(1), FrameVerdict::FrameNumberSelects);
        assert_eq!(verdict(10), FrameVerdict::Unclear);
        assert_eq!(verdict(60), FrameVerdict::MustProbe);
    }

    #[test]
    fn few_samples_say_nothing() {
        assert_eq!(verdict_of(&samples(100, |f, _| f % 16), 16).verdict, FrameVerdict::Unclear);
        assert_eq!(verdict_of(&[], 16).verdict, FrameVerdict::Unclear);
    }

    #[test]
    fn the_assignment_is_the_best_of_all() {
        let mut random = Rng::with_seed(11);
        for _ in 0..200 {
            let table: Vec<Vec<i64>> =
                (0..4).map(|_| (0..4).map(|_| random.usize(..20) as i64).collect()).collect();
            assert_eq!(best_assignment(&table), brute(&table, 0, 0), "{table:?}");
        }
    }

    fn brute(table: &[Vec<i64>], row: usize, taken: u32) -> i64 {
        (0..table.len())
            .filter(|column| taken >> column & 1 == 0)
            .map(|column| table[row][column] + brute_rest(table, row + 1, taken | 1 << column))
            .max()
            .unwrap_or(0)
    }

    fn brute_rest(table: &[Vec<i64>], row: usize, taken: u32) -> i64 {
        if row == table.len() { 0 } else { brute(table, row, taken) }
    }
}
