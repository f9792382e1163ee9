//! Snapshots of pages in use over a model of a process: pages of some colours, walked through again and again in a
//! cache of eight colours and four ways.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::Policy;
use huepage_policy::conflict::CacheShape;
use huepage_policy::conflict::in_use::{InUse, InUseMoves, InUseSettings};
use huepage_policy::conflict::target::Random;
use huepage_policy::registry::Settings;
use huepage_policy::residency::Errors;
use proptest::prelude::*;

const COLORS: u16 = 8;
const WAYS: u16 = 4;
/// Looks in a turn of 0.1 s.
const LOOKS: u64 = 600;

fn settings(rate: u32) -> InUseSettings {
    let shape = CacheShape { colors: COLORS, ways: WAYS, lines_per_page: 64 };
    InUseSettings::new(shape, rate, ColorSet::empty(COLORS))
}

struct Process {
    driver: InUse<Box<dyn Policy + Send>>,
    colors: BTreeMap<u64, u16>,
    seconds: f64,
    moved: usize,
    /// The share of lines that are found whatever is done.
    always: Option<f64>,
    random: Random,
}

impl Process {
    /// So many pages of each colour.
    fn new(counts: [u64; 8], rate: u32) -> Process {
        let pages = (0_u16..8).zip(counts).flat_map(|(color, n)| (0..n).map(move |_| color));
        Process {
            driver: Settings::parse("snapshot-in-use").unwrap().in_use(settings(rate)).unwrap(),
            colors: (100..).zip(pages).collect(),
            seconds: 0.0,
            moved: 0,
            always: None,
            random: Random::new(3),
        }
    }

    fn counts(&self) -> [u64; 8] {
        let mut counts = [0; 8];
        self.colors.values().for_each(|&color| counts[usize::from(color)] += 1);
        counts
    }

    fn tell_pages(&mut self, asked: bool) -> InUseMoves {
        let pages: Vec<(Vpn, Option<Color>)> =
            self.colors.iter().map(|(&page, &color)| (Vpn(page), Some(Color(color)))).collect();
        self.driver.in_use(&pages, asked)
    }

    /// Looks at lines for a while; in a walk, of a colour with more pages than ways nothing is found.
    fn look(&mut self) {
        let counts = self.counts();
        let pages: Vec<(u64, u16)> = self.colors.iter().map(|(&p, &c)| (p, c)).collect();
        for _ in 0..LOOKS {
            let (page, color) = pages[self.random.index(pages.len())];
            let fits = counts[usize::from(color)] <= u64::from(WAYS);
            let share = self.always.unwrap_or(if fits { 0.97 } else { 0.03 });
            let found = (self.random.index(1000) as f64) < share * 1000.0;
            self.driver.looked(Vpn(page), found);
        }
    }

    /// One turn; pages go where they are wished, but for refused ones. Whether a snapshot was asked for.
    fn turn(&mut self, refuse: bool) -> bool {
        self.look();
        self.seconds += 0.1;
        let wants = self.driver.passed(self.seconds, Errors::default());
        let mut all = wants.clone();
        if wants.snapshot {
            all.moves.extend(self.tell_pages(true).moves);
        }
        self.follow(&all, refuse);
        wants.snapshot
    }

    fn follow(&mut self, wants: &InUseMoves, refuse: bool) {
        if wants.moves.is_empty() {
            return;
        }
        assert_eq!(self.driver.stage(), "recolouring");
        let placed: Vec<(Vpn, bool)> =
            wants.moves.iter().map(|&(page, _)| (page, !refuse)).collect();
        if !refuse {
            self.moved += wants.moves.len();
            wants.moves.iter().for_each(|(page, to)| _ = self.colors.insert(page.0, to.0));
        }
        self.driver.answered(&placed);
    }

    fn run(&mut self, turns: usize) -> usize {
        let _ = self.tell_pages(false);
        (0..turns).for_each(|_| _ = self.turn(false));
        self.moved
    }
}

#[test]
fn a_crowd_is_spread_and_then_left_alone() {
    let mut process = Process::new([18, 1, 1, 0, 0, 0, 0, 1], 512);
    process.run(40);
    assert_eq!(process.moved, 15, "all but three of four: {:?}", process.counts());
    assert!(process.counts().iter().all(|n| *n <= 4), "{:?}", process.counts());
    assert_eq!((process.driver.stage().as_str(), process.driver.conflicts), ("recoloured", 1));
    let (before, after) =
        (process.driver.residency_at_first, process.driver.residency(Errors::default()));
    assert!(before < Some(0.3) && after > Some(0.9), "{before:?} {after:?}");
    process.run(200);
    assert_eq!(process.moved, 15);
}

#[test]
fn programs_without_conflicts_are_left_alone() {
    let mut even = Process::new([4, 3, 4, 2, 4, 4, 3, 4], 512);
    assert_eq!(even.run(200), 0);
    assert_eq!(even.driver.stage(), "no conflicts found");
    let mut large = Process::new([40, 4, 4, 4, 4, 4, 4, 4], 512);
    assert_eq!(large.run(200), 0);
    assert!(large.driver.is_too_large() && large.driver.stage().starts_with("left alone"));
    let mut none = Process::new([1, 0, 0, 0, 0, 0, 0, 0], 512);
    none.colors.clear();
    assert_eq!(none.tell_pages(false), InUseMoves::default());
    assert_eq!(none.driver.passed(1.0, Errors::default()), InUseMoves::default());
    assert_eq!(none.driver.stage(), "no page is used again and again");
}

#[test]
fn what_misses_in_every_colour_is_no_conflict() {
    let mut sparse = Process::new([9, 3, 3, 3, 3, 3, 3, 3], 512);
    sparse.always = Some(0.3);
    let asked = (0..600).filter(|_| sparse.turn(false)).count();
    assert_eq!(sparse.moved, 0);
    assert!((4..20).contains(&asked), "{asked} snapshots in a minute");
}

#[test]
fn recolouring_that_brings_nothing_is_not_repeated_for_long() {
    let mut process = Process::new([18, 0, 0, 0, 0, 0, 0, 0], 512);
    process.always = Some(0.2);
    process.run(60);
    let (moved, stage) = (process.moved, process.driver.stage());
    assert!(moved == 15 && stage.starts_with("resting"), "{moved} {stage}");
    // Whatever it does, pages go back to where they were.
    for _ in 0..5 {
        process.colors.values_mut().for_each(|color| *color = 0);
        process.run(100);
    }
    assert!(process.moved <= 4 * 18, "{} moves in 56 s", process.moved);
}

#[test]
fn moves_keep_to_their_rate() {
    let mut process = Process::new([18, 1, 1, 0, 0, 0, 0, 1], 2);
    process.run(40);
    assert!((2..=8).contains(&process.moved), "{} moves in 4 s", process.moved);
}

#[test]
fn refusals_end_in_a_rest() {
    let mut process = Process::new([18, 1, 1, 0, 0, 0, 0, 1], 512);
    let _ = process.tell_pages(false);
    (0..80).for_each(|_| _ = process.turn(true));
    assert!(process.driver.conflicts <= 2, "{}", process.driver.conflicts);
    assert!(process.driver.stage().starts_with("resting"), "{}", process.driver.stage());
}

proptest! {
    #[test]
    fn no_colour_is_crowded_that_was_not(counts in prop::array::uniform8(0_u64..14), rate in 1_u32..64) {
        let mut process = Process::new(counts, rate);
        if !process.colors.is_empty() {
            process.run(60);
        }
        for (before, after) in counts.into_iter().zip(process.counts()) {
            prop_assert!(after <= before.max(u64::from(WAYS)), "{before} {after}");
        }
        let all: u64 = counts.iter().sum();
        prop_assert!(all <= u64::from(COLORS * WAYS) || process.moved == 0);
        prop_assert_eq!(process.counts().iter().sum::<u64>(), all);
    }
}
