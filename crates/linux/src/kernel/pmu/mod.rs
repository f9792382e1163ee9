//! What the performance monitoring unit of the processor tells through `perf_event_open`: samples of
//! accesses with the thread, the address and who answered, and counts of a process.
//!
//! `event` knows how an event is asked for and what `/sys` says of it, `sampler` samples one process on
//! all CPUs, `ring` reads the kernel's records, `source` says which level of the memory answered a load.
//! [`loads`] finds the event that samples loads, [`counts`] those that count requests to a cache and
//! instructions, [`calls`] counts calls of a function. Samples of TLB misses are chosen in `superpages`.
//! Where `HUEPAGE_PMU` names a file, [`mod@file`] has samples of loads and counts from that, in place of the processor's.
//! What is done with any of it is decided elsewhere; nothing of a watched process is changed, but for a
//! trap where calls are counted.

pub mod calls;
mod count_values;
pub mod counts;
pub(crate) mod event;
pub mod file;
pub mod loads;
pub(crate) mod ring;
pub(crate) mod sampler;
pub mod source;
#[cfg(test)]
pub(crate) mod stream_tests;

use std::fmt;
use std::io;

pub use ring::PmuSample;
pub use sampler::{Drained, Sampler};
pub use source::{DataSource, Served};

use crate::kernel::procfs::ProcError;

/// What was asked of the PMU; errors name it, and what there is instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Samples of accesses that missed the TLB.
    TlbMisses,
    /// Samples of loads, with who answered.
    Loads,
    /// Counts of instructions, and of what a cache was asked for and missed.
    Counts,
    /// Counts of calls of a function.
    Calls,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wanted::TlbMisses => "samples of TLB misses",
            Wanted::Loads => "samples of loads",
            Wanted::Counts => "counts of cache misses",
            Wanted::Calls => "counts of calls",
        })
    }
}

impl Wanted {
    /// What can be used in its place.
    const fn instead(self) -> &'static str {
        match self {
            Wanted::TlbMisses => "use accessed bits or page-out sampling instead",
            Wanted::Loads | Wanted::Counts => "use the residency sensor instead",
            Wanted::Calls => "use a command that tells of progress instead",
        }
    }
}

/// Why the PMU tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum PmuError {
    /// The machine cannot do it.
    #[error("no {0}: {1}; {instead}", instead = .0.instead())]
    Unsupported(Wanted, String),
    /// The kernel refuses this user.
    #[error("not allowed to take {0}: run huepage as root, or lower kernel.perf_event_paranoid")]
    Denied(Wanted),
    /// The process has ended, or its threads could not be listed.
    #[error(transparent)]
    Process(#[from] ProcError),
    /// Every thread takes files: one on every CPU to be sampled, four to be counted.
    #[error(
        "{threads} threads on {cpus} CPUs take more open files than allowed: raise `ulimit -n` and try again"
    )]
    Files {
        /// Threads of the process.
        threads: usize,
        /// CPUs that are watched.
        cpus: usize,
    },
    /// Any other refusal.
    #[error("cannot {what}: {source}; {instead}, or report it as a bug of huepage", instead = .of.instead())]
    Kernel {
        /// What for.
        of: Wanted,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A record is shorter than documented.
    #[error("a record of kind {kind} has only {bytes} bytes; report it as a bug of huepage")]
    Malformed {
        /// `PERF_RECORD_*`.
        kind: u32,
        /// Bytes behind its header.
        bytes: usize,
    },
}

impl PmuError {
    /// The process has ended.
    pub fn gone(pid: i32) -> PmuError {
        PmuError::Process(ProcError::NoProcess(pid))
    }

    /// Whether the process is simply gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, PmuError::Process(error) if error.is_gone())
    }

    /// The message without what to do next, for those who have done it.
    pub fn reason(&self) -> String {
        let all = self.to_string();
        all.split_once("; use the").map_or(all.clone(), |(reason, _)| reason.to_owned())
    }

    /// What a refusal to open events on the threads of a process means.
    pub(crate) fn closed(
        of: Wanted,
        what: &'static str,
        [threads, cpus]: [usize; 2],
        source: io::Error,
    ) -> PmuError {
        match source.raw_os_error() {
            Some(libc::EMFILE) => PmuError::Files { threads, cpus },
            Some(libc::EACCES | libc::EPERM) => PmuError::Denied(of),
            _ => PmuError::Kernel { of, what, source },
        }
    }

    /// What a refusal to open an event means.
    pub(crate) fn refused(
        of: Wanted,
        why: impl FnOnce(&io::Error) -> String,
        error: &io::Error,
    ) -> PmuError {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => PmuError::Denied(of),
            _ => PmuError::Unsupported(of, why(error)),
        }
    }
}

/// What is said of a machine on which there is nothing to ask.
pub(crate) const NO_PMU: &str = "the machine, or its hypervisor, offers no PMU";
