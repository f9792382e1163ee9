//! What became of a trace: which blocks were made superpages and when. Compares; chooses nothing.

use std::collections::BTreeMap;

/// What became of a trace.
#[derive(Clone, Debug, Default)]
pub struct SuperpageSelection {
    /// Blocks that were made superpages, by address divided by 2 MiB, with the second.
    pub blocks: BTreeMap<u64, f64>,
    /// Blocks with a resident page.
    pub resident: usize,
    /// Seconds simulated.
    pub seconds: f64,
    /// Accesses of the trace.
    pub accesses: u64,
    /// Misses among them.
    pub misses: u64,
    /// Looks.
    pub looks: u64,
}

impl SuperpageSelection {
    /// Blocks that both have, as a share of those that one has; 1 if none has any.
    pub fn agreement(&self, other: &SuperpageSelection) -> f64 {
        let both = self.blocks.keys().filter(|at| other.blocks.contains_key(at)).count();
        let any = self.blocks.len() + other.blocks.len() - both;
        if any == 0 { 1.0 } else { both as f64 / any as f64 }
    }

    /// The second at which half of them were there.
    pub fn half(&self) -> Option<f64> {
        let mut times: Vec<f64> = self.blocks.values().copied().collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len().checked_sub(1)? / 2).copied()
    }

    /// The second of the last one; 0 if there is none.
    pub fn last(&self) -> f64 {
        self.blocks.values().copied().fold(0.0, f64::max)
    }
}
