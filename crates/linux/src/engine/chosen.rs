//! Superpages that are built in members on purpose, though they lie outside the partition: which
//! they are, and the [`Desk`] at which somebody who decides on them asks for one. Building is the
//! agent's business, as only it may have huge pages made in the process; what is worth one
//! is decided elsewhere.
//!
//! The set belongs to the member's own thread, which builds, audits and recolours, so that nothing
//! is recoloured while it is built and nothing is taken for chosen that is not. Should huepage end
//! at any point, the process keeps the pages it has.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use huepage_color::{NumberHash, Vpn};

use super::EngineError;
use super::member::{Member, MemberStatus, Order};
use crate::procfs::{Categories, Pagemap, ProcError, ScanQuery};
use crate::superpages::NotBuilt;
use crate::superpages::hands::{BYTES, PAGES};

/// How long a member may take to answer: it may be recolouring, or wait for frames.
const PATIENCE: Duration = Duration::from_secs(10);

/// The chosen superpages of a member, by address divided by 2 MiB.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    blocks: HashSet<u64, NumberHash>,
}

impl Chosen {
    /// Whether a page is part of one.
    pub fn holds(&self, page: Vpn) -> bool {
        !self.blocks.is_empty() && self.blocks.contains(&(page.0 / PAGES))
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
            pagemap.scan(block * BYTES..(block + 1) * BYTES, &query, &mut found)?;
            if found.iter().map(|region| region.end - region.start).sum::<u64>() < BYTES {
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
        let built = self.agent.collapse(block * BYTES, fill)?;
        if built.is_ok() {
            self.chosen.blocks.insert(block);
        }
        self.note_chosen();
        Ok(built.map_err(|error: io::Error| NotBuilt::of(&error)))
    }

    /// A superpage is not wanted any more: the next audit brings its pages back.
    pub(super) fn give_up(&mut self, block: u64) {
        self.chosen.blocks.remove(&block);
        self.note_chosen();
    }

    /// None is wanted any more.
    pub(super) fn give_up_all(&mut self) {
        self.chosen.blocks.clear();
        self.note_chosen();
        self.audit_now();
    }

    pub(super) fn note_chosen(&self) {
        self.with_status(|status| status.superpages = self.chosen.count());
    }
}

/// How a member is reached.
#[derive(Clone, Debug)]
struct Reach {
    orders: Sender<Order>,
    status: Arc<Mutex<MemberStatus>>,
}

/// Where superpages in the members of a group are asked for, from any thread. Clones close together.
#[derive(Clone, Debug, Default)]
pub struct Desk {
    members: Arc<Mutex<HashMap<i32, Reach>>>,
    closed: Arc<Mutex<bool>>,
}

impl Desk {
    fn members(&self) -> MutexGuard<'_, HashMap<i32, Reach>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process is a member from now on.
    pub(super) fn admit(
        &self,
        pid: i32,
        orders: &Sender<Order>,
        status: &Arc<Mutex<MemberStatus>>,
    ) {
        let reach = Reach { orders: orders.clone(), status: Arc::clone(status) };
        self.members().insert(pid, reach);
    }

    /// It is none any more.
    pub(super) fn dismiss(&self, pid: i32) {
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
        self.order(&reach, Order::Build { block, fill, answer })?;
        result.recv_timeout(PATIENCE).map_err(|_| NotBuilt::Gone)?
    }

    /// Sends an order, unless the desk is closed: none comes after the one that gives all up.
    fn order(&self, reach: &Reach, order: Order) -> Result<(), NotBuilt> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Err(NotBuilt::Denied);
        }
        reach.orders.send(order).map_err(|_| NotBuilt::Gone)
    }

    /// A desk for the same members that is open, whether this one is closed or not.
    pub fn reopened(&self) -> Desk {
        Desk { members: Arc::clone(&self.members), closed: Arc::default() }
    }

    /// A superpage of a process was broken, or is to be: its pages go back to their colours.
    pub fn give_up(&self, pid: i32, block: u64) {
        if let Some(reach) = self.reach(pid) {
            // Who has ended has none.
            let _ = reach.orders.send(Order::GiveUp { block });
        }
    }

    /// Closes the desk: who still asks here gets no superpage, and what lies outside of the
    /// members' colours goes back.
    pub fn give_up_all(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // Who has ended has none.
        self.members().values().for_each(|reach| _ = reach.orders.send(Order::GiveUpAll));
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
    use super::*;

    #[test]
    fn who_is_no_member_gets_none() {
        let desk = Desk::default();
        assert_eq!(desk.build(1, 2, false), Err(NotBuilt::Unconfined));
        let (orders, inbox) = channel();
        let status = MemberStatus { own: vec![(4096, 8192)], ..MemberStatus::default() };
        desk.admit(1, &orders, &Arc::new(Mutex::new(status)));
        assert_eq!(desk.own(1), [(4096, 8192)]);
        drop(inbox);
        assert_eq!(desk.build(1, 2, false), Err(NotBuilt::Gone));
        desk.dismiss(1);
        assert_eq!(desk.build(1, 2, false), Err(NotBuilt::Unconfined));
    }

    #[test]
    fn what_was_ordered_is_answered() {
        let (desk, (orders, inbox)) = (Desk::default(), channel());
        desk.admit(7, &orders, &Arc::default());
        let member = std::thread::spawn(move || match inbox.recv() {
            Ok(Order::Build { block: 9, fill: true, answer }) => {
                answer.send(Err(NotBuilt::Held)).is_ok()
                    && matches!(inbox.recv(), Ok(Order::GiveUp { block: 9 }))
                    && matches!(inbox.recv(), Ok(Order::GiveUpAll))
            }
            _ => false,
        });
        assert_eq!(desk.build(7, 9, true), Err(NotBuilt::Held));
        desk.give_up(7, 9);
        desk.give_up_all();
        assert!(member.join().unwrap());
        assert_eq!(desk.build(7, 9, true), Err(NotBuilt::Denied), "the desk is closed");
        assert_eq!(desk.reopened().build(7, 9, true), Err(NotBuilt::Gone));
    }

    #[test]
    fn single_pages_are_not_taken_for_a_superpage() {
        let pagemap = crate::procfs::ProcRoot::default().pagemap(std::process::id().cast_signed());
        let mut chosen = Chosen::default();
        let stack = 0_u64;
        let block = (&raw const stack).addr() as u64 / BYTES;
        chosen.blocks.insert(block);
        assert!(chosen.holds(Vpn(block * PAGES + 5)) && !chosen.holds(Vpn((block + 1) * PAGES)));
        chosen.keep_whole(&pagemap.unwrap()).unwrap();
        assert_eq!(chosen.count(), 0, "a stack has none");
    }
}
