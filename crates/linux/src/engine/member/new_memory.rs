//! Notices areas that a process maps, so that their faults are answered.

use std::collections::HashSet;
use std::time::Instant;

use super::Member;
use crate::engine::EngineError;
use crate::engine::census::overlaps;
use crate::kernel::procfs::{Area, obstacle};

/// Time between looks for new memory, in times of what a look takes: while audits find that
/// memory came unseen and stays, and while nothing speaks for looking often.
const LOOK_SHARES: (u32, u32) = (1, 2);

/// When to look for new memory, and how much there was.
pub(super) struct NewMemoryWatch {
    vm_pages: u64,
    next_look: Instant,
    look_share: u32,
}

impl Default for NewMemoryWatch {
    fn default() -> NewMemoryWatch {
        NewMemoryWatch { vm_pages: 0, next_look: Instant::now(), look_share: LOOK_SHARES.0 }
    }
}

impl NewMemoryWatch {
    /// The next look is due.
    pub(super) fn look_now(&mut self) {
        self.next_look = Instant::now();
    }

    /// Looks often while an audit found that memory came `unseen`, and more and more seldom while not.
    pub(super) fn pace(&mut self, unseen: bool) {
        let (often, seldom) = LOOK_SHARES;
        self.look_share = if unseen { often } else { (self.look_share * 2).min(seldom) };
    }
}

impl Member {
    /// Notices new memory by the size of the address space. Reading a long list of areas
    /// must not cost more than a part of a CPU.
    pub(super) fn follow_new_memory(&mut self) -> Result<bool, EngineError> {
        let start = Instant::now();
        if start < self.new_memory.next_look || !self.watches() {
            return Ok(false);
        }
        let size = self.root.statm(self.pid)?.size;
        if size == self.new_memory.vm_pages {
            return Ok(false);
        }
        self.new_memory.vm_pages = size;
        let areas = self.root.maps(self.pid)?;
        let fresh = self.fresh(&areas);
        if !fresh.is_empty() {
            // What was touched before it was watched is to be found soon.
            self.audit_now();
        }
        self.serve_where(&areas, |range| fresh.iter().any(|&at| range.0 <= at && at < range.1))?;
        self.new_memory.next_look = Instant::now() + start.elapsed() * self.new_memory.look_share;
        Ok(true)
    }

    /// Where areas begin that the agent does not know as they are.
    fn fresh(&self, areas: &[Area]) -> Vec<u64> {
        let known: HashSet<(u64, u64)> =
            self.agent.areas().into_iter().map(|a| (a.start, a.end)).collect();
        let own = self.foreign.areas();
        let news = areas.iter().filter(|a| obstacle(a).is_none() && !overlaps(a, own));
        news.filter(|a| !known.contains(&(a.start, a.end))).map(|a| a.start).collect()
    }
}
