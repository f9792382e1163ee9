//! What counters of a processor say of the last cache per program, and the lines that a program
//! requests of it, as precise event samples or an address register give them while they are on
//! (RapidMRC 2009): each costs its program time.

use super::System;
use crate::cost::MAX_DEPTH;

/// The lines of one program.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    lines: Vec<u64>,
    /// Cycles for each.
    cost: u64,
}

impl System {
    /// Requests that reached the last cache for a program's data and fetches, and those of them
    /// that memory answered; sums since the counts began.
    pub fn last_level(&self, space: u16) -> (u64, u64) {
        let costs = self.costs(space);
        let caches = self.stalls[0].len() - 1;
        // The nearest cache's requests are not told apart from instructions.
        if caches < 2 {
            return (costs.memory, costs.memory);
        }
        let stall = self.stalls[0][caches - 1].max(1);
        let hits = costs.miss_cycles[caches - 2] / stall;
        (hits + costs.memory, costs.memory)
    }

    /// Cycles that a program waited for lines from memory, for the bus too; a sum since the counts began.
    pub fn memory_cycles(&self, space: u16) -> u64 {
        self.costs(space).miss_cycles[(self.stalls[0].len() - 2).min(MAX_DEPTH - 1)]
    }

    /// Keeps the lines that a program requests of the last cache from now on, each at the price of
    /// so many cycles; none: no longer. A space that was never used is passed over.
    pub fn sample_requests(&mut self, space: u16, cost: Option<u64>) {
        if let Some(state) = self.spaces.get_mut(usize::from(space)) {
            let kept = |cost| Box::new(Requests { lines: Vec::new(), cost });
            state.requests = cost.map(kept);
        }
    }

    /// Moves the lines kept so far, by virtual address over the size of a line, to `lines`.
    pub fn take_requests(&mut self, space: u16, lines: &mut Vec<u64>) {
        let requests = self.spaces.get_mut(usize::from(space));
        if let Some(requests) = requests.and_then(|state| state.requests.as_mut()) {
            lines.append(&mut requests.lines);
        }
    }

    /// A request that went so deep.
    #[inline]
    pub(super) fn note_request(&mut self, space: u16, address: u64, depth: usize) {
        let (last, bits) = (self.stalls[0].len().saturating_sub(2), self.line_bits);
        let state = &mut self.spaces[usize::from(space)];
        if depth >= last
            && let Some(requests) = &mut state.requests
        {
            requests.lines.push(address >> bits);
            state.costs.policy_cycles += requests.cost;
        }
    }
}
