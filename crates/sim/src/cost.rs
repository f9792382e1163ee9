//! What a run costs: cycles by cause, and the figures that papers compare.
//!
//! The processor does one instruction per cycle when memory answers at once; everything beyond
//! the nearest cache's own latency is added (Romer 1998, sections 3.1, 4.3 and 6.3). MCPI is
//! the sum of all parts but the first, per instruction of the program; instructions of
//! handlers and copies appear as cycles only. Waiting for a disk is none of its parts: the
//! thesis leaves out what a processor does meanwhile (section 4.3.1).

use serde::{Deserialize, Serialize};

/// Levels of cache below the nearest that are told apart.
pub const MAX_DEPTH: usize = 7;

/// What a program did, and the cycles that it took, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCosts {
    /// Accesses.
    pub accesses: u64,
    /// Instructions; a cycle each.
    pub instructions: u64,
    /// Cycles for requests that level 1, 2, … had to pass on, by the level that answered: the
    /// second nearest first, memory after the last level.
    pub miss_cycles: [u64; MAX_DEPTH],
    /// Of these, cycles beyond what the second nearest cache takes to answer.
    pub beyond_second: u64,
    /// Cycles for hits in a second place, for full write buffers, and for prefetched lines that
    /// were still on their way.
    pub buffer_cycles: u64,
    /// Cycles for filling TLBs: further levels, handlers, page table reads.
    pub tlb_cycles: u64,
    /// Cycles for building superpages, copies included.
    pub promotion_cycles: u64,
    /// Cycles for giving pages other frames, copies included.
    pub recolor_cycles: u64,
    /// Cycles of sensors and policies.
    pub policy_cycles: u64,
    /// Cycles of waiting for blocks of files to be read, and for dirty ones in the way to be
    /// written.
    pub file_cycles: u64,
    /// Uses of blocks of files that were in the page cache; reading a block piece by piece is
    /// one use.
    pub file_hits: u64,
    /// Uses of blocks that were not.
    pub file_misses: u64,
    /// Blocks that had to leave the page cache for what this program did.
    pub file_evictions: u64,
    /// Of these, blocks that had to be written first.
    pub file_writes: u64,
    /// Requests that memory answered.
    pub memory: u64,
    /// Base pages touched for the first time.
    pub faults: u64,
    /// Superpages built.
    pub promotions: u64,
    /// Superpages broken.
    pub demotions: u64,
    /// Pages given another frame.
    pub recolorings: u64,
    /// Actions of the policy that could not be carried out.
    pub refusals: u64,
}

impl ProgramCosts {
    /// What was done and taken since an earlier look at the same account.
    pub fn since(&self, earlier: &ProgramCosts) -> ProgramCosts {
        ProgramCosts {
            accesses: self.accesses - earlier.accesses,
            instructions: self.instructions - earlier.instructions,
            miss_cycles: std::array::from_fn(|i| self.miss_cycles[i] - earlier.miss_cycles[i]),
            beyond_second: self.beyond_second - earlier.beyond_second,
            buffer_cycles: self.buffer_cycles - earlier.buffer_cycles,
            tlb_cycles: self.tlb_cycles - earlier.tlb_cycles,
            promotion_cycles: self.promotion_cycles - earlier.promotion_cycles,
            recolor_cycles: self.recolor_cycles - earlier.recolor_cycles,
            policy_cycles: self.policy_cycles - earlier.policy_cycles,
            file_cycles: self.file_cycles - earlier.file_cycles,
            file_hits: self.file_hits - earlier.file_hits,
            file_misses: self.file_misses - earlier.file_misses,
            file_evictions: self.file_evictions - earlier.file_evictions,
            file_writes: self.file_writes - earlier.file_writes,
            memory: self.memory - earlier.memory,
            faults: self.faults - earlier.faults,
            promotions: self.promotions - earlier.promotions,
            demotions: self.demotions - earlier.demotions,
            recolorings: self.recolorings - earlier.recolorings,
            refusals: self.refusals - earlier.refusals,
        }
    }

    /// All cycles beyond one per instruction but those of waiting for files.
    pub fn stall_cycles(&self) -> u64 {
        let misses: u64 = self.miss_cycles.iter().sum();
        misses + self.buffer_cycles + self.tlb_cycles + self.management_cycles()
    }

    /// Cycles of policies and of what they had done.
    pub const fn management_cycles(&self) -> u64 {
        self.promotion_cycles + self.recolor_cycles + self.policy_cycles
    }

    /// All cycles.
    pub fn cycles(&self) -> u64 {
        self.instructions + self.stall_cycles() + self.file_cycles
    }

    /// Share of its uses of file blocks that the page cache answered, 0 to 1; none if it used no
    /// file.
    pub fn file_hit_ratio(&self) -> Option<f64> {
        let uses = self.file_hits + self.file_misses;
        (uses > 0).then(|| self.file_hits as f64 / uses as f64)
    }

    /// Figures per instruction.
    pub fn rates(&self) -> Rates {
        let per =
            |n: u64| if self.instructions == 0 { 0.0 } else { n as f64 / self.instructions as f64 };
        let cycles = self.cycles();
        Rates {
            ipc: if cycles == 0 { 0.0 } else { self.instructions as f64 / cycles as f64 },
            mcpi: per(self.stall_cycles()),
            l2_miss_cpi: per(self.beyond_second),
            tlb_mcpi: per(self.tlb_cycles + self.promotion_cycles),
            recolor_cpi: per(self.recolor_cycles),
            policy_cpi: per(self.policy_cycles),
            mpki: per(1000 * self.memory),
        }
    }
}

/// Figures per instruction, in the words of Romer 1998, section 4.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Instructions per cycle.
    pub ipc: f64,
    /// Memory cycles per instruction: all cycles beyond the first of each instruction.
    pub mcpi: f64,
    /// Of these, for requests that missed the two nearest levels: what they took longer than a
    /// hit in the second (section 4.3.3).
    pub l2_miss_cpi: f64,
    /// Of these, for TLB misses and for building superpages.
    pub tlb_mcpi: f64,
    /// Of these, for giving pages other frames.
    pub recolor_cpi: f64,
    /// Of these, for sensors and policies.
    pub policy_cpi: f64,
    /// Requests that memory answered, per thousand instructions.
    pub mpki: f64,
}
