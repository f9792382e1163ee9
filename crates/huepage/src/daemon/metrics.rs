//! Figures for Prometheus, in its text format (version 0.0.4). Those of groups are defined in `figures`.

use std::fmt::Write as _;

use super::figures::FIGURES;
use super::protocol::{DaemonStatus, GroupStatus};
use crate::figures::Figure;

/// The text.
pub fn text(status: &DaemonStatus, groups: &[GroupStatus]) -> String {
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
    for Figure { metric, kind, help, value, .. } in FIGURES {
        let Some(name) = metric else { continue };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
        for group in groups {
            if let Some(value) = value(&group.figures) {
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
    use super::super::figures::GroupFigures;
    use super::*;
    use crate::services::Reports;

    fn status() -> DaemonStatus {
        DaemonStatus {
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
            notes: Vec::new(),
            troubles: Vec::new(),
        }
    }

    fn group(name: &str, reading: Option<f64>) -> GroupStatus {
        let figures = GroupFigures {
            count: 4,
            members: 1,
            reading,
            reading_margin: reading.map(|_| 0.01),
            instructions_per_second: reading.map(|_| 2e9),
            sensor_cpu_seconds: reading.map(|_| 0.5),
            untouched: reading.map(|_| 7),
            ..GroupFigures::default()
        };
        GroupStatus {
            name: name.to_owned(),
            colors: "0-3".to_owned(),
            rule: "always".to_owned(),
            follows: false,
            processes: vec![7],
            sensor: reading.map(|_| "pmu".to_owned()),
            want: "same".to_owned(),
            eager: None,
            notes: Vec::new(),
            figures,
            services: Reports::default(),
            buffer: None,
            trouble: None,
        }
    }

    #[test]
    fn every_figure_has_help_a_type_and_a_line_per_group_that_has_it() {
        let text = text(&status(), &[group("web", Some(0.25)), group("db", None)]);
        assert!(text.contains("huepage_daemon_frozen 1\n"));
        assert!(text.contains("huepage_group_colors{group=\"db\"} 4\n"));
        assert!(text.contains("huepage_group_untouched_pages{group=\"web\"} 7\n"));
        assert!(!text.contains("untouched_pages{group=\"db\"}"));
        assert!(text.contains("huepage_group_reading{group=\"web\"} 0.25\n"));
        assert!(!text.contains("reading{group=\"db\"}"));
        assert!(!text.contains("superpages_built_total{"), "{text}");
        let names = |kind: &str| text.lines().filter(|line| line.starts_with(kind)).count();
        let all = FIGURES.len() + 6;
        assert_eq!((names("# HELP"), names("# TYPE")), (all, all));
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
