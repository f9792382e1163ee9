//! Samples of data-TLB misses with their addresses, from the performance monitoring unit.
//!
//! What is sampled is chosen by `events`, and how by `crate::kernel::pmu`. A sampler says which addresses missed,
//! not how often: a period of 1000 gives one miss in a thousand. Samples of the kernel's accesses, of hits and
//! those without an address are counted and left out.

use super::events::PmuSource;
use crate::kernel::machine::SysRoot;
use crate::kernel::pmu::event::Pace;
use crate::kernel::pmu::sampler::{RING_BYTES, Sampler};
use crate::kernel::pmu::{Drained, PmuError, PmuSample, Wanted};

/// The samples of one process. Closed when dropped.
pub struct PmuSampler {
    source: PmuSource,
    period: u64,
    sampler: Sampler,
}

impl std::fmt::Debug for PmuSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rings = self.sampler.rings();
        write!(f, "PmuSampler({:?} in {}, {rings} rings)", self.source, self.period)
    }
}

impl PmuSampler {
    /// Whether this machine gives samples of TLB misses with addresses; it opens and closes a few
    /// events on the calling thread to find out.
    ///
    /// # Errors
    /// [`PmuError::Unsupported`] or [`PmuError::Denied`], with the reason.
    pub fn is_supported() -> Result<PmuSource, PmuError> {
        let source = PmuSource::here();
        source.choose(&SysRoot::default()).map(|_| source)
    }

    /// Samples one in `period` of what a source counts, from now on: that of [`PmuSource::here`], or page faults,
    /// which are samples as well.
    ///
    /// Takes a file per thread, CPU and event (two on Intel), and 132 KiB per CPU.
    ///
    /// # Errors
    /// When the machine cannot ([`PmuSampler::is_supported`]), the process has ended, the user may
    /// not, or there are not enough open files.
    pub fn open(pid: i32, period: u64, source: PmuSource) -> Result<PmuSampler, PmuError> {
        PmuSampler::with_rings(pid, period, source, RING_BYTES)
    }

    fn with_rings(
        pid: i32,
        period: u64,
        source: PmuSource,
        ring_bytes: usize,
    ) -> Result<PmuSampler, PmuError> {
        let events = source.choose(&SysRoot::default())?;
        let period = source.period(period);
        let pace = Pace::Every(period);
        let sampler = Sampler::open(Wanted::TlbMisses, pid, &events, pace, ring_bytes)?;
        Ok(PmuSampler { source, period, sampler })
    }

    /// What is sampled.
    pub fn source(&self) -> PmuSource {
        self.source
    }

    /// How much of what the source counts goes by between two samples of a thread.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// Appends the samples since the last call, in the order of time on each CPU. Does not block.
    ///
    /// Costs some tens of nanoseconds per record. It must be called before a ring is full, which is
    /// after some 2,700 samples on one CPU; what comes after that is lost.
    ///
    /// # Errors
    /// [`PmuError::Malformed`] if the kernel's records are not as documented.
    pub fn drain(&mut self, out: &mut Vec<PmuSample>) -> Result<Drained, PmuError> {
        self.sampler.drain(|sample| self.source.wants(sample), out)
    }
}

#[cfg(test)]
mod tests;
