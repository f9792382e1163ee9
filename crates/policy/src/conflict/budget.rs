//! A budget for recolouring, for what Romer 1998, section 5.7 leaves open: where the cache is
//! too small, pages conflict again wherever they are put, and moving them only costs. A move
//! costs one credit. A page that stays out of conflicts pays two back, so that a program whose
//! conflicts can be resolved soon gets all the moves it needs; one that comes back pays
//! nothing and may not move for a while, twice as long each time that it comes back soon, up to a bound. Times are
//! cycles, or whatever else its policy counts. Knows nothing of colours.

use std::collections::{HashMap, VecDeque};

use huepage_color::{NumberHash, Vpn};

use crate::backoff::Doubling;

/// How generous it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Credits at the start: moves that may all be in vain.
    pub start: u32,
    /// Most credits.
    pub most: u32,
    /// Shortest time in cycles after which a page that did not come back counts as resolved.
    pub proof: u64,
    /// Half of the time in cycles for which a page rests that came back for the first time.
    pub rest: u64,
    /// Doublings of that time at most. Where credits bound what moves in vain cost in all, a page that rests
    /// for longer only stays in a conflict that has come to last.
    pub doublings: u32,
    /// Cycles for a credit that comes without proof: the price of finding out that things
    /// have changed.
    pub refill: u64,
}

impl Default for BudgetSettings {
    /// A conflict shows before the CML buffer is cleared, every 5 x 10^6 cycles, or not at all. A
    /// move in vain costs about 10^4 cycles on the thesis's machine and as much again for the
    /// conflicts it makes: one in 16 x 10^6 cycles is an eighth of a hundredth. The longest rest is two of these.
    fn default() -> BudgetSettings {
        BudgetSettings {
            start: 12,
            most: 256,
            proof: 5_000_000,
            rest: 1_000_000,
            doublings: 4,
            refill: 16_000_000,
        }
    }
}

/// A page that was moved.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// The latest move, by number.
    serial: u64,
    /// It has not come back since.
    quiet: bool,
    /// For each time that it came back.
    rests: Doubling,
    rests_until: u64,
    /// The latest rest, in cycles.
    rested: u64,
    /// When it was moved last.
    moved: u64,
}

/// The budget; see the [module](self). Memory in proportion to the pages moved.
#[derive(Clone, Debug)]
pub struct MoveBudget {
    settings: BudgetSettings,
    /// Moves that may be made now.
    pub credit: u32,
    now: u64,
    refilled: u64,
    serial: u64,
    past: HashMap<Vpn, Past, NumberHash>,
    /// When a move is proven, its page and its number; in the order of time but for proofs of
    /// other lengths, which wait for those before them.
    trials: VecDeque<(u64, Vpn, u64)>,
}

impl MoveBudget {
    /// Nothing moved yet.
    pub fn new(settings: BudgetSettings) -> MoveBudget {
        MoveBudget {
            credit: settings.start,
            settings,
            now: 0,
            refilled: 0,
            serial: 0,
            past: HashMap::default(),
            trials: VecDeque::new(),
        }
    }

    /// It is this late, in cycles since the beginning.
    pub fn pass(&mut self, now: u64) {
        self.now = now;
        let periods = (now - self.refilled.min(now)) / self.settings.refill.max(1);
        self.refilled += periods * self.settings.refill.max(1);
        self.earn(u32::try_from(periods).unwrap_or(u32::MAX));
        while let Some(&(_, page, serial)) = self.trials.front().filter(|trial| trial.0 <= now) {
            self.trials.pop_front();
            let proven = self.past.get(&page).is_some_and(|p| p.serial == serial && p.quiet);
            self.earn(if proven { 2 } else { 0 });
        }
    }

    /// A move that was paid for was not made.
    pub fn refund(&mut self, page: Vpn) {
        if let Some(at) = self.trial(page) {
            self.trials.remove(at);
            self.earn(1);
        }
    }

    /// A move that was paid for is taken back: nothing comes of it any more.
    pub fn settle(&mut self, page: Vpn) {
        if let Some(at) = self.trial(page) {
            self.trials.remove(at);
        }
    }

    /// The latest move of a page, among those that are not proven yet.
    fn trial(&self, page: Vpn) -> Option<usize> {
        let serial = self.past.get(&page)?.serial;
        self.trials.iter().position(|trial| (trial.1, trial.2) == (page, serial))
    }

    fn earn(&mut self, credits: u32) {
        self.credit = self.credit.saturating_add(credits).min(self.settings.most);
    }

    /// A page was found in a conflict.
    pub fn again(&mut self, page: Vpn) {
        let Some(past) = self.past.get_mut(&page).filter(|past| past.quiet) else { return };
        past.quiet = false;
        // What was worth it for longer than it was waited for is no failure.
        if self.now.saturating_sub(past.moved) > past.rested.max(self.settings.proof) {
            past.rests.reset();
        }
        past.rested = past.rests.take();
        past.rests_until = self.now.saturating_add(past.rested);
    }

    /// Whether a page may be moved now.
    pub fn allows(&self, page: Vpn) -> bool {
        self.credit > 0 && self.past.get(&page).is_none_or(|past| past.rests_until <= self.now)
    }

    /// Notes that a page is moved. It will have been worth it if the page is in no conflict for
    /// twice the time that this conflict took to show, in cycles.
    pub fn spend(&mut self, page: Vpn, took: u64) {
        self.credit = self.credit.saturating_sub(1);
        self.serial += 1;
        let rests = Doubling::new(2 * self.settings.rest, self.settings.doublings);
        let fresh = Past { serial: 0, quiet: true, rests, rests_until: 0, rested: 0, moved: 0 };
        let past = self.past.entry(page).or_insert(fresh);
        (past.serial, past.quiet, past.moved) = (self.serial, true, self.now);
        let proof = took.saturating_mul(2).max(self.settings.proof);
        self.trials.push_back((self.now + proof, page, self.serial));
    }
}
