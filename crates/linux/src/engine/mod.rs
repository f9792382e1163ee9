//! The live engine: keeps the pages of a group of processes in the colours of a partition.
//!
//! [`Group`] is the whole, [`member`] one process of it, [`pool_filler`] fills an agent's pool of frames,
//! [`census`] sees where pages lie and [`file_census`] where those of files do, `in_place` times pages where they
//! are, `rest` holds what is known of a member that needs no care, `watch` finds out when it does again, `orders` brings it
//! what it is to do, `traps` remembers which pages wait to be touched, [`clear_tid`] which hold words that the kernel writes at a
//! thread's end. What is to be done with a page, and how patiently, is the partition policy's decision; this
//! module carries it out.

pub mod census;
pub mod clear_tid;
pub mod file_census;
pub mod group;
mod in_place;
pub mod member;
pub mod pool_filler;
pub mod scope;
mod waiting_pages;
mod watch;

pub use census::{ColorLookup, Outside};
pub use file_census::{FileCensus, FileColorLookup, FileRow, FileUse};
pub use group::{Group, GroupReport};
pub use member::{
    EngineConfig, GrowthMode, Member, MemberEnd, MemberStatus, Placed, PromotionHandle, Shrink,
    UpkeepReport,
};
pub use scope::Scope;

use crate::color::probe::ProbeError;
use crate::inject::InjectError;
use crate::inject::agent::AgentError;
use crate::inject::filters::FilterError;
use crate::kernel::procfs::ProcError;

/// Why the engine cannot go on with a process.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Colours cannot be measured.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Page tables or areas cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// The partition's memory is used up (strict).
    #[error(
        "no memory of the partition's colours is left; allow more colours, free memory, or use --fallback"
    )]
    Exhausted,
    /// A thread of the kernel.
    #[error("process {0} has no program of its own (a kernel thread); choose an ordinary process")]
    Kernel(i32),
    /// Not a 64-bit x86 program.
    #[error("process {0} is not a 64-bit x86 program; run a 64-bit build of it")]
    NotNative(i32),
}

impl From<InjectError> for EngineError {
    fn from(e: InjectError) -> EngineError {
        EngineError::Agent(AgentError::Inject(e))
    }
}

impl EngineError {
    /// Whether the process is simply gone.
    pub fn is_gone(&self) -> bool {
        match self {
            EngineError::Agent(AgentError::Gone(_) | AgentError::Inject(InjectError::Gone(_))) => {
                true
            }
            EngineError::Agent(AgentError::Inject(InjectError::Filters(FilterError::Gone(_)))) => {
                true
            }
            EngineError::Agent(AgentError::Inject(InjectError::Proc(e))) | EngineError::Proc(e) => {
                e.is_gone()
            }
            EngineError::Probe(ProbeError::Remote(_)) => true,
            _ => false,
        }
    }
}
