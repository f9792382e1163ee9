//! How an address becomes a control byte and up to eight bytes of difference.
//!
//! Each (space, thread, fetch or data) of a block has eight slots. A slot predicts one
//! stream of accesses: it holds the byte after the last access that used it, so that a walk
//! in steps of its own size costs no difference at all. The control byte names the slot
//! (low three bits) and the form of the difference (high five): its length, and the power of
//! two it is a multiple of. The encoder is free to choose; the decoder only follows.

/// Slots of a group.
pub const SLOTS: usize = 8;
/// A slot left alone for that many accesses of its group may be given to a new stream.
const IDLE: u32 = 64;
/// Lengths of a difference in bytes.
const LENGTHS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
/// Indices into `LENGTHS` by bytes needed.
const LENGTH_OF: [u8; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 7];
/// Differences are multiples of 1, 4 (words) or 8 (pointers); 64 is for later encoders.
const SHIFTS: [u8; 4] = [0, 2, 3, 6];
/// The power of two that differences with this control byte are multiples of.
#[inline(always)]
const fn shift_of(control: u8) -> u8 {
    SHIFTS[(control >> 6) as usize]
}

/// One form of a difference: how to make it from the next eight bytes. They are multiplied,
/// which moves what does not belong to it out at the top, and shifted back less far than that
/// if the difference is a multiple of something.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// A power of two, or 0 where there are no bytes.
    pub factor: u64,
    /// How far to shift back, 0 to 63.
    pub shift: u8,
    /// Its length in bytes.
    pub length: u8,
}

/// The forms, by the high five bits of a control byte.
pub static FORMS: [Form; 32] = forms();

const fn forms() -> [Form; 32] {
    let mut forms = [Form { factor: 0, shift: 0, length: 0 }; 32];
    let mut i = 0;
    while i < 32 {
        let length = LENGTHS[i % 8];
        let (spare, unit) = (64 - 8 * length, SHIFTS[i / 8]);
        forms[i].length = length;
        if length == 8 {
            forms[i].factor = 1 << unit;
        } else if length > 0 {
            forms[i].factor = 1 << spare;
            forms[i].shift = spare - unit;
        }
        i += 1;
    }
    forms
}

impl Form {
    /// The difference that the next eight bytes hold.
    #[inline(always)]
    pub const fn difference(&self, bytes: u64) -> i64 {
        bytes.wrapping_mul(self.factor).cast_signed() >> (self.shift & 63)
    }
}

/// A number with its sign in the lowest bit.
#[inline(always)]
const fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// Bits that a number needs with its sign; none for zero.
#[inline(always)]
const fn bits(number: i64) -> u32 {
    u64::BITS - folded(number).leading_zeros()
}

/// The same for choosing: too few for numbers beyond 2^62, which costs bytes at worst. The
/// one bit at the end spares the case of zero, of which leading zeros are slow to count.
#[inline(always)]
const fn rough_bits(number: i64) -> u32 {
    63 - (folded(number) << 1 | 1).leading_zeros()
}

/// The slots of a group, as the encoder keeps them.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    next: [u64; SLOTS],
    used: [u32; SLOTS],
    clock: u32,
}

impl Slots {
    /// Takes the next access: the control byte, the difference's bytes, and how many of them
    /// count. `usual` is the control byte that stands to reason here: it is taken if the
    /// difference is no longer for it, or one byte long in place of none, since a token that
    /// repeats is worth a byte.
    #[inline(always)]
    pub fn encode(&mut self, address: u64, bytes: u8, usual: u8) -> (u8, [u8; 8], usize) {
        self.clock += 1;
        let best = self.choose(address);
        let (length, shift) = form(self.difference(best, address));
        let [best, ..] = (best | length << 3 | shift << 6).to_le_bytes();
        let form = &FORMS[usize::from(usual >> 3)];
        let difference = self.difference(usize::from(usual & 7), address);
        let fits = form.difference((difference >> shift_of(usual)).cast_unsigned()) == difference;
        let control = if fits && form.length <= LENGTHS[length].max(1) { usual } else { best };
        let slot = usize::from(control & 7);
        let number = self.difference(slot, address) >> shift_of(control);
        self.next[slot] = address.wrapping_add(u64::from(bytes));
        self.used[slot] = self.clock;
        (control, number.to_le_bytes(), usize::from(FORMS[usize::from(control >> 3)].length))
    }

    /// How far an access is from where a slot expects it.
    #[inline(always)]
    const fn difference(&self, slot: usize, address: u64) -> i64 {
        address.wrapping_sub(self.next[slot]).cast_signed()
    }

    /// The slot with the shortest difference in whole bytes, the first of equals; but where
    /// two bytes or more are needed, a slot that idles is worth starting anew.
    #[inline(always)]
    fn choose(&self, address: u64) -> usize {
        // Bytes above, slot below: one minimum finds both, without a branch.
        let mut best = u32::MAX;
        for (number, next) in (0..).zip(self.next) {
            let difference = address.wrapping_sub(next).cast_signed();
            let round = if difference & 7 == 0 { 4 } else { 7 };
            best = best.min((rough_bits(difference) + round) & !7 | number);
        }
        let slot = (best & 7) as usize;
        // Looked for now and then, in no rhythm that a loop could have.
        let look = self.clock.wrapping_mul(0x9e37_79b1) >> 29 == 0;
        if look && best >> 3 >= 2 { self.idle().unwrap_or(slot) } else { slot }
    }

    fn idle(&self) -> Option<usize> {
        let (slot, used) = self.used.iter().enumerate().min_by_key(|(_, used)| **used)?;
        (*used == 0 || self.clock - used > IDLE).then_some(slot)
    }
}

/// Indices into `LENGTHS` and `SHIFTS`: the shortest form; of equals that for multiples of 8,
/// then that for any number, since few forms in use compress better. Without branches:
/// nothing predicts the lengths of differences.
#[inline(always)]
const fn form(difference: i64) -> (usize, usize) {
    const SAVED: [u32; 8] = [3, 0, 0, 0, 2, 0, 0, 0];
    let [low, ..] = difference.to_le_bytes();
    let (bits, saved) = (bits(difference) + 7, SAVED[(low & 7) as usize]);
    let (any, less) = (bits >> 3, bits.saturating_sub(saved) >> 3);
    let shorter = (less < any) as u32 | (saved == 3) as u32;
    // 3 bits saved are shift 2 of `SHIFTS`, 2 bits are shift 1.
    let shift = (saved - (saved > 0) as u32) * shorter;
    (LENGTH_OF[less as usize] as usize, shift as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_are_indexed_as_control_bytes_are_made() {
        for (i, form) in FORMS.iter().enumerate() {
            assert_eq!(form.length, LENGTHS[i & 7]);
            let unit = i64::from(form.length > 0) << SHIFTS[i >> 3];
            assert_eq!(form.difference(1), unit);
            assert_eq!(form.difference(u64::MAX), -unit);
        }
    }

    #[test]
    fn a_walk_in_steps_of_its_size_costs_no_bytes() {
        let mut slots = Slots::default();
        slots.encode(0x1000, 8, 0);
        for i in 1..100 {
            assert_eq!(slots.encode(0x1000 + i * 8, 8, 0).2, 0);
        }
    }

    #[test]
    fn interleaved_arrays_get_a_slot_each() {
        let mut slots = Slots::default();
        let mut bytes = 0;
        for i in 0..1000 {
            for base in [0x10_0000, 0x11_0000, 0x7fff_0000_0000] {
                bytes += slots.encode(base + i * 8, 8, 0).2;
            }
        }
        assert!(bytes < 200, "{bytes} bytes");
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(
            accesses in prop::collection::vec((any::<u64>(), 0_u32..64, any::<u8>(), any::<u8>()), 1..200),
        ) {
            let mut slots = Slots::default();
            let mut next = [0_u64; SLOTS];
            for (word, shift, bytes, usual) in accesses {
                let address = word >> shift;
                let (control, number, _) = slots.encode(address, bytes, usual);
                let form = &FORMS[usize::from(control >> 3)];
                let slot = &mut next[usize::from(control & 7)];
                let found = slot.wrapping_add_signed(form.difference(u64::from_le_bytes(number)));
                *slot = found.wrapping_add(u64::from(bytes));
                prop_assert_eq!(found, address);
            }
        }
    }
}
