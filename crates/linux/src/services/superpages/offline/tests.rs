//! Small traces whose choice is known. That of real programs is measured by `huepage-bench
//! superpage-agreement`.

use super::*;

const SHAPE: TlbShape = TlbShape { entries: 1024, known: true, walk_ns: 30 };

/// A walk by chance over so many pages, for so many seconds.
fn walk(hears: MissInput, pages: usize, seconds: f64) -> SuperpageSelection {
    let mut offline = TraceReplay::new(Setting::usual(SHAPE), hears, 1);
    let mut random = Rng::with_seed(3);
    (0..pages as u64).for_each(|page| offline.access(Vpn(page)));
    while offline.seconds() < seconds {
        offline.access(Vpn(random.usize(..pages) as u64));
    }
    offline.chosen()
}

#[test]
fn of_a_walk_by_chance_over_64_mib_both_choose_all() {
    let both =
        [MissInput::Misses, MissInput::AccessedBits].map(|hears| walk(hears, 32 * 512, 0.25));
    assert_eq!(both.each_ref().map(|chosen| chosen.blocks.len()), [32, 32]);
    assert_eq!(both[0].agreement(&both[1]), 1.0);
    assert!(both[0].half().is_some_and(|half| half < 0.1), "{:?}", both[0].half());
    assert!(both[1].looks > 1 && both[0].looks == 0, "{}", both[1].looks);
}

#[test]
fn of_a_walk_that_fits_the_tlb_both_choose_none() {
    let both = [MissInput::Misses, MissInput::AccessedBits].map(|hears| walk(hears, 1000, 0.1));
    assert!(both.iter().all(|chosen| chosen.blocks.is_empty()));
    assert_eq!((both[0].agreement(&both[1]), both[0].half()), (1.0, None));
    assert_eq!((both[0].resident, both[0].misses), (2, 1000));
}

#[test]
fn agreement_is_what_both_have_of_what_any_has() {
    let of = |blocks: &[u64]| SuperpageSelection {
        blocks: blocks.iter().map(|&at| (at, at as f64)).collect(),
        ..SuperpageSelection::default()
    };
    let (a, b) = (of(&[1, 2, 3]), of(&[2, 3, 4, 5]));
    assert_eq!(a.agreement(&b), 0.4);
    assert_eq!((a.half(), b.half(), b.last()), (Some(2.0), Some(3.0), 5.0));
    assert_eq!(of(&[]).agreement(&a), 0.0);
}

#[test]
fn sparse_blocks_are_refused_to_both() {
    // 64 pages of each of 128 blocks: 8 superpages would need as many pages as are resident.
    for hears in [MissInput::Misses, MissInput::AccessedBits] {
        let mut offline = TraceReplay::new(Setting::usual(SHAPE), hears, 1);
        let mut random = Rng::with_seed(3);
        while offline.seconds() < 0.1 {
            let (block, page) = (random.usize(..128) as u64, random.usize(..64) as u64);
            offline.access(Vpn(block * SUPERPAGE_PAGES + page));
        }
        assert_eq!(offline.chosen().blocks.len(), 0, "{hears:?}");
    }
}
