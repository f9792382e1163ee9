//! Watches the members of a group that rest: one thread reads what the kernel counts for them and wakes those for
//! which anything has changed. When and how many are looked at is decided by [`huepage_policy::settled`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use huepage_policy::settled::{SignWatch, SignWatchSettings};

use super::member::orders::Orders;
use super::member::rest::{Rest, Resting};
use super::member::user_of;
use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::ProcRoot;
use crate::kernel::signs::MachineSigns;

/// See the module's head.
pub struct GroupWatch {
    watch: SignWatch,
    began: Instant,
    root: ProcRoot,
    machine: MachineSigns,
    migrations: Arc<AtomicU64>,
    /// Who is the first of the next round.
    turn: usize,
    /// CPU time of this thread when the last round ended.
    ended: Duration,
}

impl GroupWatch {
    pub fn new(root: ProcRoot) -> GroupWatch {
        GroupWatch {
            watch: SignWatch::new(SignWatchSettings::default()),
            began: Instant::now(),
            machine: MachineSigns::open(&root),
            root,
            migrations: Arc::default(),
            turn: 0,
            ended: thread_time(),
        }
    }

    /// The place of a new member.
    pub fn rest(&self) -> Arc<Rest> {
        Arc::new(Rest::new(&self.migrations))
    }

    /// How long until the next round.
    pub fn wait(&self) -> Duration {
        self.watch.wait(self.began.elapsed())
    }

    /// How long to wait after what took so much CPU time and has to be done for members that rest.
    pub fn pause(&self, spent: Duration) -> Duration {
        self.watch.pause(spent)
    }

    /// The newest process or thread of the machine: while it is the same none has begun. `None` where that is not told.
    pub fn newest(&self) -> Option<u64> {
        self.machine.newest()
    }

    /// One round, if it is time.
    pub fn look<'a>(&mut self, members: impl Iterator<Item = (&'a Rest, &'a Orders)>) {
        if self.wait() > Duration::ZERO {
            return;
        }
        let start = thread_time();
        let spent = || thread_time().saturating_sub(start);
        if self.watch.migrations_due(self.began.elapsed()) {
            self.migrations.store(self.machine.migrations().unwrap_or(0), Relaxed);
        }
        let members: Vec<_> = members.collect();
        let first = self.turn % members.len().max(1);
        for (rest, orders) in members[first..].iter().chain(&members[..first]) {
            if !self.watch.goes_on(spent()) {
                break;
            }
            self.turn = self.turn.wrapping_add(1);
            if rest.lock().as_mut().is_some_and(|resting| self.wakes(resting)) {
                orders.ring();
            }
        }
        let turn = start.saturating_sub(self.ended);
        self.ended = thread_time();
        self.watch.looked(self.began.elapsed(), self.ended.saturating_sub(start), turn);
    }

    /// Whether anything has changed for a member.
    fn wakes(&mut self, resting: &mut Resting) -> bool {
        let upkeep = resting.upkeep.as_ref();
        if upkeep.is_some_and(|(upkeep, id)| upkeep.due(*id).is_some()) {
            return true;
        }
        if self.is_to_be_audited(resting) {
            resting.audit = true;
            return true;
        }
        let changed = resting.room_changed() || self.has_changed(resting);
        if !changed {
            resting.confirmed = Instant::now();
        }
        changed
    }

    /// Whether pages were migrated since its own were looked at, and there is time for that.
    fn is_to_be_audited(&mut self, resting: &Resting) -> bool {
        let migrated = resting.migrations != self.migrations.load(Relaxed);
        migrated && self.watch.audit_due(self.began.elapsed(), resting.looking)
    }

    /// What has not run has changed nothing.
    fn has_changed(&self, resting: &mut Resting) -> bool {
        if resting.reader.ran() == Some(resting.signs.ran) {
            return false;
        }
        resting.ran = true;
        let Some(signs) = resting.reader.read() else { return true };
        if resting.pace.wakes(&resting.signs, &signs, resting.began.elapsed()) {
            return true;
        }
        if resting.signs.same_memory(&signs) {
            resting.signs.ran = signs.ran;
        }
        self.is_another(resting)
    }

    /// Whether it has other rights, or a userfaultfd of its own, as far as it is time to look.
    fn is_another(&self, resting: &mut Resting) -> bool {
        let pid = resting.reader.pid();
        let (at, gap) = &mut resting.identity;
        if at.elapsed() < gap.now() {
            return false;
        }
        *at = Instant::now();
        let _ = gap.after(Duration::ZERO, false);
        let user = self.root.status(pid).map(|status| user_of(&status));
        let opened = || self.root.userfaultfds(pid).is_ok_and(|n| n > 0);
        user.ok() != Some(resting.user) || !resting.own_userfaultfd && opened()
    }
}
