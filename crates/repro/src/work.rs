//! The runs of an experiment on all CPUs, the longest first, with progress and an estimate on a
//! terminal; and where accesses come from.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use huepage::exit::{CmdError, ExitCode};
use huepage::inputs::{From, TraceInput};
use huepage_sim::workloads::{WorkloadSpec, WorkloadStream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::run::{BatchReader, RunFailed};

/// What came of a run, or why nothing did.
pub type JobResult<O> = Result<Vec<O>, RunFailed<CmdError>>;

/// A run, which is told whom to tell numbers of units simulated.
type Run<'a, O> = dyn Fn(&dyn Fn(u64)) -> JobResult<O> + Sync + 'a;

/// Work that one thread does alone.
pub struct StudyJob<'a, O> {
    name: String,
    most: u64,
    run: Box<Run<'a, O>>,
}

impl<'a, O> StudyJob<'a, O> {
    /// Work that is called `name` while it is done, is `most` units long at most, accesses or cycles
    /// of all its machines together, and tells its argument numbers of units simulated.
    pub fn new(
        name: String,
        most: u64,
        run: impl Fn(&dyn Fn(u64)) -> JobResult<O> + Sync + 'a,
    ) -> StudyJob<'a, O> {
        StudyJob { name, most, run: Box::new(run) }
    }
}

/// Does all of it; outcomes in the order of the work.
pub fn all<O: Send>(work: &[StudyJob<'_, O>]) -> Result<Vec<O>, CmdError> {
    let bar = bar(work.iter().map(|job| job.most).sum());
    let mut order: Vec<usize> = (0..work.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(work[at].most));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let failed = Mutex::new(None);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cpus.min(work.len()) {
            scope.spawn(|| {
                while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one(&work[at], &bar) {
                        Ok(outcomes) => lock(&done).push((at, outcomes)),
                        Err(error) => {
                            lock(&failed).get_or_insert(error);
                            next.store(order.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().flat_map(|(_, outcomes)| outcomes).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bar(length: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let template = "simulating {bar:30} {percent:>3} % ({eta} left at most), {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn one<O>(job: &StudyJob<'_, O>, bar: &ProgressBar) -> Result<Vec<O>, CmdError> {
    bar.set_message(job.name.clone());
    let heard = Cell::new(0);
    let hear = |accesses| {
        heard.set(heard.get() + accesses);
        bar.inc(accesses);
    };
    let outcomes = (job.run)(&hear);
    // Most workloads end before their limit.
    bar.inc(job.most.saturating_sub(heard.get()));
    outcomes.map_err(|error| failed(&job.name, error))
}

/// Says why a run of this name failed.
fn failed(name: &str, error: RunFailed<CmdError>) -> CmdError {
    let what = match error {
        RunFailed::Source(error) => return error,
        RunFailed::Wish(error) => return CmdError::internal(error),
        RunFailed::Unsound(what) => {
            return CmdError::internal(format!("the simulator lost count on {name}: {what}"));
        }
        RunFailed::Empty(name) => format!("{name} has no accesses; give another trace"),
        RunFailed::Machine(error) => error.to_string(),
    };
    CmdError::new(ExitCode::Usage, what)
}

/// Begins the accesses of a workload that is no trace.
pub fn workload(spec: &str) -> Result<BatchReader<'static, CmdError>, CmdError> {
    let spec: WorkloadSpec = spec.parse().map_err(CmdError::internal)?;
    let mut stream = WorkloadStream::start(spec).map_err(|e| {
        let what = format!("no thread for the workload: {e}; lower the load and try again");
        CmdError::new(ExitCode::Internal, what)
    })?;
    Ok(Box::new(move |batch| {
        let block = stream.next_block();
        let more = block.is_some();
        *batch = block.unwrap_or_default().records;
        Ok(more)
    }))
}

/// Opens a trace.
pub fn trace(path: &Path) -> Result<BatchReader<'static, CmdError>, CmdError> {
    let mut input = TraceInput::open(&From { path: path.to_owned(), format: None })?;
    // Several are read at a time; the whole experiment has a line of its own.
    input.be_quiet();
    Ok(Box::new(move |batch| input.next(batch)))
}
