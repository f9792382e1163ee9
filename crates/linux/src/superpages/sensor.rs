//! What tells of TLB misses: one interface for all sources, and which of them this machine has.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::accessed::AccessedBits;
use super::coarse::{Areas, PageOut, Pmu};
use super::ground::Ground;
use super::hands::Hands;
use super::replay::{Miss, Sampled};
use super::sources::{PageOutError, PageOutSampler, PmuError, PmuSampler, SmapsError};
use super::tables::{PageTables, TablesError};
use crate::probe::Shuffler;
use crate::procfs::{ProcError, ProcRoot};

/// Where knowledge of misses comes from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
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

impl Source {
    /// The name as the command line has it.
    pub const fn text(self) -> &'static str {
        match self {
            Source::Pmu => "pmu",
            Source::AccessedBits => "accessed-bits",
            Source::Areas => "areas",
            Source::PageOut => "page-out",
            Source::None => "none",
        }
    }
}

impl fmt::Display for Source {
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
            SensorError::Proc(error) => error.is_gone(),
            SensorError::Pmu(error) => error.is_gone(),
            SensorError::Smaps(error) => matches!(error, SmapsError::Gone(_)),
            SensorError::PageOut(error) => matches!(error, PageOutError::Gone(_)),
        }
    }
}

/// What a look saw: blocks of which some pages were looked at, or misses themselves.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// How long touches were gathered.
    pub window: Duration,
    /// Blocks.
    pub sampled: Vec<Sampled>,
    /// The TLB is turned over only in the second half of that time: what is touched late is what
    /// misses, whether touches come by chance or not.
    pub slow: bool,
    /// Misses that were sampled as such.
    pub misses: Vec<Miss>,
}

/// A source for one process. A look sleeps for a moment; what it costs is the CPU time of the
/// thread.
pub trait Sensor {
    /// What is resident in the process, found as this source can do it best.
    ///
    /// # Errors
    /// When the process has ended, or cannot be looked at.
    fn survey(&mut self, root: &ProcRoot, pid: i32) -> Result<Ground, SensorError> {
        Ok(Ground::look(root, pid)?)
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
        ground: &Ground,
        hands: &Hands,
        cpu_seconds: f64,
        random: &mut Shuffler,
    ) -> Result<Look, SensorError>;
}

/// What this machine can look with, opened once for all processes.
pub enum Eyes {
    /// Samples of misses.
    Pmu,
    /// Page tables, and why there is nothing better.
    Tables(Rc<RefCell<PageTables>>, String),
    /// Areas, and why there is nothing better.
    Areas(String),
    /// Pages that come back.
    PageOut,
    /// Nothing, with the reason.
    None(String),
}

impl Eyes {
    /// The best there is, or the source that is asked for; none where none is needed.
    pub fn open(needed: bool, asked: Option<Source>) -> Eyes {
        if !needed {
            return Eyes::None(String::new());
        }
        let tables = |why: String| match PageTables::open() {
            Ok(tables) => Ok(Eyes::Tables(Rc::new(RefCell::new(tables)), why)),
            Err(error) => Err(error.to_string()),
        };
        let found = match asked {
            Some(Source::Pmu) => pmu(),
            Some(Source::AccessedBits) => tables(String::new()),
            Some(Source::Areas) => Ok(Eyes::Areas(String::new())),
            Some(Source::PageOut) => page_out(),
            Some(Source::None) => Err(String::new()),
            None => pmu().or_else(tables).or_else(|why| Ok(Eyes::Areas(why))),
        };
        found.unwrap_or_else(Eyes::None)
    }

    /// Which it is.
    pub fn source(&self) -> Source {
        match self {
            Eyes::Pmu => Source::Pmu,
            Eyes::Tables(..) => Source::AccessedBits,
            Eyes::Areas(_) => Source::Areas,
            Eyes::PageOut => Source::PageOut,
            Eyes::None(_) => Source::None,
        }
    }

    /// Why there is no better one; empty if there is none better or it was asked for.
    pub fn because(&self) -> String {
        match self {
            Eyes::None(why) | Eyes::Areas(why) | Eyes::Tables(_, why) => why.clone(),
            Eyes::Pmu | Eyes::PageOut => String::new(),
        }
    }

    /// For one process.
    ///
    /// # Errors
    /// When it has ended or cannot be looked at.
    pub fn sensor(&self, pid: i32) -> Result<Option<Box<dyn Sensor>>, SensorError> {
        Ok(match self {
            Eyes::Pmu => Some(Box::new(Pmu::of(pid)?)),
            Eyes::Tables(tables, _) => Some(Box::new(AccessedBits::of(tables, pid)?)),
            Eyes::Areas(_) => Some(Box::new(Areas::of(pid))),
            Eyes::PageOut => Some(Box::new(PageOut::of(pid)?)),
            Eyes::None(_) => None,
        })
    }
}

fn pmu() -> Result<Eyes, String> {
    PmuSampler::is_supported().map(|_| Eyes::Pmu).map_err(|error| error.to_string())
}

fn page_out() -> Result<Eyes, String> {
    let found = PageOutSampler::is_supported(&ProcRoot::default());
    found.map(|()| Eyes::PageOut).map_err(|error| error.to_string())
}

/// Why misses cannot come from a source here; `None` if they can.
pub fn lacking(source: Source) -> Option<String> {
    let eyes = Eyes::open(true, Some(source));
    (eyes.source() != source).then(|| eyes.because())
}
