//! Backing candidates from both ends: while the worker backs and times them in ascending order, the first thread backs
//! those ahead of it in descending order, until the two meet. Faults come first, so that it backs a few pages at a time.

use core::sync::atomic::Ordering::Relaxed;

use crate::protocol::Shared;
use crate::sys::{self, PAGE};
use crate::worker::{READ_WRITE, back};

/// Bytes that are backed at a time: a fault waits for them, 20 us, or 200 us where the host has to find the memory.
const STEP: u64 = 16 * PAGE;

/// What is left to be backed.
pub struct BackingAhead {
    start: u64,
    end: u64,
}

impl BackingAhead {
    pub const NONE: BackingAhead = BackingAhead { start: 0, end: 0 };

    /// These are the ones from now on; all can be accessed. How far the worker came in others, maybe of an earlier round
    /// at higher addresses, says nothing of them.
    pub fn begin(&mut self, shared: &Shared, start: u64, end: u64) -> i64 {
        *self = BackingAhead { start, end };
        shared.backed.store(start, Relaxed);
        if self.is_pending() { sys::protect(start, end - start, READ_WRITE) } else { 0 }
    }

    pub fn is_pending(&self) -> bool {
        self.start < self.end
    }

    /// Backs the next pages, unless the worker has come here.
    pub fn step(&mut self, shared: &Shared) {
        let start = self.start.max(shared.backed.load(Relaxed));
        let next = self.end.saturating_sub(STEP).max(start);
        if next >= self.end || back(next, self.end - next) < 0 {
            *self = BackingAhead::NONE;
        } else {
            self.end = next;
        }
    }
}
