//! What a page says beside statements and tables: who counts in no statement, and what comes of a
//! statement that does not hold where one thing is changed.

use std::fmt::Write as _;

use super::RomerStudy;
use super::alpha::MOVE;
use super::fit;
use super::results::RomerResults;
use super::run::RomerOutcome;
use super::variants::{RomerChange, RomerPart, SOFTWARE};
use crate::engine::{Named as _, StatementExperiment, Study as _};
use crate::report::list;

/// The sections.
pub fn notes(outcomes: &[RomerOutcome]) -> String {
    left_out(RomerResults(outcomes)) + &of_the_thesis()
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
    // What tries settings has workloads of another part, and no baseline of its own.
    for part in RomerPart::all().filter(|part| !part.tries_settings()) {
        for (name, _) in results.programs(part) {
            if let Some(why) = fit::why_not(results, part, name) {
                let _ = writeln!(text, "- {name} ({}): {why}", part.name());
            }
        }
    }
    text.push_str(if text.len() == before { "None.\n\n" } else { "\n" });
    text
}

/// The experiments: those that change one thing, and the second half of every run alone.
pub fn experiments(outcomes: &[RomerOutcome]) -> Vec<StatementExperiment<RomerOutcome>> {
    let half = StatementExperiment {
        title: "the second half of every run".to_owned(),
        about: "What policies pay once, and what they let pass until they act, is left out."
            .to_owned(),
        outcomes: second_halves(outcomes),
        of_statements: "",
    };
    let changed = RomerChange::experiments().filter_map(|change| {
        let outcomes = RomerResults(outcomes).changed(change)?;
        let outcomes = match change {
            RomerChange::Twice => second_halves(&outcomes),
            RomerChange::OneSnapshot => charged(&outcomes),
            _ => outcomes,
        };
        let (title, about) = (change.name().to_owned(), change.reason().to_owned());
        let of_statements = change.of_statements();
        Some(StatementExperiment { title, about, outcomes, of_statements })
    });
    let others =
        [half, whole_cycles(outcomes), at_full_price(outcomes), without_excepted(outcomes)];
    others.into_iter().chain(changed).collect()
}

/// Runs under THROTTLE, each until it last began anew.
fn whole_cycles(outcomes: &[RomerOutcome]) -> StatementExperiment<RomerOutcome> {
    let cut = |outcome: &RomerOutcome| match outcome.variant.policy.starts_with("THROTTLE") {
        true => outcome.whole_cycles(),
        false => outcome.clone(),
    };
    StatementExperiment {
        title: "THROTTLE in whole cycles of work and rest".to_owned(),
        about: "THROTTLE works for a window and rests until its price is paid. A run that ends soon after it began \
                 anew has one window that nothing has paid for yet; the thesis says so of acrord32 (section 6.5.3). \
                 Here each run under THROTTLE counts until it last began anew."
            .to_owned(),
        outcomes: outcomes.iter().map(cut).collect(),
        of_statements: "",
    }
}

fn second_halves(outcomes: &[RomerOutcome]) -> Vec<RomerOutcome> {
    outcomes.iter().filter_map(RomerOutcome::second_half).collect()
}

/// The same runs, with what moves took on the Alpha charged to the policies of chapter 4.
fn charged(outcomes: &[RomerOutcome]) -> Vec<RomerOutcome> {
    let charge = |outcome: &RomerOutcome| {
        let mut outcome = outcome.clone();
        if SOFTWARE.contains(&outcome.variant.policy.as_str()) {
            outcome.costs.recolor_cycles = MOVE * outcome.costs.recolorings;
            outcome.rates = outcome.costs.rates();
        }
        outcome
    };
    outcomes.iter().map(charge).collect()
}

fn at_full_price(outcomes: &[RomerOutcome]) -> StatementExperiment<RomerOutcome> {
    StatementExperiment {
        title: "moves of software policies at the price of the Alpha".to_owned(),
        about: "A move is charged 5,000 cycles and what the caches make of the copy (table 5-1). On the thesis's \
                 Alpha it takes 29,000 (table 4-7, where the other prices of these policies are from). Those that \
                 move most lose most by it. The same runs, charged so."
            .to_owned(),
        outcomes: charged(outcomes),
        of_statements: "",
    }
}

/// The comparison of CML and Snapshot-Miss without the two programs that the thesis excepts from it.
fn without_excepted(outcomes: &[RomerOutcome]) -> StatementExperiment<RomerOutcome> {
    let excepted = ["nasa7-2", "nasa7-3"];
    let kept = outcomes.iter().filter(|outcome| !excepted.contains(&outcome.stands_for)).cloned();
    StatementExperiment {
        title: "CML and Snapshot-Miss, without nasa7-2 and nasa7-3".to_owned(),
        about: "The thesis excepts these two from what it says of CML: they miss for want of room (section \
                5.4.3). At random nasa7-2 counts as a program with conflicts, since two ways save some."
            .to_owned(),
        outcomes: kept.collect(),
        of_statements: "CML beats Snapshot-Miss",
    }
}
