//! ROCS step by step: profiles and their stack, the search of algorithm 1, the model, the buffer, and
//! the policy against a program whose speed depends on what is confined.

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::rocs::buffer::PolluteBuffer;
use huepage_policy::rocs::model::{pages_to_confine, pages_without_hits};
use huepage_policy::rocs::profile::{MissProfile, PageRate};
use huepage_policy::rocs::search::Search;
use huepage_policy::rocs::{SearchMethod, Stage};
use huepage_policy::{Action, Event, MoveRefusal, Policy, Rocs, RocsSettings};
use proptest::prelude::*;

fn rate(page: u64, accesses: u64, misses: u64) -> PageRate {
    PageRate { page: Vpn(page), accesses, misses }
}

#[test]
fn a_stack_has_the_highest_rate_first_and_of_equal_ones_the_least_used() {
    let mut profile = MissProfile::default();
    for (page, hits, misses) in [(1, 5, 5), (2, 0, 9), (3, 0, 2), (4, 9, 0)] {
        (0..hits).for_each(|_| profile.note(Vpn(page), false));
        (0..misses).for_each(|_| profile.note(Vpn(page), true));
    }
    let order: Vec<u64> = profile.stack().iter().map(|page| page.page.0).collect();
    assert_eq!(order, [3, 2, 1, 4]);
    let order: Vec<u64> = profile.by_use().iter().map(|page| page.page.0).collect();
    assert_eq!(order, [3, 2, 4, 1]);
    assert_eq!(profile.samples, 30);
    assert_eq!(profile.rate(Vpn(1)).map(|page| page.miss_rate()), Some(0.5));
}

/// Performance that is best with 60 of 100 pages confined.
#[test]
fn the_search_goes_through_the_stack_and_comes_back_to_the_best() {
    let mut search = Search::new(100, 20, 20, 0.5);
    let mut tried = Vec::new();
    while let Some(range) = search.more() {
        tried.push(range.clone());
        search.judge(1.0 - (range.end as f64 - 60.0).abs() / 100.0);
    }
    assert_eq!(tried, [0..20, 20..40, 40..60, 60..80]);
    assert_eq!((search.chosen, search.excess()), (60, 60..80));
}

#[test]
fn a_search_that_finds_nothing_better_chooses_nothing() {
    let mut search = Search::new(10, 3, 0, 2.0);
    let mut trials = 0;
    while search.more().is_some() {
        search.judge(1.9);
        trials += 1;
    }
    assert_eq!((search.chosen, search.excess(), trials), (0, 0..10, 4));
    assert_eq!(Search::new(0, 0, 0, 0.0).more(), None);
}

#[test]
fn the_model_confines_streams_and_leaves_what_fits_alone() {
    // 100 pages that stream, and 50 that would fit into 60 but for them.
    let mut stack: Vec<PageRate> = (0..100).map(|page| rate(page, 4, 4)).collect();
    stack.extend((100..150).map(|page| rate(page, 40, 20)));
    let confined = pages_to_confine(&stack, 64, 60);
    assert!((90..=100).contains(&confined), "{confined}");
    // A loop over twice the cache: what is kept is what fits.
    let around: Vec<PageRate> = (0..128).map(|page| rate(page, 10, 10)).collect();
    assert_eq!(pages_to_confine(&around, 64, 60), 128 - 60);
    // Everything hits.
    let small: Vec<PageRate> = (0..40).map(|page| rate(page, 10, 0)).collect();
    assert_eq!(pages_to_confine(&small, 64, 60), 0);
    let cold: Vec<PageRate> = (0..40).map(|page| rate(page, 10, 5)).collect();
    assert_eq!(pages_to_confine(&cold, 64, 60), 0, "all fit: their misses are no competition");
    assert_eq!(pages_to_confine(&[], 64, 60), 0);
}

#[test]
fn pages_without_hits_are_those_that_lose_next_to_nothing() {
    // 1,000 requests, of which five to the second page and forty to the third hit.
    let stack = [rate(1, 500, 500), rate(2, 300, 295), rate(3, 200, 160)];
    assert_eq!([0.0, 0.01, 0.05].map(|share| pages_without_hits(&stack, share)), [1, 2, 3]);
    assert_eq!(pages_without_hits(&[], 0.01), 0);
}

fn buffer_of_16() -> ColorSet {
    ColorSet::first(1, 16)
}

/// Carries out what is asked.
fn carry_out(buffer: &mut PolluteBuffer, actions: &mut Vec<Action>, at: &mut BTreeMap<Vpn, Color>) {
    for action in actions.drain(..) {
        let Action::Recolour { page, to } = action else { panic!("{action:?}") };
        at.insert(page, to);
        buffer.note(&Event::Moved { page });
    }
}

#[test]
fn pages_go_into_the_buffer_and_all_of_them_home_again() {
    let (mut buffer, mut actions, mut at) =
        (PolluteBuffer::new(buffer_of_16()), Vec::new(), BTreeMap::new());
    for page in 0..64 {
        let color = Color(u16::try_from(page % 16).unwrap());
        buffer.note(&Event::Faulted { page: Vpn(page), color: Some(color) });
        at.insert(Vpn(page), color);
    }
    let start = at.clone();
    (0..32).for_each(|page| buffer.confine(Vpn(page), &mut actions));
    assert_eq!(actions.len(), 30, "two were there");
    carry_out(&mut buffer, &mut actions, &mut at);
    assert_eq!(buffer.pages().count(), 34);
    (0..64).for_each(|page| buffer.release(Vpn(page), &mut actions));
    carry_out(&mut buffer, &mut actions, &mut at);
    assert_eq!(buffer.pages().count(), 0);
    let same = at.iter().filter(|(page, color)| start[page] == **color).count();
    assert_eq!(same, 60, "pages go home but for those whose home is the buffer");
    let rest = at.iter().filter(|(page, _)| start[page].0 == 0).map(|(_, color)| color.0);
    assert_eq!(rest.collect::<Vec<_>>(), [1, 2, 3, 4], "for these the colours outside take turns");
    buffer.undo(&mut actions);
    carry_out(&mut buffer, &mut actions, &mut at);
    assert_eq!(at, start);
}

#[test]
fn a_refused_page_stays_where_it_was() {
    let (mut buffer, mut actions) = (PolluteBuffer::new(buffer_of_16()), Vec::new());
    buffer.note(&Event::Faulted { page: Vpn(1), color: Some(Color(5)) });
    buffer.confine(Vpn(1), &mut actions);
    buffer.note(&Event::Refused { page: Vpn(1), why: MoveRefusal::Pinned });
    assert!(!buffer.holds(Vpn(1)));
    // A page that nobody told of cannot be moved.
    buffer.confine(Vpn(9), &mut actions);
    assert_eq!(actions.len(), 1);
}

#[test]
fn kept_pages_are_spread_over_the_colours_that_have_room() {
    let (mut buffer, mut actions, mut at) =
        (PolluteBuffer::new(buffer_of_16()), Vec::new(), BTreeMap::new());
    let pages: Vec<Vpn> = (0..30).map(Vpn).collect();
    for &page in &pages {
        buffer.note(&Event::Faulted { page, color: Some(Color(3)) });
        at.insert(page, Color(3));
    }
    buffer.spread(&pages, 2, &mut actions);
    assert_eq!(actions.len(), 28);
    carry_out(&mut buffer, &mut actions, &mut at);
    for color in 1..16 {
        assert_eq!(at.values().filter(|at| at.0 == color).count(), 2, "colour {color}");
    }
}

/// A program: its pages' miss rates, and how fast it is with so many of the bad ones confined.
struct Program {
    policy: Rocs,
    actions: Vec<Action>,
    at: BTreeMap<Vpn, Color>,
    cycles: u64,
    instructions: u64,
    misses_per_tick: u64,
    sampling: bool,
    prefetching: bool,
    bad: u64,
    heard: Vec<Action>,
}

const PAGES: u64 = 64;
const TICK: u64 = 1_000;

impl Program {
    fn new(settings: RocsSettings) -> Program {
        let mut program = Program {
            policy: Rocs::new(settings),
            actions: Vec::new(),
            at: BTreeMap::new(),
            cycles: 0,
            instructions: 0,
            misses_per_tick: 100,
            sampling: true,
            prefetching: true,
            bad: 32,
            heard: Vec::new(),
        };
        for page in 0..PAGES {
            let color = Color(u16::try_from(page % 16).unwrap());
            program.at.insert(Vpn(page), color);
            program.tell(Event::Faulted { page: Vpn(page), color: Some(color) });
        }
        program
    }

    fn tell(&mut self, event: Event) {
        self.policy.handle(event, &mut self.actions);
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                self.heard.push(action);
                match action {
                    Action::Recolour { page, to } => {
                        self.at.insert(page, to);
                        self.policy.handle(Event::Moved { page }, &mut self.actions);
                    }
                    Action::TellSamples(on) => self.sampling = on,
                    Action::Prefetch(on) => self.prefetching = on,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Pages below `bad` always miss, the others half the time unless bad ones are confined.
    fn confined(&self) -> u64 {
        self.at.iter().filter(|(page, color)| page.0 < self.bad && color.0 == 0).count() as u64
    }

    fn lost(&self) -> u64 {
        self.at.iter().filter(|(page, color)| page.0 >= self.bad && color.0 == 0).count() as u64
    }

    /// A thousand instructions; fewer cycles for each bad page that is confined, more for each good.
    fn tick(&mut self) {
        self.instructions += TICK;
        self.cycles += TICK * (200 - 3 * self.confined().min(40) + 5 * self.lost()) / 20;
        if self.sampling {
            let page = self.instructions / TICK * 7 % PAGES;
            let memory = page < self.bad || (self.instructions / TICK / PAGES).is_multiple_of(2);
            self.tell(Event::Sample { page: Vpn(page), missed: 1, memory });
        }
        self.tell(Event::MissOverflow { misses: self.misses_per_tick });
        let (cycles, instructions) = (self.cycles, self.instructions);
        self.tell(Event::Progress { cycles, instructions });
    }

    fn run(&mut self, ticks: u64) {
        (0..ticks).for_each(|_| self.tick());
    }
}

fn settings(method: SearchMethod) -> RocsSettings {
    RocsSettings {
        method,
        start: 20 * TICK,
        interval: 40 * TICK,
        samples: 2 * PAGES,
        trial: 10 * TICK,
        settle: 2 * TICK,
        steps: 8,
        ..RocsSettings::paper(buffer_of_16())
    }
}

#[test]
fn the_bad_pages_are_found_and_confined_and_no_other() {
    let mut program = Program::new(settings(SearchMethod::Search));
    program.run(15);
    assert_eq!((program.policy.stage, program.sampling), (Stage::Waiting, false));
    program.run(20);
    assert_eq!((program.policy.stage, program.sampling), (Stage::Profiling, true));
    assert!(!program.prefetching, "the prefetcher is off during a profile");
    program.run(1500);
    assert_eq!(program.policy.stage, Stage::Steady);
    assert!(program.prefetching && !program.sampling);
    assert_eq!((program.confined(), program.lost()), (32, 0));
    assert_eq!((program.policy.confined, program.policy.profiles), (32, 1));
    // Algorithm 1 stops when one step is left of eight.
    assert_eq!(program.policy.trials, 7);
    assert_eq!(program.policy.stack.len(), 64);
    assert_eq!(program.policy.in_buffer().count(), 32);
}

#[test]
fn with_the_prefetcher_on_it_is_left_alone() {
    let mut on =
        Program::new(RocsSettings { prefetch_off: false, ..settings(SearchMethod::Search) });
    on.run(1500);
    assert!(on.policy.trials > 0);
    assert!(!on.heard.iter().any(|action| matches!(action, Action::Prefetch(_))));
}

#[test]
fn the_model_needs_one_trial() {
    // Room for 15 of 32 pages that hit half of the time, with a line to spare, beside 32 that never do.
    let mut program = Program::new(settings(SearchMethod::Model { ways: 2 }));
    program.run(1500);
    assert_eq!((program.policy.stage, program.policy.trials), (Stage::Steady, 1));
    let confined = program.policy.confined;
    assert!((28..=36).contains(&confined), "{confined}");
    assert_eq!(program.at.values().filter(|color| color.0 == 0).count(), confined);
    // Room for all of them.
    let mut program = Program::new(settings(SearchMethod::Model { ways: 8 }));
    program.run(1500);
    assert_eq!((program.policy.stage, program.policy.trials), (Stage::Steady, 0));
}

#[test]
fn a_program_that_misses_little_is_not_profiled() {
    let settings = settings(SearchMethod::Search);
    let mut program = Program::new(RocsSettings { least_mpki: 2.0, ..settings.clone() });
    program.misses_per_tick = 1;
    program.run(1000);
    assert_eq!((program.policy.profiles, program.policy.stage), (0, Stage::Waiting));
    assert_eq!(program.heard, [Action::TellSamples(false)]);
    // Half of its requests miss.
    let mut program = Program::new(RocsSettings { least_miss_rate: 0.6, ..settings });
    program.bad = 0;
    program.run(3000);
    assert!(program.heard.contains(&Action::Prefetch(false)), "the first samples are taken");
    assert!(program.policy.trials == 0 && program.policy.stack.is_empty());
    assert!(program.at.iter().all(|(page, color)| u64::from(color.0) == page.0 % 16));
}

#[test]
fn where_nothing_helps_everything_is_put_back() {
    let mut program = Program::new(settings(SearchMethod::Search));
    // Every page is good: whatever is confined is lost.
    program.bad = 0;
    let start = program.at.clone();
    program.run(2000);
    assert_eq!((program.policy.stage, program.policy.confined), (Stage::Steady, 0));
    assert!(program.policy.trials > 0);
    assert_eq!(program.at, start);
}

#[test]
fn another_phase_is_profiled_anew_and_short_ones_are_left_alone() {
    let mut program = Program::new(settings(SearchMethod::Search));
    program.run(3000 + 8000);
    assert_eq!((program.policy.profiles, program.policy.confined), (1, 32));
    // A long phase has ended: other pages are bad.
    program.bad = 8;
    program.run(2000);
    assert_eq!(program.policy.profiles, 2);
    assert_eq!((program.confined(), program.lost()), (8, 0));
    // Phases as long as a search takes.
    for phase in 0..40 {
        program.bad = if phase % 2 == 0 { 40 } else { 4 };
        program.run(900);
    }
    assert!(program.policy.profiles < 15, "{} profiles", program.policy.profiles);
}

#[test]
fn pages_that_hit_in_the_buffer_leave_it() {
    // Enough samples for four of each page in a review.
    let mut program = Program::new(RocsSettings {
        review: Some(1),
        samples: 16 * PAGES,
        interval: 400 * TICK,
        ..settings(SearchMethod::Search)
    });
    program.run(2000);
    assert_eq!(program.policy.confined, 32);
    let before = program.policy.left;
    // Now four of the pages in the buffer hit whenever they are sampled; the phase is the same.
    for _ in 0..1500 {
        program.instructions += TICK;
        program.cycles += TICK * (200 - 3 * 32) / 20;
        if program.sampling {
            let page = program.instructions / TICK * 7 % PAGES;
            program.tell(Event::Sample { page: Vpn(page), missed: 1, memory: page >= 4 });
        }
        let (cycles, instructions) = (program.cycles, program.instructions);
        program.tell(Event::Progress { cycles, instructions });
    }
    assert_eq!(program.policy.left - before, 4);
    assert!((0..4).all(|page| program.at[&Vpn(page)].0 != 0));
    assert_eq!(program.confined(), 28);
}

proptest! {
    #[test]
    fn a_search_ends_with_the_best_it_has_seen(
        size in 0_usize..200, step in 0_usize..40, least in 0_usize..60,
        speeds in prop::collection::vec(0.0_f64..2.0, 200), bar in 0.0_f64..2.0,
    ) {
        let least = least.min(size);
        let mut search = Search::new(size, step, least, bar);
        let (mut best, mut mapped) = ((bar, 0), 0);
        let mut speeds = speeds.into_iter();
        while let Some(range) = search.more() {
            prop_assert_eq!(range.start, mapped);
            prop_assert!(range.end > range.start && range.end <= size);
            mapped = range.end;
            let speed = speeds.next().unwrap();
            search.judge(speed);
            if speed > best.0 {
                best = (speed, mapped);
            }
        }
        prop_assert!(size - mapped <= least);
        prop_assert_eq!(search.chosen, best.1);
        prop_assert_eq!(search.excess(), best.1..mapped);
    }

    /// By any samples: each page is in the stack once, and rates do not rise on the way down.
    #[test]
    fn a_stack_is_the_profile_in_order(
        samples in prop::collection::vec((0_u64..40, any::<bool>()), 0..400),
    ) {
        let mut profile = MissProfile::default();
        samples.iter().for_each(|&(page, missed)| profile.note(Vpn(page), missed));
        let stack = profile.stack();
        let pages: BTreeSet<u64> = samples.iter().map(|sample| sample.0).collect();
        prop_assert_eq!(stack.iter().map(|page| page.page.0).collect::<BTreeSet<_>>(), pages.clone());
        prop_assert_eq!(stack.len(), pages.len());
        prop_assert!(stack.windows(2).all(|two| two[0].miss_rate() >= two[1].miss_rate()));
        let misses = samples.iter().filter(|sample| sample.1).count() as u64;
        prop_assert_eq!(stack.iter().map(|page| page.misses).sum::<u64>(), misses);
    }

    /// The model never confines so much that part of the cache has nobody to use it.
    #[test]
    fn the_model_does_not_confine_what_would_fit(
        rates in prop::collection::vec((1_u64..50, 0_u64..50), 0..300), kept in 1_u64..120,
    ) {
        let mut profile = MissProfile::default();
        for (page, &(accesses, misses)) in (0..).zip(&rates) {
            (0..accesses).for_each(|at| profile.note(Vpn(page), at < misses));
        }
        let stack = profile.stack();
        let confined = pages_to_confine(&stack, kept + 8, kept);
        prop_assert!(confined <= stack.len());
        let rest = (stack.len() - confined) as u64;
        prop_assert!(rest >= kept.min(stack.len() as u64), "{} are kept of {}", rest, stack.len());
        // Nothing hits more often than always: where no page ever misses nothing is gained.
        let missing = stack.iter().any(|page| page.misses > 0);
        prop_assert!(missing || confined == 0);
    }

    /// Whatever happens, pages are only ever moved where they are not, and home is where it was.
    #[test]
    fn any_events_leave_pages_where_the_policy_knows_them(
        events in prop::collection::vec((0_u64..64, 0_u8..4, any::<bool>()), 0..300),
    ) {
        let mut program = Program::new(settings(SearchMethod::Search));
        for (page, what, flag) in events {
            match what {
                0 => program.run(page),
                1 => program.tell(Event::Sample { page: Vpn(page), missed: u32::from(flag), memory: flag }),
                2 => program.bad = page,
                _ => program.misses_per_tick = page,
            }
        }
        let in_buffer: BTreeSet<Vpn> = program.policy.in_buffer().collect();
        let there: BTreeSet<Vpn> =
            program.at.iter().filter(|(_, color)| color.0 == 0).map(|(&page, _)| page).collect();
        prop_assert_eq!(in_buffer, there);
    }
}
