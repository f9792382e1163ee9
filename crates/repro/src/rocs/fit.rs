//! How near workloads are to the programs of ROCS (2008) before any policy: the figures of its table 2
//! beside theirs under plain Linux. A workload counts in averages if all of them are met; the others are
//! run, shown and named.

use super::paper;
use super::run::RocsOutcome;

/// A figure is met within this factor.
pub const FACTOR: f64 = 1.3;

/// The larger of a number and its inverse, of the figure of table 2 that is furthest off; none for a
/// workload that stands for no program or was not measured.
pub fn furthest(outcome: &RocsOutcome) -> Option<f64> {
    let linux = &outcome.linux;
    let paper = paper().table("2").of(outcome.stands_for).filter(|_| linux.instructions > 0)?;
    let own = [linux.ipc(), linux.mpki(), linux.miss_percent()];
    own.iter().zip(paper).map(|(own, paper)| (own / paper).max(paper / own)).reduce(f64::max)
}

/// Whether all figures are met.
pub fn is_fit(outcome: &RocsOutcome) -> bool {
    furthest(outcome).is_some_and(|factor| factor <= FACTOR)
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    #[test]
    fn a_workload_counts_if_every_figure_is_met() {
        let mut own = outcome("art", "art", 20.0);
        assert!(is_fit(&own) && furthest(&own).is_some_and(|factor| factor < 1.01));
        own.linux.misses = own.linux.misses * 14 / 10;
        assert!(!is_fit(&own));
        assert_eq!(furthest(&outcome("x", "", 20.0)), None);
    }
}
