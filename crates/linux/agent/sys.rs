//! System calls of the agent, straight from the processor: there is no libc in here.
//!
//! Every wrapper returns what the kernel returned: a value, or a negated errno.

use core::arch::asm;

pub const EAGAIN: i64 = -11;
pub const ENOENT: i64 = -2;
pub const ESRCH: i64 = -3;
pub const EINTR: i64 = -4;
pub const EBUSY: i64 = -16;
pub const EEXIST: i64 = -17;

pub const PAGE: u64 = 4096;

/// # Safety
/// The call must be sound for the arguments given; they are passed on unchecked.
pub unsafe fn call(n: u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    let r: i64;
    // SAFETY: the kernel preserves all registers but the three named here.
    unsafe {
        asm!("syscall", inlateout("rax") n => r, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    r
}

/// Calls that touch no memory but their own arguments.
pub fn call3(n: u64, a: u64, b: u64, c: u64) -> i64 {
    // SAFETY: used only with calls whose pointers refer to live memory of the agent.
    unsafe { call(n, a, b, c, 0, 0, 0) }
}

pub fn read(fd: i64, buffer: *mut u8, len: usize) -> i64 {
    call3(0, fd as u64, buffer as u64, len as u64)
}

/// Goes back to the start of a file.
pub fn rewind(fd: i64) -> i64 {
    call3(8, fd as u64, 0, 0)
}

pub fn close(fd: i64) -> i64 {
    call3(3, fd as u64, 0, 0)
}

pub fn poll(fds: *mut PollFd, n: usize, timeout_ms: i32) -> i64 {
    call3(7, fds as u64, n as u64, timeout_ms as u64)
}

pub fn ioctl<T>(fd: i64, request: u64, argument: *mut T) -> i64 {
    call3(16, fd as u64, request, argument as u64)
}

pub fn madvise(start: u64, len: u64, advice: u64) -> i64 {
    call3(28, start, len, advice)
}

pub fn munmap(start: u64, len: u64) -> i64 {
    call3(11, start, len, 0)
}

pub fn mmap(len: u64, prot: u64, flags: u64, fd: i64) -> i64 {
    // SAFETY: no fixed address is ever asked for, so nothing of the target is replaced.
    unsafe { call(9, 0, len, prot, flags, fd as u64, 0) }
}

pub fn prctl(option: u64, a: u64) -> i64 {
    // SAFETY: the options used take a number or a live string.
    unsafe { call(157, option, a, 0, 0, 0, 0) }
}

/// Whether the kernel may make huge pages in this process at all.
pub fn allow_huge_pages(allow: bool) -> i64 {
    const SET_THP_DISABLE: u64 = 41;
    prctl(SET_THP_DISABLE, u64::from(!allow))
}

pub fn gettid() -> i64 {
    call3(186, 0, 0, 0)
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> i64 {
    clock_ns(1)
}

/// Nanoseconds that this thread has spent on a CPU.
pub fn cpu_ns() -> i64 {
    clock_ns(3)
}

fn clock_ns(clock: u64) -> i64 {
    let mut time = [0i64; 2];
    call3(228, clock, time.as_mut_ptr() as u64, 0);
    time[0] * 1_000_000_000 + time[1]
}

/// Bytes from `start` on, up to `len`, whose pages are all there, or all missing. Looks at the
/// first 2 MiB only. For private memory of ours; 0 if the kernel cannot tell.
pub fn leading(start: u64, len: u64, there: bool) -> u64 {
    let mut pages = [0u8; 512];
    let len = if len > 512 * PAGE { 512 * PAGE } else { len };
    if call3(27, start, len, pages.as_mut_ptr() as u64) != 0 {
        return 0;
    }
    let mut n = 0;
    // SAFETY: `n` is below the number of pages asked about, at most 512.
    while n < len / PAGE && unsafe { *pages.as_ptr().add(n as usize) } & 1 == u8::from(there) {
        n += 1;
    }
    n * PAGE
}

pub fn sleep_us(us: u64) {
    let time = [0u64, us * 1000];
    call3(35, time.as_ptr() as u64, 0, 0);
}

pub fn send_byte(fd: i64, byte: u8) {
    const NOSIGNAL: u64 = 0x4000;
    // SAFETY: one byte of our own stack is read.
    unsafe { call(44, fd as u64, &raw const byte as u64, 1, NOSIGNAL, 0, 0) };
}

/// Waits while `*word` is `value`, at most `ms` milliseconds. The word may be shared memory.
pub fn futex_wait(word: *const u32, value: u32, ms: u64) {
    let time = [ms / 1000, ms % 1000 * 1_000_000];
    // SAFETY: the word outlives the call, the time lies on our stack.
    unsafe { call(202, word as u64, 0, u64::from(value), time.as_ptr() as u64, 0, 0) };
}

pub fn futex_wake(word: *const u32) {
    // SAFETY: only the address of the word is used.
    unsafe { call(202, word as u64, 1, i32::MAX as u64, 0, 0, 0) };
}

pub fn exit() -> ! {
    loop {
        call3(60, 0, 0, 0);
    }
}

#[repr(C)]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

pub const POLLIN: i16 = 1;

/// Receives one message with up to `fds.len()` descriptors; returns (bytes, descriptors).
pub fn receive_fds(socket: i64, buffer: &mut [u8; 16], fds: &mut [i32; 4]) -> (i64, usize) {
    #[repr(C)]
    struct Iov {
        base: u64,
        len: u64,
    }
    #[repr(C)]
    struct Msg {
        name: u64,
        namelen: u32,
        pad: u32,
        iov: u64,
        iovlen: u64,
        control: u64,
        controllen: u64,
        flags: i32,
        pad2: u32,
    }
    let mut control = [0u64; 8];
    let iov = Iov { base: buffer.as_mut_ptr() as u64, len: 16 };
    let mut msg = Msg {
        name: 0,
        namelen: 0,
        pad: 0,
        iov: &raw const iov as u64,
        iovlen: 1,
        control: control.as_mut_ptr() as u64,
        controllen: 64,
        flags: 0,
        pad2: 0,
    };
    const CLOEXEC: u64 = 0x4000_0000;
    let n = call3(47, socket as u64, &raw mut msg as u64, CLOEXEC);
    let mut count = 0;
    // A control header is 16 bytes (length, level, type) and the descriptors follow it.
    if n >= 0 && msg.controllen >= 20 {
        let bytes = control[0].wrapping_sub(16) as usize;
        let all = (bytes / 4).min(4);
        while count < all {
            // SAFETY: `count` < 4 descriptors fit behind the 16-byte header in 64 bytes.
            unsafe {
                *fds.as_mut_ptr().add(count) = *control.as_ptr().cast::<i32>().add(4 + count)
            };
            count += 1;
        }
    }
    (n, count)
}

/// Whatever the target may do, the worker needs no privilege.
pub fn drop_capabilities() {
    set_capabilities([0; 6]);
}

/// Takes or puts down the one privilege that the other thread needs again when it has to open
/// a new context: to hear of forks the kernel asks for CAP_SYS_PTRACE. All others are dropped
/// for good.
pub fn may_watch_forks(may: bool) {
    const PTRACE: u32 = 1 << 19;
    if set_capabilities([if may { PTRACE } else { 0 }, PTRACE, 0, 0, 0, 0]) < 0 {
        drop_capabilities();
    }
}

/// Effective, permitted and inheritable, the low words first.
fn set_capabilities(sets: [u32; 6]) -> i64 {
    let header = [0x2008_0522u32, 0];
    call3(126, header.as_ptr() as u64, sets.as_ptr() as u64, 0)
}
