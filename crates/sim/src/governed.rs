//! Any policy by its name on a simulated machine: what the policy is told of the machine, which sensors its
//! needs turn on and at which price, and the governing of address spaces as programs begin. What a policy
//! decides is in `huepage_policy`; who divides the cache is driven by `division`.

use std::sync::{Arc, Mutex, PoisonError};

use huepage_color::ColorSet;
use huepage_policy::conflict::CacheShape;
use huepage_policy::registry::{Family, Host, Settings};
use huepage_policy::superpage::{OfflinePlan, PageSizes};
use huepage_policy::{Action, Event, InputKind, Policy, Prices};

use crate::division::{RunningDivision, Times};
use crate::experiment::{Experiment, FrameMapping, WishError};
use crate::feedback::{Every, Sense};
use crate::foresight;
use crate::frames::Choice;
use crate::machine::{Machine, TlbFill};
use crate::romer;
use crate::schedule::{AccessSource, Overseer};
use crate::system::System;

/// Cycles between samples of loads (ROCS 2008, section 5.1), and of the interrupt for one (figure 6).
const SAMPLE: Every = Every { every: 5_000, cost: 1_500 };
/// Lines that the interrupt touches: a stack frame, registers, counters.
const HANDLER_LINES: u64 = 16;
/// Cycles of moving a page besides the copy: page table, TLB, and lists of free pages.
const REMAP: u64 = 2_000;
/// Looking at a page takes the live engine about 20 ns: 50 cycles.
const AUDIT_COST: u64 = 50;
/// Cycles of the books of ONLINE at each TLB miss (Romer 1998, table 3-3: 2,600 with the miss).
const ONLINE_COST: u64 = 2_570;
/// Cycles for a miss of the page cache, and for a use: a table is looked up.
const FILE_COSTS: [u64; 2] = [200, 100];
/// Cycles between words of the time to an engine that has no window.
const TICK: u64 = 50_000;
/// Longest time between words of the time, in cycles.
const LONGEST_TICK: u64 = 100_000;

/// A run under a policy.
#[derive(Clone, Debug)]
pub struct Governed {
    /// The machine, frames and partitions.
    pub experiment: Experiment,
    /// The policy.
    pub policy: Settings,
    /// Memory gets frames as the experiment says, also where the policy has a way of its own: somebody asked for it.
    pub as_mapped: bool,
}

impl Governed {
    /// Whether there is no policy.
    pub fn is_free(&self) -> bool {
        self.policy.entry().family == Family::Nothing
    }

    /// Whether the policy has to know the whole stream of accesses beforehand.
    pub fn needs_stream(&self) -> bool {
        self.policy.entry().needs.contains(&InputKind::Stream)
    }

    /// Frames reserved in blocks for policies that build in place, unless another way was asked for.
    pub fn reserve(&mut self) {
        if let Some(order) = self.policy.reserved().filter(|_| !self.as_mapped) {
            self.experiment.mapping = FrameMapping::Reservation(order.clamp(1, 10));
        }
    }

    /// As [`Experiment::set`]; keys of the policy as `policy.KEY`.
    ///
    /// # Errors
    /// When there is no such number, or it cannot have this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), WishError> {
        let key_of_policy =
            if key == "audit" { Some("every") } else { key.strip_prefix("policy.") };
        match key_of_policy {
            Some(key) => self.policy.set(key, value).map_err(|e| WishError::new(e.to_string())),
            None => self.experiment.set(key, value),
        }
    }

    /// Whether the systems of both may be twins.
    pub fn may_share(&self, other: &Governed) -> bool {
        self.is_free() && other.is_free() && self.experiment.may_share(&other.experiment)
    }

    /// What the machine is to the policy; `program` counts from 0.
    fn host(&self, program: usize) -> Result<Host, WishError> {
        let (machine, cache) = (&self.experiment.machine, self.experiment.shape()?);
        let partition = match cache {
            Some(shape) => self.experiment.partition(program, shape.colors)?,
            None => None,
        };
        Ok(Host {
            keep_off: None,
            cache,
            partition,
            cores: u16::try_from(machine.cores).unwrap_or(u16::MAX),
            sizes: sizes(machine),
            prices: Prices { miss: miss_cost(machine), ..Prices::default() },
            quotes: false,
            live: false,
            weight: 1,
            plan: None,
        })
    }

    /// What the address spaces of a program's stream are worth in superpages, in the order in which they
    /// begin; of its first `limit` accesses.
    ///
    /// # Errors
    /// When the source cannot.
    pub fn plans<E>(
        &self,
        source: Box<dyn AccessSource<E> + '_>,
        limit: u64,
    ) -> Result<Vec<OfflinePlan>, E> {
        let machine = &self.experiment.machine;
        let last = machine.tlb_path(false).last().map(|&at| machine.tlb[at].entries);
        let usual = Host { sizes: sizes(machine), ..Host::default() };
        let prices = Prices { miss: miss_cost(machine), ..Prices::default() };
        let host = Host { prices, ..usual };
        let streams = foresight::streams(source, limit)?;
        let (sizes, prices) = (self.policy.sizes(&host), self.policy.prices(&host));
        let plan = |stream: foresight::Stream| stream.plan(last.unwrap_or(1), &sizes, prices);
        Ok(streams.into_iter().map(plan).collect())
    }

    /// Checks that the policy can be made on this machine.
    ///
    /// # Errors
    /// When it cannot, in words that end with what to do.
    pub fn check(&self) -> Result<(), WishError> {
        self.oversight(Vec::new()).map(drop)
    }

    /// The policy at work. `plans` are what the streams of the programs' address spaces are worth, by program
    /// and in the order in which spaces begin, where the policy needs that.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn oversight(&self, plans: Vec<Vec<OfflinePlan>>) -> Result<Oversight<'_>, WishError> {
        let wish = |error: huepage_policy::registry::Error| WishError::new(error.to_string());
        let host = self.host(0)?;
        let sense = sense(&self.policy, &host);
        let manager = self.policy.make_division(&host).map_err(wish)?;
        let growth = host.cache.and_then(|shape| self.policy.growth(shape));
        let divided = manager.zip(growth).map(|(manager, growth)| {
            let period = self.policy.count("period").unwrap_or(1);
            RunningDivision::new(manager, growth, Times { period, apart: 0, tick: TICK })
        });
        let any = Host { plan: Some(OfflinePlan::default()), ..host };
        let made = self.policy.make(&any).map_err(wish)?;
        let shared = self.policy.entry().family.is_shared();
        let shared = shared.then(|| Shared(Arc::new(Mutex::new(made))));
        Ok(Oversight { run: self, sense, shared, divided, plans, begun: Vec::new() })
    }
}

/// Page sizes of the TLBs; the thesis's on a machine without any.
fn sizes(machine: &Machine) -> PageSizes {
    let pages = machine.tlb.iter().flat_map(|tlb| &tlb.pages);
    let orders: Vec<u32> = pages.map(|bytes| (bytes.0 >> 12).max(1).ilog2()).collect();
    PageSizes::new(&orders).filter(|_| !orders.is_empty()).unwrap_or_default()
}

/// Cycles of a TLB miss; the thesis's where walks are simulated or cost nothing.
fn miss_cost(machine: &Machine) -> u64 {
    let software = machine.tlb.last().is_some_and(|tlb| tlb.fill == TlbFill::Software);
    let cycles = if software { machine.handler_latency } else { machine.walk_latency };
    if cycles == 0 { Prices::default().miss } else { cycles }
}

/// The sensors that a policy needs, at the prices of its paper.
fn sense(policy: &Settings, host: &Host) -> Sense {
    let shape = host.cache.unwrap_or(CacheShape::direct(1, 64));
    let tick = policy.shortest_cycles().map_or(LONGEST_TICK, |n| (n / 4).clamp(100, LONGEST_TICK));
    let progress = Some(Every { every: tick, cost: 0 });
    match policy.entry().family {
        Family::Nothing | Family::Division => Sense::default(),
        Family::Partition => {
            let every = policy.count("every").unwrap_or(LONGEST_TICK);
            Sense { audit: Some(Every { every, cost: AUDIT_COST }), ..Sense::default() }
        }
        Family::Pollute => pollute(policy),
        Family::Files => {
            let uses = policy.entry().needs.contains(&InputKind::FileUses);
            let [file_miss_cost, use_cost] = FILE_COSTS;
            Sense { file_miss_cost, file_use_cost: uses.then_some(use_cost), ..Sense::default() }
        }
        Family::ActiveConflicts => Sense { progress, ..romer::active() },
        Family::PeriodicConflicts => Sense {
            progress: Some(Every {
                every: policy.count("period").unwrap_or(tick),
                cost: romer::ANALYSIS_COST,
            }),
            ..romer::periodic()
        },
        Family::Snapshots if policy.name() == "snapshot-fit" => romer::snapshot_fit(),
        Family::Snapshots => snapshots(policy, shape, progress),
        Family::Cml => Sense { progress, ..romer::cml(shape) },
        Family::Superpages => superpages(policy, progress),
        Family::Combined => romer::combined(shape),
    }
}

fn pollute(policy: &Settings) -> Sense {
    let trial = (policy.count("trial").unwrap_or(16) / 16).max(1);
    Sense {
        sample: Some(SAMPLE),
        sample_misses: true,
        handler_lines: HANDLER_LINES,
        overflow: Some(Every { every: 100, cost: 0 }),
        progress: Some(Every { every: trial, cost: 0 }),
        recolor_cost: REMAP,
        ..Sense::default()
    }
}

fn snapshots(policy: &Settings, shape: CacheShape, progress: Option<Every>) -> Sense {
    let settings = policy.snapshot(shape);
    let two = settings.delay.is_some();
    let sample = (settings.absent > 0).then_some(SAMPLE);
    if policy.counts_misses() {
        let shortest = settings.delay.unwrap_or(settings.period).min(settings.period);
        let every = shortest.clamp(1, 1_000);
        let overflow = Some(Every { every, cost: romer::INTERRUPT_COST });
        return Sense { overflow, sample, sample_misses: true, ..romer::snapshot_miss() };
    }
    Sense { progress, sample, ..romer::snapshot(two) }
}

fn superpages(policy: &Settings, progress: Option<Every>) -> Sense {
    let hears = policy.entry().needs.contains(&InputKind::TlbMisses);
    let books = if policy.name() == "online" { ONLINE_COST } else { romer::BOOKKEEPING_COST };
    let told = policy.entry().needs.contains(&InputKind::Instructions);
    Sense {
        tlb_miss_cost: hears.then_some(books),
        progress: progress.filter(|_| told),
        ..Sense::default()
    }
}

/// One policy for all programs.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Policy + Send>>>);

impl Policy for Shared {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).handle(event, actions);
    }
}

/// A policy at work on a machine.
pub struct Oversight<'a> {
    run: &'a Governed,
    sense: Sense,
    shared: Option<Shared>,
    divided: Option<RunningDivision>,
    plans: Vec<Vec<OfflinePlan>>,
    /// Address spaces of each program so far.
    begun: Vec<usize>,
}

impl Oversight<'_> {
    /// A program's address space begins.
    fn govern(&mut self, system: &mut System, program: usize, space: u16) -> Result<(), WishError> {
        let wish = |error: &dyn std::fmt::Display| WishError::new(error.to_string());
        let family = self.run.policy.entry().family;
        if let Some(divided) = &mut self.divided {
            let spec = divided.manager().settings.spec(format!("space {space}"), None);
            divided.admit(system, program % system.cores(), space, spec);
            return Ok(());
        }
        if family != Family::Partition {
            self.run.experiment.confine(system, program, space)?;
        }
        if family == Family::Nothing {
            return Ok(());
        }
        let policy: Box<dyn Policy + Send> = match &self.shared {
            Some(shared) => {
                if !self.run.as_mapped {
                    // Files take frames from the coloured zone, and so does memory.
                    let all = ColorSet::all(system.frames_mut().colors());
                    system.frames_mut().choose_for(space, Choice::Partition(all));
                }
                Box::new(shared.clone())
            }
            None => {
                let plan = self.plan(program);
                let host = Host { plan, ..self.run.host(program)? };
                self.run.policy.make(&host).map_err(|e| wish(&e))?
            }
        };
        system.govern(space, policy, self.sense).map_err(|e| wish(&e))
    }

    /// Who divides the cache, if the policy does.
    pub const fn division(&self) -> Option<&RunningDivision> {
        self.divided.as_ref()
    }

    /// The plan of the next address space of a program.
    fn plan(&mut self, program: usize) -> Option<OfflinePlan> {
        if self.begun.len() <= program {
            self.begun.resize(program + 1, 0);
        }
        let at = self.begun[program];
        self.begun[program] += 1;
        let plan = self.plans.get(program).and_then(|plans| plans.get(at));
        Some(plan.cloned().unwrap_or_default())
    }
}

/// An overseer that fails as programs' sources do.
pub struct Overseeing<'a, 'b, E, F: Fn(WishError) -> E> {
    /// The policy at work.
    pub oversight: &'b mut Oversight<'a>,
    /// What an error becomes.
    pub error: F,
    /// Hears of the accesses done.
    pub heard: &'b mut dyn FnMut(u64),
}

impl<E, F: Fn(WishError) -> E> Overseer<E> for Overseeing<'_, '_, E, F> {
    fn announce(&mut self, system: &mut System, program: usize, space: u16) -> Result<(), E> {
        self.oversight.govern(system, program, space).map_err(&self.error)
    }

    fn tick(&mut self, system: &mut System, clock: u64, accesses: u64) {
        if let Some(divided) = &mut self.oversight.divided {
            divided.tick(system, clock);
        }
        (self.heard)(accesses);
    }
}

#[cfg(test)]
mod tests {
    use huepage_policy::registry::POLICIES;

    use super::*;

    /// Whether the sensors tell of an input; what a policy asks for is always answered.
    fn provides(sense: &Sense, input: InputKind) -> bool {
        match input {
            InputKind::TlbMisses => sense.tlb_miss_cost.is_some(),
            InputKind::Cycles | InputKind::Instructions => sense.progress.is_some(),
            InputKind::CacheMisses => sense.overflow.is_some(),
            InputKind::Audits => sense.audit.is_some(),
            InputKind::CmlBuffer => sense.cml.is_some(),
            InputKind::FileUses => sense.file_use_cost.is_some(),
            InputKind::Loads => sense.sample.is_some(),
            _ => true,
        }
    }

    #[test]
    fn sensors_are_those_that_the_policy_needs() {
        let shape = Some(CacheShape { colors: 16, ways: 4, lines_per_page: 64 });
        let host = Host { cache: shape, cores: 2, weight: 1, ..Host::default() };
        for entry in POLICIES.iter().filter(|entry| entry.family != Family::Division) {
            let settings = Settings::parse(entry.name).expect("a policy");
            let sense = sense(&settings, &host);
            for &input in entry.needs {
                let spared = input == InputKind::Loads && settings.count("absent") == Some(0);
                assert!(provides(&sense, input) || spared, "{} and {input:?}", entry.name);
            }
        }
    }
}
