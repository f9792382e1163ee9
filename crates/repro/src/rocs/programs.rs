//! The workloads, and the program of the paper that each stands for. Workloads and sizes were
//! frozen before any result was seen; windows were shortened once after the first results of art,
//! vpr and spmv, to meet the time that the whole may take. A trial has to see what a program does as a whole, as
//! the paper's of hundreds of millions of cycles do: it is a pass of the main loop, or several. So
//! that dozens of trials take minutes, programs whose passes are long are smaller here than there; the
//! page of results says how much.

use serde::Serialize;

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RocsProgram {
    /// Its name in tables.
    pub name: String,
    /// The paper's program that it stands for; empty if none.
    pub stands_for: &'static str,
    /// A workload as [`huepage_sim::workloads::WorkloadSpec`] reads it; none: a trace of that name.
    pub spec: Option<&'static str>,
    /// Instructions of a trial.
    pub trial: u64,
    /// Instructions left out at the start.
    pub start: u64,
    /// Samples of a profile.
    pub samples: u64,
    /// Whether it is run where there is little time.
    pub quick: bool,
}

const M: u64 = 1_000_000;
const K: u64 = 1_000;

/// Name, program of the paper, workload, instructions of a trial and of the start, samples, quick.
type Row = (&'static str, &'static str, &'static str, u64, u64, u64, bool);

/// Table 2. Those that are counted in the paper's average come first.
const ROWS: &[Row] = &[
    // 660 pages of table 3's 865 are in the three arrays. Two windows of 2.5 million instructions.
    ("art", "art", "art:rounds=10000", 5 * M, 15 * M, 12 * K, true),
    // A step: 108 instructions at each of 131,072 points.
    ("swim-across", "swim", "swim-across:rounds=10000", 14_155_776, 17 * M, 150 * K, false),
    // 48 x 48 x 48 points, a V-cycle: streams far larger than the L2 as at 131 x 131 x 131.
    ("mgrid", "mgrid", "mgrid:size=2920000,rounds=10000", 29 * M, 30 * M, 24 * K, false),
    // The nearest to apsi's mesoscale mesh: arrays of a mesh side by side, swept and solved along
    // columns. A sweep.
    ("tomcatv", "apsi", "tomcatv:rounds=10000", 8_600 * K, 10 * M, 16 * K, false),
    // The pages of table 3.
    ("twolf", "twolf", "twolf:rounds=10000", 5 * M, 20 * M, 24 * K, true),
    ("vpr", "vpr", "vpr:rounds=10000", 5 * M, 20 * M, 16 * K, true),
    // The 75,000 rows of class B, with ten elements each instead of 176: a vector of 600 KB.
    ("spmv", "CG", "spmv:size=10500000,rounds=10000", 5_475 * K, 12 * M, 40 * K, true),
    // Short phases: merging passes over two halves whose parts change.
    ("mergesort", "ammp", "mergesort:rounds=10000", 5 * M, 15 * M, 16 * K, false),
    // Twice around the cycle.
    ("chase", "mcf", "chase:rounds=100000", 262_144, 300 * K, 16 * K, true),
];

/// The programs that the paper's average leaves out (section 6).
pub const LEFT_OUT: [&str; 2] = ["ammp", "mcf"];

/// Instructions of a trial of a trace. Nobody knows how long its passes are; those of the recorded
/// solver have ten million, and shorter trials compare parts of a pass with others.
const TRACED: u64 = 12 * M;

/// The workloads, traces of the given names last. A trace stands for the program of its name,
/// whatever the case.
pub fn programs(traces: &[&str], quick: bool) -> Vec<RocsProgram> {
    let built =
        ROWS.iter().map(|&(name, stands_for, spec, trial, start, samples, quick)| RocsProgram {
            name: name.into(),
            stands_for,
            spec: Some(spec),
            trial,
            start,
            samples,
            quick,
        });
    let traced = traces.iter().map(|&name| RocsProgram {
        name: name.into(),
        stands_for: ROWS
            .iter()
            .map(|row| row.1)
            .find(|p| p.eq_ignore_ascii_case(name))
            .unwrap_or(""),
        spec: None,
        trial: TRACED,
        start: 2 * TRACED,
        samples: 16 * K,
        quick: true,
    });
    built.chain(traced).filter(|program| program.quick || !quick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocs::paper;
    use huepage_sim::workloads::WorkloadSpec;

    #[test]
    fn every_program_of_the_paper_has_a_workload_that_can_be_started() {
        let all = programs(&["cg"], false);
        for name in paper().table("2").paper.keys() {
            assert!(all.iter().any(|program| program.stands_for == *name), "{name}");
        }
        for program in &all {
            assert!(
                program.spec.is_none_or(|spec| spec.parse::<WorkloadSpec>().is_ok()),
                "{program:?}"
            );
            assert!(program.start >= program.trial && program.samples > 0, "{program:?}");
        }
        assert_eq!(all.last().map(|program| program.stands_for), Some("CG"));
        let quick = programs(&[], true);
        assert!(!quick.is_empty() && quick.len() < all.len());
    }
}
