//! COMBINED between two policies that do nothing but disagree.

use huepage_color::{Color, Vpn};
use huepage_policy::{Action, Combined, CombinedSettings, Event, MoveRefusal, Policy};
use proptest::prelude::*;

use crate::tell;

const PAGE: Vpn = Vpn(0x40);
const ORDER: u32 = 2;

/// Wants one superpage at every TLB miss, and hears of outcomes.
#[derive(Default)]
struct Promoter {
    heard: Vec<Event>,
}

impl Policy for Promoter {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.heard.push(event);
        match event {
            Event::TlbMiss { .. } => actions.push(Action::Promote { page: PAGE, order: ORDER }),
            // It insists, which must not go on for ever.
            Event::NotPromoted { .. } => actions.push(Action::Promote { page: PAGE, order: ORDER }),
            Event::FileMiss { file, .. } => actions.push(Action::TellTlbMisses(file > 0)),
            _ => {}
        }
    }
}

/// Wants a page moved at every conflict.
#[derive(Default)]
struct Recolorer {
    heard: Vec<Event>,
}

impl Policy for Recolorer {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.heard.push(event);
        match event {
            Event::Conflict { page, .. } => {
                actions.push(Action::Recolour { page, to: Color(1) });
            }
            Event::FileMiss { block, .. } => actions.push(Action::TellTlbMisses(block > 0)),
            _ => {}
        }
    }
}

const MISS: Event = Event::TlbMiss { page: PAGE, order: 0, victim: None };

/// Promotions in so many steps of 100,000 cycles, of a superpage in which a page conflicts
/// whenever it is built.
fn promotions(hold: u64, steps: u64) -> u64 {
    let settings = CombinedSettings { hold, misses_per_page: 50, ..CombinedSettings::thesis() };
    let mut policy = Combined::with(Promoter::default(), Recolorer::default(), settings);
    let (mut count, part) = (0, Vpn(PAGE.0 + 3));
    for step in 0..steps {
        let time = Event::Progress { cycles: step * 100_000, instructions: 0 };
        let waited = tell(&mut policy, time);
        let asked = tell(&mut policy, MISS);
        if !waited.is_empty() || !asked.is_empty() {
            count += 1;
            tell(&mut policy, Event::Promoted { page: PAGE, order: ORDER });
            let moves = tell(&mut policy, Event::Conflict { page: part, misses: 200 });
            assert_eq!(moves, [Action::Recolour { page: part, to: Color(1) }]);
            tell(&mut policy, Event::Demoted { page: part, order: ORDER, interfering: false });
            tell(&mut policy, Event::Moved { page: part });
        }
    }
    count
}

#[test]
fn without_a_hold_pages_go_back_and_forth_and_with_one_ever_more_seldom() {
    assert_eq!(promotions(0, 5_000), 5_000);
    // 500 million cycles: after 0, 5, 15, 35, 75, 155 and 315 million.
    assert_eq!(promotions(5_000_000, 5_000), 7);
}

proptest! {
    #[test]
    fn ping_pong_grows_with_the_logarithm_of_time(hold in 100_000_u64..50_000_000, steps in 1_u64..3_000) {
        let periods = (steps * 100_000).div_ceil(hold) + 1;
        prop_assert!(promotions(hold, steps) <= u64::from(periods.ilog2()) + 1);
    }
}

#[test]
fn a_promotion_that_is_withheld_comes_once_the_hold_is_over() {
    let mut policy = Combined::new(Promoter::default(), Recolorer::default());
    let part = Vpn(PAGE.0 + 1);
    let time = |cycles| Event::Progress { cycles, instructions: 0 };
    let wanted = Action::Promote { page: PAGE, order: ORDER };
    tell(&mut policy, Event::Conflict { page: part, misses: 200 });
    assert_eq!((tell(&mut policy, MISS), tell(&mut policy, MISS)), (vec![], vec![]));
    assert_eq!(policy.withheld, 1);
    assert_eq!(tell(&mut policy, time(4_999_999)), []);
    assert_eq!(tell(&mut policy, time(5_000_000)), [wanted]);
    assert_eq!(tell(&mut policy, time(9_000_000)), []);
    // One that was built around it meanwhile has it in it.
    tell(&mut policy, Event::Conflict { page: part, misses: 200 });
    assert_eq!(tell(&mut policy, MISS), []);
    tell(&mut policy, Event::Promoted { page: PAGE, order: ORDER + 1 });
    assert_eq!(tell(&mut policy, time(u64::MAX)), []);
    // A page beside it is nobody's business.
    let mut other = Combined::new(Promoter::default(), Recolorer::default());
    tell(&mut other, Event::Conflict { page: Vpn(PAGE.0 + 4), misses: 200 });
    assert_eq!(tell(&mut other, MISS), [Action::Promote { page: PAGE, order: ORDER }]);
}

/// A superpage of four pages is broken when conflicts in it have cost 4 x 60 misses, and what is
/// left of it is built again.
#[test]
fn a_superpage_is_broken_when_that_is_worth_it() {
    let mut policy = Combined::new(Promoter::default(), Recolorer::default());
    let part = Vpn(PAGE.0 + 3);
    let conflict = |misses| Event::Conflict { page: part, misses };
    tell(&mut policy, Event::Promoted { page: PAGE, order: ORDER });
    assert_eq!(tell(&mut policy, conflict(200)), []);
    let answer = Event::Refused { page: part, why: MoveRefusal::Huge };
    assert_eq!(policy.recoloring().heard.last(), Some(&answer));
    assert!(!policy.promoting().heard.contains(&answer));
    assert_eq!(tell(&mut policy, conflict(40)), [Action::Recolour { page: part, to: Color(1) }]);
    let broken = Event::Demoted { page: part, order: ORDER, interfering: false };
    assert_eq!(tell(&mut policy, broken), [Action::Promote { page: PAGE, order: 1 }]);
    // Neither price nor pieces without a superpage, nor as the thesis has it.
    assert_eq!(tell(&mut policy, conflict(1)).len(), 1);
    let mut plain = Combined::thesis(Promoter::default(), Recolorer::default());
    tell(&mut plain, Event::Promoted { page: PAGE, order: ORDER });
    assert_eq!(tell(&mut plain, conflict(1)).len(), 1);
    assert_eq!(tell(&mut plain, broken), []);
}

#[test]
fn refused_moves_are_told_to_whom_they_concern() {
    let mut policy = Combined::new(Promoter::default(), Recolorer::default());
    let refused = Event::Refused { page: PAGE, why: MoveRefusal::NoFrame };
    tell(&mut policy, refused);
    assert_eq!(policy.recoloring().heard, [refused]);
    assert!(policy.promoting().heard.is_empty());
}

#[test]
fn tlb_misses_are_told_while_one_of_both_wants_them() {
    let mut policy = Combined::new(Promoter::default(), Recolorer::default());
    // The stand-ins read file and block of this as what each wants.
    let want = |a, b| Event::FileMiss { file: a, block: b, process: 0, pages: 1 };
    assert_eq!(tell(&mut policy, want(1, 0)), []);
    tell(&mut policy, MISS);
    assert_eq!(policy.promoting().heard.last(), Some(&MISS));
    assert_ne!(policy.recoloring().heard.last(), Some(&MISS));
    assert_eq!(tell(&mut policy, want(0, 0)), [Action::TellTlbMisses(false)]);
    assert_eq!(tell(&mut policy, want(0, 0)), []);
    assert_eq!(tell(&mut policy, want(0, 1)), [Action::TellTlbMisses(true)]);
    tell(&mut policy, MISS);
    assert_eq!(policy.recoloring().heard.last(), Some(&MISS));
    assert_ne!(policy.promoting().heard.last(), Some(&MISS));
}
