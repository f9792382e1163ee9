//! A run of a program: how large it is to be, and what came of it.

use clap::{Args, ValueEnum};

use super::memory::MemoryUse;
use super::target::SuperpageCounts;

/// By which clock speed is measured.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedClock {
    /// As it is
    Wall,
    /// By CPU time, where the program itself tells: for machines that others use too
    Cpu,
}

/// How large the programs are, and how long they run.
#[derive(Args, Clone, Debug)]
pub struct ProgramSizes {
    /// Seconds of a run, for those that run as long as they are told
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// The clock for gups, btree, cg, python and sparse
    #[arg(long, value_enum, default_value = "wall")]
    pub clock: SpeedClock,
    /// Table of gups, in MiB
    #[arg(long, default_value_t = 512)]
    pub gups_mib: usize,
    /// Entries of the B-tree
    #[arg(long, default_value_t = 4_000_000)]
    pub btree_entries: usize,
    /// Rows of cg's matrix
    #[arg(long, default_value_t = 14_000)]
    pub cg_rows: usize,
    /// Values of redis, in MiB of its memory
    #[arg(long, default_value_t = 2048)]
    pub redis_mib: usize,
    /// Table of hpcc's RandomAccess, in MiB: a power of two
    #[arg(long, default_value_t = 512)]
    pub hpcc_mib: usize,
    /// Functions of the C file
    #[arg(long, default_value_t = 2000)]
    pub gcc_functions: usize,
    /// Entries of each of python's dicts
    #[arg(long, default_value_t = 1_000_000)]
    pub python_entries: usize,
    /// Area of the sparse array, in MiB
    #[arg(long, default_value_t = 8192)]
    pub sparse_mib: usize,
}

/// What came of one run.
#[derive(Clone, Debug, Default)]
pub struct ProgramSample {
    /// Operations, or whole runs, per second.
    pub speed: f64,
    /// Its memory at the end.
    pub memory: Option<MemoryUse>,
    /// What huepage reported.
    pub superpages: Option<SuperpageCounts>,
}
