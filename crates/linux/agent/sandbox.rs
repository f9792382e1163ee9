//! Giving up every right that the agent does not need, before the program runs beside it.
//!
//! The agent's threads belong to the program, and the program may rewrite their code and their
//! stacks at any moment. So they must be able to do nothing that the program cannot do itself, now or
//! after it has given up rights of its own: credentials are per thread, and those of our threads do
//! not follow when the program changes its own. They run as a user that no process has where the program
//! may change who it is, without groups and capabilities, may gain none, see no file (Landlock), and are left with
//! the system calls of [`ALLOWED`] (seccomp).

use crate::protocol::{UNPRIVILEGED_ID, WITHOUT_IDS, WITHOUT_LANDLOCK};
use crate::sys;

const CAPGET: u64 = 125;
const CAPSET: u64 = 126;
const SETGROUPS: u64 = 116;
const GETRESUID: u64 = 118;
const SETRESUID: u64 = 117;
const GETRESGID: u64 = 120;
const SETRESGID: u64 = 119;
const LANDLOCK_CREATE: u64 = 444;
const LANDLOCK_RESTRICT: u64 = 446;
const PRCTL: u64 = 157;

const DROP_BOUNDING: u64 = 24;
const NO_NEW_PRIVS: u64 = 38;
const AMBIENT: u64 = 47;
const AMBIENT_CLEAR_ALL: u64 = 4;

/// Gives up all rights of this thread, and of those that it starts; a negated errno when one is left
/// that the program could lose.
pub fn give_up_rights(without: u64) -> i64 {
    let lost = sys::prctl(NO_NEW_PRIVS, 1);
    if lost < 0 {
        return lost;
    }
    if without & WITHOUT_IDS == 0 {
        // This hides the process from its user; the supervisor has hidden it already, and ends that.
        give_up_ids();
        if has_capabilities() {
            return sys::EPERM;
        }
    }
    if without & WITHOUT_LANDLOCK == 0 {
        give_up_files();
    }
    0
}

/// Becomes a user whom nobody is where the program has the right to; where it has not, one of its
/// users and none of the others. Capabilities go last, since the rest takes them.
fn give_up_ids() {
    let id = u64::from(UNPRIVILEGED_ID);
    let mut capability = 0;
    while sys::prctl(DROP_BOUNDING, capability) == 0 {
        capability += 1;
    }
    sys::prctl(AMBIENT, AMBIENT_CLEAR_ALL);
    sys::call3(SETGROUPS, 0, 0, 0);
    if sys::call3(SETRESGID, id, id, id) < 0 {
        settle(GETRESGID, SETRESGID);
    }
    if sys::call3(SETRESUID, id, id, id) < 0 {
        settle(GETRESUID, SETRESUID);
    }
    set_capabilities([0; 6]);
}

/// Keeps the real id alone.
fn settle(get: u64, set: u64) {
    let mut ids = [0u32; 3];
    let at = ids.as_mut_ptr() as u64;
    if sys::call3(get, at, at + 4, at + 8) == 0 {
        let real = u64::from(ids[0]);
        sys::call3(set, real, real, real);
    }
}

const VERSION_3: u32 = 0x2008_0522;

/// Effective, permitted and inheritable, the low words first.
fn set_capabilities(sets: [u32; 6]) -> i64 {
    let header = [VERSION_3, 0];
    sys::call3(CAPSET, header.as_ptr() as u64, sets.as_ptr() as u64, 0)
}

fn has_capabilities() -> bool {
    let (header, mut sets) = ([VERSION_3, 0], [0u32; 6]);
    let r = sys::call3(CAPGET, header.as_ptr() as u64, sets.as_mut_ptr() as u64, 0);
    r < 0 || sets.iter().any(|&set| set != 0)
}

/// No file can be opened by name any more, where the kernel has Landlock: all rights that its
/// version knows are handled, and none is granted.
fn give_up_files() {
    const VERSION: u64 = 1;
    /// Rights of file systems that each version knows, from the first on.
    const RIGHTS: [u32; 5] = [13, 14, 15, 15, 16];
    let version = sys::call3(LANDLOCK_CREATE, 0, 0, VERSION);
    if version < 1 {
        return;
    }
    let last = RIGHTS.len() - 1;
    let at = (version as usize - 1).min(last);
    // SAFETY: `at` is at most the last place.
    let bits = unsafe { *RIGHTS.as_ptr().add(at) };
    let rules = [(1u64 << bits) - 1];
    let set = sys::call3(LANDLOCK_CREATE, rules.as_ptr() as u64, 8, 0);
    if set >= 0 {
        sys::call3(LANDLOCK_RESTRICT, set as u64, 0, 0);
        sys::close(set);
    }
}

/// One instruction of a filter: `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

/// A system call that the agent may go on making: its number, and which of its arguments has to be one of
/// some values (6: none has to be).
struct Allowed(u32, u32, &'static [u32]);

const ANY: u32 = 6;

/// Everything that the agent calls once it runs. What the program could gain by them is what it can do by
/// itself: they act on its own memory and on descriptors that it could have.
const ALLOWED: [Allowed; 21] = [
    Allowed(0, ANY, &[]),       // read: faults, events, commands, the list of areas
    Allowed(3, ANY, &[]),       // close
    Allowed(7, ANY, &[]),       // poll
    Allowed(8, ANY, &[]),       // lseek: the list of areas from its start
    Allowed(10, 2, &[0, 1, 3]), // mprotect, never to make something executable
    Allowed(11, ANY, &[]),      // munmap
    // ioctl: register, unregister, wake, copy, zero page, move, poison; make a userfaultfd
    Allowed(
        16,
        1,
        &[
            0xc020_aa00,
            0x8010_aa01,
            0x8010_aa02,
            0xc028_aa03,
            0xc020_aa04,
            0xc028_aa05,
            0xc020_aa08,
            0xaa00,
        ],
    ),
    Allowed(25, 3, &[1]),  // mremap, never to a fixed address
    Allowed(27, ANY, &[]), // mincore
    // madvise: don't need even if locked, populate for writing, collapse
    Allowed(28, 2, &[23, 24, 25]),
    Allowed(35, ANY, &[]),      // nanosleep
    Allowed(44, 4, &[0]),       // sendto, to nobody by address
    Allowed(46, ANY, &[]),      // sendmsg
    Allowed(47, ANY, &[]),      // recvmsg
    Allowed(60, ANY, &[]),      // exit
    Allowed(150, ANY, &[]),     // munlock
    Allowed(157, 0, &[41, 42]), // prctl: huge pages
    Allowed(186, ANY, &[]),     // gettid
    Allowed(202, ANY, &[]),     // futex
    Allowed(219, ANY, &[]),     // restart_syscall, after a stop
    Allowed(228, ANY, &[]),     // clock_gettime
];

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
/// Refused calls fail with EPERM.
const REFUSE: u32 = 0x0005_0001;
const X86_64: u32 = 0xc000_003e;
/// Where `struct seccomp_data` has the number, the architecture and the arguments.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

const fn load(at: u32) -> Instruction {
    Instruction { code: LOAD, yes: 0, no: 0, k: at }
}

const fn equal(k: u32, yes: u8, no: u8) -> Instruction {
    Instruction { code: JUMP_IF_EQUAL, yes, no, k }
}

const fn give(k: u32) -> Instruction {
    Instruction { code: RETURN, yes: 0, no: 0, k }
}

const fn filter_length() -> usize {
    let (mut n, mut i) = (5, 0);
    while i < ALLOWED.len() {
        let values = ALLOWED[i].2.len();
        n += if ALLOWED[i].1 == ANY { 2 } else { values + 4 };
        i += 1;
    }
    n
}

const FILTER_LENGTH: usize = filter_length();

/// The filter: a list, each entry of which either decides or goes on to the next.
const FILTER: [Instruction; FILTER_LENGTH] = {
    let mut out = [give(REFUSE); FILTER_LENGTH];
    out[0] = load(ARCH_AT);
    out[1] = equal(X86_64, 1, 0);
    out[2] = give(REFUSE);
    out[3] = load(NUMBER_AT);
    let (mut n, mut i) = (4, 0);
    while i < ALLOWED.len() {
        let Allowed(number, argument, values) = ALLOWED[i];
        if argument == ANY {
            out[n] = equal(number, 0, 1);
            out[n + 1] = give(ALLOW);
            n += 2;
        } else {
            let last = values.len();
            out[n] = equal(number, 0, last as u8 + 3);
            out[n + 1] = load(ARGUMENTS_AT + 8 * argument);
            let mut v = 0;
            while v < last {
                out[n + 2 + v] = equal(values[v], (last - v) as u8, 0);
                v += 1;
            }
            out[n + 2 + last] = give(REFUSE);
            out[n + 3 + last] = give(ALLOW);
            n += last + 4;
        }
        i += 1;
    }
    out
};

/// Leaves this thread with the calls of the list.
pub fn give_up_calls() -> i64 {
    const SET_SECCOMP: u64 = 22;
    const FILTER_MODE: u64 = 2;
    let filter = &FILTER;
    let program = [FILTER_LENGTH as u64, filter.as_ptr() as u64];
    // By prctl, which sandboxes allow that know nothing of seccomp(2).
    sys::call3(PRCTL, SET_SECCOMP, FILTER_MODE, program.as_ptr() as u64)
}
