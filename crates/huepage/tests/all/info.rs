//! `huepage info` on the machine at hand: its JSON is complete, its text agrees, and an
//! ordinary user is told what needs root.

use assert_cmd::Command;
use serde_json::Value;
use std::os::unix::process::CommandExt;

fn info(args: &[&str]) -> String {
    let mut command = Command::cargo_bin("huepage").expect("the binary is built");
    let output = command.arg("info").args(args).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn json_tells_caches_features_and_privileges() {
    let report = json(&info(&["--json", "--no-probe"]));
    let caches = report["machine"]["caches"].as_array().expect("caches");
    assert!(caches.iter().any(|c| c["geometry"]["last_level"] == true), "{caches:?}");
    for cache in caches {
        assert!(cache["geometry"]["size_bytes"].is_u64() && cache["colors"].is_array(), "{cache}");
    }
    let features = report["kernel"]["list"].as_array().expect("features");
    for wanted in
        ["uffd-move", "pagemap-scan", "procmap-query", "hardware-events", "bpf", "resctrl"]
    {
        let found = features.iter().find(|f| f["id"] == wanted).expect(wanted);
        let state = found["state"].as_str().expect("a state");
        assert!(["present", "missing", "needs-privilege"].contains(&state), "{found}");
    }
    assert!(report["privileges"]["euid"].is_u64());
    assert!(report["ready"].is_boolean());
}

#[test]
fn text_has_all_sections() {
    let text = info(&["--no-probe"]);
    for heading in
        ["Processor", "Caches", "Colours", "Kernel ", "Privileges", "Ready for", "Verdict on"]
    {
        let headings = text.lines().filter(|line| line.starts_with(heading)).count();
        assert_eq!(headings, 1, "{heading} in\n{text}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_needs_root() {
    if !rustix::process::geteuid().is_root() {
        let text = info(&["--no-probe"]);
        assert!(text.contains("run as root"), "{text}");
        return;
    }
    // The test's own binary may lie where nobody can reach it: run a copy.
    let dir = tempfile::Builder::new().prefix("huepage-info").tempdir_in("/var/tmp").expect("dir");
    let copy = dir.path().join("huepage");
    huepage_testing::copy_program(assert_cmd::cargo::cargo_bin("huepage"), &copy);
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(dir.path(), mode(0o755)).expect("searchable");
    let mut command = std::process::Command::new(&copy);
    let output = command.args(["info", "--json"]).uid(65534).gid(65534).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!((&report["privileges"]["euid"], &report["ready"]), (&65534.into(), &false.into()));
    let missing = report["privileges"]["missing"][0].as_str().expect("something is missing");
    assert!(missing.contains("run as root"), "{missing}");
    let why = report["verdict"]["why"].as_str().expect("no verdict without frame numbers");
    assert!(why.contains("run huepage as root"), "{why}");
}

#[test]
fn without_a_probe_there_is_no_verdict_and_a_reason() {
    let report = json(&info(&["--json", "--no-probe"]));
    assert_eq!(report["verdict"]["status"], "skipped");
    assert!(report["verdict"]["why"].as_str().is_some_and(|why| why.contains("--no-probe")));
}

/// The verdict is measured, or there is a reason; either way it does not take long.
#[test]
fn the_verdict_has_a_measurement_or_a_reason_behind_it() {
    let start = std::time::Instant::now();
    let verdict = json(&info(&["--json"]))["verdict"].take();
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    if verdict["status"] == "skipped" {
        let why = verdict["why"].as_str().expect("a reason");
        return huepage_testing::skip("the_verdict_has_a_measurement_or_a_reason_behind_it", why);
    }
    let share = |name: &str| verdict[name].as_f64().expect(name);
    let range = 0.0..=1.0;
    assert!(range.contains(&share("share")) && range.contains(&share("chance")), "{verdict}");
    let samples = verdict["samples"].as_u64().expect("samples");
    let known = ["frame-number-selects", "must-probe", "unclear"];
    assert!(known.iter().any(|name| verdict["verdict"] == *name), "{verdict}");
    // What is clear rests on enough pages of each colour.
    let enough = samples >= 8 * verdict["colors"].as_u64().expect("colors");
    assert!(enough || verdict["verdict"] == "unclear", "{verdict}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let binary = assert_cmd::cargo::cargo_bin("huepage");
    let mut command = std::process::Command::new(binary);
    command.args(["info", "--no-probe", "--json"]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}
