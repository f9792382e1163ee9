//! A page of `docs/reproductions`: what was run, which statements hold, and the tables. All of it
//! but the words around comes from the results.

use std::fmt::Write as _;

use super::found::StudyResults;
use super::text::{heading, rows};
use crate::asked::word;
use crate::engine::Paper;
use crate::report::{ExperimentResult, StatementResult, Table};

/// What an experiment says around its results.
pub struct StudyPage<'a> {
    /// The paper, with the words.
    pub paper: &'a Paper,
    /// The options that made the run another than the whole one, as words of a command.
    pub told: Vec<String>,
    /// The workloads, as Markdown.
    pub workloads: String,
    /// What the runs say beside statements and tables, a section as Markdown.
    pub notes: String,
}

/// The page.
pub fn page<O>(found: &StudyResults<'_, O>, page: &StudyPage<'_>) -> String {
    let (words, mut text) = (&page.paper.words, page.paper.words.introduction.clone());
    let (runs, command) = (found.outcomes.len(), command(found, page));
    let _ = writeln!(text, "\nWritten by `{command}`: {runs} runs in {:.0} s.\n", found.seconds);
    let _ = writeln!(text, "## Statements\n\n{}\n", found.counts.text());
    text.push_str(&lines(&found.claims));
    // Why something does not hold was found out on the whole run.
    text.push_str(if page.told.is_empty() { &words.reasons } else { "\n" });
    text.push_str("## Workloads\n\n");
    text.push_str(&page.workloads);
    text.push_str(&words.differences);
    text.push_str(&page.notes);
    found.experiments.iter().for_each(|experiment| text.push_str(&experimented(experiment)));
    found.tables.iter().for_each(|table| text.push_str(&rendered(table)));
    text
}

/// The command that does the same again.
fn command<O>(found: &StudyResults<'_, O>, page: &StudyPage<'_>) -> String {
    let told = page.told.iter().map(|words| format!("{words} "));
    let traces = found
        .traces
        .iter()
        .map(|name| format!("--trace {} ", word(&format!("{name}={name}.trace"))));
    let options: String = told.chain(traces).collect();
    let Paper { name, page, .. } = page.paper;
    format!("huepage-repro {name} {options}--markdown docs/reproductions/{page}.md")
}

fn lines(claims: &[StatementResult]) -> String {
    let mut text = String::from("| | statement | measured |\n|---|---|---|\n");
    for claim in claims {
        let word = if claim.holds { "holds" } else { "**does not hold**" };
        let _ = writeln!(text, "| {word} | {} | {} |", claim.text, claim.measured);
    }
    text
}

fn experimented(experiment: &ExperimentResult) -> String {
    let ExperimentResult { title, reason, claims } = experiment;
    format!("## Experiment: {title}\n\n{reason}\n\n{}\n", lines(claims))
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
    use super::*;
    use crate::asked::Asked;
    use crate::engine::Study;
    use crate::report::StatementCounts;
    use crate::{
        coloris::ColorisStudy, rocs::RocsStudy, romer::RomerStudy, scolari::ScolariStudy,
        srm::SrmStudy,
    };

    fn whole<S: Study>(traces: &[&str]) -> StudyPage<'static> {
        let words = traces.iter().flat_map(|name| ["--trace".to_owned(), format!("{name}=x")]);
        let workloads = S::workloads(&Asked::of(words));
        StudyPage { paper: S::paper(), told: Vec::new(), workloads, notes: String::new() }
    }

    #[test]
    fn a_page_says_what_its_run_was_told_and_gives_no_reasons_of_another() {
        let (traces, outcomes) = (vec!["real"], vec![(); 3]);
        let (tables, claims, figures) = (Vec::new(), Vec::new(), Vec::new());
        let experiments = vec![ExperimentResult {
            title: "slower".to_owned(),
            reason: "It may.".to_owned(),
            claims: Vec::new(),
        }];
        let counts = StatementCounts::of(&claims, &experiments);
        let found = StudyResults {
            quick: true,
            seconds: 2.0,
            traces,
            tables,
            claims,
            counts,
            experiments,
            figures,
            outcomes,
        };
        let whole = whole::<ScolariStudy>(&[]);
        let text = page(&found, &whole);
        let command = "huepage-repro scolari --trace real=real.trace --markdown docs";
        assert!(text.contains(command) && text.contains(&whole.paper.words.reasons), "{text}");
        let told = vec!["--quick".to_owned(), format!("--only {}", word("a b"))];
        let text = page(&found, &StudyPage { told, ..whole });
        let command = "`huepage-repro scolari --quick --only 'a b' --trace real=real.trace ";
        assert!(text.contains(command) && !text.contains("### Why"), "{text}");
        assert!(text.contains("|---|---|---|\n\n## Workloads\n"), "{text}");
        assert!(text.contains("\n## Experiment: slower\n\nIt may.\n\n| | statement"), "{text}");
    }

    /// A page is made by a long run; its workloads may have changed since.
    #[test]
    fn committed_pages_have_words_around_and_the_workloads_of_the_code() {
        let pages = [
            whole::<RomerStudy>(&[]),
            whole::<RocsStudy>(&[]),
            whole::<SrmStudy>(&["join", "scan"]),
            whole::<ColorisStudy>(&[]),
            whole::<ScolariStudy>(&[]),
        ];
        for StudyPage { paper, workloads, .. } in pages {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproductions");
            let text =
                std::fs::read_to_string(format!("{root}/{}.md", paper.page)).expect("a page");
            assert!(text.contains(&workloads), "{}.md lacks: {workloads}", paper.page);
            let words = &paper.words;
            assert!(words.introduction.starts_with("# "));
            assert!(
                words.differences.starts_with("\n") && words.differences.len() > 200,
                "{words:?}"
            );
            assert!(!words.differences.contains('|') && !words.reasons.contains("| holds"));
        }
    }
}
