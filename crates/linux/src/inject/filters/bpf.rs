//! Classic BPF as seccomp permits it: checking a program, and running it over one system call of which
//! some arguments may be unknown.
//!
//! A program comes from the target and is not trusted. It is checked once as the kernel checks it: jumps
//! go forward and stay inside, loads are aligned words of the call's data, memory has 16 words, the last
//! instruction returns. So every run ends after at most [`MAX_INSNS`] steps. Where a jump depends on
//! an unknown value, both ways are followed, up to [`MAX_STEPS`] in all.

use std::collections::{BTreeSet, HashSet};

use super::{FilterAction, Probe};

/// Most instructions of a program: the kernel's BPF_MAXINSNS.
pub const MAX_INSNS: usize = 4096;
/// Most steps over all ways through a program. A program that is not finished by then counts as one
/// that kills.
pub const MAX_STEPS: usize = 1 << 18;
/// `AUDIT_ARCH_X86_64`.
const ARCH: u32 = 0xc000_003e;
/// Bytes of `struct seccomp_data`.
const DATA_BYTES: u32 = 64;
/// Words of scratch memory.
const MEMORY: usize = 16;

/// One instruction, as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Insn {
    /// Operation.
    pub code: u16,
    /// Instructions to skip where a condition holds.
    pub jt: u8,
    /// Instructions to skip where it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

impl Insn {
    /// An instruction without jumps.
    pub const fn new(code: u16, k: u32) -> Insn {
        Insn { code, jt: 0, jf: 0, k }
    }

    /// A conditional jump over `jt` or `jf` instructions.
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Insn {
        Insn { code, jt, jf, k }
    }
}

/// Why a program is not one of seccomp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// It has no instruction, or too many.
    #[error("it has {0} instructions")]
    Length(usize),
    /// An instruction that seccomp has not, or with an operand that it has not.
    #[error("instruction {at} has code {code:#x} and operand {k:#x}")]
    Insn {
        /// Which.
        at: usize,
        /// Its code.
        code: u16,
        /// Its operand.
        k: u32,
    },
    /// A jump behind the end.
    #[error("instruction {0} jumps behind the end")]
    Jump(usize),
    /// The last instruction does not return.
    #[error("it does not end")]
    Open,
}

/// Operations, as in `linux/bpf_common.h`.
pub mod code {
    #![allow(missing_docs, reason = "names of the kernel's header")]
    pub const LD_ABS: u16 = 0x20;
    pub const LD_LEN: u16 = 0x80;
    pub const LDX_LEN: u16 = 0x81;
    pub const LD_IMM: u16 = 0x00;
    pub const LDX_IMM: u16 = 0x01;
    pub const LD_MEM: u16 = 0x60;
    pub const LDX_MEM: u16 = 0x61;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const ALU: u16 = 0x04;
    pub const JMP: u16 = 0x05;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
    /// The operand is X.
    pub const X: u16 = 0x08;
    pub const ADD: u16 = 0x00;
    pub const SUB: u16 = 0x10;
    pub const MUL: u16 = 0x20;
    pub const DIV: u16 = 0x30;
    pub const OR: u16 = 0x40;
    pub const AND: u16 = 0x50;
    pub const LSH: u16 = 0x60;
    pub const RSH: u16 = 0x70;
    pub const NEG: u16 = 0x80;
    pub const XOR: u16 = 0xa0;
    pub const JA: u16 = 0x00;
    pub const JEQ: u16 = 0x10;
    pub const JGT: u16 = 0x20;
    pub const JGE: u16 = 0x30;
    pub const JSET: u16 = 0x40;
}

/// The data that a program sees of a call: 16 words, each known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data([Option<u32>; 16]);

impl Data {
    /// That of a call by 64-bit code.
    pub fn of(probe: &Probe) -> Data {
        let mut words = [None; 16];
        words[0] = u32::try_from(probe.number).ok();
        words[1] = Some(ARCH);
        let wide = std::iter::once(probe.instruction_pointer).chain(probe.arguments);
        for (pair, value) in words[2..].chunks_exact_mut(2).zip(wide) {
            pair[0] = value.map(|v| (v & 0xffff_ffff) as u32);
            pair[1] = value.map(|v| (v >> 32) as u32);
        }
        Data(words)
    }
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfProgram(Vec<Insn>);

/// What a run knows before it executes instruction `at`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    a: Option<u32>,
    x: Option<u32>,
    memory: [Option<u32>; MEMORY],
}

/// What an instruction leads to.
enum Next {
    /// The instruction that follows.
    Follow,
    /// The one so far behind it.
    Skip(usize),
    /// One or the other.
    Either(usize, usize),
    /// The end, with this answer.
    End(Option<u32>),
}

impl BpfProgram {
    /// Checks a program as the kernel does.
    ///
    /// # Errors
    /// When the kernel would not have installed it.
    pub fn new(list: Vec<Insn>) -> Result<BpfProgram, ProgramError> {
        if list.is_empty() || list.len() > MAX_INSNS {
            return Err(ProgramError::Length(list.len()));
        }
        for (at, insn) in list.iter().enumerate() {
            check(at, *insn, list.len() - at - 1)?;
        }
        match list.last().map(|insn| insn.code) {
            Some(code::RET_K | code::RET_A) => Ok(BpfProgram(list)),
            _ => Err(ProgramError::Open),
        }
    }

    /// The answers that it may give for a call, over all values of what is unknown, without their data.
    /// An answer that is not known, and a program that takes too many steps, count as one that kills.
    pub fn answers(&self, data: &Data) -> BTreeSet<Answer> {
        let mut answers = BTreeSet::new();
        let start = State { at: 0, a: Some(0), x: Some(0), memory: [Some(0); MEMORY] };
        let (mut left, mut seen, mut steps) = (vec![start], HashSet::new(), 0);
        while let Some(mut state) = left.pop() {
            loop {
                steps += 1;
                // The check has shown that no instruction leads out.
                let Some(insn) = self.0.get(state.at).filter(|_| steps <= MAX_STEPS) else {
                    answers.insert(Answer::KILL);
                    return answers;
                };
                state.at += 1;
                match state.execute(*insn, data) {
                    Next::Follow => {}
                    Next::Skip(n) => state.at += n,
                    Next::Either(yes, no) => {
                        // What follows from the same state is known already.
                        if !seen.insert(state) {
                            break;
                        }
                        left.push(State { at: state.at + no, ..state });
                        state.at += yes;
                    }
                    Next::End(value) => {
                        answers.insert(value.map_or(Answer::KILL, Answer::new));
                        break;
                    }
                }
            }
        }
        answers
    }
}

/// The action of an answer. Of several filters the kernel takes the lowest, as a signed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer(i32);

impl Answer {
    /// The strongest: the process is killed.
    pub const KILL: Answer = Answer(i32::MIN);

    /// That of a value which a program returned.
    pub fn new(value: u32) -> Answer {
        Answer((value & 0xffff_0000).cast_signed())
    }

    /// What the kernel does if no filter has a lower one.
    pub fn action(self) -> FilterAction {
        match self.0 {
            0x0000_0000 => FilterAction::KillThread,
            0x0003_0000 => FilterAction::Trap,
            0x0005_0000 => FilterAction::Errno,
            0x7fc0_0000 => FilterAction::Notify,
            0x7ff0_0000 => FilterAction::Trace,
            0x7ffc_0000 => FilterAction::Log,
            0x7fff_0000 => FilterAction::Allow,
            _ => FilterAction::KillProcess,
        }
    }
}

impl State {
    fn execute(&mut self, insn: Insn, data: &Data) -> Next {
        let Insn { code: operation, k, .. } = insn;
        let word = |k: u32| usize::try_from(k).unwrap_or(MEMORY) % MEMORY;
        match operation {
            code::LD_ABS => self.a = data.0[word(k / 4)],
            code::LD_LEN => self.a = Some(DATA_BYTES),
            code::LDX_LEN => self.x = Some(DATA_BYTES),
            code::LD_IMM => self.a = Some(k),
            code::LDX_IMM => self.x = Some(k),
            code::LD_MEM => self.a = self.memory[word(k)],
            code::LDX_MEM => self.x = self.memory[word(k)],
            code::ST => self.memory[word(k)] = self.a,
            code::STX => self.memory[word(k)] = self.x,
            code::TAX => self.x = self.a,
            code::TXA => self.a = self.x,
            code::RET_K => return Next::End(Some(k)),
            code::RET_A => return Next::End(self.a),
            _ if operation & 7 == code::JMP => return self.branch(insn),
            _ => return self.compute(operation, k),
        }
        Next::Follow
    }

    fn operand(&self, operation: u16, k: u32) -> Option<u32> {
        if operation & code::X == 0 { Some(k) } else { self.x }
    }

    fn compute(&mut self, operation: u16, k: u32) -> Next {
        let operand = self.operand(operation, k);
        if operation & 0xf0 == code::DIV && operand.is_none_or(|divisor| divisor == 0) {
            // The kernel ends a program that divides by zero with the answer 0, which kills. An
            // unknown divisor may be zero.
            return Next::End(Some(0));
        }
        self.a = match (self.a, operand) {
            (Some(a), _) if operation & 0xf0 == code::NEG => Some(a.wrapping_neg()),
            (Some(a), Some(b)) => Some(combined(operation & 0xf0, a, b)),
            // Often all that a filter does with an argument is to look at some of its bits.
            (None, Some(0)) | (Some(0), None) if operation & 0xf0 == code::AND => Some(0),
            _ => None,
        };
        Next::Follow
    }

    fn branch(&self, insn: Insn) -> Next {
        let [yes, no] = [insn.jt, insn.jf].map(usize::from);
        if insn.code & 0xf0 == code::JA {
            return Next::Skip(usize::try_from(insn.k).unwrap_or(MAX_INSNS));
        }
        match (self.a, self.operand(insn.code, insn.k)) {
            (Some(a), Some(b)) if holds(insn.code & 0xf0, a, b) => Next::Skip(yes),
            (Some(_), Some(_)) => Next::Skip(no),
            _ if yes == no => Next::Skip(yes),
            _ => Next::Either(yes, no),
        }
    }
}

fn combined(operation: u16, a: u32, b: u32) -> u32 {
    match operation {
        code::ADD => a.wrapping_add(b),
        code::SUB => a.wrapping_sub(b),
        code::MUL => a.wrapping_mul(b),
        code::DIV => a.checked_div(b).unwrap_or(0),
        code::OR => a | b,
        code::AND => a & b,
        // As the processor does: only the low five bits count.
        code::LSH => a.wrapping_shl(b),
        code::RSH => a.wrapping_shr(b),
        _ => a ^ b,
    }
}

fn holds(operation: u16, a: u32, b: u32) -> bool {
    match operation {
        code::JEQ => a == b,
        code::JGT => a > b,
        code::JGE => a >= b,
        _ => a & b != 0,
    }
}

/// Checks one instruction with `behind` more behind it.
fn check(at: usize, insn: Insn, behind: usize) -> Result<(), ProgramError> {
    let Insn { code: operation, k, .. } = insn;
    let fine = match operation {
        code::LD_ABS => k < DATA_BYTES && k.is_multiple_of(4),
        code::LD_MEM | code::LDX_MEM | code::ST | code::STX => k < 16,
        code::LD_LEN | code::LDX_LEN | code::LD_IMM | code::LDX_IMM => true,
        code::TAX | code::TXA | code::RET_K | code::RET_A => true,
        _ if operation & 7 == code::ALU => computes(operation, k),
        _ if operation & 7 == code::JMP => branches(operation),
        _ => false,
    };
    if !fine {
        return Err(ProgramError::Insn { at, code: operation, k });
    }
    if operation & 7 != code::JMP {
        return Ok(());
    }
    let farthest = if operation == code::JMP | code::JA {
        usize::try_from(k).unwrap_or(MAX_INSNS)
    } else {
        usize::from(insn.jt.max(insn.jf))
    };
    if farthest < behind { Ok(()) } else { Err(ProgramError::Jump(at)) }
}

fn computes(operation: u16, k: u32) -> bool {
    let by_constant = operation & code::X == 0;
    match operation & !7 & !code::X {
        code::DIV => !by_constant || k != 0,
        code::LSH | code::RSH => !by_constant || k < 32,
        code::NEG => by_constant,
        code::ADD | code::SUB | code::MUL | code::OR | code::AND | code::XOR => true,
        _ => false,
    }
}

fn branches(operation: u16) -> bool {
    match operation & !7 & !code::X {
        code::JA => operation & code::X == 0,
        code::JEQ | code::JGT | code::JGE | code::JSET => true,
        _ => false,
    }
}
