//! The curves of figures 5 and 9 to 11 as drawings: slowdowns over megabytes of the last level, and miss
//! rates with them in figure 5.

use super::super::engine::Named as _;
use super::super::report::{Drawing, Shape, figure};
use super::cases::{Scheme, ScolariPart, megabytes};
use super::outcome::{ScolariOutcome, ScolariProgramResult, ScolariResults};
use super::threads;

/// A drawing for each workload that was run.
pub fn figures(outcomes: &[ScolariOutcome]) -> Vec<Drawing> {
    let results = ScolariResults(outcomes);
    let mut all = Vec::new();
    for part in ScolariPart::all() {
        let draw = |name| match part {
            ScolariPart::Threads => threads::draw(results, name),
            _ => draw(results, part, name),
        };
        all.extend(results.workloads(part).into_iter().map(draw));
    }
    all
}

type Line = (String, Vec<(f64, f64)>);

fn draw(results: ScolariResults<'_>, part: ScolariPart, workload: &str) -> Drawing {
    let mut series: Vec<Line> =
        Scheme::all().map(|scheme| slowdowns(results, part, workload, scheme)).collect();
    if part == ScolariPart::Profiles {
        series = profile(results, workload);
    } else if part != ScolariPart::Alone {
        series.extend([alone(results, part, workload), polluters(results, part, workload)]);
    }
    series.retain(|(_, points)| !points.is_empty());
    let shape = Shape::Points {
        across: "MB of the last cache",
        up: if part == ScolariPart::Profiles { "percent" } else { "slowdown, percent" },
        joined: true,
        series,
    };
    let title = format!("Figure {}: {workload}", part.figure());
    figure(&format!("{}-{}", part.figure(), workload.to_lowercase()), title, shape)
}

fn points(curve: Vec<(u16, f64)>) -> Vec<(f64, f64)> {
    curve.into_iter().map(|(share, slowdown)| (megabytes(share), 100.0 * slowdown)).collect()
}

fn slowdowns(
    results: ScolariResults<'_>,
    part: ScolariPart,
    workload: &str,
    scheme: Scheme,
) -> Line {
    (scheme.name().to_owned(), points(results.slowdowns(part, workload, scheme)))
}

/// The three curves of a program in figure 5.
fn profile(results: ScolariResults<'_>, workload: &str) -> Vec<Line> {
    let (part, scheme) = (ScolariPart::Profiles, Scheme::WithL2);
    let curve = results.curve(part, workload, scheme);
    let rates = |of: fn(&ScolariProgramResult) -> f64| {
        let each = curve.iter().filter_map(|own| Some((own.share, of(own.target()?))));
        points(each.collect())
    };
    vec![
        ("slowdown".to_owned(), points(results.slowdowns(part, workload, scheme))),
        ("LLC miss rate".to_owned(), rates(|own| own.counted.miss_rate())),
        ("L2 miss rate".to_owned(), rates(ScolariProgramResult::l2_miss_rate)),
    ]
}

/// The target alone, hash-aware.
fn alone(results: ScolariResults<'_>, part: ScolariPart, workload: &str) -> Line {
    let first = results.curve(part, workload, Scheme::Aware).into_iter().next();
    let target = first.and_then(ScolariOutcome::target).map_or("", |told| told.name.as_str());
    let curve = results.slowdowns(ScolariPart::Alone, target, Scheme::Aware);
    ("alone, hash-aware".to_owned(), points(curve))
}

fn polluters(results: ScolariResults<'_>, part: ScolariPart, workload: &str) -> Line {
    let curve = results.curve(part, workload, Scheme::Aware).into_iter();
    let curve = curve.filter_map(|outcome| Some((outcome.share, results.polluters(outcome)?)));
    ("polluters".to_owned(), points(curve.collect()))
}
