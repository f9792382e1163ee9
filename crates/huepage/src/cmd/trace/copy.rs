//! `huepage trace slice` and `import`: records from one trace to a new one.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;

use huepage_sim::trace::{Header, TraceSummary, Writer};

use super::args::{ImportArgs, SliceArgs, To};
use super::bad_wish;
use super::input::{Start, TraceInput};
use crate::exit::{CmdError, ExitCode};

/// A trace that is being written.
pub struct TraceOutput<'a> {
    to: &'a To,
    writer: Writer<File>,
}

impl<'a> TraceOutput<'a> {
    /// Creates the file and writes the header.
    pub fn create(to: &'a To, header: &Header) -> Result<TraceOutput<'a>, CmdError> {
        let mut options = OpenOptions::new();
        options.write(true);
        let options =
            if to.force { options.create(true).truncate(true) } else { options.create_new(true) };
        let file = options.open(&to.output).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => {
                bad_wish(&to.output, "exists; name another file, or overwrite it with --force")
            }
            _ => bad_wish(&to.output, format!("{e}; name a file that can be written")),
        })?;
        let writer = Writer::new(file, header).map_err(|e| failed(to, &e))?;
        Ok(TraceOutput { to, writer })
    }

    pub fn push(&mut self, record: &huepage_sim::record::Record) -> Result<(), CmdError> {
        self.writer.push(record).map_err(|e| failed(self.to, &e))
    }

    /// Writes the index and says what was written; `damage` ended the input, if anything did.
    pub fn finish(self, damage: Option<CmdError>) -> Result<u8, CmdError> {
        let TraceSummary { records, bytes, .. } =
            self.writer.finish().map_err(|e| failed(self.to, &e))?;
        let path = self.to.output.display();
        match damage {
            None => {
                eprintln!("{path}: {records} accesses in {bytes} bytes");
                Ok(0)
            }
            Some(CmdError { code, message }) => {
                let saved = format!("{message}; {path} has the {records} accesses before");
                Err(CmdError::new(code, saved))
            }
        }
    }
}

fn failed(to: &To, error: &std::io::Error) -> CmdError {
    let what = format!("{}: {error}; make room, or write elsewhere", to.output.display());
    CmdError::new(ExitCode::Internal, what)
}

/// Copies a part of a trace.
pub fn slice(args: &SliceArgs) -> Result<u8, CmdError> {
    not_itself(&args.from_trace.path, &args.to)?;
    let start = args.skip_instructions.map_or(Start::Record(args.from), Start::Instructions);
    let input = TraceInput::open_at(&args.from_trace, start)?;
    let of = header_of(&input);
    let part = match (start, args.count) {
        (Start::Record(n), None) => format!("from access {n} on"),
        (Start::Record(n), Some(count)) => format!("{count} accesses from {n} on"),
        (Start::Instructions(n), None) => format!("from instruction {n} on"),
        (Start::Instructions(n), Some(count)) => {
            format!("{count} accesses from instruction {n} on")
        }
    };
    let header = Header { source: format!("{}; {part}", of.source), ..of };
    copy(input, TraceOutput::create(&args.to, &header)?, args.count.unwrap_or(u64::MAX))
}

/// Copies all of a trace.
pub fn import(args: &ImportArgs) -> Result<u8, CmdError> {
    not_itself(&args.from.path, &args.to)?;
    let input = TraceInput::open(&args.from)?;
    let mut header = header_of(&input);
    if let Some(program) = &args.program {
        header.program.clone_from(program);
    }
    copy(input, TraceOutput::create(&args.to, &header)?, u64::MAX)
}

/// What a trace says of itself; that of another tool says nothing.
pub fn header_of(input: &TraceInput) -> Header {
    let foreign = || {
        let name = input.path().file_name().unwrap_or_default();
        let program = name.to_string_lossy().into_owned();
        Header { program, arguments: Vec::new(), source: format!("{}, imported", input.format) }
    };
    input.header.clone().unwrap_or_else(foreign)
}

fn copy(mut input: TraceInput, mut output: TraceOutput<'_>, mut left: u64) -> Result<u8, CmdError> {
    let mut batch = Vec::new();
    while left > 0 {
        match input.next(&mut batch) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return output.finish(Some(error)),
        }
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(batch.len());
        batch[..count].iter().try_for_each(|record| output.push(record))?;
        left -= count as u64;
    }
    drop(input);
    output.finish(None)
}

/// With `--force` a trace could be emptied before it is read.
pub fn not_itself(from: &std::path::Path, to: &To) -> Result<(), CmdError> {
    let same = match (from.canonicalize(), to.output.canonicalize()) {
        (Ok(from), Ok(to)) => from == to,
        _ => false,
    };
    if same { Err(bad_wish(from, "is input and output; write to another file")) } else { Ok(()) }
}
