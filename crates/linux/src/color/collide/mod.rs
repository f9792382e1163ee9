//! Evictions observed on this machine, as a source for the recovery of a hash: lines of one set
//! offset, one per page of a buffer of our own, loaded against each other and timed. Addresses
//! are physical by what the kernel says of the frames; in a virtual machine those are the
//! guest's and may say nothing about the cache, which is for [`crate::color::probe::frame_number_verdict`] to find
//! out first. Groups, classification and what follows from them are `huepage_recover`'s.

use std::collections::HashMap;
use std::sync::Arc;

use fastrand::Rng;
use huepage_color::{NumberHash, PAGE_BYTES, Pfn, PhysAddr};
use huepage_recover::Collider;

use crate::color::probe::frame_number_verdict::frames_of;
use crate::color::probe::params::MAX_STREAM;
use crate::color::probe::timing::RoundDesc;
use crate::color::probe::{LocalBench, OwnPages, ProbeError, TimingBench, TimingJob};

/// Times that lines are loaded one after the other before the victim is timed: caches do not
/// replace in the order of use, and twice was seen to do.
const PASSES: u32 = 2;
/// Victims that latencies are calibrated on.
const CALIBRATED: usize = 64;
/// Times that each question is timed; the median counts.
const ROUNDS: u32 = 3;
/// Times a question is put again while the machine is too noisy for an answer.
const RETRIES: u32 = 16;
/// Least difference, in ticks, between a line that is there and one that is gone.
const LEAST_GAP: u16 = 12;

/// Why evictions cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum EvictionError {
    /// The bench or the buffer fails.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Loading the whole pool makes no difference to a line of it.
    #[error(
        "loading {lines} lines makes a line only {gap} ticks slower, so nothing is evicted; use a larger buffer, or wait until the machine is quieter"
    )]
    NoGap {
        /// Lines loaded.
        lines: usize,
        /// Difference of the medians, in ticks.
        gap: u16,
    },
    /// A line that is not in the buffer.
    #[error("the line at {addr} is not in the buffer; report it as a bug of huepage")]
    Unknown {
        /// Its address.
        addr: PhysAddr,
    },
}

/// Evictions in the caches of the CPU this thread is pinned to.
#[derive(Debug)]
pub struct LiveCollider {
    bench: LocalBench,
    /// Where each frame of the buffer is mapped.
    mapped: HashMap<u64, u64, NumberHash>,
    /// Ticks from which on a line is taken to be gone.
    cut: u16,
    /// Lines of many groups, too few of each to evict: a victim that is gone after these tells
    /// of noise, and nothing of the lines in question.
    controls: Vec<PhysAddr>,
}

impl LiveCollider {
    /// A collider on `cpu` over a new buffer of `pages` pages, not calibrated yet.
    ///
    /// # Errors
    /// `Probe` for want of memory, privileges (frame numbers need root) or the CPU.
    pub fn new(cpu: usize, pages: usize) -> Result<LiveCollider, EvictionError> {
        let own = Arc::new(OwnPages::populated(pages)?);
        let frames = frames_of(&own)?;
        let mapped = frames.iter().map(|frame| frame.0).zip(own.addresses()).collect();
        let mut bench = LocalBench::new(cpu)?;
        bench.allow_pages(&own);
        Ok(LiveCollider { bench, mapped, cut: 0, controls: Vec::new() })
    }

    /// A line of every page of the buffer that has the set bits of `offset`: those within a
    /// page, and for `set_bits` that reach beyond it those of the frame number, as far as it
    /// can be believed.
    pub fn lines(&self, offset: u64, line_bits: u32, set_bits: u32) -> Vec<PhysAddr> {
        let set = ((1_u64 << set_bits) - 1) << line_bits;
        let inside = offset & (PAGE_BYTES - 1);
        let lines = self.mapped.keys().map(|&frame| Pfn(frame).base().0 | inside);
        let mut lines: Vec<PhysAddr> =
            lines.filter(|line| (line ^ offset) & set == 0).map(PhysAddr).collect();
        lines.sort_unstable();
        lines
    }

    /// Learns how long a line takes that is there and one that is gone, by timing lines of
    /// `pool` after `few` others of it and after all others.
    ///
    /// # Errors
    /// `NoGap` if it takes the same, `Probe`.
    pub fn calibrate(&mut self, pool: &[PhysAddr], few: usize) -> Result<u16, EvictionError> {
        let mut dice = Rng::with_seed(pool.len() as u64);
        let mut others = pool.to_vec();
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for _ in 0..CALIBRATED.min(pool.len()) {
            dice.shuffle(&mut others);
            let (victim, rest) = others.split_first().expect("a pool with lines");
            there.push(self.latency(*victim, &rest[..few.min(rest.len())])?);
            gone.push(self.latency(*victim, rest)?);
        }
        let (there, gone) = (median(&mut there), median(&mut gone));
        let gap = gone.saturating_sub(there);
        if gap < LEAST_GAP {
            return Err(EvictionError::NoGap { lines: pool.len(), gap });
        }
        self.cut = there + gap / 2;
        self.controls = others.into_iter().take(few).collect();
        Ok(gap)
    }

    /// [`Self::latency`] between two controls that show no noise; the last one if all do.
    fn quiet_latency(
        &mut self,
        victim: PhysAddr,
        lines: &[PhysAddr],
    ) -> Result<u16, EvictionError> {
        let controls = self.controls.clone();
        let controls: Vec<PhysAddr> = controls.into_iter().filter(|&c| c != victim).collect();
        let mut found = 0;
        for _ in 0..RETRIES {
            let before = self.latency(victim, &controls)?;
            found = self.latency(victim, lines)?;
            // A line that stayed needs no further proof: noise only ever evicts.
            if found < self.cut
                || (before < self.cut && self.latency(victim, &controls)? < self.cut)
            {
                break;
            }
        }
        Ok(found)
    }

    /// Ticks that the victim takes after the lines were loaded, the median of a few times.
    fn latency(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<u16, EvictionError> {
        let offset = (victim.0 & (PAGE_BYTES - 1)) as u16;
        let place = |addr: PhysAddr| {
            let page = self.mapped.get(&addr.pfn().0).copied();
            page.ok_or(EvictionError::Unknown { addr })
        };
        let stream: Vec<u64> =
            lines.iter().take(MAX_STREAM).map(|&line| place(line)).collect::<Result<_, _>>()?;
        let all = RoundDesc { first: 0, len: stream.len() as u32 };
        let job = TimingJob {
            stream,
            rounds: vec![all; ROUNDS as usize],
            offsets: vec![offset],
            passes: PASSES,
            reload: vec![place(victim)? + u64::from(offset)],
            prime: true,
            depth: 1,
        };
        Ok(median(&mut self.bench.run(&job)?.latencies))
    }
}

impl Collider for LiveCollider {
    type Error = EvictionError;

    fn evicts(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<bool, EvictionError> {
        Ok(self.quiet_latency(victim, lines)? >= self.cut)
    }

    fn pressure(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<u32, EvictionError> {
        let ticks = self.quiet_latency(victim, lines)?;
        Ok(if ticks < self.cut { 0 } else { u32::from(ticks) })
    }
}

fn median(ticks: &mut [u16]) -> u16 {
    ticks.sort_unstable();
    ticks.get(ticks.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
