//! ROCS (2008): pages that pollute the cache are found by sampling and confined to a *pollute
//! buffer*, a sixteenth of the cache. Samples of loads that missed the nearest cache give each page
//! a miss rate ([`profile`]); the pages are ordered by it, and [`search`] tries how many from the
//! top to confine ([`buffer`]), judged by instructions per cycle. When that changes later, the
//! program has come to another phase, and all of it is done again.
//!
//! Not of the paper: [`model`] works the number out from the profile, so that one trial is enough;
//! pages that are reused even within the buffer leave it; and phases that are too short to repay
//! a search are left alone, for twice as long each time.
//!
//! Needs samples, the time with instructions, overflows of a counter of misses, and to hear where
//! pages are; asks for samples and for the prefetchers to be off only while it makes a profile.
//! Costs constant time per event; a profile's end n log n for its n pages; memory an entry per
//! page that it was told of.

pub mod buffer;
pub mod model;
pub mod offline;
pub mod profile;
pub mod search;
pub mod weighed;

use huepage_color::{ColorSet, Vpn};

use self::buffer::PolluteBuffer;
use self::profile::{MissProfile, PageRate};
use self::search::Search;
use crate::backoff::Doubling;
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// How the number of pages to confine is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variant says what the field is")]
pub enum SearchMethod {
    /// By trying (ROCS 2008, algorithm 1).
    Search,
    /// From the profile, and one trial (not of the paper). `ways`: lines per set of the cache; so
    /// many pages of a colour fit.
    Model { ways: u16 },
}

/// Parameters. Lengths are in instructions, not in cycles as in the paper, so that every mapping is
/// judged by the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct RocsSettings {
    /// The colours of the pollute buffer (section 6: 1/16 of the cache).
    pub buffer: ColorSet,
    /// How pages are chosen.
    pub method: SearchMethod,
    /// Before the first profile (section 6.2: 4 x 10^9 cycles).
    pub start: u64,
    /// Between looks at the phase (section 5.1: 10^9 cycles).
    pub interval: u64,
    /// Samples in a profile; the paper says only that it takes a short time. A sensor that gives whole
    /// profiles says where one ends instead ([`Event::AccessedOver`]).
    pub samples: u64,
    /// A trial: the time in which a mapping is judged (section 5.2: a search takes 3 x 10^9 cycles
    /// on average, with steps of a size not given).
    pub trial: u64,
    /// Before a trial, while the caches fill again.
    pub settle: u64,
    /// The step is the pages of the stack divided by this.
    pub steps: usize,
    /// A mapping is kept if its instructions per cycle are above those without one by this share.
    pub margin: f64,
    /// Another phase has begun when instructions per cycle have changed by this share.
    pub change: f64,
    /// Only programs with so many misses per thousand instructions are profiled (not of the paper, 0
    /// there): where a sensor costs too much to ask it for a miss rate.
    pub least_mpki: f64,
    /// Only programs of which this share of requests misses are profiled, 0 to 1 (section 5.1, and
    /// section 6: table 2 has those above 25 %). Seen in the first samples of a profile.
    pub least_miss_rate: f64,
    /// The prefetchers are off during a profile (section 3.2.3).
    pub prefetch_off: bool,
    /// Where the model sees nothing to gain, it tries the pages that have no hits to lose (not of the paper):
    /// it does not see what page tables gain.
    pub try_without_hits: bool,
    /// Intervals between looks for pages that should leave the buffer; none: they stay until the
    /// phase changes, as in the paper.
    pub review: Option<u32>,
}

impl RocsSettings {
    /// The paper's, with a billion cycles taken for 300 million instructions: table 2 has 0.05 to
    /// 0.70 of them per cycle.
    pub fn paper(buffer: ColorSet) -> RocsSettings {
        RocsSettings {
            buffer,
            method: SearchMethod::Search,
            start: 1_200_000_000,
            interval: 300_000_000,
            samples: 200_000,
            trial: 50_000_000,
            settle: 6_000_000,
            steps: 16,
            margin: 0.01,
            change: 0.2,
            least_mpki: 0.0,
            least_miss_rate: 0.25,
            prefetch_off: true,
            try_without_hits: false,
            review: None,
        }
    }
}

/// Cycles, instructions and misses up to a time.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    cycles: u64,
    instructions: u64,
    misses: u64,
}

impl Time {
    fn ipc_since(self, start: Time) -> f64 {
        let cycles = self.cycles.saturating_sub(start.cycles).max(1);
        self.instructions.saturating_sub(start.instructions) as f64 / cycles as f64
    }

    fn mpki_since(self, start: Time) -> f64 {
        let instructions = self.instructions.saturating_sub(start.instructions).max(1);
        1000.0 * self.misses.saturating_sub(start.misses) as f64 / instructions as f64
    }
}

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing: too early, too few misses, or phases too short.
    Waiting,
    /// Taking samples.
    Profiling,
    /// Measuring the program as it was.
    Baseline,
    /// Trying mappings.
    Trying,
    /// A mapping was chosen; watching the phase.
    Steady,
    /// The same, with samples of the pages in the buffer.
    Reviewing,
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct Rocs {
    settings: RocsSettings,
    buffer: PolluteBuffer,
    profile: MissProfile,
    /// The pages of the latest profile in the order in which they are confined: by miss rate, the
    /// highest first; for the model by use, the least first, but where it sees nothing to gain.
    pub stack: Vec<PageRate>,
    /// How many of them the model would confine.
    modelled: usize,
    search: Option<Search>,
    /// What it is doing.
    pub stage: Stage,
    now: Time,
    /// Where the measurement under way begins.
    since: Time,
    /// When the stage goes on, in instructions.
    until: u64,
    /// Instructions per cycle of the phase; none before its first interval.
    expected: Option<f64>,
    /// Intervals in this phase.
    intervals: u32,
    /// Intervals to wait after phases that were too short.
    hold: Doubling,
    /// When the latest profile began, in instructions.
    began: u64,
    /// Enough of its first samples missed.
    worthwhile: bool,
    /// Mappings tried so far.
    pub trials: u32,
    /// Profiles made so far.
    pub profiles: u32,
    /// How many pages from the top of the stack were chosen last.
    pub confined: usize,
    /// Pages that left the buffer because they are reused even there.
    pub left: u64,
    listens: bool,
}

impl Rocs {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[
        InputKind::Faults,
        InputKind::Loads,
        InputKind::CacheMisses,
        InputKind::Cycles,
        InputKind::Instructions,
    ];

    /// With these settings.
    pub fn new(settings: RocsSettings) -> Rocs {
        Rocs {
            buffer: PolluteBuffer::new(settings.buffer.clone()),
            until: settings.start,
            settings,
            profile: MissProfile::default(),
            stack: Vec::new(),
            modelled: 0,
            search: None,
            stage: Stage::Waiting,
            now: Time::default(),
            since: Time::default(),
            expected: None,
            intervals: 0,
            hold: Doubling::new(1, MOST_HELD),
            began: 0,
            worthwhile: false,
            trials: 0,
            profiles: 0,
            confined: 0,
            left: 0,
            listens: true,
        }
    }

    /// The pages that the model would confine by the profile that was just made; `None` at any other
    /// time, and where only trying tells.
    pub fn planned(&self) -> Option<&[PageRate]> {
        let by_model = matches!(self.settings.method, SearchMethod::Model { .. });
        (by_model && self.stage == Stage::Baseline).then(|| &self.stack[..self.modelled])
    }

    /// Instead of trying what was planned, the program is left alone for so many instructions and then
    /// profiled again (not of the paper, which moves pages for next to nothing). Does nothing but
    /// between a profile and its first trial.
    pub fn postpone(&mut self, instructions: u64) {
        if self.stage == Stage::Baseline {
            self.wait(instructions);
        }
    }

    /// Orders the pages of the profile, and asks the model how many of them to confine.
    fn order(&mut self) {
        let SearchMethod::Model { ways } = self.settings.method else {
            self.stack = self.profile.stack();
            return;
        };
        let (inside, all) = (self.settings.buffer.len(), self.settings.buffer.universe());
        let cache = u64::from(all) * u64::from(ways);
        let kept = u64::from(all - inside) * u64::from(ways.saturating_sub(SPARE));
        self.stack = self.profile.by_use();
        self.modelled = model::pages_to_confine(&self.stack, cache, kept);
        if self.settings.try_without_hits && self.modelled == 0 && self.stack.len() as u64 > kept {
            self.stack = self.profile.stack();
            self.modelled = model::pages_without_hits(&self.stack, self.settings.margin);
        }
    }

    /// Pages whose frames have the buffer's colours.
    pub fn in_buffer(&self) -> impl Iterator<Item = Vpn> + '_ {
        self.buffer.pages()
    }

    fn listen(&mut self, on: bool, actions: &mut Vec<Action>) {
        if self.listens != on {
            self.listens = on;
            actions.push(Action::TellSamples(on));
        }
    }

    /// Time has passed: what is due happens.
    fn pass(&mut self, actions: &mut Vec<Action>) {
        if self.stage == Stage::Waiting {
            self.listen(false, actions);
        }
        if self.now.instructions < self.until {
            return;
        }
        match self.stage {
            Stage::Waiting => self.consider(actions),
            Stage::Profiling | Stage::Reviewing => self.give_up_waiting(actions),
            Stage::Baseline => self.begin_search(actions),
            Stage::Trying => self.judge(actions),
            Stage::Steady => self.watch_phase(actions),
        }
    }

    /// A measurement of so many instructions begins after a while.
    fn measure(&mut self, length: u64) {
        let from = self.now.instructions + self.settings.settle;
        self.until = from + length;
        self.since = Time { instructions: from, cycles: u64::MAX, misses: self.now.misses };
    }

    /// The first event after caches have settled is where a measurement begins.
    fn settle(&mut self) {
        if self.since.cycles == u64::MAX && self.now.instructions >= self.since.instructions {
            self.until += self.now.instructions - self.since.instructions;
            self.since = self.now;
        }
    }

    /// Whether it is worth while to profile this program now.
    fn consider(&mut self, actions: &mut Vec<Action>) {
        if self.now.mpki_since(self.since) >= self.settings.least_mpki {
            return self.begin_profile(Stage::Profiling, actions);
        }
        self.wait(self.settings.interval);
    }

    fn wait(&mut self, instructions: u64) {
        self.stage = Stage::Waiting;
        self.since = self.now;
        self.until = self.now.instructions + instructions;
    }

    fn begin_profile(&mut self, stage: Stage, actions: &mut Vec<Action>) {
        if stage == Stage::Profiling {
            self.began = self.now.instructions;
            self.profiles += 1;
        }
        if self.settings.prefetch_off {
            actions.push(Action::Prefetch(false));
        }
        self.stage = stage;
        self.worthwhile = stage == Stage::Reviewing;
        self.profile.clear();
        // A program that hardly misses any more gives no samples.
        self.until = self.now.instructions + 4 * self.settings.interval;
        self.listen(true, actions);
    }

    fn sampled(&mut self, page: Vpn, samples: u64, missed: u64, actions: &mut Vec<Action>) {
        if !matches!(self.stage, Stage::Profiling | Stage::Reviewing) {
            return self.listen(false, actions);
        }
        self.profile.add(page, samples, missed);
        if !self.worthwhile && self.profile.samples >= GLANCE.min(self.settings.samples) {
            self.worthwhile = true;
            if self.profile.miss_rate() < self.settings.least_miss_rate {
                self.profiles -= 1;
                self.stop_sampling(actions);
                return self.wait(self.settings.interval);
            }
        }
        let review = self.stage == Stage::Reviewing;
        let wanted = self.settings.samples / if review { REVIEWED } else { 1 };
        if self.profile.samples >= wanted {
            if review { self.end_review(actions) } else { self.end_profile(actions) }
        }
    }

    fn end_profile(&mut self, actions: &mut Vec<Action>) {
        self.stop_sampling(actions);
        self.order();
        self.confined = 0;
        self.stage = Stage::Baseline;
        self.measure(self.settings.trial);
    }

    fn stop_sampling(&mut self, actions: &mut Vec<Action>) {
        self.listen(false, actions);
        if self.settings.prefetch_off {
            actions.push(Action::Prefetch(true));
        }
    }

    /// Samples do not come.
    fn give_up_waiting(&mut self, actions: &mut Vec<Action>) {
        let review = self.stage == Stage::Reviewing;
        self.stop_sampling(actions);
        if review { self.rest_steady() } else { self.wait(self.settings.interval) }
    }

    /// The program was measured as it was.
    fn begin_search(&mut self, actions: &mut Vec<Action>) {
        let bar = self.now.ipc_since(self.since) * (1.0 + self.settings.margin);
        let size = self.stack.len();
        let (step, least) = match self.settings.method {
            SearchMethod::Search => {
                let step = size.div_ceil(self.settings.steps.max(1)).max(1);
                (step, step)
            }
            SearchMethod::Model { .. } => {
                // One step and no more; none if nothing is gained.
                (self.modelled.max(1), if self.modelled == 0 { size } else { size - 1 })
            }
        };
        self.search = Some(Search::new(size, step, least.min(size), bar));
        self.stage = Stage::Trying;
        self.try_next(actions);
    }

    fn try_next(&mut self, actions: &mut Vec<Action>) {
        let Some(range) = self.search.as_mut().and_then(Search::more) else {
            return self.end_search(actions);
        };
        if range.start == 0 {
            self.clear_buffer(range.end, actions);
        }
        self.trials += 1;
        for at in range.clone() {
            self.buffer.confine(self.stack[at].page, actions);
        }
        if let SearchMethod::Model { ways } = self.settings.method {
            let kept: Vec<Vpn> = self.stack[range.end..].iter().map(|page| page.page).collect();
            let room = usize::from(ways.saturating_sub(SPARE));
            if kept.len() <= room * usize::from(self.settings.buffer.complement().len()) {
                self.buffer.spread(&kept, room, actions);
            }
        }
        self.measure(self.settings.trial);
    }

    /// Pages that are in the buffer's colours by chance leave it, but for those to be confined now.
    fn clear_buffer(&mut self, confined: usize, actions: &mut Vec<Action>) {
        let rest: Vec<Vpn> = self.stack[confined..].iter().map(|page| page.page).collect();
        rest.into_iter().for_each(|page| self.buffer.release(page, actions));
    }

    fn judge(&mut self, actions: &mut Vec<Action>) {
        let ipc = self.now.ipc_since(self.since);
        if let Some(search) = &mut self.search {
            search.judge(ipc);
        }
        self.try_next(actions);
    }

    /// What is confined in excess goes back (algorithm 1); everything if no mapping was better.
    fn end_search(&mut self, actions: &mut Vec<Action>) {
        let Some(search) = self.search.take() else { return };
        self.confined = search.chosen;
        if self.confined == 0 {
            self.buffer.undo(actions);
        } else {
            for at in search.excess() {
                self.buffer.release(self.stack[at].page, actions);
            }
        }
        self.rest_steady();
        (self.expected, self.intervals) = (None, 0);
    }

    fn rest_steady(&mut self) {
        self.stage = Stage::Steady;
        self.measure(self.settings.interval);
    }

    /// An interval of a phase is over (section 5.1).
    fn watch_phase(&mut self, actions: &mut Vec<Action>) {
        let ipc = self.now.ipc_since(self.since);
        self.intervals += 1;
        let expected = *self.expected.get_or_insert(ipc);
        if (ipc / expected - 1.0).abs() > self.settings.change {
            return self.end_phase(actions);
        }
        let review = self.settings.review.filter(|_| self.confined > 0);
        if review.is_some_and(|every| self.intervals.is_multiple_of(every.max(1))) {
            return self.begin_profile(Stage::Reviewing, actions);
        }
        self.rest_steady();
    }

    /// The pages of the buffer were sampled: those that hit there most of the time do not
    /// pollute any more.
    fn end_review(&mut self, actions: &mut Vec<Action>) {
        self.stop_sampling(actions);
        let reused = |page: &Vpn| {
            let rate = self.profile.rate(*page);
            rate.is_some_and(|rate| rate.accesses >= SURE && 2 * rate.misses < rate.accesses)
        };
        let mut leave: Vec<Vpn> = self.buffer.pages().filter(reused).collect();
        leave.sort_unstable();
        self.left += leave.len() as u64;
        leave.into_iter().for_each(|page| self.buffer.release(page, actions));
        self.rest_steady();
    }

    /// A phase that ended before its search was repaid is not searched the next time.
    fn end_phase(&mut self, actions: &mut Vec<Action>) {
        self.buffer.undo(actions);
        self.confined = 0;
        let spent = self.now.instructions - self.began;
        let steady = u64::from(self.intervals) * self.settings.interval;
        if spent.saturating_sub(steady) * REPAID > steady {
            let intervals = self.hold.take();
            self.wait(intervals * self.settings.interval);
        } else {
            self.hold.reset();
            self.begin_profile(Stage::Profiling, actions);
        }
    }
}

/// Lines per set that the model leaves for what it has no samples of, such as the page table: a
/// loop that fills its sets loses all hits to one line more.
const SPARE: u16 = 1;
/// Samples after which a program's miss rate is known well enough: to 1.5 points.
const GLANCE: u64 = 1_000;
/// A review takes this part of a profile's samples.
const REVIEWED: u64 = 4;
/// Samples of a page after which its miss rate is believed in a review.
const SURE: u64 = 4;
/// A phase has to last so many times as long as profile and search took.
const REPAID: u64 = 4;
/// Doublings at most of an interval without a profile after short phases: 64 intervals.
const MOST_HELD: u32 = 6;

impl Policy for Rocs {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.buffer.note(&event);
        match event {
            Event::Sample { page, missed, memory } if missed > 0 => {
                self.sampled(page, 1, u64::from(memory), actions);
            }
            Event::Profiled { page, requests, misses } => {
                self.sampled(page, requests, misses, actions);
            }
            Event::AccessedOver if self.profile.samples > 0 => match self.stage {
                Stage::Profiling => self.end_profile(actions),
                Stage::Reviewing => self.end_review(actions),
                _ => {}
            },
            Event::MissOverflow { misses } => self.now.misses += misses,
            Event::Progress { cycles, instructions } => {
                (self.now.cycles, self.now.instructions) = (cycles, instructions);
                self.settle();
                self.pass(actions);
            }
            _ => {}
        }
    }
}
