//! The page colour manager and the recolouring engine of COLORIS, step by step as the paper
//! describes them, and under any sequence of observations.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet, Vpn};
use huepage_frames::Sections;
use huepage_policy::coloris::{AppId, Growth, Manager, ManagerSettings, Recolorer, Thresholds};
use huepage_policy::{Action, AreaKind, Event, Policy, Refusal, Resident};
use proptest::prelude::*;

const COLORS: u16 = 16;

fn set(text: &str) -> ColorSet {
    ColorSet::parse(text, COLORS).unwrap()
}

/// Four cores with four colours each, UNIT of two.
fn manager() -> Manager {
    let thresholds = Thresholds { low: 0.3, high: 0.7 };
    let settings = ManagerSettings { thresholds, unit: 2, floor: 2, least_requests: 10 };
    Manager::new(Sections::new(4, COLORS).unwrap(), settings)
}

fn four(manager: &mut Manager) -> [AppId; 4] {
    [0, 1, 2, 3].map(|core| manager.admit_on(core, None))
}

#[test]
fn programs_go_to_the_core_with_fewest_and_have_its_section() {
    let mut manager = manager();
    let cores: Vec<u16> = (0..5).map(|_| manager.admit(None).1).collect();
    assert_eq!(cores, [0, 1, 2, 3, 0]);
    assert_eq!(manager.colors(AppId(2)), Some(&set("8-11")));
    manager.leave(AppId(2));
    assert_eq!(manager.colors(AppId(2)), None);
    assert_eq!(manager.admit(None).1, 2);
}

#[test]
fn colours_change_hands_from_one_that_misses_little_to_one_that_misses_much() {
    let mut manager = manager();
    let [first, second, hungry, _] = four(&mut manager);
    // Nobody waits, so nobody gives.
    assert_eq!(manager.observe(first, 0, 100), None);
    assert_eq!(manager.observe(hungry, 90, 100), None);
    assert_eq!(manager.signals(), (true, false));
    // In between the thresholds nothing happens.
    assert_eq!(manager.observe(first, 50, 100), None);
    let given = manager.observe(second, 10, 100).expect("colours");
    assert_eq!((given.app, given.colors), (second, set("4-5")));
    assert_eq!(manager.signals(), (false, true));
    let taken = manager.observe(hungry, 90, 100).expect("colours");
    assert_eq!((taken.app, taken.colors), (hungry, set("6-11")));
    assert_eq!(manager.signals(), (false, false));
}

#[test]
fn a_program_at_its_floor_does_not_answer_and_the_next_can() {
    let mut manager = manager();
    let [first, second, hungry, _] = four(&mut manager);
    let round = |manager: &mut Manager, donor| {
        manager.observe(hungry, 90, 100);
        let given = manager.observe(donor, 0, 100);
        (given.is_some(), manager.observe(hungry, 90, 100).is_some())
    };
    assert_eq!(round(&mut manager, first), (true, true));
    assert_eq!(round(&mut manager, first), (false, false), "two are its floor");
    assert_eq!(manager.signals(), (true, false), "the call stands");
    assert!(manager.observe(second, 0, 100).is_some());
}

#[test]
fn few_requests_count_as_no_misses() {
    let mut manager = manager();
    let [idle, _, hungry, _] = four(&mut manager);
    assert_eq!(manager.observe(idle, 9, 9), None);
    assert_eq!(manager.signals(), (false, false), "nine misses of nine are not many");
    manager.observe(hungry, 90, 100);
    assert!(manager.observe(idle, 9, 9).is_some());
}

#[test]
fn thresholds_of_ones_own_go_first() {
    let mut manager = manager();
    let off = manager.admit_on(0, Some(Thresholds::OFF));
    let picky = manager.admit_on(1, Some(Thresholds { low: 0.0, high: 0.1 }));
    assert_eq!(manager.observe(off, 100, 100), None);
    assert_eq!(manager.signals(), (false, false));
    manager.observe(picky, 11, 100);
    assert_eq!(manager.signals(), (true, false));
    assert_eq!(manager.observe(off, 0, 100), None, "a low threshold of 0 gives nothing");
}

#[test]
fn remote_colours_go_first_and_the_hottest_of_them() {
    let mut manager = manager();
    let [_, _, third, fourth] = four(&mut manager);
    // More memory: local colours are all its own, so remote ones, which all have one owner.
    assert_eq!(manager.out_of_memory(third).unwrap().colors, set("0-1,8-11"));
    assert_eq!(manager.out_of_memory(fourth).unwrap().colors, set("2-3,12-15"));
    assert_eq!(manager.out_of_memory(fourth).unwrap().colors, set("2-5,12-15"));
    // 2 and 3 have two owners as 4 and 5; of equals the last goes.
    manager.observe(third, 90, 100);
    assert_eq!(manager.observe(fourth, 0, 100).unwrap().colors, set("2-3,12-15"));
}

#[test]
fn local_colours_are_chosen_by_owners_on_other_cores() {
    let mut manager = manager();
    let [first, ..] = four(&mut manager);
    let beside = manager.admit_on(0, None);
    // The last of core 0 are shared with core 1 from now on; its neighbour's sharing does not count.
    let remote = manager.admit_on(1, None);
    (0..2).for_each(|_| _ = manager.out_of_memory(remote));
    assert_eq!(manager.colors(remote), Some(&set("4-11")), "8 to 11 have one owner, 0 to 3 two");
    (0..3).for_each(|_| _ = manager.out_of_memory(remote));
    assert_eq!(manager.colors(remote), Some(&set("0-1,4-15")));
    manager.observe(beside, 90, 100);
    assert_eq!(manager.observe(first, 0, 100).unwrap().colors, set("2-3"), "0 and 1 are hot");
    // It gets local ones back first, though its neighbour has them all.
    assert_eq!(manager.out_of_memory(first).unwrap().colors, set("0-3"));
}

proptest! {
    #[test]
    fn as_many_colours_are_taken_as_were_given(
        seen in prop::collection::vec((0usize..4, 0u64..101), 0..300),
    ) {
        let mut manager = manager();
        four(&mut manager);
        for (app, misses) in seen {
            if let Some(change) = manager.observe(AppId(app), misses, 100) {
                prop_assert_eq!(manager.colors(AppId(app)), Some(&change.colors));
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
            manager.observe(AppId(app), misses, 100);
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
            let seen = Resident { page, color: Some(color), kind, obstacle: None };
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
    assert_eq!(engine.policy.moved(), 0, "nothing moves before it is touched");
    assert_eq!(engine.trapped.len(), 8);
    assert!(!engine.policy.is_idle());
    (0..16).for_each(|page| engine.touch(page));
    assert_eq!(engine.policy.moved(), 8);
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
    assert_eq!(engine.policy.moved(), 8);
    for (color, pages) in [(0, 8), (1, 8), (2, 4), (3, 4)] {
        assert_eq!(engine.at.values().filter(|at| at.0 == color).count(), pages, "color {color}");
    }
    assert!(engine.policy.is_idle());
    engine.audit();
    assert_eq!(engine.policy.moved(), 8, "a further audit moves nothing");
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
    assert_eq!(engine.policy.moved(), 8);
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
    let obstacle = Some(Refusal::Pinned);
    policy.handle(Event::Resident(Resident { page, color, kind, obstacle }), &mut actions);
    policy.handle(Event::AuditOver, &mut actions);
    assert!(actions.is_empty() && policy.is_idle());
    policy.handle(Event::Refused { page, why: Refusal::Raced }, &mut actions);
    assert_eq!(actions, [Action::Trap { page }]);
    policy.handle(Event::Refused { page: Vpn(2), why: Refusal::NoFrame }, &mut actions);
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
