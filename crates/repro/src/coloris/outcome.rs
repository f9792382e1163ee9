//! What came of a case, program by program. Nothing is judged here.

use serde::Serialize;

use super::cases::{ColorisCase, ColorisChange, ColorisPart};

/// What a program did while it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Instructions.
    pub instructions: u64,
    /// Cycles.
    pub cycles: u64,
    /// Requests of the last cache.
    pub requests: u64,
    /// Of these, answered by memory.
    pub misses: u64,
    /// Cycles of waiting for what the second cache answered.
    pub second: u64,
    /// Cycles of waiting for memory.
    pub memory: u64,
}

impl Sums {
    /// What was done since an earlier time.
    pub const fn since(self, before: Sums) -> Sums {
        Sums {
            instructions: self.instructions - before.instructions,
            cycles: self.cycles - before.cycles,
            requests: self.requests - before.requests,
            misses: self.misses - before.misses,
            second: self.second - before.second,
            memory: self.memory - before.memory,
        }
    }

    /// What both did.
    #[must_use]
    pub const fn and(self, other: Sums) -> Sums {
        Sums {
            instructions: self.instructions + other.instructions,
            cycles: self.cycles + other.cycles,
            requests: self.requests + other.requests,
            misses: self.misses + other.misses,
            second: self.second + other.second,
            memory: self.memory + other.memory,
        }
    }

    /// Misses of the last cache per request; 0 without any.
    pub fn miss_rate(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.misses as f64 / self.requests as f64 }
    }

    /// Cycles of waiting for each line from memory; none where there was none.
    pub fn line(&self) -> Option<f64> {
        (self.misses > 0).then(|| self.memory as f64 / self.misses as f64)
    }

    /// Cycles per instruction.
    pub fn cpi(&self) -> f64 {
        if self.instructions == 0 { 0.0 } else { self.cycles as f64 / self.instructions as f64 }
    }
}

/// A program of a case.
#[derive(Clone, Debug, Serialize)]
pub struct ColorisProgramResult {
    /// Its name.
    pub name: String,
    /// Its core.
    pub core: u16,
    /// From the end of the warm-up on.
    pub counted: Sums,
    /// From the start on.
    pub whole: Sums,
    /// Its colours at the end; all where it has no partition.
    pub colors: u16,
    /// Its colours at the end of each period.
    pub history: Vec<u16>,
    /// Times that one of its pages was recoloured, from the start on.
    pub recolored: u64,
}

/// What came of a case.
#[derive(Clone, Debug, Serialize)]
pub struct ColorisOutcome {
    /// The experiment.
    pub part: ColorisPart,
    /// The configuration.
    pub config: &'static str,
    /// What recoloured.
    pub policy: &'static str,
    /// The seed.
    pub seed: u64,
    /// What is not as in the paper's experiment.
    pub change: ColorisChange,
    /// Its programs, in the order of the case.
    pub programs: Vec<ColorisProgramResult>,
}

impl ColorisOutcome {
    /// Without programs yet.
    pub const fn of(case: &ColorisCase) -> ColorisOutcome {
        let ColorisCase { part, config, policy, seed, change, .. } = *case;
        ColorisOutcome { part, config, policy, seed, change, programs: Vec::new() }
    }

    /// A program by its name.
    pub fn program(&self, name: &str) -> Option<&ColorisProgramResult> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// Instructions of all programs while they were counted.
    pub fn instructions(&self) -> u64 {
        self.programs.iter().map(|program| program.counted.instructions).sum()
    }

    /// Recolourings of all programs.
    pub fn recolored(&self) -> u64 {
        self.programs.iter().map(|program| program.recolored).sum()
    }
}
