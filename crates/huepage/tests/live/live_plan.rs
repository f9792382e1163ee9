//! `huepage plan` on real programs: limits that anything keeps, limits that nothing keeps, programs that say nothing,
//! and a Ctrl-C.

use crate::common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A third of a second of work, the same each time.
const WORK: &str = "python3 -c 'print(sum(range(20000000)))'";

fn plan(arguments: &[&str]) -> std::process::Output {
    common::huepage(&[&["plan", "--colors-from", "declared", "--repeat", "1"], arguments].concat())
}

fn limited(limit: &str) -> String {
    format!("{limit}: {WORK}")
}

#[test]
fn limits_that_can_be_kept_are_kept_in_shares_of_their_own() {
    let Some(_turn) = common::live("limits_that_can_be_kept_are_kept") else { return };
    let output = plan(&["--json", &limited("1000%"), &limited("900%")]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let programs = found["programs"].as_array().unwrap();
    assert_eq!((&found["holds"], programs.len()), (&true.into(), 2), "{found:#}");
    let figure = |at: usize, name: &str| programs[at][name].as_u64().unwrap();
    assert_eq!(figure(0, "first") + figure(0, "colors"), figure(1, "first"), "{found:#}");
    let sum: u64 = (0..2).map(|at| figure(at, "colors")).sum();
    assert_eq!(Some(sum), found["of"].as_u64(), "{found:#}");
    for program in programs {
        let together = program["together"].as_f64().unwrap();
        assert!((0.2..=11.0).contains(&together), "{found:#}");
        assert_eq!(program["need"], 1, "{found:#}");
    }
}

#[test]
fn limits_that_nothing_keeps_end_with_their_status() {
    let Some(_turn) = common::live("limits_that_nothing_keeps") else { return };
    // Each run takes longer than the one before.
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs").display().to_string();
    let sleep = "sleep $(($(wc -l < RUNS) / 4)).$(($(wc -l < RUNS) % 4 * 25))";
    let slower = format!("0.1%: echo >> RUNS; {sleep}").replace("RUNS", &runs);
    let output = plan(&[&slower]);
    assert_eq!(output.status.code(), Some(113), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("No partition keeps the limits:"), "{said}");
}

#[test]
fn programs_that_say_nothing_are_refused() {
    let Some(_turn) = common::live("programs_that_say_nothing") else { return };
    for (program, status, part) in [
        ("5%: false", 2, "ended with status 1"),
        ("5%: true", 2, "ran for"),
        ("5%: /no/such", 2, "ended with status 127"),
    ] {
        let output = plan(&[program]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{program}: {said}");
        assert!(said.contains(part), "{program}: {said}");
    }
    let many = vec!["5%: true"; 2000];
    assert_eq!(plan(&many).status.code(), Some(104));
}

#[test]
fn an_interrupt_ends_it_and_what_it_runs() {
    let Some(_turn) = common::live("an_interrupt_ends_it_and_what_it_runs") else { return };
    let mut command = Command::new(common::HUEPAGE);
    command.args(["plan", "--colors-from", "declared", "5%: sleep 31.4159"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(5));
    let left = Command::new("pgrep").args(["-f", "^sleep 31.4159"]).output().unwrap();
    assert!(left.stdout.is_empty(), "{left:?}");
}
