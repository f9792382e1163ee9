//! How much is run, and what is measured in a window of a run.

use super::programs::RocsProgram;
use super::variants::RocsVariant;
use huepage_sim::cost::ProgramCosts;
use huepage_sim::system::System;
use serde::Serialize;

/// What is run beside plain Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPolicies {
    /// Nothing.
    None,
    /// Nothing, but profiles are made.
    Profiles,
    /// ROCS.
    Rocs,
    /// ROCS and the model.
    Model,
    /// ROCS, its variants, and the exhaustive search.
    All,
}

impl RunPolicies {
    /// Whether this one is run.
    pub fn has(self, variant: RocsVariant) -> bool {
        match self {
            RunPolicies::None | RunPolicies::Profiles => false,
            RunPolicies::Rocs => variant == RocsVariant::Rocs,
            RunPolicies::Model => matches!(variant, RocsVariant::Rocs | RocsVariant::Model),
            RunPolicies::All => true,
        }
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Steps of a search.
    pub steps: usize,
    /// Trials in the window online: enough for a look of the model at its pages, which comes after eight.
    pub online: u64,
    /// Trials in the window offline.
    pub offline: u64,
    /// What is run beside plain Linux.
    pub policies: RunPolicies,
    /// Cycles that a run of ROCS has at least: what the paper leaves out at the start of each of its own
    /// (section 6.2), which are a hundred times as long.
    pub cycles: u64,
}

impl Lengths {
    /// The whole of a program, or where there is little time.
    pub fn of(program: &RocsProgram, quick: bool) -> Lengths {
        if quick {
            Lengths { steps: 6, online: 1, offline: 1, policies: RunPolicies::All, cycles: 0 }
        } else {
            Lengths {
                steps: program.steps(),
                online: 10,
                offline: 1,
                policies: RunPolicies::All,
                cycles: 4_000_000_000,
            }
        }
    }

    /// Trials online at most: what comes before the search, the search, another one in case a phase
    /// ends, and the window.
    pub const fn most(self) -> u64 {
        self.online + 3 * self.steps as u64 + 24
    }
}

/// What a program did in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// Instructions.
    pub instructions: u64,
    /// Cycles.
    pub cycles: u64,
    /// Requests of the L2 for loads.
    pub requests: u64,
    /// Lines from memory, for loads and for the prefetcher: the lines of which a load would have missed
    /// without it, and those that it brought in vain.
    pub misses: u64,
    /// Of the cycles, those for filling TLBs.
    pub tlb_cycles: u64,
    /// Walks of the page table.
    pub walks: u64,
    /// Cycles of walks, without those of asking the second TLB.
    pub walk_cycles: u64,
}

impl Window {
    /// Instructions per cycle.
    pub fn ipc(&self) -> f64 {
        self.instructions as f64 / self.cycles.max(1) as f64
    }

    /// Misses per thousand instructions.
    pub fn mpki(&self) -> f64 {
        1000.0 * self.misses as f64 / self.instructions.max(1) as f64
    }

    /// Misses in percent of the requests of the L2.
    pub fn miss_percent(&self) -> f64 {
        100.0 * self.misses as f64 / self.requests.max(1) as f64
    }

    /// Cycles beyond one per instruction.
    pub const fn stalls(&self) -> u64 {
        self.cycles.saturating_sub(self.instructions)
    }

    /// Percent more instructions per cycle than in another.
    pub fn gain(&self, base: &Window) -> f64 {
        100.0 * (self.ipc() / base.ipc() - 1.0)
    }

    /// Cycles of a walk; none without walks.
    pub fn per_walk(&self) -> Option<f64> {
        (self.walks > 0).then(|| self.walk_cycles as f64 / self.walks as f64)
    }
}

/// A prefix of the stack that was confined, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Prefix {
    /// Pages confined.
    pub pages: usize,
    /// Percent more instructions per cycle than Linux.
    pub gain: f64,
}

/// Samples of some pages, taken without disturbing anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageSamples {
    /// Requests that the nearest cache passed on.
    pub requests: u64,
    /// Of these, misses.
    pub misses: u64,
}

impl PageSamples {
    /// Misses in percent of requests; none without requests.
    pub fn percent(&self) -> Option<f64> {
        (self.requests > 0).then(|| 100.0 * self.misses as f64 / self.requests as f64)
    }

    /// Adds what was seen of other pages, or at another time.
    pub(super) const fn add(&mut self, other: PageSamples) {
        self.requests += other.requests;
        self.misses += other.misses;
    }
}

/// Samples and pages of the two halves of a program that the paper tells apart: art's weights and
/// its layer.
#[derive(Clone, Debug, Serialize)]
pub struct RegionSamples {
    /// Its name.
    pub name: &'static str,
    /// Pages.
    pub pages: usize,
    /// Of these, confined by ROCS.
    pub confined: usize,
    /// Under Linux.
    pub before: PageSamples,
    /// With ROCS's choice.
    pub after: PageSamples,
}

/// Counts at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) costs: ProgramCosts,
    walks: u64,
    /// Times that the second TLB was asked.
    asked: u64,
    requests: u64,
    prefetched: u64,
}

/// Cycles for asking the second TLB.
const SECOND_TLB: u64 = 10;

impl Mark {
    pub(super) fn of(system: &System) -> Mark {
        let report = system.report();
        let asked = report.tlbs.last().map_or(0, |(_, counts)| counts.accesses);
        let prefetched = report.caches.last().map_or(0, |(_, counts)| counts.prefetched);
        let (requests, _) = system.last_level(0);
        Mark { costs: system.costs(0), walks: report.walks, asked, requests, prefetched }
    }

    pub(super) fn until(&self, end: &Mark) -> Window {
        let tlb_cycles = end.costs.tlb_cycles - self.costs.tlb_cycles;
        let asking = SECOND_TLB * (end.asked - self.asked);
        Window {
            instructions: end.costs.instructions - self.costs.instructions,
            cycles: end.costs.cycles() - self.costs.cycles(),
            requests: end.requests - self.requests,
            misses: end.costs.memory - self.costs.memory + end.prefetched - self.prefetched,
            tlb_cycles,
            walks: end.walks - self.walks,
            walk_cycles: tlb_cycles.saturating_sub(asking),
        }
    }
}
