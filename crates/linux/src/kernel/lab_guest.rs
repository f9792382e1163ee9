//! A guest of `huepage lab` and the emulator below it: marks, which are instructions that do nothing on
//! any processor, and whose turn it is on each processor, told at every switch by a tiny program in the
//! kernel (BPF) that stores into a page of ours. Outside of the lab nobody listens, and nothing happens.
//!
//! A program's number is in bits of its personality that Linux does not use: children inherit it, it
//! outlasts exec, and the kernel finds it in the task itself.

use std::arch::asm;
use std::io;

use huepage_model::lab::{LabMark, OWNER_STRIDE, OWNERS};

use super::bpf::btf::{Btf, VMLINUX};
use super::bpf::code::{Code, If, Insn, Op, Reg};
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
    /// Begins.
    ///
    /// # Errors
    /// When the kernel has no BPF, or does not tell its types.
    pub fn start() -> Result<TurnTeller, TurnsError> {
        let wrong = |what: &BpfError| TurnsError(what.to_string());
        let blob = std::fs::read(VMLINUX).map_err(|e| TurnsError(format!("{VMLINUX}: {e}")))?;
        let offset = Btf::parse(&blob).and_then(|btf| btf.offset("task_struct", "personality"));
        let offset = offset.and_then(|offset| i32::try_from(offset).ok());
        let offset = offset.ok_or_else(|| TurnsError("task_struct has no personality".into()))?;
        let page: Shared<TurnPage> = Shared::new().map_err(|e| wrong(&e))?;
        let program = Program::load(&tell(page.map(), offset)).map_err(|e| wrong(&e))?;
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

/// Stores something at the place of the owner of the task that is switched to. The tracepoint's third
/// argument is that task.
fn tell(map: i32, personality: i32) -> Vec<Insn> {
    let mut code = Code::default();
    let failed = code.label();
    code.load(Reg::R3, (Reg::R1, 16));
    code.op(Op::Add, Reg::R3, personality);
    code.map(Reg::R6, map);
    code.op_reg(Op::Set, Reg::R1, Reg::R10);
    code.op(Op::Add, Reg::R1, -8);
    code.op(Op::Set, Reg::R2, 4);
    code.call(READ_KERNEL);
    code.jump(If::Differ, (Reg::R0, 0), failed);
    code.load_half(Reg::R7, (Reg::R10, -8));
    code.op(Op::Right, Reg::R7, OWNER_AT.cast_signed());
    code.op(Op::Multiply, Reg::R7, OWNER_STRIDE_BYTES);
    code.op_reg(Op::Add, Reg::R6, Reg::R7);
    code.store((Reg::R6, 0), Reg::R7);
    code.place(failed);
    code.exit(0);
    code.finish()
}

/// [`OWNER_STRIDE`] as the number of an instruction.
const OWNER_STRIDE_BYTES: i32 = 64;
const _: () = assert!(OWNER_STRIDE_BYTES.unsigned_abs() as u64 == OWNER_STRIDE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_do_nothing_here() {
        for one in [LabMark::Start, LabMark::TurnPage, LabMark::Begin, LabMark::End] {
            mark(one);
        }
        assert!(OWNERS as u64 * OWNER_STRIDE <= 4096, "all places are in one page");
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
