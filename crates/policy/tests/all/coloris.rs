//! The page colour manager and the recolouring engine of COLORIS, step by step as the paper
//! describes them, and under any sequence of observations.

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::coloris::{AppId, Bounds, Growth, Manager, Reading, Recolorer, Settings};
use huepage_policy::{Action, AreaKind, Event, MoveRefusal, Policy, ResidentPage};
use proptest::prelude::*;

const COLORS: u16 = 16;
const BOUNDS: Bounds = Bounds { low: 0.3, high: 0.7 };
/// Four cores with four colours each, UNIT of two.
const SETTINGS: Settings =
    Settings { bounds: BOUNDS, unit: 2, floor: 2, least_requests: 10, ..Settings::PAPER };

fn set(text: &str) -> ColorSet {
    ColorSet::parse(text, COLORS).unwrap()
}

fn manager() -> Manager {
    Manager::on_cores(SETTINGS, COLORS, 4).unwrap()
}

fn begin(manager: &mut Manager, core: u16, own: Option<Bounds>) -> AppId {
    let spec = manager.settings.spec("program", own);
    manager.admit_to(core, spec)
}

fn four(manager: &mut Manager) -> [AppId; 4] {
    [0, 1, 2, 3].map(|core| begin(manager, core, None))
}

/// What changes when a program is looked at: its colours.
fn observe(manager: &mut Manager, app: AppId, misses: u64, requests: u64) -> Option<ColorSet> {
    manager.observe_counts(app, misses, requests, 0.0);
    let mut decisions = manager.decide(0.0);
    assert!(decisions.len() <= 1 && decisions.iter().all(|one| one.app == app), "{decisions:?}");
    decisions.pop().map(|one| one.to)
}

/// A program has no memory left: its colours from then on.
fn grown(manager: &mut Manager, app: AppId) -> ColorSet {
    assert!(manager.out_of_memory(app) > 0);
    assert!(manager.decide(0.0).iter().any(|one| one.app == app && one.reason == "out of memory"));
    manager.colors(app).unwrap().clone()
}

#[test]
fn programs_go_to_the_core_with_fewest_and_have_its_section() {
    let mut manager = manager();
    let spec = SETTINGS.spec("program", None);
    let colors: Vec<_> = (0..5).map(|_| manager.admit(spec.clone())).collect();
    let colors = colors.into_iter().map(|app| manager.colors(app).unwrap().to_string());
    assert_eq!(colors.collect::<Vec<_>>(), ["0-3", "4-7", "8-11", "12-15", "0-3"]);
    manager.leave(AppId(2));
    assert_eq!(manager.colors(AppId(2)), None);
    let next = manager.admit(spec);
    assert_eq!(manager.colors(next), Some(&set("8-11")));
}

#[test]
fn colours_change_hands_from_one_that_misses_little_to_one_that_misses_much() {
    let mut manager = manager();
    let [first, second, hungry, _] = four(&mut manager);
    // Nobody waits, so nobody gives.
    assert_eq!(observe(&mut manager, first, 0, 100), None);
    assert_eq!(observe(&mut manager, hungry, 90, 100), None);
    assert_eq!(manager.signals(), (true, false));
    // In between the thresholds nothing happens.
    assert_eq!(observe(&mut manager, first, 50, 100), None);
    assert_eq!(observe(&mut manager, second, 10, 100), Some(set("4-5")));
    assert_eq!(manager.signals(), (false, true));
    assert_eq!(observe(&mut manager, hungry, 90, 100), Some(set("6-11")));
    assert_eq!(manager.signals(), (false, false));
}

#[test]
fn a_program_at_its_floor_does_not_answer_and_the_next_can() {
    let mut manager = manager();
    let [first, second, hungry, _] = four(&mut manager);
    let round = |manager: &mut Manager, donor| {
        observe(manager, hungry, 90, 100);
        let given = observe(manager, donor, 0, 100);
        (given.is_some(), observe(manager, hungry, 90, 100).is_some())
    };
    assert_eq!(round(&mut manager, first), (true, true));
    assert_eq!(round(&mut manager, first), (false, false), "two are its floor");
    assert_eq!(manager.signals(), (true, false), "the call stands");
    assert!(observe(&mut manager, second, 0, 100).is_some());
}

#[test]
fn few_requests_count_as_no_misses() {
    let mut manager = manager();
    let [idle, _, hungry, _] = four(&mut manager);
    assert_eq!(observe(&mut manager, idle, 9, 9), None);
    assert_eq!(manager.signals(), (false, false), "nine misses of nine are not many");
    observe(&mut manager, hungry, 90, 100);
    assert!(observe(&mut manager, idle, 9, 9).is_some());
}

#[test]
fn thresholds_of_ones_own_go_first() {
    let mut manager = manager();
    let off = begin(&mut manager, 0, Some(Bounds::OFF));
    let picky = begin(&mut manager, 1, Some(Bounds { low: 0.0, high: 0.1 }));
    assert_eq!(observe(&mut manager, off, 100, 100), None);
    assert_eq!(manager.signals(), (false, false));
    observe(&mut manager, picky, 11, 100);
    assert_eq!(manager.signals(), (true, false));
    assert_eq!(observe(&mut manager, off, 0, 100), None, "a low threshold of 0 gives nothing");
}

#[test]
fn remote_colours_go_first_and_the_hottest_of_them() {
    let mut manager = manager();
    let [_, _, third, fourth] = four(&mut manager);
    // More memory: local colours are all its own, so remote ones, which all have one owner.
    assert_eq!(grown(&mut manager, third), set("0-1,8-11"));
    assert_eq!(grown(&mut manager, fourth), set("2-3,12-15"));
    assert_eq!(grown(&mut manager, fourth), set("2-5,12-15"));
    // 2 and 3 have two owners as 4 and 5; of equals the last goes.
    observe(&mut manager, third, 90, 100);
    assert_eq!(observe(&mut manager, fourth, 0, 100), Some(set("2-3,12-15")));
}

#[test]
fn local_colours_are_chosen_by_owners_on_other_cores() {
    let mut manager = manager();
    let [first, ..] = four(&mut manager);
    let beside = begin(&mut manager, 0, None);
    // The last of core 0 are shared with core 1 from now on; its neighbour's sharing does not count.
    let remote = begin(&mut manager, 1, None);
    (0..2).for_each(|_| _ = grown(&mut manager, remote));
    assert_eq!(manager.colors(remote), Some(&set("4-11")), "8 to 11 have one owner, 0 to 3 two");
    (0..3).for_each(|_| _ = grown(&mut manager, remote));
    assert_eq!(manager.colors(remote), Some(&set("0-1,4-15")));
    observe(&mut manager, beside, 90, 100);
    assert_eq!(observe(&mut manager, first, 0, 100), Some(set("2-3")), "0 and 1 are hot");
    // It gets local ones back first, though its neighbour has them all.
    assert_eq!(grown(&mut manager, first), set("0-3"));
}

#[test]
fn where_nothing_is_shared_a_newcomer_gets_what_is_free_and_its_floor() {
    let mut manager = Manager::on_cores(Settings { shared: false, ..SETTINGS }, COLORS, 4).unwrap();
    let [first, second, hungry] = [0, 1, 2].map(|core| begin(&mut manager, core, None));
    observe(&mut manager, hungry, 90, 100);
    assert_eq!(observe(&mut manager, first, 0, 100), Some(set("0-1")));
    assert_eq!(observe(&mut manager, hungry, 90, 100), Some(set("2-3,8-11")), "what was given");
    assert_eq!(grown(&mut manager, hungry), set("2-3,8-13"), "nobody has them yet");
    assert_eq!(grown(&mut manager, hungry), set("2-3,8-15"));
    assert_eq!(manager.out_of_memory(hungry), 0);
    let late = begin(&mut manager, 3, None);
    assert_eq!(manager.colors(late), Some(&set("14-15")), "the richest gives the last of its own");
    let told = manager.decide(0.0);
    assert!(told.iter().all(|one| one.app == hungry), "{told:?}");
    assert_eq!(manager.colors(second), Some(&set("4-7")));
}

#[test]
fn groups_are_programs_of_sections_that_they_share() {
    let settings = Settings { sections: 2, ..SETTINGS };
    let own = |name: &str| SETTINGS.spec(name, None);
    let still =
        huepage_policy::coloris::Spec { bounds: None, ceiling: 4, floor: 4, ..own("still") };
    let specs = vec![own("a"), still, own("b"), own("c")];
    let mut manager = Manager::of_groups(settings, set("0-15"), specs.clone(), &[]).unwrap();
    let colors =
        |manager: &Manager| [0, 1, 2, 3].map(|at| manager.colors(AppId(at)).unwrap().to_string());
    assert_eq!(colors(&manager), ["4-9", "0-3", "10-15", "4-9"], "two of a section, one alone");
    let read = |manager: &mut Manager, values: [f64; 4]| {
        for (at, value) in values.into_iter().enumerate() {
            manager.observe(AppId(at), Some(Reading { value, margin: 0.0 }), 0.0);
        }
        manager.decide(0.0).into_iter().map(|one| one.app.0).collect::<Vec<usize>>()
    };
    let values = [0.9, 0.9, 0.1, 0.9];
    assert_eq!(read(&mut manager, [0.9, 0.9, 0.1, 0.5]), [2], "the first calls");
    assert_eq!(read(&mut manager, values), [0], "what it called for; then the last calls");
    assert_eq!(read(&mut manager, values), [2, 3]);
    assert_eq!(colors(&manager), ["4-9,14-15", "0-3", "10-11", "4-9,12-13"]);
    let before = [Some(set("4-7")), None, Some(set("2-3")), None];
    let manager = Manager::of_groups(settings, set("0-15"), specs.clone(), &before).unwrap();
    assert_eq!(colors(&manager), ["4-7", "0-3", "10-15", "4-9"], "as before, where it may be");
    assert!(Manager::of_groups(settings, set("0-4"), specs, &before).is_none());
}

/// Algorithm 1 as the paper prints it: owners are counted anew each time.
struct Naive {
    own: Vec<(u16, BTreeSet<u16>)>,
    hot: bool,
    cold: bool,
    unit: usize,
}

impl Naive {
    fn local(core: u16) -> BTreeSet<u16> {
        (core * COLORS / 4..(core + 1) * COLORS / 4).collect()
    }

    fn owners(&self, color: u16, remote_to: Option<u16>) -> usize {
        let is_owner = |(core, own): &&(u16, BTreeSet<u16>)| {
            own.contains(&color) && remote_to.is_none_or(|here| here != *core)
        };
        self.own.iter().filter(is_owner).count()
    }

    fn monitor(&mut self, current: usize, rate: f64) {
        if rate > BOUNDS.high && !self.cold {
            self.hot = true;
        } else if rate > BOUNDS.high {
            for _ in 0..self.unit {
                let (core, own) = self.own[current].clone();
                let missing: BTreeSet<u16> = Naive::local(core).difference(&own).copied().collect();
                let coldest = if missing.is_empty() {
                    let remote = (0..COLORS).filter(|color| !own.contains(color));
                    remote.min_by_key(|color| (self.owners(*color, None), *color))
                } else {
                    let by = |color: &&u16| (self.owners(**color, Some(core)), **color);
                    missing.iter().min_by_key(by).copied()
                };
                self.cold &= coldest.is_none();
                self.own[current].1.extend(coldest);
            }
        } else if rate < BOUNDS.low && self.hot && self.own[current].1.len() >= 2 + self.unit {
            (self.hot, self.cold) = (false, true);
            // Victims are chosen by the owners before any of them goes.
            let before = self.own.clone();
            let before = Naive { own: before, ..*self };
            for _ in 0..self.unit {
                let (core, own) = &mut self.own[current];
                let remote = own.difference(&Naive::local(*core)).copied().collect::<Vec<u16>>();
                let hottest = if remote.is_empty() {
                    own.iter()
                        .copied()
                        .max_by_key(|color| (before.owners(*color, Some(*core)), *color))
                } else {
                    remote.into_iter().max_by_key(|color| (before.owners(*color, None), *color))
                };
                own.remove(&hottest.expect("it has enough"));
            }
        }
    }
}

proptest! {
    /// Any programs on four cores, also several on one and none on some.
    #[test]
    fn signals_are_algorithm_1(
        cores in prop::collection::vec(0_u16..4, 1..9),
        seen in prop::collection::vec((0_usize..9, 0_u64..101, any::<bool>()), 0..200),
        unit in 1_u16..4,
    ) {
        let settings = Settings { unit, ..SETTINGS };
        let mut manager = Manager::on_cores(settings, COLORS, 4).unwrap();
        let own = cores.iter().map(|&core| (core, Naive::local(core))).collect();
        let mut naive = Naive { own, hot: false, cold: false, unit: unit.into() };
        cores.iter().for_each(|&core| _ = begin(&mut manager, core, None));
        for (app, misses, few) in seen {
            let app = app % cores.len();
            let requests = if few { 9 } else { 100 };
            let misses = misses.min(requests);
            observe(&mut manager, AppId(app), misses, requests);
            naive.monitor(app, if few { 0.0 } else { misses as f64 / 100.0 });
            prop_assert_eq!(manager.signals(), (naive.hot, naive.cold));
            for (at, (_, own)) in naive.own.iter().enumerate() {
                let found: BTreeSet<u16> =
                    manager.colors(AppId(at)).unwrap().iter().map(|color| color.0).collect();
                prop_assert_eq!(&found, own, "program {}", at);
            }
        }
    }

    #[test]
    fn as_many_colours_are_taken_as_were_given(
        seen in prop::collection::vec((0usize..4, 0u64..101), 0..300),
    ) {
        let mut manager = manager();
        four(&mut manager);
        for (app, misses) in seen {
            if let Some(colors) = observe(&mut manager, AppId(app), misses, 100) {
                prop_assert_eq!(manager.colors(AppId(app)), Some(&colors));
            }
            let sizes: Vec<u16> =
                (0..4).map(|at| manager.colors(AppId(at)).unwrap().len()).collect();
            prop_assert!(sizes.iter().all(|size| *size >= 2));
            // Not all of them distinct: one that gave local colours and wants some back gets
            // local ones, whoever has them now, as the paper's algorithm has it.
            let (_, cold) = manager.signals();
            prop_assert_eq!(sizes.iter().sum::<u16>(), if cold { COLORS - 2 } else { COLORS });
        }
    }

    #[test]
    fn one_hungry_program_never_shares(
        seen in prop::collection::vec((0usize..4, 0u64..70), 0..300),
    ) {
        let mut manager = manager();
        let hungry = four(&mut manager)[2];
        for (app, misses) in seen {
            let misses = if AppId(app) == hungry { misses + 30 } else { misses };
            observe(&mut manager, AppId(app), misses, 100);
            let sets: Vec<&ColorSet> = (0..4).map(|at| manager.colors(AppId(at)).unwrap()).collect();
            let all = sets.iter().fold(ColorSet::empty(COLORS), |all, set| all.union(set));
            prop_assert_eq!(sets.iter().map(|set| set.len()).sum::<u16>(), all.len());
        }
    }
}

/// An address space that does what an engine of policies would.
struct Engine {
    policy: Recolorer,
    at: BTreeMap<u64, Color>,
    trapped: Vec<u64>,
    accessed: Vec<u64>,
    log: Vec<Action>,
}

impl Engine {
    /// Pages in these colours in turns.
    fn new(pages: u64, colors: &str, growth: Growth) -> Engine {
        let colors = set(colors);
        let all: Vec<Color> = colors.iter().collect();
        let at = (0..pages).zip(all.iter().copied().cycle()).collect();
        let policy = Recolorer::new(colors, growth);
        Engine { policy, at, trapped: Vec::new(), accessed: Vec::new(), log: Vec::new() }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.policy.handle(event, &mut actions);
        for action in actions {
            self.log.push(action);
            match action {
                Action::Recolour { page, to } => {
                    self.at.insert(page.0, to);
                    self.tell(Event::Moved { page });
                }
                Action::Trap { page } => self.trapped.push(page.0),
                Action::ClearAccessed => self.accessed.clear(),
                Action::ReadAccessed => {
                    self.tell(Event::AccessScan);
                    for page in std::mem::take(&mut self.accessed) {
                        self.tell(Event::Accessed { page: Vpn(page), order: 0 });
                    }
                    self.tell(Event::AccessedOver);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn audit(&mut self) {
        self.tell(Event::Audit);
        for (page, color) in self.at.clone() {
            let (page, kind) = (Vpn(page), AreaKind::Heap);
            let seen = ResidentPage { page, color: Some(color), kind, obstacle: None };
            self.tell(Event::Resident(seen));
        }
        self.tell(Event::AuditOver);
    }

    fn assign(&mut self, colors: &str) {
        self.policy.assign(set(colors));
        self.audit();
    }

    fn touch(&mut self, page: u64) {
        self.accessed.push(page);
        if let Some(at) = self.trapped.iter().position(|&trapped| trapped == page) {
            self.trapped.swap_remove(at);
            self.tell(Event::Trapped { page: Vpn(page) });
        }
    }

    fn time(&mut self, cycles: u64) {
        self.tell(Event::Progress { cycles, instructions: 0 });
    }
}

#[test]
fn shrinking_is_lazy_and_spreads_pages_evenly() {
    let mut engine = Engine::new(16, "0-3", Growth::SelectiveMoving { ways: 2 });
    engine.assign("0-1");
    assert_eq!(engine.policy.moved, 0, "nothing moves before it is touched");
    assert_eq!(engine.trapped.len(), 8);
    assert!(!engine.policy.is_idle());
    (0..16).for_each(|page| engine.touch(page));
    assert_eq!(engine.policy.moved, 8);
    assert!(engine.policy.is_idle());
    for color in [0, 1] {
        assert_eq!(engine.at.values().filter(|at| at.0 == color).count(), 8);
    }
}

#[test]
fn selective_moving_takes_one_page_in_n_plus_1_of_each_colour() {
    let mut engine = Engine::new(24, "0-1", Growth::SelectiveMoving { ways: 2 });
    engine.assign("0-3");
    // Twelve pages of each of two colours: four of each go, to the new ones in turns.
    assert_eq!(engine.policy.moved, 8);
    for (color, pages) in [(0, 8), (1, 8), (2, 4), (3, 4)] {
        assert_eq!(engine.at.values().filter(|at| at.0 == color).count(), pages, "color {color}");
    }
    assert!(engine.policy.is_idle());
    engine.audit();
    assert_eq!(engine.policy.moved, 8, "a further audit moves nothing");
}

#[test]
fn redistribution_moves_what_is_accessed_in_the_window() {
    let mut engine = Engine::new(12, "0-1", Growth::Redistribution { window: 100 });
    engine.touch(11);
    engine.assign("0-3");
    assert_eq!(engine.log, [Action::ClearAccessed]);
    engine.time(1000);
    (0..8).for_each(|page| engine.touch(page));
    engine.time(1099);
    assert!(engine.trapped.is_empty(), "the window is open");
    engine.time(1100);
    assert_eq!(engine.trapped, (0..8).collect::<Vec<u64>>(), "11 was touched before");
    (0..8).for_each(|page| engine.touch(page));
    assert_eq!(engine.policy.moved, 8);
    assert!(engine.policy.is_idle());
    for color in 0..4 {
        let pages = (0..8).filter(|page| engine.at[page] == Color(color)).count();
        assert_eq!(pages, 2, "the eight are spread over all four");
    }
}

#[test]
fn what_cannot_move_is_left_and_what_raced_is_tried_again() {
    let growth = Growth::SelectiveMoving { ways: 1 };
    let (mut policy, mut actions) = (Recolorer::new(set("0-3"), growth), Vec::new());
    policy.assign(set("0"));
    policy.handle(Event::Audit, &mut actions);
    let (page, kind, color) = (Vpn(1), AreaKind::Heap, Some(Color(3)));
    let obstacle = Some(MoveRefusal::Pinned);
    policy.handle(Event::Resident(ResidentPage { page, color, kind, obstacle }), &mut actions);
    policy.handle(Event::AuditOver, &mut actions);
    assert!(actions.is_empty() && policy.is_idle());
    policy.handle(Event::Refused { page, why: MoveRefusal::Raced }, &mut actions);
    assert_eq!(actions, [Action::Trap { page }]);
    policy.handle(Event::Refused { page: Vpn(2), why: MoveRefusal::NoFrame }, &mut actions);
    assert_eq!(actions.len(), 1);
}

proptest! {
    #[test]
    fn touched_pages_end_in_their_colours(
        changes in prop::collection::vec((1u32..65536, any::<bool>()), 1..8),
        moving in any::<bool>(),
    ) {
        let growth = if moving {
            Growth::SelectiveMoving { ways: 3 }
        } else {
            Growth::Redistribution { window: 10 }
        };
        let mut engine = Engine::new(60, "0-3", growth);
        let mut now = 0;
        for (mask, touch) in changes {
            let colors = (0..COLORS).filter(|bit| mask >> bit & 1 == 1).map(Color);
            let mut wanted = ColorSet::empty(COLORS);
            colors.for_each(|color| _ = wanted.insert(color));
            engine.policy.assign(wanted);
            engine.audit();
            for _ in 0..3 {
                now += 10;
                engine.time(now);
                if touch {
                    (0..60).for_each(|page| engine.touch(page));
                }
            }
        }
        (0..60).for_each(|page| engine.touch(page));
        for (page, &color) in &engine.at {
            prop_assert!(engine.policy.colors().contains(color), "page {page} in {color:?}");
        }
        prop_assert!(engine.trapped.is_empty());
    }
}
