//! What the thesis's figures draw, as numbers: points, stacked bars, and values over two sizes.
//! Who draws them how is the caller's business.

use super::super::engine::Named as _;
use super::super::report::{BarGroup, Drawing, Shape, figure};
use super::results::RomerResults;
use super::run::RomerOutcome;
use super::stability;
use super::tables::SUPERPAGES;
use super::variants::{BOTH, Initial, PAGES, RomerPart, SEGMENTS, SOFTWARE};

const OVERHEAD: &str = "memory usage overhead, percent";

/// All drawings for which there are outcomes.
pub fn figures(outcomes: &[RomerOutcome]) -> Vec<Drawing> {
    let results = RomerResults(outcomes);
    let mut all = Vec::new();
    if !results.programs(RomerPart::Superpages).is_empty() {
        all.extend([page_sizes(results), tlb_bars(results), trade_off(results)]);
    }
    if !results.programs(RomerPart::Conflicts).is_empty() {
        for initial in [Initial::Coloring, Initial::Random] {
            all.push(conflict_bars(results, initial));
        }
        all.extend([hardware_bars(results), stability_bars(results)]);
    }
    if !results.programs(RomerPart::PageSizes).is_empty() {
        all.push(page_size_bars(results));
    }
    for (program, _) in results.programs(RomerPart::Buffer) {
        all.extend(buffer(results, program));
    }
    if !results.programs(RomerPart::Combined).is_empty() {
        for initial in [Initial::Coloring, Initial::BinHopping] {
            all.push(combined_bars(results, initial));
        }
    }
    all
}

/// Overhead in percent and TLBMCPI.
fn point(results: RomerResults<'_>, program: &str, policy: &str) -> Option<(f64, f64)> {
    let outcome = results.colored(RomerPart::Superpages, program, policy)?;
    Some((100.0 * results.growth(program, policy)?, outcome.tlb_mcpi()))
}

/// Figure 3-1.
fn page_sizes(results: RomerResults<'_>) -> Drawing {
    let sizes = [4, 8, 16, 32, 64, 128, 256].map(|kib| format!("FIXED {kib} KB"));
    let line = |(program, _): (&str, _)| {
        let points = sizes.iter().filter_map(|size| point(results, program, size));
        (program.to_owned(), points.collect())
    };
    let series = results.programs(RomerPart::Superpages).into_iter().map(line).collect();
    let shape = Shape::Points { across: OVERHEAD, up: "TLBMCPI", joined: true, series };
    figure("3-1-page-sizes", "Figure 3-1: pages of 4 KB to 256 KB for everything", shape)
}

/// Figure 3-5.
fn trade_off(results: RomerResults<'_>) -> Drawing {
    let programs = results.programs(RomerPart::Superpages);
    let series = SUPERPAGES.map(|policy| {
        let points = programs.iter().filter_map(|(program, _)| point(results, program, policy));
        (policy.to_owned(), points.collect())
    });
    let shape =
        Shape::Points { across: OVERHEAD, up: "TLBMCPI", joined: false, series: series.into() };
    figure("3-5-trade-off", "Figure 3-5: every workload under each policy", shape)
}

/// Bars of a part: for each workload, the policies that were run.
fn groups(
    results: RomerResults<'_>,
    part: RomerPart,
    initial: Initial,
    policies: &[&str],
    parts: impl Fn(&RomerOutcome) -> Vec<f64>,
) -> Vec<BarGroup> {
    let group = |(program, _): (&str, _)| {
        let bars = policies.iter().filter_map(|policy| {
            let outcome = results.get(part, initial, program, policy)?;
            Some(((*policy).to_owned(), parts(outcome)))
        });
        (program.to_owned(), bars.collect())
    };
    results.programs(part).into_iter().map(group).collect()
}

/// Figure 3-3.
fn tlb_bars(results: RomerResults<'_>) -> Drawing {
    let policies = [&SUPERPAGES[..], &["THROTTLE"]].concat();
    let parts = |outcome: &RomerOutcome| outcome.tlb_parts().to_vec();
    let groups = groups(results, RomerPart::Superpages, Initial::Coloring, &policies, parts);
    let parts = vec!["miss handler", "bookkeeping", "copies"];
    let shape = Shape::Bars { up: "TLBMCPI", parts, groups };
    figure("3-3-tlbmcpi", "Figure 3-3: what the TLB costs", shape)
}

fn l2_parts(outcome: &RomerOutcome) -> Vec<f64> {
    let rates = &outcome.rates;
    vec![rates.l2_miss_cpi, rates.recolor_cpi + rates.policy_cpi, rates.tlb_mcpi]
}

const L2_PARTS: [&str; 3] = ["L2 misses", "recolouring and policy", "TLB"];

/// Figure 4-1.
fn conflict_bars(results: RomerResults<'_>, initial: Initial) -> Drawing {
    let policies = [&["DM"], &SOFTWARE[..]].concat();
    let groups = groups(results, RomerPart::Conflicts, initial, &policies, l2_parts);
    let shape = Shape::Bars { up: "L2 MCPI", parts: L2_PARTS.to_vec(), groups };
    let name = if initial == Initial::Random { "4-1-random" } else { "4-1-coloring" };
    figure(name, format!("Figure 4-1: software policies, initially {}", initial.name()), shape)
}

/// Figure 5-3.
fn hardware_bars(results: RomerResults<'_>) -> Drawing {
    let policies = ["DM", "Snapshot-Miss", "CML", "CML-Fit", "A2"];
    let groups = groups(results, RomerPart::Conflicts, Initial::Coloring, &policies, l2_parts);
    let shape = Shape::Bars { up: "L2 MCPI", parts: L2_PARTS.to_vec(), groups };
    figure("5-3-feedback", "Figure 5-3: software, the CML buffer, and a two-way cache", shape)
}

/// Figure 5-5.
fn stability_bars(results: RomerResults<'_>) -> Drawing {
    let parts = |outcome: &RomerOutcome| {
        let counts = stability::cells(Some(outcome)).into_iter().skip(1);
        counts.map(Option::unwrap_or_default).collect()
    };
    let groups = groups(results, RomerPart::Conflicts, Initial::Coloring, &["CML"], parts);
    let parts = vec!["in one conflict", "two", "three", "four", "more"];
    let shape = Shape::Bars { up: "pages", parts, groups };
    figure("5-5-stability", "Figure 5-5: pages in conflicts under CML", shape)
}

/// Figure 5-6.
fn page_size_bars(results: RomerResults<'_>) -> Drawing {
    let groups = groups(results, RomerPart::PageSizes, Initial::Coloring, &PAGES, l2_parts);
    let shape = Shape::Bars { up: "L2 MCPI", parts: L2_PARTS.to_vec(), groups };
    figure("5-6-page-size", "Figure 5-6: CML with pages of three sizes", shape)
}

/// Figure 5-4.
fn buffer(results: RomerResults<'_>, program: &str) -> Option<Drawing> {
    let value = |lru: usize, hot: usize| {
        let policy = format!("CML {lru}+{hot}");
        Some(results.get(RomerPart::Buffer, Initial::Coloring, program, &policy)?.l2_mcpi())
    };
    let row = |lru: &usize| SEGMENTS.iter().map(|&hot| value(*lru, hot)).collect();
    let rows = SEGMENTS.iter().map(row).collect::<Option<Vec<Vec<f64>>>>()?;
    let across = ("pages in HOT", SEGMENTS.to_vec());
    let shape = Shape::Shades { across, up: ("pages in LRU", SEGMENTS.to_vec()), rows };
    let title = format!("Figure 5-4: L2 MCPI of {program} by size of the CML buffer");
    Some(figure(&format!("5-4-{program}"), title, shape))
}

/// Figures 6-6 and 6-7.
fn combined_bars(results: RomerResults<'_>, initial: Initial) -> Drawing {
    let groups = groups(results, RomerPart::Combined, initial, &BOTH, l2_parts);
    let parts = vec!["L2 misses", "recolouring and policy", "TLB, superpages included"];
    let (name, number) = match initial {
        Initial::BinHopping => ("6-7-bin-hopping", "6-7"),
        _ => ("6-6-coloring", "6-6"),
    };
    let title = format!("Figure {number}: both policies, {}", initial.name());
    figure(name, title, Shape::Bars { up: "MCPI", parts, groups })
}
