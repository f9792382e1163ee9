//! Whether a program is worth a partition, superpages, or neither, by what was seen of it for some seconds.
//! Measures nothing. A partition of the L2 helps where somebody shares that cache, and one of them streams
//! through it while another uses it again; superpages help where TLB misses take time.

use serde::Serialize;

/// CPU seconds a second below which a program hardly runs, and others hardly share its cache.
const RUNS: f64 = 0.02;
/// How often a second a program has to pass through as much as a whole L2 to count as streaming through it: what
/// another one leaves there is gone within a fiftieth of a second, a few turns of the scheduler.
const STREAMS_PER_SECOND: f64 = 50.0;
/// The share of an L2 below which memory that is used again needs no protection.
const LITTLE: f64 = 1.0 / 16.0;
/// Room in a share beside what is used again: text, stacks and what is used now and then.
const ROOM: f64 = 1.25;
/// The share of its CPU time that a program has to lose to TLB misses for superpages to be worth their while.
const TLB_PAYS: f64 = 0.02;

/// What was seen of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProgramSeen {
    /// CPU seconds that it used a second.
    pub cpu: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Bytes of its superpages.
    pub huge_bytes: u64,
    /// Bytes in pages that it uses again within milliseconds of its CPU time, superpages left out; `None` where that
    /// cannot be told.
    pub reused_bytes: Option<u64>,
    /// Bytes in other pages that it passes through in a second of its CPU time.
    pub streamed_bytes_per_second: Option<u64>,
    /// The share of its CPU time that TLB misses take at most, at pages of 4 KiB: walks overlap with other work.
    pub tlb_share: Option<f64>,
    /// Blocks of 2 MiB of which something is resident and which could be superpages; `None` where nobody could look.
    pub blocks: Option<u64>,
    /// Superpages that the usual policy would build.
    pub superpages: u64,
}

impl ProgramSeen {
    const fn is_mostly_huge(&self) -> bool {
        2 * self.huge_bytes > self.resident_bytes
    }
}

/// The L2, and who else uses it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheSeen {
    /// Its size.
    pub bytes: u64,
    /// Its colours.
    pub colors: u16,
    /// CPU seconds a second that other processes of this system used on CPUs that share it with the program.
    pub others: f64,
}

impl CacheSeen {
    /// Colours that hold so many bytes: one at least, and never all of them.
    fn colors_for(&self, bytes: f64) -> u16 {
        #[allow(clippy::cast_precision_loss, reason = "bytes of a cache")]
        let share = bytes / self.bytes.max(1) as f64;
        let colors = (share * f64::from(self.colors)).ceil();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "as many as there are"
        )]
        let colors = colors.min(f64::from(self.colors)) as u16;
        colors.clamp(1, self.colors.saturating_sub(1).max(1))
    }
}

/// Whether a program is worth a partition of the L2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum PartitionSuits {
    /// It hardly runs.
    Idle,
    /// Too little was seen of its memory.
    Unknown,
    /// Most of its memory lies in superpages, which have every colour: a share would break them.
    Superpages,
    /// Nobody else uses its L2.
    Alone,
    /// It streams through the cache and uses little of it again: confine it to so many colours.
    Confine {
        /// Colours that it needs.
        colors: u16,
    },
    /// It uses a part of the cache again: keep so many colours for it, and the others out of them.
    Protect {
        /// Colours that it needs.
        colors: u16,
    },
    /// It uses more again than the cache holds: a share would cost it what a smaller cache costs.
    TooLarge,
    /// It uses little of the cache and brings little in.
    Small,
}

impl PartitionSuits {
    /// Whether one is worth its while.
    pub const fn is_worth(&self) -> bool {
        matches!(self, PartitionSuits::Confine { .. } | PartitionSuits::Protect { .. })
    }
}

/// Whether a program is worth superpages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum SuperpagesSuit {
    /// It hardly runs.
    Idle,
    /// TLB misses could not be told.
    Unknown,
    /// It has no memory in which a superpage fits.
    NoRoom,
    /// Most of its memory lies in superpages already.
    HasThem,
    /// TLB misses take time, and a policy builds superpages against them.
    Worth,
    /// TLB misses take little time.
    FewMisses,
    /// TLB misses take time, but no block of 2 MiB has enough of them.
    Sparse,
}

/// What a partition would do for a program.
pub fn partition(seen: &ProgramSeen, cache: &CacheSeen) -> PartitionSuits {
    if seen.cpu < RUNS {
        return PartitionSuits::Idle;
    }
    if cache.others < RUNS {
        return PartitionSuits::Alone;
    }
    if seen.is_mostly_huge() {
        return PartitionSuits::Superpages;
    }
    let (Some(reused), Some(streamed)) = (seen.reused_bytes, seen.streamed_bytes_per_second) else {
        return PartitionSuits::Unknown;
    };
    #[allow(clippy::cast_precision_loss, reason = "bytes of memory")]
    let (reused, streamed, size) = (reused as f64, streamed as f64, cache.bytes as f64);
    let (streams, colors) =
        (streamed >= STREAMS_PER_SECOND * size, cache.colors_for(ROOM * reused));
    match reused / size.max(1.0) {
        share if share > 1.0 => PartitionSuits::TooLarge,
        share if share >= 2.0 * LITTLE => PartitionSuits::Protect { colors },
        _ if streams => PartitionSuits::Confine { colors },
        share if share >= LITTLE => PartitionSuits::Protect { colors },
        _ => PartitionSuits::Small,
    }
}

/// What superpages would do for it.
pub fn superpages(seen: &ProgramSeen) -> SuperpagesSuit {
    match seen.tlb_share {
        _ if seen.cpu < RUNS => SuperpagesSuit::Idle,
        _ if seen.is_mostly_huge() => SuperpagesSuit::HasThem,
        _ if seen.blocks == Some(0) => SuperpagesSuit::NoRoom,
        None => SuperpagesSuit::Unknown,
        Some(share) if share < TLB_PAYS => SuperpagesSuit::FewMisses,
        Some(_) if seen.superpages == 0 => SuperpagesSuit::Sparse,
        Some(_) => SuperpagesSuit::Worth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const CACHE: CacheSeen = CacheSeen { bytes: MIB, colors: 32, others: 0.5 };

    fn seen(reused_bytes: u64, caches: u64) -> ProgramSeen {
        ProgramSeen {
            cpu: 1.0,
            resident_bytes: 64 * MIB,
            reused_bytes: Some(reused_bytes),
            streamed_bytes_per_second: Some(caches * MIB),
            ..ProgramSeen::default()
        }
    }

    #[test]
    fn who_streams_is_confined_and_who_reuses_is_protected() {
        let suits = |reused, fills| partition(&seen(reused, fills), &CACHE);
        assert_eq!(suits(0, 4000), PartitionSuits::Confine { colors: 1 });
        assert_eq!(suits(MIB / 10, 4000), PartitionSuits::Confine { colors: 4 });
        assert_eq!(suits(MIB / 2, 3), PartitionSuits::Protect { colors: 20 });
        assert_eq!(suits(MIB / 2, 4000), PartitionSuits::Protect { colors: 20 });
        assert_eq!(suits(MIB, 3), PartitionSuits::Protect { colors: 31 }, "others need one");
        assert_eq!(suits(64 * MIB, 4000), PartitionSuits::TooLarge);
        assert_eq!(suits(MIB / 64, 3), PartitionSuits::Small);
    }

    #[test]
    fn nobody_is_helped_who_is_alone_or_idle_or_unknown() {
        let alone = CacheSeen { others: 0.01, ..CACHE };
        assert_eq!(partition(&seen(MIB / 2, 3), &alone), PartitionSuits::Alone);
        let idle = ProgramSeen { cpu: 0.0, ..seen(MIB / 2, 3) };
        assert_eq!(partition(&idle, &CACHE), PartitionSuits::Idle);
        let blind = ProgramSeen { streamed_bytes_per_second: None, ..seen(MIB / 2, 3) };
        assert_eq!(partition(&blind, &CACHE), PartitionSuits::Unknown);
        assert!(!PartitionSuits::Unknown.is_worth());
        let huge = ProgramSeen { huge_bytes: 60 * MIB, ..seen(0, 4000) };
        assert_eq!(partition(&huge, &CACHE), PartitionSuits::Superpages);
    }

    #[test]
    fn superpages_are_for_who_misses_and_has_none() {
        let missing =
            ProgramSeen { tlb_share: Some(0.2), blocks: Some(32), superpages: 9, ..seen(0, 0) };
        assert_eq!(superpages(&missing), SuperpagesSuit::Worth);
        assert_eq!(superpages(&ProgramSeen { superpages: 0, ..missing }), SuperpagesSuit::Sparse);
        let few = ProgramSeen { tlb_share: Some(0.01), ..missing };
        assert_eq!(superpages(&few), SuperpagesSuit::FewMisses);
        let huge = ProgramSeen { huge_bytes: 60 * MIB, ..missing };
        assert_eq!(superpages(&huge), SuperpagesSuit::HasThem);
        assert_eq!(
            superpages(&ProgramSeen { tlb_share: None, ..missing }),
            SuperpagesSuit::Unknown
        );
        assert_eq!(superpages(&ProgramSeen { blocks: Some(0), ..missing }), SuperpagesSuit::NoRoom);
        assert_eq!(superpages(&ProgramSeen { cpu: 0.0, ..missing }), SuperpagesSuit::Idle);
    }

    proptest::proptest! {
        #[test]
        fn colours_are_some_and_never_all(
            colors in 2_u16..256, bytes in 1_u64..1 << 32, reused in 0_u64..1 << 34, streamed: u64,
        ) {
            let cache = CacheSeen { bytes, colors, others: 1.0 };
            let found = partition(&ProgramSeen { streamed_bytes_per_second: Some(streamed), ..seen(reused, 0) }, &cache);
            if let PartitionSuits::Confine { colors: n } | PartitionSuits::Protect { colors: n } = found {
                proptest::prop_assert!(n >= 1 && n < colors);
            }
        }
    }
}
