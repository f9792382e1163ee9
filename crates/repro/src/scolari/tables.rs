//! The outcomes as the curves of Scolari's figures 5 and 9 to 12, a row for each; `f9` is figure 9. The
//! paper prints no numbers for them, so rows stand alone.

use std::collections::BTreeSet;

use super::cases::{Scheme, ScolariPart, megabytes};
use super::outcome::{ScolariOutcome, ScolariProgramResult, ScolariResults};
use super::threads;
use crate::engine::{Named as _, TableSpec};
use crate::report::{TableCell, TableRow};

/// The part of the L2 that so many colours of figure 5 have: all of it from eight of 32 on.
pub fn l2_of(share: u16) -> f64 {
    (f64::from(share) / 4.0).min(1.0)
}

/// The shares of a part that were run, ascending.
fn shares(outcomes: &[ScolariOutcome], part: ScolariPart) -> BTreeSet<u16> {
    outcomes.iter().filter(|o| o.part == part).map(|o| o.share).collect()
}

/// The columns of a table: shares of the cache.
pub fn head(outcomes: &[ScolariOutcome], table: &TableSpec) -> Vec<String> {
    let shares = shares(outcomes, ScolariPart::named(&table.part)).into_iter();
    shares.map(|share| format!("{:.2} MB", megabytes(share))).collect()
}

/// The rows of a table.
pub fn rows(outcomes: &[ScolariOutcome], table: &TableSpec) -> Vec<TableRow> {
    let (results, part) = (ScolariResults(outcomes), ScolariPart::named(&table.part));
    let (shares, mut rows) = (shares(outcomes, part), Vec::new());
    if part == ScolariPart::Threads {
        return threads::rows(results, &table.id, &shares.into_iter().collect::<Vec<_>>());
    }
    for workload in results.workloads(part) {
        for scheme in Scheme::all() {
            let curve = results.curve(part, workload, scheme);
            let cell = |share: &u16| {
                let outcome = curve.iter().find(|outcome| outcome.share == *share)?;
                figure(results, &table.id, outcome)
            };
            let cells = shares.iter().map(cell).collect();
            rows.push(TableRow::named(format!("{workload}, {}", scheme.name()), cells));
        }
        if table.id == "f5" {
            rows.push(with_all_l2(results, workload, &shares));
        }
        if table.id == "f10" || table.id == "f11" {
            rows.push(polluters(results, part, workload, &shares));
        }
    }
    rows
}

fn figure(results: ScolariResults<'_>, id: &str, outcome: &ScolariOutcome) -> TableCell {
    let target = outcome.target()?;
    let percent = |share: f64| 100.0 * share;
    if id.ends_with('m') {
        return Some(percent(miss_rate(target)));
    }
    if id.ends_with('l') {
        return Some(percent(target.l2_miss_rate()));
    }
    if id.ends_with('d') {
        let all = results.disturbed(outcome.part, &outcome.workload, outcome.scheme);
        return all.iter().find(|(share, _)| *share == outcome.share).map(|(_, d)| percent(*d));
    }
    results.slowdown_of(outcome).map(percent)
}

/// Figure 9's hash-aware slowdowns, for what the L2 adds to them.
fn with_all_l2(results: ScolariResults<'_>, workload: &str, shares: &BTreeSet<u16>) -> TableRow {
    let curve = results.slowdowns(ScolariPart::Alone, workload, Scheme::Aware);
    let cell = |share: &u16| {
        curve.iter().find(|(own, _)| own == share).map(|(_, slowdown)| 100.0 * slowdown)
    };
    TableRow::named(format!("{workload}, with all of its L2"), shares.iter().map(cell).collect())
}

fn miss_rate(told: &ScolariProgramResult) -> f64 {
    told.counted.miss_rate()
}

/// The dashed lines: polluters beside a target in a hash-aware partition.
fn polluters(
    results: ScolariResults<'_>,
    part: ScolariPart,
    workload: &str,
    shares: &BTreeSet<u16>,
) -> TableRow {
    let curve = results.curve(part, workload, Scheme::Aware);
    let cell = |share: &u16| {
        let outcome = curve.iter().find(|outcome| outcome.share == *share)?;
        results.polluters(outcome).map(|slowdown| 100.0 * slowdown)
    };
    TableRow::named(format!("{workload}, polluters"), shares.iter().map(cell).collect())
}
