//! The page cache in colours, on a stock kernel: frames of a wanted colour are freed on a CPU,
//! and the pages of a file that are read next on that CPU take them, since the kernel's list of
//! free pages of a CPU is last in, first out. Where pages landed is read from the page tables
//! afterwards, and what missed is dropped and read again.
//!
//! [`Placer`] brings ranges of files into colours; `zone` is its stock of coloured frames, which
//! `gather` fills from a thread of its own within the bounds of [`budget`]; `view` says where
//! the pages of a file are, `evict` makes cached pages leave without losing a byte,
//! [`filesystem`] says where that can work, `sequences` has SRM-buffer's policy choose the
//! colours. No policy is decided here. Contents of files are never written.

pub mod budget;
mod evict;
mod fault;
mod file_worker;
pub mod filesystem;
pub mod gate;
mod gather;
mod lookup;
pub mod mounts;
mod place;
mod scans;
mod sequences;
mod srm;
mod view;
mod write;
mod zone;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

use huepage_color::ColorSet;
use serde::{Deserialize, Serialize};

pub use file_worker::FileWorker;
pub use lookup::{CachedColors, hold, reclaimed_pages};
pub use place::{Placer, PlacerOptions};
pub use sequences::{Move, PageRun, Sequences};
pub use srm::FilePlacer;
pub use view::{CachedPage, View};
pub use zone::ZoneUse;

use crate::color::probe::ProbeError;
use crate::kernel::procfs::ProcError;

/// Why files cannot be placed at all.
#[derive(Debug, thiserror::Error)]
pub enum FileCacheError {
    /// A system call that works everywhere else failed.
    #[error("{what} failed: {source}; check free memory and privileges, then try again")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel cannot say what is cached.
    #[error("this kernel lacks {0}; use Linux 6.8 or newer")]
    Unsupported(&'static str),
    /// No frame of the wanted colours could be had.
    #[error(
        "no free memory of the wanted colours within {limit} MiB; free memory, allow more colours, or raise --memory"
    )]
    NoFrames {
        /// Bound of the stock, in MiB.
        limit: u64,
    },
    /// Colours cannot be measured.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Page tables cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

impl FileCacheError {
    fn os(what: &'static str) -> impl FnOnce(io::Error) -> FileCacheError {
        move |source| match source.raw_os_error() {
            Some(libc::ENOSYS) => FileCacheError::Unsupported(what),
            _ => FileCacheError::Os { what, source },
        }
    }
}

/// Pages of a file that are to be cached in some colours.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// Open for reading.
    pub file: Arc<File>,
    /// First page.
    pub first: u64,
    /// Number of pages; what lies behind the end of the file is nothing.
    pub pages: u64,
    /// Any of these colours is right.
    pub want: ColorSet,
}

/// Why a page was left where it was, or where it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementRefusal {
    /// Several processes, or one that did not let go of it, map the page.
    Mapped,
    /// Locked in memory, or held by the kernel.
    Locked,
    /// Written again and again.
    Written,
    /// It came in other colours at every try.
    Missed,
    /// No frame of its colours was to be had.
    NoFrames,
    /// The file became shorter, or could not be read.
    Vanished,
    /// In memory only, and there is no swap to take it.
    MemoryOnly,
}

impl PlacementRefusal {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            PlacementRefusal::Mapped => "in use by several processes",
            PlacementRefusal::Locked => "locked in memory",
            PlacementRefusal::Written => "being written all the time",
            PlacementRefusal::Missed => "in other colours at every try",
            PlacementRefusal::NoFrames => "for want of frames of the colours",
            PlacementRefusal::Vanished => "gone or unreadable meanwhile",
            PlacementRefusal::MemoryOnly => "in memory only (tmpfs): copy them with --into",
        }
    }
}

/// What became of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementTally {
    /// Pages asked for that exist.
    pub pages: u64,
    /// Brought into a wanted colour.
    pub placed: u64,
    /// Were in one already.
    pub already: u64,
    /// Were not, by reason.
    #[serde(rename = "left_alone")]
    pub refused: BTreeMap<PlacementRefusal, u64>,
}

impl PlacementTally {
    /// Counts pages that stay where they are.
    pub fn refuse(&mut self, why: PlacementRefusal, pages: u64) {
        if pages > 0 {
            *self.refused.entry(why).or_default() += pages;
        }
    }

    /// The share of the pages that is in wanted colours, 0 to 1; 1 of none.
    pub fn share(&self) -> f64 {
        let right = self.placed + self.already;
        #[allow(clippy::cast_precision_loss, reason = "counts of pages are far below 2^53")]
        let share = right as f64 / self.pages as f64;
        if self.pages == 0 { 1.0 } else { share }
    }
}

impl AddAssign for PlacementTally {
    fn add_assign(&mut self, other: PlacementTally) {
        self.pages += other.pages;
        self.placed += other.placed;
        self.already += other.already;
        other.refused.into_iter().for_each(|(why, pages)| self.refuse(why, pages));
    }
}

#[cfg(test)]
mod live;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut sum =
            PlacementTally { pages: 10, placed: 4, already: 3, ..PlacementTally::default() };
        sum.refuse(PlacementRefusal::Mapped, 3);
        sum.refuse(PlacementRefusal::Missed, 0);
        let mut more = PlacementTally { pages: 10, placed: 10, ..PlacementTally::default() };
        more.refuse(PlacementRefusal::Mapped, 1);
        sum += more;
        assert_eq!((sum.pages, sum.placed, sum.already), (20, 14, 3));
        assert_eq!(sum.refused, BTreeMap::from([(PlacementRefusal::Mapped, 4)]));
        assert!((sum.share() - 0.85).abs() < 1e-9);
        assert!((PlacementTally::default().share() - 1.0).abs() < 1e-9);
    }
}
