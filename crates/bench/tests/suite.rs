//! The benchmarks themselves, tested with a stand-in for huepage: a shell script that runs
//! the program as it is and writes a report. A benchmark must hold with a faithful one and
//! must say what is missed with one that lies, corrupts or dies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A stand-in: takes huepage's options apart, then does `body` with the program in "$@".
fn stand_in(dir: &tempfile::TempDir, body: &str) -> PathBuf {
    let path = dir.path().join("huepage");
    let script = format!(
        "#!/bin/sh\nreport=/dev/null\ncommand=$1\nshift\n\
         while [ \"$1\" != -- ] && [ $# -gt 0 ]; do\n\
         [ \"$1\" = --report ] && report=$2\nshift\ndone\nshift\n\
         report() {{ echo '{{\"program_seconds\":'$1',\"gather_seconds\":0.1,\"recolored\":'$2',\
         \"compliance\":{{\"movable\":100,\"in_colors\":99,\"share\":'$3'}}}}' > $report; }}\n\
         {body}\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn bench(body: &str, args: &[&str]) -> (Output, Value) {
    let dir = tempfile::tempdir().unwrap();
    let huepage = stand_in(&dir, body);
    let mut command = Command::new(env!("CARGO_BIN_EXE_huepage-bench"));
    command.args(args).arg("--json").arg("--huepage").arg(huepage);
    command.arg("--dir").arg(dir.path().join("programs"));
    let output = command.env_remove("HUEPAGE_REQUIRE_LIVE").output().unwrap();
    let value = serde_json::from_slice(&output.stdout);
    (output, value.unwrap_or_else(|e| panic!("{e}: {args:?}")))
}

const FAITHFUL: &str = "report 0.001 1000 0.995; exec \"$@\"";

#[test]
fn a_faithful_run_holds() {
    let (output, verdict) = bench(FAITHFUL, &["programs", "--only", "static"]);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["rows"][0]["output"], "same");
}

#[test]
fn another_output_is_missed() {
    let body = "report 1 1 1; \"$@\" | tr 0 1; exit 0";
    let (output, verdict) = bench(body, &["programs", "--only", "static"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(verdict["missed"].to_string().contains("another standard output"), "{verdict}");
}

#[test]
fn another_exit_status_is_missed() {
    let body = "report 1 1 1; \"$@\"; exit 5";
    let (_, verdict) = bench(body, &["programs", "--only", "static"]);
    assert!(verdict["missed"].to_string().contains("status 5 instead of 0"), "{verdict}");
}

#[test]
fn pages_outside_are_missed() {
    let body = "report 1 1 0.97; exec \"$@\"";
    let (_, verdict) = bench(body, &["programs", "--only", "static"]);
    assert!(verdict["missed"].to_string().contains("compliance 0.97"), "{verdict}");
}

#[test]
fn a_slow_run_costs_too_much() {
    let body = "report 99 1 1; exec \"$@\"";
    let args = ["cost", "--only", "static", "--pairs", "1"];
    let (_, verdict) = bench(body, &args);
    assert!(verdict["missed"].to_string().contains("is above 1.01"), "{verdict}");
    assert!(bench(FAITHFUL, &args).0.status.success());
}

#[test]
fn a_storm_counts_moved_pages_and_finds_wrong_ones() {
    let args = ["torture", "--recolours", "2000", "--slice", "0.5", "--mode", "writers"];
    let (output, verdict) = bench(FAITHFUL, &args);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["totals"]["recolored"], 2000);
    assert_eq!(verdict["rows"].as_array().unwrap().len(), 2);
    let corrupt = "report 1 5000 1; exec \"$@\" --sabotage writers.heap";
    let (output, verdict) = bench(corrupt, &args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(verdict["totals"]["wrong"], 1);
}

#[test]
fn a_storm_that_moves_nothing_is_missed() {
    let args = ["torture", "--recolours", "10", "--slice", "0.3", "--mode", "threads"];
    let (_, verdict) = bench("report 1 0 1; exec \"$@\"", &args);
    assert!(verdict["missed"].to_string().contains("no page was moved"), "{verdict}");
}

#[test]
fn a_target_that_dies_with_its_supervisor_is_missed() {
    let faithful = "case $command in run) \"$@\"; exit $?;; *) sleep 1;; esac";
    let (output, verdict) = bench(faithful, &["kill", "--times", "2", "--seed", "4"]);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["totals"]["right"], 2);
    let fatal = "\"$@\" & target=$!; (sleep 0.1; kill -9 $target) & wait $target";
    let (_, verdict) = bench(fatal, &["kill", "--times", "1"]);
    assert!(verdict["missed"].to_string().contains("the target ended as"), "{verdict}");
}

#[test]
fn a_missing_huepage_is_said_in_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_huepage-bench"));
    let output = command.args(["bad-input", "--huepage", "/no/such/huepage"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}
