//! Whether recolouring comes to an end (section 5.6.3, figure 5-5): how often each page is in a conflict that
//! makes CML move one of its pages, and how often it is moved. Page coloring, pages of 8 KB.

use std::collections::BTreeMap;

use super::fit;
use super::results::{RomerResults, is_wanted};
use super::run::RomerOutcome;
use super::variants::RomerPart;
use crate::report::TableCell;

/// Pages in conflicts, and how many of them were in one, two, three, four and more.
pub fn cells(outcome: Option<&RomerOutcome>) -> Vec<TableCell> {
    let Some(RomerOutcome { conflicts, .. }) = outcome else { return vec![None; 6] };
    let mut by_times = [0_usize; 5];
    for &times in conflicts.values() {
        by_times[(times as usize).clamp(1, 5) - 1] += 1;
    }
    [conflicts.len()].into_iter().chain(by_times).map(|pages| Some(pages as f64)).collect()
}

/// Of the pages in conflicts, or of those moved, percent that were so more than once; of the workloads that
/// count, `except` some or `only` some, and of which pages were so.
pub fn several_times<'a>(
    results: RomerResults<'a>,
    name: &str,
    programs: &[&str],
) -> Vec<(&'a str, f64)> {
    let wanted = |program: &&str| is_wanted(program, programs);
    let figure = |program: &'a str| {
        let of = results.colored(RomerPart::Conflicts, program, "CML")?;
        let times = if name == "moved-several-times" { &of.moved } else { &of.conflicts };
        Some((program, percent_several(times)?))
    };
    let counted = fit::counted(results, RomerPart::Conflicts).into_iter();
    counted.filter(wanted).filter_map(figure).collect()
}

fn percent_several(times: &BTreeMap<u64, u32>) -> Option<f64> {
    let several = times.values().filter(|times| **times > 1).count();
    (!times.is_empty()).then(|| 100.0 * several as f64 / times.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::super::measures;
    use super::*;

    fn outcome(program: &str, times: &[u32]) -> RomerOutcome {
        let own = measures::tests::outcome(RomerPart::Conflicts, "CML", 0, 0, 9);
        let conflicts: BTreeMap<u64, u32> = (0..).zip(times.iter().copied()).collect();
        let moved = conflicts.iter().map(|(page, times)| (*page, times + 1)).collect();
        RomerOutcome { program: program.into(), conflicts, moved, ..own }
    }

    #[test]
    fn pages_are_counted_by_their_conflicts() {
        let some = outcome("p", &[1, 1, 2, 4, 5, 9]);
        let cells: Vec<f64> = cells(Some(&some)).into_iter().flatten().collect();
        assert_eq!(cells, [6.0, 2.0, 1.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn shares_are_of_the_programs_that_are_asked_for() {
        let all = [outcome("p", &[1, 1, 1, 2]), outcome("q", &[2, 2]), outcome("r", &[])];
        let results = RomerResults(&all);
        let of = |name, programs: &[&str]| several_times(results, name, programs);
        assert_eq!(of("in-several-conflicts", &["except", "q"]), [("p", 25.0)]);
        assert_eq!(of("in-several-conflicts", &["only", "q"]), [("q", 100.0)]);
        assert_eq!(of("moved-several-times", &[]), [("p", 100.0), ("q", 100.0)]);
    }
}
