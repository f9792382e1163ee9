//! From the file to colours: opens the cache, leaves out what partitions of others hold, divides the rest,
//! and says what would be done. Nothing is touched.

use std::path::Path;
use std::time::Duration;

use huepage_color::{CacheGeometry, ColorSet};
use huepage_linux::color::partition_registry::{RegistryEntry, RegistryLock};
use huepage_linux::kernel::machine::Roots;
use huepage_linux::kernel::procfs::ProcRoot;
use huepage_policy::coloris::{AppId, Bounds, Decision, Manager, Reading, Spec};
use serde::Serialize;

use super::config::DaemonConfig;
use super::group::{ColorBounds, ColorScale, GroupConfig, MetricDirection, Portion};
use super::matching::{Claims, MatchedProcess, numbers};
use super::mistake::{ConfigError, bad};
use super::sense::GroupSensors;
use super::state::DaemonState;
use crate::exit::CmdError;
use crate::partition::{self, PartitionArgs, Prepared, internal};
use crate::services::superpages;

/// How long another huepage may hold the registry when a file is read again.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// The cache, and what of it is to be had.
pub struct OpenedCache {
    /// The cache and its colours; those of its configuration are all there are.
    pub prepared: Prepared,
    /// Colours that nobody else holds.
    pub pool: ColorSet,
    /// What tells of miss rates.
    pub senses: GroupSensors,
}

impl OpenedCache {
    /// What shares are of.
    pub fn scale(&self) -> ColorScale<'_> {
        ColorScale { colors: self.pool.universe(), cache: &self.prepared.cache }
    }
}

/// Opens what a file is about.
///
/// # Errors
/// Without root, where there is no such cache, and where nothing tells of its miss rates that should.
pub fn open(config: &DaemonConfig) -> Result<OpenedCache, CmdError> {
    let args = PartitionArgs {
        level: config.daemon.level,
        colors_from: config.daemon.colors_from.clone(),
        colors: Some("all".to_owned()),
        ..PartitionArgs::default()
    };
    partition::check_privileges()?;
    // Before colours are measured, which takes time.
    let senses = GroupSensors::choose(config, &partition::chosen_cache(config.daemon.level)?)?;
    let prepared = partition::prepare(&args)?;
    let pool = free(&prepared, prepared.config.colors.clone())?;
    Ok(OpenedCache { prepared, pool, senses })
}

/// What may be otherwise when a file is read again.
pub struct Reopened {
    /// What tells of miss rates.
    pub senses: GroupSensors,
    /// Colours that nobody else holds.
    pub pool: ColorSet,
    /// Held until ours are announced.
    pub lock: RegistryLock,
}

/// Looks again at what a file is about, in a cache that is open: nothing is measured, and no other huepage is
/// waited for longer than some seconds.
///
/// # Errors
/// When nothing tells of miss rates that should, or another holds the registry.
pub fn look_again(config: &DaemonConfig, opened: &OpenedCache) -> Result<Reopened, CmdError> {
    let prepared = &opened.prepared;
    let senses = GroupSensors::choose(config, &prepared.cache)?;
    let lock = prepared.registry.lock_within(LOCK_LIMIT).map_err(internal)?;
    let pool = free(prepared, ColorSet::all(opened.pool.universe()))?;
    Ok(Reopened { senses, pool, lock })
}

/// Those of all colours that no other partition of the cache holds.
fn free(prepared: &Prepared, all: ColorSet) -> Result<ColorSet, CmdError> {
    let own = std::process::id().cast_signed();
    let cache = (prepared.cache.level, prepared.provenance);
    let same = |e: &&RegistryEntry| (e.level, e.provenance) == cache && e.pid != own;
    let others = prepared.registry.list().map_err(internal)?;
    let universe = all.universe();
    let others = others.iter().filter(same).filter(|e| e.colors.universe() == universe);
    Ok(others.fold(all, |pool, entry| pool.difference(&entry.colors)))
}

/// Who decides, for the groups that have colours of their own; each group's place among them.
pub struct GroupDivision {
    /// Decides.
    pub manager: Manager,
    /// Whose colours a group of the file has.
    pub holders: Vec<AppId>,
}

/// Divides the pool among the groups of a file, as it was before where that is known.
///
/// # Errors
/// When floors and shares do not fit.
pub fn divide(
    config: &DaemonConfig,
    cache: &CacheGeometry,
    pool: &ColorSet,
    before: &DaemonState,
) -> Result<GroupDivision, ConfigError> {
    let universe = pool.universe();
    let sizes = config.fit(&ColorScale { colors: universe, cache }, pool.len())?;
    let own = |group: &&GroupConfig| group.has_colors();
    let names: Vec<&str> = config.groups.iter().filter(own).map(|g| g.name.as_str()).collect();
    let all = config.groups.iter().zip(&sizes).filter(|(group, _)| own(group));
    let specs = all.map(|(group, sizes)| spec(group, *sizes)).collect();
    let held: Vec<Option<ColorSet>> =
        names.iter().map(|name| before.colors(name, universe)).collect();
    let manager = Manager::of_groups(config.policy(universe)?, pool.clone(), specs, &held);
    let manager = manager.ok_or_else(|| config.error("the groups do not fit into the cache"))?;
    let holder = |group: &GroupConfig| {
        let of = if let Portion::With(other) = &group.portion { other } else { &group.name };
        AppId(names.iter().position(|name| name == of).unwrap_or(usize::MAX))
    };
    Ok(GroupDivision { manager, holders: config.groups.iter().map(holder).collect() })
}

impl GroupDivision {
    /// The colours of a group: those of its holder, and all where it has none of its own.
    pub fn colors(&self, holder: AppId, universe: u16) -> ColorSet {
        self.manager.colors(holder).cloned().unwrap_or_else(|| ColorSet::all(universe))
    }
}

fn spec(group: &GroupConfig, sizes: ColorBounds) -> Spec {
    let (bounds, measure) = match &group.portion {
        Portion::MissRate(bounds) => (Some(*bounds.get_ref()), "miss rate"),
        Portion::Metric(metric) if metric.better == MetricDirection::Higher => {
            (Some(Bounds { low: -metric.high, high: -metric.low }), "metric (negative)")
        }
        Portion::Metric(metric) => (Some(Bounds { low: metric.low, high: metric.high }), "metric"),
        _ => (None, "share"),
    };
    Spec {
        name: group.name.clone(),
        floor: sizes.floor,
        ceiling: sizes.ceiling,
        priority: group.priority,
        bounds,
        measure,
    }
}

/// How a group is doing: its reading, none where nobody is there; and its miss rates by the number of colours,
/// where they are foretold.
pub type GroupReading = (AppId, Option<Reading>, Option<Vec<f64>>);

/// Tells how groups are doing, `now` seconds from any start, and asks what changes; not while it is frozen.
pub fn decide(
    manager: &mut Manager,
    readings: Vec<GroupReading>,
    frozen: bool,
    now: f64,
) -> Vec<Decision> {
    for (holder, reading, foretold) in readings {
        manager.observe(holder, reading, now);
        if let Some(rates) = foretold {
            manager.foretell(holder, rates, now);
        }
    }
    if frozen { Vec::new() } else { manager.decide(now) }
}

/// What would be done, for a person or a program.
#[derive(Debug, Serialize)]
pub struct DryRun {
    /// The cache.
    pub level: String,
    /// Its colours.
    pub of: u16,
    /// How they are known.
    pub colors_from: String,
    /// Those that no other partition holds.
    pub free: String,
    /// What the machine has in hardware for this.
    pub resctrl: &'static str,
    /// What would tell of miss rates, and why nothing better.
    pub sensor: String,
    /// The groups.
    pub groups: Vec<DryRunGroup>,
}

/// What would become of a group.
#[derive(Debug, Serialize)]
pub struct DryRunGroup {
    /// Its name.
    pub name: String,
    /// The colours that it would begin with.
    pub colors: String,
    /// When they would change.
    pub rule: String,
    /// What would be done besides, one line each.
    pub notes: Vec<String>,
    /// Processes that would be taken, and why.
    pub processes: Vec<DryRunProcess>,
}

/// What would become of a process.
#[derive(Debug, Serialize)]
pub struct DryRunProcess {
    /// The process.
    pub pid: i32,
    /// Why it is of this group.
    pub why: String,
    /// Why it would be left alone all the same.
    pub obstacle: Option<String>,
}

/// Says what would be done with a file.
///
/// # Errors
/// When it is wrong, or the cache cannot be divided here.
pub fn intent(file: &Path) -> Result<DryRun, CmdError> {
    let config = DaemonConfig::read(file).map_err(bad)?;
    let opened = open(&config)?;
    let before = DaemonState::read(&super::state::path(&config)).unwrap_or_default();
    let division = divide(&config, &opened.prepared.cache, &opened.pool, &before).map_err(bad)?;
    let root = ProcRoot::default();
    let numbers = numbers(&root, &config.groups);
    let found = Claims::new(&root, &config.groups, &numbers).all();
    let entries = opened.prepared.registry.list();
    let entries = entries.map_err(internal)?;
    let intended = |(at, group): (usize, &GroupConfig)| {
        let colors = division.manager.colors(division.holders[at]);
        let own = found.iter().filter(|of| of.group == at);
        DryRunGroup {
            name: group.name.clone(),
            colors: colors.map(ToString::to_string).unwrap_or_default(),
            rule: rule(group, &opened.scale()),
            notes: intended_lines(group, &opened, division.holders[at], &division),
            processes: own.map(|of| taken(&root, of, &entries)).collect(),
        }
    };
    Ok(DryRun {
        level: opened.prepared.cache.level.to_string(),
        of: opened.pool.universe(),
        colors_from: opened.prepared.provenance.to_string(),
        free: opened.pool.to_string(),
        resctrl: resctrl(),
        sensor: opened.senses.to_string(),
        groups: config.groups.iter().enumerate().map(intended).collect(),
    })
}

/// What would be done for a group besides giving it colours, one line each.
fn intended_lines(
    group: &GroupConfig,
    opened: &OpenedCache,
    holder: AppId,
    division: &GroupDivision,
) -> Vec<String> {
    let colors = division.colors(holder, opened.pool.universe());
    let plan = group.plan_in(&colors);
    let why = superpages::refusal(&plan.superpages, &plan.partition, &opened.prepared, &colors);
    let refused = why.map(|why| format!("no superpages are built: {why}"));
    plan.lines().into_iter().chain(refused).collect()
}

fn taken(root: &ProcRoot, of: &MatchedProcess, entries: &[RegistryEntry]) -> DryRunProcess {
    let holder = entries.iter().find(|entry| entry.members.contains(&of.pid));
    let held = holder.map(|entry| format!("supervisor {} has it", entry.pid));
    let unfit =
        || huepage_linux::engine::group::check_suitable(root, of.pid).err().map(|e| e.to_string());
    DryRunProcess { pid: of.pid, why: of.why.clone(), obstacle: held.or_else(unfit) }
}

/// When the colours of a group change, in words.
pub fn rule(group: &GroupConfig, scale: &ColorScale<'_>) -> String {
    let sizes = group.sizes(scale);
    let range = format!("{} to {} colours", sizes.floor, sizes.ceiling);
    match &group.portion {
        Portion::Share(_) => "always".to_owned(),
        Portion::With(other) => format!("those of {other}"),
        Portion::Free => "without a partition".to_owned(),
        Portion::MissRate(bounds) => {
            let bounds = bounds.get_ref();
            format!("{range}, by the miss rate: {} to {}", bounds.low, bounds.high)
        }
        Portion::Metric(m) => {
            let command = || m.command.join(" ");
            let what = m.calls.as_ref().map_or_else(command, |f| format!("calls of {f}"));
            format!("{range}, by {what}: {} to {}", m.low, m.high)
        }
    }
}

/// Whether the machine can divide its last level in hardware, which is left to others.
pub fn resctrl() -> &'static str {
    let roots = Roots::default();
    let cpu = std::fs::read_to_string(roots.proc.0.join("cpuinfo")).unwrap_or_default();
    let able = cpu.split_whitespace().any(|flag| ["cat_l3", "cat_l2"].contains(&flag));
    match (roots.sys.path("fs/resctrl/schemata").exists(), able) {
        (true, _) => "mounted; left to others",
        (false, true) => "the processor has it, not mounted; left alone",
        (false, false) => "none",
    }
}

impl DryRunGroup {
    /// Its colours, if it has any, and when they change.
    fn share(&self) -> String {
        match self.colors.as_str() {
            "" => self.rule.clone(),
            colors => format!("colours {colors}; {}", self.rule),
        }
    }
}

impl DryRun {
    /// For a person.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}, {} colours ({}), of which {} are free; resctrl: {}\nmiss rates by {}\n",
            self.level, self.of, self.colors_from, self.free, self.resctrl, self.sensor
        );
        for group in &self.groups {
            text += &format!("group {}: {}\n", group.name, group.share());
            group.notes.iter().for_each(|line| text += &format!("  {line}\n"));
            for of in &group.processes {
                let fate = match &of.obstacle {
                    None => "would be taken".to_owned(),
                    Some(why) => format!("would be left alone: {why}"),
                };
                text += &format!("  {} by {}: {fate}\n", of.pid, of.why);
            }
            if group.processes.is_empty() {
                text += "  no process matches now\n";
            }
        }
        text + "nothing was changed\n"
    }
}

#[cfg(test)]
mod tests;
