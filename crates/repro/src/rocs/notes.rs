//! What the page says that is computed from a run: who is left out of averages.

use std::fmt::Write as _;

use super::fit::{FACTOR, furthest};
use super::run::RocsOutcome;

/// Who is left out of averages, and why, as a section of a page.
pub fn notes(outcomes: &[RocsOutcome]) -> String {
    let mut text = String::from("## Workloads that do not count\n\n");
    let known = outcomes.iter().filter_map(|own| Some((own, furthest(own)?)));
    let unfit: Vec<_> = known.filter(|(_, factor)| *factor > FACTOR).collect();
    for (own, factor) in &unfit {
        let program = own.stands_for;
        let _ = writeln!(text, "- {}: unfit for {program}, {factor:.1} times off", own.program);
    }
    text + if unfit.is_empty() { "None.\n\n" } else { "\n" }
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
        assert!(notes(&[outcome("art", "art", 20.0)]).contains("None."));
    }
}
