//! `huepage record` on a program with a hot set beside a long scan: what is used again is in the
//! cache, what is only passed is not, and the program notices nothing. What it saves is replayed to the
//! same counts.

use crate::common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// MiB of the file that is scanned: much more than what is next to a core, shared caches included.
const FILE_MIB: usize = 256;
/// KiB of the hot set, and of the file between two laps of it.
const HOT_KIB: u64 = 128;

/// A hot set with a mapped file scanned between its laps, on one CPU.
fn start(file: &std::path::Path) -> Child {
    std::fs::write(file, vec![1; FILE_MIB << 20]).unwrap();
    let kib = HOT_KIB.to_string();
    let mut command = Command::new(common::tools().join("huepage-pagecache"));
    command.args(["beside", "--how", "mmap", "--kib", &kib, "--chunk-kib", &kib, "--cpu", "0"]);
    command.args(["--seconds", "600", "--colors-from", "pfn", "--file"]).arg(file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    child
}

/// What was recorded of a process; `None` where a neighbour kept anything from being told.
fn record(pid: u32, more: &[&str]) -> Option<Value> {
    let pid = pid.to_string();
    let args = [&["record", "--json", "--cpu", "2%"], more, &[&pid]].concat();
    let output = common::huepage(&args);
    let noisy = output.status.code() == Some(110);
    assert!(output.status.success() || noisy, "{output:?}");
    (!noisy).then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Shares of the hot set and of the file that were found in the cache.
fn shares(recorded: &Value, file: &std::path::Path) -> [f64; 2] {
    // The kernel may join the hot set with memory beside it.
    let hot = areas(recorded, |area| {
        area["kind"] == "anonymous" && area["resident"].as_u64() >= Some(HOT_KIB / 4)
    });
    let scanned = areas(recorded, |area| area["name"] == file.to_str().unwrap());
    assert!(!hot.is_empty() && scanned.len() == 1, "{:#}", recorded["areas"]);
    [hot.into_iter().map(share).fold(0.0, f64::max), share(scanned[0])]
}

fn share(area: &Value) -> f64 {
    let number = |name: &str| area[name].as_f64().unwrap();
    number("found") / number("samples").max(1.0)
}

fn areas(recorded: &Value, is_it: impl Fn(&Value) -> bool) -> Vec<&Value> {
    recorded["areas"].as_array().unwrap().iter().filter(|area| is_it(area)).collect()
}

#[test]
fn a_hot_set_is_in_the_cache_and_a_scan_is_not() {
    let Some(_turn) = common::live("record: hot set") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (file, looks) = (dir.path().join("scanned"), dir.path().join("looks.jsonl"));
    let mut child = start(&file);
    let page = dir.path().join("seen.html");
    let [kept, drawn] = [&looks, &page].map(|path| path.to_str().unwrap());
    // Long enough for the budget to make up for the start on a loaded machine.
    let output = ["--output", kept, "--html", drawn, "--seconds", "10"];
    let (mut tried, began) = (Vec::new(), Instant::now());
    // Where others use the same core there is little of the hot set in its cache until they pause.
    let recorded = loop {
        assert!(began.elapsed() < common::HANGS, "shares of the hot set and the file: {tried:?}");
        let recorded = record(child.id(), &output);
        let found = recorded.as_ref().map(|recorded| shares(recorded, &file));
        tried.push(found);
        if let (Some([hot, scanned]), Some(recorded)) = (found, recorded)
            && hot >= scanned + 0.3
            && scanned < 0.4
        {
            break recorded;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();

    check_replay(&recorded, &looks);
    common::browser::draws(&page, 1);
    // The start counts: 2 %, and what the last look took.
    let number = |name: &str| recorded[name].as_f64().unwrap();
    assert!(number("cpu_seconds") <= 0.025 * number("seconds"), "{recorded:#}");
    assert_eq!(recorded["schema"], 1);
    let told_apart = recorded["private_only"] == true;
    assert_eq!(recorded["miss_rate"].is_number(), told_apart, "{recorded:#}");
}

/// What was saved is what was counted: of the process, its areas and its pages.
fn check_replay(recorded: &Value, looks: &std::path::Path) {
    let output = common::huepage(&["replay", "--json", looks.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    for of in ["pid", "samples", "found"] {
        assert_eq!(replayed[of], recorded[of], "{of}");
    }
    for of in ["looks", "latencies", "errors"] {
        assert_eq!(replayed["totals"][of], recorded[of], "{of}");
    }
    let areas = |of: &Value| -> Vec<Value> {
        let strip = |area: &Value| {
            let mut area = area.as_object().unwrap().clone();
            area.remove("confined");
            Value::Object(area)
        };
        of["areas"].as_array().unwrap().iter().map(strip).collect()
    };
    assert_eq!(areas(&replayed), areas(recorded));
    // Pages that are taken one by one count with looks that went as those at all of them.
    assert!(replayed["estimate"]["samples"].as_u64() >= recorded["samples"].as_u64());
    let rate = |of: &Value| of["miss_rate"].as_f64();
    if let Some(recorded) = rate(recorded) {
        let replayed = rate(&replayed["estimate"]).unwrap();
        assert!((replayed - recorded).abs() < 1e-9, "{replayed}, {recorded}");
    }
    let confined: u64 =
        replayed["areas"].as_array().unwrap().iter().filter_map(|a| a["confined"].as_u64()).sum();
    assert_eq!(replayed["rocs"]["confined"].as_u64(), Some(confined));
}

#[test]
fn errors_are_one_line() {
    let Some(_turn) = common::live("record: errors") else { return };
    let gone = common::huepage(&["record", "2147483646"]);
    assert_eq!(gone.status.code(), Some(102), "{gone:?}");
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let idle = common::huepage(&["record", "--seconds", "0.3", &pid]);
    let nowhere = common::huepage(&["record", "--output", "/nowhere/f", &pid]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(idle.status.code(), Some(110), "{idle:?}");
    assert_eq!(nowhere.status.code(), Some(112), "{nowhere:?}");
    for output in [gone, idle, nowhere] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
