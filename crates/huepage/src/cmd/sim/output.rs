//! What a run found, for people (tables and a heat map) and for programs (JSON lines, CSV), and
//! a drawing beside it (SVG).

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use std::fmt::Write as _;

use huepage_sim::heat::Heat;
use huepage_sim::system::Report;
use serde::Serialize;
use serde_json::Value;

use super::args::{HeatOf, RunArgs};
use super::heat::Picture;
use super::{flat, heat, svg};
use crate::exit::{CmdError, ExitCode};
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

/// A run that is no part of a sweep: what a table and a picture of pages need.
pub struct Single {
    pub report: Report,
    pub heat: Option<Heat>,
}

/// Prints rows as was asked for and writes the files.
pub fn print(args: &RunArgs, rows: &[Value], single: Option<&Single>) -> Result<(), CmdError> {
    let picture = || picture(args.heat, rows, single);
    let text = if args.json {
        lines(rows)
    } else if args.csv {
        flat::csv(rows)
    } else {
        let table = single.map_or_else(|| sweep_table(rows), |one| tables(&one.report));
        // The lines of a sweep say most to those who asked for them or look at them.
        let map = picture().map_or_else(String::new, |p| heat::text(&p, Style::stdout()));
        table + &map
    };
    if let Some(path) = &args.svg {
        let name = rows.first().and_then(|row| row["report"]["machine"].as_str());
        let drawing = picture().map(|p| svg::draw(&p, name.unwrap_or("a sweep")));
        let drawing = drawing.transpose().map_err(CmdError::internal)?;
        whole(path, |file| {
            std::io::Write::write_all(file, drawing.unwrap_or_default().as_bytes())
                .map_err(|e| e.to_string())
        })?;
    }
    style::print(&text).map_err(|e| internal(e.to_string()))
}

fn picture(of: HeatOf, rows: &[Value], single: Option<&Single>) -> Option<Picture> {
    match of {
        HeatOf::Colors => heat::colors(rows),
        of => single.and_then(|one| one.heat.as_ref()).map(|h| heat::pages(h, of, heat::room(14))),
    }
}

/// Rows as JSON lines.
pub fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

/// A file that is there when it is complete and not before: whoever waits for it may read it.
fn whole(path: &Path, write: impl FnOnce(&mut File) -> Result<(), String>) -> Result<(), CmdError> {
    let mut name = OsString::from(path);
    name.push(".part");
    let part = Path::new(&name);
    let made = File::create(part).map_err(|e| e.to_string());
    let written = made.and_then(|mut file| write(&mut file));
    let there = written.and_then(|()| fs::rename(part, path).map_err(|e| e.to_string()));
    there.map_err(|e| {
        let _ = fs::remove_file(part);
        let what = format!("{}: {e}; name a file that can be written", path.display());
        CmdError::new(ExitCode::Usage, what)
    })
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
    text + &programs(report, style)
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

/// A line per row, its figures summed over all programs.
fn sweep_table(rows: &[Value]) -> String {
    let pairs = |row: &Value, at: usize| -> Vec<String> {
        let pairs = row["parameters"].as_array().into_iter().flatten();
        pairs.filter_map(|pair| Some(pair[at].as_str()?.to_owned())).collect()
    };
    let keys = rows.first().map_or_else(Vec::new, |row| pairs(row, 0));
    let headings: Vec<&str> = keys
        .iter()
        .map(String::as_str)
        .chain(["cycles", "IPC", "MCPI", "TLB MCPI", "MPKI", "last-level misses"])
        .collect();
    let mut table = Style::stdout().table(&headings);
    for row in rows {
        let spaces = row["report"]["spaces"].as_array().map_or(&[][..], Vec::as_slice);
        let sum = |key: &str| spaces.iter().filter_map(|s| s[key].as_u64()).sum::<u64>();
        let (cycles, instructions, memory) = (sum("cycles"), sum("instructions"), sum("memory"));
        let per = |n: u64| n as f64 / instructions.max(1) as f64;
        table.add_row(pairs(row, 1).into_iter().chain([
            cycles.to_string(),
            format!("{:.3}", instructions as f64 / cycles.max(1) as f64),
            format!("{:.3}", per(cycles - instructions)),
            format!("{:.3}", per(sum("tlb_cycles") + sum("promotion_cycles"))),
            format!("{:.2}", per(1000 * memory)),
            memory.to_string(),
        ]));
    }
    format!("{table}\n")
}
