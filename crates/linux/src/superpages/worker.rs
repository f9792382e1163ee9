//! The thread that looks after superpages while a supervisor does other things. When it ends, or the
//! whole of huepage does, every program keeps the pages that it has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_policy::superpage::Costs;

use super::confined::Partition;
use super::keeper::{Keeper, Settings};
use super::report::Report;
use crate::filecache::kin::Heads;
use crate::procfs::ProcRoot;

/// Niceness of the thread: while it builds it holds a lock that the program may wait for, and
/// should not wait for a CPU itself meanwhile.
const NICENESS: i32 = -10;
/// Time between two looks for new processes.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    heads: Mutex<Heads>,
    /// What superpages cost from now on, once.
    costs: Mutex<Option<Costs>>,
    report: Mutex<Option<Report>>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Looks after the superpages of some processes and of what descends from them; `never` are
    /// left out with all that descends from them.
    pub fn start(settings: Settings, heads: Heads, never: Vec<i32>) -> Worker {
        Worker::start_in(settings, heads, never, None)
    }

    /// As [`Self::start`], for processes in a partition.
    pub fn start_in(
        settings: Settings,
        heads: Heads,
        never: Vec<i32>,
        partition: Option<Partition>,
    ) -> Worker {
        let (stop, report) = (AtomicBool::new(false), Mutex::new(None));
        let (heads, costs) = (Mutex::new(heads), Mutex::new(None));
        let shared = Arc::new(Shared { stop, heads, costs, report });
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::spawn(move || run(&of_thread, Keeper::new(settings, partition), &never));
        Worker { shared, thread: Some(thread) }
    }

    /// Looks after these processes and what descends from them from now on.
    pub fn set_heads(&self, heads: Heads) {
        *self.shared.heads.lock().unwrap_or_else(PoisonError::into_inner) = heads;
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

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(shared: &Shared, mut keeper: Keeper, never: &[i32]) {
    // Where that is not allowed it works as well, with longer stalls on busy machines.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let root = ProcRoot::default();
    let mut looked: Option<Instant> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let heads = shared.heads.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let costs = shared.costs.lock().unwrap_or_else(PoisonError::into_inner).take();
            costs.into_iter().for_each(|costs| keeper.set_costs(costs));
            keeper.set_members(&members(&root, &heads, never));
            *shared.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper.report());
            looked = Some(Instant::now());
        }
        std::thread::park_timeout(keeper.turn().min(LOOK));
    }
    *shared.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper.report());
}

/// Who belongs to the heads now.
pub(crate) fn members(root: &ProcRoot, heads: &Heads, never: &[i32]) -> Vec<i32> {
    let below = |pid: i32| root.children(pid).unwrap_or_default();
    let mut all = match heads {
        Heads::Below(head) => below(*head),
        Heads::With(heads) => {
            let each = heads.iter().flat_map(|&head| [vec![head], below(head)].concat());
            each.collect()
        }
    };
    let left_out: Vec<i32> =
        never.iter().flat_map(|&pid| [vec![pid], below(pid)].concat()).collect();
    all.retain(|pid| !left_out.contains(pid));
    all.sort_unstable();
    all.dedup();
    all
}
