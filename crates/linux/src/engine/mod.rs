//! The live engine: keeps the pages of a group of processes in the colours of a partition.
//!
//! [`Group`] is the whole, [`member`] one process of it, [`stock`] fills an agent's stock,
//! [`census`] sees where pages lie and [`file_census`] where those of files do, `audit` brings back
//! what lies outside, [`keep`] measures again what is held, within the budget of [`keeper`], `place` moves given pages to given colours, [`source`] knows colours, [`chosen`]
//! are the superpages that it leaves alone, `buffer` keeps pages that pollute in colours of their own,
//! `foreign` keeps away from what a userfaultfd of the program's own serves,
//! `growth` says which pages move to colours that come, `lazy` keeps those in colours that go where they are until they are
//! touched (`traps`: which these are). What is to be done with a page, and how patiently,
//! is the partition policy's decision; this module carries it out.

mod audit;
mod belief;
mod buffer;
pub mod census;
pub mod chosen;
pub mod deferred;
pub mod file_census;
mod foreign;
pub mod group;
mod growth;
mod in_place;
pub mod keep;
pub mod keeper;
mod lazy;
pub mod member;
mod place;
pub mod probed;
mod retune;
pub mod scope;
pub mod source;
pub mod stock;
mod traps;
pub mod words;

pub use census::{Eyes, Outside};
pub use chosen::Desk;
pub use deferred::Deferred;
pub use file_census::{FileCensus, FileEyes, FileRow, FileUse};
pub use group::{Group, GroupReport};
pub use growth::Growth;
pub use keep::Kept;
pub use keeper::Keeper;
pub use lazy::Shrink;
pub use member::{Config, Member, MemberStatus, Outcome};
pub use place::Placed;
pub use probed::Probed;
pub use scope::Scope;
pub use source::{Candidate, ColorSource, Computed};

use crate::agent::AgentError;
use crate::inject::InjectError;
use crate::inject::filters::FilterError;
use crate::probe::ProbeError;
use crate::procfs::ProcError;

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
