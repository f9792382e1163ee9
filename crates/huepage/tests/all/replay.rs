//! `huepage replay` on recordings made by hand: which policies take which, what they are refused with,
//! and that its rows stand beside those of `huepage sim`. No process is watched; what is recorded of one is in
//! `live_record` and `live_record_touches`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const CACHE: [&str; 4] = ["--cache", "512K", "--ways", "8"];

fn huepage(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_huepage")).args(args).output().unwrap()
}

fn replay(args: &[&str]) -> Output {
    huepage(&[&["replay"], &CACHE[..], args].concat())
}

/// What it prints, which is for a program.
fn json(args: &[&str]) -> Value {
    let output = replay(&[&["--json"], args].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(args: &[&str]) -> String {
    let output = replay(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why it ends, in one line, with the status of a file of another form.
fn refused(args: &[&str]) -> String {
    let output = replay(args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(112), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Recordings in a directory that is removed.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Accessed bits of 64 full blocks of which half is touched in each look: far more than the TLB holds.
fn touches() -> String {
    let blocks: Vec<String> = (0..64).map(|at| format!("[{},512,0,false]", 4096 + at)).collect();
    let touched: Vec<String> = (0..128).step_by(2).map(|page: u32| page.to_string()).collect();
    let mut text = String::from(
        r#"{"huepage_recording":1,"sensor":"accessed-bits","pid":7,"tlb":{"entries":1024,"walk_ns":30},"areas":[{"start":8589934592,"end":8724152320,"kind":"anonymous","name":""}]}"#,
    );
    let _ = write!(
        text,
        "\n{{\"survey\":0.1,\"resident\":32768,\"blocks\":[{}],\"gone\":[]}}\n",
        blocks.join(",")
    );
    for second in 1..=4 {
        let group = |at: u32| {
            format!(
                r#"{{"block":{},"pages":128,"resident":512,"stands_for":0.5,"touched":[{}],"late":[]}}"#,
                4096 + at,
                touched.join(",")
            )
        };
        let groups: Vec<String> = (0..64).map(group).collect();
        let _ = writeln!(
            text,
            r#"{{"at":{second}.0,"cpu":{second}.0,"window_ns":10000000,"slow":false,"groups":[{}]}}"#,
            groups.join(",")
        );
    }
    text + r#"{"end":{"looks":4,"pages":32768,"touched":16384,"samples":0,"lost":0,"unusable":0,"seconds":4.5,"cpu_seconds":0.01,"ended":false}}"#
        + "\n"
}

/// Looks at 200 pages, of which every `every`th is found; those in use with their colours.
fn looks(every: u64, in_use: bool) -> String {
    let pages: Vec<String> = (16..216_u64).map(|page| page.to_string()).collect();
    let colors: Vec<String> = (0..200).map(|page| (page % 16).to_string()).collect();
    let own = format!(r#","in_use":{{"colors":16,"ways":8,"of":[{}]}}"#, colors.join(","));
    let mut text = format!(
        r#"{{"huepage_recording":1,"sensor":"residency","pid":9,"cache_bytes":524288,"areas":[{{"start":65536,"end":884736,"kind":"heap","name":"[heap]","resident":200,"pages":[{}]}}]{}}}"#,
        pages.join(","),
        if in_use { own.as_str() } else { "" }
    );
    for at in 1..=100_u64 {
        let seen = (0..50).map(|n| 16 + (at * 50 + n) % 200);
        let (found, missed): (Vec<u64>, Vec<u64>) = seen.partition(|page| page % every == 0);
        let _ = write!(text, "\n{{\"at\":{}.5,\"found\":{found:?},\"missed\":{missed:?}}}", at / 5);
    }
    text + "\n"
}

const LOADS: &str = r#"{"huepage_recording":1,"sensor":"pmu","pid":7,"tlb":{"entries":64,"walk_ns":12},"samples":{"event":"loads","source":"loads by PEBS","period":0,"level":2},"areas":[]}
{"at":0.2,"cpu":1.0,"missed":[512,513],"hit":[7]}
"#;

const FAULTS: &str = r#"{"huepage_recording":1,"sensor":"pmu","pid":7,"tlb":{"entries":64,"walk_ns":12},"samples":{"event":"page-faults","source":"page faults","period":1},"areas":[]}
{"survey":0.1,"resident":600,"blocks":[[4096,512,0,false],[4097,88,0,false]],"gone":[]}
{"at":0.2,"cpu":1.0,"missed":[512,513]}
"#;

#[test]
fn superpage_policies_stand_side_by_side() {
    let files = Files::new();
    let file = files.write("touches.jsonl", &touches());
    let policies = [
        "--policy",
        "approx-online",
        "--policy",
        "throttle",
        "--policy",
        "online",
        "--policy",
        "asap",
    ];
    let found = json(&[&policies[..], &[&file]].concat());
    assert_eq!((&found["sensor"], &found["looks"]), (&"accessed-bits".into(), &4.into()));
    assert_eq!((&found["pages"], &found["touched"]), (&32768.into(), &16384.into()));
    assert_eq!(found["areas"][0]["touched"], 16384);
    let rows = found["policies"].as_array().unwrap();
    let names: Vec<&str> =
        rows.iter().map(|r| r["parameters"][0]["value"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "approx-online", "throttle", "online", "asap"]);
    let walks = |row: &Value| row["report"]["walks"].as_u64().unwrap();
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["point"], number);
        let space = &row["report"]["spaces"][0];
        assert_eq!(space["promotions"], if number == 0 { 0 } else { 64 }, "{row}");
        assert_eq!((&space["pages"], &space["memory_overhead"]), (&32768.into(), &0.0.into()));
        assert!(number == 0 || walks(row) < walks(&rows[0]) / 2, "{row}");
    }
    let said = text(&[&policies[..], &[&file]].concat());
    assert!(said.contains("asap would build 64 superpages"), "{said}");
    let head = said.lines().find(|line| line.starts_with("policy")).unwrap();
    for column in ["pages", "TLB misses", "promoted", "refused", "memory overhead"] {
        assert!(head.contains(column), "{said}");
    }
    assert!(!head.contains("recolored") && !head.contains("space "), "{said}");
    let usual = json(&[&file]);
    assert_eq!(usual["policies"][1], rows[1], "approx-online when nothing is said");
    let dear = json(&["--policy", "approx-online:prefetch=1", &file]);
    assert_eq!(dear["policies"][1]["parameters"][0]["value"], "approx-online:prefetch=1");
    assert!(walks(&dear["policies"][1]) > walks(&rows[1]), "it waits longer");
}

#[test]
fn a_policy_is_refused_what_it_cannot_go_by_and_told_the_sensor() {
    let files = Files::new();
    let bits = files.write("bits", &touches());
    let residency = files.write("residency", &looks(2, false));
    let in_use = files.write("in_use", &looks(2, true));
    let (loads, faults) = (files.write("loads", LOADS), files.write("faults", FAULTS));
    for (policy, file, sensor) in [
        ("rocs", &bits, "--sensor residency"),
        ("rocs", &faults, "--sensor pmu --event loads"),
        ("rocs", &in_use, "without --in-use"),
        ("coloris", &bits, "--sensor residency"),
        ("utility", &loads, "--sensor residency"),
        ("utility", &in_use, "without --in-use"),
        ("snapshot-in-use", &bits, "--sensor residency --in-use"),
        ("snapshot-in-use", &residency, "--sensor residency --in-use"),
        ("approx-online", &residency, "--sensor accessed-bits"),
        ("throttle", &loads, "--sensor accessed-bits"),
        ("online", &faults, "--sensor pmu --event tlb-misses"),
        ("asap", &residency, "--sensor accessed-bits"),
    ] {
        let said = refused(&["--policy", policy, file]);
        assert!(
            said.contains(&format!("{policy} goes by")) && said.contains("record with"),
            "{said}"
        );
        assert!(said.contains(sensor) && said.contains(file.as_str()), "{said}");
    }
    assert!(refused(&["--heat", "pages", &bits]).contains("--sensor residency"));
}

/// The thesis's policies of conflicts hear of pages in use as live, and those of superpages of blocks.
#[test]
fn the_papers_policies_are_replayed_as_live() {
    let files = Files::new();
    let (in_use, bits) = (files.write("in_use", &looks(2, true)), files.write("bits", &touches()));
    for policy in ["active-naive", "periodic-color", "snapshot-miss", "snapshot-fit"] {
        let found = json(&["--policy", policy, &in_use]);
        assert_eq!(found["policies"][1]["parameters"][0]["value"], policy, "{found:#}");
    }
    for policy in ["fixed:order=9", "hybrid:order=9", "throttle-strict"] {
        let found = json(&["--policy", policy, &bits]);
        let promotions = &found["policies"][1]["report"]["spaces"][0]["promotions"];
        assert!(promotions.as_u64() > Some(0), "{policy}: {found:#}");
    }
    for (policy, why) in
        [("cml", "look-aside buffer"), ("fixed", "64 KiB"), ("offline", "beforehand")]
    {
        let output = replay(&["--policy", policy, &in_use]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{policy}: {said}");
    }
}

#[test]
fn every_recording_has_its_usual_policy() {
    let files = Files::new();
    for (name, recording, policy) in [
        ("residency", looks(2, false), "rocs"),
        ("in_use", looks(2, true), "snapshot-in-use"),
        ("loads", LOADS.to_owned(), "rocs"),
        ("faults", FAULTS.to_owned(), "asap"),
    ] {
        let file = files.write(name, &recording);
        let found = json(&[&file]);
        let row = &found["policies"][1];
        assert_eq!(row["parameters"][0]["value"], policy, "{found:#}");
        let none = json(&["--policy", "none", &file]);
        assert_eq!(none["policies"].as_array().unwrap().len(), 1);
        assert!(text(&[&file]).contains("was cut short"), "{name}");
    }
    let faults = json(&[&files.write("faults", FAULTS)]);
    assert_eq!(faults["policies"][1]["report"]["spaces"][0]["promotions"], 1, "one block is full");
    assert_eq!(faults["policies"][1]["report"]["walks"], Value::Null);
}

#[test]
fn several_recordings_are_groups_that_divide_a_cache() {
    let files = Files::new();
    let some = files.write("some", &looks(2, false));
    let none = files.write("none", &looks(1000, false));
    let found = json(&["--policy", "utility", "--policy", "coloris", &some, &none]);
    assert_eq!(found["recordings"].as_array().unwrap().len(), 2);
    let rows = found["policies"].as_array().unwrap();
    let divided = |row: &&Value| row["report"]["spaces"].as_array().unwrap().len() == 2;
    let names: Vec<&Value> =
        rows.iter().filter(divided).map(|r| &r["parameters"][0]["value"]).collect();
    assert_eq!(names, ["utility", "coloris"]);
    for row in rows.iter().filter(divided) {
        for (number, space) in row["report"]["spaces"].as_array().unwrap().iter().enumerate() {
            assert_eq!(space["space"], number);
            assert!((0.0..=1.0).contains(&space["miss_rate"].as_f64().unwrap()), "{row}");
            assert!(!space["colors"].as_str().unwrap().is_empty(), "{row}");
        }
    }
    let said = text(&["--policy", "utility", &some, &none]);
    assert!(said.contains("utility would change") && said.contains("colours"), "{said}");
    let crowd: Vec<&str> = [some.as_str()].repeat(17);
    let output = replay(&[&["--policy", "utility"], &crowd[..]].concat());
    assert_eq!(output.status.code(), Some(104), "{output:?}");
}

/// The machines of the repository.
fn machine() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cascade-lake.toml");
    root.to_str().unwrap().to_owned()
}

#[test]
fn rows_stand_beside_those_of_the_simulator() {
    let files = Files::new();
    let file = files.write("touches", &touches());
    let rows = replay(&["--rows", "--point", "1", &file]);
    assert!(rows.status.success(), "{rows:?}");
    let replayed = files.write("replayed.jsonl", std::str::from_utf8(&rows.stdout).unwrap());
    let run = huepage(&[
        "sim",
        "-m",
        &machine(),
        "--workload",
        "art:size=64K",
        "--limit",
        "20000",
        "--json",
    ]);
    assert!(run.status.success(), "{run:?}");
    let simulated = files.write("simulated.jsonl", std::str::from_utf8(&run.stdout).unwrap());
    let merged = huepage(&["sim", "merge", &simulated, &replayed, "--csv"]);
    assert!(merged.status.success(), "{merged:?}");
    let merged = String::from_utf8(merged.stdout).unwrap();
    let lines: Vec<Vec<&str>> = merged.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 4, "a head, a run, two policies: {merged}");
    let cell = |line: usize, column: &str| {
        let at = lines[0].iter().position(|name| *name == column);
        lines[line][at.unwrap_or_else(|| panic!("no {column} in {:?}", lines[0]))]
    };
    for column in ["walks", "spaces.0.pages", "spaces.0.promotions", "spaces.0.memory_overhead"] {
        for line in 1..=3 {
            assert!(cell(line, column).parse::<f64>().is_ok(), "{column} of {line}: {merged}");
        }
    }
    assert_eq!((cell(2, "policy"), cell(3, "policy")), ("none", "approx-online"));
    let csv = text(&["--csv", &file]);
    assert!(csv.starts_with("point,policy,machine,sensor,"), "{csv}");
    assert!(csv.contains(",spaces.0.memory_overhead"), "{csv}");
}

#[test]
fn looks_are_drawn_as_the_simulator_draws_accesses() {
    let files = Files::new();
    let file = files.write("looks", &looks(2, false));
    let drawn = text(&["--heat", "accesses", &file]);
    assert!(drawn.contains("accesses per page") && drawn.contains("200 of 200 pages"), "{drawn}");
    assert!(text(&["--heat", "pages", &file]).contains("cache misses per page"));
}

#[test]
fn damaged_recordings_are_refused_in_one_line() {
    let files = Files::new();
    let whole = touches();
    let cut = files.write("cut", &whole[..whole.len() - 300]);
    assert_eq!(
        json(&[&cut])["totals"],
        Value::Null,
        "half a line is left by a recorder that was killed"
    );
    let bad = whole.replace("\"pages\":128", "\"pages\":9");
    let said = refused(&[&files.write("bad", &bad)]);
    assert!(said.contains("line 3: ") && said.contains("record again"), "{said}");
    let other = whole.replace("accessed-bits", "tea leaves");
    assert!(refused(&[&files.write("other", &other)]).contains("sensor `tea leaves`"));
    assert!(refused(&[&files.write("empty", "")]).contains("is empty"));
    assert!(refused(&["/nowhere/recording"]).contains("name a recording"));
}
