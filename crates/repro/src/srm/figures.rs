//! What the paper's figures draw, as numbers. Who draws them how is the caller's business.

use super::super::report::{BarGroup, Drawing, Shape, figure};
use super::cases::{ORDERS, SrmPart, THRESHOLDS, order_name};
use super::hits::{MEMORIES, VARIANTS};
use super::place::PaperMachine;
use super::programs::{ARRAYS, DIMENSIONS, SCAN, SCIMARK};
use super::results::{self, At, SrmResults};
use super::run::SrmOutcome;
use super::variants::SrmVariant;

const LINUX: SrmVariant = SrmVariant::Linux;
const SRM: SrmVariant = SrmVariant::SRM;
const SLOWER: &str = "slowdown, percent";

/// All drawings of these parts for which there are outcomes.
pub fn figures(outcomes: &[SrmOutcome], parts: impl Iterator<Item = SrmPart>) -> Vec<Drawing> {
    let results = SrmResults(outcomes);
    let of = |part: SrmPart| match part {
        SrmPart::Sizes => mergesort(results).into(),
        SrmPart::Joins => {
            [PaperMachine::Xeon, PaperMachine::CoreI7].map(|place| joins(results, place)).into()
        }
        SrmPart::Pairs => pairs(results).into(),
        SrmPart::Four => {
            let title = "Figure 12a: three programs and a fourth on the Core i7 860";
            vec![slowdowns(results, "12a-four", title, &results::four())]
        }
        SrmPart::Greps => {
            let title = "Figure 13: one to three greps";
            vec![slowdowns(results, "13-greps", title, &results::many_greps())]
        }
        SrmPart::Orders => vec![orders(results)],
        SrmPart::Hits => vec![hits(results)],
        SrmPart::Thresholds => vec![thresholds(results)],
        SrmPart::Queries => {
            let all: Vec<At> = [true, false].into_iter().flat_map(results::queries).collect();
            vec![slowdowns(results, "9-queries", "Figure 9: queries of TPC-H", &all)]
        }
        SrmPart::Random | SrmPart::Rescans | SrmPart::Cores | SrmPart::Traces => Vec::new(),
    };
    parts.flat_map(of).filter(is_drawn).collect()
}

fn is_drawn(figure: &Drawing) -> bool {
    match &figure.shape {
        Shape::Points { series, .. } => series.iter().any(|(_, points)| !points.is_empty()),
        Shape::Bars { groups, .. } => !groups.is_empty(),
        Shape::Shades { rows, .. } => !rows.is_empty(),
    }
}

fn mergesort(results: SrmResults<'_>) -> [Drawing; 2] {
    let line = |variant: SrmVariant, of: &dyn Fn(&At, SrmVariant) -> Option<f64>| {
        let point = |kib: u64| {
            let at = At::new(PaperMachine::Xeon, format!("mergesort {kib}K"), "grep");
            Some((kib as f64, of(&at, variant)?))
        };
        (variant.text(), ARRAYS.into_iter().filter_map(point).collect())
    };
    let drawn = |name: &str, up: &'static str, of: &dyn Fn(&At, SrmVariant) -> Option<f64>| {
        let variants = [LINUX, SrmVariant::OneColor, SRM];
        let series = variants.map(|variant| line(variant, of)).into();
        let shape = Shape::Points { across: "array, KiB", up, joined: true, series };
        figure(name, format!("Figure {}: mergesort beside grep", &name[..2]), shape)
    };
    [
        drawn("2a-slowdown", SLOWER, &|at, variant| results.slowdown(at, variant)),
        drawn("2b-misses", "misses per million instructions", &|at, v| results.misses(at, v)),
    ]
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
        let at = At::new(place, format!("join {mib}M"), SCAN);
        group(format!("{mib} MiB"), [LINUX, SRM].map(|v| (v.text(), results.slowdown(&at, v))))
    };
    let groups = DIMENSIONS.into_iter().filter_map(of).collect();
    let name = if place == PaperMachine::Xeon { "8a-joins" } else { "8b-joins" };
    bars(name, format!("Figure 8: hash joins beside a scan, {}", place.text()), SLOWER, groups)
}

/// A group for each place, a bar for each variant.
fn groups(
    all: &[At],
    variants: &[SrmVariant],
    of: impl Fn(&At, SrmVariant) -> Option<f64>,
) -> Vec<BarGroup> {
    let one = |at: &At| group(at.text(), variants.iter().map(|&v| (v.text(), of(at, v))));
    all.iter().filter_map(one).collect()
}

fn pairs(results: SrmResults<'_>) -> [Drawing; 2] {
    let (all, three) = (results::pairs(), [LINUX, SrmVariant::Turns, SRM]);
    let slower = groups(&all, &three, |at, v| results.slowdown(at, v));
    let removed = groups(&all, &three[1..], |at, v| results.removed(at, v));
    let title = "Figure 11: misses removed on the Xeon 5355";
    [
        bars("10a-pairs", "Figure 10a: pairs on the Xeon 5355", SLOWER, slower),
        bars("11-misses", title, "percent of Linux's", removed),
    ]
}

/// Slowdowns on Linux and with SRM-buffer.
fn slowdowns(results: SrmResults<'_>, name: &str, title: &str, all: &[At]) -> Drawing {
    let groups = groups(all, &[LINUX, SRM], |at, v| results.slowdown(at, v));
    bars(name, title, SLOWER, groups)
}

fn orders(results: SrmResults<'_>) -> Drawing {
    let one = |program: &str| {
        let bar = |(reads, loads)| {
            let beside = order_name(reads, loads);
            let saved = results.saved(&At::new(PaperMachine::Xeon, program, &beside), SRM);
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
    let line = |at: &At| {
        let point = |tl: u64| Some((tl as f64, results.saved(at, SrmVariant::Srm(tl))?));
        (at.text(), THRESHOLDS.into_iter().filter_map(point).collect())
    };
    let (across, up) = ("Tl, blocks", "time saved, percent");
    let series = results::readers().iter().map(line).collect();
    let shape = Shape::Points { across, up, joined: true, series };
    figure("16-thresholds", "Figure 16: the time saved by the threshold", shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Named as _;
    use crate::srm::cases::ALONE;
    use crate::srm::measures::tests::outcome;

    #[test]
    fn what_was_run_is_drawn_and_nothing_else() {
        let of = |beside, variant, cycles| {
            outcome(SrmPart::Greps, PaperMachine::CoreI7, "lu", beside, variant, cycles, 1)
        };
        let all = [of(ALONE, LINUX, 1000), of("1 x grep", LINUX, 1500), of("1 x grep", SRM, 1200)];
        let drawn = figures(&all, SrmPart::all());
        assert_eq!(drawn.len(), 1, "{drawn:?}");
        let Shape::Bars { groups, .. } = &drawn[0].shape else { panic!("bars") };
        let bar = ("Linux".to_owned(), vec![50.0]);
        assert_eq!(groups, &[("lu + 1 x grep".to_owned(), vec![bar])]);
        assert_eq!(figures(&all, [SrmPart::Sizes].into_iter()), []);
    }
}
