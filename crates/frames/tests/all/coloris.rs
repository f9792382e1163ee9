//! The colour-aware allocator and the sections of COLORIS, against what the paper says of them.

use std::collections::BTreeSet;

use huepage_color::{CacheLevel, Color, ColorMap, ColorSet, IndexFunction, Pfn, Provenance};
use huepage_frames::{ColorAllocator, McolorBuddy, RoundRobin, Sections};
use proptest::prelude::*;

/// Eight colours: the low three bits of the frame's number.
fn map() -> ColorMap {
    let index = IndexFunction::linear(6, 9).expect("an index");
    ColorMap::computed(CacheLevel(2), &index, Provenance::Declared).expect("a map")
}

fn allocator(frames: u64, depth: usize) -> ColorAllocator {
    let buddy = McolorBuddy::new(&[(Pfn(0), frames)], None, 4).expect("an allocator");
    ColorAllocator::new(buddy, map(), depth)
}

fn set(text: &str) -> ColorSet {
    ColorSet::parse(text, 8).expect("a set")
}

#[test]
fn colours_take_turns_and_another_one_steps_in() {
    let (mut pages, mut order) = (allocator(24, 8), RoundRobin::new());
    let partition = set("1,4");
    let colors: Vec<u16> =
        (0..6).map(|_| pages.allocate(&mut order, &partition).expect("a frame").color.0).collect();
    assert_eq!(colors, [1, 4, 1, 4, 1, 4], "three frames of each of the eight");
    assert_eq!(pages.allocate(&mut order, &partition), None, "none is left, and no other is given");
    pages.release(Pfn(12));
    assert_eq!(pages.allocate(&mut order, &partition).map(|h| h.frame), Some(Pfn(12)));
    assert!(pages.allocate(&mut order, &ColorSet::empty(8)).is_none());
}

#[test]
fn the_buddy_allocator_is_asked_only_when_all_colours_are_used_up() {
    let (mut pages, mut order) = (allocator(64, 8), RoundRobin::new());
    (0..16).for_each(|_| _ = pages.allocate(&mut order, &set("0,1")));
    assert_eq!(pages.refills, 1, "the first fills the pool with frames of all colours");
    assert_eq!(pages.pool.count(Color(5)), 8);
    (0..8).for_each(|_| _ = pages.allocate(&mut order, &set("5")));
    assert_eq!(pages.refills, 1);
}

#[test]
fn what_comes_back_stays_until_its_colour_is_full() {
    let (mut pages, mut order) = (allocator(64, 2), RoundRobin::new());
    let taken: Vec<Pfn> =
        (0..4).map(|_| pages.allocate(&mut order, &set("3")).expect("a frame").frame).collect();
    taken.into_iter().for_each(|frame| pages.release(frame));
    assert_eq!(pages.pool.count(Color(3)), 2, "two of four are kept");
    assert_eq!(pages.free(), 64);
}

#[test]
fn sections_are_contiguous_and_everybodys() {
    let sections = Sections::new(4, 64).expect("sections");
    assert_eq!(sections.section(0), ColorSet::parse("0-15", 64).unwrap());
    assert_eq!(sections.section(3), ColorSet::parse("48-63", 64).unwrap());
    assert!(sections.section(4).is_empty());
    assert_eq!(Sections::new(0, 8), None);
    assert_eq!(Sections::new(9, 8), None);
}

proptest! {
    #[test]
    fn every_colour_has_one_local_core(cores in 1u16..17, more in 0u16..200) {
        let sections = Sections::new(cores, cores + more).expect("sections");
        let mut all = ColorSet::empty(cores + more);
        for core in 0..cores {
            let section = sections.section(core);
            prop_assert!(section.iter().all(|color| sections.core_of(color) == core));
            prop_assert!(section.len().abs_diff((cores + more) / cores) <= 1);
            prop_assert!(section.iter().all(|color| all.insert(color)), "no colour twice");
        }
        prop_assert!(all.is_full());
    }

    #[test]
    fn no_frame_is_handed_out_twice_or_lost(steps in prop::collection::vec((any::<u8>(), 0usize..40), 1..200)) {
        let (mut pages, mut order, mut held) = (allocator(48, 3), RoundRobin::new(), Vec::new());
        for (mask, at) in steps {
            if mask == 0 || held.len() > 20 {
                if !held.is_empty() {
                    pages.release(held.swap_remove(at % held.len()));
                }
                continue;
            }
            let mut set = ColorSet::empty(8);
            (0..8).filter(|bit| mask >> bit & 1 == 1).for_each(|bit| _ = set.insert(Color(bit)));
            let wanted: u64 = 6 * u64::from(set.len());
            let holds = held.iter().filter(|f: &&Pfn| map().color(**f).is_some_and(|c| set.contains(c))).count() as u64;
            match pages.allocate(&mut order, &set) {
                Some(handed) => {
                    prop_assert!(set.contains(handed.color) && !handed.outside);
                    prop_assert_eq!(map().color(handed.frame), Some(handed.color));
                    held.push(handed.frame);
                }
                None => prop_assert_eq!(holds, wanted, "refused with frames left"),
            }
            let distinct: BTreeSet<_> = held.iter().collect();
            prop_assert_eq!(distinct.len(), held.len());
            prop_assert_eq!(pages.free() + held.len() as u64, 48);
        }
    }
}
