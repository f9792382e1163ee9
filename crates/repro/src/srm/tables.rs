//! The outcomes as tables, one for each figure of the paper.

use super::cases::{ALONE, ORDERS, RESCANS, SCAN, SrmPart, THRESHOLDS, greps_name, order_name};
use super::hits::MEMORIES;
use super::place::PaperMachine;
use super::programs::{ARRAYS, DIMENSIONS, FILE_BOUND, MEMORY_BOUND, SCIMARK};
use super::results::{At, SrmResults, mean};
use super::run::SrmOutcome;
use super::variants::SrmVariant;
use crate::engine::TableSpec;
use crate::report::{TableCell, TableRow};

const LINUX: SrmVariant = SrmVariant::Linux;
const TURNS: SrmVariant = SrmVariant::Turns;
const SRM: SrmVariant = SrmVariant::SRM;

/// The rows of a table.
pub fn rows(outcomes: &[SrmOutcome], table: &TableSpec) -> Vec<TableRow> {
    let results = SrmResults(outcomes);
    match table.id.as_str() {
        "f2" => sizes(results),
        "f8" => joins(results),
        "f10" => pairs(results),
        "f11" => misses(results),
        "f12" => four(results),
        "f13" => greps(results),
        "f14" => orders(results),
        "4.5" => random(results),
        "4.5r" => rescans(results),
        "f15" => hits(results),
        "f16" => thresholds(results, &table.head),
        _ => traces(results),
    }
}

fn row(program: impl Into<String>, cells: Vec<TableCell>) -> TableRow {
    TableRow::named(program, cells)
}

const fn xeon<'a>(program: &'a str, beside: &'a str) -> At<'a> {
    At { place: PaperMachine::Xeon, program, beside }
}

const fn core_i7<'a>(program: &'a str, beside: &'a str) -> At<'a> {
    At { place: PaperMachine::CoreI7, program, beside }
}

fn sizes(results: SrmResults<'_>) -> Vec<TableRow> {
    let each = ARRAYS.map(|kib| {
        let name = format!("mergesort {kib}K");
        let at = xeon(&name, "grep");
        let order = [LINUX, SrmVariant::OneColor, SRM, TURNS];
        let slower = order.map(|variant| results.slowdown(at, variant));
        let misses = order.map(|variant| results.misses(at, variant));
        let alone = results.misses(At { beside: ALONE, ..at }, LINUX);
        row(name.clone(), [&slower[..], &[alone], &misses[..]].concat())
    });
    each.into()
}

fn joins(results: SrmResults<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for place in [PaperMachine::Xeon, PaperMachine::CoreI7] {
        let cells = DIMENSIONS.map(|(_, mib)| (mib, join(results, place, mib)));
        let mean = |column: usize| mean(cells.iter().map(|(_, cells)| cells[column]));
        let mean = row(format!("mean, {}", place.text()), (0..6).map(mean).collect());
        let each = cells.iter().map(|(mib, cells)| (format!("{mib} MiB, {}", place.text()), cells));
        rows.extend(each.map(|(name, cells)| row(name, cells.clone())));
        rows.push(mean);
    }
    rows
}

fn join(results: SrmResults<'_>, place: PaperMachine, mib: u64) -> Vec<TableCell> {
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

fn gains(results: SrmResults<'_>, at: At<'_>) -> Vec<TableCell> {
    vec![
        results.slowdown(at, LINUX),
        results.slowdown(at, SRM),
        results.saved(at, SRM),
        results.removed(at, SRM),
        results.slowdown(at, TURNS),
        results.saved(at, TURNS),
    ]
}

fn pairs(results: SrmResults<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for (name, ..) in MEMORY_BOUND {
        for other in FILE_BOUND {
            rows.push(row(format!("{name} + {other}"), gains(results, xeon(name, other))));
        }
    }
    let column = |at: usize| mean(rows.iter().map(|row| row.cells[at]));
    let mean = row("mean", (0..rows[0].cells.len()).map(column).collect());
    rows.push(mean);
    rows
}

fn misses(results: SrmResults<'_>) -> Vec<TableRow> {
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

fn four(results: SrmResults<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for other in ["grep", "tar"] {
        for name in SCIMARK {
            rows.push(row(format!("{name} + {other}"), gains(results, core_i7(name, other))));
        }
    }
    rows
}

fn greps(results: SrmResults<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for name in ["spmv", "lu"] {
        for count in 1..=3 {
            let beside = greps_name(count);
            let at = core_i7(name, &beside);
            let slower = [LINUX, SRM].map(|variant| results.slowdown(at, variant));
            let cells = [&slower[..], &[results.saved(at, SRM)]].concat();
            rows.push(row(format!("{name} + {beside}"), cells));
        }
    }
    rows
}

fn orders(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |name: &str| {
        let saved = |(reads, loads)| results.saved(xeon(name, &order_name(reads, loads)), SRM);
        row(name, ORDERS.map(saved).into())
    };
    SCIMARK.map(of).into()
}

fn random(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |name: &str| {
        let at = xeon(name, "random-reader");
        let alone = |variant| results.slowdown(at, variant);
        let saved = |variant| results.saved(at, variant);
        row(name, vec![alone(LINUX), alone(SRM), alone(TURNS), saved(SRM), saved(TURNS)])
    };
    SCIMARK.map(of).into()
}

/// Percent more time than on Linux.
pub(super) fn rescan_loss(
    results: SrmResults<'_>,
    place: PaperMachine,
    variant: SrmVariant,
) -> TableCell {
    let at = At { place, program: "rescan", beside: ALONE };
    let linux = results.get(at, LINUX)?;
    Some(100.0 * (results.get(at, variant)?.cpi() / linux.cpi() - 1.0))
}

fn rescans(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |(place, kib): (PaperMachine, u64)| {
        let cells = [SRM, SrmVariant::Rescan].map(|variant| rescan_loss(results, place, variant));
        let name = format!("{:.1} MiB, {}", kib as f64 / 1024.0, place.text());
        row(name, cells.into())
    };
    RESCANS.map(of).into()
}

fn hits(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |memory: u64| {
        let lost = [SRM, SrmVariant::Srm(128)].map(|variant| results.hits_lost(memory, variant));
        let ratios = [LINUX, SrmVariant::Srm(128), SRM].map(|v| results.hit_ratio(memory, v));
        row(format!("{memory} MiB"), [&lost[..], &ratios[..]].concat())
    };
    MEMORIES.map(of).into()
}

fn thresholds(results: SrmResults<'_>, head: &[String]) -> Vec<TableRow> {
    // Those first that the paper's text has figures for.
    let all: Vec<u64> = head.iter().filter_map(|tl| tl.parse().ok()).collect();
    let mean: Vec<TableCell> = all.iter().map(|&tl| threshold_mean(results, tl)).collect();
    // Of runs that are there for other figures' sake no mean is made.
    if mean[0].is_none() {
        return Vec::new();
    }
    let of = |(name, other): (&str, &str)| {
        let saved = |&tl: &u64| results.saved(xeon(name, other), SrmVariant::Srm(tl));
        row(format!("{name} + {other}"), all.iter().map(saved).collect())
    };
    let each = SCIMARK.iter().flat_map(|name| ["grep", "tar"].map(|other| (*name, other)));
    each.map(of).chain([row("mean", mean.clone())]).collect()
}

/// The mean of figure 16 at a threshold.
pub(super) fn threshold_mean(results: SrmResults<'_>, tl: u64) -> TableCell {
    debug_assert!(THRESHOLDS.contains(&tl));
    let each = SCIMARK.iter().flat_map(|name| ["grep", "tar"].map(|other| (*name, other)));
    mean(each.map(|(name, other)| results.saved(xeon(name, other), SrmVariant::Srm(tl))))
}

/// The traces that were run, and what beside.
pub(super) fn traced(results: SrmResults<'_>) -> Vec<(&str, &str)> {
    let beside = |o: &&SrmOutcome| {
        o.part == SrmPart::Traces && o.counts && o.beside != ALONE && o.variant == LINUX
    };
    results.0.iter().filter(beside).map(|o| (o.program.as_str(), o.beside.as_str())).collect()
}

fn traces(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |(name, beside): (&str, &str)| {
        row(format!("{name} + {beside}"), gains(results, xeon(name, beside)))
    };
    traced(results).into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine;
    use crate::srm::SrmStudy;
    use crate::srm::measures::tests::outcome;

    #[test]
    fn tables_have_the_papers_figures_below_ours() {
        let one = |beside, variant, cycles, misses| {
            outcome(SrmPart::Four, PaperMachine::CoreI7, "spmv", beside, variant, cycles, misses)
        };
        let all = [
            one(ALONE, LINUX, 1000, 10),
            one(ALONE, SRM, 900, 5),
            one("grep", LINUX, 1600, 100),
            one("grep", SRM, 990, 10),
        ];
        let made = engine::tables::<SrmStudy>(&all, &[]);
        assert_eq!(made.iter().map(|table| table.id.as_str()).collect::<Vec<_>>(), ["f12"]);
        let row = &made[0].rows[0];
        let cells: Vec<f64> = row.cells.iter().take(4).map(|c| c.expect("a figure")).collect();
        let wanted = [60.0, 10.0, 38.125, 90.0];
        assert!(cells.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{cells:?}");
        assert_eq!(row.paper.as_deref(), Some(&[60.0, 2.0, 36.0, 90.0][..]));
        assert_eq!(row.stands_for.as_deref(), Some("MM"));
        assert_eq!(engine::tables::<SrmStudy>(&all, &["f2"]), []);
        for table in &made {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.head.len()));
        }
    }
}
