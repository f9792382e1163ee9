//! The static partition: step by step, against a naive model, and in a loop with an engine
//! whose pages refuse as they do on a live system.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::{
    Action, AreaKind, Backoff, Event, LeaveReason, MoveRefusal, Policy, ResidentPage,
    StaticPartition,
};
use proptest::prelude::*;

const COLORS: u16 = 8;

fn set(text: &str) -> ColorSet {
    ColorSet::parse(text, COLORS).unwrap()
}

fn seen(page: u64, color: u16) -> ResidentPage {
    let color = Some(Color(color));
    ResidentPage { page: Vpn(page), color, kind: AreaKind::Heap, obstacle: None }
}

fn tried(action: Action) -> bool {
    matches!(action, Action::Recolour { .. })
}

fn left(action: Action) -> LeaveReason {
    match action {
        Action::Leave { reason, .. } => reason,
        other => panic!("not left: {other:?}"),
    }
}

#[test]
fn inside_is_kept_and_outside_rotates_over_the_partition() {
    let mut policy = StaticPartition::new(set("1,4,6"));
    policy.begin_audit();
    assert_eq!(policy.judge(&seen(9, 4)), Action::Keep { page: Vpn(9) });
    let targets: Vec<Action> = (0..4).map(|page| policy.judge(&seen(page, 0))).collect();
    let want = [(0, 1), (1, 4), (2, 6), (3, 1)];
    let want = want.map(|(page, to)| Action::Recolour { page: Vpn(page), to: Color(to) });
    assert_eq!(targets, want);
}

#[test]
fn a_page_of_unknown_colour_is_recoloured() {
    let mut policy = StaticPartition::new(ColorSet::all(COLORS));
    let unknown = ResidentPage { color: None, ..seen(1, 0) };
    assert!(tried(policy.judge(&unknown)));
}

#[test]
fn audits_that_were_not_made_count_for_pages_that_rest() {
    let mut policy = StaticPartition::new(set("0"));
    assert_eq!(policy.next_attempt(), None, "no page refused");
    policy.begin_audit();
    (0..3).for_each(|_| policy.refused(Vpn(1), MoveRefusal::Pinned));
    policy.refused(Vpn(2), MoveRefusal::Raced);
    assert_eq!(policy.next_attempt(), Some(4), "rests of 1, 2 and 4 audits");
    policy.skip_audits(3);
    assert_eq!(policy.next_attempt(), Some(1));
    policy.begin_audit();
    assert!(!tried(policy.judge(&seen(1, 3))));
    assert_eq!(policy.next_attempt(), Some(0));
    policy.begin_audit();
    assert!(tried(policy.judge(&seen(1, 3))));
    (0..20).for_each(|_| policy.refused(Vpn(1), MoveRefusal::Pinned));
    assert_eq!(policy.next_attempt(), None, "it was given up");
}

#[test]
fn what_is_known_to_be_in_the_way_is_not_tried() {
    let mut policy = StaticPartition::new(set("0"));
    for (why, _) in MoveRefusal::ALL {
        let page = ResidentPage { obstacle: Some(why), ..seen(1, 3) };
        assert_eq!(left(policy.judge(&page)), LeaveReason::Obstacle(why));
        let inside = ResidentPage { obstacle: Some(why), ..seen(1, 0) };
        assert_eq!(policy.judge(&inside), Action::Keep { page: Vpn(1) });
    }
    assert_eq!(policy.stubborn(), 0);
}

#[test]
fn an_empty_partition_moves_nothing() {
    let mut policy = StaticPartition::new(ColorSet::empty(COLORS));
    let reason = left(policy.judge(&seen(1, 3)));
    assert_eq!(reason, LeaveReason::EmptyPartition);
    assert_eq!(reason.refusal(), None);
}

/// The audits in which a page that refuses every time is tried.
fn attempts(policy: &mut StaticPartition, audits: u32) -> Vec<u32> {
    let mut tries = Vec::new();
    for audit in 1..=audits {
        policy.begin_audit();
        if tried(policy.judge(&seen(7, 3))) {
            tries.push(audit);
            policy.refused(Vpn(7), MoveRefusal::Pinned);
        }
    }
    tries
}

#[test]
fn a_pinned_page_is_tried_ever_more_seldom_and_then_given_up() {
    let mut policy = StaticPartition::with_backoff(set("0"), Backoff { longest: 4, attempts: 6 });
    assert_eq!(attempts(&mut policy, 1000), [1, 3, 6, 11, 16, 21]);
    assert_eq!(left(policy.judge(&seen(7, 3))), LeaveReason::GivenUp { why: MoveRefusal::Pinned });
    assert_eq!(policy.stubborn(), 1);
    let usual = attempts(&mut StaticPartition::new(set("0")), 5000);
    assert_eq!((usual.len(), usual.last()), (16, Some(&655)));
}

#[test]
fn a_resting_page_says_how_long() {
    let mut policy = StaticPartition::new(set("0"));
    policy.begin_audit();
    policy.refused(Vpn(7), MoveRefusal::CopyOnWrite);
    policy.refused(Vpn(7), MoveRefusal::Pinned);
    let why = MoveRefusal::Pinned;
    for audits in [3, 2, 1] {
        assert_eq!(left(policy.judge(&seen(7, 3))), LeaveReason::BackingOff { why, audits });
        policy.begin_audit();
    }
    assert!(tried(policy.judge(&seen(7, 3))));
}

#[test]
fn a_lack_of_frames_is_not_held_against_the_page() {
    let mut policy = StaticPartition::new(set("0-1"));
    for audit in 0..100 {
        policy.begin_audit();
        let to = Color(audit % 2);
        assert_eq!(policy.judge(&seen(7, 3)), Action::Recolour { page: Vpn(7), to });
        policy.refused(Vpn(7), MoveRefusal::NoFrame);
    }
    assert_eq!(policy.stubborn(), 0);
}

#[test]
fn grudges_end_when_a_page_moves_is_found_inside_or_vanishes() {
    let mut policy = StaticPartition::new(set("0"));
    let start = |policy: &mut StaticPartition| {
        policy.begin_audit();
        policy.refused(Vpn(7), MoveRefusal::Pinned);
        assert_eq!(policy.stubborn(), 1);
    };
    start(&mut policy);
    policy.moved(Vpn(7));
    assert_eq!(policy.stubborn(), 0);
    start(&mut policy);
    policy.judge(&seen(7, 0));
    assert_eq!(policy.stubborn(), 0);
    start(&mut policy);
    policy.begin_audit();
    assert_eq!(policy.stubborn(), 1);
    policy.begin_audit();
    assert_eq!(policy.stubborn(), 0);
    start(&mut policy);
    policy.set_colors(set("1"));
    assert_eq!(policy.judge(&seen(7, 3)), Action::Recolour { page: Vpn(7), to: Color(1) });
}

#[test]
fn events_do_what_the_methods_do() {
    let mut policy: Box<dyn Policy> = Box::new(StaticPartition::new(set("2")));
    let mut actions = Vec::new();
    let page = Vpn(7);
    for event in [
        Event::Audit,
        Event::Resident(seen(7, 3)),
        Event::Refused { page, why: MoveRefusal::Pinned },
        Event::Resident(seen(7, 3)),
        Event::Moved { page },
        Event::Resident(seen(7, 3)),
        Event::Resident(seen(7, 2)),
    ] {
        policy.handle(event, &mut actions);
    }
    let recolour = Action::Recolour { page, to: Color(2) };
    let reason = LeaveReason::BackingOff { why: MoveRefusal::Pinned, audits: 2 };
    assert_eq!(
        actions,
        [recolour, Action::Leave { page, reason }, recolour, Action::Keep { page }]
    );
}

/// One page of the modelled engine: its colour, and the audits in which it refuses to move.
#[derive(Clone, Debug)]
struct Page {
    color: u16,
    refuses: std::ops::Range<u32>,
}

fn page() -> impl Strategy<Value = Page> {
    let refuses = prop_oneof![3 => Just(0..0), 1 => (0_u32..30, 0_u32..30).prop_map(|(a, b)| a..b)];
    (0..COLORS, refuses).prop_map(|(color, refuses)| Page { color, refuses })
}

proptest! {
    /// Every page ends up inside as soon as it stops to refuse and its rest is over, no page is
    /// tried more often than the back-off allows, and the targets are even.
    #[test]
    fn audits_converge(
        mut pages in prop::collection::vec(page(), 1..60),
        colors in prop::collection::btree_set(0..COLORS, 1..=4),
        longest in 1_u32..9,
    ) {
        let colors = ColorSet::from_colors(colors.into_iter().map(Color), COLORS).unwrap();
        let backoff = Backoff { longest, attempts: 100 };
        let mut policy = StaticPartition::with_backoff(colors.clone(), backoff);
        let (mut tries, mut targets) = (BTreeMap::<u64, Vec<u32>>::new(), BTreeMap::new());
        for audit in 0..30 + longest + 1 {
            policy.begin_audit();
            for (number, page) in (0..).zip(&mut pages) {
                let Action::Recolour { to, .. } = policy.judge(&seen(number, page.color)) else {
                    continue;
                };
                prop_assert!(!colors.contains(Color(page.color)) && colors.contains(to));
                tries.entry(number).or_default().push(audit);
                *targets.entry(to).or_insert(0_u32) += 1;
                if page.refuses.contains(&audit) {
                    policy.refused(Vpn(number), MoveRefusal::Pinned);
                } else {
                    page.color = to.0;
                    policy.moved(Vpn(number));
                }
            }
        }
        prop_assert!(pages.iter().all(|page| colors.contains(Color(page.color))));
        for tries in tries.values() {
            for (n, pair) in (0_u32..).zip(tries.windows(2)) {
                prop_assert_eq!(pair[1] - pair[0], (1 << n.min(20)).min(longest) + 1);
            }
        }
        let most = targets.values().max().copied().unwrap_or(0);
        prop_assert!(colors.iter().all(|c| targets.get(&c).copied().unwrap_or(0) + 1 >= most));
        policy.begin_audit();
        prop_assert_eq!(policy.stubborn(), 0);
    }
}
