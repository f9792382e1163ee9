//! Making a thread of another process run a few system calls for us, and starting the agent.
//!
//! The thread is stopped with ptrace, sent through the [`stub`], and let go. Stops last a
//! fraction of a millisecond; a supervisor that dies in between leaves a thread that finds
//! its own way back. Nothing here decides what to inject into whom.

pub mod hold;
pub mod stub;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

use crate::procfs::{ProcError, ProcRoot};
use stub::Call;

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
    #[error("process {0} does not stop (it waits in the kernel); try again later")]
    Stuck(i32),
    /// Not a 64-bit x86 process.
    #[error("process {0} is not a 64-bit x86 program; run a 64-bit build of it")]
    NotNative(i32),
    /// No room for the stub in the vDSO.
    #[error("process {0} has no usable vDSO; boot without vdso=0")]
    NoRoom(i32),
    /// A call inside the target failed.
    #[error("process {pid} could not {what}: {source}; check its resource limits and sandbox")]
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
    /// A file of /proc could not be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long another supervisor may hold a process that is to be stopped; see [`hold`].
const HELD_LIMIT: Duration = Duration::from_millis(100);

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

/// A stopped thread of a target, to be sent through the stub once.
pub struct Session {
    /// The traced thread.
    tid: i32,
    memory: File,
    /// Where the stub lies.
    base: u64,
    /// Result of the calls already made.
    made: usize,
    /// The registers with which the thread goes on.
    back: libc::user_regs_struct,
    attached: bool,
    _tracing: RwLockReadGuard<'static, ()>,
}

impl Session {
    /// Stops thread `tid` and sends it to the stub, with nothing to do yet.
    ///
    /// # Errors
    /// When the thread is gone, traced by somebody else, stuck, or not 64-bit.
    pub fn stop(tid: i32) -> Result<Session, InjectError> {
        let tracing = TRACING.read().unwrap_or_else(PoisonError::into_inner);
        seize(tid)?;
        let stopped = ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).and_then(|_| wait_interrupt(tid));
        if let Err(e) = stopped {
            let _ = ptrace(libc::PTRACE_DETACH, tid, 0, 0);
            return Err(e);
        }
        Session::begin(tid, tracing)
    }

    /// Takes over a thread that this thread traces already and that is stopped outside any
    /// system call, as [`crate::launch::spawn`] leaves it.
    ///
    /// # Errors
    /// As [`Session::stop`].
    pub fn take_over(tid: i32) -> Result<Session, InjectError> {
        let tracing = TRACING.read().unwrap_or_else(PoisonError::into_inner);
        ptrace(libc::PTRACE_SETOPTIONS, tid, 0, libc::PTRACE_O_TRACESYSGOOD as u64)?;
        Session::begin(tid, tracing)
    }

    fn begin(tid: i32, tracing: RwLockReadGuard<'static, ()>) -> Result<Session, InjectError> {
        match Session::enter_stub(tid, tracing) {
            Ok(session) => Ok(session),
            Err(e) => {
                let _ = ptrace(libc::PTRACE_DETACH, tid, 0, 0);
                Err(e)
            }
        }
    }

    fn enter_stub(tid: i32, tracing: RwLockReadGuard<'static, ()>) -> Result<Session, InjectError> {
        let regs = registers(tid)?;
        const USER_CODE_64: u64 = 0x33;
        if regs.cs != USER_CODE_64 {
            return Err(InjectError::NotNative(tid));
        }
        let mask = signal_mask(tid)?;
        let path = format!("/proc/{tid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(path);
        let memory = memory.map_err(|source| InjectError::Io { pid: tid, source })?;
        let base = find_room(tid, &memory)?;
        let back = stub::way_back(&regs);
        let session =
            Session { tid, memory, base, made: 0, back, attached: true, _tracing: tracing };
        session.write(base, &stub::image(&regs, mask))?;
        let mut entered = regs;
        entered.rip = base;
        // Below the red zone, where interrupted code keeps nothing.
        entered.rsp = (regs.rsp - 512) & !15;
        entered.orig_rax = u64::MAX;
        set_registers(tid, &entered)?;
        // From here on the stub restores the mask, so blocking everything now is safe, and
        // no signal can be taken from the program while it runs our calls.
        set_signal_mask(tid, u64::MAX)?;
        let mut session = session;
        session.expect_result("block its signals")?;
        Ok(session)
    }

    /// Lets the thread make one more call and returns its result.
    ///
    /// # Errors
    /// When the call fails, with its errno; or the thread is gone.
    pub fn call(&mut self, what: &'static str, call: Call) -> Result<u64, InjectError> {
        debug_assert!(self.made < stub::MAX_CALLS);
        let at = self.base + stub::entry_offset(self.made) as u64;
        self.write(at + 8, &call.tail())?;
        self.write(at, &call.words[0].to_ne_bytes())?;
        self.made += 1;
        self.expect_result(what)
    }

    fn expect_result(&mut self, what: &'static str) -> Result<u64, InjectError> {
        loop {
            ptrace(libc::PTRACE_SYSCALL, self.tid, 0, 0)?;
            wait_stop(self.tid)?;
            if let Some(result) = call_exit(self.tid)? {
                return if (-4095..0).contains(&result) {
                    let source =
                        std::io::Error::from_raw_os_error(-i32::try_from(result).unwrap_or(-5));
                    Err(InjectError::Call { pid: self.tid, what, source })
                } else {
                    Ok(result.cast_unsigned())
                };
            }
        }
    }

    /// Reads the target's memory.
    ///
    /// # Errors
    /// When the address is not mapped or the target is gone.
    pub fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), InjectError> {
        self.memory
            .read_exact_at(buffer, at)
            .map_err(|source| InjectError::Io { pid: self.tid, source })
    }

    /// Writes the target's memory, read-only pages included.
    ///
    /// # Errors
    /// When the address is not mapped or the target is gone.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), InjectError> {
        self.memory
            .write_all_at(bytes, at)
            .map_err(|source| InjectError::Io { pid: self.tid, source })
    }

    /// Where the stopped thread may keep up to 256 bytes for a call: below its stack pointer.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn scratch(&self) -> Result<u64, InjectError> {
        Ok(registers(self.tid)?.rsp - 1024)
    }

    /// Lets the thread go on where it was.
    pub fn finish(mut self) {
        self.detach();
    }

    fn detach(&mut self) {
        if self.attached {
            let _ = self.leave_stub();
            let _ = ptrace(libc::PTRACE_DETACH, self.tid, 0, 0);
            self.attached = false;
        }
    }

    /// Takes the thread out of the stub before letting it go: the stub finds back by itself,
    /// but its room must be free when the next thread is sent there.
    fn leave_stub(&mut self) -> Result<(), InjectError> {
        self.expect_result("restore its signals")?;
        let mut back = self.back;
        back.orig_rax = u64::MAX;
        set_registers(self.tid, &back)
    }
}

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
    let io = |source| InjectError::Io { pid, source };
    // SAFETY: plain system calls; results are checked and owned at once.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if pidfd < 0 {
            return Err(io(std::io::Error::last_os_error()));
        }
        let pidfd = OwnedFd::from_raw_fd(i32::try_from(pidfd).unwrap_or(-1));
        let got = libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0);
        if got < 0 {
            return Err(io(std::io::Error::last_os_error()));
        }
        Ok(OwnedFd::from_raw_fd(i32::try_from(got).unwrap_or(-1)))
    }
}

/// The unused, always zero end of the vDSO: executable and never run by the program.
fn find_room(tid: i32, memory: &File) -> Result<u64, InjectError> {
    let areas = ProcRoot::default().maps(tid)?;
    let Some(vdso) = areas.iter().find(|a| a.name == "[vdso]") else {
        return Err(InjectError::NoRoom(tid));
    };
    // Only the ELF image of the vDSO counts: an earlier stub may lie behind it.
    let mut image = vec![0; usize::try_from(vdso.end - vdso.start).unwrap_or(0)];
    memory
        .read_exact_at(&mut image, vdso.start)
        .map_err(|source| InjectError::Io { pid: tid, source })?;
    let used = (elf_end(&image) + 63) & !63;
    if used == 0 || used + stub::bytes() > image.len() {
        return Err(InjectError::NoRoom(tid));
    }
    Ok(vdso.start + used as u64)
}

/// Where the last byte of an ELF image's sections and headers ends; 0 when it is none.
fn elf_end(image: &[u8]) -> usize {
    let word = |at: usize, n: usize| -> usize {
        image
            .get(at..at + n)
            .map_or(0, |b| b.iter().rev().fold(0usize, |v, &byte| (v << 8) | usize::from(byte)))
    };
    if image.get(..4) != Some(b"\x7fELF") {
        return 0;
    }
    let (sections, size, count) = (word(40, 8), word(58, 2), word(60, 2));
    let mut end = sections + size * count;
    for i in 0..count {
        let header = sections + i * size;
        const NOBITS: usize = 8;
        if word(header + 4, 4) != NOBITS {
            end = end.max(word(header + 24, 8) + word(header + 32, 8));
        }
    }
    end.max(64)
}

fn ptrace(request: libc::c_uint, tid: i32, address: u64, data: u64) -> Result<i64, InjectError> {
    // SAFETY: requests used here take numbers, or pointers to live buffers of ours.
    let r = unsafe { libc::ptrace(request, tid, address, data) };
    if r >= 0 {
        return Ok(r);
    }
    let e = std::io::Error::last_os_error();
    Err(match e.raw_os_error() {
        Some(libc::ESRCH) => InjectError::Gone(tid),
        Some(libc::EPERM) => InjectError::Denied(tid),
        _ => InjectError::Io { pid: tid, source: e },
    })
}

/// Begins to trace a thread, once nobody else does who soon lets go of it.
fn seize(tid: i32) -> Result<(), InjectError> {
    let start = Instant::now();
    loop {
        match ptrace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as u64) {
            Err(InjectError::Denied(_)) if start.elapsed() < HELD_LIMIT => {
                std::thread::sleep(Duration::from_millis(2));
            }
            done => return done.map(|_| ()),
        }
    }
}

/// Waits for the stop that was asked for; a signal that is being delivered first is let
/// through, else the program would never see it.
fn wait_interrupt(tid: i32) -> Result<(), InjectError> {
    loop {
        let status = wait_stop(tid)?;
        if status >> 16 == libc::PTRACE_EVENT_STOP {
            return Ok(());
        }
        let signal = libc::WSTOPSIG(status).cast_unsigned();
        ptrace(libc::PTRACE_CONT, tid, 0, signal.into())?;
    }
}

/// Waits until the thread stops and returns the status. Where it masks every signal, any stop
/// is the one expected.
fn wait_stop(tid: i32) -> Result<i32, InjectError> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(5);
    loop {
        let mut status = 0;
        // SAFETY: `status` is live.
        let r = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if r == tid && libc::WIFSTOPPED(status) {
            return Ok(status);
        }
        if r == tid || (r < 0 && last_errno() != libc::EINTR) {
            return Err(InjectError::Gone(tid));
        }
        if start.elapsed() > STOP_LIMIT {
            return Err(InjectError::Stuck(tid));
        }
        if start.elapsed() > Duration::from_micros(200) {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        } else {
            std::thread::yield_now();
        }
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn registers(tid: i32) -> Result<libc::user_regs_struct, InjectError> {
    // SAFETY: a plain structure of integers.
    let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut regs as u64)?;
    Ok(regs)
}

fn set_registers(tid: i32, regs: &libc::user_regs_struct) -> Result<(), InjectError> {
    ptrace(libc::PTRACE_SETREGS, tid, 0, std::ptr::from_ref(regs) as u64).map(|_| ())
}

fn signal_mask(tid: i32) -> Result<u64, InjectError> {
    const GETSIGMASK: libc::c_uint = 0x420a;
    let mut mask = 0u64;
    ptrace(GETSIGMASK, tid, 8, &raw mut mask as u64)?;
    Ok(mask)
}

fn set_signal_mask(tid: i32, mut mask: u64) -> Result<(), InjectError> {
    const SETSIGMASK: libc::c_uint = 0x420b;
    ptrace(SETSIGMASK, tid, 8, &raw mut mask as u64).map(|_| ())
}

/// The result of the call that the thread is leaving; `None` when it is just entering one or
/// stopped for another reason.
fn call_exit(tid: i32) -> Result<Option<i64>, InjectError> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    const EXIT: u8 = 2;
    let mut info = [0u64; 12];
    ptrace(GET_SYSCALL_INFO, tid, size_of_val(&info) as u64, info.as_mut_ptr() as u64)?;
    let kind = info[0].to_ne_bytes()[0];
    // op and architecture, instruction and stack pointers, then the result.
    Ok((kind == EXIT).then(|| info[3].cast_signed()))
}
