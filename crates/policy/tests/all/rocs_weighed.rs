//! Weighing of what is gained by confining pages against what moving them costs, and the trial of it, over a
//! model of a process.

use std::time::Duration;

use huepage_color::{ColorSet, Vpn};
use huepage_policy::residency::{Errors, Segment};
use huepage_policy::rocs::weighed::{
    ConfinementStep, MoveEstimate, StretchSeen, Weighed, WeighedSettings,
};
use huepage_policy::rocs::{SearchMethod, Stage};

const SECOND: Duration = Duration::from_secs(1);

const MODEL: SearchMethod = SearchMethod::Model { ways: 16 };

fn settings(method: SearchMethod, measured: bool) -> WeighedSettings {
    let buffer = ColorSet::parse("30-31", 32).expect("colours");
    WeighedSettings::estimated(buffer, method, measured)
}

fn segment(first: u64, pages: u64, share: u64) -> Segment {
    let (sampled_pages, samples) = (u32::try_from(pages).expect("few"), pages * 20);
    let (last, found) = (Vpn(first + pages - 1), samples * share / 100);
    Segment { first: Vpn(first), last, sampled_pages, used: sampled_pages, samples, found, pages }
}

fn all(segment: &Segment) -> Vec<Vpn> {
    (segment.first.0..=segment.last.0).map(Vpn).collect()
}

/// A hot set of 384 pages and a stream of 2048, on a machine whose cache has 512.
struct Process {
    driver: Weighed,
    wants: ConfinementStep,
    pace: Option<f64>,
}

impl Process {
    fn new(method: SearchMethod) -> Process {
        let driver = Weighed::new(settings(method, false));
        Process { driver, wants: ConfinementStep::default(), pace: None }
    }

    /// Runs until something is wanted, at most so many quarters of a second.
    fn run(&mut self, most: usize, miss_rate: f64, fills: f64) -> bool {
        for _ in 0..most {
            let (miss_rate, fills) = (Some(miss_rate), Some(fills));
            self.wants =
                self.driver.ran(SECOND / 4, StretchSeen { pace: self.pace, miss_rate, fills });
            if self.wants != ConfinementStep::default() {
                return true;
            }
        }
        false
    }

    fn profile(&mut self) {
        let parts = [segment(100, 384, 60), segment(5000, 2048, 8)];
        self.wants = self.driver.profile(&parts, Errors::default(), all);
    }

    fn confined(&self) -> u64 {
        self.driver.ranges().iter().map(|(start, end)| (end - start) / 4096).sum()
    }
}

#[test]
fn a_stream_is_confined_and_stays_so_while_that_helps() {
    let mut process = Process::new(MODEL);
    assert!(process.run(10, 0.6, 5e6) && process.wants.profile);
    process.profile();
    assert!(process.run(10, 0.6, 5e6) && process.wants.moves);
    assert!((1900..=2048).contains(&process.confined()), "{}", process.confined());
    assert!(process.driver.ranges().iter().all(|range| range.0 >= 5000 * 4096));
    assert_eq!(process.driver.answered(true), ConfinementStep::default());
    assert!(!process.run(12, 0.3, 5e6), "{:?}", process.wants);
    assert_eq!((process.driver.rocs.stage, process.driver.stage()), (Stage::Steady, "confined"));
}

#[test]
fn what_does_not_help_is_undone() {
    let mut process = Process::new(MODEL);
    assert!(process.run(10, 0.6, 5e6));
    process.profile();
    assert!(process.run(10, 0.6, 5e6) && process.wants.moves);
    process.driver.answered(true);
    assert!(process.run(12, 0.62, 5e6) && process.wants.moves, "{:?}", process.wants);
    assert_eq!(process.confined(), 0);
    process.driver.answered(true);
    assert!(!process.run(6, 0.6, 5e6));
    assert_eq!(process.driver.stage(), "nothing is gained by confining");
}

#[test]
fn a_process_that_brings_little_in_is_left_alone() {
    let mut process = Process::new(MODEL);
    assert!(!process.run(40, 0.9, 1e5));
    assert_eq!(process.driver.stage(), "left alone");
}

#[test]
fn the_paper_s_search_tries_more_and_more() {
    let mut process = Process::new(SearchMethod::Search);
    assert!(process.run(10, 0.6, 5e6));
    process.profile();
    let mut sizes = Vec::new();
    while process.run(8, 0.6 - 0.1 * sizes.len().min(4) as f64, 5e6) && process.wants.moves {
        sizes.push(process.confined());
        process.driver.answered(true);
        assert!(sizes.len() < 40, "{sizes:?}");
    }
    assert!(sizes.len() >= 4 && sizes[..4].windows(2).all(|two| two[0] < two[1]), "{sizes:?}");
}

#[test]
fn pages_that_cannot_be_moved_are_not_confined() {
    let mut process = Process::new(MODEL);
    assert!(process.run(10, 0.6, 5e6));
    process.profile();
    assert!(process.run(10, 0.6, 5e6) && process.wants.moves);
    assert_eq!(process.driver.answered(false), ConfinementStep::default());
    assert_eq!(process.confined(), 0);
}

#[test]
fn a_process_is_as_fast_as_it_passes_through_memory() {
    // It misses much less, but passes through its memory more slowly: what it waits for lies elsewhere.
    for (pace, kept) in [(9.0e5, false), (1.2e6, true)] {
        let mut process = Process::new(MODEL);
        assert!(process.run(10, 0.6, 5e6));
        process.driver.go_by_pace(true);
        process.pace = Some(1.0e6);
        process.profile();
        assert!(process.run(10, 0.6, 5e6) && process.wants.moves);
        process.driver.answered(true);
        process.pace = Some(pace);
        process.run(12, 0.2, 5e6);
        assert_eq!(process.confined() > 0, kept, "{pace}: {}", process.driver.stage());
    }
}

#[test]
fn a_profile_is_made_before_anything_is_known_of_a_process() {
    let mut driver = Weighed::new(settings(MODEL, false));
    let wants = (0..8).map(|_| driver.ran(SECOND / 10, StretchSeen::default()));
    assert!(wants.into_iter().any(|wants| wants.profile));
}

/// Planned by the model, and asked whether it is worth it.
fn offered(saved: f64, pages: usize, ran: u64, probed: bool) -> (Process, Option<String>) {
    let mut process = Process::new(MODEL);
    process.driver = Weighed::new(settings(MODEL, probed));
    assert!(process.run(10, 0.6, 5e6));
    process.profile();
    let planned = process.driver.planned().expect("the model plans");
    assert!((1900..=2048).contains(&planned.len()), "{}", planned.len());
    let why = process.driver.weigh(MoveEstimate { saved, pages, ran: Duration::from_secs(ran) });
    (process, why)
}

#[test]
fn what_gains_too_little_is_not_tried_and_looked_at_again_later() {
    let (mut process, why) = offered(4e5, 2000, 2, false);
    assert!(why.is_some_and(|why| why.contains("1.0 %")));
    assert!(process.driver.planned().is_none() && process.driver.stage() == "left alone");
    assert!(!process.run(7 * 4, 0.6, 5e6), "{:?}", process.wants);
    assert!(process.run(2 * 4, 0.6, 5e6) && process.wants.profile);
}

#[test]
fn pages_are_moved_once_the_program_has_run_long_enough_to_repay_that() {
    // 100,000 pages among sixteen times as many that are measured: seven seconds of the program's time.
    let tried = |ran, probed| offered(8e6, 100_000, ran, probed).1;
    let why = tried(10, true).expect("too dear");
    assert!(why.contains("100000 pages") && why.contains("20 %"), "{why}");
    assert_eq!((tried(60, true), tried(10, false)), (None, None));
    let (mut process, _) = offered(8e6, 2000, 2, true);
    assert!(process.run(10, 0.6, 5e6) && process.wants.moves);
}
