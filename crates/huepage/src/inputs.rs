//! What `huepage-repro` and the module of Python use of this program: readers of traces, sources of accesses,
//! tables of runs. Output, errors and drawings have modules of their own.

pub use crate::cmd::sim::source;
pub use crate::cmd::sim::table::table;
pub use crate::cmd::trace::args::From;
pub use crate::cmd::trace::input::TraceInput;
