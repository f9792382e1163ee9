//! Bitmaps from a page table. This is done here and not by the program in the kernel: there it is
//! a fifth slower, and takes a quarter of a second to be checked when the program is loaded.

use super::bits::Bits512;
use super::program::{ACCESSED, NO_RIGHTS, PRESENT, SPECIAL, Table};

/// The present entries of a table, and those of them that were accessed.
pub(super) fn pack(table: &Table) -> (Bits512, Bits512) {
    let (mut present, mut accessed) = (Bits512::NONE, Bits512::NONE);
    for (i, entries) in table.chunks_exact(64).enumerate() {
        // Compilers make vector instructions of this loop, which they do not of shifts by an index.
        let mut low = [0; 64];
        for (low, entry) in low.iter_mut().zip(entries) {
            *low = (entry & (PRESENT | ACCESSED)).to_le_bytes()[0];
        }
        for (j, eight) in low.as_chunks().0.iter().enumerate() {
            let eight = u64::from_le_bytes(*eight);
            present.0[i] |= lowest_bits(eight) << (j * 8);
            accessed.0[i] |= lowest_bits(eight >> ACCESSED.trailing_zeros()) << (j * 8);
        }
    }
    (present, accessed & present)
}

/// How many entries of a table map a page of the process, and how many the page of zeroes.
pub(super) fn count(table: &Table) -> [u16; 2] {
    let mut found = [0; 2];
    for entry in table {
        let mapped = u16::from(entry & (PRESENT | NO_RIGHTS) != 0);
        let zero = u16::from(entry & SPECIAL != 0) & mapped;
        found[0] += mapped - zero;
        found[1] += zero;
    }
    found
}

/// The lowest bit of each byte, side by side: the factor moves bit 8i to bit 56 + i.
fn lowest_bits(bytes: u64) -> u64 {
    (bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_its_bits() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let table: Table = std::array::from_fn(|_| random.u64(..));
            let (present, accessed) = pack(&table);
            let with = |bits, all| move |entry: &&u64| (*entry & bits != 0) == all;
            let mapped = table.iter().filter(with(PRESENT | NO_RIGHTS, true));
            let zero = mapped.clone().filter(with(SPECIAL, true)).count();
            assert_eq!(count(&table).map(usize::from), [mapped.count() - zero, zero]);
            for (i, entry) in table.iter().enumerate() {
                let here = entry & PRESENT != 0;
                assert_eq!(present.get(i), here);
                assert_eq!(accessed.get(i), here && entry & ACCESSED != 0);
            }
        }
    }
}
