//! Restartable sequences (rseq(2)): short pieces of code that must run without being interrupted,
//! and that the kernel starts again elsewhere when they are.
//!
//! A thread that we stop inside one and send elsewhere would come back to its middle, since the
//! kernel looks at where the thread is, not at where it was. So we do as the kernel does: such a
//! thread goes on at the sequence's abort handler. Everything here is read from the target and
//! decides nothing but where the target itself goes on.

/// What the thread's area points to while it is inside a sequence: `struct rseq_cs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// First instruction.
    pub start: u64,
    /// Bytes of instructions.
    pub bytes: u64,
    /// Where the thread goes on when it was interrupted.
    pub abort: u64,
}

/// Bytes of `struct rseq_cs`.
pub const SEQUENCE_BYTES: usize = 32;
/// Where in the thread's area the address of its sequence lies.
pub const SEQUENCE_AT: u64 = 8;
/// The first address that is no program's.
const END_OF_PROGRAM: u64 = 1 << 47;

impl Sequence {
    /// Version and flags, start, length, abort handler.
    pub fn parse(bytes: &[u8; SEQUENCE_BYTES]) -> Sequence {
        let word = |i: usize| {
            bytes[i * 8..].iter().take(8).rev().fold(0u64, |v, &b| v << 8 | u64::from(b))
        };
        Sequence { start: word(1), bytes: word(2), abort: word(3) }
    }

    /// Whether a thread at this instruction has to go on at the abort handler.
    pub fn holds(&self, instruction: u64) -> bool {
        instruction.wrapping_sub(self.start) < self.bytes
            && (4..END_OF_PROGRAM).contains(&self.abort)
            && self.abort.wrapping_sub(self.start) >= self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(start: u64, bytes: u64, abort: u64) -> Sequence {
        let mut raw = [0; SEQUENCE_BYTES];
        for (i, word) in [0, start, bytes, abort].into_iter().enumerate() {
            raw[i * 8..i * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Sequence::parse(&raw)
    }

    #[test]
    fn only_instructions_inside_abort() {
        let s = sequence(0x1000, 0x20, 0x2000);
        assert!(s.holds(0x1000) && s.holds(0x101f));
        assert!(!s.holds(0xfff) && !s.holds(0x1020), "committed, or not begun");
    }

    #[test]
    fn impossible_handlers_are_left_to_the_kernel() {
        assert!(!sequence(0x1000, 0x20, 0x1008).holds(0x1004), "a handler inside the sequence");
        assert!(!sequence(0x1000, 0x20, 1 << 63).holds(0x1004), "a handler of the kernel's");
        assert!(!sequence(u64::MAX - 4, u64::MAX, 0).holds(3));
    }
}
