//! The doorman of the files that a group of processes opens: each waits in the kernel until its
//! file is placed, though never for longer than allowed, and is let in any case. Opens of other
//! processes, of files that are not wanted and of those that were placed a moment ago are let at
//! once.
//!
//! All processes of the machine that open files pass here, so the doorman has threads of its own
//! that open no file but of `/proc`, and wait for nobody who might: placing happens on another
//! thread (`worker`), what does not answer in time is no longer waited for, and where reading
//! who has come takes long, another thread reads on (`readers`). Colours are not known here.

mod filter;
mod readers;
mod report;
mod wait_queue;
mod worker;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use filter::FileFilter;
pub use report::GateReport;
pub use wait_queue::{Arrival, Task, WaitQueue};
pub use worker::{PlacementWork, Slice, serve};

use filter::{RecentFiles, Version};
use readers::Readers;
use report::Waits;
use wait_queue::GateEvent;

use crate::kernel::fanotify::{FanotifyError, FileNotifier, FileOpening};
use crate::kernel::mappers::FileId;
use crate::kernel::process_tree::ProcessTree;

/// Processes that wait and files that are to be placed, at most: each may keep a descriptor open.
const QUEUE_LENGTH: usize = 1024;
/// Descriptors that are not for these: those of events just read, of files looked at again, and
/// whatever else is open.
const OTHER_DESCRIPTORS: usize = 256;
/// Nobody waits while the placer has not got on for longer than this: a disk that hangs, no memory.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// How often there is a pulse when nothing happens.
const PULSE_INTERVAL: Duration = Duration::from_millis(100);
/// What comes after a pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// More.
    Go,
    /// The end.
    End,
}

/// A process that waits.
#[derive(Debug)]
struct Waiting {
    opening: FileOpening,
    since: Instant,
    until: Instant,
}

/// A file that is to be placed.
#[derive(Debug)]
struct Case {
    /// Open until nothing more is done for it: the placer takes it from here.
    _open: Arc<File>,
    waiting: Vec<Waiting>,
}

/// See the module's head.
#[derive(Debug)]
pub struct FileGate {
    readers: Readers,
    queue: Arc<WaitQueue>,
    /// None once it is open for good.
    waiting_room: Arc<Mutex<Option<WaitingRoom>>>,
}

/// Who waits, and who need not.
#[derive(Debug)]
pub struct WaitingRoom {
    tree: ProcessTree,
    wanted: FileFilter,
    wait: Duration,
    queue: Arc<WaitQueue>,
    judged: RecentFiles,
    /// An entry for each file that is to be placed.
    waiting: HashMap<FileId, Case>,
    /// How many may.
    room: usize,
    waits: Waits,
    report: GateReport,
}

impl FileGate {
    /// A gate for the filesystems that `notifier` has marked, at which nobody waits longer than
    /// `wait`. It must be run at once: until then nobody is let.
    pub fn new(
        notifier: FileNotifier,
        tree: ProcessTree,
        wanted: FileFilter,
        wait: Duration,
        queue: Arc<WaitQueue>,
    ) -> FileGate {
        let waiting_room = WaitingRoom {
            tree,
            wanted,
            wait,
            queue: Arc::clone(&queue),
            judged: RecentFiles::default(),
            waiting: HashMap::new(),
            room: room(),
            waits: Waits::default(),
            report: GateReport::default(),
        };
        let waiting_room = Arc::new(Mutex::new(Some(waiting_room)));
        let inside = Arc::clone(&waiting_room);
        let admit = move |opening| {
            // Without the room he is let, as the opening is dropped.
            if let Some(waiting_room) = lock(&inside).as_mut() {
                waiting_room.decide(opening);
            }
        };
        let readers = Readers::new(notifier, Box::new(admit));
        FileGate { readers, queue, waiting_room }
    }

    /// Lets processes in until `pulse` says so; it is called ten times a second, and when `control`
    /// is readable. It must not open files. All who wait then are let.
    ///
    /// # Errors
    /// When events cannot be read; the gate is open for good then.
    pub fn run(
        &self,
        control: BorrowedFd<'_>,
        pulse: &mut dyn FnMut(&mut WaitingRoom) -> Flow,
    ) -> Result<(), FanotifyError> {
        let mut last = Instant::now();
        loop {
            let unreadable = self.readers.look_after()?;
            let heard = self.sleep(control, last);
            let now = Instant::now();
            let mut waiting_room = lock(&self.waiting_room);
            let Some(room) = waiting_room.as_mut() else { return Ok(()) };
            room.report.unreadable = unreadable;
            room.hear_news(now);
            room.release_late(now);
            if heard || now.saturating_duration_since(last) >= PULSE_INTERVAL {
                last = now;
                self.queue.ended(room.tree.ended());
                if pulse(room) == Flow::End {
                    return Ok(());
                }
            }
        }
    }

    /// Opens the gate for good and closes the queue; `wait_for_worker` is to return when the last
    /// slice is over. What it has seen and done.
    pub fn finish(self, wait_for_worker: impl FnOnce()) -> GateReport {
        let room = lock(&self.waiting_room).take();
        self.readers.end();
        let Some(WaitingRoom { mut waiting, mut report, mut waits, .. }) = room else {
            return GateReport::default();
        };
        waits.summarize(&mut report);
        waiting.values_mut().for_each(|case| case.waiting.clear());
        self.queue.close();
        wait_for_worker();
        for events in self.queue.events() {
            report.count(&events);
            events.closes().map(|(id, _)| waiting.remove(&id));
        }
        GateReport { unfinished: report.unfinished + waiting.len() as u64, ..report }
    }

    /// Waits for news, `control`, the next who has waited long enough, or the next pulse; whether it is
    /// `control`.
    fn sleep(&self, control: BorrowedFd<'_>, last: Instant) -> bool {
        let late = lock(&self.waiting_room).as_ref().and_then(WaitingRoom::next_late);
        let until = late.map_or(last + PULSE_INTERVAL, |late| late.min(last + PULSE_INTERVAL));
        let left = until.saturating_duration_since(Instant::now());
        let descriptors = [self.queue.as_fd(), control];
        let left = left + Duration::from_micros(if left.is_zero() { 0 } else { 999 });
        crate::kernel::wait::ready(&descriptors.map(|fd| (fd.as_raw_fd(), libc::POLLIN)), left)[1]
    }
}

/// Nothing is half done when a thread that holds the lock panics.
fn lock(room: &Mutex<Option<WaitingRoom>>) -> MutexGuard<'_, Option<WaitingRoom>> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WaitingRoom {
    /// The files that a process opens, and what descends from it, are placed from now on.
    pub fn join(&mut self, pid: i32) {
        self.tree.admit(pid);
    }

    /// The files that a process opens are its own business from now on.
    pub fn release(&mut self, pid: i32) {
        self.tree.release(pid);
    }

    /// What it has seen and done so far.
    pub fn report(&mut self) -> GateReport {
        self.waits.summarize(&mut self.report);
        let unfinished = self.report.unfinished + self.waiting.len() as u64;
        GateReport { unfinished, ..self.report.clone() }
    }

    /// When the next has waited long enough.
    fn next_late(&self) -> Option<Instant> {
        self.waiting.values().flat_map(|case| &case.waiting).map(|waiting| waiting.until).min()
    }

    /// Has a process wait, or lets it by dropping `opening`.
    fn decide(&mut self, opening: FileOpening) {
        let now = Instant::now();
        if !self.tree.belongs(opening.pid(), now) {
            self.report.foreign += 1;
            return;
        }
        let Ok(found) = opening.file().metadata() else { return };
        if !found.is_file() || found.len() == 0 {
            return;
        }
        self.report.opens += 1;
        let version = Version::from_metadata(&found);
        let Ok(id) = FileId::from_file(opening.file()) else { return };
        if !self.wanted.size(version.size()) {
            self.report.unwanted += 1;
        } else if self.judged.is_settled(id, version, now) {
            self.report.known += 1;
            self.queue.opened(id);
        } else if !self.is_wanted_there(&opening) {
            self.report.unwanted += 1;
        } else {
            self.hold(opening, id, version, now);
        }
    }

    fn is_wanted_there(&self, opening: &FileOpening) -> bool {
        let link = || PathBuf::from(format!("/proc/self/fd/{}", opening.file().as_raw_fd()));
        !self.wanted.asks_where()
            || std::fs::read_link(link()).is_ok_and(|path| self.wanted.place(&path))
    }

    fn hold(&mut self, opening: FileOpening, id: FileId, version: Version, now: Instant) {
        let is_new = !self.waiting.contains_key(&id);
        if self.waiting.values().map(|case| case.waiting.len() + 1).sum::<usize>() >= self.room {
            self.report.let_by += 1;
            return;
        }
        let until = now + self.wait;
        if is_new {
            let (descriptor, process) = (opening.file().as_raw_fd(), opening.pid().cast_unsigned());
            self.queue.put(Arrival { id, descriptor, version, process, until });
        } else {
            self.queue.joined(id, opening.pid().cast_unsigned());
        }
        let file = opening.file();
        let case = || Case { _open: Arc::clone(file), waiting: Vec::new() };
        let Case { waiting, .. } = self.waiting.entry(id).or_insert_with(case);
        // A file whose placing takes longer than one waits is not waited for a second time.
        let goes_on = !is_new && waiting.is_empty();
        if goes_on || self.wait.is_zero() || self.queue.is_stuck(now, STUCK_AFTER) {
            self.report.let_by += 1;
        } else {
            self.report.delayed += 1;
            waiting.push(Waiting { opening, since: now, until });
            // Who counts the time may sleep for longer than he is to wait.
            self.queue.ring();
        }
    }

    fn hear_news(&mut self, now: Instant) {
        for events in self.queue.events() {
            self.report.count(&events);
            if let Some((id, version)) = events.closes() {
                // What was left is to be placed when it is opened again.
                if !matches!(events, GateEvent::Left(..)) {
                    self.judged.settle(id, version, now);
                }
                self.close_case(id, now);
            }
        }
    }

    /// Nothing more is done for a file: whoever waits for it is let.
    fn close_case(&mut self, id: FileId, now: Instant) {
        for waiting in self.waiting.remove(&id).into_iter().flat_map(|case| case.waiting) {
            self.waits.add(now.saturating_duration_since(waiting.since));
        }
    }

    /// Lets those who have waited as long as is allowed; all if the placer is stuck.
    fn release_late(&mut self, now: Instant) {
        let stuck = self.queue.is_stuck(now, STUCK_AFTER);
        for case in self.waiting.values_mut() {
            let late = case.waiting.extract_if(.., |one| one.until <= now || stuck);
            for one in late {
                self.report.timeouts += 1;
                self.waits.add(now.saturating_duration_since(one.since));
                drop(one.opening);
            }
        }
    }
}

/// How many processes and files may keep descriptors open: without any left, the kernel would refuse
/// others to open files.
fn room() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    QUEUE_LENGTH.min(most.saturating_sub(OTHER_DESCRIPTORS))
}
