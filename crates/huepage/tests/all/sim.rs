//! `huepage sim` from the command line: tables, sweeps, shards, and what it says of bad input.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

fn machine(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name)
}

fn sim() -> Command {
    let mut command = Command::cargo_bin("huepage").expect("built");
    command.arg("sim").env("NO_COLOR", "1");
    command
}

fn output(command: &mut Command) -> String {
    let assert = command.assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("text")
}

/// One line on standard error, and the status.
fn refused(arguments: &[&str]) -> (String, i32) {
    let assert = sim().args(arguments).assert().failure();
    let output = assert.get_output();
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    (text, output.status.code().unwrap_or(-1))
}

const SWEEP: [&str; 8] =
    ["-w", "gups:size=1M", "--limit", "200000", "--level", "2", "--sweep", "colors=1..5"];

fn sweep(more: &[&str]) -> String {
    output(sim().arg("-m").arg(machine("cascade-lake-like.toml")).args(SWEEP).args(more))
}

#[test]
fn one_run_prints_levels_programs_and_colours() {
    let text = output(sim().arg("-m").arg(machine("cascade-lake-like.toml")).args([
        "-w",
        "gups:size=1M",
        "--limit",
        "300000",
        "--level",
        "2",
        "--colors",
        "0-3",
    ]));
    for part in ["L1 data cache", "L2 unified TLB", "TLB MCPI", "L2 misses by colour"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let marks = text.lines().last().expect("a heat map");
    let colors: String = marks.chars().filter(|c| " ░▒▓█".contains(*c)).collect();
    assert!(colors.trim_end().chars().count() > 4, "{marks}");
    assert!(colors.ends_with("            "), "twelve colours without a miss: {marks}");
}

#[test]
fn threads_give_what_one_gives_or_say_why_one_runs_it() {
    let run = |more: &[&str]| {
        let arguments = ["-w", "art:size=512K", "--limit", "300000", "--json"];
        sim()
            .arg("-m")
            .arg(machine("core-i7-860.toml"))
            .args(arguments)
            .args(more)
            .output()
            .unwrap()
    };
    let (one, three) = (run(&[]), run(&["--threads", "3"]));
    assert!(one.status.success() && three.status.success());
    assert!(three.stderr.is_empty(), "{}", String::from_utf8_lossy(&three.stderr));
    assert_eq!(one.stdout, three.stdout);
    let two_programs = run(&["-w", "swim", "--threads", "2"]);
    let said = String::from_utf8_lossy(&two_programs.stderr).into_owned();
    assert!(said.contains("one thread runs this: which program"), "{said}");
    assert_eq!(two_programs.stdout, run(&["-w", "swim"]).stdout);
}

#[test]
fn superpages_in_vain_are_told() {
    let told = |name: &str, policy: &str| {
        let mut command = sim();
        command.arg("-m").arg(machine(name)).args(["-w", "gups:size=1M,rounds=1", "--json"]);
        let assert = command.args(["--limit", "9999", "--policy", policy]).assert().success();
        String::from_utf8(assert.get_output().stderr.clone()).expect("text")
    };
    assert!(told("cascade-lake-like.toml", "approx-online").contains("keeps superpages"));
    assert_eq!(told("romer-tlb.toml", "approx-online"), "");
    assert_eq!(told("cascade-lake-like.toml", "combined"), "");
}

#[test]
fn fewer_colours_miss_more_and_each_point_is_a_line() {
    let text = sweep(&["--json"]);
    let rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row["schema"] == 1), "{text}");
    let misses: Vec<u64> = rows
        .iter()
        .map(|row| row["report"]["caches"][1]["misses"].as_object().expect("kinds"))
        .map(|kinds| kinds.values().filter_map(Value::as_u64).sum())
        .collect();
    assert!(misses.windows(2).all(|pair| pair[0] > pair[1]), "{misses:?}");
}

#[test]
fn the_parts_of_a_sweep_put_together_are_the_whole() {
    let dir = TempDir::new().expect("a directory");
    let mut files = Vec::new();
    for part in ["3/3", "1/3", "2/3"] {
        let file = dir.path().join(part.replace('/', "-"));
        fs::write(&file, sweep(&["--json", "--shard", part])).expect("written");
        files.push(file);
    }
    assert_eq!(output(sim().arg("merge").args(&files)), sweep(&["--json"]));
    assert_eq!(output(sim().arg("merge").arg("--csv").args(&files)), sweep(&["--csv"]));
    let twice = sim().arg("merge").args([&files[0], &files[0]]).assert().failure();
    let said = String::from_utf8_lossy(&twice.get_output().stderr).into_owned();
    assert!(said.contains("in two of the files"), "{said}");
}

#[test]
fn a_recorded_trace_counts_every_access() {
    let dir = TempDir::new().expect("a directory");
    let (text, trace) = (dir.path().join("t.din"), dir.path().join("t.trace"));
    let lines: String = (0..5000).map(|i| format!("{} {:x}\n", i % 2, i * 64)).collect();
    fs::write(&text, lines).expect("written");
    let import = ["trace", "import", "--format", "din"];
    let mut command = Command::cargo_bin("huepage").expect("built");
    command.args(import).arg(&text).arg("-o").arg(&trace).assert().success();
    for file in [&text, &trace] {
        let mut command = sim();
        command.arg("-m").arg(machine("core-i7-860.toml")).arg(file).arg("--json");
        let row: Value = serde_json::from_str(&output(&mut command)).expect("JSON");
        let space = &row["report"]["spaces"][0];
        assert_eq!(space["accesses"], 5000, "{space}");
        assert_eq!(space["pages"], 79);
    }
}

#[test]
fn help_has_examples_and_every_way_out() {
    let help = output(sim().arg("--help"));
    // As wide as the terminal is: a phrase may go over two lines.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["Examples:", "--csv", "--svg", "--heat", "--resume", "128 and the signal"] {
        assert!(help.contains(part), "{part} in {help}");
    }
    let help = output(sim().args(["merge", "--help"]));
    for part in ["Examples:", "huepage sim merge", "--csv"] {
        assert!(help.contains(part), "{part} in {help}");
    }
}

#[test]
fn heat_maps_are_plain_text_in_a_pipe_and_drawings_in_a_file() {
    let dir = TempDir::new().expect("a directory");
    let [svg, html] = ["heat.svg", "heat.html"].map(|name| dir.path().join(name));
    let run = |more: &[&str]| {
        let mut command = sim();
        command.env_remove("NO_COLOR").arg("-m").arg(machine("cascade-lake-like.toml"));
        command.args(["-w", "gups:size=1M", "--limit", "200000", "--level", "2"]).args(more);
        let text = output(command.arg("--svg").arg(&svg).arg("--html").arg(&html));
        assert!(!text.contains('\x1b'), "{text}");
        let drawing = fs::read_to_string(&svg).expect("a drawing");
        let page = fs::read_to_string(&html).expect("a page");
        let printed = text.lines().next().expect("a table");
        assert!(page.contains(&drawing) && page.contains(printed), "{page}");
        (text, drawing)
    };
    let (text, drawing) = run(&["--heat", "pages"]);
    crate::common::browser::draws(&html, 1);
    let line = text.lines().last().expect("a region");
    assert!(
        text.contains("L2 misses per page") && line.ends_with("256 of 256 pages, 4 a mark"),
        "{text}"
    );
    assert!(drawing.contains("L2 misses per page") && drawing.contains(&line[..11]), "{drawing}");
    // 64 marks, and so many squares besides the page's own and those of the bar of shades.
    assert_eq!(drawing.matches("<rect").count(), 64 + 1 + 32);
    let (text, _) = run(&["--heat", "accesses"]);
    assert!(text.contains("accesses per page"), "{text}");
    let (text, drawing) = run(&["--sweep", "colors=1..3"]);
    for line in ["colors=1 |█               |", "colors=3 |▒▒▒             |"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(drawing.contains("L2 misses") && drawing.contains("colors"), "{drawing}");
    assert_eq!(drawing.matches("<circle").count(), 3, "misses against colours");
    let heading = text.lines().next().expect("a table");
    assert!(heading.contains("L2 misses") && !heading.contains("L3 misses"), "what varies: {text}");
    let same = text.lines().find(|line| line.starts_with("the same in all: ")).expect("the rest");
    assert!(same.contains("L3 misses ") && !same.contains("L2 misses"), "{same}");
}

#[test]
fn bad_arguments_end_with_2_and_bad_files_with_112_in_one_line() {
    let dir = TempDir::new().expect("a directory");
    let broken = dir.path().join("broken.toml");
    fs::write(&broken, "name = \"x\"\nmemory = \"1G\"\nmemory_latency = 1\nways = 3\n")
        .expect("written");
    let broken = broken.to_string_lossy().into_owned();
    let sound = machine("cascade-lake-like.toml").to_string_lossy().into_owned();
    let nowhere = ["-m", &sound, "-w", "gups", "--limit", "9", "--svg", "/no/such/x.svg"];
    let noise = dir.path().join("noise");
    fs::write(&noise, [0x9c; 4096]).expect("written");
    let noise = noise.to_string_lossy().into_owned();
    let too_many = ["-m", &sound, "-w", "gups", "--sweep", "colors=1..400"];
    let of_the_l2 = [&too_many[..], &["--level", "2"]].concat();
    let seeds = ["-m", &sound, "-w", "gups", "--sweep", "seed=1,2"];
    let in_order = [&seeds[..], &["--mapping", "in-order"]].concat();
    // Its TLBs take superpages: nothing else is to be said.
    let reserved =
        ["-m", "cascade-lake", "-w", "gups", "--policy", "hybrid:order=4", "--sweep", "seed=1"];
    let twice = [&seeds[..], &["--sweep", "seed=3"]].concat();
    let both = ["-m", &sound, "-w", "gups", "--sweep", "colors=1,2", "--colors", "0-3"];
    let cases: [(&[&str], &str); 14] = [
        (&in_order, "give --mapping random"),
        (&reserved, "give --mapping random"),
        (&twice, "seed is given twice; give all values at once"),
        (&both, "leave it out, or --colors"),
        (&too_many, "at most colors=1..256"),
        (&of_the_l2, "at most colors=1..16"),
        (&["-m", &sound, "-w", "gups", "--heat", "pages", "--sweep", "seed=1,2"], "--sweep"),
        (&["-m", &sound, "-w", "gups", "--sweep", "seed=1,2", "--resume", "/no/x"], "/no/x"),
        (&nowhere, "/no/such/x.svg"),
        (&["-m", &sound], "nothing to run"),
        (&["-m", &sound, "-w", "gups", "--colors", "0-999"], "999"),
        (&["-m", &sound, "-w", "gups", "--level", "7"], "level 7"),
        (&["-m", &sound, "-w", "gups", "--sweep", "l2.size=1000"], "L2 unified cache"),
        (&["-m", &sound, "-w", "gups", "--sweep", "flavour=1"], "flavour"),
    ];
    let files: [(&[&str], &str); 7] = [
        (&["-m", &noise, "-w", "gups"], "--machine takes a machine file"),
        (&["-m", &sound, &noise], "huepage trace import --format"),
        (&["-m", &sound, "-w", "gups", "--sweep", "seed=1,2", "--resume", &sound], "line 1"),
        (&["merge", "/no/such.jsonl"], "/no/such.jsonl"),
        (&["-m", "/no/such.toml", "-w", "art"], "/no/such.toml"),
        (&["-m", &broken, "-w", "art"], "line 4"),
        (&["-m", &sound, "/no/such.trace"], "/no/such.trace"),
    ];
    let expected = cases.map(|case| (case, 2)).into_iter().chain(files.map(|case| (case, 112)));
    for ((arguments, part), wanted) in expected {
        let (text, status) = refused(arguments);
        assert!(text.contains(part), "{part} in {text}");
        assert_eq!(status, wanted, "{text}");
    }
}

/// A bound that holds half of the files: JSON says how often they were found, the table too. A
/// second run of the same program finds what the first one read.
#[test]
fn files_go_through_the_page_cache() {
    let folder = TempDir::new().expect("a folder");
    let text = fs::read_to_string(machine("core-i7-860.toml")).expect("shipped");
    let file = folder.path().join("m.toml");
    let key = "\npage_cache = { size = \"64M\", miss_latency = 100000 }\n\n[[cache]]";
    fs::write(&file, text.replacen("\n\n[[cache]]", key, 1)).expect("written");
    let run = |workloads: &[&str], more: &[&str]| {
        output(sim().arg("-m").arg(&file).args(workloads).args(more))
    };
    let one = ["-w", "grep:size=1M,rounds=2"];
    let table = run(&one, &[]);
    assert!(table.contains("file hits") && table.contains("50.00 %"), "{table}");
    let rows: Value = serde_json::from_str(&run(&one, &["--json"])).expect("JSON");
    let program = &rows["report"]["spaces"][0];
    assert_eq!(program["file_hit_ratio"], 0.5, "the second round finds all");
    let misses = program["file_misses"].as_u64().expect("a count");
    assert_eq!(program["file_cycles"], misses * 100_000);
    assert_eq!(rows["report"]["page_cache"]["pages"], misses);
    let twice = run(&[one, one].concat(), &["--json"]);
    let rows: Value = serde_json::from_str(&twice).expect("JSON");
    let all = rows["report"]["spaces"].as_array().expect("programs").iter();
    let sum: u64 = all.map(|s| s["file_misses"].as_u64().expect("a count")).sum();
    assert_eq!(sum, misses, "both have the same files");
    let other =
        run(&["-w", "grep:size=1M,rounds=1", "-w", "grep:size=1M,rounds=1,seed=9"], &["--json"]);
    let rows: Value = serde_json::from_str(&other).expect("JSON");
    let mut all = rows["report"]["spaces"].as_array().expect("programs").iter();
    assert!(all.all(|s| s["file_hits"] == 0), "files of their own");
}

/// So many accesses of a walk by chance over 1 MiB, on a machine with colours and a TLB of software.
fn under(policy: &str, limit: &str, more: &[&str]) -> Value {
    let machine = machine("romer-tlb.toml");
    let base = ["-w", "gups:size=1M", "--limit", limit, "--json", "--policy", policy];
    let text = output(sim().arg("-m").arg(machine).args(base).args(more));
    serde_json::from_str(text.trim()).expect("a row")
}

fn cost(row: &Value, key: &str) -> u64 {
    let costs = &row["report"]["spaces"][0];
    costs[key].as_u64().unwrap_or_else(|| panic!("{key} in {costs}"))
}

#[test]
fn every_policy_runs_by_its_name() {
    let listing = output(sim().args(["--policy", "list"]));
    let lines = listing.lines().filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 16, "{listing}");
    for name in names {
        let row = under(name, "20000", &["--colors", "0-3"]);
        let named =
            (name != "none").then(|| serde_json::json!([{"name": "policy", "value": name}]));
        assert_eq!(row["parameters"], named.unwrap_or(serde_json::json!([])), "{name}");
        assert_eq!(cost(&row, "accesses"), 20_000, "{name}");
    }
}

#[test]
fn policies_act_and_their_keys_reach_them() {
    let run = |policy: &str, more: &[&str]| under(policy, "200000", more);
    let misses = |row: &Value| row["report"]["walks"].as_u64().expect("walks");
    let (plain, approx) = (run("none", &[]), run("approx-online", &[]));
    assert!(cost(&approx, "promotions") > 0 && misses(&approx) < misses(&plain));
    // The books of each miss: 100 cycles to 30 of the handler.
    assert_eq!(cost(&approx, "tlb_cycles"), 130 * misses(&approx));
    let never = run("approx-online:prefetch=1,per-kib=1G", &[]);
    assert_eq!((cost(&never, "promotions"), misses(&never)), (0, misses(&plain)));
    assert_eq!(cost(&run("offline", &[]), "promotions"), 0, "copies cost more than they save");
    let offline = run("offline:per-kib=10", &[]);
    assert!(cost(&offline, "promotions") > 0 && misses(&offline) < misses(&plain));
    assert_eq!(cost(&run("fixed:order=6", &[]), "promotions"), 4, "1 MiB in pages of 256 KiB");
    let moved = run("periodic-random:period=100k", &["--mapping", "coloring"]);
    assert!(cost(&moved, "recolorings") > 0);
    let kept = run("static:every=100k", &["--colors", "0-3"]);
    assert!(cost(&kept, "recolorings") > 0, "pages outside come in");
}

#[test]
fn a_mapping_that_is_asked_for_holds_under_a_policy_with_one_of_its_own() {
    let uneven = |more: &[&str]| {
        let row = under("srm", "300000", &[&["-w", "gups:size=3M"], more].concat());
        let pages = row["report"]["spaces"][0]["pages_by_color"].as_array().unwrap();
        let pages = pages.iter().map(|pages| pages.as_u64().unwrap());
        pages.clone().max().unwrap() - pages.min().unwrap()
    };
    assert!(uneven(&[]) <= 1, "in turns over all colours");
    assert!(uneven(&["--mapping", "random:1"]) > 4, "by chance");
}

#[test]
fn a_policy_that_divides_the_cache_gives_to_who_needs_it() {
    let machine = machine("xeon-e5506.toml");
    let base = ["-w", "gups:size=3M", "-w", "stream:size=64K", "--limit", "2000000", "--json"];
    let policy = "coloris:period=1M,least-requests=100,low=20%,high=40%";
    let run = |policy: &str| {
        let text = output(sim().arg("-m").arg(&machine).args(base).args(["--policy", policy]));
        serde_json::from_str::<Value>(text.trim()).expect("a row")
    };
    let colors = |row: &Value, at: usize| {
        let pages = row["report"]["spaces"][at]["pages_by_color"].as_array().cloned();
        pages.unwrap_or_default().iter().filter(|n| n.as_u64() > Some(0)).count()
    };
    let row = run(policy);
    let still = run("coloris:period=1M,low=0,high=1");
    assert!(colors(&row, 0) > colors(&still, 0), "{} {}", colors(&row, 0), colors(&still, 0));
}

#[test]
fn keys_of_a_policy_can_be_swept_and_are_listed() {
    let text = output(sim().arg("-m").arg(machine("romer-tlb.toml")).args([
        "-w",
        "gups:size=1M",
        "--limit",
        "50000",
        "--policy",
        "approx-online",
        "--sweep",
        "policy.prefetch=0.125,1",
        "--csv",
    ]));
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|head| head.starts_with("point,policy,policy.prefetch,")));
    assert_eq!(lines.count(), 2, "{text}");
    let keys = output(sim().args(["--policy", "snapshot-miss:help"]));
    assert!(keys.contains("period") && keys.contains("[10000]"), "{keys}");
}

#[test]
fn what_is_wrong_with_a_policy_is_said_in_one_line() {
    let file = machine("romer-tlb.toml");
    let file = file.to_str().expect("text");
    let base = ["-m", file, "-w", "gups:size=1M", "--limit", "1000"];
    let said = |more: &[&str]| refused(&[&base[..], more].concat());
    let (text, status) = said(&["--policy", "static"]);
    assert!(text.contains("static needs the colours to keep to") && status == 2, "{text}");
    let error = sim().args(base).args(["--policy", "asapp"]).assert().failure();
    let text = String::from_utf8_lossy(&error.get_output().stderr).into_owned();
    assert!(text.contains("did you mean `asap`?"), "{text}");
    assert!(
        said(&["--policy", "asap", "--sweep", "policy.shares=1"])
            .0
            .contains("did you mean `share`?")
    );
}

/// Blocks are reserved for the superpages of each point, not of the first.
#[test]
fn a_point_of_a_swept_order_is_the_run_with_that_order() {
    let run = ["-w", "gups:size=1M", "-w", "gups:size=1M,seed=3", "--fragment", "0.9", "--limit"];
    let under = |policy: &str, more: &[&str]| -> Vec<Value> {
        let words = [&run[..], &["20000", "--quantum", "1000", "--json", "--policy"]].concat();
        let machine = machine("romer-tlb.toml");
        let text = output(sim().arg("-m").arg(machine).args(words).arg(policy).args(more));
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    for policy in ["fixed", "hybrid"] {
        let swept = under(&format!("{policy}:order=2"), &["--sweep", "policy.order=2,6"]);
        let alone = under(&format!("{policy}:order=6"), &[]);
        assert_eq!(swept[1]["report"], alone[0]["report"], "{policy}");
        assert_ne!(swept[0]["report"], alone[0]["report"], "{policy}");
    }
}

/// A trace of data alone counts no instructions: no figure is per instruction then.
#[test]
fn where_no_instruction_is_counted_nothing_is_per_instruction() {
    let dir = TempDir::new().expect("a directory");
    let trace = dir.path().join("p.din");
    let lines: String = (0..2000).map(|i| format!("0 {:x}\n", i * 64)).collect();
    fs::write(&trace, lines).expect("written");
    let on = |more: &[&str]| {
        output(sim().arg("-m").arg(machine("cascade-lake-like.toml")).arg(&trace).args(more))
    };
    assert!(!on(&[]).contains("MPKI"), "{}", on(&[]));
    let swept = on(&["--sweep", "seed=1,2"]);
    for figure in ["IPC", "MCPI", "MPKI"] {
        assert!(swept.contains("misses") && !swept.contains(figure), "{swept}");
    }
}

/// Each point of a sweep would get a part of it.
#[test]
fn standard_input_is_not_read_twice() {
    let lines: String = (0..2000).map(|i| format!("0 {:x}\n", i * 64)).collect();
    let run = |more: &[&str]| {
        let machine = machine("cascade-lake.toml");
        sim().arg("-m").arg(machine).arg("-").args(more).write_stdin(lines.clone()).assert()
    };
    let once: [&[&str]; 2] = [&[], &["--sweep", "seed=1"]];
    once.iter().for_each(|more| _ = run(more).success());
    let twice: [&[&str]; 4] =
        [&["--sweep", "seed=1,2"], &["--policy", "offline"], &["-"], &["--restart"]];
    for more in twice {
        let assert = run(more).failure().code(2);
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(said.contains("huepage: -: can be read once only"), "{more:?}: {said}");
    }
}
