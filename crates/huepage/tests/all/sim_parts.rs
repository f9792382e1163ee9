//! `huepage sim` on parts of a trace: windows that add up to the whole run on any machine, samples
//! and what they say of the whole, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// Accesses of the trace: three blocks.
const ACCESSES: u64 = 150_000;

fn machine(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(format!("{name}.toml"))
}

fn huepage() -> Command {
    let mut command = Command::cargo_bin("huepage").expect("built");
    command.env("NO_COLOR", "1");
    command
}

/// A trace with a stream, a hot set that moves, and random accesses.
fn trace() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a directory");
    let (text, trace) = (dir.path().join("p.din"), dir.path().join("p.trace"));
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let line = |i: u64| {
        let address = match random(4) {
            0 => i * 8,
            1 => 0x4000_0000 + random(1 << 22),
            _ => 0x8000_0000 + (i / 40_000) * 8192 + random(1 << 14),
        };
        format!("{} {address:x}\n", random(3))
    };
    fs::write(&text, (0..ACCESSES).map(line).collect::<String>()).expect("written");
    let import = ["trace", "import", "--format", "din"];
    huepage().args(import).arg(&text).arg("-o").arg(&trace).assert().success();
    (dir, trace)
}

fn sim(machine_name: &str, trace: &Path, more: &[&str]) -> String {
    let mut command = huepage();
    command.arg("sim").arg("-m").arg(machine(machine_name)).arg(trace).args(more);
    let assert = command.assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("one line of JSON")
}

/// One line on standard error that names a way out.
fn refused(arguments: &[&str]) -> String {
    let assert = huepage().arg("sim").args(arguments).assert().failure();
    let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

/// The files of all windows, each in one of its own.
fn windows(dir: &Path, machine: &str, trace: &Path, parts: u64, more: &[&str]) -> Vec<PathBuf> {
    let window = |number: u64| {
        let file = dir.join(format!("{number}.jsonl"));
        let window = format!("{number}/{parts}");
        let mut words = vec!["--json", "--warm-up", "all", "--window", &window];
        words.extend(more);
        fs::write(&file, sim(machine, trace, &words)).expect("written");
        file
    };
    (1..=parts).map(window).collect()
}

fn merged(files: &[PathBuf]) -> String {
    let assert = huepage().args(["sim", "merge"]).args(files).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("text")
}

/// Plain, sliced with prefetchers, with write buffers that know the time, with TLBs that software
/// fills, and under a policy.
#[test]
fn fully_warmed_windows_add_up_to_the_whole_run() {
    let (dir, trace) = trace();
    let runs: [(&str, &[&str]); 5] = [
        ("cascade-lake-like", &[]),
        ("cascade-lake", &["--level", "2", "--colors", "0-3"]),
        ("alpha-3000-500", &[]),
        ("romer-tlb", &[]),
        ("core-i7-860", &["--policy", "approx-online"]),
    ];
    for (machine, more) in runs {
        let whole = sim(machine, &trace, &[&["--json"], more].concat());
        let mut files = windows(dir.path(), machine, &trace, 3, more);
        files.rotate_left(1);
        assert_eq!(merged(&files), whole, "{machine} {more:?}");
        let mut one = json(&sim(machine, &trace, &[&["--json", "--window", "1/1"], more].concat()));
        assert!(one.as_object_mut().expect("a row").remove("part").is_some());
        assert_eq!(one, json(&whole), "{machine}: the only window");
    }
}

#[test]
fn windows_of_a_sweep_are_added_by_point_and_none_may_lack() {
    let (dir, trace) = trace();
    let sweep = ["--level", "2", "--sweep", "colors=1..2"];
    let files = windows(dir.path(), "cascade-lake-like", &trace, 2, &sweep);
    let whole = sim("cascade-lake-like", &trace, &[&["--json"], &sweep[..]].concat());
    assert_eq!(merged(&files), whole);
    let name = |at: usize| files[at].to_str().expect("a name");
    let lacking = refused(&["merge", name(0)]);
    assert!(lacking.contains("window 2/2 of point 0 is missing; run it"), "{lacking}");
    let twice = refused(&["merge", name(0), name(1), name(1)]);
    assert!(twice.contains("window 2/2 of point 0 is given twice"), "{twice}");
    let other = dir.path().join("other.jsonl");
    let row = sim("core-i7-860", &trace, &["--json", "--window", "2/2", "--warm-up", "all"]);
    fs::write(&other, row).expect("written");
    let mixed = refused(&["merge", name(0), other.to_str().expect("a name")]);
    assert!(mixed.contains("\"Core i7 860\"; merge those of one run"), "{mixed}");
}

#[test]
fn windows_of_another_trace_or_point_are_not_added() {
    let (dir, trace) = trace();
    let write = |name: &str, more: &[&str]| {
        let file = dir.path().join(name);
        let warm = ["--json", "--warm-up", "0", "--level", "2"];
        fs::write(&file, sim("cascade-lake-like", &trace, &[&warm, more].concat()))
            .expect("written");
        file.to_str().expect("a name").to_owned()
    };
    let first = write("1", &["--window", "1/2"]);
    let shorter = write("2", &["--window", "2/2", "--limit", "1000"]);
    let confined = write("3", &["--window", "2/2", "--sweep", "colors=3"]);
    for (other, part) in [(shorter, "a trace of 1000 accesses; merge"), (confined, "colors=3")] {
        let said = refused(&["merge", &first, &other]);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_window_counts_its_accesses_only_and_tells_its_error() {
    let (_dir, trace) = trace();
    let more = ["--window", "2/5", "--warm-up", "1000", "--against-whole", "--json"];
    let row = json(&sim("cascade-lake-like", &trace, &more));
    assert_eq!(row["report"]["spaces"][0]["accesses"], ACCESSES / 5);
    let part = &row["part"];
    assert_eq!((&part["first"], &part["of"]), (&(ACCESSES / 5).into(), &ACCESSES.into()));
    assert_eq!((&part["accesses"], &part["warm_up"]), (&(ACCESSES / 5).into(), &1000.into()));
    let whole = json(&sim("cascade-lake-like", &trace, &["--json"]));
    let sum = |value: &Value| -> f64 {
        value.as_object().expect("kinds").values().filter_map(Value::as_f64).sum()
    };
    let l1 = &whole["report"]["caches"][0];
    let truth = sum(&l1["misses"]) / sum(&l1["accesses"]);
    let figure = &part["figures"][0];
    assert_eq!(figure["name"], "L1 data cache miss rate");
    assert_eq!(figure["whole"], truth);
    let error = figure["rate"].as_f64().expect("a rate") / truth - 1.0;
    assert_eq!(figure["error"], error);
    assert!(error.abs() > 1e-6 && figure["interval"].is_null(), "{figure}");
}

#[test]
fn a_sample_of_a_warm_machine_holds_the_whole_in_its_intervals() {
    let (_dir, trace) = trace();
    let more = ["--sample", "30:1000", "--warm-up", "all", "--against-whole", "--json"];
    let row = json(&sim("cascade-lake-like", &trace, &more));
    assert_eq!(row["report"]["spaces"][0]["accesses"], 30_000);
    let figures = row["part"]["figures"].as_array().expect("figures");
    assert!(figures.iter().any(|figure| figure["name"] == "cycles per access"), "{figures:?}");
    let of = |figure: &Value, key: &str| figure[key].as_f64().expect("a number");
    // One in twenty may lie outside; none of these does.
    for figure in figures {
        let apart = (of(figure, "rate") - of(figure, "whole")).abs();
        assert!(apart <= of(figure, "interval"), "{figure}");
    }
    // With next to nothing to warm up, the farther caches are nearly empty: no interval shows that.
    let cold = ["--sample", "30:1000", "--warm-up", "0", "--against-whole"];
    let text = sim("cascade-lake-like", &trace, &cold);
    assert!(text.starts_with("sample 30:1000: 30000 of 150000 accesses counted, 0 to warm up\n"));
    for part in ["95 % interval", "± ", "cycles per access", "L2 unified cache miss rate"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let csv = sim("cascade-lake-like", &trace, &[&cold[..4], &["--csv"]].concat());
    assert!(csv.contains("part.figures.cycles_per_access.interval"), "{csv}");
}

#[test]
fn what_cannot_be_parted_says_what_to_do() {
    let (dir, trace) = trace();
    let trace = trace.to_str().expect("a name");
    let text = dir.path().join("p.din");
    let text = text.to_str().expect("a name");
    let machine = machine("cascade-lake-like");
    let machine = machine.to_str().expect("a name");
    let cases: [(&[&str], &str); 7] = [
        (&[text, "--window", "1/2"], "take it over first: `huepage trace import`"),
        (&[trace, trace, "--window", "1/2"], "of one trace; name one"),
        (&["-w", "gups:size=1M", "--sample", "20"], "of one trace; name one"),
        (&[trace, "--sample", "20:10000"], "ask for fewer or shorter ones"),
        (&[trace, "--window", "1/2", "--heat", "pages"], "leave out --window"),
        (&[trace, "--against-whole"], "name one with --window or --sample"),
        (&["nowhere.trace", "--window", "1/2"], "name a trace that can be read"),
    ];
    for (words, part) in cases {
        let said = refused(&[&["-m", machine], words].concat());
        assert!(said.contains(part), "{part} in {said}");
    }
}
