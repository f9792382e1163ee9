//! Superpages that are built in members on purpose, though they lie outside the partition: which
//! they are, and the [`PromotionHandle`] at which somebody who decides on them asks for one. Building is the
//! agent's business, as only it may have huge pages made in the process; what is worth one
//! is decided elsewhere.
//!
//! The set belongs to the member's own thread, which builds, audits and recolours, so that nothing
//! is recoloured while it is built and nothing is taken for chosen that is not. Should huepage end
//! at any point, the process keeps the pages it has.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use huepage_color::{NumberHash, Vpn};

use super::orders::Orders;
use super::{Member, MemberOrder, MemberStatus};
use crate::engine::EngineError;
use crate::kernel::process_memory::{NotBuilt, SUPERPAGE_BYTES, SUPERPAGE_PAGES};
use crate::kernel::procfs::{Categories, Pagemap, ProcError, ScanQuery};

/// How long a member may take to answer: it may be recolouring, or wait for frames.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The chosen superpages of a member, by address divided by 2 MiB.
#[derive(Debug, Default)]
pub(super) struct PinnedSuperpages {
    blocks: HashSet<u64, NumberHash>,
}

impl PinnedSuperpages {
    /// Whether a page is part of one.
    pub fn holds(&self, page: Vpn) -> bool {
        !self.blocks.is_empty() && self.blocks.contains(&(page.0 / SUPERPAGE_PAGES))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Forgets those that are no superpages any more, whoever broke them: their pages are as all
    /// others.
    pub fn keep_whole(&mut self, pagemap: &Pagemap) -> Result<(), ProcError> {
        let mut query = ScanQuery::present();
        query.all_of = query.all_of | Categories::HUGE;
        let mut broken = Vec::new();
        for &block in &self.blocks {
            let mut found = Vec::new();
            pagemap.scan(
                block * SUPERPAGE_BYTES..(block + 1) * SUPERPAGE_BYTES,
                &query,
                &mut found,
            )?;
            if found.iter().map(|region| region.end - region.start).sum::<u64>() < SUPERPAGE_BYTES {
                broken.push(block);
            }
        }
        broken.iter().for_each(|block| _ = self.blocks.remove(block));
        Ok(())
    }
}

impl Member {
    /// Builds a superpage; what it took the agent.
    pub(super) fn build(
        &mut self,
        block: u64,
        fill: bool,
    ) -> Result<Result<Duration, NotBuilt>, EngineError> {
        let built = self.agent.collapse(block * SUPERPAGE_BYTES, fill)?;
        if built.is_ok() {
            self.pinned.blocks.insert(block);
        }
        self.report_pinned();
        Ok(built.map_err(|error: io::Error| NotBuilt::from_errno(&error)))
    }

    /// A superpage is not wanted any more: the next audit brings its pages back.
    pub(super) fn give_up(&mut self, block: u64) {
        self.pinned.blocks.remove(&block);
        self.report_pinned();
    }

    /// None is wanted any more.
    pub(super) fn give_up_all(&mut self) {
        self.pinned.blocks.clear();
        self.report_pinned();
        self.audit_now();
    }

    pub(super) fn report_pinned(&self) {
        self.with_status(|status| status.superpages = self.pinned.count());
    }
}

/// How a member is reached.
#[derive(Clone, Debug)]
struct Reach {
    orders: Orders,
    status: Arc<Mutex<MemberStatus>>,
}

/// Where superpages in the members of a group are asked for, from any thread. Clones close together.
#[derive(Clone, Debug, Default)]
pub struct PromotionHandle {
    members: Arc<Mutex<HashMap<i32, Reach>>>,
    closed: Arc<Mutex<bool>>,
}

impl PromotionHandle {
    fn members(&self) -> MutexGuard<'_, HashMap<i32, Reach>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process is a member from now on.
    pub(in crate::engine) fn admit(
        &self,
        pid: i32,
        orders: &Orders,
        status: &Arc<Mutex<MemberStatus>>,
    ) {
        let reach = Reach { orders: orders.clone(), status: Arc::clone(status) };
        self.members().insert(pid, reach);
    }

    /// It is none any more.
    pub(in crate::engine) fn dismiss(&self, pid: i32) {
        self.members().remove(&pid);
    }

    fn reach(&self, pid: i32) -> Option<Reach> {
        self.members().get(&pid).cloned()
    }

    /// Has the 2 MiB at `block` times 2 MiB made one page, holes filled with zeroes if `fill`, and left
    /// alone by audits; the CPU time that took. Waits for the member's turn, some milliseconds.
    ///
    /// # Errors
    /// Why it was not built.
    pub fn build(&self, pid: i32, block: u64, fill: bool) -> Result<Duration, NotBuilt> {
        let reach = self.reach(pid).ok_or(NotBuilt::Unconfined)?;
        let (answer, result) = channel();
        self.order(&reach, MemberOrder::Build { block, fill, answer })?;
        result.recv_timeout(ANSWER_TIMEOUT).map_err(|_| NotBuilt::Gone)?
    }

    /// Sends an order, unless the handle is closed: none comes after the one that gives all up.
    fn order(&self, reach: &Reach, order: MemberOrder) -> Result<(), NotBuilt> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Err(NotBuilt::Denied);
        }
        if reach.orders.send(order) { Ok(()) } else { Err(NotBuilt::Gone) }
    }

    /// A handle for the same members that is open, whether this one is closed or not.
    pub fn reopened(&self) -> PromotionHandle {
        PromotionHandle { members: Arc::clone(&self.members), closed: Arc::default() }
    }

    /// A superpage of a process was broken, or is to be: its pages go back to their colours.
    pub fn give_up(&self, pid: i32, block: u64) {
        if let Some(reach) = self.reach(pid) {
            // Who has ended has none.
            let _ = reach.orders.send(MemberOrder::GiveUp { block });
        }
    }

    /// Closes the handle: who still asks here gets no superpage, and what lies outside of the
    /// members' colours goes back.
    pub fn give_up_all(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // Who has ended has none.
        self.members().values().for_each(|reach| _ = reach.orders.send(MemberOrder::GiveUpAll));
    }

    /// Memory of ours in a process, which is not the program's.
    pub fn own(&self, pid: i32) -> Vec<(u64, u64)> {
        let Some(reach) = self.reach(pid) else { return Vec::new() };
        let status = reach.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.own.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::orders::order_channel;
    use super::*;

    const HANGS: Duration = Duration::from_secs(60);

    #[test]
    fn who_is_no_member_gets_none() {
        let promotion_handle = PromotionHandle::default();
        assert_eq!(promotion_handle.build(1, 2, false), Err(NotBuilt::Unconfined));
        let (orders, inbox) = order_channel();
        let status = MemberStatus { own: vec![(4096, 8192)], ..MemberStatus::default() };
        promotion_handle.admit(1, &orders, &Arc::new(Mutex::new(status)));
        assert_eq!(promotion_handle.own(1), [(4096, 8192)]);
        drop(inbox);
        assert_eq!(promotion_handle.build(1, 2, false), Err(NotBuilt::Gone));
        promotion_handle.dismiss(1);
        assert_eq!(promotion_handle.build(1, 2, false), Err(NotBuilt::Unconfined));
    }

    #[test]
    fn what_was_ordered_is_answered() {
        let (promotion_handle, (orders, inbox)) = (PromotionHandle::default(), order_channel());
        promotion_handle.admit(7, &orders, &Arc::default());
        let member = std::thread::spawn(move || match inbox.next_within(HANGS) {
            Ok(MemberOrder::Build { block: 9, fill: true, answer }) => {
                answer.send(Err(NotBuilt::Held)).is_ok()
                    && matches!(inbox.next_within(HANGS), Ok(MemberOrder::GiveUp { block: 9 }))
                    && matches!(inbox.next_within(HANGS), Ok(MemberOrder::GiveUpAll))
            }
            _ => false,
        });
        assert_eq!(promotion_handle.build(7, 9, true), Err(NotBuilt::Held));
        promotion_handle.give_up(7, 9);
        promotion_handle.give_up_all();
        assert!(member.join().unwrap());
        assert_eq!(
            promotion_handle.build(7, 9, true),
            Err(NotBuilt::Denied),
            "the promotion_handle is closed"
        );
        assert_eq!(promotion_handle.reopened().build(7, 9, true), Err(NotBuilt::Gone));
    }

    #[test]
    fn single_pages_are_not_taken_for_a_superpage() {
        let pagemap =
            crate::kernel::procfs::ProcRoot::default().pagemap(std::process::id().cast_signed());
        let mut pinned = PinnedSuperpages::default();
        let stack = 0_u64;
        let block = (&raw const stack).addr() as u64 / SUPERPAGE_BYTES;
        pinned.blocks.insert(block);
        assert!(
            pinned.holds(Vpn(block * SUPERPAGE_PAGES + 5))
                && !pinned.holds(Vpn((block + 1) * SUPERPAGE_PAGES))
        );
        pinned.keep_whole(&pagemap.unwrap()).unwrap();
        assert_eq!(pinned.count(), 0, "a stack has none");
    }
}
