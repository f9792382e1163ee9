//! The few instructions that a stopped thread of the target runs for us.
//!
//! Two slots for system calls sit behind them, which are used in turn. A slot without a call ends
//! the work: every register is restored from values stored beside the code, and the thread jumps
//! back to where it was. Everything needed for the way back is in place before the thread runs the
//! first instruction, so when we die at any moment the thread finishes the call that it is in and
//! goes on as if nothing had happened. Nothing is ever written to a stack of the program: what
//! lies below a stack pointer may belong to somebody else.

use std::arch::global_asm;

// Register values are stored in the order in which they are loaded; see `Image::build`.
global_asm!(
    ".pushsection .text.huepage_stub,\"ax\",@progbits",
    ".globl huepage_stub_start",
    ".globl huepage_stub_end",
    "huepage_stub_start:",
    // Block every signal, so that no handler sees the borrowed registers.
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rip + huepage_stub_end + 136]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "lea rbx, [rip + huepage_stub_end + 152]",
    "2:",
    "mov rax, [rbx]",
    "cmp rax, -1",
    "je 4f",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "syscall",
    // A new thread starts with 0 where its parent sees a number: it leaves for its own code.
    "cmp qword ptr [rbx + 56], 0",
    "je 3f",
    "test rax, rax",
    "jnz 3f",
    "mov rdi, r9",
    "jmp r8",
    "3:",
    // The other slot: the second after the first, the first after the second.
    "lea rcx, [rip + huepage_stub_end + 152]",
    "cmp rbx, rcx",
    "lea rbx, [rcx + 64]",
    "cmovne rbx, rcx",
    "jmp 2b",
    "4:",
    // The process can be looked at again, if it was hidden.
    "mov rsi, [rip + huepage_stub_end + {shown_at}]",
    "cmp rsi, -1",
    "je 5f",
    "mov eax, 157",
    "mov edi, 4",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "syscall",
    "5:",
    // The signal mask as it was, then the registers.
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rip + huepage_stub_end + 144]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    // The flags are taken from where they are stored: reading needs no stack.
    "lea rsp, [rip + huepage_stub_end + 120]",
    "mov r15, [rip + huepage_stub_end + 0]",
    "mov r14, [rip + huepage_stub_end + 8]",
    "mov r13, [rip + huepage_stub_end + 16]",
    "mov r12, [rip + huepage_stub_end + 24]",
    "mov rbp, [rip + huepage_stub_end + 32]",
    "mov rbx, [rip + huepage_stub_end + 40]",
    "mov r11, [rip + huepage_stub_end + 48]",
    "mov r10, [rip + huepage_stub_end + 56]",
    "mov r9, [rip + huepage_stub_end + 64]",
    "mov r8, [rip + huepage_stub_end + 72]",
    "mov rax, [rip + huepage_stub_end + 80]",
    "mov rcx, [rip + huepage_stub_end + 88]",
    "mov rdx, [rip + huepage_stub_end + 96]",
    "mov rsi, [rip + huepage_stub_end + 104]",
    "mov rdi, [rip + huepage_stub_end + 112]",
    "popfq",
    "mov rsp, [rip + huepage_stub_end + 128]",
    "jmp qword ptr [rip + huepage_stub_end + {rip_at}]",
    "huepage_stub_end:",
    ".popsection",
    rip_at = const RIP_AT,
    shown_at = const SHOWN_AT,
);

unsafe extern "C" {
    static huepage_stub_start: u8;
    static huepage_stub_end: u8;
}

/// Where, behind the code, the saved instruction pointer lies: behind the script.
const RIP_AT: usize = SCRIPT_AT + SCRIPT_BYTES;
/// Where the value of PR_SET_DUMPABLE lies that the thread sets before it goes back; [`END`] for none.
const SHOWN_AT: usize = RIP_AT + 8;
const ALL_SIGNALS_AT: usize = 136;
const OLD_MASK_AT: usize = 144;
const SCRIPT_AT: usize = 152;
/// Slots for calls: one for the call being made, and one that ends the work after it.
const SLOTS: usize = 2;
const SLOT_BYTES: usize = 64;
const SCRIPT_BYTES: usize = SLOTS * SLOT_BYTES;
/// The number in a slot that holds no call.
pub const END: u64 = u64::MAX;

/// The code of the stub.
fn code() -> &'static [u8] {
    // SAFETY: both symbols delimit bytes of our own program text.
    unsafe {
        let start = &raw const huepage_stub_start;
        let len = (&raw const huepage_stub_end).offset_from(start);
        std::slice::from_raw_parts(start, usize::try_from(len).unwrap_or(0))
    }
}

/// Bytes that code, saved state and script take together.
pub fn bytes() -> usize {
    code().len() + SHOWN_AT + 8
}

/// Offset in the image of the value for PR_SET_DUMPABLE that the thread sets before it goes back, [`END`]
/// for none.
pub fn shown_offset() -> usize {
    code().len() + SHOWN_AT
}

/// Offset in the image of the slot that the call with number `i` goes to.
pub fn slot_offset(i: usize) -> usize {
    code().len() + SCRIPT_AT + i % SLOTS * SLOT_BYTES
}

/// One system call of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// Number and six arguments.
    pub words: [u64; 7],
    /// The call is a clone; the new thread jumps to its fifth argument.
    pub is_clone: bool,
}

impl Call {
    /// A call with up to six arguments.
    pub fn new(number: i64, arguments: &[u64]) -> Call {
        let mut words = [0; 7];
        words[0] = number.cast_unsigned();
        words[1..=arguments.len()].copy_from_slice(arguments);
        Call { words, is_clone: false }
    }

    /// Maps `bytes` of private, empty memory with this protection.
    pub fn map_private(bytes: u64, protection: u64) -> Call {
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        Call::new(libc::SYS_mmap, &[0, bytes, protection, PRIVATE_ANONYMOUS, u64::MAX, 0])
    }

    /// Unmaps `bytes` from `at` on.
    pub fn unmap(at: u64, bytes: u64) -> Call {
        Call::new(libc::SYS_munmap, &[at, bytes])
    }

    /// Everything of a slot but its number, which is written last: until then the work ends
    /// there.
    pub fn tail(&self) -> [u8; 56] {
        let mut out = [0; 56];
        for (i, w) in self.words[1..].iter().chain([&u64::from(self.is_clone)]).enumerate() {
            out[i * 8..i * 8 + 8].copy_from_slice(&w.to_ne_bytes());
        }
        out
    }
}

/// The stub without any call, ready to bring the thread to the state `back` with the signal `mask`.
pub fn image(back: &libc::user_regs_struct, mask: u64) -> Vec<u8> {
    let mut image = code().to_vec();
    let r = back;
    let saved = [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx,
        r.rsi, r.rdi, r.eflags, r.rsp,
    ];
    for word in saved {
        image.extend_from_slice(&word.to_ne_bytes());
    }
    debug_assert_eq!(image.len(), code().len() + ALL_SIGNALS_AT);
    image.extend_from_slice(&u64::MAX.to_ne_bytes());
    debug_assert_eq!(image.len(), code().len() + OLD_MASK_AT);
    image.extend_from_slice(&mask.to_ne_bytes());
    for _ in 0..SLOTS {
        image.extend_from_slice(&END.to_ne_bytes());
        image.extend_from_slice(&[0; SLOT_BYTES - 8]);
    }
    image.extend_from_slice(&back.rip.to_ne_bytes());
    image.extend_from_slice(&END.to_ne_bytes());
    image
}

/// What the kernel tells itself of a call that a stop interrupted: it is issued again as it was, or goes on by
/// restart_syscall(2).
const RESTART_PLAIN: [i64; 3] = [-512, -513, -514];
const RESTART_BLOCK: i64 = -516;

/// What the registers must be when the thread goes on: a system call that our stop
/// interrupted is issued again, as the kernel itself would have done.
pub fn way_back(regs: &libc::user_regs_struct) -> libc::user_regs_struct {
    let mut back = *regs;
    if regs.orig_rax.cast_signed() < 0 {
        return back;
    }
    let result = regs.rax.cast_signed();
    if RESTART_PLAIN.contains(&result) {
        back.rax = regs.orig_rax;
        back.rip -= 2;
    } else if result == RESTART_BLOCK {
        back.rax = libc::SYS_restart_syscall.cast_unsigned();
        back.rip -= 2;
    }
    back
}

/// Registers with which the kernel issues a call again as it was that it would continue by restart_syscall(2); none
/// where it would not.
pub fn anew(regs: &libc::user_regs_struct) -> Option<libc::user_regs_struct> {
    let continues = regs.orig_rax.cast_signed() >= 0 && regs.rax.cast_signed() == RESTART_BLOCK;
    continues.then(|| libc::user_regs_struct { rax: RESTART_PLAIN[2].cast_unsigned(), ..*regs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs(orig: i64, rax: i64) -> libc::user_regs_struct {
        // SAFETY: a plain structure of integers.
        let mut r: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        r.orig_rax = orig.cast_unsigned();
        r.rax = rax.cast_unsigned();
        r.rip = 0x1002;
        r
    }

    #[test]
    fn interrupted_calls_are_issued_again() {
        let r = way_back(&regs(202, -512));
        assert_eq!((r.rax, r.rip), (202, 0x1000));
        let r = way_back(&regs(35, -516));
        assert_eq!((r.rax, r.rip), (219, 0x1000));
        let r = way_back(&regs(0, 17));
        assert_eq!((r.rax, r.rip), (17, 0x1002));
        let r = way_back(&regs(-1, -512));
        assert_eq!(r.rip, 0x1002);
    }

    #[test]
    fn only_a_call_that_would_be_continued_begins_anew() {
        let r = anew(&regs(7, -516)).expect("poll(2) with a timeout");
        assert_eq!((r.orig_rax, r.rax.cast_signed(), r.rip), (7, -514, 0x1002));
        for (orig, rax) in [(7, -512), (7, -514), (7, 1), (-1, -516)] {
            assert!(anew(&regs(orig, rax)).is_none(), "{orig} {rax}");
        }
    }

    #[test]
    fn the_image_makes_no_call() {
        let image = image(&regs(-1, 0), 0);
        assert_eq!(image.len(), bytes());
        for i in 0..SLOTS {
            let at = slot_offset(i);
            assert_eq!(image[at..at + 8], END.to_ne_bytes());
        }
        assert_eq!(slot_offset(SLOTS), slot_offset(0), "slots are used in turn");
        assert_eq!(image[image.len() - 16..image.len() - 8], 0x1002u64.to_ne_bytes());
        assert_eq!(image[shown_offset()..], END.to_ne_bytes(), "nothing was hidden");
    }
}
