//! The outcomes as tables, one for each figure of the paper, and its own figures below ours where
//! its text has them.

use super::super::report::{Cell, Table, TableRow};
use super::cases::{ALONE, ORDERS, Part, Place, RESCANS, SCAN, THRESHOLDS, greps_name, order_name};
use super::hits::MEMORIES;
use super::paper;
use super::programs::{ARRAYS, DIMENSIONS, FILE_BOUND, MEMORY_BOUND, SCIMARK, stands_for};
use super::results::{At, Results, mean};
use super::run::Outcome;
use super::variants::Variant;

/// Number and title of each table, and the part that it is made of.
pub const ALL: [(&str, &str, Part); 12] = [
    ("f2", "mergesort beside grep on the Xeon 5355, by the array's size", Part::Sizes),
    ("f8", "hash joins beside a sequential scan, by the dimension table", Part::Joins),
    ("f10", "memory-bound beside file-bound programs on the Xeon 5355, percent", Part::Pairs),
    ("f11", "misses of the last cache per million instructions there", Part::Pairs),
    ("f12", "three programs and a fourth on the Core i7 860, percent", Part::Four),
    ("f13", "one to three greps on the Core i7 860, percent slower", Part::Greps),
    ("f14", "percent less time; in brackets who loaded the files", Part::Orders),
    ("4.5", "beside a random reader, percent slower, and percent less time", Part::Random),
    ("4.5r", "a file scanned again and again, percent slower than on Linux", Part::Rescans),
    ("f15", "hit ratio of the page cache by memory, percent", Part::Hits),
    ("f16", "percent less time by Tl", Part::Thresholds),
    ("traces", "traces of real programs on the Xeon 5355, percent", Part::Traces),
];

const LINUX: Variant = Variant::Linux;
const TURNS: Variant = Variant::Turns;
const SRM: Variant = Variant::SRM;

/// The tables of these numbers for which there are outcomes, all of them if none is named.
pub fn tables(outcomes: &[Outcome], ids: &[&str]) -> Vec<Table> {
    let results = Results(outcomes);
    let wanted = ALL.iter().filter(|(id, ..)| ids.is_empty() || ids.contains(id));
    let made = wanted.map(|&(id, title, _)| make(results, id, title));
    made.filter(|table| !table.rows.is_empty()).collect()
}

fn make(results: Results<'_>, id: &'static str, title: &'static str) -> Table {
    let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (head, digits, rows): (Vec<String>, usize, Vec<TableRow>) = match id {
        "f2" => (head(&SIZES_HEAD), 0, sizes(results)),
        "f8" => (head(&JOINS_HEAD), 0, joins(results)),
        "f10" => (head(&PAIRS_HEAD), 0, pairs(results)),
        "f11" => (head(&MISSES_HEAD), 0, misses(results)),
        "f12" => (head(&FOUR_HEAD), 0, four(results)),
        "f13" => (head(&["Linux", "SRM-buffer", "time saved"]), 0, greps(results)),
        "f14" => (ORDERS.map(|(reads, loads)| order_name(reads, loads)).into(), 1, orders(results)),
        "4.5" => (head(&RANDOM_HEAD), 1, random(results)),
        "4.5r" => (head(&["SRM-buffer", "with detector"]), 1, rescans(results)),
        "f15" => (head(&HITS_HEAD), 1, hits(results)),
        "f16" => (THRESHOLD_ORDER.map(|tl| tl.to_string()).into(), 1, thresholds(results)),
        _ => (head(&TRACES_HEAD), 1, traces(results)),
    };
    let rows = rows.into_iter().filter(|row| row.cells.iter().any(Option::is_some)).collect();
    Table { id, title, head, digits, rows }
}

fn row(program: impl Into<String>, cells: Vec<Cell>) -> TableRow {
    TableRow { program: program.into(), cells, stands_for: None, paper: None }
}

fn with_paper(mut row: TableRow, name: &'static str, paper: &[f64]) -> TableRow {
    (row.stands_for, row.paper) = (Some(name), Some(paper.to_vec()));
    row
}

const fn xeon<'a>(program: &'a str, beside: &'a str) -> At<'a> {
    At { place: Place::Xeon, program, beside }
}

const fn core_i7<'a>(program: &'a str, beside: &'a str) -> At<'a> {
    At { place: Place::CoreI7, program, beside }
}

const SIZES_HEAD: [&str; 9] = [
    "slower: Linux",
    "one colour",
    "SRM-buffer",
    "colours in turn",
    "misses per M: alone",
    "Linux",
    "one colour",
    "SRM-buffer",
    "colours in turn",
];

fn sizes(results: Results<'_>) -> Vec<TableRow> {
    let each = ARRAYS.map(|kib| {
        let name = format!("mergesort {kib}K");
        let at = xeon(&name, "grep");
        let order = [LINUX, Variant::OneColor, SRM, TURNS];
        let slower = order.map(|variant| results.slowdown(at, variant));
        let misses = order.map(|variant| results.misses(at, variant));
        let alone = results.misses(At { beside: ALONE, ..at }, LINUX);
        let row = row(name.clone(), [&slower[..], &[alone], &misses[..]].concat());
        let paper = kib == 1536;
        if paper { with_paper(row, "mergesort", &paper::MERGESORT) } else { row }
    });
    each.into()
}

const JOINS_HEAD: [&str; 6] = [
    "join on Linux",
    "scan on Linux",
    "time saved (join)",
    "join, SRM-buffer",
    "scan, SRM-buffer",
    "time saved (scan)",
];

fn joins(results: Results<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for (place, means) in [Place::Xeon, Place::CoreI7].into_iter().zip(paper::JOIN_MEANS) {
        let mut all: Vec<Vec<Cell>> = Vec::new();
        for (_, mib) in DIMENSIONS {
            let cells = join(results, place, mib);
            let made = row(format!("{mib} MiB, {}", place.text()), cells.clone());
            let known = paper::JOINS.iter().find(|(size, _)| (place, *size) == (Place::Xeon, mib));
            rows.push(match known {
                Some((_, slower)) => with_paper(made, "hash join", &[*slower]),
                None => made,
            });
            all.push(cells);
        }
        let mean = |column: usize| mean(all.iter().map(|cells| cells[column]));
        let mean = row(format!("mean, {}", place.text()), (0..6).map(mean).collect());
        rows.push(with_paper(mean, "hash joins", &means));
    }
    rows
}

fn join(results: Results<'_>, place: Place, mib: u64) -> Vec<Cell> {
    let name = format!("join {mib}M");
    let at = At { place, program: &name, beside: SCAN };
    let scan = |variant| {
        let alone = results.get(At { program: SCAN, beside: ALONE, ..at }, variant)?;
        Some((results.other(at, SCAN, variant)?.cpi(), alone.cpi()))
    };
    let slower = |variant| scan(variant).map(|(with, alone)| 100.0 * (with / alone - 1.0));
    let saved = || Some(100.0 * (1.0 - scan(SRM)?.0 / scan(LINUX)?.0));
    let join = |variant| results.slowdown(at, variant);
    vec![join(LINUX), slower(LINUX), results.saved(at, SRM), join(SRM), slower(SRM), saved()]
}

const PAIRS_HEAD: [&str; 6] = [
    "slower: Linux",
    "SRM-buffer",
    "time saved",
    "misses removed",
    "colours in turn",
    "time saved by that",
];

fn gains(results: Results<'_>, at: At<'_>) -> Vec<Cell> {
    vec![
        results.slowdown(at, LINUX),
        results.slowdown(at, SRM),
        results.saved(at, SRM),
        results.removed(at, SRM),
        results.slowdown(at, TURNS),
        results.saved(at, TURNS),
    ]
}

fn pairs(results: Results<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for (name, ..) in MEMORY_BOUND {
        for other in FILE_BOUND {
            rows.push(row(format!("{name} + {other}"), gains(results, xeon(name, other))));
        }
    }
    let column = |at: usize| mean(rows.iter().map(|row| row.cells[at]));
    let mean = row("mean", (0..PAIRS_HEAD.len()).map(column).collect());
    rows.push(with_paper(mean, "mean", &paper::PAIR_MEANS));
    rows
}

const MISSES_HEAD: [&str; 5] =
    ["alone", "Linux", "colours in turn", "SRM-buffer", "SRM-buffer alone"];

fn misses(results: Results<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for (name, ..) in MEMORY_BOUND {
        for other in FILE_BOUND {
            let at = xeon(name, other);
            let alone = |variant| results.misses(At { beside: ALONE, ..at }, variant);
            let with = [LINUX, TURNS, SRM].map(|variant| results.misses(at, variant));
            let cells = [&[alone(LINUX)], &with[..], &[alone(SRM)]].concat();
            if with.iter().any(Option::is_some) {
                rows.push(row(format!("{name} + {other}"), cells));
            }
        }
    }
    rows
}

const FOUR_HEAD: [&str; 6] = PAIRS_HEAD;

fn four(results: Results<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for other in ["grep", "tar"] {
        for name in SCIMARK {
            let made = row(format!("{name} + {other}"), gains(results, core_i7(name, other)));
            let known = (name, other) == ("spmv", "grep");
            rows.push(match known {
                true => with_paper(made, "MM", &paper::MM_BESIDE_GREP),
                false => made,
            });
        }
    }
    rows
}

fn greps(results: Results<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for name in ["spmv", "lu"] {
        for count in 1..=3 {
            let beside = greps_name(count);
            let at = core_i7(name, &beside);
            let slower = [LINUX, SRM].map(|variant| results.slowdown(at, variant));
            let made = row(
                format!("{name} + {beside}"),
                [&slower[..], &[results.saved(at, SRM)]].concat(),
            );
            let known = paper::GREPS.iter().find(|(own, n, _)| (*own, *n) == (name, count));
            rows.push(match (known, stands_for(name)) {
                (Some((.., slower)), Some(paper)) => with_paper(made, paper, &[*slower]),
                _ => made,
            });
        }
    }
    rows
}

fn orders(results: Results<'_>) -> Vec<TableRow> {
    let of = |name: &str| {
        let saved = |(reads, loads)| results.saved(xeon(name, &order_name(reads, loads)), SRM);
        row(name, ORDERS.map(saved).into())
    };
    SCIMARK.map(of).into()
}

const RANDOM_HEAD: [&str; 5] =
    ["slower: Linux", "SRM-buffer", "colours in turn", "time saved", "saved by colours in turn"];

fn random(results: Results<'_>) -> Vec<TableRow> {
    let of = |name: &str| {
        let at = xeon(name, "random-reader");
        let alone = |variant| results.slowdown(at, variant);
        let saved = |variant| results.saved(at, variant);
        row(name, vec![alone(LINUX), alone(SRM), alone(TURNS), saved(SRM), saved(TURNS)])
    };
    SCIMARK.map(of).into()
}

/// Percent more time than on Linux.
pub(super) fn rescan_loss(results: Results<'_>, place: Place, variant: Variant) -> Cell {
    let at = At { place, program: "rescan", beside: ALONE };
    let linux = results.get(at, LINUX)?;
    Some(100.0 * (results.get(at, variant)?.cpi() / linux.cpi() - 1.0))
}

fn rescans(results: Results<'_>) -> Vec<TableRow> {
    let of = |((place, kib), paper): ((Place, u64), f64)| {
        let cells = [SRM, Variant::Rescan].map(|variant| rescan_loss(results, place, variant));
        let name = format!("{:.1} MiB, {}", kib as f64 / 1024.0, place.text());
        with_paper(row(name, cells.into()), "the same", &[paper])
    };
    RESCANS.into_iter().zip(paper::RESCANS).map(of).collect()
}

const HITS_HEAD: [&str; 5] =
    ["lost, Tl 256", "lost, Tl 128", "Linux", "SRM-buffer, Tl 128", "SRM-buffer, Tl 256"];

fn hits(results: Results<'_>) -> Vec<TableRow> {
    let of = |memory: u64| {
        let lost = [SRM, Variant::Srm(128)].map(|variant| results.hits_lost(memory, variant));
        let ratios = [LINUX, Variant::Srm(128), SRM].map(|v| results.hit_ratio(memory, v));
        let made = row(format!("{memory} MiB"), [&lost[..], &ratios[..]].concat());
        if memory == 512 { with_paper(made, "PostMark", &paper::HITS_LOST) } else { made }
    };
    MEMORIES.map(of).into()
}

/// Those first that the paper's text has figures for.
const THRESHOLD_ORDER: [u64; 6] = [16, 128, 512, 32, 64, 256];

fn thresholds(results: Results<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for name in SCIMARK {
        for other in ["grep", "tar"] {
            let saved = |tl| results.saved(xeon(name, other), Variant::Srm(tl));
            rows.push(row(format!("{name} + {other}"), THRESHOLD_ORDER.map(saved).into()));
        }
    }
    let mean = THRESHOLD_ORDER.map(|tl| threshold_mean(results, tl));
    // Of runs that are there for other figures' sake no mean is made.
    if mean[0].is_none() {
        return Vec::new();
    }
    rows.push(with_paper(row("mean", mean.into()), "mean", &paper::THRESHOLD_MEANS));
    rows
}

/// The mean of figure 16 at a threshold.
pub(super) fn threshold_mean(results: Results<'_>, tl: u64) -> Cell {
    debug_assert!(THRESHOLDS.contains(&tl));
    let each = SCIMARK.iter().flat_map(|name| ["grep", "tar"].map(|other| (*name, other)));
    mean(each.map(|(name, other)| results.saved(xeon(name, other), Variant::Srm(tl))))
}

const TRACES_HEAD: [&str; 6] = PAIRS_HEAD;

/// The traces that were run, and what beside.
pub(super) fn traced(results: Results<'_>) -> Vec<(&str, &str)> {
    let beside = |o: &&Outcome| {
        o.part == Part::Traces && o.counts && o.beside != ALONE && o.variant == LINUX
    };
    results.0.iter().filter(beside).map(|o| (o.program.as_str(), o.beside.as_str())).collect()
}

fn traces(results: Results<'_>) -> Vec<TableRow> {
    let of = |(name, beside): (&str, &str)| {
        row(format!("{name} + {beside}"), gains(results, xeon(name, beside)))
    };
    traced(results).into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::srm::claims::tests::outcome;

    #[test]
    fn tables_have_the_papers_figures_below_ours() {
        let one = |beside, variant, cycles, misses| {
            outcome(Part::Four, Place::CoreI7, "spmv", beside, variant, cycles, misses)
        };
        let all = [
            one(ALONE, LINUX, 1000, 10),
            one(ALONE, SRM, 900, 5),
            one("grep", LINUX, 1600, 100),
            one("grep", SRM, 990, 10),
        ];
        let made = tables(&all, &[]);
        assert_eq!(made.iter().map(|table| table.id).collect::<Vec<_>>(), ["f12"]);
        let row = &made[0].rows[0];
        let cells: Vec<f64> = row.cells.iter().take(4).map(|c| c.expect("a figure")).collect();
        let wanted = [60.0, 10.0, 38.125, 90.0];
        assert!(cells.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{cells:?}");
        assert_eq!(row.paper.as_deref(), Some(&paper::MM_BESIDE_GREP[..]));
        assert_eq!(tables(&all, &["f2"]), []);
        for table in &made {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.head.len()));
        }
    }
}
