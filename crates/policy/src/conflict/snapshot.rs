//! Snapshots of the working set (Romer 1998, section 4.2.3): the TLB is flushed, and the first
//! pages that miss are those in use. Snapshot moves one of the pages of a colour of which there
//! are more than fit; Snapshot-Delay only if they are so in a second snapshot too;
//! Snapshot-Miss counts its periods in cache misses instead of cycles, so that it rests where
//! nothing misses. Needs TLB misses, and the time or overflows of a miss counter; asks for
//! flushes. Takes misses for want of room for conflicts; [`super::fit`] does not.
//!
//! A TLB miss takes constant time outside snapshots and time in proportion to the pages of one
//! inside; the end of a snapshot is quadratic in its pages.

use huepage_color::{Color, ColorSet, Vpn};

use super::CacheShape;
use super::pages::PageColors;
use super::target::{Clues, Target, Targets};
use crate::event::{Action, Event, Policy};

/// What periods are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
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
    pub clock: Clock,
    /// From one first snapshot to the next: the most moves that there can be.
    pub period: u64,
    /// From the first snapshot to the second; none: one is enough.
    pub delay: Option<u64>,
    /// A snapshot ends after this time, or when it is full.
    pub length: u64,
    /// Pages in a snapshot (section 4.5.1: 16).
    pub pages: usize,
}

impl SnapshotSettings {
    /// Snapshot: one in 2 x 10^6 cycles (table 4-5). The thesis calls its length short.
    pub const SNAPSHOT: SnapshotSettings = SnapshotSettings {
        clock: Clock::Cycles,
        period: 2_000_000,
        delay: None,
        length: 200_000,
        pages: 16,
    };
    /// Snapshot-Delay: the second one after 200 x 10^3 cycles (table 4-5).
    pub const DELAY: SnapshotSettings =
        SnapshotSettings { delay: Some(200_000), ..SnapshotSettings::SNAPSHOT };
    /// Snapshot-Miss: one in 10 x 10^3 misses, the second one after 10^3 (table 4-5).
    pub const MISS: SnapshotSettings = SnapshotSettings {
        clock: Clock::Misses,
        period: 10_000,
        delay: Some(1_000),
        length: 1_000,
        pages: 16,
    };
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
pub struct Snapshot {
    shape: CacheShape,
    settings: SnapshotSettings,
    colors: PageColors,
    targets: Targets,
    phase: Phase,
    seen: Vec<Vpn>,
    now: u64,
    due: u64,
}

impl Snapshot {
    /// Snapshot, with the thesis's parameters.
    pub fn plain(shape: CacheShape) -> Snapshot {
        Snapshot::new(shape, SnapshotSettings::SNAPSHOT)
    }

    /// Snapshot-Delay, with the thesis's parameters.
    pub fn delay(shape: CacheShape) -> Snapshot {
        Snapshot::new(shape, SnapshotSettings::DELAY)
    }

    /// Snapshot-Miss, with the thesis's parameters.
    pub fn miss(shape: CacheShape) -> Snapshot {
        Snapshot::new(shape, SnapshotSettings::MISS)
    }

    /// Any other.
    pub fn new(shape: CacheShape, settings: SnapshotSettings) -> Snapshot {
        Snapshot {
            shape,
            settings,
            colors: PageColors::default(),
            targets: Targets::new(Target::Sequential, shape.colors, 0),
            phase: Phase::Resting,
            seen: Vec::new(),
            now: 0,
            due: settings.period,
        }
    }

    /// Time has passed: what is due happens.
    fn pass(&mut self, actions: &mut Vec<Action>) {
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
        let colored = || pages.iter().filter_map(|&page| Some((page, self.colors.color(page)?)));
        let full = |color| colored().filter(|&(_, c)| c == color).count() > self.shape.room();
        colored().rfind(|&(_, color)| full(color))
    }

    /// Moves one page of a colour of which there are too many, to a colour that was not seen.
    fn resolve(&mut self, pages: &[Vpn], seen: &[Vpn], actions: &mut Vec<Action>) {
        let Some((page, from)) = self.crowded(pages) else { return };
        let mut avoid = ColorSet::empty(self.shape.colors);
        avoid.insert(from);
        for color in seen.iter().filter_map(|&page| self.colors.color(page)) {
            avoid.insert(color);
        }
        if let Some(to) = self.targets.pick(&avoid, Clues::default()) {
            actions.push(self.colors.recolour(page, to));
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

impl Policy for Snapshot {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.colors.note(&event);
        match event {
            Event::TlbMiss { page, order, .. } => self.missed(page, order, actions),
            Event::Progress { cycles, .. } if self.settings.clock == Clock::Cycles => {
                self.now = cycles;
                self.pass(actions);
            }
            Event::MissOverflow { misses } if self.settings.clock == Clock::Misses => {
                self.now += misses;
                self.pass(actions);
            }
            _ => {}
        }
    }
}
