//! Which pages slow down which, by regression: random subsets of a pool are streamed, and after each
//! some pages ("pivots") are timed. A pivot is the slower the more pages of its colour the subset
//! holds, by a twentieth of the way from hit to miss for each. So its mean latency over the subsets
//! that held a page is higher if that page has its colour. No single answer counts, and noise makes
//! the means converge slower.

use super::ProbeError;
use super::bench::{TimingBench, TimingJob};
use super::params::{MAX_STREAM, ProbeParams};
use super::timing::RoundDesc;
use fastrand::Rng;

/// Pages that are timed after each subset, at least and at most, and of each colour.
const PIVOTS: (usize, usize) = (4, 32);
const PIVOTS_OF_COLOR: usize = 2;
/// Subsets of the shortest regression, the first of which only show what latencies are usual.
const SUBSETS: u32 = 1500;
const USUAL: u32 = 20;
/// Subsets that the running mean of a pivot's latency goes over.
const MEAN: u32 = 200;
/// Lines of each pivot that are timed together.
const LINES: usize = 16;
/// Likeness of the rows that either half of the subsets gives, from which on a row shows anything; in standard
/// deviations of that of rows without anything in common. Where all pivots are evicted, or none, it does not.
const SHOWS: f32 = 3.0;
/// Ticks per line beyond which a latency says no more, and by which one may differ from the mean.
const LONGEST: f32 = 125.0;
const FARTHEST: f32 = 10.0;

/// How much more each page slows a pivot down than others do: mean 0, mean square 1.
pub(super) type Row = Vec<f32>;

/// Pivots of one colour, as far as is known.
pub(super) struct Group {
    /// The mean of their rows.
    pub(super) center: Row,
    /// How many they are.
    pub(super) members: u32,
}

impl Group {
    /// Adds the mean row of so many pivots.
    pub(super) fn add(&mut self, row: &[f32], members: u32) {
        let (old, new) = (self.members as f32, members as f32);
        self.center.iter_mut().zip(row).for_each(|(sum, x)| *sum = *sum * old + x * new);
        self.members += members;
        normalize(&mut self.center);
    }

    /// Keeps what is known of these pages, of which there is a `true`.
    pub(super) fn keep(&mut self, pages: &[bool]) {
        let mut keep = pages.iter();
        self.center.retain(|_| keep.next() == Some(&true));
        normalize(&mut self.center);
    }
}

/// Likeness of two rows, -1 to 1.
pub(super) fn similarity(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>() / a.len() as f32
}

/// Makes groups one that are more alike than `same`.
pub(super) fn merge(groups: &mut Vec<Group>, same: f32) {
    let mut first = 0;
    while first < groups.len() {
        let like = |other: &usize| similarity(&groups[first].center, &groups[*other].center) > same;
        match (first + 1..groups.len()).find(like) {
            Some(other) => {
                let other = groups.swap_remove(other);
                groups[first].add(&other.center, other.members);
            }
            None => first += 1,
        }
    }
}

/// How to go about a regression.
#[derive(Clone, Copy)]
pub(super) struct Regression {
    /// Colours among the pages, 2 at least.
    pub(super) colors: usize,
    /// Lines of a subset, in halves of those that fill the cache.
    pub(super) halves: usize,
    /// Whether all lines of pages are streamed.
    pub(super) whole: bool,
    /// How many times longer than the shortest.
    pub(super) times: u32,
}

impl Regression {
    /// Pages that it is worth to time: where there are few colours, many would evict each other.
    pub(super) fn pivots(&self) -> usize {
        (self.colors * PIVOTS_OF_COLOR).clamp(PIVOTS.0, PIVOTS.1)
    }

    /// Pages that fill the cache's sets of these colours.
    fn fill(&self, params: &ProbeParams) -> usize {
        self.colors * params.ways as usize
    }
}

/// The rows of those of some pages of the pool that have one which shows anything.
pub(super) fn regress(
    bench: &mut dyn TimingBench,
    params: &ProbeParams,
    pool: &[u64],
    pivots: &[usize],
    how: Regression,
    random: &mut Rng,
) -> Result<Vec<Row>, ProbeError> {
    let size = how.fill(params) * how.halves / 2;
    let size = size.min(MAX_STREAM).min(pool.len() * 3 / 4);
    let mut order: Vec<usize> = (0..pool.len()).collect();
    let mut sums = Sums::new(pool.len(), pivots.len(), params);
    for _ in 0..SUBSETS * how.times {
        draw(&mut order, size, random);
        let job = job(params, pool, &order[..size], pivots, how, random);
        sums.add(&bench.run(&job)?.latencies, &order[..size]);
    }
    Ok((0..pivots.len()).filter_map(|pivot| sums.row(pivot, pivots)).collect())
}

/// Puts a random subset of so many in front.
fn draw(order: &mut [usize], size: usize, random: &mut Rng) {
    for i in 0..size {
        order.swap(i, i + random.usize(..order.len() - i));
    }
}

fn job(
    params: &ProbeParams,
    pool: &[u64],
    subset: &[usize],
    pivots: &[usize],
    how: Regression,
    random: &mut Rng,
) -> TimingJob {
    let mut offsets = params.offsets(random);
    if !how.whole {
        // So many that pivots fill a quarter of the sets of these offsets, and do not evict each other.
        offsets.truncate((4 * pivots.len() * LINES / how.fill(params)).max(LINES + 1));
    }
    TimingJob {
        stream: subset.iter().map(|&page| pool[page]).collect(),
        rounds: vec![RoundDesc { first: 0, len: subset.len() as u32 }],
        reload: pivots.iter().map(|&page| pool[page]).collect(),
        passes: 1,
        prime: true,
        depth: LINES.min(offsets.len() - 1) as u32,
        offsets,
    }
}

/// Sums of latencies, by page and pivot.
struct Sums {
    pivots: usize,
    /// Of every other subset, twice: by page and pivot, and subsets that held each page.
    halves: [(Vec<f32>, Vec<u32>); 2],
    means: Vec<f32>,
    subsets: u32,
    lines: f32,
}

impl Sums {
    fn new(pages: usize, pivots: usize, params: &ProbeParams) -> Sums {
        let half = || (vec![0.0; pages * pivots], vec![0; pages]);
        let lines = LINES.min(params.lines() - 1) as f32;
        Sums { pivots, halves: [half(), half()], means: vec![0.0; pivots], subsets: 0, lines }
    }

    /// Adds the latencies of the pivots after one subset. What they have in common (a neighbour, a
    /// slower clock) is no sign of a colour.
    fn add(&mut self, latencies: &[u16], subset: &[usize]) {
        self.subsets += 1;
        let most = LONGEST * self.lines;
        let mut above: Vec<f32> = latencies.iter().map(|&t| f32::from(t).min(most)).collect();
        let common = above.iter().sum::<f32>() / above.len() as f32;
        let farthest = FARTHEST * self.lines;
        for (above, mean) in above.iter_mut().zip(&mut self.means) {
            let difference = *above - common - *mean;
            *mean += difference / self.subsets.min(MEAN) as f32;
            *above = difference.clamp(-farthest, farthest);
        }
        if self.subsets <= USUAL {
            return;
        }
        let (sums, held) = &mut self.halves[self.subsets as usize % 2];
        for &page in subset {
            held[page] += 1;
            let sums = &mut sums[page * self.pivots..][..self.pivots];
            sums.iter_mut().zip(&above).for_each(|(sum, above)| *sum += above);
        }
    }

    /// The row of a pivot. Those pages that are pivots are no witnesses: one that is streamed is timed sooner itself,
    /// so that all others seem to be slow. None if it shows nothing.
    fn row(&self, pivot: usize, pivots: &[usize]) -> Option<Row> {
        let [one, other] = self.halves.each_ref().map(|half| self.row_of(half, pivot, pivots));
        let chance = (one.len() as f32).sqrt().recip();
        if similarity(&one, &other) < SHOWS * chance {
            return None;
        }
        let mut row: Row = one.iter().zip(&other).map(|(a, b)| a + b).collect();
        normalize(&mut row);
        Some(row)
    }

    /// What one half of the subsets shows.
    fn row_of(&self, (sums, held): &(Vec<f32>, Vec<u32>), pivot: usize, pivots: &[usize]) -> Row {
        let mean = |page: usize| match pivots.contains(&page) {
            true => 0.0,
            false => sums[page * self.pivots + pivot] / (held[page] + 1) as f32,
        };
        let mut row: Row = (0..held.len()).map(mean).collect();
        normalize(&mut row);
        row
    }
}

/// Mean 0, mean square 1.
fn normalize(row: &mut [f32]) {
    let n = row.len() as f32;
    let mean = row.iter().sum::<f32>() / n;
    let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
    let scale = (square + 1e-9).sqrt().recip();
    row.iter_mut().for_each(|x| *x = (*x - mean) * scale);
}
