//! `huepage profile`: the curve of a trace has its knee at the working set; real runs are all
//! there, what cannot be is told, and Ctrl-C leaves nothing behind.

use crate::common;

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

fn profile(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(common::HUEPAGE);
    command.arg("profile").args(arguments).env("NO_COLOR", "1").output().unwrap()
}

const MACHINE: &str = r#"
name = "small"
cores = 1
memory = "64M"
memory_latency = 100

[[cache]]
level = 1
kind = "data"
size = "4K"
line = 64
ways = 8
latency = 1

[[cache]]
level = 2
size = "1M"
line = 64
ways = 16
latency = 10
"#;

/// Laps over 200 KiB, on an L2 of 1 MiB and 16 colours of 64 KiB each.
#[test]
fn the_knee_of_a_trace_is_at_its_working_set() {
    let folder = TempDir::new().unwrap();
    let (trace, machine) = (folder.path().join("laps.din"), folder.path().join("small.toml"));
    let mut text = String::new();
    (0..20 * 3200_u64).for_each(|i| _ = writeln!(text, "0 {:x}", (1 << 24) + i % 3200 * 64));
    fs::write(&trace, text).unwrap();
    fs::write(&machine, MACHINE).unwrap();
    let (trace, machine) = (trace.display().to_string(), machine.display().to_string());
    let svg = folder.path().join("curve.svg");
    let drawn = svg.display().to_string();
    let page = folder.path().join("curve.html");
    let written = page.display().to_string();
    let arguments = ["--sim", &trace, "--machine", &machine, "--json", "--svg", &drawn];
    let output = profile(&[&arguments[..], &["--html", &written]].concat());
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["need"]["knee"], &found["need"]["enough"]),
        (&4.into(), &4.into()),
        "{found}"
    );
    let shares = found["shares"].as_array().unwrap();
    let colors: Vec<u64> = shares.iter().filter_map(|share| share["colors"].as_u64()).collect();
    assert_eq!(colors, [1, 2, 4, 8, 16]);
    assert!(
        shares[0]["miss_rate"].as_f64() > Some(99.0) && shares[2]["miss_rate"].as_f64() < Some(6.0)
    );
    let drawing = fs::read_to_string(svg).unwrap();
    assert!(drawing.contains("colours of 16") && drawing.contains("knee: 4"), "{drawing}");
    common::browser::draws(&page, 1);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&drawing) && page.contains("the knee is at 4 of 16 colours"), "{page}");
    let output = profile(&["--sim", &trace, "--machine", &machine, "--sizes", "2,16"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("sensitive to the cache") && text.contains("16 of 16"), "{text}");
}

#[test]
fn what_cannot_be_is_told() {
    let refused = |arguments: &[&str], status: i32, what: &str| {
        let output = profile(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(what), "{arguments:?}: {text}");
    };
    refused(&[], 2, "CMD");
    refused(&["--sim", "x"], 2, "--machine");
    refused(&["--sizes", "0", "--", "true"], 2, "0");
    let Some(_turn) = common::live("what_cannot_be_is_told") else { return };
    let declared = |rest: &[&'static str]| [&["--colors-from", "declared"][..], rest].concat();
    refused(&declared(&["--", "no-such-program"]), 127, "no-such-program");
    refused(&declared(&["--sizes", "60000", "--", "true"]), 104, "give fewer");
    refused(&declared(&["--sizes", "4", "--", "false"]), 2, "a command that succeeds");
    refused(&declared(&["--sizes", "4", "--", "true"]), 2, "for 0.05 s at least");
    let changing = "n=$(cat $F 2>/dev/null || echo 0); echo $((n+1)) > $F; sleep 0.1; exit $n";
    let folder = TempDir::new().unwrap();
    let script = format!("F={}; {changing}", folder.path().join("n").display());
    let output =
        profile(&["--colors-from", "declared", "--repeat", "1", "--", "sh", "-c", &script]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("the same work each time"), "{text}");
}

#[test]
fn every_share_is_run_as_often_as_asked() {
    let Some(_turn) = common::live("every_share_is_run_as_often_as_asked") else { return };
    let folder = TempDir::new().unwrap();
    let input = folder.path().join("input");
    fs::write(&input, "read again each time\n").unwrap();
    let log = folder.path().join("log");
    let script = format!("read line; sleep 0.1; echo \"$line\" >> {}", log.display());
    let output = Command::new(common::HUEPAGE)
        .args(["profile", "--colors-from", "declared", "--sizes", "4", "--repeat", "2", "--json"])
        .args(["--co-run", "while :; do :; done", "--", "sh", "-c", &script])
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shares = found["shares"].as_array().unwrap();
    assert!(shares.iter().all(|share| share["all"].as_array().map(Vec::len) == Some(2)), "{found}");
    assert_eq!((shares.len(), &shares[0]["colors"]), (2, &4.into()));
    let native = found["native"]["median"].as_f64().unwrap();
    // Not the time that what runs beside takes to begin, 0.3 s: with it, every run would be longer.
    assert!(native > 0.1 && native < 0.4 && found["need"].is_object(), "{found}");
    assert_eq!((&found["schema"], &found["colors_from"]), (&1.into(), &"declared".into()));
    let bounds = ["min", "max", "outliers"].map(|of| shares[0][of].is_number());
    assert_eq!(bounds, [true; 3], "{found}");
    // Two shares and no partition, twice, and the first one that does not count.
    assert_eq!(fs::read_to_string(log).unwrap(), "read again each time\n".repeat(7));
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let Some(_turn) = common::live("ctrl_c_leaves_nothing_behind") else { return };
    // Numbers that nothing else sleeps for.
    let (first, second) = ("86399.125", "86399.375");
    let running = |seconds: &str| {
        let found = Command::new("pgrep").args(["-f", &format!("sleep {seconds}")]).output();
        !found.unwrap().stdout.is_empty()
    };
    let always = format!("sleep {first}");
    let confined = format!(
        "sleep 0.1; tr '\\0' '\\n' < /proc/$PPID/cmdline | sed -n 2p | grep -qx profile || {always}"
    );
    for script in [always, confined] {
        let co_run = format!("sleep {second} & sleep {second}");
        let mut child = Command::new(common::HUEPAGE)
            .args(["profile", "--colors-from", "declared", "--sizes", "4", "--co-run", &co_run])
            .args(["--", "sh", "-c", &script])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        // The pattern is in the command line of its parents too: the program itself has only that.
        let asleep = || {
            let found =
                Command::new("pgrep").args(["-x", "-f", &format!("sleep {first}")]).output();
            !found.unwrap().stdout.is_empty()
        };
        while !asleep() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{script} was never run: {ended:?}");
            assert!(started.elapsed() < common::HANGS, "{script} was never run");
            std::thread::sleep(Duration::from_millis(20));
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let told = Instant::now();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(told.elapsed() < common::HANGS, "asked, it ends: {:?}", told.elapsed());
        assert!(!running(first) && !running(second), "left by {script}");
    }
}

#[test]
fn what_cannot_run_beside_is_told() {
    let Some(_turn) = common::live("what_cannot_run_beside_is_told") else { return };
    let mut args = vec!["--colors-from", "declared", "--sizes", "4", "--repeat", "1"];
    args.extend(["--co-run", "no-such-command-anywhere", "--", "sleep", "1"]);
    let output = profile(&args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("try it alone"), "{text}");
}
