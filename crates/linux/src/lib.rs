//! Everything huepage asks of Linux: readers of `/proc` and `/sys`, colour probing, the
//! agent that runs inside a target, and the engine that moves its pages.
//!
//! All unsafe code of the workspace lives here. No decision of a policy does: what to
//! confine, and to which colours, comes from `huepage-policy`.

pub mod agent;
mod board;
mod bpf;
pub mod cgroup;
pub mod collide;
pub mod conflicts;
pub mod containers;
pub mod control;
pub mod counters;
pub mod doctor;
pub mod engine;
pub mod filecache;
pub mod groups;
pub mod inject;
pub mod launch;
pub mod machine;
mod memory_room;
pub mod notify;
pub mod pmu;
pub mod pollute;
pub mod probe;
pub mod procfs;
pub mod record;
pub mod registry;
pub mod residency;
pub mod runtime;
pub mod superpages;
pub mod users;
pub mod wait;
pub mod walk;
