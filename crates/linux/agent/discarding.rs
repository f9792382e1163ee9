//! What the program is giving back at the moment: pages that must not be taken out just then.

use crate::sys;

/// Ranges that the program is discarding: it told us, and does it a moment later. A page
/// taken out in between would come back from the dead, so such ranges are left alone for as
/// long as a thread may well be kept from running.
pub struct Discarding {
    ranges: [(u64, u64, i64); DISCARDS],
    next: usize,
    /// No range is forgotten before its time: when they get too many, nothing is moved.
    blocked_until: i64,
}

/// Ranges remembered at a time.
const DISCARDS: usize = 64;
const DISCARD_NS: i64 = 200_000_000;

impl Discarding {
    pub const NONE: Discarding =
        Discarding { ranges: [(0, 0, 0); DISCARDS], next: 0, blocked_until: 0 };

    pub fn add(&mut self, start: u64, end: u64) {
        let now = sys::now_ns();
        // SAFETY: `next` is kept below DISCARDS.
        let place = unsafe { &mut *self.ranges.as_mut_ptr().add(self.next) };
        if place.2 > now {
            self.blocked_until = place.2;
        }
        *place = (start, end, now + DISCARD_NS);
        self.next = (self.next + 1) & (DISCARDS - 1);
    }

    pub fn touches(&self, start: u64, bytes: u64) -> bool {
        let now = sys::now_ns();
        if self.blocked_until > now {
            return true;
        }
        let mut i = 0;
        while i < DISCARDS {
            // SAFETY: `i` is below DISCARDS.
            let (from, to, until) = unsafe { *self.ranges.as_ptr().add(i) };
            if until > now && from < start + bytes && start < to {
                return true;
            }
            i += 1;
        }
        false
    }
}
