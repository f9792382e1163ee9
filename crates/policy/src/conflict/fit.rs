//! Snapshot-Fit, beyond Romer 1998 (its section 5.7): Snapshot-Miss that asks first whether the
//! pages in use fit into the cache ([`WorkingSet`]). If they do not, it leaves them alone and
//! asks again after twice as many misses as the last time. If they do and misses go on, all of
//! them are the snapshot, and as many are moved as a [`MoveBudget`] allows, not one. Needs
//! TLB misses and overflows of a miss counter; asks for flushes, and to hear of TLB misses only
//! while it wants to, so that they cost nothing in between.
//!
//! A TLB miss takes constant time; the end of a snapshot time in proportion to its pages and the
//! colours.

use huepage_color::{Color, ColorSet, Vpn};

use super::CacheShape;
use super::budget::{BudgetSettings, MoveBudget};
use super::pages::PageColors;
use super::target::{Clues, TargetChoice, Targets};
use super::working_set::{Cause, WorkingSet};
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// When it looks, in cache misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitSettings {
    /// From one first snapshot to the next.
    pub period: u64,
    /// From the end of the first snapshot to the second.
    pub delay: u64,
    /// Shortest length of a second snapshot; else it is as long as the first was.
    pub length: u64,
    /// Limits moves, in misses instead of cycles.
    pub budget: BudgetSettings,
}

impl Default for FitSettings {
    /// The periods of Snapshot-Miss (table 4-5). A page of 4 KB is moved at the price of about 400
    /// misses: one move in 10^5 misses is less than a hundredth.
    fn default() -> FitSettings {
        let (start, most, proof, rest, refill) = (16, 256, 20_000, 20_000, 100_000);
        let budget = BudgetSettings { start, most, proof, rest, doublings: 4, refill };
        FitSettings { period: 10_000, delay: 1_000, length: 1_000, budget }
    }
}

/// Periods double so often while there is nothing to gain.
const MOST_DOUBLINGS: u32 = 4;

#[derive(Clone, Debug)]
enum Phase {
    Resting,
    First { began: u64 },
    Waiting { until: u64, length: u64 },
    Second { until: u64 },
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct SnapshotFit {
    shape: CacheShape,
    settings: FitSettings,
    colors: PageColors,
    targets: Targets,
    budget: MoveBudget,
    phase: Phase,
    now: u64,
    due: u64,
    /// How often in turn there was nothing to gain.
    in_vain: u32,
    listens: bool,
    working_set: WorkingSet,
    /// Base pages of the first snapshot, and those of them that came again in the second, both
    /// in the order in which they came.
    first: Vec<Vpn>,
    again: Vec<Vpn>,
}

impl SnapshotFit {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::CacheMisses];

    /// A policy that knows no pages yet.
    pub fn new(shape: CacheShape, settings: FitSettings) -> SnapshotFit {
        SnapshotFit {
            shape,
            settings,
            colors: PageColors::default(),
            targets: Targets::new(TargetChoice::Sequential, shape.colors, 0),
            budget: MoveBudget::new(settings.budget),
            phase: Phase::Resting,
            now: 0,
            due: settings.period,
            in_vain: 0,
            listens: true,
            working_set: WorkingSet::new(shape),
            first: Vec::new(),
            again: Vec::new(),
        }
    }

    fn pass(&mut self, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Resting if self.now >= self.due && self.budget.credit > 0 => {
                self.first.clear();
                self.flush(actions);
                self.phase = Phase::First { began: self.now };
            }
            Phase::First { began } => self.judge(began, actions),
            Phase::Waiting { until, length } if self.now >= until => {
                self.again.clear();
                self.flush(actions);
                self.phase = Phase::Second { until: self.now + length };
            }
            Phase::Second { until } if self.now >= until => {
                let moved = self.resolve(actions);
                self.rest(moved, actions);
            }
            _ => {}
        }
    }

    fn flush(&mut self, actions: &mut Vec<Action>) {
        self.working_set.clear();
        self.listen(true, actions);
        actions.push(Action::FlushTlb);
    }

    fn listen(&mut self, on: bool, actions: &mut Vec<Action>) {
        if self.listens != on {
            self.listens = on;
            actions.push(Action::TellTlbMisses(on));
        }
    }

    /// Until the next first snapshot.
    fn rest(&mut self, gained: bool, actions: &mut Vec<Action>) {
        self.in_vain = if gained { 0 } else { (self.in_vain + 1).min(MOST_DOUBLINGS) };
        self.due = self.now + (self.settings.period << self.in_vain);
        self.phase = Phase::Resting;
        self.listen(false, actions);
    }

    /// Whether what was missed since the first snapshot began can be helped.
    fn judge(&mut self, began: u64, actions: &mut Vec<Action>) {
        match self.working_set.cause() {
            Cause::Open => {}
            Cause::Conflict if self.crowds(&self.first).iter().any(|crowd| !crowd.is_empty()) => {
                let length = self.settings.length.max(self.now - began);
                self.phase = Phase::Waiting { until: self.now + self.settings.delay, length };
                self.listen(false, actions);
            }
            Cause::Conflict | Cause::Capacity => self.rest(false, actions),
        }
    }

    /// The pages of each colour.
    fn by_color(&self, pages: &[Vpn]) -> Vec<Vec<Vpn>> {
        let mut groups = vec![Vec::new(); usize::from(self.shape.colors)];
        for &page in pages {
            let color = self.colors.color(page).map(|color| usize::from(color.0));
            if let Some(group) = color.and_then(|color| groups.get_mut(color)) {
                group.push(page);
            }
        }
        groups
    }

    /// The pages of each colour of which there are too many; none of the others.
    fn crowds(&self, pages: &[Vpn]) -> Vec<Vec<Vpn>> {
        let mut groups = self.by_color(pages);
        groups.iter_mut().filter(|group| group.len() <= self.shape.room()).for_each(Vec::clear);
        groups
    }

    /// Moves pages of colours of which there are too many in both snapshots to colours with room;
    /// whether any.
    fn resolve(&mut self, actions: &mut Vec<Action>) -> bool {
        let room = self.shape.room();
        let mut used: Vec<usize> = self.by_color(&self.first).iter().map(Vec::len).collect();
        let mut moved = false;
        for crowd in self.crowds(&self.again) {
            crowd.iter().for_each(|&page| self.budget.again(page));
            for &page in crowd.iter().skip(room) {
                if !self.budget.allows(page) || self.colors.is_asked(page) {
                    continue;
                }
                let Some(to) = self.targets.pick(&full(&used, room), Clues::default()) else {
                    return moved;
                };
                used[usize::from(to.0)] += 1;
                self.budget.spend(page, 0);
                actions.push(self.colors.recolour(page, to));
                moved = true;
            }
        }
        moved
    }

    fn missed(&mut self, page: Vpn, order: u32) {
        match self.phase {
            Phase::First { .. } if self.working_set.touch(page, order) && order == 0 => {
                self.first.push(page);
            }
            Phase::Second { .. } if self.working_set.touch(page, order) && order == 0 => {
                self.again.push(page);
            }
            _ => {}
        }
    }
}

/// The colours of which so many pages are in use.
fn full(used: &[usize], room: usize) -> ColorSet {
    let universe = u16::try_from(used.len()).unwrap_or(u16::MAX);
    let mut full = ColorSet::empty(universe);
    for color in (0..universe).filter(|&color| used[usize::from(color)] >= room) {
        full.insert(Color(color));
    }
    full
}

impl Policy for SnapshotFit {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.colors.note(&event);
        match event {
            Event::TlbMiss { page, order, .. } => self.missed(page, order),
            Event::MissOverflow { misses } => {
                self.now += misses;
                self.budget.pass(self.now);
                self.working_set.miss(misses);
                self.pass(actions);
            }
            _ if matches!(self.phase, Phase::Resting) => self.listen(false, actions),
            _ => {}
        }
    }
}
