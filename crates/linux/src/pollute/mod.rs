//! The pollute buffer, live: pages of a running process that pollute the cache are confined to a few
//! colours, by ROCS (2008): with its counters and samples where the machine has them, else with the residency
//! sensor in their place.
//!
//! `watcher` looks at one process on a thread of its own and drives the policy, `sight` is what it sees with,
//! `driver` stands between it and the policy, `board` is what it and the engine's thread say to each other,
//! [`Polluters`] looks after all processes of a supervisor and has the engine carry out what they wish,
//! `report` is told. Which pages pollute is decided by `huepage_policy::rocs`.
//!
//! A process is not touched before the policy wants pages of it moved; then it gets an agent, whose
//! partition is the buffer and is for those pages alone.

mod board;
mod driver;
mod pace;
mod report;
mod sight;
#[cfg(test)]
mod tests;
mod watcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{CacheLevel, ColorSet};

pub use crate::board::Decision;
pub use report::{AreaConfined, PolluteReport, ProcessReport};
pub use sight::{SensorKind, lacking};
pub(crate) use watcher::program_of;

use crate::engine::{EngineError, Group, Scope};
use crate::filecache::kin::Heads;
use crate::pmu::calls::Function;
use crate::procfs::ProcRoot;
use crate::superpages::hands::Hands;
use crate::superpages::worker::members;
use board::{Board, Wish};
use sight::Eyes;

/// Processes that are watched at a time: those that used most CPU time.
const MOST: usize = 4;
/// Time between two looks for new processes.
const LOOK: Duration = Duration::from_millis(200);
/// How long moving pages may take before the policy goes on with what was moved.
const PATIENCE: Duration = Duration::from_secs(15);
/// Share of the pages that has to be moved before it does.
const ENOUGH: f64 = 0.95;
/// Processes that used less CPU time are not watched: most are over soon.
const YOUNG: Duration = Duration::from_secs(1);

/// How pages are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Worked out from the profile, and tried once.
    Model,
    /// By trying more and more (ROCS 2008, algorithm 1).
    Empirical,
}

/// What the buffer is, and what watching may cost.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The colours of the buffer; its universe are those of the cache.
    pub buffer: ColorSet,
    /// The level of the cache.
    pub level: CacheLevel,
    /// Whether no cache is behind it.
    pub is_last: bool,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Lines of a set of it.
    pub ways: u16,
    /// Whether colours have to be measured, which makes moving pages dear.
    pub probed: bool,
    /// How pages are chosen.
    pub search: Search,
    /// Share of one CPU that watching a process may take, 0 to 1.
    pub cpu: f64,
    /// Who tells which pages pollute; none: the best that this machine has.
    pub sensor: Option<SensorKind>,
    /// The function whose calls are the program's progress, if one was named.
    pub progress: Option<Function>,
    /// Ranges of addresses to confine from the beginning, in place of choosing.
    pub fixed: Option<Vec<(u64, u64)>>,
}

/// A process that is watched.
struct Watched {
    board: Arc<Board>,
    /// Answers whether the process goes on as another program.
    thread: Option<JoinHandle<bool>>,
    /// What is being carried out since when, and how many audits had been made by then.
    underway: Option<(Instant, u64)>,
    taken: bool,
}

/// Looks after the processes of a supervisor. Dropping it ends the watching; pages stay where they are.
pub struct Polluters {
    settings: Settings,
    eyes: Eyes,
    heads: Heads,
    watched: HashMap<i32, Watched>,
    ended: Vec<ProcessReport>,
    /// Processes that cannot be watched, or were let go.
    left: Vec<i32>,
    looked: Option<Instant>,
    root: ProcRoot,
}

impl Polluters {
    /// Of these processes and those that descend from them.
    pub fn new(settings: Settings, heads: Heads) -> Polluters {
        let (watched, ended, left) = (HashMap::new(), Vec::new(), Vec::new());
        let eyes = Eyes::open(settings.sensor, settings.level, settings.is_last);
        let (looked, root) = (None, ProcRoot::default());
        Polluters { settings, eyes, heads, watched, ended, left, looked, root }
    }

    /// One turn, every few milliseconds: new processes, and what policies wish. `group` has the buffer
    /// as its partition, for no pages at first.
    pub fn tend(&mut self, group: &mut Group) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.find(group);
        }
        let over =
            self.watched.extract_if(|_, w| w.thread.as_ref().is_none_or(JoinHandle::is_finished));
        for (pid, mut watched) in over.collect::<Vec<_>>() {
            self.ended.push(watched.board.report());
            let replaced = watched.thread.take().is_some_and(|t| t.join().unwrap_or(false));
            if !replaced {
                self.left.push(pid);
            } else if watched.taken && !group.has_buffer() {
                // What was confined was of the program before; the next one is looked at anew. A member
                // that has other pages confined too was taken anew by then, with an empty buffer.
                group.release(pid);
            }
        }
        for (&pid, watched) in &mut self.watched {
            watched.tend(pid, group);
        }
    }

    /// Processes that are worth watching and are not yet.
    fn find(&mut self, group: &Group) {
        self.left.retain(|&pid| self.root.process_exists(pid));
        let members = members(&self.root, &self.heads, &[]).into_iter();
        let mut busy: Vec<(Duration, i32)> = members
            .filter(|pid| !self.watched.contains_key(pid) && !self.left.contains(pid))
            // Where the buffer is part of a partition, it is of those that are in it.
            .filter(|&pid| !group.has_buffer() || group.holds(pid))
            .filter_map(|pid| Some((Hands::of(pid).ok()?.cpu_time(), pid)))
            .filter(|(ran, _)| *ran >= YOUNG || self.settings.fixed.is_some())
            .collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        for (_, pid) in busy.into_iter().take(MOST.saturating_sub(self.watched.len())) {
            let board = Arc::new(Board::of(pid));
            let (of_thread, settings) = (Arc::clone(&board), self.settings.clone());
            let eyes = self.eyes.clone();
            let thread =
                std::thread::spawn(move || watcher::run(pid, &settings, &eyes, &of_thread));
            let fresh = Watched { board, thread: Some(thread), underway: None, taken: false };
            self.watched.insert(pid, fresh);
        }
    }

    /// Processes that are watched from now on are told of a buffer of these colours; those that are
    /// already go on with what they were told.
    pub fn set_buffer(&mut self, buffer: ColorSet) {
        self.settings.buffer = buffer;
    }

    /// Looks after these processes and what descends from them from now on.
    pub fn set_heads(&mut self, heads: Heads) {
        self.heads = heads;
    }

    /// A process is let go: its pages stay where they are.
    pub fn release(&mut self, pid: i32) {
        self.left.push(pid);
        if let Some(mut watched) = self.watched.remove(&pid) {
            watched.end();
            self.ended.push(watched.board.report());
        }
    }

    /// What was done about processes that have ended, since it was asked for last: who looks after a
    /// group for long does not keep it.
    pub fn take_ended(&mut self) -> Vec<ProcessReport> {
        std::mem::take(&mut self.ended)
    }

    /// What was done so far.
    pub fn report(&self) -> PolluteReport {
        let mut processes = self.ended.clone();
        processes.extend(self.watched.values().map(|watched| watched.board.report()));
        PolluteReport {
            buffer: self.settings.buffer.to_string(),
            of: self.settings.buffer.universe(),
            processes,
        }
    }
}

impl Drop for Polluters {
    fn drop(&mut self) {
        self.watched.values_mut().for_each(Watched::end);
    }
}

impl Watched {
    fn tend(&mut self, pid: i32, group: &mut Group) {
        if let Some((since, audits)) = self.underway {
            let status = group.status_of_scope(pid);
            let enough = status.is_some_and(|status| {
                let inside = status.census.as_ref().and_then(|census| census.compliance());
                status.audits > audits && inside.is_none_or(|share| share >= ENOUGH)
            });
            if enough || since.elapsed() > PATIENCE {
                self.underway = None;
                self.board.carried_out(group.status_of_scope(pid).as_ref());
            }
            return;
        }
        let Some(wish) = self.board.take_wish() else { return };
        match self.carry_out(pid, wish, group) {
            Ok(audits) => self.underway = Some((Instant::now(), audits)),
            Err(error) => self.board.refuse(&error.to_string()),
        }
    }

    /// Has the engine move pages; how many audits it had made by then.
    fn carry_out(&mut self, pid: i32, wish: Wish, group: &mut Group) -> Result<u64, EngineError> {
        if !self.taken && !group.has_buffer() {
            group.take_running(pid, |_, _| ())?;
        }
        self.taken = true;
        let audits = group.status(pid).map_or(0, |status| status.audits);
        group.rescope(pid, Scope::new(wish.ranges));
        Ok(audits + 1)
    }

    fn end(&mut self) {
        self.board.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}
