//! The supervisor's handle on an agent: starting it in a target, giving it commands, ending it.
//!
//! Commands are synchronous: each call returns when the agent has carried it out, or fails with `Gone`
//! when the target is gone. What to command is decided by the engine, not here.

#[path = "../../../agent/protocol.rs"]
pub mod protocol;
mod shared;
#[cfg(test)]
#[path = "../../../agent/smaps.rs"]
mod smaps;
mod start;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use rustix::thread::futex;

use crate::color::probe::{ProbeError, TimingBench, TimingJob, TimingResult};
use crate::inject::calls::LOCKS;
use crate::inject::filters::Filters;
use crate::inject::stub::Call;
use crate::inject::{InjectError, Session};
use crate::kernel::procfs::ProcRoot;
use crate::kernel::trace_points;
use protocol::{AreaEntry, BATCH_PAGES, MAX_AREAS, MAX_PAGES, Slot, op};
#[doc(hidden)]
pub use shared::check_image;
pub use shared::{AgentCounts, UnexpectedErrors};
use shared::{AgentPlaces, SHARED_BYTES, SharedMemory, read_words, write_words};

/// Why an agent could not be started or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The target could not be made to start it.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// The agent could not set itself up.
    #[error(
        "the agent in process {pid} could not {what}: {source}; it has left again, {}",
        start_hint(*pid, source)
    )]
    Start {
        /// The target.
        pid: i32,
        /// What failed.
        what: &'static str,
        /// Its errno.
        source: io::Error,
    },
    /// The target ended, or executed another program.
    #[error("process {0} ended or started another program; nothing is left to do for it")]
    Gone(i32),
    /// The agent takes far too long.
    #[error(
        "the agent in process {0} does not answer; is the process stopped? continue it and try again"
    )]
    Silent(i32),
    /// A system call of our own failed.
    #[error("cannot {what}: {source}; check memory and limits of huepage itself")]
    Own {
        /// What failed.
        what: &'static str,
        /// Its errno.
        source: io::Error,
    },
}

/// Where to look for what stood in the way of a start.
fn start_hint(pid: i32, source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::ENOMEM | libc::EMFILE | libc::EAGAIN) => {
            format!("see `prlimit --pid {pid}` for the limits of that process")
        }
        _ => "see `huepage info` for what this kernel lacks".to_owned(),
    }
}

/// Threads of all agents that this process has started and that are not known to have ended.
static THREADS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Whether a thread is one of an agent of this process.
pub fn is_ours(tid: i32) -> bool {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).contains(&tid)
}

fn own<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> AgentError {
    move |error| AgentError::Own { what, source: error.into() }
}

/// What an agent is started with.
#[derive(Clone, Copy, Debug)]
pub struct AgentOptions {
    /// Pages of stock at most; a power of two.
    pub ring_pages: u64,
    /// Candidate pages examined at once.
    pub candidate_pages: u64,
    /// Most pages placed around a fault.
    pub fault_around: u64,
    /// A fault waits when the stock is empty.
    pub strict: bool,
    /// The target may go on getting huge pages.
    pub keep_huge: bool,
    /// What the process has inherited of the "no huge pages" flag comes from an agent of ours.
    pub heir: bool,
    /// What is to go wrong, for tests.
    pub faults: StartFaults,
}

/// Failures of a start that are asked for, so that tests reach every way out of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartFaults {
    /// Called with the pid before each step of [`start_step`], which fails if it says so.
    pub supervisor: Option<fn(i32, u64) -> bool>,
    /// The step of the agent's own start that fails: one of [`agent_step`]; 0: none.
    pub agent: u64,
}

pub use protocol::step as agent_step;

pub use start::step as start_step;

/// How long a start may take after the agent's thread runs, and an answer of the agent while its
/// process is not stopped.
const START_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Nanoseconds until it is looked again whether the agent is there.
const ANSWER_STEP_NS: i64 = 20_000_000;
/// The same while it is stopped: nothing is wrong with it then.
const STOPPED_LIMIT: Duration = Duration::from_secs(3600);
/// How long the agent's threads may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// With fewer contexts for recolouring than this an agent is worn out.
const FEW_SPARES: usize = 2;

/// A running agent. Dropping it ends the agent (its socket closes and it leaves by itself).
pub struct Agent {
    pid: i32,
    socket: OwnedFd,
    shared: SharedMemory,
    /// Start and bytes of the agent's code and of its stacks.
    code_and_stacks: [(u64, u64); 2],
    places: AgentPlaces,
    /// Bytes of stock, candidates and reference pages.
    sizes: [u64; 3],
    /// Its threads as we know them, whatever the target's pid namespace calls them.
    threads: Vec<i32>,
    /// The areas in use, and which of the two tables holds them.
    areas: Vec<AreaEntry>,
    table: usize,
    /// Whether pages of locked memory can be moved, as far as is known.
    moves_locked: bool,
}

impl Agent {
    /// The agent's counts, each clamped.
    pub fn counts(&self) -> AgentCounts {
        self.shared.counts()
    }

    /// The target's thread group.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the agent is still there; false once the target ended or executed something.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&Timespec::default()));
        let found = fds[0].revents();
        if found.contains(PollFlags::IN) {
            // What comes unasked is thrown away, with its descriptors.
            let _ = recv(&self.socket, &mut [0u8; 16], RecvFlags::DONTWAIT);
        }
        !found.intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn check_alive(&self) -> Result<(), AgentError> {
        if self.is_alive() { Ok(()) } else { Err(AgentError::Gone(self.pid)) }
    }

    /// Ranges of the target that are ours: never to be recoloured or counted.
    pub fn own_ranges(&self) -> Vec<(u64, u64)> {
        let p = &self.places;
        let mut all = vec![
            (p.ring, self.sizes[0]),
            (p.candidates, self.sizes[1]),
            (p.reference, self.sizes[2]),
            (p.recycle, protocol::RECYCLE_PAGES * 4096),
            (p.shared, SHARED_BYTES as u64),
            (p.zero, protocol::ZERO_PAGES * 4096),
        ];
        all.extend(self.code_and_stacks);
        all.retain(|&(start, bytes)| start != 0 && bytes != 0);
        all.into_iter().map(|(start, bytes)| (start, start + bytes)).collect()
    }

    /// Whether the process itself had forbidden huge pages before us.
    pub fn forbids_huge_pages(&self) -> bool {
        self.shared.forbade_huge_pages()
    }

    /// Thread ids of the agent, as they are outside the target.
    pub fn threads(&self) -> &[i32] {
        &self.threads
    }

    /// Hands over the areas to serve, sorted by address, and the ranges to watch. Returns how
    /// many ranges the kernel refused.
    pub fn set_areas(
        &mut self,
        areas: &[AreaEntry],
        ranges: &[(u64, u64)],
    ) -> Result<i64, AgentError> {
        let n = areas.len().min(MAX_AREAS);
        self.table ^= 1;
        self.shared.write_areas(self.table, areas);
        self.areas = areas[..n].to_vec();
        let table = [self.table as u64, n as u64];
        if ranges.is_empty() {
            // The table is still to be taken over.
            return Ok(self.main(op::AREAS, &[table[0], table[1], 0])?.clamp(0, MAX_PAGES as i64));
        }
        self.with_ranges(op::AREAS, &table, ranges)
    }

    /// Watches ranges, beside those that are watched. Returns how many another userfaultfd has registered
    /// a part of.
    pub fn watch(&mut self, ranges: &[(u64, u64)]) -> Result<i64, AgentError> {
        self.with_ranges(op::WATCH, &[], ranges)
    }

    /// From now on a fault is answered with the page that is missing and no other.
    pub fn place_singly(&self) {
        self.shared.place_singly();
    }

    /// Watches ranges no longer, so that another userfaultfd can. Returns how many were refused.
    pub fn unwatch(&mut self, ranges: &[(u64, u64)]) -> Result<i64, AgentError> {
        self.with_ranges(op::UNWATCH, &[], ranges)
    }

    /// Has something done to ranges, whose count is the last argument; how many were refused.
    fn with_ranges(
        &mut self,
        op: u32,
        first: &[u64],
        ranges: &[(u64, u64)],
    ) -> Result<i64, AgentError> {
        let mut refused = 0;
        for chunk in ranges.chunks(MAX_PAGES / 2) {
            let words = chunk.iter().flat_map(|&(start, end)| [start, end]);
            store(self.shared.main_pages(), words);
            let done = self.main(op, &[first, &[chunk.len() as u64]].concat())?;
            refused += done.clamp(0, MAX_PAGES as i64);
        }
        Ok(refused)
    }

    /// The areas in use, with the agent's read-ahead hints as they are now.
    pub fn areas(&self) -> Vec<AreaEntry> {
        let hinted = |(i, area): (usize, &AreaEntry)| {
            let (next, window) = self.shared.area_hints(self.table, i);
            AreaEntry { next, window, ..*area }
        };
        self.areas.iter().enumerate().map(hinted).collect()
    }

    /// Recolours `pages` (sorted addresses, at most [`MAX_PAGES`]) of the range `[start, end)`,
    /// whose faults are served afterwards if `serve`; returns one errno per page, 0 for done,
    /// ENOBUFS when stock ran out.
    ///
    /// # Errors
    /// When the target is gone, or the kernel refuses to watch the area.
    pub fn recolor(
        &mut self,
        pages: &[u64],
        (start, end): (u64, u64),
        serve: bool,
    ) -> Result<Vec<u32>, AgentError> {
        let (pages, began) = (&pages[..pages.len().min(MAX_PAGES)], Instant::now());
        let results = self.with_pages(op::RECOLOR, pages, (start, end), serve)?;
        let moved = results.iter().filter(|&&errno| errno == 0).count();
        trace_points::recolored(self.pid, pages.len(), moved, began.elapsed());
        Ok(results)
    }

    /// Whether pages of locked memory can be moved, as far as is known.
    pub fn moves_locked(&self) -> bool {
        self.moves_locked
    }

    /// Has the program lock as much of stock and recycling area as so many pages of locked memory need to move:
    /// it takes a right that the agent has not. One thread of the program stops for it.
    /// False where the program may not either; it is not asked again then.
    ///
    /// # Errors
    /// When it cannot be stopped.
    pub fn lock(&mut self, pages: u64) -> Result<bool, AgentError> {
        const ON_FAULT: u64 = 1;
        let mut session = Session::stop(self.pid)?;
        let filters = Filters::read(&ProcRoot::default(), session.tid());
        let permitted = filters.is_ok_and(|filters| filters.refusal(LOCKS).is_none());
        let mut locks = |(start, bytes): (u64, u64)| {
            let lock = Call::new(libc::SYS_mlock2, &[start, bytes, ON_FAULT]);
            session.call("lock the stock", lock).is_ok()
        };
        self.moves_locked = permitted && self.to_lock(pages).into_iter().all(&mut locks);
        session.finish();
        if !self.moves_locked && permitted {
            self.unlock()?;
        }
        Ok(self.moves_locked)
    }

    /// Places in the recycling area and in the stock for so many pages; the ring may end among them.
    fn to_lock(&self, pages: u64) -> impl IntoIterator<Item = (u64, u64)> + use<> {
        let (ring, slots) = (self.places.ring, self.sizes[0] / 4096);
        let first = self.shared.next_slot(slots);
        let at_end = pages.min(slots - first);
        let all = [
            (self.places.recycle, pages.min(protocol::RECYCLE_PAGES)),
            (ring + first * 4096, at_end),
            (ring, pages - at_end),
        ];
        all.map(|(start, pages)| (start, pages * 4096)).into_iter().filter(|part| part.1 > 0)
    }

    /// Ends that lock.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn unlock(&mut self) -> Result<(), AgentError> {
        self.main(op::UNLOCK, &[]).map(|_| ())
    }

    /// Runs a timing job with pages of the range `[start, end)`, at most [`BATCH_PAGES`], while they are out
    /// of the program: the first at [`Self::recycled_page`] 0, and so on. They come back as they were, and
    /// whoever touches one waits as long. One errno per page, 0 for those that were timed; for others
    /// the job has timed zeroes. Nothing may wait in the recycling area.
    pub fn look(
        &mut self,
        pages: &[u64],
        range: (u64, u64),
        serve: bool,
        job: &TimingJob,
    ) -> Result<(Vec<u32>, TimingResult), AgentError> {
        self.write_job(job);
        let pages = &pages[..pages.len().min(BATCH_PAGES as usize)];
        let errors = self.with_pages(op::LOOK, pages, range, serve)?;
        Ok((errors, self.read_job(job)))
    }

    /// Has something done to listed pages of a range; one errno per page.
    fn with_pages(
        &mut self,
        op: u32,
        pages: &[u64],
        (start, end): (u64, u64),
        serve: bool,
    ) -> Result<Vec<u32>, AgentError> {
        let n = pages.len();
        store(self.shared.main_pages(), pages.iter().copied());
        for slot in &self.shared.main_results()[..n] {
            slot.store(libc::EAGAIN.cast_unsigned(), Relaxed);
        }
        let r = self.main(op, &[n as u64, start, end, u64::from(serve)])?;
        if r < 0 {
            return Ok(vec![u32::try_from(r.saturating_neg()).unwrap_or(22); n]);
        }
        Ok(self.shared.main_results()[..n].iter().map(|e| e.load(Relaxed)).collect())
    }

    /// Writes a job, which must have been checked, to where the agent finds it.
    fn write_job(&self, job: &TimingJob) {
        let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let counts = [
            size(job.stream.len()),
            size(job.rounds.len()),
            size(job.offsets.len()),
            job.passes,
            size(job.reload.len()),
            u32::from(job.prime),
            job.depth,
        ];
        let rounds: Vec<[u32; 2]> = job.rounds.iter().map(|r| [r.first, r.len]).collect();
        let area = self.shared.timing();
        // SAFETY: `check` holds each list to the length of its field in the job, which lies in the
        // mapping; the agent reads them only while it carries out a command.
        unsafe {
            write_words((&raw mut (*area).counts).cast(), &counts);
            write_words((&raw mut (*area).stream).cast(), &job.stream);
            write_words((&raw mut (*area).rounds).cast(), &rounds);
            write_words((&raw mut (*area).offsets).cast(), &job.offsets);
            write_words((&raw mut (*area).reload).cast(), &job.lines());
        }
    }

    /// What a job has measured.
    fn read_job(&self, job: &TimingJob) -> TimingResult {
        let area = self.shared.timing();
        let n = job.rounds.len() * job.reload.len();
        // SAFETY: as in `write_job`; all bit patterns are numbers.
        let latencies = unsafe { read_words((&raw const (*area).latencies).cast(), n) };
        TimingResult { latencies }
    }

    /// Whether few contexts for recolouring are left. Others are made where an agent is started and nowhere else:
    /// the program can have copied the socket of one that runs, and would get the device that they are made from.
    pub fn is_worn_out(&self) -> bool {
        self.shared.spares() < FEW_SPARES
    }

    /// Backs `pages` pages of the candidate area from page `first` on with fresh frames. Those of [`Self::back_ahead`]
    /// are accessible: to make them so again would hold up whoever backs them.
    pub fn populate(
        &mut self,
        first: u64,
        pages: u64,
        accessible: bool,
    ) -> Result<i64, AgentError> {
        let at = self.candidate(first);
        self.worker(op::POPULATE, &[at, pages * 4096, u64::from(accessible)])
    }

    /// Has the agent's first thread back these candidates as well, the last ones first, while there are no faults and
    /// until [`Self::populate`] has come there. It does nothing of the kind any more when they are none.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn back_ahead(&mut self, pages: Range<u64>) -> Result<(), AgentError> {
        let (start, end) = (self.candidate(pages.start), self.candidate(pages.end));
        self.main(op::BACK_AHEAD, &[start, end]).map(|_| ())
    }

    /// Gives candidate pages back to the system.
    pub fn discard(&mut self, first: u64, pages: u64) -> Result<i64, AgentError> {
        let at = self.candidate(first);
        self.worker(op::DISCARD, &[at, pages * 4096])
    }

    /// The same, but for the pages at `kept`, ascending addresses among them, which stay as they are.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn discard_but(&mut self, first: u64, pages: u64, kept: &[u64]) -> Result<(), AgentError> {
        let (mut from, end) = (self.candidate(first), self.candidate(first + pages));
        for some in kept.chunks(MAX_PAGES) {
            let to = some.last().map_or(end, |&last| last + 4096);
            store(self.shared.worker_pages(), some.iter().copied());
            self.worker(op::SIFT, &[from, to - from, some.len() as u64])?;
            from = to;
        }
        if end > from {
            self.worker(op::SIFT, &[from, end - from, 0])?;
        }
        Ok(())
    }

    /// Breaks copy-on-write of a range without changing it.
    pub fn unshare(&mut self, start: u64, bytes: u64) -> Result<i64, AgentError> {
        self.worker(op::UNSHARE, &[start, bytes])
    }

    /// Makes the 2 MiB at `start` one page, its holes filled with zeroes first if `fill`; the CPU
    /// time that took, of which the program may have waited for the last third.
    ///
    /// # Errors
    /// When the target is gone; inside, why the kernel did not.
    pub fn collapse(&mut self, start: u64, fill: bool) -> Result<io::Result<Duration>, AgentError> {
        let ns = self.worker(op::COLLAPSE, &[start, u64::from(fill)])?;
        Ok(u64::try_from(ns).map(Duration::from_nanos).map_err(|_| {
            let errno = i32::try_from(ns.saturating_neg()).unwrap_or(libc::EINVAL);
            io::Error::from_raw_os_error(errno)
        }))
    }

    /// Address of candidate page `i`.
    pub fn candidate(&self, i: u64) -> u64 {
        self.places.candidates + i * 4096
    }

    /// Address of recycled page `i`.
    pub fn recycled_page(&self, i: u64) -> u64 {
        self.places.recycle + i * 4096
    }

    /// Moves candidate pages into the stock in this order. Returns how many were taken before the
    /// stock was full.
    pub fn fill(&mut self, pages: &[u64]) -> Result<usize, AgentError> {
        let mut total = 0;
        for chunk in pages.chunks(MAX_PAGES) {
            store(self.shared.worker_pages(), chunk.iter().copied());
            let n = self.worker(op::FILL, &[chunk.len() as u64])?;
            let n = usize::try_from(n).unwrap_or(0).min(chunk.len());
            total += n;
            if n < chunk.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Gives all stock back to the system.
    pub fn empty_stock(&mut self) -> Result<(), AgentError> {
        self.trim_stock(0)
    }

    /// Gives stock back to the system but for so many pages.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn trim_stock(&mut self, pages: u64) -> Result<(), AgentError> {
        self.main(op::EMPTY, &[pages]).map(|_| ())
    }

    /// Whether the agent says when it has served a fault: once, as what [`Self::descriptor`] has to be read.
    pub fn ring_at_faults(&self, ring: bool) {
        self.shared.ring_at_faults(ring);
    }

    /// What becomes readable when the agent says something, and closed when it has ended.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Gives the old frames of recoloured pages back to the system. They are never used again: somebody
    /// may hold one for what the page was when it was lent (a pipe by vmsplice, a socket that sends
    /// without copying), which the kernel does not tell. What it holds stays as it is.
    pub fn drop_recycled(&mut self) -> Result<(), AgentError> {
        self.worker(op::RECYCLED, &[]).map(|_| ())
    }

    /// Gives back what came out for [`Self::look`] and was not wanted any more.
    pub fn drop_lost(&mut self) -> Result<(), AgentError> {
        if self.recycled() == 0 { Ok(()) } else { self.drop_recycled() }
    }

    /// Pages in stock now.
    pub fn stock(&self) -> u64 {
        self.shared.stock(self.sizes[0] / 4096)
    }

    /// Frames that wait in the recycling area.
    pub fn recycled(&self) -> u64 {
        self.shared.recycled()
    }

    fn main(&mut self, op: u32, args: &[u64]) -> Result<i64, AgentError> {
        let slot = self.shared.main();
        let number = post(slot, op, args);
        // A closed socket is noticed while waiting; a full one means that it has enough to read.
        let _ = start::send_command(&self.socket);
        self.wait(slot, number)
    }

    fn worker(&mut self, op: u32, args: &[u64]) -> Result<i64, AgentError> {
        let slot = self.shared.worker();
        let number = post(slot, op, args);
        let _ = futex::wake(&slot.posted, futex::Flags::empty(), i32::MAX.cast_unsigned());
        self.wait(slot, number)
    }

    fn wait(&self, slot: &Slot, number: u32) -> Result<i64, AgentError> {
        let start = Instant::now();
        loop {
            let done = slot.done.load(Acquire);
            if done == number {
                return Ok(slot.result.load(Relaxed));
            }
            let limit = Timespec { tv_sec: 0, tv_nsec: ANSWER_STEP_NS };
            let _ = futex::wait(&slot.done, futex::Flags::empty(), done, Some(&limit));
            if slot.done.load(Acquire) != number {
                self.check_alive()?;
                let limit = if self.is_stopped() { STOPPED_LIMIT } else { ANSWER_LIMIT };
                if start.elapsed() > limit {
                    return Err(AgentError::Silent(self.pid));
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        ProcRoot::default().stat(self.pid).is_ok_and(|s| s.state == 'T' || s.state == 't')
    }

    /// Ends the agent and takes everything of it out of the target.
    ///
    /// # Errors
    /// When the target cannot be stopped to remove the last mapping; the agent is gone then
    /// all the same.
    pub fn detach(mut self) -> Result<(), AgentError> {
        self.main(op::QUIT, &[])?;
        if !start::await_end(self.pid, &self.threads, END_LIMIT)? {
            // It still runs in its code, which stays.
            return Err(AgentError::Silent(self.pid));
        }
        let mut session = Session::stop(self.pid)?;
        for (start, bytes) in self.code_and_stacks {
            session.call("unmap the agent", Call::unmap(start, bytes))?;
        }
        session.finish();
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let mut all = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        self.threads.iter().for_each(|tid| _ = all.remove(tid));
    }
}

impl TimingBench for Agent {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        self.write_job(job);
        let pid = self.pid;
        let gone = |_| ProbeError::Remote(format!("process {pid} ended"));
        self.worker(op::TIMING, &[]).map_err(gone)?;
        Ok(self.read_job(job))
    }

    fn reference_base(&self) -> u64 {
        self.places.reference
    }
}

/// Writes words that others may read at any moment.
fn store(to: &[AtomicU64], words: impl Iterator<Item = u64>) {
    to.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
}

fn post(slot: &Slot, op: u32, args: &[u64]) -> u32 {
    store(&slot.args, args.iter().copied());
    slot.op.store(op, Relaxed);
    let number = slot.posted.load(Relaxed).wrapping_add(1);
    slot.posted.store(number, Release);
    number
}
