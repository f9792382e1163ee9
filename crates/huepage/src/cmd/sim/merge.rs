//! `huepage sim merge`: the rows of a sweep's parts in the order of the whole sweep.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::args::SweepMergeArgs;
use super::{flat, journal, output, usage};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style;

pub fn run(args: &SweepMergeArgs) -> Result<u8, CmdError> {
    let mut rows: Vec<(u64, Value)> = Vec::new();
    for path in &args.files {
        read(path, &mut rows)?;
    }
    rows.sort_by_key(|&(point, _)| point);
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
