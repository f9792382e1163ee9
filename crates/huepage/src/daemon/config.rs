//! The file that `huepage daemon` is told what to do by: TOML, and every mistake in it named with file,
//! line, column and what was expected. Unknown keys are mistakes. What depends on the machine (do floors
//! fit into its colours?) is checked by [`Config::fit`], with the same places.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use glob::Pattern;
use huepage_color::{CacheLevel, ColorSet};
use huepage_linux::containers::{ContainerError, ContainerId};
use huepage_linux::engine::{Growth, Shrink};
use huepage_linux::pmu::calls::Function;
use huepage_linux::pollute::SensorKind;
use huepage_linux::users::{self, Account};
use huepage_policy::qos::Engine;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use toml::Spanned;

use super::extras::{self, Extras, Part};
use crate::args::{ColorsFrom, Level, parse_colors_from};

/// Processes of a group, at most, unless the file says otherwise.
const MAX_MEMBERS: usize = 256;

/// A mistake, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {what}; see `huepage daemon --help`", .file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// From 1 on.
    pub line: usize,
    /// In characters, from 1 on.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// Some of the colours of a cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// So many.
    Colors(u16),
    /// A share, such as `12.5%`.
    Share(String),
}

impl Amount {
    /// How many that is of `universe`; a share is rounded down, to one at least.
    pub fn of(&self, universe: u16) -> u16 {
        match self {
            Amount::Colors(n) => *n,
            Amount::Share(text) => ColorSet::share(text, universe).map_or(1, |set| set.len()),
        }
    }

    /// The share in percent, if it is one.
    fn percent(&self) -> Option<f64> {
        match self {
            Amount::Colors(_) => None,
            Amount::Share(text) => text.trim().trim_end_matches('%').trim().parse().ok(),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Amount, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Amount;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("a number of colours such as 4, or a share such as \"25%\"")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Amount, E> {
                let fits = u16::try_from(number).ok().filter(|&n| n > 0);
                fits.map(Amount::Colors)
                    .ok_or_else(|| E::custom(format!("{number} colours; expected at least 1")))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
                // Which share is too small depends on the cache; what is none does not.
                let share = text.ends_with('%') && ColorSet::share(text, 1 << 10).is_ok();
                let expected = || {
                    E::custom(format!(
                        "`{text}` is no share; expected for instance \"25%\", at most \"100%\""
                    ))
                };
                share.then(|| Amount::Share(text.to_owned())).ok_or_else(expected)
            }
        }
        from.deserialize_any(Reader)
    }
}

/// Between which values a group is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Below it colours are given away.
    pub low: f64,
    /// Above it colours are asked for.
    pub high: f64,
}

/// Which way a group's own metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// As latencies are.
    Lower,
    /// As progress is.
    Higher,
}

/// A command that says how a group is doing, or a function that its programs call as they get on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The program and its arguments; the last number that it prints counts.
    #[serde(default)]
    pub command: Vec<String>,
    /// In its place a function, as FILE:SYMBOL or FILE:0xOFFSET: how often it is called in a second.
    #[serde(default)]
    pub calls: Option<String>,
    /// The end of the range at which colours can be spared (asked for, where higher is better).
    pub low: f64,
    /// The end of the range at which colours are asked for (can be spared).
    pub high: f64,
    /// Which way it is better.
    pub better: Better,
    /// Seconds between two runs.
    #[serde(default = "metric_every")]
    pub every: f64,
    /// Whether the number counts something up, so that its growth per second is what matters.
    #[serde(default)]
    pub counter: bool,
    /// Whom the command runs as; none: the daemon's user, if that is not root.
    #[serde(skip)]
    pub account: Option<Account>,
}

const fn metric_every() -> f64 {
    10.0
}

/// One word or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(super) enum Words {
    One(String),
    Several(Vec<String>),
}

impl From<Words> for Vec<String> {
    fn from(words: Words) -> Vec<String> {
        match words {
            Words::One(word) => vec![word],
            Words::Several(words) => words,
        }
    }
}

/// One process or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a process number or a list of them")]
enum Pids {
    One(i32),
    Several(Vec<i32>),
}

impl From<Pids> for Vec<i32> {
    fn from(pids: Pids) -> Vec<i32> {
        match pids {
            Pids::One(pid) => vec![pid],
            Pids::Several(pids) => pids,
        }
    }
}

/// A user by name or number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a user or its number")]
enum User {
    Name(String),
    Number(u32),
}

/// One user or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a user by name or number, or a list of them")]
enum Users {
    One(User),
    Several(Vec<User>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    daemon: Settings,
    #[serde(default)]
    group: Vec<Spanned<Raw>>,
}

/// What is to tell of miss rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// Counters where the machine has them, else residency.
    #[default]
    Auto,
    /// Counters of the processor.
    Pmu,
    /// Which lines are in the cache, by timing.
    Residency,
}

/// What tells of miss rates, and why nothing better; empty where it is the best, or was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensing {
    /// What does.
    pub kind: SensorKind,
    /// Why.
    pub because: String,
}

/// What is said of the daemon as a whole.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The cache that is divided.
    pub level: Level,
    /// How colours are known; nothing: as `huepage info` finds.
    #[serde(deserialize_with = "colors_from")]
    pub colors_from: Option<ColorsFrom>,
    /// Who decides about groups with `miss_rate`.
    pub engine: Engine,
    /// What tells of miss rates.
    pub sensor: Spanned<Choice>,
    /// Seconds between decisions.
    pub interval: Spanned<f64>,
    /// Decisions in a row that have to want a change.
    pub patience: Spanned<u32>,
    /// Seconds in which a group that was changed is left alone.
    pub rest: Spanned<f64>,
    /// Colours that may change hands in a second.
    pub recolor_per_second: Spanned<f64>,
    /// Colours that change hands at a time; nothing: an eighth of all.
    pub unit: Option<Spanned<u16>>,
    /// How colours that a group gains are filled.
    pub growth: Filling,
    /// What becomes of pages in colours that a group loses.
    pub shrink: Leaving,
    /// Percent of one CPU that watching a group may take.
    pub cpu: Spanned<f64>,
    /// Seconds between two looks for processes.
    pub look: Spanned<f64>,
    /// Where the state is kept.
    pub state_file: Option<PathBuf>,
    /// Where metrics for Prometheus are written.
    pub metrics_file: Option<PathBuf>,
    /// Decisions that are remembered for `huepage ctl decisions`.
    pub decisions: usize,
    /// Processes in all groups together, at most.
    pub max_members: Spanned<usize>,
    /// Whom commands of metrics run as.
    pub metric_user: Spanned<String>,
}

/// How colours that a group gains are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filling {
    /// With as many pages, evenly chosen, as it takes for all colours to be used alike.
    Even,
    /// COLORIS's Selective Moving.
    Selective,
    /// COLORIS's Redistribution, of pages that were accessed a moment ago.
    Redistribution,
}

impl Filling {
    /// The same for a cache of so many ways.
    pub const fn growth(self, ways: u32) -> Growth {
        match self {
            Filling::Even => Growth::Even,
            Filling::Selective => Growth::Selective { ways },
            Filling::Redistribution => Growth::Redistribution,
        }
    }
}

/// What becomes of pages in colours that a group loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// They move soon.
    Eager,
    /// As in COLORIS they stay until they are touched.
    Lazy,
}

impl Leaving {
    /// The same for the engine.
    pub const fn shrink(self) -> Shrink {
        match self {
            Leaving::Eager => Shrink::Eager,
            Leaving::Lazy => Shrink::Lazy,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        fn plain<T>(value: T) -> Spanned<T> {
            Spanned::new(0..0, value)
        }
        Settings {
            level: Level::L2,
            colors_from: None,
            engine: Engine::Coloris,
            sensor: plain(Choice::Auto),
            interval: plain(3.0),
            patience: plain(2),
            rest: plain(6.0),
            recolor_per_second: plain(1.0),
            unit: None,
            growth: Filling::Even,
            shrink: Leaving::Eager,
            cpu: plain(0.5),
            look: plain(0.5),
            state_file: None,
            metrics_file: None,
            decisions: 1000,
            max_members: plain(1024),
            metric_user: plain("nobody".to_owned()),
        }
    }
}

fn colors_from<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ColorsFrom>, D::Error> {
    parse_colors_from(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// A group as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    name: Spanned<String>,
    command: Option<Spanned<Words>>,
    cgroup: Option<Spanned<String>>,
    container: Option<Spanned<String>>,
    pid: Option<Spanned<Pids>>,
    user: Option<Spanned<Users>>,
    exe: Option<Spanned<Words>>,
    max_members: Option<Spanned<usize>>,
    share: Option<Spanned<Amount>>,
    miss_rate: Option<Spanned<Bounds>>,
    metric: Option<Spanned<Metric>>,
    floor: Option<Spanned<Amount>>,
    ceiling: Option<Spanned<Amount>>,
    priority: Option<Spanned<u8>>,
    shares_with: Option<Spanned<String>>,
    pub(super) superpages: Option<Spanned<String>>,
    pub(super) superpages_in_partition: Option<Spanned<String>>,
    pub(super) memory_overhead: Option<Spanned<String>>,
    pub(super) superpage_cpu: Option<Spanned<String>>,
    pub(super) misses_from: Option<Spanned<String>>,
    pub(super) pollute_buffer: Option<Spanned<Part>>,
    pub(super) pollute_search: Option<Spanned<String>>,
    pub(super) pollute_cpu: Option<Spanned<String>>,
    pub(super) confine: Option<Spanned<Words>>,
    pub(super) page_cache: Option<Spanned<String>>,
    pub(super) page_cache_wait: Option<Spanned<u64>>,
    pub(super) page_cache_include: Option<Spanned<Words>>,
    pub(super) page_cache_exclude: Option<Spanned<Words>>,
    pub(super) page_cache_sizes: Option<Spanned<String>>,
    pub(super) page_cache_threshold: Option<Spanned<u64>>,
}

/// How many colours a group gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Portion {
    /// Always as many.
    Share(Spanned<Amount>),
    /// By the estimated miss rate.
    MissRate(Spanned<Bounds>),
    /// By what a command of its own says.
    Metric(Metric),
    /// Those of another group.
    With(String),
}

/// A group as the file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupConfig {
    /// Its name.
    pub name: String,
    /// Where the name is.
    pub at: Range<usize>,
    /// Processes called so are its own.
    pub commands: Vec<Pattern>,
    /// And those of this control group and those below it.
    pub cgroup: Option<String>,
    /// And those of this container.
    pub container: Option<ContainerId>,
    /// And these.
    pub pids: Vec<i32>,
    /// But for those by number, only processes of these users, if any are named.
    pub users: Vec<Account>,
    /// And only those that execute one of these files, if any are named.
    pub exes: Vec<PathBuf>,
    /// Processes in it, at most.
    pub max_members: usize,
    /// How much it gets.
    pub portion: Portion,
    /// Colours that it keeps, at least.
    pub floor: Option<Spanned<Amount>>,
    /// Colours that it has, at most.
    pub ceiling: Option<Spanned<Amount>>,
    /// Who goes first: more does.
    pub priority: u8,
    /// What else is done for it.
    pub extras: Extras,
}

/// A file that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The daemon as a whole.
    pub daemon: Settings,
    /// Its groups, in the order of the file.
    pub groups: Vec<GroupConfig>,
    text: Text,
}

/// Sizes of a group in colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// At least.
    pub floor: u16,
    /// At most; the same for a static share.
    pub ceiling: u16,
}

/// The text, to say where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    file: PathBuf,
    text: String,
}

impl Text {
    pub(super) fn error(&self, at: usize, what: impl Into<String>) -> ConfigError {
        let before = self.text.get(..at.min(self.text.len())).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let what = what.into().replace('\n', " ");
        ConfigError { file: self.file.clone(), line, column, what }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read (line 1, column 1), and on the first mistake in it.
    pub fn read(file: &Path) -> Result<Config, ConfigError> {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|e| {
            let text = Text { file: file.to_owned(), text: String::new() };
            text.error(0, format!("cannot be read ({e}); expected a file of groups"))
        })?;
        Config::parse(&text, file)
    }

    /// The same of a text; `file` is what errors call it.
    ///
    /// # Errors
    /// On the first mistake.
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let place = Text { file: file.to_owned(), text: text.to_owned() };
        let parsed: Result<File, toml::de::Error> = toml::from_str(text);
        let raw = parsed.map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            place.error(at, plain(e.message()))
        })?;
        check_settings(&raw.daemon, &place)?;
        let mut groups = Vec::new();
        let metric_user = &raw.daemon.metric_user;
        let runner = account(metric_user.get_ref(), metric_user.span().start, &place)?;
        for group in raw.group {
            groups.push(group_of(group, &runner, &place)?);
        }
        if groups.is_empty() {
            return Err(place.error(0, "no group; expected at least one [[group]]"));
        }
        check_groups(&groups, &place)?;
        Ok(Config { daemon: raw.daemon, groups, text: place })
    }

    /// Sizes of all groups for a cache of so many colours of which so many are to be had; those of a group
    /// that has another's colours are the other's.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn fit(&self, universe: u16, free: u16) -> Result<Vec<Sizes>, ConfigError> {
        let mut left = free;
        let mut sizes = Vec::new();
        for group in &self.groups {
            let own = group.sizes(universe);
            if own.floor > own.ceiling {
                let at = group.floor.as_ref().map_or(group.at.start, |floor| floor.span().start);
                let what = format!(
                    "group {} has a floor of {} and a ceiling of {} colours of {universe}; expected floor <= ceiling",
                    group.name, own.floor, own.ceiling
                );
                return Err(self.text.error(at, what));
            }
            group.extras.fit(group, own, &self.text)?;
            if !matches!(group.portion, Portion::With(_)) {
                left = left
                    .checked_sub(own.floor)
                    .ok_or_else(|| self.too_much(group, own, left, free))?;
            }
            sizes.push(own);
        }
        Ok(sizes)
    }

    /// What tells of miss rates in the cache of a level, where there are counters for it or there are none
    /// for a reason.
    ///
    /// # Errors
    /// When it is not what is asked for, or what there is sees another cache.
    pub fn sensing(
        &self,
        level: CacheLevel,
        missing: Option<&str>,
    ) -> Result<Sensing, ConfigError> {
        let asked = &self.daemon.sensor;
        let refuse = |what: String| Err(self.text.error(asked.span().start, what));
        let foretells = self.daemon.engine == Engine::Utility;
        let why = match (asked.get_ref(), missing) {
            (Choice::Pmu, Some(why)) => return refuse(format!("sensor = \"pmu\": {why}")),
            (Choice::Pmu, None) if foretells => {
                return refuse(
                    "sensor = \"pmu\" does not tell of pages, which engine = \"utility\" goes by; \
                     expected \"auto\" or \"residency\""
                        .to_owned(),
                );
            }
            (Choice::Auto | Choice::Pmu, None) if !foretells => {
                return Ok(Sensing { kind: SensorKind::Pmu, because: String::new() });
            }
            (Choice::Auto, Some(why)) => why.to_owned(),
            (Choice::Auto, None) => {
                "engine = \"utility\" goes by what is known of pages".to_owned()
            }
            _ => String::new(),
        };
        self.check_private(level, &why)?;
        Ok(Sensing { kind: SensorKind::Residency, because: why })
    }

    /// Lines are timed on the processor that runs the process: what is found there is in its own cache.
    fn check_private(&self, level: CacheLevel, why: &str) -> Result<(), ConfigError> {
        let rates = |group: &GroupConfig| match &group.portion {
            Portion::MissRate(bounds) => Some((group.name.clone(), bounds.span().start)),
            _ => None,
        };
        let Some((name, at)) = self.groups.iter().find_map(rates).filter(|_| level.0 > 2) else {
            return Ok(());
        };
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let what = format!(
            "group {name} has a miss_rate of the {level}, and the residency sensor sees the L2{why}; \
             expected share or metric, or level = \"l2\""
        );
        Err(self.text.error(at, what))
    }

    /// A mistake of the file as a whole.
    pub fn error(&self, what: &str) -> ConfigError {
        self.text.error(0, what)
    }

    fn too_much(&self, group: &GroupConfig, own: Sizes, left: u16, free: u16) -> ConfigError {
        let at = group.floor.as_ref().map(Spanned::span).unwrap_or_else(|| match &group.portion {
            Portion::Share(share) => share.span(),
            _ => group.at.clone(),
        });
        let what = format!(
            "group {} needs {} colours and {left} of {free} are left; expected smaller floors or shares",
            group.name, own.floor
        );
        self.text.error(at.start, what)
    }
}

impl GroupConfig {
    /// Its sizes in a cache of so many colours.
    pub fn sizes(&self, universe: u16) -> Sizes {
        if let Portion::Share(share) = &self.portion {
            let own = share.get_ref().of(universe);
            return Sizes { floor: own, ceiling: own };
        }
        let of = |amount: &Option<Spanned<Amount>>, otherwise| {
            amount.as_ref().map_or(otherwise, |amount| amount.get_ref().of(universe))
        };
        Sizes { floor: of(&self.floor, 1), ceiling: of(&self.ceiling, universe).min(universe) }
    }

    /// Whether its size changes by itself.
    pub const fn is_dynamic(&self) -> bool {
        matches!(self.portion, Portion::MissRate(_) | Portion::Metric(_))
    }
}

/// A message of the reader without the names of types in it.
fn plain(message: &str) -> String {
    let whole = ["u8", "u16", "u32", "usize", "i32"];
    let word = |word: &str| match word.trim_end_matches(',') {
        "f64" => "a number".to_owned(),
        name if whole.contains(&name) => "a whole number".to_owned(),
        _ => word.to_owned(),
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn check_settings(settings: &Settings, text: &Text) -> Result<(), ConfigError> {
    let positive = |value: &Spanned<f64>, least: f64, most: f64, name: &str| {
        if (least..=most).contains(value.get_ref()) {
            return Ok(());
        }
        let what = format!("{name} = {}; expected {least} to {most}", value.get_ref());
        Err(text.error(value.span().start, what))
    };
    positive(&settings.interval, 0.05, 3600.0, "interval")?;
    positive(&settings.rest, 0.0, 3600.0, "rest")?;
    positive(&settings.recolor_per_second, 0.001, 1000.0, "recolor_per_second")?;
    positive(&settings.cpu, 0.05, 50.0, "cpu")?;
    positive(&settings.look, 0.05, 60.0, "look")?;
    let most = &settings.max_members;
    if *most.get_ref() == 0 {
        return Err(text.error(most.span().start, "max_members = 0; expected at least 1"));
    }
    if *settings.patience.get_ref() == 0 {
        return Err(text.error(settings.patience.span().start, "patience = 0; expected at least 1"));
    }
    match &settings.unit {
        Some(unit) if *unit.get_ref() == 0 => {
            Err(text.error(unit.span().start, "unit = 0; expected at least 1 colour"))
        }
        _ => Ok(()),
    }
}

fn group_of(raw: Spanned<Raw>, runner: &Account, text: &Text) -> Result<GroupConfig, ConfigError> {
    let whole = raw.span().start;
    let raw = raw.into_inner();
    let (name, at) = (raw.name.get_ref().clone(), raw.name.span());
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !first || name.len() > 64 || !name.chars().all(safe) {
        let what = format!(
            "`{name}` is no name; expected up to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
        );
        return Err(text.error(at.start, what));
    }
    let narrowed = raw.user.is_some() || raw.exe.is_some();
    let inside = raw.cgroup.is_some() || raw.container.is_some();
    if raw.command.is_none() && !inside && raw.pid.is_none() && !narrowed {
        let what = format!(
            "group {name} has no processes; expected command, cgroup, container, user, exe or pid"
        );
        return Err(text.error(whole, what));
    }
    let mut portion = portion_of(&raw, &name, whole, text)?;
    if let Portion::Metric(metric) = &mut portion {
        metric.account = Some(runner.clone());
    }
    check_cgroup(raw.cgroup.as_ref(), text)?;
    let limits = [&raw.floor, &raw.ceiling].into_iter().flatten().next();
    if let (Portion::Share(_) | Portion::With(_), Some(limit)) = (&portion, limits) {
        let what = "floor and ceiling are for groups with miss_rate or metric; expected neither";
        return Err(text.error(limit.span().start, what));
    }
    let extras = extras::of(&raw, &portion, text)?;
    Ok(GroupConfig {
        commands: patterns(raw.command, text)?,
        cgroup: raw.cgroup.map(Spanned::into_inner),
        container: container(raw.container, text)?,
        pids: pids(raw.pid, text)?,
        users: users(raw.user, text)?,
        exes: exes(raw.exe, text)?,
        max_members: most(raw.max_members.as_ref(), text)?,
        priority: raw.priority.map_or(1, Spanned::into_inner),
        floor: raw.floor,
        ceiling: raw.ceiling,
        name,
        at,
        portion,
        extras,
    })
}

fn portion_of(raw: &Raw, name: &str, whole: usize, text: &Text) -> Result<Portion, ConfigError> {
    let mut all: Vec<(usize, Portion)> = Vec::new();
    all.extend(raw.share.clone().map(|s| (s.span().start, Portion::Share(s))));
    all.extend(raw.miss_rate.clone().map(|b| (b.span().start, Portion::MissRate(b))));
    all.extend(raw.metric.as_ref().map(|m| (m.span().start, Portion::Metric(m.get_ref().clone()))));
    all.extend(
        raw.shares_with.as_ref().map(|w| (w.span().start, Portion::With(w.get_ref().clone()))),
    );
    let expected = "expected one of share, miss_rate, metric and shares_with";
    if let [_, (at, _), ..] = &all[..] {
        return Err(
            text.error(*at, format!("group {name} is given colours in two ways; {expected}"))
        );
    }
    let Some((at, portion)) = all.pop() else {
        return Err(text.error(whole, format!("group {name} is given no colours; {expected}")));
    };
    match &portion {
        Portion::MissRate(bounds) => {
            let bounds = bounds.get_ref();
            let fine = 0.0 <= bounds.low && bounds.low < bounds.high && bounds.high <= 1.0;
            let what = format!(
                "low = {}, high = {}; expected 0 <= low < high <= 1",
                bounds.low, bounds.high
            );
            if fine { Ok(portion) } else { Err(text.error(at, what)) }
        }
        Portion::Metric(metric) => {
            check_metric(metric).map_err(|what| text.error(at, what)).map(|()| portion)
        }
        _ => Ok(portion),
    }
}

fn check_metric(metric: &Metric) -> Result<(), String> {
    match &metric.calls {
        None if metric.command.is_empty() => {
            let what =
                "no command and no calls; expected a program and its arguments, or FILE:SYMBOL";
            return Err(what.to_owned());
        }
        Some(_) if !metric.command.is_empty() => {
            return Err("both command and calls; expected one of them".to_owned());
        }
        Some(text) => _ = Function::parse(text).map_err(|error| error.to_string())?,
        None => {}
    }
    if !(metric.low.is_finite() && metric.low < metric.high && metric.high.is_finite()) {
        return Err(format!("low = {}, high = {}; expected low < high", metric.low, metric.high));
    }
    if !(0.1..=3600.0).contains(&metric.every) {
        return Err(format!("every = {}; expected 0.1 to 3600 seconds", metric.every));
    }
    Ok(())
}

fn check_cgroup(cgroup: Option<&Spanned<String>>, text: &Text) -> Result<(), ConfigError> {
    match cgroup {
        Some(name) if name.get_ref().trim_matches('/').is_empty() => {
            let what = "the root is the control group of every process; expected one below it";
            Err(text.error(name.span().start, what))
        }
        _ => Ok(()),
    }
}

fn container(id: Option<Spanned<String>>, text: &Text) -> Result<Option<ContainerId>, ConfigError> {
    let parse = |id: Spanned<String>| {
        id.get_ref().parse().map_err(|e| text.error(id.span().start, ContainerError::to_string(&e)))
    };
    id.map(parse).transpose()
}

fn patterns(words: Option<Spanned<Words>>, text: &Text) -> Result<Vec<Pattern>, ConfigError> {
    let Some(words) = words else { return Ok(Vec::new()) };
    let at = words.span().start;
    let all: Vec<String> = words.into_inner().into();
    let pattern = |word: &String| {
        if word.is_empty() || word.contains('/') {
            let what = format!(
                "`{word}` is no name of a command; expected it without directories, for instance \"postgres*\""
            );
            return Err(text.error(at, what));
        }
        Pattern::new(word).map_err(|e| {
            text.error(
                at,
                format!("`{word}` is no pattern ({}); expected a name with * ? [a-z]", e.msg),
            )
        })
    };
    all.iter().map(pattern).collect()
}

fn pids(pids: Option<Spanned<Pids>>, text: &Text) -> Result<Vec<i32>, ConfigError> {
    let Some(pids) = pids else { return Ok(Vec::new()) };
    let at = pids.span().start;
    let all: Vec<i32> = pids.into_inner().into();
    match all.iter().find(|&&pid| pid <= 0) {
        Some(pid) => {
            Err(text.error(at, format!("{pid} is no process; expected a positive number")))
        }
        None => Ok(all),
    }
}

/// The account of a user that is named at a place.
fn account(name: &str, at: usize, text: &Text) -> Result<Account, ConfigError> {
    users::find(name).map_err(|error| text.error(at, error.to_string()))
}

fn users(users: Option<Spanned<Users>>, text: &Text) -> Result<Vec<Account>, ConfigError> {
    let Some(users) = users else { return Ok(Vec::new()) };
    let at = users.span().start;
    let all = match users.into_inner() {
        Users::One(user) => vec![user],
        Users::Several(users) => users,
    };
    if all.is_empty() {
        return Err(text.error(at, "no user; expected at least one"));
    }
    let found = |user: &User| match user {
        User::Name(name) => account(name, at, text),
        User::Number(uid) => account(&uid.to_string(), at, text),
    };
    all.iter().map(found).collect()
}

fn exes(words: Option<Spanned<Words>>, text: &Text) -> Result<Vec<PathBuf>, ConfigError> {
    let Some(words) = words else { return Ok(Vec::new()) };
    let at = words.span().start;
    let all: Vec<String> = words.into_inner().into();
    match all.iter().find(|path| !path.starts_with('/')) {
        Some(path) => {
            let what = format!("`{path}` is no path of a program; expected it from the root on");
            Err(text.error(at, what))
        }
        None if all.is_empty() => Err(text.error(at, "no program; expected at least one")),
        None => Ok(all.into_iter().map(PathBuf::from).collect()),
    }
}

fn most(most: Option<&Spanned<usize>>, text: &Text) -> Result<usize, ConfigError> {
    match most {
        Some(most) if *most.get_ref() == 0 => {
            Err(text.error(most.span().start, "max_members = 0; expected at least 1"))
        }
        most => Ok(most.map_or(MAX_MEMBERS, |most| *most.get_ref())),
    }
}

/// What groups must not have in common.
fn check_groups(groups: &[GroupConfig], text: &Text) -> Result<(), ConfigError> {
    let mut claims: HashMap<String, &str> = HashMap::new();
    let mut percent = 0.0;
    for group in groups {
        for claim in claims_of(group) {
            if let Some(other) = claims.insert(claim.clone(), &group.name) {
                let name = &group.name;
                let what =
                    format!("groups {other} and {name} both claim {claim}; expected each once");
                return Err(text.error(group.at.start, what));
            }
        }
        check_portion(group, groups, &mut percent, text)?;
    }
    Ok(())
}

/// What only one group may have, for a person.
fn claims_of(group: &GroupConfig) -> impl Iterator<Item = String> {
    // What is narrowed down by users or programs may be claimed again.
    let whole = group.users.is_empty() && group.exes.is_empty();
    let cgroup = group.cgroup.iter().filter(move |_| whole);
    let cgroup = cgroup.map(|name| format!("the control group {}", name.trim_matches('/')));
    let container = group.container.iter().filter(move |_| whole);
    let container = container.map(|id| format!("the container {id}"));
    let own = std::iter::once(format!("the name {}", group.name)).chain(cgroup).chain(container);
    let commands = group.commands.iter().map(|c| format!("the command {c}"));
    // A command may be narrowed down by a control group, but not twice in the same way.
    let inside = group.cgroup.is_some() || group.container.is_some();
    let commands = commands.filter(move |_| whole && !inside);
    own.chain(commands).chain(group.pids.iter().map(|pid| format!("process {pid}")))
}

/// `percent`: what the groups before have, and this one afterwards.
fn check_portion(
    group: &GroupConfig,
    groups: &[GroupConfig],
    percent: &mut f64,
    text: &Text,
) -> Result<(), ConfigError> {
    if let Portion::Share(share) = &group.portion {
        *percent += share.get_ref().percent().unwrap_or(0.0);
        if *percent > 100.0 {
            let what = format!("shares come to {percent} %; expected at most 100 %");
            return Err(text.error(share.span().start, what));
        }
    }
    if let Portion::With(other) = &group.portion {
        let there = groups.iter().find(|g| &g.name == other);
        if there.is_none_or(|g| matches!(g.portion, Portion::With(_))) {
            let name = &group.name;
            let what = format!(
                "group {name} cannot have the colours of {other}; expected a group that has its own"
            );
            return Err(text.error(group.at.start, what));
        }
        if let Some(extras) = there.map(|of| &of.extras).filter(|of| of.buffer.is_some()) {
            let what = format!(
                "group {} has the colours of {other}, and would use its pollute buffer; expected no shares_with, or no pollute_buffer",
                group.name
            );
            return Err(text.error(extras.at_buffer, what));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
