//! The manager by priority and by utility on a small model of groups, each with a miss rate by the colours that it has: it settles,
//! stays settled, keeps its promises about floors, priorities and the cap, and does not grow in a day.

use huepage_color::ColorSet;
use huepage_policy::coloris::{
    AppId, Bounds, By, Decision, Manager, Reading, Settings, Spec, Want,
};
use proptest::prelude::*;

const COLORS: u16 = 16;
/// Seconds between rounds.
const ROUND: f64 = 3.0;

/// How often a group misses with so many colours.
type Curve = fn(u16) -> f64;

fn spec(name: &str, floor: u16, priority: u8) -> Spec {
    let bounds = Some(Bounds { low: 0.10, high: 0.30 });
    Spec { name: name.to_owned(), floor, ceiling: COLORS, priority, bounds, measure: "miss rate" }
}

/// A hot set of fourteen colours, used evenly.
fn hungry(colors: u16) -> f64 {
    (1.0 - f64::from(colors) / 14.0).max(0.02)
}

/// A hot set of less than a colour.
fn indifferent(_: u16) -> f64 {
    0.03
}

/// Nothing is used again soon enough.
fn stream(_: u16) -> f64 {
    0.97
}

/// Goes round in six colours.
fn cyclic(colors: u16) -> f64 {
    if colors >= 6 { 0.05 } else { 0.95 }
}

/// Needs four colours.
fn modest(colors: u16) -> f64 {
    if colors >= 4 { 0.05 } else { 0.5 }
}

struct World {
    manager: Manager,
    groups: Vec<(Spec, Curve)>,
    now: f64,
    noise: u64,
    /// When, and how many colours changed hands.
    moves: Vec<(f64, u16)>,
    said: Vec<Decision>,
}

impl World {
    fn new(settings: Settings, groups: Vec<(Spec, Curve)>) -> World {
        let specs = groups.iter().map(|(spec, _)| spec.clone()).collect();
        let manager = Manager::of_groups(settings, ColorSet::all(COLORS), specs, &[]).unwrap();
        World { manager, groups, now: 0.0, noise: 1, moves: Vec::new(), said: Vec::new() }
    }

    /// Between -1 and 1.
    fn random(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.noise >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }

    fn size(&self, at: usize) -> u16 {
        self.manager.colors(AppId(at)).unwrap().len()
    }

    fn sizes(&self) -> Vec<u16> {
        (0..self.groups.len()).map(|at| self.size(at)).collect()
    }

    fn round(&mut self) {
        self.now += ROUND;
        for at in 0..self.groups.len() {
            let value = (self.groups[at].1)(self.size(at)) + 0.02 * self.random();
            let reading = Reading { value: value.clamp(0.0, 1.0), margin: 0.02 };
            self.manager.observe(AppId(at), Some(reading), self.now);
            let foretold = (0..=COLORS).map(|n| (self.groups[at].1)(n).clamp(0.0, 1.0)).collect();
            self.manager.foretell(AppId(at), foretold, self.now);
        }
        let decisions = self.manager.decide(self.now);
        self.check();
        let grown = |d: &Decision| d.to.len().saturating_sub(d.from.len());
        let moved: u16 = decisions.iter().map(grown).sum();
        if moved > 0 {
            self.moves.push((self.now, moved));
        }
        self.said.extend(decisions);
    }

    fn run(&mut self, seconds: f64) {
        let end = self.now + seconds;
        while self.now < end {
            self.round();
        }
    }

    /// Partitions are disjoint and within limits.
    fn check(&self) {
        let mut union = ColorSet::empty(COLORS);
        for (at, (spec, _)) in self.groups.iter().enumerate() {
            let own = self.manager.colors(AppId(at)).unwrap();
            assert!(union.intersection(own).is_empty(), "{:?}", self.sizes());
            assert!((spec.floor..=spec.ceiling).contains(&own.len()), "{}: {own}", spec.name);
            union = union.union(own);
        }
    }

    /// Most colours that changed hands within a minute, from some time on.
    fn busiest_minute(&self, from: f64) -> u16 {
        let later: Vec<_> = self.moves.iter().filter(|(at, _)| *at >= from).collect();
        let within = |start: f64| {
            later.iter().filter(|(at, _)| (start..start + 60.0).contains(at)).map(|(_, n)| n).sum()
        };
        later.iter().map(|(at, _)| within(*at)).max().unwrap_or(0)
    }
}

#[test]
fn four_groups_settle_within_a_minute_and_stay_so() {
    let groups = vec![
        (spec("hungry", 1, 1), hungry as Curve),
        (spec("one", 1, 1), indifferent),
        (spec("two", 1, 1), indifferent),
        (spec("three", 2, 1), indifferent),
    ];
    let mut world = World::new(Settings::unattended(COLORS), groups);
    assert_eq!(world.sizes(), [4, 4, 4, 4]);
    world.run(60.0);
    let settled = world.sizes();
    assert!(settled[0] >= 10, "{settled:?}: {:#?}", world.said);
    world.run(1800.0);
    assert!(world.busiest_minute(60.0) < 4, "{:?}", world.moves);
    assert!(world.size(0) >= 10, "{:?}", world.sizes());
    // The indifferent keep their floors where the hungry one still wants more.
    world.groups[0].1 = |colors| 1.0 - f64::from(colors) / 40.0;
    world.run(300.0);
    assert_eq!(world.sizes(), [12, 1, 1, 2]);
    for decision in &world.said {
        assert!(decision.reason.contains("miss rate 0."), "{decision:?}");
        assert!(!decision.reason.contains('\n'));
    }
    let want = world.manager.want(AppId(0));
    assert!(world.said.last().unwrap().reason.contains("nobody"), "{want:?}");
}

#[test]
fn by_utility_four_groups_settle_too() {
    let groups = vec![
        (spec("hungry", 1, 1), hungry as Curve),
        (spec("one", 1, 1), indifferent),
        (spec("stream", 1, 1), stream),
        (spec("modest", 2, 1), modest),
    ];
    let settings = Settings { by: By::Utility, ..Settings::unattended(COLORS) };
    let mut world = World::new(settings, groups);
    world.run(60.0);
    assert_eq!(world.sizes(), [10, 1, 1, 4], "{:#?}", world.said);
    world.run(1800.0);
    assert_eq!(world.busiest_minute(60.0), 0, "{:?}", world.moves);
    for decision in &world.said {
        assert!(decision.reason.contains("as foretold"), "{decision:?}");
    }
}

#[test]
fn a_stream_does_not_get_the_cache() {
    let groups = vec![
        (spec("stream", 1, 1), stream as Curve),
        (spec("hungry", 1, 1), hungry),
        (spec("quiet", 1, 1), indifferent),
    ];
    let mut world = World::new(Settings::unattended(COLORS), groups);
    world.run(300.0);
    assert!(world.size(1) > 9, "{:?}: {:#?}", world.sizes(), world.said);
    world.run(3600.0);
    assert!(world.busiest_minute(300.0) < 4, "{:?}", world.moves);
    assert!(world.said.iter().any(|d| d.reason.contains("changed nothing")), "{:#?}", world.said);
}

#[test]
fn who_goes_round_gets_all_that_it_goes_round_in() {
    let groups = vec![
        (spec("cyclic", 1, 1), cyclic as Curve),
        (spec("one", 1, 1), indifferent),
        (spec("two", 1, 1), indifferent),
        (spec("three", 1, 1), indifferent),
    ];
    let mut world = World::new(Settings::unattended(COLORS), groups);
    world.run(60.0);
    assert!(world.size(0) >= 6, "{:?}", world.sizes());
    world.run(600.0);
    assert_eq!(world.busiest_minute(60.0), 0, "{:?}", world.moves);
}

#[test]
fn what_was_a_mistake_is_taken_back_and_seldom_repeated() {
    let greedy: Curve = |colors| 1.0 - f64::from(colors) / 40.0;
    let groups = vec![(spec("greedy", 1, 1), greedy), (spec("modest", 1, 1), modest)];
    let mut world = World::new(Settings::unattended(COLORS), groups);
    world.run(24.0 * 3600.0);
    assert!((4..=5).contains(&world.size(1)), "{:?}", world.sizes());
    let back =
        world.said.iter().filter(|d| d.reason.contains("gives") && d.reason.contains("back"));
    assert!((1..60).contains(&back.count()), "{:#?}", world.said);
    assert!(world.busiest_minute(120.0) < 4, "{:?}", world.moves);
}

#[test]
fn priority_takes_what_nobody_gives() {
    let greedy: Curve = |colors| 1.0 - f64::from(colors) / 40.0;
    let groups = vec![(spec("low", 2, 1), greedy), (spec("high", 1, 5), greedy)];
    let mut world = World::new(Settings::unattended(COLORS), groups);
    world.run(300.0);
    assert_eq!(world.sizes(), [2, 14]);
    let reasons = world.said.iter().any(|d| d.reason.contains("priority 1"));
    assert!(reasons, "{:#?}", world.said);
    let groups = vec![(spec("one", 2, 1), greedy), (spec("two", 1, 1), greedy)];
    let mut world = World::new(Settings::unattended(COLORS), groups);
    world.run(300.0);
    assert_eq!((world.sizes(), world.moves.len()), (vec![8, 8], 0), "equals keep what they have");
}

#[test]
fn colours_of_groups_without_anybody_are_lent() {
    let groups = [(spec("busy", 1, 1), hungry as Curve), (spec("away", 3, 9), indifferent)];
    let specs = groups.iter().map(|(spec, _)| spec.clone()).collect();
    let settings = Settings::unattended(COLORS);
    let mut manager = Manager::of_groups(settings, ColorSet::all(COLORS), specs, &[]).unwrap();
    for round in 0..40 {
        let now = ROUND * f64::from(round);
        let size = manager.colors(AppId(0)).unwrap().len();
        let reading = Reading { value: hungry(size), margin: 0.02 };
        manager.observe(AppId(0), Some(reading), now);
        manager.observe(AppId(1), None, now);
        for decision in manager.decide(now) {
            assert!(decision.app == AppId(0) || decision.reason.contains("nobody there"));
        }
    }
    assert!(manager.colors(AppId(0)).unwrap().len() >= 10);
    assert_eq!(manager.want(AppId(1)), Want::Nothing);
}

#[test]
fn the_cap_holds_however_much_is_wanted() {
    let greedy: Curve = |colors| 1.0 - f64::from(colors) / 40.0;
    let groups = vec![(spec("low", 1, 1), indifferent as Curve), (spec("high", 1, 5), greedy)];
    let settings = Settings {
        per_second: 0.05,
        unit: 1,
        rest: 0.0,
        patience: 1,
        ..Settings::unattended(COLORS)
    };
    let mut world = World::new(settings, groups);
    world.run(90.0);
    let moved: u16 = world.moves.iter().map(|(_, n)| n).sum();
    assert!((5..=7).contains(&moved), "{:?}", world.moves);
}

/// Seventeen days in which what groups need changes every five minutes: three million readings.
#[test]
fn days_leave_no_trace() {
    let curves: [Curve; 5] = [hungry, indifferent, stream, cyclic, modest];
    let groups = (0..6_u8).map(|at| (spec("group", 1, at % 3), curves[usize::from(at) % 5]));
    let mut world = World::new(Settings::unattended(COLORS), groups.collect());
    let mut longest = 0;
    for round in 0..500_000_u32 {
        if round % 100 == 0 {
            let (at, curve) = (world.random().abs() * 6.0, world.random().abs() * 5.0);
            let place = |x: f64, n: usize| (0..n).rev().find(|&i| x >= i as f64).unwrap_or(0);
            world.groups[place(at, 6)].1 = curves[place(curve, 5)];
        }
        world.round();
        if round % 1000 == 0 {
            longest = longest.max(format!("{:?}", world.manager).len());
            world.said.clear();
        }
        if round == 1000 {
            world.moves.clear();
        }
    }
    // The state is as long as at first, but for the figures in it.
    let first = World::new(Settings::unattended(COLORS), world.groups.clone());
    let start = format!("{:?}", first.manager).len();
    assert!(longest < 2 * start, "{longest} characters, {start} at first");
    let moved: u32 = world.moves.iter().map(|(_, n)| u32::from(*n)).sum();
    assert!(f64::from(moved) / world.now < 1.0, "{moved} colours in {} s", world.now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_read_partitions_stay_disjoint_and_the_cap_holds(
        limits in proptest::collection::vec((1_u16..4, 0_u16..16, 0_u8..4), 1..5),
        readings in proptest::collection::vec((0_usize..6, proptest::option::of(-0.5_f64..1.5), 0.0_f64..0.3, 0.0_f64..10.0), 1..400),
        rate in 0.01_f64..2.0,
        utility in any::<bool>(),
    ) {
        let specs: Vec<Spec> = limits.iter().enumerate().map(|(at, &(floor, more, priority))| {
            let bounds = (at != 3).then_some(Bounds { low: 0.2, high: 0.5 });
            let ceiling = if at == 3 { floor } else { (floor + more).min(COLORS) };
            Spec { name: format!("g{at}"), floor, ceiling, priority, bounds, measure: "miss rate" }
        }).collect();
        let by = if utility { By::Utility } else { By::Priority };
        let settings = Settings { by, per_second: rate, unit: 2, rest: 2.0, patience: 1, ..Settings::unattended(COLORS) };
        let Some(mut manager) = Manager::of_groups(settings, ColorSet::all(COLORS), specs.clone(), &[]) else {
            return Ok(());
        };
        let (mut now, mut moved) = (0.0, 0_u16);
        for (at, value, margin, passed) in readings {
            now += passed;
            let reading = value.map(|value| Reading { value, margin });
            manager.observe(AppId(at), reading, now);
            if let Some(value) = value {
                let rates = (0..=COLORS).map(|n| value.abs() / (1.0 + margin * f64::from(n)));
                manager.foretell(AppId(at), rates.collect(), now);
            }
            for decision in manager.decide(now) {
                moved += decision.to.len().saturating_sub(decision.from.len());
                prop_assert_eq!(manager.colors(decision.app).is_some(), true);
                prop_assert!(!decision.reason.is_empty());
            }
            let mut union = manager.free();
            for (at, spec) in specs.iter().enumerate() {
                let own = manager.colors(AppId(at)).unwrap();
                prop_assert!(union.intersection(own).is_empty());
                prop_assert!((spec.floor..=spec.ceiling).contains(&own.len()), "{} {}", spec.name, own);
                union = union.union(own);
            }
            prop_assert_eq!(union.len(), COLORS);
            prop_assert!(f64::from(moved) <= 4.0 + now * rate + 1e-6);
        }
    }
}
