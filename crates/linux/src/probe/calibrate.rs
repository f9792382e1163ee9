//! What a hit and a miss cost on this machine, in ticks, as the timed loop sees them. The
//! probe never compares a latency with a fixed number: it uses the gap found here above the
//! latency of lines that were surely not evicted.

use std::thread;
use std::time::Duration;

use super::bench::{TimingBench, TimingJob, TimingResult};
use super::params::{MAX_STREAM, ProbeParams};
use super::timing::RoundDesc;
use super::{ProbeError, Shuffler};

/// Latency steps and speed of one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Ticks above a hit in the probed level from which a line counts as evicted.
    pub gap: u16,
    /// Ticks per streamed load, at most.
    pub pace: f32,
}

/// Repetitions that make sense; the lowest counts.
const REPEATS: usize = 4;
/// Repetitions in all: where another processor thread floods the cache, even lines just loaded
/// are gone, and a quieter moment must be waited for.
const ATTEMPTS: usize = 200;
/// Lines timed; few, so that little can come between.
const LINES: usize = 320;
/// The smallest step between hit and miss, in ticks, that can be told from noise.
const LEAST_STEP: u16 = 12;

impl Calibration {
    /// Measures with `pages` (addresses in the bench's address space; together several times
    /// the size of the probed cache).
    ///
    /// # Errors
    /// `Classes` if there is no step between a hit and a miss, and whatever the bench fails of.
    pub(crate) fn measure(
        bench: &mut dyn TimingBench,
        params: &ProbeParams,
        pages: &[u64],
        random: &mut Shuffler,
    ) -> Result<Calibration, ProbeError> {
        let mut best = Samples::default();
        let (mut good, mut attempts) = (0, 0);
        while good < REPEATS && attempts < ATTEMPTS {
            attempts += 1;
            let found = sample(bench, params, pages, random)?;
            good += usize::from(found.step() >= LEAST_STEP);
            if found.step() >= LEAST_STEP || attempts == ATTEMPTS {
                best.lower(&found);
            } else {
                thread::sleep(Duration::from_micros(500));
            }
        }
        let step = best.step();
        if step < LEAST_STEP {
            let why = format!("a miss takes {} ticks and a hit {}", best.miss, best.hit);
            return Err(ProbeError::Classes { found: 0, expected: params.colors, why });
        }
        let gap = step / 2;
        let depth = params.depth as u16;
        Ok(Calibration { gap: gap.clamp(8 * depth, 60 * depth), pace: best.pace })
    }

    /// The time beyond which a round of so many streamed loads and reloads was interrupted.
    pub fn limit(&self, loads: usize, reloads: usize) -> u64 {
        (loads as f64 * f64::from(self.pace) * 4.0) as u64 + reloads as u64 * 500 + 20_000
    }
}

/// One measurement of everything.
#[derive(Debug)]
struct Samples {
    hit: u16,
    miss: u16,
    pace: f32,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { hit: u16::MAX, miss: u16::MAX, pace: f32::MAX }
    }
}

impl Samples {
    fn step(&self) -> u16 {
        self.miss.saturating_sub(self.hit)
    }

    fn lower(&mut self, other: &Samples) {
        self.hit = self.hit.min(other.hit);
        self.miss = self.miss.min(other.miss);
        self.pace = self.pace.min(other.pace);
    }
}

fn sample(
    bench: &mut dyn TimingBench,
    params: &ProbeParams,
    pages: &[u64],
    random: &mut Shuffler,
) -> Result<Samples, ProbeError> {
    let stream: Vec<u64> = pages.iter().copied().take(MAX_STREAM).collect();
    let count = stream.len().min(LINES);
    let pitch = u64::from(params.pitch());
    let line = |page: u64, r: &mut Shuffler| page + r.below(params.lines()) as u64 * pitch;
    let mut reload = vec![line(stream[0], random); 32];
    reload.extend(stream.iter().take(count).map(|&page| line(page, random)));
    let mut offsets: Vec<u16> = (0..params.lines()).map(|i| i as u16 * params.pitch()).collect();
    random.shuffle(&mut offsets);
    let rest = RoundDesc { first: 0, len: 0 };
    let all = RoundDesc { first: 0, len: stream.len() as u32 };
    let job = TimingJob {
        rounds: vec![rest, rest, all],
        offsets,
        passes: 1,
        depth: params.depth,
        prime: true,
        stream,
        reload,
    };
    Ok(judge(&bench.run(&job)?, &job))
}

fn judge(result: &TimingResult, job: &TimingJob) -> Samples {
    let quiet = result.round(1, job.reload.len());
    let evicted = result.round(2, job.reload.len());
    let loads = (job.stream.len() * job.offsets.len()).max(1);
    let timed = result.elapsed[2].saturating_sub(result.elapsed[1]);
    Samples {
        hit: quantile(&quiet[32..], 40),
        miss: quantile(&evicted[32..], 10),
        pace: (timed as f32 / loads as f32).max(1.0),
    }
}

/// The value below which `percent` of the latencies lie; 0 of none. Latencies beyond 1023
/// ticks count as 1023.
pub(crate) fn quantile(latencies: &[u16], percent: usize) -> u16 {
    let mut histogram = [0u16; 1024];
    for &ticks in latencies {
        histogram[usize::from(ticks.min(1023))] += 1;
    }
    let mut left = latencies.len() * percent / 100;
    for (ticks, &n) in histogram.iter().enumerate() {
        if left < usize::from(n) {
            return ticks as u16;
        }
        left -= usize::from(n);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::model::ModelBench;
    use super::*;

    #[test]
    fn quantiles_of_short_and_long_lists() {
        assert_eq!(quantile(&[], 50), 0);
        assert_eq!(quantile(&[9], 50), 9);
        assert_eq!(quantile(&[60, 70, 80, 2000, 61], 50), 70);
        assert_eq!(quantile(&[60, 70, 80, 2000, 61], 99), 1023);
    }

    #[test]
    fn the_gap_lies_between_hit_and_miss() {
        let params = ProbeParams::new(16, 16, 64, 1024);
        let mut model = ModelBench::new(16, 0, 1);
        let pages = model.populate(1 << 20, 2048, 16);
        let random = &mut Shuffler::new(2);
        let found = Calibration::measure(&mut model, &params, &pages, random).unwrap();
        assert!((10..40).contains(&found.gap), "{found:?}");
        assert!(found.limit(3000, 700) > 20_000);
    }

    #[test]
    fn no_step_is_an_error() {
        let params = ProbeParams::new(2, 16, 64, 128);
        let mut model = ModelBench::new(10_000, 0, 1);
        let pages = model.populate(1 << 20, 512, 2);
        let found = Calibration::measure(&mut model, &params, &pages, &mut Shuffler::new(2));
        assert!(matches!(found, Err(ProbeError::Classes { .. })), "{found:?}");
    }
}
