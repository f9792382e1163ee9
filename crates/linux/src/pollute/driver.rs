//! Between a sensor and ROCS: time, counts and estimates become the events that the policy knows, and its
//! wishes the set of pages that is to be in the buffer. Reads no clock and touches no process.
//!
//! With counters, cycles and instructions of the policy are the processor's. Where no counter tells how
//! fast a program is, it is as fast as it passes through the memory that may be confined; where that is
//! not known either, as its requests to the cache are taken to be answered: a miss takes some times as
//! long as a hit. Time of the policy is then CPU time of the process in nanoseconds ("cycles"), and what
//! the process would have taken for the same work as it was at first ("instructions").
//!
//! Moving pages costs the program something too, see [`Offer`].

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_policy::residency::{Errors, Segment, profile};
use huepage_policy::rocs::{Method, Rocs, RocsSettings, Stage};
use huepage_policy::{Action, Event, Policy, Refusal};

use super::{Search, Settings};
use crate::pmu::counts::Counts;

/// What a miss takes more than a hit, in times of a hit: a last level answers after four to six
/// times what a private one takes, on machines of ten years.
const MISS: f64 = 4.0;
/// Lengths of ROCS (section 5 and 6.2) in CPU time: a program is to be placed within some seconds.
const START: u64 = 300_000_000;
const INTERVAL: u64 = 1_000_000_000;
const TRIAL: u64 = 300_000_000;
const SETTLE: u64 = 60_000_000;
/// What has to be gained for a mapping to be kept: estimates are less sure than counters.
const MARGIN: f64 = 0.03;
/// From which change on another phase has begun.
const CHANGE: f64 = 0.25;
/// Lines brought in per microsecond of CPU time, below which a process is left alone: with some 20 ns for
/// a miss, what could be gained is one part in a hundred.
const LEAST_PER_US: f64 = 0.5;
/// What is taken for that before it is known: a profile will tell.
const UNKNOWN_PER_US: f64 = 1.0;
/// Seconds that a miss costs which the last level answers: some fifty nanoseconds, in half of which a
/// processor does something else. A hash join that gains a sixth has misses for 8 % of its time by this.
const SAVED: f64 = 25e-9;
/// The least share of its time that a process has to gain for anything to be tried.
const LEAST_GAIN: f64 = 0.04;
/// Seconds of work for each page that is moved, and for each that is looked at for a colour, by its
/// number or by measuring.
const MOVE: f64 = 15e-6;
const LOOK: [f64; 2] = [0.5e-6, 10e-6];
/// The part of that work by which the program is slowed down: it runs on another processor, and
/// shares the memory.
const SLOWED: f64 = 0.4;
/// Seconds that any program is taken to run on for, and least ones before it is looked at again.
const RUNS: f64 = 10.0;
const AGAIN: f64 = 8.0;
/// The same with counters, in instructions: by what ROCS says, but for a trial, which has to last while a
/// million lines come in.
const COUNTED_START: u64 = 600_000_000;
const COUNTED_INTERVAL: u64 = 1_000_000_000;
const COUNTED_TRIAL: u64 = 400_000_000;
const COUNTED_SETTLE: u64 = 100_000_000;
/// Counters are sure; what a program does varies.
const COUNTED_MARGIN: f64 = 0.02;
/// Samples of a profile (section 6.2 has as many for some seconds).
const COUNTED_SAMPLES: u64 = 100_000;
/// Intervals between looks for pages that should leave the buffer.
const REVIEW: u32 = 8;

/// What is to be done next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wants {
    /// A profile is wanted.
    pub profile: bool,
    /// The set of pages to confine has changed.
    pub moves: bool,
}

/// What was seen of a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Pages that it passed through in a second of CPU time.
    pub pace: Option<f64>,
    /// Share of its requests that missed.
    pub miss_rate: Option<f64>,
    /// Lines that it brought in in a second of CPU time.
    pub fills: Option<f64>,
}

/// What moving pages may bring and will cost. Nobody knows how long a program runs on; one that has run
/// for so long is taken to run as long again, and is let wait until that repays being moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Misses in a second of CPU time that more room could save.
    pub saved: f64,
    /// Pages to be moved.
    pub pages: usize,
    /// How long it has run.
    pub ran: Duration,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Driver {
    rocs: Rocs,
    buffer: ColorSet,
    outside: Vec<Color>,
    confined: BTreeSet<Vpn>,
    /// Pages that were asked for since the last answer.
    asked: Vec<Vpn>,
    /// Pages of the profile that the policy knows the places of.
    placed: HashSet<Vpn>,
    /// The policy makes a profile.
    listens: bool,
    cycles: f64,
    instructions: f64,
    misses: f64,
    /// How fast it was at first, by whatever tells.
    usual: Option<f64>,
    /// How fast it was last, in times of that.
    speed: f64,
    /// Whether its pace tells.
    paced: bool,
    /// Seconds of work to find a page of the buffer's colours and to move one there.
    per_page: f64,
}

impl Driver {
    /// Lines brought in in a second, below which a process is left alone.
    pub const LITTLE: f64 = LEAST_PER_US * 1e6;

    /// For estimates of how often the process misses.
    pub fn new(settings: &Settings) -> Driver {
        Driver::of(settings, |usual| RocsSettings {
            start: START,
            interval: INTERVAL,
            samples: u64::MAX,
            trial: TRIAL,
            settle: SETTLE,
            margin: MARGIN,
            change: CHANGE,
            least_mpki: LEAST_PER_US,
            ..usual
        })
    }

    /// For counted instructions, cycles and misses.
    pub fn with_counters(settings: &Settings) -> Driver {
        Driver::of(settings, |usual| RocsSettings {
            start: COUNTED_START,
            interval: COUNTED_INTERVAL,
            samples: COUNTED_SAMPLES,
            trial: COUNTED_TRIAL,
            settle: COUNTED_SETTLE,
            margin: COUNTED_MARGIN,
            ..usual
        })
    }

    fn of(settings: &Settings, lengths: impl Fn(RocsSettings) -> RocsSettings) -> Driver {
        let method = match settings.search {
            Search::Model => Method::Model { ways: settings.ways },
            Search::Empirical => Method::Search,
        };
        let rocs = Rocs::new(lengths(RocsSettings {
            method,
            prefetch_off: false,
            review: Some(REVIEW),
            ..RocsSettings::paper(settings.buffer.clone())
        }));
        Driver {
            rocs,
            outside: settings.buffer.complement().iter().collect(),
            buffer: settings.buffer.clone(),
            confined: BTreeSet::new(),
            asked: Vec::new(),
            placed: HashSet::new(),
            listens: false,
            cycles: 0.0,
            instructions: 0.0,
            misses: 0.0,
            usual: None,
            speed: 1.0,
            paced: false,
            per_page: MOVE + LOOK[usize::from(settings.probed)] * candidates(&settings.buffer),
        }
    }

    pub fn rocs(&self) -> &Rocs {
        &self.rocs
    }

    /// From now on its pace tells how fast it is, or what is known of its misses.
    pub fn go_by_pace(&mut self, paced: bool) {
        (self.usual, self.speed, self.paced) = (None, 1.0, paced);
    }

    /// The process ran for so long, and this was seen of it.
    pub fn ran(&mut self, time: Duration, seen: Seen) -> Wants {
        let ns = time.as_secs_f64() * 1e9;
        self.cycles += ns;
        let by_misses = seen.miss_rate.map(|rate| 1.0 / (1.0 + MISS * rate));
        if let Some(speed) = if self.paced { seen.pace } else { by_misses } {
            self.speed = speed / *self.usual.get_or_insert(speed.max(f64::MIN_POSITIVE));
        }
        self.instructions += ns * self.speed;
        self.misses += time.as_secs_f64() * seen.fills.unwrap_or(UNKNOWN_PER_US * 1e6);
        self.pass()
    }

    /// The pages that are going to be confined by the profile that was just made, if that is known.
    pub fn planned(&self) -> Option<HashSet<Vpn>> {
        self.rocs.planned().map(|pages| pages.iter().map(|page| page.page).collect())
    }

    /// Leaves the process alone for now if what is planned is not worth it: why.
    pub fn weigh(&mut self, offer: Offer) -> Option<String> {
        let (gain, ran) = (SAVED * offer.saved, offer.ran.as_secs_f64());
        let cost = offer.pages as f64 * self.per_page * SLOWED;
        let percent = gain * 100.0;
        let why = if gain < LEAST_GAIN {
            format!("what could be kept in the cache costs it {percent:.1} % of its time")
        } else if gain * ran.max(RUNS) < cost {
            let pages = offer.pages;
            format!("moving {pages} pages would take {cost:.1} s from it to save {percent:.0} %")
        } else {
            return None;
        };
        // In nanoseconds, as all times of the policy.
        self.rocs.postpone(number(ran.max(AGAIN) * 1e9));
        Some(why)
    }

    /// The processor counted so much.
    pub fn counted(&mut self, counts: Counts) -> Wants {
        self.cycles += counts.cycles;
        self.instructions += counts.instructions;
        self.misses += counts.misses;
        self.pass()
    }

    /// Tells what time it is.
    fn pass(&mut self) -> Wants {
        let misses = number(self.misses);
        self.misses -= misses as f64;
        let (cycles, instructions) = (number(self.cycles), number(self.instructions));
        self.tell([Event::MissOverflow { misses }, Event::Progress { cycles, instructions }])
    }

    /// The profile that was wanted. `pages` gives the resident pages of a segment.
    pub fn profile(
        &mut self,
        segments: &[Segment],
        errors: Errors,
        pages: impl Fn(&Segment) -> Vec<Vpn>,
    ) -> Wants {
        let mut actions = Vec::new();
        for page in segments.iter().flat_map(&pages) {
            let color = Some(self.color_of(page));
            self.rocs.handle(Event::Placed { page, color }, &mut actions);
        }
        profile::tell(segments, errors, pages, |event| self.rocs.handle(event, &mut actions));
        self.take(actions)
    }

    /// Requests to the cache that were sampled, and whether each missed.
    pub fn sampled(&mut self, requests: impl IntoIterator<Item = (Vpn, bool)>) -> Wants {
        let mut actions = Vec::new();
        for (page, memory) in requests {
            if self.placed.insert(page) {
                let color = Some(self.color_of(page));
                self.rocs.handle(Event::Placed { page, color }, &mut actions);
            }
            self.rocs.handle(Event::Sample { page, missed: 1, memory }, &mut actions);
        }
        self.take(actions)
    }

    /// There will be no more samples of this profile.
    pub fn sampled_all(&mut self) -> Wants {
        self.tell([Event::AccessedOver])
    }

    /// Whether the policy takes samples.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// What was wished was done; or it could not be.
    pub fn answered(&mut self, done: bool) -> Wants {
        let asked = std::mem::take(&mut self.asked);
        if !done {
            asked.iter().for_each(|page| _ = self.confined.remove(page));
        }
        self.tell(asked.into_iter().map(|page| match done {
            true => Event::Moved { page },
            false => Event::Refused { page, why: Refusal::Other },
        }))
    }

    /// The pages to confine, as ranges of addresses. Gaps between them are not in memory, or stay where
    /// they are.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for page in &self.confined {
            let start = page.0 * PAGE_BYTES;
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 += PAGE_BYTES,
                _ => ranges.push((start, start + PAGE_BYTES)),
            }
        }
        ranges
    }

    pub fn confines(&self, page: Vpn) -> bool {
        self.confined.contains(&page)
    }

    /// Whether every change is to be seen soon; while nothing happens, looking less often will do.
    pub fn is_measuring(&self) -> bool {
        matches!(self.rocs.stage(), Stage::Baseline | Stage::Trying)
    }

    /// Whether what is confined is looked at again.
    pub fn is_reviewing(&self) -> bool {
        self.rocs.stage() == Stage::Reviewing
    }

    /// Whether a profile is being made, or a mapping tried.
    pub fn is_curious(&self) -> bool {
        self.is_measuring() || matches!(self.rocs.stage(), Stage::Profiling | Stage::Reviewing)
    }

    /// The words for what the policy is doing.
    pub fn stage(&self) -> &'static str {
        match self.rocs.stage() {
            Stage::Waiting => "left alone",
            Stage::Profiling => "making a profile",
            Stage::Baseline => "measuring it as it was",
            Stage::Trying => "trying",
            Stage::Steady if self.confined.is_empty() => "nothing is gained by confining",
            Stage::Steady => "confined",
            Stage::Reviewing => "reviewing",
        }
    }

    /// Nobody knows the colours of pages outside the buffer; the policy takes them as spread.
    fn color_of(&self, page: Vpn) -> Color {
        let first = self.buffer.first_color().unwrap_or(Color(0));
        if self.confined.contains(&page) || self.outside.is_empty() {
            return first;
        }
        let at = usize::try_from(page.0 % self.outside.len() as u64).unwrap_or(0);
        self.outside[at]
    }

    fn tell(&mut self, events: impl IntoIterator<Item = Event>) -> Wants {
        let mut actions = Vec::new();
        events.into_iter().for_each(|event| self.rocs.handle(event, &mut actions));
        self.take(actions)
    }

    fn take(&mut self, actions: Vec<Action>) -> Wants {
        let mut wants = Wants::default();
        let mut elsewhere = Vec::new();
        for action in actions {
            match action {
                Action::TellSamples(on) => {
                    (wants.profile, self.listens) = (on, on);
                    self.placed.clear();
                }
                Action::Recolour { page, to } if self.buffer.contains(to) => {
                    wants.moves |= self.confined.insert(page);
                    self.asked.push(page);
                }
                Action::Recolour { page, .. } if self.confined.remove(&page) => {
                    wants.moves = true;
                    self.asked.push(page);
                }
                // From one colour outside to another: such pages stay where they are.
                Action::Recolour { page, .. } => elsewhere.push(Event::Moved { page }),
                _ => {}
            }
        }
        if !elsewhere.is_empty() {
            let more = self.tell(elsewhere);
            wants.profile |= more.profile;
            wants.moves |= more.moves;
        }
        wants
    }
}

/// Pages that are looked at for each of the buffer's colours.
fn candidates(buffer: &ColorSet) -> f64 {
    f64::from(buffer.universe()) / f64::from(buffer.len().max(1))
}

fn number(amount: f64) -> u64 {
    // Saturates; none of them is below zero.
    amount as u64
}
