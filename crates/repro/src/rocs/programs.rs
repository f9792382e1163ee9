//! The workloads, and the program of the paper that each stands for. Each was fitted to the paper's
//! table 2 (instructions per cycle, misses, miss rate) under plain Linux and frozen before any policy ran
//! on it; [`fit`](super::fit) says how near it is. A trial has to see what a program does as a whole, as
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
    /// Cycles of a miss that the processor does not hide behind other work.
    pub latency: u64,
    /// Lines per set of the L2.
    pub ways: u16,
    /// Samples are of loads that begin after the period, not of those during which it ends, and the model does
    /// not look at confined pages again.
    pub later: bool,
    /// It is what goes along arrays in a program, and nothing else of it.
    pub along: bool,
    /// Whether it is run where there is little time.
    pub quick: bool,
}

impl RocsProgram {
    /// Steps of a search: as many as take 3 billion cycles, the average of the paper's searches (section 5.2), at
    /// the instructions per cycle of table 2; 12 to 64, and 12 of a program that the table lacks. Each is a
    /// trial and the quarter of one in which caches fill again.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 64")]
    pub fn steps(&self) -> usize {
        const SEARCH: f64 = 3e9;
        let table = super::paper().table("2");
        let ipc = table.of(self.stands_for).and_then(|figures| figures.first());
        let step = ipc.map(|ipc| 1.25 * self.trial as f64 / ipc);
        step.map_or(12, |step| (SEARCH / step).clamp(12.0, 64.0) as usize)
    }
}

const M: u64 = 1_000_000;
const K: u64 = 1_000;

/// Latency of memory (table 1), all of which a processor waits for that goes after pointers or one stream.
pub const MEMORY: u64 = 300;
/// What CG waits for a miss: (1 / 0.16 - 1) cycles for the instructions of table 2 less those for L2 hits, over
/// its 42.1 misses. Its reads do not depend on each other, so that two or three are under way at once.
const OVERLAPPED: u64 = 116;
/// The same of swim: of 1 / 0.10 - 1 cycles, the 45 % that are not for TLB misses (section 6.4), over 22.7.
const STREAMED: u64 = 175;

/// Name, program of the paper, workload, instructions of a trial and of the start, samples, latency, quick.
type Row = (&'static str, &'static str, &'static str, u64, u64, u64, u64, bool);

/// Table 2. Those that are counted in the paper's average come first.
const ROWS: &[Row] = &[
    // The pages of table 3. Two windows of 2.8 million instructions.
    ("art", "art", "art:rounds=10000", 5_546_144, 15 * M, 12 * K, MEMORY, true),
    // A step: 125 instructions at each of 905,130 points.
    ("swim-sums", "swim", "swim-sums:rounds=10000", 113_141_250, 130 * M, 280 * K, STREAMED, false),
    // Eight planes of 128 x 128 points, a V-cycle.
    (
        "mgrid",
        "mgrid",
        "mgrid:size=3600000,rounds=10000",
        29_880_320,
        32 * M,
        24 * K,
        MEMORY,
        false,
    ),
    // 33 layers of 56 x 56 points, a step.
    ("layers", "apsi", "layers:rounds=10000", 24_216_192, 30 * M, 26 * K, MEMORY, false),
    // The pages of table 3.
    ("twolf", "twolf", "twolf:rounds=10000", 10 * M, 40 * M, 24 * K, MEMORY, true),
    ("vpr", "vpr", "vpr:rounds=10000", 10 * M, 30 * M, 16 * K, MEMORY, true),
    // The 75,000 rows of class B, with ten elements each instead of 183: a vector of 600 KB. Two
    // products: the vectors that are read and written change places with each.
    ("spmv-near", "CG", "spmv-near:rounds=10000", 10_950 * K, 14 * M, 40 * K, OVERLAPPED, true),
    // Short phases: the passes of a sort are unlike each other. A whole sort of fresh keys, give or take
    // some hundred comparisons.
    ("mergesort", "ammp", "mergesort:rounds=10000", 9_383_230, 15 * M, 16 * K, MEMORY, false),
    // Twice around the cycle.
    ("chase", "mcf", "chase:rounds=100000", 262_144, 300 * K, 16 * K, MEMORY, true),
];

/// Lines per set of the machine's L2 (table 1).
pub const WAYS: u16 = 8;

/// The programs that the paper's average leaves out (section 6).
pub const LEFT_OUT: [&str; 2] = ["ammp", "mcf"];

/// Instructions of a trial of a trace. Nobody knows how long its passes are; those of the recorded
/// solver have ten million, and shorter trials compare parts of a pass with others.
const TRACED: u64 = 12 * M;

/// The workloads, traces of the given names last. A trace stands for the program of its name,
/// whatever the case.
pub fn programs(traces: &[&str], quick: bool) -> Vec<RocsProgram> {
    let built =
        ROWS.iter().map(|&(name, stands_for, spec, trial, start, samples, latency, quick)| {
            RocsProgram {
                name: name.into(),
                stands_for,
                spec: Some(spec),
                trial,
                start,
                samples,
                latency,
                ways: WAYS,
                later: false,
                along: false,
                quick,
            }
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
        latency: MEMORY,
        ways: WAYS,
        later: false,
        along: false,
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

    #[test]
    fn searches_are_as_long_as_the_paper_s() {
        let steps = |name: &str| {
            let all = programs(&["CG", "else"], false);
            all.into_iter().find(|program| program.name == name).unwrap().steps()
        };
        // 1.25 x 5,546,144 / 0.10 cycles for each.
        assert_eq!(steps("art"), 43);
        assert_eq!((steps("swim-sums"), steps("chase"), steps("else")), (12, 64, 12));
        // 1.25 x 12,000,000 / 0.16.
        assert_eq!((TRACED, steps("CG")), (12_000_000, 32));
    }
}
