//! What was found as a page of HTML: which statements hold, the drawings, and the tables with the paper's figures
//! below ours.

use huepage::exit::CmdError;
pub use huepage::html::page;
use huepage::html::{escaped, table};

use super::found::StudyResults;
use super::markdown::StudyPage;
use super::text::{heading, rows};
use crate::drawing;
use crate::report::ExperimentResult;

/// What a page says of one paper.
pub fn section<O>(found: &StudyResults<'_, O>, page: &StudyPage<'_>) -> Result<String, CmdError> {
    let mut text = format!(
        "<h2 id=\"{0}\">{0}</h2>\n<p>{1}</p>\n<p>{2} {3} runs in {4:.0} s.</p>\n",
        page.paper.name,
        escaped(&page.paper.about),
        found.counts.text(),
        found.outcomes.len(),
        found.seconds,
    );
    let claims: Vec<Vec<String>> = found.claims.iter().map(claim).collect();
    let head = ["statement", "measured", "holds"].map(str::to_owned);
    text += &table(&head, &claims);
    for experiment in &found.experiments {
        let ExperimentResult { title, reason, claims } = experiment;
        let claims: Vec<Vec<String>> = claims.iter().map(claim).collect();
        let (title, reason) = (escaped(title), escaped(reason));
        text += &format!("<h3>Experiment: {title}</h3>\n<p>{reason}</p>\n");
        text += &table(&head, &claims);
    }
    for figure in &found.figures {
        text += &drawing::draw(figure).map_err(CmdError::internal)?;
        text.push('\n');
    }
    for own in &found.tables {
        let head: Vec<String> = std::iter::once(String::new()).chain(own.head.clone()).collect();
        text += &format!("<h3>{}</h3>\n{}", escaped(&heading(own)), table(&head, &rows(own)));
    }
    Ok(text)
}

fn claim(claim: &crate::report::StatementResult) -> Vec<String> {
    let word = if claim.holds { "yes" } else { "no" };
    vec![claim.text.clone(), claim.measured.clone(), word.to_owned()]
}
