//! Conflict recolouring, live: pages of a running process that are used again and again, are of one
//! colour, and are more than the ways of the cache get frames of colours with room. Which ones is decided
//! by Snapshot-Miss (`huepage_policy::conflict`, after Romer 1998), with sensors of our own in place of
//! its TLB handler and miss counter.
//!
//! `in_use` finds the pages that are used again and again, `driver` stands between sensors and policy,
//! `watcher` looks at one process on a thread of its own, `board` is what it and the engine's thread say
//! to each other, [`Recolorers`] looks after all processes of a supervisor, `report` is told.
//!
//! A process gets an agent when the first of its pages is to move, and none before.

mod board;
mod driver;
mod in_use;
pub mod offline;
mod report;
#[cfg(test)]
mod tests;
mod watcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{CacheGeometry, ColorSet};

pub use crate::board::Decision;
pub use report::{ConflictReport, Crowd, ProcessReport};

use crate::engine::{EngineError, Group, Placed};
use crate::filecache::kin::Heads;
use crate::probe::ProbeParams;
use crate::procfs::ProcRoot;
use crate::residency::Sight;
use crate::superpages::hands::Hands;
use crate::superpages::worker::members;
use board::{Answer, Board, Wish};

/// Processes that are watched at a time: those that used most CPU time.
const MOST: usize = 4;
/// Time between two looks for new processes.
const LOOK: Duration = Duration::from_millis(200);
/// How long moving pages may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Processes that used less CPU time are not watched: most are over soon.
const YOUNG: Duration = Duration::from_millis(200);

/// The cache, and what is allowed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Colours of the cache, at least 2.
    pub colors: u16,
    /// Lines of a set of it, at least 1.
    pub ways: u16,
    /// Its bytes.
    pub cache_bytes: u64,
    /// Colours that pages are never moved to, as others hold them.
    pub keep_off: ColorSet,
    /// How the colours of frames are known.
    pub sight: Sight,
    /// Share of one CPU that watching a process may take, 0 to 1.
    pub cpu: f64,
    /// Pages of a process that are moved in a second, at most; at least 1.
    pub rate: u32,
}

/// Why conflicts cannot be seen in this cache; none where they can.
pub fn obstacle(cache: &CacheGeometry) -> Option<String> {
    match ProbeParams::for_cache(cache) {
        Ok(params) if params.depth > 1 => {
            Some("the clock's steps are too large to tell colours while a program runs".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// A process that is watched.
struct Watched {
    board: Arc<Board>,
    /// Answers whether the process goes on as another program.
    thread: Option<JoinHandle<bool>>,
    underway: Option<Underway>,
    taken: bool,
}

/// Pages that are being moved.
struct Underway {
    since: Instant,
    /// Where it is told what became of them; none while it is waited to try again.
    told: Option<Receiver<Vec<Placed>>>,
    wish: Wish,
    /// How often it will be tried again if no page at all can be moved: an agent may just have come, or
    /// somebody hold the process.
    again: u32,
}

/// How often pages are tried again of which none was moved, and after how long.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_millis(300);

/// Looks after the processes of a supervisor. Dropping it ends the watching; pages stay where they are.
pub struct Recolorers {
    settings: Settings,
    heads: Heads,
    watched: HashMap<i32, Watched>,
    ended: Vec<ProcessReport>,
    /// Processes that cannot be watched, or were let go.
    left: Vec<i32>,
    looked: Option<Instant>,
    root: ProcRoot,
}

impl Recolorers {
    /// Of these processes and those that descend from them.
    pub fn new(settings: Settings, heads: Heads) -> Recolorers {
        let (watched, ended, left) = (HashMap::new(), Vec::new(), Vec::new());
        let (looked, root) = (None, ProcRoot::default());
        Recolorers { settings, heads, watched, ended, left, looked, root }
    }

    /// One turn, every few milliseconds: new processes, and what policies wish. The partition of `group`
    /// is for no pages.
    pub fn tend(&mut self, group: &mut Group) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.find();
        }
        let over =
            self.watched.extract_if(|_, w| w.thread.as_ref().is_none_or(JoinHandle::is_finished));
        for (pid, mut watched) in over.collect::<Vec<_>>() {
            self.ended.push(watched.board.report());
            let replaced = watched.thread.take().is_some_and(|t| t.join().unwrap_or(false));
            if !replaced {
                self.left.push(pid);
            } else if watched.taken {
                // What was moved was of the program before; the next one is looked at anew.
                group.release(pid);
            }
        }
        for (&pid, watched) in &mut self.watched {
            watched.tend(pid, group);
        }
    }

    /// Processes that are worth watching and are not yet.
    fn find(&mut self) {
        self.left.retain(|&pid| self.root.process_exists(pid));
        let members = members(&self.root, &self.heads, &[]).into_iter();
        let mut busy: Vec<(Duration, i32)> = members
            .filter(|pid| !self.watched.contains_key(pid) && !self.left.contains(pid))
            .filter_map(|pid| Some((Hands::of(pid).ok()?.cpu_time(), pid)))
            .filter(|(ran, _)| *ran >= YOUNG)
            .collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        for (_, pid) in busy.into_iter().take(MOST.saturating_sub(self.watched.len())) {
            let board = Arc::new(Board::of(pid));
            let (of_thread, settings) = (Arc::clone(&board), self.settings.clone());
            let thread = std::thread::spawn(move || watcher::run(pid, &settings, &of_thread));
            let fresh = Watched { board, thread: Some(thread), underway: None, taken: false };
            self.watched.insert(pid, fresh);
        }
    }

    /// A process is let go: its pages stay where they are.
    pub fn release(&mut self, pid: i32) {
        self.left.push(pid);
        if let Some(mut watched) = self.watched.remove(&pid) {
            watched.end();
            self.ended.push(watched.board.report());
        }
    }

    /// What was done so far.
    pub fn report(&self) -> ConflictReport {
        let mut processes = self.ended.clone();
        processes.extend(self.watched.values().map(|watched| watched.board.report()));
        ConflictReport { of: self.settings.colors, ways: self.settings.ways, processes }
    }
}

impl Drop for Recolorers {
    fn drop(&mut self) {
        self.watched.values_mut().for_each(Watched::end);
    }
}

impl Underway {
    /// What became of the pages, once that is known.
    fn answer(&mut self, pid: i32, group: &Group) -> Option<Answer> {
        let Some(told) = &self.told else {
            if self.since.elapsed() < AGAIN {
                return None;
            }
            (self.since, self.told) = (Instant::now(), group.place(pid, self.wish.clone()));
            self.again -= 1;
            return self.told.is_none().then(|| Err("the process ended".to_owned()));
        };
        match told.try_recv() {
            Ok(placed) if self.again > 0 && placed.iter().all(|(_, there)| !there) => {
                (self.since, self.told) = (Instant::now(), None);
                None
            }
            Ok(placed) => Some(Ok(placed)),
            Err(TryRecvError::Empty) if self.since.elapsed() < PATIENCE => None,
            Err(_) => Some(Err("the engine does not answer, or the process ended".to_owned())),
        }
    }
}

impl Watched {
    fn tend(&mut self, pid: i32, group: &mut Group) {
        if let Some(mut underway) = self.underway.take() {
            match underway.answer(pid, group) {
                Some(answer) => {
                    let seconds = group.status(pid).map(|status| status.recolor_seconds[0]);
                    self.board.placed(answer, seconds);
                }
                None => self.underway = Some(underway),
            }
            return;
        }
        let Some(wish) = self.board.take_wish() else { return };
        match self.carry_out(pid, wish.clone(), group) {
            Ok(Some(told)) => {
                let (since, told) = (Instant::now(), Some(told));
                self.underway = Some(Underway { since, told, wish, again: TRIES });
            }
            Ok(None) => self.board.answer(Err("the process ended".to_owned())),
            Err(error) => self.board.answer(Err(error.to_string())),
        }
    }

    /// Has the engine move pages; where it will tell what became of them.
    fn carry_out(
        &mut self,
        pid: i32,
        wish: Wish,
        group: &mut Group,
    ) -> Result<Option<Receiver<Vec<Placed>>>, EngineError> {
        if !self.taken {
            group.take_running(pid, |_, _| ())?;
            self.taken = true;
        }
        Ok(group.place(pid, wish))
    }

    fn end(&mut self) {
        self.board.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}
