//! A page of `docs/reproductions`: what was run, which statements hold, and the tables. All of it
//! but the words around comes from the results.

use std::fmt::Write as _;

use huepage_sim::experiments::report::{Claim, Table};

use super::found::Found;
use super::text::{heading, rows};

/// What an experiment says around its results.
pub struct Page {
    /// The experiment's name on the command line, which is the page's too.
    pub name: &'static str,
    /// The page's file in `docs/reproductions`, without ending.
    pub file: &'static str,
    /// Title and what the page is about.
    pub introduction: &'static str,
    /// Below the statements: why some do not hold.
    pub reasons: &'static str,
    /// The workloads, as Markdown.
    pub workloads: String,
    /// What differs from the paper's experiment.
    pub differences: &'static str,
}

/// The page.
pub fn page<O>(found: &Found<O>, page: &Page) -> String {
    let mut text = String::from(page.introduction);
    let quick = if found.quick { "--quick " } else { "" };
    let traces: String =
        found.traces.iter().map(|name| format!("--trace {name}={name}.trace ")).collect();
    let _ = writeln!(
        text,
        "\nWritten by `huepage experiment {} {quick}{traces}--markdown \
         docs/reproductions/{}.md`: {} runs in {:.0} s.\n",
        page.name,
        page.file,
        found.outcomes.len(),
        found.seconds
    );
    text.push_str("## Statements\n\n| | statement | measured |\n|---|---|---|\n");
    found.claims.iter().for_each(|claim| text.push_str(&line(claim)));
    text.push_str(page.reasons);
    text.push_str("## Workloads\n\n");
    text.push_str(&page.workloads);
    text.push_str(page.differences);
    found.tables.iter().for_each(|table| text.push_str(&rendered(table)));
    text
}

fn line(claim: &Claim) -> String {
    let word = if claim.holds { "holds" } else { "**does not hold**" };
    format!("| {word} | {} | {} |\n", claim.text, claim.measured)
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

#[cfg(test)]
mod tests {
    use huepage_sim::experiments::romer::programs;

    use super::super::{coloris, rocs, romer, scolari, srm};

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    /// A page is made by a long run, and its words are then changed in the code.
    #[test]
    fn committed_pages_have_the_words_of_the_code() {
        let committed = [
            (
                romer::page::page(|part| programs(part, &["gcc", "gs", "perl"]), false),
                include_str!("../../../../../docs/reproductions/romer.md"),
            ),
            (
                rocs::page::page(&[], false),
                include_str!("../../../../../docs/reproductions/rocs.md"),
            ),
            (
                srm::page::page(&names(&["join", "scan"]), false),
                include_str!("../../../../../docs/reproductions/srm-buffer.md"),
            ),
            (
                coloris::page::page(false),
                include_str!("../../../../../docs/reproductions/coloris.md"),
            ),
            (
                scolari::page::page(false),
                include_str!("../../../../../docs/reproductions/scolari.md"),
            ),
        ];
        for (page, text) in committed {
            for words in [page.introduction, page.reasons, &page.workloads, page.differences] {
                assert!(text.contains(words), "{}.md lacks: {words}", page.file);
            }
        }
    }
}
