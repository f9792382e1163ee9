//! Real and impossible cache reports.

use huepage_color::{
    CacheGeometry, CacheKind, CacheLevel, IndexError, IndexFunction, LevelChoice, LevelError,
    Nonsense, PageSize,
};
use proptest::prelude::*;

fn cache(level: u8, line: u32, ways: u32, sets: u32) -> CacheGeometry {
    CacheGeometry {
        level: CacheLevel(level),
        kind: CacheKind::Unified,
        size_bytes: u64::from(line) * u64::from(ways) * u64::from(sets),
        line_bytes: line,
        ways,
        sets,
        slices: None,
        shared_cpus: 1,
        last_level: false,
    }
}

#[test]
fn a_real_l2_is_believed() {
    let l2 = cache(2, 64, 16, 1024);
    assert_eq!(l2.nonsense(), []);
    assert_eq!(l2.linear_colors(PageSize::BASE), Some(16));
    assert_eq!(l2.linear_colors(PageSize::HUGE), Some(1));
    assert_eq!(l2.linear_index(), IndexFunction::linear(6, 10));
    assert!(l2.is_private(1) && !CacheGeometry { shared_cpus: 4, ..l2 }.is_private(2));
}

#[test]
fn a_hypervisors_placeholder_is_called_one() {
    let l3 = CacheGeometry { size_bytes: 16 << 20, ..cache(3, 64, 1, 1) };
    assert_eq!(l3.nonsense(), [Nonsense::Placeholder { size_bytes: 16 << 20 }]);
    assert_eq!(
        l3.nonsense()[0].to_string(),
        "1 set x 1 way is a placeholder of the hypervisor, not a cache of 16777216 bytes"
    );
}

#[test]
fn zeros_odd_lines_and_uneven_slices_are_found() {
    let zero = CacheGeometry { line_bytes: 0, ways: 0, shared_cpus: 0, ..cache(2, 64, 16, 1024) };
    assert_eq!(zero.nonsense().len(), 3);
    assert!(zero.nonsense().iter().all(|n| matches!(n, Nonsense::Zero { .. })));
    assert_eq!(cache(2, 48, 16, 1024).nonsense(), [Nonsense::OddLine { line_bytes: 48 }]);
    let uneven = CacheGeometry { slices: Some(7), ..cache(3, 64, 11, 2048) };
    assert_eq!(uneven.nonsense(), [Nonsense::UnevenSlices { sets: 2048, slices: 7 }]);
    let none = CacheGeometry { slices: Some(0), ..cache(3, 64, 11, 2048) };
    assert_eq!(none.nonsense(), [Nonsense::Zero { what: "the number of slices" }]);
}

#[test]
fn an_odd_set_count_is_possible_but_not_linear() {
    let l3 = CacheGeometry { slices: Some(26), ..cache(3, 64, 11, 26 * 2048) };
    assert_eq!(l3.nonsense(), []);
    assert_eq!(l3.linear_index(), Err(IndexError::NotLinear { sets: 53_248, line_bytes: 64 }));
    assert_eq!(l3.linear_colors(PageSize::BASE), None);
}

#[test]
fn levels_are_read_and_resolved() {
    let l1i = CacheGeometry { kind: CacheKind::Instruction, ..cache(1, 64, 8, 64) };
    let caches = [l1i, cache(1, 64, 12, 64), cache(3, 64, 16, 16384), cache(2, 64, 16, 1024)];
    let pick = |text: &str| text.parse::<LevelChoice>()?.resolve(&caches).cloned();
    assert_eq!(pick("l1").unwrap().kind, CacheKind::Unified);
    assert_eq!(pick("L2").unwrap(), caches[3]);
    assert_eq!(pick("2").unwrap(), caches[3]);
    assert_eq!(pick("llc").unwrap(), caches[2]);
    assert_eq!(
        pick("l4").unwrap_err().to_string(),
        "this machine reports no L4 cache; see `huepage info` for those it has"
    );
    for text in ["", "l", "l0", "l22", "cache", "lc", "llcx"] {
        assert_eq!(pick(text), Err(LevelError::Unknown { text: text.to_owned() }), "{text}");
    }
}

proptest! {
    #[test]
    fn a_size_that_does_not_multiply_out_is_found(
        line in 4_u32..9, ways in 1_u32..40, sets in 2_u32..70_000, size in 1_u64..1 << 40,
    ) {
        let reported = CacheGeometry { size_bytes: size, ..cache(2, 1 << line, ways, sets) };
        let product = u64::from(1_u32 << line) * u64::from(ways) * u64::from(sets);
        prop_assert_eq!(reported.nonsense().is_empty(), product == size);
        prop_assert_eq!(cache(2, 1 << line, ways, sets).nonsense(), []);
    }

    #[test]
    fn linear_colours_are_one_way_over_the_page(set_bits in 0_u32..20) {
        let way = 64_u64 << set_bits;
        let colors = cache(2, 64, 8, 1 << set_bits).linear_colors(PageSize::BASE);
        prop_assert_eq!(colors, Some(way.div_ceil(4096)));
    }
}
