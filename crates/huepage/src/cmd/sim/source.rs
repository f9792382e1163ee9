//! Where the accesses of a run come from: traces and built-in workloads, which can both begin
//! again.

use std::path::{Path, PathBuf};

use huepage_sim::record::Record;
use huepage_sim::schedule::{AccessSource, BoxedSource};
use huepage_sim::workloads::{FileNumber, RecordBlock, WorkloadSpec, WorkloadStream};

use super::args::SimRunArgs;
use crate::cmd::trace::args::From;
use crate::cmd::trace::input::{NAME_FORMAT, TraceInput};
use crate::exit::{CmdError, ExitCode};

/// All programs of a run, traces first.
pub fn open(
    args: &SimRunArgs,
    quiet: bool,
) -> Result<Vec<BoxedSource<'static, CmdError>>, CmdError> {
    let mut all: Vec<BoxedSource<'static, CmdError>> = Vec::new();
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

/// Refuses what can be read only once, standard input and pipes, where it would be read `again`: each reader
/// would get a part of it.
pub fn check_read_once(args: &SimRunArgs, again: bool) -> Result<(), CmdError> {
    let again = again || args.restart;
    let once = |path: &Path| {
        let other = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
        path == "-" || std::fs::metadata(path).is_ok_and(other)
    };
    let times = |path: &Path| args.traces.iter().filter(|other| *other == path).count();
    match args.traces.iter().find(|path| once(path) && (again || times(path) > 1)) {
        None => Ok(()),
        Some(path) => {
            let what = "can be read once only, and here is read again; save it first: `huepage trace import`";
            Err(CmdError::new(ExitCode::Usage, format!("{}: {what}", path.display())))
        }
    }
}

/// A workload whose files are on a volume.
pub fn workload(
    spec: WorkloadSpec,
    volume: u32,
) -> Result<BoxedSource<'static, CmdError>, CmdError> {
    let mut workload = Workload { spec, volume, stream: None, deleted: Vec::new() };
    workload.restart()?;
    Ok(Box::new(workload))
}

/// A trace among several that are read at a time.
pub fn trace(path: &Path) -> Result<BoxedSource<'static, CmdError>, CmdError> {
    open_trace(path, true)
}

fn open_trace(path: &Path, quiet: bool) -> Result<BoxedSource<'static, CmdError>, CmdError> {
    let mut trace = Trace { path: path.to_owned(), quiet, input: None };
    trace.restart()?;
    Ok(Box::new(trace))
}

struct Trace {
    path: PathBuf,
    quiet: bool,
    input: Option<TraceInput>,
}

impl AccessSource<CmdError> for Trace {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        self.input.as_mut().map_or(Ok(false), |input| input.next(batch))
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        let from = From { path: self.path.clone(), format: None };
        let input = TraceInput::open(&from).map_err(importable)?;
        if self.quiet {
            input.be_quiet();
        }
        self.input = Some(if spare_processor(self.quiet) { input.read_ahead()? } else { input });
        Ok(())
    }
}

/// Here is no `--format`: a trace whose format must be named is imported first.
fn importable(error: CmdError) -> CmdError {
    let message =
        error.message.replace(NAME_FORMAT, "take it over first: `huepage trace import --format`");
    CmdError { message, ..error }
}

/// Whether another thread should decode. Not where several runs share the processors, and not
/// on two: they may be one core's, and decoding beside then costs the simulation more than
/// decoding in turns (`examples/trace_speed.rs` of the simulator measures both).
fn spare_processor(sweep: bool) -> bool {
    !sweep && std::thread::available_parallelism().is_ok_and(|n| n.get() > 2)
}

struct Workload {
    spec: WorkloadSpec,
    volume: u32,
    stream: Option<WorkloadStream>,
    deleted: Vec<(usize, FileNumber)>,
}

impl AccessSource<CmdError> for Workload {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        let block = self.stream.as_mut().and_then(WorkloadStream::next_block);
        let RecordBlock { records, deleted } = block.unwrap_or_default();
        (*batch, self.deleted) = (records, deleted);
        Ok(!batch.is_empty() || !self.deleted.is_empty())
    }

    fn volume(&self) -> Option<u32> {
        Some(self.volume)
    }

    fn deletions(&self) -> &[(usize, FileNumber)] {
        &self.deleted
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        let stream = WorkloadStream::start(self.spec).map_err(|e| {
            let what = format!("no thread for the workload: {e}; lower the load and try again");
            CmdError::new(ExitCode::Internal, what)
        })?;
        self.stream = Some(stream);
        Ok(())
    }
}
