//! A member whose pages lie right rests: its thread sleeps until the agent serves a fault, an order comes, the
//! process ends, or the group's watch finds that something has changed. What counts as a change, and how soon it is
//! looked at, is decided by [`huepage_policy::settled`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use huepage_policy::balance::{BalanceSettings, ColorBalance};
use huepage_policy::pace::{Gap, GapSettings};
use huepage_policy::settled::{AuditPace, AuditSettings, Signs};

use super::orders::Inbox;
use super::rest::{Rest, Resting};
use super::{Member, PAUSE_LONGEST};
use crate::engine::EngineError;
use crate::kernel::signs::SignReader;

/// When the pages of a member are looked at, and when it rests.
pub(super) struct Settling {
    reader: Arc<SignReader>,
    /// In time since `began`.
    pub pace: AuditPace,
    /// When pages are spread over its colours, after audits.
    pub balance: ColorBalance,
    pub began: Instant,
    /// Where it is said that it rests.
    pub rest: Arc<Rest>,
    /// Signs, and pages migrated on the machine, before the last audit; none: it is to be looked at.
    signs: Option<Signs>,
    migrations: u64,
    /// What the last audit took, without repairs.
    looking: Duration,
    /// How often it is looked at who it is.
    identity: Gap,
    /// When it was woken last, if it slept for a moment only.
    woken: Option<Instant>,
}

impl Settling {
    pub fn new(reader: SignReader) -> Settling {
        Settling {
            reader: Arc::new(reader),
            pace: AuditPace::new(AuditSettings::default(), Duration::ZERO),
            balance: ColorBalance::new(BalanceSettings::default()),
            began: Instant::now(),
            rest: Arc::default(),
            signs: None,
            migrations: 0,
            looking: Duration::ZERO,
            identity: Gap::new(GapSettings::IDENTITY),
            woken: None,
        }
    }
}

impl Member {
    /// An audit begins: what changes from now on it may not have seen.
    pub(super) fn note_signs(&mut self) {
        self.settling.signs = self.settling.reader.read();
        self.settling.migrations = self.settling.rest.migrations();
    }

    /// Has its pages looked at once more.
    pub(super) fn look_once_more(&mut self) {
        self.settling.signs = None;
    }

    /// An audit has ended that took so long, without repairs.
    pub(super) fn note_looking(&mut self, looking: Duration) {
        self.settling.looking = looking;
    }

    /// Whether the last audit found that all lies right, and nothing speaks for another one.
    pub(super) fn needs_no_audit(&self) -> bool {
        if !self.settling.pace.is_calm() || !self.waiting.traps().is_empty() {
            return false;
        }
        let (before, now) = (self.settling.signs, self.settling.reader.read());
        let unchanged = before.zip(now).is_some_and(|(before, now)| {
            !self.settling.pace.wakes(&before, &now, self.settling.began.elapsed())
        });
        // Pages of a buffer that could not be moved at once are moved by an audit.
        unchanged
            && self.buffer_lies_right()
            && self.policy.next_attempt().is_none_or(|audits| audits > 0)
    }

    /// Rests, if nothing is to be done before something changes; whether it did.
    pub(super) fn rest_if_settled(&mut self, orders: &Inbox) -> Result<bool, EngineError> {
        // Whoever wakes it over and over costs no more than if it never slept.
        let early = self.settling.woken.is_some_and(|at| at.elapsed() < PAUSE_LONGEST);
        let open = self.stock.filling || self.config.storm || self.foreign.is_suspected();
        if early || open || !self.needs_no_audit() {
            return Ok(false);
        }
        let faults = self.agent.counts().faults;
        // Signs come first: what the looks after them miss is a change.
        let Some(signs) = self.settling.signs else { return Ok(false) };
        if self.has_more_to_do()? {
            return Ok(false);
        }
        self.sleep(signs, faults, orders);
        Ok(true)
    }

    /// A last look for what is looked at seldom, or not at all while it rests.
    fn has_more_to_do(&mut self) -> Result<bool, EngineError> {
        self.foreign.look_now();
        self.new_memory.look_now();
        self.settle_stock()?;
        Ok(self.is_stock_low()
            || self.follow_userfaultfds()?
            || self.follow_new_memory()?
            || self.has_other_user()?)
    }

    fn sleep(&mut self, signs: Signs, faults: u64, orders: &Inbox) {
        self.note_counters();
        self.leave_program();
        let now = Instant::now();
        let resting = Resting {
            signs,
            reader: Arc::clone(&self.settling.reader),
            pace: self.settling.pace,
            began: self.settling.began,
            user: self.user,
            identity: (now, self.settling.identity),
            upkeep: self.upkeep.of_member().filter(|_| self.foreign.may_look()),
            own_userfaultfd: self.foreign.was_seen(),
            room: self.pool_filler.limited_room().map(|room| (room, self.stock.is_short())),
            migrations: self.settling.migrations,
            looking: self.settling.looking,
            confirmed: now,
            ran: true,
            newest: None,
            audit: false,
        };
        let audits = self.policy.next_attempt();
        let longest = audits.map_or(Duration::MAX, |audits| self.settling.pace.longest() * audits);
        let longest =
            resting.hurried().map_or(longest, |time| time.max(PAUSE_LONGEST).min(longest));
        *self.settling.rest.lock() = Some(resting);
        self.agent.ring_at_faults(true);
        if self.agent.counts().faults == faults {
            orders.sleep(self.agent.descriptor(), longest);
        }
        self.agent.ring_at_faults(false);
        self.wake(now);
    }

    fn wake(&mut self, slept: Instant) {
        let rested = self.settling.rest.lock().take();
        self.settling.woken = (slept.elapsed() < PAUSE_LONGEST).then(Instant::now);
        let Some(rested) = rested else { return };
        self.settling.identity = rested.identity.1;
        if rested.audit {
            self.look_once_more();
        }
        // Audits that would have been made, for pages that wait for some.
        let longest = self.settling.pace.longest().as_millis().max(1);
        let audits = slept.elapsed().as_millis() / longest;
        self.policy.skip_audits(u32::try_from(audits).unwrap_or(u32::MAX));
        self.note_unchanged(rested.confirmed);
    }
}
