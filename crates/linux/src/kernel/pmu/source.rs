//! Who answered a load, as the kernel says it with each sample (`perf_mem_data_src`).
//!
//! The kernel says it twice: as a set of bits (`mem_lvl`), which is older and can name two levels at
//! once, and as a number (`mem_lvl_num`, Linux 4.14), beside which a bit tells of other nodes. Intel's tables
//! fill both; AMD's did only the bits before Linux 6.3, and where one code stands for two places they say
//! `any cache` in the number and both places in the bits. So the number is believed first, and the bits
//! where it says nothing.

use huepage_color::CacheLevel;

/// `PERF_MEM_OP_LOAD`.
const OP_LOAD: u64 = 0x02;
/// `PERF_MEM_TLB_MISS`, in the field of the TLB.
const TLB_MISS: u64 = 0x04 << 26;
/// Where `mem_lvl` begins; it has 14 bits.
const LVL_SHIFT: u32 = 5;
const LVL_MISS: u64 = 0x04;
const LVL_L1: u64 = 0x08;
const LVL_LFB: u64 = 0x10;
const LVL_L2: u64 = 0x20;
const LVL_L3: u64 = 0x40;
/// Memory here or elsewhere, and caches elsewhere.
const LVL_BEYOND: u64 = 0x80 | 0x100 | 0x200 | 0x400 | 0x800;
/// Devices, and memory that no cache keeps.
const LVL_NO_MEMORY: u64 = 0x1000 | 0x2000;
/// Where `mem_lvl_num` begins; it has 4 bits.
const NUM_SHIFT: u32 = 33;
/// `PERF_MEM_REMOTE_REMOTE`.
const REMOTE: u64 = 1 << 37;

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Served {
    /// The first level.
    L1,
    /// A miss that another access had caused already: no request of its own.
    Pending,
    /// The second level.
    L2,
    /// The last level of this processor, or another core's cache below it.
    L3,
    /// Memory, or a cache beyond the last level of this processor.
    Beyond,
}

impl Served {
    /// Whether a request that was answered so missed the cache of a level; `None` if that cache was never
    /// asked.
    pub fn missed(self, level: CacheLevel) -> Option<bool> {
        match (self, level.0) {
            (Served::L1, 1) | (Served::L2, 2) | (Served::L3, 3) => Some(false),
            (Served::Pending, _) | (Served::L1, _) => None,
            (Served::L2, level) => (level < 2).then_some(true),
            (Served::L3, level) => (level < 3).then_some(true),
            (Served::Beyond, _) => Some(true),
        }
    }
}

/// The word that comes with a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataSource(pub u64);

impl DataSource {
    /// Whether the access was a load.
    pub const fn is_load(self) -> bool {
        self.0 & OP_LOAD != 0
    }

    /// Whether some TLB missed.
    pub const fn missed_tlb(self) -> bool {
        self.0 & TLB_MISS != 0
    }

    /// Who answered; `None` for devices, and where the processor does not say.
    pub fn served(self) -> Option<Served> {
        let bits = self.0 >> LVL_SHIFT & 0x3fff;
        let remote = self.0 & REMOTE != 0;
        if bits & LVL_NO_MEMORY != 0 {
            return None;
        }
        let missed = bits & LVL_MISS != 0;
        let found = match self.0 >> NUM_SHIFT & 0xf {
            0x1 | 0x7 => Some(Served::L1),
            0x2 => Some(Served::L2),
            0x3 if !remote => Some(Served::L3),
            // Of these, 5 is a miss of the second level that is under way, as 12 is of the first.
            0x5 | 0xc => Some(Served::Pending),
            0x3 | 0x4 | 0x6 | 0x9 | 0xd | 0xe => Some(Served::Beyond),
            0x8 | 0xa => return None,
            _ if remote => Some(Served::Beyond),
            _ => by_bits(bits),
        };
        match found {
            // "Missed the third level" says who answered: memory, or nobody knows where.
            Some(Served::L3) if missed => Some(Served::Beyond),
            Some(Served::L1 | Served::L2) if missed => None,
            found => found,
        }
    }
}

/// The nearest place of those that the bits name.
fn by_bits(bits: u64) -> Option<Served> {
    let places = [
        (LVL_L1, Served::L1),
        (LVL_LFB, Served::Pending),
        (LVL_L2, Served::L2),
        (LVL_L3, Served::L3),
        (LVL_BEYOND, Served::Beyond),
    ];
    places.into_iter().find(|(bit, _)| bits & bit != 0).map(|(_, served)| served)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: u64 = 0x02;
    const L2: CacheLevel = CacheLevel::L2;
    const L3: CacheLevel = CacheLevel(3);

    /// Operation, bits of the level, its number, and whether it is on another node.
    fn word(op: u64, bits: u64, number: u64, remote: u64) -> DataSource {
        DataSource(op | bits << 5 | number << 33 | remote << 37)
    }

    /// What the kernel's tables have for Intel's codes of load latency (bits and numbers), and for AMD's
    /// data sources, those before Linux 6.3 without numbers.
    /// Bits of the level, its number, whether it is remote, and who served it.
    const TOLD: &[(u64, u64, u64, Option<Served>)] = &[
        // Intel: unknown miss of the L3, L1, fill buffer, L2, L3.
        (LVL_MISS, 0x3, 0, Some(Served::Beyond)),
        (HIT | LVL_L1, 0x1, 0, Some(Served::L1)),
        (HIT | LVL_LFB, 0xc, 0, Some(Served::Pending)),
        (HIT | LVL_L2, 0x2, 0, Some(Served::L2)),
        (HIT | LVL_L3, 0x3, 0, Some(Served::L3)),
        // A cache of another socket, memory here, memory there.
        (HIT | 0x400, 0x3, 1, Some(Served::Beyond)),
        (HIT | 0x80, 0xd, 0, Some(Served::Beyond)),
        (HIT | 0x100, 0xd, 1, Some(Served::Beyond)),
        // Persistent and attached memory; a device, and memory that is not cached.
        (HIT, 0xe, 0, Some(Served::Beyond)),
        (HIT, 0x9, 0, Some(Served::Beyond)),
        (HIT | 0x1000, 0xa, 0, None),
        (HIT | 0x2000, 0xf, 0, None),
        // A miss of the L2 under way (Linux 6.11), and a cache at the memory's side.
        (HIT, 0x5, 0, Some(Served::Pending)),
        (HIT, 0x6, 0, Some(Served::Beyond)),
        // AMD with numbers: L2; the L3 or another core's cache; those of another node.
        (HIT | LVL_L2, 0x2, 0, Some(Served::L2)),
        (HIT | LVL_L3 | 0x400, 0xb, 0, Some(Served::L3)),
        (HIT | 0x800, 0xb, 1, Some(Served::Beyond)),
        (HIT | LVL_L3, 0x3, 0, Some(Served::L3)),
        // AMD without: the number is 0, or "not available".
        (HIT | LVL_L1, 0x0, 0, Some(Served::L1)),
        (HIT | LVL_LFB, 0x0, 0, Some(Served::Pending)),
        (HIT | LVL_L2, 0xf, 0, Some(Served::L2)),
        (HIT | LVL_L3 | 0x400, 0x0, 0, Some(Served::L3)),
        (HIT | 0x80, 0x0, 0, Some(Served::Beyond)),
        (HIT | 0x1000, 0x0, 0, None),
        // Nothing is known; a store that missed the L1 and says no more.
        (0x01, 0xf, 0, None),
        (0x00, 0x0, 0, None),
        (LVL_MISS | LVL_L1, 0x1, 0, None),
    ];

    #[test]
    fn both_makers_and_both_encodings_are_understood() {
        for &(bits, number, remote, expected) in TOLD {
            let source = word(0x02, bits, number, remote);
            assert_eq!(source.served(), expected, "{bits:#x} {number:#x} {remote}");
        }
    }

    #[test]
    fn operations_and_tlb_misses_are_told() {
        assert!(word(0x02, 0, 0, 0).is_load() && !word(0x04, 0, 0, 0).is_load());
        assert!(!word(0x01, 0, 0, 0).is_load());
        assert!(DataSource(0x14 << 26).missed_tlb() && !DataSource(0x12 << 26).missed_tlb());
    }

    /// The fields of `perf_mem_data_src` as C has them, least significant first.
    #[test]
    fn fields_are_where_the_kernel_has_them() {
        let widths = [5, 14, 5, 2, 7, 4, 1];
        let at = |field: usize| widths[..field].iter().sum::<u32>();
        assert_eq!([LVL_SHIFT, 26, NUM_SHIFT, REMOTE.trailing_zeros()], [1, 4, 5, 6].map(at));
    }

    #[test]
    fn a_cache_misses_what_was_answered_behind_it_and_is_not_asked_before_it() {
        let seen = |level| {
            [Served::L1, Served::Pending, Served::L2, Served::L3, Served::Beyond]
                .map(|served| served.missed(level))
        };
        assert_eq!(seen(L2), [None, None, Some(false), Some(true), Some(true)]);
        assert_eq!(seen(L3), [None, None, None, Some(false), Some(true)]);
    }
}
