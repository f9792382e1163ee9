//! What a run found, for people (tables and a heat map) and for programs (JSON lines, CSV), and
//! a drawing beside it (SVG): of a sweep over numbers the curve of misses, of others the heat map.

use std::fmt::Write as _;

use huepage_sim::heat::Heat;
use huepage_sim::system::{Report, SpaceReport};
use serde::Serialize;
use serde_json::Value;

use super::args::{HeatOf, SimRunArgs};
use super::heat::Picture;
use super::{curve, flat, heat, part, svg};
use crate::exit::CmdError;
use crate::html;
use crate::partition::internal;
use crate::report::name_pairs;
use crate::style::{self, Style};
use crate::whole_file;

/// A point of a sweep and what came of it.
#[derive(Debug, Serialize)]
pub struct SweepRow {
    /// Version of this form.
    pub schema: u32,
    /// Its place in the sweep, from 0.
    pub point: usize,
    /// What was varied, and the policy if there is one.
    #[serde(serialize_with = "name_pairs")]
    pub parameters: Vec<(String, String)>,
    /// The cache whose colours count, such as `L2`; none if none has more than one.
    pub level: Option<String>,
    /// The counts.
    pub report: Report,
}

/// A run that is no part of a sweep: what a table and a picture of pages need.
pub struct Single {
    pub policy: Option<String>,
    pub report: Report,
    pub heat: Option<Heat>,
}

/// Prints rows as was asked for and writes the files.
pub fn print(args: &SimRunArgs, rows: &[Value], single: Option<&Single>) -> Result<(), CmdError> {
    let text = if args.json {
        lines(rows)
    } else if args.csv {
        flat::csv(rows)
    } else {
        // The lines of a sweep say most to those who asked for them or look at them.
        let map = picture(args.heat, rows, single);
        let map = map.map_or_else(String::new, |p| heat::text(&p, Style::stdout()));
        counted(rows, single, Style::stdout()) + &map
    };
    // Hours of runs are not lost for a file that cannot be written.
    style::print(&text).map_err(|e| internal(e.to_string()))?;
    let name = rows.first().and_then(|row| row["report"]["machine"].as_str());
    let name = name.unwrap_or("a sweep");
    let drawing = if args.svg.is_some() || args.html.is_some() {
        drawn(args.heat, rows, single, name)?
    } else {
        None
    };
    if let Some(path) = &args.html {
        let printed = counted(rows, single, Style::plain());
        whole_file::save(path, &html::report(name, &printed, drawing.as_slice()))?;
    }
    if let Some(path) = &args.svg {
        whole_file::save(path, &drawing.unwrap_or_default())?;
    }
    Ok(())
}

/// The counts, as tables.
fn counted(rows: &[Value], single: Option<&Single>, style: Style) -> String {
    match (single, rows) {
        (Some(one), _) => tables(one.policy.as_deref(), &one.report, style),
        (None, [row]) => part::text(row, style) + &sweep_table(rows, style),
        (None, rows) => sweep_table(rows, style),
    }
}

/// The drawing, if there is something to draw.
fn drawn(
    heat: HeatOf,
    rows: &[Value],
    single: Option<&Single>,
    name: &str,
) -> Result<Option<String>, CmdError> {
    let drawing = match curve::of(rows).filter(|_| heat == HeatOf::Colors) {
        Some(found) => Some(found.draw(name)),
        None => picture(heat, rows, single).map(|p| svg::draw(&p, name)),
    };
    drawing.transpose().map_err(CmdError::internal)
}

fn picture(of: HeatOf, rows: &[Value], single: Option<&Single>) -> Option<Picture> {
    match of {
        HeatOf::Colors => heat::colors(rows),
        of => {
            let heat = single.and_then(|one| one.heat.as_ref())?;
            // Where no cache has colours, what went to memory is counted.
            let cache = rows.first().and_then(curve::level).unwrap_or("last-level");
            Some(heat::pages(heat, of, cache, heat::room(14)))
        }
    }
}

/// Rows as JSON lines.
pub fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn tables(policy: Option<&str>, report: &Report, style: Style) -> String {
    let under = policy.map_or_else(String::new, |policy| format!(" under {policy}"));
    let mut text = format!("{}{under}\n", style.bold(&report.machine));
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
    let _ = writeln!(text, "{}", style::lay_out(table));
    text + &programs(report, style) + &policy.map_or_else(String::new, |_| acts(report, style))
}

/// What is said of each program, if it says anything of one.
const OF_PROGRAMS: [&str; 14] = [
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
];

fn programs(report: &Report, style: Style) -> String {
    let rows: Vec<Vec<String>> = report.spaces.iter().map(program).collect();
    let says = |at: usize| rows.iter().any(|row| !matches!(row[at].as_str(), "" | "0" | "0.000"));
    let kept: Vec<usize> = (0..OF_PROGRAMS.len()).filter(|&at| at == 0 || says(at)).collect();
    table_of(&OF_PROGRAMS, &rows, &kept, style)
}

fn program(s: &SpaceReport) -> Vec<String> {
    let r = &s.rates;
    vec![
        s.space.to_string(),
        s.costs.accesses.to_string(),
        s.costs.instructions.to_string(),
        s.cycles.to_string(),
        format!("{:.3}", r.ipc),
        format!("{:.3}", r.mcpi),
        format!("{:.3}", r.l2_miss_cpi),
        format!("{:.3}", r.tlb_mcpi),
        format!("{:.3}", r.recolor_cpi),
        if s.costs.instructions == 0 { String::new() } else { format!("{:.2}", r.mpki) },
        s.pages.to_string(),
        s.costs.recolorings.to_string(),
        s.file_hit_ratio.map_or_else(String::new, |ratio| format!("{:.2} %", 100.0 * ratio)),
        s.file_hit_ratio.map_or_else(String::new, |_| s.costs.file_misses.to_string()),
    ]
}

/// What the policy had done, and what that and its sensors cost.
fn acts(report: &Report, style: Style) -> String {
    let mut table = style.table(&[
        "space",
        "superpages built",
        "broken",
        "pages moved",
        "refused",
        "cycles to build",
        "to move",
        "of sensors",
    ]);
    for s in &report.spaces {
        let costs = &s.costs;
        let counts = [
            costs.promotions,
            costs.demotions,
            costs.recolorings,
            costs.refusals,
            costs.promotion_cycles,
            costs.recolor_cycles,
            costs.policy_cycles,
        ];
        table.add_row(
            std::iter::once(s.space.to_string()).chain(counts.map(|count| count.to_string())),
        );
    }
    "\n".to_owned() + &style::lay_out(table)
}

/// The columns that are kept, in their order.
fn table_of(headings: &[&str], rows: &[Vec<String>], kept: &[usize], style: Style) -> String {
    let mut table = style.table(&kept.iter().map(|&at| headings[at]).collect::<Vec<_>>());
    for row in rows {
        table.add_row(kept.iter().map(|&at| &row[at]));
    }
    style::lay_out(table)
}

/// A line per row, its figures summed over all programs. What does not vary is told below, once.
fn sweep_table(rows: &[Value], style: Style) -> String {
    let keys = rows.first().map_or_else(Vec::new, curve::parameters);
    let levels = rows.first().map_or_else(Vec::new, curve::misses);
    let mut headings: Vec<String> = keys.iter().map(|(key, _)| key.clone()).collect();
    headings.extend(["cycles", "IPC", "MCPI", "TLB MCPI", "MPKI"].map(String::from));
    headings.extend(levels.iter().map(|(level, _)| format!("{level} misses")));
    let cells: Vec<Vec<String>> = rows.iter().map(sweep_cells).collect();
    let varies = |at: usize| cells.iter().any(|row| row.get(at) != cells[0].get(at));
    let told = |at: &usize| cells.iter().any(|row| row.get(*at).is_some_and(|it| !it.is_empty()));
    let kept = |at: &usize| *at < keys.len() || cells.len() < 2 || varies(*at);
    let (kept, equal): (Vec<usize>, Vec<usize>) = (0..headings.len()).filter(told).partition(kept);
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    table_of(&headings, &cells, &kept, style) + &equal_in_all(&headings, &cells, &equal)
}

/// What is the same in every row, in a line.
fn equal_in_all(headings: &[&str], rows: &[Vec<String>], columns: &[usize]) -> String {
    let Some(first) = rows.first().filter(|_| !columns.is_empty()) else { return String::new() };
    let figures: Vec<String> =
        columns.iter().map(|&at| format!("{} {}", headings[at], first[at])).collect();
    format!("the same in all: {}\n", figures.join(", "))
}

fn sweep_cells(row: &Value) -> Vec<String> {
    let spaces = row["report"]["spaces"].as_array().map_or(&[][..], Vec::as_slice);
    let sum = |key: &str| spaces.iter().filter_map(|s| s[key].as_u64()).sum::<u64>();
    let (cycles, instructions, memory) = (sum("cycles"), sum("instructions"), sum("memory"));
    // As in the tables of one run: none per instruction where no instruction is counted.
    let counted = instructions > 0;
    let rate = |n: u64, of: u64, digits: usize| match counted {
        true => format!("{:.digits$}", n as f64 / of.max(1) as f64),
        false => String::new(),
    };
    let figures = [
        cycles.to_string(),
        rate(instructions, cycles, 3),
        rate(cycles.saturating_sub(instructions), instructions, 3),
        rate(sum("tlb_cycles") + sum("promotion_cycles"), instructions, 3),
        rate(1000 * memory, instructions, 2),
    ];
    let values = curve::parameters(row).into_iter().map(|(_, value)| value);
    let misses = curve::misses(row).into_iter().map(|(_, misses)| misses.to_string());
    values.chain(figures).chain(misses).collect()
}
