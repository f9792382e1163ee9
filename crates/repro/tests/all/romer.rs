//! `huepage-repro romer` from the command line, on workloads short enough for a test: tables
//! with the thesis's figures, claims, drawings, the page, traces, and what it says of bad input.

use std::fs;

use assert_cmd::Command;
use tempfile::TempDir;

use super::{json, output, repro, trace};

fn romer(arguments: &[&str]) -> Command {
    repro(&["romer"], arguments)
}
#[test]
fn strawman_is_beside_the_thesis_in_every_form() {
    let folder = TempDir::new().expect("a folder");
    let (page, figures) = (folder.path().join("romer.md"), folder.path().join("figures"));
    let found = json(
        romer(&["--quick", "--table", "4-6", "--only", "strawman", "--json", "--markdown"])
            .arg(&page)
            .arg("--svg")
            .arg(&figures),
    );
    let table = &found["tables"][0];
    assert_eq!(found["tables"].as_array().map(Vec::len), Some(1));
    let row = &table["rows"][0];
    assert_eq!((&row["program"], &row["paper"][0]), (&"strawman".into(), &4.81.into()));
    let direct = row["cells"][0].as_f64().expect("a figure");
    assert!((direct / 4.81 - 1.0).abs() <= 0.1, "{direct}");
    let claims = found["claims"].as_array().expect("claims");
    let first = claims.iter().find(|claim| {
        claim["text"].as_str().is_some_and(|text| text.contains("within 10 % of 4.81"))
    });
    assert_eq!(first.expect("the claim")["holds"], true);
    let page = fs::read_to_string(page).expect("the page");
    let command = "`huepage-repro romer --quick --table 4-6 --only strawman --markdown ";
    assert!(page.contains(command) && !page.contains("### Why some do not hold"), "{page}");
    let line = page.lines().find(|line| line.starts_with("| paper: strawman |"));
    assert!(line.is_some_and(|line| line.contains("| 4.81 |")), "{page}");
    let line = page.lines().find(|line| line.starts_with("| holds | strawman: L2 MCPI direct"));
    assert!(line.is_some_and(|line| line.contains(&format!("{direct:.2}"))), "{page}");
    let bars = fs::read_to_string(figures.join("4-1-coloring.svg")).expect("a drawing");
    assert!(bars.contains("Snapshot-Miss") && bars.contains("strawman"));
}

#[test]
fn a_trace_is_a_workload_as_any_other() {
    let folder = TempDir::new().expect("a folder");
    // Columns of 40 pages, each access on the next page: every one misses.
    let named = trace(&folder, "columns", (0..4000).map(|i| (1 << 24) + i % 40 * 4096));
    let arguments = ["--table", "3-4", "--only", "columns", "--trace", &named];
    let text = output(&mut romer(&arguments));
    assert!(text.contains("Table 3-4: TLB misses, in hundreds"), "{text}");
    let line = text.lines().find(|line| line.starts_with("columns")).expect("its row");
    let cells: Vec<&str> = line.split_whitespace().skip(1).collect();
    // FIXED 4, 16 and 64 KB: 4,000 misses, and 10 and 3 pages at their first touches.
    assert_eq!(cells[..3], ["40", "0", "0"], "{line}");
    assert!(text.contains("THROTTLE costs at most 0.02 more TLBMCPI"), "{text}");
}

#[test]
fn bad_wishes_are_refused_before_anything_runs() {
    let refused = |arguments: &[&str], status, what| super::refused(romer(arguments), status, what);
    refused(&["--table", "9-9"], 2, "3-4");
    refused(&["--workload", "fpga=gups"], 2, "already named `fpga`");
    refused(&["--trace", "gcc"], 2, "gcc=gcc.trace");
    refused(&["--only", "nothing"], 2, "strawman");
    refused(&["--trace", "strawman=x.trace"], 2, "already named `strawman`");
    refused(&["--trace", "x=a.trace", "--trace", "x=b.trace"], 2, "give b.trace a name of its own");
    refused(&["--trace", "x=/nonexistent/x.trace", "--only", "x"], 112, "/nonexistent/x.trace");
    refused(
        &["--quick", "--only", "doduc", "--markdown", "/nonexistent/page.md"],
        2,
        "/nonexistent",
    );
}
