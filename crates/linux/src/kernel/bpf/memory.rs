//! The kernel's view of the memory of the machine: single words of it, read by a program, and where
//! it begins. Nothing is ever written to it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::mem::offset_of;
use std::os::fd::RawFd;

use huepage_color::{PAGE_BYTES, Vpn};

use super::code::{Code, If, Insn, Label, Op, Reg};
use super::{BpfError, Program, Shared, field};
use crate::kernel::procfs::{PageEntry, ProcRoot};

const GIB: u64 = 1 << 30;
/// Distances between the first GiB and that of a task, at most: 64 TiB.
const FARTHEST: u64 = 1 << 16;

const CURRENT_TASK: i32 = 35;
pub(crate) const READ_KERNEL: i32 = 113;

/// What [`peek`] is asked, and what it answers.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct Peek {
    /// Where to read 64 bits.
    pub(crate) address: u64,
    /// What is there.
    pub(crate) value: u64,
    /// The task that ran the program.
    pub(crate) task: u64,
    /// By which this page is known again.
    pub(crate) magic: u64,
}

/// Answers who runs it, and the 64 bits at an address; 0 if they could be read.
pub(crate) fn peek(map: RawFd) -> Vec<Insn> {
    let mut code = Code::default();
    let failed = code.label();
    code.map(Reg::R6, map);
    code.call(CURRENT_TASK);
    code.store(field!(Peek.task), Reg::R0);
    code.load(Reg::R3, field!(Peek.address));
    read(&mut code, field!(Peek.value), 8, failed);
    code.exit(0);
    code.place(failed);
    code.exit(1);
    code.finish()
}

/// Reads words of the kernel's memory, each by a system call of less than a microsecond.
#[derive(Debug)]
pub(crate) struct Peeker {
    shared: Shared<Peek>,
    program: Program,
}

impl Peeker {
    /// Loads the program for it.
    pub(crate) fn new() -> Result<Peeker, BpfError> {
        let shared = Shared::new()?;
        let program = Program::load(&peek(shared.map()))?;
        Ok(Peeker { shared, program })
    }

    /// 64 bits so many bytes behind an address; `None` if nothing is mapped there.
    pub(crate) fn word(&self, address: u64, behind: u64) -> Option<u64> {
        let peek = self.shared.at().as_ptr();
        // SAFETY: the memory is mapped and shared with the program alone, which runs only inside
        // the call between; `Peeker` is not `Sync`.
        unsafe {
            (*peek).address = address.wrapping_add(behind);
            let done = self.program.run();
            (done.ok()? == 0).then(|| (*peek).value)
        }
    }

    /// 32 bits likewise.
    pub(crate) fn half(&self, address: u64, behind: u64) -> Option<u64> {
        self.word(address, behind).map(|word| word & 0xffff_ffff)
    }

    /// The task of this thread.
    pub(crate) fn current(&self) -> u64 {
        let _ = self.word(0, 0);
        // SAFETY: as in `word`.
        unsafe { (*self.shared.at().as_ptr()).task }
    }
}

/// Where the kernel sees the memory of the machine, and how entries of page tables name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectMap {
    /// Where it sees frame 0.
    pub(crate) base: u64,
    /// The bits of an entry that are the address of a frame.
    pub(crate) frames: u64,
    /// How many levels the tables of a process have: 4 or 5.
    pub(crate) levels: i32,
}

impl DirectMap {
    /// Looks for a page of our own in the kernel's view of memory. Takes a microsecond for each
    /// GiB of memory at worst.
    pub(crate) fn find(peeker: &Peeker, proc: &ProcRoot) -> Result<DirectMap, BpfError> {
        let page = peeker.shared.at().as_ptr();
        let magic = random();
        // SAFETY: the memory is mapped, and no program runs now.
        unsafe { (*page).magic = magic };
        let place = page.addr() as u64;
        let entry = proc
            .pagemap(std::process::id().cast_signed())
            .and_then(|map| map.entry(Vpn(place / PAGE_BYTES)));
        let frame = entry.ok().and_then(PageEntry::pfn).ok_or(BpfError::NotPermitted)?;
        let inside = frame.0 * PAGE_BYTES + offset_of!(Peek, magic) as u64;
        // A task lies in that view, too, and the view begins at a whole GiB.
        let near = peeker.current() & !(GIB - 1);
        let base = (0..FARTHEST).map(|i| near.wrapping_sub(i * GIB));
        let base = { base }.find(|base| peeker.word(*base, inside) == Some(magic));
        let base = base.ok_or(BpfError::NotSupported("the kernel hides its view of memory"))?;
        let text = fs::read_to_string(proc.0.join("cpuinfo")).unwrap_or_default();
        let (levels, frames) = paging(&text);
        Ok(DirectMap { base, frames, levels })
    }
}

/// The levels of page tables, and the bits of frames in their entries, by `/proc/cpuinfo`. A bit
/// that marks encrypted memory is none of the physical address there.
fn paging(cpuinfo: &str) -> (i32, u64) {
    let line = |name| {
        let entries = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        { entries }.find(|(key, _)| key.trim_end() == name).map_or("", |(_, value)| value)
    };
    let five = line("flags").split_whitespace().any(|flag| flag == "la57");
    let bits = line("address sizes").split_whitespace().next().and_then(|bits| bits.parse().ok());
    let frames = (1 << bits.unwrap_or(52_u32).clamp(32, 52)) - PAGE_BYTES;
    (if five { 5 } else { 4 }, frames)
}

/// Reads kernel memory at the address in R3, to a place given by a register and an offset.
pub(crate) fn read(code: &mut Code, (base, offset): (Reg, i16), bytes: i32, failed: Label) {
    code.op_reg(Op::Set, Reg::R1, base);
    code.op(Op::Add, Reg::R1, offset.into());
    code.op(Op::Set, Reg::R2, bytes);
    code.call(READ_KERNEL);
    code.jump(If::Differ, (Reg::R0, 0), failed);
}

/// A number that is nowhere else in memory.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_is_read_from_cpuinfo() {
        let text = "processor\t: 0\nflags\t\t: fpu la57 avx\n\
                    address sizes\t: 46 bits physical, 57 bits virtual\n";
        assert_eq!(paging(text), (5, 0x3fff_ffff_f000));
        assert_eq!(paging("flags\t: fpu\nvmx flags\t: la57\n"), (4, 0xf_ffff_ffff_f000));
    }
}
