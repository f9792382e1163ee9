//! Numbers of a probe that follow from the geometry of the cache: how many colours, how many
//! pages of a class fill a set for sure, how large batches may be. No measuring here.

use huepage_color::{CacheGeometry, PAGE_BYTES, PageSize};

use super::ProbeError;
use super::clock::clock_step;
use fastrand::Rng;

/// Pages that one [`super::TimingJob`] may stream; what a job sent to an agent has room for.
pub const MAX_STREAM: usize = 4096;
/// Lines that one job may reload.
pub const MAX_RELOAD: usize = 1024;
/// Rounds of one job.
pub const MAX_ROUNDS: usize = 64;
/// Offsets of one job.
pub const MAX_OFFSETS: usize = 64;
/// The largest number of colours that the probe handles: a colour plus one must fit a byte.
pub const MAX_PROBED_COLORS: u16 = 254;

/// Controls of all classes together, at least.
const MIN_CONTROLS: usize = 16;
/// Pages of a class beyond those streamed at once, so that each round streams others.
const SPARE: usize = 16;
/// How many times more pages are populated than are used: memory that a confined program has just
/// given back comes first, and is of few colours. With 16 times as many, eight of 32 colours had a third
/// of the pages of others after a run in a quarter of the cache; with 64 times, populating took longer than searching.
const POOL: usize = 32;

/// The probe's view of one private cache with a linear index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeParams {
    /// Number of colours, 2 to [`MAX_PROBED_COLORS`].
    pub colors: u16,
    /// Ways of the cache.
    pub ways: u32,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Sets of the cache.
    pub sets: u32,
    /// Pages of one class that are streamed in a round: three times the ways, since few caches evict
    /// what was used longest ago. (Zen 3 evicts 5, 50, 80 and 100 % of a set when 1, 2, 3 and 5
    /// times the ways are streamed.)
    pub stream: usize,
    /// How often they are streamed.
    pub passes: u32,
    /// Control pages per class in each batch.
    pub controls: usize,
    /// Candidate pages to build the classes from.
    pub candidates: usize,
    /// Lines of each page that are timed together: 1, or more where the clock moves in steps as
    /// large as what there is to tell apart.
    pub depth: u32,
    /// The step of the clock in ticks.
    pub step: u32,
}

impl ProbeParams {
    /// Parameters for a cache.
    ///
    /// # Errors
    /// `BadGeometry` for a report that is nonsense or not linear, `OneColor` if a page covers
    /// the whole way, `TooManyColors` above 254.
    pub fn for_cache(cache: &CacheGeometry) -> Result<ProbeParams, ProbeError> {
        let bad = |why: String| ProbeError::BadGeometry { level: cache.level, why };
        if let Some(why) = cache.nonsense().first() {
            return Err(bad(why.to_string()));
        }
        let index = cache.linear_index().map_err(|e| bad(e.to_string()))?;
        let colors = cache.linear_colors(PageSize::BASE).unwrap_or(1);
        match u16::try_from(colors) {
            Ok(1) => Err(ProbeError::OneColor { level: cache.level }),
            Ok(colors) if colors <= MAX_PROBED_COLORS => {
                let new = Self::new(colors, cache.ways, cache.line_bytes, 1 << index.set_bits());
                Ok(new.with_clock(clock_step()))
            }
            _ => Err(ProbeError::TooManyColors { level: cache.level, colors }),
        }
    }

    /// Parameters for given numbers; `colors` must be at least 2 and the line at most 4 KiB.
    pub fn new(colors: u16, ways: u32, line_bytes: u32, sets: u32) -> ProbeParams {
        let classes = usize::from(colors);
        let stream = (ways as usize * 3).max(8);
        let controls = MIN_CONTROLS.div_ceil(classes);
        let candidates = classes * (stream * 2 + controls + SPARE);
        ProbeParams {
            colors,
            ways,
            line_bytes,
            sets,
            stream,
            passes: 1,
            controls,
            candidates,
            depth: 1,
            step: 1,
        }
    }

    /// For a clock that moves by `step` ticks at a time: hits and misses of one line are some 20
    /// ticks apart, and those of all that are timed together shall be several steps apart.
    pub(crate) fn with_clock(self, step: u32) -> ProbeParams {
        let depth = match step {
            0..=5 => 1,
            6..=26 => 4,
            _ => 8,
        };
        // A chain leaves some of the lines of its page out.
        ProbeParams { depth: depth.min(self.lines() as u32 / 2).max(1), step: step.max(1), ..self }
    }

    /// Offsets of all lines of a page, in random order.
    pub(crate) fn offsets(&self, random: &mut Rng) -> Vec<u16> {
        let mut offsets: Vec<u16> = (0..self.lines()).map(|i| i as u16 * self.pitch()).collect();
        random.shuffle(&mut offsets);
        offsets
    }

    /// Pages that the candidates are drawn from.
    pub fn pool(&self) -> usize {
        self.candidates * POOL
    }

    /// Lines in a page.
    pub fn lines(&self) -> usize {
        (PAGE_BYTES as usize / self.line_bytes as usize).clamp(1, MAX_OFFSETS)
    }

    /// Distance between the lines used, in bytes: the line size, or more if a page has more
    /// than [`MAX_OFFSETS`] lines.
    pub fn pitch(&self) -> u16 {
        (PAGE_BYTES as usize / self.lines()) as u16
    }

    /// Fewest pages of a class when it is built: those that are streamed, and those that control.
    pub fn least_refs(&self) -> usize {
        self.stream + self.controls + 1
    }

    /// Fewest pages of a class that sorts others at all: streaming twice the ways evicts half of a set. A class that
    /// loses pages holds until it has fewer.
    pub(crate) fn fewest_refs(&self) -> usize {
        (2 * self.ways as usize).max(8) + self.controls
    }

    /// Pages of a class worth keeping.
    pub fn keep_refs(&self) -> usize {
        self.stream * 2 + self.controls + SPARE
    }
}

#[cfg(test)]
mod tests {
    use huepage_color::{CacheKind, CacheLevel};

    use super::*;

    fn cache(size_bytes: u64, ways: u32, sets: u32) -> CacheGeometry {
        CacheGeometry {
            level: CacheLevel::L2,
            kind: CacheKind::Unified,
            size_bytes,
            line_bytes: 64,
            ways,
            sets,
            slices: None,
            shared_cpus: 1,
            last_level: false,
        }
    }

    #[test]
    fn the_geometry_gives_the_numbers() {
        let p = ProbeParams::for_cache(&cache(1 << 20, 16, 1024)).unwrap();
        assert_eq!((p.colors, p.stream, p.controls), (16, 48, 1));
        assert_eq!((p.lines(), p.pitch()), (64, 64));
        let p = ProbeParams::for_cache(&cache(1280 << 10, 20, 1024)).unwrap();
        assert_eq!((p.colors, p.stream), (16, 60));
        let p = ProbeParams::for_cache(&cache(1 << 20, 8, 2048)).unwrap();
        assert_eq!((p.colors, p.stream), (32, 24));
        assert_eq!(ProbeParams::new(2, 4, 64, 128).controls, 8);
    }

    #[test]
    fn more_lines_are_timed_together_by_coarser_clocks() {
        let depth = |step| ProbeParams::new(16, 16, 64, 1024).with_clock(step).depth;
        assert_eq!([1, 2, 24, 26, 36].map(depth), [1, 1, 4, 4, 8]);
        assert_eq!(ProbeParams::new(16, 16, 1024, 64).with_clock(36).depth, 2);
    }

    #[test]
    fn impossible_caches_are_refused() {
        let one = ProbeParams::for_cache(&cache(1, 1, 1)).unwrap_err();
        assert!(matches!(one, ProbeError::BadGeometry { .. }), "{one}");
        let small = ProbeParams::for_cache(&cache(32 << 10, 8, 64)).unwrap_err();
        assert!(matches!(small, ProbeError::OneColor { .. }), "{small}");
        let large = ProbeParams::for_cache(&cache(64 << 20, 16, 65536)).unwrap_err();
        assert!(matches!(large, ProbeError::TooManyColors { colors: 1024, .. }), "{large}");
    }

    #[test]
    fn every_job_fits_the_limits() {
        for colors in 2..=MAX_PROBED_COLORS {
            let p = ProbeParams::new(colors, 16, 64, 64 * u32::from(colors));
            assert!(p.stream <= MAX_STREAM && p.keep_refs() >= p.least_refs(), "{colors}");
            assert!(p.controls * usize::from(colors) + 144 <= MAX_RELOAD, "{colors}");
        }
    }
}
