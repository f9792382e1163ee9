//! A table `[[group]]` of the daemon's file: which processes it is about, how it gets its colours, and what is
//! done for it, which are the options of `huepage attach` as keys (see `crate::plan::keys`). Every mistake has
//! its place.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use glob::Pattern;
use huepage_color::{CacheGeometry, ColorSet};
use huepage_linux::kernel::containers::{ContainerError, ContainerId};
use huepage_linux::kernel::pmu::calls::Function;
use huepage_linux::kernel::users;
use huepage_linux::kernel::users::Account;
use huepage_policy::coloris::Bounds;
use serde::Deserialize;
use serde::de::{Deserializer, IntoDeserializer as _, Visitor};
use toml::Spanned;
use toml::de::DeValue;

use super::mistake::{ConfigError, SourceText};
use crate::partition::{CacheShare, ColorsFrom, Level};
use crate::plan::Plan;
use crate::plan::combine::Feature;
use crate::plan::keys::{self, Keys, Misread};
use crate::services::pollute::CachePart;

/// Processes of a group, at most, unless the file says otherwise.
pub(super) const MAX_MEMBERS: usize = 256;

/// Some of the colours of a cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// So many.
    Colors(u16),
    /// A share, such as `12.5%` or `512K`.
    Share(CacheShare),
}

impl Amount {
    /// How many that is in a cache; a share is rounded down, to one at least.
    pub fn of(&self, scale: &ColorScale<'_>) -> u16 {
        match self {
            Amount::Colors(n) => *n,
            Amount::Share(share) => {
                share.colors(scale.colors, scale.cache).map_or(1, |set| set.len())
            }
        }
    }

    /// The share in percent, if it is one.
    fn percent(&self) -> Option<f64> {
        match self {
            Amount::Colors(_) => None,
            Amount::Share(share) => share.percent(),
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
                let whole = text.ends_with(|last: char| last == '%' || last.is_ascii_alphabetic());
                let share =
                    CacheShare::parse(text).ok().filter(|share| whole && share.level.is_none());
                let expected = || {
                    E::custom(format!(
                        "`{text}` is no share; expected for instance \"25%\" or \"512K\", at most \"100%\""
                    ))
                };
                share.map(Amount::Share).ok_or_else(expected)
            }
        }
        from.deserialize_any(Reader)
    }
}

/// Which way a group's own metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricDirection {
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
    pub better: MetricDirection,
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
enum Words {
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

/// A group as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
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
    /// None: something else is done for it.
    Free,
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
    /// What is done for it, but for its colours, which change.
    pub plan: Plan,
    /// Where that is said.
    keys: Keys,
}

/// What shares are of: a cache, and how many colours it has.
#[derive(Clone, Copy, Debug)]
pub struct ColorScale<'a> {
    /// Its colours.
    pub colors: u16,
    /// The cache.
    pub cache: &'a CacheGeometry,
}

/// Sizes of a group in colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColorBounds {
    /// At least.
    pub floor: u16,
    /// At most; the same for a static share.
    pub ceiling: u16,
}

impl GroupConfig {
    /// Its sizes in a cache.
    pub fn sizes(&self, scale: &ColorScale<'_>) -> ColorBounds {
        let universe = scale.colors;
        if let Portion::Share(share) = &self.portion {
            let own = share.get_ref().of(scale);
            return ColorBounds { floor: own, ceiling: own };
        }
        if let (Portion::Free, Some(part)) = (&self.portion, self.plan.pollute.part()) {
            let own = part.count(universe).unwrap_or(1);
            return ColorBounds { floor: own, ceiling: own };
        }
        let of = |amount: &Option<Spanned<Amount>>, otherwise| {
            amount.as_ref().map_or(otherwise, |amount| amount.get_ref().of(scale))
        };
        ColorBounds {
            floor: of(&self.floor, 1),
            ceiling: of(&self.ceiling, universe).min(universe),
        }
    }

    /// Whether it has colours of its own.
    pub fn has_colors(&self) -> bool {
        match self.portion {
            Portion::With(_) => false,
            Portion::Free => self.plan.pollute.is_on(),
            _ => true,
        }
    }

    /// Whether all memory of its processes lies in its colours.
    pub const fn confines(&self) -> bool {
        !matches!(self.portion, Portion::Free)
    }

    /// What is done for it when it has these colours.
    pub fn plan_in(&self, colors: &ColorSet) -> Plan {
        let mut plan = self.plan.clone();
        plan.partition.colors = self.confines().then(|| colors.to_string());
        plan
    }

    /// Refuses what the machine or the sizes of the group do not allow.
    pub(super) fn fit(&self, own: ColorBounds, text: &SourceText) -> Result<(), ConfigError> {
        let place = |names: &[&str]| names.iter().find_map(|name| self.keys.place(name));
        let part = self.plan.pollute.part().filter(|_| self.confines());
        let takes = part.as_ref().and_then(|part| part.count(own.floor)).unwrap_or(0);
        if part.is_some() && takes >= own.floor {
            let what = format!(
                "the buffer takes {takes} of the {} colours that group {} has at least; expected a smaller part, or a \
                 floor or share of {} colours",
                own.floor,
                self.name,
                takes + 1
            );
            return Err(text.error(place(&["pollute_buffer"]).unwrap_or(self.at.start), what));
        }
        let at = place(&["misses_from", "superpages"]).unwrap_or(self.at.start);
        let lacking = self.plan.superpages.lacking();
        lacking.map_or(Ok(()), |why| Err(text.error(at, why)))
    }

    /// Whether its size changes by itself.
    pub const fn is_dynamic(&self) -> bool {
        matches!(self.portion, Portion::MissRate(_) | Portion::Metric(_))
    }
}

/// The options of a plan that are the daemon's to decide, or of all groups together.
pub(super) const NOT_OF_GROUPS: [&str; 6] =
    ["level", "colors", "share", "colors_from", "fallback", "storm"];

/// Reads a table of the file. `shares`: groups may have colours in common.
pub(super) fn read(
    table: Spanned<DeValue<'_>>,
    (level, colors_from, shares): (Level, &Option<ColorsFrom>, bool),
    runner: &Account,
    text: &SourceText,
) -> Result<GroupConfig, ConfigError> {
    let span = table.span();
    let DeValue::Table(mut table) = table.into_inner() else {
        return Err(text.error(span.start, "expected a table [[group]]"));
    };
    let misread = |e: Misread| text.error(e.at, e.what);
    let keys = keys::take(&mut table, &NOT_OF_GROUPS).map_err(misread)?;
    let raw = GroupTable::deserialize(Spanned::new(span.clone(), table).into_deserializer());
    let raw = raw.map_err(|error| text.unread(&error))?;
    let mut plan = keys.plan().map_err(misread)?;
    plan.partition.level = level;
    plan.partition.colors_from.clone_from(colors_from);
    let group = group_of(raw, plan, keys, (span.start, runner), text)?;
    group.check_plan((span.start, shares), text)?;
    Ok(group)
}

fn check_name(name: &Spanned<String>, text: &SourceText) -> Result<(), ConfigError> {
    let (name, at) = (name.get_ref(), name.span().start);
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if first && name.len() <= 64 && name.chars().all(safe) {
        return Ok(());
    }
    let what = format!(
        "`{name}` is no name; expected up to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
    );
    Err(text.error(at, what))
}

fn group_of(
    raw: GroupTable,
    plan: Plan,
    keys: Keys,
    (whole, runner): (usize, &Account),
    text: &SourceText,
) -> Result<GroupConfig, ConfigError> {
    check_name(&raw.name, text)?;
    let (name, at) = (raw.name.get_ref().clone(), raw.name.span());
    if !raw.names_processes() {
        let what = format!(
            "group {name} has no processes; expected command, cgroup, container, user, exe or pid"
        );
        return Err(text.error(whole, what));
    }
    let mut portion = portion_of(&raw, &name, (whole, plan.does_something()), text)?;
    if let Portion::Metric(metric) = &mut portion {
        metric.account = Some(runner.clone());
    }
    check_cgroup(raw.cgroup.as_ref(), text)?;
    raw.check_limits(&portion, text)?;
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
        plan,
        keys,
    })
}

impl GroupTable {
    fn names_processes(&self) -> bool {
        let narrowed = self.user.is_some() || self.exe.is_some();
        let inside = self.cgroup.is_some() || self.container.is_some();
        self.command.is_some() || inside || self.pid.is_some() || narrowed
    }

    /// Refuses limits of a share that does not change.
    fn check_limits(&self, portion: &Portion, text: &SourceText) -> Result<(), ConfigError> {
        let is_managed = matches!(portion, Portion::MissRate(_) | Portion::Metric(_));
        match [&self.floor, &self.ceiling].into_iter().flatten().next() {
            Some(limit) if !is_managed => {
                let what =
                    "floor and ceiling are for groups with miss_rate or metric; expected neither";
                Err(text.error(limit.span().start, what))
            }
            _ => Ok(()),
        }
    }
}

impl GroupConfig {
    /// Refuses what cannot be combined, and what the daemon decides.
    fn check_plan(
        &self,
        (whole, shares): (usize, bool),
        text: &SourceText,
    ) -> Result<(), ConfigError> {
        let colors: &[Feature] = match self.portion {
            Portion::Free => &[],
            Portion::Share(_) => &[Feature::Partition],
            Portion::With(_) => &[Feature::Partition, Feature::SharedColors],
            _ if shares => &[Feature::Partition, Feature::Resizing, Feature::SharedColors],
            Portion::MissRate(_) | Portion::Metric(_) => &[Feature::Partition, Feature::Resizing],
        };
        let misread = |e: Misread| text.error(e.at, e.what);
        self.keys.check(&self.plan, colors, whole).map_err(misread)?;
        let place = |name: &str| self.keys.place(name).unwrap_or(whole);
        if let Some(CachePart::Colors(named)) = self.plan.pollute.part() {
            let what = format!(
                "`{named}` is no part of the group's colours, of which the daemon decides which they are; \
                 expected for instance \"1/16\", \"6.25%\" or 1"
            );
            return Err(text.error(place("pollute_buffer"), what));
        }
        self.plan.pollute.check().map_err(|e| text.error(place("pollute_progress"), e.message))?;
        let files = self.plan.page_cache.check();
        files.map_err(|e| text.error(place("page_cache_threshold"), e.message))?;
        let at = self.keys.place("page_cache_include").or(self.keys.place("page_cache_exclude"));
        let resolved = self.plan.page_cache.resolved();
        resolved.map(drop).map_err(|error| {
            let what = format!("{}; expected directories that are there", error.message);
            text.error(at.unwrap_or(whole), what)
        })
    }
}

/// How a group gets its colours; it needs none where something else is done for it.
fn portion_of(
    raw: &GroupTable,
    name: &str,
    (whole, free): (usize, bool),
    text: &SourceText,
) -> Result<Portion, ConfigError> {
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
        if free {
            return Ok(Portion::Free);
        }
        return Err(text.error(whole, format!("group {name} is given no colours; {expected}")));
    };
    check_feedback(&portion).map_err(|what| text.error(at, what)).map(|()| portion)
}

/// Bounds of a miss rate, and what a metric says of itself.
fn check_feedback(portion: &Portion) -> Result<(), String> {
    match portion {
        Portion::MissRate(bounds) => {
            let Bounds { low, high } = bounds.get_ref();
            let fine = 0.0 <= *low && low < high && *high <= 1.0;
            let what = || format!("low = {low}, high = {high}; expected 0 <= low < high <= 1");
            if fine { Ok(()) } else { Err(what()) }
        }
        Portion::Metric(metric) => check_metric(metric),
        _ => Ok(()),
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

fn check_cgroup(cgroup: Option<&Spanned<String>>, text: &SourceText) -> Result<(), ConfigError> {
    match cgroup {
        Some(name) if name.get_ref().trim_matches('/').is_empty() => {
            let what = "the root is the control group of every process; expected one below it";
            Err(text.error(name.span().start, what))
        }
        _ => Ok(()),
    }
}

fn container(
    id: Option<Spanned<String>>,
    text: &SourceText,
) -> Result<Option<ContainerId>, ConfigError> {
    let parse = |id: Spanned<String>| {
        id.get_ref().parse().map_err(|e| text.error(id.span().start, ContainerError::to_string(&e)))
    };
    id.map(parse).transpose()
}

fn patterns(words: Option<Spanned<Words>>, text: &SourceText) -> Result<Vec<Pattern>, ConfigError> {
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

fn pids(pids: Option<Spanned<Pids>>, text: &SourceText) -> Result<Vec<i32>, ConfigError> {
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
pub(super) fn account(name: &str, at: usize, text: &SourceText) -> Result<Account, ConfigError> {
    users::find(name).map_err(|error| text.error(at, error.to_string()))
}

fn users(users: Option<Spanned<Users>>, text: &SourceText) -> Result<Vec<Account>, ConfigError> {
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

fn exes(words: Option<Spanned<Words>>, text: &SourceText) -> Result<Vec<PathBuf>, ConfigError> {
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

fn most(most: Option<&Spanned<usize>>, text: &SourceText) -> Result<usize, ConfigError> {
    match most {
        Some(most) if *most.get_ref() == 0 => {
            Err(text.error(most.span().start, "max_members = 0; expected at least 1"))
        }
        most => Ok(most.map_or(MAX_MEMBERS, |most| *most.get_ref())),
    }
}

/// What groups must not have in common.
pub(super) fn check_groups(groups: &[GroupConfig], text: &SourceText) -> Result<(), ConfigError> {
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
    text: &SourceText,
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
        if there.is_none_or(|g| !g.has_colors()) {
            let name = &group.name;
            let what = format!(
                "group {name} cannot have the colours of {other}; expected a group that has its own"
            );
            return Err(text.error(group.at.start, what));
        }
        if let Some(at) = there.and_then(|of| of.keys.place("pollute_buffer")) {
            let what = format!(
                "group {} has the colours of {other}, and would use its pollute buffer; expected no shares_with, or no pollute_buffer",
                group.name
            );
            return Err(text.error(at, what));
        }
    }
    Ok(())
}
