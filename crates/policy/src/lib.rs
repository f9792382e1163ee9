//! Policies: feedback in, actions out; no I/O, no clock, nothing of Linux or of the simulator.
//!
//! A policy is a state machine. An engine (on a live process, or on a modelled page table)
//! tells it what it has seen as [`Event`]s and carries out the [`Action`]s it gets back. One
//! implementation therefore serves both, and a test can drive it step by step. Time reaches a
//! policy only as events, such as the start of an audit.
//!
//! One module per policy:
//! - [`agent_cpu`]: no policy: on which CPU a growing process is served;
//! - [`balance`]: as many pages in each colour of a partition;
//! - [`coloris`]: partitions of a shared cache that follow what programs need;
//! - [`combined`]: promotion and recolouring at the same time;
//! - [`conflict`]: give pages that compete for a cache other colours;
//! - [`pace`]: no policy: how often what costs time is done;
//! - [`static_partition`]: keep the pages of an address space in a fixed set of colours;
//! - [`recording`]: no policy: what sensors saw, saved and read again;
//! - [`registry`]: no policy: all of them by name;
//! - [`residency`]: no policy: what is in the cache, as the profile that policies want;
//! - [`rocs`]: confine pages that pollute the cache to a small part of it;
//! - [`settled`]: no policy: how often a process is looked at whose pages lie right;
//! - [`srm`]: frames of few colours for blocks of files that are read one after the other;
//! - [`stock`]: no policy: how many frames are kept ready for a process;
//! - [`suitability`]: no policy: whether a program is worth a partition or superpages;
//! - [`superpage`]: build superpages where TLB misses say that they pay;
//! - [`tolerance`]: no policy: a partition in which each program is no slower than it may be;
//! - [`upkeep`]: how often what was measured is measured again.

pub mod agent_cpu;
pub mod backoff;
pub mod balance;
pub mod cache_need;
pub mod census;
pub mod coloris;
pub mod combined;
pub mod conflict;
pub mod event;
pub mod input;
pub mod pace;
mod prices;
pub mod recording;
pub mod registry;
pub mod residency;
pub mod rocs;
pub mod settled;
pub mod srm;
pub mod static_partition;
pub mod stock;
pub mod suitability;
pub mod superpage;
pub mod superpage_holds;
pub mod tolerance;
pub mod upkeep;

pub use census::Census;
pub use combined::{Combined, CombinedSettings};
pub use event::{
    Action, AreaKind, Construction, Event, LeaveReason, MoveRefusal, Policy, ResidentPage,
};
pub use input::InputKind;
pub use prices::Prices;
pub use rocs::{Rocs, RocsSettings};
pub use srm::{Rescan, SrmBuffer, SrmSettings};
pub use static_partition::{Backoff, StaticPartition};
pub use superpage_holds::Holds;
pub use upkeep::{Looked, Upkeep, UpkeepLook, UpkeepSettings};
