//! Which pages of a member are to move: what an audit asks of the policy about pages outside of the partition,
//! the list of those that it wants recoloured, and what the flags of an area have against it.

use huepage_policy::{Action, MoveRefusal, StaticPartition};

use super::own_userfaultfd::is_foreign;
use super::pinned::PinnedSuperpages;
use crate::engine::census::Outside;
use crate::engine::clear_tid::ClearTidPages;
use crate::engine::waiting_pages::WaitingPages;
use crate::kernel::procfs::{Area, VmFlags};

/// Most pages repaired in one audit.
pub(super) const REPAIR_PAGES: usize = 1 << 17;

/// Pages that are to be recoloured, by area.
pub(super) type MoveList = Vec<(Area, Vec<Outside>)>;

/// What the kernel says of each area, by address: programs may have a hundred thousand of them.
pub(super) struct Flags(pub Vec<(u64, u64, VmFlags)>);

impl Flags {
    /// The flags of the mapping that holds an area now, if one does.
    pub fn of(&self, area: &Area) -> Option<VmFlags> {
        let next = self.0.partition_point(|of| of.0 <= area.start);
        self.0[..next].last().filter(|of| area.end <= of.1).map(|of| of.2)
    }
}

/// Asks a policy about pages outside, and keeps what it wants recoloured.
pub(super) struct AuditPass<'a> {
    policy: &'a mut StaticPartition,
    clear_tid: &'a ClearTidPages,
    pinned: &'a PinnedSuperpages,
    /// Pages that wait to be touched, if any do.
    traps: Option<&'a WaitingPages>,
    /// Those of them that lie outside.
    pub untouched: WaitingPages,
    /// What is to be recoloured.
    pub moves: MoveList,
    wanted: usize,
}

impl<'a> AuditPass<'a> {
    pub fn new(
        policy: &'a mut StaticPartition,
        clear_tid: &'a ClearTidPages,
        pinned: &'a PinnedSuperpages,
        traps: Option<&'a WaitingPages>,
    ) -> AuditPass<'a> {
        let untouched = WaitingPages::default();
        AuditPass { policy, clear_tid, pinned, traps, untouched, moves: Vec::new(), wanted: 0 }
    }

    /// What is in the way of moving a page, as far as is known.
    pub fn consider(&mut self, area: &Area, mut page: Outside) -> Option<MoveRefusal> {
        if self.pinned.holds(page.seen.page) {
            return Some(MoveRefusal::Superpage);
        }
        if self.traps.is_some_and(|traps| traps.holds(page.seen.page)) {
            self.untouched.set(page.seen.page);
            return Some(MoveRefusal::Untouched);
        }
        page.seen.obstacle =
            self.clear_tid.holds(page.address()).then_some(MoveRefusal::ClearChildTid);
        match self.policy.judge(&page.seen) {
            Action::Recolour { .. } if self.wanted < REPAIR_PAGES => {
                self.wanted += 1;
                add_move(&mut self.moves, area, page);
                None
            }
            Action::Leave { reason, .. } => reason.refusal(),
            _ => None,
        }
    }
}

/// Adds a page to the list; pages of an area come one after the other.
pub(super) fn add_move(moves: &mut MoveList, area: &Area, page: Outside) {
    match moves.last_mut() {
        Some((last, pages)) if last.start == area.start => pages.push(page),
        _ => moves.push((area.clone(), vec![page])),
    }
}

/// Why pages of an area with these flags must not be moved, where areas are watched by us or not; `locks`:
/// whether those of locked areas can be.
pub(super) fn held_by(flags: VmFlags, watched: bool, locks: bool) -> Option<MoveRefusal> {
    if is_foreign(flags, watched) {
        return Some(MoveRefusal::Userfaultfd);
    }
    if flags.intersects(VmFlags::WIPE_ON_FORK) {
        return Some(MoveRefusal::WipedOnFork);
    }
    (flags.intersects(VmFlags::LOCKED) && !locks).then_some(MoveRefusal::Locked)
}
