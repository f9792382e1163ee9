//! What a run found, for people (tables and a heat map) and for programs (JSON lines, CSV).

use std::fmt::Write as _;

use huepage_sim::system::Report;
use serde::Serialize;
use serde_json::Value;

use super::args::RunArgs;
use crate::exit::CmdError;
use crate::partition::internal;
use crate::style::{self, Style};

/// A point of a sweep and what came of it.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its place in the sweep, from 0.
    pub point: usize,
    /// What was varied.
    pub parameters: Vec<(String, String)>,
    /// The counts.
    pub report: Report,
}

/// Prints rows as was asked for.
pub fn print(args: &RunArgs, rows: &[Row]) -> Result<(), CmdError> {
    let text = if args.json {
        lines(rows.iter().map(serde_json::to_value))?
    } else if args.csv {
        let values: Result<Vec<Value>, _> = rows.iter().map(serde_json::to_value).collect();
        csv(&values.map_err(|e| internal(e.to_string()))?)
    } else if rows.len() == 1 && args.sweep.is_empty() {
        tables(&rows[0].report)
    } else {
        sweep_table(rows)
    };
    style::print(&text).map_err(|e| internal(e.to_string()))
}

fn lines(rows: impl Iterator<Item = serde_json::Result<Value>>) -> Result<String, CmdError> {
    let mut text = String::new();
    for row in rows {
        let row = row.map_err(|e| internal(e.to_string()))?;
        let _ = writeln!(text, "{row}");
    }
    Ok(text)
}

/// One line per row: what was varied, then every number of the report by its place in it.
pub fn csv(rows: &[Value]) -> String {
    let mut columns: Vec<String> = Vec::new();
    let flat: Vec<Vec<(String, String)>> = rows.iter().map(flatten).collect();
    for (name, _) in flat.iter().flatten() {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    let mut text = columns.join(",") + "\n";
    for row in &flat {
        let cell = |column: &String| {
            row.iter().find(|(name, _)| name == column).map_or("", |(_, value)| value.as_str())
        };
        text += &(columns.iter().map(cell).collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

fn flatten(row: &Value) -> Vec<(String, String)> {
    let mut out = vec![("point".to_owned(), row["point"].to_string())];
    for pair in row["parameters"].as_array().into_iter().flatten() {
        out.push((plain(&pair[0]), plain(&pair[1])));
    }
    descend("", &row["report"], &mut out);
    out
}

/// Named parts ("L1 data cache", …) are pairs of a name and a value.
fn descend(path: &str, value: &Value, out: &mut Vec<(String, String)>) {
    let under =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| descend(&under(name), value, out));
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                match item.as_array().map(Vec::as_slice) {
                    Some([Value::String(name), value]) => {
                        descend(&under(&name.replace(' ', "_")), value, out);
                    }
                    _ => descend(&under(&at.to_string()), item, out),
                }
            }
        }
        Value::Null => {}
        other => out.push((path.to_owned(), plain(other))),
    }
}

fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let quoted = text.contains([',', '"', '\n']);
    if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn tables(report: &Report) -> String {
    let style = Style::stdout();
    let mut text = format!("{}\n", style.bold(&report.machine));
    let mut table =
        style.table(&["level", "accesses", "misses", "miss rate", "written out", "prefetched"]);
    for (name, counts) in &report.caches {
        let rate = format!("{:.2} %", 100.0 * counts.miss_rate());
        table.add_row([
            name.clone(),
            counts.total().to_string(),
            counts.missed().to_string(),
            rate,
            counts.writes_out.to_string(),
            counts.prefetched.to_string(),
        ]);
    }
    for (name, counts) in &report.tlbs {
        let rate = 100.0 * counts.misses as f64 / counts.accesses.max(1) as f64;
        let (accesses, misses) = (counts.accesses.to_string(), counts.misses.to_string());
        table.add_row([
            name.clone(),
            accesses,
            misses,
            format!("{rate:.2} %"),
            String::new(),
            String::new(),
        ]);
    }
    let _ = writeln!(text, "{table}\n");
    text += &programs(report, style);
    text + &heat_map(report)
}

fn programs(report: &Report, style: Style) -> String {
    let mut table = style.table(&[
        "space",
        "accesses",
        "instructions",
        "cycles",
        "IPC",
        "MCPI",
        "L2 miss CPI",
        "TLB MCPI",
        "recolor CPI",
        "MPKI",
        "pages",
        "recolored",
        "file hits",
        "file misses",
    ]);
    for s in &report.spaces {
        let r = &s.rates;
        table.add_row([
            s.space.to_string(),
            s.costs.accesses.to_string(),
            s.costs.instructions.to_string(),
            s.cycles.to_string(),
            format!("{:.3}", r.ipc),
            format!("{:.3}", r.mcpi),
            format!("{:.3}", r.l2_miss_cpi),
            format!("{:.3}", r.tlb_mcpi),
            format!("{:.3}", r.recolor_cpi),
            format!("{:.2}", r.mpki),
            s.pages.to_string(),
            s.costs.recolorings.to_string(),
            s.file_hit_ratio.map_or_else(String::new, |ratio| format!("{:.2} %", 100.0 * ratio)),
            s.file_hit_ratio.map_or_else(String::new, |_| s.costs.file_misses.to_string()),
        ]);
    }
    format!("{table}\n")
}

/// Misses by colour, each a mark from light to dark.
fn heat_map(report: &Report) -> String {
    const MARKS: [char; 5] = [' ', '░', '▒', '▓', '█'];
    const WIDTH: usize = 64;
    let Some(colors) = report.colors.as_ref().filter(|c| c.misses.len() > 1) else {
        return String::new();
    };
    let most = colors.misses.iter().copied().max().unwrap_or(0).max(1);
    let mark = |&n: &u64| MARKS[usize::try_from((n * 4).div_ceil(most)).unwrap_or(4).min(4)];
    let mut text = format!(
        "\nmisses by colour, {} to {most} (█):\n",
        colors.misses.iter().min().unwrap_or(&0)
    );
    for (row, part) in colors.misses.chunks(WIDTH).enumerate() {
        let marks: String = part.iter().map(mark).collect();
        let _ = writeln!(text, "{:>5} |{marks}|", row * WIDTH);
    }
    text
}

fn sweep_table(rows: &[Row]) -> String {
    let keys: Vec<&str> = rows
        .first()
        .map_or_else(Vec::new, |row| row.parameters.iter().map(|(key, _)| key.as_str()).collect());
    let headings: Vec<&str> = keys
        .iter()
        .copied()
        .chain(["cycles", "IPC", "MCPI", "TLB MCPI", "MPKI", "last-level misses"])
        .collect();
    let mut table = Style::stdout().table(&headings);
    for row in rows {
        let spaces = &row.report.spaces;
        let cycles: u64 = spaces.iter().map(|s| s.cycles).sum();
        let instructions: u64 = spaces.iter().map(|s| s.costs.instructions).sum();
        let per = |n: u64| n as f64 / instructions.max(1) as f64;
        let stalls: u64 = spaces.iter().map(|s| s.costs.stall_cycles()).sum();
        let tlb: u64 = spaces.iter().map(|s| s.costs.tlb_cycles + s.costs.promotion_cycles).sum();
        let memory: u64 = spaces.iter().map(|s| s.costs.memory).sum();
        let values = row.parameters.iter().map(|(_, value)| value.clone());
        table.add_row(values.chain([
            cycles.to_string(),
            format!("{:.3}", instructions as f64 / cycles.max(1) as f64),
            format!("{:.3}", per(stalls)),
            format!("{:.3}", per(tlb)),
            format!("{:.2}", per(1000 * memory)),
            memory.to_string(),
        ]));
    }
    format!("{table}\n")
}
