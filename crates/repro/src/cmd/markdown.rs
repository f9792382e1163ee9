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
    let _ = write!(text, "## Statements\n\n{}.\n\n{}", found.counts.text(), lines(&found.claims));
    // Why something does not hold was found out on the whole run.
    text.push_str(if page.told.is_empty() { &words.reasons } else { "\n" });
    text.push_str("## Workloads\n\n");
    text.push_str(&page.workloads);
    text.push_str(&words.differences);
    text.push_str(&page.notes);
    for own in &found.experiments {
        let ExperimentResult { title, about, claims } = own;
        let _ = writeln!(text, "## Experiment: {title}\n\n{about}\n\n{}", lines(claims));
    }
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
    let head = "| | statement | measured |\n|---|---|---|\n".to_owned();
    head + &claims.iter().map(line).collect::<String>()
}

fn line(claim: &StatementResult) -> String {
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
        let [title, about] = ["another price", "It was guessed."].map(str::to_owned);
        let measured = StatementResult { text: "it".into(), measured: "1".into(), holds: true };
        let experiment = ExperimentResult { title, about, claims: vec![measured] };
        let found = StudyResults {
            quick: true,
            seconds: 2.0,
            traces,
            tables,
            claims,
            counts: StatementCounts::default(),
            experiments: vec![experiment],
            figures,
            outcomes,
        };
        let whole = whole::<ScolariStudy>(&[]);
        let text = page(&found, &whole);
        let command = "huepage-repro scolari --trace real=real.trace --markdown docs";
        assert!(text.contains(command) && text.contains(&whole.paper.words.reasons), "{text}");
        let section = "\n## Experiment: another price\n\nIt was guessed.\n\n| | statement |";
        assert!(text.contains(section) && text.contains("| holds | it | 1 |\n\n"), "{text}");
        let told = vec!["--quick".to_owned(), format!("--only {}", word("a b"))];
        let text = page(&found, &StudyPage { told, ..whole });
        let command = "`huepage-repro scolari --quick --only 'a b' --trace real=real.trace ";
        assert!(text.contains(command) && !text.contains("### Why"), "{text}");
        assert!(text.contains("|---|---|---|\n\n## Workloads\n"), "{text}");
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
