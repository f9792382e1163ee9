//! Memory that a userfaultfd of the program's own serves. What lies there is the program's decision, page
//! by page: it is not watched, not moved and not even read, since a read of a missing page is a fault
//! that the program would see.
//!
//! The kernel lets one userfaultfd register an area. So once the program was seen to have one, none of its
//! memory is watched by us any more: faults are the kernel's, and audits move pages into the partition. That
//! stays so when it is closed: whoever opens one will open the next, and registers memory at once, before we
//! can have noticed. For [`GRACE_TIME`] after the first was seen nothing moves either; a move registers memory
//! for a moment. A userfaultfd may have been handed to another process: areas that the kernel does not let
//! us register are the program's, too.
//!
//! Nor is a page of such a program moved before it was seen in the same frame for [`SETTLING_TIME`]: what was
//! mapped a moment ago may be the program's to serve a moment later.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_color::{Pfn, Vpn};

use super::Member;
use crate::engine::EngineError;
use crate::engine::census::{Outside, overlaps};
use crate::kernel::procfs::{Area, VmFlags, obstacle};

/// For how long after a userfaultfd was first seen nothing moves.
const GRACE_TIME: Duration = Duration::from_secs(1);
/// For how long a page of a program that serves faults itself lies in one frame before it is moved.
const SETTLING_TIME: Duration = Duration::from_secs(1);
/// After how long a page that is not moved has to settle anew, so that what went away is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// Time between looks at the descriptors, in times of what a look takes.
const LOOK_INTERVAL_FACTOR: u32 = 50;

/// What is known of the program's own userfaultfds.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// Areas registered with them, by address.
    areas: Vec<(u64, u64)>,
    /// When one was first seen.
    seen: Option<Instant>,
    next_look: Option<Instant>,
    /// The frames of pages, and since when they are known to be there.
    frames: HashMap<Vpn, (Pfn, Instant)>,
    /// The kernel has refused to register memory for us.
    suspected: bool,
}

impl Foreign {
    /// Areas to keep away from.
    pub fn areas(&self) -> &[(u64, u64)] {
        &self.areas
    }

    /// Whether pages may be moved now.
    pub fn may_move(&self) -> bool {
        self.seen.is_none_or(|since| since.elapsed() >= GRACE_TIME)
    }

    /// Whether pages may be taken out to be looked at, for which memory is registered for a moment. That can
    /// always wait: never while the program may serve any memory itself.
    pub fn may_look(&self) -> bool {
        self.seen.is_none() && self.areas.is_empty() && !self.suspected
    }

    /// Whether the program ever had one, as far as is known.
    pub fn was_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// Whether a page, which lies in this frame now, has lain there for long enough to be moved.
    fn is_settled(&mut self, page: Vpn, frame: Pfn, now: Instant) -> bool {
        let known = self.frames.entry(page).or_insert((frame, now));
        if known.0 != frame {
            *known = (frame, now);
        }
        now.duration_since(known.1) >= SETTLING_TIME
    }

    /// Whether areas are to be looked for.
    pub fn is_suspected(&self) -> bool {
        self.suspected
    }

    /// The next look at the descriptors is due.
    pub fn look_now(&mut self) {
        self.next_look = None;
    }

    /// Has areas looked for at the next occasion.
    pub fn suspect(&mut self) {
        self.suspected = true;
    }
}

/// Whether an area with these flags is registered with a userfaultfd that is not ours, as far as the flags
/// tell. We hear of missing pages only, and of these only where areas are watched.
pub(super) fn is_foreign(flags: VmFlags, watched: bool) -> bool {
    flags.intersects(VmFlags::UFFD_WP | VmFlags::UFFD_MINOR)
        || !watched && flags.intersects(VmFlags::UFFD_MISSING)
}

impl Member {
    /// Whether memory is watched by us, so that faults are answered with frames of the partition.
    pub(super) fn watches(&self) -> bool {
        self.serves() && self.foreign.seen.is_none()
    }

    /// What ranges that are watched must not reach into.
    pub(super) fn apart_ranges(&self) -> Vec<(u64, u64)> {
        let mut all = self.agent.own_ranges();
        all.extend_from_slice(self.foreign.areas());
        all
    }

    /// Notices a userfaultfd that the program opens. True when something was done.
    pub(super) fn follow_userfaultfds(&mut self) -> Result<bool, EngineError> {
        let start = Instant::now();
        if self.foreign.next_look.is_some_and(|next| start < next) {
            return Ok(false);
        }
        let first = self.foreign.seen.is_none() && self.root.userfaultfds(self.pid)? > 0;
        if first {
            self.make_way()?;
        } else if self.foreign.suspected {
            self.find_foreign()?;
            self.serve_areas()?;
            self.foreign.suspected = false;
        }
        self.foreign.next_look = Some(start + start.elapsed() * LOOK_INTERVAL_FACTOR);
        Ok(first)
    }

    /// One was seen just now, which may be closed again.
    pub(super) fn saw_userfaultfd(&mut self) -> Result<(), EngineError> {
        if self.foreign.seen.is_none() { self.make_way() } else { Ok(()) }
    }

    /// Leaves the pages that have lain where they are for long enough. Costs about 0.5 us per page.
    pub(super) fn keep_settled(&mut self, pages: &mut Vec<Outside>) -> Result<(), EngineError> {
        let now = Instant::now();
        let mut settled = Vec::with_capacity(pages.len());
        for page in pages.iter() {
            let frame = self.pagemap.entry(page.seen.page)?.pfn();
            let known = |frame| self.foreign.is_settled(page.seen.page, frame, now);
            if frame.is_some_and(known) {
                settled.push(*page);
            }
        }
        *pages = settled;
        Ok(())
    }

    /// Watches nothing any more, so that the program can register what it likes. Nothing is placed ahead of
    /// faults from now on: the kernel may make one area of what the program fills and of what it will serve
    /// itself, and it would never hear of pages placed ahead.
    fn make_way(&mut self) -> Result<(), EngineError> {
        self.agent.place_singly();
        let watched = self.watches();
        if watched {
            self.foreign.suspected = true;
            self.find_foreign()?;
        }
        self.foreign.seen = Some(Instant::now());
        if watched {
            // Area by area: kernels before 6.17 also undo registrations of others.
            let apart = self.apart_ranges();
            let areas = self.root.maps(self.pid)?;
            let ours = areas.iter().filter(|a| a.is_private_anonymous() && !overlaps(a, &apart));
            let ours: Vec<(u64, u64)> = ours.map(|area| (area.start, area.end)).collect();
            self.agent.unwatch(&ours)?;
        }
        self.foreign.suspected = false;
        self.with_status(|s| s.own_userfaultfd = true);
        self.audit_now();
        Ok(())
    }

    /// Looks up which areas the program serves, if there is a reason to think that there are any.
    pub(super) fn find_foreign(&mut self) -> Result<(), EngineError> {
        let known = self.foreign.seen.is_some() || !self.foreign.areas.is_empty();
        if !known && !self.foreign.suspected {
            return Ok(());
        }
        self.foreign.frames.retain(|_, (_, since)| since.elapsed() < FORGOTTEN_AFTER);
        let watched = self.watches();
        let mut areas = Vec::new();
        for (start, end, flags) in self.registered()? {
            // The kernel registers again what is ours, and refuses what is not.
            if is_foreign(flags, watched) || watched && self.agent.watch(&[(start, end)])? > 0 {
                areas.push((start, end));
            }
        }
        self.foreign.areas = areas;
        let found = self.foreign.areas.clone();
        self.with_status(|s| {
            s.foreign_most = s.foreign_most.max(found.len());
            s.foreign = found;
        });
        Ok(())
    }

    /// Private memory that is registered with some userfaultfd and not part of the agent.
    fn registered(&self) -> Result<Vec<(u64, u64, VmFlags)>, EngineError> {
        let any = VmFlags::UFFD_MISSING | VmFlags::UFFD_WP | VmFlags::UFFD_MINOR;
        let own = self.agent.own_ranges();
        let mut all = self.root.smaps_flags(self.pid)?;
        all.retain(|&(start, end, flags)| {
            let ours = own.iter().any(|&(from, to)| start < to && from < end);
            flags.intersects(any) && !ours
        });
        Ok(all)
    }

    /// Whether an area that the agent was to move pages of is the program's now: then the kernel refuses
    /// to register it for us, and no page moved.
    pub(super) fn is_now_foreign<'a>(
        &mut self,
        mut areas: impl Iterator<Item = &'a Area>,
        results: &[u32],
    ) -> Result<bool, EngineError> {
        let busy = libc::EBUSY.cast_unsigned();
        if results.is_empty() || results.iter().any(|&errno| errno != busy) {
            return Ok(false);
        }
        self.foreign.suspected = true;
        self.find_foreign()?;
        let foreign = self.foreign.areas();
        Ok(areas.any(|area| obstacle(area).is_none() && overlaps(area, foreign)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_whose_a_registration_is() {
        assert!(!is_foreign(VmFlags::UFFD_MISSING, true), "most likely ours");
        assert!(is_foreign(VmFlags::UFFD_MISSING, false));
        for watched in [true, false] {
            assert!(is_foreign(VmFlags::UFFD_MISSING | VmFlags::UFFD_WP, watched));
            assert!(is_foreign(VmFlags::UFFD_MINOR, watched));
            assert!(!is_foreign(VmFlags::LOCKED, watched));
        }
    }

    #[test]
    fn nothing_moves_soon_after_one_was_opened() {
        let mut foreign = Foreign::default();
        assert!(foreign.may_move() && foreign.may_look());
        foreign.seen = Some(Instant::now());
        assert!(!foreign.may_move());
        foreign.seen = Instant::now().checked_sub(GRACE_TIME);
        assert!(foreign.may_move() && !foreign.may_look());
        foreign.seen = None;
        assert!(foreign.may_look());
        foreign.suspect();
        assert!(!foreign.may_look());
    }

    #[test]
    fn pages_settle_in_one_frame() {
        let (mut foreign, begin) = (Foreign::default(), Instant::now());
        let later = begin + SETTLING_TIME;
        assert!(!foreign.is_settled(Vpn(1), Pfn(7), begin));
        assert!(foreign.is_settled(Vpn(1), Pfn(7), later));
        assert!(!foreign.is_settled(Vpn(1), Pfn(8), later), "another page came");
        assert!(foreign.is_settled(Vpn(1), Pfn(8), later + SETTLING_TIME));
    }
}
