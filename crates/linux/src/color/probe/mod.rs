//! Colours by eviction timing: which frames compete for the same sets of a private cache,
//! found by loads alone. Inside a virtual machine the frame number does not say it.
//!
//! [`timing`] holds the timed loads, [`mod@bench`] runs them here or (by another implementation
//! of [`TimingBench`]) in a target, [`build`] builds the reference classes, [`classify`]
//! sorts pages into them by votes whose latencies are weighed by likelihood, [`store`] shares
//! classes and results between processes, [`frame_number_verdict`] judges whether the frame number would have
//! done, [`llc`] says what the classes are worth for the last level. What is done with the
//! colours is decided elsewhere.

pub mod bench;
pub mod build;
pub mod classes;
pub mod classify;
pub mod clock;
pub mod frame_cache;
pub mod frame_number_verdict;
mod likelihood;
pub mod llc;
pub mod pages;
mod pairs;
pub mod params;
mod quiet;
pub mod reference;
mod reference_memory;
mod regress;
mod slow;
pub mod store;
pub mod timing;
mod vote;
mod vote_size;

use std::io;
use std::path::PathBuf;

use huepage_color::CacheLevel;

pub use bench::{LocalBench, TimingBench, TimingJob, TimingResult};
pub use build::{CandidateSource, build_classes};
pub use classes::ColorClasses;
pub use classify::{Classifier, PageVerdict, ProbeStats};
pub use frame_cache::FrameCache;
pub(crate) use frame_cache::{block, frames_of_block, place_in_block};
pub use frame_number_verdict::{FrameSample, FrameVerdict, VerdictReport, measure_verdict};
pub use llc::{CoarseColors, CoarseError, coarse_llc_colors};
pub use pages::OwnPages;
pub(crate) use pairs::paired;
pub use params::ProbeParams;
pub use quiet::quietest_cpu;
pub use reference::ReferenceSet;
pub use reference_memory::ReferenceMemory;
pub use slow::slow_color;
pub use store::{
    OpenedSet, ReferenceOrigin, StoreDir, is_stored, open_reference, open_reference_in, update,
};

/// Why colours could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The reported cache cannot be worked with.
    #[error(
        "cannot probe the {level} cache: {why}; give the geometry by hand, or colours with --colors-from declared"
    )]
    BadGeometry {
        /// The level asked for.
        level: CacheLevel,
        /// What is wrong.
        why: String,
    },
    /// One way is no larger than a page.
    #[error(
        "the {level} cache has one colour: every page covers all its sets; choose a larger level"
    )]
    OneColor {
        /// The level asked for.
        level: CacheLevel,
    },
    /// More colours than a probe tells apart.
    #[error(
        "the {level} cache has {colors} colours, a probe tells at most 254 apart; choose a smaller level"
    )]
    TooManyColors {
        /// The level asked for.
        level: CacheLevel,
        /// Colours of a linear index.
        colors: u64,
    },
    /// A job beyond the limits of [`params`], or with an index or address out of range.
    #[error("a probe job is malformed: {0}; report it as a bug of huepage")]
    BadJob(String),
    /// The classes could not be told apart.
    #[error(
        "found {found} of {expected} colour classes: {why}; `huepage info` shows the cache that was assumed, --colors-from declared needs no measuring"
    )]
    Classes {
        /// Classes found and validated.
        found: u16,
        /// Classes that the geometry promises.
        expected: u16,
        /// What stood in the way.
        why: String,
    },
    /// Streaming a class makes no difference to its own pages, even in quiet moments.
    #[error(
        "the reference pages no longer show their colours ({rounds} rounds); end other users of this core, or use --colors-from declared"
    )]
    Stale {
        /// Rounds that were run.
        rounds: u64,
    },
    /// The CPU to measure on cannot be used.
    #[error("cannot pin to CPU {cpu}: {source}; choose a CPU of this process's cpuset")]
    Pin {
        /// The CPU asked for.
        cpu: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// Finding them panicked.
    #[error("the search for colours failed by a bug of huepage; report it with the lines above")]
    Defect,
    /// Colours were to be measured only when needed, and then could not be.
    #[error("{0}")]
    Later(String),
    /// A system call failed.
    #[error("{what} failed: {source}; check free memory and privileges, then try again")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file of the shared store cannot be used.
    #[error("cannot use {}: {source}; remove it, or set HUEPAGE_CLASSES_DIR to another tmpfs directory", .path.display())]
    Store {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Frame numbers are hidden from this process.
    #[error("frame numbers are hidden without CAP_SYS_ADMIN; run huepage as root")]
    HiddenFrames,
    /// A bench that runs elsewhere (in a target) failed.
    #[error("the probe in the target failed: {0}; check that the target still runs")]
    Remote(String),
    /// A reader of `/proc` failed.
    #[error(transparent)]
    Proc(#[from] crate::kernel::procfs::ProcError),
}

impl ProbeError {
    /// For `map_err`: what failed.
    pub(crate) fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ProbeError {
        move |error| ProbeError::Os { what, source: error.into() }
    }
}

#[cfg(test)]
mod machines;
#[cfg(test)]
pub(crate) mod model;
