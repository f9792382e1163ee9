//! What `huepage-repro` uses of this program: readers of traces and sources of accesses. Output, errors
//! and drawings have modules of their own.

pub use crate::cmd::sim::source;
pub use crate::cmd::trace::args::From;
pub use crate::cmd::trace::input::TraceInput;
