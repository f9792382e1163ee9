//! What the slice hash of a last level means for partitions, where it is published: over how many
//! slices a page spreads, and which colours leave the L2 whole. Nothing is measured here.

use huepage_color::{CacheGeometry, IndexFunction, SliceSpread, hash_aware};
use huepage_linux::kernel::machine::HostCache;

/// In lines; none where the hash is not known.
pub fn explained(private: Option<&CacheGeometry>, cache: &HostCache) -> Vec<String> {
    let Some(index) = index(cache) else { return Vec::new() };
    let inner = private.and_then(|private| private.linear_index().ok());
    let mut lines: Vec<String> = SliceSpread::of(&index).explanation().into_iter().collect();
    let aware = inner.and_then(|inner| hash_aware(&index, Some(&inner)).ok());
    lines.extend(aware.map(|colors| {
        let masks: Vec<String> = colors.masks().iter().map(|mask| format!("{mask:#x}")).collect();
        format!(
            "{} colours leave the L2 whole; their bits are the parities of the address AND {}",
            colors.colors(),
            masks.join(", ")
        )
    }));
    lines
}

/// The index function of a sliced cache whose hash is published.
fn index(cache: &HostCache) -> Option<IndexFunction> {
    let claim = cache.slices.as_ref().filter(|claim| !claim.masks.is_empty())?;
    let (line, sets) = (cache.geometry.line_bytes, claim.sets_per_slice);
    if !line.is_power_of_two() || !sets.is_power_of_two() {
        return None;
    }
    IndexFunction::xor(line.trailing_zeros(), sets.trailing_zeros(), claim.masks.clone()).ok()
}

#[cfg(test)]
mod tests {
    use huepage_color::{CacheKind, CacheLevel};
    use huepage_linux::kernel::machine::{CacheSource, SliceBasis, SliceClaim};

    use super::*;

    fn geometry(level: u8, sets: u32, ways: u32) -> CacheGeometry {
        CacheGeometry {
            level: CacheLevel(level),
            kind: CacheKind::Unified,
            size_bytes: u64::from(sets) * u64::from(ways) * 64,
            line_bytes: 64,
            ways,
            sets,
            slices: None,
            shared_cpus: 1,
            last_level: level == 3,
        }
    }

    /// The last level of a Xeon E5-1410.
    fn last(masks: Vec<u64>) -> HostCache {
        let (basis, why) = (SliceBasis::Table, String::new());
        let claim = SliceClaim { slices: 4, sets_per_slice: 2048, basis, masks, why };
        HostCache {
            geometry: geometry(3, 8192, 20),
            instances: Vec::new(),
            source: CacheSource::Both,
            slices: Some(claim),
            colors: Vec::new(),
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_published_hash_is_explained() {
        let last = last(vec![0x1b_5f57_5440, 0x2e_b5fa_a880]);
        let lines = explained(Some(&geometry(2, 512, 8)), &last);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("no partition of whole slices exists"), "{lines:?}");
        assert!(lines[1].starts_with("16 colours leave the L2 whole"), "{lines:?}");
        assert!(lines[1].contains("AND 0x8000, 0x10000, 0x1b5f560000"), "{lines:?}");
        assert_eq!(explained(None, &last).len(), 1, "no L2: nothing to leave whole");
    }

    #[test]
    fn of_an_unknown_hash_nothing_is_said() {
        assert_eq!(explained(Some(&geometry(2, 512, 8)), &last(Vec::new())), [""; 0]);
    }
}
