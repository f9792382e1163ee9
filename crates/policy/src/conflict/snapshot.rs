//! Snapshots of the working set (Romer 1998, section 4.2.3): the TLB is flushed, and the first
//! pages that miss are those in use. Snapshot moves one of the pages of a colour of which there
//! are more than fit; Snapshot-Delay only if they are so in a second snapshot too;
//! Snapshot-Miss counts its periods in cache misses instead of cycles, so that it rests where
//! nothing misses. Needs TLB misses, and the time or overflows of a miss counter; asks for
//! flushes. Takes misses for want of room for conflicts; [`super::fit`] does not.
//!
//! Beyond the thesis, and off unless asked for: more than one move after a snapshot, targets that
//! have room though pages of them are in use, nothing moved where the pages in use do not fit the
//! cache as a whole, a [`MoveBudget`], and samples ([`Event::Sample`]) in evidence that the pages of a
//! crowded colour are missed. That is what it takes on a cache of many ways, watched by a sensor
//! that sees all pages in use at once and estimates what misses.
//!
//! A TLB miss takes constant time outside snapshots and time in proportion to the pages of one
//! inside; the end of a snapshot is quadratic in its pages, and linear in them for each move.

use huepage_color::{Color, ColorSet, Vpn};

use super::CacheShape;
use super::budget::{BudgetSettings, MoveBudget};
use super::pages::PageColors;
use super::target::{Clues, TargetChoice, Targets};
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// What periods are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeriodClock {
    /// Cycles, as [`Event::Progress`] tells them.
    Cycles,
    /// Cache misses, as [`Event::MissOverflow`] tells them.
    Misses,
}

/// When snapshots are taken, in units of the clock. Events that tell the time have to come
/// several times in the shortest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Cycles or misses.
    pub clock: PeriodClock,
    /// From one first snapshot to the next: the most moves that there can be.
    pub period: u64,
    /// From the first snapshot to the second; none: one is enough.
    pub delay: Option<u64>,
    /// A snapshot ends after this time, or when it is full.
    pub length: u64,
    /// Pages in a snapshot (section 4.5.1: 16).
    pub pages: usize,
    /// Pages moved after a snapshot, at most; the thesis moves one.
    pub moves: usize,
    /// Where pages are moved. The thesis takes the colours in turn that no page in use has;
    /// [`TargetChoice::Emptiest`] takes those with fewest pages in use, as long as they have room.
    pub target: TargetChoice,
    /// Nothing is moved while more pages are in use than the cache holds, however they lie.
    pub fit: bool,
    /// Percent of the samples of a colour, 0 to 100, by which more have to come from memory than of
    /// those of colours with room, for it to conflict; 0: samples are not asked for.
    pub absent: u8,
    /// Ways that are left to what nobody told of, less than all: a colour that is crowded gives up
    /// so many pages more, and none is given so many less.
    pub slack: u16,
    /// Limits moves of pages that conflict again and again; none: the thesis's policy.
    pub budget: Option<BudgetSettings>,
}

/// How often rests of [`SnapshotSettings::IN_USE`] double: credits come too often there to bound moves in vain.
const RESTS_DOUBLE: u32 = 15;
/// Samples of a colour before they prove anything.
const LEAST_SAMPLES: u32 = 32;

impl SnapshotSettings {
    /// Snapshot: one in 2 x 10^6 cycles (table 4-5). The thesis calls its length short.
    pub const SNAPSHOT: SnapshotSettings = SnapshotSettings {
        clock: PeriodClock::Cycles,
        period: 2_000_000,
        delay: None,
        length: 200_000,
        pages: 16,
        moves: 1,
        target: TargetChoice::Sequential,
        fit: false,
        absent: 0,
        slack: 0,
        budget: None,
    };
    /// Snapshot-Delay: the second one after 200 x 10^3 cycles (table 4-5).
    pub const DELAY: SnapshotSettings =
        SnapshotSettings { delay: Some(200_000), ..SnapshotSettings::SNAPSHOT };
    /// Snapshot-Miss: one in 10 x 10^3 misses, the second one after 10^3 (table 4-5).
    pub const MISS: SnapshotSettings = SnapshotSettings {
        clock: PeriodClock::Misses,
        period: 10_000,
        delay: Some(1_000),
        length: 1_000,
        ..SnapshotSettings::SNAPSHOT
    };
    /// Beyond the thesis, for a sensor that sees all pages in use at once and looks whether lines of them
    /// are in the cache; a look that finds none is a miss. Slack and budget are for a cache of one way
    /// until [`Self::fitted`] fits them to another.
    pub const IN_USE: SnapshotSettings = SnapshotSettings {
        clock: PeriodClock::Misses,
        period: 1_000,
        delay: Some(200),
        length: 1,
        pages: usize::MAX,
        moves: 512,
        target: TargetChoice::Emptiest,
        fit: true,
        absent: 15,
        slack: 0,
        budget: Some(BudgetSettings {
            start: 2,
            most: 4,
            proof: 20_000,
            rest: 10_000,
            doublings: RESTS_DOUBLE,
            refill: 1_000,
        }),
    };

    /// For a cache of this shape: a quarter of its ways is left to text, stacks and the kernel, and as many
    /// moves as it has pages may be in vain, twice; times are in periods.
    #[must_use]
    pub fn fitted(self, shape: CacheShape) -> SnapshotSettings {
        /// The part of the ways that is left.
        const SLACK: u16 = 4;
        let pages = u32::try_from(shape.pages()).unwrap_or(u32::MAX);
        let budget = self.budget.map(|_| BudgetSettings {
            start: pages.saturating_mul(2),
            most: pages.saturating_mul(4),
            proof: 20 * self.period,
            rest: 10 * self.period,
            doublings: RESTS_DOUBLE,
            refill: self.period,
        });
        SnapshotSettings { slack: shape.ways / SLACK, budget, ..self }
    }
}

#[derive(Clone, Debug)]
enum Phase {
    Resting,
    First {
        until: u64,
    },
    /// Until the second snapshot; with the pages of the first.
    Waiting {
        until: u64,
        first: Vec<Vpn>,
    },
    Second {
        until: u64,
        first: Vec<Vpn>,
    },
}

/// The policies; see the [module](self).
#[derive(Clone, Debug)]
pub struct SnapshotMiss {
    shape: CacheShape,
    settings: SnapshotSettings,
    colors: PageColors,
    targets: Targets,
    phase: Phase,
    seen: Vec<Vpn>,
    now: u64,
    due: u64,
    budget: Option<MoveBudget>,
    /// By colour, since the first snapshot began: samples, and those of them from memory.
    samples: Vec<[u32; 2]>,
    /// Colours that are never targets.
    others: ColorSet,
}

impl SnapshotMiss {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::Cycles];
    /// The same where its clock counts misses.
    pub const NEEDS_OF_MISSES: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::CacheMisses];
    /// The same where samples are evidence.
    pub const NEEDS_IN_USE: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::CacheMisses, InputKind::Loads];

    /// Snapshot, with the thesis's parameters.
    pub fn plain(shape: CacheShape) -> SnapshotMiss {
        SnapshotMiss::new(shape, SnapshotSettings::SNAPSHOT)
    }

    /// Snapshot-Delay, with the thesis's parameters.
    pub fn delay(shape: CacheShape) -> SnapshotMiss {
        SnapshotMiss::new(shape, SnapshotSettings::DELAY)
    }

    /// Snapshot-Miss, with the thesis's parameters.
    pub fn miss(shape: CacheShape) -> SnapshotMiss {
        SnapshotMiss::new(shape, SnapshotSettings::MISS)
    }

    /// Any other.
    pub fn new(shape: CacheShape, settings: SnapshotSettings) -> SnapshotMiss {
        SnapshotMiss {
            shape,
            settings,
            colors: PageColors::default(),
            targets: Targets::new(settings.target, shape.colors, 0),
            phase: Phase::Resting,
            seen: Vec::new(),
            now: 0,
            due: settings.period,
            budget: settings.budget.map(MoveBudget::new),
            samples: vec![[0; 2]; usize::from(shape.colors)],
            others: ColorSet::empty(shape.colors),
        }
    }

    /// Never moves pages to these colours, which may be somebody else's.
    #[must_use]
    pub fn keeping_off(mut self, colors: ColorSet) -> SnapshotMiss {
        self.others = colors;
        self
    }

    /// The colour of a page, if the policy knows it.
    pub fn color(&self, page: Vpn) -> Option<Color> {
        self.colors.color(page)
    }

    /// Time has passed: what is due happens.
    fn pass(&mut self, actions: &mut Vec<Action>) {
        self.budget.iter_mut().for_each(|budget| budget.pass(self.now));
        match self.phase {
            Phase::Resting if self.now >= self.due => self.begin(actions),
            Phase::First { until } | Phase::Second { until, .. } if self.now >= until => {
                self.end(actions);
            }
            _ => {}
        }
        // The first may end where the second begins.
        if let Phase::Waiting { until, first } = &mut self.phase
            && self.now >= *until
        {
            let first = std::mem::take(first);
            self.flush(actions);
            self.phase = Phase::Second { until: self.now + self.settings.length, first };
        }
    }

    fn begin(&mut self, actions: &mut Vec<Action>) {
        self.due = self.now + self.settings.period;
        self.samples.fill([0; 2]);
        self.flush(actions);
        let length = self
            .settings
            .delay
            .map_or(self.settings.length, |delay| self.settings.length.min(delay));
        self.phase = Phase::First { until: self.now + length };
    }

    fn flush(&mut self, actions: &mut Vec<Action>) {
        self.seen.clear();
        actions.push(Action::FlushTlb);
    }

    /// A snapshot is over.
    fn end(&mut self, actions: &mut Vec<Action>) {
        let seen = std::mem::take(&mut self.seen);
        match (std::mem::replace(&mut self.phase, Phase::Resting), self.settings.delay) {
            (Phase::First { .. }, None) => self.resolve(&seen, &seen, actions),
            (Phase::First { .. }, Some(delay)) if self.crowded(&seen).is_some() => {
                let until = self.due - self.settings.period + delay;
                self.phase = Phase::Waiting { until, first: seen };
            }
            (Phase::Second { first, .. }, _) => {
                let both: Vec<Vpn> = seen.iter().copied().filter(|p| first.contains(p)).collect();
                self.resolve(&both, &seen, actions);
            }
            _ => {}
        }
    }

    /// A colour of which there are too many pages, and the page of it that came last.
    fn crowded(&self, pages: &[Vpn]) -> Option<(Vpn, Color)> {
        let counts = self.count(pages);
        let full = |color| self.is_full(&counts, color);
        let colored = pages.iter().filter_map(|&page| Some((page, self.colors.color(page)?)));
        { colored }.rfind(|&(_, color)| full(color))
    }

    /// How many of some pages each colour has.
    fn count(&self, pages: &[Vpn]) -> Vec<u64> {
        let mut counts = vec![0; usize::from(self.shape.colors)];
        for color in pages.iter().filter_map(|&page| self.colors.color(page)) {
            counts.get_mut(usize::from(color.0)).into_iter().for_each(|count| *count += 1);
        }
        counts
    }

    fn is_full(&self, counts: &[u64], color: Color) -> bool {
        counts.get(usize::from(color.0)).is_some_and(|&count| count > self.shape.room() as u64)
    }

    /// Moves pages of colours of which there are too many, those first that came last.
    fn resolve(&mut self, pages: &[Vpn], seen: &[Vpn], actions: &mut Vec<Action>) {
        if self.settings.fit && seen.len() as u64 > self.shape.pages() {
            return;
        }
        let (mut crowd, mut used) = (self.count(pages), self.count(seen));
        self.blame(pages, &crowd);
        let worth = self.worth(&crowd, &used);
        let room = self.filled();
        let mut left = self.settings.moves;
        for &page in pages.iter().rev() {
            let Some(from) = self.colors.color(page) else { continue };
            let at = usize::from(from.0);
            let leaves = worth.get(at).is_some_and(|&worth| worth) && crowd[at] > room;
            if left == 0 || !leaves || !self.may_move(page) {
                continue;
            }
            let avoid = self.avoid(from, &used);
            let clues = Clues { pages: &used, ..Clues::default() };
            let Some(to) = self.targets.pick(&avoid, clues) else { return };
            actions.push(self.colors.recolour(page, to));
            self.budget.iter_mut().for_each(|budget| budget.spend(page, 0));
            (crowd[at], used[at], left) = (crowd[at] - 1, used[at] - 1, left - 1);
            used[usize::from(to.0)] += 1;
        }
    }

    /// Pages that are in a conflict though they were moved out of one are held back.
    fn blame(&mut self, pages: &[Vpn], crowd: &[u64]) {
        let full = |&page: &Vpn| self.color(page).is_some_and(|color| self.is_full(crowd, color));
        let again: Vec<Vpn> = pages.iter().copied().filter(full).collect();
        let budget = self.budget.iter_mut();
        budget.for_each(|budget| again.iter().for_each(|&page| budget.again(page)));
    }

    fn may_move(&self, page: Vpn) -> bool {
        let Some(budget) = &self.budget else { return true };
        budget.allows(page) && !self.colors.is_asked(page)
    }

    /// Colours that are no targets for a page of one of them.
    fn avoid(&self, from: Color, used: &[u64]) -> ColorSet {
        let most = match self.settings.target {
            TargetChoice::Emptiest => self.filled(),
            _ => self.shape.room() as u64,
        };
        let mut avoid = self.others.clone();
        avoid.insert(from);
        for color in (0..self.shape.colors).filter(|&color| used[usize::from(color)] >= most) {
            avoid.insert(Color(color));
        }
        avoid
    }

    /// Pages of a colour after moves, at most.
    fn filled(&self) -> u64 {
        (self.shape.room() as u64).saturating_sub(self.settings.slack.into()).max(1)
    }

    /// By colour, whether it is crowded and misses because of that.
    fn worth(&self, crowd: &[u64], used: &[u64]) -> Vec<bool> {
        let proven = self.proven(used).into_iter();
        let room = self.shape.room() as u64;
        proven.zip(crowd).map(|(proven, pages)| proven && *pages > room).collect()
    }

    /// By colour, whether samples say that its pages are missed more than those of colours with room,
    /// which `used` tells.
    fn proven(&self, used: &[u64]) -> Vec<bool> {
        let needed = f64::from(self.settings.absent) / 100.0;
        if self.settings.absent == 0 {
            return vec![true; used.len()];
        }
        let share = |[all, missed]: [u32; 2]| f64::from(missed) / f64::from(all.max(1));
        let known = |samples: &[u32; 2]| samples[0] >= LEAST_SAMPLES;
        let roomy = self.samples.iter().zip(used).filter(|(_, n)| **n <= self.shape.room() as u64);
        let roomy = roomy.fold([0; 2], |sum, (s, _)| [sum[0] + s[0], sum[1] + s[1]]);
        let base = if known(&roomy) { share(roomy) } else { 0.0 };
        self.samples.iter().map(|s| known(s) && share(*s) >= base + needed).collect()
    }

    fn sampled(&mut self, page: Vpn, memory: bool) {
        let Some(color) = self.colors.color(page) else { return };
        if let Some([all, missed]) = self.samples.get_mut(usize::from(color.0)) {
            *all = all.saturating_add(1);
            *missed = missed.saturating_add(u32::from(memory));
        }
    }

    fn missed(&mut self, page: Vpn, order: u32, actions: &mut Vec<Action>) {
        let watching = matches!(self.phase, Phase::First { .. } | Phase::Second { .. });
        if watching && order == 0 && !self.seen.contains(&page) {
            self.seen.push(page);
            if self.seen.len() >= self.settings.pages {
                self.end(actions);
            }
        }
    }
}

impl Policy for SnapshotMiss {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.colors.note(&event);
        match event {
            Event::TlbMiss { page, order, .. } => self.missed(page, order, actions),
            Event::Sample { page, memory, .. } => self.sampled(page, memory),
            Event::Refused { page, .. } => {
                self.budget.iter_mut().for_each(|budget| budget.refund(page));
            }
            Event::Progress { cycles, .. } if self.settings.clock == PeriodClock::Cycles => {
                self.now = cycles;
                self.pass(actions);
            }
            Event::MissOverflow { misses } if self.settings.clock == PeriodClock::Misses => {
                self.now += misses;
                self.pass(actions);
            }
            _ => {}
        }
    }
}
