//! Which programs run beside which, who has filled the page cache before, and under which variants:
//! a case for each bar of the paper's figures.

use std::collections::BTreeSet;

use serde::Serialize;

use super::changes::SrmChange;
use super::place::PaperMachine;
use super::programs::{
    ARRAYS, DIMENSIONS, FILE_BOUND, MEMORY_BOUND, SCAN, SCIMARK, SORT_BLOCKS, SrmProgram,
    file_bound, greps, hash_join, memory_bound, mergesort, query, query_name, query_records,
    rescan, sorters, table_scan,
};
use super::variants::SrmVariant;
use crate::engine::Named;

/// Parts of the experiment, by the paper's figures and sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SrmPart {
    /// Figure 2: mergesort beside grep.
    Sizes,
    /// Figure 8: hash joins beside scans.
    Joins,
    /// Figures 10 and 11: pairs on the Xeon.
    Pairs,
    /// Figure 12: three programs and a fourth on the Core i7.
    Four,
    /// Figure 13: one to three greps.
    Greps,
    /// Figure 14: one program loads, another reads.
    Orders,
    /// Section 4.5: the random reader.
    Random,
    /// Section 4.5: the file that is scanned again and again.
    Rescans,
    /// Figure 15: hit ratios of the page cache; not made of cases.
    Hits,
    /// Figure 16: thresholds.
    Thresholds,
    /// Figure 9: queries of TPC-H.
    Queries,
    /// Section 4.7: a program on every core that sorts a file.
    Cores,
    /// Traces of real programs.
    Traces,
}

impl Named for SrmPart {
    const ALL: &'static [(SrmPart, &'static str)] = &[
        (SrmPart::Sizes, "sizes"),
        (SrmPart::Joins, "joins"),
        (SrmPart::Pairs, "pairs"),
        (SrmPart::Four, "four"),
        (SrmPart::Greps, "greps"),
        (SrmPart::Orders, "orders"),
        (SrmPart::Random, "random"),
        (SrmPart::Rescans, "rescans"),
        (SrmPart::Hits, "hits"),
        (SrmPart::Thresholds, "thresholds"),
        (SrmPart::Queries, "queries"),
        (SrmPart::Cores, "cores"),
        (SrmPart::Traces, "traces"),
    ];
}

/// Who fills the page cache before the run, as a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileLoad {
    /// A workload that goes through its files once.
    Run {
        /// As [`huepage_sim::workloads::WorkloadSpec`] reads it.
        spec: String,
        /// The volume of its files.
        volume: u32,
    },
    /// grep through both directories of `diff`, in the order of their layout.
    GrepBoth {
        /// Bytes of both together.
        bytes: usize,
        /// The volume of the files.
        volume: u32,
    },
}

/// Beside nothing.
pub const ALONE: &str = "alone";

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SrmCase {
    /// The part that asked for it first.
    pub part: SrmPart,
    /// Where.
    pub place: PaperMachine,
    /// What runs beside the programs that count, by name; [`ALONE`] if nothing.
    pub beside: String,
    /// How frames are chosen.
    pub variant: SrmVariant,
    /// The programs that count, each on a core of its own.
    pub programs: Vec<SrmProgram>,
    /// Those beside them, on the cores after.
    pub others: Vec<SrmProgram>,
    /// Who fills the page cache.
    pub loads: Vec<FileLoad>,
    /// Accesses of each program before anything is counted, and after which it ends.
    pub warm_up: u64,
    /// All accesses of each program that counts.
    pub limit: u64,
    /// What an experiment does otherwise.
    pub change: SrmChange,
}

const M: u64 = 1_000_000;
/// Before counting, and in all; the same where there is little time.
const LENGTHS: [(u64, u64); 2] = [(3 * M / 2, 4 * M), (M / 2, 3 * M / 2)];

impl SrmCase {
    /// Programs alone on the Xeon, in the page cache nothing.
    fn new(part: SrmPart, variant: SrmVariant, programs: Vec<SrmProgram>, quick: bool) -> SrmCase {
        let (warm_up, limit) = LENGTHS[usize::from(quick)];
        let (others, loads, beside) = (Vec::new(), Vec::new(), ALONE.to_owned());
        SrmCase {
            part,
            place: PaperMachine::Xeon,
            beside,
            variant,
            programs,
            others,
            loads,
            warm_up,
            limit,
            change: SrmChange::Nothing,
        }
    }

    fn on(mut self, place: PaperMachine) -> SrmCase {
        self.place = place;
        self
    }

    /// Another program runs beside, whose files are in the page cache.
    fn beside(mut self, name: &str, others: &[SrmProgram]) -> SrmCase {
        self.beside = name.to_owned();
        self.others = others.to_vec();
        self.loads.extend(others.iter().filter_map(load));
        self
    }

    fn loaded_by(mut self, loads: Vec<FileLoad>) -> SrmCase {
        self.loads = loads;
        self
    }

    /// Machine, programs and variant: what an outcome follows from.
    fn key(&self) -> (PaperMachine, Vec<SrmProgram>, String, SrmVariant, SrmChange) {
        (self.place, self.programs.clone(), self.beside.clone(), self.variant, self.change)
    }
}

/// What fills the page cache with a program's files: itself, but for PostMark, which makes them.
fn load(program: &SrmProgram) -> Option<FileLoad> {
    let spec = program.spec.as_ref().filter(|spec| !spec.starts_with("postmark"))?;
    let first_round = |part: &str| {
        // Their rounds say how large a file is.
        let whole =
            ["hash-join", "multi-join", "sort-file"].iter().any(|kernel| spec.starts_with(kernel));
        if part.starts_with("rounds=") && !whole { "rounds=1".to_owned() } else { part.to_owned() }
    };
    // The random reader's file is scanned from start to end (section 4.5).
    let once = spec.split(',').map(first_round).collect::<Vec<_>>().join(",");
    let once = once.replace("random-reader", "rescan");
    Some(FileLoad::Run { spec: once, volume: program.volume })
}

/// All cases of a part but [`SrmPart::Hits`]; `traces` are names of traces.
pub fn cases(part: SrmPart, quick: bool, traces: &[&str]) -> Vec<SrmCase> {
    match part {
        SrmPart::Sizes => sizes(quick),
        SrmPart::Joins => joins(quick),
        SrmPart::Pairs => pairs(quick),
        SrmPart::Four => four(quick),
        SrmPart::Greps => many_greps(quick),
        SrmPart::Orders => orders(quick),
        SrmPart::Random => random(quick),
        SrmPart::Rescans => rescans(quick),
        SrmPart::Hits => Vec::new(),
        SrmPart::Thresholds => thresholds(quick),
        SrmPart::Queries => queries(quick),
        SrmPart::Cores => cores(quick),
        SrmPart::Traces => traced(quick, traces),
    }
}

/// The cases of several parts, each once.
pub fn distinct(all: Vec<SrmCase>) -> Vec<SrmCase> {
    let mut seen = BTreeSet::new();
    all.into_iter().filter(|case| seen.insert(case.key())).collect()
}

/// The two kernels.
pub(super) const BOTH: [SrmVariant; 2] = [SrmVariant::Linux, SrmVariant::SRM];
const THREE: [SrmVariant; 3] = [SrmVariant::Linux, SrmVariant::Turns, SrmVariant::SRM];

fn sizes(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for kib in ARRAYS.into_iter().filter(|kib| !quick || kib % 512 == 0) {
        let of = |variant| SrmCase::new(SrmPart::Sizes, variant, vec![mergesort(kib)], quick);
        all.extend(BOTH.map(of));
        let beside = [SrmVariant::Linux, SrmVariant::OneColor, SrmVariant::SRM];
        all.extend(beside.map(|v| of(v).beside("grep", &[file_bound("grep-file")])));
    }
    all
}

fn joins(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for place in [PaperMachine::Xeon, PaperMachine::CoreI7] {
        for variant in BOTH {
            let case =
                |program| SrmCase::new(SrmPart::Joins, variant, vec![program], quick).on(place);
            if variant == SrmVariant::Linux {
                let mut alone = case(table_scan());
                alone.loads.extend(load(&table_scan()));
                all.push(alone);
            }
            for &(records, mib) in DIMENSIONS.iter().take(if quick { 1 } else { usize::MAX }) {
                let join = hash_join(records, mib);
                let mut alone = case(join.clone());
                alone.loads.extend(load(&join));
                // Building the hash table takes 35 accesses a record, copying the blocks included.
                alone.warm_up = alone.warm_up.max(36 * records);
                alone.limit = alone.warm_up + if quick { M / 2 } else { 3 * M };
                all.push(alone.clone().beside("scan", &[table_scan()]));
                all.extend((variant == SrmVariant::Linux).then_some(alone));
            }
        }
    }
    all
}

fn pairs(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for (name, ..) in MEMORY_BOUND {
        for variant in THREE {
            let alone = SrmCase::new(SrmPart::Pairs, variant, vec![memory_bound(name)], quick);
            let with = |other| alone.clone().beside(other, &[file_bound(other)]);
            all.extend(FILE_BOUND.map(with));
            all.push(alone);
        }
    }
    all
}

fn four(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    let case = |variant, programs| {
        SrmCase::new(SrmPart::Four, variant, programs, quick).on(PaperMachine::CoreI7)
    };
    for variant in BOTH {
        all.extend(SCIMARK.map(|name| case(variant, vec![memory_bound(name)])));
        let three = case(variant, SCIMARK.map(memory_bound).to_vec());
        all.extend(["grep", "tar"].map(|o| three.clone().beside(o, &[file_bound(o)])));
    }
    all
}

fn many_greps(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for (name, variant) in ["spmv", "lu"].iter().flat_map(|name| BOTH.map(|v| (*name, v))) {
        let alone = SrmCase::new(SrmPart::Greps, variant, vec![memory_bound(name)], quick)
            .on(PaperMachine::CoreI7);
        for count in 1..=3 {
            all.push(alone.clone().beside(&greps_name(count), &greps(count)));
        }
        all.push(alone);
    }
    all
}

/// What so many greps are called.
pub fn greps_name(count: u32) -> String {
    format!("{count} x grep")
}

/// Who reads and, in brackets, who loaded, as figure 14 has them.
pub const ORDERS: [(&str, &str); 4] =
    [("grep", "grep"), ("grep", "diff"), ("diff", "diff"), ("diff", "grep")];

/// `grep (diff)`: reads what the other loaded.
pub fn order_name(reads: &str, loads: &str) -> String {
    format!("{reads} ({loads})")
}

fn orders(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    let volume = file_bound("diff").volume;
    for (reads, loads) in ORDERS {
        let load = match loads {
            "diff" => FileLoad::Run { spec: "diff:size=200M,rounds=1".into(), volume },
            _ => FileLoad::GrepBoth { bytes: 200 << 20, volume },
        };
        for (name, variant) in SCIMARK.iter().flat_map(|name| BOTH.map(|v| (*name, v))) {
            let case = SrmCase::new(SrmPart::Orders, variant, vec![memory_bound(name)], quick);
            let case = case.beside(&order_name(reads, loads), &[file_bound(reads)]);
            all.push(case.loaded_by(vec![load.clone()]));
        }
    }
    all
}

fn random(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for (name, variant) in SCIMARK.iter().flat_map(|name| BOTH.map(|v| (*name, v))) {
        let case = SrmCase::new(SrmPart::Random, variant, vec![memory_bound(name)], quick);
        all.push(case.beside("random-reader", &[file_bound("random-reader")]));
    }
    all
}

/// KiB of the file on each machine (section 4.5: 3.4 and 7.4 MiB).
pub const RESCANS: [(PaperMachine, u64); 2] =
    [(PaperMachine::Xeon, 3482), (PaperMachine::CoreI7, 7578)];

fn rescans(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for (place, kib) in RESCANS {
        for variant in [SrmVariant::Linux, SrmVariant::SRM, SrmVariant::Rescan] {
            let program = rescan(kib);
            let mut case =
                SrmCase::new(SrmPart::Rescans, variant, vec![program.clone()], quick).on(place);
            case.loads.extend(load(&program));
            // A scan takes 768 accesses for each page; the detector wants three of them.
            let scan = 768 * (kib / 4);
            case.warm_up = scan * 5;
            case.limit = case.warm_up + scan * if quick { 1 } else { 4 };
            all.push(case);
        }
    }
    all
}

/// Values of Tl in figure 16.
pub const THRESHOLDS: [u64; 6] = [16, 32, 64, 128, 256, 512];

fn thresholds(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    let srm = THRESHOLDS.map(SrmVariant::Srm);
    let variants: Vec<SrmVariant> = std::iter::once(SrmVariant::Linux).chain(srm).collect();
    for name in SCIMARK {
        for other in ["grep", "tar"] {
            for &variant in &variants {
                let case =
                    SrmCase::new(SrmPart::Thresholds, variant, vec![memory_bound(name)], quick);
                all.push(case.beside(other, &[file_bound(other)]));
            }
        }
    }
    all
}

/// Who runs beside whom in figure 9: a query of the first group beside Q7 or Q8, then two of the
/// second group. Which of them with which, only the drawing shows.
pub const COMBINATIONS: [(u32, u32); 6] = [(6, 7), (6, 8), (15, 7), (5, 10), (8, 11), (7, 18)];

/// A query that counts and one beside it, both ways where both build hash tables.
fn queries(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for variant in BOTH {
        let alone = |number| {
            let program = query(number);
            let loads = load(&program).into_iter().collect();
            SrmCase::new(SrmPart::Queries, variant, vec![program], quick).loaded_by(loads)
        };
        for (one, other) in COMBINATIONS {
            let pair = [(one, other), (other, one)].map(|(counts, beside)| {
                let case = alone(counts).beside(&query_name(beside), &[query(beside)]);
                built(case, &[counts, beside], quick)
            });
            all.extend(pair.into_iter().filter(|case| !case.programs[0].name.starts_with(SCAN)));
            all.extend([one, other].map(|number| built(alone(number), &[number], quick)));
        }
    }
    all
}

/// Both have built their hash tables before anything counts: some 45 accesses a record. Where there is little
/// time they are still at it.
fn built(case: SrmCase, numbers: &[u32], quick: bool) -> SrmCase {
    if quick {
        return SrmCase { limit: case.warm_up + M / 2, ..case };
    }
    let records = numbers.iter().filter_map(|&number| query_records(number)).max();
    let warm_up = case.warm_up.max(46 * records.unwrap_or(0));
    SrmCase { warm_up, limit: warm_up + 8 * M, ..case }
}

/// Machines on all of whose cores files are sorted, and how many cores that is (section 4.7).
pub const SORTING: [(PaperMachine, u32); 2] =
    [(PaperMachine::CoreI7, 4), (PaperMachine::Xeon7560, 8)];
/// Beside programs of the same kind.
pub const TOGETHER: &str = "its kind";

/// On Linux only: the paper says nothing of SRM-buffer there.
fn cores(quick: bool) -> Vec<SrmCase> {
    let mut all = Vec::new();
    for ((place, count), kib) in SORTING.into_iter().flat_map(|at| SORT_BLOCKS.map(|k| (at, k))) {
        let together = sorters(count, kib);
        let one = vec![together[together.len() / 2].clone()];
        for (programs, beside) in [(one, ALONE), (together, TOGETHER)] {
            let loads = programs.iter().filter_map(load).collect();
            let case = SrmCase::new(SrmPart::Cores, SrmVariant::Linux, programs, quick).on(place);
            // Whole files are sorted, so that all phases count.
            let limit = if quick { M / 2 } else { 200 * M };
            let beside = beside.to_owned();
            all.push(SrmCase { beside, warm_up: 0, limit, ..case.loaded_by(loads) });
        }
    }
    all
}

fn traced(quick: bool, traces: &[&str]) -> Vec<SrmCase> {
    let mut all = Vec::new();
    let scan = traces.contains(&SCAN);
    for &name in traces.iter().filter(|name| **name != SCAN) {
        for variant in BOTH {
            let program = SrmProgram::trace(name, 0);
            // Nobody knows how long a trace is, so that all of it counts.
            let limit = if quick { 2 * M } else { 200 * M };
            let alone = SrmCase::new(SrmPart::Traces, variant, vec![program], quick);
            let alone = SrmCase { warm_up: 0, limit, ..alone };
            let beside = match scan {
                true => alone.clone().beside(SCAN, &[SrmProgram::trace(SCAN, 1)]),
                false => alone.clone().beside("grep", &[file_bound("grep")]),
            };
            all.extend([alone, beside]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_sim::workloads::WorkloadSpec;

    fn all(quick: bool) -> Vec<SrmCase> {
        let each = SrmPart::all().flat_map(|part| cases(part, quick, &["join", "scan"]));
        distinct(each.collect())
    }

    #[test]
    fn every_case_is_there_once_and_its_loads_can_be_started() {
        for quick in [false, true] {
            let all = all(quick);
            assert!(all.len() > 150, "{}", all.len());
            for case in &all {
                assert!(case.warm_up < case.limit, "{case:?}");
                for load in &case.loads {
                    if let FileLoad::Run { spec, .. } = load {
                        assert!(spec.parse::<WorkloadSpec>().is_ok(), "{spec}");
                    }
                }
                let alone = [ALONE, TOGETHER].contains(&case.beside.as_str());
                assert_eq!(case.others.is_empty(), alone, "{case:?}");
            }
        }
    }

    #[test]
    fn files_are_there_before_they_are_read() {
        let cases = all(false);
        let of = |beside: &str| cases.iter().find(|c| c.beside == beside).expect("a case");
        let run = |spec: &str, volume| FileLoad::Run { spec: spec.into(), volume };
        assert_eq!(of("tar").loads, [run("tar:size=100M,rounds=1", 1)]);
        assert_eq!(of("postmark").loads, []);
        assert_eq!(of("random-reader").loads, [run("rescan:size=512M,rounds=1", 1)]);
        assert_eq!(of("2 x grep").loads.len(), 2);
        assert_eq!(of("diff (grep)").loads, [FileLoad::GrepBoth { bytes: 200 << 20, volume: 1 }]);
        assert_eq!(of("scan").loads.len(), 2, "the join's tables and the scan's");
        let sorts = of(TOGETHER);
        assert_eq!((sorts.programs.len(), sorts.loads.len()), (4, 4));
        assert_eq!(sorts.loads[3], run("sort-file:size=512K,rounds=32,seed=3", 4));
    }
}
