//! The outcomes as the tables of COLORIS, section 4, with the paper's figures where it gives
//! numbers. Figures are tables here too, `f7` being figure 7.

use std::collections::BTreeSet;

use super::super::report::{Cell, Table, TableRow};
use super::cases::{FOREGROUND, FOUR, GROUPS, MOVING, Part, REDISTRIBUTION, UTILITY};
use super::outcome::{Outcome, Told};
use super::paper;

/// Number and title of each table, and the part that it is made of.
pub const ALL: [(&str, &str, Part); 12] = [
    ("f7", "Cycles per instruction of the foreground", Part::Isolation),
    ("f8", "Miss rate of the foreground in the last cache, percent", Part::Isolation),
    ("4.2", "Most that time varies with the background, percent", Part::Isolation),
    ("f9", "Miss rates in the last cache, percent", Part::Recoloring),
    ("3", "Instructions retired, percent of those in C3", Part::Recoloring),
    ("4", "Pages recoloured", Part::Recoloring),
    ("5", "Colours in the end", Part::Recoloring),
    ("f10", "Over-committed: instructions retired, percent of those in C9", Part::Overcommitted),
    ("f10m", "Over-committed: miss rates in the last cache, percent", Part::Overcommitted),
    ("f11", "Two slices: cycles per instruction of the foreground", Part::Slices),
    ("f11m", "Two slices: miss rate of the foreground, percent", Part::Slices),
    ("real", "Real programs: cycles per instruction, and miss rates in percent", Part::Real),
];

/// Configurations of figure 7, in its order.
const MATRIX: [&str; 8] = ["F", "S", "H", "H+P", "M", "M+P", "L", "L+P"];

/// Configurations and policies of tables 3 and 5, in the order of the paper, and ours.
pub const CONFIGS: [(&str, &str); 11] = [
    ("C1", MOVING),
    ("C2", MOVING),
    ("C4", MOVING),
    ("C1", REDISTRIBUTION),
    ("C2", REDISTRIBUTION),
    ("C4", REDISTRIBUTION),
    ("C6 WIN=1", REDISTRIBUTION),
    ("C6 WIN=5", REDISTRIBUTION),
    ("C1", UTILITY),
    ("C2", UTILITY),
    ("C4", UTILITY),
];
/// Those of figure 10.
const OVERCOMMITTED: [(&str, &str); 4] =
    [("C7", REDISTRIBUTION), ("C8", ""), ("C9", ""), ("C7", UTILITY)];

/// All outcomes, and ways to find them.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a>(pub &'a [Outcome]);

impl<'a> Results<'a> {
    /// The outcomes of a configuration, by seed.
    pub fn all(self, part: Part, config: &str, policy: &str) -> Vec<&'a Outcome> {
        let is = |o: &&Outcome| (o.part, o.config, o.policy) == (part, config, policy);
        self.0.iter().filter(is).collect()
    }

    /// The mean of a figure of a program over the seeds of a configuration.
    pub fn mean(
        self,
        part: Part,
        (config, policy): (&str, &str),
        program: &str,
        of: impl Fn(&Told) -> f64,
    ) -> Cell {
        let all = self.all(part, config, policy);
        mean(all.iter().filter_map(|outcome| outcome.program(program)).map(of))
    }

    /// The mean of a figure of whole outcomes.
    pub fn mean_of(
        self,
        part: Part,
        (config, policy): (&str, &str),
        of: impl Fn(&Outcome) -> f64,
    ) -> Cell {
        mean(self.all(part, config, policy).into_iter().map(of))
    }

    /// A program in the foreground under a configuration.
    pub fn foreground(self, part: Part, config: &str, program: &str) -> Option<&'a Told> {
        let mut those = self.all(part, config, "").into_iter();
        let first =
            those.find(|outcome| outcome.programs.first().is_some_and(|p| p.name == program));
        first?.programs.first()
    }

    /// Most that the cycles per instruction of a program vary with the background, as a share of
    /// those alone: with partitions, and without.
    pub fn variation(self, part: Part, program: &str) -> Option<[f64; 2]> {
        let cpi = |config| Some(self.foreground(part, config, program)?.counted.cpi());
        let most = |alone, with: [&'static str; 3]| {
            let alone = cpi(alone)?;
            let mut most = 0.0_f64;
            for config in with {
                most = most.max((cpi(config)? / alone - 1.0).abs());
            }
            Some(most)
        };
        Some([most("S", ["H+P", "M+P", "L+P"])?, most("F", ["H", "M", "L"])?])
    }

    /// Programs of the traces, in their order.
    pub fn real(self) -> Vec<&'a str> {
        let mut seen = BTreeSet::new();
        let told = self.0.iter().filter(|o| o.part == Part::Real).flat_map(|o| &o.programs);
        told.map(|told| told.name.as_str()).filter(|name| seen.insert(*name)).collect()
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Cell {
    let all: Vec<f64> = values.collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// The tables of these numbers for which there are outcomes, all of them if none is named.
pub fn tables(outcomes: &[Outcome], ids: &[&str]) -> Vec<Table> {
    let results = Results(outcomes);
    let wanted = ALL.iter().filter(|(id, ..)| ids.is_empty() || ids.contains(id));
    wanted.map(|&(id, title, _)| make(results, id, title)).filter(|t| !t.rows.is_empty()).collect()
}

fn make(results: Results<'_>, id: &'static str, title: &'static str) -> Table {
    let digits = match id {
        "f7" | "f11" | "real" => 2,
        "4" | "5" => 0,
        _ => 1,
    };
    let (head, rows) = match id {
        "f7" => matrix(results, Part::Isolation, |told| told.counted.cpi()),
        "f8" => matrix(results, Part::Isolation, |told| 100.0 * told.counted.miss_rate()),
        "f11" => matrix(results, Part::Slices, |told| told.counted.cpi()),
        "f11m" => matrix(results, Part::Slices, |told| 100.0 * told.counted.miss_rate()),
        "4.2" => variations(results),
        "f9" => miss_rates(results),
        "3" => instructions(results),
        "4" => recolored(results),
        "5" => assignments(results),
        "f10" => overcommitted(results, true),
        "f10m" => overcommitted(results, false),
        _ => real(results),
    };
    let rows = rows.into_iter().filter(|row| row.cells.iter().any(Option::is_some)).collect();
    Table { id, title, head, digits, rows }
}

type Made = (Vec<String>, Vec<TableRow>);

fn row(program: &str, cells: Vec<Cell>) -> TableRow {
    TableRow { program: program.to_owned(), cells, stands_for: None, paper: None }
}

/// A row with the paper's below it.
fn beside(program: &str, cells: Vec<Cell>, name: &'static str, paper: Vec<f64>) -> TableRow {
    TableRow { stands_for: Some(name), paper: Some(paper), ..row(program, cells) }
}

fn matrix(results: Results<'_>, part: Part, of: impl Fn(&Told) -> f64) -> Made {
    let cells = |program: &str| {
        let cell = |config: &&str| results.foreground(part, config, program).map(&of);
        MATRIX.iter().map(cell).collect()
    };
    let rows = FOREGROUND.iter().map(|program| row(program, cells(program))).collect();
    (MATRIX.map(str::to_owned).to_vec(), rows)
}

fn variations(results: Results<'_>) -> Made {
    let rows = paper::VARIATION.iter().map(|&(program, paper)| {
        let own = results.variation(Part::Isolation, program);
        let cells = own.map_or(vec![None; 2], |own| own.map(|v| Some(100.0 * v)).to_vec());
        beside(program, cells, program, paper.to_vec())
    });
    (vec!["with partitions".into(), "without".into()], rows.collect())
}

/// `C1 Redistribution`.
fn name((config, policy): (&str, &str)) -> String {
    [config, policy].join(" ").trim_end().to_owned()
}

fn miss_rates(results: Results<'_>) -> Made {
    let configs = || [("C3", ""), ("C5", "")].into_iter().chain(CONFIGS);
    let rate = |told: &Told| 100.0 * told.counted.miss_rate();
    let rows = FOUR.iter().map(|&program| {
        let cell = |config| results.mean(Part::Recoloring, config, program, rate);
        let cells = configs().map(cell).collect();
        if program == "omnetpp" {
            beside(program, cells, "omnetpp", vec![paper::OMNETPP_IN_A_QUARTER])
        } else {
            row(program, cells)
        }
    });
    (configs().map(name).collect(), rows.collect())
}

/// Instructions of a program, or of all of them.
fn retired(results: Results<'_>, config: (&str, &str), program: Option<&str>) -> Cell {
    let part = Part::Recoloring;
    match program {
        Some(program) => results.mean(part, config, program, |t| t.counted.instructions as f64),
        None => results.mean_of(part, config, |outcome| outcome.instructions() as f64),
    }
}

fn instructions(results: Results<'_>) -> Made {
    let programs = FOUR.map(Some).into_iter().chain([None]);
    let rows = programs.enumerate().map(|(at, program)| {
        let base = retired(results, ("C3", ""), program);
        let cell = |config| Some(100.0 * retired(results, config, program)? / base?);
        let theirs = |(config, policy)| {
            let base = paper::instructions("C3", "")?[at];
            Some(100.0 * paper::instructions(config, policy)?[at] / base)
        };
        let label = program.unwrap_or("total");
        let cells = CONFIGS.into_iter().map(cell).collect();
        beside(label, cells, label, CONFIGS.into_iter().map_while(theirs).collect())
    });
    (CONFIGS.into_iter().map(name).collect(), rows.collect())
}

fn recolored(results: Results<'_>) -> Made {
    let configs = ["C1", "C2", "C4", "C6 WIN=1", "C6 WIN=5"];
    let rows = [MOVING, REDISTRIBUTION, UTILITY].map(|policy| {
        let pages = |o: &Outcome| o.recolored() as f64;
        let cell = |config| results.mean_of(Part::Recoloring, (config, policy), pages);
        let cells = configs.into_iter().map(cell).collect();
        match paper::TABLE_4.iter().find(|(own, _)| *own == policy) {
            Some((own, figures)) => beside(policy, cells, own, figures.to_vec()),
            None => row(policy, cells),
        }
    });
    (configs.map(str::to_owned).to_vec(), rows.to_vec())
}

fn assignments(results: Results<'_>) -> Made {
    let mut rows = Vec::new();
    for (config, policy) in CONFIGS {
        for (at, outcome) in results.all(Part::Recoloring, config, policy).iter().enumerate() {
            let label = format!("{config} {policy} ({})", at + 1);
            let own = |name: &&str| outcome.program(name).map(|told| f64::from(told.colors));
            let cells = FOUR.iter().map(own).collect();
            rows.push(match paper::colors(config, policy, at) {
                Some(paper) => beside(&label, cells, "the same", paper.to_vec()),
                None => row(&label, cells),
            });
        }
    }
    (FOUR.map(str::to_owned).to_vec(), rows)
}

fn overcommitted(results: Results<'_>, instructions: bool) -> Made {
    let part = Part::Overcommitted;
    let programs = GROUPS.iter().flatten().map(|name| Some(*name)).chain([None]);
    let rows = programs.map(|program| {
        let retired = |config| match program {
            Some(own) => results.mean(part, config, own, |told| told.counted.instructions as f64),
            None => results.mean_of(part, config, |outcome| outcome.instructions() as f64),
        };
        let rate = |told: &Told| 100.0 * told.counted.miss_rate();
        let cell = |config| match (instructions, program) {
            (true, _) => Some(100.0 * retired(config)? / retired(("C9", ""))?),
            (false, Some(own)) => results.mean(part, config, own, rate),
            (false, None) => None,
        };
        row(program.unwrap_or("total"), OVERCOMMITTED.into_iter().map(cell).collect())
    });
    (OVERCOMMITTED.into_iter().map(name).collect(), rows.collect())
}

fn real(results: Results<'_>) -> Made {
    let configs =
        [("F", ""), ("S", ""), ("H", ""), ("H+P", ""), ("C2", REDISTRIBUTION), ("C2", UTILITY)];
    let mut rows = Vec::new();
    for program in results.real() {
        let cells = |of: &dyn Fn(&Told) -> f64| {
            configs.into_iter().map(|c| results.mean(Part::Real, c, program, of)).collect()
        };
        rows.push(row(program, cells(&|told| told.counted.cpi())));
        let rate = cells(&|told| 100.0 * told.counted.miss_rate());
        rows.push(row(&format!("{program}, misses"), rate));
    }
    (configs.into_iter().map(name).collect(), rows)
}
