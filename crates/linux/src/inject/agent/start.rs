//! Starting an agent in a target, as one transaction: either it runs, or the target is as before.
//!
//! While the start lasts every thread of the program is held, and it is hidden from other processes of
//! its user. So nobody can take the descriptors that pass through it (the userfaultfd device, the objects that are mapped), answer in
//! the agent's place, or rewrite its code before it has given up its rights. The agent makes its
//! userfaultfds itself, since they belong to the memory of whoever makes them; what it may not ask
//! the kernel for, we ask on the same descriptors.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::protocol::{
    BOOT_MAGIC, ENTRY_OFFSET, MAX_FDS, MOVE_FEATURES, SENT_AREAS, SENT_DEVICE, SENT_REFERENCE,
    STACK_BYTES, Setup, WITHOUT_IDS, WITHOUT_LANDLOCK, WITHOUT_LOCKS, say, step as agent_step,
};
use super::shared::{SHARED_BYTES, SharedMemory};
use super::{Agent, AgentError, AgentOptions, END_LIMIT, START_LIMIT, THREADS, own};
use crate::inject::sharers::lasting_sharer;
use crate::inject::stub::Call;
use crate::inject::{self, InjectError, READ_WRITE, Session, calls};
use crate::kernel::procfs::{ProcRoot, ProcessStatus};
use crate::kernel::read_only_file;
use crate::kernel::userfaultfd;

/// The agent's code, built by the build script.
static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.bin"));

/// Threads of an agent.
const AGENT_THREADS: usize = 2;

/// Steps of a start on the supervisor's side, in order; for [`super::StartFaults`].
#[allow(missing_docs)]
pub mod step {
    pub const HOLD: u64 = 1;
    pub const MEMORY: u64 = 2;
    pub const CODE: u64 = 3;
    pub const STACKS: u64 = 4;
    pub const WRITE: u64 = 5;
    pub const SOCKETS: u64 = 6;
    pub const CLOSE: u64 = 7;
    pub const THREAD: u64 = 8;
    pub const CLOSE_AGENTS: u64 = 9;
    pub const SEND: u64 = 10;
    pub const GRANT: u64 = 11;
    pub const READY: u64 = 12;
    pub const PLACES: u64 = 13;
    pub const THREADS: u64 = 14;
    pub const SEAL: u64 = 15;
    /// All of them.
    pub const ALL: std::ops::RangeInclusive<u64> = HOLD..=SEAL;
}

impl AgentOptions {
    /// Fails where a test asks for it.
    fn reach(&self, pid: i32, step: u64) -> Result<(), AgentError> {
        if !self.faults.supervisor.is_some_and(|fails| fails(pid, step)) {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(libc::ENOMEM);
        Err(AgentError::Start { pid, what: "start (on request)", source })
    }

    fn setup(&self, reference_bytes: u64, parts: &Parts, sent: u64, without: u64) -> Setup {
        Setup {
            ring_pages: self.ring_pages,
            candidate_bytes: self.candidate_pages * 4096,
            reference_bytes,
            shared_bytes: SHARED_BYTES as u64,
            code_base: parts.code.0,
            code_bytes: parts.code.1,
            stack_base: parts.stacks.0,
            heir: u64::from(self.heir),
            sent,
            keep_huge: u64::from(self.keep_huge),
            without,
            fail_at: self.faults.agent,
        }
    }
}

impl Agent {
    /// Whether an agent could be started in the target of `session` as far as its filters say.
    ///
    /// # Errors
    /// When they forbid what it needs, or cannot be read.
    pub fn check(pid: i32, session: &Session) -> Result<(), AgentError> {
        let status = ProcRoot::default().status(session.tid()).map_err(InjectError::from)?;
        without(pid, session.tid(), &status).map(|_| ())
    }

    /// Starts an agent in the target of `session`, whose thread group is `pid`. `reference`
    /// is the object with the pages that colours are measured against, and its size. The
    /// stopped thread stays stopped until the caller finishes the session; the agent runs. All
    /// other threads are held until then, too. Takes about a millisecond.
    ///
    /// # Errors
    /// When the target cannot start it, or it cannot set itself up; the target goes on as it was
    /// before either way.
    pub fn start(
        pid: i32,
        session: &mut Session,
        reference: Option<(BorrowedFd<'_>, u64)>,
        options: &AgentOptions,
    ) -> Result<Agent, AgentError> {
        options.reach(pid, step::HOLD)?;
        let status = ProcRoot::default().status(session.tid()).map_err(InjectError::from)?;
        let without = without(pid, session.tid(), &status)?;
        session.hold_others()?;
        if let Some(other) = lasting_sharer(pid)? {
            return Err(InjectError::Shared { pid, other }.into());
        }
        session.hide()?;
        let before = threads_of(pid)?;
        let mut parts = Parts::default();
        let limits = (without, status.seccomp_filters);
        let started = bring_up(session, &mut parts, &before, (reference, limits), (pid, options));
        if started.is_err() {
            parts.take_out(pid, session, &before);
        }
        session.show()?;
        started
    }
}

fn bring_up(
    session: &mut Session,
    parts: &mut Parts,
    before: &[i32],
    (reference, (without, filters)): (Option<(BorrowedFd<'_>, u64)>, (u64, u32)),
    (pid, options): (i32, &AgentOptions),
) -> Result<Agent, AgentError> {
    let reach = |at| options.reach(pid, at);
    reach(step::MEMORY)?;
    let (shared, memory) = SharedMemory::create().map_err(own("make shared memory"))?;
    parts.put_in(pid, session, options)?;
    let socket = parts.socket.take().ok_or(AgentError::Gone(pid))?;
    let reference_bytes = reference.map_or(0, |r| r.1);
    let objects = OptionalObjects::open(pid, reference.map(|r| r.0))?;
    shared.write_setup(options.setup(reference_bytes, parts, objects.which(), without));
    shared.set_faults(options.fault_around, options.strict);
    reach(step::SEND)?;
    objects.send(&socket, &memory)?;
    grant_and_await(pid, options, &socket, &shared)?;
    reach(step::PLACES)?;
    let sizes = [options.ring_pages * 4096, options.candidate_pages * 4096, reference_bytes];
    let places = shared.places(sizes).ok_or_else(|| broken(pid, "say where its areas are"))?;
    reach(step::THREADS)?;
    let threads = await_threads(pid, before, filters)?;
    reach(step::SEAL)?;
    SharedMemory::seal(&memory).map_err(own("seal shared memory"))?;
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).extend(&threads);
    Ok(Agent {
        pid,
        socket,
        shared,
        code_and_stacks: [parts.code, parts.stacks],
        places,
        sizes,
        threads,
        areas: Vec::new(),
        table: 0,
        moves_locked: without & WITHOUT_LOCKS == 0,
    })
}

/// Gives the agent its userfaultfds and waits until it has set itself up.
fn grant_and_await(
    pid: i32,
    options: &AgentOptions,
    socket: &OwnedFd,
    shared: &SharedMemory,
) -> Result<(), AgentError> {
    options.reach(pid, step::GRANT)?;
    grant_contexts(pid, socket).map_err(|e| reason(pid, shared).unwrap_or(e))?;
    options.reach(pid, step::READY)?;
    await_ready(pid, socket, shared)
}

/// The agent's threads: those that were not there `before`, once each has a filter more than `filters`.
fn await_threads(pid: i32, before: &[i32], filters: u32) -> Result<Vec<i32>, AgentError> {
    let new = |tid: &i32| !before.contains(tid);
    let threads: Vec<i32> = threads_of(pid)?.into_iter().filter(new).collect();
    await_filters(pid, &threads, filters)?;
    Ok(threads)
}

/// What the agent gets where there is such a thing, each by its bit of [`Setup::sent`].
struct OptionalObjects([(u64, Option<OwnedFd>); 3]);

impl OptionalObjects {
    fn open(pid: i32, reference: Option<BorrowedFd<'_>>) -> Result<OptionalObjects, AgentError> {
        Ok(OptionalObjects([
            (SENT_AREAS, File::open(format!("/proc/{pid}/smaps")).ok().map(OwnedFd::from)),
            (SENT_DEVICE, open_device()),
            (SENT_REFERENCE, reference.map(read_only).transpose()?),
        ]))
    }

    fn which(&self) -> u64 {
        self.0.iter().filter(|(_, fd)| fd.is_some()).map(|(which, _)| which).sum()
    }

    /// Sends them, behind the shared memory.
    fn send(self, socket: &OwnedFd, memory: &OwnedFd) -> Result<(), AgentError> {
        let rest = self.0.iter().filter_map(|(_, fd)| fd.as_ref());
        let fds: Vec<_> = [memory].into_iter().chain(rest).map(AsFd::as_fd).collect();
        let bytes = (SHARED_BYTES as u64).to_ne_bytes();
        send(socket, &bytes, &fds).map_err(own("send to the agent"))
    }
}

/// What of the agent is in the target: to be taken out again when the start fails.
#[derive(Default)]
struct Parts {
    /// Start and bytes; 0 where there is nothing yet.
    code: (u64, u64),
    stacks: (u64, u64),
    /// The two ends of the socket as the target numbers them.
    ends: [Option<i32>; 2],
    /// Our end.
    socket: Option<OwnedFd>,
}

impl Parts {
    /// Maps the agent into the target and starts its first thread.
    fn put_in(
        &mut self,
        pid: i32,
        session: &mut Session,
        options: &AgentOptions,
    ) -> Result<(), AgentError> {
        const READ_EXECUTE: u64 = 1 | 4;
        let reach = |at| options.reach(pid, at);
        let code_bytes = (IMAGE.len() as u64).next_multiple_of(4096);
        reach(step::CODE)?;
        let map = Call::map_private(code_bytes, READ_EXECUTE);
        self.code = (session.call("map the agent's code", map)?, code_bytes);
        reach(step::STACKS)?;
        let map = Call::map_private(2 * STACK_BYTES, READ_WRITE);
        self.stacks = (session.call("map the agent's stacks", map)?, 2 * STACK_BYTES);
        reach(step::WRITE)?;
        session.write(self.code.0 + 8, &IMAGE[8..])?;
        session.write(self.code.0, &BOOT_MAGIC.to_ne_bytes())?;
        reach(step::SOCKETS)?;
        self.connect(pid, session)?;
        reach(step::CLOSE)?;
        // Our end goes first: the agent must notice when the only copy left, ours, is closed.
        self.close_end(session, 0)?;
        reach(step::THREAD)?;
        self.start_thread(session)?;
        reach(step::CLOSE_AGENTS)?;
        self.close_end(session, 1)
    }

    /// Has the target make a socket pair and takes one end. The target's memory says which descriptors
    /// they are, so that is checked: what we send must come out at the other end.
    fn connect(&mut self, pid: i32, session: &mut Session) -> Result<(), AgentError> {
        const UNIX: u64 = 1;
        const SEQPACKET_CLOEXEC: u64 = 5 | 0o2_000_000;
        let pair = Call::new(libc::SYS_socketpair, &[UNIX, SEQPACKET_CLOEXEC, 0, self.stacks.0]);
        session.call("make a socket pair", pair)?;
        let mut numbers = [0u8; 8];
        session.read(self.stacks.0, &mut numbers)?;
        let number = |at: usize| {
            i32::from_ne_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]])
        };
        self.ends = [Some(number(0)), Some(number(4))];
        let [ours, theirs] = [inject::fetch_fd(pid, number(0))?, inject::fetch_fd(pid, number(4))?];
        let token = pid.to_ne_bytes();
        let mut came = [0u8; 8];
        let same = rustix::net::send(&ours, &token, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            .and_then(|_| rustix::net::recv(&theirs, &mut came, RecvFlags::DONTWAIT))
            .is_ok_and(|(n, _)| came[..n] == token);
        if !same {
            return Err(broken(pid, "connect to us"));
        }
        self.socket = Some(ours);
        Ok(())
    }

    fn close_end(&mut self, session: &mut Session, end: usize) -> Result<(), AgentError> {
        if let Some(fd) = self.ends[end].take() {
            let close = Call::new(libc::SYS_close, &[fd.cast_unsigned().into()]);
            session.call("close a socket", close)?;
        }
        Ok(())
    }

    fn start_thread(&self, session: &mut Session) -> Result<(), AgentError> {
        let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
        let theirs = self.ends[1].unwrap_or(-1);
        let arguments = [
            u64::from(flags.cast_unsigned()),
            self.stacks.0 + STACK_BYTES - 64,
            0,
            0,
            self.code.0 + ENTRY_OFFSET,
            u64::from(theirs.cast_unsigned()),
        ];
        let mut clone = Call::new(libc::SYS_clone, &arguments);
        clone.is_clone = true;
        session.call("start the agent's thread", clone)?;
        Ok(())
    }

    /// Takes everything out of the target: the agent's threads leave by themselves, undoing what they
    /// did, once our end of the socket is closed.
    fn take_out(&mut self, pid: i32, session: &mut Session, before: &[i32]) {
        self.socket = None;
        let _ = self.close_end(session, 0);
        let _ = self.close_end(session, 1);
        let ours: Vec<i32> = threads_of(pid)
            .unwrap_or_default()
            .into_iter()
            .filter(|tid| !before.contains(tid))
            .collect();
        // Code that somebody still runs stays: without it the program would end.
        if !await_end(pid, &ours, END_LIMIT).is_ok_and(|ended| ended) {
            return;
        }
        for (start, bytes) in [self.code, self.stacks] {
            if start != 0 {
                let _ = session.call("unmap the agent", Call::unmap(start, bytes));
            }
        }
    }
}

fn threads_of(pid: i32) -> Result<Vec<i32>, AgentError> {
    Ok(ProcRoot::default().tasks(pid).map_err(InjectError::from)?)
}

/// Waits until none of these threads is left; whether that came about in time.
///
/// # Errors
/// When the process is gone.
pub(super) fn await_end(pid: i32, threads: &[i32], limit: Duration) -> Result<bool, AgentError> {
    let start = Instant::now();
    while start.elapsed() < limit {
        let left = threads_of(pid)?;
        if !threads.iter().any(|tid| left.contains(tid)) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(false)
}

/// Waits until both threads of the agent have a filter more than the thread that they come from, which
/// had `before`. The second one gets its own when it first runs, which may be after the first has
/// said that all is ready; the program must not run beside it until then.
///
/// # Errors
/// When one has none in time.
fn await_filters(pid: i32, threads: &[i32], before: u32) -> Result<(), AgentError> {
    let (root, start) = (ProcRoot::default(), Instant::now());
    let filtered = |tid: &i32| root.status(*tid).is_ok_and(|s| s.seccomp_filters > before);
    while threads.len() == AGENT_THREADS && start.elapsed() < START_LIMIT {
        if threads.iter().all(filtered) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Err(broken(pid, agent_step::name(agent_step::CALLS)))
}

/// What the agent must do without, since filters of the thread that it starts from forbid it.
///
/// # Errors
/// When they forbid what it needs.
fn without(pid: i32, tid: i32, status: &ProcessStatus) -> Result<u64, AgentError> {
    let judged = calls::judge_agent(status, tid).map_err(InjectError::from)?;
    let without = judged.map_err(|refusal| InjectError::Filtered { pid, refusal })?;
    let bit = |is: bool, bit| if is { bit } else { 0 };
    let locks = bit(without.locks, WITHOUT_LOCKS);
    Ok(bit(without.landlock, WITHOUT_LANDLOCK) | bit(without.ids, WITHOUT_IDS) | locks)
}

/// The same file, which cannot be written through this descriptor, nor through one that is made of it.
fn read_only(fd: BorrowedFd<'_>) -> Result<OwnedFd, AgentError> {
    read_only_file::reopen(fd).map_err(own("open the reference pages for reading"))
}

fn open_device() -> Option<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/userfaultfd");
    file.ok().map(OwnedFd::from)
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Tells the agent that there is a command.
pub(super) fn send_command(socket: &OwnedFd) -> io::Result<()> {
    send(socket, &[say::COMMAND], &[])
}

/// A message of the agent: its first byte, and what came along.
fn receive(pid: i32, socket: &OwnedFd) -> Result<(u8, Vec<OwnedFd>), AgentError> {
    let seconds = i64::try_from(START_LIMIT.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    let polled = rustix::io::retry_on_intr(|| poll(&mut ready, Some(&limit)));
    if polled.map_err(own("wait for the agent"))? == 0 {
        return Err(AgentError::Silent(pid));
    }
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags);
    let got = got.map_err(own("hear the agent"))?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            fds.extend(came);
        }
    }
    if got.bytes == 0 { Err(AgentError::Gone(pid)) } else { Ok((byte[0], fds)) }
}

/// Sets up the contexts that the agent sends: to hear of forks the kernel asks for a right that only
/// we have.
///
/// # Errors
/// When the agent sends something else, or the kernel refuses.
fn grant_contexts(pid: i32, socket: &OwnedFd) -> Result<(), AgentError> {
    let (word, fds) = receive(pid, socket)?;
    if word != say::CONTEXTS || fds.is_empty() {
        return Err(broken(pid, agent_step::name(agent_step::CONTEXTS)));
    }
    for fd in &fds {
        set_up_context(fd).map_err(|source| {
            let what = agent_step::name(agent_step::CONTEXTS);
            AgentError::Start { pid, what, source }
        })?;
    }
    send(socket, &[say::GRANTED], &[]).map_err(own("answer the agent"))
}

/// Asks the kernel for [`MOVE_FEATURES`], if the descriptor is a userfaultfd at all.
fn set_up_context(fd: &OwnedFd) -> io::Result<()> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    if link != Path::new("anon_inode:[userfaultfd]") {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    userfaultfd::handshake(fd, MOVE_FEATURES).map(|_| ())
}

fn await_ready(pid: i32, socket: &OwnedFd, shared: &SharedMemory) -> Result<(), AgentError> {
    let (word, _) = receive(pid, socket).map_err(|e| reason(pid, shared).unwrap_or(e))?;
    if word == say::READY {
        return Ok(());
    }
    Err(reason(pid, shared).unwrap_or_else(|| broken(pid, "start")))
}

/// Why the agent says that it could not start, if it says so.
fn reason(pid: i32, shared: &SharedMemory) -> Option<AgentError> {
    let (state, step) = shared.state();
    let errno = i32::try_from(state.checked_neg()?).ok().filter(|e| (1..4096).contains(e))?;
    let source = io::Error::from_raw_os_error(errno);
    Some(AgentError::Start { pid, what: agent_step::name(step), source })
}

/// For an agent that does not do what ours does.
fn broken(pid: i32, what: &'static str) -> AgentError {
    AgentError::Start { pid, what, source: io::ErrorKind::InvalidData.into() }
}
