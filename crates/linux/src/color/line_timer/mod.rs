//! Times loads of lines by their physical addresses, in the kernel (`program`), on the CPU that calls (`timer`).

mod program;
mod timer;

pub(crate) use timer::Chains;
pub use timer::{ResidencyError, TimedLine, Timer};
