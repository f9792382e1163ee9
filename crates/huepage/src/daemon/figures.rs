//! Figures of the daemon's groups: each is defined once, with its name, unit and description, and comes from
//! there into the JSON of `huepage ctl groups`, what Prometheus reads, and `huepage top`.

use serde::{Deserialize, Serialize};

use crate::figures::{Figure, FigureKind, FigureUnit, Number as _};

macro_rules! figures {
    ($($field:ident: $type:ty = $metric:literal, $kind:ident, $unit:ident, $help:literal;)*) => {
        /// The figures of a group; what it does not have is none.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct GroupFigures {
            $(#[doc = $help] pub $field: $type,)*
        }

        /// All figures of groups.
        pub const FIGURES: &[Figure<GroupFigures>] = &[$(Figure {
            name: stringify!($field),
            metric: Some($metric),
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

impl GroupFigures {
    /// Those that there are and that are not nothing, for a person.
    pub fn line(&self) -> String {
        let some = |figure: &&Figure<GroupFigures>| (figure.value)(self).is_some_and(|n| n != 0.0);
        FIGURES
            .iter()
            .filter(some)
            .filter_map(|figure| figure.line(self))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_unit_and_the_kind_as_prometheus_wants_it() {
        let mut names: Vec<&str> = FIGURES.iter().filter_map(|figure| figure.metric).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
        for (figure, metric) in FIGURES.iter().zip(FIGURES.iter().filter_map(|f| f.metric)) {
            assert_eq!(
                metric.ends_with("_total"),
                figure.kind == FigureKind::Counter,
                "{figure:?}"
            );
            let seconds = metric.contains("_seconds_") == (figure.unit == FigureUnit::Seconds);
            let rate = metric.ends_with("_per_second") == (figure.unit == FigureUnit::PerSecond);
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
