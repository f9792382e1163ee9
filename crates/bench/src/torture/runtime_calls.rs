//! The machine code and system calls of the mode `runtimes`: stacks that a program makes itself, restartable
//! sequences, io_uring.
#![allow(unsafe_code, reason = "a stress target has to do to its memory what programs do")]

use std::arch::asm;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::{IoUring, opcode, types};

use crate::sys::{MappedMemory, PAGE};

fn check(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Blocks all signals of the calling thread.
///
/// # Errors
/// When the kernel refuses.
pub fn block_signals() -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset makes the set whole, the call reads it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        check(libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()).into())
    }
}

/// Both sides of a coroutine, at an address that stays.
struct Contexts {
    own: libc::ucontext_t,
    back: libc::ucontext_t,
    /// The stack's lowest word.
    end: usize,
    /// Turns to spin there.
    turns: u64,
}

/// A coroutine on a stack that lies among other words. It spins with the stack pointer at the stack's end, where
/// whoever writes below a stopped thread's stack pointer writes to something else.
pub struct SmallStack<'a> {
    contexts: Box<Contexts>,
    stack: PhantomData<&'a [AtomicU64]>,
}

impl<'a> SmallStack<'a> {
    /// A coroutine that has not run yet.
    ///
    /// # Errors
    /// When the C library refuses.
    pub fn new(stack: &'a [AtomicU64]) -> io::Result<SmallStack<'a>> {
        // SAFETY: all-zero contexts are valid; getcontext fills one before makecontext completes it. The
        // stack outlives the coroutine, and the box gives its address for as long.
        unsafe {
            let mut contexts = Box::new(Contexts {
                own: std::mem::zeroed(),
                back: std::mem::zeroed(),
                end: stack.as_ptr() as usize,
                turns: 0,
            });
            check(libc::getcontext(&raw mut contexts.own).into())?;
            contexts.own.uc_stack.ss_sp = stack.as_ptr() as *mut libc::c_void;
            contexts.own.uc_stack.ss_size = size_of_val(stack);
            let at = &raw mut *contexts as usize as u64;
            let body: extern "C" fn(u32, u32) = body;
            let body = std::mem::transmute::<extern "C" fn(u32, u32), extern "C" fn()>(body);
            let bytes = at.to_ne_bytes();
            let half = |from: usize| i32::from_ne_bytes(std::array::from_fn(|i| bytes[from + i]));
            let (low, high) = (half(0), half(4));
            libc::makecontext(&raw mut contexts.own, body, 2, low, high);
            Ok(SmallStack { contexts, stack: PhantomData })
        }
    }

    /// Runs the coroutine until it comes back.
    ///
    /// # Errors
    /// When the C library refuses.
    pub fn resume(&mut self, turns: u64) -> io::Result<()> {
        self.contexts.turns = turns;
        let contexts: *mut Contexts = &raw mut *self.contexts;
        // SAFETY: both contexts live in the box; the coroutine comes back by the same pair.
        check(
            unsafe { libc::swapcontext(&raw mut (*contexts).back, &raw const (*contexts).own) }
                .into(),
        )
    }
}

/// What runs on the small stack; never returns.
extern "C" fn body(low: u32, high: u32) {
    let contexts = (u64::from(low) | u64::from(high) << 32) as *mut Contexts;
    loop {
        // SAFETY: `resume` has this box alive and does not touch it until the swap back.
        unsafe {
            spin_at((*contexts).end, (*contexts).turns);
            libc::swapcontext(&raw mut (*contexts).own, &raw const (*contexts).back);
        }
    }
}

/// Spins with the stack pointer at an address.
///
/// # Safety
/// Signals are blocked, and the address is the calling thread's own.
unsafe fn spin_at(address: usize, turns: u64) {
    // SAFETY: nothing is pushed or called meanwhile, and the stack pointer is put back.
    unsafe {
        asm!(
            "mov {saved}, rsp",
            "mov rsp, {address}",
            "2:",
            "dec {turns}",
            "jnz 2b",
            "mov rsp, {saved}",
            saved = out(reg) _,
            address = in(reg) address,
            turns = inout(reg) turns.max(1) => _,
        );
    }
}

/// A critical section for the kernel (`struct rseq_cs`).
#[repr(C, align(32))]
struct CriticalSection([u64; 4]);

/// A counter per CPU, each in a cache line of its own.
pub struct CpuCounters {
    area: MappedMemory,
    /// Where a thread's `struct rseq` lies from its thread pointer.
    offset: isize,
}

/// Describes the section between labels 3 and 4, with its abort handler at 6, and names it to the kernel.
macro_rules! name_section {
    () => {
        "mov {rseq}, fs:[0]
        add {rseq}, {offset}
        2:
        lea {a}, [rip + 3f]
        mov [{section} + 8], {a}
        lea {b}, [rip + 4f]
        sub {b}, {a}
        mov [{section} + 16], {b}
        lea {a}, [rip + 6f]
        mov [{section} + 24], {a}
        mov [{rseq} + 8], {section}"
    };
}

/// The section: one more in the counter of this CPU, with many turns between reading and writing it.
macro_rules! add_slowly {
    () => {
        "3:
        mov {a:e}, [{rseq} + 4]
        shl {a}, 6
        add {a}, {base}
        mov {b}, [{a}]
        inc {b}
        mov {c}, {turns}
        5:
        dec {c}
        jnz 5b
        mov [{a}], {b}
        4:"
    };
}

/// Un-names the section. Before the abort handler, which begins anew, is the signature that the kernel wants, as an
/// invalid instruction.
macro_rules! end_section {
    () => {
        "jmp 7f
        .byte 0x0f, 0xb9, 0x3d
        .long 0x53053053
        6:
        jmp 2b
        7:
        mov qword ptr [{rseq} + 8], 0"
    };
}

/// Turns inside a section: about a microsecond, so that many are interrupted.
const TURNS_INSIDE: u64 = 2_000;

impl CpuCounters {
    /// Counters of zero; `None` where the C library registers no restartable sequences.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new() -> io::Result<Option<CpuCounters>> {
        // SAFETY: the names are C strings; what they point to are two constants of the C library.
        let (offset, size) = unsafe {
            let find = |name: &std::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            let (offset, size) = (find(c"__rseq_offset"), find(c"__rseq_size"));
            if offset.is_null() || size.is_null() {
                return Ok(None);
            }
            (offset.cast::<isize>().read(), size.cast::<u32>().read())
        };
        if size == 0 {
            return Ok(None);
        }
        // SAFETY: plain call.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let lines = usize::try_from(cpus).unwrap_or(1).max(1);
        Ok(Some(CpuCounters { area: MappedMemory::private((lines * 64).div_ceil(PAGE))?, offset }))
    }

    /// All words of all counters.
    pub fn words(&self) -> &[AtomicU64] {
        self.area.words()
    }

    /// Adds one to the counter of the CPU where the calling thread is, in a restartable sequence.
    pub fn increment(&self) {
        let mut section = CriticalSection([0; 4]);
        // SAFETY: the C library has registered this thread's area, which lies at the offset that it says. The
        // section is described before it is named and un-named before it goes out of scope; the counters
        // of all configured CPUs lie within the area.
        unsafe {
            asm!(
                name_section!(),
                add_slowly!(),
                end_section!(),
                offset = in(reg) self.offset,
                rseq = out(reg) _,
                section = in(reg) &raw mut section,
                base = in(reg) self.area.address(),
                turns = in(reg) TURNS_INSIDE,
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
            );
        }
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

/// Bytes of a read: a page.
const PAGE_BYTES: u32 = 4096;

/// A buffer that a ring of io_uring keeps.
pub struct FixedBuffer<'a> {
    ring: IoUring,
    area: &'a MappedMemory,
}

impl<'a> FixedBuffer<'a> {
    /// Gives an area to a ring of its own; the kernel pins its pages.
    ///
    /// # Errors
    /// When the kernel has no io_uring or pins no more memory.
    pub fn register(area: &'a MappedMemory) -> io::Result<FixedBuffer<'a>> {
        let ring = IoUring::new(4)?;
        let (start, length) = (area.address() as *mut libc::c_void, area.pages() * PAGE);
        let part = libc::iovec { iov_base: start, iov_len: length };
        // SAFETY: the area outlives the ring, and is only seen through atomics.
        unsafe { ring.submitter().register_buffers(&[part])? };
        Ok(FixedBuffer { ring, area })
    }

    /// Reads a page of a file into a page of the buffer.
    ///
    /// # Errors
    /// When the read fails or is short.
    pub fn read_page(&mut self, file: &File, from: usize, to: usize) -> io::Result<()> {
        let into = (self.area.address() + to * PAGE) as *mut u8;
        let read = opcode::ReadFixed::new(types::Fd(file.as_raw_fd()), into, PAGE_BYTES, 0);
        let entry = read.offset((from * PAGE) as u64).build();
        // SAFETY: the page lies in the registered area; the file is open until the read has ended below.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.ring.submit_and_wait(1)?;
        let done = self.ring.completion().next().map_or(0, |entry| entry.result());
        match usize::try_from(done) {
            Ok(PAGE) => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::from_raw_os_error(-done)),
        }
    }
}
