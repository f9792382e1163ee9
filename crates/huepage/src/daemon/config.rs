//! The file that `huepage daemon` is told what to do by: TOML, and every mistake in it named with file,
//! line, column and what was expected. Unknown keys are mistakes. What depends on the machine (do floors
//! fit into its colours?) is checked by [`DaemonConfig::fit`], with the same places.

use std::path::{Path, PathBuf};

use huepage_color::CacheLevel;
use huepage_linux::engine::{GrowthMode, Shrink};
use huepage_linux::services::pollute::SensorKind;
use huepage_policy::coloris::{self, By};
use huepage_policy::conflict::CacheShape;
use huepage_policy::registry::{self, Family, Host};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IntoDeserializer as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::group::{self, ColorBounds, ColorScale, GroupConfig, Portion};
use super::mistake::{ConfigError, SourceText};
use crate::partition::{ColorsFrom, Level, parse_colors_from};

/// All of the file but its groups.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    daemon: Settings,
    /// Read before.
    #[serde(default, rename = "group")]
    _group: Option<()>,
}

/// What is to tell of miss rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SensorChoice {
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
pub struct ChosenSensor {
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
    #[serde(alias = "colors-from", deserialize_with = "colors_from")]
    pub colors_from: Option<ColorsFrom>,
    /// Who decides about groups with `miss_rate`, with keys of its own; those of this table that it has as well
    /// hold where it does not say otherwise.
    #[serde(deserialize_with = "engine")]
    pub engine: registry::Settings,
    /// What tells of miss rates.
    pub sensor: Spanned<SensorChoice>,
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
    pub growth: GrowthChoice,
    /// What becomes of pages in colours that a group loses.
    pub shrink: ShrinkChoice,
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
pub enum GrowthChoice {
    /// With as many pages, evenly chosen, as it takes for all colours to be used alike.
    Even,
    /// COLORIS's Selective Moving.
    Selective,
    /// COLORIS's Redistribution, of pages that were accessed a moment ago.
    Redistribution,
}

impl GrowthChoice {
    /// The same for a cache of so many ways.
    pub const fn growth(self, ways: u32) -> GrowthMode {
        match self {
            GrowthChoice::Even => GrowthMode::Even,
            GrowthChoice::Selective => GrowthMode::Selective { ways },
            GrowthChoice::Redistribution => GrowthMode::Redistribution,
        }
    }
}

/// What becomes of pages in colours that a group loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShrinkChoice {
    /// They move soon.
    Eager,
    /// As in COLORIS they stay until they are touched.
    Lazy,
}

impl ShrinkChoice {
    /// The same for the engine.
    pub const fn shrink(self) -> Shrink {
        match self {
            ShrinkChoice::Eager => Shrink::Eager,
            ShrinkChoice::Lazy => Shrink::Lazy,
        }
    }
}

/// Keys of the policy that groups or other keys of the file say, or that are of the simulator.
const SAID_ELSEWHERE: [&str; 10] = [
    "low",
    "high",
    "bound",
    "floor",
    "least-requests",
    "enough",
    "surprise",
    "period",
    "growth",
    "window",
];

/// A policy that divides the cache, by its name and keys as in `huepage sim --policy`.
fn engine<'de, D: Deserializer<'de>>(from: D) -> Result<registry::Settings, D::Error> {
    let text = String::deserialize(from)?;
    let policy = match registry::Settings::parse(&text) {
        Ok(policy) if policy.entry().family == Family::Division => policy,
        Err(error) if !matches!(error, registry::Error::Unknown { .. }) => {
            return Err(D::Error::custom(error));
        }
        _ => {
            let what = format!("no engine `{text}`; expected `coloris` or `utility`");
            return Err(D::Error::custom(what));
        }
    };
    if let Some(key) = SAID_ELSEWHERE.iter().find(|key| policy.is_given(key)) {
        let what = format!("`{key}` does nothing here; expected it of a group, or not at all");
        return Err(D::Error::custom(what));
    }
    if policy.is_given("sections") && policy.word("shared") != Some("on") {
        return Err(D::Error::custom("groups share sections; expected shared=on as well"));
    }
    Ok(policy)
}

impl Default for Settings {
    fn default() -> Settings {
        fn plain<T>(value: T) -> Spanned<T> {
            Spanned::new(0..0, value)
        }
        Settings {
            level: Level::L2,
            colors_from: None,
            engine: registry::Settings::usual(),
            sensor: plain(SensorChoice::Auto),
            interval: plain(3.0),
            patience: plain(2),
            rest: plain(6.0),
            recolor_per_second: plain(1.0),
            unit: None,
            growth: GrowthChoice::Even,
            shrink: ShrinkChoice::Eager,
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

/// A file that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    /// The daemon as a whole.
    pub daemon: Settings,
    /// Its groups, in the order of the file.
    pub groups: Vec<GroupConfig>,
    text: SourceText,
}

impl DaemonConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read (line 1, column 1), and on the first mistake in it.
    pub fn read(file: &Path) -> Result<DaemonConfig, ConfigError> {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|e| {
            let text = SourceText::new(file, "");
            text.error(0, format!("cannot be read ({e}); expected a file of groups"))
        })?;
        DaemonConfig::parse(&text, file)
    }

    /// The same of a text; `file` is what errors call it.
    ///
    /// # Errors
    /// On the first mistake.
    pub fn parse(text: &str, file: &Path) -> Result<DaemonConfig, ConfigError> {
        let place = SourceText::new(file, text);
        let unread = |error: toml::de::Error| place.unread(&error);
        let mut table = DeTable::parse(text).map_err(unread)?;
        let tables = table.get_mut().remove("group");
        let File { daemon, .. } = File::deserialize(table.into_deserializer()).map_err(unread)?;
        check_settings(&daemon, &place)?;
        let metric_user = &daemon.metric_user;
        let runner = group::account(metric_user.get_ref(), metric_user.span().start, &place)?;
        let at = tables.as_ref().map_or(0, |tables| tables.span().start);
        let Some(DeValue::Array(tables)) = tables.map(Spanned::into_inner) else {
            return Err(place.error(at, "no group; expected at least one [[group]]"));
        };
        let shares = daemon.engine.word("shared") == Some("on");
        let cache = (daemon.level, &daemon.colors_from, shares);
        let read = |table| group::read(table, cache, &runner, &place);
        let groups = tables.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if groups.is_empty() {
            return Err(place.error(0, "no group; expected at least one [[group]]"));
        }
        group::check_groups(&groups, &place)?;
        Ok(DaemonConfig { daemon, groups, text: place })
    }

    /// Sizes of all groups for a cache of so many colours of which so many are to be had; those of a group
    /// that has another's colours are the other's.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn fit(&self, scale: &ColorScale<'_>, free: u16) -> Result<Vec<ColorBounds>, ConfigError> {
        let mut left = free;
        let mut sizes = Vec::new();
        for group in &self.groups {
            let own = group.sizes(scale);
            if own.floor > own.ceiling {
                let at = group.floor.as_ref().map_or(group.at.start, |floor| floor.span().start);
                let what = format!(
                    "group {} has a floor of {} and a ceiling of {} colours of {}; expected floor <= ceiling",
                    group.name, own.floor, own.ceiling, scale.colors
                );
                return Err(self.text.error(at, what));
            }
            group.fit(own, &self.text)?;
            // Who may share takes nothing away.
            let shares = group.is_dynamic() && self.daemon.engine.is_given("sections");
            if group.has_colors() && !shares {
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
    ) -> Result<ChosenSensor, ConfigError> {
        let asked = &self.daemon.sensor;
        let refuse = |what: String| Err(self.text.error(asked.span().start, what));
        let foretells = self.daemon.engine.word("by") == Some(By::Utility.word());
        let why = match (asked.get_ref(), missing) {
            (SensorChoice::Pmu, Some(why)) => return refuse(format!("sensor = \"pmu\": {why}")),
            (SensorChoice::Pmu, None) if foretells => {
                return refuse(
                    "sensor = \"pmu\" does not tell of pages, which engine = \"utility\" goes by; \
                     expected \"auto\" or \"residency\""
                        .to_owned(),
                );
            }
            (SensorChoice::Auto | SensorChoice::Pmu, None) if !foretells => {
                return Ok(ChosenSensor { kind: SensorKind::Pmu, because: String::new() });
            }
            (SensorChoice::Auto, Some(why)) => why.to_owned(),
            (SensorChoice::Auto, None) => {
                "engine = \"utility\" goes by what is known of pages".to_owned()
            }
            _ => String::new(),
        };
        self.check_private(level, &why)?;
        Ok(ChosenSensor { kind: SensorKind::Residency, because: why })
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

    /// Who decides, in a cache of so many colours.
    ///
    /// # Errors
    /// When there is nothing to divide.
    pub fn policy(&self, universe: u16) -> Result<coloris::Settings, ConfigError> {
        let (daemon, engine) = (&self.daemon, &self.daemon.engine);
        let cache = Some(CacheShape { colors: universe, ways: 1, lines_per_page: 64 });
        let usual = engine.coloris(&Host { cache, live: true, ..Host::default() });
        let usual = usual.map_err(|e| self.error(&e.to_string()))?;
        let given = |key| engine.is_given(key);
        let unit = daemon.unit.as_ref().filter(|_| !given("unit")).map(|unit| *unit.get_ref());
        let per_second = *daemon.recolor_per_second.get_ref();
        Ok(coloris::Settings {
            unit: unit.unwrap_or(usual.unit),
            patience: if given("patience") { usual.patience } else { *daemon.patience.get_ref() },
            rest: if given("rest") { usual.rest } else { *daemon.rest.get_ref() },
            per_second: if given("per-second") { usual.per_second } else { per_second },
            ..usual
        })
    }

    /// A mistake of the file as a whole.
    pub fn error(&self, what: &str) -> ConfigError {
        self.text.error(0, what)
    }

    fn too_much(&self, group: &GroupConfig, own: ColorBounds, left: u16, free: u16) -> ConfigError {
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

fn check_settings(settings: &Settings, text: &SourceText) -> Result<(), ConfigError> {
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

#[cfg(test)]
mod tests;
