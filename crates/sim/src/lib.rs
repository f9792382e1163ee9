//! Trace-driven simulation: caches, TLBs and the operating system's choice of frames in one
//! pass over a trace, so that misses can be counted exactly on machines without counters and
//! policies can be tried before they touch a process.
//!
//! Nothing here opens a file or knows Linux.

pub mod bytes;
pub mod cache;
pub mod cml;
mod core_tlbs;
pub mod cost;
pub mod division;
pub mod experiment;
pub mod feedback;
mod foresight;
pub mod frames;
pub mod generators;
pub mod governed;
pub mod heat;
pub mod lab;
pub mod machine;
pub mod pagecache;
pub mod partial;
pub mod romer;
pub mod schedule;
pub mod space;
pub mod system;
pub mod trace;
pub mod walk;
pub mod workloads;

pub use huepage_model::{record, tlb};
