//! Superpages (Romer 1998, chapter 3 and section 6.5): which ranges of pages are worth one large
//! translation. One file per policy; each sees only the feedback that its section of
//! `docs/policies/superpages.md` names, and copies nothing itself.
//!
//! [`Interfering`] and [`InPartition`] go around any of the others; [`Tradeoff`] says what to answer
//! them about a superpage in a partition, and [`Idle`] which superpages nobody uses any more.

mod approx;
mod asap;
mod colors;
mod fixed;
mod hybrid;
mod idle;
mod interfering;
mod offline;
mod online;
mod resident;
mod sizes;
mod throttle;
mod tradeoff;
mod tree;

pub use approx::{ApproxOnline, Settings};
pub use asap::Asap;
pub use colors::{InPartition, orders_inside};
pub use fixed::Fixed;
pub use hybrid::Hybrid;
pub use idle::{Idle, Patience};
pub use interfering::Interfering;
pub use offline::{Offline, Plan};
pub use online::Online;
pub use sizes::{Prices, Sizes};
pub use throttle::{Bounds, Throttle};
pub use tradeoff::{
    Benefit, Costs, Expected, L2_FILL_NS, LINES_PER_PAGE, LLC_FILL_NS, Tradeoff, Withheld,
};
pub use tree::Tree;
