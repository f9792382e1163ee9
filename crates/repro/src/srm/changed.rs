//! The cases that experiments run again: which, and how they become others.

use super::cases::{BOTH, FileLoad, SrmCase, SrmPart, cases};
use super::changes::SrmChange;
use super::place::PaperMachine;
use super::programs::{SCAN, SrmProgram};
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
            SrmChange::Searched | SrmChange::FileWaits => (&[SrmPart::Rescans], &BOTH),
            SrmChange::SlowBus => {
                (&[SrmPart::Joins, SrmPart::Rescans, SrmPart::Thresholds], &LEVELLING)
            }
            SrmChange::FreeLookups => (&[SrmPart::Pairs], &[SrmVariant::SRM]),
            SrmChange::LongRuns => (&[SrmPart::Orders], &BOTH),
            SrmChange::AloneOnLinux => (&[], &[]),
            SrmChange::ScanStores => (&[SrmPart::Queries], &BOTH),
            SrmChange::PaperFiles | SrmChange::PaperFilesSlowBus => (&[SrmPart::Cores], &BOTH),
        };
        let all = parts.iter().flat_map(|&part| cases(part, quick, traces));
        let wanted = all.filter(|case| variants.contains(&case.variant));
        let wanted = wanted.filter(|case| self.is_about(case));
        wanted.map(|case| self.of(case)).collect()
    }

    /// Whether a case of these parts belongs to a statement that the change is about; the others take minutes.
    fn is_about(self, case: &SrmCase) -> bool {
        let many = is_sort(case, PaperMachine::Xeon7560, 512);
        match self {
            SrmChange::LongRuns => case.programs[0].name == "fft",
            SrmChange::ScanStores => case.beside.starts_with(SCAN),
            SrmChange::PaperFiles => many || is_sort(case, PaperMachine::CoreI7, 768),
            SrmChange::PaperFilesSlowBus => many,
            _ => true,
        }
    }

    fn of(self, mut case: SrmCase) -> SrmCase {
        if self == SrmChange::Searched {
            case.programs.iter_mut().for_each(search);
        }
        if self == SrmChange::LongRuns {
            (case.warm_up, case.limit) = (8 * case.warm_up, 8 * case.limit);
        }
        if self.has_paper_files() {
            let programs = case.programs.iter_mut().filter_map(|program| program.spec.as_mut());
            let loads = case.loads.iter_mut().filter_map(|load| match load {
                FileLoad::Run { spec, .. } => Some(spec),
                FileLoad::GrepBoth { .. } => None,
            });
            programs.chain(loads).for_each(|spec| *spec = four_times(spec));
        }
        SrmCase { change: self, ..case }
    }
}

/// Whether files are sorted there in blocks of so many KiB.
fn is_sort(case: &SrmCase, place: PaperMachine, kib: u64) -> bool {
    case.place == place && case.programs[0].name.starts_with(&format!("sort {kib}K"))
}

/// The same workload with four times the rounds: of a file that is sorted, its blocks.
fn four_times(spec: &str) -> String {
    let more = |part: &str| match part.strip_prefix("rounds=").map(str::parse::<u64>) {
        Some(Ok(rounds)) => format!("rounds={}", 4 * rounds),
        _ => part.to_owned(),
    };
    spec.split(',').map(more).collect::<Vec<_>>().join(",")
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
            assert!(!again.is_empty() || change == SrmChange::AloneOnLinux);
            assert!(again.iter().all(|case| case.change == change));
            assert!(change.reason().len() > 100);
        }
        let searched = SrmChange::Searched.cases(false, &[]);
        let specs = searched.iter().filter_map(|case| case.programs[0].spec.as_deref());
        assert!(
            specs.clone().count() == 4 && specs.into_iter().all(|s| s.starts_with("grep-file:"))
        );
        let sorted = SrmChange::PaperFiles.cases(false, &[]);
        assert_eq!((sorted.len(), SrmChange::PaperFilesSlowBus.cases(false, &[]).len()), (4, 2));
        let all = &sorted[1];
        assert_eq!(all.programs[3].spec.as_deref(), Some("sort-file:size=768K,rounds=88,seed=3"));
        let load = FileLoad::Run { spec: "sort-file:size=768K,rounds=88,seed=3".into(), volume: 4 };
        assert_eq!(all.loads[3], load);
    }
}
