//! `huepage doctor` on the machine at hand: its figures are physically possible and agree with each
//! other, its status with what it says, and it answers an ordinary user too.

use crate::common;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::Value;

/// A report, and the status that it came with.
fn doctor(command: &mut Command) -> (Value, Option<i32>) {
    let output = command.args(["doctor", "--json"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.is_empty(), "{said}");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    (report, output.status.code())
}

/// The figure at a path of names, numbers of places among them.
fn figure(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}: {report:#}"))
}

/// An interval of shares that holds its estimate.
fn interval(report: &Value, path: &str) -> [f64; 2] {
    let at = |name: &str| figure(report, &format!("{path}/{name}"));
    let (low, estimate, high) = (at("low"), at("estimate"), at("high"));
    assert!(0.0 <= low && low <= estimate && estimate <= high && high <= 1.0, "{path}: {report:#}");
    [low, high]
}

/// The states of lines by their name.
fn states<'a>(report: &'a Value, name: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks.filter(|c| c["name"] == name).filter_map(|c| c["state"].as_str()).collect()
}

#[test]
fn figures_are_possible_and_agree_with_each_other() {
    let Some(_turn) = common::live("figures_are_possible_and_agree_with_each_other") else {
        return;
    };
    let (report, status) = doctor(&mut Command::new(common::HUEPAGE));
    assert_eq!((&report["schema"], status), (&1.into(), Some(0)), "{report:#}");
    assert_eq!(report["works"], true, "{report:#}");
    assert!((100.0..20_000.0).contains(&figure(&report, "/clock/ticks_per_us")));
    assert!((1.0..200.0).contains(&figure(&report, "/clock/step_ticks")));
    colors(&report);
    eviction(&report);
    cpus(&report);
    let [low, high] = interval(&report, "/moves/per_minute");
    let moved = figure(&report, "/moves/moved");
    assert!(moved <= figure(&report, "/moves/pages") && (low > 0.0) == (moved > 0.0) && high > 0.0);
    assert!(figure(&report, "/moves/seconds") >= 6.0);
}

/// Colours that were told apart are those of the cache, and took some time.
fn colors(report: &Value) {
    assert_eq!(report["colors"]["colors"], report["cache"]["colors"]);
    let (seconds, us) = (figure(report, "/colors/seconds"), figure(report, "/colors/us_per_page"));
    assert!((0.001..100.0).contains(&seconds) && (0.05..5000.0).contains(&us), "{report:#}");
    let share = figure(report, "/frame_numbers/share");
    assert!((0.0..=1.0).contains(&share) && share >= figure(report, "/frame_numbers/chance") / 2.0);
}

/// More that is streamed evicts more, and enough of it nearly all.
fn eviction(report: &Value) {
    let points = report["replacement"].as_array().expect("a curve");
    let [first, last] = [points.first(), points.last()].map(|point| point.expect("points"));
    assert!(figure(last, "/times_ways") > figure(first, "/times_ways"), "{points:?}");
    for pair in points.windows(2) {
        let [less, more] = [&pair[0], &pair[1]].map(|point| figure(point, "/evicted"));
        let error = figure(&pair[0], "/error") + figure(&pair[1], "/error");
        assert!((0.0..=1.0).contains(&less) && more >= less - 2.0 * error - 0.05, "{points:?}");
    }
    let first = figure(first, "/evicted");
    assert!(figure(last, "/evicted") > first || first > 0.9, "{points:?}");
    assert!(figure(last, "/evicted") > 0.5, "{points:?}");
}

/// Every CPU is one of this machine, and no pair is there twice.
fn cpus(report: &Value) {
    let neighbors = report["neighbors"].as_array().expect("CPUs");
    assert!(!neighbors.is_empty());
    for one in neighbors {
        interval(one, "/felt");
        interval(one, "/away");
        let cpu = format!("/sys/devices/system/cpu/cpu{}", one["cpu"]);
        assert!(std::path::Path::new(&cpu).exists(), "{one}");
    }
    let pairs = report["siblings"].as_array().expect("pairs");
    assert_eq!(pairs.is_empty(), neighbors.len() == 1, "{report:#}");
    for (i, pair) in pairs.iter().enumerate() {
        let [low, high] = interval(pair, "/share");
        match pair["relation"].as_str().expect("a relation") {
            "siblings" => assert!(low > 0.5, "{pair}"),
            "apart" => assert!(high < 0.2, "{pair}"),
            "at-times" => assert!(low > 0.0 && high >= 0.2, "{pair}"),
            other => assert_eq!(other, "unclear", "{pair}"),
        }
        assert!(pairs[..i].iter().all(|before| before["cpus"] != pair["cpus"]), "{pairs:?}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    const NAME: &str = "an_ordinary_user_is_told_what_is_missing";
    let Some(_turn) = common::live(NAME) else { return };
    // The test's own binary may lie where nobody can reach it: run a copy.
    let dir =
        tempfile::Builder::new().prefix("huepage-doctor").tempdir_in("/var/tmp").expect("dir");
    let copy = dir.path().join("huepage");
    huepage_testing::copy_program(common::HUEPAGE, &copy);
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(dir.path(), mode(0o755)).expect("searchable");
    let (report, status) = doctor(Command::new(&copy).uid(65534).gid(65534));
    assert_eq!((&report["works"], status), (&false.into(), Some(1)), "{report:#}");
    assert!(states(&report, "privileges").contains(&"bad"), "{report:#}");
    // What needs no rights is measured all the same.
    assert!(figure(&report, "/colors/us_per_page") > 0.0);
    assert!(report["frame_numbers"]["error"].as_str().is_some_and(|e| e.contains("root")));
}
