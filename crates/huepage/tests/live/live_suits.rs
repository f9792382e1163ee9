//! Verdicts before use: what `huepage suits` says of programs whose use of the cache is known, and `huepage
//! superpages`, the command that it recommends.

use crate::common;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Killed;
use common::cgroup::Made;
use serde_json::Value;

/// A program of the benchmarks on the first CPU.
fn on_cpu_0(tool: &str, arguments: &[&str]) -> Killed {
    let mut command = Command::new("taskset");
    let program: PathBuf = common::tools().join(tool);
    command.args(["-c", "0"]).arg(program).args(arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    Killed(child)
}

fn pid(one: &Killed) -> String {
    one.0.id().to_string()
}

/// KiB of the L2.
fn l2_kib() -> u64 {
    let output = common::huepage(&["info", "--json"]);
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    let caches = info["machine"]["caches"].as_array().unwrap();
    let l2 = caches.iter().find(|cache| cache["geometry"]["level"] == 2);
    l2.unwrap_or_else(|| panic!("{info:#}"))["geometry"]["size_bytes"].as_u64().unwrap() >> 10
}

fn suits(pid: &str) -> Value {
    let output = common::huepage(&["suits", "--json", "--seconds", "4", pid]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn who_reuses_is_protected_and_who_streams_is_confined() {
    let Some(_turn) = common::live("who_reuses_is_protected_and_who_streams") else { return };
    let l2 = l2_kib();
    let walk = on_cpu_0("huepage-walk", &["--kib", &(l2 / 4).to_string(), "--seconds", "600"]);
    // So much that a lap takes longer than a look.
    let stream = on_cpu_0("huepage-stream", &["--kib", "262144", "--seconds", "600"]);
    let found = suits(&pid(&walk));
    let (colors, given) = (&found["cache"]["colors"], &found["partition"]["colors"]);
    assert_eq!(found["partition"]["verdict"], "protect", "{found:#}");
    let share = given.as_f64().unwrap() / colors.as_f64().unwrap();
    assert!((0.25..=0.6).contains(&share), "{found:#}");
    let beside = found["sharers"].as_array().unwrap();
    assert!(beside.iter().any(|one| one["pid"] == stream.0.id()), "{found:#}");

    let found = suits(&pid(&stream));
    assert_eq!(found["partition"]["verdict"], "confine", "{found:#}");
    let given = found["partition"]["colors"].as_u64();
    assert!(given.is_some_and(|colors| (1..=2).contains(&colors)), "{found:#}");
    let text = common::huepage(&["suits", "--seconds", "2", &pid(&stream)]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("-> huepage attach --share"), "{text}");
}

/// Interpreters and virtual machines are often started by a script that becomes them.
#[test]
fn a_wrapper_is_judged_by_the_program_that_it_becomes() {
    let Some(_turn) = common::live("a_wrapper_is_judged_by_the_program") else { return };
    let stream = common::tools().join("huepage-stream");
    let script = format!("sleep 0.3; exec {} --kib 65536 --seconds 60", stream.display());
    let output = common::huepage(&["suits", "--json", "--seconds", "4", "--", "sh", "-c", &script]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["program"]["blocks"].as_u64() >= Some(30), "{found:#}");
    assert!(found["program"]["streamed_bytes_per_second"].is_number(), "{found:#}");
}

#[test]
fn who_sleeps_suits_nothing_and_a_program_is_ended_that_was_started() {
    let Some(_turn) = common::live("who_sleeps_suits_nothing") else { return };
    let output = common::huepage(&["suits", "--json", "--seconds", "1", "--", "sleep", "98765.25"]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["partition"]["verdict"], "idle", "{found:#}");
    assert_eq!(found["superpages"]["verdict"], "idle", "{found:#}");
    let left = Command::new("pgrep").args(["-f", "sleep 98765.25"]).status().unwrap();
    assert!(!left.success(), "it runs still");
    let output = common::huepage(&["suits", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let output = common::huepage(&["suits", "--", "true"]);
    assert_eq!(output.status.code(), Some(106), "{output:?}");
    let output = common::huepage(&["suits", "4194303"]);
    assert_eq!(output.status.code(), Some(102), "{output:?}");
}

/// KiB of a process in superpages.
fn huge_kib(pid: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let huge = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    huge.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn superpages_are_built_in_a_control_group_by_their_own_command_and_within_a_stall() {
    let Some(_turn) = common::live("superpages_by_their_own_command") else { return };
    let Some(group) = Made::new() else {
        return common::skip("superpages_by_their_own_command", "no control group can be made");
    };
    let always = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    if always.contains("[always]") {
        return common::skip("superpages_by_their_own_command", "THP is always; set it to madvise");
    }
    let walk = on_cpu_0("huepage-superpages", &["gups", "--mib", "64", "--seconds", "600"]);
    let (pid, path) = (pid(&walk), group.0.to_str().unwrap());
    assert_eq!(huge_kib(&pid), 0);
    // Nothing is fast enough for this one.
    let mut command = Command::new(common::HUEPAGE);
    command.args(["superpages", "--policy", "asap", "--stall", "10us", "--foreground", &pid]);
    let bound = command.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let stop = rustix::process::Pid::from_child(&bound);
    rustix::process::kill_process(stop, rustix::process::Signal::INT).unwrap();
    let report = String::from_utf8(bound.wait_with_output().unwrap().stderr).unwrap();
    assert!(report.contains("longer than --stall allows") && huge_kib(&pid) == 0, "{report}");

    let empty = common::huepage(&["superpages", "--cgroup", path]);
    assert_eq!(empty.status.code(), Some(102), "{empty:?}");
    group.take(&pid);
    let begun = common::huepage(&["superpages", "-q", "--policy", "asap", "--cgroup", path]);
    assert!(begun.status.success(), "{begun:?}");
    let started = Instant::now();
    while huge_kib(&pid) < 40 << 10 {
        assert!(started.elapsed() < common::HANGS, "{} KiB", huge_kib(&pid));
        std::thread::sleep(Duration::from_millis(100));
    }
    let late = on_cpu_0("huepage-superpages", &["gups", "--mib", "64", "--seconds", "600"]);
    group.take(&late.0.id().to_string());
    while huge_kib(&late.0.id().to_string()) < 40 << 10 {
        assert!(started.elapsed() < common::HANGS, "who comes later gets none");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(common::huepage(&["detach", &pid]).status.success());
    drop((walk, late));
}
