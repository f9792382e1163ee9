//! Free frames: the mcolor buddy allocator, colour pools, and the order in which colours are handed out.
//!
//! Bookkeeping only: a frame is whatever handle the caller uses for it (a frame number, the
//! address of a staged page). Where frames come from, and what is done with them, lives in
//! the engines.

pub mod allocator;
pub mod even;
pub mod mcolor;
pub mod order;
pub mod pool;
pub mod sections;

pub use allocator::ColorAllocator;
pub use even::Evenness;
pub use mcolor::{Coloring, McolorBuddy, McolorError, Mcolors};
pub use order::RoundRobin;
pub use pool::{ColorPool, Handed, WhenExhausted};
pub use sections::Sections;
