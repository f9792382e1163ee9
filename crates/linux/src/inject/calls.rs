//! The system calls that an injection and the agent make in a target, by the names that a refusal
//! gives them. A target's seccomp filters are judged by this list before anything is done to it.

use super::filters::{FilterError, Filters, Probe, Refusal};
use crate::procfs::{ProcRoot, Status};

/// Calls that every session makes.
const SESSION: &[Probe] = &[
    Probe::new("rt_sigprocmask(2)", libc::SYS_rt_sigprocmask, &[Some(2)]),
    Probe::new("mmap(2)", libc::SYS_mmap, &[Some(0), None, Some(3)]),
    Probe::new("munmap(2)", libc::SYS_munmap, &[]),
];

/// What [`crate::engine`] asks each thread for, beside those of the session.
pub const THREAD_END: Probe = Probe::new("prctl(PR_GET_TID_ADDRESS)", libc::SYS_prctl, &[Some(40)]);

/// Calls that start an agent, and that it makes as long as it runs.
const AGENT: &[Probe] = &[
    THREAD_END,
    Probe::new("mmap(2) of code", libc::SYS_mmap, &[Some(0), None, Some(5)]),
    Probe::new("socketpair(2)", libc::SYS_socketpair, &[Some(1)]),
    Probe::new("close(2)", libc::SYS_close, &[]),
    Probe::new("clone(2) of a thread", libc::SYS_clone, &[]),
    Probe::new("close_range(2)", libc::SYS_close_range, &[]),
    Probe::new("recvmsg(2)", libc::SYS_recvmsg, &[]),
    Probe::new("sendmsg(2)", libc::SYS_sendmsg, &[]),
    Probe::new("sendto(2)", libc::SYS_sendto, &[]),
    Probe::new("prctl(PR_SET_NO_NEW_PRIVS)", libc::SYS_prctl, &[Some(38)]),
    Probe::new("prctl(PR_SET_SECCOMP)", libc::SYS_prctl, &[Some(22)]),
    Probe::new("prctl(PR_SET_THP_DISABLE)", libc::SYS_prctl, &[Some(41)]),
    Probe::new("prctl(PR_GET_THP_DISABLE)", libc::SYS_prctl, &[Some(42)]),
    Probe::new("ioctl(USERFAULTFD_IOC_NEW)", libc::SYS_ioctl, &[None, Some(0xaa00)]),
    Probe::new("ioctl(UFFDIO_API)", libc::SYS_ioctl, &[None, Some(0xc018_aa3f)]),
    Probe::new("ioctl(UFFDIO_REGISTER)", libc::SYS_ioctl, &[None, Some(0xc020_aa00)]),
    Probe::new("ioctl(UFFDIO_UNREGISTER)", libc::SYS_ioctl, &[None, Some(0x8010_aa01)]),
    Probe::new("ioctl(UFFDIO_WAKE)", libc::SYS_ioctl, &[None, Some(0x8010_aa02)]),
    Probe::new("ioctl(UFFDIO_COPY)", libc::SYS_ioctl, &[None, Some(0xc028_aa03)]),
    Probe::new("ioctl(UFFDIO_ZEROPAGE)", libc::SYS_ioctl, &[None, Some(0xc020_aa04)]),
    Probe::new("ioctl(UFFDIO_MOVE)", libc::SYS_ioctl, &[None, Some(0xc028_aa05)]),
    Probe::new("ioctl(UFFDIO_POISON)", libc::SYS_ioctl, &[None, Some(0xc020_aa08)]),
    Probe::new("read(2)", libc::SYS_read, &[]),
    Probe::new("poll(2)", libc::SYS_poll, &[]),
    Probe::new("lseek(2)", libc::SYS_lseek, &[]),
    Probe::new("mprotect(2)", libc::SYS_mprotect, &[None, None, Some(3)]),
    Probe::new("mincore(2)", libc::SYS_mincore, &[]),
    Probe::new("madvise(MADV_DONTNEED)", libc::SYS_madvise, &[None, None, Some(4)]),
    Probe::new("madvise(MADV_DONTFORK)", libc::SYS_madvise, &[None, None, Some(10)]),
    Probe::new("madvise(MADV_POPULATE_WRITE)", libc::SYS_madvise, &[None, None, Some(23)]),
    Probe::new("nanosleep(2)", libc::SYS_nanosleep, &[]),
    Probe::new("futex(2)", libc::SYS_futex, &[]),
    Probe::new("clock_gettime(2)", libc::SYS_clock_gettime, &[]),
    Probe::new("exit(2)", libc::SYS_exit, &[]),
];

/// Calls by which the agent becomes nobody: only where the program could, are they needed.
const IDS: &[Probe] = &[
    Probe::new("setgroups(2)", libc::SYS_setgroups, &[]),
    Probe::new("setresgid(2)", libc::SYS_setresgid, &[]),
    Probe::new("setresuid(2)", libc::SYS_setresuid, &[]),
    Probe::new("capset(2)", libc::SYS_capset, &[]),
    Probe::new("capget(2)", libc::SYS_capget, &[]),
    Probe::new("prctl(PR_CAPBSET_DROP)", libc::SYS_prctl, &[Some(24)]),
    Probe::new("prctl(PR_CAP_AMBIENT)", libc::SYS_prctl, &[Some(47)]),
    Probe::new("prctl(PR_GET_DUMPABLE)", libc::SYS_prctl, &[Some(3)]),
    Probe::new("prctl(PR_SET_DUMPABLE)", libc::SYS_prctl, &[Some(4)]),
    Probe::new("getresuid(2)", libc::SYS_getresuid, &[]),
    Probe::new("getresgid(2)", libc::SYS_getresgid, &[]),
];

/// Calls that the agent can do without.
const LANDLOCK: &[Probe] = &[
    Probe::new("landlock_create_ruleset(2)", libc::SYS_landlock_create_ruleset, &[]),
    Probe::new("landlock_restrict_self(2)", libc::SYS_landlock_restrict_self, &[]),
];

/// What an agent in some thread has to do without, since filters forbid it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Landlock.
    pub landlock: bool,
    /// Changing who it is.
    pub ids: bool,
}

/// Whether a session may make its calls, and one more, in a thread that is stopped and traced by us.
///
/// # Errors
/// When its filters cannot be read.
pub fn refused_session(
    status: &Status,
    tid: i32,
    more: &[Probe],
) -> Result<Option<Refusal>, FilterError> {
    if status.seccomp == 0 {
        return Ok(None);
    }
    let filters = Filters::of(&ProcRoot::default(), tid)?;
    Ok(filters.refusal(SESSION).or_else(|| filters.refusal(more)))
}

/// Whether an agent can run in a thread that is stopped and traced by us, and what it does without.
///
/// # Errors
/// When its filters cannot be read.
pub fn judge_agent(status: &Status, tid: i32) -> Result<Result<Without, Refusal>, FilterError> {
    if status.seccomp == 0 {
        return Ok(Ok(Without::default()));
    }
    let filters = Filters::of(&ProcRoot::default(), tid)?;
    let ids = filters.refusal(IDS);
    let needs_ids = status.capabilities != 0;
    if let Some(refusal) = filters.refusal(AGENT).or(ids.filter(|_| needs_ids)) {
        return Ok(Err(refusal));
    }
    Ok(Ok(Without { landlock: filters.refusal(LANDLOCK).is_some(), ids: ids.is_some() }))
}
