//! What the statements of ROCS (2008) ask for, computed from the outcomes.

use super::profiles::{ProfilePrefetch, SeenProfile};
use super::run::RocsOutcome;
use super::tables::{counts, saved_in_tlb, share_of_paper};
use super::variants::RocsVariant;
use super::window::RegionSamples;
use crate::engine::MeasuredFigures;

fn each(outcomes: &[RocsOutcome], of: impl Fn(&RocsOutcome) -> Option<f64>) -> MeasuredFigures {
    MeasuredFigures::each(outcomes.iter().filter_map(|o| Some((o.program.as_str(), of(o)?))))
}

/// The figures of a measure.
///
/// # Panics
/// At a name that it does not know.
pub fn measure(outcomes: &[RocsOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
    match (name, told) {
        ("gain", &[variant, of]) => {
            let variant = if variant == "ROCS" { RocsVariant::Rocs } else { RocsVariant::Model };
            each(outcomes, |o| o.gain(variant).filter(|_| is_of(o, of)))
        }
        ("behind-best", _) => each(outcomes, |o| Some(o.best()?.gain - o.gain(RocsVariant::Rocs)?)),
        ("art-chosen", &[of]) => art(outcomes, |[weights, layer]| {
            let [streamed, reused] = [weights, layer].map(share_confined);
            if of == "weights" { streamed } else { streamed - reused }
        }),
        ("art-layer-falls", _) => art(outcomes, |[_, layer]| {
            let [before, after] = [&layer.before, &layer.after].map(|seen| seen.percent());
            100.0 * (1.0 - after.unwrap_or(f64::NAN) / before.unwrap_or(f64::NAN))
        }),
        ("swim-saved-in-walks", _) => {
            swim(outcomes, |o| saved_in_tlb(&o.linux, &o.of(RocsVariant::Rocs)?.window))
        }
        ("swim-walk-ratio", _) => swim(outcomes, |o| {
            Some(o.of(RocsVariant::Rocs)?.window.per_walk()? / o.linux.per_walk()?)
        }),
        ("pages-that-miss", &[of]) => each(outcomes, |o| {
            let seen = o.profiles.of(ProfilePrefetch::Off)?;
            is_of(o, of).then(|| seen.page_percents()[2..].iter().sum())
        }),
        ("prefetch-hides", _) => {
            streams(outcomes, ProfilePrefetch::Both, SeenProfile::per_thousand)
        }
        ("prefetch-feigns", _) => streams(outcomes, ProfilePrefetch::L2, SeenProfile::miss_percent),
        ("sampling-costs", _) => sampling_costs(outcomes),
        ("overhead", &["paper"]) => each(outcomes, overhead_of_paper),
        ("overhead", _) => each(outcomes, overhead_of_ours),
        ("model-behind", _) => {
            each(outcomes, |o| Some(o.gain(RocsVariant::Rocs)? - o.gain(RocsVariant::Model)?))
        }
        ("model-trials", _) => each(outcomes, trials_of_model),
        _ => panic!("ROCS has no measure {name} of {told:?}"),
    }
}

/// Whether a workload is among all, those that the paper's average is of, those that it leaves out, or
/// programs that nobody here wrote.
fn is_of(outcome: &RocsOutcome, of: &str) -> bool {
    match of {
        "all" => true,
        "counted" => counts(outcome),
        "left-out" => super::programs::LEFT_OUT.contains(&outcome.stands_for),
        "traced" => outcome.traced,
        _ => panic!("no such workloads: {of}"),
    }
}

/// Percent of a region's pages that are confined.
fn share_confined(region: &RegionSamples) -> f64 {
    100.0 * region.confined as f64 / region.pages as f64
}

/// A figure of art's arrays: the weights, which are streamed, and the layer.
fn art(outcomes: &[RocsOutcome], of: impl Fn([&RegionSamples; 2]) -> f64) -> MeasuredFigures {
    let arts = outcomes.iter().filter(|o| o.stands_for == "art" && !o.traced);
    let regions = arts.filter_map(|o| Some((o, o.regions.as_array::<2>()?)));
    let there = regions.filter(|(_, all)| all.iter().all(|region| region.pages > 0));
    MeasuredFigures::each(there.map(|(o, all)| (o.program.as_str(), of(all.each_ref()))))
}

/// Percent more time, by the periods that ROCS may sample with (section 5.1).
fn sampling_costs(outcomes: &[RocsOutcome]) -> MeasuredFigures {
    let sampled = outcomes.iter().flat_map(|o| &o.profiles.sampled);
    let asked = sampled.filter(|run| [5_000, 10_000].contains(&run.period));
    MeasuredFigures::each(asked.map(|run| (run.period.to_string(), run.slower)))
}

/// The programs that go along arrays.
const STREAMS: [&str; 4] = ["art", "swim", "mgrid", "apsi"];

/// A figure of a profile with prefetchers over that without, of programs that go along arrays.
fn streams(
    outcomes: &[RocsOutcome],
    prefetch: ProfilePrefetch,
    figure: impl Fn(&SeenProfile) -> f64,
) -> MeasuredFigures {
    let of = outcomes.iter().filter(|o| STREAMS.contains(&o.stands_for));
    let ratio = |o: &RocsOutcome| {
        let [with, without] = [prefetch, ProfilePrefetch::Off].map(|own| o.profiles.of(own));
        Some((o.program.clone(), figure(with?) / figure(without?)))
    };
    MeasuredFigures::each(of.filter_map(ratio))
}

fn swim(outcomes: &[RocsOutcome], of: impl Fn(&RocsOutcome) -> Option<f64>) -> MeasuredFigures {
    each(outcomes, |o| (o.stands_for == "swim" && !o.traced).then(|| of(o)).flatten())
}

/// Percent of a run as long as the paper's; a program that was not profiled has nothing to show.
pub(super) fn overhead_of_paper(outcome: &RocsOutcome) -> Option<f64> {
    let rocs = outcome.of(RocsVariant::Rocs).filter(|rocs| rocs.profiles > 0)?;
    Some(share_of_paper(outcome, rocs)?.iter().sum())
}

fn overhead_of_ours(outcome: &RocsOutcome) -> Option<f64> {
    let rocs = outcome.of(RocsVariant::Rocs).filter(|rocs| rocs.profiles > 0)?;
    Some(100.0 * (rocs.monitoring + rocs.moving) as f64 / rocs.cycles.max(1) as f64)
}

/// Trials of the model over those of the search. Phases that begin anew make either try again: trials
/// are counted per profile.
fn trials_of_model(outcome: &RocsOutcome) -> Option<f64> {
    let per = |variant| {
        outcome.of(variant).map(|own| f64::from(own.trials) / f64::from(own.profiles.max(1)))
    };
    Some(per(RocsVariant::Model)? / per(RocsVariant::Rocs).filter(|trials| *trials > 0.0)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::RocsStudy;
    use super::super::profiles::{Profiles, SampledRun};
    use super::super::run::OnlineResult;
    use super::super::window::{PageSamples, Prefix, Window};
    use super::*;
    use crate::engine;
    use crate::report::StatementResult;

    fn judged(outcomes: &[RocsOutcome]) -> Vec<StatementResult> {
        engine::claims::<RocsStudy>(outcomes, &[])
    }

    /// A workload as the paper's program is under Linux, on which every variant gains so many percent, and
    /// the best prefix the same.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "millions")]
    pub fn outcome(program: &str, stands_for: &'static str, gain: f64) -> RocsOutcome {
        let of = super::super::paper().table("2").of(stands_for).unwrap_or(&[0.25, 10.0, 50.0]);
        let whole = |figure: f64| figure.round() as u64;
        let linux = Window {
            instructions: 1_000_000,
            cycles: whole(1e6 / of[0]),
            misses: whole(1000.0 * of[1]),
            requests: whole(1e5 * of[1] / of[2]),
            ..Window::default()
        };
        let cycles = whole(1e6 / of[0] / (1.0 + gain / 100.0));
        let online = RocsVariant::ACTIVE.map(|variant| OnlineResult {
            variant,
            window: Window { cycles, ..linux },
            whole_ipc: 0.25,
            confined: 100,
            trials: if variant == RocsVariant::Model { 1 } else { 11 },
            profiles: 1,
            left: 0,
            settled: true,
            cycles: 100_000_000,
            monitoring: 1_000_000,
            moving: 1_000_000,
        });
        RocsOutcome {
            program: program.into(),
            stands_for,
            traced: false,
            ways: super::super::programs::WAYS,
            later: false,
            along: false,
            pages: 1000,
            linux,
            online: online.into(),
            offline: vec![Prefix { pages: 100, gain }],
            regions: Vec::new(),
            profiles: Profiles::default(),
        }
    }

    fn find<'a>(claims: &'a [StatementResult], text: &str) -> &'a StatementResult {
        claims.iter().find(|claim| claim.text.contains(text)).expect(text)
    }

    const SEVEN: [&str; 7] = ["art", "swim", "mgrid", "apsi", "twolf", "vpr", "CG"];

    #[test]
    fn gains_hold_of_all_seven_or_not_at_all() {
        let gains = |gain| SEVEN.map(|name| outcome(name, name, gain)).to_vec();
        let (all, high) = (gains(16.0), gains(34.0));
        let found = judged(&all);
        assert!(find(&found, "on average of the seven").holds && !find(&found, "best gain").holds);
        assert!(find(&found, "slows no workload").holds);
        assert!(!find(&judged(&all[1..]), "on average of the seven").holds, "six are not seven");
        let found = judged(&high);
        assert!(!find(&found, "on average of the seven").holds && find(&found, "best gain").holds);
        let mut unlike = all;
        unlike[0].linux.misses *= 2;
        assert!(!find(&judged(&unlike), "on average of the seven").holds, "unfit");
        let slow: Vec<RocsOutcome> = SEVEN.iter().map(|name| outcome(name, name, -3.0)).collect();
        let found = judged(&slow);
        assert!(!find(&found, "on average of").holds && !find(&found, "slows no workload").holds);
        assert!(!find(&found, "model slows no").holds);
    }

    #[test]
    fn what_lacks_more_than_the_bar_is_named() {
        let mut one = outcome("vpr", "vpr", 5.0);
        one.offline.push(Prefix { pages: 200, gain: 9.0 });
        let found = judged(&[one.clone()]);
        let near = find(&found, "best of all prefixes");
        assert!(!near.holds && near.measured.contains("vpr 4.0"), "{near:?}");
        assert!(find(&found, "a tenth of the mappings").holds);
        one.online[2].trials = 5;
        assert!(!find(&judged(&[one]), "a tenth of the mappings").holds);
    }

    #[test]
    fn art_needs_its_weights_confined_and_its_layer_helped() {
        let region = |name, confined, misses| RegionSamples {
            name,
            pages: 100,
            confined,
            before: PageSamples { requests: 100, misses: 42 },
            after: PageSamples { requests: 100, misses },
        };
        let mut art = outcome("art", "art", 20.0);
        art.regions = vec![region("weights", 90, 80), region("layer", 10, 35)];
        assert!(find(&judged(&[art.clone()]), "streamed arrays").holds);
        assert!(find(&judged(&[art.clone()]), "layer's miss rate").holds);
        art.regions = vec![region("weights", 10, 80), region("layer", 90, 36)];
        assert!(!find(&judged(&[art.clone()]), "streamed arrays").holds);
        assert!(!find(&judged(&[art]), "layer's miss rate").holds);
        assert!(!find(&judged(&[outcome("vpr", "vpr", 1.0)]), "streamed arrays").holds);
    }

    #[test]
    fn profiles_show_what_is_feigned_hidden_and_paid() {
        let seen = |prefetch, requests, misses, pages| SeenProfile {
            prefetch,
            instructions: 1000,
            requests,
            misses,
            pages,
        };
        let mut art = outcome("art", "art", 20.0);
        art.profiles.seen = vec![
            seen(ProfilePrefetch::Off, 100, 90, [1, 1, 1, 1]),
            seen(ProfilePrefetch::L2, 100, 45, [4, 0, 0, 0]),
            seen(ProfilePrefetch::Both, 20, 18, [0, 0, 0, 4]),
        ];
        let run = |period, slower| SampledRun { period, slower };
        art.profiles.sampled = vec![run(1000, 400.0), run(5000, 60.0), run(10_000, 15.0)];
        let of = |name, told: &[&str]| measure(std::slice::from_ref(&art), name, told).figures;
        let art_has = |figure: f64| vec![("art".to_owned(), figure)];
        assert_eq!(of("pages-that-miss", &["all"]), art_has(50.0));
        assert_eq!(
            (of("prefetch-hides", &[]), of("prefetch-feigns", &[])),
            (art_has(0.2), art_has(0.5))
        );
        assert_eq!(of("sampling-costs", &[]), [("5000".into(), 60.0), ("10000".into(), 15.0)]);
        let found = judged(std::slice::from_ref(&art));
        assert!(find(&found, "one in 5,000").holds && !find(&found, "large proportion").holds);
        art.profiles.sampled[1].slower = 70.0;
        assert!(!find(&judged(&[art]), "one in 5,000").holds);
    }

    #[test]
    fn swim_has_to_save_in_walks() {
        let mut swim = outcome("swim-across", "swim", 100.0);
        (swim.linux.tlb_cycles, swim.linux.walks, swim.linux.walk_cycles) =
            (5_000_000, 12_500, 5_000_000);
        let window = &mut swim.online[0].window;
        (window.tlb_cycles, window.walks, window.walk_cycles) = (1_500_000, 12_500, 1_500_000);
        assert!(find(&judged(&[swim.clone()]), "swim: more").holds);
        swim.online[0].window.tlb_cycles = 3_750_000;
        assert!(!find(&judged(&[swim]), "swim: more").holds);
    }

    #[test]
    fn nothing_holds_of_nothing() {
        assert_eq!(engine::claims::<RocsStudy>(&[], &[]), []);
        let mut empty = outcome("a", "", 50.0);
        (empty.online, empty.offline) = (Vec::new(), Vec::new());
        // One that ended before its window began.
        let mut short = outcome("CG", "CG", 50.0);
        (short.linux, short.offline, short.traced) = (Window::default(), Vec::new(), true);
        for online in &mut short.online {
            (online.window, online.trials, online.profiles) = (Window::default(), 0, 0);
        }
        let found = judged(&[empty, short]);
        let holds: Vec<&StatementResult> = found.iter().filter(|c| c.holds).collect();
        assert_eq!(holds, Vec::<&StatementResult>::new());
    }
}
