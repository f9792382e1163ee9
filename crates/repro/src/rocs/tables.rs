//! The outcomes as the tables and figures of ROCS (2008).

use super::profiles::{ProfilePrefetch, SampledRun};
use super::programs::LEFT_OUT;
use super::run::{OnlineResult, RocsOutcome};
use super::variants::RocsVariant;
use super::window::Window;
use super::{fit, paper};
use crate::report::{TableCell, TableRow, mean};

/// The rows of a table.
pub fn rows(id: &str, outcomes: &[RocsOutcome]) -> Vec<TableRow> {
    if id == "f10" {
        return outcomes.iter().flat_map(regions).collect();
    }
    if id == "f6" {
        return outcomes.iter().flat_map(sampled).collect();
    }
    let mut rows: Vec<TableRow> = outcomes.iter().filter_map(|outcome| row(id, outcome)).collect();
    if let Some(average) = average(id, outcomes) {
        rows.push(average);
    }
    rows
}

fn row(id: &str, outcome: &RocsOutcome) -> Option<TableRow> {
    Some(TableRow::of(&outcome.program, outcome.stands_for, cells(id, outcome)?))
}

/// What a program is like under Linux.
fn of_linux(id: &str, outcome: &RocsOutcome) -> Option<Vec<TableCell>> {
    let profile = |prefetch| outcome.profiles.of(prefetch);
    match id {
        "2" => {
            let linux = &outcome.linux;
            let own = [linux.ipc(), linux.mpki(), linux.miss_percent()];
            Some(own.map(Some).into_iter().chain([fit::furthest(outcome)]).collect())
        }
        "f2" => Some(profile(ProfilePrefetch::Off)?.page_percents().map(Some).to_vec()),
        _ => {
            let seen: Vec<_> = ProfilePrefetch::ALL.into_iter().filter_map(profile).collect();
            let requests = seen.iter().map(|seen| Some(seen.per_thousand()));
            let misses = seen.iter().map(|seen| Some(seen.miss_percent()));
            (!seen.is_empty()).then(|| requests.chain(misses).collect())
        }
    }
}

fn cells(id: &str, outcome: &RocsOutcome) -> Option<Vec<TableCell>> {
    if ["2", "f2", "f4"].contains(&id) {
        return of_linux(id, outcome);
    }
    let (linux, gain) = (&outcome.linux, |variant| outcome.gain(variant));
    let rocs = outcome.of(RocsVariant::Rocs)?;
    let best = outcome.best();
    Some(match id {
        "f8" => {
            let best = best.map(|best| best.gain);
            vec![
                gain(RocsVariant::Rocs),
                best,
                gain(RocsVariant::Prefetching),
                gain(RocsVariant::Model),
            ]
        }
        "f9" => {
            let model = outcome.of(RocsVariant::Model).map(|model| model.window.mpki());
            vec![Some(linux.mpki()), Some(rocs.window.mpki()), Some(fewer(outcome)?), model]
        }
        "3" => {
            let (pages, confined) = (outcome.pages as f64, rocs.confined as f64);
            vec![Some(pages), Some(confined), Some(100.0 * confined / pages.max(1.0))]
        }
        "f7" => overhead(outcome, rocs),
        "search" => {
            let (gain, pages) = (best.as_ref().map(|b| b.gain), best.map(|b| b.pages as f64));
            vec![Some(f64::from(rocs.trials)), Some(rocs.confined as f64), gain, pages]
        }
        "6-4" => tlb(linux, &rocs.window),
        _ => {
            let model = outcome.of(RocsVariant::Model)?;
            let trials = [rocs.trials, model.trials].map(|trials| Some(f64::from(trials)));
            let rest = [model.confined as f64, model.left as f64, f64::from(model.profiles)];
            trials.into_iter().chain(rest.map(Some)).collect()
        }
    })
}

/// Cycles in a second of the paper's machine.
pub const CLOCK: f64 = 2.3e9;

/// Percent fewer misses per instruction with ROCS.
pub fn fewer(outcome: &RocsOutcome) -> Option<f64> {
    let with = outcome.of(RocsVariant::Rocs)?.window.mpki();
    Some(100.0 * (1.0 - with / outcome.linux.mpki()))
}

/// Cycles that the paper's program takes.
pub fn cycles_of_paper(outcome: &RocsOutcome) -> Option<f64> {
    Some(paper().figures.get(outcome.stands_for)?[0] * CLOCK)
}

/// Percent of a run's time for samples and for moves, in as many cycles as the paper's program
/// takes: profiles and searches are made once in a phase, however long it is.
pub fn share_of_paper(outcome: &RocsOutcome, online: &OnlineResult) -> Option<[f64; 2]> {
    let cycles = cycles_of_paper(outcome)?;
    Some([online.monitoring, online.moving].map(|part| 100.0 * part as f64 / cycles))
}

fn overhead(outcome: &RocsOutcome, rocs: &OnlineResult) -> Vec<TableCell> {
    let paper = share_of_paper(outcome, rocs);
    let both = paper.map(|[monitoring, moving]| monitoring + moving);
    let ours = 100.0 * (rocs.monitoring + rocs.moving) as f64 / rocs.cycles.max(1) as f64;
    vec![paper.map(|parts| parts[0]), paper.map(|parts| parts[1]), both, Some(ours)]
}

/// Percent of the cycles saved per instruction that are saved in filling TLBs; none if nothing is.
pub fn saved_in_tlb(linux: &Window, with: &Window) -> TableCell {
    let per = |cycles: u64, window: &Window| cycles as f64 / window.instructions.max(1) as f64;
    let saved = per(linux.cycles, linux) - per(with.cycles, with);
    let tlb = per(linux.tlb_cycles, linux) - per(with.tlb_cycles, with);
    (saved > 0.0).then(|| 100.0 * tlb / saved)
}

/// Percent of the stalls that are for filling TLBs.
fn of_stalls(window: &Window) -> TableCell {
    (window.stalls() > 0).then(|| 100.0 * window.tlb_cycles as f64 / window.stalls() as f64)
}

fn tlb(linux: &Window, with: &Window) -> Vec<TableCell> {
    let saved = saved_in_tlb(linux, with);
    vec![linux.per_walk(), with.per_walk(), of_stalls(linux), of_stalls(with), saved]
}

/// A row for each period of samples.
fn sampled(outcome: &RocsOutcome) -> Vec<TableRow> {
    let row = |run: &SampledRun| TableRow::named(format!("{}", run.period), vec![Some(run.slower)]);
    outcome.profiles.sampled.iter().map(row).collect()
}

fn regions(outcome: &RocsOutcome) -> Vec<TableRow> {
    let all = outcome.regions.iter().map(|region| region.before.requests).sum::<u64>();
    let row = |region: &super::window::RegionSamples| {
        let cells = vec![
            Some(100.0 * region.before.requests as f64 / all.max(1) as f64),
            region.before.percent(),
            region.after.percent(),
            Some(100.0 * region.confined as f64 / region.pages.max(1) as f64),
        ];
        TableRow::of(region.name, region.name, cells)
    };
    outcome.regions.iter().map(row).collect()
}

/// Whether a workload counts in averages: it stands for a program that the paper's are of, and is like it.
pub fn counts(outcome: &RocsOutcome) -> bool {
    fit::is_fit(outcome) && !outcome.traced && !LEFT_OUT.contains(&outcome.stands_for)
}

/// The row below of the workloads that the paper's average is of.
fn average(id: &str, outcomes: &[RocsOutcome]) -> Option<TableRow> {
    if !["f7", "f8", "f9"].contains(&id) {
        return None;
    }
    let all: Vec<Vec<TableCell>> =
        outcomes.iter().filter(|o| counts(o)).filter_map(|o| cells(id, o)).collect();
    let columns = all.first()?.len();
    let cells = (0..columns).map(|at| mean(all.iter().filter_map(|row| row[at]))).collect();
    Some(TableRow::of("average", "average", cells))
}

#[cfg(test)]
mod tests {
    use super::super::RocsStudy;
    use super::super::measures::tests::outcome;
    use super::*;
    use crate::engine;

    #[test]
    fn figures_stand_beside_the_papers() {
        let made = engine::tables::<RocsStudy>(&[outcome("spmv", "CG", 20.0)], &[]);
        let find = |id: &str| made.iter().find(|table| table.id == id).unwrap();
        let gains = &find("f8").rows;
        assert_eq!(gains.last().map(|row| row.paper.clone()), Some(Some(vec![16.6])));
        assert!((gains[0].cells[0].unwrap() - 20.0).abs() < 0.01, "{gains:?}");
        assert_eq!(find("3").rows[0].paper, Some(vec![40_818.0, 7_026.0, 17.2]));
        for table in &made {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.head.len()), "{table:?}");
        }
        assert_eq!(engine::tables::<RocsStudy>(&[], &[]), []);
    }

    #[test]
    fn what_is_saved_is_told_apart() {
        let window = |cycles, tlb_cycles| Window {
            instructions: 100,
            cycles,
            tlb_cycles,
            ..Window::default()
        };
        assert_eq!(saved_in_tlb(&window(500, 200), &window(300, 50)), Some(75.0));
        assert_eq!(saved_in_tlb(&window(300, 50), &window(500, 200)), None);
        assert_eq!(of_stalls(&window(500, 200)), Some(50.0));
        assert_eq!(mean([]), None);
    }
}
