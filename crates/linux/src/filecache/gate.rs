//! The doorman of the files that a group of processes opens: each waits in the kernel until its
//! file is placed, though never for longer than allowed, and is let in any case. Opens of other
//! processes, of files that are not wanted and of those that were placed a moment ago are let at
//! once.
//!
//! All processes of the machine that open files pass here, so the doorman has a thread of its own
//! that opens no file but of `/proc`, and waits for nobody who might: placing happens on another
//! thread (`worker`), and what does not answer in time is no longer waited for. Colours are not
//! known here.

mod desk;
mod judge;
mod report;
mod worker;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use desk::{Desk, Task};
pub use judge::Wanted;
pub use report::GateReport;
pub use worker::{Slice, Work, serve};

use judge::{Judged, Version};
use report::Waits;

use super::FileId;
use super::kin::Kin;
use super::notify::{Notifier, NotifyError, Opening};

/// Processes that wait and files that are to be placed, at most: each may keep a descriptor open.
const QUEUE: usize = 1024;
/// Descriptors that are not for these: those of events just read, of files looked at again, and
/// whatever else is open.
const OTHERS: usize = 256;
/// Nobody waits while the placer has not got on for longer than this: a disk that hangs, no memory.
const STUCK: Duration = Duration::from_secs(1);
/// How often there is a pulse when nothing happens.
const PULSE: Duration = Duration::from_millis(100);
/// Opens that the kernel could not show, and refused, before the gate opens for good.
const UNREADABLE: u64 = 3;

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
    opening: Opening,
    since: Instant,
    until: Instant,
}

/// See the module's head.
#[derive(Debug)]
pub struct Gate {
    notifier: Notifier,
    kin: Kin,
    wanted: Wanted,
    wait: Duration,
    desk: Arc<Desk>,
    judged: Judged,
    /// Those who wait, by the file; an entry for each file that is to be placed.
    waiting: HashMap<FileId, Vec<Waiting>>,
    /// How many may.
    room: usize,
    waits: Waits,
    report: GateReport,
}

impl Gate {
    /// A gate for the filesystems that `notifier` has marked, at which nobody waits longer than
    /// `wait`. It must be run at once: until then nobody is let.
    pub fn new(
        notifier: Notifier,
        kin: Kin,
        wanted: Wanted,
        wait: Duration,
        desk: Arc<Desk>,
    ) -> Gate {
        Gate {
            notifier,
            kin,
            wanted,
            wait,
            desk,
            judged: Judged::default(),
            waiting: HashMap::new(),
            room: room(),
            waits: Waits::default(),
            report: GateReport::default(),
        }
    }

    /// Lets processes in until `pulse` says so; it is called ten times a second, and when `control`
    /// is readable. It must not open files. All who wait then are let.
    ///
    /// # Errors
    /// When events cannot be read; the gate is open for good then.
    pub fn run(
        &mut self,
        control: BorrowedFd<'_>,
        pulse: &mut dyn FnMut(&mut Gate) -> Flow,
    ) -> Result<(), NotifyError> {
        let mut last = Instant::now();
        loop {
            let heard = self.sleep(control, last);
            self.admit()?;
            let now = Instant::now();
            self.hear_news(now);
            self.release_late(now);
            if heard || now.saturating_duration_since(last) >= PULSE {
                last = now;
                self.desk.ended(self.kin.ended());
                if pulse(self) == Flow::End {
                    return Ok(());
                }
            }
        }
    }

    /// The files that a process opens, and what descends from it, are placed from now on.
    pub fn join(&mut self, pid: i32) {
        self.kin.admit(pid);
    }

    /// The files that a process opens are its own business from now on.
    pub fn release(&mut self, pid: i32) {
        self.kin.release(pid);
    }

    /// Opens the gate for good and closes the desk; `wait_for_worker` is to return when the last
    /// slice is over. What it has seen and done.
    pub fn finish(self, wait_for_worker: impl FnOnce()) -> GateReport {
        let Gate { notifier, mut waiting, desk, mut report, mut waits, .. } = self;
        waits.tell(&mut report);
        waiting.values_mut().for_each(Vec::clear);
        drop(notifier);
        desk.close();
        wait_for_worker();
        for news in desk.news() {
            report.hear(&news);
            news.closes().map(|(id, _)| waiting.remove(&id));
        }
        GateReport { unfinished: waiting.len() as u64, ..report }
    }

    /// What it has seen and done so far.
    pub fn report(&mut self) -> GateReport {
        self.waits.tell(&mut self.report);
        GateReport { unfinished: self.waiting.len() as u64, ..self.report.clone() }
    }

    /// Waits for events, news, `control`, the next who has waited long enough, or the next pulse;
    /// whether it is `control`.
    fn sleep(&self, control: BorrowedFd<'_>, last: Instant) -> bool {
        let late = self.waiting.values().flatten().map(|waiting| waiting.until).min();
        let until = late.map_or(last + PULSE, |late| late.min(last + PULSE));
        let left = until.saturating_duration_since(Instant::now());
        let descriptors = [self.notifier.as_fd(), self.desk.as_fd(), control];
        let left = left + Duration::from_micros(if left.is_zero() { 0 } else { 999 });
        crate::wait::ready(&descriptors.map(|fd| (fd.as_raw_fd(), libc::POLLIN)), left)[2]
    }

    fn admit(&mut self) -> Result<(), NotifyError> {
        match self.notifier.read() {
            Ok(openings) => openings.into_iter().for_each(|opening| self.judge(opening)),
            Err(NotifyError::Unreadable(source)) => {
                self.report.unreadable += 1;
                if self.report.unreadable >= UNREADABLE {
                    return Err(NotifyError::Unreadable(source));
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Has a process wait, or lets it by dropping `opening`.
    fn judge(&mut self, opening: Opening) {
        let now = Instant::now();
        if !self.kin.belongs(opening.pid(), now) {
            self.report.foreign += 1;
            return;
        }
        let Ok(found) = opening.file().metadata() else { return };
        if !found.is_file() || found.len() == 0 {
            return;
        }
        self.report.opens += 1;
        let version = Version::of(&found);
        let Ok(id) = FileId::of(opening.file()) else { return };
        if !self.wanted.size(version.size()) {
            self.report.unwanted += 1;
        } else if self.judged.is_settled(id, version, now) {
            self.report.known += 1;
            self.desk.opened(id);
        } else if !self.is_wanted_there(&opening) {
            self.report.unwanted += 1;
        } else {
            self.hold(opening, id, version, now);
        }
    }

    fn is_wanted_there(&self, opening: &Opening) -> bool {
        let link = || PathBuf::from(format!("/proc/self/fd/{}", opening.file().as_raw_fd()));
        !self.wanted.asks_where()
            || std::fs::read_link(link()).is_ok_and(|path| self.wanted.place(&path))
    }

    fn hold(&mut self, opening: Opening, id: FileId, version: Version, now: Instant) {
        let is_new = !self.waiting.contains_key(&id);
        if self.waiting.values().map(|waiting| waiting.len() + 1).sum::<usize>() >= self.room {
            self.report.let_by += 1;
            return;
        }
        let until = now + self.wait;
        if is_new {
            let (file, process) = (opening.file().clone(), opening.pid().cast_unsigned());
            self.desk.put(Task { id, file, version, process, next: 0, until });
        }
        let waiting = self.waiting.entry(id).or_default();
        // A file whose placing takes longer than one waits is not waited for a second time.
        let goes_on = !is_new && waiting.is_empty();
        if goes_on || self.wait.is_zero() || self.desk.is_stuck(now, STUCK) {
            self.report.let_by += 1;
        } else {
            self.report.delayed += 1;
            waiting.push(Waiting { opening, since: now, until });
        }
    }

    fn hear_news(&mut self, now: Instant) {
        for news in self.desk.news() {
            self.report.hear(&news);
            if let Some((id, version)) = news.closes() {
                self.close_case(id, version, now);
            }
        }
    }

    /// Nothing more is done for a file: whoever waits for it is let.
    fn close_case(&mut self, id: FileId, version: Version, now: Instant) {
        self.judged.settle(id, version, now);
        for waiting in self.waiting.remove(&id).unwrap_or_default() {
            self.waits.add(now.saturating_duration_since(waiting.since));
        }
    }

    /// Lets those who have waited as long as is allowed; all if the placer is stuck.
    fn release_late(&mut self, now: Instant) {
        let stuck = self.desk.is_stuck(now, STUCK);
        for waiting in self.waiting.values_mut() {
            let late = waiting.extract_if(.., |one| one.until <= now || stuck);
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
    QUEUE.min(most.saturating_sub(OTHERS))
}
