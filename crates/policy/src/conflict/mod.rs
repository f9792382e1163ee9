//! Conflict recolouring (Romer 1998, chapters 4 and 5): pages that compete for the same sets
//! of a physically indexed cache are found by what the machine tells, and one of them gets a
//! frame of another colour.
//!
//! One module per family, each a state machine that sees only its own feedback:
//! - [`active`]: checks every TLB miss (Active-Naive, -Delay, -Throttle);
//! - [`periodic`]: looks at the TLB by the clock (Periodic-Random, -Color);
//! - [`snapshot`]: flushes the TLB and watches what comes back (Snapshot, -Delay, -Miss);
//! - [`in_use`]: the same of all pages in use, by looks at their lines, with a trial of what that brings (not of
//!   the thesis);
//! - [`fit`]: the same, where the pages in use fit into the cache (Snapshot-Fit, not of the
//!   thesis);
//! - [`cml`]: asks a cache miss look-aside buffer (chapter 5).
//!
//! They share [`pages`] (where pages are), [`tlb_image`] (what the TLB holds), [`target`] (where
//! to move them) and, beyond the thesis, [`working_set`], [`budget`] and [`moved_pages`], which keep them from
//! moving pages about when the cache is simply too small (its section 5.7). Caches of n ways
//! are treated as n frames per colour: up to n pages of a colour do not conflict. Superpages
//! are left alone by all but `cml`: they have many colours, and only miss counts by frame say
//! which part of one is in the way. What a page holds and how it is moved is the engine's
//! business.

pub mod active;
pub mod budget;
pub mod cml;
pub mod fit;
pub mod in_use;
pub mod moved_pages;
pub mod pages;
pub mod periodic;
pub mod replayed;
pub mod snapshot;
pub mod target;
pub mod tlb_image;
pub mod working_set;

pub use active::{Active, ActiveSettings};
pub use budget::{BudgetSettings, MoveBudget};
pub use cml::{CmlPolicy, CmlSettings, thresholds};
pub use fit::{FitSettings, SnapshotFit};
pub use moved_pages::MovedPages;
pub use periodic::{Periodic, Pick};
pub use snapshot::{PeriodClock, SnapshotMiss, SnapshotSettings};
pub use target::{Clues, TargetChoice, Targets};
pub use working_set::WorkingSet;

/// The cache whose conflicts are to be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Colours: sets times line size over page size; at least 1.
    pub colors: u16,
    /// Lines per set; at least 1. So many pages of a colour fit.
    pub ways: u16,
    /// Lines in a base page; at least 1.
    pub lines_per_page: u64,
}

impl CacheShape {
    /// A direct-mapped cache, as the thesis has it.
    pub const fn direct(colors: u16, lines_per_page: u64) -> CacheShape {
        CacheShape { colors, ways: 1, lines_per_page }
    }

    /// Base pages that fit into the cache.
    pub const fn pages(self) -> u64 {
        self.colors as u64 * self.ways as u64
    }

    /// Pages of a colour that do not conflict.
    fn room(self) -> usize {
        usize::from(self.ways.max(1))
    }
}
