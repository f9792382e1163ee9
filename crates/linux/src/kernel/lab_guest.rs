//! A guest of `huepage lab` and the emulator below it: marks, which are instructions that do nothing on
//! any processor, and whose turn it is on each processor, told at every switch by a tiny program in the
//! kernel (BPF) that stores into a page of ours. Outside of the lab nobody listens, and nothing happens.
//!
//! A program's number is in bits of its personality that Linux does not use: children inherit it, it
//! outlasts exec, and the kernel finds it in the task itself.

use std::arch::asm;
use std::io;

use huepage_model::lab::{DIGIT_BITS, DIGITS, DIGITS_AT, LabMark, OWNER_STRIDE, OWNERS, ROOT_AT};

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
        LabMark::Sampled
        | LabMark::Instructions
        | LabMark::Root
        | LabMark::Page
        | LabMark::Gone => {}
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
    /// Begins; for a PMU it also tells the number of the process, and for TLBs the root of its page table.
    ///
    /// # Errors
    /// When the kernel has no BPF, or does not tell its types.
    pub fn start(pmu: bool, tlbs: bool) -> Result<TurnTeller, TurnsError> {
        let wrong = |what: &BpfError| TurnsError(what.to_string());
        let blob = std::fs::read(VMLINUX).map_err(|e| TurnsError(format!("{VMLINUX}: {e}")))?;
        let types = Btf::parse(&blob);
        let offset = |of: &str, member: &str| {
            let offset = types.as_ref().and_then(|types| types.offset(of, member));
            let offset = offset.and_then(|offset| i32::try_from(offset).ok());
            offset.ok_or_else(|| TurnsError(format!("{of} has no {member}")))
        };
        let task = |member: &str| offset("task_struct", member);
        let what = TaskMembers {
            personality: task("personality")?,
            pid: pmu.then(|| task("tgid")).transpose()?,
            root: tlbs.then(|| Ok((task("mm")?, offset("mm_struct", "pgd")?))).transpose()?,
        };
        let page: Shared<TurnPage> = Shared::new().map_err(|e| wrong(&e))?;
        let code = tell(page.map(), &what);
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

/// Where what is told is in a task.
struct TaskMembers {
    personality: i32,
    /// The number of its process.
    pid: Option<i32>,
    /// The memory of its process, and in that the root of its page table.
    root: Option<(i32, i32)>,
}

/// Stores something at the place of the owner of the task that is switched to, and, where its process is wanted, at
/// the places of the digits of that; the root of its page table, where that is wanted, as it is. The tracepoint's third
/// argument is that task.
fn tell(map: i32, what: &TaskMembers) -> Vec<Insn> {
    let mut code = Code::default();
    let failed = code.label();
    code.load(Reg::R8, (Reg::R1, 16));
    code.map(Reg::R6, map);
    member(&mut code, what.personality, failed);
    code.op(Op::Right, Reg::R7, OWNER_AT.cast_signed());
    code.op(Op::Multiply, Reg::R7, OWNER_STRIDE_BYTES);
    code.op_reg(Op::Add, Reg::R7, Reg::R6);
    code.store((Reg::R7, 0), Reg::R0);
    if let Some(pid) = what.pid {
        member(&mut code, pid, failed);
        (0..DIGITS).for_each(|digit| tell_digit(&mut code, digit));
    }
    if let Some((memory, root)) = what.root {
        // Tasks of the kernel have no memory, and go on with the table that is there.
        pointer(&mut code, Reg::R8, memory, failed);
        pointer(&mut code, Reg::R7, root, failed);
        code.store((Reg::R6, ROOT_AT_BYTE), Reg::R7);
    }
    code.place(failed);
    code.exit(0);
    code.finish()
}

/// Loads 32 bits of the task in R8 into R7, and 0 into R0.
fn member(code: &mut Code, offset: i32, failed: Label) {
    read(code, (Reg::R8, offset), 4, failed);
    code.load_half(Reg::R7, (Reg::R10, -8));
}

/// Loads a pointer of what is at `from` into R7; one that is null is a failure.
fn pointer(code: &mut Code, from: Reg, offset: i32, failed: Label) {
    read(code, (from, offset), 8, failed);
    code.load(Reg::R7, (Reg::R10, -8));
    code.jump(If::Equal, (Reg::R7, 0), failed);
}

/// Reads some bytes of the kernel's memory onto the stack.
fn read(code: &mut Code, (from, offset): (Reg, i32), bytes: i32, failed: Label) {
    code.op_reg(Op::Set, Reg::R3, from);
    code.op(Op::Add, Reg::R3, offset);
    code.op_reg(Op::Set, Reg::R1, Reg::R10);
    code.op(Op::Add, Reg::R1, -8);
    code.op(Op::Set, Reg::R2, bytes);
    code.call(READ_KERNEL);
    code.jump(If::Differ, (Reg::R0, 0), failed);
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
/// [`ROOT_AT`] likewise.
const ROOT_AT_BYTE: i16 = 3072;
const _: () = assert!(ROOT_AT_BYTE.unsigned_abs() as u64 == ROOT_AT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_do_nothing_here() {
        for one in [LabMark::Start, LabMark::TurnPage, LabMark::Begin, LabMark::End, LabMark::Ask] {
            mark(one);
        }
        let end = DIGITS_AT + ((DIGITS as u64 * 8) << DIGIT_BITS);
        assert!(DIGITS_AT >= OWNERS as u64 * OWNER_STRIDE && end <= ROOT_AT, "apart");
        const { assert!(ROOT_AT + 8 <= 4096, "all are in one page") };
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
