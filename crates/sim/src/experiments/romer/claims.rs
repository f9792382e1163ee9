//! What the thesis says of its policies, as statements with a bar each, and whether the outcomes
//! bear them out. A workload that fails is named with its figure.

use super::super::report::{Claim, claim, claim_of, list};
use super::run::Outcome;
use super::tables::Results;
use super::variants::{Initial, Part, SOFTWARE};

/// Figures to two digits are what the thesis compares.
const EQUAL: f64 = 0.005;
/// What makes a difference between two ways to place pages count as conflicts.
const CONFLICT: f64 = 0.02;

/// All statements for which there are outcomes.
pub fn claims(outcomes: &[Outcome]) -> Vec<Claim> {
    let results = Results(outcomes);
    let mut all = strawman(results);
    if !results.programs(Part::Superpages).is_empty() {
        all.extend(superpages(results));
    }
    if !results.programs(Part::Conflicts).is_empty() {
        for initial in [Initial::Coloring, Initial::Random] {
            all.extend(conflicts(results, initial));
        }
    }
    if !results.programs(Part::Combined).is_empty() {
        for initial in [Initial::Coloring, Initial::BinHopping] {
            for policy in ["COMBINED", "COMBINED-Fit"] {
                all.extend(combined(results, initial, policy));
            }
        }
        all.push(throttle_with_caches(results));
    }
    all
}

/// Table 4-6 and table 5-3.
fn strawman(results: Results<'_>) -> Vec<Claim> {
    let of = |policy: &str| results.colored(Part::Conflicts, "strawman", policy);
    let l2 = |policy: &str| of(policy).map(Outcome::l2_mcpi);
    let below = |policy: &str, most: f64| {
        let value = l2(policy)?;
        let text = format!("strawman: L2 MCPI with {policy} at most {most} (table 4-6)");
        Some(claim(&text, format!("{value:.3}"), value <= most))
    };
    let direct = l2("DM").map(|value| {
        let text = "strawman: L2 MCPI direct-mapped within 10 % of 4.81 (table 4-6)";
        claim(text, format!("{value:.2}"), (value / 4.81 - 1.0).abs() <= 0.1)
    });
    let cml = of("CML").map(|outcome| {
        let value = outcome.rates.mcpi;
        let text = "strawman: MCPI with CML near 1.00, within 5 % (table 5-3)";
        claim(text, format!("{value:.2}"), (value - 1.0).abs() <= 0.05)
    });
    [direct, below("Snapshot-Miss", 0.04), below("A2", 0.02), cml].into_iter().flatten().collect()
}

struct Promotion<'a> {
    results: Results<'a>,
    programs: Vec<&'a str>,
}

impl Promotion<'_> {
    fn get(&self, program: &str, policy: &str) -> Option<&Outcome> {
        self.results.colored(Part::Superpages, program, policy)
    }

    fn removed(&self, program: &str, policy: &str) -> Option<f64> {
        let base = self.get(program, "FIXED 4 KB")?.tlb_misses as f64;
        Some(100.0 * (1.0 - self.get(program, policy)?.tlb_misses as f64 / base))
    }

    /// Programs and a figure of each.
    fn each(&self, of: impl Fn(&str) -> Option<f64>) -> Vec<(String, f64)> {
        self.programs.iter().filter_map(|p| Some(((*p).to_owned(), of(p)?))).collect()
    }

    fn grows(&self, program: &str, policy: &str) -> Option<f64> {
        Some(100.0 * self.results.growth(program, policy)?)
    }

    /// Pages of 64 KB take at most a tenth more memory, and 4 KB ones miss.
    fn dense(&self, program: &str) -> bool {
        self.grows(program, "FIXED 64 KB").is_some_and(|growth| growth <= 10.0)
            && self.get(program, "FIXED 4 KB").is_some_and(|base| base.tlb_mcpi() >= 0.05)
    }

    fn removes_misses(&self) -> Claim {
        let dense = self.each(|p| self.removed(p, "APPROX-ONLINE").filter(|_| self.dense(p)));
        let (total, short): (usize, Vec<_>) =
            (dense.len(), dense.into_iter().filter(|(_, gone)| *gone < 97.0).collect());
        let measured = format!(
            "{} of {total} dense workloads; less on: {}",
            total - short.len(),
            list(&short, 1)
        );
        let text = "APPROX-ONLINE removes at least 97 % of the TLB misses of 4 KB pages where \
                    the working set is dense (64 KB pages take at most 10 % more memory, TLBMCPI \
                    of at least 0.05)";
        claim_of(total, text, measured, short.is_empty())
    }

    fn keeps_memory(&self) -> Claim {
        let mut growth = self.each(|p| self.grows(p, "APPROX-ONLINE"));
        growth.sort_by(|a, b| b.1.total_cmp(&a.1));
        let most = growth.first().map_or(0.0, |(_, most)| *most);
        let total = growth.len();
        let above: Vec<_> = growth.into_iter().filter(|(_, growth)| *growth > 4.0).collect();
        let measured = format!("at most {most:.1} %; more than 4 % on: {}", list(&above, 1));
        let text = "APPROX-ONLINE takes at most 4 % more memory";
        claim_of(total, text, measured, above.is_empty())
    }

    /// Programs of which there are outcomes of both policies.
    fn compared(&self, policy: &str, other: &str) -> usize {
        let both = |p: &&&str| self.get(p, policy).is_some() && self.get(p, other).is_some();
        self.programs.iter().filter(both).count()
    }

    /// Programs on which a policy is ahead of APPROX-ONLINE in one respect and not behind in the
    /// other.
    fn behind(&self, other: &str) -> Vec<(String, f64)> {
        self.each(|program| {
            let [own, its] = [self.get(program, "APPROX-ONLINE")?, self.get(program, other)?];
            let (gain, more) = (own.tlb_mcpi() - its.tlb_mcpi(), own.pages >= its.pages);
            (more && gain >= EQUAL || own.pages > its.pages && gain >= 0.0).then_some(gain)
        })
    }

    fn leads(&self, others: &[&str], text: &str) -> Claim {
        let lost: Vec<String> = others
            .iter()
            .map(|other| (other, self.behind(other)))
            .filter(|(_, programs)| !programs.is_empty())
            .map(|(other, programs)| format!("{other} on {}", list(&programs, 3)))
            .collect();
        let holds = lost.is_empty();
        let measured = if holds { "no policy ahead".to_owned() } else { lost.join("; ") };
        let measured =
            if holds { measured } else { format!("ahead of it, by TLBMCPI: {measured}") };
        let compared = others.iter().map(|other| self.compared("APPROX-ONLINE", other)).sum();
        claim_of(compared, text, measured, holds)
    }

    /// Programs on which ONLINE has more TLBMCPI than another policy.
    fn online_over(&self, other: &str) -> Vec<(String, f64)> {
        self.each(|program| {
            let [online, other] = ["ONLINE", other].map(|p| self.get(program, p));
            let gap = online?.tlb_mcpi() - other?.tlb_mcpi();
            (gap > 0.0).then_some(gap)
        })
    }

    fn online_is_dear(&self) -> Claim {
        let total = self.compared("ONLINE", "APPROX-ONLINE");
        let (worse, loses) = (self.online_over("APPROX-ONLINE"), self.online_over("FIXED 4 KB"));
        let measured = format!(
            "behind APPROX-ONLINE on {} of {total}; behind FIXED 4 KB on {}: {}",
            worse.len(),
            loses.len(),
            list(&loses, 3)
        );
        let text = "ONLINE loses to bookkeeping what it gains: behind APPROX-ONLINE on every \
                    workload with TLB misses";
        let gains = self.each(|program| {
            let [online, approx] = ["ONLINE", "APPROX-ONLINE"].map(|p| self.get(program, p));
            let gap = online?.tlb_mcpi() - approx?.tlb_mcpi();
            (gap <= 0.0 && online?.tlb_mcpi() >= EQUAL).then_some(gap)
        });
        claim_of(total, text, measured, gains.is_empty())
    }

    fn asap_fails(&self) -> Claim {
        // Holes: it cannot build what all other policies build.
        let fails = self.each(|program| {
            let [asap, approx] = ["ASAP", "APPROX-ONLINE"].map(|p| self.get(program, p));
            let left = asap?.tlb_misses as f64 / approx?.tlb_misses.max(1) as f64;
            (left > 2.0).then_some(left)
        });
        let text = "ASAP fails on fragmented address spaces: at least one workload on which it \
                    leaves more than twice the misses of APPROX-ONLINE";
        claim(text, format!("times as many: {}", list(&fails, 1)), !fails.is_empty())
    }

    fn throttled(&self, policy: &str, text: &str) -> Claim {
        let above = |most: f64| {
            self.each(|program| {
                let [with, base] = [policy, "FIXED 4 KB"].map(|p| self.get(program, p));
                let extra = with?.tlb_mcpi() - base?.tlb_mcpi();
                (extra > most).then_some(extra)
            })
        };
        let (any, over) = (above(0.0), above(0.02));
        let measured =
            format!("more than FIXED 4 KB on: {}; above 0.02: {}", list(&any, 3), list(&over, 3));
        claim_of(self.compared(policy, "FIXED 4 KB"), text, measured, over.is_empty())
    }
}

/// Chapter 3, and section 6.5 without caches.
fn superpages(results: Results<'_>) -> Vec<Claim> {
    let programs = results.programs(Part::Superpages).into_iter().map(|(name, _)| name).collect();
    let all = Promotion { results, programs };
    vec![
        all.removes_misses(),
        all.keeps_memory(),
        all.leads(
            &["ASAP", "ASAP-4-64", "ONLINE"],
            "APPROX-ONLINE is ahead of every other promotion policy but OFFLINE in TLBMCPI or \
             memory on every workload",
        ),
        all.leads(
            &["FIXED 4 KB", "FIXED 16 KB", "FIXED 64 KB"],
            "the same against pages of one size",
        ),
        all.online_is_dear(),
        all.asap_fails(),
        all.throttled("THROTTLE", "THROTTLE costs at most 0.02 more TLBMCPI than FIXED 4 KB"),
        all.throttled("THROTTLE-Strict", "THROTTLE with strict bounds (ours): the same"),
    ]
}

/// Figure 4-1, figure 5-3 and section 5.7 for an initial mapping.
struct Conflicts<'a> {
    results: Results<'a>,
    initial: Initial,
    programs: Vec<&'a str>,
}

impl Conflicts<'_> {
    fn get(&self, program: &str, policy: &str) -> Option<&Outcome> {
        self.results.get(Part::Conflicts, self.initial, program, policy)
    }

    fn l2(&self, program: &str, policy: &str) -> Option<f64> {
        self.get(program, policy).map(Outcome::l2_mcpi)
    }

    /// Programs and a figure of each.
    fn each(&self, of: impl Fn(&str) -> Option<f64>) -> Vec<(String, f64)> {
        self.programs.iter().filter_map(|p| Some(((*p).to_owned(), of(p)?))).collect()
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

    fn ranks(&self, policy: &str) -> Claim {
        let all = self.each(|program| self.behind_best(program, policy));
        let total = all.len();
        let behind: Vec<_> = all.into_iter().filter(|(_, gap)| *gap > EQUAL).collect();
        let good = total - behind.len();
        let text = format!(
            "{policy} beats or equals every other software policy on 8 of 10 workloads, {}",
            self.initial.text()
        );
        let measured = format!("{good} of {total}; behind on: {}", list(&behind, 3));
        claim_of(total, &text, measured, good * 10 >= total * 8)
    }

    fn leads(&self, policy: &str, other: &str) -> Claim {
        let all = self.each(|program| {
            self.conflicting(program)?;
            Some(self.l2(program, policy)? - self.l2(program, other)?)
        });
        let total = all.len();
        let behind: Vec<_> = all.into_iter().filter(|(_, gap)| *gap > EQUAL).collect();
        let text = format!(
            "{policy} beats {other} on workloads with conflicts (A2 is ahead of DM by more than \
             {CONFLICT} MCPI), {}",
            self.initial.text()
        );
        let good = total - behind.len();
        let measured = format!("{good} of {total}; behind on: {}", list(&behind, 3));
        claim_of(total, &text, measured, behind.is_empty())
    }

    fn harmless(&self, policy: &str) -> Claim {
        let all = self.each(|program| {
            let [with, base] = [self.get(program, policy)?, self.get(program, "DM")?];
            let percent = 100.0 * (with.costs.cycles() as f64 / base.costs.cycles() as f64 - 1.0);
            Some(percent).filter(|_| self.conflicting(program).is_none())
        });
        let total = all.len();
        let slower: Vec<_> = all.into_iter().filter(|(_, percent)| *percent > 1.0).collect();
        let text = format!(
            "{policy} slows no workload without such conflicts by more than 1 %, {}",
            self.initial.text()
        );
        let good = total - slower.len();
        let measured = format!("{good} of {total}; percent more: {}", list(&slower, 1));
        claim_of(total, &text, measured, slower.is_empty())
    }
}

fn conflicts(results: Results<'_>, initial: Initial) -> Vec<Claim> {
    let programs = results.programs(Part::Conflicts).into_iter().map(|(name, _)| name).collect();
    let of = Conflicts { results, initial, programs };
    let mut all = vec![of.ranks("Snapshot-Miss"), of.ranks("Snapshot-Fit")];
    all.extend([of.leads("CML", "Snapshot-Miss"), of.leads("CML-Fit", "Snapshot-Fit")]);
    all.extend(["Snapshot-Miss", "CML", "Snapshot-Fit", "CML-Fit"].map(|p| of.harmless(p)));
    all
}

/// Section 6.6.4: the sum of the gains, and neither part alone is ahead.
fn combined(results: Results<'_>, initial: Initial, policy: &str) -> Vec<Claim> {
    let recoloring = if policy == "COMBINED" { "CML" } else { "CML-Fit" };
    let get = |program: &str, policy: &str| results.get(Part::Combined, initial, program, policy);
    let (mut total, mut apart, mut worse) = (0, Vec::new(), Vec::new());
    for (program, _) in results.programs(Part::Combined) {
        let (Some(both), Some(one), Some(other)) =
            (get(program, policy), get(program, "THROTTLE"), get(program, recoloring))
        else {
            continue;
        };
        total += 1;
        let ideal = one.rates.tlb_mcpi + other.l2_mcpi() - other.rates.tlb_mcpi;
        apart.push((program.to_owned(), both.l2_mcpi() - ideal));
        let most = one.l2_mcpi().max(other.l2_mcpi());
        worse.push((program.to_owned(), both.l2_mcpi() - most));
    }
    apart.retain(|(_, gap)| *gap > 0.03);
    worse.retain(|(_, gap)| *gap > EQUAL);
    let (good, mapping) = (total - apart.len(), initial.text());
    let text = format!(
        "{policy} is within 0.03 MCPI of the sum of THROTTLE and {recoloring} on 6 of 10 \
         workloads, {mapping}"
    );
    let measured = format!("{good} of {total}; off on: {}", list(&apart, 3));
    let first = claim_of(total, &text, measured, good * 10 >= total * 6);
    let text = format!("{policy} is never worse than both parts, {mapping}");
    let measured = format!("worse on: {}", list(&worse, 3));
    [first, claim_of(total, &text, measured, worse.is_empty())].into()
}

/// Section 6.5.3 with caches: figure 6-5.
fn throttle_with_caches(results: Results<'_>) -> Claim {
    let programs = results.programs(Part::Combined);
    let of = |program: &str, policy| results.colored(Part::Combined, program, policy);
    let extra = |program: &str| {
        Some(of(program, "THROTTLE")?.rates.tlb_mcpi - of(program, "DM")?.rates.tlb_mcpi)
    };
    let mut above: Vec<(String, f64)> =
        programs.iter().filter_map(|(p, _)| Some(((*p).to_owned(), extra(p)?))).collect();
    let total = above.len();
    above.retain(|(_, extra)| *extra > 0.02);
    let text = "THROTTLE costs at most 0.02 more TLBMCPI than DM on the machine with caches";
    claim_of(total, text, format!("more on: {}", list(&above, 3)), above.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::cost::Costs;
    use crate::experiments::romer::variants::Variant;

    fn outcome(part: Part, policy: &str, tlb_misses: u64, copies: u64, pages: u64) -> Outcome {
        let costs = Costs {
            instructions: 1_000_000,
            tlb_cycles: 30 * tlb_misses,
            promotion_cycles: copies,
            ..Costs::default()
        };
        Outcome {
            program: "p".into(),
            stands_for: "",
            variant: Variant { part, initial: Initial::Coloring, policy: policy.into() },
            records: 1,
            costs,
            rates: costs.rates(),
            tlb_misses,
            pages,
            last_requests: 0,
            second_hits: 0,
            moved: BTreeMap::new(),
            promoted: BTreeSet::new(),
        }
    }

    fn find<'a>(claims: &'a [Claim], text: &str) -> &'a Claim {
        claims.iter().find(|claim| claim.text.starts_with(text)).expect(text)
    }

    #[test]
    fn claims_about_superpages_hold_and_fail_by_their_figures() {
        let with = |approx, pages, throttle| {
            let of = |policy, misses, copies, pages| {
                outcome(Part::Superpages, policy, misses, copies, pages)
            };
            claims(&[
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
    fn combined_has_to_be_near_the_sum_of_its_parts() {
        let with = |combined| {
            claims(&[
                outcome(Part::Combined, "DM", 50_000, 0, 10),
                outcome(Part::Combined, "CML", 50_000, 0, 10),
                outcome(Part::Combined, "THROTTLE", 1_000, 0, 10),
                outcome(Part::Combined, "COMBINED", combined, 0, 10),
            ])
        };
        let text = "COMBINED is within 0.03 MCPI of the sum of THROTTLE and CML";
        assert!(find(&with(1_500), text).holds);
        assert!(!find(&with(3_000), text).holds);
        assert!(!find(&with(60_000), "COMBINED is never worse").holds);
    }

    #[test]
    fn nothing_holds_of_workloads_that_were_not_run() {
        let found = claims(&[
            outcome(Part::Superpages, "FIXED 4 KB", 100_000, 0, 100),
            outcome(Part::Conflicts, "DM", 50_000, 0, 10),
            outcome(Part::Combined, "DM", 50_000, 0, 10),
        ]);
        assert!(found.len() > 20);
        let holds: Vec<_> = found.iter().filter(|claim| claim.holds).collect();
        assert_eq!(holds, Vec::<&Claim>::new());
    }

    #[test]
    fn without_outcomes_nothing_is_claimed() {
        assert_eq!(claims(&[]), []);
    }
}
