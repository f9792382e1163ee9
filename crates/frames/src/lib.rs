//! Colour pools: frames sorted by colour and the order in which they are handed out.
//!
//! Bookkeeping only: a frame is whatever handle the caller uses for it (a frame number, the
//! address of a staged page). Where frames come from, and what is done with them, lives in
//! the engines.

pub mod even;
pub mod order;
pub mod pool;

pub use even::Evenness;
pub use order::RoundRobin;
pub use pool::{ColorPool, Handed, WhenExhausted};
