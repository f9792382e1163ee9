//! The page `docs/reproductions/romer.md`: what was run, which statements hold, and the tables.
//! All of it but the words around comes from the results.

use std::fmt::Write as _;

use huepage_sim::experiments::romer::{Claim, Part, Table, programs};

use super::romer::Found;
use super::text::{heading, rows};

/// The page.
pub fn page(found: &Found) -> String {
    let mut text = String::from(INTRODUCTION);
    let command = if found.quick { "--quick " } else { "" };
    let traces: String =
        found.traces.iter().map(|name| format!("--trace {name}={name}.trace ")).collect();
    let _ = writeln!(
        text,
        "\nWritten by `huepage experiment romer {command}{traces}--markdown \
         docs/reproductions/romer.md`: {} runs in {:.0} s.\n",
        found.outcomes.len(),
        found.seconds
    );
    text.push_str("## Statements\n\n| | statement | measured |\n|---|---|---|\n");
    found.claims.iter().for_each(|claim| text.push_str(&line(claim)));
    text.push_str(REASONS);
    text.push_str(
        "## Workloads\n\n| | stands for | workload | accesses at most |\n|---|---|---|---|\n",
    );
    text.push_str(&workloads(found));
    text.push_str(DIFFERENCES);
    found.tables.iter().for_each(|table| text.push_str(&rendered(table)));
    text
}

const INTRODUCTION: &str = "\
# Romer's thesis, chapters 3 to 6, run again

T. H. Romer, *Using Virtual Memory to Improve Cache and TLB Performance*, University of Washington,
1998. Rows named `thesis` are its figures for the program that the workload above stands for; a kernel
is not that program, so orders of magnitude and ranks are what can be compared.
";

const REASONS: &str = "\n\
Also asked for, and held by tests: the charges of figure 3-2, the `tlbcount` method against a scan of the
TLB, charges put off against charges at once, and the bound of 2 + o/b of section 3.3.3
(`cargo test -p huepage-policy --test superpage --test superpage_policies`).

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

fn line(claim: &Claim) -> String {
    let word = if claim.holds { "holds" } else { "**does not hold**" };
    format!("| {word} | {} | {} |\n", claim.text, claim.measured)
}

fn workloads(found: &Found) -> String {
    let traces: Vec<&str> = found.traces.iter().map(String::as_str).collect();
    let mut text = String::new();
    let parts = [
        (Part::Superpages, "chapter 3"),
        (Part::Conflicts, "chapters 4 and 5"),
        (Part::Combined, "chapter 6"),
    ];
    for (part, chapter) in parts {
        for program in programs(part, &traces) {
            let spec = program.spec.map_or("a trace".to_owned(), |spec| format!("`{spec}`"));
            let limit = if found.quick { program.quick } else { program.limit };
            let stands_for = if program.stands_for.is_empty() { "-" } else { program.stands_for };
            let _ = writeln!(
                text,
                "| {}, {chapter} | {stands_for} | {spec} | {} million |",
                program.name,
                limit / 1_000_000
            );
        }
    }
    text
}

fn rendered(table: &Table) -> String {
    let mut text = format!("## {}\n\n| | {} |\n", heading(table), table.head.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(table.head.len()));
    for row in rows(table) {
        let _ =
            writeln!(text, "| {} |", row.iter().map(|c| c.trim()).collect::<Vec<_>>().join(" | "));
    }
    text + "\n"
}
