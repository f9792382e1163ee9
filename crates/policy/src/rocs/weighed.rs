//! ROCS for programs that run: estimates and counts become the events that [`Rocs`] knows, and its requests
//! the set of pages that is to be in the buffer. Whether that is worth it is weighed first, as moving pages
//! costs a running program what the paper's machine gives for next to nothing.
//!
//! With counters, cycles and instructions of the policy are the processor's. Where no counter tells how
//! fast a program is, it is as fast as it passes through the memory that may be confined; where that is
//! not known either, as its requests to the cache are taken to be answered: a miss takes some times as
//! long as a hit. Time of the policy is then CPU time of the process in nanoseconds ("cycles"), and what
//! the process would have taken for the same work as it was at first ("instructions").
//!
//! Nobody knows how long a program runs on; one that has run for so long is taken to run as long again, and
//! is let wait until that repays being moved.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};

use super::{Rocs, RocsSettings, SearchMethod, Stage};
use crate::event::{Action, Event, MoveRefusal, Policy};
use crate::residency::{Errors, Segment, profile};

/// Parameters beyond ROCS's own. Times are in seconds of CPU time of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct WeighedSettings {
    /// ROCS's own.
    pub rocs: RocsSettings,
    /// What a miss takes more than a hit, in times of a hit: a last level answers after four to six
    /// times what a private one takes, on machines of ten years.
    pub miss: f64,
    /// Lines brought in in a second that are assumed before any is known: a profile will tell.
    pub unknown_fills: f64,
    /// Seconds that a miss costs which the last level answers: some fifty nanoseconds, in half of which a
    /// processor does something else. A hash join that gains a sixth has misses for 8 % of its time by
    /// this.
    pub saved: f64,
    /// The least share of its time that a process has to gain for anything to be tried.
    pub least_gain: f64,
    /// Seconds of work for each page that is moved, and for each that is looked at for its colour.
    pub work: MoveCosts,
    /// The part of that work by which the program is slowed down: it runs on another processor, and
    /// shares the memory.
    pub slowed: f64,
    /// Seconds that any program is taken to run on for.
    pub runs: f64,
    /// Seconds at least before a program that was left alone is looked at again.
    pub again: f64,
}

/// Seconds of work for a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveCosts {
    /// To move one.
    pub page: f64,
    /// To look at one for its colour.
    pub look: f64,
}

impl MoveCosts {
    /// Where colours follow from the numbers of frames, and where they are measured.
    pub const fn usual(measured: bool) -> MoveCosts {
        MoveCosts { page: 15e-6, look: if measured { 10e-6 } else { 0.5e-6 } }
    }
}

/// Lines brought in per microsecond of CPU time, below which a process is left alone: with some 20 ns for
/// a miss, what could be gained is one part in a hundred.
const LEAST_PER_US: f64 = 0.5;
/// Intervals between looks for pages that should leave the buffer.
const REVIEW: u32 = 8;

impl WeighedSettings {
    /// Lines brought in in a second of CPU time, below which a process is left alone.
    pub const LITTLE: f64 = LEAST_PER_US * 1e6;
    /// What looking may take, in times of the share of a CPU that is allowed: little while nothing happens, and
    /// more for a second or two when something is found out.
    pub const EFFORT: [f64; 2] = [0.2, 3.0];
    /// Memory with less of its lines than this in the cache passes by, where no plan says what does; 0 to 1.
    pub const PASSING: f64 = 0.5;

    /// For estimates of how often the process misses; `measured`: colours are. A program is to be placed
    /// within some seconds, and estimates are less sure than counters.
    pub fn estimated(buffer: ColorSet, method: SearchMethod, measured: bool) -> WeighedSettings {
        WeighedSettings::new(
            measured,
            RocsSettings {
                start: 300_000_000,
                interval: 1_000_000_000,
                samples: u64::MAX,
                trial: 300_000_000,
                settle: 60_000_000,
                margin: 0.03,
                change: 0.25,
                least_mpki: LEAST_PER_US,
                ..live(buffer, method)
            },
        )
    }

    /// For counted instructions, cycles and misses: by what ROCS says, but for a trial, which has to last
    /// while a million lines come in. Counters are sure; what a program does varies.
    pub fn counted(buffer: ColorSet, method: SearchMethod, measured: bool) -> WeighedSettings {
        WeighedSettings::new(
            measured,
            RocsSettings {
                start: 600_000_000,
                interval: 1_000_000_000,
                samples: 100_000,
                trial: 400_000_000,
                settle: 100_000_000,
                margin: 0.02,
                ..live(buffer, method)
            },
        )
    }

    fn new(measured: bool, rocs: RocsSettings) -> WeighedSettings {
        WeighedSettings {
            rocs,
            miss: 4.0,
            unknown_fills: 1e6,
            saved: 25e-9,
            least_gain: 0.04,
            work: MoveCosts::usual(measured),
            slowed: 0.4,
            runs: 10.0,
            again: 8.0,
        }
    }
}

/// What both have in common.
fn live(buffer: ColorSet, method: SearchMethod) -> RocsSettings {
    RocsSettings {
        method,
        least_mpki: 2.0,
        least_miss_rate: 0.0,
        prefetch_off: false,
        review: Some(REVIEW),
        ..RocsSettings::paper(buffer)
    }
}

/// What a processor counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Cycles.
    pub cycles: f64,
    /// Instructions.
    pub instructions: f64,
    /// Misses.
    pub misses: f64,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfinementStep {
    /// A profile is wanted.
    pub profile: bool,
    /// The set of pages to confine has changed.
    pub moves: bool,
}

/// What was seen of a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct StretchSeen {
    /// Pages that it passed through in a second of CPU time.
    pub pace: Option<f64>,
    /// Share of its requests that missed.
    pub miss_rate: Option<f64>,
    /// Lines that it brought in in a second of CPU time.
    pub fills: Option<f64>,
}

/// What moving pages may bring and will cost.
#[derive(Clone, Copy, Debug)]
pub struct MoveEstimate {
    /// Misses in a second of CPU time that more room could save.
    pub saved: f64,
    /// Pages to be moved.
    pub pages: usize,
    /// How long it has run.
    pub ran: Duration,
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct Weighed {
    settings: WeighedSettings,
    /// The policy inside.
    pub rocs: Rocs,
    buffer: ColorSet,
    outside: Vec<Color>,
    confined: BTreeSet<Vpn>,
    /// Pages that were asked for since the last answer.
    asked: Vec<Vpn>,
    /// Pages of the profile that the policy knows the places of.
    placed: HashSet<Vpn>,
    /// Those of them that were told with the colour that they have.
    known: HashSet<Vpn>,
    /// Pages outside the buffer, or in it by chance, that are to have other colours outside, each with its own.
    elsewhere: Vec<(Vpn, Color)>,
    /// Whether the policy takes samples.
    pub listens: bool,
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

impl Weighed {
    /// Nothing seen yet.
    pub fn new(settings: WeighedSettings) -> Weighed {
        let buffer = settings.rocs.buffer.clone();
        Weighed {
            rocs: Rocs::new(settings.rocs.clone()),
            outside: buffer.complement().iter().collect(),
            confined: BTreeSet::new(),
            asked: Vec::new(),
            placed: HashSet::new(),
            known: HashSet::new(),
            elsewhere: Vec::new(),
            listens: false,
            cycles: 0.0,
            instructions: 0.0,
            misses: 0.0,
            usual: None,
            speed: 1.0,
            paced: false,
            per_page: settings.work.page + settings.work.look * candidates(&buffer),
            buffer,
            settings,
        }
    }

    /// From now on its pace tells how fast it is, or what is known of its misses.
    pub fn go_by_pace(&mut self, paced: bool) {
        (self.usual, self.speed, self.paced) = (None, 1.0, paced);
    }

    /// The process ran for so long, and this was seen of it.
    pub fn ran(&mut self, time: Duration, seen: StretchSeen) -> ConfinementStep {
        let ns = time.as_secs_f64() * 1e9;
        self.cycles += ns;
        let by_misses = seen.miss_rate.map(|rate| 1.0 / (1.0 + self.settings.miss * rate));
        if let Some(speed) = if self.paced { seen.pace } else { by_misses } {
            self.speed = speed / *self.usual.get_or_insert(speed.max(f64::MIN_POSITIVE));
        }
        self.instructions += ns * self.speed;
        self.misses += time.as_secs_f64() * seen.fills.unwrap_or(self.settings.unknown_fills);
        self.pass()
    }

    /// The pages that are going to be confined by the profile that was just made, if that is known.
    pub fn planned(&self) -> Option<HashSet<Vpn>> {
        self.rocs.planned().map(|pages| pages.iter().map(|page| page.page).collect())
    }

    /// Leaves the process alone for now if what is planned is not worth it: why.
    pub fn weigh(&mut self, estimate: MoveEstimate) -> Option<String> {
        let (gain, ran) = (self.settings.saved * estimate.saved, estimate.ran.as_secs_f64());
        let cost = estimate.pages as f64 * self.per_page * self.settings.slowed;
        let percent = gain * 100.0;
        let why = if gain < self.settings.least_gain {
            format!("what could be kept in the cache costs it {percent:.1} % of its time")
        } else if gain * ran.max(self.settings.runs) < cost {
            let pages = estimate.pages;
            format!("moving {pages} pages would take {cost:.1} s from it to save {percent:.0} %")
        } else {
            return None;
        };
        // In nanoseconds, as all times of the policy.
        self.rocs.postpone(number(ran.max(self.settings.again) * 1e9));
        Some(why)
    }

    /// The processor counted so much.
    pub fn counted(&mut self, counts: Counted) -> ConfinementStep {
        self.cycles += counts.cycles;
        self.instructions += counts.instructions;
        self.misses += counts.misses;
        self.pass()
    }

    /// Tells what time it is.
    fn pass(&mut self) -> ConfinementStep {
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
    ) -> ConfinementStep {
        let mut actions = Vec::new();
        for page in segments.iter().flat_map(&pages) {
            let color = Some(self.color_of(page));
            self.rocs.handle(Event::Placed { page, color }, &mut actions);
        }
        profile::tell(segments, errors, pages, |event| self.rocs.handle(event, &mut actions));
        self.take(actions)
    }

    /// Requests to the cache that were sampled, and whether each missed. `color` tells the colour that a page has,
    /// where that can be told, and the page moved if that is wanted, whether it is to be confined or not.
    pub fn sampled(
        &mut self,
        requests: impl IntoIterator<Item = (Vpn, bool)>,
        mut color: impl FnMut(Vpn) -> Option<Color>,
    ) -> ConfinementStep {
        let mut actions = Vec::new();
        for (page, memory) in requests {
            if self.placed.insert(page) {
                let known = color(page);
                if known.is_some() {
                    self.known.insert(page)
                } else {
                    self.known.remove(&page)
                };
                let color = known.or_else(|| Some(self.color_of(page)));
                self.rocs.handle(Event::Placed { page, color }, &mut actions);
            }
            self.rocs.handle(Event::Sample { page, missed: 1, memory }, &mut actions);
        }
        self.take(actions)
    }

    /// There will be no more samples of this profile.
    pub fn sampled_all(&mut self) -> ConfinementStep {
        self.tell([Event::AccessedOver])
    }

    /// What was wished was done; or it could not be.
    pub fn answered(&mut self, done: bool) -> ConfinementStep {
        let asked = std::mem::take(&mut self.asked);
        if !done {
            asked.iter().for_each(|page| _ = self.confined.remove(page));
        }
        self.tell(asked.into_iter().map(|page| match done {
            true => Event::Moved { page },
            false => Event::Refused { page, why: MoveRefusal::Other },
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

    /// Pages that are not confined and are to have these colours, told once: those that stay are to use the rest of
    /// the cache alike.
    pub fn take_elsewhere(&mut self) -> Vec<(Vpn, Color)> {
        std::mem::take(&mut self.elsewhere)
    }

    /// Whether a page is to be in the buffer.
    pub fn confines(&self, page: Vpn) -> bool {
        self.confined.contains(&page)
    }

    /// Whether every change is to be seen soon; while nothing happens, looking less often will do.
    pub fn is_measuring(&self) -> bool {
        matches!(self.rocs.stage, Stage::Baseline | Stage::Trying)
    }

    /// Whether what is confined is looked at again.
    pub fn is_reviewing(&self) -> bool {
        self.rocs.stage == Stage::Reviewing
    }

    /// Whether a profile is being made, or a mapping tried.
    pub fn is_curious(&self) -> bool {
        self.is_measuring() || matches!(self.rocs.stage, Stage::Profiling | Stage::Reviewing)
    }

    /// The words for what the policy is doing.
    pub fn stage(&self) -> &'static str {
        match self.rocs.stage {
            Stage::Waiting => "left alone",
            Stage::Profiling => "making a profile",
            Stage::Baseline => "measuring it as it was",
            Stage::Trying => "trying",
            Stage::Steady if self.confined.is_empty() => "nothing is gained by confining",
            Stage::Steady => "confined",
            Stage::Reviewing => "reviewing",
        }
    }

    /// The policy takes pages outside the buffer of which nobody knows the colours as spread.
    fn color_of(&self, page: Vpn) -> Color {
        let first = self.buffer.first_color().unwrap_or(Color(0));
        if self.confined.contains(&page) || self.outside.is_empty() {
            return first;
        }
        let at = usize::try_from(page.0 % self.outside.len() as u64).unwrap_or(0);
        self.outside[at]
    }

    fn tell(&mut self, events: impl IntoIterator<Item = Event>) -> ConfinementStep {
        let mut actions = Vec::new();
        events.into_iter().for_each(|event| self.rocs.handle(event, &mut actions));
        self.take(actions)
    }

    fn take(&mut self, actions: Vec<Action>) -> ConfinementStep {
        let mut wants = ConfinementStep::default();
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
                Action::Recolour { page, to } if self.known.contains(&page) => {
                    wants.moves = true;
                    self.elsewhere.push((page, to));
                    self.asked.push(page);
                }
                // Such pages stay where they are, wherever that is.
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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
const fn number(amount: f64) -> u64 {
    amount as u64
}
