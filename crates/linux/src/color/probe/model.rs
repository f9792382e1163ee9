//! A cache that exists only in tests: sets with ways and a replacement policy, a clock that moves in
//! steps, neighbours that evict lines, a host that moves pages. Jobs run on it as they would on a
//! machine, and its time goes on by what they load, so that all of a test is the same in every run.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::ProbeError;
use super::bench::{TimingBench, TimingJob, TimingResult};
use super::params::ProbeParams;
use fastrand::Rng;

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
/// Ticks of a line that is streamed.
const STREAMED: f64 = 4.0;
/// Ticks in a second.
const PACE: f64 = 2.445e9;
/// The window, in ticks, that [`ModelBench::evicted`] speaks of: 10 us.
const WINDOW: f64 = 10e-6 * PACE;
/// Lines of a page.
const LINES: usize = 64;

/// The modelled machine.
pub(crate) struct ModelBench {
    base: u64,
    ways: usize,
    replacement: Replacement,
    /// The clock's step, in ticks.
    step: f64,
    started: Instant,
    now: f64,
    /// Ways of all sets; 0 is empty. In order of use for LRU.
    tags: Vec<u64>,
    /// When each way was last loaded, in ticks.
    loaded: Vec<f64>,
    /// Tree bits of all sets.
    trees: Vec<u64>,
    colors: HashMap<u64, u16>,
    /// The pages of `colors`, and how many the host has moved.
    pages: Vec<u64>,
    pub(crate) moved: usize,
    random: Rng,
    /// Chance in 100 that neighbours evict a line within 10 us of its last use.
    pub(crate) evicted: usize,
    /// Pages of 100 that the host moves to a frame of any colour in a minute.
    pub(crate) moves: f64,
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
            started: Instant::now(),
            now: 0.0,
            tags: vec![0; sets * ways],
            loaded: vec![0.0; sets * ways],
            trees: vec![0; sets],
            colors: HashMap::new(),
            pages: Vec::new(),
            moved: 0,
            random: Rng::with_seed(base ^ u64::from(params.colors) ^ u64::from(params.step)),
            evicted: 0,
            moves: 0.0,
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
            let color = self.random.usize(..usize::from(colors)) as u16;
            if self.colors.insert(page, color).is_none() {
                self.pages.push(page);
            }
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

    /// The host moves what it would have moved since.
    fn move_pages(&mut self, since: f64) {
        let minutes = (self.now - since) / PACE / 60.0;
        let expected = self.pages.len() as f64 * self.moves / 100.0 * minutes;
        let some = self.random.usize(..1000) as f64 / 1000.0;
        let colors = self.tags.len() / self.ways / LINES;
        for _ in 0..(expected + some) as usize {
            let page = self.pages[self.random.usize(..self.pages.len())];
            let color = self.random.usize(..colors) as u16;
            self.colors.insert(page, color);
            self.moved += 1;
        }
    }

    /// Whether neighbours have evicted a line that was last used then.
    fn is_taken(&mut self, used: f64) -> bool {
        if self.evicted == 0 {
            return false;
        }
        let stays = (1.0 - self.evicted as f64 / 100.0).powf((self.now - used) / WINDOW);
        self.random.usize(..1 << 20) as f64 >= stays * f64::from(1 << 20)
    }

    /// Loads a line; when it was last used, if it is there but for neighbours.
    fn load(&mut self, color: u16, line: u64) -> Option<f64> {
        let (set, tag) = (self.set(color, line), line >> 6 | 1 << 63);
        let times = &mut self.loaded[set * self.ways..][..self.ways];
        let ways = &mut self.tags[set * self.ways..][..self.ways];
        let found = ways.iter().position(|&way| way == tag);
        let way = found.unwrap_or_else(|| match self.replacement {
            Replacement::Lru => ways.len() - 1,
            Replacement::TreePlru => victim(self.trees[set], ways.len()),
            Replacement::Random => self.random.usize(..ways.len()),
        });
        ways[way] = tag;
        let used = std::mem::replace(&mut times[way], self.now);
        match self.replacement {
            Replacement::Lru => {
                ways[..=way].rotate_right(1);
                times[..=way].rotate_right(1);
            }
            Replacement::TreePlru => point_away(&mut self.trees[set], way, self.ways),
            Replacement::Random => {}
        }
        found.map(|_| used)
    }

    /// Lets time pass; what the clock shows of it.
    fn pass(&mut self, ticks: f64) -> u64 {
        let shown = |at: f64| ((at / self.step).floor() * self.step).floor();
        let before = shown(self.now);
        self.now += ticks;
        (shown(self.now) - before) as u64
    }

    fn chance(&mut self, of_10_000: usize) -> bool {
        self.random.usize(..10_000) < of_10_000
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

    fn round(&mut self, job: &TimingJob, pages: &[u64], timed: &[Vec<u64>]) -> Vec<u16> {
        for &page in pages.iter().cycle().take(pages.len() * job.passes as usize) {
            let color = self.colors[&page];
            for &offset in &job.offsets {
                self.load(color, page + u64::from(offset));
            }
        }
        self.pass((pages.len() * job.offsets.len()) as f64 * STREAMED);
        let interrupted = self.chance(self.interrupted);
        let mut latencies = Vec::with_capacity(timed.len());
        for lines in timed {
            let color = self.colors[&(lines[0] & !4095)];
            let mut ticks = OVERHEAD + self.random.usize(..6) as f64;
            for &line in lines {
                let used = self.load(color, line);
                let hit = used.is_some_and(|used| !self.is_taken(used));
                ticks += if hit && !interrupted { HIT } else { MISS };
            }
            latencies.push(self.pass(ticks).min(0xffff) as u16);
            let pause = 60.0 + self.random.usize(..40) as f64;
            self.pass(pause);
        }
        if interrupted {
            self.pass(10_000_000.0);
        }
        latencies
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
        let (since, mut latencies) = (self.now, Vec::new());
        for round in &job.rounds {
            let pages = &job.stream[round.first as usize..][..round.len as usize];
            latencies.extend(self.round(job, pages, &timed));
        }
        self.move_pages(since);
        Ok(TimingResult { latencies })
    }

    fn reference_base(&self) -> u64 {
        self.base
    }

    fn least_rounds(&self) -> usize {
        4
    }

    fn now(&self) -> Instant {
        self.started + self.worked()
    }

    fn worked(&self) -> Duration {
        Duration::from_secs_f64(self.now / PACE)
    }

    fn rest(&mut self, time: Duration) {
        let since = self.now;
        self.now += time.as_secs_f64() * PACE;
        self.move_pages(since);
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
