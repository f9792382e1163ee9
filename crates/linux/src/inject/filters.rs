//! The seccomp filters of a target: reading them, and whether they would deny given system calls.
//!
//! The kernel hands out the filters of a thread to its tracer, as the classic BPF programs that were
//! installed. [`bpf`] runs these over the calls that are to be made. An argument that is not known in
//! advance (an address, a descriptor) counts as any value: a filter that denies the call for one value
//! of it denies the call. Nothing here stops, resumes or changes a thread.

pub mod bpf;

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use self::bpf::{Answer, BpfProgram, Data, ProgramError};
use crate::kernel::procfs::{ProcError, ProcRoot};

/// Most filters read of a thread. The kernel bounds the sum of their lengths at 32,768 instructions,
/// each filter counted with 4 more: none can have more filters than this.
const MAX_FILTERS: u64 = 32_768 / 5;
/// `PTRACE_SECCOMP_GET_FILTER`.
const GET_FILTER: super::request::PtraceRequest = 0x420c;

/// Why the filters of a thread are not known.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The kernel shows filters only to a tracer with CAP_SYS_ADMIN that has no filter itself.
    #[error(
        "not allowed to read the seccomp filters of process {0}; run huepage as root, outside a container or sandbox"
    )]
    Denied(i32),
    /// The kernel is built without CONFIG_CHECKPOINT_RESTORE.
    #[error(
        "this kernel does not show the seccomp filters of process {0}; start the program with `huepage run`"
    )]
    Unsupported(i32),
    /// The thread ended.
    #[error("process {0} ended during the attach; nothing was left behind, start it again")]
    Gone(i32),
    /// ptrace failed in another way.
    #[error("cannot read the seccomp filters of process {tid}: {source}; try again")]
    Io {
        /// The thread.
        tid: i32,
        /// What the kernel said.
        source: io::Error,
    },
    /// A filter is not what the kernel accepts.
    #[error(
        "a seccomp filter of process {tid} makes no sense ({source}); report it as a bug of huepage"
    )]
    Program {
        /// The thread.
        tid: i32,
        /// What is wrong.
        source: ProgramError,
    },
    /// `/proc` does not answer.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// A system call that is to be made in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What a refusal calls it, such as `userfaultfd(2)` or `ioctl(UFFDIO_MOVE)`.
    pub name: &'static str,
    /// The number of the call on x86-64.
    pub number: i64,
    /// Its six arguments; `None` stands for every value.
    pub arguments: [Option<u64>; 6],
    /// The address behind the `syscall` instruction; `None` stands for every address.
    pub instruction_pointer: Option<u64>,
}

impl Probe {
    /// A call with these first arguments; those that follow are unknown.
    pub const fn new(name: &'static str, number: i64, known: &[Option<u64>]) -> Probe {
        let mut arguments = [None; 6];
        let mut i = 0;
        while i < known.len() && i < 6 {
            arguments[i] = known[i];
            i += 1;
        }
        Probe { name, number, arguments, instruction_pointer: None }
    }
}

/// What the kernel does with a call, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterAction {
    /// The process is killed; also the answer to an action that the kernel does not know.
    KillProcess,
    /// The thread is killed.
    KillThread,
    /// The thread gets SIGSYS.
    Trap,
    /// The call fails.
    Errno,
    /// Another process decides.
    Notify,
    /// A tracer decides; without one the call fails with ENOSYS.
    Trace,
    /// The call is made and logged.
    Log,
    /// The call is made.
    Allow,
}

impl FilterAction {
    /// Whether the call is made as if there were no filter.
    pub fn permits(self) -> bool {
        matches!(self, FilterAction::Allow | FilterAction::Log)
    }

    /// What happens to the call, as a verb with its object.
    fn effect(self) -> &'static str {
        match self {
            FilterAction::KillProcess | FilterAction::KillThread => "kills the program for",
            FilterAction::Trap => "sends a signal for",
            FilterAction::Errno | FilterAction::Trace => "denies",
            FilterAction::Notify => "asks another process about",
            FilterAction::Log | FilterAction::Allow => "permits",
        }
    }
}

/// A call that the target's filters do not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRefusal {
    /// The call's name, as in its [`Probe`].
    pub call: &'static str,
    /// What the kernel would do.
    pub action: FilterAction,
}

impl fmt::Display for CallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seccomp {} {}", self.action.effect(), self.call)
    }
}

/// What seccomp does in one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filters {
    /// Strict mode: read, write, _exit and rt_sigreturn, nothing else.
    Strict,
    /// Programs, the oldest first; none if there is no seccomp.
    Programs(Vec<BpfProgram>),
}

impl Filters {
    /// Reads what seccomp does in thread `tid`, which the calling thread traces and which is stopped.
    ///
    /// # Errors
    /// When the thread is gone or running, or the kernel does not show its filters to us: the caller must
    /// not make its calls then.
    pub fn read(root: &ProcRoot, tid: i32) -> Result<Filters, FilterError> {
        match root.status(tid)?.seccomp {
            0 => Ok(Filters::Programs(Vec::new())),
            1 => Ok(Filters::Strict),
            _ => read_all(tid).map(Filters::Programs),
        }
    }

    /// What the kernel would do with a call.
    pub fn action(&self, probe: &Probe) -> FilterAction {
        match self {
            Filters::Strict => strict(probe.number),
            Filters::Programs(all) => {
                let data = Data::of(probe);
                strongest(&all.iter().map(|program| program.answers(&data)).collect::<Vec<_>>())
            }
        }
    }

    /// The first of these calls that is not permitted.
    pub fn refusal(&self, calls: &[Probe]) -> Option<CallRefusal> {
        let judged = calls.iter().map(|call| (call.name, self.action(call)));
        let mut refused = judged.filter(|(_, action)| !action.permits());
        refused.next().map(|(call, action)| CallRefusal { call, action })
    }
}

/// The strongest action that the kernel may take where each filter gives one of some answers. The lowest
/// answer decides, so one above the highest of another filter never does.
fn strongest(filters: &[BTreeSet<Answer>]) -> FilterAction {
    let lowest = filters.iter().filter_map(|answers| answers.last()).min();
    let Some(limit) = lowest else { return FilterAction::Allow };
    let possible = filters.iter().flatten().filter(|&answer| answer <= limit);
    possible.map(|answer| answer.action()).min().unwrap_or(FilterAction::Allow)
}

fn strict(number: i64) -> FilterAction {
    let permitted = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
    if permitted.contains(&number) { FilterAction::Allow } else { FilterAction::KillThread }
}

fn read_all(tid: i32) -> Result<Vec<BpfProgram>, FilterError> {
    let mut all = Vec::new();
    for index in 0..MAX_FILTERS {
        let Some(words) = read_filter(tid, index)? else { break };
        let program = BpfProgram::new(words);
        all.push(program.map_err(|source| FilterError::Program { tid, source })?);
    }
    Ok(all)
}

/// The instructions of filter `index`, 0 being the oldest; `None` behind the last one.
fn read_filter(tid: i32, index: u64) -> Result<Option<Vec<bpf::Insn>>, FilterError> {
    let mut buffer = vec![bpf::Insn::default(); bpf::MAX_INSNS];
    // SAFETY: the kernel writes at most BPF_MAXINSNS (4096) instructions of 8 bytes, the size of the
    // buffer, whatever the target installed: it refuses longer programs at their installation.
    let n = unsafe { libc::ptrace(GET_FILTER, tid, index, buffer.as_mut_ptr()) };
    if n >= 0 {
        buffer.truncate(usize::try_from(n).unwrap_or(0));
        return Ok(Some(buffer));
    }
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::ENOENT) => Ok(None),
        Some(libc::EACCES | libc::EPERM) => Err(FilterError::Denied(tid)),
        // EINVAL: the thread has no filter any more, which cannot be; or no such request.
        Some(libc::EINVAL | libc::EIO) => Err(FilterError::Unsupported(tid)),
        Some(libc::ESRCH) => Err(FilterError::Gone(tid)),
        _ => Err(FilterError::Io { tid, source }),
    }
}

#[cfg(test)]
mod tests;
