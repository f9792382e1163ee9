//! The stress targets tested without huepage: they must pass on a plain system, and every
//! single check of theirs must be able to fail. Only the short form; the long runs are
//! benchmarks.

use std::process::{Command, Output};

use huepage_bench::torture::MODES;

fn torture(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_huepage-torture")).args(args).output().unwrap()
}

fn summary(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn everything_at_once_is_right_on_a_plain_system() {
    let output = torture(&["all", "--seconds", "4"]);
    let summary = summary(&output);
    assert_eq!(output.status.code(), Some(0), "{summary}");
    for (_, sites) in MODES {
        for site in sites {
            let skipped = summary["skipped"].to_string().contains(site.split('.').next().unwrap());
            let checks = summary["sites"][site]["checks"].as_u64().unwrap_or(0);
            assert!(checks > 0 || skipped, "{site} was never checked: {summary}");
        }
    }
}

/// Damages one byte before the check `site` of `mode`, and expects that it is found there.
fn must_be_caught(mode: &str, site: &str) {
    let output = torture(&[mode, "--seconds", "2", "--mib", "4", "--sabotage", site]);
    let summary = summary(&output);
    if summary["skipped"].to_string().contains(mode) {
        let why = &summary["skipped"];
        return huepage_testing::lacks(&format!("sabotage of {site}"), why);
    }
    assert_eq!(output.status.code(), Some(1), "{site} was not caught: {summary}");
    assert!(summary["sites"][site]["wrong"].as_u64() > Some(0), "{site}: {summary}");
}

#[test]
fn every_check_can_fail() {
    std::thread::scope(|scope| {
        for (mode, sites) in MODES {
            scope.spawn(move || sites.iter().for_each(|site| must_be_caught(mode, site)));
        }
    });
}

#[test]
fn a_thread_that_hangs_is_reported() {
    let output = torture(&["threads", "--seconds", "1", "--hang-after", "2", "--sabotage", "hang"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(summary(&output)["hung"], "signals");
}

#[test]
fn the_answer_is_known_in_advance_and_a_flipped_bit_changes_it() {
    let right = torture(&["answer", "--mib", "4", "--rounds", "20", "--right", "42"]);
    assert_eq!(right.status.code(), Some(42));
    let wrong = torture(&["answer", "--mib", "4", "--rounds", "20", "--sabotage"]);
    assert_eq!(wrong.status.code(), Some(1));
}

#[test]
fn bad_usage_is_said_in_one_line() {
    let output = torture(&["answer", "--mib", "3", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}
