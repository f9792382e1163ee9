//! Where the accesses of a run come from: traces and built-in workloads, which can both begin
//! again.

use std::path::{Path, PathBuf};

use huepage_sim::record::Record;
use huepage_sim::schedule::Source;
use huepage_sim::workloads::{Block, FileId, Spec, Stream};

use super::args::RunArgs;
use crate::cmd::trace::args::From;
use crate::cmd::trace::input::Input;
use crate::exit::{CmdError, ExitCode};

/// A program's accesses, as a schedule takes them.
pub type Boxed = Box<dyn Source<CmdError>>;

/// All programs of a run, traces first.
pub fn open(args: &RunArgs, quiet: bool) -> Result<Vec<Boxed>, CmdError> {
    let mut all: Vec<Boxed> = Vec::new();
    for path in &args.traces {
        all.push(open_trace(path, quiet)?);
    }
    for &spec in &args.workload {
        // Equal workloads are runs of one program on the same files.
        let same = args.workload.iter().position(|other| *other == spec);
        let volume = u32::try_from(same.unwrap_or(0)).unwrap_or(u32::MAX);
        all.push(workload(spec, volume)?);
    }
    Ok(all)
}

/// A workload whose files are on a volume.
pub fn workload(spec: Spec, volume: u32) -> Result<Boxed, CmdError> {
    let mut workload = Workload { spec, volume, stream: None, deleted: Vec::new() };
    workload.restart()?;
    Ok(Box::new(workload))
}

/// A trace among several that are read at a time.
pub fn trace(path: &Path) -> Result<Boxed, CmdError> {
    open_trace(path, true)
}

fn open_trace(path: &Path, quiet: bool) -> Result<Boxed, CmdError> {
    let mut trace = Trace { path: path.to_owned(), quiet, input: None };
    trace.restart()?;
    Ok(Box::new(trace))
}

struct Trace {
    path: PathBuf,
    quiet: bool,
    input: Option<Input>,
}

impl Source<CmdError> for Trace {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        self.input.as_mut().map_or(Ok(false), |input| input.next(batch))
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        let from = From { path: self.path.clone(), format: None };
        let input = Input::open(&from)?;
        if self.quiet {
            input.be_quiet();
        }
        self.input = Some(if spare_processor(self.quiet) { input.read_ahead()? } else { input });
        Ok(())
    }
}

/// Whether another thread should decode. Not where several runs share the processors, and not
/// on two: they may be one core's, and decoding beside then costs the simulation more than
/// decoding in turns (`examples/trace_speed.rs` of the simulator measures both).
fn spare_processor(sweep: bool) -> bool {
    !sweep && std::thread::available_parallelism().is_ok_and(|n| n.get() > 2)
}

struct Workload {
    spec: Spec,
    volume: u32,
    stream: Option<Stream>,
    deleted: Vec<(usize, FileId)>,
}

impl Source<CmdError> for Workload {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        let block = self.stream.as_mut().and_then(Stream::next_block);
        let Block { records, deleted } = block.unwrap_or_default();
        (*batch, self.deleted) = (records, deleted);
        Ok(!batch.is_empty() || !self.deleted.is_empty())
    }

    fn volume(&self) -> Option<u32> {
        Some(self.volume)
    }

    fn deletions(&self) -> &[(usize, FileId)] {
        &self.deleted
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        let stream = Stream::start(self.spec).map_err(|e| {
            let what = format!("no thread for the workload: {e}; lower the load and try again");
            CmdError::new(ExitCode::Internal, what)
        })?;
        self.stream = Some(stream);
        Ok(())
    }
}
