//! An assembler for BPF, with the instructions that programs here need.

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insn {
    operation: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// A register. Calls take R1 to R5, whose contents they lose, and answer in R0; R10 is the end of
/// the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// Arithmetic on 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    And = 0x50,
    Left = 0x60,
    Right = 0x70,
    Xor = 0xa0,
    Set = 0xb0,
}

/// Comparisons of 64 bits, without signs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum If {
    Equal = 0x10,
    /// Some bits are in both.
    Both = 0x40,
    Differ = 0x50,
    AtMost = 0xb0,
}

/// A place to jump to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

const LOAD_CONSTANT: u8 = 0x18;
const LOAD_32: u8 = 0x61;
const LOAD_64: u8 = 0x79;
const STORE_64: u8 = 0x7b;
const ALU_64: u8 = 0x07;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// What is called is a function of the kernel by the number of its type.
const BY_TYPE: u8 = 2;
/// The operand is a register.
const REGISTER: u8 = 0x08;
/// The constant is an address inside the first value of a map.
const MAP_VALUE: u8 = 2;

/// A program in the making.
#[derive(Default)]
pub(crate) struct Code {
    list: Vec<Insn>,
    places: Vec<usize>,
    /// Jumps, and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Code {
    fn push(&mut self, operation: u8, (to, from): (Reg, u8), offset: i16, value: i32) {
        self.list.push(Insn { operation, registers: to as u8 | from << 4, offset, value });
    }

    /// Combines a register with a number.
    pub(crate) fn op(&mut self, op: Op, to: Reg, value: i32) {
        self.push(ALU_64 | op as u8, (to, 0), 0, value);
    }

    /// Combines a register with another one.
    pub(crate) fn op_reg(&mut self, op: Op, to: Reg, from: Reg) {
        self.push(ALU_64 | REGISTER | op as u8, (to, from as u8), 0, 0);
    }

    /// A constant of 64 bits.
    pub(crate) fn constant(&mut self, to: Reg, value: u64) {
        self.wide(to, 0, value);
    }

    /// The address of what is shared through a map.
    pub(crate) fn map(&mut self, to: Reg, map: i32) {
        self.wide(to, MAP_VALUE, u64::from(map.cast_unsigned()));
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves are taken one by one")]
    fn wide(&mut self, to: Reg, from: u8, value: u64) {
        self.push(LOAD_CONSTANT, (to, from), 0, (value as u32).cast_signed());
        self.push(0, (Reg::R0, 0), 0, ((value >> 32) as u32).cast_signed());
    }

    /// Loads 64 bits.
    pub(crate) fn load(&mut self, to: Reg, (from, offset): (Reg, i16)) {
        self.push(LOAD_64, (to, from as u8), offset, 0);
    }

    /// Loads 32 bits; the others become 0.
    pub(crate) fn load_half(&mut self, to: Reg, (from, offset): (Reg, i16)) {
        self.push(LOAD_32, (to, from as u8), offset, 0);
    }

    /// Stores 64 bits.
    pub(crate) fn store(&mut self, (to, offset): (Reg, i16), from: Reg) {
        self.push(STORE_64, (to, from as u8), offset, 0);
    }

    /// Calls a function of the kernel by its number.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(CALL, (Reg::R0, 0), 0, helper);
    }

    /// Calls a function of the kernel by the number of its type.
    pub(crate) fn call_by_type(&mut self, function: i32) {
        self.push(CALL, (Reg::R0, BY_TYPE), 0, function);
    }

    /// Ends the program with a number as its answer.
    pub(crate) fn exit(&mut self, answer: i32) {
        self.op(Op::Set, Reg::R0, answer);
        self.push(EXIT, (Reg::R0, 0), 0, 0);
    }

    /// A place to jump to, to be set by [`Self::place`].
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// Sets a label to what comes next.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = self.list.len();
    }

    /// Jumps.
    pub(crate) fn goto(&mut self, label: Label) {
        self.jumps.push((self.list.len(), label));
        self.push(JUMP, (Reg::R0, 0), 0, 0);
    }

    /// Jumps if a register compares so with a number.
    pub(crate) fn jump(&mut self, condition: If, (left, right): (Reg, i32), label: Label) {
        self.jumps.push((self.list.len(), label));
        self.push(JUMP | condition as u8, (left, 0), 0, right);
    }

    /// Jumps if a register compares so with another one.
    pub(crate) fn jump_reg(&mut self, condition: If, (left, right): (Reg, Reg), label: Label) {
        self.jumps.push((self.list.len(), label));
        self.push(JUMP | REGISTER | condition as u8, (left, right as u8), 0, 0);
    }

    /// The whole program.
    ///
    /// # Panics
    /// When a label was not placed, or a jump is too far.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let distance = self.places[label.0].cast_signed() - at.cast_signed() - 1;
            self.list[at].offset = i16::try_from(distance).expect("jumps stay in the program");
        }
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let mut code = Code::default();
        let (again, end) = (code.label(), code.label());
        code.place(again);
        code.jump(If::Equal, (Reg::R1, 5), end);
        code.constant(Reg::R2, 1 << 40 | 3);
        code.goto(again);
        code.place(end);
        code.exit(7);
        let list = code.finish();
        assert_eq!(list[0], Insn { operation: 0x15, registers: 1, offset: 3, value: 5 });
        assert_eq!((list[1].value, list[2].value), (3, 1 << 8));
        assert_eq!((list[3].operation, list[3].offset), (0x05, -4));
        assert_eq!((list[4].operation, list[4].value, list[5].operation), (0xb7, 7, 0x95));
    }
}
