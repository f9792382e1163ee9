//! Superpages built from outside in programs that know nothing of it: what is touched is sensed,
//! a policy of `huepage-policy` says what would pay, and the kernel is asked to build or break pages
//! of 2 MiB. Nothing is injected into the program, and nothing has to be undone when huepage goes.
//! In a partition the engine's agents are asked instead, and only where a gate lets it pass.

mod confined;
mod live_policy;
mod manager;
mod member;
pub mod offline;
pub mod replayed;
mod report;
mod spare;
mod worker;

pub use confined::Partition;
pub use live_policy::{needs_misses, usual_policy};
pub use manager::{Settings, SuperpageManager};
pub use report::Report;
pub use worker::SuperpageWorker;
