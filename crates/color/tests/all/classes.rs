//! Colours against brute force: real covers, line by line, of every page of a small memory.

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::{
    CacheLevel, ClassError, Color, ColorMap, ColorSet, IndexError, IndexFunction, InnerReach,
    Location, MapError, PAGE_BYTES, PageClasses, PageSize, Pfn, PhysAddr, Provenance,
};
use proptest::prelude::*;

/// Physical memory of the brute-force tests: 2^20 bytes, 256 base pages.
const MEMORY_BITS: u32 = 20;

fn parity(value: u64) -> u64 {
    (0..64).fold(0, |p, bit| p ^ (value >> bit & 1))
}

/// Where an address lives, straight from the definition of each form.
fn oracle(index: &IndexFunction, addr: u64) -> Location {
    let bits = |masks: &[u64]| masks.iter().rev().fold(0, |v, m| v * 2 + parity(addr & m));
    let field = |line: u32, set: u32| u32::try_from(addr / (1 << line) % (1 << set)).unwrap();
    match index {
        IndexFunction::Linear { line_bits, set_bits } => {
            Location { slice: 0, set: field(*line_bits, *set_bits) }
        }
        IndexFunction::Xor { line_bits, set_bits, slice_masks } => Location {
            slice: u16::try_from(bits(slice_masks)).unwrap(),
            set: field(*line_bits, *set_bits),
        },
        IndexFunction::Permuted { line_bits, set_bits, base, permutation } => {
            let place = ((addr >> line_bits) % base.len() as u64) ^ bits(permutation);
            let slice = u16::from(base[usize::try_from(place).unwrap()]);
            Location { slice, set: field(*line_bits, *set_bits) }
        }
    }
}

/// Every line of the page that starts at `start`.
fn brute_cover(index: &IndexFunction, start: u64, page: PageSize) -> BTreeSet<Location> {
    let line = 1 << index.line_bits();
    (start..start + page.bytes()).step_by(line).map(|addr| oracle(index, addr)).collect()
}

/// Groups pages whose covers overlap, over any chain; the answer is a group number per page.
fn brute_colors(covers: &[BTreeSet<Location>]) -> Vec<usize> {
    let mut group: Vec<usize> = (0..covers.len()).collect();
    for i in 0..covers.len() {
        for j in 0..i {
            if group[i] != group[j] && !covers[i].is_disjoint(&covers[j]) {
                let (old, new) = (group[i].max(group[j]), group[i].min(group[j]));
                group.iter_mut().filter(|g| **g == old).for_each(|g| *g = new);
            }
        }
    }
    group
}

fn pages(page: PageSize) -> impl Iterator<Item = u64> {
    (0..1 << MEMORY_BITS).step_by(usize::try_from(page.bytes()).unwrap())
}

/// Compares everything `PageClasses` says with brute force.
fn compare(index: &IndexFunction, page: PageSize) -> Result<(), TestCaseError> {
    let classes = PageClasses::new(index, page).unwrap();
    let covers: Vec<_> = pages(page).map(|start| brute_cover(index, start, page)).collect();
    let groups = brute_colors(&covers);
    let mut seen = BTreeMap::new();
    for ((start, cover), group) in pages(page).zip(&covers).zip(groups) {
        let pfn = PhysAddr(start).pfn();
        let got: BTreeSet<Location> = classes.cover(pfn).into_iter().collect();
        prop_assert_eq!(&got, cover);
        prop_assert!(classes.color(pfn) < classes.colors());
        // Any frame of the page speaks for the page.
        let last = Pfn(pfn.0 + page.bytes() / PAGE_BYTES - 1);
        prop_assert_eq!(classes.color(last), classes.color(pfn));
        prop_assert_eq!(*seen.entry(group).or_insert(classes.color(pfn)), classes.color(pfn));
    }
    let distinct: BTreeSet<u64> = seen.values().copied().collect();
    prop_assert_eq!(distinct.len(), seen.len());
    prop_assert_eq!(seen.len() as u64, classes.colors());
    let covers: BTreeSet<_> = covers.into_iter().collect();
    prop_assert_eq!(covers.len() as u64, classes.covers());
    Ok(())
}

fn page_size() -> impl Strategy<Value = PageSize> {
    (0_u32..4).prop_map(|order| PageSize::from_order(order).unwrap())
}

/// Masks over the address bits of the test memory, clear of the line.
fn masks(count: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0_u64..1 << (MEMORY_BITS - 6)).prop_map(|m| m << 6), 0..=count)
}

fn linear() -> impl Strategy<Value = IndexFunction> {
    (0_u32..=12).prop_map(|set| IndexFunction::linear(6, set).unwrap())
}

fn xor() -> impl Strategy<Value = IndexFunction> {
    (0_u32..=9, masks(4))
        .prop_filter_map("dependent masks", |(set, masks)| IndexFunction::xor(6, set, masks).ok())
}

fn permuted() -> impl Strategy<Value = IndexFunction> {
    (1_u32..=8, 0_u32..=9, 1_u8..=7).prop_flat_map(|(bits, set, slices)| {
        let base = prop::collection::vec(0..slices, 1 << bits);
        (base, masks(bits as usize))
            .prop_map(move |(base, perm)| IndexFunction::permuted(6, set, base, perm).unwrap())
    })
}

/// Base sequences in which the place in the page does not matter: these keep pages apart by
/// slice, which random sequences hardly ever do.
fn permuted_by_page() -> impl Strategy<Value = IndexFunction> {
    (prop::collection::vec(0_u8..3, 4), 0_u32..=9, masks(8)).prop_map(|(pages, set, perm)| {
        let base = pages.iter().flat_map(|&slice| [slice; 64]).collect();
        IndexFunction::permuted(6, set, base, perm).unwrap()
    })
}

/// One page covers slices 0 and 1, the other slice 1 alone: two covers, one colour.
#[test]
fn a_cover_with_the_first_place_is_not_one_without() {
    let base = [1_u8, 0, 1, 1].iter().flat_map(|&slice| [slice; 64]).collect();
    let flip = vec![0, 0, 0, 0, 0, 0, 64];
    let index = IndexFunction::permuted(6, 0, base, flip).unwrap();
    let classes = PageClasses::new(&index, PageSize::from_order(0).unwrap()).unwrap();
    assert_eq!((classes.covers(), classes.colors()), (2, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn linear_colours_are_the_real_ones(index in linear(), page in page_size()) {
        compare(&index, page)?;
    }

    #[test]
    fn parity_colours_are_the_real_ones(index in xor(), page in page_size()) {
        compare(&index, page)?;
    }

    #[test]
    fn base_sequence_colours_are_the_real_ones(index in permuted(), page in page_size()) {
        compare(&index, page)?;
    }

    #[test]
    fn base_sequences_by_page_are_the_real_ones(index in permuted_by_page(), page in page_size()) {
        compare(&index, page)?;
    }

    #[test]
    fn locate_follows_the_definition(
        index in prop_oneof![linear(), xor(), permuted()], addr in any::<u64>(),
    ) {
        let found = index.locate(PhysAddr(addr));
        prop_assert_eq!(found, oracle(&index, addr));
        prop_assert!(u32::from(found.slice) < index.slices());
    }

    #[test]
    fn computed_maps_agree_with_the_classes(index in prop_oneof![linear(), xor()], pfn in 0_u64..1 << 30) {
        let classes = PageClasses::new(&index, PageSize::BASE).unwrap();
        let map = ColorMap::computed(CacheLevel::L2, &index, Provenance::Pfn).unwrap();
        prop_assert_eq!(u64::from(map.colors()), classes.colors());
        prop_assert_eq!(map.color(Pfn(pfn)).map(|c| u64::from(c.0)), Some(classes.color(Pfn(pfn))));
        prop_assert!(map.all().is_full());
    }

    #[test]
    fn the_inner_level_left_is_the_real_one(
        outer in prop_oneof![linear(), xor(), permuted_by_page()], inner in 6_u32..=10, pick in any::<u64>(),
    ) {
        let inner = IndexFunction::linear(6, inner).unwrap();
        let reach = InnerReach::new(&outer, &inner).unwrap();
        let map = |index| ColorMap::computed(CacheLevel::L2, index, Provenance::Declared).unwrap();
        let (outer, inner) = (map(&outer), map(&inner));
        let all = outer.all();
        let chosen = all.iter().filter(|c| pick >> (c.0 % 64) & 1 == 1);
        let chosen = ColorSet::from_colors(chosen, outer.colors()).unwrap();
        let frames = (0..1 << (MEMORY_BITS - 12)).map(Pfn);
        let left = frames.filter(|&f| chosen.contains(outer.color(f).unwrap()));
        let left = ColorSet::from_colors(left.map(|f| inner.color(f).unwrap()), inner.colors());
        prop_assert_eq!(reach.left(&chosen), left.unwrap());
    }

    #[test]
    fn safe_groups_partition_the_colours_and_keep_the_inner_level_whole(
        outer in prop_oneof![linear(), xor(), permuted_by_page()], inner in 6_u32..=10,
    ) {
        let inner = IndexFunction::linear(6, inner).unwrap();
        let reach = InnerReach::new(&outer, &inner).unwrap();
        let outer = ColorMap::computed(CacheLevel::L3, &outer, Provenance::Declared).unwrap();
        let mut all = ColorSet::empty(outer.colors());
        for group in reach.safe_groups() {
            prop_assert!(all.intersection(&group).is_empty());
            prop_assert!(reach.left(&group).is_full());
            all = all.union(&group);
        }
        prop_assert!(all.is_full());
    }
}

#[test]
fn a_one_mib_l2_has_sixteen_colours_by_the_low_frame_bits() {
    let index = IndexFunction::linear(6, 10).unwrap();
    let map = ColorMap::computed(CacheLevel::L2, &index, Provenance::Pfn).unwrap();
    assert_eq!(map.colors(), 16);
    for pfn in 0..1000 {
        assert_eq!(map.color(Pfn(pfn)), Some(Color(u16::try_from(pfn % 16).unwrap())));
    }
    let huge = PageClasses::new(&index, PageSize::HUGE).unwrap();
    assert_eq!((huge.colors(), huge.masks()), (1, &[][..]));
}

/// Published masks of two- to eight-slice client parts use bits 6-11 as well. A page then spreads
/// over all slices, so no page belongs to a slice; but the higher bits decide *which* of its
/// lines go where, and pages that differ in that parity share no location: they are colours.
#[test]
fn a_hash_with_bits_inside_the_page_spreads_it_over_slices_and_still_makes_colours() {
    let masks = [0x1b_5f57_5440, 0x2e_b5fa_a880, 0x3c_ccc9_3100];
    for slices in 1..=3 {
        let index = IndexFunction::xor(6, 11, masks[..slices].to_vec()).unwrap();
        let classes = PageClasses::new(&index, PageSize::BASE).unwrap();
        let cover = classes.cover(Pfn(12345));
        let used: BTreeSet<u16> = cover.iter().map(|at| at.slice).collect();
        assert_eq!((cover.len(), used.len()), (64, 1 << slices));
        // 2048 sets leave 5 set bits above the page, and each mask adds one parity.
        assert_eq!(classes.colors(), 1 << (5 + slices));
        assert_eq!(PageClasses::new(&index, PageSize::HUGE).unwrap().colors(), 1);
    }
}

#[test]
fn a_partition_of_the_llc_may_or_may_not_shrink_the_l2() {
    let llc = IndexFunction::linear(6, 13).unwrap();
    let l2 = IndexFunction::linear(6, 10).unwrap();
    let reach = InnerReach::new(&llc, &l2).unwrap();
    // 128 LLC colours; the low 4 of their 7 bits are the 16 colours of the L2.
    assert_eq!(reach.left(&ColorSet::first(8, 128)), ColorSet::first(8, 16));
    assert!(reach.left(&ColorSet::first(16, 128)).is_full());
    let groups = reach.safe_groups();
    assert_eq!(groups.len(), 8);
    assert_eq!(groups[1].to_string(), "16-31");
}

#[test]
fn a_probed_map_knows_what_was_recorded() {
    let mut map = ColorMap::probed(CacheLevel::L2, 16).unwrap();
    assert_eq!((map.color(Pfn(7)), map.recorded_len()), (None, 0));
    assert_eq!(map.record(Pfn(7), Color(3)), None);
    assert_eq!(map.record(Pfn(7), Color(4)), Some(Color(3)));
    assert_eq!(map.record(Pfn(1 << 40), Color(15)), None);
    assert_eq!(map.color(Pfn(7)), Some(Color(4)));
    let all: Vec<_> = map.recorded().collect();
    assert_eq!(all, [(Pfn(7), Color(4)), (Pfn(1 << 40), Color(15))]);
    assert_eq!(map.forget(Pfn(7)), Some(Color(4)));
    assert_eq!((map.color(Pfn(7)), map.recorded_len()), (None, 1));
    assert_eq!(map.provenance(), Provenance::Probed);
}

#[test]
fn impossible_functions_and_maps_are_refused() {
    let bad = IndexFunction::linear(3, 10);
    assert_eq!(bad, Err(IndexError::BadBits { line_bits: 3, set_bits: 10 }));
    let inside = IndexFunction::xor(6, 10, vec![0x20]);
    assert_eq!(inside, Err(IndexError::MaskInLine { mask: 0x20, line_bits: 6 }));
    assert_eq!(IndexFunction::xor(6, 10, vec![64, 64]), Err(IndexError::Dependent));
    let many: Vec<u64> = (0..9).map(|bit| 64 << bit).collect();
    assert_eq!(IndexFunction::xor(6, 10, many), Err(IndexError::TooManyMasks { count: 9 }));
    for length in [0, 1, 3] {
        let base = IndexFunction::permuted(6, 10, vec![0; length], vec![]);
        assert_eq!(base, Err(IndexError::BadBase { length }));
    }
    let masks = IndexFunction::permuted(6, 10, vec![0, 1], vec![64, 128]);
    assert_eq!(masks, Err(IndexError::BadPermutation { masks: 2, length: 2 }));

    let huge = IndexFunction::linear(6, 20).unwrap();
    let map = ColorMap::computed(CacheLevel::L3, &huge, Provenance::Pfn);
    assert_eq!(map.unwrap_err(), MapError::TooMany { level: CacheLevel::L3, colors: 1 << 14 });
    let none = ColorMap::probed(CacheLevel::L3, 0);
    assert_eq!(none.unwrap_err(), MapError::TooMany { level: CacheLevel::L3, colors: 0 });
    let lie = ColorMap::computed(CacheLevel::L2, &huge, Provenance::Probed);
    assert_eq!(lie.unwrap_err(), MapError::NotProbed);
    let masks = (0..16).map(|bit| 1 << (40 + bit)).collect();
    let base = IndexFunction::permuted(6, 24, vec![0; 1 << 16], masks).unwrap();
    let wide = PageClasses::new(&base, PageSize::BASE);
    assert_eq!(wide.unwrap_err(), ClassError::TooLarge { bits: 40 });
}
