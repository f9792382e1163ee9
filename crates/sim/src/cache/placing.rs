//! From an address to the set it competes for, as every access needs it: parities of an address
//! are sums of those of its bytes, which are looked up.

use huepage_color::IndexFunction;

/// How a cache chooses sets.
#[derive(Clone, Debug)]
pub(super) enum Placing {
    /// Plain address bits.
    Bits { mask: u64 },
    /// A number of sets that is no power of two, in one piece.
    Rest { sets: u64 },
    /// Slices.
    Sliced(Box<Slices>),
}

/// Values of a byte.
const VALUES: usize = 1 << 8;

/// A sliced cache.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    set_bits: u32,
    /// For each byte of a line's number and each of its values, what it adds to the number of the
    /// slice, or to the place in the base sequence.
    parities: [[u16; VALUES]; 8],
    /// The base sequence, if there is one.
    base: Vec<u8>,
}

impl Placing {
    /// So many sets in one piece.
    pub(super) const fn whole(sets: u64) -> Placing {
        match sets.is_power_of_two() {
            true => Placing::Bits { mask: sets - 1 },
            false => Placing::Rest { sets },
        }
    }

    pub(super) fn of(function: IndexFunction) -> Placing {
        let (line_bits, set_bits) = (function.line_bits(), function.set_bits());
        let (masks, base) = match function {
            IndexFunction::Linear { .. } => return Placing::whole(1 << set_bits),
            IndexFunction::Xor { slice_masks, .. } => (slice_masks, Vec::new()),
            IndexFunction::Permuted { base, permutation, .. } => (permutation, base),
        };
        // The place in the base sequence counts lines, too.
        let own = base.len().max(1) as u64 - 1;
        let value = |line: u64| {
            let address = line << line_bits;
            let parity = |&mask: &u64| u16::from((address & mask).count_ones() % 2 == 1);
            let parities = masks.iter().rev().fold(0, |number, mask| number << 1 | parity(mask));
            u16::try_from(line & own).unwrap_or(0) ^ parities
        };
        let byte = |at: usize| std::array::from_fn(|byte| value((byte as u64) << (8 * at)));
        let parities = std::array::from_fn(byte);
        Placing::Sliced(Box::new(Slices { set_bits, parities, base }))
    }

    /// The set of a line.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
    pub(super) fn set_of(&self, line: u64) -> usize {
        match self {
            Placing::Bits { mask } => (line & mask) as usize,
            Placing::Rest { sets } => (line % sets) as usize,
            Placing::Sliced(slices) => slices.set_of(line),
        }
    }

    /// How lines without their lowest bits choose among the sets that differ in the others, if these bits
    /// choose sets of their own. Slices may have other numbers, which are the same for all lines with
    /// those lowest bits.
    pub(super) fn divided(&self, bits: u32) -> Option<Placing> {
        match self {
            Placing::Bits { mask } => {
                (mask >> bits > 0).then_some(Placing::Bits { mask: mask >> bits })
            }
            Placing::Rest { sets } if sets.is_multiple_of(1 << bits) => {
                Some(Placing::Rest { sets: sets >> bits })
            }
            Placing::Sliced(slices) if slices.base.is_empty() && slices.set_bits > bits => {
                let of = |line: u64| {
                    let bytes = line.to_le_bytes();
                    (0..8).fold(0, |all, at| all ^ slices.parities[at][usize::from(bytes[at])])
                };
                let byte = |at: usize| std::array::from_fn(|b| of((b as u64) << (8 * at) << bits));
                let parities = std::array::from_fn(byte);
                let set_bits = slices.set_bits - bits;
                Some(Placing::Sliced(Box::new(Slices { set_bits, parities, base: Vec::new() })))
            }
            _ => None,
        }
    }

    /// The same for any number of bits, none included.
    pub(super) fn strip(&self, bits: u32) -> Option<Placing> {
        if bits == 0 { Some(self.clone()) } else { self.divided(bits) }
    }

    /// Whether lines that share a set here always share one there.
    pub(super) fn refines(&self, other: &Placing) -> bool {
        let own = match self {
            Placing::Bits { mask } => *mask,
            Placing::Rest { .. } => 0,
            Placing::Sliced(slices) => (1 << slices.set_bits) - 1,
        };
        other.mask().is_some_and(|mask| mask & !own == 0)
    }

    /// The bits of a line's number that choose its set, if that is all there is to it.
    pub(super) const fn mask(&self) -> Option<u64> {
        match self {
            Placing::Bits { mask } => Some(*mask),
            _ => None,
        }
    }
}

impl Slices {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
    fn set_of(&self, line: u64) -> usize {
        let bytes = line.to_le_bytes();
        let part = |at: usize| self.parities[at][usize::from(bytes[at])];
        let mut number = part(0) ^ part(1) ^ part(2) ^ part(3);
        if line >> 32 != 0 {
            number ^= part(4) ^ part(5) ^ part(6) ^ part(7);
        }
        let number = usize::from(number);
        let slice = self.base.get(number).map_or(number, |&slice| usize::from(slice));
        slice << self.set_bits | (line as usize & ((1 << self.set_bits) - 1))
    }
}

#[cfg(test)]
mod tests {
    use huepage_color::PhysAddr;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_are_those_of_the_index_function(
            masks in prop::collection::vec(any::<u64>(), 1..5),
            base in prop::option::of(prop::collection::vec(0_u8..7, 16)),
            lines in prop::collection::vec((any::<u64>(), 0_u32..60), 1..50),
        ) {
            let masks: Vec<u64> = masks.iter().map(|mask| mask >> 6 << 6).collect();
            let function = match base {
                Some(base) => IndexFunction::permuted(6, 11, base, masks),
                None => IndexFunction::xor(6, 11, masks),
            };
            let Ok(function) = function else { return Ok(()) };
            let placing = Placing::of(function.clone());
            for (line, shift) in lines {
                let line = line << 6 >> 6 >> shift;
                let want = function.locate(PhysAddr(line << 6));
                let want = usize::from(want.slice) << 11 | usize::try_from(want.set).unwrap();
                prop_assert_eq!(placing.set_of(line), want);
            }
        }
    }
}
