//! What monitors the daemon, in `packaging/monitoring`: the dashboard is made of the figures' definitions, and the
//! alerts may name only those. Nothing of this is in the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::figures::FIGURES;
use super::metrics;
use super::protocol::DaemonStatus;
use crate::figures::{Figure, FigureKind, FigureUnit};

/// Set it to write the dashboard anew.
const WRITE: &str = "HUEPAGE_WRITE_DOCS";
/// Cells of a panel, of the 24 across.
const PANEL: [usize; 2] = [8, 8];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring")
}

/// What there is for groups, and what is of the daemon itself.
fn known() -> BTreeSet<String> {
    let text = metrics::text(&DaemonStatus::default(), &[]);
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    names.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Grafana's name of a unit, of what grows as a rate.
fn unit(kind: FigureKind, unit: FigureUnit) -> &'static str {
    match (kind, unit) {
        (FigureKind::Counter, FigureUnit::Seconds) => "percentunit",
        (FigureKind::Counter, _) | (_, FigureUnit::PerSecond) => "ops",
        (_, FigureUnit::Seconds) => "s",
        (_, FigureUnit::Bytes) => "bytes",
        (_, FigureUnit::Ratio | FigureUnit::Share) => "percentunit",
        (_, FigureUnit::Count) => "short",
    }
}

/// What a panel is to show: a title, an expression, the lines' names, a unit.
type Panel = (String, String, &'static str, &'static str);

fn of_figure<T>(figure: &Figure<T>) -> Option<Panel> {
    let name = format!("{}{{instance=~\"$instance\",group=~\"$group\"}}", figure.metric?);
    let (expression, what) = match figure.kind {
        FigureKind::Gauge => (name, ""),
        FigureKind::Counter => (format!("rate({name}[$__rate_interval])"), ", a second"),
    };
    let title = figure.help.trim_end_matches('.').to_owned() + what;
    Some((title, expression, "{{instance}} {{group}}", unit(figure.kind, figure.unit)))
}

fn panels() -> Vec<Panel> {
    let own = |title: &str, expression: &str, unit| {
        (title.to_owned(), expression.to_owned(), "{{instance}}", unit)
    };
    let inside = "huepage_group_pages_in_colors{instance=~\"$instance\",group=~\"$group\"} / \
                  (huepage_group_movable_pages{instance=~\"$instance\",group=~\"$group\"} > 0)";
    let mut all = vec![
        (
            "Pages in their colours".to_owned(),
            inside.to_owned(),
            "{{instance}} {{group}}",
            "percentunit",
        ),
        own(
            "Decisions, a second",
            "rate(huepage_decisions_total{instance=~\"$instance\"}[$__rate_interval])",
            "ops",
        ),
        own("Troubles", "huepage_daemon_troubles{instance=~\"$instance\"}", "short"),
    ];
    all.extend(FIGURES.iter().filter_map(of_figure));
    all
}

fn dashboard() -> Value {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let panel = |(at, (title, expression, legend, unit)): (usize, Panel)| {
        let [wide, high] = PANEL;
        let (x, y) = (at % (24 / wide) * wide, at / (24 / wide) * high);
        json!({
            "id": at + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": { "x": x, "y": y, "w": wide, "h": high },
            "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
            "targets": [{ "refId": "A", "expr": expression, "legendFormat": legend, "datasource": source }],
        })
    };
    let choice = |name: &str, label: &str| {
        json!({
            "type": "query", "name": name, "label": label, "datasource": source, "multi": true,
            "includeAll": true, "refresh": 2, "sort": 1,
            "query": format!("label_values(huepage_group_colors, {name})"),
            "current": { "text": "All", "value": "$__all" },
        })
    };
    json!({
        "title": "huepage",
        "uid": "huepage",
        "tags": ["huepage"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": { "from": "now-6h", "to": "now" },
        "templating": { "list": [
            { "type": "datasource", "name": "datasource", "query": "prometheus" },
            choice("instance", "Machine"),
            choice("group", "Group"),
        ] },
        "panels": panels().into_iter().enumerate().map(panel).collect::<Vec<_>>(),
    })
}

/// Names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
    words.filter(|word| word.starts_with("huepage_")).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_is_made_of_the_figures() {
    let path = folder().join("dashboard.json");
    let made = serde_json::to_string_pretty(&dashboard()).unwrap() + "\n";
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == made, "set {WRITE}=1 and run this test");
    let shown = named(&made);
    let figures = FIGURES.iter().filter_map(|figure| figure.metric).map(str::to_owned);
    for name in figures {
        assert!(shown.contains(&name), "{name} is on no panel");
    }
    assert!(shown.is_subset(&known()), "{:?}", shown.difference(&known()));
}

#[test]
fn alerts_name_what_there_is() {
    let text = fs::read_to_string(folder().join("alerts.yml")).unwrap();
    let names = named(&text);
    assert!(names.len() >= 5 && names.is_subset(&known()), "{:?}", names.difference(&known()));
    let tests = fs::read_to_string(folder().join("alerts.test.yml")).unwrap();
    let alerts: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname: {alert}")), "{alert} has no test");
    }
    assert_eq!(alerts.len(), text.matches("severity:").count(), "{alerts:?}");
}

/// Where promtool is, the alerts do what their tests say; the live tests have it look at the figures.
#[test]
fn promtool_accepts_the_alerts() {
    let promtool =
        |args: [&str; 3]| Command::new("promtool").args(args).current_dir(folder()).output();
    match promtool(["test", "rules", "alerts.test.yml"]) {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            let why = format!("promtool: {error}; run scripts/setup-programs.sh");
            huepage_testing::skip("promtool_accepts_the_alerts", why);
        }
    }
}
