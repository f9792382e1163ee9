//! The reference set: pages of memory that all can map, and which of them have which colour.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use huepage_color::PAGE_BYTES;

use super::bench::LocalBench;
use super::build::{CandidateSource, build_classes};
use super::classes::ColorClasses;
use super::params::ProbeParams;
use super::reference_memory::ReferenceMemory;
use super::{ProbeError, TimingBench};
use crate::kernel::cgroup::MOUNT;
use crate::kernel::memory_room::{MemoryRoom, available_bytes};
use crate::kernel::procfs::ProcRoot;

/// Candidates may come from so many times as much memory as is usually enough: the first part, one of twice that,
/// one of four and one of eight times.
const PARTS: usize = 1 + 2 + 4 + 8;

/// Reference pages together with their classes.
#[derive(Clone, Debug)]
pub struct ReferenceSet {
    /// The pages.
    pub memory: Arc<ReferenceMemory>,
    /// Which of them have which colour.
    pub classes: ColorClasses,
    /// Identifies this set among all of this machine: colours of two sets with the same
    /// number mean the same.
    pub generation: u64,
}

impl ReferenceSet {
    /// Builds a set in private memory, measuring on `cpu` for at most `limit` of CPU time.
    ///
    /// # Errors
    /// `Classes`, `Pin`, `Os`.
    pub fn build_private(
        params: &ProbeParams,
        cpu: usize,
        limit: Duration,
    ) -> Result<ReferenceSet, ProbeError> {
        let memory = Arc::new(ReferenceMemory::private(pool_pages(params))?);
        Self::build_in(memory, 0, params, cpu, limit)
    }

    /// Builds a set out of the pages from `first` on, as many as it takes, and releases the others.
    pub(crate) fn build_in(
        memory: Arc<ReferenceMemory>,
        first: usize,
        params: &ProbeParams,
        cpu: usize,
        limit: Duration,
    ) -> Result<ReferenceSet, ProbeError> {
        let mut bench = LocalBench::with_reference(cpu, &memory)?;
        let mut parts = MemoryParts { memory: &memory, first, used: first, next: params.pool() };
        let classes = build_classes(&mut bench, params, &mut parts, limit)?;
        let end = classes.pages().max().map_or(first, |last| last as usize + 1);
        let memory = Arc::new(memory.shortened(end)?);
        memory.release_others(first, &classes)?;
        Ok(ReferenceSet { memory, classes, generation: new_generation(&bench) })
    }

    /// A bench in this process, on `cpu`, that can load from these reference pages.
    ///
    /// # Errors
    /// `Pin`.
    pub fn bench(&self, cpu: usize) -> Result<LocalBench, ProbeError> {
        LocalBench::with_reference(cpu, &self.memory)
    }
}

/// Memory that candidates are drawn from, a part at a time.
struct MemoryParts<'a> {
    memory: &'a ReferenceMemory,
    /// Where the first part begins, where the next one does, and how many pages that has: twice as many each time, as
    /// what a program has given back comes first and may be much.
    first: usize,
    used: usize,
    next: usize,
}

impl CandidateSource for MemoryParts<'_> {
    fn more(&mut self) -> Result<Vec<u32>, ProbeError> {
        let (begin, end) = (self.used, self.memory.pages().min(self.used + self.next));
        match self.memory.populate(begin, end - begin) {
            Err(error) if begin == self.first => return Err(error),
            // There is no room for more, as in a small tmpfs: what there was is for others.
            Err(_) => {
                self.next = 0;
                self.memory.resize(begin)?;
                return Ok(Vec::new());
            }
            Ok(()) => (self.used, self.next) = (end, self.next * 2),
        }
        Ok((begin as u32..end as u32).collect())
    }
}

/// Pages to draw candidates from at most, where an eighth of what this machine and the control
/// groups of this process leave is enough for that.
pub(crate) fn pool_pages(params: &ProbeParams) -> usize {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let group = MemoryRoom::new(ProcRoot::default(), Path::new(MOUNT), own).left();
    let least = group.into_iter().chain(available_bytes()).min();
    let room = least.map_or(usize::MAX, |bytes| (bytes / 8 / PAGE_BYTES) as usize);
    (params.pool() * PARTS).min(room).max(params.candidates)
}

/// A number that no other set of this machine has: the time, the process and the address.
fn new_generation(bench: &dyn TimingBench) -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |d| d.as_nanos() as u64);
    let mixed = nanos ^ (u64::from(std::process::id()) << 40) ^ bench.reference_base() >> 12;
    mixed.max(1)
}
