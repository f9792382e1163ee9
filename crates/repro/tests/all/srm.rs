//! `huepage-repro srm` from the command line, on runs short enough for a test: tables with the
//! paper's figures, claims, drawings, the page, traces, and what it says of bad input.

use std::fs;

use assert_cmd::Command;
use tempfile::TempDir;

use super::{json, repro, trace};

fn srm(arguments: &[&str]) -> Command {
    repro(&["srm"], arguments)
}
#[test]
fn a_figure_is_beside_the_papers_in_every_form() {
    let folder = TempDir::new().expect("a folder");
    let (page, figures) = (folder.path().join("srm-buffer.md"), folder.path().join("figures"));
    let found = json(
        srm(&["--quick", "--figure", "f13", "--only", "spmv", "--json", "--markdown"])
            .arg(&page)
            .arg("--svg")
            .arg(&figures),
    );
    assert_eq!(found["tables"].as_array().map(Vec::len), Some(1));
    let rows = found["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "one to three greps");
    assert_eq!((&rows[0]["stands_for"], &rows[0]["paper"][0]), (&"MM".into(), &32.0.into()));
    let slower = |row: usize, column: usize| rows[row]["cells"][column].as_f64().expect("a figure");
    assert!(slower(2, 0) > slower(2, 1), "three greps on Linux and with SRM-buffer: {rows:?}");
    // A run for each number of greps and kernel, and a program more for each grep.
    assert_eq!(found["outcomes"].as_array().map(Vec::len), Some(2 * (1 + 2 + 3 + 4)));
    let claims = found["claims"].as_array().expect("claims");
    assert!(claims.iter().all(|claim| claim["text"].as_str().is_some_and(|t| t.contains("grep"))));
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.lines().any(|line| line == "| paper: MM | 84 |  |  |"), "{page}");
    assert!(page.contains("huepage-repro srm --quick --figure f13 --only spmv --markdown docs/reproductions/srm-buffer.md"));
    let bars = fs::read_to_string(figures.join("13-greps.svg")).expect("a drawing");
    assert!(bars.contains("SRM-buffer") && bars.contains("spmv + 3 x grep"));
}

/// A trace of a table that is read once, and one that sweeps what fits the cache.
#[test]
fn a_trace_runs_beside_the_scan() {
    let folder = TempDir::new().expect("a folder");
    let trace = |name: &str, from: u64, bytes: u64, count: u64| {
        trace(&folder, name, (0..count).map(|i| from + i * 64 % bytes))
    };
    let join = trace("join", 1 << 24, 3 << 20, 200_000);
    let scan = trace("scan", 1 << 30, 16 << 20, 262_144);
    let arguments = ["--figure", "traces", "--trace", &join, "--trace", &scan, "--json"];
    let found = json(&mut srm(&arguments));
    let rows = found["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["program"]), (1, &"join + scan".into()));
    let cell = |at: usize| rows[0]["cells"][at].as_f64().expect("a figure");
    assert!(cell(0) > 20.0 && cell(1) < cell(0) && cell(2) > 0.0, "{rows:?}");
    assert_eq!(found["claims"][0]["holds"], true);
    // Its table was taken for the buffer pool: 4,096 pages of one file.
    let outcomes = found["outcomes"].as_array().expect("outcomes");
    let scan = outcomes.iter().find(|o| o["program"] == "scan").expect("the scan");
    assert!(
        scan["file_hits"].as_u64().zip(scan["file_reads"].as_u64()).is_some_and(|(a, b)| a + b > 0)
    );
}

#[test]
fn bad_wishes_are_refused_before_anything_runs() {
    let refused = |arguments: &[&str], status, what| super::refused(srm(arguments), status, what);
    refused(&["--figure", "f7"], 2, "f10");
    refused(&["--trace", "join"], 2, "gcc=gcc.trace");
    refused(&["--only", "nothing"], 2, "mergesort 1536K");
    refused(&["--figure", "traces"], 2, "--trace NAME=FILE");
    refused(&["--trace", "lu=x.trace"], 2, "already named `lu`");
    refused(&["--trace", "x=/nonexistent/x.trace"], 112, "/nonexistent/x.trace");
    refused(&["--quick", "--only", "lu", "--markdown", "/nonexistent/page.md"], 2, "/nonexistent");
}
