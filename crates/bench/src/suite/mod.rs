//! The benchmarks: each compares huepage with its promises and says whether they hold.
//!
//! A suite gives back a [`SuiteVerdict`](crate::verdict::SuiteVerdict): rows for a table, the same as JSON, and what was missed.
//! A suite never stops at the first miss; it stops only when it cannot run at all.

pub mod acts;
pub mod anyone;
pub mod bad_input;
pub mod confine;
pub mod conflicts;
pub mod cost;
pub mod daemon;
pub mod first_command;
mod frames;
pub mod hostile;
pub mod kept_true;
pub mod kill;
pub mod lab;
pub mod lab_effects;
pub mod live_effects;
pub mod noise;
pub mod pagecache;
pub mod pollute;
pub mod probe;
pub mod programs;
pub mod recolour;
pub mod residency;
pub mod settled;
pub mod sim_peers;
pub mod sim_speed;
pub mod storm;
pub mod superpages;
pub mod traces;
