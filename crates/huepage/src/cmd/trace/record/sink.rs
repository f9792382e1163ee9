//! The file that a recording goes to, with its limit, and records that go into it one by one. What the main thread and
//! the encoder tell each other is here, too.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::format::BLOCK_RECORDS;
use huepage_sim::trace::{Header, TraceError, TraceSummary, Writer};

use super::options::{Limit, SkipOption, TraceRecordArgs};
use crate::exit::{CmdError, ExitCode};

/// Longest wait for a chunk before the end of the program is looked for.
pub const IDLE: Duration = Duration::from_millis(20);
/// Threads that encode, at most: four keep up with one program.
const PACKERS: usize = 4;
/// A block of that share of the limit cannot exceed it: a record takes 12 bytes at most.
const BYTES_A_RECORD: u64 = 32;

/// What the main thread and the encoder tell each other.
#[derive(Debug, Default)]
pub struct EncoderSignals {
    /// Told: a skip by time is over.
    pub go: AtomicBool,
    /// Told: end the recording.
    pub stop: AtomicBool,
    /// Told: the program has ended.
    pub ended: AtomicBool,
    /// The limit was reached, or writing failed: nothing more is recorded.
    pub full: AtomicBool,
    pub records: AtomicU64,
    /// Bytes written so far.
    pub bytes: AtomicU64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Encoded {
    /// What the file holds.
    pub summary: TraceSummary,
    /// Whether the limit ended the recording.
    pub limited: bool,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Whether the beginning that was to be skipped was all there was.
    pub all_skipped: bool,
    /// What is missing because the recorder follows one program alone.
    pub alone: Option<&'static str>,
    /// Threads that were told apart.
    pub threads: u32,
    /// Processes that outlived the program.
    pub left: usize,
    /// From the program's start to the end of the file; set by the main thread.
    pub seconds: f64,
    /// Whether the program was ended at the limit; set by the main thread.
    pub stopped_program: bool,
}

/// Why records are no longer taken.
#[derive(Debug)]
pub enum Halt {
    Full,
    Write(io::Error),
    /// The recorder's text makes no sense, or ends too early.
    Text(String),
}

/// The file and its limit.
pub struct TraceSink {
    writer: Writer<File>,
    path: PathBuf,
    limit: Option<Limit>,
    skip: Option<SkipOption>,
    fetches: bool,
    /// Size of the largest block, and of the file when it was last looked at.
    largest: u64,
    bytes: u64,
}

impl TraceSink {
    pub fn create(
        path: &Path,
        header: &Header,
        args: &TraceRecordArgs,
    ) -> Result<TraceSink, CmdError> {
        let wrong = |e: io::Error| {
            let what = format!("cannot write {}: {e}; choose another --output", path.display());
            CmdError::new(ExitCode::Internal, what)
        };
        let block = match args.limit {
            Some(Limit::Bytes(bytes)) => bytes / BYTES_A_RECORD,
            _ => BLOCK_RECORDS as u64,
        };
        let block = usize::try_from(block).unwrap_or(BLOCK_RECORDS).clamp(1, BLOCK_RECORDS);
        let file = File::create(path).map_err(wrong)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(PACKERS);
        // To end before a size, the size must be known: blocks that are still with a thread
        // have none.
        let writer = match args.limit {
            Some(Limit::Bytes(_)) => Writer::with_block(file, header, block),
            _ if threads == 1 => Writer::new(file, header),
            _ => Writer::with_threads(file, header, threads),
        }
        .map_err(wrong)?;
        let bytes = writer.summary().bytes;
        let (path, limit, skip) = (path.to_path_buf(), args.limit, args.skip);
        Ok(TraceSink { writer, path, limit, skip, fetches: args.fetches, largest: 0, bytes })
    }

    /// Adds a record, until the limit.
    #[inline]
    pub fn push(&mut self, record: &Record) -> Result<(), Halt> {
        self.writer.push(record).map_err(Halt::Write)?;
        let summary = self.writer.summary();
        match self.limit {
            Some(Limit::Records(most)) if summary.records >= most => Err(Halt::Full),
            Some(Limit::Bytes(most)) if summary.bytes != self.bytes => self.measure(most),
            _ => Ok(()),
        }
    }

    /// After a block: whether another of the largest size, and the index, would fit.
    fn measure(&mut self, most: u64) -> Result<(), Halt> {
        let summary = self.writer.summary();
        self.largest = self.largest.max(summary.bytes - self.bytes);
        self.bytes = summary.bytes;
        let index = 128 + 24 * (summary.blocks + 1);
        let next = self.bytes + self.largest + self.largest / 4 + index;
        if next > most { Err(Halt::Full) } else { Ok(()) }
    }

    /// Tells the main thread how far it is.
    pub fn show(&self, shared: &EncoderSignals) {
        shared.records.store(self.writer.summary().records, Relaxed);
        shared.bytes.store(self.writer.summary().bytes, Relaxed);
    }

    /// Completes the file. After an error of the disk it is good up to its last block.
    pub fn finish(self, halt: Option<Halt>, shared: &EncoderSignals) -> Result<Encoded, CmdError> {
        let failed = |e: io::Error| {
            let path = self.path.display();
            let what =
                format!("cannot write {path}: {e}; what is in it is good, make room for more");
            CmdError::new(ExitCode::Internal, what)
        };
        let limited = match halt {
            None => false,
            Some(Halt::Full) => true,
            Some(Halt::Write(error)) => return Err(failed(error)),
            Some(Halt::Text(what)) => {
                let what = format!("{what}; use --recorder qemu");
                return Err(CmdError::new(ExitCode::Internal, what));
            }
        };
        let summary = self.writer.finish().map_err(failed)?;
        let interrupted = shared.stop.load(Acquire) && !limited;
        Ok(Encoded { summary, limited, interrupted, ..Encoded::default() })
    }
}

/// Takes records that a recorder wrote as text, until their end or that of the recording.
pub fn text(
    records: impl Iterator<Item = Result<Record, TraceError>>,
    shared: &EncoderSignals,
    sink: &mut TraceSink,
) -> Result<(), Halt> {
    let mut skipped = 0;
    // Fetches that are not recorded are instructions of the next access.
    let mut owed: u64 = 0;
    for (n, record) in records.enumerate() {
        let mut record = record.map_err(|e| Halt::Text(format!("the recorder's text: {e}")))?;
        if !begun(sink.skip, shared, &mut skipped, &record) {
            continue;
        }
        owed += u64::from(record.instructions);
        if record.kind == AccessKind::Fetch && !sink.fetches {
            continue;
        }
        record.instructions = u16::try_from(owed).unwrap_or(u16::MAX);
        owed -= u64::from(record.instructions);
        sink.push(&record)?;
        if n % 4096 == 0 {
            sink.show(shared);
            if shared.stop.load(Acquire) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether the beginning that is skipped is over.
fn begun(
    skip: Option<SkipOption>,
    shared: &EncoderSignals,
    skipped: &mut u64,
    record: &Record,
) -> bool {
    match skip {
        None => true,
        Some(SkipOption::Time(_)) => shared.go.load(Relaxed),
        Some(SkipOption::Instructions(n)) => {
            let over = *skipped >= n;
            *skipped += u64::from(record.instructions);
            over
        }
    }
}
