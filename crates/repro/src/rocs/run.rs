//! Runs a workload twice. Online: plain Linux and the variants of ROCS over one stream, from the
//! start until every search is over, then a window in which all are compared. Offline: the pages of
//! the miss-rate stack that ROCS made are confined at once, for every length of the prefix, each
//! on a machine of its own, and measured in a window: the paper's exhaustive search.

use std::sync::{Arc, Mutex};

use huepage_color::Vpn;
use huepage_policy::Rocs;
use huepage_policy::rocs::Stage;
use serde::Serialize;

use super::offline;
use super::programs::RocsProgram;
use super::stream::Blocks;
use super::variants::{self, RocsVariant};
use super::window::{Lengths, Mark, Prefix, RegionSamples, Window};
use crate::run::{BatchReader, RunFailed, SharedPolicy, lock};
use huepage_sim::system::System;
use huepage_sim::workloads::WorkloadSpec;

/// What came of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct OnlineResult {
    /// Which.
    pub variant: RocsVariant,
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

/// What came of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct RocsOutcome {
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
    pub online: Vec<OnlineResult>,
    /// The exhaustive search.
    pub offline: Vec<Prefix>,
    /// Parts of the program, where the paper tells of them.
    pub regions: Vec<RegionSamples>,
}

impl RocsOutcome {
    /// What came of a variant.
    pub fn of(&self, variant: RocsVariant) -> Option<&OnlineResult> {
        self.online.iter().find(|online| online.variant == variant)
    }

    /// Percent more instructions per cycle than Linux; none if the program ended too soon.
    pub fn gain(&self, variant: RocsVariant) -> Option<f64> {
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

/// A machine at work.
struct Run {
    variant: RocsVariant,
    system: System,
    policy: Option<Arc<Mutex<Rocs>>>,
    begin: Mark,
    settled: bool,
}

impl Run {
    fn new<E>(
        variant: RocsVariant,
        program: &RocsProgram,
        lengths: Lengths,
    ) -> Result<Run, RunFailed<E>> {
        let mut system = variants::system(program)?;
        let mut policy = None;
        if variant != RocsVariant::Linux {
            let rocs = Rocs::new(variants::settings(variant, program, lengths.steps));
            let shared = Arc::new(Mutex::new(rocs));
            let watched = Box::new(SharedPolicy(Arc::clone(&shared)));
            system.govern(0, watched, variants::sense(program))?;
            policy = Some(shared);
        }
        Ok(Run { variant, system, policy, begin: Mark::default(), settled: false })
    }

    /// Whether it does nothing more than watch.
    fn is_settled(&self) -> bool {
        self.policy.as_ref().is_none_or(|policy| {
            let policy = lock(policy);
            matches!(policy.stage, Stage::Steady | Stage::Reviewing) && policy.profiles > 0
        })
    }

    fn begin_window(&mut self) {
        self.settled = self.is_settled();
        self.begin = Mark::of(&self.system);
    }

    fn finish(&mut self) -> Result<Option<OnlineResult>, String> {
        self.system.check()?;
        let window = self.begin.until(&Mark::of(&self.system));
        let (costs, Some(policy)) = (self.system.costs(0), &self.policy) else { return Ok(None) };
        let policy = lock(policy);
        Ok(Some(OnlineResult {
            variant: self.variant,
            window,
            whole_ipc: costs.rates().ipc,
            confined: policy.confined,
            trials: policy.trials,
            profiles: policy.profiles,
            left: policy.left,
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
    program: &RocsProgram,
    lengths: Lengths,
    open: &dyn Fn() -> Result<BatchReader<'a, E>, E>,
    heard: &dyn Fn(u64),
) -> Result<RocsOutcome, RunFailed<E>> {
    let begin = || open().map(Blocks::new).map_err(RunFailed::Source);
    let Met { linux, online, stack, pages } = online(program, lengths, begin()?, heard)?;
    let chosen = online.iter().find(|one| one.variant == RocsVariant::Rocs);
    let chosen = chosen.map_or(0, |one| one.confined).min(stack.len());
    let spied = offline::run(program, lengths, (&stack, chosen), begin()?, heard)?;
    // The built-in art; where a trace has its arrays nobody knows.
    let art = program.spec.filter(|_| program.stands_for == "art");
    let art = art.and_then(|spec| spec.parse::<WorkloadSpec>().ok());
    Ok(RocsOutcome {
        program: program.name.clone(),
        stands_for: program.stands_for,
        traced: program.spec.is_none(),
        pages,
        linux,
        online,
        regions: art.map_or_else(Vec::new, |art| spied.regions(&art, &stack[..chosen])),
        offline: spied.prefixes,
    })
}

/// What came of a workload online.
struct Met {
    linux: Window,
    online: Vec<OnlineResult>,
    /// The stack that ROCS made.
    stack: Vec<Vpn>,
    pages: u64,
}

/// All variants over one stream.
fn online<E>(
    program: &RocsProgram,
    lengths: Lengths,
    mut blocks: Blocks<'_, E>,
    heard: &dyn Fn(u64),
) -> Result<Met, RunFailed<E>> {
    let all = std::iter::once(RocsVariant::Linux).chain(RocsVariant::ACTIVE);
    let runs = all.map(|variant| Run::new(variant, program, lengths));
    let mut runs = runs.collect::<Result<Vec<Run>, RunFailed<E>>>()?;
    let window = lengths.online * program.trial;
    let latest = program.start + (lengths.most() - lengths.online) * program.trial;
    let (mut block, mut from) = (Vec::new(), None);
    while blocks.next(&mut block)? {
        for run in &mut runs {
            run.system.run(0, &block)?;
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
    let stack = runs.iter().find(|run| run.variant == RocsVariant::Rocs).and_then(|run| {
        let policy = lock(run.policy.as_ref()?);
        Some(policy.stack.iter().map(|page| page.page).collect())
    });
    let linux = runs[0].begin.until(&Mark::of(&runs[0].system));
    let ended = runs.iter_mut().map(Run::finish).collect::<Result<Vec<_>, _>>();
    let online = ended.map_err(RunFailed::Unsound)?.into_iter().flatten().collect();
    let pages = runs[0].system.report().spaces.first().map_or(0, |space| space.pages);
    Ok(Met { linux, online, stack: stack.unwrap_or_default(), pages })
}
