//! The outcomes as the tables of Romer 1998. Figures are tables here too, `f3-3` being figure 3-3; what
//! they draw is in [`super::figures`].

use std::collections::BTreeSet;

use super::alpha;
use super::fit;
use super::latency;
use super::measures::page_sizes;
use super::results::RomerResults;
use super::run::RomerOutcome;
use super::stability;
use super::sweeps;
use super::variants::{Initial, RomerPart};
use crate::engine::{Named as _, TableSpec};
use crate::report::{TableCell, TableRow};

/// The rows of a table.
pub fn rows(outcomes: &[RomerOutcome], table: &TableSpec) -> Vec<TableRow> {
    let (results, part) = (RomerResults(outcomes), RomerPart::named(&table.part));
    let row = |(program, stands_for): (&str, &str)| {
        let cells = cells(results, &table.id, part, program, &table.head);
        TableRow::of(program, stands_for, cells)
    };
    results.programs(part).into_iter().map(row).collect()
}

/// Ways to choose page sizes, as tables and figures list them.
pub const SUPERPAGES: [&str; 8] = [
    "FIXED 4 KB",
    "FIXED 16 KB",
    "FIXED 64 KB",
    "OFFLINE",
    "ASAP",
    "ASAP-4-64",
    "ONLINE",
    "APPROX-ONLINE",
];

fn cells(
    results: RomerResults<'_>,
    id: &str,
    part: RomerPart,
    program: &str,
    head: &[String],
) -> Vec<TableCell> {
    let colored = |policy: &str| results.colored(part, program, policy);
    let each = |of: &dyn Fn(&str) -> TableCell| head.iter().map(|name| of(name)).collect();
    match id {
        "3-4" => each(&|policy| Some(colored(policy)?.tlb_misses as f64 / 100.0)),
        "3-5" => each(&|policy| Some(less_time(colored("FIXED 4 KB")?, colored(policy)?))),
        "3-6" => final_sizes(colored("APPROX-ONLINE")),
        "f3-3" => each(&|policy| Some(colored(policy)?.tlb_mcpi())),
        "f3-4" => each(&|policy| Some(100.0 * results.growth(program, policy)?)),
        "f4-1" => each(&|policy| Some(colored(policy)?.l2_mcpi())),
        "f4-1r" => each(&|p| Some(results.get(part, Initial::Random, program, p)?.l2_mcpi())),
        "4-6" => each(&|name| Some(mapped(results, part, program, name)?.l2_mcpi())),
        "5-3" => each(&|policy| Some(colored(policy)?.rates.mcpi)),
        "5-2" => break_even(results, part, program),
        "f5-4" | "f5-6" | "f5-6o" | "f5-6r" | "s5.6.2" | "s5.6.3" => {
            sweeps::of_cml(results, id, (part, program), head)
        }
        "f5-5" => stability::cells(colored("CML")),
        "3-fit" | "4-fit" | "6-fit" => fit::cells(results, part, program),
        "4-8" | "4-8r" => alpha::cells(results, id, program),
        "s6.5.2" => each(&|name| Some(colored(&sweeps::throttle(name))?.rates.tlb_mcpi)),
        "s6.6.3" => latency::cells(results, program),
        "6-3" => copied_by(results, program),
        "6-4" => times(colored("COMBINED")),
        "6-5" => times(colored("CML")),
        _ => each(&|name| Some(mapped(results, part, program, name)?.l2_mcpi())),
    }
}

/// The outcome of a column such as `BH CML`.
fn mapped<'a>(
    results: RomerResults<'a>,
    part: RomerPart,
    program: &str,
    column: &str,
) -> Option<&'a RomerOutcome> {
    let (mapping, policy) = column.split_once(' ')?;
    let initial = if mapping == "BH" { Initial::BinHopping } else { Initial::Coloring };
    results.get(part, initial, program, policy)
}

/// Pages of each size at the end.
fn final_sizes(outcome: Option<&RomerOutcome>) -> Vec<TableCell> {
    let Some(outcome) = outcome else { return vec![None; 12] };
    page_sizes(outcome).into_iter().map(|pages| Some(pages as f64)).collect()
}

/// Percent of the time that is saved. The thesis measured what a program takes besides its TLB;
/// here that is one cycle for each instruction, as in section 3.1.
fn less_time(base: &RomerOutcome, with: &RomerOutcome) -> f64 {
    100.0 * (1.0 - (1.0 + with.tlb_mcpi()) / (1.0 + base.tlb_mcpi()))
}

/// Cycles for a request that make another cache as slow as CML (section 5.5): those of a two-way
/// cache are for all its requests, those of a column-associative one for hits in second places.
fn break_even(results: RomerResults<'_>, part: RomerPart, program: &str) -> Vec<TableCell> {
    let of = |policy| results.colored(part, program, policy);
    let cycles = |outcome: &RomerOutcome| outcome.costs.stall_cycles() as f64;
    let helps = |other: &RomerOutcome| {
        let [dm, cml] = [of("DM")?, of("CML")?].map(cycles);
        (cycles(other) < dm && cml < dm).then_some(cml - cycles(other))
    };
    let two_way = || {
        let a2 = of("A2")?;
        Some(5.0 + helps(a2)? / a2.last_requests.max(1) as f64)
    };
    let column = || {
        let column = of("Column")?;
        // It was run with a cycle for a second look, which takes six in all.
        let hits = column.second_hits;
        (hits > 0).then_some(())?;
        Some(6.0 + helps(column)? / hits as f64)
    };
    vec![two_way(), column()]
}

/// Of the pages that CML or THROTTLE copy, percent by who does.
fn copied_by(results: RomerResults<'_>, program: &str) -> Vec<TableCell> {
    let of = |policy| results.colored(RomerPart::Combined, program, policy);
    let shares = || {
        let moved: BTreeSet<u64> = of("CML")?.moved.keys().copied().collect();
        let promoted = &of("THROTTLE")?.promoted;
        let all = moved.union(promoted).count();
        let both = moved.intersection(promoted).count();
        let percent = |n: usize| Some(100.0 * n as f64 / all as f64);
        (all > 0).then(|| {
            vec![percent(promoted.len() - both), percent(moved.len() - both), percent(both)]
        })
    };
    shares().unwrap_or_else(|| vec![None; 3])
}

/// Pages recoloured, and percent of all recolourings by how often their page was.
fn times(outcome: Option<&RomerOutcome>) -> Vec<TableCell> {
    let Some(outcome) = outcome else { return vec![None; 6] };
    let all: u32 = outcome.moved.values().sum();
    let mut sums = [0; 5];
    for &times in outcome.moved.values() {
        sums[(times as usize).clamp(1, 5) - 1] += times;
    }
    let percent = |sum| (all > 0).then(|| 100.0 * f64::from(sum) / f64::from(all));
    let pages = std::iter::once(Some(outcome.moved.len() as f64));
    pages.chain(sums.map(percent)).collect()
}
