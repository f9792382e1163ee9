//! What the processor says of itself through CPUID: model, hypervisor, caches (leaf 4, or
//! 0x8000001D on AMD).
//!
//! The answers are those of the CPU that executed the instruction; [`CpuidFacts::read`] says
//! which one that was. Nothing is judged here.

use std::fmt;

use huepage_color::{CacheKind, CacheLevel};
use raw_cpuid::{CacheParameter, CacheType, CpuId, CpuIdReader};
use serde::Serialize;

/// Maker of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, and Hygon, whose parts are AMD's.
    Amd,
    /// Anyone else, or no CPUID.
    Other,
}

/// The processor, as CPUID leaf 1 numbers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuModel {
    /// Maker.
    pub vendor: Vendor,
    /// Family, with the extended part added.
    pub family: u8,
    /// Model, with the extended part.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
    /// Brand string; may be anything in a guest.
    pub name: String,
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuModel { family, model, stepping, name, .. } = self;
        write!(f, "{name} (family {family}, model {model:#x}, stepping {stepping})")
    }
}

/// The hypervisor that CPUID leaf 0x40000000 names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hypervisor {
    /// A known name (`KVM`, `Xen`, `Hyper-V` ...) or `unknown`.
    pub name: &'static str,
    /// The twelve letters of the leaf; empty if the leaf is empty.
    pub signature: String,
}

/// One cache of leaf 4 or 0x8000001D.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuidCache {
    /// Level.
    pub level: CacheLevel,
    /// What it holds.
    pub kind: CacheKind,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Lines that share a tag; 1 everywhere so far.
    pub partitions: u32,
    /// Ways.
    pub ways: u32,
    /// Sets in all slices.
    pub sets: u32,
    /// The largest number of logical CPUs that may share it (ids reserved, so rounded up).
    pub max_sharing: u32,
}

impl CpuidCache {
    /// Line x partitions x ways x sets, in bytes.
    pub fn size_bytes(&self) -> u64 {
        let line = u64::from(self.line_bytes) * u64::from(self.partitions);
        line.saturating_mul(u64::from(self.ways)).saturating_mul(u64::from(self.sets))
    }
}

/// Everything that is asked of CPUID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuidFacts {
    /// The processor.
    pub model: CpuModel,
    /// The hypervisor, if there is one and it shows itself.
    pub hypervisor: Option<Hypervisor>,
    /// The caches of the CPU that was asked.
    pub caches: Vec<CpuidCache>,
    /// The CPU that was asked; `None` if the thread moved each time it was tried.
    pub asked: Option<u32>,
}

impl CpuidFacts {
    /// Asks the processor this thread runs on.
    pub fn read() -> CpuidFacts {
        let mut facts = CpuidFacts::from_reader(CpuId::new());
        for _ in 0..8 {
            let before = rustix::thread::sched_getcpu();
            facts = CpuidFacts::from_reader(CpuId::new());
            if before == rustix::thread::sched_getcpu() {
                facts.asked = u32::try_from(before).ok();
                break;
            }
        }
        facts
    }

    /// Takes the facts from any source of CPUID answers.
    pub fn from_reader<R: CpuIdReader>(cpuid: CpuId<R>) -> CpuidFacts {
        let caches = cpuid.get_cache_parameters().into_iter().flatten();
        CpuidFacts {
            model: model(&cpuid),
            hypervisor: hypervisor(&cpuid),
            caches: caches.filter_map(|cache| cache_of(&cache)).collect(),
            asked: None,
        }
    }
}

fn model<R: CpuIdReader>(cpuid: &CpuId<R>) -> CpuModel {
    let vendor = cpuid.get_vendor_info();
    let numbers = cpuid.get_feature_info();
    let brand = cpuid.get_processor_brand_string();
    CpuModel {
        vendor: match vendor.as_ref().map(|v| v.as_str()) {
            Some("GenuineIntel") => Vendor::Intel,
            Some("AuthenticAMD" | "HygonGenuine") => Vendor::Amd,
            _ => Vendor::Other,
        },
        family: numbers.as_ref().map_or(0, |n| n.family_id()),
        model: numbers.as_ref().map_or(0, |n| n.model_id()),
        stepping: numbers.as_ref().map_or(0, |n| n.stepping_id()),
        name: brand.map_or_else(|| "unnamed processor".into(), |b| b.as_str().trim().to_owned()),
    }
}

fn hypervisor<R: CpuIdReader>(cpuid: &CpuId<R>) -> Option<Hypervisor> {
    if !cpuid.get_feature_info()?.has_hypervisor() {
        return None;
    }
    use raw_cpuid::Hypervisor as H;
    let (name, letters) = match cpuid.get_hypervisor_info().map(|info| info.identify()) {
        Some(H::Xen) => ("Xen", "XenVMMXenVMM"),
        Some(H::VMware) => ("VMware", "VMwareVMware"),
        Some(H::HyperV) => ("Hyper-V", "Microsoft Hv"),
        Some(H::KVM) => ("KVM", "KVMKVMKVM"),
        Some(H::QEMU) => ("QEMU (emulated)", "TCGTCGTCGTCG"),
        Some(H::Bhyve) => ("bhyve", "bhyve bhyve"),
        Some(H::QNX) => ("QNX", "QNXQVMBSQG"),
        Some(H::ACRN) => ("ACRN", "ACRNACRNACRN"),
        Some(H::Unknown(ebx, ecx, edx)) => {
            // What is not printable is left out.
            let letters = [ebx, ecx, edx].map(u32::to_le_bytes).concat().into_iter();
            let signature = letters.filter(u8::is_ascii_graphic).map(char::from).collect();
            return Some(Hypervisor { name: "unknown", signature });
        }
        None => ("unknown", ""),
    };
    Some(Hypervisor { name, signature: letters.to_owned() })
}

fn cache_of(cache: &CacheParameter) -> Option<CpuidCache> {
    let kind = match cache.cache_type() {
        CacheType::Data => CacheKind::Data,
        CacheType::Instruction => CacheKind::Instruction,
        CacheType::Unified => CacheKind::Unified,
        CacheType::Null | CacheType::Reserved => return None,
    };
    // The fields are 12 bits wide at most, but for the sets, which are 32 bits plus one.
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Some(CpuidCache {
        level: CacheLevel(cache.level()),
        kind,
        line_bytes: small(cache.coherency_line_size()),
        partitions: small(cache.physical_line_partitions()),
        ways: small(cache.associativity()),
        sets: small(cache.sets()),
        max_sharing: small(cache.max_cores_for_cache()),
    })
}
