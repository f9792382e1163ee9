//! A cache that exists only in tests: it answers jobs with latencies that follow from known
//! colours, with noise on demand (jitter, wrong latencies, interrupted rounds, drift), so that
//! classes and classification are tested without timing.

use std::collections::HashMap;

use super::bench::{TimingBench, TimingJob, TimingResult};
use super::{ProbeError, Shuffler};

/// The modelled machine.
pub(crate) struct ModelBench {
    colors: HashMap<u64, u16>,
    ways: usize,
    base: u64,
    random: Shuffler,
    /// Chance in 10,000 that a latency is turned into its opposite.
    pub wrong: usize,
    /// Chance in 10,000 that a round is interrupted: takes long and evicts everything.
    pub interrupted: usize,
    /// Ticks by which all latencies grow with each job, up to 40, then start over.
    pub drift: u16,
    /// Jobs run.
    pub jobs: u16,
    /// Pages whose colour changes from the next job on.
    pub moved: HashMap<u64, u16>,
    /// Whether lines lie in another order in each page, as where high address bits are mixed into
    /// the low bits of a set number.
    pub mixed: bool,
}

impl ModelBench {
    /// A quiet machine whose reference pages start at `base`.
    pub(crate) fn new(ways: usize, base: u64, seed: u64) -> ModelBench {
        ModelBench {
            colors: HashMap::new(),
            ways,
            base,
            random: Shuffler::new(seed),
            wrong: 0,
            interrupted: 0,
            drift: 0,
            jobs: 0,
            moved: HashMap::new(),
            mixed: false,
        }
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

    /// Where in the stretch of its page a line lies.
    fn place(&self, line: u64) -> u64 {
        let mix = if self.mixed { (line >> 12).wrapping_mul(0x9e37_79b9) >> 7 } else { 0 };
        (line >> 6 ^ mix) & 63
    }

    fn chance(&mut self, of_10_000: usize) -> bool {
        self.random.below(10_000) < of_10_000
    }

    fn latency(&mut self, evicted: bool, depth: u32) -> u16 {
        let shift = if self.drift == 0 { 0 } else { self.jobs * self.drift % 40 };
        let evicted = evicted != self.chance(self.wrong);
        let jitter = self.random.below(7) as u16;
        let miss = 60 + 50 * depth.max(1) as u16;
        shift + jitter + if evicted { miss } else { 60 }
    }

    fn round(&mut self, job: &TimingJob, pages: &[u64], result: &mut TimingResult) {
        let mut count: HashMap<u16, usize> = HashMap::new();
        for page in pages {
            *count.entry(self.colors[page]).or_default() += 1;
        }
        let interrupted = self.chance(self.interrupted);
        for line in &job.reload {
            let color = self.colors[&(line & !4095)];
            let full = if self.mixed {
                let place = self.place(*line);
                let same = pages.iter().filter(|page| self.colors[*page] == color);
                // Mixing twice undoes it.
                let meets = |page: &&u64| {
                    job.offsets.contains(&((self.place(**page + place * 64) * 64) as u16))
                };
                same.filter(meets).count() >= self.ways
            } else {
                let streamed = job.offsets.contains(&((line & 4095) as u16));
                streamed && count.get(&color).is_some_and(|&n| n >= self.ways)
            };
            let latency = self.latency(interrupted || full, job.depth);
            result.latencies.push(latency);
        }
        let work = job.offsets.len() * job.passes as usize * pages.len() * 8;
        let ticks = (work + job.reload.len() * 130) as u64;
        result.elapsed.push(if interrupted { ticks + 10_000_000 } else { ticks });
    }
}

impl TimingBench for ModelBench {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        self.jobs = self.jobs.wrapping_add(1);
        self.colors.extend(std::mem::take(&mut self.moved));
        let mut result = TimingResult::default();
        for round in &job.rounds {
            let first = round.first as usize;
            let pages = &job.stream[first..first + round.len as usize];
            self.round(job, pages, &mut result);
        }
        Ok(result)
    }

    fn reference_base(&self) -> u64 {
        self.base
    }
}
