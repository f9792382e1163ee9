//! What is known of a member that needs no care: its pages lie right, and its thread sleeps until something
//! changes. The thread says so here; the [`watch`](crate::engine::watch) of the group reads it, and wakes the thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;
use huepage_policy::pace::Gap;
use huepage_policy::settled::{AuditPace, Signs};

use super::User;
use crate::color::sources::ColorUpkeep;
use crate::kernel::memory_room::MemoryRoom;
use crate::kernel::signs::SignReader;

/// A member that rests.
pub struct Resting {
    /// Its signs before its pages were found to lie right, but for the time that it has run since.
    pub signs: Signs,
    /// What reads them.
    pub reader: Arc<SignReader>,
    /// Which others are to wake it, in time since the member `began`.
    pub pace: AuditPace,
    /// See `pace`.
    pub began: Instant,
    /// Who it was when that was looked at last.
    pub user: User,
    /// When that was, and when it is due again; userfaultfds are looked for then, too.
    pub identity: (Instant, Gap),
    /// What keeps its colours true, and its number there.
    pub upkeep: Option<(Arc<ColorUpkeep>, u64)>,
    /// Whether it is known to have had a userfaultfd of its own.
    pub own_userfaultfd: bool,
    /// What its control groups leave it, if they limit it, and whether that was nothing.
    pub room: Option<(MemoryRoom, bool)>,
    /// Pages migrated on the machine before its pages were looked at, and what a look takes.
    pub migrations: u64,
    /// See `migrations`.
    pub looking: Duration,
    /// When it was last seen that nothing had changed.
    pub confirmed: Instant,
    /// Whether it has run since its children were looked for, and the newest process of the machine then.
    pub ran: bool,
    /// See `ran`.
    pub newest: Option<u64>,
    /// Whether its pages are to be looked at, whatever the signs are.
    pub audit: bool,
}

impl Resting {
    /// Whether it has come to be short of memory, or is so no longer: its stock is to be given back, or filled.
    pub fn room_changed(&mut self) -> bool {
        let Some((room, short)) = &mut self.room else { return false };
        room.left().is_some_and(|bytes| bytes < PAGE_BYTES) != *short
    }

    /// When it has to look whether its colours are still true, as pages were found moved; `None`: when the watch finds
    /// that it is time.
    pub fn hurried(&self) -> Option<Duration> {
        let (upkeep, id) = self.upkeep.as_ref()?;
        upkeep.hurried(*id)
    }
}

/// Whether a member rests.
#[derive(Default)]
pub struct Rest {
    state: Mutex<Option<Resting>>,
    /// Pages migrated on the machine when that was looked at last.
    migrations: Arc<AtomicU64>,
}

impl Rest {
    /// Of a member of a group that keeps this count of migrations.
    pub fn new(migrations: &Arc<AtomicU64>) -> Rest {
        Rest { state: Mutex::default(), migrations: Arc::clone(migrations) }
    }

    /// What is known of it; `None` if it is looked after.
    pub fn lock(&self) -> MutexGuard<'_, Option<Resting>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it rests.
    pub fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// Pages migrated on the machine so far, as far as is known.
    pub fn migrations(&self) -> u64 {
        self.migrations.load(Relaxed)
    }
}
