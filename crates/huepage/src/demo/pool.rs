//! Pages of measured colours to walk in. One pool serves all measurements: each picks pages
//! by colour, in rotation over its colours, and nothing is moved.

use std::time::{Duration, Instant};

use huepage_color::{CacheGeometry, CacheLevel, Color, LevelChoice, PageSize};
use huepage_linux::color::probe::{ProbeError, ProbeParams};
use huepage_linux::color::walk::ColoredWords;
use huepage_linux::kernel::machine::HostMachine;

use super::DemoCache;
use super::lab::Lab;
use super::stats::median;
use super::walk::{RandomWalk, stream};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;

/// How often more pages are looked at, twice as many each time.
const ATTEMPTS: u32 = 4;

/// Some memory as words.
pub trait WordMemory: Send {
    /// All of it.
    fn words(&mut self) -> &mut [u64];
}

impl WordMemory for ColoredWords {
    fn words(&mut self) -> &mut [u64] {
        ColoredWords::words(self)
    }
}

/// Memory whose pages are known by colour.
pub struct DemoPool {
    memory: Box<dyn WordMemory>,
    /// Numbers of pages, by colour.
    pages: Vec<Vec<usize>>,
    line_words: usize,
    began: Instant,
}

/// The processor's name and its L2.
///
/// # Errors
/// When no cache can be read about, or none is an L2.
pub fn l2() -> Result<(String, CacheGeometry), CmdError> {
    let machine = HostMachine::read().map_err(internal)?;
    let cache = machine.cache(LevelChoice::Level(CacheLevel::L2)).map_err(internal)?;
    Ok((machine.cpu.name.clone(), cache.geometry.clone()))
}

impl DemoCache {
    /// What a demonstration needs of a geometry.
    ///
    /// # Errors
    /// When the cache cannot be probed: a nonsensical report, one colour, a hashed index.
    pub fn of(geometry: &CacheGeometry) -> Result<DemoCache, CmdError> {
        let colors = ProbeParams::for_cache(geometry).map_err(internal)?.colors;
        let bytes = usize::try_from(geometry.size_bytes).map_err(internal)?;
        let line_bytes = usize::try_from(geometry.line_bytes).map_err(internal)?;
        Ok(DemoCache { bytes, line_bytes, colors })
    }
}

impl DemoPool {
    /// Measures colours on `cpu` until one colour alone has twice the cache in pages, and all have
    /// as much together, in equal parts. The clock of the pool counts from `began`.
    ///
    /// # Errors
    /// `Noisy` when the colours cannot be told apart, or pages of some do not turn up.
    pub fn measured(
        geometry: &CacheGeometry,
        cache: DemoCache,
        cpu: usize,
        began: Instant,
    ) -> Result<DemoPool, CmdError> {
        let params = ProbeParams::for_cache(geometry).map_err(internal)?;
        let page = usize::try_from(PageSize::BASE.bytes()).map_err(internal)?;
        let (colors, most) = (usize::from(cache.colors), 2 * cache.bytes / page);
        // Frames that a confined program has just freed come first, and are of its colours:
        // what was looked at in vain is held, so that the next try finds others.
        let mut in_vain = Vec::new();
        for attempt in 0..ATTEMPTS {
            // An eighth more than the average: the pages are not spread quite evenly.
            let count = (most * colors * 9 / 8) << attempt;
            let words = ColoredWords::measure(&params, cpu, count).map_err(probe_error)?;
            let pages = by_color(words.colors(), colors);
            if is_enough(&pages, most) {
                let line_words = cache.line_bytes / 8;
                return Ok(DemoPool { memory: Box::new(words), pages, line_words, began });
            }
            in_vain.push(words);
        }
        Err(too_few())
    }
}

impl Lab for DemoPool {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn richest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.pages.len()).collect();
        order.sort_by_key(|&color| std::cmp::Reverse(self.pages[color].len()));
        order
    }

    /// Fails with `Noisy`: pages are lost to noise alone.
    fn pick(&self, colors: &[usize], count: usize) -> Result<Vec<usize>, CmdError> {
        let nth = |i: usize| self.pages[colors[i % colors.len()]].get(i / colors.len()).copied();
        (0..count).map(nth).collect::<Option<Vec<usize>>>().ok_or_else(too_few)
    }

    fn walk(&mut self, pages: &[usize], seed: u64, time: Duration) -> f64 {
        RandomWalk::link(self.memory.words(), pages, self.line_words, seed).measure(time)
    }

    fn walk_beside(
        &mut self,
        pages: &[usize],
        streamed: &[usize],
        seed: u64,
        time: Duration,
    ) -> f64 {
        let line_words = self.line_words;
        let mut walk = RandomWalk::link(self.memory.words(), pages, line_words, seed);
        walk.lap();
        let (end, mut laps) = (Instant::now() + time, Vec::new());
        while laps.is_empty() || Instant::now() < end {
            stream(walk.words(), streamed, line_words);
            laps.push(walk.timed_lap());
        }
        median(&laps)
    }
}

/// The numbers of the pages of each colour.
fn by_color(found: &[Option<Color>], colors: usize) -> Vec<Vec<usize>> {
    let mut pages = vec![Vec::new(); colors];
    for (page, color) in found.iter().enumerate() {
        if let Some(color) = color {
            pages[usize::from(color.0)].push(page);
        }
    }
    pages
}

/// Whether `most` pages can be had of one colour, and of all of them in equal parts.
fn is_enough(pages: &[Vec<usize>], most: usize) -> bool {
    let mut counts: Vec<usize> = pages.iter().map(Vec::len).collect();
    counts.sort_unstable_by_key(|&n| std::cmp::Reverse(n));
    // The n richest colours must give an n-th each.
    (1..).zip(&counts).all(|(n, &count)| count >= most.div_ceil(n))
}

fn too_few() -> CmdError {
    let what = "too few pages had a clear colour; see `huepage doctor`";
    CmdError::new(ExitCode::Noisy, what)
}

/// Colours that cannot be told apart are noise; everything else is a failure.
fn probe_error(error: ProbeError) -> CmdError {
    let noisy = |what| CmdError::new(ExitCode::Noisy, format!("{what}; see `huepage doctor`"));
    match error {
        ProbeError::Classes { found, expected, .. } => {
            noisy(format!("only {found} of {expected} colours could be told apart"))
        }
        ProbeError::Stale { .. } => noisy("no colour made a difference".to_owned()),
        other => CmdError::new(ExitCode::Internal, other),
    }
}

#[cfg(test)]
impl WordMemory for Vec<u64> {
    fn words(&mut self) -> &mut [u64] {
        self
    }
}

#[cfg(test)]
impl DemoPool {
    /// Plain memory whose pages have colours in turn, for tests.
    pub fn plain(colors: usize, pages: usize) -> DemoPool {
        let of = |color| (color..pages).step_by(colors).collect();
        let memory = Box::new(vec![0; pages * 512]);
        let pages = (0..colors).map(of).collect();
        DemoPool { memory, pages, line_words: 8, began: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_in_rotation_over_their_colours() {
        let pool = DemoPool::plain(4, 32);
        assert_eq!(pool.pick(&[3, 1], 5).unwrap(), [3, 1, 7, 5, 11]);
        assert_eq!(pool.pick(&[0, 1, 2, 3], 32).unwrap().len(), 32);
    }

    #[test]
    fn a_poor_colour_is_noise_not_a_panic() {
        let mut pool = DemoPool::plain(4, 32);
        pool.pages[2].truncate(1);
        assert_eq!(pool.pick(&[2], 2).unwrap_err().code, ExitCode::Noisy);
        assert_eq!(pool.richest_first().last(), Some(&2));
    }

    #[test]
    fn a_pool_is_enough_when_every_share_can_be_picked() {
        let pool = |counts: &[usize]| -> Vec<Vec<usize>> {
            counts.iter().map(|&n| (0..n).collect()).collect()
        };
        assert!(is_enough(&pool(&[4, 16, 8, 6]), 16));
        assert!(!is_enough(&pool(&[4, 15, 8, 6]), 16));
        assert!(!is_enough(&pool(&[3, 16, 8, 6]), 16));
        let colors = [Some(Color(1)), None, Some(Color(0)), Some(Color(1))];
        assert_eq!(by_color(&colors, 2), [vec![2], vec![0, 3]]);
    }

    #[test]
    fn walks_alone_and_beside_a_stream_take_time() {
        let mut pool = DemoPool::plain(4, 64);
        let (before, time) = (pool.now(), Duration::from_micros(300));
        let pages = pool.pick(&[0, 1], 8).unwrap();
        assert!(pool.walk(&pages, 3, time) > 0.0);
        assert!(pool.walk_beside(&pages, &[2, 3], 3, time) > 0.0);
        assert!(pool.now() >= before + time * 2);
    }

    #[test]
    fn noise_is_told_from_failure() {
        let noise = ProbeError::Stale { rounds: 9 };
        assert_eq!(probe_error(noise).code, ExitCode::Noisy);
        let some = ProbeError::Classes { found: 3, expected: 16, why: "noise".into() };
        let error = probe_error(some);
        assert_eq!(error.code, ExitCode::Noisy);
        assert!(error.message.contains("3 of 16"), "{error}");
        assert_eq!(probe_error(ProbeError::HiddenFrames).code, ExitCode::Internal);
    }
}
