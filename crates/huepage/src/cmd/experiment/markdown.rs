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
    /// The options that made the run another than the whole one, as words of a command.
    pub told: Vec<String>,
    /// Title and what the page is about.
    pub introduction: &'static str,
    /// Below the statements: why some do not hold where the whole is run.
    pub reasons: &'static str,
    /// The workloads, as Markdown.
    pub workloads: String,
    /// What differs from the paper's experiment.
    pub differences: &'static str,
}

/// The page.
pub fn page<O>(found: &Found<O>, page: &Page) -> String {
    let mut text = String::from(page.introduction);
    let (runs, command) = (found.outcomes.len(), command(found, page));
    let _ = writeln!(text, "\nWritten by `{command}`: {runs} runs in {:.0} s.\n", found.seconds);
    text.push_str("## Statements\n\n| | statement | measured |\n|---|---|---|\n");
    found.claims.iter().for_each(|claim| text.push_str(&line(claim)));
    // Why something does not hold was found out on the whole run.
    text.push_str(if page.told.is_empty() { page.reasons } else { "\n" });
    text.push_str("## Workloads\n\n");
    text.push_str(&page.workloads);
    text.push_str(page.differences);
    found.tables.iter().for_each(|table| text.push_str(&rendered(table)));
    text
}

/// The command that does the same again.
fn command<O>(found: &Found<O>, page: &Page) -> String {
    let told = page.told.iter().map(|words| format!("{words} "));
    let traces = found
        .traces
        .iter()
        .map(|name| format!("--trace {} ", word(&format!("{name}={name}.trace"))));
    let options: String = told.chain(traces).collect();
    let Page { name, file, .. } = page;
    format!("huepage experiment {name} {options}--markdown docs/reproductions/{file}.md")
}

/// A word as a shell takes it: names may have blanks.
pub fn word(text: &str) -> String {
    if text.contains(char::is_whitespace) { format!("'{text}'") } else { text.to_owned() }
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
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_page_says_what_its_run_was_told_and_gives_no_reasons_of_another() {
        let (traces, outcomes) = (names(&["real"]), vec![(); 3]);
        let (tables, claims, figures) = (Vec::new(), Vec::new(), Vec::new());
        let found = Found { quick: true, seconds: 2.0, traces, tables, claims, figures, outcomes };
        let whole = scolari::page::page(true);
        let text = page(&found, &whole);
        let command = "huepage experiment scolari --trace real=real.trace --markdown docs";
        assert!(text.contains(command) && text.contains(whole.reasons), "{text}");
        let told = vec!["--quick".to_owned(), format!("--only {}", word("a b"))];
        let text = page(&found, &Page { told, ..whole });
        let command = "`huepage experiment scolari --quick --only 'a b' --trace real=real.trace ";
        assert!(text.contains(command) && !text.contains("### Why"), "{text}");
        assert!(text.contains("|---|---|---|\n\n## Workloads\n"), "{text}");
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
                rocs::page::page(&names(&["cg"]), false),
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
