//! The outcomes as the tables of Romer 1998, with the thesis's figures for programs that a
//! workload stands for. Figures are tables here too, `f3-3` being figure 3-3; what they draw is in
//! [`super::figures`].

use std::collections::BTreeSet;

use super::super::report::{Cell, Table, TableRow};
use super::run::Outcome;
use super::thesis;
use super::variants::{BOTH, Initial, Part, SOFTWARE};

/// Number and title of each table, and the part that it is made of.
pub const ALL: [(&str, &str, Part); 14] = [
    ("3-4", "TLB misses, in hundreds", Part::Superpages),
    ("3-5", "Percent less time than with FIXED 4 KB", Part::Superpages),
    ("f3-3", "TLBMCPI", Part::Superpages),
    ("f3-4", "Memory beyond that of FIXED 4 KB, percent", Part::Superpages),
    ("f4-1", "L2 MCPI of software policies, page coloring", Part::Conflicts),
    ("f4-1r", "The same, pages at random at first (not in the thesis)", Part::Conflicts),
    ("4-6", "L2 MCPI with page coloring (PC) and bin hopping (BH)", Part::Conflicts),
    ("5-2", "Cycles of other caches that break even with CML", Part::Conflicts),
    ("5-3", "MCPI of DM, a victim cache, and CML", Part::Conflicts),
    ("f5-4", "L2 MCPI by pages in LRU and HOT of the CML buffer", Part::Buffer),
    ("6-3", "Percent of the copied pages that are copied by", Part::Combined),
    ("6-4", "Pages recoloured by COMBINED, percent of that by times per page", Part::Combined),
    ("6-5", "Pages recoloured by CML, percent of that by times per page", Part::Combined),
    ("f6-6", "L2 and TLB MCPI, page coloring (PC) and bin hopping (BH)", Part::Combined),
];

/// All outcomes, and ways to find them.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a>(pub &'a [Outcome]);

impl<'a> Results<'a> {
    /// The outcome of a workload under a policy.
    pub fn get(
        &self,
        part: Part,
        initial: Initial,
        program: &str,
        policy: &str,
    ) -> Option<&'a Outcome> {
        self.0.iter().find(|outcome| {
            let variant = &outcome.variant;
            outcome.program == program
                && (variant.part, variant.initial) == (part, initial)
                && variant.policy == policy
        })
    }

    /// The workloads of a part in the order in which they were given, and what they stand for.
    pub fn programs(&self, part: Part) -> Vec<(&'a str, &'static str)> {
        let mut seen = BTreeSet::new();
        let of = self.0.iter().filter(|outcome| outcome.variant.part == part);
        of.filter(|outcome| seen.insert(outcome.program.as_str()))
            .map(|outcome| (outcome.program.as_str(), outcome.stands_for))
            .collect()
    }

    /// The outcome under page coloring.
    pub fn colored(&self, part: Part, program: &str, policy: &str) -> Option<&'a Outcome> {
        self.get(part, Initial::Coloring, program, policy)
    }

    /// Memory beyond that with pages of 4 KB, as a share (section 3.1).
    pub fn growth(&self, program: &str, policy: &str) -> Cell {
        let [base, with] = ["FIXED 4 KB", policy]
            .map(|policy| self.colored(Part::Superpages, program, policy).map(|o| o.pages as f64));
        Some(with? / base? - 1.0)
    }
}

/// The tables of these numbers for which there are outcomes, all of them if none is named.
pub fn tables(outcomes: &[Outcome], ids: &[&str]) -> Vec<Table> {
    let results = Results(outcomes);
    let wanted = ALL.iter().filter(|(id, ..)| ids.is_empty() || ids.contains(id));
    let made = wanted.map(|&(id, title, part)| make(results, id, title, part));
    made.filter(|table| !table.rows.is_empty()).collect()
}

fn make(results: Results<'_>, id: &'static str, title: &'static str, part: Part) -> Table {
    let head = head(id);
    let digits = match id {
        "3-4" | "6-3" | "6-4" | "6-5" => 0,
        "3-5" | "f3-4" => 1,
        "f3-3" | "f4-1" | "f4-1r" | "f5-4" | "f6-6" => 3,
        _ => 2,
    };
    let rows = results.programs(part).into_iter().map(|(program, stands_for)| {
        let paper = figures_of_thesis(id, stands_for);
        let stands_for = paper.as_ref().map(|_| stands_for);
        let cells = cells(results, id, part, program, &head);
        TableRow { program: program.to_owned(), cells, stands_for, paper }
    });
    let rows = rows.filter(|row| row.cells.iter().any(Option::is_some)).collect();
    Table { id, title, head, digits, rows }
}

/// Columns of table 3-4; those of table 3-5 lack the first.
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

fn head(id: &str) -> Vec<String> {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let more = ["THROTTLE", "THROTTLE-Strict", "Hybrid"];
    match id {
        "3-4" | "f3-3" | "f3-4" => own(&[&SUPERPAGES[..], &more].concat()),
        "3-5" => own(&[&SUPERPAGES[1..], &more].concat()),
        "4-6" => own(&[
            "PC DM",
            "PC Snapshot-Miss",
            "PC A2",
            "BH DM",
            "BH Snapshot-Miss",
            "BH A2",
            "PC Snapshot-Fit",
            "BH Snapshot-Fit",
        ]),
        "5-2" => own(&["A2", "Column-associative"]),
        "5-3" => own(&["DM", "Victim", "CML", "CML-Fit"]),
        "f4-1" | "f4-1r" => own(&[&["DM"], &SOFTWARE[..], &["CML", "CML-Fit", "A2"]].concat()),
        "f5-4" => own(&["2+2", "4+4", "8+8", "16+16", "32+32", "32+2", "2+32"]),
        "6-3" => own(&["THROTTLE", "CML", "Both"]),
        "6-4" | "6-5" => own(&["Pages", "once", "twice", "3 times", "4 times", "more"]),
        _ => ["PC", "BH"].iter().flat_map(|m| BOTH.map(|p| format!("{m} {p}"))).collect(),
    }
}

fn figures_of_thesis(id: &str, program: &str) -> Option<Vec<f64>> {
    match id {
        "3-4" => thesis::find(&thesis::TABLE_3_4, program),
        "3-5" => thesis::find(&thesis::TABLE_3_5, program),
        "4-6" => thesis::find(&thesis::TABLE_4_6, program),
        "5-2" => thesis::find(&thesis::TABLE_5_2, program),
        "5-3" => thesis::find(&thesis::TABLE_5_3, program),
        "6-3" => thesis::find(&thesis::TABLE_6_3, program),
        "6-4" => thesis::find(&thesis::TABLE_6_4, program),
        "6-5" => thesis::find(&thesis::TABLE_6_5, program),
        _ => None,
    }
}

fn cells(results: Results<'_>, id: &str, part: Part, program: &str, head: &[String]) -> Vec<Cell> {
    let colored = |policy: &str| results.colored(part, program, policy);
    let each = |of: &dyn Fn(&str) -> Cell| head.iter().map(|name| of(name)).collect();
    match id {
        "3-4" => each(&|policy| Some(colored(policy)?.tlb_misses as f64 / 100.0)),
        "3-5" => each(&|policy| Some(less_time(colored("FIXED 4 KB")?, colored(policy)?))),
        "f3-3" => each(&|policy| Some(colored(policy)?.tlb_mcpi())),
        "f3-4" => each(&|policy| Some(100.0 * results.growth(program, policy)?)),
        "f4-1" => each(&|policy| Some(colored(policy)?.l2_mcpi())),
        "f4-1r" => each(&|p| Some(results.get(part, Initial::Random, program, p)?.l2_mcpi())),
        "4-6" => each(&|name| Some(mapped(results, part, program, name)?.l2_mcpi())),
        "5-3" => each(&|policy| Some(colored(policy)?.rates.mcpi)),
        "5-2" => break_even(results, part, program),
        "f5-4" => each(&|name| {
            let of = results.get(part, Initial::Random, program, &format!("CML {name}"));
            Some(of?.l2_mcpi())
        }),
        "6-3" => copied_by(results, program),
        "6-4" => times(colored("COMBINED")),
        "6-5" => times(colored("CML")),
        _ => each(&|name| Some(mapped(results, part, program, name)?.l2_mcpi())),
    }
}

/// The outcome of a column such as `BH CML`.
fn mapped<'a>(
    results: Results<'a>,
    part: Part,
    program: &str,
    column: &str,
) -> Option<&'a Outcome> {
    let (mapping, policy) = column.split_once(' ')?;
    let initial = if mapping == "BH" { Initial::BinHopping } else { Initial::Coloring };
    results.get(part, initial, program, policy)
}

/// Percent of the time that is saved. The thesis measured what a program takes besides its TLB;
/// here that is one cycle for each instruction, as in section 3.1.
fn less_time(base: &Outcome, with: &Outcome) -> f64 {
    100.0 * (1.0 - (1.0 + with.tlb_mcpi()) / (1.0 + base.tlb_mcpi()))
}

/// Cycles for a request that make another cache as slow as CML (section 5.5): those of a two-way
/// cache are for all its requests, those of a column-associative one for hits in second places.
fn break_even(results: Results<'_>, part: Part, program: &str) -> Vec<Cell> {
    let of = |policy| results.colored(part, program, policy);
    let cycles = |outcome: &Outcome| outcome.costs.stall_cycles() as f64;
    let helps = |other: &Outcome| {
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
fn copied_by(results: Results<'_>, program: &str) -> Vec<Cell> {
    let of = |policy| results.colored(Part::Combined, program, policy);
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
fn times(outcome: Option<&Outcome>) -> Vec<Cell> {
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
