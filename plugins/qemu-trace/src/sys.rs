//! The few functions of the C library that are called directly; no crate is used.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

pub const O_RDWR: c_int = 2;
pub const O_CLOEXEC: c_int = 0o2_000_000;
pub const PROT_READ_WRITE: c_int = 3;
pub const MAP_SHARED: c_int = 1;
pub const X_OK: c_int = 1;
pub const ESRCH: i32 = 3;

const SYS_FUTEX: c_long = 202;
const FUTEX_WAIT: c_int = 0;
const FUTEX_WAKE: c_int = 1;

/// `struct iovec`.
#[repr(C)]
pub struct IoVec {
    /// First byte.
    pub base: *mut c_void,
    /// Bytes.
    pub len: usize,
}

/// `Dl_info`.
#[repr(C)]
pub struct DlInfo {
    /// The file of the library, as it was given when it was loaded.
    pub file: *const c_char,
    rest: [*const c_void; 3],
}

impl DlInfo {
    /// Nothing known.
    pub const EMPTY: DlInfo = DlInfo { file: std::ptr::null(), rest: [std::ptr::null(); 3] };
}

#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

#[rustfmt::skip]
unsafe extern "C" {
    pub fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub fn close(fd: c_int) -> c_int;
    pub fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    pub fn getpid() -> c_int;
    pub fn kill(pid: c_int, signal: c_int) -> c_int;
    pub fn access(path: *const c_char, mode: c_int) -> c_int;
    pub fn execve(path: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int;
    pub fn process_vm_readv(pid: c_int, local: *const IoVec, n: usize, remote: *const IoVec, m: usize, flags: usize) -> isize;
    pub fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// Waits while `word` is `seen`, at most `ms` milliseconds.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, seen: u32, ms: i64) {
    let limit = TimeSpec { seconds: ms / 1000, nanoseconds: ms % 1000 * 1_000_000 };
    // SAFETY: the word and the time are live during the call.
    unsafe { syscall(SYS_FUTEX, word.as_ptr(), FUTEX_WAIT, seen as c_uint, &raw const limit) };
}

/// Wakes up to `count` that wait on `word`.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32, count: c_int) {
    // SAFETY: the word is live during the call.
    unsafe { syscall(SYS_FUTEX, word.as_ptr(), FUTEX_WAKE, count) };
}
