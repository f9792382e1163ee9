//! What the paper's figures draw, as numbers. Who draws them how is the caller's business.

use super::super::report::{BarGroup, Drawing, Shape, figure};
use super::cases::{ORDERS, SCAN, SrmPart, THRESHOLDS, greps_name, order_name};
use super::hits::{MEMORIES, VARIANTS};
use super::place::PaperMachine;
use super::programs::{ARRAYS, DIMENSIONS, FILE_BOUND, MEMORY_BOUND, SCIMARK};
use super::results::{At, SrmResults};
use super::run::SrmOutcome;
use super::variants::SrmVariant;

const LINUX: SrmVariant = SrmVariant::Linux;
const SRM: SrmVariant = SrmVariant::SRM;
const SLOWER: &str = "slowdown, percent";

/// All drawings of these parts for which there are outcomes.
pub fn figures(outcomes: &[SrmOutcome], parts: &[SrmPart]) -> Vec<Drawing> {
    let results = SrmResults(outcomes);
    let of = |part: SrmPart| match part {
        SrmPart::Sizes => vec![mergesort_time(results), mergesort_misses(results)],
        SrmPart::Joins => {
            [PaperMachine::Xeon, PaperMachine::CoreI7].map(|place| joins(results, place)).into()
        }
        SrmPart::Pairs => vec![pairs(results), pair_misses(results)],
        SrmPart::Four => vec![four(results)],
        SrmPart::Greps => vec![greps(results)],
        SrmPart::Orders => vec![orders(results)],
        SrmPart::Hits => vec![hits(results)],
        SrmPart::Thresholds => vec![thresholds(results)],
        SrmPart::Random | SrmPart::Rescans | SrmPart::Traces => Vec::new(),
    };
    parts.iter().flat_map(|&part| of(part)).filter(is_drawn).collect()
}

fn is_drawn(figure: &Drawing) -> bool {
    match &figure.shape {
        Shape::Points { series, .. } => series.iter().any(|(_, points)| !points.is_empty()),
        Shape::Bars { groups, .. } => !groups.is_empty(),
        Shape::Shades { rows, .. } => !rows.is_empty(),
    }
}

fn by_array(of: impl Fn(At<'_>, SrmVariant) -> Option<f64>) -> Shape {
    let line = |variant: SrmVariant| {
        let point = |kib: u64| {
            let name = format!("mergesort {kib}K");
            let at = At { place: PaperMachine::Xeon, program: &name, beside: "grep" };
            Some((kib as f64, of(at, variant)?))
        };
        (variant.text(), ARRAYS.into_iter().filter_map(point).collect())
    };
    let series = [LINUX, SrmVariant::Turns, SrmVariant::OneColor, SRM].map(line).into();
    Shape::Points { across: "array, KiB", up: SLOWER, joined: true, series }
}

fn mergesort_time(results: SrmResults<'_>) -> Drawing {
    let shape = by_array(|at, variant| results.slowdown(at, variant));
    figure("2a-slowdown", "Figure 2a: mergesort beside grep", shape)
}

fn mergesort_misses(results: SrmResults<'_>) -> Drawing {
    let mut shape = by_array(|at, variant| results.misses(at, variant));
    if let Shape::Points { up, .. } = &mut shape {
        *up = "misses per million instructions";
    }
    figure("2b-misses", "Figure 2b: mergesort beside grep", shape)
}

/// A group of bars with one part each; none if no bar is there.
fn group(name: String, bars: impl IntoIterator<Item = (String, Option<f64>)>) -> Option<BarGroup> {
    let bars: Vec<_> =
        bars.into_iter().filter_map(|(bar, value)| Some((bar, vec![value?.max(0.0)]))).collect();
    (!bars.is_empty()).then_some((name, bars))
}

fn bars(name: &str, title: impl Into<String>, up: &'static str, groups: Vec<BarGroup>) -> Drawing {
    figure(name, title, Shape::Bars { up, parts: vec![up], groups })
}

fn joins(results: SrmResults<'_>, place: PaperMachine) -> Drawing {
    let of = |(_, mib): (u64, u64)| {
        let name = format!("join {mib}M");
        let at = At { place, program: &name, beside: SCAN };
        group(format!("{mib} MiB"), [LINUX, SRM].map(|v| (v.text(), results.slowdown(at, v))))
    };
    let groups = DIMENSIONS.into_iter().filter_map(of).collect();
    let name = if place == PaperMachine::Xeon { "8a-joins" } else { "8b-joins" };
    bars(name, format!("Figure 8: hash joins beside a scan, {}", place.text()), SLOWER, groups)
}

fn pair_groups(
    of: impl Fn(At<'_>, SrmVariant) -> Option<f64>,
    variants: &[SrmVariant],
) -> Vec<BarGroup> {
    let each = MEMORY_BOUND.iter().flat_map(|(name, ..)| FILE_BOUND.map(|other| (*name, other)));
    let one = |(program, beside): (&str, &str)| {
        let at = At { place: PaperMachine::Xeon, program, beside };
        group(format!("{program} + {beside}"), variants.iter().map(|&v| (v.text(), of(at, v))))
    };
    each.filter_map(one).collect()
}

fn pairs(results: SrmResults<'_>) -> Drawing {
    let groups = pair_groups(|at, v| results.slowdown(at, v), &[LINUX, SrmVariant::Turns, SRM]);
    bars("10a-pairs", "Figure 10a: pairs on the Xeon 5355", SLOWER, groups)
}

fn pair_misses(results: SrmResults<'_>) -> Drawing {
    let groups = pair_groups(|at, v| results.removed(at, v), &[SrmVariant::Turns, SRM]);
    bars("11-misses", "Figure 11: misses removed on the Xeon 5355", "percent of Linux's", groups)
}

fn core_i7<'a>(program: &'a str, beside: &'a str) -> At<'a> {
    At { place: PaperMachine::CoreI7, program, beside }
}

fn four(results: SrmResults<'_>) -> Drawing {
    let each = ["grep", "tar"].into_iter().flat_map(|other| SCIMARK.map(|name| (name, other)));
    let one = |(name, other)| {
        let at = core_i7(name, other);
        group(
            format!("{name} + {other}"),
            [LINUX, SRM].map(|v| (v.text(), results.slowdown(at, v))),
        )
    };
    let groups = each.filter_map(one).collect();
    bars("12a-four", "Figure 12a: three programs and a fourth on the Core i7 860", SLOWER, groups)
}

fn greps(results: SrmResults<'_>) -> Drawing {
    let each = ["spmv", "lu"].into_iter().flat_map(|name| [1, 2, 3].map(|count| (name, count)));
    let one = |(name, count)| {
        let beside = greps_name(count);
        let at = core_i7(name, &beside);
        group(
            format!("{name} + {beside}"),
            [LINUX, SRM].map(|v| (v.text(), results.slowdown(at, v))),
        )
    };
    bars("13-greps", "Figure 13: one to three greps", SLOWER, each.filter_map(one).collect())
}

fn orders(results: SrmResults<'_>) -> Drawing {
    let one = |program: &str| {
        let bar = |(reads, loads)| {
            let beside = order_name(reads, loads);
            let at = At { place: PaperMachine::Xeon, program, beside: &beside };
            let saved = results.saved(at, SRM);
            (beside, saved)
        };
        group(program.to_owned(), ORDERS.map(bar))
    };
    let groups = SCIMARK.into_iter().filter_map(one).collect();
    bars("14-orders", "Figure 14: who reads (who loaded)", "time saved, percent", groups)
}

fn hits(results: SrmResults<'_>) -> Drawing {
    let line = |variant: SrmVariant| {
        let point = |memory: u64| Some((memory as f64, results.hit_ratio(memory, variant)?));
        let name = if variant == SRM { SrmVariant::text(SRM) + ", Tl 256" } else { variant.text() };
        (name, MEMORIES.into_iter().filter_map(point).collect())
    };
    let (across, up) = ("memory, MiB", "hit ratio of the page cache, percent");
    let series = VARIANTS.map(line).into();
    let shape = Shape::Points { across, up, joined: true, series };
    figure("15-hits", "Figure 15: PostMark", shape)
}

fn thresholds(results: SrmResults<'_>) -> Drawing {
    let each = SCIMARK.into_iter().flat_map(|name| ["grep", "tar"].map(|other| (name, other)));
    let line = |(program, beside): (&str, &str)| {
        let at = At { place: PaperMachine::Xeon, program, beside };
        let point = |tl: u64| Some((tl as f64, results.saved(at, SrmVariant::Srm(tl))?));
        (format!("{program} + {beside}"), THRESHOLDS.into_iter().filter_map(point).collect())
    };
    let (across, up) = ("Tl, blocks", "time saved, percent");
    let shape = Shape::Points { across, up, joined: true, series: each.map(line).collect() };
    figure("16-thresholds", "Figure 16: the time saved by the threshold", shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srm::cases::ALONE;
    use crate::srm::measures::tests::outcome;

    #[test]
    fn what_was_run_is_drawn_and_nothing_else() {
        let of = |beside, variant, cycles| {
            outcome(SrmPart::Greps, PaperMachine::CoreI7, "lu", beside, variant, cycles, 1)
        };
        let all = [of(ALONE, LINUX, 1000), of("1 x grep", LINUX, 1500), of("1 x grep", SRM, 1200)];
        let drawn = figures(&all, &SrmPart::ALL);
        assert_eq!(drawn.len(), 1, "{drawn:?}");
        let Shape::Bars { groups, .. } = &drawn[0].shape else { panic!("bars") };
        let bar = ("Linux".to_owned(), vec![50.0]);
        assert_eq!(groups, &[("lu + 1 x grep".to_owned(), vec![bar])]);
        assert_eq!(figures(&all, &[SrmPart::Sizes]), []);
    }
}
