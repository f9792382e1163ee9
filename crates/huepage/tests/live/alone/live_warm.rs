//! `huepage warm` on this machine, in short forms of `huepage-bench warm-place`, `warm-torture`
//! and `warm-pressure`: pages are where they were asked to be by the independent reader, files
//! that are written meanwhile stay whole, and nothing is killed for want of memory.

use crate::common;

use serde_json::Value;

/// The rows of a verdict.
fn rows(verdict: &Value) -> &[Value] {
    verdict["rows"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn files_and_trees_come_into_the_colours_asked_for() {
    let Some(_turn) = common::live_alone("warm: places") else { return };
    let verdict = common::holds(&["warm-place", "--mib", "16", "--files", "500"]);
    assert_eq!(rows(&verdict).len(), 8, "{verdict:#}");
    for row in rows(&verdict) {
        assert!(row["right"].as_f64() >= Some(0.99), "{row:#}");
    }
}

#[test]
fn files_that_are_written_meanwhile_stay_whole() {
    let Some(_turn) = common::live_alone("warm: torture") else { return };
    let verdict = common::holds(&["warm-torture", "--rounds", "300"]);
    assert_eq!(rows(&verdict).len(), 2, "{verdict:#}");
    for row in rows(&verdict) {
        assert_eq!(row["wrong"], 0, "{row:#}");
        assert!(row["checks"].as_u64() > Some(50) && row["placed"].as_u64() > Some(0), "{row:#}");
    }
}

#[test]
fn nothing_is_killed_in_a_group_near_its_limit() {
    let Some(_turn) = common::live_alone("warm: pressure") else { return };
    let args = ["warm-pressure", "--hold-mib", "64", "--room-mib", "32", "--file-mib", "64"];
    let verdict = common::holds(&args);
    assert!(!rows(&verdict).is_empty(), "{verdict:#}");
    for row in rows(&verdict) {
        assert!(row["killed"] == 0 && row["program lives"] == true, "{row:#}");
    }
}
