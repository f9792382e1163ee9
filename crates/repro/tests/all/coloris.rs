//! `huepage-repro coloris` from the command line, on runs short enough for a test: tables
//! beside the paper's, claims, drawings, the page, traces, and what it says of bad input.

use std::fs;

use assert_cmd::Command;
use tempfile::TempDir;

use super::{json, output, repro, trace};

fn coloris(arguments: &[&str]) -> Command {
    repro(&["coloris", "--quick"], arguments)
}
#[test]
fn fixed_partitions_are_beside_the_paper_in_every_form() {
    let folder = TempDir::new().expect("a folder");
    let (page, figures) = (folder.path().join("coloris.md"), folder.path().join("figures"));
    let mut command = coloris(&["--figure", "f9", "--only", "C3", "--json"]);
    let found = json(command.arg("--markdown").arg(&page).arg("--svg").arg(&figures));
    let rows = found["tables"][0]["rows"].as_array().expect("rows");
    let omnetpp = rows.iter().find(|row| row["program"] == "omnetpp").expect("omnetpp");
    assert_eq!(omnetpp["paper"][0], 77.8);
    // A sixth of it fits into a quarter of the cache.
    let rate = omnetpp["cells"][0].as_f64().expect("a rate");
    assert!((75.0..95.0).contains(&rate), "{rate}");
    let programs = found["outcomes"][0]["programs"].as_array().expect("programs");
    assert!(programs.iter().all(|told| told["colors"] == 16 && told["recolored"] == 0));
    let claims = found["claims"].as_array().expect("claims");
    assert!(claims.iter().all(|claim| claim["holds"] == false), "nothing moved: {claims:?}");
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains("| paper: omnetpp | 77.8 |"), "{page}");
    assert!(page.contains("events:size=16M") && page.contains("**does not hold**"), "{page}");
    let bars = fs::read_to_string(figures.join("9-miss-rates.svg")).expect("a drawing");
    assert!(bars.contains("omnetpp"));
}

#[test]
fn traces_run_beside_each_other_in_partitions() {
    let folder = TempDir::new().expect("a folder");
    let trace = |name: &str, pages: u64, step: u64| {
        let at = |i: u64| (1 << 24) + i * step % (pages * 4096);
        trace(&folder, name, (0..20_000).map(at))
    };
    // 768 KB fit into a quarter of the cache, and 20,000 lines do into none.
    let (small, large) = (trace("small", 192, 64), trace("large", 2048, 448));
    let arguments =
        ["--figure", "real", "--trace", &small, "--trace", &large, "--only", "H+P", "--only", "S"];
    let text = output(&mut coloris(&arguments));
    let line = text.lines().find(|line| line.starts_with("small, misses")).expect("its row");
    let cells: Vec<&str> = line.split_whitespace().skip(2).collect();
    assert_eq!(cells[0], "-", "F was not asked for: {line}");
    let rates: Vec<f64> = [cells[1], cells[3]].map(|cell| cell.parse().expect("a rate")).to_vec();
    assert!(rates.iter().all(|rate| *rate < 5.0), "it fits, alone and beside: {line}");
    let line = text.lines().find(|line| line.starts_with("large, misses")).expect("its row");
    let rate: f64 = line.split_whitespace().nth(5).expect("H+P").parse().expect("a rate");
    assert!(rate > 50.0, "{line}");
}

#[test]
fn bad_wishes_are_refused_before_anything_runs() {
    let refused =
        |arguments: &[&str], status, what| super::refused(coloris(arguments), status, what);
    refused(&["--figure", "9-9"], 2, "f10");
    refused(&["--trace", "gnugo"], 2, "gcc=gcc.trace");
    refused(&["--only", "nothing"], 2, "omnetpp");
    refused(&["--figure", "real"], 2, "--trace");
    refused(&["--trace", "x=a.trace", "--trace", "x=b.trace"], 2, "give b.trace a name of its own");
    refused(&["--trace", "x=/nonexistent/x.trace", "--only", "F"], 112, "/nonexistent/x.trace");
    refused(&["--only", "C3", "--markdown", "/nonexistent/page.md"], 2, "/nonexistent");
}
