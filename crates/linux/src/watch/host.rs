//! The threads of a service that watch one process each: which processes are worth one, who has ended, what was
//! reported. What is watched for, and what is done about it, is the service's business.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::request_slot::{RequestSlot, WatchReport};
use crate::kernel::process_memory::ProcessMemory;
use crate::kernel::process_tree::{ProcessRoots, members};
use crate::kernel::procfs::ProcRoot;

/// Processes that are watched at a time: those that used most CPU time.
const MOST_WATCHED: usize = 4;
/// Time between two looks for new processes.
const PROCESS_SCAN_INTERVAL: Duration = Duration::from_millis(200);

/// A process that is watched; `U` is what is being carried out for it.
pub(crate) struct Watched<W, A, R, U> {
    pub slot: Arc<RequestSlot<W, A, R>>,
    /// Answers whether the process goes on as another program.
    thread: Option<JoinHandle<bool>>,
    pub underway: Option<U>,
    /// Whether the engine was asked to take the process.
    pub taken: bool,
}

/// See the module's head. Dropping it ends the watching.
pub(crate) struct Host<W, A, R, U> {
    roots: ProcessRoots,
    watched: HashMap<i32, Watched<W, A, R, U>>,
    ended: Vec<R>,
    /// Processes that cannot be watched, or were let go.
    left: Vec<i32>,
    looked: Option<Instant>,
    root: ProcRoot,
    least_cpu_time: Duration,
}

impl<W, A, R: WatchReport, U> Host<W, A, R, U> {
    /// For these processes and those that descend from them. Processes that used less CPU time are not
    /// watched: most are over soon.
    pub fn new(roots: ProcessRoots, least_cpu_time: Duration) -> Self {
        let (watched, ended, left) = (HashMap::new(), Vec::new(), Vec::new());
        Host {
            roots,
            watched,
            ended,
            left,
            looked: None,
            root: ProcRoot::default(),
            least_cpu_time,
        }
    }

    /// Looks after these processes and what descends from them from now on.
    pub fn set_roots(&mut self, roots: ProcessRoots) {
        self.roots = roots;
    }

    /// Starts a thread for each process that is worth one and may have one; every so often.
    pub fn admit(
        &mut self,
        may: impl Fn(i32) -> bool,
        start: impl Fn(i32, Arc<RequestSlot<W, A, R>>) -> JoinHandle<bool>,
    ) {
        if self.looked.is_some_and(|at| at.elapsed() < PROCESS_SCAN_INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        self.left.retain(|&pid| self.root.process_exists(pid));
        for pid in self.busiest(may) {
            let slot = Arc::new(RequestSlot::new(R::for_process(pid)));
            let thread = Some(start(pid, Arc::clone(&slot)));
            self.watched.insert(pid, Watched { slot, thread, underway: None, taken: false });
        }
    }

    /// Processes that are worth watching and are not yet.
    fn busiest(&self, may: impl Fn(i32) -> bool) -> Vec<i32> {
        let mut busy: Vec<(Duration, i32)> = members(&self.root, &self.roots, &[])
            .into_iter()
            .filter(|pid| !self.watched.contains_key(pid) && !self.left.contains(pid) && may(*pid))
            .filter_map(|pid| Some((ProcessMemory::open(pid).ok()?.cpu_time(), pid)))
            .filter(|(ran, _)| *ran >= self.least_cpu_time)
            .collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        let room = MOST_WATCHED.saturating_sub(self.watched.len());
        busy.into_iter().take(room).map(|(_, pid)| pid).collect()
    }

    /// Lets go of processes whose thread has ended; those of them that go on as another program though the
    /// engine has taken them.
    pub fn take_replaced(&mut self) -> Vec<i32> {
        let over =
            self.watched.extract_if(|_, w| w.thread.as_ref().is_none_or(JoinHandle::is_finished));
        let mut taken = Vec::new();
        for (pid, mut watched) in over {
            self.ended.push(watched.slot.report());
            let replaced = watched.thread.take().is_some_and(|t| t.join().unwrap_or(false));
            if !replaced {
                self.left.push(pid);
            } else if watched.taken {
                taken.push(pid);
            }
        }
        taken
    }

    /// Those that are watched.
    pub fn watched(&mut self) -> impl Iterator<Item = (i32, &mut Watched<W, A, R, U>)> {
        self.watched.iter_mut().map(|(&pid, watched)| (pid, watched))
    }

    /// Whether something that was asked for is being carried out.
    pub fn is_moving(&self) -> bool {
        self.watched.values().any(|watched| watched.underway.is_some())
    }

    /// A process is let go.
    pub fn release(&mut self, pid: i32) {
        self.left.push(pid);
        if let Some(mut watched) = self.watched.remove(&pid) {
            watched.end();
            self.ended.push(watched.slot.report());
        }
    }

    /// The reports of processes that have ended, since they were asked for last.
    pub fn take_ended(&mut self) -> Vec<R> {
        std::mem::take(&mut self.ended)
    }

    /// All reports.
    pub fn reports(&self) -> Vec<R> {
        let watched = self.watched.values().map(|watched| watched.slot.report());
        self.ended.iter().cloned().chain(watched).collect()
    }
}

impl<W, A, R, U> Drop for Host<W, A, R, U> {
    fn drop(&mut self) {
        self.watched.values_mut().for_each(Watched::end);
    }
}

impl<W, A, R, U> Watched<W, A, R, U> {
    fn end(&mut self) {
        self.slot.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}
