//! Conflict recolouring, step by step: each policy in a small world with a TLB and coloured
//! pages that does at once what it is asked. What it gains is tested in the simulator.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::conflict::{
    Active, ActiveSettings, BudgetSettings, CacheShape, Clues, CmlPolicy, CmlSettings, FitSettings,
    MoveBudget, PeriodClock, Periodic, Pick, SnapshotFit, SnapshotMiss, SnapshotSettings,
    TargetChoice, Targets, thresholds,
};
use huepage_policy::{Action, Event, MoveRefusal, Policy};
use proptest::prelude::*;

const SHAPE: CacheShape = CacheShape::direct(16, 128);

/// Pages, their colours and a TLB; page n begins with colour n modulo the colours.
struct World<P> {
    policy: P,
    colors: BTreeMap<Vpn, Color>,
    /// The latest last.
    tlb: VecDeque<Vpn>,
    entries: usize,
    moves: Vec<(Vpn, Color)>,
    flushes: usize,
    others: Vec<Action>,
    refuse: bool,
    deaf: bool,
}

impl<P: Policy> World<P> {
    fn new(policy: P, entries: usize) -> World<P> {
        World {
            policy,
            colors: BTreeMap::new(),
            tlb: VecDeque::new(),
            entries,
            moves: Vec::new(),
            flushes: 0,
            others: Vec::new(),
            refuse: false,
            deaf: false,
        }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.policy.handle(event, &mut actions);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Recolour { page, .. } if self.refuse => {
                self.tell(Event::Refused { page, why: MoveRefusal::NoFrame });
            }
            Action::Recolour { page, to } => {
                assert_ne!(self.colors[&page], to, "a move to where it is");
                self.colors.insert(page, to);
                self.tlb.retain(|&held| held != page);
                self.moves.push((page, to));
                self.tell(Event::Moved { page });
            }
            Action::FlushTlb => {
                self.flushes += 1;
                self.tlb.clear();
                self.tell(Event::TlbFlushed);
            }
            Action::ForgetTranslation { page } => self.tlb.retain(|&held| held != page),
            Action::TellTlbMisses(on) => self.deaf = !on,
            other => self.others.push(other),
        }
    }

    fn touch(&mut self, page: u64) {
        let page = Vpn(page);
        let color = Color(u16::try_from(page.0 % u64::from(SHAPE.colors)).unwrap());
        let known = self.colors.len();
        self.colors.entry(page).or_insert(color);
        if self.colors.len() > known {
            self.tell(Event::Faulted { page, color: Some(color) });
        }
        if let Some(at) = self.tlb.iter().position(|&held| held == page) {
            self.tlb.remove(at);
            self.tlb.push_back(page);
            return;
        }
        let full = self.tlb.len() == self.entries;
        let victim = full.then(|| (self.tlb.pop_front().unwrap(), 0));
        self.tlb.push_back(page);
        if !self.deaf {
            self.tell(Event::TlbMiss { page, order: 0, victim });
        }
    }

    fn touch_all(&mut self, pages: &[u64]) {
        pages.iter().for_each(|&page| self.touch(page));
    }

    fn progress(&mut self, cycles: u64) {
        self.tell(Event::Progress { cycles, instructions: cycles / 2 });
    }

    /// The most pages of a colour in the TLB.
    fn crowd(&self) -> usize {
        let mut counts = BTreeMap::new();
        self.tlb.iter().for_each(|page| *counts.entry(self.colors[page]).or_insert(0) += 1);
        counts.into_values().max().unwrap_or(0)
    }
}

proptest! {
    /// The invariant of section 4.2.2, also for caches of several ways.
    #[test]
    fn active_policies_keep_the_tlb_free_of_conflicts(
        pages in prop::collection::vec(0_u64..64, 1..400),
        ways in 1_u16..4,
        delay in prop::sample::select(vec![0_u32, 5]),
    ) {
        let shape = CacheShape { ways, ..SHAPE };
        let policy = Active::new(shape, ActiveSettings { delay, rest: 0 });
        let mut world = World::new(policy, 12);
        for page in pages {
            world.touch(page);
            prop_assert!(world.crowd() <= usize::from(ways));
            let mut image: Vec<Vpn> = world.policy.image.groups().concat();
            let mut held = Vec::from(world.tlb.clone());
            image.sort();
            held.sort();
            prop_assert_eq!(image, held);
        }
    }

    #[test]
    fn targets_are_never_to_be_avoided(
        how in prop::sample::select(
            vec![TargetChoice::Sequential, TargetChoice::ColdestRef, TargetChoice::ColdestMiss, TargetChoice::Random,
                 TargetChoice::Emptiest]),
        avoid in prop::collection::btree_set(0_u16..16, 0..=16),
        misses in prop::collection::vec((0_u64..99, 0_u16..16, 0_u64..99), 0..9),
        references in prop::collection::vec(0_u64..99, 16),
        pages in prop::collection::vec(0_u64..4, 0..=16),
        seed: u64,
    ) {
        let mut set = ColorSet::empty(16);
        avoid.iter().for_each(|&color| _ = set.insert(Color(color)));
        let held: Vec<_> = misses.iter().map(|&(p, c, n)| (Vpn(p), Color(c), n)).collect();
        let clues = Clues { misses: &held, references: &references, pages: &pages };
        let picked = Targets::new(how, 16, seed).pick(&set, clues);
        prop_assert_eq!(picked.is_none(), avoid.len() == 16);
        prop_assert!(picked.is_none_or(|color| !set.contains(color)));
        if let (TargetChoice::ColdestRef, Some(color)) = (how, picked) {
            let free = (0..16).filter(|color| !avoid.contains(color));
            let least = free.map(|color| references[usize::from(color)]).min();
            prop_assert_eq!(Some(references[usize::from(color.0)]), least);
        }
        if let (TargetChoice::Emptiest, Some(color)) = (how, picked) {
            let count = |color: u16| pages.get(usize::from(color)).copied().unwrap_or(0);
            let least = (0..16).filter(|color| !avoid.contains(color)).map(count).min();
            prop_assert_eq!(Some(count(color.0)), least);
        }
    }

    /// Whatever happens, a policy does the same in every run.
    #[test]
    fn runs_repeat(pages in prop::collection::vec(0_u64..64, 1..300), seed: u64) {
        let run = || {
            let mut world = World::new(Periodic::random(SHAPE, seed), 8);
            for (i, &page) in (1..).zip(&pages) {
                world.touch(page);
                world.progress(i * 500_000);
            }
            world.moves
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn active_naive_moves_at_the_first_conflict_and_delay_at_the_hundredth() {
    let mut naive = World::new(Active::new(SHAPE, ActiveSettings::NAIVE), 8);
    naive.touch_all(&[0, 1, 16]);
    assert_eq!(naive.moves.len(), 1);
    assert_eq!(naive.moves[0].0, Vpn(16), "the page that came");
    assert!(naive.moves[0].1.0 > 1, "to a colour that is not in the TLB");
    let mut delay = World::new(Active::new(SHAPE, ActiveSettings::DELAY), 8);
    delay.touch(0);
    let touched = (1..).find(|i| {
        delay.touch(16 * (i % 2));
        !delay.moves.is_empty()
    });
    assert_eq!(touched, Some(100));
}

#[test]
fn active_throttle_moves_once_a_million_cycles() {
    let moves = |mut world: World<Active>| {
        for i in 0..4_000 {
            world.progress(1_000 * i);
            // Ever more pages of one colour.
            (0..8).for_each(|page| world.touch(16 * (page + i / 20)));
        }
        world.moves.len()
    };
    assert!((3..=4).contains(&moves(World::new(Active::new(SHAPE, ActiveSettings::THROTTLE), 4))));
    assert!(moves(World::new(Active::new(SHAPE, ActiveSettings::DELAY), 4)) > 20);
}

#[test]
fn a_move_that_is_refused_is_asked_for_again() {
    let mut world = World::new(Active::new(SHAPE, ActiveSettings::NAIVE), 2);
    world.refuse = true;
    world.touch_all(&[0, 16]);
    assert!(world.moves.is_empty());
    world.refuse = false;
    world.touch_all(&[1, 2, 0, 16]);
    assert_eq!(world.moves.len(), 1);
}

#[test]
fn periodic_policies_move_one_page_of_the_tlb_each_period() {
    let mut random = World::new(Periodic::random(SHAPE, 3), 4);
    let mut color = World::new(Periodic::color(SHAPE), 4);
    for i in 0..40_u64 {
        random.touch_all(&[0, 1, 2]);
        color.touch_all(&[0, 1, 2, 16]);
        random.progress(i * 1_000_000);
        color.progress(i * 1_000_000);
    }
    assert_eq!(random.moves.len(), 19, "although nothing conflicts");
    assert_eq!(color.moves.len(), 1, "and then nothing conflicts any more");
    assert!([Vpn(0), Vpn(16)].contains(&color.moves[0].0));
    assert!(![0, 1, 2].contains(&color.moves[0].1.0));
    let mut two =
        World::new(Periodic::new(CacheShape { ways: 2, ..SHAPE }, Pick::Conflicting, 5, 0), 4);
    two.touch_all(&[0, 16]);
    two.progress(10);
    assert!(two.moves.is_empty(), "two of a colour fit into two ways");
}

#[test]
fn a_snapshot_sees_pages_in_use_only() {
    let mut world = World::new(SnapshotMiss::new(SHAPE, SnapshotSettings::SNAPSHOT), 8);
    world.touch_all(&[0, 1, 16, 5]);
    world.progress(2_000_000);
    assert_eq!(world.flushes, 1);
    world.touch_all(&[0, 1]);
    world.progress(2_200_000);
    assert!(world.moves.is_empty(), "16 was in the TLB, but is not in use");
    world.progress(4_000_000);
    world.touch_all(&[0, 1, 16]);
    world.progress(4_200_000);
    assert_eq!(world.moves.iter().map(|m| m.0).collect::<Vec<_>>(), [Vpn(16)]);
}

#[test]
fn snapshot_delay_asks_twice() {
    let moves = |second: &[u64]| {
        let mut world = World::new(SnapshotMiss::new(SHAPE, SnapshotSettings::DELAY), 8);
        world.touch_all(&[0, 1, 16]);
        world.progress(2_000_000);
        world.touch_all(&[0, 1, 16]);
        world.progress(2_200_000);
        assert_eq!((world.flushes, world.moves.len()), (2, 0));
        second.iter().for_each(|&page| world.touch(page));
        world.progress(2_400_000);
        world.moves.len()
    };
    assert_eq!(moves(&[0, 16]), 1);
    assert_eq!(moves(&[0, 1, 32]), 0, "a conflict, but not with the same page");
}

#[test]
fn a_full_snapshot_ends_at_once() {
    let settings = SnapshotSettings { pages: 3, ..SnapshotSettings::SNAPSHOT };
    let mut world = World::new(SnapshotMiss::new(SHAPE, settings), 8);
    world.progress(2_000_000);
    world.touch_all(&[0, 16]);
    assert!(world.moves.is_empty());
    world.touch(1);
    assert_eq!(world.moves.len(), 1);
}

#[test]
fn snapshot_miss_counts_misses() {
    let mut world = World::new(SnapshotMiss::new(SHAPE, SnapshotSettings::MISS), 8);
    world.progress(1_000_000_000);
    (0..9).for_each(|_| world.tell(Event::MissOverflow { misses: 1_000 }));
    assert_eq!(world.flushes, 0);
    world.tell(Event::MissOverflow { misses: 1_000 });
    world.touch_all(&[0, 16]);
    world.tell(Event::MissOverflow { misses: 1_000 });
    world.touch_all(&[0, 16]);
    assert_eq!((world.flushes, world.moves.len()), (2, 0));
    world.tell(Event::MissOverflow { misses: 1_000 });
    assert_eq!(world.moves.len(), 1);
    assert_eq!(SnapshotSettings::MISS.clock, PeriodClock::Misses);
}

/// Four colours of four ways, watched by estimates.
const WAYS: CacheShape = CacheShape { colors: 4, ways: 4, lines_per_page: 64 };
const LIVE: SnapshotSettings = SnapshotSettings {
    length: 1,
    pages: usize::MAX,
    moves: 64,
    target: TargetChoice::Emptiest,
    fit: true,
    absent: 20,
    ..SnapshotSettings::MISS
};

/// What a policy moves that is told in two snapshots of pages with their colours and the percent
/// of their samples that are missed; all in one.
fn moved_of(policy: &mut SnapshotMiss, pages: &[(u64, u16, u64)]) -> Vec<(Vpn, Color)> {
    let mut actions = Vec::new();
    let mut tell = |event| {
        let mut found = Vec::new();
        policy.handle(event, &mut found);
        actions.append(&mut found);
    };
    let snapshot = |tell: &mut dyn FnMut(Event)| {
        for &(page, color, missed) in pages {
            let (page, color) = (Vpn(page), Some(Color(color)));
            tell(Event::Faulted { page, color });
            tell(Event::TlbMiss { page, order: 0, victim: None });
            (0..100).for_each(|i| tell(Event::Sample { page, missed: 1, memory: i < missed }));
        }
    };
    tell(Event::MissOverflow { misses: 10_000 });
    snapshot(&mut tell);
    tell(Event::MissOverflow { misses: 1_000 });
    snapshot(&mut tell);
    tell(Event::MissOverflow { misses: 1_000 });
    let moves = actions.into_iter().filter_map(|action| match action {
        Action::Recolour { page, to } => Some((page, to)),
        _ => None,
    });
    moves.collect()
}

/// So many pages of each colour, of which so many percent of the samples are missed.
fn pages_of(counts: [u64; 4], missed: [u64; 4]) -> Vec<(u64, u16, u64)> {
    let of = |color: u16| {
        let at = usize::from(color);
        (0..counts[at]).map(move |n| (n * 4 + u64::from(color), color, missed[at]))
    };
    (0..4).flat_map(of).collect()
}

#[test]
fn a_crowd_in_few_colours_is_spread_over_those_with_room() {
    let pages = pages_of([12, 1, 0, 2], [90, 5, 0, 5]);
    let moves = moved_of(&mut SnapshotMiss::new(WAYS, LIVE), &pages);
    assert_eq!(moves.len(), 8, "all but those that fit: {moves:?}");
    let mut counts = [4_u64, 1, 0, 2];
    moves.iter().for_each(|(page, to)| {
        assert_eq!(page.0 % 4, 0);
        counts[usize::from(to.0)] += 1;
    });
    assert!(counts.iter().all(|count| *count <= 4), "{counts:?}");
    let one = SnapshotSettings { moves: 1, ..LIVE };
    assert_eq!(moved_of(&mut SnapshotMiss::new(WAYS, one), &pages).len(), 1);
}

#[test]
fn what_is_found_what_fits_and_what_is_too_much_stays() {
    let moves = |counts, missed| {
        moved_of(&mut SnapshotMiss::new(WAYS, LIVE), &pages_of(counts, missed)).len()
    };
    assert_eq!(moves([4, 4, 4, 4], [90; 4]), 0, "nobody has too many");
    assert_eq!(moves([6, 1, 1, 1], [3; 4]), 0, "they are found all the same");
    assert_eq!(moves([6, 1, 1, 1], [60, 55, 55, 55]), 0, "those with room are missed as well");
    assert_eq!(moves([6, 1, 1, 1], [90, 55, 55, 55]), 2);
    assert_eq!(moves([14, 1, 1, 1], [90; 4]), 0, "more than the cache has");
    let lax = SnapshotSettings { absent: 0, ..LIVE };
    let crowd = pages_of([6, 1, 1, 1], [3; 4]);
    assert_eq!(moved_of(&mut SnapshotMiss::new(WAYS, lax), &crowd).len(), 2, "nobody asked");
}

#[test]
fn some_ways_are_left_to_others() {
    let slack = SnapshotSettings { slack: 1, ..LIVE };
    let moves = |counts| {
        let pages = pages_of(counts, [90, 5, 5, 5]);
        moved_of(&mut SnapshotMiss::new(WAYS, slack), &pages)
    };
    assert_eq!(moves([4, 1, 1, 1]).len(), 0, "it is not crowded");
    assert_eq!(moves([5, 1, 1, 1]).len(), 2, "three are left");
    let mut counts = [10_u64, 2, 1, 1];
    moves(counts).iter().for_each(|(_, to)| counts[usize::from(to.0)] += 1);
    assert_eq!(counts[1..], [3, 3, 3]);
}

#[test]
fn colours_of_others_are_kept_off() {
    let mut others = ColorSet::empty(4);
    others.insert(Color(2));
    let mut policy = SnapshotMiss::new(WAYS, LIVE).keeping_off(others);
    let moves = moved_of(&mut policy, &pages_of([12, 1, 0, 2], [90, 5, 0, 5]));
    assert_eq!(moves.len(), 5);
    assert!(moves.iter().all(|(_, to)| *to != Color(2)), "{moves:?}");
}

#[test]
fn a_page_that_conflicts_again_rests() {
    let budget = BudgetSettings { proof: 50_000, rest: 50_000, ..BudgetSettings::default() };
    let limited = SnapshotSettings { budget: Some(budget), ..LIVE };
    let pages = pages_of([6, 1, 1, 1], [90, 5, 5, 5]);
    let mut policy = SnapshotMiss::new(WAYS, limited);
    let mut turn = |expected: usize| {
        let moves = moved_of(&mut policy, &pages);
        moves.iter().for_each(|&(page, _)| policy.handle(Event::Moved { page }, &mut Vec::new()));
        assert_eq!(moves.len(), expected, "{moves:?}");
        moves.into_iter().map(|(page, _)| page).collect::<Vec<_>>()
    };
    // The world puts them back where they were each time.
    let (first, second) = (turn(2), turn(2));
    assert!(first.iter().all(|page| !second.contains(page)), "others have their turn first");
}

proptest! {
    /// Whatever is told: nobody who has room loses pages, and nobody gets more than fit.
    #[test]
    fn moves_leave_no_colour_with_too_many_that_had_room(
        counts in prop::array::uniform4(0_u64..20),
        missed in prop::array::uniform4(0_u64..=100),
        moves in 0_usize..20,
    ) {
        let settings = SnapshotSettings { moves, ..LIVE };
        let found = moved_of(&mut SnapshotMiss::new(WAYS, settings), &pages_of(counts, missed));
        prop_assert!(found.len() <= moves);
        let mut after = counts;
        for (page, to) in &found {
            after[usize::try_from(page.0 % 4).unwrap()] -= 1;
            after[usize::from(to.0)] += 1;
        }
        for (before, after) in counts.into_iter().zip(after) {
            let (least, most) = if before > 4 { (4, before) } else { (before, 4) };
            prop_assert!((least..=most).contains(&after), "{before} {after}");
        }
        prop_assert!(counts.iter().sum::<u64>() <= 16 || found.is_empty());
    }
}

/// Touches pages in turn, each with the misses of all its lines.
fn sweep(world: &mut World<impl Policy>, pages: u64, sweeps: u64) {
    let mut lines = 0;
    for page in (0..sweeps).flat_map(|_| 0..pages) {
        world.touch(page);
        lines += SHAPE.lines_per_page;
        while lines >= 100 {
            lines -= 100;
            world.tell(Event::MissOverflow { misses: 100 });
        }
    }
}

#[test]
fn what_does_not_fit_is_left_alone_and_looked_at_ever_more_seldom() {
    let mut plain = World::new(SnapshotMiss::new(SHAPE, SnapshotSettings::MISS), 8);
    let mut fit = World::new(SnapshotFit::new(SHAPE, FitSettings::default()), 8);
    sweep(&mut plain, 64, 100);
    sweep(&mut fit, 64, 100);
    assert!(plain.flushes > 50, "{} flushes", plain.flushes);
    // After 10, 30, 70, 150, 310, 470, 630 and 790 of 819 thousand misses.
    assert!((5..=8).contains(&fit.flushes), "{} flushes", fit.flushes);
    assert!(fit.moves.is_empty() && fit.deaf, "nor does it hear of TLB misses meanwhile");
}

#[test]
fn what_fits_and_misses_is_a_conflict() {
    let mut world = World::new(SnapshotFit::new(SHAPE, FitSettings::default()), 8);
    for i in 0..1_000_u64 {
        // Two pages of one colour, and three others that push them out of the TLB.
        world.touch_all(&[0, 1, 2, 3, 16]);
        if i % 8 == 0 {
            world.tlb.clear();
        }
        if world.moves.is_empty() {
            world.tell(Event::MissOverflow { misses: 1_000 });
        }
    }
    assert_eq!(world.moves.len(), 1);
}

/// A world that was told of pages, and of what a CML buffer holds.
fn read(world: &mut World<CmlPolicy>, entries: &[(u64, u64)]) {
    for &(page, _) in entries {
        world.touch(page);
    }
    for &(page, misses) in entries {
        world.tell(Event::CmlEntry { page: Vpn(page), misses });
    }
    let &(page, misses) = entries.iter().max_by_key(|entry| entry.1).unwrap();
    world.tell(Event::Conflict { page: Vpn(page), misses });
}

#[test]
fn thresholds_are_those_of_the_thesis() {
    assert_eq!(thresholds(256), (260, 320), "section 5.3.1, for pages of 8 KB");
}

#[test]
fn cml_moves_all_but_one_of_the_pages_that_miss_and_share_a_colour() {
    let mut world = World::new(CmlPolicy::thesis(SHAPE), 8);
    assert_eq!(thresholds(128), (132, 192));
    read(&mut world, &[(0, 192), (16, 150), (32, 132), (48, 131), (1, 180), (17, 131), (2, 9)]);
    let moved: Vec<u64> = world.moves.iter().map(|m| m.0.0).collect();
    assert_eq!(moved, [16, 32], "17 and 48 are below the threshold, so 1 has no rival");
    assert!(world.moves.iter().all(|m| m.1 != Color(0)));
    assert_ne!(world.moves[0].1, world.moves[1].1);
    let two = CacheShape { ways: 2, ..SHAPE };
    let mut world = World::new(CmlPolicy::thesis(two), 8);
    read(&mut world, &[(0, 192), (16, 150), (32, 132)]);
    assert_eq!(world.moves.iter().map(|m| m.0.0).collect::<Vec<_>>(), [32]);
}

#[test]
fn cml_leaves_superpages_whole_where_others_can_go() {
    let mut world = World::new(CmlPolicy::thesis(SHAPE), 8);
    world.touch(16);
    for page in [0, 1] {
        world.touch(page);
        let color = Some(world.colors[&Vpn(page)]);
        world.tell(Event::Placed { page: Vpn(page), color });
    }
    read(&mut world, &[(0, 140), (16, 192)]);
    assert_eq!(world.moves.iter().map(|m| m.0.0).collect::<Vec<_>>(), [16]);
    world.tell(Event::Demoted { page: Vpn(1), order: 1, interfering: false });
    read(&mut world, &[(0, 140), (32, 192)]);
    assert_eq!(world.moves.last().unwrap().0, Vpn(0), "once it is broken, what misses least");
}

#[test]
fn cml_clears_its_buffer_every_five_million_cycles_and_wants_no_tlb_misses() {
    let mut world = World::new(CmlPolicy::thesis(SHAPE), 8);
    (0..=200).for_each(|i| world.progress(i * 100_000));
    assert_eq!(world.others, [Action::ClearCml; 4]);
    assert!(world.deaf);
}

#[test]
fn cml_takes_the_coldest_colour_where_it_is_told_to() {
    let with = |target| {
        let settings = CmlSettings { target, ..CmlSettings::thesis(SHAPE) };
        let mut world = World::new(CmlPolicy::new(SHAPE, settings), 8);
        for color in 0..16_u16 {
            let references = u64::from(color.abs_diff(9)) + 5;
            world.tell(Event::ColorReferences { color: Color(color), references });
        }
        read(&mut world, &[(0, 192), (16, 150), (3, 7), (4, 2), (5, 8)]);
        world.moves[0].1
    };
    assert_eq!(with(TargetChoice::ColdestRef), Color(9));
    assert_eq!(with(TargetChoice::ColdestMiss), Color(4));
    assert_ne!(with(TargetChoice::Random), Color(0));
}

/// Targets have the colour of no page that conflicts, and a page that is being moved does (section 5.6.3).
#[test]
fn no_two_pages_of_one_interrupt_go_to_one_colour() {
    for target in [TargetChoice::ColdestRef, TargetChoice::ColdestMiss, TargetChoice::Random] {
        let settings = CmlSettings { target, ..CmlSettings::thesis(SHAPE) };
        let mut world = World::new(CmlPolicy::new(SHAPE, settings), 8);
        read(&mut world, &[(0, 192), (16, 150), (32, 140), (1, 192), (17, 150), (4, 2), (5, 8)]);
        let to: BTreeSet<u16> = world.moves.iter().map(|moved| moved.1.0).collect();
        assert_eq!((world.moves.len(), to.len()), (3, 3), "{target:?}");
    }
}

/// Interrupts of a program whose pages conflict wherever they are put.
fn thrash(settings: CmlSettings) -> usize {
    let mut world = World::new(CmlPolicy::new(SHAPE, settings), 8);
    for i in 0..2_000_u64 {
        world.progress(i * 50_000);
        let page = i % 48;
        world.touch(page);
        let color = world.colors[&Vpn(page)];
        let rival = world.colors.iter().find(|at| *at.1 == color && at.0.0 != page);
        if let Some(rival) = rival.map(|at| at.0.0) {
            read(&mut world, &[(page, 192), (rival, 150)]);
        }
    }
    world.moves.len()
}

/// Rests of a page that comes back soon double. After a move that lasted longer than it was waited for, they begin anew:
/// else whatever is in use for hours rests longest each time in the end.
#[test]
fn what_comes_back_late_rests_as_at_the_first_time() {
    let settings =
        BudgetSettings { start: 9, most: 9, proof: 10, rest: 5, doublings: 9, refill: 1000 };
    let (mut budget, page) = (MoveBudget::new(settings), Vpn(7));
    // When it is moved, when it comes back, and until when it rests then.
    for [moved, back, until] in [[0, 5, 15], [15, 20, 40], [40, 101, 111], [111, 115, 135]] {
        budget.pass(moved);
        assert!(budget.allows(page), "at {moved}");
        budget.spend(page, 0);
        budget.pass(back);
        budget.again(page);
        budget.pass(until - 1);
        assert!(!budget.allows(page), "before {until}");
    }
    budget.pass(135);
    assert!(budget.allows(page));
}

#[test]
fn a_page_of_cml_rests_no_longer_than_two_credits_take() {
    let settings = BudgetSettings { start: 64, most: 64, ..BudgetSettings::default() };
    let (mut budget, page, mut now) = (MoveBudget::new(settings), Vpn(7), 0);
    let rests = [(); 12].map(|()| {
        budget.spend(page, 0);
        budget.again(page);
        let asleep = now;
        while !budget.allows(page) {
            now += settings.rest;
            budget.pass(now);
        }
        now - asleep
    });
    assert_eq!(rests[..4], [2, 4, 8, 16].map(|times| times * settings.rest));
    assert!(rests[4..].iter().all(|rest| *rest == 2 * settings.refill), "{rests:?}");
}

#[test]
fn a_budget_ends_moves_in_vain_but_not_those_that_help() {
    let budget = Some(BudgetSettings::default());
    let thesis = CmlSettings::thesis(SHAPE);
    assert!(thrash(thesis) > 1_000);
    // Four at the start, and six refills in 100 million cycles.
    let some = thrash(CmlSettings { budget, ..thesis });
    assert!((4..=40).contains(&some), "{some} moves");
    let mut world = World::new(CmlPolicy::budgeted(SHAPE), 8);
    for i in 0..200_u64 {
        world.progress(i * 1_000_000);
        // New pages each time: what was moved never comes back.
        let page = 32 * i;
        read(&mut world, &[(page, 192), (page + 16, 150)]);
    }
    assert!(world.moves.len() >= 190, "{} moves", world.moves.len());
}

/// A world whose pages do not fit, two to a colour.
fn crowded(budget: BudgetSettings) -> World<CmlPolicy> {
    let settings = CmlSettings { budget: Some(budget), ..CmlSettings::budgeted(SHAPE) };
    let mut world = World::new(CmlPolicy::new(SHAPE, settings), 8);
    world.touch_all(&(0..32).collect::<Vec<_>>());
    world
}

/// A page conflicts with the one that began in the colour where it is, itself apart.
fn meets_its_host(world: &mut World<CmlPolicy>, page: u64) {
    let color = u64::from(world.colors[&Vpn(page)].0);
    let host = if color == page { page + 16 } else { color };
    read(world, &[(host, 150), (page, 192)]);
}

#[test]
fn a_move_that_made_another_conflict_is_taken_back_where_none_is_left() {
    let one = BudgetSettings { start: 1, refill: u64::MAX, ..BudgetSettings::default() };
    let mut world = crowded(one);
    read(&mut world, &[(0, 192), (16, 150)]);
    assert!(world.moves.len() == 1 && world.moves[0].1 != Color(0));
    meets_its_host(&mut world, 16);
    assert_eq!(world.moves[1..], [(Vpn(16), Color(0))], "though it misses more than its host");
    (0..10).for_each(|_| read(&mut world, &[(0, 192), (16, 150)]));
    assert_eq!(world.moves.len(), 2, "then it stays");
}

#[test]
fn colours_where_a_page_failed_are_left_alone() {
    let many = BudgetSettings { start: 100, rest: 0, ..BudgetSettings::default() };
    let mut world = crowded(many);
    read(&mut world, &[(0, 192), (16, 150)]);
    // Each time to a colour where it was not.
    (0..14).for_each(|_| meets_its_host(&mut world, 16));
    let tried: std::collections::BTreeSet<Color> = world.moves.iter().map(|m| m.1).collect();
    assert!(tried.len() == 15 && world.moves.iter().all(|m| m.0 == Vpn(16)), "{:?}", world.moves);
}
