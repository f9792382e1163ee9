//! What sees TLB misses: one interface for all sources.

use std::fmt;
use std::time::Duration;

use huepage_color::Vpn;
pub use huepage_policy::recording::touches::BlockLook as SampledBlock;
use serde::{Deserialize, Serialize};

use crate::kernel::area_references::SmapsError;
use crate::kernel::page_tables::TablesError;
use crate::kernel::pmu::PmuError;
use crate::kernel::process_memory::ProcessMemory;
use crate::kernel::procfs::{ProcError, ProcRoot};
use crate::sensors::superpage_map::SuperpageMap;
use crate::sensors::tlb::pageout::PageOutError;
use fastrand::Rng;

/// Where knowledge of misses comes from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissSensorKind {
    /// Samples of misses with their addresses, from performance counters.
    Pmu,
    /// Accessed bits of page tables, read by a BPF program.
    AccessedBits,
    /// How much of each area was accessed, from `smaps`.
    Areas,
    /// Pages that come back after they were paged out.
    PageOut,
    /// Nothing: the policy goes by what is resident.
    None,
}

impl MissSensorKind {
    /// The name as the command line has it.
    pub const fn text(self) -> &'static str {
        match self {
            MissSensorKind::Pmu => "pmu",
            MissSensorKind::AccessedBits => "accessed-bits",
            MissSensorKind::Areas => "areas",
            MissSensorKind::PageOut => "page-out",
            MissSensorKind::None => "none",
        }
    }
}

impl fmt::Display for MissSensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
pub enum SensorError {
    /// Page tables cannot be read.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// `/proc` cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// Misses cannot be sampled.
    #[error(transparent)]
    Pmu(#[from] PmuError),
    /// Areas cannot be read.
    #[error(transparent)]
    Smaps(#[from] SmapsError),
    /// Pages cannot be paged out.
    #[error(transparent)]
    PageOut(#[from] PageOutError),
}

impl SensorError {
    /// Whether the process is simply gone.
    pub fn is_gone(&self) -> bool {
        match self {
            SensorError::Tables(error) => matches!(error, TablesError::NoProcess(_)),
            SensorError::Pmu(error) => error.is_gone(),
            SensorError::Proc(error)
            | SensorError::Smaps(SmapsError::Proc(error))
            | SensorError::PageOut(PageOutError::Process(error)) => error.is_gone(),
            SensorError::Smaps(_) | SensorError::PageOut(_) => false,
        }
    }
}

/// A miss, and what made way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The page.
    pub page: Vpn,
    /// What left the TLB for it.
    pub victim: Option<Vpn>,
}

/// What a look saw: blocks of which some pages were looked at, or misses themselves.
#[derive(Clone, Debug, Default)]
pub struct SensorLook {
    /// How long touches were gathered.
    pub window: Duration,
    /// How long the first half of that took in truth; none where there are no halves.
    pub half: Option<Duration>,
    /// Blocks.
    pub sampled: Vec<SampledBlock>,
    /// The TLB is turned over only in the second half of that time: what is touched late is what
    /// misses, whether touches come by chance or not.
    pub slow: bool,
    /// Misses that were sampled as such.
    pub misses: Vec<Miss>,
}

/// A source for one process. A look sleeps for a moment; what it costs is the CPU time of the
/// thread.
pub trait MissSensor {
    /// What is resident in the process, found as this source can do it best.
    ///
    /// # Errors
    /// When the process has ended, or cannot be looked at.
    fn survey(&mut self, root: &ProcRoot, pid: i32) -> Result<SuperpageMap, SensorError> {
        Ok(SuperpageMap::from_proc(root, pid)?)
    }

    /// Which of some superpages, by address divided by 2 MiB, were touched since they were marked as
    /// not touched; those that are none any more are left out. None where that cannot be seen.
    ///
    /// # Errors
    /// When the process has ended, or cannot be looked at.
    fn touched(&mut self, _blocks: &[u64]) -> Result<Option<Vec<(u64, bool)>>, SensorError> {
        Ok(None)
    }

    /// Looks at some pages of the process, which has used so many seconds of CPU time.
    ///
    /// # Errors
    /// When the process has ended, or cannot be looked at.
    fn look(
        &mut self,
        map: &SuperpageMap,
        process: &ProcessMemory,
        cpu_seconds: f64,
        random: &mut Rng,
    ) -> Result<SensorLook, SensorError>;
}
