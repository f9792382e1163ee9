//! The outcomes as the curves of Scolari's figures 9 to 11, a row for each; `f9` is figure 9. The
//! paper prints no numbers for them, so rows stand alone.

use super::super::report::{Cell, Table, TableRow};
use super::cases::{COLORS, Part, Scheme};
use super::outcome::{Outcome, Results, Told};

/// Number and title of each table, and the part that it is made of.
pub const ALL: [(&str, &str, Part); 8] = [
    ("f9", "Alone: slowdown against the whole cache, percent", Part::Alone),
    ("f9m", "Alone: miss rate of the last cache, percent", Part::Alone),
    ("f10", "W1 to W4: slowdown against alone with the whole cache, percent", Part::Mixed),
    ("f10d", "W1 to W4: time of the target against alone in as many colours, percent", Part::Mixed),
    ("f10m", "W1 to W4: miss rate of the target, percent", Part::Mixed),
    ("f11", "X1 to X4: slowdown against alone with the whole cache, percent", Part::Limited),
    (
        "f11d",
        "X1 to X4: time of the target against alone in as many colours, percent",
        Part::Limited,
    ),
    ("f11m", "X1 to X4: miss rate of the target, percent", Part::Limited),
];

/// The tables of these parts for which there are outcomes.
pub fn tables(outcomes: &[Outcome], parts: &[Part]) -> Vec<Table> {
    let results = Results(outcomes);
    let wanted = ALL.iter().filter(|(.., part)| parts.contains(part));
    wanted.map(|&all| make(results, all)).filter(|table| !table.rows.is_empty()).collect()
}

/// Megabytes of so many colours.
pub fn megabytes(share: u16) -> f64 {
    10.0 * f64::from(share) / f64::from(COLORS)
}

fn make(results: Results<'_>, (id, title, part): (&'static str, &'static str, Part)) -> Table {
    let mut shares: Vec<u16> =
        results.0.iter().filter(|o| o.part == part).map(|o| o.share).collect();
    shares.sort_unstable();
    shares.dedup();
    let mut rows = Vec::new();
    for workload in results.workloads(part) {
        for scheme in Scheme::ALL {
            let curve = results.curve(part, workload, scheme);
            let cell = |share: &u16| {
                let outcome = curve.iter().find(|outcome| outcome.share == *share)?;
                figure(results, id, outcome)
            };
            let cells = shares.iter().map(cell).collect();
            rows.push(row(format!("{workload}, {}", scheme.name()), cells));
        }
        if id == "f10" || id == "f11" {
            rows.push(polluters(results, part, workload, &shares));
        }
    }
    rows.retain(|row| row.cells.iter().any(Option::is_some));
    let head = shares.iter().map(|&share| format!("{:.2} MB", megabytes(share))).collect();
    Table { id, title, head, digits: 1, rows }
}

fn figure(results: Results<'_>, id: &str, outcome: &Outcome) -> Cell {
    let target = outcome.target()?;
    let percent = |share: f64| 100.0 * share;
    if id.ends_with('m') {
        return Some(percent(miss_rate(target)));
    }
    if id.ends_with('d') {
        let all = results.disturbed(outcome.part, &outcome.workload, outcome.scheme);
        return all.iter().find(|(share, _)| *share == outcome.share).map(|(_, d)| percent(*d));
    }
    results.slowdown(target).map(percent)
}

fn miss_rate(told: &Told) -> f64 {
    told.counted.miss_rate()
}

/// The dashed lines: polluters beside a target in a hash-aware partition.
fn polluters(results: Results<'_>, part: Part, workload: &str, shares: &[u16]) -> TableRow {
    let curve = results.curve(part, workload, Scheme::Aware);
    let cell = |share: &u16| {
        let outcome = curve.iter().find(|outcome| outcome.share == *share)?;
        results.polluters(outcome).map(|slowdown| 100.0 * slowdown)
    };
    row(format!("{workload}, polluters"), shares.iter().map(cell).collect())
}

fn row(program: String, cells: Vec<Cell>) -> TableRow {
    TableRow { program, cells, stands_for: None, paper: None }
}
