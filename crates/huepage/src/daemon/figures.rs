//! Figures of the daemon's groups: each is defined once, with its name, unit and description, and comes from
//! there into the JSON of `huepage ctl groups`, its text, and what Prometheus reads.

use serde::{Deserialize, Serialize};

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// Things: colours, processes, pages, files.
    Count,
    /// A rate from 0 to 1, or whatever a metric says.
    Ratio,
    /// Things in a second.
    PerSecond,
    /// Seconds.
    Seconds,
}

/// What is known of a figure but its value.
#[derive(Clone, Copy, Debug)]
pub struct DaemonFigure {
    /// In JSON.
    pub name: &'static str,
    /// For Prometheus.
    pub metric: &'static str,
    /// How it changes.
    pub kind: FigureKind,
    /// What it counts.
    pub unit: FigureUnit,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// Its value, if the group has one.
    pub value: fn(&GroupFigures) -> Option<f64>,
}

/// A value that can be a figure.
trait Number {
    fn number(self) -> Option<f64>;
}

impl Number for u16 {
    fn number(self) -> Option<f64> {
        Some(f64::from(self))
    }
}

impl Number for u64 {
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn number(self) -> Option<f64> {
        Some(self as f64)
    }
}

impl Number for f64 {
    fn number(self) -> Option<f64> {
        Some(self)
    }
}

impl<T: Number> Number for Option<T> {
    fn number(self) -> Option<f64> {
        self.and_then(T::number)
    }
}

macro_rules! figures {
    ($($field:ident: $type:ty = $metric:literal, $kind:ident, $unit:ident, $help:literal;)*) => {
        /// The figures of a group; what it does not have is none.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct GroupFigures {
            $(#[doc = $help] pub $field: $type,)*
        }

        /// All figures of groups.
        pub const FIGURES: &[DaemonFigure] = &[$(DaemonFigure {
            name: stringify!($field),
            metric: $metric,
            kind: FigureKind::$kind,
            unit: FigureUnit::$unit,
            help: $help,
            value: |group| group.$field.number(),
        }),*];
    };
}

figures! {
    count: u16 = "huepage_group_colors", Gauge, Count, "Colours that the group has.";
    members: u64 = "huepage_group_processes", Gauge, Count, "Processes in the group.";
    reading: Option<f64> = "huepage_group_reading", Gauge, Ratio,
        "Miss rate or metric as last read; of which more is worse.";
    reading_margin: Option<f64> = "huepage_group_reading_margin", Gauge, Ratio,
        "How far off the reading may be.";
    instructions_per_second: Option<f64> = "huepage_group_instructions_per_second", Gauge, PerSecond,
        "Instructions that its processes do in a second, where they are counted.";
    sensor_cpu_seconds: Option<f64> = "huepage_group_sensor_cpu_seconds_total", Counter, Seconds,
        "CPU seconds that reading took the daemon.";
    movable_pages: u64 = "huepage_group_movable_pages", Gauge, Count, "Pages that could be moved.";
    pages_in_colors: u64 = "huepage_group_pages_in_colors", Gauge, Count,
        "Of these, pages in the group's colours.";
    untouched: Option<u64> = "huepage_group_untouched_pages", Gauge, Count,
        "Pages in colours that the group lost, left there until they are touched.";
    recolored: u64 = "huepage_group_recolored_pages_total", Counter, Count,
        "Pages moved to another colour.";
    superpages_built: Option<u64> = "huepage_group_superpages_built_total", Counter, Count,
        "Superpages built for the group.";
    superpages_broken: Option<u64> = "huepage_group_superpages_broken_total", Counter, Count,
        "Superpages broken again.";
    polluting_pages: Option<u64> = "huepage_group_polluting_pages", Gauge, Count,
        "Pages that are to be in the pollute buffer.";
    buffer_pages: Option<u64> = "huepage_group_buffer_pages", Gauge, Count,
        "Of these, pages in the pollute buffer.";
    conflict_pages: Option<u64> = "huepage_group_conflict_pages_total", Counter, Count,
        "Pages that conflicted and got another colour.";
    files_placed: Option<u64> = "huepage_group_files_placed_total", Counter, Count,
        "Files placed for the group.";
}

impl FigureUnit {
    /// For a person.
    pub const fn word(self) -> &'static str {
        match self {
            FigureUnit::Count => "",
            FigureUnit::Ratio => "ratio",
            FigureUnit::PerSecond => "per second",
            FigureUnit::Seconds => "seconds",
        }
    }
}

impl FigureKind {
    /// As Prometheus calls it.
    pub const fn word(self) -> &'static str {
        match self {
            FigureKind::Gauge => "gauge",
            FigureKind::Counter => "counter",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_unit_and_the_kind_as_prometheus_wants_it() {
        let mut names: Vec<&str> = FIGURES.iter().map(|figure| figure.metric).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
        for figure in FIGURES {
            assert_eq!(
                figure.metric.ends_with("_total"),
                figure.kind == FigureKind::Counter,
                "{figure:?}"
            );
            let seconds =
                figure.metric.contains("_seconds_") == (figure.unit == FigureUnit::Seconds);
            let rate =
                figure.metric.ends_with("_per_second") == (figure.unit == FigureUnit::PerSecond);
            assert!(seconds && rate && figure.help.ends_with('.'), "{figure:?}");
        }
    }

    #[test]
    fn json_has_each_by_its_name() {
        let json = serde_json::to_value(GroupFigures::default()).unwrap();
        for figure in FIGURES {
            let value = &json[figure.name];
            assert_eq!(value.as_f64(), (figure.value)(&GroupFigures::default()), "{figure:?}");
        }
        assert_eq!(json.as_object().unwrap().len(), FIGURES.len());
    }
}
