//! Hash-aware and hash-unaware colours against the paper's figures and against brute force.

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::{
    CacheLevel, ColorMap, HashedError, IndexFunction, LinearColors, Pfn, PhysAddr, Provenance,
    SliceSpread, hash_aware, hash_unaware,
};
use proptest::prelude::*;

fn bits(list: &[u32]) -> u64 {
    list.iter().map(|bit| 1_u64 << bit).sum()
}

/// The last level of the Xeon E5-1410 with the published masks of four slices.
fn last() -> IndexFunction {
    IndexFunction::xor(6, 11, vec![0x1b_5f57_5440, 0x2e_b5fa_a880]).expect("an index")
}

fn private() -> IndexFunction {
    IndexFunction::linear(6, 9).expect("an index")
}

#[test]
fn the_xeon_e5_1410_has_the_papers_sixteen_colors() {
    let colors = hash_aware(&last(), Some(&private())).expect("colors");
    // Figure 6 shows bits 17 to 32; the machine of the paper has no more memory.
    let h1 = bits(&[17, 18, 20, 22, 24, 25, 26, 27, 28, 30, 32]);
    let h2 = bits(&[17, 19, 20, 21, 22, 23, 24, 26, 28, 29, 31]);
    let seen: Vec<u64> =
        colors.masks().iter().map(|mask| mask & bits(&[33]).wrapping_sub(1)).collect();
    assert_eq!(seen, [bits(&[15]), bits(&[16]), h1, h2]);
    assert_eq!(colors.colors(), 16);
    let unaware = hash_unaware(&last(), Some(&private())).expect("colors");
    assert_eq!(unaware.masks(), [bits(&[15]), bits(&[16]), bits(&[17]), bits(&[18])]);
}

#[test]
fn divided_colors_are_the_inner_ones_within_each() {
    let colors = hash_aware(&last(), Some(&private())).expect("colors");
    let divided = colors.divided_by(&private()).expect("colors");
    assert_eq!(divided.colors(), 128);
    for frame in (0..1 << 13).map(|n| Pfn(n * 193)) {
        let fine = divided.color(frame).0;
        assert_eq!((fine / 8, u64::from(fine % 8)), (colors.color(frame).0, frame.0 % 8));
    }
    assert_eq!(divided.divided_by(&private()), Err(HashedError::Dependent));
}

#[test]
fn without_a_private_level_all_that_a_page_decides_counts() {
    let all = hash_aware(&last(), None).expect("colors");
    let map = ColorMap::computed(CacheLevel(3), &last(), Provenance::Declared).expect("a map");
    assert_eq!((all.colors(), map.colors()), (128, 128));
}

#[test]
fn a_page_of_the_published_hash_lies_in_every_slice() {
    let spread = SliceSpread::of(&last());
    assert_eq!((spread.slices, spread.of, spread.whole_slices()), (4, 4, false));
    assert_eq!(spread.bits, bits(&[6, 7, 10, 11]));
    let text = spread.explanation().expect("words");
    assert!(text.contains("(6, 7, 10, 11)") && text.contains("4 of 4 slices"), "{text}");
}

#[test]
fn the_hash_as_the_paper_has_it_keeps_a_page_in_one_slice() {
    let index = IndexFunction::xor(6, 11, vec![bits(&[17, 18, 20]), bits(&[17, 19, 21])]);
    let spread = SliceSpread::of(&index.expect("an index"));
    assert!(spread.whole_slices() && spread.bits == 0, "{spread:?}");
    assert!(spread.explanation().is_some_and(|text| text.contains("whole slices exist")));
    assert_eq!(SliceSpread::of(&private()).explanation(), None, "one slice: nothing to say");
}

#[test]
fn a_base_sequence_leaves_the_set_bits() {
    let base = (0..64).map(|line: u32| u8::try_from(line % 26).unwrap_or(0)).collect();
    let index = IndexFunction::permuted(6, 11, base, vec![bits(&[17, 20])]).expect("an index");
    let colors = hash_aware(&index, Some(&private())).expect("colors");
    assert_eq!(colors.masks(), [bits(&[15]), bits(&[16])]);
    assert!(SliceSpread::of(&index).slices == 26);
    assert!(matches!(hash_unaware(&index, None), Err(HashedError::Index(_))), "26 slices");
}

#[test]
fn masks_that_are_no_colors_are_refused() {
    assert_eq!(LinearColors::new(vec![0x800]), Err(HashedError::InPage { mask: 0x800 }));
    assert_eq!(LinearColors::new(vec![0x1000, 0x2000, 0x3000]), Err(HashedError::Dependent));
    let many = (12..25).map(|bit| 1 << bit).collect();
    assert_eq!(LinearColors::new(many), Err(HashedError::TooMany { masks: 13 }));
    let map = LinearColors::new(vec![0x1000]).expect("two colors");
    assert!(ColorMap::linear(CacheLevel(3), map, Provenance::Probed).is_err());
}

proptest! {
    #[test]
    fn colors_share_no_line_and_leave_the_inner_level_whole(
        low in prop::collection::vec(0_u64..1 << 12, 1..4), set_bits in 5_u32..10, inner in 6_u32..9,
    ) {
        // A small cache, so that all of a memory of 2^18 bytes can be looked at.
        let masks = low.iter().map(|mask| mask << 6).collect();
        let Ok(outer) = IndexFunction::xor(6, set_bits, masks) else { return Ok(()) };
        let inner = IndexFunction::linear(6, inner).expect("an index");
        let colors = hash_aware(&outer, Some(&inner)).expect("colors");
        let mut owner = BTreeMap::new();
        let mut reach: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for pfn in 0..64_u64 {
            let color = colors.color(Pfn(pfn)).0;
            for line in 0..64_u64 {
                let at = PhysAddr(pfn << 12 | line << 6);
                let first = *owner.entry(outer.locate(at)).or_insert(color);
                prop_assert_eq!(first, color, "two colors share a line");
                reach.entry(color).or_default().insert(inner.locate(at).set);
            }
        }
        prop_assert_eq!(reach.len(), usize::from(colors.colors()));
        prop_assert!(reach.values().all(|sets| sets.len() == 1 << inner.set_bits()));
        let all = ColorMap::computed(CacheLevel(3), &outer, Provenance::Declared).expect("a map");
        let (of_outer, of_inner) = (all.colors(), 1_u16 << (inner.set_bits() - 6));
        prop_assert!(of_outer <= colors.colors() * of_inner, "no color was left out");
    }
}
