//! What each superpage policy does with the feedback that it is for: the thesis's worked example,
//! thresholds, plans, rests, pages in the way, partitions, reservations.

use huepage_color::{ColorSet, IndexFunction, Vpn};
use huepage_policy::superpage::{
    ApproxOnline, Asap, Fixed, Hybrid, InPartition, Interfering, Offline, OfflinePlan, Online,
    PageSizes, RestBounds, Settings, Throttle, orders_inside,
};
use huepage_policy::{Action, Construction, Event, MoveRefusal, Policy, Prices};
use proptest::prelude::*;

use crate::tell;

const fn miss(page: u64, victim: Option<u64>) -> Event {
    let victim = match victim {
        Some(victim) => Some((Vpn(victim), 0)),
        None => None,
    };
    Event::TlbMiss { page: Vpn(page), order: 0, victim }
}

const fn fault(page: u64) -> Event {
    Event::Faulted { page: Vpn(page), color: None }
}

const fn promote(page: u64, order: u32) -> Action {
    Action::Promote { page: Vpn(page), order }
}

const fn promoted(page: u64, order: u32) -> Event {
    Event::Promoted { page: Vpn(page), order }
}

/// Figure 3-2: pages 8, 1, 7, 6, 5, 0 and 1 again, with a TLB of three entries.
#[test]
fn the_worked_example_charges_as_the_thesis_says() {
    for largest in [1, 2, 3] {
        let mut policy =
            Online::new(&Settings { sizes: PageSizes::powers(largest), ..Settings::default() });
        let stream = [(8, None), (1, None), (7, None), (6, Some(8)), (5, Some(1)), (0, Some(7))];
        for (page, victim) in stream {
            assert_eq!(tell(&mut policy, miss(page, victim)), []);
        }
        let places = || (1..=largest).flat_map(|o| (0..16_u64 >> o).map(move |n| (n << o, o)));
        let charges = |policy: &Online| -> Vec<(u64, u32, u32, u32)> {
            let of = |(page, order)| {
                let page = Vpn(page);
                (page.0, order, policy.tree.charges(page, order), policy.capacity(page, order))
            };
            places().map(of).collect()
        };
        let before = charges(&policy);
        tell(&mut policy, miss(1, Some(6)));
        let after = charges(&policy);
        let grown = |which: fn(&(u64, u32, u32, u32)) -> u32| -> Vec<(u64, u32)> {
            let pairs = before.iter().zip(&after);
            pairs.filter(|(b, a)| which(a) > which(b)).map(|(b, _)| (b.0, b.1)).collect()
        };
        // {0, 1}, and by the rule of section 3.3.2 whatever contains it.
        let prefetch: Vec<(u64, u32)> = (1..=largest).map(|order| (0, order)).collect();
        assert_eq!(grown(|c| c.2), prefetch);
        let capacity: &[(u64, u32)] = if largest > 1 { &[(4, 2)] } else { &[] };
        assert_eq!(grown(|c| c.3), capacity, "{{4, 5, 6, 7}} and no other");
    }
}

/// Section 3.4.2: more capacity charges than prefetch charges are needed.
#[test]
fn online_promotes_by_capacity_at_its_own_threshold() {
    let settings = Settings {
        sizes: PageSizes::new(&[1]).expect("a size"),
        prices: Prices { per_kib: 30, ..Prices::default() },
        prefetch: 1000.0,
        ..Settings::default()
    };
    let mut policy = Online::new(&settings);
    // Pages 0 and 1 of a superpage and one far away in turns, in a TLB of two entries: with the
    // superpage all would fit.
    let mut asked = None;
    for i in 0..60_usize {
        let page = [0, 1, 100][i % 3];
        let victim = (i >= 2).then(|| [0, 1, 100][(i - 2) % 3]);
        if let Some(&action) = tell(&mut policy, miss(page, victim)).first() {
            asked = Some((i, action));
            break;
        }
    }
    // R is 8: five charges, one at every touch of page 100 but the first.
    assert_eq!(asked, Some((2 + 5 * 3, promote(0, 1))));
    tell(&mut policy, promoted(0, 1));
    assert_eq!(policy.capacity(Vpn(0), 1), 0);
}

#[test]
fn asap_builds_the_largest_superpage_that_is_complete() {
    let mut policy = Asap::with_share(PageSizes::romer(), 1.0);
    let wishes: Vec<Action> = (0..8).flat_map(|page| tell(&mut policy, fault(page))).collect();
    let expected = [promote(0, 1), promote(0, 2), promote(4, 1), promote(0, 3)];
    assert_eq!(wishes, expected);
    assert_eq!(tell(&mut policy, fault(3)), [], "seen before");
    // One page in four is missing: nothing above 8 KiB ever.
    let mut policy = Asap::with_share(PageSizes::romer(), 1.0);
    let sparse = (0..4096).filter(|page| page % 4 != 3);
    let wishes: Vec<Action> = sparse.flat_map(|page| tell(&mut policy, fault(page))).collect();
    assert!(wishes.iter().all(|wish| matches!(wish, Action::Promote { order: 1, .. })));
    assert_eq!(wishes.len(), 1024);
}

#[test]
fn asap_4_64_builds_at_half_and_fixed_at_once() {
    let mut policy = Asap::four_64();
    for page in (16..32).step_by(2).take(7) {
        assert_eq!(tell(&mut policy, fault(page)), []);
    }
    assert_eq!(tell(&mut policy, fault(31)), [promote(16, 4)]);
    assert_eq!(tell(&mut policy, promoted(16, 4)), []);
    assert_eq!(tell(&mut Fixed::new(2), fault(7)), [promote(4, 2)]);
    assert_eq!(tell(&mut Fixed::new(0), fault(7)), []);
}

/// A superpage that a policy gets by promotion completes a larger one.
#[test]
fn asap_counts_what_promotion_fills_in() {
    let mut policy = Asap::with_share(PageSizes::new(&[1, 2]).expect("sizes"), 0.5);
    assert_eq!(tell(&mut policy, fault(0)), [promote(0, 1)]);
    assert_eq!(tell(&mut policy, promoted(0, 1)), [promote(0, 2)]);
    assert_eq!(tell(&mut policy, promoted(0, 2)), []);
}

fn misses(stream: &[Vpn], entries: usize, page: impl Fn(Vpn) -> (Vpn, u32)) -> u64 {
    let (mut tlb, mut misses) = (Vec::new(), 0);
    for &touched in stream {
        let unit = page(touched);
        match tlb.iter().position(|&held| held == unit) {
            Some(at) => _ = tlb.remove(at),
            None => {
                misses += 1;
                if tlb.len() == entries {
                    tlb.remove(0);
                }
            }
        }
        tlb.push(unit);
    }
    misses
}

/// The cheapest of all ways to cover eight pages by superpages of two, four and eight.
fn optimum(stream: &[Vpn], entries: usize, prices: Prices) -> u64 {
    let parts: Vec<(u64, u32)> = vec![(0, 3), (0, 2), (4, 2), (0, 1), (2, 1), (4, 1), (6, 1)];
    let nested = |a: (u64, u32), b: (u64, u32)| a.0 >> a.1.max(b.1) == b.0 >> a.1.max(b.1);
    let cost = |pick: u32| {
        let chosen: Vec<_> =
            (0..parts.len()).filter(|i| pick >> i & 1 == 1).map(|i| parts[i]).collect();
        let clash = |i: usize| chosen[..i].iter().any(|&other| nested(other, chosen[i]));
        if (0..chosen.len()).any(clash) {
            return u64::MAX;
        }
        let home = |page: Vpn| {
            let whole = chosen.iter().find(|(first, order)| page.0 >> order == first >> order);
            whole.map_or((page, 0), |&(first, order)| (Vpn(first), order))
        };
        let built: u64 = chosen.iter().map(|(_, order)| prices.build(1 << order)).sum();
        misses(stream, entries, home) * prices.miss + built
    };
    (0..1 << parts.len()).map(cost).min().expect("128 ways")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A plan's cost is what it says, never above building nothing, nor below the optimum, and
    /// near it.
    #[test]
    fn offline_plans_are_honest_and_near_the_optimum(
        pages in prop::collection::vec(0_u64..8, 1..400), entries in 1_usize..4,
        per_kib in 1_u64..300,
    ) {
        let stream: Vec<Vpn> = pages.into_iter().map(Vpn).collect();
        let prices = Prices { per_kib, ..Prices::default() };
        let plan = OfflinePlan::greedy(&stream, entries, &PageSizes::powers(3), prices);
        let home = |page| plan.superpage(page).unwrap_or((page, 0));
        prop_assert_eq!(plan.misses, misses(&stream, entries, home));
        let built: u64 = plan.pages().map(|(_, order)| prices.build(1 << order)).sum();
        prop_assert_eq!(plan.cycles, plan.misses * prices.miss + built);
        prop_assert!(plan.cycles <= misses(&stream, entries, |page| (page, 0)) * prices.miss);
        let best = optimum(&stream, entries, prices);
        prop_assert!(best <= plan.cycles);
        prop_assert!(plan.cycles <= best * 2, "{} for {best}", plan.cycles);
    }
}

#[test]
fn offline_plans_are_built_at_the_first_touch() {
    let stream: Vec<Vpn> = (0..600_000_u64).map(|i| Vpn(4096 + i * 7919 % 512)).collect();
    let plan = OfflinePlan::greedy(&stream, 32, &PageSizes::romer(), Prices::default());
    assert_eq!(plan.pages().collect::<Vec<_>>(), [(Vpn(4096), 9)]);
    assert_eq!(plan.misses, 1);
    let mut policy = Offline::new(plan);
    assert_eq!(tell(&mut policy, fault(4100)), [promote(4096, 9)]);
    assert_eq!(tell(&mut policy, fault(100)), []);
}

const fn progress(instructions: u64) -> Event {
    Event::Progress { cycles: 2 * instructions, instructions }
}

/// Misses that never lead to a superpage: pages far from each other.
fn far_misses(policy: &mut dyn Policy, n: u64) -> usize {
    (0..n).map(|i| tell(policy, miss((i % 4096) << 20, None)).len()).sum()
}

#[test]
fn the_throttle_rests_until_its_cost_is_below_the_target() {
    let mut policy = Throttle::new(ApproxOnline::new(Settings::default()), RestBounds::default());
    assert_eq!(far_misses(&mut policy, 9_000), 0);
    assert_eq!(tell(&mut policy, progress(9_999_999)), [], "the window is not over");
    assert_eq!(tell(&mut policy, progress(10_000_000)), [], "0.0009 misses an instruction");
    assert_eq!(far_misses(&mut policy, 50_000), 0);
    assert_eq!(tell(&mut policy, progress(20_000_000)), [Action::TellTlbMisses(false)]);
    assert!(policy.resting);
    // 59,000 misses at 100 cycles are paid for at 0.02 by 295 million instructions.
    assert_eq!(tell(&mut policy, progress(294_999_999)), []);
    assert_eq!(tell(&mut policy, progress(295_000_000)), [Action::TellTlbMisses(true)]);
    assert_eq!((policy.resting, policy.rests), (false, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// At the end of every rest the policy has cost no more than the target, whatever happened.
    #[test]
    fn the_throttle_keeps_its_bound(windows in prop::collection::vec(0_u64..3000, 1..80)) {
        let bounds = RestBounds { window: 10_000, ..RestBounds::default() };
        let mut policy = Throttle::new(ApproxOnline::new(Settings::default()), bounds);
        let (mut heard, mut instructions) = (0, 0);
        for misses in windows {
            if !policy.resting {
                far_misses(&mut policy, misses);
                heard += misses;
            }
            instructions += 10_000;
            let wishes = tell(&mut policy, progress(instructions));
            if wishes == [Action::TellTlbMisses(true)] {
                let cost = (heard * bounds.bookkeeping) as f64;
                // Windows with few misses may cost what their frequency allows.
                let allowed = bounds.target.max(bounds.frequency * bounds.bookkeeping as f64);
                prop_assert!(cost <= allowed * instructions as f64);
            }
        }
    }
}

#[test]
fn pages_in_the_way_break_superpages_and_let_them_be_built_again() {
    let asap = || Asap::with_share(PageSizes::romer(), 1.0);
    let mut policy = Interfering::new(asap(), PageSizes::romer());
    let wishes: Vec<Action> = (0..8).flat_map(|page| tell(&mut policy, fault(page))).collect();
    assert_eq!(wishes.last(), Some(&promote(0, 3)));
    let demoted = |page, order| Event::Demoted { page: Vpn(page), order, interfering: true };
    // What is left of it, in the largest parts.
    assert_eq!(tell(&mut policy, demoted(5, 3)), [promote(0, 2), promote(6, 1)]);
    assert_eq!(tell(&mut policy, demoted(0, 2)), [promote(2, 1)]);
    // The policy would build the next size, but for those pages.
    let more: Vec<Action> = (8..16).flat_map(|page| tell(&mut policy, fault(page))).collect();
    assert!(more.contains(&promote(8, 2)) && !more.contains(&promote(0, 4)), "{more:?}");
    let restored = |page| Event::Restored { page: Vpn(page) };
    assert_eq!(tell(&mut policy, restored(5)), [promote(4, 2)], "page 0 is still in the way");
    assert_eq!(tell(&mut policy, restored(0)), [promote(0, 2)]);
    assert_eq!(tell(&mut policy, restored(0)), [], "it was in nobody's way");
}

/// Two pages in turn: enough charges for any threshold.
fn alternate(policy: &mut dyn Policy, pages: [u64; 2], n: usize) -> Vec<(usize, Action)> {
    let mut asked = Vec::new();
    for i in 0..n {
        let victim = (i > 0).then(|| pages[(i - 1) % 2]);
        let wishes = tell(policy, miss(pages[i % 2], victim));
        asked.extend(wishes.into_iter().map(|wish| (i, wish)));
    }
    asked
}

#[test]
fn thresholds_follow_the_cost_of_construction() {
    let prices = Prices { setup: 2400, ..Prices::default() };
    let sizes = PageSizes::new(&[1]).expect("a size");
    let settings = Settings { sizes, by_construction: true, prices, ..Settings::default() };
    let mut policy = ApproxOnline::new(settings.clone());
    let quote = Action::Quote { page: Vpn(0), order: 1 };
    let quoted = |construction| Event::Quoted { page: Vpn(0), order: 1, construction };
    // An eighth of 2,400 cycles in misses of 30.
    assert_eq!(alternate(&mut policy, [0, 1], 11).as_slice(), [(10, quote)]);
    assert_eq!(tell(&mut policy.clone(), quoted(Construction::InPlace)), [promote(0, 1)]);
    // One page to copy: 60 charges; 10 are there.
    assert_eq!(tell(&mut policy, quoted(Construction::Copy { pages: 1 })), []);
    // The new series begins without a victim, so that its first miss is of a page that is
    // there still and has no company but the other.
    let asked = alternate(&mut policy, [0, 1], 60);
    assert_eq!(asked.first().map(|asked| asked.1), Some(quote));
    assert!((49..=51).contains(&asked[0].0), "{asked:?}");
    let others = Construction::Vacate { pages: 2, others: 2 };
    assert_eq!(tell(&mut policy, quoted(others)), [], "four pages to move: 210 charges");
    assert!(alternate(&mut policy, [0, 1], 100).is_empty());
    assert!(!alternate(&mut policy, [0, 1], 100).is_empty());
    let never = quoted(Construction::Impossible(MoveRefusal::NoFrame));
    assert_eq!(tell(&mut policy, never), []);
    assert_eq!(policy.tree.charges(Vpn(0), 1), 0, "it starts anew");
}

#[test]
fn refused_superpages_are_asked_for_less_and_less() {
    let mut policy = ApproxOnline::new(Settings::default());
    let mut last = 0;
    for doubling in 0..4_usize {
        let asked = alternate(&mut policy, [0, 1], 4000);
        assert_eq!(asked.first().map(|asked| asked.1), Some(promote(0, 1)), "asked for once");
        assert!(asked.iter().filter(|asked| asked.1 == promote(0, 1)).count() == 1);
        assert!(asked[0].0 > last, "{} after {last}, doubling {doubling}", asked[0].0);
        last = asked[0].0;
        for (_, wish) in asked {
            let Action::Promote { page, order } = wish else { panic!("{wish:?}") };
            let why = MoveRefusal::NoFrame;
            assert_eq!(tell(&mut policy, Event::NotPromoted { page, order, why }), []);
        }
    }
}

#[test]
fn reservations_become_superpages_where_nothing_has_to_be_copied() {
    let mut policy = Hybrid::new(Settings::default(), 4, 0.5).expect("a size");
    let wishes: Vec<Action> = (0..8).flat_map(|page| tell(&mut policy, fault(page))).collect();
    assert_eq!(wishes, [Action::Quote { page: Vpn(0), order: 4 }]);
    let quoted = |construction| Event::Quoted { page: Vpn(0), order: 4, construction };
    let mut other = policy.clone();
    assert_eq!(tell(&mut policy, quoted(Construction::InPlace)), [promote(0, 4)]);
    assert_eq!(tell(&mut other, quoted(Construction::Copy { pages: 8 })), []);
    assert!(Hybrid::new(Settings::default(), 19, 0.5).is_none());
}

/// Bits 12 to 15 choose among sixteen colours: a block of 2^n frames has 2^n colours.
#[test]
fn partitions_hold_superpages_as_large_as_their_runs_of_colours() {
    let index = IndexFunction::linear(6, 10).expect("an index");
    let orders = |set: &str| {
        let set = ColorSet::parse(set, 16).expect("colours");
        orders_inside(&index, &set, &PageSizes::romer()).expect("classes")
    };
    assert_eq!(orders("0-15"), (0..=11).collect::<Vec<_>>());
    assert_eq!(orders("8-15"), [0, 1, 2, 3]);
    assert_eq!(orders("1-4"), [0, 1]);
    assert_eq!(orders("1,3,5"), [0]);
}

/// A hash that leaves bits 13 to 15 out: blocks of 64 KiB have the two colours of bit 12 XOR 20
/// within them, or, where the hash takes bit 16 alone, one.
#[test]
fn a_hash_can_leave_large_blocks_with_few_colours() {
    let index = IndexFunction::xor(6, 6, vec![1 << 16 | 1 << 18]).expect("an index");
    let set = ColorSet::parse("1", 2).expect("a colour");
    let sizes = PageSizes::romer();
    assert_eq!(orders_inside(&index, &set, &sizes).expect("classes"), [0, 1, 2, 3, 4]);
    let approx = ApproxOnline::new(Settings { tlbs: 1, ..Settings::default() });
    let mut policy = InPartition::new(approx, &index, &set, &sizes).expect("classes");
    assert_eq!(policy.fits, [1, 2, 3, 4]);
    // 128 KiB does not fit; the two blocks of 64 KiB that were seen do.
    let asked = alternate(&mut policy, [0, 16], 2000);
    let wishes: Vec<Action> = asked.iter().map(|asked| asked.1).collect();
    assert_eq!(wishes, [promote(0, 4), promote(16, 4)]);
    assert_eq!(asked[0].0, 1600, "at the threshold of 128 KiB");
    // No block of a partition of odd pages: nothing is built at all.
    let index = IndexFunction::linear(6, 7).expect("an index");
    let approx = ApproxOnline::new(Settings { tlbs: 1, ..Settings::default() });
    let mut policy = InPartition::new(approx, &index, &set, &sizes).expect("classes");
    assert_eq!(alternate(&mut policy, [0, 1], 5000), []);
}

/// A page twice in the TLBs, for data and for instructions, leaves when both are gone.
#[test]
fn a_page_may_be_in_two_tlbs() {
    let mut policy = ApproxOnline::new(Settings::default());
    for _ in 0..2 {
        tell(&mut policy, miss(0, None));
    }
    assert_eq!(policy.tree.tlb_count(Vpn(0), 0), 2);
    assert_eq!(policy.tree.charges(Vpn(0), 1), 0, "its own entry is no company");
    tell(&mut policy, miss(1, Some(0)));
    assert_eq!(policy.tree.charges(Vpn(0), 1), 1);
    assert_eq!(policy.tree.tlb_count(Vpn(0), 1), 2);
    tell(&mut policy, miss(9999, Some(0)));
    assert_eq!(policy.tree.tlb_count(Vpn(0), 1), 1);
}

/// A page that got another frame has no entry any more, however many it had.
#[test]
fn moved_pages_have_no_entries() {
    let mut policy = ApproxOnline::new(Settings::default());
    for page in [0, 0, 1] {
        tell(&mut policy, miss(page, None));
    }
    assert_eq!(policy.tree.tlb_count(Vpn(0), 1), 2);
    tell(&mut policy, Event::Moved { page: Vpn(0) });
    assert_eq!(policy.tree.tlb_count(Vpn(0), 1), 1);
    tell(&mut policy, miss(0, None));
    tell(&mut policy, miss(9999, Some(0)));
    assert_eq!(policy.tree.tlb_count(Vpn(0), 0), 0, "it had one entry, and that is gone");
}

/// Section 3.5.2 has 0.4 % of memory.
#[test]
fn the_books_take_less_than_the_thesis_has() {
    let mut policy = ApproxOnline::new(Settings::default());
    (0..8192).for_each(|page| _ = tell(&mut policy, miss(page, None)));
    let per_page = policy.tree.bytes() as f64 / 8192.0;
    assert!(per_page < 0.004 * 4096.0 / 3.0, "{per_page} bytes");
}

/// Bounds that hold whatever happens: one window of rare misses, resting or not, costs no more
/// than the target.
#[test]
fn strict_bounds_follow_from_the_prices() {
    let bounds = RestBounds::strict(Prices::default(), 0.125);
    let per_miss = 100.0 + 30.0 * 8.0;
    assert!((bounds.frequency * per_miss - bounds.target).abs() < 1e-12);
    let mut policy = Throttle::new(ApproxOnline::new(Settings::default()), bounds);
    assert_eq!(far_misses(&mut policy, 9_000), 0);
    assert_eq!(tell(&mut policy, progress(10_000_000)), [Action::TellTlbMisses(false)]);
}
