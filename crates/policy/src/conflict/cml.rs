//! CML (Romer 1998, section 5.3): a cache miss look-aside buffer counts misses by frame and
//! interrupts when one page has many; the policy reads the buffer, and of the pages with many
//! misses that have the same colour it moves all but those that fit. The buffer is cleared
//! every five million cycles. Needs [`Event::CmlEntry`] and [`Event::Conflict`], and the time;
//! asks for clearing. Beyond the thesis a [`MoveBudget`] keeps it from moving pages of a program that
//! does not fit in vain, and what was moved in vain goes back ([`MovedPages`]).
//!
//! An interrupt takes time in proportion to the square of the buffer's entries, which are a
//! few dozen; other events take constant time.

use huepage_color::{Color, ColorSet, Vpn};

use super::CacheShape;
use super::budget::{BudgetSettings, MoveBudget};
use super::moved_pages::MovedPages;
use super::pages::PageColors;
use super::target::{Clues, TargetChoice, Targets};
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// Misses of a page above which it may conflict, and those at which the buffer is to
/// interrupt: the lines of a page and 4, and 60 more (section 5.3.1).
pub const fn thresholds(lines_per_page: u64) -> (u64, u64) {
    (lines_per_page + 4, lines_per_page + 64)
}

/// How the buffer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmlSettings {
    /// Misses from which on a page counts as conflicting; see [`thresholds`].
    pub recolor: u64,
    /// Cycles between clearings of the buffer.
    pub clear: u64,
    /// Where pages are moved.
    pub target: TargetChoice,
    /// For [`TargetChoice::Random`].
    pub seed: u64,
    /// Limits moves once more pages are known than fit; none: the thesis's policy.
    pub budget: Option<BudgetSettings>,
}

impl CmlSettings {
    /// The thesis's (sections 5.3.1 and 5.3.2).
    pub const fn thesis(shape: CacheShape) -> CmlSettings {
        let (recolor, _) = thresholds(shape.lines_per_page);
        let (target, clear) = (TargetChoice::Sequential, 5_000_000);
        CmlSettings { recolor, clear, target, seed: 1, budget: None }
    }

    /// Beyond the thesis: the usual budget, and the emptiest colours as targets.
    pub fn budgeted(shape: CacheShape) -> CmlSettings {
        let (budget, target) = (Some(BudgetSettings::default()), TargetChoice::Emptiest);
        CmlSettings { budget, target, ..CmlSettings::thesis(shape) }
    }
}

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct CmlPolicy {
    shape: CacheShape,
    settings: CmlSettings,
    colors: PageColors,
    targets: Targets,
    budget: Option<MoveBudget>,
    /// What came of moves that the budget paid for.
    placed: MovedPages,
    /// What was read of the buffer since the last interrupt.
    entries: Vec<(Vpn, u64)>,
    references: Vec<u64>,
    now: u64,
    /// When the buffer was cleared, or last interrupted.
    since: u64,
    cleared: u64,
    /// It was said that TLB misses need not be told.
    deaf: bool,
}

impl CmlPolicy {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] =
        &[InputKind::Faults, InputKind::CmlBuffer, InputKind::Cycles];

    /// With the thesis's parameters and no budget.
    pub fn thesis(shape: CacheShape) -> CmlPolicy {
        CmlPolicy::new(shape, CmlSettings::thesis(shape))
    }

    /// Beyond the thesis: the usual budget, and the emptiest colours as targets.
    pub fn budgeted(shape: CacheShape) -> CmlPolicy {
        CmlPolicy::new(shape, CmlSettings::budgeted(shape))
    }

    /// Any other.
    pub fn new(shape: CacheShape, settings: CmlSettings) -> CmlPolicy {
        CmlPolicy {
            shape,
            settings,
            colors: PageColors::default(),
            targets: Targets::new(settings.target, shape.colors, settings.seed),
            budget: settings.budget.map(MoveBudget::new),
            placed: MovedPages::new(
                shape.colors,
                settings.budget.map_or(0, |budget| budget.refill),
            ),
            entries: Vec::new(),
            references: vec![0; usize::from(shape.colors)],
            now: 0,
            since: 0,
            cleared: 0,
            deaf: false,
        }
    }

    fn read_buffer(&mut self, actions: &mut Vec<Action>) {
        let entries = std::mem::take(&mut self.entries);
        let colored = |&(page, n): &(Vpn, u64)| Some((page, self.colors.color(page)?, n));
        let mut held: Vec<(Vpn, Color, u64)> = entries.iter().filter_map(colored).collect();
        // Parts of superpages stay if others can go, since moving one breaks its superpage. Else
        // those that miss most stay: any would do, but the same ones in every run.
        held.sort_unstable_by_key(|&(page, color, misses)| {
            (color.0, !self.colors.is_joined(page), u64::MAX - misses, page)
        });
        let (groups, mut avoid) = self.conflicts(&held);
        for group in &groups {
            self.resolve(group, &mut avoid, &held, actions);
        }
        self.since = self.now;
        self.entries = entries;
        self.entries.clear();
    }

    /// The pages of each colour that conflict, and those colours. `held` is sorted by colour.
    fn conflicts(&self, held: &[(Vpn, Color, u64)]) -> (Vec<Vec<Vpn>>, ColorSet) {
        let mut avoid = ColorSet::empty(self.shape.colors);
        let mut groups = Vec::new();
        for group in held.chunk_by(|a, b| a.1 == b.1) {
            let many = group.iter().filter(|entry| entry.2 >= self.settings.recolor);
            let pages: Vec<Vpn> = many.map(|entry| entry.0).collect();
            if pages.len() > self.shape.room() {
                avoid.insert(group[0].1);
                groups.push(pages);
            }
        }
        (groups, avoid)
    }

    /// The budget while it limits moves. What fits as a whole misses because of conflicts only, unless
    /// superpages take colours for pages that are not in use.
    fn limit(&mut self) -> Option<&mut MoveBudget> {
        let fits = self.colors.touched() <= self.shape.pages() && !self.colors.any_joined();
        self.budget.as_mut().filter(|_| !fits)
    }

    /// The pages of a group, and whether each may be moved. At the front are those that stay: parts of
    /// superpages, then what no move put here, then what may not move.
    fn judged(&mut self, group: &[Vpn]) -> Vec<(Vpn, bool)> {
        let Some(budget) = self.limit() else {
            return group.iter().map(|&page| (page, true)).collect();
        };
        let judged = group.iter().map(|&page| (page, budget.allows(page)));
        let mut pages: Vec<(Vpn, bool)> = judged.collect();
        group.iter().for_each(|&page| budget.again(page));
        pages.sort_by_key(|&(page, may)| {
            (!self.colors.is_joined(page), self.placed.has_moved(page), may)
        });
        pages
    }

    /// Moves all pages of a group but those that fit. Where one goes no other of this interrupt goes, since
    /// targets have the colour of no page that conflicts (section 5.6.3).
    fn resolve(
        &mut self,
        group: &[Vpn],
        avoid: &mut ColorSet,
        held: &[(Vpn, Color, u64)],
        actions: &mut Vec<Action>,
    ) {
        for (page, may) in self.judged(group).split_off(self.shape.room()) {
            let here = self.colors.color(page).filter(|_| !self.colors.is_asked(page));
            let Some(here) = here else { continue };
            self.placed.conflicts(page, here, self.now);
            // Another page of the group may have spent the last credit.
            let may = may && self.limit().is_none_or(|budget| budget.credit > 0);
            let to = if may {
                self.target(page, avoid, held)
            } else {
                self.placed.take_back(page, here)
            };
            let Some(to) = to else { continue };
            actions.push(self.colors.recolour(page, to));
            avoid.insert(to);
            let took = self.now - self.since;
            match self.limit() {
                Some(budget) if may => {
                    budget.spend(page, took);
                    self.placed.moves(page, here, to);
                }
                Some(budget) => budget.settle(page),
                None => {}
            }
        }
    }

    /// Where a page goes: not to where it was first, unless nothing else is left.
    fn target(&mut self, page: Vpn, avoid: &ColorSet, held: &[(Vpn, Color, u64)]) -> Option<Color> {
        let (references, pages) = (&self.references, self.colors.population());
        let clues = Clues { misses: held, references, pages };
        let failed = self.placed.no_targets_of(page, avoid, self.now);
        let picked = self.targets.pick(&failed, clues);
        picked.or_else(|| self.targets.pick(avoid, clues))
    }

    fn pass(&mut self, cycles: u64, actions: &mut Vec<Action>) {
        self.now = cycles;
        if let Some(budget) = &mut self.budget {
            budget.pass(cycles);
        }
        if cycles >= self.cleared + self.settings.clear {
            (self.cleared, self.since) = (cycles, cycles);
            actions.push(Action::ClearCml);
        }
    }
}

impl Policy for CmlPolicy {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.colors.note(&event);
        if !self.deaf {
            self.deaf = true;
            actions.push(Action::TellTlbMisses(false));
        }
        match event {
            Event::CmlEntry { page, misses } => self.entries.push((page, misses)),
            Event::ColorReferences { color, references } => {
                if let Some(count) = self.references.get_mut(usize::from(color.0)) {
                    *count = references;
                }
            }
            Event::Conflict { .. } => self.read_buffer(actions),
            Event::Refused { page, .. } => {
                self.budget.iter_mut().for_each(|budget| budget.refund(page));
                self.placed.forget(page);
            }
            Event::Progress { cycles, .. } => self.pass(cycles, actions),
            _ => {}
        }
    }
}
