//! `huepage sim merge`: the rows of a sweep's parts in the order of the whole sweep, and those of
//! the windows of a trace added up.

use std::fs;
use std::path::Path;

use huepage_sim::experiment::Shard;
use huepage_sim::partial;
use serde_json::Value;

use super::args::SweepMergeArgs;
use super::{curve, flat, journal, output, usage};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style;

pub fn run(args: &SweepMergeArgs) -> Result<u8, CmdError> {
    let mut rows: Vec<(u64, Value)> = Vec::new();
    for path in &args.files {
        read(path, &mut rows)?;
    }
    rows.sort_by_key(|(point, row)| (*point, window(row).map(|window| window.number)));
    let rows = add_windows(&rows)?;
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(usage(&format!(
            "point {} is in two of the files; name every part once",
            pair[0].0
        )));
    }
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let text = if args.csv { flat::csv(&rows) } else { output::lines(&rows) };
    style::print(&text).map_err(|e| internal(e.to_string()))?;
    Ok(ExitCode::Ok.status())
}

/// The window that a row is of.
fn window(row: &Value) -> Option<Shard> {
    row["part"]["window"].as_str()?.parse().ok()
}

/// The same rows, with one for all windows of a point; sorted by point and window.
fn add_windows(rows: &[(u64, Value)]) -> Result<Vec<(u64, Value)>, CmdError> {
    let mut added = Vec::new();
    for group in rows.chunk_by(|one, other| one.0 == other.0) {
        match window(&group[0].1) {
            Some(first) => added.push((group[0].0, joined(group, first.parts)?)),
            None => added.extend_from_slice(group),
        }
    }
    Ok(added)
}

/// The row of the whole trace, of all its windows.
fn joined(group: &[(u64, Value)], parts: usize) -> Result<Value, CmdError> {
    let mut found = group.iter().filter_map(|(_, row)| window(row)).peekable();
    for number in 1..=parts {
        let (named, mut count) = (Shard { number, parts }, 0);
        while found.next_if_eq(&named).is_some() {
            count += 1;
        }
        let window = format!("window {number}/{parts} of point {}", group[0].0);
        match count {
            1 => {}
            0 => return Err(usage(&format!("{window} is missing; run it, or name its file"))),
            _ => return Err(usage(&format!("{window} is given twice; name every part once"))),
        }
    }
    if group.len() != parts {
        let point = group[0].0;
        let what = format!("point {point} has rows that are no window of {parts}");
        return Err(usage(&format!("{what}; merge those of one run")));
    }
    let mut whole = group[0].1.clone();
    for (_, row) in &group[1..] {
        if let Some((one, other)) = differing(&group[0].1, row) {
            return Err(usage(&format!(
                "windows are of {one} and {other}; merge those of one run"
            )));
        }
        whole["report"] = partial::sum(&whole["report"], &row["report"]);
    }
    whole.as_object_mut().and_then(|fields| fields.shift_remove("part"));
    Ok(whole)
}

/// What two windows are of, if that is not the same: machines, traces of other lengths, or what was
/// varied.
fn differing(one: &Value, other: &Value) -> Option<(String, String)> {
    let machine = |row: &Value| row["report"]["machine"].to_string();
    let length = |row: &Value| format!("a trace of {} accesses", row["part"]["of"]);
    let varied = |row: &Value| {
        let all = curve::parameters(row).into_iter().map(|(key, value)| format!("{key}={value}"));
        let all = row["level"].as_str().map(str::to_owned).into_iter().chain(all);
        format!("`{}`", all.collect::<Vec<_>>().join(" "))
    };
    let each: [&dyn Fn(&Value) -> String; 3] = [&machine, &length, &varied];
    each.into_iter().map(|of| (of(one), of(other))).find(|(one, other)| one != other)
}

/// Adds the rows of a file.
fn read(path: &Path, rows: &mut Vec<(u64, Value)>) -> Result<(), CmdError> {
    let bad =
        |what: String| CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()));
    let unread = |e| bad(format!("{e}; name a file that `huepage sim` wrote"));
    let text = fs::read_to_string(path).map_err(unread)?;
    for (line, row) in text.lines().enumerate() {
        let wrong =
            |what: &str| bad(format!("line {}: {what}; write it again with --json", line + 1));
        let row: Value = serde_json::from_str(row).map_err(|e| wrong(&e.to_string()))?;
        if journal::is_head(&row) {
            continue;
        }
        let point = row["point"].as_u64().ok_or_else(|| wrong("no point of a sweep"))?;
        rows.push((point, row));
    }
    Ok(())
}
