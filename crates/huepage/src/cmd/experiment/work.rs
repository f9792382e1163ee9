//! The runs of an experiment on all CPUs, the longest first, with progress and an estimate on a
//! terminal.

use std::cell::RefCell;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use huepage_sim::experiments::romer::run::{Batches, RunFailed};
use huepage_sim::experiments::romer::{Outcome, Program, Variant, run};
use huepage_sim::workloads::{Spec, Stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::RomerArgs;
use crate::cmd::trace::args::From;
use crate::cmd::trace::input::Input;
use crate::exit::{CmdError, ExitCode};

/// Variants that share one stream of accesses: enough to make it worth while, few enough to
/// keep all CPUs busy to the end.
pub const AT_ONCE: usize = 8;

/// A workload under some variants.
pub struct Work {
    /// The workload.
    pub program: Program,
    /// Of one part.
    pub variants: Vec<Variant>,
}

impl Work {
    /// Most accesses that all its machines do together.
    fn most(&self, quick: bool) -> u64 {
        let each = if quick { self.program.quick } else { self.program.limit };
        each * self.variants.len() as u64
    }
}

/// Does all of it; outcomes in the order of the work.
pub fn all(args: &RomerArgs, work: Vec<Work>) -> Result<Vec<Outcome>, CmdError> {
    let bar = bar(work.iter().map(|one| one.most(args.quick)).sum());
    let mut order: Vec<usize> = (0..work.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(work[at].most(args.quick)));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let failed = Mutex::new(None);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cpus.min(work.len()) {
            scope.spawn(|| {
                while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one(args, &work[at], &bar) {
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

fn one(args: &RomerArgs, work: &Work, bar: &ProgressBar) -> Result<Vec<Outcome>, CmdError> {
    bar.set_message(work.program.name.clone());
    let heard = RefCell::new(0);
    let hear = |accesses| {
        *heard.borrow_mut() += accesses;
        bar.inc(accesses);
    };
    let open = || open(args, &work.program);
    let outcomes = run::run(&work.program, &work.variants, args.quick, &open, &hear);
    // Most workloads end before their limit.
    bar.inc(work.most(args.quick).saturating_sub(*heard.borrow()));
    outcomes.map_err(|error| match error {
        RunFailed::Source(error) => error,
        RunFailed::Wish(error) => CmdError::internal(error),
        RunFailed::Machine(error) => CmdError::new(ExitCode::Usage, error),
        RunFailed::Unsound(what) => {
            let name = &work.program.name;
            CmdError::internal(format!("the simulator lost count on {name}: {what}"))
        }
    })
}

/// Begins a workload's accesses.
fn open(args: &RomerArgs, program: &Program) -> Result<Batches<'static, CmdError>, CmdError> {
    match program.spec {
        Some(spec) => workload(spec),
        None => {
            let named = args.trace.iter().find(|(name, _)| *name == program.name);
            let path = named.map(|(_, path)| path.clone()).unwrap_or_else(PathBuf::new);
            trace(&path)
        }
    }
}

fn workload(spec: &str) -> Result<Batches<'static, CmdError>, CmdError> {
    let spec: Spec = spec.parse().map_err(CmdError::internal)?;
    let mut stream = Stream::start(spec).map_err(|e| {
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
pub fn trace(path: &Path) -> Result<Batches<'static, CmdError>, CmdError> {
    let mut input = Input::open(&From { path: path.to_owned(), format: None })?;
    // Several are read at a time; the whole experiment has a line of its own.
    input.be_quiet();
    Ok(Box::new(move |batch| input.next(batch)))
}
