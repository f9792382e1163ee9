//! The words around the results of `huepage experiment romer` on its page,
//! `docs/reproductions/romer.md`.

use std::fmt::Write as _;

use huepage_sim::experiments::romer::{Part, Program};

use crate::cmd::experiment::markdown::Page;

/// The page of a run that was told nothing, with the workloads that are run.
pub fn page(wanted: impl Fn(Part) -> Vec<Program>, quick: bool) -> Page {
    Page {
        name: "romer",
        file: "romer",
        told: Vec::new(),
        introduction: INTRODUCTION,
        reasons: REASONS,
        workloads: workloads(wanted, quick),
        differences: DIFFERENCES,
    }
}

const INTRODUCTION: &str = "\
# Romer's thesis, chapters 3 to 6, run again

T. H. Romer, *Using Virtual Memory to Improve Cache and TLB Performance*, University of Washington,
1998. Rows named `paper` are its figures for the program that the workload above stands for; a kernel
is not that program, so orders of magnitude and ranks are what can be compared.
";

const REASONS: &str = "\n\
Also asked for, and held by tests: the charges of figure 3-2, the `tlbcount` method against a scan of the
TLB, charges put off against charges at once, and the bound of 2 + o/b of section 3.3.3
(`cargo test -p huepage-policy --test all superpage`).

### Why some do not hold

- *APPROX-ONLINE removes 97 %*: a superpage is built after 50 misses per base page and size that
  proves itself, whatever the program. A run that misses less often than that, per page it uses, ends
  before the largest sizes are built; the thesis's programs missed for up to 120 million times.
- *APPROX-ONLINE takes 4 % more memory*: nothing but its threshold bounds memory; see
  [superpages](../policies/superpages.md). Programs with few pages in use grow by a large share when
  one superpage reaches beyond what they touch.
- *ahead of every other policy*: ASAP and pages of one size pay nothing for what they do not book. On an
  address space without holes they are cheaper, as in the thesis for nasa7-5 and atom (table 3-5:
  FIXED 64 KB).
- *Snapshot-Miss*, *CML* and what fits in no cache: capacity misses look like conflicts to both, as
  the thesis says of nasa7-2 and nasa7-3; Snapshot-Fit and CML-Fit are what section 5.7 asks for.
- *THROTTLE's bound* is one in the limit: a run shorter than some windows of 10 million instructions
  ends before the rest that pays for the window has (the thesis says so of acrord32).
- *Runs are beginnings*, and superpages are paid for at the beginning. Ghostscript for 200 million accesses
  instead of 40 million (`LIMIT=200000000 scripts/trace-romer.sh traces`, then
  `huepage experiment romer --accesses 200000000 --table 3-4 --trace gs=traces/gs.trace --only gs`): THROTTLE takes 0.045
  more TLBMCPI than FIXED 4 KB instead of 0.215 and APPROX-ONLINE 0.089 instead of 0.410; no other promotion policy is
  ahead of it any more, and it takes 12.3 % more memory instead of 21.6 %.
  The kernels fft, gups, mergesort and tomcatv for 180 million accesses, each with rounds enough for them (for fft
  `huepage experiment romer --accesses 180000000 --table 3-4 --workload fft-long=fft:rounds=1000 --only fft-long`): fft
  loses 97.9 % of its misses, memory grows by 0.2 % at most, and THROTTLE takes 0.093 more than FIXED 4 KB on gups
  instead of 0.243, 0.030 on mergesort instead of 0.035, 0.025 on tomcatv instead of 0.048, nothing on fft. ASAP-4-64 is
  still ahead on mergesort, by 0.036 instead of 0.255.

";

const DIFFERENCES: &str = "\n\
Limits are counted in accesses; most kernels end before. A trace has the first program of its file only,
from its start, fetches of instructions included; the thesis's traces have the operating system's
references too, kernels have no fetches.

- Pages have 4 KB in all chapters; 8 KB in the thesis's chapters 4 and 5. Thresholds follow the lines of a page.
- Chapter 3 has no caches, so that table 3-5 takes one cycle for an instruction where the thesis measured.
- OFFLINE plans on at most half a million changes of page, taken evenly from the stream, at the same share of
  the price of a copy; it is charged the whole superpage.
- Figure 5-6 (base pages of other sizes) is left out: the simulator's base pages have 4 KB.

";

fn workloads(wanted: impl Fn(Part) -> Vec<Program>, quick: bool) -> String {
    let mut text =
        String::from("| | stands for | workload | accesses at most |\n|---|---|---|---|\n");
    let parts = [
        (Part::Superpages, "chapter 3"),
        (Part::Conflicts, "chapters 4 and 5"),
        (Part::Combined, "chapter 6"),
    ];
    for (part, chapter) in parts {
        for program in wanted(part) {
            let spec = program.spec.map_or("a trace".to_owned(), |spec| format!("`{spec}`"));
            let limit = if quick { program.quick } else { program.limit };
            let stands_for = if program.stands_for.is_empty() { "-" } else { program.stands_for };
            let _ = writeln!(
                text,
                "| {}, {chapter} | {stands_for} | {spec} | {} million |",
                program.name,
                limit as f64 / 1e6
            );
        }
    }
    text
}
