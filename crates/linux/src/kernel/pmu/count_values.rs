//! What a PMU has counted of a process, wherever the counts come from: a value, with differences and rates.

/// What was counted up to a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PmuCounts {
    /// Instructions retired.
    pub instructions: f64,
    /// Cycles of the processor while the process ran.
    pub cycles: f64,
    /// Requests to the cache.
    pub references: f64,
    /// Of these, those that it did not have.
    pub misses: f64,
}

impl From<PmuCounts> for huepage_policy::rocs::weighed::Counted {
    fn from(counts: PmuCounts) -> Self {
        let PmuCounts { cycles, instructions, misses, .. } = counts;
        Self { cycles, instructions, misses }
    }
}

impl PmuCounts {
    /// What came since an earlier reading.
    pub fn since(self, before: PmuCounts) -> PmuCounts {
        let more = |now: f64, before: f64| (now - before).max(0.0);
        PmuCounts {
            instructions: more(self.instructions, before.instructions),
            cycles: more(self.cycles, before.cycles),
            references: more(self.references, before.references),
            misses: more(self.misses, before.misses),
        }
    }

    /// The share of requests that missed, 0 to 1; `None` without any.
    pub fn miss_rate(self) -> Option<f64> {
        (self.references > 0.0).then(|| (self.misses / self.references).min(1.0))
    }

    /// Instructions per cycle; `None` before any.
    pub fn per_cycle(self) -> Option<f64> {
        (self.cycles > 0.0).then(|| self.instructions / self.cycles)
    }

    pub(super) fn add(&mut self, [instructions, cycles, references, misses]: [f64; 4]) {
        self.instructions += instructions;
        self.cycles += cycles;
        self.references += references;
        self.misses += misses;
    }
}

impl std::ops::AddAssign for PmuCounts {
    fn add_assign(&mut self, more: PmuCounts) {
        self.add([more.instructions, more.cycles, more.references, more.misses]);
    }
}
