//! Linear algebra over GF(2) on 64-bit masks. A mask stands for the function "parity of the
//! address AND the mask"; spans of such functions are what index hashes are made of. Nothing
//! here knows about caches.

/// 1 if an odd number of the bits of `addr` selected by `mask` are set.
pub const fn parity(addr: u64, mask: u64) -> u64 {
    (addr & mask).count_ones() as u64 & 1
}

/// The reduced basis of the span of `rows`, pivots being the *lowest* bit of each row,
/// ascending. Every pivot bit occurs in its own row only, so [`representative`] can undo
/// [`evaluate`]. The result is the same for any two lists with the same span.
pub fn reduce(rows: &[u64]) -> Vec<u64> {
    let mut rows = rows.to_vec();
    let mut basis = Vec::new();
    for bit in 0..64 {
        if let Some(pivot) = take_pivot(&mut rows, bit) {
            clear(&mut basis, bit, pivot);
            basis.push(pivot);
        }
    }
    basis
}

/// The part of the span of `rows` that uses no bit below `bits`, as a reduced basis: the
/// functions of an address that are constant over a page of 2^`bits` bytes.
pub fn above(rows: &[u64], bits: u32) -> Vec<u64> {
    let mut rows = rows.to_vec();
    for bit in 0..bits {
        take_pivot(&mut rows, bit);
    }
    reduce(&rows)
}

/// The number of independent functions among `rows`.
pub fn rank(rows: &[u64]) -> usize {
    reduce(rows).len()
}

/// Removes one row with this bit set and clears the bit in all that remain.
fn take_pivot(rows: &mut Vec<u64>, bit: u32) -> Option<u64> {
    let at = rows.iter().position(|row| row >> bit & 1 == 1)?;
    let pivot = rows.swap_remove(at);
    clear(rows, bit, pivot);
    Some(pivot)
}

fn clear(rows: &mut [u64], bit: u32, pivot: u64) {
    for row in rows.iter_mut().filter(|row| **row >> bit & 1 == 1) {
        *row ^= pivot;
    }
}

/// The functions' values at `addr`, the first mask giving bit 0.
pub fn evaluate(masks: &[u64], addr: u64) -> u64 {
    masks.iter().zip(0..).fold(0, |value, (&mask, bit)| value | parity(addr, mask) << bit)
}

/// An address at which the functions of a *reduced* `basis` take `value`.
pub fn representative(basis: &[u64], value: u64) -> u64 {
    let pivots = basis.iter().map(|mask| mask & mask.wrapping_neg());
    pivots.zip(0..).filter(|&(_, bit)| value >> bit & 1 == 1).fold(0, |addr, (p, _)| addr | p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn span(rows: &[u64]) -> BTreeSet<u64> {
        (0_u64..1 << rows.len())
            .map(|pick| rows.iter().zip(0..).fold(0, |s, (r, i)| s ^ (r * (pick >> i & 1))))
            .collect()
    }

    proptest! {
        #[test]
        fn reduce_keeps_the_span(rows in prop::collection::vec(0_u64..1 << 12, 0..7)) {
            let basis = reduce(&rows);
            prop_assert_eq!(span(&basis), span(&rows));
            prop_assert_eq!(1 << basis.len(), span(&rows).len());
            prop_assert_eq!(rank(&rows), basis.len());
        }

        #[test]
        fn above_is_the_span_without_low_bits(
            rows in prop::collection::vec(0_u64..1 << 12, 0..7), bits in 0_u32..12,
        ) {
            let want: BTreeSet<u64> =
                span(&rows).into_iter().filter(|m| m & ((1 << bits) - 1) == 0).collect();
            prop_assert_eq!(span(&above(&rows, bits)), want);
        }

        #[test]
        fn representative_undoes_evaluate(
            rows in prop::collection::vec(any::<u64>(), 0..10), value in any::<u64>(),
        ) {
            let basis = reduce(&rows);
            let value = value & ((1 << basis.len()) - 1);
            prop_assert_eq!(evaluate(&basis, representative(&basis, value)), value);
        }
    }
}
