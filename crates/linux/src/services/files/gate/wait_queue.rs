//! Between the doorman, who takes files in and must never wait, and the placer's thread, which
//! takes them out one slice at a time: first those that somebody waits for, then the rest in turns.
//! It also knows who opened each of them: a file is left when they all have ended.
//! Locks are held for moments only. Files are not touched here.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::filter::Version;
use crate::kernel::descriptors::file_of_first_thread;
use crate::kernel::mappers::FileId;
use crate::services::files::PlacementTally;

/// Opens of placed files that are remembered for the placer's thread.
const KEPT_OPENS: usize = 4096;
/// Processes that are remembered for each file to be placed: the latest that opened it.
const KEPT_OPENERS: usize = 64;

/// A file that is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Which.
    pub id: FileId,
    /// Open for reading in the doorman's thread, which is the process's first and keeps it open until it hears
    /// that nothing more is done for the file.
    pub descriptor: RawFd,
    /// As it was when it was opened.
    pub version: Version,
    /// Who opened it.
    pub process: u32,
    /// Until then somebody waits for it.
    pub until: Instant,
}

/// A file that is being placed, or the rest of it; of the placer's thread alone.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which.
    pub id: FileId,
    /// Open for reading, in the placer's thread.
    pub file: Arc<File>,
    /// As it was when it was opened.
    pub version: Version,
    /// Who opened it first.
    pub process: u32,
    /// The first page that has not been looked at.
    pub next: u64,
    /// Until then somebody waits for it.
    pub until: Instant,
}

impl Task {
    /// Pages of the file.
    pub fn pages(&self) -> u64 {
        self.version.size().div_ceil(huepage_color::PAGE_BYTES)
    }
}

/// What the placer's thread has to tell.
#[derive(Debug)]
pub enum GateEvent {
    /// A slice of a file, and pages of it that are not on the disk yet.
    Slice(PlacementTally, u64),
    /// All of it has been looked at.
    Done(FileId, Version),
    /// It was given up, with the reason.
    Failed(FileId, Version, String),
    /// The rest of it is not placed, as nobody is left who would read it.
    Left(FileId, Version),
    /// Something else went wrong.
    Trouble(String),
    /// Pages of a file that is read again and again were spread.
    Spread(u64),
}

impl GateEvent {
    /// The file for which nothing more is done.
    pub fn closes(&self) -> Option<(FileId, Version)> {
        match self {
            GateEvent::Done(id, version)
            | GateEvent::Failed(id, version, _)
            | GateEvent::Left(id, version) => Some((*id, *version)),
            _ => None,
        }
    }
}

/// What it is to do next.
#[derive(Debug)]
pub enum Next {
    /// A slice of this file.
    Task(Task),
    /// Nothing.
    Idle,
    /// To end.
    Close,
}

/// What is to be done for a file.
#[derive(Debug)]
enum Pending {
    Arrival(Arrival),
    Rest(Task),
}

impl Pending {
    const fn until(&self) -> Instant {
        match self {
            Pending::Arrival(arrival) => arrival.until,
            Pending::Rest(task) => task.until,
        }
    }

    /// The task, in the placer's thread; else what to say.
    fn task(self) -> Result<Task, GateEvent> {
        let arrival = match self {
            Pending::Rest(task) => return Ok(task),
            Pending::Arrival(arrival) => arrival,
        };
        let Arrival { id, descriptor, version, process, until } = arrival;
        let file = file_of_first_thread(descriptor)
            .map_err(|error| GateEvent::Failed(id, version, error.to_string()))?;
        Ok(Task { id, file: Arc::new(file), version, process, next: 0, until })
    }
}

/// Who opened a file.
#[derive(Debug, Default)]
struct Openers {
    /// Those who may live, the latest last.
    living: Vec<u32>,
    /// Since when all have ended, as far as is known.
    ended: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Pending>,
    /// Who opened the files that are to be placed.
    openers: HashMap<FileId, Openers>,
    /// The slice that is being worked on was begun, or got on, then.
    begun: Option<Instant>,
    opened: Vec<FileId>,
    ended: Vec<u32>,
    events: Vec<GateEvent>,
}

/// See the module's head.
#[derive(Debug)]
pub struct WaitQueue {
    state: Mutex<State>,
    bell: Condvar,
    wake: OwnedFd,
    closing: Arc<AtomicBool>,
}

impl WaitQueue {
    /// An empty one.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> io::Result<WaitQueue> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let closing = Arc::default();
        Ok(WaitQueue { state: Mutex::default(), bell: Condvar::new(), wake, closing })
    }

    /// Nothing is half done when a thread that holds the lock panics.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a file in.
    pub fn put(&self, arrival: Arrival) {
        let mut state = self.lock();
        let openers = Openers { living: vec![arrival.process], ended: None };
        state.openers.insert(arrival.id, openers);
        state.tasks.push_back(Pending::Arrival(arrival));
        self.bell.notify_one();
    }

    /// One more process opened a file that is to be placed.
    pub fn joined(&self, file: FileId, process: u32) {
        let mut state = self.lock();
        let Some(Openers { living, ended }) = state.openers.get_mut(&file) else { return };
        living.retain(|&known| known != process);
        if living.len() >= KEPT_OPENERS {
            living.remove(0);
        }
        living.push(process);
        *ended = None;
    }

    /// A file that is placed was opened once more.
    pub fn opened(&self, file: FileId) {
        let opened = &mut self.lock().opened;
        if opened.len() < KEPT_OPENS {
            opened.push(file);
        }
    }

    /// Processes have ended.
    pub fn ended(&self, pids: Vec<i32>) {
        self.lock().ended.extend(pids.into_iter().map(i32::cast_unsigned));
    }

    /// Whether the slice being worked on has not got on for longer than `limit`.
    pub fn is_stuck(&self, now: Instant, limit: Duration) -> bool {
        self.lock().begun.is_some_and(|begun| now.saturating_duration_since(begun) > limit)
    }

    /// What the placer's thread had to tell since the last call.
    pub fn events(&self) -> Vec<GateEvent> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut self.lock().events)
    }

    /// The placer's thread is to end, in the middle of a slice if it can.
    pub fn close(&self) {
        // Under the lock, or who is about to wait would miss it.
        let _state = self.lock();
        self.closing.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Set once it is closed.
    pub fn closing(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closing)
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// For the placer's thread: what comes next, after at most `patience`.
    pub fn next(&self, patience: Duration) -> Next {
        let mut state = self.lock();
        if state.tasks.is_empty() && !self.is_closing() {
            let waited = self.bell.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.is_closing() {
            return Next::Close;
        }
        let now = Instant::now();
        let urgent = state.tasks.iter().position(|task| task.until() > now).unwrap_or(0);
        match state.tasks.remove(urgent).map(Pending::task) {
            Some(Ok(task)) => {
                state.begun = Some(now);
                Next::Task(task)
            }
            Some(Err(event)) => {
                drop(state);
                self.over(None, [event]);
                Next::Idle
            }
            None => Next::Idle,
        }
    }

    /// For the placer's thread: forgets what is to be done. Only it can close its files.
    pub fn clear(&self) {
        let tasks = std::mem::take(&mut self.lock().tasks);
        drop(tasks);
    }

    /// For the placer's thread: it begins something that may take time, or gets on with it.
    pub fn begin(&self) {
        self.lock().begun = Some(Instant::now());
    }

    /// For the placer's thread: whether all who opened a file have ended, so long ago that the next of a
    /// row of programs would have opened it. They are forgotten; a pid that another process has by now counts
    /// as alive.
    pub fn is_left(&self, file: FileId, patience: Duration, lives: impl Fn(u32) -> bool) -> bool {
        let mut state = self.lock();
        let Some(Openers { living, ended }) = state.openers.get_mut(&file) else { return true };
        while living.last().is_some_and(|&process| !lives(process)) {
            living.pop();
        }
        living.is_empty() && ended.get_or_insert_with(Instant::now).elapsed() >= patience
    }

    /// For the placer's thread: a slice is over; the rest of the file comes in again.
    pub fn over(&self, rest: Option<Task>, events: impl IntoIterator<Item = GateEvent>) {
        let mut state = self.lock();
        state.begun = None;
        state.tasks.extend(rest.map(Pending::Rest));
        let before = state.events.len();
        state.events.extend(events);
        let State { openers, events, .. } = &mut *state;
        for (file, _) in events[before..].iter().filter_map(GateEvent::closes) {
            openers.remove(&file);
        }
        if events.len() > before {
            self.ring();
        }
    }

    /// Wakes who waits for news.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// For the placer's thread: files opened once more and processes that ended, since the last
    /// call.
    pub fn take_events(&self) -> (Vec<FileId>, Vec<u32>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.opened), std::mem::take(&mut state.ended))
    }
}

impl AsFd for WaitQueue {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn task(inode: u64, until: Instant) -> Task {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5 * 4096 + 1).unwrap();
        let version = Version::from_metadata(&file.metadata().unwrap());
        let id = FileId { device: 1, inode };
        Task { id, file: Arc::new(file), version, process: 9, next: 0, until }
    }

    /// Puts a file in that stays open as long as what is given back.
    fn put(queue: &WaitQueue, inode: u64, until: Instant) -> Arc<File> {
        let Task { id, file, version, process, .. } = task(inode, until);
        queue.put(Arrival { id, descriptor: file.as_raw_fd(), version, process, until });
        file
    }

    fn taken(queue: &WaitQueue) -> u64 {
        match queue.next(Duration::ZERO) {
            Next::Task(task) => task.id.inode,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_somebody_waits_for_come_first_and_the_rest_in_turns() {
        let queue = WaitQueue::new().unwrap();
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let arrivals = [(1, past), (2, past), (3, future), (4, future)];
        let _open = arrivals.map(|(inode, until)| put(&queue, inode, until));
        assert_eq!([taken(&queue), taken(&queue), taken(&queue)], [3, 4, 1]);
        queue.over(Some(task(1, past)), []);
        assert_eq!([taken(&queue), taken(&queue)], [2, 1]);
        assert!(matches!(queue.next(Duration::ZERO), Next::Idle));
        let _fifth = put(&queue, 5, past);
        queue.close();
        assert!(matches!(queue.next(Duration::ZERO), Next::Close));
        assert_eq!(queue.lock().tasks.len(), 1);
        queue.clear();
        assert!(queue.lock().tasks.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_had_is_given_up() {
        let (queue, now) = (WaitQueue::new().unwrap(), Instant::now());
        let Task { id, version, .. } = task(1, now);
        queue.put(Arrival { id, descriptor: 1 << 30, version, process: 9, until: now });
        assert!(matches!(queue.next(Duration::ZERO), Next::Idle));
        assert!(matches!(queue.events()[..], [GateEvent::Failed(of, ..)] if of == id));
    }

    #[test]
    fn a_file_is_left_when_all_who_opened_it_have_ended() {
        let (queue, now) = (WaitQueue::new().unwrap(), Instant::now());
        let Task { id: file, version, .. } = task(1, now);
        let _open = put(&queue, 1, now);
        queue.joined(file, 12);
        queue.joined(FileId { device: 1, inode: 2 }, 13);
        assert_eq!(queue.lock().openers.len(), 1, "not to be placed");
        let left = |patience, living| queue.is_left(file, patience, |process| process == living);
        assert!(!left(Duration::ZERO, 9), "the first lives");
        assert_eq!(queue.lock().openers[&file].living, [9], "who ended is not asked about again");
        assert!(!left(Duration::from_secs(600), 0), "the next may come");
        assert!(left(Duration::ZERO, 0));
        queue.joined(file, 14);
        assert!(!left(Duration::ZERO, 14), "opened again in time");
        assert!(queue.lock().openers[&file].ended.is_none());
        (0..1000).for_each(|process| queue.joined(file, process));
        assert_eq!(queue.lock().openers[&file].living.len(), KEPT_OPENERS);
        queue.over(None, [GateEvent::Left(file, version)]);
        assert!(queue.lock().openers.is_empty());
    }

    #[test]
    fn a_slice_that_takes_long_is_noticed() {
        let (queue, now) = (WaitQueue::new().unwrap(), Instant::now());
        let (second, later) = (Duration::from_secs(1), now + Duration::from_secs(60));
        assert!(!queue.is_stuck(later, second));
        let _open = put(&queue, 1, now);
        assert_eq!(taken(&queue), 1);
        assert!(!queue.is_stuck(now, second) && queue.is_stuck(later, second));
        queue.over(None, [GateEvent::Spread(3)]);
        assert!(!queue.is_stuck(later, second));
    }

    #[test]
    fn news_wake_the_doorman() {
        let queue = WaitQueue::new().unwrap();
        let ready = |queue: &WaitQueue| {
            let mut polled =
                libc::pollfd { fd: queue.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry that lives across the call.
            unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
        };
        assert!(!ready(&queue));
        queue.over(None, [GateEvent::Spread(3)]);
        assert!(ready(&queue));
        assert!(matches!(queue.events()[..], [GateEvent::Spread(3)]));
        assert!(!ready(&queue));
    }

    #[test]
    fn the_last_page_counts() {
        assert_eq!(task(1, Instant::now()).pages(), 6);
    }
}
