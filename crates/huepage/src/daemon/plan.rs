//! From the file to colours: opens the cache, leaves out what partitions of others hold, divides the rest,
//! and says what would be done. Nothing is touched.

use std::path::Path;
use std::time::Duration;

use huepage_color::{CacheGeometry, ColorSet, IndexFunction, Provenance};
use huepage_linux::engine::{ColorSource, Config as EngineConfig};
use huepage_linux::machine::Roots;
use huepage_linux::procfs::ProcRoot;
use huepage_linux::registry::{Entry, Registry, RegistryLock};
use huepage_policy::qos::{Bounds, Governor, GroupId, Settings, Spec};
use serde::Serialize;

use super::config::{Better, Config, ConfigError, GroupConfig, Portion, Sizes};
use super::matching::{Claims, Match, numbers};
use super::sense::Senses;
use super::state::State;
use crate::args::PartitionArgs;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};

/// How long another huepage may hold the registry when a file is read again.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// The cache, and who decides about it.
pub struct Opened {
    /// The cache that is divided.
    pub cache: CacheGeometry,
    /// How colours are known.
    pub provenance: Provenance,
    /// Where they come from.
    pub source: Box<dyn ColorSource>,
    /// How members are treated; the colours are all.
    pub engine: EngineConfig,
    /// The index function that colours are computed with, if it came from a file.
    pub index: Option<IndexFunction>,
    /// What was asked for, but for the colours.
    pub asked: PartitionArgs,
    /// Where partitions are announced.
    pub registry: Registry,
    /// Held until ours are.
    pub lock: Option<RegistryLock>,
    /// Colours that nobody else holds.
    pub pool: ColorSet,
    /// What tells of miss rates.
    pub senses: Senses,
}

/// Opens what a file is about.
///
/// # Errors
/// Without root, where there is no such cache, and where nothing tells of its miss rates that should.
pub fn open(config: &Config) -> Result<Opened, CmdError> {
    let args = PartitionArgs {
        level: config.daemon.level,
        colors_from: config.daemon.colors_from.clone(),
        colors: Some("all".to_owned()),
        ..PartitionArgs::default()
    };
    partition::check_privileges()?;
    // Before colours are measured, which takes time.
    let senses = Senses::choose(config, &partition::chosen_cache(config.daemon.level)?)?;
    let plan = partition::prepare(&args)?;
    let (cache, provenance) = (plan.cache, plan.provenance);
    let pool = free(&plan.registry, &cache, provenance, plan.config.colors.clone())?;
    Ok(Opened {
        cache,
        provenance,
        source: plan.source,
        engine: plan.config,
        index: plan.index,
        asked: args,
        registry: plan.registry,
        lock: plan.lock,
        pool,
        senses,
    })
}

/// What may be otherwise when a file is read again.
pub struct Again {
    /// What tells of miss rates.
    pub senses: Senses,
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
pub fn look_again(config: &Config, opened: &Opened) -> Result<Again, CmdError> {
    let senses = Senses::choose(config, &opened.cache)?;
    let lock = opened.registry.lock_within(LOCK_LIMIT).map_err(internal)?;
    let all = ColorSet::all(opened.pool.universe());
    let pool = free(&opened.registry, &opened.cache, opened.provenance, all)?;
    Ok(Again { senses, pool, lock })
}

/// Those of all colours that no other partition of the cache holds.
fn free(
    registry: &Registry,
    cache: &CacheGeometry,
    provenance: Provenance,
    all: ColorSet,
) -> Result<ColorSet, CmdError> {
    let own = std::process::id().cast_signed();
    let same = |e: &&Entry| (e.level, e.provenance) == (cache.level, provenance) && e.pid != own;
    let others = registry.list().map_err(internal)?;
    let universe = all.universe();
    let others = others.iter().filter(same).filter(|e| e.colors.universe() == universe);
    Ok(others.fold(all, |pool, entry| pool.difference(&entry.colors)))
}

/// A mistake in the file, as the end of a command.
pub fn bad(error: ConfigError) -> CmdError {
    CmdError::new(ExitCode::BadFile, error)
}

/// Who decides, for the groups that have colours of their own; each group's place among them.
pub struct Division {
    /// Decides.
    pub governor: Governor,
    /// Whose colours a group of the file has.
    pub holders: Vec<GroupId>,
}

/// Divides the pool among the groups of a file, as it was before where that is known.
///
/// # Errors
/// When floors and shares do not fit.
pub fn divide(config: &Config, pool: &ColorSet, before: &State) -> Result<Division, ConfigError> {
    let universe = pool.universe();
    let sizes = config.fit(universe, pool.len())?;
    let own = |group: &&GroupConfig| !matches!(group.portion, Portion::With(_));
    let names: Vec<&str> = config.groups.iter().filter(own).map(|g| g.name.as_str()).collect();
    let all = config.groups.iter().zip(&sizes).filter(|(group, _)| own(group));
    let specs = all.map(|(group, sizes)| spec(group, *sizes)).collect();
    let held: Vec<Option<ColorSet>> =
        names.iter().map(|name| before.colors(name, universe)).collect();
    let settings = settings(config, universe);
    let governor = Governor::new(settings, pool.clone(), specs, &held);
    let governor = governor.ok_or_else(|| config.error("the groups do not fit into the cache"))?;
    let holder = |group: &GroupConfig| {
        let of = if let Portion::With(other) = &group.portion { other } else { &group.name };
        GroupId(names.iter().position(|name| name == of).unwrap_or(usize::MAX))
    };
    Ok(Division { governor, holders: config.groups.iter().map(holder).collect() })
}

fn spec(group: &GroupConfig, sizes: Sizes) -> Spec {
    let (bounds, measure) = match &group.portion {
        Portion::MissRate(bounds) => {
            let bounds = bounds.get_ref();
            (Some((bounds.low, bounds.high)), "miss rate")
        }
        Portion::Metric(metric) if metric.better == Better::Higher => {
            (Some((-metric.high, -metric.low)), "metric (negative)")
        }
        Portion::Metric(metric) => (Some((metric.low, metric.high)), "metric"),
        _ => (None, "share"),
    };
    Spec {
        name: group.name.clone(),
        floor: sizes.floor,
        ceiling: sizes.ceiling,
        priority: group.priority,
        bounds: bounds.map(|(low, high)| Bounds { low, high }),
        measure,
    }
}

fn settings(config: &Config, universe: u16) -> Settings {
    let (usual, daemon) = (Settings::new(universe), &config.daemon);
    let unit = daemon.unit.as_ref().map_or(usual.unit, |unit| *unit.get_ref());
    Settings {
        engine: daemon.engine,
        unit,
        patience: *daemon.patience.get_ref(),
        rest: *daemon.rest.get_ref(),
        cap: (*daemon.recolor_per_second.get_ref(), 2.0 * f64::from(unit)),
        ..usual
    }
}

/// What would be done, for a person or a program.
#[derive(Debug, Serialize)]
pub struct Intent {
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
    pub groups: Vec<Intended>,
}

/// What would become of a group.
#[derive(Debug, Serialize)]
pub struct Intended {
    /// Its name.
    pub name: String,
    /// The colours that it would begin with.
    pub colors: String,
    /// When they would change.
    pub rule: String,
    /// What would be done besides, one line each.
    pub besides: Vec<String>,
    /// Processes that would be taken, and why.
    pub processes: Vec<Taken>,
}

/// What would become of a process.
#[derive(Debug, Serialize)]
pub struct Taken {
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
pub fn intent(file: &Path) -> Result<Intent, CmdError> {
    let config = Config::read(file).map_err(bad)?;
    let opened = open(&config)?;
    let before = State::read(&super::state::path(&config)).unwrap_or_default();
    let division = divide(&config, &opened.pool, &before).map_err(bad)?;
    let root = ProcRoot::default();
    let numbers = numbers(&root, &config.groups);
    let found = Claims::new(&root, &config.groups, &numbers).all();
    let entries = opened.registry.list();
    let entries = entries.map_err(internal)?;
    let intended = |(at, group): (usize, &GroupConfig)| {
        let colors = division.governor.colors(division.holders[at]);
        let own = found.iter().filter(|of| of.group == at);
        Intended {
            name: group.name.clone(),
            colors: colors.map(ToString::to_string).unwrap_or_default(),
            rule: rule(group, opened.pool.universe()),
            besides: super::helpers::intended(group, &opened, colors),
            processes: own.map(|of| taken(&root, of, &entries)).collect(),
        }
    };
    Ok(Intent {
        level: opened.cache.level.to_string(),
        of: opened.pool.universe(),
        colors_from: opened.provenance.to_string(),
        free: opened.pool.to_string(),
        resctrl: resctrl(),
        sensor: opened.senses.to_string(),
        groups: config.groups.iter().enumerate().map(intended).collect(),
    })
}

fn taken(root: &ProcRoot, of: &Match, entries: &[Entry]) -> Taken {
    let holder = entries.iter().find(|entry| entry.members.contains(&of.pid));
    let held = holder.map(|entry| format!("supervisor {} has it", entry.pid));
    let unfit =
        || huepage_linux::engine::group::check_suitable(root, of.pid).err().map(|e| e.to_string());
    Taken { pid: of.pid, why: of.why.clone(), obstacle: held.or_else(unfit) }
}

/// When the colours of a group change, in words.
pub fn rule(group: &GroupConfig, universe: u16) -> String {
    let sizes = group.sizes(universe);
    let range = format!("{} to {} colours", sizes.floor, sizes.ceiling);
    match &group.portion {
        Portion::Share(_) => "always".to_owned(),
        Portion::With(other) => format!("those of {other}"),
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

impl Intent {
    /// For a person.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}, {} colours ({}), of which {} are free; resctrl: {}\nmiss rates by {}\n",
            self.level, self.of, self.colors_from, self.free, self.resctrl, self.sensor
        );
        for group in &self.groups {
            text += &format!("group {}: colours {}; {}\n", group.name, group.colors, group.rule);
            group.besides.iter().for_each(|line| text += &format!("  {line}\n"));
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
