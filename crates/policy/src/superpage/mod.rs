//! Superpages (Romer 1998, chapter 3 and section 6.5): which ranges of pages are worth one large
//! translation. One file per policy; each sees only the feedback that its section of
//! `docs/policies/superpages.md` names, and copies nothing itself.
//!
//! [`Interfering`] and [`InPartition`] go around any of the others; [`Tradeoff`](crate::combined::Tradeoff) says what to answer
//! them about a superpage in a partition, by what [`SuperpageGate`](crate::combined::SuperpageGate) has seen there, [`Idle`] which superpages
//! nobody uses any more, and [`PacingSettings`] when they are built and broken in programs that run.

mod approx;
mod asap;
mod colors;
mod fixed;
mod hybrid;
mod idle;
mod interfering;
mod offline;
mod online;
mod pacing;
mod resident;
mod sizes;
mod throttle;
mod tree;

pub use approx::{ApproxOnline, Settings};
pub use asap::Asap;
pub use colors::{InPartition, orders_inside};
pub use fixed::Fixed;
pub use hybrid::Hybrid;
pub use idle::{Idle, Patience};
pub use interfering::Interfering;
pub use offline::{Offline, OfflinePlan};
pub use online::Online;
pub use pacing::{MemoryBound, PacingSettings};
pub use sizes::PageSizes;
pub use throttle::{RestBounds, Throttle};
pub use tree::Tree;
