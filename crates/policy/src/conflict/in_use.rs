//! Conflicts of the pages in use: looks at lines become the events that the policies of conflicts know, and their
//! requests pages with the colours that they are to have. Beyond Romer (1998), and for programs that run: no
//! counter tells of misses there, and moving a page is dear.
//!
//! The thesis counts misses; here a look at a line of a page in use that is not in the cache is one, after
//! looks that are wrong by what is known of our own lines. So where nothing misses, nothing is asked. Its handler
//! sees each TLB miss; here the pages in use miss once after each look for them. Cycles are nanoseconds since the
//! beginning.
//!
//! Whatever the policy: a program with more pages in use than the cache holds is left alone, as its misses are no
//! conflicts; and what was moved is on trial: if it brings too little, everything rests, twice as long each time.

use std::collections::HashMap;

use huepage_color::{Color, ColorSet, Vpn};
use serde::{Deserialize, Serialize};

use super::CacheShape;
use crate::backoff::Doubling;
use crate::event::{Action, Event, MoveRefusal, Policy};
use crate::residency::Errors;

/// Parameters. Times are in seconds, shares 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct InUseSettings {
    /// The cache.
    pub shape: CacheShape,
    /// Colours that pages are never moved to, as others hold them.
    pub keep_off: ColorSet,
    /// Pages that are moved in a second, at most; at least 1.
    pub rate: u32,
    /// Whether the policy goes by TLB misses as they come: it asks for no snapshots, so they are taken
    /// unasked.
    pub watches: bool,
    /// Share of looks that miss below which nothing is worth moving: looks are wrong about as often.
    pub floor: f64,
    /// What moving has to bring: that much more of the lines of the pages moved in the cache.
    pub gain: f64,
    /// Looks at them after a move before it is judged.
    pub least_looks: f64,
    /// Seconds after which it is judged by fewer.
    pub longest_trial: f64,
    /// Looks that are remembered.
    pub remembered: f64,
    /// Milliseconds of rest after a move in vain, doubled each time, this often at most.
    pub rest: (u64, u32),
    /// Snapshots that may lead to no move before questions are put off.
    pub free_snapshots: u32,
    /// Milliseconds that they are put off then, doubled each time, this often at most.
    pub lull: (u64, u32),
}

impl InUseSettings {
    /// The usual ones for a cache.
    pub fn new(shape: CacheShape, rate: u32, keep_off: ColorSet) -> InUseSettings {
        InUseSettings {
            shape,
            keep_off,
            rate,
            watches: false,
            floor: 0.05,
            gain: 0.15,
            least_looks: 200.0,
            longest_trial: 20.0,
            remembered: 4000.0,
            rest: (10_000, 6),
            free_snapshots: 2,
            lull: (500, 6),
        }
    }
}

/// A colour with more pages in use than fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// The colour.
    pub color: u16,
    /// Pages of it in use.
    pub pages: u64,
}

/// What is to be done next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUseMoves {
    /// The pages in use are to be found now.
    pub snapshot: bool,
    /// These pages are to have these colours.
    pub moves: Vec<(Vpn, Color)>,
}

/// How the pages in use lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColorSpread {
    /// Pages of each colour.
    pub by_color: Vec<u64>,
    /// Pages, those of unknown colour too.
    pub pages: u64,
}

impl ColorSpread {
    fn of(pages: &[(Vpn, Option<Color>)], colors: u16) -> ColorSpread {
        let mut by_color = vec![0; usize::from(colors)];
        for color in pages.iter().filter_map(|page| page.1) {
            by_color.get_mut(usize::from(color.0)).into_iter().for_each(|n| *n += 1);
        }
        ColorSpread { by_color, pages: pages.len() as u64 }
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
        crowds(&self.by_color, ways.into())
    }
}

/// Colours of which there are more pages than `room`.
pub(super) fn crowds(by_color: &[u64], room: u64) -> Vec<Crowd> {
    let all = (0..).zip(by_color).map(|(color, &pages)| Crowd { color, pages });
    all.filter(|crowd| crowd.pages > room).collect()
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

/// The policy; see the [module](self).
#[derive(Clone, Debug)]
pub struct InUse<P> {
    policy: P,
    settings: InUseSettings,
    /// Since the last turn, and for longer.
    lately: Looks,
    looks: Looks,
    /// By page, since pages were last moved or looked for.
    by_page: HashMap<Vpn, Looks>,
    /// How the pages in use lay when they were last looked for.
    pub spread: ColorSpread,
    /// The same before anything was moved.
    pub residency_at_first: Option<f64>,
    now: f64,
    /// Nothing is asked before then.
    quiet_until: f64,
    trial: Option<Trial>,
    rests: Doubling,
    /// Snapshots since pages were moved.
    snapshots: u32,
    lulls: Doubling,
    /// How often pages were to be moved.
    pub conflicts: u32,
    /// Where pages are to go that are being moved.
    asked: HashMap<Vpn, Color>,
    /// How often looks were wrong at the last turn.
    errors: Errors,
}

impl<P: Policy> InUse<P> {
    /// By a policy of conflicts, which has seen nothing yet.
    pub fn with(settings: InUseSettings, policy: P) -> InUse<P> {
        InUse {
            policy,
            lately: Looks::default(),
            looks: Looks::default(),
            by_page: HashMap::new(),
            spread: ColorSpread::default(),
            residency_at_first: None,
            now: 0.0,
            quiet_until: 0.0,
            trial: None,
            rests: Doubling::new(settings.rest.0, settings.rest.1),
            snapshots: 0,
            lulls: Doubling::new(settings.lull.0, settings.lull.1),
            conflicts: 0,
            asked: HashMap::new(),
            errors: Errors::default(),
            settings,
        }
    }

    /// A line of a page in use was looked at.
    pub fn looked(&mut self, page: Vpn, found: bool) {
        self.lately.add(found);
        if self.looks.all >= self.settings.remembered {
            (self.looks.all, self.looks.found) = (self.looks.all / 2.0, self.looks.found / 2.0);
        }
        self.looks.add(found);
        self.by_page.entry(page).or_default().add(found);
        let sample = Event::Sample { page, missed: 1, memory: !found };
        self.policy.handle(sample, &mut Vec::new());
    }

    /// It is so many seconds since the beginning; looks are wrong so often.
    pub fn passed(&mut self, now: f64, errors: Errors) -> InUseMoves {
        (self.now, self.errors) = (now, errors);
        self.decide_trial(errors);
        let lately = std::mem::take(&mut self.lately);
        let missing = 1.0 - lately.share(errors).unwrap_or(1.0);
        if now < self.quiet_until || self.trial.is_some() || missing < self.settings.floor {
            return InUseMoves::default();
        }
        let mut wants = self.tell_time((missing * lately.all).round());
        wants.snapshot |= self.settings.watches && wants.moves.is_empty();
        if wants.snapshot {
            self.snapshots += 1;
            let put_off = self.snapshots > self.settings.free_snapshots;
            let lull = if put_off { self.lulls.take() } else { 0 };
            self.quiet_until = now + seconds(lull);
        }
        wants
    }

    /// Tells the policy of time and misses.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
    fn tell_time(&mut self, misses: f64) -> InUseMoves {
        let (time, mut actions) = ((self.now * 1e9) as u64, Vec::new());
        let passed = Event::Progress { cycles: time, instructions: time };
        self.policy.handle(passed, &mut actions);
        self.policy.handle(Event::MissOverflow { misses: misses as u64 }, &mut actions);
        self.take_requests(actions)
    }

    /// Pages are to be moved: what that brings is judged later.
    fn begin_trial(&mut self, moves: &[(Vpn, Color)]) {
        (self.conflicts, self.snapshots) = (self.conflicts + 1, 0);
        self.lulls.reset();
        self.residency_at_first = self.residency_at_first.or(self.residency(self.errors));
        let pages: Vec<Vpn> = moves.iter().map(|request| request.0).collect();
        let before = self.looks_at(&pages).share(self.errors).unwrap_or(0.0);
        self.trial = Some(Trial { pages, before, since: self.now });
    }

    fn looks_at(&self, pages: &[Vpn]) -> Looks {
        let looks = pages.iter().filter_map(|page| self.by_page.get(page));
        looks.fold(Looks::default(), |sum, looks| Looks {
            all: sum.all + looks.all,
            found: sum.found + looks.found,
        })
    }

    /// These pages are in use; the policy hears of it if it asked, and may have some of them moved.
    pub fn in_use(&mut self, pages: &[(Vpn, Option<Color>)], asked: bool) -> InUseMoves {
        self.spread = ColorSpread::of(pages, self.settings.shape.colors);
        if self.trial.is_none() && !asked {
            self.by_page.clear();
        }
        let mut actions = Vec::new();
        for &(page, color) in pages {
            self.policy.handle(Event::Faulted { page, color }, &mut actions);
        }
        if asked && self.trial.is_none() && !self.is_too_large() {
            self.policy.handle(Event::TlbFlushed, &mut actions);
            for &(page, _) in pages {
                let missed = Event::TlbMiss { page, order: 0, victim: None };
                self.policy.handle(missed, &mut actions);
            }
        }
        self.take_requests(actions)
    }

    /// What became of the pages that were to be moved.
    pub fn answered(&mut self, placed: &[(Vpn, bool)]) {
        for &(page, there) in placed {
            let event = match there {
                true => Event::Moved { page },
                false => Event::Refused { page, why: MoveRefusal::Other },
            };
            self.policy.handle(event, &mut Vec::new());
            self.asked.remove(&page);
        }
        // What was not heard of was not moved.
        for (page, _) in std::mem::take(&mut self.asked) {
            let refused = Event::Refused { page, why: MoveRefusal::Other };
            self.policy.handle(refused, &mut Vec::new());
        }
        let moved = placed.iter().filter(|(_, there)| *there).count();
        self.quiet_until = self.now + moved as f64 / f64::from(self.settings.rate.max(1));
        if moved == 0 {
            self.give_up();
        }
        (self.lately, self.looks) = (Looks::default(), Looks::default());
        self.by_page.clear();
    }

    /// Whether the last move brought anything.
    fn decide_trial(&mut self, errors: Errors) {
        let Some(trial) = self.trial.as_ref().filter(|_| self.asked.is_empty()) else { return };
        let looks = self.looks_at(&trial.pages);
        if looks.all < self.settings.least_looks
            && self.now < trial.since + self.settings.longest_trial
        {
            return;
        }
        // Of pages that nobody uses any more nothing is known.
        let gain = looks.share(errors).map_or(0.0, |after| after - trial.before);
        self.trial = None;
        if gain < self.settings.gain {
            self.give_up();
        } else {
            self.rests.reset();
        }
    }

    /// Nothing was gained: rests, for longer each time.
    fn give_up(&mut self) {
        self.trial = None;
        self.quiet_until = self.now + seconds(self.rests.take());
    }

    /// What a policy wants, as far as it can be had: nothing goes where others are, nor more than a second's.
    fn take_requests(&mut self, actions: Vec<Action>) -> InUseMoves {
        let (mut wants, mut refused) = (InUseMoves::default(), Vec::new());
        let most = usize::try_from(self.settings.rate.max(1)).unwrap_or(usize::MAX);
        for action in actions {
            match action {
                Action::FlushTlb => wants.snapshot = true,
                Action::Recolour { page, to }
                    if wants.moves.len() >= most || self.settings.keep_off.contains(to) =>
                {
                    refused.push(page);
                }
                Action::Recolour { page, to } => {
                    self.asked.insert(page, to);
                    wants.moves.push((page, to));
                }
                _ => {}
            }
        }
        for page in refused {
            let refused = Event::Refused { page, why: MoveRefusal::NoFrame };
            self.policy.handle(refused, &mut Vec::new());
        }
        if !wants.moves.is_empty() {
            self.begin_trial(&wants.moves);
        }
        wants
    }

    /// The share of the lines of pages in use that is in the cache.
    pub fn residency(&self, errors: Errors) -> Option<f64> {
        self.looks.share(errors)
    }

    /// Whether so many pages fit the cache.
    pub fn fits(&self, pages: usize) -> bool {
        pages as u64 <= self.settings.shape.pages()
    }

    /// Whether more pages are in use than the cache holds.
    pub fn is_too_large(&self) -> bool {
        self.spread.pages > self.settings.shape.pages()
    }

    /// The words for what is being done.
    pub fn stage(&self) -> String {
        let fits = self.settings.shape.pages();
        match () {
            () if self.spread.pages == 0 => "no page is used again and again".to_owned(),
            () if self.is_too_large() => {
                format!("left alone: more pages are in use than the {fits} that fit")
            }
            () if !self.asked.is_empty() => "recolouring".to_owned(),
            () if self.trial.is_some() => "waiting for what that brings".to_owned(),
            () if self.rests.times() > 0 => "resting: recolouring brought nothing".to_owned(),
            () if self.conflicts > 0 => "recoloured".to_owned(),
            () => "no conflicts found".to_owned(),
        }
    }
}

/// Of milliseconds.
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}
