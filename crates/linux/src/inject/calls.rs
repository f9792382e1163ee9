//! The system calls that an injection and the agent make in a target, by the names that a refusal
//! gives them. A target's seccomp filters are judged by this list before anything is done to it.

use super::filters::{CallRefusal, FilterError, Filters, Probe};
use crate::kernel::procfs::{ProcRoot, ProcessStatus};

/// `None` for what is not known in advance.
const ANY: Option<u64> = None;
const NONE: u64 = 0;
const READ: u64 = 1;
const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
/// Flags of mmap(2): private and anonymous; the same without reservation; shared.
const OWN: u64 = 0x22;
const OWN_UNRESERVED: u64 = 0x4022;
const SHARED: u64 = 1;

const fn mmap(name: &'static str, protection: u64, flags: u64) -> Probe {
    Probe::new(name, libc::SYS_mmap, &[Some(0), ANY, Some(protection), Some(flags)])
}

const fn ioctl(name: &'static str, request: u64) -> Probe {
    Probe::new(name, libc::SYS_ioctl, &[ANY, Some(request)])
}

const fn madvise(name: &'static str, advice: u64) -> Probe {
    Probe::new(name, libc::SYS_madvise, &[ANY, ANY, Some(advice)])
}

const fn prctl(name: &'static str, option: u64) -> Probe {
    Probe::new(name, libc::SYS_prctl, &[Some(option)])
}

/// By which a wait with a timeout goes on after a stop.
pub const RESTART: Probe = Probe::new("restart_syscall(2)", libc::SYS_restart_syscall, &[]);

/// Calls that every session makes.
pub const SESSION: &[Probe] = &[
    Probe::new("rt_sigprocmask(2)", libc::SYS_rt_sigprocmask, &[Some(2), ANY, Some(0), Some(8)]),
    mmap("mmap(2)", READ_WRITE, OWN),
    Probe::new("munmap(2)", libc::SYS_munmap, &[]),
    RESTART,
];

/// What [`crate::engine`] asks each thread for, beside those of the session.
pub const THREAD_END: Probe = prctl("prctl(PR_GET_TID_ADDRESS)", 40);

/// Calls that start an agent, and that it makes as long as it runs. Arguments are given as far as they are
/// known: filters tell a new thread from a new namespace by the flags of clone(2).
pub const AGENT: &[Probe] = &[
    THREAD_END,
    mmap("mmap(2) of code", READ_EXECUTE, OWN),
    mmap("mmap(2) of shared memory", READ_WRITE, SHARED),
    mmap("mmap(2) of shared memory", READ, SHARED),
    mmap("mmap(2)", READ_WRITE, OWN_UNRESERVED),
    mmap("mmap(2)", READ, OWN_UNRESERVED),
    mmap("mmap(2)", NONE, OWN_UNRESERVED),
    Probe::new("socketpair(2)", libc::SYS_socketpair, &[Some(1), Some(5 | 0o2_000_000), Some(0)]),
    Probe::new("close(2)", libc::SYS_close, &[]),
    Probe::new("clone(2) of a thread", libc::SYS_clone, &[Some(0x5_0900)]),
    Probe::new("clone(2) of a thread", libc::SYS_clone, &[Some(0x5_0f00)]),
    Probe::new("chdir(2)", libc::SYS_chdir, &[]),
    Probe::new("close_range(2)", libc::SYS_close_range, &[]),
    Probe::new("recvmsg(2)", libc::SYS_recvmsg, &[]),
    Probe::new("sendmsg(2)", libc::SYS_sendmsg, &[]),
    Probe::new("sendto(2)", libc::SYS_sendto, &[]),
    prctl("prctl(PR_GET_DUMPABLE)", 3),
    prctl("prctl(PR_SET_DUMPABLE)", 4),
    prctl("prctl(PR_SET_NAME)", 15),
    prctl("prctl(PR_SET_NO_NEW_PRIVS)", 38),
    prctl("prctl(PR_SET_SECCOMP)", 22),
    prctl("prctl(PR_SET_THP_DISABLE)", 41),
    prctl("prctl(PR_GET_THP_DISABLE)", 42),
    ioctl("ioctl(USERFAULTFD_IOC_NEW)", 0xaa00),
    ioctl("ioctl(UFFDIO_API)", 0xc018_aa3f),
    ioctl("ioctl(UFFDIO_REGISTER)", 0xc020_aa00),
    ioctl("ioctl(UFFDIO_UNREGISTER)", 0x8010_aa01),
    ioctl("ioctl(UFFDIO_WAKE)", 0x8010_aa02),
    ioctl("ioctl(UFFDIO_COPY)", 0xc028_aa03),
    ioctl("ioctl(UFFDIO_ZEROPAGE)", 0xc020_aa04),
    ioctl("ioctl(UFFDIO_MOVE)", 0xc028_aa05),
    ioctl("ioctl(UFFDIO_POISON)", 0xc020_aa08),
    Probe::new("read(2)", libc::SYS_read, &[]),
    Probe::new("poll(2)", libc::SYS_poll, &[]),
    Probe::new("lseek(2)", libc::SYS_lseek, &[ANY, Some(0), Some(0)]),
    Probe::new("mprotect(2)", libc::SYS_mprotect, &[ANY, ANY, Some(NONE)]),
    Probe::new("mprotect(2)", libc::SYS_mprotect, &[ANY, ANY, Some(READ)]),
    Probe::new("mprotect(2)", libc::SYS_mprotect, &[ANY, ANY, Some(READ_WRITE)]),
    Probe::new("mincore(2)", libc::SYS_mincore, &[]),
    madvise("madvise(MADV_DONTNEED)", 4),
    madvise("madvise(MADV_DONTFORK)", 10),
    madvise("madvise(MADV_NOHUGEPAGE)", 15),
    madvise("madvise(MADV_DONTDUMP)", 16),
    madvise("madvise(MADV_POPULATE_WRITE)", 23),
    madvise("madvise(MADV_DONTNEED_LOCKED)", 24),
    madvise("madvise(MADV_COLLAPSE)", 25),
    Probe::new("nanosleep(2)", libc::SYS_nanosleep, &[]),
    Probe::new("futex(2)", libc::SYS_futex, &[]),
    Probe::new("clock_gettime(2)", libc::SYS_clock_gettime, &[]),
    Probe::new("gettid(2)", libc::SYS_gettid, &[]),
    Probe::new("exit(2)", libc::SYS_exit, &[]),
];

/// Calls by which the agent becomes nobody: only where the program could, are they needed.
pub const IDS: &[Probe] = &[
    Probe::new("setgroups(2)", libc::SYS_setgroups, &[Some(0)]),
    Probe::new("setresgid(2)", libc::SYS_setresgid, &[]),
    Probe::new("setresuid(2)", libc::SYS_setresuid, &[]),
    Probe::new("capset(2)", libc::SYS_capset, &[]),
    Probe::new("capget(2)", libc::SYS_capget, &[]),
    prctl("prctl(PR_CAPBSET_DROP)", 24),
    prctl("prctl(PR_CAP_AMBIENT)", 47),
    Probe::new("getresuid(2)", libc::SYS_getresuid, &[]),
    Probe::new("getresgid(2)", libc::SYS_getresgid, &[]),
];

/// Calls that locked memory takes: without them its pages stay where they are. Without `mremap` areas may be cut
/// in two, too.
pub const LOCKS: &[Probe] = &[
    Probe::new("munlock(2)", libc::SYS_munlock, &[]),
    Probe::new("mremap(2)", libc::SYS_mremap, &[ANY, ANY, ANY, Some(1)]),
    Probe::new("mlock2(2)", libc::SYS_mlock2, &[ANY, ANY, Some(1)]),
];

/// Calls that the agent can do without.
pub const LANDLOCK: &[Probe] = &[
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
    /// Locks on memory.
    pub locks: bool,
}

/// Whether an agent can run in a thread that is stopped and traced by us, and what it does without.
///
/// # Errors
/// When its filters cannot be read.
pub fn judge_agent(
    status: &ProcessStatus,
    tid: i32,
) -> Result<Result<Without, CallRefusal>, FilterError> {
    let filters = Filters::read(&ProcRoot::default(), tid)?;
    let ids = filters.refusal(IDS);
    let needs_ids = status.capabilities != 0;
    if let Some(refusal) = filters.refusal(AGENT).or(ids.filter(|_| needs_ids)) {
        return Ok(Err(refusal));
    }
    Ok(Ok(Without {
        landlock: filters.refusal(LANDLOCK).is_some(),
        ids: ids.is_some(),
        locks: filters.refusal(LOCKS).is_some(),
    }))
}
