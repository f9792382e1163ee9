//! The translation look-aside buffer of this machine for data: how many pages it holds, and a
//! model of it for part of a program's pages. What a miss costs is a rule of thumb: no counter says.

use huepage_color::Vpn;
use huepage_model::sets::Replacement;
use huepage_model::tlb::{Tlb, TlbPage};
use raw_cpuid::{CpuId, CpuIdReader, DatType};
use serde::Serialize;

/// Entries of a machine that does not say: those of most of the last ten years.
const USUAL_ENTRIES: usize = 1536;
/// Nanoseconds of a page walk: on bare metal, and in a guest, where each of its steps is a walk of
/// the host's tables. A walk of 512 MiB by chance was 33 ns a miss slower with small pages in a guest.
const WALK_NS: [u64; 2] = [12, 30];

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TlbShape {
    /// Pages of 4 KiB that its last level holds.
    pub entries: usize,
    /// Whether CPUID said so.
    pub known: bool,
    /// Nanoseconds that a miss costs.
    pub walk_ns: u64,
}

impl TlbShape {
    /// Of the CPU that this runs on.
    pub fn read() -> TlbShape {
        TlbShape::from_cpuid(&CpuId::new())
    }

    /// From any source of CPUID answers: leaf 0x80000006 of AMD, 0x18 of Intel. To a guest a hypervisor may say what no
    /// such processor has (128 entries of one that has 4,096): fewer than usual are not believed there.
    pub fn from_cpuid<R: CpuIdReader>(cpuid: &CpuId<R>) -> TlbShape {
        let guest = cpuid.get_feature_info().is_some_and(|info| info.has_hypervisor());
        let found = amd(cpuid).into_iter().chain(intel(cpuid)).max();
        let found = found.filter(|&entries| !guest || entries >= USUAL_ENTRIES);
        TlbShape {
            entries: found.unwrap_or(USUAL_ENTRIES),
            known: found.is_some(),
            walk_ns: WALK_NS[usize::from(guest)],
        }
    }
}

fn amd<R: CpuIdReader>(cpuid: &CpuId<R>) -> Option<usize> {
    let info = cpuid.get_l2_l3_cache_and_tlb_info()?;
    Some(usize::from(info.dtlb_4k_size())).filter(|&entries| entries > 0)
}

fn intel<R: CpuIdReader>(cpuid: &CpuId<R>) -> Option<usize> {
    let levels = cpuid.get_deterministic_address_translation_info()?;
    let data = |kind| matches!(kind, DatType::DataTLB | DatType::UnifiedTLB | DatType::LoadOnly);
    let entries = levels
        .filter(|level| level.has_4k_entries() && data(level.cache_type()))
        .map(|level| usize::from(level.ways()) * level.sets() as usize);
    entries.max().filter(|&entries| entries > 0)
}

/// A TLB for a sample of a program's pages, with as large a part of the entries. Fully
/// associative and replaced by age, as a real one of many ways nearly is.
#[derive(Debug)]
pub struct SampledTlb {
    tlb: Tlb,
}

impl SampledTlb {
    /// Of a share of the entries, 4 at least.
    pub fn new(shape: &TlbShape, share: f64) -> SampledTlb {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "entries")]
        let entries = ((shape.entries as f64 * share.clamp(0.0, 1.0)).round() as usize).max(4);
        SampledTlb { tlb: Tlb::new(entries, entries, &[0], Replacement::Lru) }
    }

    /// A page is used: whether it was missing, and what made way for it.
    pub fn touch(&mut self, space: u16, page: Vpn) -> Option<Option<Vpn>> {
        let victim = self.tlb.access(TlbPage::of(space, page, 0)).err()?;
        Some(victim.filter(|victim| victim.space == space).map(|victim| Vpn(victim.number)))
    }
}

#[cfg(test)]
mod tests {
    use raw_cpuid::CpuIdResult;

    use super::*;

    fn shape(amd: bool, leaf: u32, answer: CpuIdResult) -> TlbShape {
        shape_of(amd, false, leaf, answer)
    }

    fn shape_of(amd: bool, guest: bool, leaf: u32, answer: CpuIdResult) -> TlbShape {
        let none = CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        let name = if amd { *b"AuthcAMDenti" } else { *b"Genuntelinei" };
        let word = |i: usize| u32::from_le_bytes(name[4 * i..4 * i + 4].try_into().unwrap());
        TlbShape::from_cpuid(&CpuId::with_cpuid_fn(move |eax, ecx| match eax {
            0 => CpuIdResult { eax: 0x20, ebx: word(0), ecx: word(1), edx: word(2) },
            1 => CpuIdResult { ecx: u32::from(guest) << 31, ..none },
            0x8000_0000 => CpuIdResult { eax: 0x8000_0021, ..none },
            _ if eax == leaf && ecx == 0 => answer,
            _ => none,
        }))
    }

    #[test]
    fn amd_tells_its_entries_in_one_leaf() {
        // 3,072 entries for data in bits 27 to 16 of EBX.
        let answer = CpuIdResult { eax: 0, ebx: 0x6c00 << 16, ecx: 0, edx: 0 };
        let found = shape(true, 0x8000_0006, answer);
        assert_eq!((found.entries, found.known), (3072, true));
    }

    #[test]
    fn a_hypervisor_is_believed_only_what_a_processor_has() {
        let of = |guest, entries: u32| {
            let answer = CpuIdResult { eax: 0, ebx: 0x6000_0000 | entries << 16, ecx: 0, edx: 0 };
            shape_of(true, guest, 0x8000_0006, answer)
        };
        assert_eq!((of(true, 128).entries, of(true, 128).known), (USUAL_ENTRIES, false));
        assert_eq!((of(true, 2048).entries, of(true, 2048).known), (2048, true));
        assert_eq!(
            (of(false, 128).entries, of(false, 128).known),
            (128, true),
            "its own processor"
        );
    }

    #[test]
    fn who_says_nothing_gets_the_usual() {
        let found = shape(false, 1234, CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 });
        assert_eq!((found.entries, found.known, found.walk_ns), (USUAL_ENTRIES, false, 12));
    }

    #[test]
    fn a_model_of_a_share_holds_as_large_a_share() {
        let shape = TlbShape { entries: 64, known: true, walk_ns: 30 };
        let mut model = SampledTlb::new(&shape, 0.125);
        let mut misses = |pages: u64| {
            (0..2).map(|_| (0..pages).filter(|&p| model.touch(0, Vpn(p)).is_some()).count()).last()
        };
        assert_eq!(misses(8), Some(0));
        assert_eq!(misses(9), Some(9), "by age, one too many misses always");
    }
}
