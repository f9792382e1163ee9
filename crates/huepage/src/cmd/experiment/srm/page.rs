//! The words around the results of `huepage experiment srm` on its page,
//! `docs/reproductions/srm-buffer.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use huepage_sim::experiments::srm::programs::Work;
use huepage_sim::experiments::srm::{Part, cases};

use crate::cmd::experiment::markdown::Page;

/// The page of a run that was told nothing, with the workloads that are run.
pub fn page(traces: &[String], quick: bool) -> Page {
    Page {
        name: "srm",
        file: "srm-buffer",
        told: Vec::new(),
        introduction: INTRODUCTION,
        reasons: REASONS,
        workloads: workloads(traces, quick),
        differences: DIFFERENCES,
    }
}

const INTRODUCTION: &str = "\
# SRM-buffer, run again

X. Ding, K. Wang, X. Zhang, *SRM-Buffer: An OS Buffer Management Technique to Prevent Last Level
Cache from Thrashing in Multicores*, EuroSys 2011. Rows named `paper` are the figures of its text for
the programs that the workloads above stand for; what only its drawings show is left out.

A slowdown compares a program with itself alone on the same kernel; time saved and misses removed
compare SRM-buffer with Linux beside the same programs. *Colours in turn* is the part of SRM-buffer
that gives process memory all colours in turns, without the part that places files.
";

const REASONS: &str = "\n\
### Why some do not hold

- *34 % fewer misses*, where LU has not: it fills half of the L2, so that on Linux plain age keeps most of
  it from a slow scan, and with colours in turn all of it. SRM-buffer fills one colour to its last
  way, which costs what lies there. Tried: thresholds from 16 to 512 (figure 16: 512 costs least), colours in turn
  alone, and one colour for all files (figure 2). Only the second removes it; larger programs were not tried, since
  sizes were frozen before.
- *Hash joins*: an executor of a few dozen instructions a record reads one line in several hundred cycles, and the
  hash table of the smaller dimensions leaves the cache half empty. Nothing but the cache slows programs beside
  each other here; the paper's machines also share a memory bus.
- *Who has loaded what*: files of some nine blocks lie in colours that follow the other's order, so that reading
  them is as random as on Linux, but nine ways of a colour at a time: a gain for programs that Linux's scan pushes
  out, a loss for those that it does not.
- *Figure 16* goes on rising because a miss takes all of its latency here, so that each change of colour counts.
- *File-bound programs*: both kernels are given the same time and not the same work, so that they end at other
  files; what differs is mostly that.
- *PostgreSQL*: it touches a new line once in hundreds of accesses, a tenth of what a scan here does; its trace ends
  before it has gone through the cache once or twice.

";

const DIFFERENCES: &str = "\n\
Each kernel runs on a core of its own; those that count come first, and end after the accesses named
here, of which those before the second number are not counted. File-bound programs begin again until
then. Files were read or written once before, by a process of its own that runs the same program, one
access to each block; PostMark makes its own.

- Linux takes any frame for everything, by chance: memory after long use. One seed is run.
- An instruction takes a cycle and a miss all of its latency: nothing overlaps, nothing is prefetched, and
  the memory's bandwidth has no end. Programs beside each other disturb each other through the cache
  alone.
- MM is a sparse product of 3 MiB; FFT and LU have 2 MiB each. The paper does not say how large they are.
- The fact table has 300 MiB, the archive of the kernel's sources 128 MiB, the greps of figure 13 have a tree
  each.
- Hit ratios (figure 15) are counted after the pool is made, for blocks that existed before; a kernel and
  its programs take no memory. TPC-H (figure 9) and more cores (section 4.7) are left out.

";

fn workloads(traces: &[String], quick: bool) -> String {
    let traces: Vec<&str> = traces.iter().map(String::as_str).collect();
    let mut text = String::from("| | workload | accesses, after |\n|---|---|---|\n");
    let mut seen = BTreeSet::new();
    for case in Part::ALL.into_iter().flat_map(|part| cases(part, quick, &traces)) {
        let millions = |n: u64| n as f64 / 1e6;
        let length = format!("{:.1} million, {:.1}", millions(case.limit), millions(case.warm_up));
        let counts = case.programs.iter().map(|program| (program, length.as_str()));
        let beside = case.others.iter().map(|program| (program, "as long as those that count"));
        for (program, length) in counts.chain(beside) {
            let spec = match &program.work {
                Work::Spec(spec) => format!("`{spec}`"),
                Work::Trace(_) => "a trace".to_owned(),
            };
            if seen.insert((program.name.clone(), spec.clone())) {
                let _ = writeln!(text, "| {} | {spec} | {length} |", program.name);
            }
        }
    }
    text
}
