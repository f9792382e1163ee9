//! What the statements of the thesis ask for, computed from the outcomes. Differences are such that more
//! is worse for the policy that the statement is about.

use super::alpha;
use super::fit;
use super::latency;
use super::results::{RomerResults, is_wanted};
use super::run::RomerOutcome;
use super::stability;
use super::sweeps;
use super::variants::{Initial, RomerPart, SOFTWARE};
use crate::engine::{MeasuredFigures, Named as _};

/// Figures to two digits are what the thesis compares.
const EQUAL: f64 = 0.005;
/// What makes a difference between two ways to place pages count as conflicts.
const CONFLICT: f64 = 0.02;
/// TLBMCPI with pages of 4 KB below which page sizes are not compared.
const LEAST: f64 = 0.05;

/// log2 of the base pages of 8 MB.
const LARGEST: u32 = 11;

/// The figures of a measure.
///
/// # Panics
/// At a name that it does not know.
pub fn measure(outcomes: &[RomerOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
    let results = RomerResults(outcomes);
    let pages = Superpages(results);
    match (name, told) {
        ("strawman-l2", &[policy]) => strawman(results, policy, RomerOutcome::l2_mcpi),
        ("strawman", &[policy]) => strawman(results, policy, |outcome| outcome.rates.mcpi),
        ("removed-where-dense", &[policy]) => {
            pages.each(|p| pages.removed(p, policy).filter(|_| pages.dense(p)))
        }
        ("growth", &[policy]) => pages.each(|p| pages.grows(p, policy)),
        ("ahead-of-approx-online", others) => pages.ahead(others),
        ("online-over-approx-online", _) => pages.each(|p| pages.online_loses(p)),
        ("asap-leaves", _) => pages.each(|p| pages.asap_leaves(p)),
        ("sizes-at-the-end", _) => pages.each(|p| Some(pages.sizes(p)?.count() as f64)),
        ("pages-of-8-mb", programs) => {
            pages.each(|p| pages.largest(p).filter(|_| is_wanted(p, programs)))
        }
        ("more-tlb-mcpi", &[policy]) => pages.each(|p| pages.more(p, policy)),
        ("behind-best" | "behind-where-conflicts" | "slower-without-conflicts", told) => {
            conflicts(results, name, told)
        }
        ("over-sum-of-parts", &[policy, recoloring, initial]) => {
            combined(results, [policy, recoloring], initial, |both, one, other| {
                both.l2_mcpi() - (one.rates.tlb_mcpi + other.l2_mcpi() - other.rates.tlb_mcpi)
            })
        }
        ("over-both-parts", &[policy, recoloring, initial]) => {
            combined(results, [policy, recoloring], initial, |both, one, other| {
                both.l2_mcpi() - one.l2_mcpi().max(other.l2_mcpi())
            })
        }
        ("throttle-with-caches", _) => each(results, RomerPart::Combined, |p| {
            let of = |policy| results.colored(RomerPart::Combined, p, policy);
            Some(of("THROTTLE")?.whole_cycles().rates.tlb_mcpi - of("DM")?.rates.tlb_mcpi)
        }),
        _ => of_settings(results, name, told),
    }
}

/// The same of what one module each measures: stability, other settings, other machines.
fn of_settings(results: RomerResults<'_>, name: &str, told: &[&str]) -> MeasuredFigures {
    match name {
        "in-several-conflicts" | "moved-several-times" => {
            MeasuredFigures::each(stability::several_times(results, name, told))
        }
        "alpha-improvement" | "alpha-overhead" => alpha::measure(results, name, told),
        "benefit-by-estimate" | "benefit-more" => latency::measure(results, name),
        _ => sweeps::measure(results, name, told)
            .unwrap_or_else(|| panic!("the thesis has no measure {name} of {told:?}")),
    }
}

/// What policies against conflicts leave, from an initial placement.
fn conflicts(results: RomerResults<'_>, name: &str, told: &[&str]) -> MeasuredFigures {
    let initial = told.last().copied().unwrap_or_default();
    let of = Conflicts { results, initial: Initial::named(initial) };
    match (name, told) {
        ("behind-best", &[policy, _]) => of.each(|p| of.behind_best(p, policy)),
        ("behind-where-conflicts", &[policy, other, _]) => {
            of.each(|p| of.conflicting(p).and(Some(of.l2(p, policy)? - of.l2(p, other)?)))
        }
        ("slower-without-conflicts", &[policy, _]) => {
            of.each(|p| of.slower(p, policy).filter(|_| of.conflicting(p).is_none()))
        }
        _ => panic!("the thesis has no measure {name} of {told:?}"),
    }
}

/// The workloads of a part that count, and a figure of each.
fn each(
    results: RomerResults<'_>,
    part: RomerPart,
    of: impl Fn(&str) -> Option<f64>,
) -> MeasuredFigures {
    let programs = fit::counted(results, part).into_iter();
    MeasuredFigures::each(programs.filter_map(|program| Some((program, of(program)?))))
}

/// Table 4-6 and table 5-3.
fn strawman(
    results: RomerResults<'_>,
    policy: &str,
    of: impl Fn(&RomerOutcome) -> f64,
) -> MeasuredFigures {
    MeasuredFigures::one(results.colored(RomerPart::Conflicts, "strawman", policy).map(of))
}

/// Pages at the end of 4 KB, 8 KB, and so on to 8 MB (table 3-6).
pub(super) fn page_sizes(outcome: &RomerOutcome) -> Vec<u64> {
    let of = |order| outcome.superpages.get(&order).copied().unwrap_or(0);
    let parts: u64 = (1..=LARGEST).map(|order| of(order) << order).sum();
    let base = outcome.pages.saturating_sub(parts);
    std::iter::once(base).chain((1..=LARGEST).map(of)).collect()
}

/// Chapter 3, and section 6.5 without caches.
struct Superpages<'a>(RomerResults<'a>);

impl Superpages<'_> {
    fn get(&self, program: &str, policy: &str) -> Option<&RomerOutcome> {
        self.0.colored(RomerPart::Superpages, program, policy)
    }

    fn each(&self, of: impl Fn(&str) -> Option<f64>) -> MeasuredFigures {
        each(self.0, RomerPart::Superpages, of)
    }

    /// Sizes of pages at the end under APPROX-ONLINE that there are pages of.
    fn sizes(&self, program: &str) -> Option<impl Iterator<Item = (u32, u64)>> {
        let counts = page_sizes(self.get(program, "APPROX-ONLINE")?);
        Some((0..).zip(counts).filter(|(_, pages)| *pages > 0))
    }

    /// TLBMCPI more than with pages of 4 KB, in whole cycles of work and rest.
    fn more(&self, program: &str, policy: &str) -> Option<f64> {
        let own = self.get(program, policy)?.whole_cycles();
        Some(own.tlb_mcpi() - self.get(program, "FIXED 4 KB")?.tlb_mcpi())
    }

    /// Pages of 8 MB at the end under APPROX-ONLINE.
    fn largest(&self, program: &str) -> Option<f64> {
        let largest = self.sizes(program)?.filter(|(order, _)| *order == LARGEST);
        Some(largest.map(|(_, pages)| pages).sum::<u64>() as f64)
    }

    fn removed(&self, program: &str, policy: &str) -> Option<f64> {
        let base = self.get(program, "FIXED 4 KB")?.tlb_misses as f64;
        Some(100.0 * (1.0 - self.get(program, policy)?.tlb_misses as f64 / base))
    }

    fn grows(&self, program: &str, policy: &str) -> Option<f64> {
        Some(100.0 * self.0.growth(program, policy)?)
    }

    /// Pages of 64 KB take at most a tenth more memory, and 4 KB ones miss.
    fn dense(&self, program: &str) -> bool {
        self.grows(program, "FIXED 64 KB").is_some_and(|growth| growth <= 10.0)
            && self.misses(program)
    }

    /// Whether pages of 4 KB miss so often that other sizes can be worth their price.
    fn misses(&self, program: &str) -> bool {
        self.get(program, "FIXED 4 KB").is_some_and(|base| base.tlb_mcpi() >= LEAST)
    }

    /// Programs on which one of these policies is ahead of APPROX-ONLINE in one respect and not behind
    /// in the other, by TLBMCPI.
    fn ahead(&self, others: &[&str]) -> MeasuredFigures {
        let (mut ahead, mut compared) = (Vec::new(), 0);
        let programs = fit::counted(self.0, RomerPart::Superpages);
        for (other, program) in others.iter().flat_map(|o| programs.iter().map(move |p| (o, *p))) {
            if other.starts_with("FIXED") && !self.misses(program) {
                continue;
            }
            let [own, its] = ["APPROX-ONLINE", *other].map(|policy| self.get(program, policy));
            let Some((own, its)) = own.zip(its) else { continue };
            let (gain, more) = (own.tlb_mcpi() - its.tlb_mcpi(), own.pages >= its.pages);
            compared += 1;
            if more && gain >= EQUAL || own.pages > its.pages && gain >= 0.0 {
                ahead.push((format!("{other} on {program}"), gain));
            }
        }
        MeasuredFigures::against(ahead, compared)
    }

    /// TLBMCPI that ONLINE has more than APPROX-ONLINE, where there are TLB misses.
    fn online_loses(&self, program: &str) -> Option<f64> {
        let [online, approx] = ["ONLINE", "APPROX-ONLINE"].map(|p| self.get(program, p));
        let online = online?.tlb_mcpi();
        (online >= EQUAL).then_some(online - approx?.tlb_mcpi())
    }

    /// Misses that ASAP leaves for each of APPROX-ONLINE: of holes it cannot build what others do.
    fn asap_leaves(&self, program: &str) -> Option<f64> {
        let [asap, approx] = ["ASAP", "APPROX-ONLINE"].map(|p| self.get(program, p));
        Some(asap?.tlb_misses as f64 / approx?.tlb_misses.max(1) as f64)
    }
}

/// Figure 4-1, figure 5-3 and section 5.7 for an initial mapping.
struct Conflicts<'a> {
    results: RomerResults<'a>,
    initial: Initial,
}

impl Conflicts<'_> {
    fn get(&self, program: &str, policy: &str) -> Option<&RomerOutcome> {
        self.results.get(RomerPart::Conflicts, self.initial, program, policy)
    }

    fn each(&self, of: impl Fn(&str) -> Option<f64>) -> MeasuredFigures {
        each(self.results, RomerPart::Conflicts, of)
    }

    fn l2(&self, program: &str, policy: &str) -> Option<f64> {
        self.get(program, policy).map(RomerOutcome::l2_mcpi)
    }

    /// What two ways save, where that counts as conflicts.
    fn conflicting(&self, program: &str) -> Option<f64> {
        let gain = self.l2(program, "DM")? - self.l2(program, "A2")?;
        Some(gain).filter(|gain| *gain > CONFLICT)
    }

    /// How far a policy is behind the best of the others.
    fn behind_best(&self, program: &str, policy: &str) -> Option<f64> {
        let own = self.l2(program, policy)?;
        let others = SOFTWARE[..8].iter().filter(|other| **other != policy);
        let best = others.filter_map(|p| self.l2(program, p)).min_by(f64::total_cmp)?;
        Some(own - best)
    }

    /// Percent more time than direct-mapped without a policy.
    fn slower(&self, program: &str, policy: &str) -> Option<f64> {
        let [with, base] = [self.get(program, policy)?, self.get(program, "DM")?];
        Some(100.0 * (with.costs.cycles() as f64 / base.costs.cycles() as f64 - 1.0))
    }
}

/// Section 6.6.4: a policy for both beside THROTTLE and the policy that recolours.
fn combined(
    results: RomerResults<'_>,
    [policy, recoloring]: [&str; 2],
    initial: &str,
    of: impl Fn(&RomerOutcome, &RomerOutcome, &RomerOutcome) -> f64,
) -> MeasuredFigures {
    let initial = Initial::named(initial);
    each(results, RomerPart::Combined, |program| {
        let get = |policy: &str| results.get(RomerPart::Combined, initial, program, policy);
        Some(of(get(policy)?, get("THROTTLE")?, get(recoloring)?))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::engine;
    use crate::report::StatementResult;
    use crate::romer::RomerStudy;
    use crate::romer::variants::RomerVariant;
    use huepage_sim::cost::ProgramCosts;

    fn judged(outcomes: &[RomerOutcome]) -> Vec<StatementResult> {
        engine::claims::<RomerStudy>(outcomes, &[])
    }

    pub fn outcome(
        part: RomerPart,
        policy: &str,
        tlb_misses: u64,
        copies: u64,
        pages: u64,
    ) -> RomerOutcome {
        let costs = ProgramCosts {
            instructions: 1_000_000,
            tlb_cycles: 30 * tlb_misses,
            promotion_cycles: copies,
            ..ProgramCosts::default()
        };
        RomerOutcome {
            program: "p".into(),
            // A program without baselines, so that it counts.
            stands_for: "p",
            variant: RomerVariant::new(part, Initial::Coloring, policy),
            records: 1,
            costs,
            rates: costs.rates(),
            tlb_misses,
            pages,
            last_requests: 0,
            second_hits: 0,
            second: None,
            cycles: None,
            moved: BTreeMap::new(),
            promoted: BTreeSet::new(),
            superpages: BTreeMap::new(),
            conflicts: BTreeMap::new(),
        }
    }

    fn find<'a>(claims: &'a [StatementResult], text: &str) -> &'a StatementResult {
        claims.iter().find(|claim| claim.text.starts_with(text)).expect(text)
    }

    #[test]
    fn claims_about_superpages_hold_and_fail_by_their_figures() {
        let with = |approx, pages, throttle| {
            let of = |policy, misses, copies, pages| {
                outcome(RomerPart::Superpages, policy, misses, copies, pages)
            };
            judged(&[
                of("FIXED 4 KB", 100_000, 0, 100),
                of("FIXED 64 KB", 100, 0, 105),
                of("ASAP", 90_000, 0, 100),
                of("APPROX-ONLINE", approx, 1000, pages),
                of("THROTTLE", 100_000, throttle, 100),
            ])
        };
        let good = with(2_000, 102, 10_000);
        for text in ["APPROX-ONLINE removes", "APPROX-ONLINE takes", "ASAP fails", "THROTTLE costs"]
        {
            assert!(find(&good, text).holds, "{text}");
        }
        let bad = with(95_000, 120, 30_000);
        for text in ["APPROX-ONLINE removes", "APPROX-ONLINE takes", "ASAP fails", "THROTTLE costs"]
        {
            assert!(!find(&bad, text).holds, "{text}");
        }
        let ahead = find(&bad, "APPROX-ONLINE is ahead");
        assert!(!ahead.holds && ahead.measured.contains("ASAP on p"), "{ahead:?}");
    }

    #[test]
    fn only_fft_may_end_with_pages_of_8_mb_and_sizes_are_more_than_two() {
        let with = |program: &str, superpages: &[(u32, u64)]| {
            let own = outcome(RomerPart::Superpages, "APPROX-ONLINE", 0, 0, 4096);
            let superpages = superpages.iter().copied().collect();
            RomerOutcome { program: program.into(), superpages, ..own }
        };
        let fft = with("fft", &[(11, 1), (2, 3)]);
        assert_eq!(page_sizes(&fft), [2036, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let holds = |other| {
            let claims = judged(&[fft.clone(), other]);
            ["only fft", "APPROX-ONLINE creates"].map(|text| find(&claims, text).holds)
        };
        assert_eq!(holds(with("p", &[(1, 1), (2, 1)])), [true, true]);
        assert_eq!(holds(with("p", &[(11, 1)])), [false, false]);
    }

    #[test]
    fn combined_has_to_be_near_the_sum_of_its_parts() {
        let with = |combined| {
            judged(&[
                outcome(RomerPart::Combined, "DM", 50_000, 0, 10),
                outcome(RomerPart::Combined, "CML", 50_000, 0, 10),
                outcome(RomerPart::Combined, "THROTTLE", 1_000, 0, 10),
                outcome(RomerPart::Combined, "COMBINED", combined, 0, 10),
            ])
        };
        let text = "COMBINED is within 0.03 MCPI of the sum of THROTTLE and CML";
        assert!(find(&with(1_500), text).holds);
        assert!(!find(&with(3_000), text).holds);
        assert!(!find(&with(60_000), "COMBINED is never worse").holds);
    }

    #[test]
    fn nothing_holds_of_workloads_that_were_not_run() {
        let found = judged(&[
            outcome(RomerPart::Superpages, "FIXED 4 KB", 100_000, 0, 100),
            outcome(RomerPart::Conflicts, "DM", 50_000, 0, 10),
            outcome(RomerPart::Combined, "DM", 50_000, 0, 10),
        ]);
        assert!(found.len() > 20);
        let holds: Vec<_> = found.iter().filter(|claim| claim.holds).collect();
        assert_eq!(holds, Vec::<&StatementResult>::new());
    }

    #[test]
    fn without_outcomes_nothing_is_claimed() {
        assert_eq!(engine::claims::<RomerStudy>(&[], &[]), []);
    }
}
