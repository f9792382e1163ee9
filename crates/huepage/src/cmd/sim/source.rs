//! Where the accesses of a run come from: traces and built-in workloads, which can both begin
//! again.

use std::path::PathBuf;

use huepage_sim::record::Record;
use huepage_sim::schedule::Source;
use huepage_sim::workloads::{Spec, Stream};

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
        let mut trace = Trace { path: path.clone(), quiet, input: None };
        trace.restart()?;
        all.push(Box::new(trace));
    }
    for &spec in &args.workload {
        let mut workload = Workload { spec, stream: None };
        workload.restart()?;
        all.push(Box::new(workload));
    }
    Ok(all)
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
        self.input = Some(input);
        Ok(())
    }
}

struct Workload {
    spec: Spec,
    stream: Option<Stream>,
}

impl Source<CmdError> for Workload {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        const BATCH: usize = 4096;
        batch.clear();
        let stream = self.stream.iter_mut().flatten();
        batch.extend(stream.take(BATCH));
        Ok(!batch.is_empty())
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
