//! What statements hang on that do not hold: outcomes with one thing changed.

use super::profiles::Profiles;
use super::programs::{RocsProgram, WAYS};
use super::run::{OnlineResult, RocsOutcome};
use super::tables::{CLOCK, cycles_of_paper};
use super::variants::{HANDLER, PERIOD, RocsVariant};
use super::window::{RunPolicies, Window};
use crate::engine::StatementExperiment;

/// Programs that are run once more for an experiment, and under what.
pub fn programs(all: &[RocsProgram]) -> Vec<(RocsProgram, RunPolicies)> {
    let built = || all.iter().filter(|own| own.spec.is_some());
    let wide = built().filter(|own| own.stands_for == "swim");
    let wide = wide.map(|own| RocsProgram { ways: WIDE, ..own.clone() });
    let later = built().map(|own| RocsProgram { later: true, ..own.clone() });
    let wide = wide.map(|own| (own, RunPolicies::Rocs));
    let along = built().filter(|own| own.stands_for == "swim");
    let along = along.map(|own| RocsProgram { spec: Some(ALONG), along: true, ..own.clone() });
    let along = along.map(|own| (own, RunPolicies::Profiles));
    wide.chain(later.map(|own| (own, RunPolicies::Model))).chain(along).collect()
}

/// The experiments on some outcomes; takes those out that are of nothing else.
pub fn experiments(outcomes: &mut Vec<RocsOutcome>) -> Vec<StatementExperiment<RocsOutcome>> {
    let later: Vec<RocsOutcome> = outcomes.extract_if(.., |own| own.later).collect();
    let along: Vec<RocsOutcome> = outcomes.extract_if(.., |own| own.along).collect();
    let wide: Vec<RocsOutcome> = outcomes.extract_if(.., |own| own.ways != WAYS).collect();
    let longer = [PaperFigure::Worst, PaperFigure::Average].map(|by| longer_profiles(outcomes, by));
    let others = [
        wide_cache(outcomes, &wide),
        later_samples(outcomes, &later),
        along_arrays(outcomes, &along),
    ];
    others.into_iter().chain(longer).flatten().collect()
}

/// All outcomes, in the place of each that of the same program among others.
fn replaced(all: &[RocsOutcome], by: &[RocsOutcome]) -> Vec<RocsOutcome> {
    let other = |own: &RocsOutcome| by.iter().find(|other| other.program == own.program);
    all.iter().map(|own| other(own).unwrap_or(own).clone()).collect()
}

/// All outcomes with samples that are drawn evenly.
fn later_samples(
    all: &[RocsOutcome],
    later: &[RocsOutcome],
) -> Option<StatementExperiment<RocsOutcome>> {
    later.first()?;
    let about = "A sample is due after some cycles. Above it is of the load during which these end, so that the \
                 longer a load takes, the more likely it is one: misses are more of the samples than of the requests. \
                 The search orders pages by misses and needs no more, but the model takes the samples for requests, \
                 and makes too little of hits in spmv-near. The paper marks a load when it is fetched (section \
                 2.2), and does not say whether one that is under way can be marked. Here it is not: a sample is of the \
                 first load that begins after the period and misses the L1. Nor does the model look at confined pages \
                 again, which the paper's ROCS does not do either: samples for that are a large part of a window of ten trials. \
                 All programs, under ROCS and the model.";
    Some(StatementExperiment {
        title: "samples of loads that begin after the period, and no second looks".into(),
        about: about.into(),
        outcomes: replaced(all, later),
        of_statements: "",
    })
}

/// The loops of swim on as many points as the stand-in has, without its sums.
const ALONG: &str = "swim:size=94133520,rounds=10000";

/// All outcomes, the profiles of swim without its sums.
fn along_arrays(
    all: &[RocsOutcome],
    along: &[RocsOutcome],
) -> Option<StatementExperiment<RocsOutcome>> {
    let profiles = &along.first()?.profiles;
    let name = &along.first()?.program;
    let with = |own: &RocsOutcome| match own.program == *name {
        true => RocsOutcome { profiles: profiles.clone(), ..own.clone() },
        false => own.clone(),
    };
    let about = format!(
        "Many requests of {name} are of the sums that it takes down its columns, where no line follows on the one before. \
         The statement is about arrays that a program goes along. Here {name} is `{ALONG}`: the same loops along the \
         rows of as many points, which read a point's neighbours in fewer fields, and no sums."
    );
    Some(StatementExperiment {
        title: "swim without the sums down its columns".into(),
        about,
        outcomes: all.iter().map(with).collect(),
        of_statements: "along arrays",
    })
}

/// Lines per set of an L2 that has room for the page-table entries of a column of swim.
const WIDE: u16 = 10;

/// All outcomes, those of some programs from an L2 with more ways.
fn wide_cache(
    all: &[RocsOutcome],
    wide: &[RocsOutcome],
) -> Option<StatementExperiment<RocsOutcome>> {
    let name = &wide.first()?.program;
    let about = format!(
        "A column of swim's three fields is on 4,005 pages, whose entries are in a line each of the hashed page table: \
         {:.1} in each of the 512 sets of the L2, and more than {WAYS} in some. Here the L2 has {WIDE} ways for {name}, \
         and for the other programs those that it has above.",
        4005.0 / 512.0
    );
    let outcomes = replaced(all, wide);
    Some(StatementExperiment {
        title: "room for swim's page table".into(),
        about,
        outcomes,
        of_statements: "",
    })
}

/// What the paper says of the cost of profiles and moves (section 6.1), two figures for one number that it
/// does not give: how many samples a profile has. Chosen by either it is held against the other.
#[derive(Clone, Copy, PartialEq)]
enum PaperFigure {
    Worst,
    Average,
}

impl PaperFigure {
    /// Percent of the paper's run.
    const fn percent(self) -> f64 {
        match self {
            PaperFigure::Worst => 3.8,
            PaperFigure::Average => 1.6,
        }
    }

    /// Cycles for the samples of each profile, given for each program what a run of the paper's length takes
    /// and what moves take.
    fn monitoring(self, programs: &[(f64, f64)]) -> Option<f64> {
        let (share, n) = (self.percent() / 100.0, programs.len() as f64);
        let sum = |of: fn(&(f64, f64)) -> f64| programs.iter().map(of).sum::<f64>();
        match self {
            PaperFigure::Worst => {
                programs.iter().map(|(run, moving)| run * share - moving).reduce(f64::min)
            }
            PaperFigure::Average => (n > 0.0).then(|| {
                (share * n - sum(|(run, moving)| moving / run)) / sum(|(run, _)| run.recip())
            }),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            PaperFigure::Worst => "the worst takes 3.8 % of the paper's run; the average follows",
            PaperFigure::Average => {
                "they take 1.6 % of the paper's run on average; the worst follows"
            }
        }
    }

    /// Where the statement begins that does not hold by the choice of the number.
    const fn follows(self) -> &'static str {
        match self {
            PaperFigure::Worst => "monitoring and moving take 1.6 % of a run as long",
            PaperFigure::Average => "monitoring and moving take 3.8 % of a run as long",
        }
    }
}

/// What profiles cost that have one number of samples in all programs, chosen by a figure of the paper.
fn longer_profiles(
    outcomes: &[RocsOutcome],
    by: PaperFigure,
) -> Option<StatementExperiment<RocsOutcome>> {
    let cost = |own: &RocsOutcome| {
        let rocs = own.of(RocsVariant::Rocs).filter(|rocs| rocs.profiles > 0)?;
        Some((cycles_of_paper(own)?, rocs.moving as f64))
    };
    let monitoring = by.monitoring(&outcomes.iter().filter_map(cost).collect::<Vec<_>>())?;
    let samples = monitoring / HANDLER as f64;
    let seconds = samples * (PERIOD + HANDLER) as f64 / CLOCK;
    let about = format!(
        "The paper does not say how many samples a profile has, and says that its cost differs since programs \
         run for different times. Here all profiles have {:.2} million, the number with which {}. Computed from what \
         a sample and the moves cost above: such a profile takes {seconds:.0} s of the paper's machine.",
        samples / 1e6,
        by.words()
    );
    let outcomes = outcomes.iter().filter_map(|own| with_monitoring(own, monitoring)).collect();
    let title = match by {
        PaperFigure::Worst => "longer profiles, by the worst",
        PaperFigure::Average => "longer profiles, by the average",
    };
    Some(StatementExperiment { title: title.into(), about, outcomes, of_statements: by.follows() })
}

/// What ROCS costs in a program, and nothing else of it, if samples take so many cycles.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "billions of cycles")]
fn with_monitoring(own: &RocsOutcome, cycles: f64) -> Option<RocsOutcome> {
    let rocs = own.of(RocsVariant::Rocs)?.clone();
    let more = (cycles as u64).saturating_sub(rocs.monitoring);
    let (monitoring, cycles) = (rocs.monitoring + more, rocs.cycles + more);
    let rocs = OnlineResult { window: Window::default(), monitoring, cycles, ..rocs };
    let (linux, profiles) = (Window::default(), Profiles::default());
    let (offline, regions) = (Vec::new(), Vec::new());
    Some(RocsOutcome { linux, online: vec![rocs], offline, regions, profiles, ..own.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::RocsStudy;
    use super::super::measures::measure;
    use super::super::measures::tests::outcome;
    use super::super::profiles::SampledRun;
    use super::*;
    use crate::engine::Study as _;

    #[test]
    fn one_length_of_profiles_costs_most_in_the_shortest_program() {
        let mut all = ["vpr", "swim"].map(|name| outcome(name, name, 20.0)).to_vec();
        let made = experiments(&mut all);
        let [StatementExperiment { about, outcomes, .. }, average] = &made[..] else {
            panic!("two: {made:?}")
        };
        let figures = measure(outcomes, "overhead", &["paper"]).figures;
        let [(_, vpr), (_, swim)] = &figures[..] else { panic!("two: {figures:?}") };
        assert!((vpr - 3.8).abs() < 0.001 && (vpr / swim - 1113.0 / 130.0).abs() < 0.01);
        assert!(about.contains("7.57 million"), "{about}");
        for of in [made[0].of_statements, average.of_statements] {
            let all = &RocsStudy::paper().statements;
            assert_eq!(all.iter().filter(|one| one.text.starts_with(of)).count(), 1, "{of}");
        }
        let figures = measure(&average.outcomes, "overhead", &["paper"]).figures;
        let mean = figures.iter().map(|(_, percent)| percent).sum::<f64>() / 2.0;
        assert!((mean - 1.6).abs() < 0.001, "{figures:?}");
        assert_eq!(measure(outcomes, "gain", &["ROCS", "all"]).compared, 0);
    }

    #[test]
    fn even_samples_change_what_they_were_taken_in_and_nothing_else() {
        let later = RocsOutcome { later: true, ..outcome("vpr", "vpr", 30.0) };
        let mut all = vec![outcome("vpr", "vpr", 10.0), outcome("swim", "swim", 20.0), later];
        let made = experiments(&mut all);
        assert!(all.len() == 2 && all.iter().all(|own| !own.later));
        let figures = measure(&made[0].outcomes, "gain", &["ROCS", "all"]).figures;
        assert!(figures.len() == 2 && (figures[0].1 - 30.0).abs() < 0.01, "{figures:?}");
        assert!(made[0].about.len() > 100 && made[0].of_statements.is_empty());
    }

    #[test]
    fn a_wider_cache_changes_one_program_and_is_in_no_other_outcome() {
        let wide = RocsOutcome { ways: WIDE, ..outcome("swim", "swim", 30.0) };
        let mut all = vec![outcome("vpr", "vpr", 10.0), outcome("swim", "swim", 20.0), wide];
        let made = experiments(&mut all);
        assert!(all.len() == 2 && all.iter().all(|own| own.ways == WAYS));
        let figures = measure(&made[0].outcomes, "gain", &["ROCS", "all"]).figures;
        assert!(figures.len() == 2 && (figures[1].1 - 30.0).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn without_sums_profiles_change_and_nothing_else() {
        let profiles = Profiles {
            sampled: vec![SampledRun { period: 5_000, slower: 20.0 }],
            ..Profiles::default()
        };
        let along = RocsOutcome { along: true, profiles, ..outcome("swim", "swim", 30.0) };
        let mut all = vec![outcome("vpr", "vpr", 10.0), outcome("swim", "swim", 20.0), along];
        let made = experiments(&mut all);
        assert!(all.len() == 2 && all.iter().all(|own| !own.along));
        let found = &made[0].outcomes;
        assert_eq!(measure(found, "sampling-costs", &[]).figures, [("5000".to_owned(), 20.0)]);
        let gains = measure(found, "gain", &["ROCS", "all"]).figures;
        assert!((gains[1].1 - 20.0).abs() < 0.01, "{gains:?}");
        let all = &RocsStudy::paper().statements;
        assert_eq!(all.iter().filter(|one| one.text.starts_with(made[0].of_statements)).count(), 1);
    }
}
