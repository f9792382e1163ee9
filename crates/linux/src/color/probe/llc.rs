//! What probed colours of a private cache are worth for the last level. If both caches pick
//! sets by plain address bits and the last level uses all bits that the private one uses,
//! then pages of different private colours never share a set of the last level: the private
//! classes are a coarse colouring of it. Whether that holds for a sliced cache depends on its
//! hash only in how lines spread over slices, not in the set within a slice.

use huepage_color::{CacheGeometry, CacheLevel, PageSize};

/// A last level as the classes of a private cache divide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoarseColors {
    /// Colours that the private cache tells apart.
    pub colors: u16,
    /// Colours that the last level has within each of these, if its set count is known to be
    /// a power of two per slice; they cannot be told apart by probing the private cache.
    pub finer: u64,
}

/// Why private classes say nothing about the last level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoarseError {
    /// One of the reports cannot be true, or its sets are not a power of two.
    #[error("the {level} cache is not indexed by plain bits: {why}; partition the L2 instead")]
    NotLinear {
        /// Which cache.
        level: CacheLevel,
        /// What is wrong.
        why: String,
    },
    /// The number of slices is needed to know the sets of one slice.
    #[error(
        "the number of slices of the {level} cache is unknown, so its set bits are; partition the L2 instead"
    )]
    UnknownSlices {
        /// The last level.
        level: CacheLevel,
    },
    /// The last level uses fewer bits of the frame number than the private cache.
    #[error(
        "a slice of the {level} cache has only {sets} sets, fewer than the colours reach; partition the L2 instead"
    )]
    TooFewSets {
        /// The last level.
        level: CacheLevel,
        /// Sets per slice.
        sets: u32,
    },
}

/// How the colours of a private cache divide the last level.
///
/// # Errors
/// If they need not divide it at all.
pub fn coarse_llc_colors(
    private: &CacheGeometry,
    last: &CacheGeometry,
) -> Result<CoarseColors, CoarseError> {
    let colors = linear_colors(private)?;
    let slices = last.slices.ok_or(CoarseError::UnknownSlices { level: last.level })?;
    let slice = CacheGeometry {
        sets: last.sets / slices.max(1),
        size_bytes: last.size_bytes / u64::from(slices.max(1)),
        slices: Some(1),
        ..last.clone()
    };
    let inner = linear_colors(&slice)?;
    if inner < colors || last.line_bytes != private.line_bytes {
        return Err(CoarseError::TooFewSets { level: last.level, sets: slice.sets });
    }
    let colors = u16::try_from(colors).map_err(|_| CoarseError::NotLinear {
        level: private.level,
        why: format!("{colors} colours are too many"),
    })?;
    Ok(CoarseColors { colors, finer: inner / u64::from(colors) })
}

fn linear_colors(cache: &CacheGeometry) -> Result<u64, CoarseError> {
    let bad = |why: String| CoarseError::NotLinear { level: cache.level, why };
    if let Some(why) = cache.nonsense().first() {
        return Err(bad(why.to_string()));
    }
    cache.linear_index().map_err(|e| bad(e.to_string()))?;
    Ok(cache.linear_colors(PageSize::BASE).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use huepage_color::CacheKind;

    use super::*;

    fn cache(level: CacheLevel, ways: u32, sets: u32, slices: Option<u32>) -> CacheGeometry {
        CacheGeometry {
            level,
            kind: CacheKind::Unified,
            size_bytes: u64::from(ways) * u64::from(sets) * 64,
            line_bytes: 64,
            ways,
            sets,
            slices,
            shared_cpus: 2,
            last_level: level == CacheLevel::L3,
        }
    }

    #[test]
    fn a_slice_with_more_set_bits_is_divided() {
        let private = cache(CacheLevel::L2, 16, 1024, Some(1));
        let last = cache(CacheLevel::L3, 11, 2048 * 26, Some(26));
        let found = coarse_llc_colors(&private, &last).unwrap();
        assert_eq!(found, CoarseColors { colors: 16, finer: 2 });
    }

    #[test]
    fn what_is_unknown_or_too_small_is_refused() {
        let private = cache(CacheLevel::L2, 16, 1024, Some(1));
        let unknown = cache(CacheLevel::L3, 11, 2048 * 26, None);
        let few = cache(CacheLevel::L3, 16, 512 * 8, Some(8));
        let odd = cache(CacheLevel::L3, 16, 1000 * 8, Some(8));
        let errors: Vec<CoarseError> = [unknown, few, odd]
            .iter()
            .map(|last| coarse_llc_colors(&private, last).unwrap_err())
            .collect();
        assert!(matches!(errors[0], CoarseError::UnknownSlices { .. }), "{}", errors[0]);
        assert!(matches!(errors[1], CoarseError::TooFewSets { sets: 512, .. }), "{}", errors[1]);
        assert!(matches!(errors[2], CoarseError::NotLinear { .. }), "{}", errors[2]);
    }
}
