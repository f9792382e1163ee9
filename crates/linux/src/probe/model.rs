//! A cache that exists only in tests: sets with ways and a replacement policy, a clock that moves in
//! steps, neighbours that evict lines, a host that moves pages. Jobs run on it as they would on a
//! machine, so that classes and classification are tested without timing.

use std::collections::HashMap;

use super::bench::{TimingBench, TimingJob, TimingResult};
use super::params::ProbeParams;
use super::{ProbeError, Shuffler};

/// How a set chooses what to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// What was used longest ago.
    Lru,
    /// A binary tree of bits that lead away from what was used; a power of two of ways.
    TreePlru,
    /// Anything.
    Random,
}

/// Ticks of a line that hits and of one that does not, and of the measurement itself.
const HIT: f64 = 14.0;
const MISS: f64 = 39.0;
const OVERHEAD: f64 = 50.0;
/// Lines of a page.
const LINES: usize = 64;

/// The modelled machine.
pub(crate) struct ModelBench {
    base: u64,
    ways: usize,
    replacement: Replacement,
    /// The clock's step, in ticks.
    step: f64,
    now: f64,
    /// Ways of all sets; 0 is empty. In order of use for LRU.
    tags: Vec<u64>,
    /// Tree bits of all sets.
    trees: Vec<u64>,
    colors: HashMap<u64, u16>,
    random: Shuffler,
    /// Chance in 100 that neighbours evict a line before it is timed.
    pub(crate) evicted: usize,
    /// Chance in 10,000 that a round is interrupted: takes long, and nothing stays.
    pub(crate) interrupted: usize,
    /// Whether high address bits are mixed into the place of a line within its page.
    pub(crate) mixed: bool,
}

impl ModelBench {
    /// A quiet machine with such a cache, whose reference pages start at `base`.
    pub(crate) fn new(params: &ProbeParams, replacement: Replacement, base: u64) -> ModelBench {
        let (ways, sets) = (params.ways as usize, usize::from(params.colors) * LINES);
        ModelBench {
            base,
            ways,
            replacement,
            step: f64::from(params.step),
            now: 0.0,
            tags: vec![0; sets * ways],
            trees: vec![0; sets],
            colors: HashMap::new(),
            random: Shuffler::new(base ^ u64::from(params.colors) ^ u64::from(params.step)),
            evicted: 0,
            interrupted: 0,
            mixed: false,
        }
    }

    /// The same with a clock whose step is no whole number.
    pub(crate) fn with_step(mut self, step: f64) -> ModelBench {
        self.step = step;
        self
    }

    /// Adds `n` pages from `base` on, of random colours below `colors`; returns addresses.
    pub(crate) fn populate(&mut self, base: u64, n: usize, colors: u16) -> Vec<u64> {
        let pages: Vec<u64> = (0..n as u64).map(|i| base + i * 4096).collect();
        for &page in &pages {
            let color = self.random.below(usize::from(colors)) as u16;
            self.colors.insert(page, color);
        }
        pages
    }

    /// The true colour of a page.
    pub(crate) fn color(&self, page: u64) -> u16 {
        self.colors[&page]
    }

    /// The host moves a page to a frame of another colour.
    pub(crate) fn relocate(&mut self, page: u64, color: u16) {
        self.colors.insert(page, color);
    }

    fn set(&self, color: u16, line: u64) -> usize {
        let mix = if self.mixed { (line >> 12).wrapping_mul(0x9e37_79b9) >> 7 } else { 0 };
        usize::from(color) * LINES + ((line >> 6 ^ mix) & 63) as usize
    }

    /// Loads a line; whether it was there.
    fn load(&mut self, color: u16, line: u64) -> bool {
        let (set, tag) = (self.set(color, line), line >> 6 | 1 << 63);
        let ways = &mut self.tags[set * self.ways..][..self.ways];
        let found = ways.iter().position(|&way| way == tag);
        let way = found.unwrap_or_else(|| match self.replacement {
            Replacement::Lru => ways.len() - 1,
            Replacement::TreePlru => victim(self.trees[set], ways.len()),
            Replacement::Random => self.random.below(ways.len()),
        });
        ways[way] = tag;
        match self.replacement {
            Replacement::Lru => ways[..=way].rotate_right(1),
            Replacement::TreePlru => point_away(&mut self.trees[set], way, self.ways),
            Replacement::Random => {}
        }
        found.is_some()
    }

    /// Lets time pass; what the clock shows of it.
    fn pass(&mut self, ticks: f64) -> u64 {
        let shown = |at: f64| ((at / self.step).floor() * self.step).floor();
        let before = shown(self.now);
        self.now += ticks;
        (shown(self.now) - before) as u64
    }

    fn chance(&mut self, of_10_000: usize) -> bool {
        self.random.below(10_000) < of_10_000
    }

    /// The lines of each page that are timed.
    fn timed(job: &TimingJob) -> Vec<Vec<u64>> {
        let deep = job.depth.max(1) as usize;
        let mut turns = job.offsets.iter().cycle();
        let mut lines = |&line: &u64| match deep {
            1 => vec![line],
            _ => turns.by_ref().take(deep).map(|&o| (line & !4095) + u64::from(o)).collect(),
        };
        job.reload.iter().map(&mut lines).collect()
    }

    fn round(&mut self, job: &TimingJob, pages: &[u64], timed: &[Vec<u64>]) -> TimingResult {
        let start = self.now;
        for &page in pages.iter().cycle().take(pages.len() * job.passes as usize) {
            let color = self.colors[&page];
            for &offset in &job.offsets {
                self.load(color, page + u64::from(offset));
            }
        }
        self.pass((pages.len() * job.offsets.len()) as f64 * 4.0);
        let interrupted = self.chance(self.interrupted);
        let mut result = TimingResult::default();
        for lines in timed {
            let color = self.colors[&(lines[0] & !4095)];
            let mut ticks = OVERHEAD + self.random.below(6) as f64;
            for &line in lines {
                let hit = self.load(color, line);
                let gone = interrupted || self.random.below(100) < self.evicted;
                ticks += if hit && !gone { HIT } else { MISS };
            }
            result.latencies.push(self.pass(ticks).min(0xffff) as u16);
            let pause = 60.0 + self.random.below(40) as f64;
            self.pass(pause);
        }
        if interrupted {
            self.pass(10_000_000.0);
        }
        result.elapsed.push((self.now - start) as u64);
        result
    }
}

/// The way that the bits of a tree lead to.
fn victim(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// Has the bits on the way to a leaf lead elsewhere.
fn point_away(tree: &mut u64, way: usize, ways: usize) {
    let mut node = way + ways;
    while node > 1 {
        let side = node & 1;
        node /= 2;
        *tree = *tree & !(1 << node) | ((1 - side) as u64) << node;
    }
}

impl TimingBench for ModelBench {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        let timed = Self::timed(job);
        for line in timed.iter().flatten().filter(|_| job.prime) {
            self.load(self.colors[&(line & !4095)], *line);
        }
        let mut result = TimingResult::default();
        for round in &job.rounds {
            let pages = &job.stream[round.first as usize..][..round.len as usize];
            let one = self.round(job, pages, &timed);
            result.latencies.extend(one.latencies);
            result.elapsed.extend(one.elapsed);
        }
        Ok(result)
    }

    fn reference_base(&self) -> u64 {
        self.base
    }
}

#[test]
fn trees_lead_to_every_way_in_turn() {
    let mut tree = 0;
    let order: Vec<usize> = (0..8)
        .map(|_| {
            let way = victim(tree, 8);
            point_away(&mut tree, way, 8);
            way
        })
        .collect();
    let mut all = order.clone();
    all.sort_unstable();
    assert_eq!(all, (0..8).collect::<Vec<_>>(), "{order:?}");
}
