//! The outcomes as the tables and figures of ROCS (2008), with the paper's figures for the programs
//! that a workload stands for; `f8` is figure 8.

use super::super::report::{Cell, Table, TableRow};
use super::paper;
use super::programs::LEFT_OUT;
use super::run::{Online, Outcome, Window};
use super::variants::Variant;

/// Number, title, and digits after the point of each table.
pub const ALL: [(&str, &str, usize); 9] = [
    ("2", "What the programs are like under Linux", 2),
    ("f8", "Percent more instructions per cycle than Linux", 1),
    ("f9", "Misses per thousand instructions", 1),
    ("3", "Pages that ROCS confines", 1),
    ("f7", "Percent of the time that ROCS takes, in a run as long as the paper's and in ours", 3),
    ("search", "Mappings tried, and the gain of trying them all", 1),
    ("f10", "art: its weights and its layer, percent", 1),
    ("6-4", "TLB misses", 1),
    ("beyond", "The model, beyond the paper", 1),
];

/// The tables of these numbers for which there are outcomes, all of them if none is named.
pub fn tables(outcomes: &[Outcome], ids: &[&str]) -> Vec<Table> {
    let wanted = ALL.iter().filter(|(id, ..)| ids.is_empty() || ids.contains(id));
    let made = wanted.map(|&(id, title, digits)| {
        let head = head(id).iter().map(|name| (*name).to_owned()).collect();
        Table { id, title, head, digits, rows: rows(id, outcomes) }
    });
    made.filter(|table| !table.rows.is_empty()).collect()
}

fn head(id: &str) -> &'static [&'static str] {
    match id {
        "2" => &["IPC", "MPKI", "L2 miss rate, percent"],
        "f8" => &["ROCS", "every prefix", "profiled with prefetcher", "by model"],
        "f9" => &["Linux", "ROCS", "percent fewer", "by model"],
        "3" => &["pages", "confined", "percent"],
        "f7" => &["monitoring", "moving", "both", "both, ours"],
        "search" => &["trials", "pages", "best prefix", "its pages"],
        "f10" => &["of requests", "miss, Linux", "miss, ROCS", "of its pages confined"],
        "6-4" => &[
            "cycles per walk, Linux",
            "ROCS",
            "percent of stalls, Linux",
            "ROCS",
            "percent of what is saved",
        ],
        _ => &["trials, ROCS", "trials, model", "pages, model", "pages that left", "profiles"],
    }
}

fn rows(id: &str, outcomes: &[Outcome]) -> Vec<TableRow> {
    if id == "f10" {
        return outcomes.iter().flat_map(regions).collect();
    }
    let mut rows: Vec<TableRow> = outcomes.iter().filter_map(|outcome| row(id, outcome)).collect();
    if let Some(average) = average(id, outcomes) {
        rows.push(average);
    }
    rows
}

fn row(id: &str, outcome: &Outcome) -> Option<TableRow> {
    let cells = cells(id, outcome)?;
    let paper = figures_of_paper(id, outcome.stands_for);
    let stands_for = paper.as_ref().map(|_| outcome.stands_for);
    Some(TableRow { program: outcome.program.clone(), cells, stands_for, paper })
}

fn cells(id: &str, outcome: &Outcome) -> Option<Vec<Cell>> {
    let rocs = outcome.of(Variant::Rocs)?;
    let (linux, gain) = (&outcome.linux, |variant| outcome.gain(variant));
    let best = outcome.best();
    Some(match id {
        "2" => vec![Some(linux.ipc()), Some(linux.mpki()), outcome.seen.percent()],
        "f8" => {
            let best = best.map(|best| best.gain);
            vec![gain(Variant::Rocs), best, gain(Variant::Prefetching), gain(Variant::Model)]
        }
        "f9" => {
            let model = outcome.of(Variant::Model).map(|model| model.window.mpki());
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
            let model = outcome.of(Variant::Model)?;
            let trials = [rocs.trials, model.trials].map(|trials| Some(f64::from(trials)));
            let rest = [model.confined as f64, model.left as f64, f64::from(model.profiles)];
            trials.into_iter().chain(rest.map(Some)).collect()
        }
    })
}

/// Percent fewer misses per instruction with ROCS.
pub fn fewer(outcome: &Outcome) -> Option<f64> {
    let with = outcome.of(Variant::Rocs)?.window.mpki();
    Some(100.0 * (1.0 - with / outcome.linux.mpki()))
}

/// Percent of a run's time for samples and for moves, in as many cycles as the paper's program
/// takes: profiles and searches are made once in a phase, however long it is.
pub fn share_of_paper(outcome: &Outcome, online: &Online) -> Option<[f64; 2]> {
    let [seconds] = paper::find(&paper::SECONDS, outcome.stands_for)?;
    let cycles = seconds * paper::CLOCK;
    Some([online.monitoring, online.moving].map(|part| 100.0 * part as f64 / cycles))
}

fn overhead(outcome: &Outcome, rocs: &Online) -> Vec<Cell> {
    let paper = share_of_paper(outcome, rocs);
    let both = paper.map(|[monitoring, moving]| monitoring + moving);
    let ours = 100.0 * (rocs.monitoring + rocs.moving) as f64 / rocs.cycles.max(1) as f64;
    vec![paper.map(|parts| parts[0]), paper.map(|parts| parts[1]), both, Some(ours)]
}

/// Percent of the cycles saved per instruction that are saved in filling TLBs; none if nothing is.
pub fn saved_in_tlb(linux: &Window, with: &Window) -> Cell {
    let per = |cycles: u64, window: &Window| cycles as f64 / window.instructions.max(1) as f64;
    let saved = per(linux.cycles, linux) - per(with.cycles, with);
    let tlb = per(linux.tlb_cycles, linux) - per(with.tlb_cycles, with);
    (saved > 0.0).then(|| 100.0 * tlb / saved)
}

/// Percent of the stalls that are for filling TLBs.
fn of_stalls(window: &Window) -> Cell {
    (window.stalls() > 0).then(|| 100.0 * window.tlb_cycles as f64 / window.stalls() as f64)
}

fn tlb(linux: &Window, with: &Window) -> Vec<Cell> {
    let saved = saved_in_tlb(linux, with);
    vec![linux.per_walk(), with.per_walk(), of_stalls(linux), of_stalls(with), saved]
}

fn regions(outcome: &Outcome) -> Vec<TableRow> {
    let all = outcome.regions.iter().map(|region| region.before.requests).sum::<u64>();
    let row = |region: &super::run::Region| TableRow {
        program: region.name.to_owned(),
        cells: vec![
            Some(100.0 * region.before.requests as f64 / all.max(1) as f64),
            region.before.percent(),
            region.after.percent(),
            Some(100.0 * region.confined as f64 / region.pages.max(1) as f64),
        ],
        stands_for: Some("art"),
        paper: paper::find(&paper::ART, region.name).map(Vec::from),
    };
    outcome.regions.iter().map(row).collect()
}

fn figures_of_paper(id: &str, program: &str) -> Option<Vec<f64>> {
    match (id, program) {
        ("2", _) => paper::find(&paper::TABLE_2, program).map(Vec::from),
        ("3", _) => paper::find(&paper::TABLE_3, program).map(Vec::from),
        ("f8", "swim") => Some(vec![paper::GAIN[1]]),
        ("6-4", "swim") => Some(paper::SWIM.to_vec()),
        _ => None,
    }
}

/// Whether a workload counts in the paper's averages.
pub fn counts(outcome: &Outcome) -> bool {
    let known = paper::find(&paper::TABLE_2, outcome.stands_for).is_some();
    known && !outcome.traced && !LEFT_OUT.contains(&outcome.stands_for)
}

/// The mean of some figures; none of none.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Cell {
    let values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The row below of the workloads that the paper's average is of.
fn average(id: &str, outcomes: &[Outcome]) -> Option<TableRow> {
    let paper = match id {
        "f8" => vec![paper::GAIN[0]],
        "f9" => Vec::new(),
        "f7" => Vec::new(),
        _ => return None,
    };
    let all: Vec<Vec<Cell>> =
        outcomes.iter().filter(|o| counts(o)).filter_map(|o| cells(id, o)).collect();
    let columns = all.first()?.len();
    let cells = (0..columns).map(|at| mean(all.iter().filter_map(|row| row[at]))).collect();
    let stands_for = (!paper.is_empty()).then_some("average");
    let paper = (!paper.is_empty()).then_some(paper);
    Some(TableRow { program: "average".to_owned(), cells, stands_for, paper })
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::outcome;
    use super::*;

    #[test]
    fn figures_stand_beside_the_papers() {
        let made = tables(&[outcome("spmv", "CG", 20.0)], &[]);
        let find = |id: &str| made.iter().find(|table| table.id == id).unwrap();
        let gains = &find("f8").rows;
        assert_eq!(gains.last().map(|row| row.paper.clone()), Some(Some(vec![16.6])));
        assert!((gains[0].cells[0].unwrap() - 20.0).abs() < 0.01, "{gains:?}");
        assert_eq!(find("3").rows[0].paper, Some(vec![40_818.0, 7_026.0, 17.2]));
        for table in &made {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.head.len()), "{table:?}");
            let paper = table.rows.iter().filter_map(|row| row.paper.as_ref());
            assert!(paper.into_iter().all(|paper| paper.len() <= table.head.len()));
        }
        assert_eq!(tables(&[], &[]), []);
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
