//! Miss-rate curves from sampled reuse distances: what share of a program's requests the last
//! cache would miss if the program had 0, 1, 2 … of its colours. A sample of lines is followed,
//! chosen by a hash of their numbers, so that every use of a line is seen or none (SHARDS:
//! Waldspurger, Park, Garthwaite and Ahmad, FAST 2015); distances between them times the
//! sampling rate are distances between all. Needs the lines that are requested of the last cache;
//! the sampling may be left to whoever watches.
//!
//! Lines farther than the whole cache are forgotten. Cost: time in proportion to the lines
//! followed for each request of one, at most the lines of the cache divided by the rate.

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurveSettings {
    /// Colours of the cache.
    pub colors: u16,
    /// Lines of a colour: ways times lines per page.
    pub lines: u64,
    /// One line in 2^this is followed.
    pub shift: u32,
    /// Requests of followed lines before any is counted, so that lines first seen are not taken
    /// for misses.
    pub warm_up: u64,
}

impl CurveSettings {
    /// For a cache of so many colours, one line in 64: about 1000 lines for 4 MB, as many as
    /// Waldspurger et al. found to be enough. Warm after twice as many requests as followed lines
    /// fit into the cache.
    pub const fn new(colors: u16, lines: u64) -> CurveSettings {
        let shift = 6;
        let warm_up = 2 * ((colors as u64 * lines) >> shift);
        CurveSettings { colors, lines, shift, warm_up }
    }

    /// Whether a line is one of those followed.
    pub const fn follows(&self, line: u64) -> bool {
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash ^ hash >> 29) >> 20 & ((1 << self.shift) - 1) == 0
    }

    /// Followed lines that fit into the whole cache.
    fn capacity(&self) -> usize {
        let lines = (u64::from(self.colors) * self.lines) >> self.shift;
        usize::try_from(lines).unwrap_or(usize::MAX).max(1)
    }
}

/// A curve in the making.
#[derive(Clone, Debug)]
pub struct Curve {
    settings: CurveSettings,
    /// Followed lines, the latest first.
    recent: Vec<u64>,
    /// Hits by the colours that they take, from 1; the last place has misses of the whole cache.
    counts: Vec<u64>,
    requests: u64,
}

impl Curve {
    /// Nothing seen yet.
    pub fn new(settings: CurveSettings) -> Curve {
        let counts = vec![0; usize::from(settings.colors) + 1];
        Curve { settings, recent: Vec::new(), counts, requests: 0 }
    }

    /// A line was requested of the last cache. Those not followed are passed by.
    pub fn request(&mut self, line: u64) {
        if !self.settings.follows(line) {
            return;
        }
        self.requests += 1;
        let at = self.recent.iter().position(|&known| known == line);
        if self.requests > self.settings.warm_up {
            let colors = usize::from(self.settings.colors);
            let bin = at.map_or(colors, |at| self.bin(at).min(colors));
            self.counts[bin] += 1;
        }
        match at {
            Some(at) => self.recent[..=at].rotate_right(1),
            None => {
                self.recent.truncate(self.settings.capacity() - 1);
                self.recent.insert(0, line);
            }
        }
    }

    /// Colours less one that keep a line with so many followed ones after it.
    fn bin(&self, after: usize) -> usize {
        let lines = (after as u64) << self.settings.shift;
        usize::try_from(lines / self.settings.lines.max(1)).unwrap_or(usize::MAX)
    }

    /// Requests of followed lines that were counted.
    pub fn counted(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The share that misses, 0 to 1, by the number of colours from 0 on; none before anything
    /// was counted.
    pub fn miss_rates(&self) -> Option<Vec<f64>> {
        let all = self.counted();
        let mut left = all;
        let rate = |hits: &u64| {
            let rate = left as f64 / all as f64;
            left -= hits;
            rate
        };
        (all > 0).then(|| self.counts.iter().map(rate).collect())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.counts.fill(0);
        self.requests = 0;
    }
}
