//! The words around the results of `huepage experiment rocs` on its page,
//! `docs/reproductions/rocs.md`.

use std::fmt::Write as _;

use huepage_sim::experiments::rocs::programs;

use crate::cmd::experiment::markdown::Page;

/// The page of a run that was told nothing, with the workloads that are run.
pub fn page(traces: &[String], quick: bool) -> Page {
    Page {
        name: "rocs",
        file: "rocs",
        told: Vec::new(),
        introduction: INTRODUCTION,
        reasons: REASONS,
        workloads: workloads(traces, quick),
        differences: DIFFERENCES,
    }
}

const INTRODUCTION: &str = "\
# ROCS, the pollute buffer, run again

*Reducing the Harmful Effects of Last-Level Cache Polluters with an OS-Level, Software-Only Pollute
Buffer*, MICRO 2008. Rows named `paper` are its figures for the program that the workload above stands
for; a kernel is not that program, so orders of magnitude and ranks are what can be compared. What the
policy does is in [policies](../policies/rocs.md).
";

const REASONS: &str = "\n\
### Why some do not hold

What was found on the way, and changed in the machine or the policy, never in a workload:

- Released pages took the colours outside the buffer in turn at first. That evens out what chance has given to
  some colours: of a loop a little larger than the cache no colour has few enough pages for hits any more, and
  art ended slower than before its search. They go home now.
- The prefetcher's table was direct-mapped by frame, so that all pages of one colour, the buffer's too, shared
  two of its places. It keeps the frames used last now.
- The model kept as many pages as fit exactly, ordered by miss rate. A loop that fills its sets loses all hits to
  one line more, and where nearly everything misses, rates tell pages apart by chance. It leaves a line of each
  set, and orders pages by use. Its reviews, with the prefetcher on, took prefetched lines for reuse; the
  prefetcher is off for them now.

What remains, where a statement does not hold:

- *average, best*: the best of all prefixes, which the search reaches within 2.3 %, gains 8.5 % on average and 20.9 %
  at best: it is the stand-ins that have no more to give, on this machine. mgrid and tomcatv miss 1.1 and 1.5 times
  in a thousand instructions (the paper's 3.0 and 6.5), too seldom to be profiled at all.
- *swim*: no prefix gains anything, since walks take as long in all (table 6-4: 344 cycles each; 136 if all found their
  line in the L2, 424 if none did, and 443 in the paper). It goes down columns of its fields, so that each page brings in a
  line of data and one of the table. How many walks find their line depends on which frames come first: 94 % did where
  those that had never been used came first, and nothing was gained then either.
- *the best of all prefixes*: mergesort's is one of 704 pages, two steps from the 640 that the search ended with.
- *the layer's miss rate* is that of requests to the L2, nearly all of which miss under LRU here (98.8 %, the paper's
  42 %); misses fall by 23 %.
- *the model* confines nothing on twolf, spmv and mergesort, where every page is used about as often: it sees
  loops larger than the cache of which it cannot say which part to keep, where trials show that any part will do. On art
  it gains more than any prefix (40.5 %), as it is not bound to the order of the stack. On the recorded solver
  (`scripts/trace-rocs.sh`, `--trace cg=cg.trace --only cg`) ROCS gains 7.2 % and the best prefix 3.9 %; the model confines
  as many pages, but others, and loses 3.1 %; why was not followed up.

";

const DIFFERENCES: &str = "\n\
Programs of other names than the paper's are the nearest there are: tomcatv for apsi (arrays of a mesh side
by side, swept and solved along columns), mergesort for ammp (short phases), chase for mcf. Kernels are in
`crates/sim/src/workloads`, where each says why its accesses are alike.

- The processor does an instruction per cycle and waits for all of a miss; the paper's hides part of it. That
  makes gains larger.
- Gains are measured in a window after the search, against Linux over the same accesses; with profile and
  search, which take most of a run here, is `whole_ipc` in the JSON. What these take is set against a run as
  long as the paper's (table 2: seconds at 2.3 GHz), and against ours.
- Trials are passes of a program's main loop and counted in instructions; the paper's are counted in cycles and
  longer than any pass. So that dozens of passes take minutes, swim, mgrid and CG are smaller here.
- A search has twelve steps; the paper does not say how many its has.
- Workloads and sizes were frozen before any was run, lengths were not. The windows of all were shortened once, after
  the first results of art, vpr and spmv, to meet the time that the whole may take: online from three trials to two,
  offline from two to one. Trials of traces were lengthened once, from 5 to 12 million instructions, to a pass of the
  recorded solver, which has ten: shorter ones compare parts of a pass with others.
- swim: the paper's walks, one for about every two misses (55 % of the stalls at 443 cycles each), do not come
  of sweeps along rows, of which each touches a page once. The stand-in filters its fields across rows, on more
  pages than the TLB holds; how the paper's swim comes to its walks it does not say.
- An interrupt takes 1,500 cycles and touches 16 lines and one of its table (figure 6: 15 % at one in 10,000
  cycles); a move takes 2,000 cycles besides the copy, which goes through the caches.
- The prefetcher fetches one line ahead into the L2, for eight streams; a load that comes before the line waits
  for the rest. Lines that go to the L1 before they are asked for (the paper's invisible lines) are not modelled.

";

fn workloads(traces: &[String], quick: bool) -> String {
    let traces: Vec<&str> = traces.iter().map(String::as_str).collect();
    let mut text = String::from(
        "| | stands for | workload | instructions of a trial | samples |\n|---|---|---|---:|---:|\n",
    );
    for program in programs(&traces, quick) {
        let spec = program.spec.map_or("a trace".to_owned(), |spec| format!("`{spec}`"));
        let stands_for = if program.stands_for.is_empty() { "-" } else { program.stands_for };
        let millions = program.trial as f64 / 1e6;
        let _ = writeln!(
            text,
            "| {} | {stands_for} | {spec} | {millions:.1} million | {} |",
            program.name, program.samples
        );
    }
    text
}
