//! The program that runs in the kernel and walks page tables for a batch of blocks. It is put
//! together for the kernel it will run on, whose offsets become constants.

use std::mem::offset_of;
use std::os::fd::RawFd;

use super::kernel::{Layout, Owner};
use crate::kernel::bpf::code::{Code, If, Insn, Label, Op, Reg};
use crate::kernel::bpf::field;
use crate::kernel::bpf::memory::{DirectMap, READ_KERNEL, read};

/// Blocks that are walked by one run, at most.
pub(super) const BATCH: usize = 64;

/// An entry leads on or maps something.
pub(super) const PRESENT: u64 = 1;
/// What an entry maps was touched through it since the bit was cleared.
pub(super) const ACCESSED: u64 = 1 << 5;
/// An entry of an upper level maps memory itself.
pub(super) const HUGE: u64 = 1 << 7;
/// An entry of the lowest level maps memory that may not be touched for now.
pub(super) const NO_RIGHTS: u64 = 1 << 8;
/// What an entry of the lowest level maps is no page of the process, in private memory without a
/// file the page of zeroes.
pub(super) const SPECIAL: u64 = 1 << 9;

/// One page of a page table.
pub(super) type Table = [u64; 512];

/// What [`walk`] is asked, and what it answers.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Exchange {
    /// Whose address space is walked: checked after the walk.
    pub(super) owner: Owner,
    /// How many of `blocks` count.
    pub(super) count: u64,
    /// Which blocks to look up: addresses in units of 2 MiB.
    pub(super) blocks: [u64; BATCH],
    /// The last entry on the way to each block, 0 if it leads nowhere.
    pub(super) entries: [u64; BATCH],
    /// The lowest tables of blocks whose entry says that they have one.
    pub(super) tables: Tables,
}

/// Whole pages of page tables.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Tables(pub(super) [Table; BATCH]);

/// Scratch on the stack: an entry, its address, and the entry read again.
const ENTRY: (Reg, i16) = (Reg::R10, -8);
const WHERE: (Reg, i16) = (Reg::R10, -16);
const AGAIN: (Reg, i16) = (Reg::R10, -24);

/// Walks to each block of a batch; 0 if the owner still has the address space afterwards. There is
/// one copy of the code for each block: what a loop does in all cases together is more than the
/// kernel is willing to check.
pub(super) fn walk(map: RawFd, layout: &Layout, memory: &DirectMap) -> Vec<Insn> {
    let mut code = Code::default();
    let done = code.label();
    code.map(Reg::R6, map);
    for i in 0..BATCH {
        code.load(Reg::R1, field!(Exchange.count));
        code.jump(If::AtMost, (Reg::R1, small(i)), done);
        walk_one(&mut code, memory, i);
    }
    code.place(done);
    check_owner(&mut code, layout);
    code.finish()
}

/// Finds the entry of block `i` of a batch, and its table.
fn walk_one(code: &mut Code, memory: &DirectMap, i: usize) {
    let (found, absent, end) = (code.label(), code.label(), code.label());
    code.load(Reg::R7, field!(Exchange.blocks, i * 8));
    // Half of the root table is the kernel's.
    code.op_reg(Op::Set, Reg::R1, Reg::R7);
    code.op(Op::Right, Reg::R1, 9 * (memory.levels - 1) - 1);
    code.jump(If::Differ, (Reg::R1, 0), absent);
    descend(code, memory, (found, absent));
    fetch(code, i, absent);
    code.place(found);
    code.load(Reg::R1, ENTRY);
    code.goto(end);
    code.place(absent);
    code.op(Op::Set, Reg::R1, 0);
    code.place(end);
    code.store(field!(Exchange.entries, i * 8), Reg::R1);
}

/// From the root to the lowest table of the block in R7: its address gets into R3, its entry into
/// [`ENTRY`].
fn descend(code: &mut Code, memory: &DirectMap, (found, absent): (Label, Label)) {
    code.load(Reg::R3, field!(Exchange.owner.root));
    for level in (0..memory.levels - 1).rev() {
        code.op_reg(Op::Set, Reg::R1, Reg::R7);
        code.op(Op::Right, Reg::R1, 9 * level);
        code.op(Op::And, Reg::R1, 511);
        code.op(Op::Left, Reg::R1, 3);
        code.op_reg(Op::Add, Reg::R3, Reg::R1);
        code.store(WHERE, Reg::R3);
        read(code, ENTRY, 8, absent);
        code.load(Reg::R3, ENTRY);
        code.op_reg(Op::Set, Reg::R1, Reg::R3);
        code.op(Op::And, Reg::R1, small(PRESENT));
        code.jump(If::Equal, (Reg::R1, 0), absent);
        code.jump(If::Both, (Reg::R3, small(HUGE)), found);
        code.constant(Reg::R1, memory.frames);
        code.op_reg(Op::And, Reg::R3, Reg::R1);
        code.constant(Reg::R1, memory.base);
        code.op_reg(Op::Add, Reg::R3, Reg::R1);
    }
}

/// Copies the lowest table, unless it was taken out of the tables above meanwhile.
fn fetch(code: &mut Code, i: usize, absent: Label) {
    code.op_reg(Op::Set, Reg::R1, Reg::R6);
    code.op(Op::Add, Reg::R1, small(offset_of!(Exchange, tables) + i * size_of::<Table>()));
    code.op(Op::Set, Reg::R2, 4096);
    code.call(READ_KERNEL);
    code.jump(If::Differ, (Reg::R0, 0), absent);
    code.load(Reg::R3, WHERE);
    read(code, AGAIN, 8, absent);
    code.load(Reg::R1, ENTRY);
    code.load(Reg::R2, AGAIN);
    code.op_reg(Op::Xor, Reg::R1, Reg::R2);
    code.op(Op::And, Reg::R1, !small(ACCESSED));
    code.jump(If::Differ, (Reg::R1, 0), absent);
}

/// Ends with 0 if task, address space and root table still belong together, else with 1.
fn check_owner(code: &mut Code, layout: &Layout) {
    let gone = code.label();
    code.load(Reg::R3, field!(Exchange.owner.task));
    code.op(Op::Add, Reg::R3, small(layout.tgid));
    read(code, ENTRY, 4, gone);
    code.load_half(Reg::R1, ENTRY);
    code.load(Reg::R2, field!(Exchange.owner.tgid));
    code.jump_reg(If::Differ, (Reg::R1, Reg::R2), gone);
    code.load(Reg::R3, field!(Exchange.owner.task));
    code.op(Op::Add, Reg::R3, small(layout.mm));
    read(code, ENTRY, 8, gone);
    code.load(Reg::R3, ENTRY);
    code.load(Reg::R2, field!(Exchange.owner.mm));
    code.jump_reg(If::Differ, (Reg::R3, Reg::R2), gone);
    code.op(Op::Add, Reg::R3, small(layout.pgd));
    read(code, ENTRY, 8, gone);
    code.load(Reg::R1, ENTRY);
    code.load(Reg::R2, field!(Exchange.owner.root));
    code.jump_reg(If::Differ, (Reg::R1, Reg::R2), gone);
    code.exit(0);
    code.place(gone);
    code.exit(1);
}

/// A number as instructions take it: offsets in structures, indices, masks of low bits.
fn small(number: impl TryInto<i32>) -> i32 {
    number.try_into().ok().expect("far below 2 GiB")
}
