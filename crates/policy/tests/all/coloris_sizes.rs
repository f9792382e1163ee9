//! Sizes by utility: divisions against all there are, curves against an exact cache, and the
//! manager over programs whose miss rates follow known curves.

use fastrand::Rng;
use huepage_color::ColorSet;
use huepage_policy::coloris::sizes::{Price, price};
use huepage_policy::coloris::{
    AppId, Bounds, Curve, CurveSettings, Demand, Manager, Part, Settings, best,
};
use proptest::prelude::*;

/// Every division of `units` among `parts`, at least one each.
fn divisions(parts: usize, units: u16) -> Vec<Vec<u16>> {
    if parts == 1 {
        return if units > 0 { vec![vec![units]] } else { Vec::new() };
    }
    let firsts = 1..units.max(1);
    firsts
        .flat_map(|own| {
            divisions(parts - 1, units - own)
                .into_iter()
                .map(move |rest| [vec![own], rest].concat())
        })
        .collect()
}

fn demand() -> impl Strategy<Value = Demand> {
    // Any rates, not only falling ones: measured curves have bumps.
    let rates = prop::collection::vec(0.0f64..1.0, 13);
    (rates, 1.0f64..100.0, prop::option::of(0.1f64..0.9))
        .prop_map(|(rates, requests, bound)| Demand { rates, requests, bound })
}

proptest! {
    /// The guarantee: a partition that satisfies all bounds is found if there is one.
    #[test]
    fn the_best_division_is_as_good_as_any(
        partitions in prop::collection::vec(prop::collection::vec(demand(), 1..3), 1..5),
        unit in 1u16..3,
    ) {
        let colors = 12 / unit * unit;
        let part = |programs| Part { floor: unit, ceiling: colors, programs };
        let partitions: Vec<Part> = partitions.into_iter().map(part).collect();
        let found = best(&partitions, colors, unit).expect("enough colours");
        prop_assert_eq!(found.sizes.iter().sum::<u16>(), colors);
        prop_assert!(found.sizes.iter().all(|own| *own >= unit && own % unit == 0));
        let paid = price(&partitions, &found.sizes);
        prop_assert_eq!(paid.broken, found.price.broken);
        prop_assert!((paid.misses - found.price.misses).abs() < 1e-9);
        let mut feasible = false;
        for units in divisions(partitions.len(), colors / unit) {
            let sizes: Vec<u16> = units.iter().map(|own| own * unit).collect();
            let other = price(&partitions, &sizes);
            feasible |= other.broken == 0;
            let within = Price { misses: other.misses + 1e-9, ..other };
            prop_assert!(found.price <= within, "{sizes:?}: {other:?} before {found:?}");
        }
        prop_assert_eq!(found.price.broken == 0, feasible);
    }
}

#[test]
fn too_few_colours_have_no_division() {
    let programs = vec![Demand { rates: vec![1.0], requests: 1.0, bound: None }];
    let two = |floor| [0, 1].map(|_| Part { floor, ceiling: 9, programs: programs.clone() });
    assert_eq!(best(&two(2), 3, 2), None);
    assert_eq!(best(&[], 3, 1), None);
    assert_eq!(best(&two(1), 2, 1).map(|sized| sized.sizes), Some(vec![1, 1]));
}

/// 32 colours of 512 lines.
const SETTINGS: CurveSettings = CurveSettings { shift: 4, ..CurveSettings::new(32, 512) };

fn curve(requests: u64, mut line: impl FnMut(u64) -> u64) -> Vec<f64> {
    let mut curve = Curve::new(SETTINGS);
    (0..requests).for_each(|i| curve.request(line(i)));
    curve.miss_rates().expect("counted")
}

#[test]
fn a_uniform_array_misses_what_does_not_fit() {
    let mut random = Rng::with_seed(7);
    // As large as 24 colours.
    let rates = curve(2_000_000, |_| random.u64(..24 * 512));
    for (colors, &rate) in rates.iter().enumerate() {
        let fits = (colors as f64 / 24.0).min(1.0);
        assert!((rate - (1.0 - fits)).abs() < 0.03, "{rate} with {colors} colors");
    }
}

#[test]
fn a_loop_fits_or_does_not() {
    let rates = curve(400_000, |i| i % (10 * 512));
    assert!(rates[..9].iter().all(|&rate| rate > 0.97), "{rates:?}");
    assert!(rates[11..].iter().all(|&rate| rate < 0.03), "{rates:?}");
    // A stream has no line twice.
    let rates = curve(400_000, |i| i);
    assert!(rates.iter().all(|&rate| rate > 0.99), "{rates:?}");
}

#[test]
fn nothing_counted_is_no_curve_and_a_sample_is_about_its_share() {
    let mut curve = Curve::new(SETTINGS);
    assert_eq!(curve.miss_rates(), None);
    (0..100).for_each(|line| curve.request(line));
    assert_eq!(curve.counted(), 0, "still warming up");
    let followed = (0..1_000_000).filter(|&line| SETTINGS.follows(line)).count();
    assert!((60_000..65_000).contains(&followed), "{followed} of a million");
}

proptest! {
    #[test]
    fn rates_never_rise_with_the_cache(seed in any::<u64>(), lines in 100u64..30_000) {
        let mut random = Rng::with_seed(seed | 1);
        let rates = curve(200_000, |_| {
            let far = random.u64(..4) == 0;
            random.u64(..if far { lines } else { lines / 10 + 1 })
        });
        prop_assert!(rates[0] == 1.0);
        prop_assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]));
    }
}

/// Programs on cores of their own, each a uniform array of so many colours.
struct World {
    manager: Manager,
    sizes: Vec<u64>,
    requests: Vec<u64>,
    random: Rng,
}

impl World {
    fn new(programs: &[(u64, u64, Option<f64>)]) -> World {
        let settings = Settings { unit: 2, floor: 2, ..Settings::utility(SETTINGS) };
        let mut manager = Manager::on_cores(settings, 32, 4).unwrap();
        for (core, &(.., bound)) in (0..).zip(programs) {
            let own = bound.map(|high| Bounds { low: 0.0, high });
            manager.admit_to(core, settings.spec("program", own));
        }
        let sizes = programs.iter().map(|program| program.0).collect();
        let requests = programs.iter().map(|program| program.1).collect();
        World { manager, sizes, requests, random: Rng::with_seed(3) }
    }

    fn ids(&self) -> Vec<AppId> {
        (0..self.sizes.len()).map(AppId).collect()
    }

    fn colors(&self) -> Vec<u16> {
        self.ids().iter().map(|&id| self.manager.colors(id).unwrap().len()).collect()
    }

    fn rate(&self, at: usize) -> f64 {
        let fits = f64::from(self.colors()[at]) / self.sizes[at] as f64;
        1.0 - fits.min(1.0)
    }

    /// A period; how many programs were given other colours.
    fn period(&mut self) -> usize {
        for (at, id) in self.ids().into_iter().enumerate() {
            if self.manager.wants_requests(id) {
                for _ in 0..self.requests[at] {
                    self.manager.request(id, self.random.u64(..self.sizes[at] * 512));
                }
            }
            let noise = self.random.u64(..self.requests[at] / 50 + 1);
            let hits = self.requests[at] * u64::from(self.colors()[at]) / self.sizes[at];
            let misses = self.requests[at].saturating_sub(hits);
            let misses = (misses + noise).min(self.requests[at]);
            self.manager.observe_counts(id, misses, self.requests[at], 0.0);
        }
        self.manager.decide(0.0).iter().filter(|one| one.is_change()).count()
    }
}

#[test]
fn the_hungry_program_gets_what_bounds_allow_and_divisions_settle() {
    let hungry = (40, 100_000, Some(0.5));
    let mut world = World::new(&[(2, 50, None), (6, 50_000, Some(0.4)), hungry, (4, 50_000, None)]);
    let changed: usize = (0..12).map(|_| world.period()).sum();
    assert!(changed > 0);
    assert!(world.rate(2) <= 0.5 && world.rate(1) <= 0.4, "{:?}", world.colors());
    assert_eq!(world.colors()[0], 2, "a program with next to no requests keeps its floor");
    let settled = world.colors();
    let changed: usize = (0..50).map(|_| world.period()).sum();
    assert_eq!((changed, world.colors()), (0, settled), "and nothing moves any more");
    let sets: Vec<&ColorSet> =
        world.ids().into_iter().map(|id| world.manager.colors(id).unwrap()).collect();
    let all = sets.iter().fold(ColorSet::empty(32), |all, set| all.union(set));
    assert!(all.is_full() && sets.iter().map(|set| set.len()).sum::<u16>() == 32);
}

#[test]
fn a_program_that_changes_is_measured_again() {
    let mut world = World::new(&[(4, 50_000, None), (4, 50_000, None), (20, 50_000, None)]);
    (0..12).for_each(|_| _ = world.period());
    let before = world.colors();
    assert!(before[2] > before[0], "{before:?}");
    (world.sizes[2], world.sizes[0]) = (2, 24);
    (0..30).for_each(|_| _ = world.period());
    let after = world.colors();
    assert!(after[0] > before[0] && after[2] < before[2], "{before:?}, then {after:?}");
}

#[test]
fn a_bound_that_holds_is_not_broken_to_save_misses() {
    // The first could use everything; the second is content with its bound.
    let mut world =
        World::new(&[(64, 1_000_000, None), (16, 40_000, Some(0.55)), (1, 40_000, None)]);
    (0..12).for_each(|_| _ = world.period());
    assert!(world.rate(1) <= 0.55, "{:?}", world.colors());
    assert!(world.colors()[0] > 16, "{:?}", world.colors());
}

#[test]
fn what_no_curve_foretells_is_not_measured_for_ever() {
    let settings = Settings::utility(SETTINGS);
    let mut manager = Manager::on_cores(settings, 32, 4).unwrap();
    let id = manager.admit_to(0, settings.spec("program", None));
    let (mut random, mut measured) = (Rng::with_seed(5), 0);
    for _ in 0..200 {
        if manager.wants_requests(id) {
            measured += 1;
            (0..60_000).for_each(|_| manager.request(id, random.u64(..512)));
        }
        // A colour would do, but somebody else evicts it all.
        manager.observe_counts(id, 30_000, 60_000, 0.0);
        manager.decide(0.0);
    }
    assert!((2..20).contains(&measured), "{measured} of 200 periods");
}
