//! Interfaces of the kernel and of the processor: `/proc`, `/sys`, page tables, pages of other processes,
//! counters, BPF, control groups. Readers take a root path, so that canned files can stand in for a machine.
//! Nothing is decided here.

pub mod area_references;
pub(crate) mod bell;
pub(crate) mod bpf;
pub mod cgroup;
pub mod containers;
pub mod counters;
pub mod cpus;
pub mod descriptors;
pub mod fanotify;
pub mod lab_guest;
pub mod machine;
pub mod mappers;
pub(crate) mod mapping;
pub mod memory_room;
pub(crate) mod page_cache;
pub mod page_tables;
pub mod pmu;
pub(crate) mod pressure;
pub mod process_memory;
pub mod process_tree;
pub mod procfs;
pub mod read_only_file;
pub mod runtime_dir;
pub mod sd_notify;
pub mod signs;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod trace_points;
pub(crate) mod userfaultfd;
pub mod users;
pub mod wait;
pub(crate) mod zones;
