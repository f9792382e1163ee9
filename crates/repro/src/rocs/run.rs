//! Runs a workload twice. Online: plain Linux and the variants of ROCS over one stream, from the
//! start until every search is over, then a window in which all are compared; ROCS goes on for some
//! billion cycles. Offline: the pages of the miss-rate stack that ROCS made are confined
//! at once, for every length of the prefix, each on a machine of its own, and measured in a window: the
//! paper's exhaustive search. Before they are measured, machines without a policy see only what gives
//! pages their frames, and then enough to fill their caches.

use std::sync::{Arc, Mutex};

use huepage_color::Vpn;
use huepage_policy::Rocs;
use huepage_policy::rocs::Stage;
use serde::Serialize;

use super::offline;
use super::profiles::{self, Profiles};
use super::programs::RocsProgram;
use super::stream::{Blocks, FirstTouches};
use super::variants::{self, RocsVariant};
use super::window::{Lengths, Mark, Prefix, RegionSamples, RunPolicies, Window};
use crate::run::{BatchReader, RunFailed, SharedPolicy, lock};
use huepage_sim::record::Record;
use huepage_sim::system::{RunError, System};
use huepage_sim::workloads::WorkloadSpec;

/// What came of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct OnlineResult {
    /// Which.
    pub variant: RocsVariant,
    /// After the search.
    pub window: Window,
    /// Instructions per cycle of the whole run, with profile and search.
    pub whole_ipc: f64,
    /// Pages confined at the end.
    pub confined: usize,
    /// Mappings tried.
    pub trials: u32,
    /// Profiles made.
    pub profiles: u32,
    /// Pages that left the buffer since they were reused there.
    pub left: u64,
    /// Whether a mapping was settled on.
    pub settled: bool,
    /// Cycles of the whole run; that of ROCS goes on after the window.
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
    /// Lines per set of the L2; other than the paper's in an experiment.
    pub ways: u16,
    /// Samples are of loads that begin after the period, and the model looks once; so in an experiment.
    pub later: bool,
    /// It goes along its arrays and does nothing else; so in an experiment.
    pub along: bool,
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
    /// What profiles of a whole pass show, and cost.
    pub profiles: Profiles,
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
    /// What gives pages their frames, as long as nothing else is wanted.
    touches: Option<FirstTouches>,
    /// Where the window begins, if the program does not end before.
    begin: Option<Mark>,
    /// Whether it ever did nothing more than watch.
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
        let touches = policy.is_none().then(FirstTouches::default);
        Ok(Run { variant, system, policy, touches, begin: None, settled: false })
    }

    /// Does some accesses.
    fn go(&mut self, block: &[Record]) -> Result<(), RunError> {
        match &mut self.touches {
            Some(touches) => self.system.run(0, &touches.of(block))?,
            None => self.system.run(0, block)?,
        }
        self.settled |= self.is_settled();
        Ok(())
    }

    /// Whether it does nothing more than watch.
    fn is_settled(&self) -> bool {
        self.policy.as_ref().is_none_or(|policy| {
            let policy = lock(policy);
            matches!(policy.stage, Stage::Steady | Stage::Reviewing) && policy.profiles > 0
        })
    }

    /// The window, which ends now.
    fn window(&self) -> Window {
        self.begin.map_or(Window::default(), |begin| begin.until(&Mark::of(&self.system)))
    }

    /// The pages in the order in which ROCS confines them.
    fn stack(&self) -> Option<Vec<Vpn>> {
        let policy = self.policy.as_ref().filter(|_| self.variant == RocsVariant::Rocs)?;
        Some(lock(policy).stack.iter().map(|page| page.page).collect())
    }

    /// What came of a policy in the window; what the whole run took is not known yet.
    fn measured(&self) -> Option<OnlineResult> {
        let policy = lock(self.policy.as_ref()?);
        Some(OnlineResult {
            variant: self.variant,
            window: self.window(),
            whole_ipc: 0.0,
            confined: policy.confined,
            trials: policy.trials,
            profiles: policy.profiles,
            left: policy.left,
            settled: self.settled,
            cycles: 0,
            monitoring: 0,
            moving: 0,
        })
    }

    /// The same, at the end of the run.
    fn finish(&self, measured: OnlineResult) -> OnlineResult {
        let costs = self.system.costs(0);
        OnlineResult {
            whole_ipc: costs.rates().ipc,
            cycles: costs.cycles(),
            monitoring: costs.policy_cycles,
            moving: costs.recolor_cycles,
            ..measured
        }
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
    let plain = RocsOutcome {
        program: program.name.clone(),
        stands_for: program.stands_for,
        traced: program.spec.is_none(),
        ways: program.ways,
        later: program.later,
        along: program.along,
        pages,
        linux,
        online,
        offline: Vec::new(),
        regions: Vec::new(),
        profiles: Profiles::default(),
    };
    match lengths.policies {
        RunPolicies::All => {}
        RunPolicies::Profiles => {
            let profiles = profiles::run(program, begin()?, heard)?;
            return Ok(RocsOutcome { profiles, ..plain });
        }
        _ => return Ok(plain),
    }
    let chosen = plain.of(RocsVariant::Rocs).map_or(0, |one| one.confined).min(stack.len());
    let spied = offline::run(program, lengths, (&stack, chosen), begin()?, heard)?;
    // The built-in art; where a trace has its arrays nobody knows.
    let art = program.spec.filter(|_| program.stands_for == "art");
    let art = art.and_then(|spec| spec.parse::<WorkloadSpec>().ok());
    let regions = art.map_or_else(Vec::new, |art| spied.regions(&art, &stack[..chosen]));
    let profiles = profiles::run(program, begin()?, heard)?;
    Ok(RocsOutcome { regions, profiles, offline: spied.prefixes, ..plain })
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
    let active = RocsVariant::ACTIVE.into_iter().filter(|variant| lengths.policies.has(*variant));
    let all = std::iter::once(RocsVariant::Linux).chain(active);
    let runs = all.map(|variant| Run::new(variant, program, lengths));
    let mut runs = runs.collect::<Result<Vec<Run>, RunFailed<E>>>()?;
    let latest = program.start + (lengths.most() - lengths.online) * program.trial;
    let mut go = |runs: &mut [Run], over: &dyn Fn(u64, &[Run]) -> bool| {
        drive(runs, &mut blocks, heard, over)
    };
    let now = go(&mut runs, &|now, runs| {
        now >= latest || now >= program.start && runs.iter().all(Run::is_settled)
    })?;
    // Caches are full again after the last moves.
    runs[0].touches = None;
    let start = now + program.trial / 4;
    let began = go(&mut runs, &|now, _| now >= start)? >= start;
    runs.iter_mut().for_each(|run| run.begin = began.then(|| Mark::of(&run.system)));
    let end = start + lengths.online * program.trial;
    go(&mut runs, &|now, _| now >= end)?;
    let (linux, measured) = (runs[0].window(), runs.iter().map(Run::measured).collect::<Vec<_>>());
    let stack = runs.iter().find_map(Run::stack).unwrap_or_default();
    for run in runs.iter_mut().filter(|run| run.variant == RocsVariant::Rocs) {
        go(std::slice::from_mut(run), &|_, runs| {
            runs.iter().all(|run| run.system.costs(0).cycles() >= lengths.cycles)
        })?;
    }
    runs.iter().try_for_each(|run| run.system.check()).map_err(RunFailed::Unsound)?;
    let ended = runs.iter().zip(measured).filter_map(|(run, own)| Some(run.finish(own?)));
    let online = ended.collect();
    let pages = runs[0].system.report().spaces.first().map_or(0, |space| space.pages);
    Ok(Met { linux, online, stack, pages })
}

/// Does accesses until some are told that it is over, or there are no more; instructions until then.
fn drive<E>(
    runs: &mut [Run],
    blocks: &mut Blocks<'_, E>,
    heard: &dyn Fn(u64),
    over: &dyn Fn(u64, &[Run]) -> bool,
) -> Result<u64, RunFailed<E>> {
    let mut block = Vec::new();
    while !over(blocks.instructions, runs) && blocks.next(&mut block)? {
        runs.iter_mut().try_for_each(|run| run.go(&block))?;
        heard((block.len() * runs.len()) as u64);
    }
    Ok(blocks.instructions)
}
