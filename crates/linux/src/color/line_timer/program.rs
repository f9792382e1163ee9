//! The program that runs in the kernel and times loads of lines of memory, named by their physical
//! addresses: nothing of the process that the memory belongs to is touched, not even its page tables, so
//! that it can neither fail nor notice. Lines of one page may be timed together, each load waiting for the
//! one before: what a clock that moves in large steps can tell.

use std::os::fd::RawFd;

use crate::kernel::bpf::btf::PlainLoads;
use crate::kernel::bpf::code::{Code, If, Insn, Label, Op, Reg};
use crate::kernel::bpf::field;
use crate::kernel::bpf::memory::{DirectMap, READ_KERNEL};

/// Chains that are timed by one run, at most: as many as fit a page. To wake up costs a look as much as
/// some sixty lines.
pub(super) const BATCH: usize = 168;
/// Lines of a page that are timed together, at most.
pub(super) const DEEPEST: usize = 8;
/// Chains in a turn of the loop: the kernel takes time to check each turn, and space for each chain.
/// Chains come in multiples of it.
pub(super) const TURN: usize = 4;
/// Multiplications in each time, of three cycles each. By so many the processor is kept waiting that it
/// has all up to the end of the measurement at hand before the loads begin: returns and indirect calls
/// are slow where they are guarded against speculation, and loads would hide behind them.
const PAD: usize = 64;
/// Multiplications more that are asked for as one.
const SHIFT: usize = 3;
/// What can be asked for of these, at most: shifts by fractions of a step of a coarse clock (10 ns on
/// AMD's).
pub(super) const SHIFTS: usize = 4;

/// What is asked, and what is answered.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Exchange {
    /// How many of `chains` count.
    pub(super) count: u64,
    /// By how much each time is made longer: 0 to [`SHIFTS`].
    pub(super) shift: u64,
    /// The page of each, and the line of it that is loaded before.
    pub(super) before: [u64; BATCH],
    /// The lines that are timed, a byte for each: which of the page it is.
    pub(super) lines: [u64; BATCH],
    /// Nanoseconds that the loads took, with those of the measurement itself; all bits are set for what
    /// is no memory.
    pub(super) took: [u64; BATCH],
}

const NANOSECONDS: i32 = 5;
/// Scratch on the stack: what was loaded.
const LOADED: (Reg, i16) = (Reg::R10, -8);

/// How lines are loaded: by plain instructions, or by calls where the kernel does not tell its types.
pub(super) type Loads = Option<PlainLoads>;

/// Times chains of `depth` lines one after the other, at most [`DEEPEST`].
pub(super) fn time(map: RawFd, memory: &DirectMap, loads: Loads, depth: usize) -> Vec<Insn> {
    let mut code = Code::default();
    let (again, done) = (code.label(), code.label());
    code.map(Reg::R6, map);
    code.op(Op::Set, Reg::R8, 0);
    code.place(again);
    code.load(Reg::R1, field!(Exchange.count));
    code.jump_reg(If::AtMost, (Reg::R1, Reg::R8), done);
    // R9: the block of memory, moved on by as many chains as were timed.
    code.op_reg(Op::Set, Reg::R9, Reg::R8);
    code.op(Op::Left, Reg::R9, 3);
    code.op_reg(Op::Add, Reg::R9, Reg::R6);
    (0..TURN).for_each(|i| time_one(&mut code, memory, loads, (i, depth)));
    code.op(Op::Add, Reg::R8, i32::try_from(TURN).unwrap_or(0));
    code.jump(If::AtMost, (Reg::R8, i32::try_from(BATCH - TURN).unwrap_or(0)), again);
    code.place(done);
    code.exit(0);
    code.finish()
}

fn time_one(code: &mut Code, memory: &DirectMap, loads: Loads, (i, depth): (usize, usize)) {
    let (failed, end) = (code.label(), code.label());
    let fields = [
        field!(Exchange.before, i * 8),
        field!(Exchange.lines, i * 8),
        field!(Exchange.took, i * 8),
    ];
    let [before, lines, took] = fields.map(|(_, at)| (Reg::R9, at));
    code.load(Reg::R7, before);
    code.constant(Reg::R1, memory.base);
    code.op_reg(Op::Add, Reg::R7, Reg::R1);
    // The other line first: then the kernel's translation of the page is at hand, and it is known whether
    // there is such memory.
    code.op_reg(Op::Set, Reg::R3, Reg::R7);
    load_by_call(code, failed);
    code.op(Op::And, Reg::R7, -4096);
    code.call(NANOSECONDS);
    code.store(took, Reg::R0);
    // Nothing is added to the address, but by instructions that wait for the clock and for each other.
    // Else the loads are under way while the clock is still being read, or while the calls behind it are,
    // and what takes no longer than those seems to take no time.
    code.op(Op::And, Reg::R0, 0);
    wait(code);
    code.op_reg(Op::Add, Reg::R7, Reg::R0);
    (0..depth).for_each(|k| load_line(code, loads, (lines, k), failed));
    code.call(NANOSECONDS);
    code.load(Reg::R1, took);
    code.op_reg(Op::Subtract, Reg::R0, Reg::R1);
    code.goto(end);
    code.place(failed);
    code.op(Op::Set, Reg::R0, -1);
    code.place(end);
    code.store(took, Reg::R0);
}

/// Multiplies R0 by 3 again and again.
fn wait(code: &mut Code) {
    let enough = code.label();
    code.load(Reg::R1, field!(Exchange.shift));
    (0..PAD).for_each(|_| code.op(Op::Multiply, Reg::R0, 3));
    for shift in 0..SHIFTS {
        code.jump(If::AtMost, (Reg::R1, i32::try_from(shift).unwrap_or(0)), enough);
        (0..SHIFT).for_each(|_| code.op(Op::Multiply, Reg::R0, 3));
    }
    code.place(enough);
}

/// Loads the `k`th line of a chain in the page at R7, which then waits for it.
fn load_line(code: &mut Code, loads: Loads, (lines, k): ((Reg, i16), usize), failed: Label) {
    code.load(Reg::R3, lines);
    code.op(Op::Right, Reg::R3, i32::try_from(8 * k).unwrap_or(0));
    code.op(Op::And, Reg::R3, 63);
    code.op(Op::Left, Reg::R3, 6);
    code.op_reg(Op::Add, Reg::R3, Reg::R7);
    match loads {
        Some(plain) => {
            code.op_reg(Op::Set, Reg::R1, Reg::R3);
            code.op(Op::Set, Reg::R2, plain.structure);
            // No call in the end: the kernel makes it a move.
            code.call_by_type(plain.cast);
            code.load(Reg::R0, (Reg::R0, 0));
        }
        None => {
            load_by_call(code, failed);
            code.load(Reg::R0, LOADED);
        }
    }
    code.op(Op::And, Reg::R0, 0);
    code.op_reg(Op::Add, Reg::R7, Reg::R0);
}

/// Loads 64 bits at the address in R3, to the stack.
fn load_by_call(code: &mut Code, failed: Label) {
    code.op_reg(Op::Set, Reg::R1, LOADED.0);
    code.op(Op::Add, Reg::R1, LOADED.1.into());
    code.op(Op::Set, Reg::R2, 8);
    code.call(READ_KERNEL);
    code.jump(If::Differ, (Reg::R0, 0), failed);
}
