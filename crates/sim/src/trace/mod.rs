//! Traces, the project's own and those of other tools, read as streams with flat memory.
//!
//! A reader gives records until the end or an error; what came before an error is good. An
//! error names the place. Opening files and unpacking them is the caller's business.

mod ahead;
pub mod champsim;
mod detect;
pub mod drmemtrace;
pub mod format;
mod lines;
mod pieces;
pub mod raw;
pub mod text;

pub use ahead::Ahead;
pub use champsim::ChampSim;
pub use detect::{Format, SAMPLE, detect, open};
pub use drmemtrace::Drmemtrace;
pub use format::{Header, TraceReader, TraceSummary, Writer};
pub use raw::Raw;
pub use text::{Din, Lackey};

use crate::record::Record;

/// What is wrong with a trace, and where.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The bytes at an offset are no record.
    #[error("offset {offset}: {what}")]
    Bytes {
        /// From the beginning of the unpacked trace.
        offset: u64,
        /// What was found and expected.
        what: String,
    },
    /// A line is no record.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: u64,
        /// What was found and expected.
        what: String,
    },
    /// The trace is sound, and shorter than the place that was asked for.
    #[error("offset {offset}: {what}")]
    Short {
        /// Where it ends.
        offset: u64,
        /// What was asked for, and what there is.
        what: String,
    },
    /// Reading failed.
    #[error("offset {offset}: {source}; check the file and the disk it is on")]
    Read {
        /// How far it went.
        offset: u64,
        /// Why it stopped.
        source: std::io::Error,
    },
}

/// A stream of records.
pub trait Trace: Iterator<Item = Result<Record, TraceError>> {}

impl<T: Iterator<Item = Result<Record, TraceError>>> Trace for T {}

/// A stream of records, many at a time: what a simulator takes.
pub trait Batches {
    /// Replaces `out` by the next records, some thousands of them; false, and none, at the
    /// end and after an error.
    ///
    /// # Errors
    /// What is wrong with the trace; all records before were given.
    fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError>;
}

impl<B: Batches + ?Sized> Batches for Box<B> {
    fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        (**self).next_batch(out)
    }
}

/// Records in a batch of [`Batched`].
const BATCH: usize = 4096;

/// Gathers a stream into batches.
#[derive(Debug)]
pub struct Batched<T> {
    trace: T,
    error: Option<TraceError>,
    ended: bool,
}

impl<T: Trace> Batched<T> {
    /// Batches of `trace`.
    pub const fn new(trace: T) -> Batched<T> {
        Batched { trace, error: None, ended: false }
    }
}

impl<T: Trace> Batches for Batched<T> {
    fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        out.clear();
        while !self.ended && out.len() < BATCH {
            match self.trace.next() {
                Some(Ok(record)) => out.push(record),
                end => {
                    self.ended = true;
                    self.error = end.and_then(Result::err);
                }
            }
        }
        match self.error.take() {
            Some(error) if out.is_empty() => Err(error),
            later => {
                self.error = later;
                Ok(!out.is_empty())
            }
        }
    }
}
