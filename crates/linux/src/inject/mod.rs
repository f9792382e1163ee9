//! Making a thread of another process run a few system calls for us, and starting the agent.
//!
//! The thread is stopped with ptrace, sent through the [`stub`], and let go. Stops last a
//! fraction of a millisecond; a supervisor that dies in between leaves a thread that finds
//! its own way back. The program's stacks are never touched, and what was overwritten is put
//! back. Nothing here decides what to inject into whom.

pub mod agent;
pub mod calls;
pub mod filters;
pub mod hold;
pub mod launch;
mod ptrace;
mod reaper;
mod request;
#[doc(hidden)]
pub mod room;
mod rseq;
pub mod sharers;
pub mod stub;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::kernel::procfs::{Area, AreaKind, ProcError, ProcRoot, ProcessStatus, pidfd};
use filters::{CallRefusal, Filters};
use ptrace::{Held, Tracee, ptrace};
use reaper::Reaper;
use stub::Call;

/// What to do where a call inside a target failed. Its limit of processes binds its threads, too; it is the target's
/// own wish, so it is not lifted behind its back.
fn remedy(pid: i32, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => format!(
            "it may have no more threads (RLIMIT_NPROC, or its control group); `prlimit --pid {pid} --nproc=64:64` allows some"
        ),
        _ => "check its resource limits and sandbox".to_owned(),
    }
}

/// Why a target could not be made to run our calls.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// No such process, or it ended while we were at it.
    #[error("process {0} ended during the attach; nothing was left behind, start it again")]
    Gone(i32),
    /// ptrace refused.
    #[error("not allowed to trace process {0}; run as root, and end any debugger attached to it")]
    Denied(i32),
    /// The thread did not stop in time.
    #[error(
        "process {0} waits in the kernel and does not stop; see `cat /proc/{0}/stack` for where"
    )]
    Stuck(i32),
    /// Job control or a signal has stopped it, so that no thread of it would run for us.
    #[error("process {0} is stopped; continue it with `kill -CONT {0}` and attach again")]
    Stopped(i32),
    /// Not a 64-bit x86 process.
    #[error("process {0} is not a 64-bit x86 program; run a 64-bit build of it")]
    NotNative(i32),
    /// No room for the stub in the vDSO.
    #[error("process {0} has no usable vDSO; start it with `huepage run`, or boot without vdso=0")]
    NoRoom(i32),
    /// A call inside the target failed.
    #[error("process {pid} could not {what}: {source}; {}", remedy(*pid, source))]
    Call {
        /// The target.
        pid: i32,
        /// What it was to do.
        what: &'static str,
        /// Its errno.
        source: std::io::Error,
    },
    /// The target's memory or our own system calls failed.
    #[error("cannot reach process {pid}: {source}; check that it still runs")]
    Io {
        /// The target.
        pid: i32,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Another process has its memory or its descriptors, and would run while it is held.
    #[error(
        "process {pid} shares memory or descriptors with process {other}; attach again when that has ended or executed a program"
    )]
    Shared {
        /// The target.
        pid: i32,
        /// The other.
        other: i32,
    },
    /// A seccomp filter of the target forbids a call that we need.
    #[error(
        "process {pid} cannot be confined: {refusal}; allow that call in its sandbox, or leave it out"
    )]
    Filtered {
        /// The target.
        pid: i32,
        /// The call, and what would happen.
        refusal: CallRefusal,
    },
    /// Its filters cannot be read.
    #[error(transparent)]
    Filters(#[from] filters::FilterError),
    /// A file of /proc could not be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// How long to wait for other threads of a target to stop. Those that wait in the kernel for longer
/// stop before they run any instruction of the program.
const OTHERS_LIMIT: Duration = Duration::from_millis(50);
/// Most rounds of looking for threads that appeared while others were being stopped.
const OTHERS_ROUNDS: usize = 50;

/// Held for reading while threads of targets are traced, and for writing while whole processes
/// are held, which must not be the targets. A wait for a child takes the stops of its tracer too,
/// whichever thread of ours that is, so nobody waits for children meanwhile.
static TRACING: RwLock<()> = RwLock::new(());

/// Calls `wait`, which waits for a child without blocking, unless some thread is traced now:
/// the caller is to try again later.
pub fn unless_tracing<T>(wait: impl FnOnce() -> T) -> Option<T> {
    // There is nothing that could be left half done: poison means nothing.
    match TRACING.try_write() {
        Err(TryLockError::WouldBlock) => None,
        Ok(_turn) => Some(wait()),
        Err(TryLockError::Poisoned(_turn)) => Some(wait()),
    }
}

/// A stopped thread of a target, which makes system calls for us.
pub struct Session {
    thread: Tracee,
    memory: File,
    /// Where the stub lies.
    base: u64,
    /// What lay there before.
    before: Vec<u8>,
    /// Calls already made.
    made: usize,
    /// The registers with which the thread goes on.
    back: libc::user_regs_struct,
    /// A page of the target that calls may write results to, once one was needed.
    scratch: Option<u64>,
    /// The process was hidden from those that may trace it otherwise.
    hidden: bool,
    /// Other threads of the process.
    others: Held,
    attached: bool,
    /// Since when the thread stands.
    stopped: Instant,
    _tracing: RwLockReadGuard<'static, ()>,
}

/// Nanoseconds; see [`longest_stop`].
static LONGEST_STOP: AtomicU64 = AtomicU64::new(0);

/// Longest that this process has kept a thread of a program from running at a time.
pub fn longest_stop() -> Duration {
    Duration::from_nanos(LONGEST_STOP.load(Relaxed))
}

impl Session {
    /// Stops thread `tid` and sends it to the stub, with nothing to do yet.
    ///
    /// # Errors
    /// When the thread is gone, traced by somebody else, stuck, or not 64-bit.
    pub fn stop(tid: i32) -> Result<Session, InjectError> {
        Session::stop_knowing(tid, None)
    }

    /// As [`Self::stop`]; `room` is that of another thread of the same process, which spares the search
    /// for it: that reads all mappings.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_knowing(tid: i32, room: Option<&Room>) -> Result<Session, InjectError> {
        let tracing = TRACING.read().unwrap_or_else(PoisonError::into_inner);
        let root = ProcRoot::default();
        if status_of(&root, tid)?.state == 'T' {
            return Err(InjectError::Stopped(tid));
        }
        let thread = Tracee::new(&root, tid);
        thread.seize()?;
        let stopped = thread.interrupt().and_then(|()| thread.wait_interrupt());
        if let Err(e) = stopped {
            let_go(thread);
            return Err(e);
        }
        Session::begin(thread, room, tracing)
    }

    /// Where the stub is in this process.
    pub fn room(&self) -> Room {
        Room { base: self.base, before: self.before.clone() }
    }

    /// Takes over a thread that this thread traces already and that is stopped outside any
    /// system call, as [`crate::inject::launch::spawn`] leaves it.
    ///
    /// # Errors
    /// As [`Session::stop`].
    pub fn take_over(tid: i32) -> Result<Session, InjectError> {
        let tracing = TRACING.read().unwrap_or_else(PoisonError::into_inner);
        ptrace(libc::PTRACE_SETOPTIONS, tid, 0, libc::PTRACE_O_TRACESYSGOOD as u64)?;
        Session::begin(Tracee::new(&ProcRoot::default(), tid), None, tracing)
    }

    fn begin(
        thread: Tracee,
        room: Option<&Room>,
        tracing: RwLockReadGuard<'static, ()>,
    ) -> Result<Session, InjectError> {
        let entered = Session::enter_stub(thread, room, tracing);
        if entered.is_err() {
            let_go(thread);
        }
        entered
    }

    fn enter_stub(
        thread: Tracee,
        room: Option<&Room>,
        tracing: RwLockReadGuard<'static, ()>,
    ) -> Result<Session, InjectError> {
        let regs = native_registers(thread)?;
        let mask = thread.signal_mask()?;
        let memory = open_memory(thread.tid)?;
        let io = |source| InjectError::Io { pid: thread.tid, source };
        let Room { base, before } = match room.filter(|room| room.is_free(&memory)) {
            Some(room) => room.clone(),
            None => find_room(thread.tid, &memory)?,
        };
        let back = way_back(thread, &memory, &regs);
        memory.write_all_at(&stub::image(&back, mask), base).map_err(io)?;
        let mut session = Session {
            thread,
            memory,
            base,
            before,
            made: 0,
            back,
            scratch: None,
            hidden: false,
            others: Held::default(),
            attached: true,
            stopped: Instant::now(),
            _tracing: tracing,
        };
        session.run_stub(regs)?;
        Ok(session)
    }

    /// Has the thread, which had these registers, run the stub.
    fn run_stub(&mut self, regs: libc::user_regs_struct) -> Result<(), InjectError> {
        let entered = libc::user_regs_struct { rip: self.base, orig_rax: u64::MAX, ..regs };
        self.thread.set_registers(&entered)?;
        // From here on the stub restores the mask, so blocking everything now is safe, and
        // no signal can be taken from the program while it runs our calls.
        self.thread.set_signal_mask(u64::MAX)?;
        self.expect_result("block its signals").map(drop)
    }

    /// Holds all other threads of the process until the session ends, so that none of them sees
    /// or takes what the process holds for us meanwhile. A thread that waits in the kernel is not
    /// waited for: it stops before it runs an instruction of the program. Takes some 10 us a thread.
    ///
    /// # Errors
    /// When the process is gone, or somebody else traces one of its threads.
    pub fn hold_others(&mut self) -> Result<(), InjectError> {
        let root = ProcRoot::default();
        let until = Instant::now() + OTHERS_LIMIT;
        let pid = root.status(self.thread.tid)?.tgid;
        let mut reaper = Reaper::default();
        self.others.0.keys().chain([&self.thread]).for_each(|&thread| reaper.watch(thread, pid));
        for _ in 0..OTHERS_ROUNDS {
            // Threads that still run may have made others.
            if !self.interrupt_others(&root, pid, &mut reaper)? {
                return Ok(());
            }
            self.others.await_stops(until);
        }
        Err(InjectError::Stuck(pid))
    }

    /// Tells every thread that was not told yet to stop; whether there was one.
    fn interrupt_others(
        &mut self,
        root: &ProcRoot,
        pid: i32,
        reaper: &mut Reaper,
    ) -> Result<bool, InjectError> {
        let mut found = false;
        for tid in root.tasks(pid)? {
            let other = Tracee { tid, is_child: false };
            if tid == self.thread.tid || self.others.0.contains_key(&other) {
                continue;
            }
            reaper.watch(other, pid);
            match other.seize().and_then(|()| other.interrupt()) {
                // A leader that has ended stays listed and never runs again.
                Err(_) if root.status(tid).map_or(true, |s| s.is_dead()) => continue,
                result => result?,
            }
            found = true;
            self.others.0.insert(other, false);
        }
        Ok(found)
    }

    /// Hides the process from all that may trace it by being the same user: they could take what it
    /// holds for us. Lasts until [`Self::show`], or the end of the session; when we die the thread
    /// itself ends it.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn hide(&mut self) -> Result<(), InjectError> {
        const DUMPABLE: u64 = 1;
        let get = Call::new(libc::SYS_prctl, &[PR_GET_DUMPABLE, 0, 0, 0, 0]);
        if self.hidden || self.call("tell who may look at it", get)? != DUMPABLE {
            return Ok(());
        }
        self.write(self.base + stub::shown_offset() as u64, &DUMPABLE.to_ne_bytes())?;
        self.hidden = true;
        let set = Call::new(libc::SYS_prctl, &[PR_SET_DUMPABLE, 0, 0, 0, 0]);
        self.call("hide", set).map(|_| ())
    }

    /// Undoes [`Self::hide`].
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn show(&mut self) -> Result<(), InjectError> {
        if !self.hidden {
            return Ok(());
        }
        let set = Call::new(libc::SYS_prctl, &[PR_SET_DUMPABLE, 1, 0, 0, 0]);
        self.call("show itself", set)?;
        self.write(self.base + stub::shown_offset() as u64, &stub::END.to_ne_bytes())?;
        self.hidden = false;
        Ok(())
    }

    /// Lets the thread make one more call and returns its result.
    ///
    /// # Errors
    /// When the call fails, with its errno; or the thread is gone.
    pub fn call(&mut self, what: &'static str, call: Call) -> Result<u64, InjectError> {
        let (this, next) = (stub::slot_offset(self.made), stub::slot_offset(self.made + 1));
        // Behind this call there is none: when we die it is the last one.
        self.write(self.base + next as u64, &stub::END.to_ne_bytes())?;
        let at = self.base + this as u64;
        self.write(at + 8, &call.tail())?;
        self.write(at, &call.words[0].to_ne_bytes())?;
        self.made += 1;
        self.expect_result(what)
    }

    fn expect_result(&mut self, what: &'static str) -> Result<u64, InjectError> {
        let thread = self.thread;
        for _ in 0..MOST_STOPS {
            thread.step_call()?;
            thread.wait_stop()?;
            if let Some((at, result)) = thread.call_exit()? {
                if !(self.base..self.base + stub::bytes() as u64).contains(&at) {
                    // Another thread of the process has executed another program, and has this one's
                    // number now.
                    return Err(InjectError::Gone(thread.tid));
                }
                return if (-4095..0).contains(&result) {
                    let errno = -i32::try_from(result).unwrap_or(-libc::EIO);
                    let source = std::io::Error::from_raw_os_error(errno);
                    Err(InjectError::Call { pid: thread.tid, what, source })
                } else {
                    Ok(result.cast_unsigned())
                };
            }
        }
        Err(InjectError::Stuck(thread.tid))
    }

    /// The thread that makes the calls.
    pub fn tid(&self) -> i32 {
        self.thread.tid
    }

    /// Whether the thread's seccomp filters forbid a call that is to be made.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn refuses(&self, call: filters::Probe) -> Result<bool, InjectError> {
        Ok(refused(self.thread.tid, &[call])?.is_some())
    }

    /// Reads the target's memory.
    ///
    /// # Errors
    /// When the address is not mapped or the target is gone.
    pub fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), InjectError> {
        let io = |source| InjectError::Io { pid: self.thread.tid, source };
        self.memory.read_exact_at(buffer, at).map_err(io)
    }

    /// Writes the target's memory, read-only pages included.
    ///
    /// # Errors
    /// When the address is not mapped or the target is gone.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), InjectError> {
        let io = |source| InjectError::Io { pid: self.thread.tid, source };
        self.memory.write_all_at(bytes, at).map_err(io)
    }

    /// Address of a page of the target that is ours until the session ends, for results that calls
    /// write to memory.
    ///
    /// # Errors
    /// When the target cannot map one more page.
    pub fn scratch(&mut self) -> Result<u64, InjectError> {
        if let Some(at) = self.scratch {
            return Ok(at);
        }
        let at = self.call("map a page", Call::map_private(SCRATCH_BYTES, READ_WRITE))?;
        self.scratch = Some(at);
        Ok(at)
    }

    /// Lets the thread go on where it was.
    pub fn finish(mut self) {
        self.detach();
    }

    fn detach(&mut self) {
        if self.attached {
            if let Some(at) = self.scratch.take() {
                let _ = self.call("unmap a page", Call::unmap(at, SCRATCH_BYTES));
            }
            let _ = self.show();
            let _ = self.leave_stub();
            let_go(self.thread);
            self.attached = false;
        }
        let ns = u64::try_from(self.stopped.elapsed().as_nanos()).unwrap_or(u64::MAX);
        LONGEST_STOP.fetch_max(ns, Relaxed);
        // The rest is let go by [`release_late`].
        let late = self.others.release(OTHERS_LIMIT);
        LATE.with_borrow_mut(|all| all.extend(late));
    }

    /// Takes the thread out of the stub before letting it go: the stub finds back by itself,
    /// but its room must be free when the next thread is sent there.
    fn leave_stub(&mut self) -> Result<(), InjectError> {
        let next = stub::slot_offset(self.made) as u64;
        self.write(self.base + next, &stub::END.to_ne_bytes())?;
        self.expect_result("restore its signals")?;
        let mut back = self.back;
        back.orig_rax = u64::MAX;
        self.thread.set_registers(&back)?;
        self.write(self.base, &self.before)
    }
}

const PR_GET_DUMPABLE: u64 = 3;
const PR_SET_DUMPABLE: u64 = 4;
/// Stops in one call, signals that come meanwhile included: where the stub is gone, unmapped by somebody who shares
/// the memory, each step faults and nothing ends it.
const MOST_STOPS: usize = 10_000;
/// Bytes of the page for results.
const SCRATCH_BYTES: u64 = 4096;
/// Protection of memory that is read and written.
pub(crate) const READ_WRITE: u64 = 3;

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Fetches a duplicate of descriptor `fd` of process `pid`.
///
/// # Errors
/// When the process is gone or refuses.
pub fn fetch_fd(pid: i32, fd: i32) -> Result<OwnedFd, InjectError> {
    let process = pidfd(pid).map_err(|_| InjectError::Gone(pid))?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
        .map_err(|e| InjectError::Io { pid, source: e.into() })
}

/// Which of a session's calls, or of some more, is forbidden to a thread that we trace.
fn refused(tid: i32, more: &[filters::Probe]) -> Result<Option<CallRefusal>, InjectError> {
    if status_of(&ProcRoot::default(), tid)?.seccomp == 0 {
        return Ok(None);
    }
    let filters = Filters::read(&ProcRoot::default(), tid)?;
    Ok(filters.refusal(calls::SESSION).or_else(|| filters.refusal(more)))
}

/// Threads end at any moment, which is no failure of `/proc`.
fn status_of(root: &ProcRoot, tid: i32) -> Result<ProcessStatus, InjectError> {
    root.status(tid).map_err(|e| if e.is_gone() { InjectError::Gone(tid) } else { e.into() })
}

thread_local! {
    /// Threads of targets that were told to stop by this thread, and have not yet.
    static LATE: RefCell<Vec<Tracee>> = const { RefCell::new(Vec::new()) };
}

/// Lets go of a thread: at once if it stands, else as soon as [`release_late`] finds that it has stopped.
fn let_go(thread: Tracee) {
    if thread.detach().is_err() {
        LATE.with_borrow_mut(|late| late.push(thread));
    }
}

/// Lets go of threads of targets that stop only now, since they were waiting in the kernel when this
/// thread held their process. Whoever ends a [`Session`] calls it again and again, until it ends itself:
/// the kernel then lets go of the rest. Costs nothing where there is none. Whether some are left.
pub fn release_late() -> bool {
    LATE.with_borrow_mut(|late| {
        late.retain(|&thread| !thread.release());
        !late.is_empty()
    })
}

/// The registers of a thread that runs native 64-bit code, and whose filters allow what the stub calls.
fn native_registers(thread: Tracee) -> Result<libc::user_regs_struct, InjectError> {
    const USER_CODE_64: u64 = 0x33;
    if let Some(refusal) = refused(thread.tid, &[])? {
        return Err(InjectError::Filtered { pid: thread.tid, refusal });
    }
    let regs = thread.registers()?;
    if regs.cs == USER_CODE_64 { Ok(regs) } else { Err(InjectError::NotNative(thread.tid)) }
}

fn open_memory(tid: i32) -> Result<File, InjectError> {
    let path = format!("/proc/{tid}/mem");
    let memory = OpenOptions::new().read(true).write(true).open(path);
    memory.map_err(|source| InjectError::Io { pid: tid, source })
}

/// With which registers a thread goes on that was stopped with `regs`: where it was, or at the
/// abort handler of the restartable sequence that the stop interrupted.
fn way_back(
    thread: Tracee,
    memory: &File,
    regs: &libc::user_regs_struct,
) -> libc::user_regs_struct {
    let mut back = stub::way_back(regs);
    if let Some(sequence) = interrupted_sequence(thread, memory)
        && sequence.holds(back.rip)
    {
        back.rip = sequence.abort;
    }
    back
}

/// The restartable sequence that a thread has announced; its handler must carry the signature, as
/// the kernel demands, else there is none.
fn interrupted_sequence(thread: Tracee, memory: &File) -> Option<rseq::Sequence> {
    let (area, signature) = thread.rseq_area()?;
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, area.checked_add(rseq::SEQUENCE_AT)?).ok()?;
    let at = u64::from_ne_bytes(word);
    if at == 0 {
        return None;
    }
    let mut bytes = [0; rseq::SEQUENCE_BYTES];
    memory.read_exact_at(&mut bytes, at).ok()?;
    let sequence = rseq::Sequence::parse(&bytes);
    let mut found = [0; 4];
    memory.read_exact_at(&mut found, sequence.abort.checked_sub(4)?).ok()?;
    (u32::from_ne_bytes(found) == signature).then_some(sequence)
}

/// Where the stub fits in a process, and what is there without it.
#[derive(Clone, Debug)]
pub struct Room {
    base: u64,
    before: Vec<u8>,
}

impl Room {
    /// What is there at an address.
    fn at(base: u64, memory: &File) -> io::Result<Room> {
        let mut before = vec![0; stub::bytes()];
        memory.read_exact_at(&mut before, base)?;
        Ok(Room { base, before })
    }

    /// Whether it is as it was: a process that moves its vDSO, or becomes another program, has other
    /// things there.
    fn is_free(&self, memory: &File) -> bool {
        Room::at(self.base, memory).is_ok_and(|now| now.before == self.before)
    }
}

/// Where the stub fits; see [`room`].
fn find_room(tid: i32, memory: &File) -> Result<Room, InjectError> {
    let areas = ProcRoot::default().maps(tid)?;
    if let Some(base) = in_vdso(&areas, memory) {
        return Room::at(base, memory).map_err(|source| InjectError::Io { pid: tid, source });
    }
    // A program that lacks what this kernel gives to all has taken it away: its memory may be anything, such as a
    // file whose server never answers.
    // SAFETY: it reads what the kernel left for this process.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let found = if vdso == 0 { behind_text(tid, &areas, memory) } else { None };
    found.ok_or(InjectError::NoRoom(tid))
}

/// A place in the vDSO, if there is one and it has room.
fn in_vdso(areas: &[Area], memory: &File) -> Option<u64> {
    /// More than any kernel's vDSO has.
    const MOST_BYTES: u64 = 1 << 20;
    let vdso = areas.iter().find(|a| a.name == "[vdso]")?;
    let bytes = (vdso.end - vdso.start).min(MOST_BYTES);
    let mut image = vec![0; usize::try_from(bytes).ok()?];
    memory.read_exact_at(&mut image, vdso.start).ok()?;
    room::find(&image, stub::bytes()).map(|at| vdso.start + at as u64)
}

/// A place behind the text of the program, or else of the loader or the C library.
fn behind_text(tid: i32, areas: &[Area], memory: &File) -> Option<Room> {
    let program = std::fs::read_link(format!("/proc/{tid}/exe")).ok()?;
    let stays = |area: &&Area| {
        let path = Path::new(&area.name);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        path == program || file.starts_with("ld-") || file.starts_with("libc.")
    };
    let text =
        |area: &&Area| area.kind() == AreaKind::PrivateFile && area.prot.exec && !area.prot.write;
    let found = areas.iter().filter(text).filter(stays).take(TEXTS);
    found.filter_map(|area| room_behind(area, areas, memory)).next()
}

/// Texts that are looked at, at most: each takes a pass over all areas.
const TEXTS: usize = 8;

fn room_behind(area: &Area, areas: &[Area], memory: &File) -> Option<Room> {
    let first = areas.iter().find(|a| a.name == area.name && a.offset == 0 && a.prot.read)?;
    let mut head = vec![0; 4096];
    memory.read_exact_at(&mut head, first.start).ok()?;
    let at = room::behind_text(&head, area.offset, area.end - area.start, stub::bytes())?;
    Room::at(area.start.checked_add(at)?, memory).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a thread waits in the kernel, where nothing stops it: longer than is waited for a stop.
    const IN_THE_KERNEL: Duration = Duration::from_secs(7);

    #[test]
    #[ignore = "the next test starts it"]
    #[allow(deprecated, reason = "nothing else waits in the kernel without a stop")]
    fn a_thread_that_waits_in_the_kernel() {
        // SAFETY: the child makes calls that write to the stack below this frame only, and ends.
        unsafe {
            if libc::vfork() == 0 {
                libc::sleep(u32::try_from(IN_THE_KERNEL.as_secs()).unwrap_or(0));
                libc::_exit(0);
            }
        }
    }

    #[test]
    fn a_thread_that_stops_late_goes_on() {
        let name = "inject::tests::a_thread_that_waits_in_the_kernel";
        let mut waiting = std::process::Command::new(std::env::current_exe().unwrap());
        waiting.args(["--ignored", "--exact", name]).stdout(std::process::Stdio::null());
        let mut child = waiting.spawn().unwrap();
        let (root, pid, start) = (ProcRoot::default(), child.id().cast_signed(), Instant::now());
        let waits = |tid: &i32| root.status(*tid).is_ok_and(|status| status.state == 'D');
        let tid = loop {
            let found = root.tasks(pid).unwrap_or_default().into_iter().find(waits);
            if found.is_some() || start.elapsed() > IN_THE_KERNEL {
                break found.expect("a thread that waits");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let stopped = Session::stop(tid).map(drop);
        assert!(matches!(stopped, Err(InjectError::Stuck(_))), "{stopped:?}");
        while release_late() && start.elapsed() < 10 * IN_THE_KERNEL {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = child.wait().unwrap();
        assert!(ended.success() && start.elapsed() >= IN_THE_KERNEL, "{ended:?}");
    }

    #[test]
    fn programs_and_libraries_have_room_behind_their_text() {
        let (pid, memory) = (std::process::id().cast_signed(), File::open("/proc/self/mem"));
        let (memory, areas) = (memory.unwrap(), ProcRoot::default().maps(pid).unwrap());
        let room = behind_text(pid, &areas, &memory).expect("room in one of three files");
        let own = areas.iter().find(|area| (area.start..area.end).contains(&room.base)).unwrap();
        assert!(own.prot.exec && !own.prot.write, "{own:?}");
        assert!(
            room.base + stub::bytes() as u64 <= own.end && room.base.is_multiple_of(64),
            "{own:?}"
        );
        assert!(room.is_free(&memory));
    }
}
