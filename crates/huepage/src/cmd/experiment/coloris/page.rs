//! The words around the results of `huepage experiment coloris` on its page,
//! `docs/reproductions/coloris.md`.

use std::fmt::Write as _;

use huepage_sim::experiments::coloris::PROGRAMS;

use crate::cmd::experiment::markdown::Page;

/// The page of a run that was told nothing, with the workloads that are run.
pub fn page(quick: bool) -> Page {
    Page {
        name: "coloris",
        file: "coloris",
        told: Vec::new(),
        introduction: INTRODUCTION,
        reasons: REASONS,
        workloads: workloads(quick),
        differences: DIFFERENCES,
    }
}

const INTRODUCTION: &str = "\
# COLORIS, section 4, run again

Y. Ye, R. West, Z. Cheng, Y. Li, *COLORIS: A Dynamic Cache Partitioning System Using Page Coloring*,
PACT 2014. Rows named `paper` are its figures. Its programs are those of SPEC CPU2006; what stands for
them here is not them, so orders and ranks are what can be compared. Figures 7, 8, 10 and 11 have no
numbers in the paper.
";

const REASONS: &str = "\n\
Also asked for, and held by tests: if a partition exists that keeps every program within its bound, it
is found (against all partitions, `cargo test -p huepage-policy --test all coloris_sizes`).

### Why some do not hold

- *Redistribution gains more*: omnetpp's stand-in uses all its pages alike. Selective Moving leaves every
  colour at least as many pages as it has ways, so that all of the new space is used at once and nothing is
  left to be evened out; where both end with the same colours, instructions are the same to a hundredth of a
  percent. Three widths of WIN are in table 3. Copies through the simulated caches, ten times as dear, and
  the second half instead of the last third as what is counted made it worse: it had not settled by then.
- *over-committed, Redistribution*: thresholds know miss rates and nothing of what they cost. A program whose
  data just fits into eight colours misses nothing, so it gives four more; what it misses then lies between the
  thresholds, so it never asks for them back (gamess, in table 3 too). In an inclusive cache few
  colours also evict what a private L2 holds (gromacs, povray). omnetpp has half of a core's time and has not
  done redistributing when the run ends. Fixed partitions (C8) have none of this.
- *over-committed, gobmk*: it finds its section empty at each of its turns of 2 million cycles, and filling it takes
  as long as the turn. Turns four times as long, scaled less than all else, were tried after that was seen:
  they mend gobmk with Redistribution and not with Utility; they are not kept.
- *over-committed, Utility*: programs of a core evict each other's lines between turns, which no curve foretells.
  So it measures again, at 100 cycles for each request, also in the third that is counted.

";

const DIFFERENCES: &str = "\n\
- Time is scaled: PERIOD is 8 million cycles (5 s are 10^10), a millisecond of WIN 200,000 (2 million), a run
  240 million, of which the last third is counted. In the paper's hour a dozen of 720 periods pass before
  partitions settle, here up to 20 of 30. A page costs 2000 cycles to copy, and 3000 for its faults.
- Up to two million accesses at the start of each program, while it fills its memory, are run before the clock is.
- Memory answers at once to everybody: there is no contention for its bandwidth, which the paper's programs
  had in all columns, with partitions and without.
- The monitor looks at programs one after the other, evenly within a period, in the order in which they were
  started. A program with fewer requests of the last cache than one in 2000 cycles counts as not using it.
- No program shrinks below UNIT, as none does in table 5.

";

fn workloads(quick: bool) -> String {
    let mut text = String::from("| | workload | why |\n|---|---|---|\n");
    for (name, spec, why) in PROGRAMS {
        let _ = writeln!(text, "| {name} | `{spec}` | {why} |");
    }
    if quick {
        text.push_str("\nRuns are an eighth as long.\n");
    }
    text
}
