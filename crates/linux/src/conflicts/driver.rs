//! Between the sensors and Snapshot-Miss: looks at lines and pages in use become the events that the
//! policy knows, and its wishes pages with the colours that they are to have. Reads no clock and touches
//! no process.
//!
//! The thesis counts misses; here a look at a line of a page in use that is not in the cache is one, after
//! looks that are wrong by what is known of our own lines. So where nothing misses, nothing is asked. A
//! program with more pages in use than the cache holds is left alone: its misses are no conflicts.

use std::collections::HashMap;

use huepage_color::{Color, Vpn};
use huepage_policy::conflict::{
    BudgetSettings, CacheShape, Clock, Snapshot, SnapshotSettings, Target,
};
use huepage_policy::residency::Errors;
use huepage_policy::{Action, Event, Policy, Refusal};

use super::Settings;
use super::report::Crowd;
use crate::engine::Placed;

/// From one first snapshot to the next, and from it to the second: looks that miss.
const PERIOD: u64 = 1000;
const DELAY: u64 = 200;
/// How much more, in percent, has to be missing of a colour than of those with room.
const ABSENT: u8 = 15;
/// The part of the ways that is left to text, stacks and the kernel.
const SLACK: u16 = 4;
/// Below this share of looks that miss nothing is worth moving: looks are wrong about as often.
const FLOOR: f64 = 0.05;
/// What moving has to bring: that much more of the lines of the pages moved in the cache.
const GAIN: f64 = 0.15;
/// Looks at them after a move before it is judged, or seconds.
const LEAST_LOOKS: f64 = 200.0;
const LONGEST_TRIAL: f64 = 20.0;
/// Looks that are remembered.
const REMEMBERED: f64 = 4000.0;
/// Seconds of rest after a move in vain, doubled each time, this often at most.
const REST: f64 = 10.0;
const MOST_DOUBLINGS: u32 = 6;

/// Seconds without questions after the first snapshots that led to no move, doubled after each further
/// one, this often at most.
const LULL: f64 = 0.5;
const PAIR: u32 = 2;
const LONGEST_LULL: u32 = 6;

/// What is to be done next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wants {
    /// The pages in use are to be found now.
    pub snapshot: bool,
    /// These pages are to have these colours.
    pub moves: Vec<(Vpn, Color)>,
}

/// How the pages in use lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    /// Pages of each colour.
    pub by_color: Vec<u64>,
    /// Pages, those of unknown colour too.
    pub pages: u64,
}

impl Spread {
    fn of(pages: &[(Vpn, Option<Color>)], colors: u16) -> Spread {
        let mut by_color = vec![0; usize::from(colors)];
        for color in pages.iter().filter_map(|page| page.1) {
            by_color.get_mut(usize::from(color.0)).into_iter().for_each(|n| *n += 1);
        }
        Spread { by_color, pages: pages.len() as u64 }
    }

    /// Colours that have any.
    pub fn colors(&self) -> u16 {
        u16::try_from(self.by_color.iter().filter(|n| **n > 0).count()).unwrap_or(u16::MAX)
    }

    /// The most of one colour.
    pub fn most(&self) -> u64 {
        self.by_color.iter().copied().max().unwrap_or(0)
    }

    /// Colours with more than fit.
    pub fn crowds(&self, ways: u16) -> Vec<Crowd> {
        let crowd = |(color, &pages): (u16, &u64)| Crowd { color, pages };
        let all = (0..).zip(&self.by_color).map(crowd);
        all.filter(|crowd| crowd.pages > u64::from(ways)).collect()
    }
}

/// Looks, and those of them that found the line.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    all: f64,
    found: f64,
}

/// Pages that were moved, until it is judged what that brought.
#[derive(Clone, Debug)]
struct Trial {
    pages: Vec<Vpn>,
    /// The share of their lines that was there before.
    before: f64,
    since: f64,
}

impl Looks {
    fn add(&mut self, found: bool) {
        self.all += 1.0;
        self.found += f64::from(u8::from(found));
    }

    /// The share of lines that are there.
    fn share(self, errors: Errors) -> Option<f64> {
        (self.all > 0.0).then(|| errors.correct(self.found / self.all))
    }
}

/// See the module's head.
pub(super) struct Driver {
    policy: Snapshot,
    shape: CacheShape,
    rate: f64,
    /// Since the last turn, and for longer.
    lately: Looks,
    looks: Looks,
    /// By page, since pages were last moved or looked for.
    by_page: HashMap<Vpn, Looks>,
    spread: Spread,
    /// What was there of the pages in use before the first move.
    at_first: Option<f64>,
    now: f64,
    /// Nothing is asked before then.
    quiet_until: f64,
    trial: Option<Trial>,
    in_vain: u32,
    /// Snapshots since pages were moved.
    snapshots: u32,
    conflicts: u32,
    /// Where pages are to go that are being moved.
    asked: HashMap<Vpn, Color>,
}

impl Driver {
    pub fn new(settings: &Settings) -> Driver {
        let (colors, ways) = (settings.colors, settings.ways);
        let shape = CacheShape { colors, ways, lines_per_page: 64 };
        let policy = Snapshot::new(
            shape,
            SnapshotSettings {
                clock: Clock::Misses,
                period: PERIOD,
                delay: Some(DELAY),
                length: 1,
                pages: usize::MAX,
                moves: usize::try_from(settings.rate).unwrap_or(usize::MAX),
                target: Target::Emptiest,
                fit: true,
                absent: ABSENT,
                slack: ways / SLACK,
                budget: Some(budget(shape)),
            },
        );
        Driver {
            policy: policy.keeping_off(settings.keep_off.clone()),
            shape,
            rate: f64::from(settings.rate.max(1)),
            lately: Looks::default(),
            looks: Looks::default(),
            by_page: HashMap::new(),
            spread: Spread::default(),
            at_first: None,
            now: 0.0,
            quiet_until: 0.0,
            trial: None,
            in_vain: 0,
            snapshots: 0,
            conflicts: 0,
            asked: HashMap::new(),
        }
    }

    /// A line of a page in use was looked at.
    pub fn looked(&mut self, page: Vpn, found: bool) {
        self.lately.add(found);
        if self.looks.all >= REMEMBERED {
            (self.looks.all, self.looks.found) = (self.looks.all / 2.0, self.looks.found / 2.0);
        }
        self.looks.add(found);
        self.by_page.entry(page).or_default().add(found);
        let sample = Event::Sample { page, missed: 1, memory: !found };
        self.policy.handle(sample, &mut Vec::new());
    }

    /// It is so many seconds since the beginning; looks are wrong so often.
    pub fn passed(&mut self, now: f64, errors: Errors) -> Wants {
        self.now = now;
        self.judge(errors);
        let lately = std::mem::take(&mut self.lately);
        let missing = 1.0 - lately.share(errors).unwrap_or(1.0);
        if now < self.quiet_until || self.trial.is_some() || missing < FLOOR {
            return Wants::default();
        }
        // Saturates; neither is below zero.
        let misses = (missing * lately.all).round() as u64;
        let wants = self.tell(Event::MissOverflow { misses });
        if wants.snapshot {
            self.snapshots += 1;
            let lulls = self.snapshots.checked_sub(PAIR + 1).map(|n| n.min(LONGEST_LULL));
            self.quiet_until = now + lulls.map_or(0.0, |n| LULL * f64::from(1_u32 << n));
        }
        if !wants.moves.is_empty() {
            (self.conflicts, self.snapshots) = (self.conflicts + 1, 0);
            self.at_first = self.at_first.or(self.residency(errors));
            let pages: Vec<Vpn> = wants.moves.iter().map(|wish| wish.0).collect();
            let before = self.looks_at(&pages).share(errors).unwrap_or(0.0);
            self.trial = Some(Trial { pages, before, since: now });
        }
        wants
    }

    fn looks_at(&self, pages: &[Vpn]) -> Looks {
        let looks = pages.iter().filter_map(|page| self.by_page.get(page));
        looks.fold(Looks::default(), |sum, looks| Looks {
            all: sum.all + looks.all,
            found: sum.found + looks.found,
        })
    }

    /// These pages are in use; the policy hears of it if it asked.
    pub fn in_use(&mut self, pages: &[(Vpn, Option<Color>)], asked: bool) {
        self.spread = Spread::of(pages, self.shape.colors);
        if self.trial.is_none() && !asked {
            self.by_page.clear();
        }
        for &(page, color) in pages {
            self.policy.handle(Event::Faulted { page, color }, &mut Vec::new());
            if asked && !self.is_too_large() {
                let missed = Event::TlbMiss { page, order: 0, victim: None };
                self.policy.handle(missed, &mut Vec::new());
            }
        }
    }

    /// What became of the pages that were to be moved.
    pub fn answered(&mut self, placed: &[Placed]) {
        for &(page, there) in placed {
            let event = match there {
                true => Event::Moved { page },
                false => Event::Refused { page, why: Refusal::Other },
            };
            self.policy.handle(event, &mut Vec::new());
            self.asked.remove(&page);
        }
        // What was not heard of was not moved.
        for (page, _) in std::mem::take(&mut self.asked) {
            let refused = Event::Refused { page, why: Refusal::Other };
            self.policy.handle(refused, &mut Vec::new());
        }
        let moved = placed.iter().filter(|(_, there)| *there).count();
        self.quiet_until = self.now + moved as f64 / self.rate;
        if moved == 0 {
            self.give_up();
        }
        (self.lately, self.looks) = (Looks::default(), Looks::default());
        self.by_page.clear();
    }

    /// Whether the last move brought anything.
    fn judge(&mut self, errors: Errors) {
        let Some(trial) = self.trial.as_ref().filter(|_| self.asked.is_empty()) else { return };
        let looks = self.looks_at(&trial.pages);
        if looks.all < LEAST_LOOKS && self.now < trial.since + LONGEST_TRIAL {
            return;
        }
        // Of pages that nobody uses any more nothing is known.
        let gain = looks.share(errors).map_or(0.0, |after| after - trial.before);
        self.trial = None;
        if gain < GAIN {
            self.give_up();
        } else {
            self.in_vain = 0;
        }
    }

    /// Nothing was gained: rests, for longer each time.
    fn give_up(&mut self) {
        self.trial = None;
        self.quiet_until = self.now + REST * f64::from(1_u32 << self.in_vain);
        self.in_vain = (self.in_vain + 1).min(MOST_DOUBLINGS);
    }

    fn tell(&mut self, event: Event) -> Wants {
        let (mut actions, mut wants) = (Vec::new(), Wants::default());
        self.policy.handle(event, &mut actions);
        for action in actions {
            match action {
                Action::FlushTlb => wants.snapshot = true,
                Action::Recolour { page, to } => {
                    self.asked.insert(page, to);
                    wants.moves.push((page, to));
                }
                _ => {}
            }
        }
        wants
    }

    /// The share of the lines of pages in use that is in the cache.
    pub fn residency(&self, errors: Errors) -> Option<f64> {
        self.looks.share(errors)
    }

    /// The same before anything was moved.
    pub fn residency_at_first(&self) -> Option<f64> {
        self.at_first
    }

    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// How often pages were to be moved.
    pub fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Whether so many pages fit the cache.
    pub fn fits(&self, pages: usize) -> bool {
        pages as u64 <= self.shape.pages()
    }

    /// Whether more pages are in use than the cache holds.
    pub fn is_too_large(&self) -> bool {
        self.spread.pages > self.shape.pages()
    }

    /// The words for what is being done.
    pub fn stage(&self) -> String {
        let fits = self.shape.pages();
        match () {
            () if self.spread.pages == 0 => "no page is used again and again".to_owned(),
            () if self.is_too_large() => {
                format!("left alone: more pages are in use than the {fits} that fit")
            }
            () if !self.asked.is_empty() => "recolouring".to_owned(),
            () if self.trial.is_some() => "waiting for what that brings".to_owned(),
            () if self.in_vain > 0 => "resting: recolouring brought nothing".to_owned(),
            () if self.conflicts > 0 => "recoloured".to_owned(),
            () => "no conflicts found".to_owned(),
        }
    }
}

/// As many moves as a cache has pages may be in vain; a page that conflicts again rests.
fn budget(shape: CacheShape) -> BudgetSettings {
    let pages = u32::try_from(shape.pages()).unwrap_or(u32::MAX);
    let (proof, rest, refill) = (20 * PERIOD, 10 * PERIOD, PERIOD);
    BudgetSettings {
        start: pages.saturating_mul(2),
        most: pages.saturating_mul(4),
        proof,
        rest,
        refill,
    }
}
