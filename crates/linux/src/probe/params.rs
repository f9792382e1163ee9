//! Numbers of a probe that follow from the geometry of the cache: how many colours, how many
//! pages of a class fill a set for sure, how large batches may be. No measuring here.

use huepage_color::{CacheGeometry, PAGE_BYTES, PageSize};

use super::{ProbeError, Shuffler, timing};

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

/// Lines at the start of a reload that only warm the timing code.
pub(crate) const WARMERS: usize = 4;
/// Controls of all classes together; more do not make the base line any steadier.
const MAX_CONTROLS: usize = 256;
/// Controls of all classes together, at least, if there are that many pages.
const MIN_CONTROLS: usize = 64;
/// Spare pages of a class beyond those streamed and those used as controls.
const SPARE: usize = 4;

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
    /// Pages of one class that are streamed against a batch: half as many again as ways, so
    /// that a replacement that is not quite least-recently-used still evicts.
    pub stream: usize,
    /// How often they are streamed at each offset.
    pub passes: u32,
    /// Control pages per class in each batch.
    pub controls: usize,
    /// Most lines of candidates in one batch.
    pub batch: usize,
    /// Candidate pages to build the classes from.
    pub candidates: usize,
    /// Lines of each page that are timed together: 1, or more where the clock moves in steps as
    /// large as what there is to tell apart. The caches of processors with such clocks (AMD's family
    /// 26 was seen) mix high address bits into the place of a line within its page, and evict what was
    /// used longest ago: so all lines of a page are streamed then, once.
    pub depth: u32,
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
                Ok(new.with_clock(timing::clock_step()))
            }
            _ => Err(ProbeError::TooManyColors { level: cache.level, colors }),
        }
    }

    /// Parameters for given numbers; `colors` must be at least 2 and the line at most 4 KiB.
    pub fn new(colors: u16, ways: u32, line_bytes: u32, sets: u32) -> ProbeParams {
        let classes = usize::from(colors);
        let stream = (ways as usize + ways as usize / 2).max(8);
        let controls = (MAX_CONTROLS / classes).clamp(1, (MIN_CONTROLS / classes).max(4));
        let room = MAX_RELOAD - WARMERS - controls * classes;
        let wanted = classes * 2 * (stream * 2 + controls + SPARE);
        ProbeParams {
            colors,
            ways,
            line_bytes,
            sets,
            stream,
            passes: 2,
            controls,
            batch: room.min(704),
            candidates: wanted.next_power_of_two(),
            depth: 1,
        }
    }

    /// For a clock that moves by `step` ticks at a time: hits and misses of one line are some 20
    /// ticks apart, and those of all that are timed together shall be several steps apart.
    pub(crate) fn with_clock(self, step: u32) -> ProbeParams {
        let depth = (step / 4).clamp(1, 8).next_power_of_two();
        if depth == 1 || self.lines() < 4 * depth as usize {
            return self;
        }
        ProbeParams { depth, passes: 1, batch: self.batch / depth as usize, ..self }
    }

    /// Offsets of all lines of a page, in random order.
    pub(crate) fn offsets(&self, random: &mut Shuffler) -> Vec<u16> {
        let mut offsets: Vec<u16> = (0..self.lines()).map(|i| i as u16 * self.pitch()).collect();
        random.shuffle(&mut offsets);
        offsets
    }

    /// Pages timed in a round that could time so many lines one by one: no more lines in all, so that
    /// as little comes between.
    pub(crate) fn timed(&self, lines: usize) -> usize {
        lines / self.depth as usize
    }

    /// Pages that the candidates are drawn from: where a host backs a guest's memory in pieces, few
    /// blocks side by side may hold hardly a page of some colour.
    pub fn pool(&self) -> usize {
        self.candidates * 4
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

    /// Fewest pages that a class needs to stream and to control.
    pub fn least_refs(&self) -> usize {
        self.stream + self.controls + 1
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
        let batch = p.batch * p.depth as usize;
        assert_eq!((p.colors, p.stream, p.controls, batch), (16, 24, 4, 704));
        assert_eq!(ProbeParams::new(16, 16, 64, 1024).with_clock(2).depth, 1);
        assert_eq!((p.candidates, p.lines(), p.pitch()), (2048, 64, 64));
        let p = ProbeParams::for_cache(&cache(1280 << 10, 20, 1024)).unwrap();
        assert_eq!((p.colors, p.stream), (16, 30));
        let p = ProbeParams::for_cache(&cache(2 << 20, 16, 2048)).unwrap();
        assert_eq!((p.colors, p.candidates), (32, 4096));
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
            let classes = usize::from(colors);
            assert!(p.batch + WARMERS + p.controls * classes <= MAX_RELOAD, "{colors}");
            assert!(p.batch > 0 && p.stream * MAX_ROUNDS.min(classes) <= MAX_STREAM, "{colors}");
        }
    }
}
