//! What statements hang on that do not hold: the same outcomes with one thing changed.

use super::run::RocsOutcome;
use super::tables::{CLOCK, cycles_of_paper};
use super::variants::{HANDLER, PERIOD, RocsVariant};
use super::window::Window;
use crate::engine::Experiment;

/// The experiments on some outcomes.
pub fn experiments(outcomes: &[RocsOutcome]) -> Vec<Experiment<RocsOutcome>> {
    longer_profiles(outcomes).into_iter().collect()
}

/// Percent of the paper's run that profiles and moves take in the worst case (section 6.1).
const WORST: f64 = 3.8;

/// What profiles cost that have one number of samples in all programs, as many as the worst case leaves room
/// for. The paper does not say how many a profile has.
fn longer_profiles(outcomes: &[RocsOutcome]) -> Option<Experiment<RocsOutcome>> {
    let room = |own: &RocsOutcome| {
        let rocs = own.of(RocsVariant::Rocs).filter(|rocs| rocs.profiles > 0)?;
        Some(cycles_of_paper(own)? * WORST / 100.0 - rocs.moving as f64)
    };
    let monitoring = outcomes.iter().filter_map(room).reduce(f64::min)?;
    let samples = monitoring / HANDLER as f64;
    let seconds = samples * (PERIOD + HANDLER) as f64 / CLOCK;
    let about = format!(
        "The paper does not say how many samples a profile has, and says that its cost differs since programs \
         run for different times. Here all profiles have {:.1} million, the number of which the worst takes \
         {WORST} % of the paper's run; the average follows. Computed from what a sample and the moves cost \
         above: such a profile takes {seconds:.0} s of the paper's machine.",
        samples / 1e6
    );
    let outcomes = outcomes.iter().filter_map(|own| with_monitoring(own, monitoring)).collect();
    Some(Experiment { title: "longer profiles".into(), about, outcomes })
}

/// What ROCS costs in a program, and nothing else of it, if samples take so many cycles.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "billions of cycles")]
fn with_monitoring(own: &RocsOutcome, cycles: f64) -> Option<RocsOutcome> {
    let rocs = own.of(RocsVariant::Rocs)?.clone();
    let more = (cycles as u64).saturating_sub(rocs.monitoring);
    let (monitoring, cycles) = (rocs.monitoring + more, rocs.cycles + more);
    let rocs = super::run::OnlineResult { window: Window::default(), monitoring, cycles, ..rocs };
    let (linux, offline, regions) = (Window::default(), Vec::new(), Vec::new());
    Some(RocsOutcome { linux, online: vec![rocs], offline, regions, ..own.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::measures::measure;
    use super::super::measures::tests::outcome;
    use super::*;

    #[test]
    fn one_length_of_profiles_costs_most_in_the_shortest_program() {
        let all = ["vpr", "swim"].map(|name| outcome(name, name, 20.0));
        let made = experiments(&all);
        let [Experiment { about, outcomes, .. }] = &made[..] else { panic!("one: {made:?}") };
        let figures = measure(outcomes, "overhead", &["paper"]).figures;
        let [(_, vpr), (_, swim)] = &figures[..] else { panic!("two: {figures:?}") };
        assert!((vpr - WORST).abs() < 0.001 && (vpr / swim - 1113.0 / 130.0).abs() < 0.01);
        assert!(about.contains("7.6 million"), "{about}");
        assert_eq!(measure(outcomes, "gain", &["ROCS", "all"]).compared, 0);
    }
}
