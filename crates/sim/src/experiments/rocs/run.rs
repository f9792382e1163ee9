//! Runs a workload twice. Online: plain Linux and the variants of ROCS over one stream, from the
//! start until every search is over, then a window in which all are compared. Offline: the pages of
//! the miss-rate stack that ROCS made are confined at once, for every length of the prefix, each
//! on a machine of its own, and measured in a window: the paper's exhaustive search.

use std::sync::{Arc, Mutex, PoisonError};

use huepage_color::Vpn;
use huepage_policy::rocs::Stage;
use huepage_policy::{Action, Event, Policy, Rocs};
use serde::Serialize;

use super::offline;
use super::programs::Program;
use super::stream::Blocks;
use super::variants::{self, Variant};
use crate::cost::Costs;
use crate::experiment::WishError;
use crate::experiments::run::{Batches, RunFailed};
use crate::system::System;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Steps of a search.
    pub steps: usize,
    /// Trials in the window online.
    pub online: u64,
    /// Trials in the window offline.
    pub offline: u64,
}

impl Lengths {
    /// The whole, or where there is little time.
    pub const fn of(quick: bool) -> Lengths {
        if quick {
            Lengths { steps: 6, online: 1, offline: 1 }
        } else {
            Lengths { steps: 12, online: 2, offline: 1 }
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
    /// Requests that memory answered.
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

/// What came of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct Online {
    /// Which.
    pub variant: Variant,
    /// After the search.
    pub window: Window,
    /// Instructions per cycle from the start to the end, with profile and search.
    pub whole_ipc: f64,
    /// Pages confined at the end.
    pub confined: usize,
    /// Mappings tried.
    pub trials: u32,
    /// Profiles made.
    pub profiles: u32,
    /// Pages that left the buffer since they were reused there.
    pub left: u64,
    /// Whether a mapping was settled on before the window.
    pub settled: bool,
    /// Cycles of the whole run.
    pub cycles: u64,
    /// Cycles of samples and their handler.
    pub monitoring: u64,
    /// Cycles of moving pages.
    pub moving: u64,
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
pub struct Seen {
    /// Requests that the nearest cache passed on.
    pub requests: u64,
    /// Of these, misses.
    pub misses: u64,
}

impl Seen {
    /// Misses in percent of requests; none without requests.
    pub fn percent(&self) -> Option<f64> {
        (self.requests > 0).then(|| 100.0 * self.misses as f64 / self.requests as f64)
    }

    /// Adds what was seen of other pages, or at another time.
    pub(super) const fn add(&mut self, other: Seen) {
        self.requests += other.requests;
        self.misses += other.misses;
    }
}

/// Samples and pages of the two halves of a program that the paper tells apart: art's weights and
/// its layer.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Its name.
    pub name: &'static str,
    /// Pages.
    pub pages: usize,
    /// Of these, confined by ROCS.
    pub confined: usize,
    /// Under Linux.
    pub before: Seen,
    /// With ROCS's choice.
    pub after: Seen,
}

/// What came of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The workload.
    pub program: String,
    /// The paper's program that it stands for; empty if none.
    pub stands_for: &'static str,
    /// Whether it is a trace.
    pub traced: bool,
    /// Pages in memory at the end.
    pub pages: u64,
    /// Plain Linux, in the window of the variants.
    pub linux: Window,
    /// The variants.
    pub online: Vec<Online>,
    /// The exhaustive search.
    pub offline: Vec<Prefix>,
    /// All samples under Linux.
    pub seen: Seen,
    /// Parts of the program, where the paper tells of them.
    pub regions: Vec<Region>,
}

impl Outcome {
    /// What came of a variant.
    pub fn of(&self, variant: Variant) -> Option<&Online> {
        self.online.iter().find(|online| online.variant == variant)
    }

    /// Percent more instructions per cycle than Linux; none if the program ended too soon.
    pub fn gain(&self, variant: Variant) -> Option<f64> {
        let window = &self.of(variant)?.window;
        let measured = window.instructions > 0 && self.linux.instructions > 0;
        measured.then(|| window.gain(&self.linux))
    }

    /// The best of the exhaustive search, confining nothing included.
    pub fn best(&self) -> Option<Prefix> {
        let none = Prefix { pages: 0, gain: 0.0 };
        let all = self.offline.iter().cloned();
        (!self.offline.is_empty())
            .then(|| all.fold(none, |best, one| if one.gain > best.gain { one } else { best }))
    }
}

/// A policy that others can look into.
struct Shared(Arc<Mutex<Rocs>>);

impl Policy for Shared {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        lock(&self.0).handle(event, actions);
    }
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    costs: Costs,
    walks: u64,
    /// Times that the second TLB was asked.
    asked: u64,
}

/// Cycles for asking the second TLB.
const SECOND_TLB: u64 = 10;

impl Mark {
    pub(super) fn of(system: &System) -> Mark {
        let report = system.report();
        let asked = report.tlbs.last().map_or(0, |(_, counts)| counts.accesses);
        Mark { costs: system.costs(0), walks: report.walks, asked }
    }

    pub(super) fn until(&self, end: &Mark) -> Window {
        let tlb_cycles = end.costs.tlb_cycles - self.costs.tlb_cycles;
        let asking = SECOND_TLB * (end.asked - self.asked);
        Window {
            instructions: end.costs.instructions - self.costs.instructions,
            cycles: end.costs.cycles() - self.costs.cycles(),
            misses: end.costs.memory - self.costs.memory,
            tlb_cycles,
            walks: end.walks - self.walks,
            walk_cycles: tlb_cycles.saturating_sub(asking),
        }
    }
}

/// A machine at work.
struct Run {
    variant: Variant,
    system: System,
    policy: Option<Arc<Mutex<Rocs>>>,
    begin: Mark,
    settled: bool,
}

impl Run {
    fn new(variant: Variant, program: &Program, lengths: Lengths) -> Result<Run, WishError> {
        let mut system = variants::system()?;
        let mut policy = None;
        if variant != Variant::Linux {
            let rocs = Rocs::new(variants::settings(variant, program, lengths.steps));
            let shared = Arc::new(Mutex::new(rocs));
            let governed =
                system.govern(0, Box::new(Shared(Arc::clone(&shared))), variants::sense(program));
            governed.map_err(|error| WishError::new(error.to_string()))?;
            policy = Some(shared);
        }
        Ok(Run { variant, system, policy, begin: Mark::default(), settled: false })
    }

    /// Whether it does nothing more than watch.
    fn is_settled(&self) -> bool {
        self.policy.as_ref().is_none_or(|policy| {
            let policy = lock(policy);
            matches!(policy.stage(), Stage::Steady | Stage::Reviewing) && policy.profiles() > 0
        })
    }

    fn begin_window(&mut self) {
        self.settled = self.is_settled();
        self.begin = Mark::of(&self.system);
    }

    fn finish(&mut self) -> Result<Option<Online>, String> {
        self.system.check()?;
        let window = self.begin.until(&Mark::of(&self.system));
        let (costs, Some(policy)) = (self.system.costs(0), &self.policy) else { return Ok(None) };
        let policy = lock(policy);
        Ok(Some(Online {
            variant: self.variant,
            window,
            whole_ipc: costs.rates().ipc,
            confined: policy.confined(),
            trials: policy.trials(),
            profiles: policy.profiles(),
            left: policy.left(),
            settled: self.settled,
            cycles: costs.cycles(),
            monitoring: costs.policy_cycles,
            moving: costs.recolor_cycles,
        }))
    }
}

/// Runs a workload. `open` begins its accesses anew; `heard` gets numbers of accesses simulated.
///
/// # Errors
/// When the source, a variant or a machine cannot.
pub fn run<'a, E>(
    program: &Program,
    lengths: Lengths,
    open: &dyn Fn() -> Result<Batches<'a, E>, E>,
    heard: &dyn Fn(u64),
) -> Result<Outcome, RunFailed<E>> {
    let begin = || open().map(Blocks::new).map_err(RunFailed::Source);
    let Met { linux, online, stack, pages } = online(program, lengths, begin()?, heard)?;
    let chosen = online.iter().find(|one| one.variant == Variant::Rocs);
    let chosen = chosen.map_or(0, |one| one.confined).min(stack.len());
    let spied = offline::run(program, lengths, (&stack, chosen), begin()?, heard)?;
    // The built-in art; where a trace has its arrays nobody knows.
    let art = program.spec.is_some() && program.stands_for == "art";
    Ok(Outcome {
        program: program.name.clone(),
        stands_for: program.stands_for,
        traced: program.spec.is_none(),
        pages,
        linux,
        online,
        seen: spied.all(),
        regions: if art { spied.regions(&stack[..chosen]) } else { Vec::new() },
        offline: spied.prefixes,
    })
}

/// What came of a workload online.
struct Met {
    linux: Window,
    online: Vec<Online>,
    /// The stack that ROCS made.
    stack: Vec<Vpn>,
    pages: u64,
}

/// All variants over one stream.
fn online<E>(
    program: &Program,
    lengths: Lengths,
    mut blocks: Blocks<'_, E>,
    heard: &dyn Fn(u64),
) -> Result<Met, RunFailed<E>> {
    let all = std::iter::once(Variant::Linux).chain(Variant::ACTIVE);
    let runs = all.map(|variant| Run::new(variant, program, lengths));
    let mut runs = runs.collect::<Result<Vec<Run>, _>>().map_err(RunFailed::Wish)?;
    let window = lengths.online * program.trial;
    let latest = program.start + (lengths.most() - lengths.online) * program.trial;
    let (mut block, mut from) = (Vec::new(), None);
    while blocks.next(&mut block)? {
        for run in &mut runs {
            run.system.run(0, &block).map_err(RunFailed::Machine)?;
        }
        heard((block.len() * runs.len()) as u64);
        let now = blocks.instructions;
        if from.is_none() && (now >= latest || runs.iter().all(Run::is_settled)) {
            // Caches are full again after the last moves.
            from = Some(now + program.trial / 4);
        }
        match from {
            Some(start) if now >= start && runs[0].begin.costs.instructions == 0 => {
                runs.iter_mut().for_each(Run::begin_window);
            }
            Some(start) if now >= start + window => break,
            _ => {}
        }
    }
    let stack = runs.iter().find(|run| run.variant == Variant::Rocs).and_then(|run| {
        let policy = lock(run.policy.as_ref()?);
        Some(policy.stack().iter().map(|page| page.page).collect())
    });
    let linux = runs[0].begin.until(&Mark::of(&runs[0].system));
    let ended = runs.iter_mut().map(Run::finish).collect::<Result<Vec<_>, _>>();
    let online = ended.map_err(RunFailed::Unsound)?.into_iter().flatten().collect();
    let pages = runs[0].system.report().spaces.first().map_or(0, |space| space.pages);
    Ok(Met { linux, online, stack: stack.unwrap_or_default(), pages })
}
