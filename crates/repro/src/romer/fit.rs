//! How near workloads are to the programs of the thesis before any policy: its baseline figures beside
//! theirs. A workload counts in statements if it stands for a program of the thesis and all of that
//! program's baseline figures are met; the others are run, shown and left out.

use super::RomerStudy;
use super::results::RomerResults;
use super::run::RomerOutcome;
use super::variants::{Initial, RomerPart};
use crate::engine::{Study as _, TableSpec};
use crate::report::TableCell;

/// A figure is met within this factor,
const FACTOR: f64 = 1.3;
/// or within a unit of the last place that the thesis prints: hundredths of a cycle, whole percents.
const fn unit(part: RomerPart) -> f64 {
    if matches!(part, RomerPart::Superpages) { 1.0 } else { 0.01 }
}

/// The table of a part's baselines.
fn table(part: RomerPart) -> &'static TableSpec {
    RomerStudy::paper().table(match part.origin() {
        RomerPart::Superpages => "3-fit",
        RomerPart::Combined => "6-fit",
        _ => "4-fit",
    })
}

/// Whether a figure is near enough to the thesis's.
fn is_met(part: RomerPart, own: f64, paper: f64) -> bool {
    let near = own <= FACTOR * paper && paper <= FACTOR * own;
    near || (own - paper).abs() <= unit(part)
}

/// The baseline figures of a workload, in the order of the table, and how many are met.
pub fn cells(results: RomerResults<'_>, part: RomerPart, program: &str) -> Vec<TableCell> {
    let own = baseline(results, part, program);
    let met = met(results, part, program).map(|(met, _)| met as f64);
    own.into_iter().chain([met]).collect()
}

fn baseline(results: RomerResults<'_>, part: RomerPart, program: &str) -> Vec<TableCell> {
    let of = |initial, policy: &str, figure: fn(&RomerOutcome) -> f64| {
        results.get(part, initial, program, policy).map(figure)
    };
    let (coloring, bins, l2) = (Initial::Coloring, Initial::BinHopping, RomerOutcome::l2_mcpi);
    match part {
        RomerPart::Superpages => tlb(results, program),
        RomerPart::Combined => {
            let misses: fn(&RomerOutcome) -> f64 = |outcome| outcome.rates.l2_miss_cpi;
            vec![of(coloring, "DM", misses), of(bins, "DM", misses), of(coloring, "DM", l2)]
        }
        _ => vec![
            of(coloring, "DM", l2),
            of(coloring, "A2", l2),
            of(bins, "DM", l2),
            of(bins, "A2", l2),
            of(coloring, "DM", |outcome| outcome.rates.mcpi),
        ],
    }
}

/// Percent of the misses that larger pages leave, percent of the time that misses take, and MB.
fn tlb(results: RomerResults<'_>, program: &str) -> Vec<TableCell> {
    let of = |policy| results.colored(RomerPart::Superpages, program, policy);
    let left = |policy| {
        let base = of("FIXED 4 KB")?.tlb_misses.max(1) as f64;
        Some(100.0 * of(policy)?.tlb_misses as f64 / base)
    };
    let base = of("FIXED 4 KB");
    let time = base.map(|base| 100.0 * base.tlb_mcpi() / (1.0 + base.tlb_mcpi()));
    let size = base.map(|base| base.pages as f64 / 256.0);
    vec![left("FIXED 16 KB"), left("FIXED 64 KB"), time, size]
}

/// How many of the thesis's figures a workload meets, and how many there are; none for one that stands
/// for no program of the thesis.
fn met(results: RomerResults<'_>, part: RomerPart, program: &str) -> Option<(usize, usize)> {
    let programs = results.programs(part).into_iter();
    let stands_for = programs.filter(|(name, _)| *name == program).map(|(_, of)| of).next()?;
    if stands_for.is_empty() {
        return None;
    }
    // The last column says how many figures there are.
    let paper = table(part).of(stands_for).unwrap_or_default();
    let paper = &paper[..paper.len().min(table(part).head.len() - 1)];
    let own = baseline(results, part, program);
    let pairs = own.iter().zip(paper).filter(|(_, paper)| !paper.is_nan());
    let met = |&(own, paper): &(&TableCell, &f64)| own.is_some_and(|own| is_met(part, own, *paper));
    Some((pairs.clone().filter(met).count(), pairs.count()))
}

/// The workloads that count in statements about a part: by their baselines in the part that they are from.
pub fn counted<'a>(results: RomerResults<'a>, part: RomerPart) -> Vec<&'a str> {
    let (names, part) = (results.programs(part).into_iter().map(|(name, _)| name), part.origin());
    names.filter(|name| met(results, part, name).is_some_and(|(met, all)| met == all)).collect()
}

/// Why a workload does not count; none of one that does.
pub fn why_not(results: RomerResults<'_>, part: RomerPart, program: &str) -> Option<String> {
    match met(results, part, program) {
        Some((met, all)) if met == all => None,
        Some((met, all)) => Some(format!("unfit, {met} of {all} baseline figures within 1.3x")),
        None => Some("stands for no program of the thesis".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Named as _;

    #[test]
    fn figures_are_met_by_factor_or_by_the_last_place() {
        let met = |own, paper| is_met(RomerPart::Conflicts, own, paper);
        assert!(met(0.26, 0.20) && met(0.154, 0.20) && !met(0.27, 0.20) && !met(0.15, 0.20));
        assert!(met(0.03, 0.02) && !met(0.04, 0.02) && met(0.0, 0.01));
        assert!(
            is_met(RomerPart::Superpages, 0.9, 0.0) && !is_met(RomerPart::Superpages, 1.1, 0.0)
        );
    }

    #[test]
    fn each_part_has_its_baselines() {
        for part in RomerPart::all() {
            let table = table(part);
            assert!(!table.paper.is_empty(), "{part:?}");
            for (program, figures) in &table.paper {
                assert!(figures.figures().len() <= table.head.len(), "{program}");
            }
        }
    }
}
