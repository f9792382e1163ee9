//! `huepage probe hash` as a person runs it: hidden hashes, recordings, verification, hash
//! files, refusals; and what it says of this machine.

use crate::common;

use std::path::Path;
use std::process::Output;

use common::huepage;
use fastrand::Rng;
use huepage_color::PhysAddr;
use huepage_recover::{GroupScope, Labels, LineGroupId, Observations, render};
use serde_json::Value;
use tempfile::TempDir;

fn probe(args: &[&str]) -> Output {
    huepage(&[&["probe", "hash"], args].concat())
}

fn json(args: &[&str]) -> Value {
    let output = probe(&[args, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn published_hashes_come_out_as_they_went_in() {
    let published = [
        ("intel-2", "0x1b5f575440"),
        ("intel-4", "0x1b5f575440 0x2eb5faa880"),
        ("intel-8", "0x1b5f575440 0x2eb5faa880 0x3cccc93100"),
        ("intel-2-bit38", "0x5b5f575440"),
        ("intel-4-bit38", "0x5b5f575440 0x6eb5faa880"),
        ("intel-gen11-8", "0x5b5f575440 0x71aeeb1200 0x6d87f2c00"),
        ("xeon-gold-6130", "0x1b5f575440 0xeb5faa880 0x1cccc93100 0x11aeeb1200"),
    ];
    for (name, masks) in published {
        let found = json(&["--hidden", name, "--wrong", "5%"]);
        let found = &found["methods"][0];
        let masks: Vec<&str> = masks.split(' ').collect();
        assert_eq!(found["masks"], serde_json::json!(masks), "{name}");
        assert_eq!(found["hidden_is_same"], true, "{name}");
        assert!(found["published_as"].as_array().unwrap().contains(&name.into()), "{name}");
        assert!(found["log10_doubt"].as_f64().unwrap() < -20.0, "{name}");
    }
}

#[test]
fn both_methods_stand_in_one_table() {
    let args = ["--hidden", "xeon-e5-2690", "--observe", "evictions", "--method", "both"];
    let output = probe(&[&args[..], &["--probes", "3000"]].concat());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for row in ["algebra", "ilp"] {
        let row = table.lines().rfind(|line| line.starts_with(row)).expect("a row");
        assert!(row.contains("the same"), "{table}");
    }
    let found = json(&[&args[..], &["--probes", "3000"]].concat());
    let clusters = &found["methods"][1]["clusters"];
    let paper = serde_json::json!([
        [17, 20, 24, 28, 33],
        [18, 25, 32],
        [19, 23, 31, 34, 37],
        [21],
        [22, 26, 35],
        [27, 30, 36],
        [29]
    ]);
    assert_eq!(*clusters, paper);
}

#[test]
fn what_cannot_be_recovered_is_not_claimed() {
    let output = probe(&["--hidden", "intel-8", "--wrong", "60%"]);
    assert_eq!(output.status.code(), Some(110), "{output:?}");
    assert!(said(&output).contains("observe more"), "{}", said(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("masks:"));
    let output = probe(&["--hidden", "intel-8", "--slices", "4"]);
    assert_eq!(output.status.code(), Some(110), "{output:?}");
}

#[test]
fn a_recording_is_solved_and_verified_like_its_source() {
    let dir = TempDir::new().unwrap();
    let (seen, hash) = (dir.path().join("seen.obs"), dir.path().join("hash.toml"));
    let output = probe(&[
        "--hidden",
        "intel-4",
        "--wrong",
        "5%",
        "--record",
        text(&seen),
        "--output",
        text(&hash),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found = json(&["--file", text(&seen)]);
    assert_eq!(found["methods"][0]["masks"], serde_json::json!(["0x1b5f575440", "0x2eb5faa880"]));
    for (hash, code) in [
        (text(&hash), 0),
        ("intel-4", 0),
        ("0x1b5f575440 0x2eb5faa980", 114),
        ("intel-8", 114),
        ("intel-4-bit38", 0),
    ] {
        let output = probe(&["--file", text(&seen), "--verify", hash]);
        assert_eq!(output.status.code(), Some(code), "{hash}: {output:?}");
        let told = String::from_utf8_lossy(&output.stdout).contains("not seen: bits 38:");
        assert_eq!(told, hash == "intel-4-bit38", "{output:?}");
    }
    let few = dir.path().join("few.obs");
    let lines: Vec<String> =
        std::fs::read_to_string(&seen).unwrap().lines().take(12).map(str::to_owned).collect();
    std::fs::write(&few, lines.join("\n")).unwrap();
    let output = probe(&["--file", text(&few), "--verify", "intel-4"]);
    assert_eq!(output.status.code(), Some(110), "{output:?}");
}

#[test]
fn a_mask_wrong_in_a_bit_that_is_seldom_set_is_contradicted() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("seldom.obs");
    let mut dice = Rng::with_seed(1);
    let mut seen = Observations::new(GroupScope::Slice, Labels::Free);
    for _ in 0..2000 {
        let (rare, addr) = (u64::from(dice.f64() < 0.06), dice.u64(..) & ((1 << 36) - 64));
        let addr = addr & !(1 << 30) | rare << 30;
        let slice = (addr & 0x1b5f575440).count_ones() & 1;
        seen.member(PhysAddr(addr), LineGroupId(if slice == 1 { 1 } else { 0 }));
    }
    std::fs::write(&path, render(&seen)).unwrap();
    for (hash, code) in [("0x1b5f575440", 0), ("0x1b1f575440", 114)] {
        let output = probe(&["--file", text(&path), "--verify", hash]);
        assert_eq!(output.status.code(), Some(code), "{hash}: {output:?}");
    }
}

#[test]
fn no_file_is_not_a_success_if_one_was_asked_for() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("hash.toml");
    let clusters = ["--observe", "evictions", "--method", "ilp", "--probes", "4000"];
    let few = [&["--hidden", "xeon-e5-1410"], &clusters[..]].concat();
    let many = [&["--hidden", "xeon-gold-6130"], &clusters[..]].concat();
    for args in [&few, &["--hidden", "intel-8", "--wrong", "60%"].to_vec()] {
        let output = probe(&[&args[..], &["--output", text(&out)]].concat());
        assert_eq!(output.status.code(), Some(110), "{args:?}: {output:?}");
        let said = said(&output);
        assert!(said.contains("no file written: ") && said.contains("; "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!out.exists(), "{args:?}");
    }
    // Clusters alone are no masks.
    let output = probe(&many);
    assert_eq!(output.status.code(), Some(110), "{output:?}");
    assert!(said(&output).contains("; "), "{}", said(&output));
}

#[test]
fn slices_that_are_no_power_of_two_are_told_from_parities() {
    let dir = TempDir::new().unwrap();
    let hash = dir.path().join("permuted.toml");
    // 26 slices over 128 lines, permuted by the bits above.
    let base: Vec<String> = (0..128).map(|line| (line * 11 % 127 % 26).to_string()).collect();
    let masks: Vec<String> =
        (0..7).map(|bit| format!("\"{:#x}\"", 0x9249_2000_u64 << bit)).collect();
    let file = format!(
        "name = \"26 slices\"\nsource = \"made up\"\naddress_bits = [13, 38]\nbase = [{}]\n\
         permutation = [{}]\n",
        base.join(", "),
        masks.join(", ")
    );
    std::fs::write(&hash, file).unwrap();
    let found = json(&["--hidden", text(&hash), "--wrong", "2%"]);
    let found = &found["methods"][0];
    assert_eq!((&found["outcome"], &found["groups"]), (&"not linear".into(), &26.into()));
    assert_eq!(found["base"].as_array().unwrap().len(), 128);
    let out = dir.path().join("found.toml");
    let args = ["--hidden", text(&hash), "--wrong", "2%", "--output", text(&out)];
    assert_eq!(probe(&args).status.code(), Some(0));
    let output = probe(&["--hidden", text(&hash), "--verify", text(&out)]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn files_that_are_none_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    let bad = dir.path().join("bad");
    std::fs::write(&bad, "m 1 2\n").unwrap();
    let large = dir.path().join("large.toml");
    let hash = "name = \"x\"\nsource = \"y\"\naddress_bits = [6, 37]\nset_bits = 24\n\
                slice_masks = [\"0x1b5f575440\"]\n";
    std::fs::write(&large, hash).unwrap();
    for (args, code) in [
        (vec!["--file", text(&bad)], 112),
        (vec!["--file", "/nonexistent"], 112),
        (vec!["--hidden", "intel-3"], 2),
        (vec!["--hidden", "/dev/zero"], 112),
        (vec!["--hidden", "0x8000000000000040"], 2),
        (vec!["--hidden", "0x10000000000040"], 2),
        (vec!["--hidden", text(&large), "--observe", "evictions"], 2),
        (vec!["--source", "sim"], 2),
        (vec!["--source", "file"], 2),
        (vec!["--source", "live", "--file", text(&bad)], 2),
    ] {
        let output = probe(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert_eq!(said(&output).lines().count(), 1, "{args:?}: {}", said(&output));
        assert!(said(&output).contains([';', ',']), "{}", said(&output));
    }
}

#[test]
fn a_hash_file_gives_the_colours_of_a_run() {
    let Some(_turn) = common::live("a_hash_file_gives_the_colours_of_a_run") else { return };
    let info = huepage(&["info", "--json", "--no-probe"]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    let l2 = info["machine"]["caches"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["geometry"]["level"] == 2);
    let Some(sets) = l2.and_then(|l2| l2["geometry"]["sets"].as_u64()).filter(|&n| n >= 256) else {
        return common::skip("a_hash_file_gives_the_colours_of_a_run", "no L2 with colours");
    };
    let dir = TempDir::new().unwrap();
    let file = |name: &str, set_bits: u32| {
        let path = dir.path().join(name);
        // The highest set bit as if it were a slice: the same colours as plain bits have.
        let mask = 1_u64 << (6 + set_bits);
        let text = format!(
            "name = \"L2\"\nsource = \"test\"\naddress_bits = [6, 40]\nset_bits = {set_bits}\n\
             slice_masks = [\"{mask:#x}\"]\n"
        );
        std::fs::write(&path, text).unwrap();
        format!("--colors-from=declared={}", path.display())
    };
    let (right, other) = (file("l2.toml", sets.ilog2() - 1), file("other.toml", sets.ilog2()));
    let report = dir.path().join("report.json");
    let run = |from: &str| {
        huepage(&["run", "-q", "--share", "50%", from, "--report", text(&report), "--", "true"])
    };
    let output = run(&right);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(found["colors_from"], "declared");
    assert_eq!(found["of"].as_u64(), Some(sets / 64), "{found}");
    let output = run(&other);
    assert_eq!(output.status.code(), Some(112), "{output:?}");
    assert!(said(&output).contains("or choose another --level"), "{}", said(&output));
}

#[test]
fn this_machine_gets_masks_or_one_line_that_says_why_not() {
    let Some(_turn) = common::live("this_machine_gets_masks_or_why_not") else { return };
    let output = probe(&["--probes", "500"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => {
            assert!(printed.contains("masks:") || printed.contains("not linear"), "{printed}")
        }
        Some(114) => assert!(said(&output).contains("do not select cache sets"), "{output:?}"),
        Some(110 | 2) => assert_eq!(said(&output).lines().count(), 1, "{output:?}"),
        code => panic!("{code:?}: {output:?}"),
    }
}
