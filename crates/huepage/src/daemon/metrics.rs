//! Figures for Prometheus, in its text format (version 0.0.4): one list of what there is feeds the help and
//! the values.

use std::fmt::Write as _;

use super::protocol::{GroupStatus, Status};

/// A figure of every group: its name, kind, meaning, and where it comes from.
type Figure = (&'static str, &'static str, &'static str, fn(&GroupStatus) -> Option<f64>);

const OF_GROUPS: [Figure; 14] = [
    ("huepage_group_colors", "gauge", "Colours that the group has.", |g| Some(f64::from(g.count))),
    ("huepage_group_processes", "gauge", "Processes in the group.", |g| {
        Some(g.processes.len() as f64)
    }),
    (
        "huepage_group_reading",
        "gauge",
        "Miss rate or metric as last read; of which more is worse.",
        |g| g.reading.map(|[value, _]| value),
    ),
    ("huepage_group_reading_margin", "gauge", "How far off the reading may be.", |g| {
        g.reading.map(|[_, margin]| margin)
    }),
    (
        "huepage_group_instructions_per_second",
        "gauge",
        "Instructions that its processes do in a second, where they are counted.",
        |g| g.instructions_per_second,
    ),
    (
        "huepage_group_sensor_cpu_seconds_total",
        "counter",
        "CPU seconds that reading took the daemon.",
        |g| g.sensor.as_ref().map(|_| g.sensor_cpu_seconds),
    ),
    ("huepage_group_movable_pages", "gauge", "Pages that could be moved.", |g| {
        Some(g.pages[0] as f64)
    }),
    ("huepage_group_pages_in_colors", "gauge", "Of these, pages in the group's colours.", |g| {
        Some(g.pages[1] as f64)
    }),
    (
        "huepage_group_untouched_pages",
        "gauge",
        "Pages in colours that the group lost, left there until they are touched.",
        |g| g.untouched.map(|pages| pages as f64),
    ),
    ("huepage_group_recolored_pages_total", "counter", "Pages moved to another colour.", |g| {
        Some(g.recolored as f64)
    }),
    ("huepage_group_superpages_built_total", "counter", "Superpages built for the group.", |g| {
        g.superpages.as_ref().map(|report| report.promoted as f64)
    }),
    ("huepage_group_superpages_broken_total", "counter", "Superpages broken again.", |g| {
        g.superpages.as_ref().map(|report| report.demoted as f64)
    }),
    ("huepage_group_buffer_pages", "gauge", "Pages in the pollute buffer.", |g| {
        g.buffer_pages.map(|[_, inside]| inside as f64)
    }),
    ("huepage_group_files_placed_total", "counter", "Files placed for the group.", |g| {
        g.page_cache.as_ref().map(|report| report.gate.files as f64)
    }),
];

/// The text.
pub fn text(status: &Status, groups: &[GroupStatus]) -> String {
    let mut text = String::new();
    let mut own = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    own("huepage_cache_colors", "gauge", "Colours of the cache.", f64::from(status.of));
    own("huepage_daemon_seconds_total", "counter", "Seconds that the daemon runs.", status.seconds);
    own("huepage_decisions_total", "counter", "Decisions of the daemon.", status.decisions as f64);
    own(
        "huepage_daemon_frozen",
        "gauge",
        "1 while nothing is changed.",
        f64::from(u8::from(status.frozen)),
    );
    own(
        "huepage_daemon_troubles",
        "gauge",
        "What `huepage ctl status` calls troubles.",
        status.troubles.len() as f64,
    );
    for (name, kind, help, value) in OF_GROUPS {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for group in groups {
            if let Some(value) = value(group) {
                // Names hold nothing that would have to be escaped.
                let _ = writeln!(text, "{name}{{group=\"{}\"}} {value}", group.name);
            }
        }
    }
    text + &sensors(groups)
}

/// Who reads each group, as Prometheus has what is no number.
fn sensors(groups: &[GroupStatus]) -> String {
    let name = "huepage_group_sensor_info";
    let mut text = format!("# HELP {name} Who reads the group.\n# TYPE {name} gauge\n");
    for (group, sensor) in groups.iter().filter_map(|g| Some((&g.name, g.sensor.as_ref()?))) {
        let _ = writeln!(text, "{name}{{group=\"{group}\",sensor=\"{sensor}\"}} 1");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            pid: 1,
            config: "x.toml".into(),
            level: "L2".to_owned(),
            of: 16,
            colors_from: "declared".to_owned(),
            free: "8-15".to_owned(),
            resctrl: "none".to_owned(),
            sensor: "residency".to_owned(),
            frozen: true,
            seconds: 12.5,
            groups: 2,
            processes: 3,
            decisions: 4,
            besides: Vec::new(),
            troubles: Vec::new(),
        }
    }

    fn group(name: &str, reading: Option<[f64; 2]>) -> GroupStatus {
        GroupStatus {
            name: name.to_owned(),
            colors: "0-3".to_owned(),
            count: 4,
            rule: "always".to_owned(),
            processes: vec![7],
            reading,
            sensor: reading.map(|_| "pmu".to_owned()),
            sensor_cpu_seconds: 0.5,
            instructions_per_second: reading.map(|_| 2e9),
            want: "same".to_owned(),
            pages: [100, 90],
            untouched: reading.map(|_| 7),
            eager: None,
            recolored: 5,
            besides: Vec::new(),
            superpages: None,
            no_superpages: None,
            buffer: None,
            buffer_pages: None,
            pollute: None,
            page_cache: None,
            trouble: None,
        }
    }

    #[test]
    fn every_figure_has_help_a_type_and_a_line_per_group_that_has_it() {
        let text = text(&status(), &[group("web", Some([0.25, 0.01])), group("db", None)]);
        assert!(text.contains("huepage_daemon_frozen 1\n"));
        assert!(text.contains("huepage_group_colors{group=\"db\"} 4\n"));
        assert!(text.contains("huepage_group_untouched_pages{group=\"web\"} 7\n"));
        assert!(!text.contains("untouched_pages{group=\"db\"}"));
        assert!(text.contains("huepage_group_reading{group=\"web\"} 0.25\n"));
        assert!(!text.contains("reading{group=\"db\"}"));
        assert!(!text.contains("superpages_built_total{"), "{text}");
        let names = |kind: &str| text.lines().filter(|line| line.starts_with(kind)).count();
        assert_eq!((names("# HELP"), names("# TYPE")), (20, 20));
        assert!(text.contains("huepage_group_sensor_info{group=\"web\",sensor=\"pmu\"} 1\n"));
        assert!(text.contains("huepage_group_instructions_per_second{group=\"web\"} 2000000000\n"));
        assert!(
            !text.contains("sensor_info{group=\"db\"")
                && !text.contains("seconds_total{group=\"db\"")
        );
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
