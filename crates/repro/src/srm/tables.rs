//! The outcomes as tables, one for each figure of the paper.

use super::cases::{ALONE, ORDERS, RESCANS, SORTING, greps_name, order_name};
use super::hits::MEMORIES;
use super::place::PaperMachine;
use super::programs::{ARRAYS, DIMENSIONS, SCAN, SCIMARK, SORT_BLOCKS};
use super::results::{self, At, SrmResults};
use super::run::SrmOutcome;
use super::variants::SrmVariant;
use crate::engine::TableSpec;
use crate::report::{TableCell, TableRow, mean};

const LINUX: SrmVariant = SrmVariant::Linux;
const TURNS: SrmVariant = SrmVariant::Turns;
const SRM: SrmVariant = SrmVariant::SRM;

/// The rows of a table.
pub fn rows(outcomes: &[SrmOutcome], table: &TableSpec) -> Vec<TableRow> {
    let results = SrmResults(outcomes);
    let each = |all: Vec<At>, of: &dyn Fn(&At) -> Vec<TableCell>| -> Vec<TableRow> {
        all.iter().map(|at| row(at.text(), of(at))).collect()
    };
    match table.id.as_str() {
        "fit" => fit(results, table),
        "f2" => ARRAYS.map(|kib| sizes(results, kib)).into(),
        "f8" => joins(results),
        "f10" => with_mean(each(results::pairs(), &|at| gains(results, at))),
        "f11" => misses(results),
        "f12" => each(results::four(), &|at| gains(results, at)[..4].to_vec()),
        "f13" => each(results::many_greps(), &|at| {
            vec![results.slowdown(at, LINUX), results.slowdown(at, SRM), results.saved(at, SRM)]
        }),
        "f14" => orders(results),
        "4.5" => results::random().iter().map(|at| random(results, at)).collect(),
        "4.5r" => rescans(results),
        "f15" => hits(results),
        "f16" => thresholds(results, &table.head),
        "f9" => queries(results),
        "4.7" => SORTING.map(|at| sorters(results, at)).into(),
        _ => each(results.traced(), &|at| gains(results, at)[..4].to_vec()),
    }
}

fn row(program: impl Into<String>, cells: Vec<TableCell>) -> TableRow {
    TableRow::named(program, cells)
}

fn with_mean(mut rows: Vec<TableRow>) -> Vec<TableRow> {
    let column = |at: usize| mean(rows.iter().filter_map(|row| row.cells[at]));
    let mean = row("mean", (0..rows[0].cells.len()).map(column).collect());
    rows.push(mean);
    rows
}

/// What the shares of waits and the bus were fitted to: percent slower on Linux, and that in percent of the paper's.
fn fit(results: SrmResults<'_>, table: &TableSpec) -> Vec<TableRow> {
    let at = |place, program: &str, beside: &str| At::new(place, program, beside);
    let (xeon, i7) = (PaperMachine::Xeon, PaperMachine::CoreI7);
    let one = |at: At| results.slowdown(&at, LINUX);
    let of_joins = |place, column: usize| {
        mean(DIMENSIONS.iter().filter_map(|&(_, mib)| join(results, place, mib)[column]))
    };
    let greps = |program: &str, count| one(at(i7, program, &greps_name(count)));
    let all = [
        ("mergesort 1536K + grep", one(at(xeon, "mergesort 1536K", "grep"))),
        ("joins + scan, Xeon 5355", of_joins(xeon, 0)),
        ("scan + joins, Xeon 5355", of_joins(xeon, 1)),
        ("pairs", mean(results::pairs().into_iter().filter_map(one))),
        ("joins + scan, Core i7 860", of_joins(i7, 0)),
        ("scan + joins, Core i7 860", of_joins(i7, 1)),
        ("spmv among four", one(at(i7, "spmv", "grep"))),
        ("spmv + 1 x grep", greps("spmv", 1)),
        ("spmv + 3 x grep", greps("spmv", 3)),
        ("lu + 1 x grep", greps("lu", 1)),
        ("lu + 3 x grep", greps("lu", 3)),
        ("4 sort, blocks of 512 KiB", results.sorters_slower(i7, SORT_BLOCKS[0])),
    ];
    let cells = |(name, own): (&str, TableCell)| {
        let paper = table.of(name).and_then(|figures| figures.first());
        let share = own.zip(paper).map(|(own, paper)| 100.0 * own / paper);
        row(name, vec![own, share])
    };
    all.into_iter().map(cells).collect()
}

fn sizes(results: SrmResults<'_>, kib: u64) -> TableRow {
    let at = At::new(PaperMachine::Xeon, format!("mergesort {kib}K"), "grep");
    let order = [LINUX, SrmVariant::OneColor, SRM];
    let slower = order.map(|variant| results.slowdown(&at, variant));
    let misses = order.map(|variant| results.misses(&at, variant));
    let alone = results.misses(&at.alone(), LINUX);
    row(at.program, [&slower[..], &[alone], &misses[..]].concat())
}

fn joins(results: SrmResults<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for place in [PaperMachine::Xeon, PaperMachine::CoreI7] {
        let cells = DIMENSIONS.map(|(_, mib)| (mib, join(results, place, mib)));
        let mean = |column: usize| mean(cells.iter().filter_map(|(_, cells)| cells[column]));
        let mean = row(format!("mean, {}", place.text()), (0..4).map(mean).collect());
        let each = cells.iter().map(|(mib, cells)| (format!("{mib} MiB, {}", place.text()), cells));
        rows.extend(each.map(|(name, cells)| row(name, cells.clone())));
        rows.push(mean);
    }
    rows
}

fn join(results: SrmResults<'_>, place: PaperMachine, mib: u64) -> Vec<TableCell> {
    let at = &At::new(place, format!("join {mib}M"), SCAN);
    let scan = |variant| {
        let alone = results.get(&At::new(place, SCAN, ALONE), variant)?;
        Some((results.other(at, SCAN, variant)?.cpi(), alone.cpi()))
    };
    let slower = |variant| scan(variant).map(|(with, alone)| 100.0 * (with / alone - 1.0));
    let saved = || Some(100.0 * (1.0 - scan(SRM)?.0 / scan(LINUX)?.0));
    let join = |variant| results.slowdown(at, variant);
    vec![join(LINUX), slower(LINUX), results.saved(at, SRM), saved()]
}

fn gains(results: SrmResults<'_>, at: &At) -> Vec<TableCell> {
    vec![
        results.slowdown(at, LINUX),
        results.slowdown(at, SRM),
        results.saved(at, SRM),
        results.removed(at, SRM),
        results.slowdown(at, TURNS),
        results.saved(at, TURNS),
    ]
}

fn misses(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |at: At| {
        let alone = |variant| results.misses(&at.alone(), variant);
        let with = [LINUX, TURNS, SRM].map(|variant| results.misses(&at, variant));
        let cells = [&[alone(LINUX)], &with[..], &[alone(SRM)]].concat();
        with.iter().any(Option::is_some).then(|| row(at.text(), cells))
    };
    results::pairs().into_iter().filter_map(of).collect()
}

fn orders(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |name: &str| {
        let at = |(reads, loads)| At::new(PaperMachine::Xeon, name, order_name(reads, loads));
        row(name, ORDERS.map(|order| results.saved(&at(order), SRM)).into())
    };
    SCIMARK.map(of).into()
}

fn random(results: SrmResults<'_>, at: &At) -> TableRow {
    let slower = [LINUX, SRM].map(|variant| results.slowdown(at, variant));
    row(&at.program, [&slower[..], &[results.saved(at, SRM)]].concat())
}

/// Percent more time than on Linux.
pub(super) fn rescan_loss(
    results: SrmResults<'_>,
    place: PaperMachine,
    variant: SrmVariant,
) -> TableCell {
    Some(0.0 - results.saved(&At::new(place, "rescan", ALONE), variant)?)
}

fn rescans(results: SrmResults<'_>) -> Vec<TableRow> {
    let of = |(place, kib): (PaperMachine, u64)| {
        let cells = [SRM, SrmVariant::Rescan].map(|variant| rescan_loss(results, place, variant));
        let name = format!("{:.1} MiB, {}", kib as f64 / 1024.0, place.text());
        row(name, cells.into())
    };
    RESCANS.map(of).into()
}

/// Queries, and below those beside a scan the scan.
fn queries(results: SrmResults<'_>) -> Vec<TableRow> {
    let both = |of: &dyn Fn(SrmVariant) -> TableCell| [LINUX, SRM].map(of);
    let of = |at: At| {
        let [linux, srm] = both(&|variant| results.slowdown(&at, variant));
        let own = vec![linux, srm, results.slowdown_removed(&at), results.saved(&at, SRM)];
        let [linux, srm] = both(&|variant| results.other_slowdown(&at, variant));
        let other = vec![linux, srm, linux.zip(srm).map(|(linux, srm)| linux - srm), None];
        let scan = At::new(at.place, &at.beside, &at.program);
        let scan = at.beside.starts_with(SCAN).then(|| row(scan.text(), other));
        [Some(row(at.text(), own)), scan].into_iter().flatten()
    };
    [true, false].into_iter().flat_map(results::queries).flat_map(of).collect()
}

fn sorters(results: SrmResults<'_>, (place, count): (PaperMachine, u32)) -> TableRow {
    let slower = SORT_BLOCKS.map(|kib| results.sorters_slower(place, kib));
    row(format!("{count} sort, {}", place.text()), slower.into())
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
    let mean: Vec<TableCell> = all.iter().map(|&tl| results.mean_saved(tl)).collect();
    // Of runs that are there for other figures' sake no mean is made.
    if mean[0].is_none() {
        return Vec::new();
    }
    let of = |at: At| {
        let saved = |&tl: &u64| results.saved(&at, SrmVariant::Srm(tl));
        row(at.text(), all.iter().map(saved).collect())
    };
    results::readers().into_iter().map(of).chain([row("mean", mean.clone())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine;
    use crate::srm::cases::TOGETHER;
    use crate::srm::measures::tests::outcome;
    use crate::srm::programs::sorter_name;
    use crate::srm::{SrmPart, SrmStudy};

    #[test]
    fn programs_that_sort_are_compared_with_one_alone() {
        let one = |number: u32, beside, cycles| {
            let name = sorter_name(512, number);
            let place = PaperMachine::CoreI7;
            outcome(SrmPart::Cores, place, &name, beside, LINUX, cycles, 10)
        };
        let together = [1050, 1100, 1150, 1300].into_iter().zip(0..);
        let together = together.map(|(cycles, number)| one(number, TOGETHER, cycles));
        let all: Vec<SrmOutcome> = together.chain([one(2, ALONE, 1000)]).collect();
        let made = engine::tables::<SrmStudy>(&all, &["4.7"]);
        let row = &made[0].rows[0];
        assert!((row.cells[0].expect("a mean") - 15.0).abs() < 1e-9, "{row:?}");
        assert_eq!((row.cells[1], row.paper.as_deref()), (None, Some(&[11.0, 15.0][..])));
    }

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
        assert_eq!(made.iter().map(|table| table.id.as_str()).collect::<Vec<_>>(), ["fit", "f12"]);
        let fitted = made[0].rows[0].cells[0].expect("what MM was fitted to");
        assert!((fitted - 60.0).abs() < 1e-9, "{fitted}");
        let row = &made[1].rows[0];
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
