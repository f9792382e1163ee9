//! TLBs and page walks against naive models, over random accesses and shapes.

use crate::naive;

use std::collections::HashMap;
use std::convert::Infallible;

use huepage_color::{Pfn, Vpn};
use huepage_sim::cache::Replacement;
use huepage_sim::tlb::{Tlb, TlbPage};
use huepage_sim::walk::{HashedTable, Tables, WalkCache};
use proptest::prelude::*;

const ALL: [Replacement; 7] = [
    Replacement::Lru,
    Replacement::Fifo,
    Replacement::TreePlru,
    Replacement::Nru,
    Replacement::Srrip,
    Replacement::Random,
    Replacement::NotLastUsed,
];

/// Sets, ways, page sizes and replacement of a level.
type Shape = (usize, usize, Vec<u32>, Replacement);

fn level() -> impl Strategy<Value = Shape> {
    let orders = prop::sample::select(vec![vec![0], vec![0, 1, 2, 3], vec![9], vec![0, 9, 18]]);
    let set = (1_usize..9, 1_usize..13, prop::sample::select(ALL.to_vec()));
    let full = (
        Just(1_usize),
        30_usize..70,
        prop::sample::select(vec![
            Replacement::Lru,
            Replacement::Fifo,
            Replacement::Random,
            Replacement::NotLastUsed,
        ]),
    );
    (prop_oneof![set, full], orders).prop_map(|((sets, ways, replacement), orders)| {
        let tree = replacement == Replacement::TreePlru && !ways.is_power_of_two();
        (sets, ways, orders, if tree { Replacement::Lru } else { replacement })
    })
}

#[derive(Clone, Debug)]
enum Step {
    /// Asked of the first level; further ones on a miss.
    Access(TlbPage),
    ShootDown(u16, u64),
    FlushSpace(u16),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let base = prop_oneof![0_u64..40, 0_u64..3000, (1_u64 << 52) - 600..(1 << 52)];
    let order = prop::sample::select(vec![0_u32, 1, 2, 3, 9, 18]);
    let space = prop::sample::select(vec![0_u16, 1, u16::MAX]);
    (space, base, order, 0_u32..200).prop_map(|(space, base, order, what)| match what {
        0..3 => Step::FlushSpace(space),
        3 => Step::Flush,
        4..15 => Step::ShootDown(space, base),
        _ => Step::Access(TlbPage::of(space, Vpn(base), order)),
    })
}

fn pair((sets, ways, orders, replacement): &Shape) -> (Tlb, naive::tlb::Tlb) {
    let real = Tlb::new(sets * ways, *ways, orders, *replacement);
    (real, naive::tlb::Tlb::new(*sets, *ways, orders, *replacement))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn levels_of_tlbs_agree_with_naive_ones(
        shapes in prop::collection::vec(level(), 1..4),
        steps in prop::collection::vec(step(), 0..500),
    ) {
        let mut levels: Vec<_> = shapes.iter().map(pair).collect();
        for step in steps {
            for (real, naive) in &mut levels {
                match step {
                    Step::Access(page) => {
                        let got = real.access(page);
                        prop_assert_eq!(got, naive.access(page), "{:?}", page);
                        prop_assert_eq!(real.contains(page), real.takes(page.order));
                        if got.is_ok() {
                            break;
                        }
                    }
                    Step::ShootDown(space, base) => {
                        let covers = |page: TlbPage| page.space == space
                            && page.number == base / (1 << page.order);
                        prop_assert_eq!(real.shoot_down(space, Vpn(base)), naive.drop_where(covers));
                    }
                    Step::FlushSpace(space) => {
                        let dropped = naive.drop_where(|page| page.space == space);
                        prop_assert_eq!(real.flush_space(space), dropped);
                    }
                    Step::Flush => prop_assert_eq!(real.flush(), naive.drop_where(|_| true)),
                }
            }
        }
        for ((real, naive), (sets, ways, ..)) in levels.iter().zip(&shapes) {
            prop_assert_eq!(real.counts.accesses, naive.accesses);
            prop_assert_eq!(real.counts.misses, naive.misses);
            let mut pages: Vec<TlbPage> = real.pages().collect();
            prop_assert!(pages.len() <= sets * ways);
            pages.sort_unstable_by_key(|page| (page.space, page.order, page.number));
            pages.dedup();
            prop_assert_eq!(pages.len(), real.pages().count(), "a page twice");
        }
    }

    /// A level that software fills on every miss is a level that fills itself.
    #[test]
    fn filling_by_software_gives_the_same_victims(
        shape in level(), steps in prop::collection::vec(step(), 0..300),
    ) {
        let ((mut own, _), (mut software, _)) = (pair(&shape), pair(&shape));
        for step in steps {
            let Step::Access(page) = step else { continue };
            let want = own.access(page);
            let got = if software.look_up(page) { Ok(()) } else { Err(software.fill(page)) };
            prop_assert_eq!(got, want);
        }
        prop_assert_eq!(own.counts, software.counts);
    }

    #[test]
    fn not_last_used_keeps_the_page_used_last(
        ways in 2_usize..40, pages in prop::collection::vec(0_u64..100, 0..300),
    ) {
        let mut tlb = Tlb::new(ways, ways, &[0], Replacement::NotLastUsed);
        let mut last = None;
        for number in pages {
            let page = TlbPage { space: 0, number, order: 0 };
            let victim = tlb.access(page).err().flatten();
            prop_assert!(victim.is_none() || victim != last);
            last = Some(page);
        }
    }

    /// Two walks read the same entry of a level exactly if their pages have the same number
    /// there, and every table has a frame of its own.
    #[test]
    fn walks_read_one_entry_per_level(
        levels in 1_usize..6,
        pages in prop::collection::vec((0_u64..1 << 45, prop::sample::select(vec![0_u32, 3, 9, 18])), 1..60),
    ) {
        let mut tables = Tables::new(levels);
        let (mut next, mut seen) = (100, HashMap::new());
        for (page, order) in pages {
            let allocate = || {
                next += 1;
                Ok::<_, Infallible>(Pfn(next - 1))
            };
            let walk = tables.walk(Vpn(page), order, allocate).unwrap();
            let wanted = levels.saturating_sub(order as usize / 9).max(1);
            prop_assert_eq!(walk.entries(0).len(), wanted);
            for (depth, entry) in walk.entries(0).iter().enumerate() {
                let level = levels - 1 - depth;
                let number = (page % (1 << (9 * levels))) >> (9 * level);
                let name = (level, number);
                prop_assert_eq!(entry.0 % 4096, number % 512 * 8);
                prop_assert_eq!(*seen.entry(entry.0).or_insert(name), name);
            }
        }
        let frames: std::collections::BTreeSet<u64> = tables.frames().map(|f| f.0).collect();
        prop_assert_eq!(frames.len() as u64, next - 100);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A page has one group, and the pages of a segment have as many groups as there are, each
    /// in as many pages as another; groups that follow each other do so in memory.
    #[test]
    fn hashed_tables_spread_the_pages_of_a_segment(
        space in 0_u16..4096, segment in 0_u64..1 << 19, memory in 1_u64..17,
    ) {
        let mut table = HashedTable::new(memory * 4096);
        let (groups, mut next) = ((memory * 2048).next_power_of_two(), 0);
        let mut group = |space, page| {
            let allocate = |order: u32| {
                next += 1 << order;
                Ok::<_, Infallible>(Pfn(next - (1 << order)))
            };
            table.group(space, Vpn(page), allocate).unwrap().0
        };
        let mut pages = HashMap::<u64, u64>::new();
        for page in segment << 16..(segment + 1) << 16 {
            *pages.entry(group(space, page)).or_default() += 1;
        }
        prop_assert!(pages.keys().all(|at| at % 128 == 0));
        prop_assert_eq!(pages.len() as u64, groups.min(1 << 16));
        prop_assert!(pages.values().all(|&n| n == (1 << 16) / groups.min(1 << 16)));
        prop_assert_eq!(group(space, segment << 16), group(space, segment << 16));
        prop_assert_eq!(table.frames().count() as u64, next);
        // All of them in one piece.
        prop_assert_eq!(next, pages.len() as u64 * 128 / 4096);
        prop_assert!(pages.keys().all(|at| *at < next * 4096));
    }
}

#[test]
fn a_frame_that_cannot_be_had_ends_the_walk() {
    let mut table = HashedTable::new(4096);
    assert_eq!(table.group(0, Vpn(5), |_| Err("none left")), Err("none left"));
    assert_eq!(table.frames().count(), 0);
    let mut tables = Tables::new(4);
    assert_eq!(tables.walk(Vpn(5), 0, || Err("none left")), Err("none left"));
    assert_eq!(tables.frames().count(), 0);
}

#[test]
fn walk_caches_leave_out_what_they_know() {
    let mut cache = WalkCache::new(&[2, 0, 1]);
    assert_eq!(cache.skip(0, Vpn(0), 0, 4), 0, "nothing known");
    assert_eq!(cache.skip(0, Vpn(511), 0, 4), 3, "the same last table");
    assert_eq!(cache.skip(0, Vpn(512), 0, 4), 1, "only the table of the second level");
    assert_eq!(cache.skip(1, Vpn(512), 0, 4), 0, "another space");
    assert_eq!(cache.skip(1, Vpn(513), 9, 4), 1, "a superpage needs no last table");
    cache.flush();
    assert_eq!(cache.skip(1, Vpn(513), 9, 4), 0);
}
