//! The few requests of ptrace(2) that injection needs, and waiting for a traced thread without
//! taking its end from whoever else waits for that.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use super::calls::RESTART;
use super::filters::Filters;
use super::request::PtraceRequest;
use super::{InjectError, stub};
use crate::kernel::procfs::ProcRoot;

/// How long a thread may take to stop.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long another supervisor may hold a process that is to be stopped; see [`super::hold`].
const HELD_LIMIT: Duration = Duration::from_millis(100);
/// What a thread stops for when it enters or leaves a system call, as we ask to be told.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// How often a thread that nobody traces is tried to be traced, if that is refused.
const REFUSALS: u32 = 3;
/// How long to wait for a stop without sleeping: most stops come sooner.
const SPIN_LIMIT: Duration = Duration::from_micros(200);

pub(super) fn ptrace(
    request: PtraceRequest,
    tid: i32,
    address: u64,
    data: u64,
) -> Result<i64, InjectError> {
    raw(request, tid, address, data).map_err(|source| match source.raw_os_error() {
        Some(libc::ESRCH) => InjectError::Gone(tid),
        Some(libc::EPERM) => InjectError::Denied(tid),
        _ => InjectError::Io { pid: tid, source },
    })
}

pub(super) fn raw(request: PtraceRequest, tid: i32, address: u64, data: u64) -> io::Result<i64> {
    // SAFETY: requests used here and in `launch` take numbers, or pointers to live buffers of ours.
    let r = unsafe { libc::ptrace(request, tid, address, data) };
    if r >= 0 { Ok(r) } else { Err(io::Error::last_os_error()) }
}

/// A thread that this thread traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tracee {
    pub tid: i32,
    /// It is a child of ours: its end is for others of ours to collect. The end of any other must
    /// be collected here first, before its parent learns of it.
    pub is_child: bool,
}

impl Tracee {
    /// Whether it is a child is read from `/proc`.
    pub fn new(root: &ProcRoot, tid: i32) -> Tracee {
        let own = std::process::id().cast_signed();
        let is_child = root.status(tid).is_ok_and(|s| s.ppid == own && s.tgid == tid);
        Tracee { tid, is_child }
    }

    /// Begins to trace it, once nobody else does who soon lets go of it.
    pub fn seize(self) -> Result<(), InjectError> {
        let start = Instant::now();
        loop {
            match self.seize_now(libc::PTRACE_O_TRACESYSGOOD) {
                Err(InjectError::Denied(_)) if start.elapsed() < HELD_LIMIT => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                done => return done,
            }
        }
    }

    /// Begins to trace it, unless somebody else does. A thread that executes another program gets the
    /// number of its process: one that this thread traces has another number then, and one with the
    /// number of the old leader is refused, but not the next time.
    pub fn seize_now(self, options: i32) -> Result<(), InjectError> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        for _ in 0..REFUSALS {
            match ptrace(libc::PTRACE_SEIZE, self.tid, 0, u64::from(options.unsigned_abs())) {
                Err(InjectError::Denied(_)) => {}
                done => return done.map(|_| ()),
            }
            match ProcRoot::default().status(self.tid).map(|status| status.tracer) {
                Ok(tracer) if tracer == own => return Ok(()),
                Ok(0) => {}
                _ => break,
            }
        }
        Err(InjectError::Denied(self.tid))
    }

    /// Has it stop as soon as it leaves the kernel.
    pub fn interrupt(self) -> Result<(), InjectError> {
        ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0).map(|_| ())
    }

    /// Lets it go on without us; an error only if it is gone.
    pub fn detach(self) -> Result<(), InjectError> {
        self.spare_restart();
        ptrace(libc::PTRACE_DETACH, self.tid, 0, 0).map(|_| ())
    }

    /// The kernel continues a wait with a timeout that our stop interrupted by restart_syscall(2). Where the thread's
    /// filters forbid that, which kills as a rule, the wait begins anew.
    fn spare_restart(self) {
        let Some(anew) = self.registers().ok().and_then(|regs| stub::anew(&regs)) else { return };
        let filters = Filters::read(&ProcRoot::default(), self.tid);
        if !filters.is_ok_and(|filters| filters.action(&RESTART).permits()) {
            // It is gone if this fails.
            let _ = self.set_registers(&anew);
        }
    }

    /// Lets it go on if it has stopped as it was told; whether that is done, or it has ended.
    pub fn release(self) -> bool {
        match self.poll_stop() {
            Ok(Some(why)) if is_interrupt(why) || why == CALL_STOP => self.detach().is_ok(),
            Ok(Some(why)) => self.pass_signal(why).is_err(),
            Ok(None) => !self.is_traced(),
            Err(_) => true,
        }
    }

    /// Whether this thread traces it still, which was told to stop: one that executed another program
    /// may have its number by now.
    fn is_traced(self) -> bool {
        self.interrupt().is_ok()
    }

    /// Lets it run until it enters or leaves a system call.
    pub fn step_call(self) -> Result<(), InjectError> {
        ptrace(libc::PTRACE_SYSCALL, self.tid, 0, 0).map(|_| ())
    }

    /// Why it has stopped since the last call (the event times 256, plus the signal); `None` while it
    /// runs. Its end is left to its parent.
    ///
    /// # Errors
    /// When it has ended.
    pub fn poll_stop(self) -> Result<Option<i32>, InjectError> {
        // A look first: to wait for an end takes stops, too.
        let any = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let Some(seen) = self.wait_for(any)? else { return Ok(None) };
        if seen.trapped() {
            let _ = self.wait_for(WaitIdOptions::STOPPED);
            return Ok(seen.trapping_signal());
        }
        if !is_end(&seen) {
            return Ok(None);
        }
        self.collect_end();
        Err(InjectError::Gone(self.tid))
    }

    /// Learns of its end if it has ended: its parent does once its tracer knows. A stop is left to be
    /// heard of.
    pub fn collect_end(self) {
        let seen = self.wait_for(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        if !self.is_child && seen.is_ok_and(|seen| seen.as_ref().is_some_and(is_end)) {
            let _ = self.wait_for(WaitIdOptions::EXITED);
        }
    }

    fn wait_for(self, kind: WaitIdOptions) -> Result<Option<WaitIdStatus>, InjectError> {
        let gone = InjectError::Gone(self.tid);
        let Some(pid) = Pid::from_raw(self.tid) else { return Err(gone) };
        let options = kind | WaitIdOptions::NOHANG;
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options)).map_err(|_| gone)
    }

    /// Waits until it stops, at most [`STOP_LIMIT`], and returns why; see [`Self::poll_stop`].
    ///
    /// # Errors
    /// When it has ended, or does not stop in time.
    pub fn wait_stop(self) -> Result<i32, InjectError> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(5);
        loop {
            if let Some(why) = self.poll_stop()? {
                return Ok(why);
            }
            if start.elapsed() > STOP_LIMIT {
                return Err(InjectError::Stuck(self.tid));
            }
            if start.elapsed() > SPIN_LIMIT {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for the stop that [`Self::interrupt`] asked for. A signal that is being delivered
    /// first is let through, else the program would never see it.
    ///
    /// # Errors
    /// As [`Self::wait_stop`].
    pub fn wait_interrupt(self) -> Result<(), InjectError> {
        loop {
            let why = self.wait_stop()?;
            if is_interrupt(why) {
                return Ok(());
            }
            self.pass_signal(why)?;
        }
    }

    /// Delivers the signal whose delivery it has stopped for.
    pub fn pass_signal(self, why: i32) -> Result<(), InjectError> {
        let signal = u64::from((why & 0x7f).unsigned_abs());
        ptrace(libc::PTRACE_CONT, self.tid, 0, signal).map(|_| ())
    }

    pub fn registers(self) -> Result<libc::user_regs_struct, InjectError> {
        // SAFETY: a plain structure of integers.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, self.tid, 0, &raw mut regs as u64)?;
        Ok(regs)
    }

    pub fn set_registers(self, regs: &libc::user_regs_struct) -> Result<(), InjectError> {
        ptrace(libc::PTRACE_SETREGS, self.tid, 0, std::ptr::from_ref(regs) as u64).map(|_| ())
    }

    pub fn signal_mask(self) -> Result<u64, InjectError> {
        const GETSIGMASK: PtraceRequest = 0x420a;
        let mut mask = 0u64;
        ptrace(GETSIGMASK, self.tid, 8, &raw mut mask as u64)?;
        Ok(mask)
    }

    pub fn set_signal_mask(self, mut mask: u64) -> Result<(), InjectError> {
        const SETSIGMASK: PtraceRequest = 0x420b;
        ptrace(SETSIGMASK, self.tid, 8, &raw mut mask as u64).map(|_| ())
    }

    /// Where it is and the result of the call that it is leaving; `None` when it is just entering one
    /// or stopped for another reason.
    pub fn call_exit(self) -> Result<Option<(u64, i64)>, InjectError> {
        const GET_SYSCALL_INFO: PtraceRequest = 0x420e;
        const EXIT: u8 = 2;
        let mut info = [0u64; 12];
        let at = info.as_mut_ptr() as u64;
        ptrace(GET_SYSCALL_INFO, self.tid, size_of_val(&info) as u64, at)?;
        let kind = info[0].to_ne_bytes()[0];
        // op and architecture, instruction and stack pointers, then the result.
        Ok((kind == EXIT).then(|| (info[1], info[3].cast_signed())))
    }

    /// Where it registered its area for restartable sequences, and the signature of their abort
    /// handlers; `None` if it has none or the kernel cannot tell.
    pub fn rseq_area(self) -> Option<(u64, u32)> {
        const GET_RSEQ_CONFIGURATION: PtraceRequest = 0x420f;
        let mut words = [0u64; 3];
        let (size, at) = (size_of_val(&words) as u64, words.as_mut_ptr() as u64);
        ptrace(GET_RSEQ_CONFIGURATION, self.tid, size, at).ok()?;
        let signature = (words[1] >> 32) as u32;
        (words[0] != 0).then_some((words[0], signature))
    }
}

fn is_end(seen: &WaitIdStatus) -> bool {
    seen.exited() || seen.killed() || seen.dumped()
}

/// Threads that were told to stop, and whether each has.
#[derive(Default)]
pub(super) struct Held(pub BTreeMap<Tracee, bool>);

impl Held {
    /// Waits for those that have not stopped yet. A signal that is being delivered first is let through.
    pub fn await_stops(&mut self, until: Instant) {
        loop {
            self.0.retain(|thread, stopped| {
                match thread.poll_stop() {
                    Ok(Some(why)) if is_interrupt(why) => *stopped = true,
                    Ok(Some(why)) => _ = thread.pass_signal(why),
                    Ok(None) => return *stopped || thread.is_traced(),
                    Err(_) => return false,
                }
                true
            });
            if self.0.values().all(|&stopped| stopped) || Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Lets all go, those that have not stopped yet as soon as they do; those that did not within the limit.
    /// The ends of those that were killed are collected, or nobody hears of them.
    pub fn release(&mut self, limit: Duration) -> Vec<Tracee> {
        let until = Instant::now() + limit;
        let mut rest = std::mem::take(&mut self.0);
        loop {
            rest.retain(|&thread, &mut stopped| {
                !(stopped && thread.detach().is_ok() || thread.release())
            });
            if rest.is_empty() || Instant::now() > until {
                return rest.into_keys().collect();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Whether a stop is the one that [`Tracee::interrupt`] asks for.
pub(super) fn is_interrupt(why: i32) -> bool {
    why >> 8 == libc::PTRACE_EVENT_STOP
}
