//! A random walk that touches every line of its memory once per lap, each step depending on
//! the one before, and a stream that reads from end to end. Neither chooses its memory.
//!
//! Steps are indexes kept in the lines themselves, so the walk is safe code; the bounds check
//! is predicted and adds nothing to the chain of loads that is timed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use huepage_linux::color::walk::PAGE_WORDS;

use super::stats::median;

/// Shortest interval that is timed at once, so that reading the clock does not count.
const CHUNK: Duration = Duration::from_micros(100);

/// One cycle through all lines of some pages, in random order.
pub struct RandomWalk<'a> {
    words: &'a [u64],
    steps: usize,
    at: usize,
}

impl<'a> RandomWalk<'a> {
    /// Links the lines, of `line_words` words each, of the numbered `pages` of `words`; what
    /// these pages held is overwritten.
    pub fn link(
        words: &'a mut [u64],
        pages: &[usize],
        line_words: usize,
        seed: u64,
    ) -> RandomWalk<'a> {
        let mut order: Vec<usize> = lines(pages, line_words).collect();
        let mut random = Random(seed | 1);
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last + 1));
        }
        for (place, &line) in order.iter().enumerate() {
            words[line] = order[(place + 1) % order.len()] as u64;
        }
        RandomWalk { words, steps: order.len(), at: order[0] }
    }

    /// The memory that it walks in.
    pub fn words(&self) -> &[u64] {
        self.words
    }

    /// Walks one lap.
    pub fn lap(&mut self) {
        let mut at = self.at;
        for _ in 0..self.steps {
            // The words hold indexes of this slice, so they fit.
            at = usize::try_from(self.words[at]).unwrap_or(0);
        }
        self.at = black_box(at);
    }

    /// Walks a lap and gives the nanoseconds per step.
    pub fn timed_lap(&mut self) -> f64 {
        let start = Instant::now();
        self.lap();
        start.elapsed().as_secs_f64() * 1e9 / self.steps as f64
    }

    /// The median nanoseconds per step over `time`, after two laps to warm up.
    pub fn measure(&mut self, time: Duration) -> f64 {
        self.lap();
        let warm = Instant::now();
        self.lap();
        let laps = laps_for(CHUNK, warm.elapsed());
        let (end, mut chunks) = (Instant::now() + time, Vec::new());
        while chunks.is_empty() || Instant::now() < end {
            let start = Instant::now();
            (0..laps).for_each(|_| self.lap());
            let steps = self.steps as f64 * f64::from(laps);
            chunks.push(start.elapsed().as_secs_f64() * 1e9 / steps);
        }
        median(&chunks)
    }
}

fn laps_for(chunk: Duration, lap: Duration) -> u32 {
    let laps = chunk.as_nanos() / lap.as_nanos().max(1);
    u32::try_from(laps).unwrap_or(1000).clamp(1, 1000)
}

/// The first word of every line of the pages.
fn lines(pages: &[usize], line_words: usize) -> impl Iterator<Item = usize> + '_ {
    let words = |&page: &usize| page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
    pages.iter().flat_map(move |page| words(page).step_by(line_words))
}

/// Reads every line of the pages once, in order.
pub fn stream(words: &[u64], pages: &[usize], line_words: usize) {
    let mut sum = 0u64;
    for &page in pages {
        let page = &words[page * PAGE_WORDS..(page + 1) * PAGE_WORDS];
        for line in page.iter().step_by(line_words) {
            sum = sum.wrapping_add(*line);
        }
    }
    black_box(sum);
}

/// A xorshift generator: orders need to be random to the prefetchers, no more.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % n as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lap_visits_every_line_of_its_pages_once_and_returns() {
        let mut words = vec![u64::MAX; 8 * PAGE_WORDS];
        let pages = [6, 1, 3];
        let walk = RandomWalk::link(&mut words, &pages, 8, 3);
        let (mut seen, mut at) = (std::collections::BTreeSet::new(), walk.at);
        for _ in 0..walk.steps {
            assert!(seen.insert(at));
            at = usize::try_from(walk.words[at]).unwrap();
        }
        assert_eq!((walk.steps, at), (3 * 64, walk.at));
        assert!(seen.into_iter().eq(lines(&[1, 3, 6], 8)));
        assert_eq!(words[2 * PAGE_WORDS], u64::MAX);
    }

    #[test]
    fn the_order_is_not_the_order_of_addresses() {
        let mut words = vec![0; 8 * PAGE_WORDS];
        let pages: Vec<usize> = (0..8).collect();
        let walk = RandomWalk::link(&mut words, &pages, 8, 7);
        let next = walk.words.iter().step_by(8).zip((8u64..).step_by(8));
        let in_order = next.filter(|&(&to, following)| to == following).count();
        assert!(in_order < 20, "{in_order} of 512 steps go to the next line");
    }

    #[test]
    fn a_measurement_is_a_positive_time() {
        let mut words = vec![0; 8 * PAGE_WORDS];
        let mut walk = RandomWalk::link(&mut words, &[0, 5], 8, 5);
        let ns = walk.measure(Duration::from_millis(2));
        assert!(ns > 0.0 && ns.is_finite());
        assert!(walk.timed_lap() > 0.0);
        stream(&words, &[7, 2], 8);
    }
}
