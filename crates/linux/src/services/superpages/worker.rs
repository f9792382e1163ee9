//! The thread that looks after superpages while a supervisor does other things. When it ends, or the
//! whole of huepage does, every program keeps the pages that it has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_policy::combined::Costs;

use super::confined::Partition;
use super::manager::{Settings, SuperpageManager};
use super::report::Report;
use crate::kernel::process_tree::{ProcessRoots, members};
use crate::kernel::procfs::ProcRoot;

/// Niceness of the thread: while it builds it holds a lock that the program may wait for, and
/// should not wait for a CPU itself meanwhile.
const NICENESS: i32 = -10;
/// Time between two looks for new processes.
const PROCESS_SCAN_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    roots: Mutex<ProcessRoots>,
    /// What superpages cost from now on, once.
    costs: Mutex<Option<Costs>>,
    report: Mutex<Option<Report>>,
}

/// See the module's head.
#[derive(Debug)]
pub struct SuperpageWorker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl SuperpageWorker {
    /// Looks after the superpages of some processes and of what descends from them; `never` are
    /// left out with all that descends from them.
    pub fn start(settings: Settings, roots: ProcessRoots, never: Vec<i32>) -> SuperpageWorker {
        SuperpageWorker::start_in(settings, roots, never, None)
    }

    /// As [`Self::start`], for processes in a partition.
    pub fn start_in(
        settings: Settings,
        roots: ProcessRoots,
        never: Vec<i32>,
        partition: Option<Partition>,
    ) -> SuperpageWorker {
        let (stop, report) = (AtomicBool::new(false), Mutex::new(None));
        let (roots, costs) = (Mutex::new(roots), Mutex::new(None));
        let shared = Arc::new(Shared { stop, roots, costs, report });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            run(&of_thread, SuperpageManager::new(settings, partition), &never)
        });
        SuperpageWorker { shared, thread: Some(thread) }
    }

    /// Looks after these processes and what descends from them from now on.
    pub fn set_roots(&self, roots: ProcessRoots) {
        *self.shared.roots.lock().unwrap_or_else(PoisonError::into_inner) = roots;
    }

    /// The partition has other colours from now on, in which superpages cost so much.
    pub fn set_costs(&self, costs: Costs) {
        *self.shared.costs.lock().unwrap_or_else(PoisonError::into_inner) = Some(costs);
    }

    /// What was done so far; `None` in the first moments.
    pub fn report(&self) -> Option<Report> {
        self.shared.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the thread; what was done.
    pub fn finish(mut self) -> Option<Report> {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}

impl Drop for SuperpageWorker {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(shared: &Shared, mut manager: SuperpageManager, never: &[i32]) {
    // Where that is not allowed it works as well, with longer stalls on busy machines.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let root = ProcRoot::default();
    let mut looked: Option<Instant> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= PROCESS_SCAN_INTERVAL) {
            let roots = shared.roots.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let costs = shared.costs.lock().unwrap_or_else(PoisonError::into_inner).take();
            costs.into_iter().for_each(|costs| manager.set_costs(costs));
            manager.set_members(&members(&root, &roots, never));
            *shared.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(manager.report());
            looked = Some(Instant::now());
        }
        std::thread::park_timeout(manager.run_turn().min(PROCESS_SCAN_INTERVAL));
    }
    *shared.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(manager.report());
}
