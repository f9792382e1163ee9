//! System calls of the agent, straight from the processor: there is no libc in here.
//!
//! Every wrapper returns what the kernel returned: a value, or a negated errno.

use core::arch::asm;

use crate::protocol::MAX_FDS;

pub const EAGAIN: i64 = -11;
pub const ENOENT: i64 = -2;
pub const ESRCH: i64 = -3;
pub const EINTR: i64 = -4;
pub const EPERM: i64 = -1;
pub const ENOMEM: i64 = -12;
pub const EPIPE: i64 = -32;
pub const EBUSY: i64 = -16;
pub const EEXIST: i64 = -17;
pub const EINVAL: i64 = -22;

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

/// Gives pages back, also where the memory is locked.
pub fn discard(start: u64, len: u64) -> i64 {
    const DONTNEED_LOCKED: u64 = 24;
    madvise(start, len, DONTNEED_LOCKED)
}

pub fn protect(start: u64, len: u64, prot: u64) -> i64 {
    call3(10, start, len, prot)
}

/// Ends a lock on memory, which needs no right.
pub fn unlock(start: u64, len: u64) -> i64 {
    call3(150, start, len, 0)
}

/// Makes a mapping longer, and its address another if need be. It is not locked if it was not, whatever the
/// process wants of new memory. Asked for of mappings of ours alone, or with a length that none can have.
pub fn grow(start: u64, from: u64, to: u64) -> i64 {
    const MAY_MOVE: u64 = 1;
    // SAFETY: the mapping is ours, and nobody uses it yet; or the kernel refuses.
    unsafe { call(25, start, from, to, MAY_MOVE, 0, 0) }
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
/// first 2 MiB only. For private memory; 0 if the kernel cannot tell.
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

/// A message with descriptors, as sendmsg(2) and recvmsg(2) take it.
#[repr(C)]
struct Message {
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

/// Words of a control message with [`MAX_FDS`] descriptors: 16 bytes of header (length, level, type),
/// then the descriptors.
const CONTROL_WORDS: usize = 2 + MAX_FDS / 2;

impl Message {
    fn new(iov: &[u64; 2], control: &mut [u64; CONTROL_WORDS], bytes: u64) -> Message {
        Message {
            name: 0,
            namelen: 0,
            pad: 0,
            iov: iov.as_ptr() as u64,
            iovlen: 1,
            control: control.as_mut_ptr() as u64,
            controllen: bytes,
            flags: 0,
            pad2: 0,
        }
    }
}

/// Descriptors of one message; -1 where there is none.
pub type Fds = [i32; MAX_FDS];

/// Receives one message with its descriptors; returns (bytes, descriptors).
pub fn receive_fds(socket: i64, buffer: &mut [u8; 16], fds: &mut Fds) -> (i64, usize) {
    const CLOEXEC: u64 = 0x4000_0000;
    let mut control = [0u64; CONTROL_WORDS];
    let iov = [buffer.as_mut_ptr() as u64, 16];
    let mut message = Message::new(&iov, &mut control, size_of::<[u64; CONTROL_WORDS]>() as u64);
    let n = call3(47, socket as u64, &raw mut message as u64, CLOEXEC);
    let mut count = 0;
    if n >= 0 && message.controllen >= 20 {
        let all = (control[0].wrapping_sub(16) as usize / 4).min(MAX_FDS);
        while count < all {
            // SAFETY: `count` is below MAX_FDS, which fit behind the header.
            unsafe {
                *fds.as_mut_ptr().add(count) = *control.as_ptr().cast::<i32>().add(4 + count)
            };
            count += 1;
        }
    }
    (n, count)
}

/// Sends one byte with the first `count` descriptors.
pub fn send_fds(socket: i64, byte: u8, fds: &Fds, count: usize) -> i64 {
    const NOSIGNAL: u64 = 0x4000;
    const SOCKET_RIGHTS: u64 = 1 << 32 | 1;
    let mut control = [0u64; CONTROL_WORDS];
    let bytes = 16 + 4 * count.min(MAX_FDS) as u64;
    (control[0], control[1]) = (bytes, SOCKET_RIGHTS);
    let mut i = 0;
    while i < count.min(MAX_FDS) {
        // SAFETY: `i` is below MAX_FDS, which fit behind the header.
        unsafe { *control.as_mut_ptr().cast::<i32>().add(4 + i) = *fds.as_ptr().add(i) };
        i += 1;
    }
    let iov = [&raw const byte as u64, 1];
    let message = Message::new(&iov, &mut control, bytes.next_multiple_of(8));
    call3(46, socket as u64, &raw const message as u64, NOSIGNAL)
}
