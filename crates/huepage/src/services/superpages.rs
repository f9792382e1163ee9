//! Superpages: the options, the service that has them built, and what a partition leaves of them. Which pages
//! are made superpages is decided by the policies; how is in `huepage_linux::services::superpages`.

use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use huepage_color::{CacheGeometry, ColorSet, IndexFunction, Provenance};
use huepage_linux::engine::PromotionHandle;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::sensors::tlb::{MissSensorKind, TlbShape};
use huepage_linux::services::superpages::{Partition, Settings, SuperpageWorker, needs_misses};
use huepage_policy::combined::Costs;
use huepage_policy::registry::LiveOption;
use huepage_policy::superpage::{PageSizes, orders_inside};
use serde::{Deserialize, Serialize};

use super::policy::{self, PolicyOption};
use super::{Context, Reports, Service};
use crate::deferred_drop::drop_behind;
use crate::exit::CmdError;
use crate::headings::{FEATURES, TUNING};
use crate::partition::{DividedColors, PartitionArgs, Prepared};
use crate::values::{parse_cpu, parse_percent, parse_stall};

/// Orders of the pages that kernels of today have on x86-64, 16 KiB to 2 MiB.
const ORDERS: [u32; 8] = [2, 3, 4, 5, 6, 7, 8, 9];

/// What options about superpages need beside them: a policy, by name or because a command has a usual one.
pub const POLICY_NAMED: &str = "policy_named";

/// Pages of 2 MiB where they pay.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[command(group = ArgGroup::new(POLICY_NAMED).multiple(true))]
pub struct SuperpageArgs {
    /// Build pages of 2 MiB where a policy says that they pay, such as approx-online; or off
    ///
    /// approx-online, throttle, throttle-strict and online go by TLB misses, asap and fixed:order=9 by what is
    /// resident, hybrid:order=9 by both. `huepage sim --policy NAME:help` lists the keys of a policy.
    ///
    /// Without --colors and --share the program runs as it would alone, and nothing else is done to
    /// it. In a partition only pages that lie in its colours whole are built, unless
    /// --superpages-in-partition says otherwise.
    #[arg(long, group = POLICY_NAMED, help_heading = FEATURES, value_name = policy::POLICY, default_value_t = PolicyOption::OFF,
          value_parser = policy::reader(LiveOption::Superpages))]
    pub superpages: PolicyOption,

    /// Whether superpages may lie outside the partition, if there is one
    ///
    /// A page of 2 MiB lies in every colour. respect: none is built then. benefit: one is built where
    /// the TLB misses that it saves are worth more than the lines that it may drive out of the rest
    /// of the cache; its pages outside count against compliance.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_enum, value_name = "HOW", requires = POLICY_NAMED,
          default_value_t = PartitionRule::Respect)]
    pub superpages_in_partition: PartitionRule,

    /// Memory that superpages may add to what the program uses without them
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PERCENT", default_value = "4%", requires = POLICY_NAMED,
          value_parser = parse_percent)]
    pub memory_overhead: f64,

    /// What finding out where they pay may cost, as a share of one CPU
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PERCENT", default_value = "1%", requires = POLICY_NAMED,
          value_parser = parse_cpu)]
    pub superpage_cpu: f64,

    /// What tells of TLB misses [default: the best that this machine has]
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_enum, value_name = "SOURCE", requires = POLICY_NAMED)]
    pub misses_from: Option<MissSource>,

    /// How long the program may have to wait for one at most, such as 500us or 2ms [default: as long as it takes]
    ///
    /// Who touches memory that is becoming a superpage waits until it is one. How long that takes is tried in
    /// memory of huepage's own; none is built in the program while it takes longer, and after one that did
    /// building rests, at first for ten seconds.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "TIME", requires = POLICY_NAMED,
          value_parser = parse_stall)]
    pub stall: Option<Duration>,
}

impl Default for SuperpageArgs {
    /// What the command line says when it says nothing.
    fn default() -> SuperpageArgs {
        SuperpageArgs {
            superpages: PolicyOption::OFF,
            superpages_in_partition: PartitionRule::Respect,
            memory_overhead: 0.04,
            superpage_cpu: 0.01,
            misses_from: None,
            stall: None,
        }
    }
}

/// What a partition means to superpages.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionRule {
    /// Nothing leaves it
    Respect,
    /// They may leave it where that pays
    Benefit,
}

/// What tells of TLB misses.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissSource {
    /// Samples of performance counters, with addresses
    Pmu,
    /// Accessed bits of page tables, read through BPF
    AccessedBits,
    /// How much of each area was accessed, from smaps: coarse
    Areas,
    /// Pages that come back after they were paged out: slow, needs swap
    PageOut,
}

impl SuperpageArgs {
    /// Whether any are to be built.
    pub fn is_on(&self) -> bool {
        self.superpages.is_on()
    }

    /// Whether the policy knows nothing of TLB misses.
    pub fn is_blind(&self) -> bool {
        self.superpages.policy().is_some_and(|policy| !needs_misses(policy))
    }

    /// What the options say, if superpages are to be built.
    pub fn settings(&self) -> Option<Settings> {
        let policy = self.superpages.policy()?.clone();
        let source = self.misses_from.map(|source| match source {
            MissSource::Pmu => MissSensorKind::Pmu,
            MissSource::AccessedBits => MissSensorKind::AccessedBits,
            MissSource::Areas => MissSensorKind::Areas,
            MissSource::PageOut => MissSensorKind::PageOut,
        });
        let (memory_overhead, cpu) = (self.memory_overhead, self.superpage_cpu);
        Some(Settings { policy, memory_overhead, cpu, source, stall: self.stall })
    }

    /// Why this machine does not have the source of misses that was named, if it does not.
    pub fn lacking(&self) -> Option<String> {
        let source = self.settings().and_then(|settings| settings.source)?;
        huepage_linux::sensors::tlb::lacking(source)
    }

    /// Whether superpages in a partition are weighed against its isolation.
    pub const fn weighs(&self) -> bool {
        matches!(self.superpages_in_partition, PartitionRule::Benefit)
    }

    /// What superpages cost in these colours of a cache, if they may leave them.
    fn costs(&self, cache: &CacheGeometry, colors: &ColorSet) -> Option<Costs> {
        let of = [colors.len(), colors.universe()];
        self.weighs().then(|| Costs::new(walk_ns(), cache.level, cache.size_bytes, of))
    }

    /// What is asked for, in a line.
    pub fn line(&self) -> Option<String> {
        let policy = self.superpages.policy()?;
        let how = self.superpages_in_partition.to_possible_value()?;
        Some(format!("superpages by {policy}; the partition: {}", how.get_name()))
    }
}

/// Nanoseconds of a TLB miss here.
#[allow(clippy::cast_precision_loss, reason = "tens of nanoseconds")]
fn walk_ns() -> f64 {
    TlbShape::read().walk_ns as f64
}

/// Why no superpages would be built in these colours, if they are asked for: none lies in them whole, or those
/// that do are of sizes that no kernel builds on request.
pub fn refusal(
    options: &SuperpageArgs,
    partition: &PartitionArgs,
    prepared: &Prepared,
    colors: &ColorSet,
) -> Option<String> {
    let refused = options.is_on() && partition.confines() && !options.weighs();
    refused.then(|| {
        let measured = prepared.provenance == Provenance::Probed;
        let index = index_of(&prepared.cache, prepared.index.as_ref(), measured);
        obstacle_in(index.as_ref(), colors)
    })
}

/// The index function by which colours are computed, of a hash file or of a cache; none where they are
/// `measured`.
fn index_of(
    cache: &CacheGeometry,
    known: Option<&IndexFunction>,
    measured: bool,
) -> Option<IndexFunction> {
    known.cloned().or_else(|| cache.linear_index().ok().filter(|_| !measured))
}

/// Why no superpage is built in these colours, where nothing is to leave them.
fn obstacle_in(index: Option<&IndexFunction>, colors: &ColorSet) -> String {
    let of = format!("the colours {colors} of {}", colors.universe());
    match index.map(|index| largest(index, colors)) {
        None => format!(
            "no page above 4 KiB is known to lie in {of}, as they are measured page by page"
        ),
        Some(0) => format!("no page above 4 KiB lies whole in {of}"),
        Some(9) => "2 MiB lie in every colour: run it without a partition for them".to_owned(),
        Some(order) => format!(
            "pages of {} KiB are the largest that lie whole in {of}, and Linux builds none of that size \
             on request",
            4 << order
        ),
    }
}

/// The largest order of which some block lies in a set.
fn largest(index: &IndexFunction, colors: &ColorSet) -> u32 {
    let sizes = PageSizes::new(&ORDERS);
    let orders = sizes.and_then(|sizes| orders_inside(index, colors, &sizes).ok());
    orders.and_then(|orders| orders.last().copied()).unwrap_or(0)
}

/// Builds superpages in the members of a group, or says why it builds none.
struct SuperpageService {
    options: SuperpageArgs,
    cache: CacheGeometry,
    index: Option<IndexFunction>,
    promotion_handle: PromotionHandle,
    /// The colours of the partition, if there is one.
    partition: Option<ColorSet>,
    /// Runs from the first member on.
    worker: Option<SuperpageWorker>,
    /// Why there is none.
    refusal: Option<String>,
}

/// Starts the service; see [`super::Service`].
pub fn start(
    options: &SuperpageArgs,
    context: &Context<'_>,
) -> Result<Option<Box<dyn Service>>, CmdError> {
    if !options.is_on() {
        return Ok(None);
    }
    let measured = context.provenance == Provenance::Probed;
    let mut service = SuperpageService {
        options: options.clone(),
        cache: context.cache.clone(),
        index: index_of(context.cache, context.index, measured),
        promotion_handle: context.promotion_handle.reopened(),
        partition: context.partition.confines().then(|| context.colors.held.clone()),
        worker: None,
        refusal: None,
    };
    service.refusal = service.obstacle();
    if let Some(why) = service.refusal.as_ref().filter(|_| !context.quiet) {
        eprintln!("huepage: no superpages are built: {why}");
    }
    Ok(Some(Box::new(service)))
}

impl SuperpageService {
    /// Why none can be built.
    fn obstacle(&self) -> Option<String> {
        let partition = self.partition.as_ref().filter(|_| !self.options.weighs());
        partition.map(|colors| obstacle_in(self.index.as_ref(), colors))
    }

    /// Starts the worker.
    fn build(&self, roots: ProcessRoots) -> Option<SuperpageWorker> {
        let costs = |colors| self.options.costs(&self.cache, colors);
        let partition = self.partition.as_ref().and_then(costs);
        let partition =
            partition.map(|costs| Partition { handle: self.promotion_handle.clone(), costs });
        Some(SuperpageWorker::start_in(self.options.settings()?, roots, Vec::new(), partition))
    }
}

impl Service for SuperpageService {
    fn admit(&mut self, members: &[i32]) {
        let roots = ProcessRoots::With(members.to_vec());
        match &self.worker {
            Some(worker) => worker.set_roots(roots),
            None if members.is_empty() || self.refusal.is_some() => {}
            None => self.worker = self.build(roots),
        }
    }

    fn recolor(&mut self, colors: &DividedColors) {
        self.partition = self.partition.is_some().then(|| colors.held.clone());
        self.refusal = self.obstacle();
        if let (Some(worker), Some(costs)) =
            (&self.worker, self.options.costs(&self.cache, &colors.held))
        {
            worker.set_costs(costs);
        }
    }

    fn report(&self, into: &mut Reports) {
        into.superpages = self.worker.as_ref().and_then(SuperpageWorker::report);
        into.no_superpages.clone_from(&self.refusal);
    }

    fn finish(mut self: Box<Self>, into: &mut Reports) {
        self.report(into);
        if let Some(worker) = self.worker.take() {
            into.superpages = worker.finish();
        }
    }

    fn withdraw(mut self: Box<Self>) {
        // Who built them knew which pay; nobody does any more.
        self.promotion_handle.give_up_all();
        // It may wait for a process.
        drop_behind(self.worker.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::run::parsed_plan as run;

    #[test]
    fn a_policy_for_superpages_stands_in_for_colours() {
        let args = run(&["--superpages", "approx-online"]).unwrap();
        let settings = args.superpages.settings().unwrap();
        assert_eq!(settings.policy.name(), "approx-online");
        let keys = run(&["--superpages", "approx-online:prefetch=1/4"]).unwrap();
        let policy = keys.superpages.settings().unwrap().policy;
        assert_eq!(policy.ratio("prefetch"), Some(0.25));
        assert!(run(&["--superpages", "offline"]).is_err());
        assert!(
            (settings.memory_overhead - 0.04).abs() < 1e-9 && (settings.cpu - 0.01).abs() < 1e-9
        );
        let usual = run(&["--share", "50%"]).unwrap().superpages;
        assert_eq!(usual, SuperpageArgs::default());
        assert!(
            run(&["--superpages=off", "--share", "50%"]).unwrap().superpages.settings().is_none()
        );
        assert!(run(&["--memory-overhead", "4%"]).is_err(), "about nothing");
        assert!(run(&["--share", "50%", "--superpages-in-partition", "benefit"]).is_err());
    }
}
