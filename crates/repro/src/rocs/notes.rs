//! Sections of the page that are computed from a run: who is left out of averages, and how long a profile would
//! have to be to cost what the paper's does.

use std::fmt::Write as _;

use super::fit::{FACTOR, furthest};
use super::measures::overhead_of_paper;
use super::run::RocsOutcome;
use super::variants::RocsVariant;

/// Percent of the run that ROCS takes on average in the paper (section 6.1).
const OVERHEAD: f64 = 1.6;

/// Who is left out of averages, and why the cost of a profile is not the paper's, as sections of a page.
pub fn notes(outcomes: &[RocsOutcome]) -> String {
    let mut text = String::from("## Workloads that do not count\n\n");
    let known = outcomes.iter().filter_map(|own| Some((own, furthest(own)?)));
    let unfit: Vec<_> = known.filter(|(_, factor)| *factor > FACTOR).collect();
    for (own, factor) in &unfit {
        let program = own.stands_for;
        let _ = writeln!(text, "- {}: unfit for {program}, {factor:.1} times off", own.program);
    }
    text.push_str(if unfit.is_empty() { "None.\n\n" } else { "\n" });
    text + &longer_profiles(outcomes)
}

/// How many times as long profile and search would have to be to take what they do in the paper.
fn longer_profiles(outcomes: &[RocsOutcome]) -> String {
    let mut text = format!(
        "## Profiles that would cost what the paper's do\n\nTimes as long as here, to take {OVERHEAD} % of the \
         paper's run:\n\n"
    );
    for own in outcomes {
        let samples = own.of(RocsVariant::Rocs).map_or(0, |rocs| rocs.monitoring);
        if let Some(percent) = overhead_of_paper(own).filter(|percent| *percent > 0.0) {
            let (times, millions) = (OVERHEAD / percent, samples as f64 / 1e6);
            let _ = writeln!(
                text,
                "- {}: {times:.0} (monitoring took {millions:.1} million cycles)",
                own.program
            );
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    #[test]
    fn who_does_not_count_is_named() {
        let mut own = outcome("art", "art", 20.0);
        own.linux.misses = own.linux.misses * 14 / 10;
        let text = notes(&[own]);
        assert!(text.contains("- art: unfit for art, 1.4 times off"), "{text}");
        assert!(text.contains("Times as long as here"), "{text}");
        assert!(notes(&[outcome("art", "art", 20.0)]).contains("None."));
    }
}
