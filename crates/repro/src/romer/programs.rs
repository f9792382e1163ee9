//! The workloads of each chapter, and the program of the thesis that each stands for. Sizes are
//! those of tables 3-1 and 4-3 where these give one; lengths follow the miss counts of table 3-4
//! as far as time allows. Workloads and sizes were frozen before any result was seen; lengths were
//! cut once, before the first result, to meet the time that the whole may take.

use serde::Serialize;

use super::variants::RomerPart;

/// A workload in one part of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RomerProgram {
    /// Its name in tables.
    pub name: String,
    /// The thesis's program that it stands for; empty if none.
    pub stands_for: &'static str,
    /// A workload as [`huepage_sim::workloads::WorkloadSpec`] reads it; none: a trace of that name.
    pub spec: Option<String>,
    /// Accesses after which it is ended.
    pub limit: u64,
    /// The same where there is little time.
    pub quick: u64,
}

const M: u64 = 1_000_000;

/// Name, program of the thesis, workload, accesses and accesses in short.
type Row = (&'static str, &'static str, &'static str, u64, u64);

/// Table 3-1.
const SUPERPAGES: &[Row] = &[
    ("btree", "coral", "btree:size=33M,rounds=24", 200 * M, 6 * M),
    ("compress", "compress", "compress", 30 * M, 4 * M),
    // The working set of table 3-1; the whole elimination is 53 million updates.
    ("gauss", "nasa7-5", "gauss:size=2300K", 30 * M, 4 * M),
    ("block-tridiagonal", "nasa7-4", "block-tridiagonal:rounds=100", 120 * M, 6 * M),
    ("gups", "fpga", "gups", 70 * M, 3 * M),
    ("fft", "fft", "fft", 120 * M, 6 * M),
    ("spmv", "spice", "spmv:size=3200K,rounds=100", 80 * M, 4 * M),
    ("chase", "", "chase:size=4M,rounds=60", 15 * M, 3 * M),
    ("twolf", "", "twolf:rounds=4", 40 * M, 4 * M),
    ("tomcatv", "", "tomcatv", 60 * M, 4 * M),
    ("mergesort", "", "mergesort", 60 * M, 4 * M),
];

/// Table 4-3, and kernels whose working sets are below and above the cache's 512 KB.
const CONFLICTS: &[Row] = &[
    ("strawman", "strawman", "strawman", 3 * M, M),
    ("tomcatv", "tomcatv", "tomcatv:rounds=8", 4 * M, M),
    ("fft", "nasa7-2", "fft:size=1M", 4 * M, M),
    ("cholesky", "nasa7-3", "cholesky", 4 * M, M),
    ("art", "", "art:size=400K,rounds=20", 4 * M, M),
    ("mergesort", "", "mergesort:size=360K,rounds=8", 4 * M, M),
    ("spmv", "", "spmv:size=440K,rounds=40", 4 * M, M),
    ("lu", "", "lu:size=480K", 4 * M, M),
    ("twolf", "", "twolf:size=440K,rounds=20", 4 * M, M),
    ("gauss", "", "gauss:size=400K", 4 * M, M),
    ("stream", "", "stream:size=1500K,rounds=8", 4 * M, M),
    ("compress", "", "compress", 4 * M, M),
];

/// Table 6-1, and kernels that miss in cache or TLB or both.
const COMBINED: &[Row] = &[
    ("compress", "compress", "compress", 8 * M, M),
    ("btree", "vortex", "btree:size=4M,rounds=20", 8 * M, M),
    ("tomcatv", "", "tomcatv:size=450K,rounds=40", 8 * M, M),
    ("art", "", "art:size=400K,rounds=60", 8 * M, M),
    ("spmv", "", "spmv:size=3200K,rounds=100", 8 * M, M),
    ("twolf", "", "twolf:size=2M,rounds=20", 8 * M, M),
    ("gauss", "", "gauss:size=1M", 8 * M, M),
    ("mergesort", "", "mergesort:size=1M,rounds=10", 8 * M, M),
    ("block-tridiagonal", "", "block-tridiagonal:size=1M,rounds=100", 8 * M, M),
    ("lu", "", "lu:size=480K", 8 * M, M),
];

/// The applications of figure 5-4: the sizes of the buffer.
const BUFFER: &[Row] = &[
    ("tomcatv", "tomcatv", "tomcatv:rounds=4", 2 * M, M),
    ("art", "", "art:size=400K,rounds=10", 2 * M, M),
    ("mergesort", "", "mergesort:size=360K,rounds=4", 2 * M, M),
    ("spmv", "", "spmv:size=440K,rounds=10", 2 * M, M),
];

/// Most accesses taken of a trace, and as many where there is little time: chapter 3 leaves most
/// of them out, the other parts run each under dozens of variants.
const fn traced(part: RomerPart) -> (u64, u64) {
    match part {
        RomerPart::Superpages => (40 * M, 2 * M),
        RomerPart::Combined => (15 * M, M),
        RomerPart::Conflicts | RomerPart::Buffer => (6 * M, M),
    }
}

/// The workloads of a part, traces of the given names last. A trace stands for the program of
/// the thesis that has its name, `gcc-a` and `gcc` being the same.
pub fn programs(part: RomerPart, traces: &[&str]) -> Vec<RomerProgram> {
    let rows = match part {
        RomerPart::Superpages => SUPERPAGES,
        RomerPart::Conflicts => CONFLICTS,
        RomerPart::Combined => COMBINED,
        RomerPart::Buffer => BUFFER,
    };
    let built = rows.iter().map(|&(name, stands_for, spec, limit, quick)| RomerProgram {
        name: name.into(),
        stands_for,
        spec: Some(spec.into()),
        limit,
        quick,
    });
    let traced = traces.iter().filter(|_| part != RomerPart::Buffer);
    built.chain(traced.map(|name| another(part, name, None))).collect()
}

/// A workload that is none of ours, or a trace; as long as a trace. Only a trace can be of a program
/// of the thesis: a workload that has the name of one is something else.
pub fn another(part: RomerPart, name: &str, spec: Option<&str>) -> RomerProgram {
    let (limit, quick) = traced(part);
    let stands_for = if spec.is_none() { stands_for(part, name) } else { "" };
    let (name, spec) = (name.to_owned(), spec.map(str::to_owned));
    RomerProgram { name, stands_for, spec, limit, quick }
}

/// The program of the thesis that a trace of this name is of.
fn stands_for(part: RomerPart, name: &str) -> &'static str {
    match (part, name) {
        (RomerPart::Superpages | RomerPart::Combined, "gcc") => "gcc",
        (RomerPart::Conflicts, "gcc") => "gcc-b",
        (RomerPart::Conflicts, "gs" | "ghostscript") => "gs",
        (RomerPart::Combined, "perl") => "perl",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Named as _;
    use huepage_sim::workloads::WorkloadSpec;

    #[test]
    fn every_workload_can_be_started_and_each_part_has_enough() {
        for part in RomerPart::all() {
            let all = programs(part, &["gcc", "gs", "perl"]);
            assert!(all.len() >= if part == RomerPart::Buffer { 4 } else { 13 }, "{part:?}");
            for program in &all {
                let sound =
                    program.spec.as_ref().is_none_or(|spec| spec.parse::<WorkloadSpec>().is_ok());
                assert!(sound && program.quick <= program.limit, "{program:?}");
            }
        }
        assert_eq!(programs(RomerPart::Superpages, &["gcc"]).last().unwrap().stands_for, "gcc");
        assert_eq!(programs(RomerPart::Conflicts, &["gs"]).last().unwrap().stands_for, "gs");
    }

    #[test]
    fn only_traces_stand_for_programs_by_their_name() {
        for (part, name) in [
            (RomerPart::Superpages, "gcc"),
            (RomerPart::Conflicts, "gs"),
            (RomerPart::Combined, "perl"),
        ] {
            assert_eq!(another(part, name, None).stands_for, name);
            assert_eq!(another(part, name, Some("gups")).stands_for, "");
        }
    }
}
