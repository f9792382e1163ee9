//! Programs with a userfaultfd of their own do what they do without huepage: the areas that they serve
//! are left alone, and the report says so.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a command in half of the cache; what it and huepage said, and huepage's report.
fn confined(dir: &Path, command: &[&str]) -> (Output, Value) {
    let report = dir.join("report.json");
    let output = Command::new(common::HUEPAGE)
        .args(["run", "--share", "50%", "--colors-from", "declared", "--report"])
        .arg(&report)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    let report = std::fs::read(report).unwrap_or_default();
    (output, serde_json::from_slice(&report).unwrap_or_default())
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn stress_ng_verifies_its_own_faults() {
    let test = "stress_ng_verifies_its_own_faults";
    let Some(_turn) = common::live(test) else { return };
    if Command::new("stress-ng").arg("--version").output().is_err() {
        return common::skip(test, "no stress-ng here; scripts/setup-programs.sh installs it");
    }
    let dir = tempfile::tempdir().unwrap();
    let stress = ["stress-ng", "--userfaultfd", "1", "--verify", "-t", "4"];
    let (output, report) = confined(dir.path(), &stress);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("fail"), "{said}");
    // Two of its processes share all their memory and their descriptors.
    let missed = report["missed"].as_array().unwrap();
    let shares =
        |one: &Value| one["reason"].as_str().is_some_and(|why| why.contains("shares memory"));
    assert!(!missed.is_empty() && missed.iter().all(shares), "{report}");
}

/// Builds the target; `None` where there is no compiler.
fn target(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/userfaultfd/serves.c");
    let program = dir.join("serves");
    let gcc =
        Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status();
    gcc.ok()?.success().then_some(program)
}

#[test]
fn memory_that_was_watched_for_long_can_be_registered() {
    let test = "memory_that_was_watched_for_long_can_be_registered";
    let Some(_turn) = common::live(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = target(dir.path()) else {
        return common::skip(test, "no gcc here; scripts/setup-programs.sh installs it");
    };
    let words = [program.to_str().unwrap(), "1500", "400"];
    let native = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let (output, report) = confined(dir.path(), &words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(output.stdout, native.stdout, "{report}");
    assert!(said(&output).contains("1 area served by the program's own userfaultfd"), "{report}");
    let share = report["compliance"]["share"].as_f64();
    assert!(share >= Some(0.9), "what it does not serve is moved at audits: {report}");
}

/// What the kernel refuses because it has been unmapped since is not taken for memory that the program
/// serves: it would be left alone.
#[test]
fn a_program_that_maps_and_unmaps_all_the_time_serves_nothing() {
    let test = "a_program_that_maps_and_unmaps_all_the_time_serves_nothing";
    let Some(_turn) = common::live(test) else { return };
    if Command::new("java").arg("-version").output().is_err() {
        return common::skip(test, "no java here; scripts/setup-programs.sh installs it");
    }
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/userfaultfd/Churns.java");
    for _ in 0..3 {
        let (output, report) = confined(dir.path(), &["java", source]);
        let said = said(&output);
        assert!(output.status.success() && said.contains("done"), "{said}");
        assert!(!said.contains("userfaultfd"), "{said}");
        assert!(report["compliance"]["movable"].as_u64() > Some(10_000), "{report}");
    }
}
