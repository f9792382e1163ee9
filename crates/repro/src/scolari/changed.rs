//! The cases that experiments run again, and their outcomes in the place of those without the change.

use super::cases::{Scheme, ScolariCase, ScolariPart, cases};
use super::changes::ScolariChange;
use super::outcome::ScolariOutcome;
use crate::engine::{Named as _, StatementExperiment};

/// Colours that bits 15 and 16 tell apart.
const EVEN: u16 = 4;

impl ScolariChange {
    /// Whether a case is run again.
    fn concerns(self, case: &ScolariCase) -> bool {
        let (part, scheme) = (case.part, case.scheme);
        let of_l2 =
            part == ScolariPart::Profiles || (part, scheme) == (ScolariPart::Alone, Scheme::Aware);
        let is = |name: &str| case.programs.iter().any(|own| own == name);
        match self {
            ScolariChange::Nothing => false,
            ScolariChange::EvenShares => {
                (part, scheme) == (ScolariPart::Alone, Scheme::Unaware)
                    && is("leslie3d")
                    && is_even(case.share)
            }
            ScolariChange::Tree => of_l2 && is("astar"),
            ScolariChange::Favourites => of_l2 && (is("omnetpp") || is("xalancbmk")),
            ScolariChange::InStep | ScolariChange::HardwareThreads => {
                part == ScolariPart::Threads && case.programs.len() > 1
            }
        }
    }

    /// The cases that are run again.
    pub fn cases(self, quick: bool) -> Vec<ScolariCase> {
        let all = ScolariPart::all().flat_map(|part| cases(part, &[], quick));
        let again = all.filter(|case| self.concerns(case));
        again.map(|case| ScolariCase { change: self, ..case }).collect()
    }

    /// Whether an outcome without the change counts with it.
    fn keeps(self, outcome: &ScolariOutcome) -> bool {
        let alone = (outcome.part, outcome.scheme) == (ScolariPart::Alone, Scheme::Unaware);
        let uneven = alone && outcome.share > EVEN && !is_even(outcome.share);
        !(self == ScolariChange::EvenShares && uneven)
    }
}

/// Whether each value of bits 15 and 16 is as frequent as the others in so many colours.
const fn is_even(share: u16) -> bool {
    share.is_multiple_of(EVEN)
}

/// What makes two outcomes of the same case.
fn kind(own: &ScolariOutcome) -> (ScolariPart, &str, Scheme, u16, usize) {
    (own.part, &own.workload, own.scheme, own.share, own.programs.len())
}

/// Takes the outcomes of experiments out of all.
pub fn experiments(all: &mut Vec<ScolariOutcome>) -> Vec<StatementExperiment<ScolariOutcome>> {
    let is_changed = |own: &ScolariOutcome| own.change != ScolariChange::Nothing;
    let (changed, without): (Vec<_>, Vec<_>) = all.drain(..).partition(is_changed);
    *all = without;
    let of = |change: ScolariChange| {
        let again: Vec<_> = changed.iter().filter(|own| own.change == change).cloned().collect();
        let others = all.iter().filter(|own| change.keeps(own));
        let others = others.filter(|own| again.iter().all(|other| kind(other) != kind(own)));
        let outcomes = others.cloned().chain(again.iter().cloned()).collect();
        let (title, about) = (change.name().to_owned(), change.reason().to_owned());
        StatementExperiment { title, about, outcomes, of_statements: "" }
    };
    ScolariChange::experiments().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::outcome::ScolariResults;
    use super::super::programs::program;
    use super::*;
    use huepage_sim::workloads::WorkloadSpec;

    #[test]
    fn what_is_changed_is_run_and_said() {
        for change in ScolariChange::experiments() {
            let again = change.cases(false);
            assert!(!again.is_empty() && again.iter().all(|case| case.change == change));
            assert!(change.reason().len() > 100, "{change:?}");
            for name in again.iter().flat_map(|case| &case.programs) {
                let spec = program(name, change.stand_in(name), 1).spec.expect("a workload");
                assert!(spec.parse::<WorkloadSpec>().is_ok(), "{name}: {spec}");
            }
        }
        assert_eq!(ScolariChange::InStep.cases(false).len(), 4 * 3);
        assert_eq!(ScolariChange::EvenShares.cases(false).len(), 4);
    }

    #[test]
    fn outcomes_of_an_experiment_are_in_the_place_of_the_same_cases_there_alone() {
        let of = |case: ScolariCase| ScolariOutcome::of(&case);
        let alone = cases(ScolariPart::Alone, &[], false);
        let alone = alone.into_iter().filter(|case| case.workload == "leslie3d");
        let mut all: Vec<_> = alone.map(of).collect();
        all.extend(ScolariChange::EvenShares.cases(false).into_iter().map(of));
        let found = experiments(&mut all);
        assert!(all.len() == 18 && all.iter().all(|own| own.change == ScolariChange::Nothing));
        let even = &found[0].outcomes;
        let curve = ScolariResults(even).curve(ScolariPart::Alone, "leslie3d", Scheme::Unaware);
        let shares: Vec<_> = curve.iter().map(|own| (own.share, own.change)).collect();
        let (old, new) = (ScolariChange::Nothing, ScolariChange::EvenShares);
        assert_eq!(
            shares,
            [(1, old), (2, old), (3, old), (4, new), (8, new), (12, new), (16, new)]
        );
        assert_eq!(found[1].outcomes.len(), 18, "of other programs");
    }
}
