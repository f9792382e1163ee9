//! A guest of `huepage lab` and the emulator below it: marks, which are instructions that do nothing on
//! any processor, and whose turn it is on each processor, told at every switch by a tiny program in the
//! kernel (BPF) that stores into a page of ours. Outside of the lab nobody listens, and nothing happens.
//!
//! A program's number is in bits of its personality that Linux does not use: children inherit it, it
//! outlasts exec, and the kernel finds it in the task itself.

use std::arch::asm;
use std::io;

use huepage_model::lab::{DIGIT_BITS, DIGITS, DIGITS_AT, LabMark, OWNER_STRIDE, OWNERS};

use super::bpf::btf::{Btf, VMLINUX};
use super::bpf::code::{Code, If, Insn, Label, Op, Reg};
use super::bpf::memory::READ_KERNEL;
use super::bpf::{Attached, BpfError, Program, Shared};

/// Where a program's number is in its personality.
const OWNER_AT: u32 = 28;

/// Why whose turn it is cannot be told.
#[derive(Debug, thiserror::Error)]
#[error("{0}; give `--kernel` one with BPF and its types")]
pub struct TurnsError(String);

/// Gives this process, and what it becomes and starts, a number below [`OWNERS`].
///
/// # Errors
/// What the kernel says.
///
/// # Panics
/// With a larger number.
pub fn become_owner(owner: u32) -> io::Result<()> {
    assert!((owner as usize) < OWNERS, "owner {owner}");
    // SAFETY: no memory is involved.
    let before = unsafe { libc::personality(0xffff_ffff) };
    let kept = libc::c_ulong::from(before.cast_unsigned()) & ((1 << OWNER_AT) - 1);
    // SAFETY: as above; the other bits stay as they are.
    let rc = unsafe { libc::personality(kept | libc::c_ulong::from(owner) << OWNER_AT) };
    // What it was before comes back as a number that may look negative.
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a mark without more to say.
pub fn mark(mark: LabMark) {
    macro_rules! nop {
        ($mark:expr) => {
            // SAFETY: a NOP.
            unsafe {
                asm!(".byte 0x0f,0x1f,0x80,{0},0x4c,0x4f,0x43", const $mark as u8,
                     options(nostack, preserves_flags));
            }
        };
    }
    match mark {
        LabMark::Start => nop!(LabMark::Start),
        LabMark::TurnPage => nop!(LabMark::TurnPage),
        LabMark::Begin => nop!(LabMark::Begin),
        LabMark::End => nop!(LabMark::End),
        LabMark::Ask => nop!(LabMark::Ask),
        // What only the emulator says.
        LabMark::Sampled | LabMark::Instructions => {}
    }
}

/// The page that the kernel's program stores into.
#[derive(Debug)]
#[repr(C, align(4096))]
struct TurnPage([u64; 512]);

/// Tells at every switch whose turn it is, as long as it lives.
#[derive(Debug)]
pub struct TurnTeller {
    page: Shared<TurnPage>,
    _attached: Attached,
}

impl TurnTeller {
    /// Begins; for a PMU it also tells the number of the process.
    ///
    /// # Errors
    /// When the kernel has no BPF, or does not tell its types.
    pub fn start(pmu: bool) -> Result<TurnTeller, TurnsError> {
        let wrong = |what: &BpfError| TurnsError(what.to_string());
        let blob = std::fs::read(VMLINUX).map_err(|e| TurnsError(format!("{VMLINUX}: {e}")))?;
        let offset = |member: &str| {
            let offset = Btf::parse(&blob).and_then(|btf| btf.offset("task_struct", member));
            let offset = offset.and_then(|offset| i32::try_from(offset).ok());
            offset.ok_or_else(|| TurnsError(format!("task_struct has no {member}")))
        };
        let (personality, pid) = (offset("personality")?, offset("tgid")?);
        let page: Shared<TurnPage> = Shared::new().map_err(|e| wrong(&e))?;
        let code = tell(page.map(), personality, Some(pid).filter(|_| pmu));
        let program = Program::load(&code).map_err(|e| wrong(&e))?;
        let attached = program.attach(c"sched_switch").map_err(|e| wrong(&e))?;
        Ok(TurnTeller { page, _attached: attached })
    }

    /// Says which page it is.
    pub fn introduce(&self) {
        let page = self.page.at();
        // SAFETY: a NOP, and a load from memory that is mapped as long as this value lives.
        unsafe {
            asm!(".byte 0x0f,0x1f,0x80,{0},0x4c,0x4f,0x43", "mov {1}, [{1}]",
                 const LabMark::TurnPage as u8, inout(reg) page.as_ptr() => _,
                 options(nostack, preserves_flags, readonly));
        }
    }
}

/// Stores something at the place of the owner of the task that is switched to, and, where its process is wanted, at
/// the places of the digits of that. The tracepoint's third argument is that task.
fn tell(map: i32, personality: i32, pid: Option<i32>) -> Vec<Insn> {
    let mut code = Code::default();
    let failed = code.label();
    code.load(Reg::R8, (Reg::R1, 16));
    code.map(Reg::R6, map);
    member(&mut code, personality, failed);
    code.op(Op::Right, Reg::R7, OWNER_AT.cast_signed());
    code.op(Op::Multiply, Reg::R7, OWNER_STRIDE_BYTES);
    code.op_reg(Op::Add, Reg::R7, Reg::R6);
    code.store((Reg::R7, 0), Reg::R0);
    if let Some(pid) = pid {
        member(&mut code, pid, failed);
        (0..DIGITS).for_each(|digit| tell_digit(&mut code, digit));
    }
    code.place(failed);
    code.exit(0);
    code.finish()
}

/// Loads 32 bits of the task in R8 into R7, and 0 into R0.
fn member(code: &mut Code, offset: i32, failed: Label) {
    code.op_reg(Op::Set, Reg::R3, Reg::R8);
    code.op(Op::Add, Reg::R3, offset);
    code.op_reg(Op::Set, Reg::R1, Reg::R10);
    code.op(Op::Add, Reg::R1, -8);
    code.op(Op::Set, Reg::R2, 4);
    code.call(READ_KERNEL);
    code.jump(If::Differ, (Reg::R0, 0), failed);
    code.load_half(Reg::R7, (Reg::R10, -8));
}

/// Stores something at the place of a digit of R7.
fn tell_digit(code: &mut Code, digit: usize) {
    let bits = DIGIT_BITS.cast_signed();
    code.op_reg(Op::Set, Reg::R9, Reg::R7);
    code.op(Op::Right, Reg::R9, bits * i32::try_from(digit).unwrap_or(0));
    code.op(Op::And, Reg::R9, (1 << bits) - 1);
    code.op(Op::Multiply, Reg::R9, 8);
    code.op(Op::Add, Reg::R9, DIGITS_AT_BYTE + i32::try_from((digit * 8) << bits).unwrap_or(0));
    code.op_reg(Op::Add, Reg::R9, Reg::R6);
    code.store((Reg::R9, 0), Reg::R0);
}

/// [`OWNER_STRIDE`] as the number of an instruction.
const OWNER_STRIDE_BYTES: i32 = 64;
const _: () = assert!(OWNER_STRIDE_BYTES.unsigned_abs() as u64 == OWNER_STRIDE);
/// [`DIGITS_AT`] likewise.
const DIGITS_AT_BYTE: i32 = 1024;
const _: () = assert!(DIGITS_AT_BYTE.unsigned_abs() as u64 == DIGITS_AT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_do_nothing_here() {
        for one in [LabMark::Start, LabMark::TurnPage, LabMark::Begin, LabMark::End, LabMark::Ask] {
            mark(one);
        }
        let end = DIGITS_AT + ((DIGITS as u64 * 8) << DIGIT_BITS);
        assert!(DIGITS_AT >= OWNERS as u64 * OWNER_STRIDE && end <= 4096, "all are in one page");
    }

    #[test]
    fn a_number_is_inherited() {
        let child = std::thread::spawn(|| {
            become_owner(15).unwrap();
            become_owner(5).unwrap();
            std::process::Command::new("cat").arg("/proc/self/personality").output().unwrap()
        });
        let text = String::from_utf8(child.join().unwrap().stdout).unwrap();
        assert_eq!(text.trim(), "50000000");
    }
}
