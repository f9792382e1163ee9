//! The supervisor's handle on an agent: starting it in a target, giving it commands, ending it.
//!
//! Commands are synchronous: each call returns when the agent has carried it out, or fails
//! when the target is gone. What to command is decided by the engine, not here.

#[path = "../../agent/protocol.rs"]
pub mod protocol;
#[cfg(test)]
#[path = "../../agent/smaps.rs"]
mod smaps;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::inject::stub::Call;
use crate::inject::{self, InjectError, Session};
use crate::probe::{ProbeError, TimingBench, TimingJob, TimingResult};
use crate::procfs::ProcRoot;
use protocol::{
    AreaEntry, BOOT_MAGIC, ENTRY_OFFSET, MAX_AREAS, MAX_PAGES, STACK_BYTES, Shared, op,
};

/// The agent's code, built by the build script.
static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.bin"));

/// Why an agent could not be started or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The target could not be made to start it.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// The agent could not set itself up.
    #[error(
        "the agent in process {pid} failed at step {step}: {source}; see `huepage info` for what this kernel lacks"
    )]
    Start {
        /// The target.
        pid: i32,
        /// Which step.
        step: u64,
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

fn own(what: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::Own { what, source }
}

/// What an agent is started with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
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
}

impl Options {
    fn fill_in(&self, setup: &mut protocol::Setup) {
        setup.ring_pages = self.ring_pages;
        setup.candidate_bytes = self.candidate_pages * 4096;
        setup.keep_huge = u64::from(self.keep_huge);
        setup.heir = u64::from(self.heir);
    }
}

/// A running agent. Dropping it ends the agent (its socket closes and it leaves by itself).
pub struct Agent {
    pid: i32,
    socket: OwnedFd,
    shared: NonNull<Shared>,
    code: (u64, u64),
    stacks: (u64, u64),
    table: u64,
    /// Bytes of the reference object as mapped in the target.
    reference_bytes: u64,
}

// SAFETY: the pointer refers to shared memory that lives as long as the value; all access to
// it goes through `&self` methods that use atomics, or `&mut self`.
unsafe impl Send for Agent {}

impl Agent {
    /// Starts an agent in the target of `session`, whose thread group is `pid`. `reference`
    /// is the object with the pages that colours are measured against, and its size. The
    /// stopped thread stays stopped until the caller finishes the session; the agent runs.
    ///
    /// # Errors
    /// When the target cannot start it, or it cannot set itself up; the target goes on
    /// unharmed either way.
    pub fn start(
        pid: i32,
        session: &mut Session,
        reference: Option<(BorrowedFd<'_>, u64)>,
        options: &Options,
    ) -> Result<Agent, AgentError> {
        let parts = inject_agent(pid, session)?;
        let reference_bytes = reference.map_or(0, |r| r.1);
        let device = open_device();
        let (memory, shared) = shared_memory()?;
        let agent = Agent {
            pid,
            socket: parts.socket,
            shared,
            code: parts.code,
            stacks: parts.stacks,
            table: 0,
            reference_bytes,
        };
        // SAFETY: the agent reads it only after the message below.
        let setup = unsafe { &mut (*agent.shared.as_ptr()).setup };
        options.fill_in(setup);
        setup.reference_bytes = reference_bytes;
        setup.shared_bytes = size_of::<Shared>().next_multiple_of(4096) as u64;
        (setup.code_base, setup.code_bytes) = agent.code;
        setup.stack_base = agent.stacks.0;
        agent.shared().fault_around.store(options.fault_around, Relaxed);
        agent.shared().strict.store(u64::from(options.strict), Relaxed);
        let areas = std::fs::File::open(format!("/proc/{pid}/smaps")).ok();
        let optional = [
            (protocol::SENT_AREAS, areas.as_ref().map(AsFd::as_fd)),
            (protocol::SENT_DEVICE, device.as_ref().map(AsFd::as_fd)),
            (protocol::SENT_REFERENCE, reference.map(|r| r.0)),
        ];
        let sent = optional.iter().filter_map(|&(which, fd)| Some((which, fd?)));
        setup.sent = sent.clone().map(|(which, _)| which).sum();
        let fds: Vec<_> = [memory.as_fd()].into_iter().chain(sent.map(|(_, fd)| fd)).collect();
        send_fds(&agent.socket, setup.shared_bytes, &fds).map_err(own("send to the agent"))?;
        agent.wait_ready()?;
        Ok(agent)
    }

    fn wait_ready(&self) -> Result<(), AgentError> {
        let start = Instant::now();
        loop {
            match self.shared().report.state.load(Acquire) {
                1 => return Ok(()),
                0 => {}
                e => {
                    return Err(AgentError::Start {
                        pid: self.pid,
                        step: self.shared().report.step.load(Relaxed),
                        source: io::Error::from_raw_os_error(-i32::try_from(e).unwrap_or(-5)),
                    });
                }
            }
            self.check_alive()?;
            if start.elapsed() > Duration::from_secs(10) {
                return Err(AgentError::Silent(self.pid));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The shared memory: counters, stock positions, addresses.
    pub fn shared(&self) -> &Shared {
        // SAFETY: mapped until drop; fields used through it are atomics.
        unsafe { self.shared.as_ref() }
    }

    /// The target's thread group.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the agent is still there; false once the target ended or executed something.
    pub fn is_alive(&self) -> bool {
        let mut fd = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&raw mut fd, 1, 0) };
        if fd.revents & libc::POLLIN != 0 {
            let mut byte = [0u8; 16];
            // SAFETY: a live buffer; what the agent says is only "look at the report".
            unsafe {
                libc::recv(fd.fd, byte.as_mut_ptr().cast(), byte.len(), libc::MSG_DONTWAIT);
            }
        }
        fd.revents & (libc::POLLHUP | libc::POLLERR) == 0
    }

    fn check_alive(&self) -> Result<(), AgentError> {
        if self.is_alive() { Ok(()) } else { Err(AgentError::Gone(self.pid)) }
    }

    /// Ranges of the target that are ours: never to be recoloured or counted.
    pub fn own_ranges(&self) -> Vec<(u64, u64)> {
        let s = self.shared();
        let r = &s.report;
        let mut all = vec![
            (r.ring.load(Relaxed), s.setup.ring_pages * 4096),
            (r.candidates.load(Relaxed), s.setup.candidate_bytes),
            (r.recycle.load(Relaxed), protocol::RECYCLE_PAGES * 4096),
            (r.reference.load(Relaxed), self.reference_bytes),
            (r.shared.load(Relaxed), s.setup.shared_bytes),
            (r.zero[0].load(Relaxed), r.zero[1].load(Relaxed)),
            self.code,
            self.stacks,
        ];
        all.retain(|&(start, bytes)| start != 0 && bytes != 0);
        all.into_iter().map(|(start, bytes)| (start, start + bytes)).collect()
    }

    /// Whether the process itself had forbidden huge pages before us.
    pub fn forbids_huge_pages(&self) -> bool {
        self.shared().report.thp_before.load(Relaxed) != 0
    }

    /// Thread ids of the agent in the target.
    pub fn threads(&self) -> [u32; 2] {
        let t = &self.shared().report.tids;
        [t[0].load(Relaxed), t[1].load(Relaxed)]
    }

    /// Hands over the areas to serve, sorted by address, and the ranges to watch. Returns how
    /// many ranges the kernel refused.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn set_areas(
        &mut self,
        areas: &[AreaEntry],
        ranges: &[(u64, u64)],
    ) -> Result<i64, AgentError> {
        let n = areas.len().min(MAX_AREAS);
        self.table ^= 1;
        let which = usize::try_from(self.table).unwrap_or(0);
        // SAFETY: the agent uses the other table until the command below.
        let table = unsafe { &mut (&mut (*self.shared.as_ptr()).areas)[which] };
        table[..n].copy_from_slice(&areas[..n]);
        let mut refused = 0;
        // Without ranges the table is still to be taken over.
        let none: &[(u64, u64)] = &[];
        for chunk in ranges.chunks(MAX_PAGES / 2).chain(ranges.is_empty().then_some(none)) {
            let words = chunk.iter().flat_map(|&(start, end)| [start, end]);
            for (slot, word) in self.shared().main_pages.iter().zip(words) {
                slot.store(word, Relaxed);
            }
            refused += self.main(op::AREAS, &[self.table, n as u64, chunk.len() as u64])?;
        }
        Ok(refused)
    }

    /// The areas in use, with the agent's read-ahead hints as they are now.
    pub fn areas(&self, count: usize) -> Vec<AreaEntry> {
        let which = usize::try_from(self.table).unwrap_or(0);
        // SAFETY: entries are plain words that the agent changes one at a time; a hint that
        // is read half-way only makes a run shorter.
        let table = unsafe { &raw const (*self.shared.as_ptr()).areas[which] }.cast::<AreaEntry>();
        // SAFETY: `count` is bounded by the table.
        (0..count.min(MAX_AREAS)).map(|i| unsafe { table.add(i).read_volatile() }).collect()
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
        let n = pages.len().min(MAX_PAGES);
        for (slot, &page) in self.shared().main_pages.iter().zip(pages) {
            slot.store(page, Relaxed);
        }
        for slot in &self.shared().main_results[..n] {
            slot.store(libc::EAGAIN.cast_unsigned(), Relaxed);
        }
        let r = self.main(op::RECOLOR, &[n as u64, start, end, u64::from(serve)])?;
        if r < 0 {
            return Ok(vec![u32::try_from(-r).unwrap_or(22); n]);
        }
        Ok(self.shared().main_results[..n].iter().map(|e| e.load(Relaxed)).collect())
    }

    /// Backs `pages` pages of the candidate area from page `first` on with fresh frames.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn populate(&mut self, first: u64, pages: u64) -> Result<i64, AgentError> {
        let at = self.candidate(first);
        self.worker(op::POPULATE, &[at, pages * 4096])
    }

    /// Gives candidate pages back to the system.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn discard(&mut self, first: u64, pages: u64) -> Result<i64, AgentError> {
        let at = self.candidate(first);
        self.worker(op::DISCARD, &[at, pages * 4096])
    }

    /// Breaks copy-on-write of a range without changing it.
    ///
    /// # Errors
    /// When the target is gone.
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
            let errno = i32::try_from(-ns).unwrap_or(libc::EINVAL);
            io::Error::from_raw_os_error(errno)
        }))
    }

    /// Address of candidate page `i`.
    pub fn candidate(&self, i: u64) -> u64 {
        self.shared().report.candidates.load(Relaxed) + i * 4096
    }

    /// Address of recycled page `i`.
    pub fn recycled_page(&self, i: u64) -> u64 {
        self.shared().report.recycle.load(Relaxed) + i * 4096
    }

    /// Moves pages (candidates or recycled) into the stock in this order; `clear` empties
    /// them first. Returns how many were taken before the stock was full.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn fill(&mut self, pages: &[u64], clear: bool) -> Result<usize, AgentError> {
        let mut total = 0;
        for chunk in pages.chunks(MAX_PAGES) {
            for (slot, &page) in self.shared().worker_pages.iter().zip(chunk) {
                slot.store(page, Relaxed);
            }
            let n = self.worker(op::FILL, &[chunk.len() as u64, u64::from(clear)])?;
            let n = usize::try_from(n).unwrap_or(0);
            total += n;
            if n < chunk.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Gives all stock back to the system.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn empty_stock(&mut self) -> Result<(), AgentError> {
        self.main(op::EMPTY, &[]).map(|_| ())
    }

    /// Gives back what is left in the recycling area.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn drop_recycled(&mut self) -> Result<(), AgentError> {
        self.worker(op::RECYCLED, &[]).map(|_| ())
    }

    /// Pages in stock now.
    pub fn stock(&self) -> u64 {
        let s = self.shared();
        let head = s.head.load(Acquire);
        s.tail.load(Acquire).saturating_sub(head)
    }

    fn main(&mut self, op: u32, args: &[u64]) -> Result<i64, AgentError> {
        let slot = &self.shared().main;
        let number = post(slot, op, args);
        // SAFETY: one byte of ours; a closed socket is noticed while waiting.
        unsafe {
            libc::send(self.socket.as_raw_fd(), [b'c'].as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
        }
        self.wait(slot, number)
    }

    fn worker(&mut self, op: u32, args: &[u64]) -> Result<i64, AgentError> {
        let slot = &self.shared().worker;
        let number = post(slot, op, args);
        futex(slot.posted.as_ptr(), libc::FUTEX_WAKE, i32::MAX.cast_unsigned(), None);
        self.wait(slot, number)
    }

    fn wait(&self, slot: &protocol::Slot, number: u32) -> Result<i64, AgentError> {
        let start = Instant::now();
        loop {
            let done = slot.done.load(Acquire);
            if done == number {
                return Ok(slot.result.load(Relaxed));
            }
            futex(slot.done.as_ptr(), libc::FUTEX_WAIT, done, Some(Duration::from_millis(20)));
            if slot.done.load(Acquire) != number {
                self.check_alive()?;
                let patience = if self.is_stopped() { 3600 } else { 60 };
                if start.elapsed() > Duration::from_secs(patience) {
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
        let start = Instant::now();
        let root = ProcRoot::default();
        while start.elapsed() < Duration::from_secs(5) {
            let tasks = root.tasks(self.pid).map_err(InjectError::from)?;
            let ours = self.threads().map(|t| i32::try_from(t).unwrap_or(-1));
            if !tasks.iter().any(|t| ours.contains(t)) {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut session = Session::stop(self.pid)?;
        for (start, bytes) in [self.code, self.stacks] {
            session.call("unmap the agent", Call::new(libc::SYS_munmap, &[start, bytes]))?;
        }
        session.finish();
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let bytes = size_of::<Shared>().next_multiple_of(4096);
        // SAFETY: mapped with this size by `shared_memory`, and not used after this.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), bytes) };
    }
}

impl TimingBench for Agent {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        // SAFETY: the worker touches the job only while it carries out the command below.
        let area = unsafe { &mut (*self.shared.as_ptr()).timing };
        let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        area.counts = [
            size(job.stream.len()),
            size(job.rounds.len()),
            size(job.offsets.len()),
            job.passes,
            size(job.reload.len()),
            u32::from(job.prime),
            job.depth,
        ];
        area.stream[..job.stream.len()].copy_from_slice(&job.stream);
        for (to, round) in area.rounds.iter_mut().zip(&job.rounds) {
            *to = [round.first, round.len];
        }
        area.offsets[..job.offsets.len()].copy_from_slice(&job.offsets);
        area.reload[..job.reload.len()].copy_from_slice(&job.lines());
        let pid = self.pid;
        let gone = |_| ProbeError::Remote(format!("process {pid} ended"));
        self.worker(op::TIMING, &[]).map_err(gone)?;
        // SAFETY: as above; the worker is done with it.
        let area = unsafe { &(*self.shared.as_ptr()).timing };
        let n = job.rounds.len() * job.reload.len();
        Ok(TimingResult {
            latencies: area.latencies[..n].to_vec(),
            elapsed: area.elapsed[..job.rounds.len()].to_vec(),
        })
    }

    fn reference_base(&self) -> u64 {
        self.shared().report.reference.load(Relaxed)
    }
}

fn post(slot: &protocol::Slot, op: u32, args: &[u64]) -> u32 {
    for (to, &value) in slot.args.iter().zip(args) {
        to.store(value, Relaxed);
    }
    slot.op.store(op, Relaxed);
    let number = slot.posted.load(Relaxed).wrapping_add(1);
    slot.posted.store(number, Release);
    number
}

fn futex(word: *const u32, op: i32, value: u32, limit: Option<Duration>) {
    let time = limit.map(|d| libc::timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(0),
        tv_nsec: i64::from(d.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word lies in live shared memory, the time on our stack.
    unsafe { libc::syscall(libc::SYS_futex, word, op, value, time) };
}

struct Parts {
    socket: OwnedFd,
    code: (u64, u64),
    stacks: (u64, u64),
}

/// Maps the agent into the target and starts its first thread.
fn inject_agent(pid: i32, session: &mut Session) -> Result<Parts, AgentError> {
    const READ: u64 = 1;
    const EXEC: u64 = 4;
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    let code_bytes = (IMAGE.len() as u64).next_multiple_of(4096);
    let stack_bytes = 2 * STACK_BYTES;
    let map = |bytes: u64, prot: u64| {
        Call::new(libc::SYS_mmap, &[0, bytes, prot, PRIVATE_ANONYMOUS, u64::MAX, 0])
    };
    let code = session.call("map the agent's code", map(code_bytes, READ | EXEC))?;
    let stacks = session.call("map the agent's stacks", map(stack_bytes, READ | 2))?;
    session.write(code + 8, &IMAGE[8..])?;
    session.write(code, &BOOT_MAGIC.to_ne_bytes())?;
    const UNIX: u64 = 1;
    const SEQPACKET_CLOEXEC: u64 = 5 | 0o2_000_000;
    let pair = Call::new(libc::SYS_socketpair, &[UNIX, SEQPACKET_CLOEXEC, 0, stacks]);
    session.call("make a socket pair", pair)?;
    let mut fds = [0u8; 8];
    session.read(stacks, &mut fds)?;
    let [ours, theirs] =
        [&fds[..4], &fds[4..]].map(|b| i32::from_ne_bytes(b.try_into().unwrap_or_default()));
    let socket = inject::fetch_fd(pid, ours)?;
    let close = |fd: i32| Call::new(libc::SYS_close, &[fd.cast_unsigned().into()]);
    // Our end goes first: the agent must notice when the only copy left, ours, is closed.
    session.call("close our end", close(ours))?;
    let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
    let top = stacks + STACK_BYTES - 64;
    let arguments = [
        u64::from(flags.cast_unsigned()),
        top,
        0,
        0,
        code + ENTRY_OFFSET,
        u64::from(theirs.cast_unsigned()),
    ];
    let mut clone = Call::new(libc::SYS_clone, &arguments);
    clone.is_clone = true;
    session.call("start the agent's thread", clone)?;
    session.call("close the agent's end", close(theirs))?;
    Ok(Parts { socket, code: (code, code_bytes), stacks: (stacks, stack_bytes) })
}

fn open_device() -> Option<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    file.ok().map(OwnedFd::from)
}

fn shared_memory() -> Result<(OwnedFd, NonNull<Shared>), AgentError> {
    let bytes = size_of::<Shared>().next_multiple_of(4096);
    // SAFETY: plain system calls with checked results; the name is a literal.
    unsafe {
        let fd = libc::memfd_create(c"huepage-agent".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(own("make shared memory")(io::Error::last_os_error()));
        }
        let fd = OwnedFd::from_raw_fd(fd);
        if libc::ftruncate(fd.as_raw_fd(), i64::try_from(bytes).unwrap_or(0)) < 0 {
            return Err(own("size shared memory")(io::Error::last_os_error()));
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0);
        match NonNull::new(at.cast::<Shared>()) {
            Some(shared) if at != libc::MAP_FAILED => Ok((fd, shared)),
            _ => Err(own("map shared memory")(io::Error::last_os_error())),
        }
    }
}

fn send_fds(socket: &OwnedFd, bytes: u64, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); 64];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let payload = [bytes.to_ne_bytes(), [0; 8]].concat();
    sendmsg(socket, &[io::IoSlice::new(&payload)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
