//! What is known of the slices of a last-level cache: how many there are, how many sets each
//! has, and which address bits choose one.
//!
//! No instruction tells of slices. Counts come from the published layout of a processor
//! generation and the total number of sets, masks from published reverse engineering; both
//! may be wrong for a part, so a claim carries its basis. Nothing is measured here.

use huepage_color::CacheGeometry;
use serde::{Serialize, Serializer};

use super::cpuid::{CpuModel, Vendor};

/// How firm a claim about slices is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SliceBasis {
    /// The hash of this generation and slice count is published; not verified on this machine.
    Table,
    /// The count follows from the number of sets; the hash is not known.
    Inference,
}

/// A claim about the slices of one cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SliceClaim {
    /// Slices.
    pub slices: u32,
    /// Sets in each.
    pub sets_per_slice: u32,
    /// How firm this is.
    pub basis: SliceBasis,
    /// Slice bit i is the parity of the address AND mask i; empty if not known.
    #[serde(serialize_with = "hex_masks")]
    pub masks: Vec<u64>,
    /// The reason, for a reader.
    pub why: String,
}

/// Addresses do not survive JSON readers that hold numbers as floats.
fn hex_masks<S: Serializer>(masks: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(masks.iter().map(|mask| format!("{mask:#x}")))
}

/// What the parts of one generation have in common.
#[derive(Debug)]
pub(super) struct Generation {
    pub name: &'static str,
    vendor: Vendor,
    family: u8,
    models: &'static [u8],
    /// Size in bytes and ways of the private L2, where all parts agree.
    pub l2: Option<(u64, u32)>,
    /// Ways of the L3, where all parts agree.
    pub l3_ways: Option<u32>,
    /// The most slices that any part has.
    pub max_slices: u32,
    sliced: Sliced,
    masks: &'static [&'static [u64]],
}

#[derive(Debug)]
enum Sliced {
    /// Every slice has this many sets.
    SetsEach(u32),
    /// Every cache has this many slices.
    Count(u32),
}

/// Two, four and eight slices use the first one, two and three.
const CLASSIC: &[&[u64]] = &[
    &[0x1b_5f57_5440],
    &[0x1b_5f57_5440, 0x2e_b5fa_a880],
    &[0x1b_5f57_5440, 0x2e_b5fa_a880, 0x3c_ccc9_3100],
];
const ELEVENTH: &[&[u64]] = &[&[0x5b_5f57_5440, 0x71_aeeb_1200, 0x6_d87f_2c00]];
const SKYLAKE_SP: &[&[u64]] = &[&[0x1b_5f57_5440, 0xe_b5fa_a880, 0x1c_ccc9_3100, 0x11_aeeb_1200]];

const KIB: u64 = 1024;

/// Processor generations whose layout is public. Parts that are missing here only lose the
/// claim about slices and the comparison with what a hypervisor reports.
static GENERATIONS: &[Generation] = &[
    Generation {
        name: "Sandy Bridge to Broadwell",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x2a, 0x2d, 0x3a, 0x3e, 0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56],
        l2: Some((256 * KIB, 8)),
        l3_ways: None,
        max_slices: 24,
        sliced: Sliced::SetsEach(2048),
        masks: CLASSIC,
    },
    Generation {
        name: "Skylake to Comet Lake (client)",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6],
        l2: Some((256 * KIB, 4)),
        l3_ways: None,
        max_slices: 20,
        sliced: Sliced::SetsEach(1024),
        masks: CLASSIC,
    },
    Generation {
        name: "Skylake-SP, Cascade Lake, Cooper Lake",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x55],
        l2: Some((1024 * KIB, 16)),
        l3_ways: Some(11),
        max_slices: 28,
        sliced: Sliced::SetsEach(2048),
        masks: SKYLAKE_SP,
    },
    Generation {
        name: "Ice Lake-SP",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x6a, 0x6c],
        l2: Some((1280 * KIB, 20)),
        l3_ways: Some(12),
        max_slices: 40,
        sliced: Sliced::SetsEach(2048),
        masks: &[],
    },
    Generation {
        name: "Sapphire Rapids",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x8f],
        l2: Some((2048 * KIB, 16)),
        l3_ways: Some(15),
        max_slices: 60,
        sliced: Sliced::SetsEach(2048),
        masks: &[],
    },
    Generation {
        name: "Rocket Lake",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0xa7],
        l2: Some((512 * KIB, 8)),
        l3_ways: None,
        max_slices: 8,
        sliced: Sliced::SetsEach(2048),
        masks: ELEVENTH,
    },
    Generation {
        name: "Tiger Lake to Raptor Lake",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x8c, 0x8d, 0x97, 0x9a, 0xb7, 0xba, 0xbf],
        l2: None,
        l3_ways: None,
        max_slices: 12,
        sliced: Sliced::SetsEach(4096),
        masks: ELEVENTH,
    },
    Generation {
        name: "Zen to Zen 2",
        vendor: Vendor::Amd,
        family: 0x17,
        models: &[0x01, 0x08, 0x11, 0x18, 0x31, 0x60, 0x68, 0x71, 0x90],
        l2: Some((512 * KIB, 8)),
        l3_ways: Some(16),
        max_slices: 4,
        sliced: Sliced::Count(4),
        masks: &[],
    },
    Generation {
        name: "Zen 3",
        vendor: Vendor::Amd,
        family: 0x19,
        models: &[0x01, 0x08, 0x21, 0x50],
        l2: Some((512 * KIB, 8)),
        l3_ways: Some(16),
        max_slices: 8,
        sliced: Sliced::Count(8),
        masks: &[],
    },
    Generation {
        name: "Zen 4",
        vendor: Vendor::Amd,
        family: 0x19,
        models: &[0x11, 0x18, 0x61, 0x74],
        l2: Some((1024 * KIB, 8)),
        l3_ways: Some(16),
        max_slices: 8,
        sliced: Sliced::Count(8),
        masks: &[],
    },
];

/// The generation of a processor, if the table has it.
pub(super) fn generation(cpu: &CpuModel) -> Option<&'static Generation> {
    GENERATIONS
        .iter()
        .find(|g| g.vendor == cpu.vendor && g.family == cpu.family && g.models.contains(&cpu.model))
}

/// The claim for a third-level cache whose report makes sense; `None` where nothing is known.
pub(super) fn claim(cpu: &CpuModel, cache: &CacheGeometry) -> Option<SliceClaim> {
    let Some(known) = generation(cpu) else { return guess(cpu, cache) };
    let slices = match known.sliced {
        Sliced::SetsEach(sets) => divide(cache.sets, sets)?,
        Sliced::Count(count) => divide(cache.sets, count).map(|_| count)?,
    };
    if slices > known.max_slices {
        return None;
    }
    let sets_per_slice = cache.sets / slices;
    let masks = known.masks.iter().find(|masks| 1_u32 << masks.len() == slices);
    let masks = masks.map(|masks| masks.to_vec()).unwrap_or_default();
    let (basis, why) = if masks.is_empty() {
        let why = format!("likely: the layout of {}", known.name);
        (SliceBasis::Inference, why)
    } else {
        let why = format!("with the published hash of {} (not verified here)", known.name);
        (SliceBasis::Table, why)
    };
    Some(SliceClaim { slices, sets_per_slice, basis, masks, why })
}

/// A set count that is no power of two but a multiple of 2048 speaks for slices of 2048.
fn guess(cpu: &CpuModel, cache: &CacheGeometry) -> Option<SliceClaim> {
    if cpu.vendor != Vendor::Intel || cache.sets.is_power_of_two() {
        return None;
    }
    let slices = divide(cache.sets, 2048)?;
    let why = "likely: as in most Intel parts; this model is not known".into();
    let basis = SliceBasis::Inference;
    Some(SliceClaim { slices, sets_per_slice: 2048, basis, masks: Vec::new(), why })
}

fn divide(sets: u32, by: u32) -> Option<u32> {
    (sets != 0 && sets.is_multiple_of(by)).then(|| sets / by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_color::IndexFunction;

    #[test]
    fn no_model_is_listed_twice() {
        let mut seen = std::collections::HashSet::new();
        for g in GENERATIONS {
            for model in g.models {
                assert!(seen.insert((g.family, *model)), "{} repeats {model:#x}", g.name);
            }
        }
    }

    #[test]
    fn every_mask_set_makes_an_index() {
        for masks in GENERATIONS.iter().flat_map(|g| g.masks) {
            let index = IndexFunction::xor(6, 11, masks.to_vec()).expect("independent masks");
            assert_eq!(index.slices(), 1 << masks.len());
        }
    }
}
