//! `huepage-repro rocs` from the command line, on a trace short enough for a test: tables with
//! the paper's figures, statements, drawings, the page, and what it says of bad input.

use std::fs;

use assert_cmd::Command;
use tempfile::TempDir;

use super::{json, output, repro, trace};

fn rocs(arguments: &[&str]) -> Command {
    repro(&["rocs"], arguments)
}
/// A short trace: too short for a search, long enough for every table to have a row.
fn cg(folder: &TempDir) -> String {
    trace(folder, "cg", (0..20_000).map(|i| (1 << 24) + i * 1031 % 3_000_000))
}

#[test]
fn a_trace_stands_beside_the_papers_program_in_every_form() {
    let folder = TempDir::new().expect("a folder");
    let (page, figures) = (folder.path().join("rocs.md"), folder.path().join("figures"));
    let named = cg(&folder);
    let arguments = ["--quick", "--only", "cg", "--trace", &named, "--json", "--markdown"];
    let found = json(rocs(&arguments).arg(&page).arg("--svg").arg(&figures));
    let tables = found["tables"].as_array().expect("tables");
    let like = tables.iter().find(|table| table["id"] == "2").expect("table 2");
    assert_eq!(like["rows"][0]["paper"][1], 42.1);
    let outcome = &found["outcomes"][0];
    assert_eq!((&outcome["program"], &outcome["stands_for"]), (&"cg".into(), &"CG".into()));
    let claims = found["claims"].as_array().expect("claims");
    let average = claims.iter().find(|claim| {
        claim["text"].as_str().is_some_and(|text| text.contains("on average of the seven"))
    });
    assert_eq!(average.expect("the statement")["holds"], false, "one trace is not seven workloads");
    let page = fs::read_to_string(page).expect("the page");
    assert!(
        page.lines().any(|line| line.starts_with("| paper: CG | 0.16 | 42.10 | 59.00 |")),
        "{page}"
    );
    let bars = fs::read_to_string(figures.join("rocs-9.svg")).expect("a drawing");
    assert!(bars.contains("Linux") && bars.contains("cg"));
}

#[test]
fn a_single_figure_is_a_single_table() {
    let folder = TempDir::new().expect("a folder");
    let named = cg(&folder);
    let text = output(&mut rocs(&["--only", "cg", "--trace", &named, "--figure", "3"]));
    assert!(text.contains("Table 3: Pages that ROCS confines"), "{text}");
    assert!(!text.contains("Figure 8"), "{text}");
    assert!(text.contains("40818.0"), "{text}");
}

#[test]
fn bad_wishes_are_refused_before_anything_runs() {
    let refused = |arguments: &[&str], status, what| super::refused(rocs(arguments), status, what);
    refused(&["--figure", "8"], 2, "f8");
    refused(&["--only", "nothing"], 2, "swim-sums");
    refused(&["--trace", "cg"], 2, "gcc=gcc.trace");
    refused(&["--trace", "art=x.trace"], 2, "already named `art`");
    refused(&["--trace", "x=/nonexistent/x.trace", "--only", "x"], 112, "/nonexistent/x.trace");
    refused(&["--only", "art", "--markdown", "/nonexistent/page.md"], 2, "/nonexistent");
}
