//! `huepage sim merge`: the rows of a sweep's parts in the order of the whole sweep.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::args::MergeArgs;
use super::{flat, journal, output, parquet, usage};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style;

pub fn run(args: &MergeArgs) -> Result<u8, CmdError> {
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
    if let Some(path) = &args.parquet {
        output::write_parquet(path, &rows)?;
    }
    let text = if args.csv { flat::csv(&rows) } else { output::lines(&rows) };
    style::print(&text).map_err(|e| internal(e.to_string()))?;
    Ok(ExitCode::Ok.status())
}

/// Adds the rows of a file of either kind.
fn read(path: &Path, rows: &mut Vec<(u64, Value)>) -> Result<(), CmdError> {
    let bad =
        |what: String| CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()));
    let unread = |e| bad(format!("{e}; name a file that `huepage sim` wrote"));
    let mut mark = Vec::new();
    let file = File::open(path).map_err(unread)?;
    (&file).take(4).read_to_end(&mut mark).map_err(unread)?;
    if mark == parquet::MAGIC {
        // A damaged file is read to some length before that is noticed: as a whole or not at all.
        let found = parquet::read(file);
        let found = found.map_err(|e| bad(format!("{e}; write it again with --parquet")))?;
        rows.extend(found.into_iter().map(|row| (row["point"].as_u64().unwrap_or(0), row)));
        return Ok(());
    }
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
