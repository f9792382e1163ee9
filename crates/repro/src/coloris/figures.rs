//! What COLORIS's figures draw, as numbers, and how assignments settle, which it does not draw.

use super::super::report::{BarGroup, Drawing, Shape, figure};
use super::cases::{ColorisPart, FOREGROUND, FOUR, GROUPS, REDISTRIBUTION, UTILITY};
use super::outcome::ColorisProgramResult;
use super::tables::{CONFIGS, ColorisResults};
use super::{ColorisOutcome, PROGRAMS, cases};

const MATRIX: [&str; 8] = ["S", "F", "H", "H+P", "M", "M+P", "L", "L+P"];

/// All drawings for which there are outcomes.
pub fn figures(outcomes: &[ColorisOutcome]) -> Vec<Drawing> {
    let results = ColorisResults(outcomes);
    let cpi = |told: &ColorisProgramResult| told.counted.cpi();
    let rate = |told: &ColorisProgramResult| 100.0 * told.counted.miss_rate();
    let has = |part| outcomes.iter().any(|outcome| outcome.part == part);
    let mut all = Vec::new();
    if has(ColorisPart::Allocator) {
        all.push(scans(results));
    }
    if has(ColorisPart::Isolation) {
        let (title, up) = ("Figure 7: the foreground's time", "cycles per instruction");
        all.push(matrix(results, ColorisPart::Isolation, "7-time", title, up, &cpi));
        let (title, up) = ("Figure 8: the foreground's miss rate", "percent of LLC requests");
        all.push(matrix(results, ColorisPart::Isolation, "8-miss-rate", title, up, &rate));
    }
    if has(ColorisPart::Recoloring) {
        all.push(miss_rates(results));
        all.extend(
            [(REDISTRIBUTION, "5-settling"), (UTILITY, "5-settling-utility")]
                .map(|(policy, name)| settling(results, policy, name)),
        );
    }
    if has(ColorisPart::Overcommitted) {
        all.push(overcommitted(results));
    }
    if has(ColorisPart::Slices) {
        let (title, up) = ("Figure 11: two slices", "cycles per instruction");
        all.push(matrix(results, ColorisPart::Slices, "11-slices", title, up, &cpi));
    }
    all
}

fn bars(name: &str, title: &str, up: &'static str, groups: Vec<BarGroup>) -> Drawing {
    figure(name, title, Shape::Bars { up, parts: vec!["measured"], groups })
}

fn scans(results: ColorisResults<'_>) -> Drawing {
    let group = |(program, ..): &(&str, &str, &str)| {
        let bar = |(config, _): &(&str, u64)| {
            Some(((*config).to_owned(), vec![results.scanned(program, config)?]))
        };
        ((*program).to_owned(), cases::SCANS.iter().filter_map(bar).collect())
    };
    let (title, groups) = ("Figure 6: scans for hot pages", PROGRAMS.iter().map(group).collect());
    bars("6-scans", title, "percent more time", groups)
}

fn matrix(
    results: ColorisResults<'_>,
    part: ColorisPart,
    name: &str,
    title: &str,
    up: &'static str,
    of: &dyn Fn(&ColorisProgramResult) -> f64,
) -> Drawing {
    let group = |program: &&str| {
        let bar = |config: &&str| {
            let told = results.foreground(part, config, program)?;
            Some(((*config).to_owned(), vec![of(told)]))
        };
        ((*program).to_owned(), MATRIX.iter().filter_map(bar).collect())
    };
    bars(name, title, up, FOREGROUND.iter().map(group).collect())
}

fn miss_rates(results: ColorisResults<'_>) -> Drawing {
    let configs = || [("C3", ""), ("C5", "")].into_iter().chain(CONFIGS);
    let rate = |told: &ColorisProgramResult| 100.0 * told.counted.miss_rate();
    let group = |program: &&str| {
        let bar = |config: (&str, &str)| {
            let height = results.mean(ColorisPart::Recoloring, config, program, rate)?;
            Some(([config.0, config.1].join(" ").trim_end().to_owned(), vec![height]))
        };
        ((*program).to_owned(), configs().filter_map(bar).collect())
    };
    let groups = FOUR.iter().map(group).collect();
    bars("9-miss-rates", "Figure 9: LLC miss rates", "percent of LLC requests", groups)
}

/// Colours over time in C1, the first seed.
fn settling(results: ColorisResults<'_>, policy: &str, name: &str) -> Drawing {
    let outcome = results.all(ColorisPart::Recoloring, "C1", policy).into_iter().next();
    let line = |told: &ColorisProgramResult| {
        let points = (1..).zip(&told.history);
        let points = points.map(|(period, &colors)| (f64::from(period), f64::from(colors)));
        (told.name.clone(), points.collect())
    };
    let series = outcome.map_or(Vec::new(), |outcome| outcome.programs.iter().map(line).collect());
    let shape = Shape::Points { across: "period", up: "colours", joined: true, series };
    figure(name, format!("C1, {policy}: colours by period"), shape)
}

fn overcommitted(results: ColorisResults<'_>) -> Drawing {
    let configs = [("C7", REDISTRIBUTION), ("C8", ""), ("C9", ""), ("C7", cases::UTILITY)];
    let group = |program: &str| {
        let bar = |config: (&str, &str)| {
            let retired = |told: &ColorisProgramResult| told.counted.instructions as f64 / 1e6;
            let height = results.mean(ColorisPart::Overcommitted, config, program, retired)?;
            Some(([config.0, config.1].join(" ").trim_end().to_owned(), vec![height]))
        };
        (program.to_owned(), configs.into_iter().filter_map(bar).collect())
    };
    let groups = GROUPS.iter().flatten().map(|name| group(name)).collect();
    bars("10-overcommitted", "Figure 10: two programs on each core", "million instructions", groups)
}
