//! What a page says beside statements and tables: who counts in no statement, and what comes of a
//! statement that does not hold where one thing is changed.

use std::fmt::Write as _;

use super::RomerStudy;
use super::fit;
use super::results::RomerResults;
use super::run::RomerOutcome;
use super::variants::RomerPart;
use crate::engine::{Named as _, Study as _, claims};
use crate::report::list;

/// The sections.
pub fn notes(outcomes: &[RomerOutcome]) -> String {
    left_out(RomerResults(outcomes)) + &second_halves(outcomes) + &of_the_thesis()
}

/// Statements that go beyond the thesis, on its own figures.
fn of_the_thesis() -> String {
    let rows = |id| RomerStudy::paper().table(id).paper.iter();
    let slower = rows("5-3").filter_map(|(program, row)| {
        let &[dm, _, cml] = row.figures() else { return None };
        let percent = 100.0 * ((1.0 + cml) / (1.0 + dm) - 1.0);
        (percent > 0.0).then(|| (program.clone(), percent))
    });
    let ahead = rows("3-5").filter_map(|(program, row)| {
        let approx = *row.figures().last()?;
        (approx < 0.0).then(|| (program.clone(), -approx))
    });
    let (slower, ahead) = (slower.collect::<Vec<_>>(), ahead.collect::<Vec<_>>());
    format!(
        "## What the thesis's own figures say\n\n\
         - CML slows, by percent of 1 + MCPI (table 5-3): {}\n\
         - APPROX-ONLINE takes more time than pages of 4 KB, percent (table 3-5): {}\n\n",
        list(&slower, 1),
        list(&ahead, 1)
    )
}

fn left_out(results: RomerResults<'_>) -> String {
    let mut text = String::from("## Workloads that do not count\n\n");
    let before = text.len();
    // The buffer's part has some of the conflicts' workloads, and no baseline of its own.
    for part in RomerPart::all().filter(|part| *part != RomerPart::Buffer) {
        for (name, _) in results.programs(part) {
            if let Some(why) = fit::why_not(results, part, name) {
                let _ = writeln!(text, "- {name} ({}): {why}", part.name());
            }
        }
    }
    text.push_str(if text.len() == before { "None.\n\n" } else { "\n" });
    text
}

/// Statements that do not hold, on the second half of every run alone: what policies pay once, and what
/// they let pass until they act, is left out.
fn second_halves(outcomes: &[RomerOutcome]) -> String {
    let halves: Vec<RomerOutcome> = outcomes.iter().filter_map(RomerOutcome::second_half).collect();
    let (whole, half) = (claims::<RomerStudy>(outcomes, &[]), claims::<RomerStudy>(&halves, &[]));
    let mut text = String::from(
        "## Experiment: what does not hold, on the second half of every run\n\n\
         | | statement | measured |\n|---|---|---|\n",
    );
    for claim in whole.iter().filter(|claim| !claim.holds) {
        let Some(half) = half.iter().find(|half| half.text == claim.text) else { continue };
        let word = if half.holds { "holds" } else { "**does not hold**" };
        let _ = writeln!(text, "| {word} | {} | {} |", half.text, half.measured);
    }
    text + "\n"
}
