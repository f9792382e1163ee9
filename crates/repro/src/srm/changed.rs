//! The cases that experiments run again: which, and how they become others.

use super::cases::{SrmCase, SrmPart, cases};
use super::changes::SrmChange;
use super::programs::SrmProgram;
use super::variants::SrmVariant;

/// What shows whether thresholds above 128 still gain.
const LEVELLING: [SrmVariant; 4] =
    [SrmVariant::Linux, SrmVariant::SRM, SrmVariant::Srm(128), SrmVariant::Srm(512)];

impl SrmChange {
    /// The cases that are run again.
    pub fn cases(self, quick: bool, traces: &[&str]) -> Vec<SrmCase> {
        let (parts, variants): (&[SrmPart], &[SrmVariant]) = match self {
            SrmChange::Nothing => (&[], &[]),
            SrmChange::FilesAlone => (&[SrmPart::Joins, SrmPart::Pairs], &[SrmVariant::SRM]),
            SrmChange::Searched | SrmChange::FileWaits => {
                (&[SrmPart::Rescans], &[SrmVariant::Linux, SrmVariant::SRM])
            }
            SrmChange::SlowBus => {
                (&[SrmPart::Joins, SrmPart::Rescans, SrmPart::Thresholds], &LEVELLING)
            }
            SrmChange::FreeLookups => (&[SrmPart::Pairs], &[SrmVariant::SRM]),
            SrmChange::LongRuns => (&[SrmPart::Orders], &[SrmVariant::Linux, SrmVariant::SRM]),
        };
        let all = parts.iter().flat_map(|&part| cases(part, quick, traces));
        let wanted = all.filter(|case| variants.contains(&case.variant));
        wanted.map(|case| self.of(case)).collect()
    }

    fn of(self, mut case: SrmCase) -> SrmCase {
        if self == SrmChange::Searched {
            case.programs.iter_mut().for_each(search);
        }
        if self == SrmChange::LongRuns {
            (case.warm_up, case.limit) = (8 * case.warm_up, 8 * case.limit);
        }
        SrmCase { change: self, ..case }
    }
}

/// The same file, in which a word is searched for.
fn search(program: &mut SrmProgram) {
    let spec = program.spec.iter_mut();
    spec.for_each(|spec| *spec = spec.replace("rescan:", "grep-file:"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_is_run_and_said() {
        for change in SrmChange::experiments() {
            let again = change.cases(false, &["join", "scan"]);
            assert!(!again.is_empty() && again.iter().all(|case| case.change == change));
            assert!(change.reason().len() > 100);
        }
        let searched = SrmChange::Searched.cases(false, &[]);
        let specs = searched.iter().filter_map(|case| case.programs[0].spec.as_deref());
        assert!(
            specs.clone().count() == 4 && specs.into_iter().all(|s| s.starts_with("grep-file:"))
        );
    }
}
