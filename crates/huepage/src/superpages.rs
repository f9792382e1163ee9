//! The options about superpages, what they start, and what a partition leaves of them. Which pages
//! are made superpages is decided by the policies; how is in `huepage_linux::superpages`.

use clap::{Args, ValueEnum};
use huepage_color::{CacheGeometry, ColorSet, IndexFunction, Provenance};
use huepage_linux::engine::Desk;
use huepage_linux::filecache::kin::Heads;
use huepage_linux::superpages::{Choice, Partition, Settings, Source, TlbShape, Worker};
use huepage_policy::superpage::{Costs, Sizes, orders_inside};

use crate::args::{ColorsFrom, PartitionArgs};
use crate::exit::{CmdError, ExitCode};
use crate::partition::Plan;

/// Where help lists them.
const HEADING: &str = "Superpages";
/// Orders of the pages that kernels of today have on x86-64, 16 KiB to 2 MiB.
const ORDERS: [u32; 8] = [2, 3, 4, 5, 6, 7, 8, 9];

/// Pages of 2 MiB where they pay.
#[derive(Args, Debug, Clone, PartialEq)]
pub struct SuperpageArgs {
    /// Build pages of 2 MiB where a policy says that they pay
    ///
    /// Without --colors and --share the program runs as it would alone, and nothing else is done to
    /// it. In a partition only pages that lie in its colours whole are built, unless
    /// --superpages-in-partition says otherwise.
    #[arg(long, help_heading = HEADING, value_enum, value_name = "POLICY", default_value_t = Superpages::Off)]
    pub superpages: Superpages,

    /// Whether superpages may lie outside the partition, if there is one
    ///
    /// A page of 2 MiB lies in every colour. respect: none is built then. benefit: one is built where
    /// the TLB misses that it saves are worth more than the lines that it may drive out of the rest
    /// of the cache; its pages outside count against compliance.
    #[arg(long, help_heading = HEADING, value_enum, value_name = "HOW", requires = "superpages",
          default_value_t = InPartition::Respect)]
    pub superpages_in_partition: InPartition,

    /// Memory that superpages may add to what the program uses without them
    #[arg(long, help_heading = HEADING, value_name = "PERCENT", default_value = "4%", requires = "superpages",
          value_parser = parse_percent)]
    pub memory_overhead: f64,

    /// What finding out where they pay may cost, as a share of one CPU
    #[arg(long, help_heading = HEADING, value_name = "PERCENT", default_value = "1%", requires = "superpages",
          value_parser = parse_cpu)]
    pub superpage_cpu: f64,

    /// What tells of TLB misses [default: the best that this machine has]
    #[arg(long, help_heading = HEADING, value_enum, value_name = "SOURCE", requires = "superpages")]
    pub misses_from: Option<MissSource>,
}

impl Default for SuperpageArgs {
    /// What the command line says when it says nothing.
    fn default() -> SuperpageArgs {
        SuperpageArgs {
            superpages: Superpages::Off,
            superpages_in_partition: InPartition::Respect,
            memory_overhead: 0.04,
            superpage_cpu: 0.01,
            misses_from: None,
        }
    }
}

/// By which policy superpages are built.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superpages {
    /// Once the misses that one would have prevented make an eighth of its cost
    ApproxOnline,
    /// The same, but rests where that does not help
    Throttle,
    /// As soon as every page of one was touched
    Asap,
    /// As approx-online, and by what would have stayed in the TLB
    Online,
    /// None
    Off,
}

/// What a partition means to superpages.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPartition {
    /// Nothing leaves it
    Respect,
    /// They may leave it where that pays
    Benefit,
}

/// What tells of TLB misses.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
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

/// A share; above 100 % is one of memory that grows beyond itself.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let expected = || format!("`{text}` is no percentage; write for instance 4%");
    let number: f64 =
        text.strip_suffix('%').unwrap_or(text).trim().parse().map_err(|_| expected())?;
    if (0.0..=100_000.0).contains(&number) { Ok(number / 100.0) } else { Err(expected()) }
}

/// A share of one CPU that watching may take.
pub fn parse_cpu(text: &str) -> Result<f64, String> {
    let share = parse_percent(text)?;
    if (0.0001..=1.0).contains(&share) { Ok(share) } else { Err("choose 0.01% to 100%".to_owned()) }
}

impl SuperpageArgs {
    /// Whether any are to be built.
    pub fn is_on(&self) -> bool {
        self.superpages != Superpages::Off
    }

    /// What the options say, if superpages are to be built.
    pub fn settings(&self) -> Option<Settings> {
        let policy = match self.superpages {
            Superpages::ApproxOnline => Choice::ApproxOnline,
            Superpages::Throttle => Choice::Throttle,
            Superpages::Asap => Choice::Asap,
            Superpages::Online => Choice::Online,
            Superpages::Off => return None,
        };
        let source = self.misses_from.map(|source| match source {
            MissSource::Pmu => Source::Pmu,
            MissSource::AccessedBits => Source::AccessedBits,
            MissSource::Areas => Source::Areas,
            MissSource::PageOut => Source::PageOut,
        });
        let (memory_overhead, cpu) = (self.memory_overhead, self.superpage_cpu);
        Some(Settings { policy, memory_overhead, cpu, source })
    }

    /// Refuses a source of misses that this machine does not have, and a benefit that no policy
    /// could tell.
    pub fn check(&self) -> Result<(), CmdError> {
        if self.is_blind() {
            let what = "--superpages asap knows of no TLB misses, and so of no benefit; \
                        choose approx-online";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        self.lacking().map_or(Ok(()), |why| Err(CmdError::new(ExitCode::Kernel, why)))
    }

    /// Whether a benefit is asked for that the policy cannot tell.
    pub fn is_blind(&self) -> bool {
        self.weighs() && self.superpages == Superpages::Asap
    }

    /// Why this machine does not have the source of misses that was named, if it does not.
    pub fn lacking(&self) -> Option<String> {
        let source = self.settings().and_then(|settings| settings.source)?;
        huepage_linux::superpages::lacking(source)
    }

    /// Whether superpages in a partition are weighed against its isolation.
    pub const fn weighs(&self) -> bool {
        matches!(self.superpages_in_partition, InPartition::Benefit)
    }

    /// What superpages cost in the partition of `plan`, if they are wanted at that price.
    pub fn costs(&self, plan: &Plan) -> Option<Costs> {
        self.costs_in(&plan.cache, &plan.config.colors)
    }

    /// The same in these colours of a cache.
    pub fn costs_in(&self, cache: &CacheGeometry, colors: &ColorSet) -> Option<Costs> {
        let of = [colors.len(), colors.universe()];
        (self.is_on() && self.weighs())
            .then(|| Costs::new(walk_ns(), cache.level, cache.size_bytes, of))
    }

    /// Begins to look after the members of a partition.
    pub fn start_in(&self, desk: Desk, costs: Option<Costs>, pids: &[i32]) -> Option<Worker> {
        let partition = Partition { desk, costs: costs? };
        let heads = Heads::With(pids.to_vec());
        Some(Worker::start_in(self.settings()?, heads, Vec::new(), Some(partition)))
    }

    /// Says why none are built in the partition of `plan`, if they are wanted.
    pub fn refuse(&self, plan: &Plan, quiet: bool) -> Option<String> {
        let why = (self.is_on() && !self.weighs()).then(|| obstacle(plan))?;
        if !quiet {
            eprintln!("huepage: no superpages are built: {why}");
        }
        Some(why)
    }

    /// Begins to look after some processes and those that descend from them.
    pub fn start(&self, pids: &[i32]) -> Option<Worker> {
        let settings = self.settings()?;
        Some(Worker::start(settings, Heads::With(pids.to_vec()), Vec::new()))
    }
}

/// Nanoseconds of a TLB miss here.
#[allow(clippy::cast_precision_loss, reason = "tens of nanoseconds")]
fn walk_ns() -> f64 {
    TlbShape::read().walk_ns as f64
}

/// The partition of a program that has none: no colour is looked at.
pub fn no_partition(args: &PartitionArgs) -> PartitionArgs {
    let colors_from = Some(ColorsFrom::Declared(None));
    PartitionArgs { colors: Some("all".to_owned()), share: None, colors_from, ..args.clone() }
}

/// Why no superpage is built in a partition: none lies in its colours whole, or those that do are
/// of sizes that no kernel builds on request.
fn obstacle(plan: &Plan) -> String {
    let measured = plan.provenance == Provenance::Probed;
    obstacle_in(index_of(&plan.cache, plan.index.as_ref(), measured).as_ref(), &plan.config.colors)
}

/// The index function by which colours are computed, of a hash file or of a cache; none where they are
/// `measured`.
pub fn index_of(
    cache: &CacheGeometry,
    known: Option<&IndexFunction>,
    measured: bool,
) -> Option<IndexFunction> {
    known.cloned().or_else(|| cache.linear_index().ok().filter(|_| !measured))
}

/// Why no superpage is built in these colours, where nothing is to leave them.
pub fn obstacle_in(index: Option<&IndexFunction>, colors: &ColorSet) -> String {
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
    let sizes = Sizes::new(&ORDERS);
    let orders = sizes.and_then(|sizes| orders_inside(index, colors, &sizes).ok());
    orders.and_then(|orders| orders.last().copied()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed_run as run;

    #[test]
    fn a_policy_for_superpages_stands_in_for_colours() {
        let args = run(&["--superpages", "approx-online"]).unwrap();
        let settings = args.superpages.settings().unwrap();
        assert_eq!(settings.policy, Choice::ApproxOnline);
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

    #[test]
    fn a_benefit_takes_somebody_who_knows_of_misses() {
        let wish = |policy| {
            let options = ["--share", "50%", "--superpages", policy];
            run(&[&options[..], &["--superpages-in-partition", "benefit"]].concat()).unwrap()
        };
        let error = wish("asap").superpages.check().unwrap_err();
        assert_eq!(error.code, ExitCode::Usage);
        assert!(error.message.contains("; choose approx-online"), "{}", error.message);
        assert!(wish("approx-online").superpages.check().is_ok());
        let usual = run(&["--share", "50%", "--superpages", "asap"]).unwrap();
        assert!(usual.superpages.check().is_ok() && !usual.superpages.weighs());
    }

    #[test]
    fn shares_have_their_bounds() {
        assert_eq!(parse_percent("4%"), Ok(0.04));
        assert_eq!(parse_percent("250"), Ok(2.5));
        assert!(parse_percent("-1%").is_err() && parse_percent("x").is_err());
        assert!(parse_cpu("0").is_err() && parse_cpu("101%").is_err());
    }
}
