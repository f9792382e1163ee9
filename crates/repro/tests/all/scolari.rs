//! `huepage-repro scolari` from the command line, on runs short enough for a test: curves,
//! claims, drawings, the page, traces, and what it says of bad input.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use super::{json, repro, trace};

fn scolari(arguments: &[&str]) -> Command {
    repro(&["scolari", "--quick"], arguments)
}
fn cells(found: &Value, table: &str, program: &str) -> Vec<f64> {
    let tables = found["tables"].as_array().expect("tables");
    let table = tables.iter().find(|own| own["id"] == table).expect("the table");
    let rows = table["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["program"] == program).expect("the row");
    row["cells"].as_array().expect("cells").iter().filter_map(Value::as_f64).collect()
}

fn held_of(claims: &[Value]) -> usize {
    claims.iter().filter(|claim| claim["holds"] == true).count()
}

#[test]
fn a_target_is_itself_in_a_partition_that_knows_the_hash_and_in_no_other() {
    let folder = TempDir::new().expect("a folder");
    let (page, figures) = (folder.path().join("scolari.md"), folder.path().join("figures"));
    let mut command = scolari(&["--figure", "10", "--only", "W2", "--json"]);
    let all_in_one = folder.path().join("scolari.html");
    command.arg("--markdown").arg(&page).arg("--svg").arg(&figures).arg("--html").arg(&all_in_one);
    let found = json(&mut command);
    let [aware, unaware] = ["aware", "unaware"].map(|scheme| {
        cells(&found, "f10d", &format!("W2, hash-{scheme}")).first().copied().expect("a share")
    });
    assert!(aware.abs() < 2.0 && unaware > 10.0, "{aware} and {unaware} percent");
    let outcomes = found["outcomes"].as_array().expect("outcomes");
    assert!(outcomes.iter().all(|run| run["programs"][0]["outside"] == 0), "colours ran out");
    let claims = found["claims"].as_array().expect("claims");
    let of_w = |c: &&Value| c["text"].as_str().is_some_and(|text| text.starts_with("W1 to W4"));
    let held: Vec<_> = claims.iter().filter(of_w).map(|claim| claim["holds"] == true).collect();
    assert_eq!(held, [true, true]);
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains("random:size=6M") && page.contains("| W2, hash-aware |"), "{page}");
    let drawing = fs::read_to_string(figures.join("10-w2.svg")).expect("a drawing");
    assert!(drawing.contains("hash-unaware") && drawing.contains("polluters"));
    let html = fs::read_to_string(all_in_one).expect("the page");
    let told = format!("{} of {} statements hold", held_of(claims), claims.len());
    assert!(html.contains(&told), "{told}: {html}");
    assert!(html.contains("<td>W2, hash-aware</td>") && html.contains(drawing.trim()), "{html}");
    assert!(!html.contains("src=") && !html.contains("href="), "it needs nothing else");
}

#[test]
fn a_trace_runs_alone_in_growing_shares() {
    let folder = TempDir::new().expect("a folder");
    // 2 MB, a line at a time: more than 1.25 MB, unless half of every slice is reached.
    let trace = trace(&folder, "real", (0..120_000).map(|i| (1 << 24) + i * 64 % (2 << 20)));
    let arguments = ["--figure", "9", "--trace", &trace, "--only", "real", "--json"];
    let found = json(&mut scolari(&arguments));
    let [aware, unaware] =
        ["aware", "unaware"].map(|scheme| cells(&found, "f9m", &format!("real, hash-{scheme}")));
    assert!(aware[0] > 90.0 && aware[1..].iter().all(|rate| *rate < 1.0), "{aware:?}");
    assert!(unaware.len() == 3 && unaware.iter().all(|rate| *rate < 1.0), "{unaware:?}");
}

#[test]
fn bad_wishes_are_refused_before_anything_runs() {
    let refused =
        |arguments: &[&str], status, what| super::refused(scolari(arguments), status, what);
    refused(&["--figure", "13"], 2, "[possible values: all, 5, 9, 10, 11, 12]");
    refused(&["--only", "nothing"], 2, "W1");
    refused(&["--trace", "gcc=x.trace"], 2, "give x.trace a name of its own");
    refused(&["--trace", "x=/nonexistent/x.trace"], 112, "/nonexistent/x.trace");
    refused(&["--markdown", "/nonexistent/page.md"], 2, "/nonexistent");
}
