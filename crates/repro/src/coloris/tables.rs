//! The outcomes as the tables of COLORIS, section 4. Figures are tables here too, `f7` being figure 7.

use std::collections::BTreeSet;

use super::cases::{
    COLORIS, ColorisChange, ColorisPart, FOREGROUND, FOUR, GROUPS, LINUX, LINUX_IN_ORDER, MOVING,
    REDISTRIBUTION, SCANS, UTILITY,
};
use super::outcome::{ColorisOutcome, ColorisProgramResult, Sums};
use super::paper;
use super::programs::PROGRAMS;
use crate::engine::TableSpec;
use crate::report::{TableCell, TableRow, mean};

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

/// The change of outcomes that are looked for.
const NOTHING: ColorisChange = ColorisChange::Nothing;

/// All outcomes, and ways to find those with nothing changed.
#[derive(Clone, Copy, Debug)]
pub struct ColorisResults<'a>(pub &'a [ColorisOutcome]);

impl<'a> ColorisResults<'a> {
    /// The outcomes of a configuration, by seed.
    pub fn all(self, part: ColorisPart, config: &str, policy: &str) -> Vec<&'a ColorisOutcome> {
        let is = |o: &&ColorisOutcome| {
            (o.part, o.config, o.policy, o.change) == (part, config, policy, NOTHING)
        };
        self.0.iter().filter(is).collect()
    }

    /// All outcomes with those of an experiment in the place of the same configurations.
    pub fn changed(self, change: ColorisChange) -> Vec<ColorisOutcome> {
        let (again, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|o| o.change == change);
        let kind = |o: &ColorisOutcome| {
            let first = o.programs.first().map(|told| told.name.clone());
            (o.part, o.config, o.policy, first)
        };
        let kept = |o: &&ColorisOutcome| {
            o.change == NOTHING && again.iter().all(|changed| kind(changed) != kind(o))
        };
        let kept = others.into_iter().filter(kept).cloned();
        let again = again.iter().map(|o| ColorisOutcome { change: NOTHING, ..(*o).clone() });
        kept.chain(again).collect()
    }

    /// The mean of a figure of a program over the seeds of a configuration.
    pub fn mean(
        self,
        part: ColorisPart,
        (config, policy): (&str, &str),
        program: &str,
        of: impl Fn(&ColorisProgramResult) -> f64,
    ) -> TableCell {
        let all = self.all(part, config, policy);
        mean(all.iter().filter_map(|outcome| outcome.program(program)).map(of))
    }

    /// The mean of a figure of whole outcomes.
    pub fn mean_of(
        self,
        part: ColorisPart,
        (config, policy): (&str, &str),
        of: impl Fn(&ColorisOutcome) -> f64,
    ) -> TableCell {
        mean(self.all(part, config, policy).into_iter().map(of))
    }

    /// A program in the foreground under a configuration.
    pub fn foreground(
        self,
        part: ColorisPart,
        config: &str,
        program: &str,
    ) -> Option<&'a ColorisProgramResult> {
        let mut those = self.all(part, config, "").into_iter();
        let first =
            those.find(|outcome| outcome.programs.first().is_some_and(|p| p.name == program));
        first?.programs.first()
    }

    /// Most that the cycles per instruction of a program vary with the background, as a share of
    /// those alone: with partitions, and without.
    pub fn variation(self, part: ColorisPart, program: &str) -> Option<[f64; 2]> {
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

    /// Section 4.1: cycles per instruction of a program alone on the frames of an allocator, the mean of all
    /// seeds.
    pub fn alone_on(self, program: &str, config: &str) -> TableCell {
        self.mean(ColorisPart::Allocator, (config, ""), program, |told| told.counted.cpi())
    }

    /// Percent more time of a program alone with all colours in turns than on frames of Linux.
    pub fn over_linux(self, program: &str, linux: &str) -> TableCell {
        let cpi = |config| self.alone_on(program, config);
        Some(100.0 * (cpi(COLORIS)? / cpi(linux)? - 1.0))
    }

    /// Figure 6: percent more time of a program with scans for hot pages than without, with the same seed.
    pub fn scanned(self, program: &str, scans: &str) -> TableCell {
        let cpi =
            |config| Some(self.foreground(ColorisPart::Allocator, config, program)?.counted.cpi());
        Some(100.0 * (cpi(scans)? / cpi(COLORIS)? - 1.0))
    }

    /// Programs of the traces, in their order.
    pub fn real(self) -> Vec<&'a str> {
        let mut seen = BTreeSet::new();
        let told = self.0.iter().filter(|o| o.part == ColorisPart::Real).flat_map(|o| &o.programs);
        told.map(|told| told.name.as_str()).filter(|name| seen.insert(*name)).collect()
    }
}

/// The rows of a table.
pub fn rows(outcomes: &[ColorisOutcome], table: &TableSpec) -> Vec<TableRow> {
    let results = ColorisResults(outcomes);
    let configs: Vec<(&str, &str)> = table.head.iter().map(|column| split(column)).collect();
    match table.id.as_str() {
        "1" => PROGRAMS.iter().map(|(name, ..)| allocator(results, name)).collect(),
        "f6" => PROGRAMS.iter().map(|(name, ..)| scans(results, name)).collect(),
        "f7" => matrix(results, ColorisPart::Isolation, &configs, Sums::cpi),
        "f8" => matrix(results, ColorisPart::Isolation, &configs, percent),
        "f11" => matrix(results, ColorisPart::Slices, &configs, Sums::cpi),
        "f11m" => matrix(results, ColorisPart::Slices, &configs, percent),
        "4.2" => FOREGROUND.iter().map(|program| variation(results, program)).collect(),
        "f9" => FOUR.iter().map(|program| miss_rates(results, program, &configs)).collect(),
        "3-fit" => FOUR.iter().map(|program| fit(results, program)).collect(),
        "3" => instructions(results, &configs),
        "4" => {
            [MOVING, REDISTRIBUTION, UTILITY].map(|own| recolored(results, own, &configs)).into()
        }
        "5" => assignments(results),
        "f10" => overcommitted(results, &configs, true),
        "f10m" => overcommitted(results, &configs, false),
        _ => real(results, &configs),
    }
}

/// Percent more time with all colours in turns than on Linux's frames, at random and in order, and cycles per
/// instruction on those at random and in colours.
fn allocator(results: ColorisResults<'_>, program: &str) -> TableRow {
    let over = |linux| results.over_linux(program, linux);
    let cpi = |config| results.alone_on(program, config);
    let cells = vec![over(LINUX), over(LINUX_IN_ORDER), cpi(LINUX), cpi(COLORIS)];
    TableRow::named(program, cells)
}

fn scans(results: ColorisResults<'_>, program: &str) -> TableRow {
    let cells = SCANS.iter().map(|(config, _)| results.scanned(program, config));
    TableRow::named(program, cells.collect())
}

/// A configuration's name and what recolours, of `C6 WIN=1 Redistribution`.
fn split(column: &str) -> (&str, &str) {
    let policies = [MOVING, REDISTRIBUTION, UTILITY].into_iter();
    let split = |policy| Some((column.strip_suffix(policy)?.trim_end(), policy));
    policies.filter_map(split).next().unwrap_or((column, ""))
}

fn percent(counted: &Sums) -> f64 {
    100.0 * counted.miss_rate()
}

fn matrix(
    results: ColorisResults<'_>,
    part: ColorisPart,
    configs: &[(&str, &str)],
    of: impl Fn(&Sums) -> f64,
) -> Vec<TableRow> {
    let row = |program: &&str| {
        let cell = |(config, _): &(&str, &str)| {
            results.foreground(part, config, program).map(|told| of(&told.counted))
        };
        TableRow::named(*program, configs.iter().map(cell).collect())
    };
    FOREGROUND.iter().map(row).collect()
}

fn variation(results: ColorisResults<'_>, program: &str) -> TableRow {
    let own = results.variation(ColorisPart::Isolation, program);
    let cells = own.map_or(vec![None; 2], |own| own.map(|v| Some(100.0 * v)).to_vec());
    TableRow::named(program, cells)
}

/// What a program is like before any partition changes: its part of the instructions of all in C3, and
/// its misses.
fn fit(results: ColorisResults<'_>, program: &str) -> TableRow {
    let of = |program| retired(results, ColorisPart::Recoloring, ("C3", ""), program);
    let share = of(Some(program)).zip(of(None)).map(|(own, all)| 100.0 * own / all);
    let misses = |told: &ColorisProgramResult| percent(&told.counted);
    let misses = results.mean(ColorisPart::Recoloring, ("C3", ""), program, misses);
    TableRow::named(program, vec![share, misses])
}

fn miss_rates(results: ColorisResults<'_>, program: &str, configs: &[(&str, &str)]) -> TableRow {
    let cell = |&config: &(&str, &str)| {
        results.mean(ColorisPart::Recoloring, config, program, |told| percent(&told.counted))
    };
    TableRow::named(program, configs.iter().map(cell).collect())
}

/// Instructions of a program, or of all of them.
fn retired(
    results: ColorisResults<'_>,
    part: ColorisPart,
    config: (&str, &str),
    program: Option<&str>,
) -> TableCell {
    match program {
        Some(program) => results.mean(part, config, program, |t| t.counted.instructions as f64),
        None => results.mean_of(part, config, |outcome| outcome.instructions() as f64),
    }
}

fn instructions(results: ColorisResults<'_>, configs: &[(&str, &str)]) -> Vec<TableRow> {
    let programs = FOUR.map(Some).into_iter().chain([None]).enumerate();
    let row = |(at, program): (usize, Option<&str>)| {
        let of = |config: (&str, &str)| retired(results, ColorisPart::Recoloring, config, program);
        let base = of(("C3", ""));
        let cells = configs.iter().map(|&config| Some(100.0 * of(config)? / base?)).collect();
        let theirs = |config: &str| Some(paper().figures.get(config)?[at]);
        let paper = configs.iter().map_while(|(config, policy)| {
            Some(100.0 * theirs(format!("{config} {policy}").trim_end())? / theirs("C3")?)
        });
        let label = program.unwrap_or("total");
        TableRow { paper: Some(paper.collect()), ..TableRow::of(label, label, cells) }
    };
    programs.map(row).collect()
}

fn recolored(results: ColorisResults<'_>, policy: &str, configs: &[(&str, &str)]) -> TableRow {
    let pages = |outcome: &ColorisOutcome| outcome.recolored() as f64;
    let cell = |&(config, _): &(&str, &str)| {
        results.mean_of(ColorisPart::Recoloring, (config, policy), pages)
    };
    TableRow::named(policy, configs.iter().map(cell).collect())
}

fn assignments(results: ColorisResults<'_>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for (config, policy) in CONFIGS {
        for (at, outcome) in results.all(ColorisPart::Recoloring, config, policy).iter().enumerate()
        {
            let own = |name: &&str| outcome.program(name).map(|told| f64::from(told.colors));
            let name = format!("{config} {policy} ({})", at + 1);
            rows.push(TableRow::named(name, FOUR.iter().map(own).collect()));
        }
    }
    rows
}

fn overcommitted(
    results: ColorisResults<'_>,
    configs: &[(&str, &str)],
    instructions: bool,
) -> Vec<TableRow> {
    let part = ColorisPart::Overcommitted;
    let row = |program: Option<&str>| {
        let of = |config: (&str, &str)| retired(results, part, config, program);
        let rate = |told: &ColorisProgramResult| percent(&told.counted);
        let cell = |&config: &(&str, &str)| match (instructions, program) {
            (true, _) => Some(100.0 * of(config)? / of(("C9", ""))?),
            (false, Some(own)) => results.mean(part, config, own, rate),
            (false, None) => None,
        };
        TableRow::named(program.unwrap_or("total"), configs.iter().map(cell).collect())
    };
    GROUPS.iter().flatten().map(|name| Some(*name)).chain([None]).map(row).collect()
}

fn real(results: ColorisResults<'_>, configs: &[(&str, &str)]) -> Vec<TableRow> {
    let rows = |program: &str| {
        let cells = |of: fn(&Sums) -> f64| {
            let cell = |&config: &(&str, &str)| {
                results.mean(ColorisPart::Real, config, program, |told| of(&told.counted))
            };
            configs.iter().map(cell).collect()
        };
        let misses = format!("{program}, misses");
        [TableRow::named(program, cells(Sums::cpi)), TableRow::named(misses, cells(percent))]
    };
    results.real().into_iter().flat_map(rows).collect()
}
