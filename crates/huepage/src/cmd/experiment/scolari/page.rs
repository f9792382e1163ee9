//! The words around the results of `huepage experiment scolari` on its page,
//! `docs/reproductions/scolari.md`.

use std::fmt::Write as _;

use huepage_sim::experiments::scolari::programs::{PROGRAMS, TABLE_3, TABLE_4};

use crate::cmd::experiment::markdown::Page;

/// The page of a run that was told nothing, with the workloads that are run.
pub fn page(quick: bool) -> Page {
    Page {
        name: "scolari",
        file: "scolari",
        told: Vec::new(),
        introduction: INTRODUCTION,
        reasons: REASONS,
        workloads: workloads(quick),
        differences: DIFFERENCES,
    }
}

const INTRODUCTION: &str = "\
# Scolari 2016, section 5, run again

A. Scolari, D. B. Bartolini, M. D. Santambrogio, *A Software Cache Partitioning System for Hash-Based
Caches*, ACM TACO 13(4), 2016. The machine is its Xeon E5-1410 with the published hash of four slices; its
programs are those of SPEC CPU2006. What stands for them here is not them, and the paper prints no numbers
for its curves, so shapes and statements are what can be compared. A colour is 0.625 MB.
";

const REASONS: &str = "\n\
### Why some do not hold

- *table II*: the paper's bzip2 does not fit into the memory of fewer than three colours, so its plot begins at
  1.88 MB, and there it is sensitive. The stand-in's 1.8 MB fit into 1.88 MB: it is 435.5 % slower in 1.25 MB and not
  slower in 1.88 MB. It stays as it was frozen.
- *from 2.5 MB on, hash-unaware*: six colours give two values of bits 15 and 16 to two colours each and the other two to
  one, so that a third of the pages share a quarter of the cache: 2.7 MB of sphinx's 8 MB, which it goes through in
  turns, in 2.5 MB. With a multiple of four colours sphinx is as fast as with all. leslie3d, larger than the cache,
  is faster with part of the colours than with all, since some of its lines then have room to stay.
- *W1 and X1, hash-unaware*: bzip2's stand-in goes over its 1.8 MB so often that nobody beside it pushes them out of a
  10 MB cache that evicts what was used longest ago. Seen with both sets of polluters, with five shares (with the least,
  a quarter of the cache is all that it reaches), with runs of an eighth of the length, and with frames handed
  out in another order: at most 1.7 %. The paper too says that W1 has a small footprint; but its bzip2 is sensitive in
  1.88 MB and so needs more than the stand-in. Whether a larger one would be disturbed was not tried: it stays as
  it was frozen.

";

const DIFFERENCES: &str = "\n\
- Frames come from the mcolor buddy allocator under both schemes; colours are derived from the index functions of the
  last level and of the L2 (`hash_aware` and `hash_unaware` in `crates/color`). Within its partition a program gets the
  colours of the L2 in turns as well. Where only the sixteen colours took turns, sixteen pages that follow each
  other lay in one colour of the L2, and astar and gcc were 27 % and 16 % slower in sixteen colours than in two.
- Up to two million accesses at the start of each program, while it fills its memory, are run before the clock is.
  Runs are 150 million cycles then, of which the last 90 million are counted; the paper runs whole programs. Polluters
  never end, so that none has to begin again.
- Nobody reads files: the bursts of I/O in W3 and W4 (section 5.3) are not there, and W and X differ by a
  polluter only.
- Memory answers at once to everybody: what targets lose beside others, they lose to the cache. Hash-aware, disjoint
  partitions, private L2s and an uncontended memory give 0.0 by construction: what can fail there is the algebra of
  the colours and the allocator.
- Memory is not scarce: programs of a few megabytes fit into one colour of 6 GB, so that all curves begin at one colour.
- W and X have shares of 1, 2, 4, 6 and 10 colours, and so not the paper's 1.88 MB.
- Section 5.4 (PARSEC, figure 12) is not run: there are no multithreaded stand-ins.

";

fn workloads(quick: bool) -> String {
    let mut text = String::from("| | workload | table II | why |\n|---|---|---|---|\n");
    for own in PROGRAMS {
        let class = if own.sensitive { "sensitive" } else { "insensitive" };
        let _ = writeln!(text, "| {} | `{}` | {class} | {} |", own.name, own.spec, own.why);
    }
    text.push_str("\n| | target | polluters |\n|---|---|---|\n");
    for (name, [target, polluters @ ..]) in TABLE_3.iter().chain(&TABLE_4) {
        let _ = writeln!(text, "| {name} | {target} | {} |", polluters.join(", "));
    }
    if quick {
        text.push_str("\nRuns are an eighth as long, with fewer shares.\n");
    }
    text
}
