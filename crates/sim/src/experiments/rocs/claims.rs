//! What ROCS (2008) says, and what is asked beyond it, as statements with a bar each, computed from
//! the outcomes.

use super::super::report::{Claim, claim_of, list};
use super::run::Outcome;
use super::tables::{counts, mean, saved_in_tlb, share_of_paper};
use super::variants::Variant;

/// Percent within which the search has to be of trying everything (section 6.2).
const NEAR: f64 = 2.1;

type Named = Vec<(String, f64)>;

fn each(outcomes: &[Outcome], of: impl Fn(&Outcome) -> Option<f64>) -> Named {
    outcomes.iter().filter_map(|o| Some((o.program.clone(), of(o)?))).collect()
}

fn outside(all: &Named, bad: impl Fn(f64) -> bool) -> Named {
    all.iter().filter(|(_, value)| bad(*value)).cloned().collect()
}

/// All statements; about nothing none holds.
pub fn claims(outcomes: &[Outcome]) -> Vec<Claim> {
    if outcomes.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::from(gains(outcomes));
    all.push(harmless(outcomes));
    all.push(near_best(outcomes, Variant::Rocs));
    all.extend(art(outcomes));
    all.push(swim(outcomes));
    all.push(left_out(outcomes));
    all.extend(overhead(outcomes));
    all.extend(model(outcomes));
    all.extend(traced(outcomes));
    all
}

/// Section 6.2.
fn gains(outcomes: &[Outcome]) -> [Claim; 2] {
    let counted: Vec<Outcome> = outcomes.iter().filter(|o| counts(o)).cloned().collect();
    let all = each(&counted, |o| o.gain(Variant::Rocs));
    let average = mean(all.iter().map(|(_, gain)| *gain)).unwrap_or(0.0);
    let best = all.iter().map(|(_, gain)| *gain).fold(0.0, f64::max);
    let text = "ROCS gains 16 % on average of the seven stand-ins";
    let enough = if all.len() == 7 { 7 } else { 0 };
    let measured = format!("{average:.1} % on {}: {}", all.len(), list(&all, 1));
    let first = claim_of(enough, text, measured, average >= 16.0);
    let text = "its best gain is 34 % at least";
    [first, claim_of(all.len(), text, format!("{best:.1} %"), best >= 34.0)]
}

fn harmless(outcomes: &[Outcome]) -> Claim {
    let all = each(outcomes, |o| o.gain(Variant::Rocs));
    let worse = outside(&all, |gain| gain < -1.0);
    let measured = format!("worse: {}", list(&worse, 1));
    claim_of(all.len(), "ROCS slows no workload by more than 1 %", measured, worse.is_empty())
}

/// Percent of the best prefix's speed that a variant lacks.
fn behind(outcome: &Outcome, variant: Variant) -> Option<f64> {
    Some(outcome.best()?.gain - outcome.gain(variant)?)
}

fn near_best(outcomes: &[Outcome], variant: Variant) -> Claim {
    let all = each(outcomes, |o| behind(o, variant));
    let far = outside(&all, |gap| gap > NEAR);
    let text = "ROCS gains at most 2.1 % less than the best of all prefixes, everywhere";
    let measured = format!("behind by more: {}", list(&far, 1));
    claim_of(all.len(), text, measured, far.is_empty())
}

/// Section 6.3.
fn art(outcomes: &[Outcome]) -> Vec<Claim> {
    let arts = || outcomes.iter().filter(|o| o.stands_for == "art" && !o.traced);
    let mut all = Vec::new();
    for [weights, layer] in arts().filter_map(|o| <&[_; 2]>::try_from(o.regions.as_slice()).ok()) {
        let share =
            |region: &super::run::Region| region.confined as f64 / region.pages.max(1) as f64;
        let (streamed, reused) = (share(weights), share(layer));
        let text = "art: the streamed arrays are chosen, most of their pages and a larger share than \
                    of the layer";
        let measured = format!("{:.0} % and {:.0} %", 100.0 * streamed, 100.0 * reused);
        let samples = weights.pages.min(layer.pages);
        all.push(claim_of(samples, text, measured, streamed > 0.5 && streamed > reused));
        let (before, after) = (layer.before.percent(), layer.after.percent());
        let (before, after) = (before.unwrap_or(0.0), after.unwrap_or(100.0));
        let text = "art: the layer's miss rate falls by a sixth at least";
        let measured = format!("from {before:.1} to {after:.1} %");
        all.push(claim_of(samples, text, measured, after <= before * 5.0 / 6.0));
    }
    if all.is_empty() {
        let text =
            "art: the streamed arrays are chosen, and the layer's miss rate falls by a sixth";
        all.push(claim_of(0, text, "not run".to_owned(), false));
    }
    all
}

/// Section 6.4.
fn swim(outcomes: &[Outcome]) -> Claim {
    let text = "swim: more than half of the cycles saved are saved in walks, which come to be faster \
                by half";
    let found = outcomes.iter().filter(|o| o.stands_for == "swim" && !o.traced).find_map(|o| {
        let rocs = &o.of(Variant::Rocs)?.window;
        Some((saved_in_tlb(&o.linux, rocs)?, o.linux.per_walk()?, rocs.per_walk()?))
    });
    let Some((saved, before, after)) = found else {
        return claim_of(0, text, "nothing saved, or not run".to_owned(), false);
    };
    let measured = format!("{saved:.0} % of them; {before:.0} to {after:.0} cycles per walk");
    claim_of(1, text, measured, saved > 50.0 && after <= before / 2.0)
}

fn left_out(outcomes: &[Outcome]) -> Claim {
    let of: Vec<Outcome> =
        outcomes.iter().filter(|o| ["ammp", "mcf"].contains(&o.stands_for)).cloned().collect();
    let all = each(&of, |o| o.gain(Variant::Rocs));
    let hurt = outside(&all, |gain| gain < -1.0);
    let text = "the stand-ins for ammp and mcf are not slowed by more than 1 %";
    let enough = if all.len() == 2 { 2 } else { 0 };
    claim_of(enough, text, format!("gains: {}", list(&all, 1)), hurt.is_empty())
}

/// Section 6.1.
fn overhead(outcomes: &[Outcome]) -> [Claim; 4] {
    // A program that was not profiled has nothing to show.
    let profiled = |o: &'_ Outcome| o.of(Variant::Rocs).filter(|rocs| rocs.profiles > 0).cloned();
    let all = each(outcomes, |o| {
        let parts = share_of_paper(o, &profiled(o)?)?;
        Some(parts.iter().sum())
    });
    let ours = each(outcomes, |o| {
        let rocs = profiled(o)?;
        Some(100.0 * (rocs.monitoring + rocs.moving) as f64 / rocs.cycles.max(1) as f64)
    });
    let worst = |all: &Named| all.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    let average = |all: &Named| mean(all.iter().map(|(_, share)| *share)).unwrap_or(0.0);
    let at_most = |all: &Named, run: &str| {
        let text = format!("monitoring and moving take 3.8 % of {run} at most");
        claim_of(all.len(), &text, format!("{:.3} %", worst(all)), worst(all) <= 3.8)
    };
    let on_average = |all: &Named, run: &str| {
        let text = format!("monitoring and moving take 1.6 % of {run} on average");
        claim_of(all.len(), &text, format!("{:.3} %", average(all)), average(all) <= 1.6)
    };
    let (long, own) =
        ("a run as long as the paper's", "our runs, which end soon after the search,");
    [at_most(&all, long), on_average(&all, long), at_most(&ours, own), on_average(&ours, own)]
}

/// Beyond the paper.
fn model(outcomes: &[Outcome]) -> [Claim; 3] {
    let lacks = each(outcomes, |o| Some(o.gain(Variant::Rocs)? - o.gain(Variant::Model)?));
    let far = outside(&lacks, |gap| gap > NEAR);
    let text = "the model gains at most 2.1 % less than the search, everywhere";
    let measured = format!("behind by more: {}", list(&far, 1));
    let first = claim_of(lacks.len(), text, measured, far.is_empty());
    // Phases that begin anew make either try again: trials are counted per profile.
    let trials = each(outcomes, |o| {
        let per = |v| o.of(v).map(|v| f64::from(v.trials) / f64::from(v.profiles.max(1)));
        let searched = per(Variant::Rocs).filter(|trials| *trials > 0.0)?;
        Some(per(Variant::Model)? / searched)
    });
    let many = outside(&trials, |share| share > 0.1);
    let text = "with a tenth of the mappings tried, per profile";
    let measured = format!("more than that: {}", list(&many, 2));
    let second = claim_of(trials.len(), text, measured, many.is_empty());
    let all = each(outcomes, |o| o.gain(Variant::Model));
    let worse = outside(&all, |gain| gain < -1.0);
    let measured = format!("worse: {}", list(&worse, 1));
    let text = "the model slows no workload by more than 1 %";
    [first, second, claim_of(all.len(), text, measured, worse.is_empty())]
}

/// Programs that nobody here wrote, if there are any.
fn traced(outcomes: &[Outcome]) -> Option<Claim> {
    let of: Vec<Outcome> = outcomes.iter().filter(|o| o.traced).cloned().collect();
    let all = each(&of, |o| o.gain(Variant::Rocs));
    let better = all.iter().all(|(_, gain)| *gain > 0.0);
    let text = "the programs of the traces gain from ROCS";
    (!all.is_empty()).then(|| claim_of(all.len(), text, list(&all, 1), better))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::run::{Online, Prefix, Region, Seen, Window};
    use super::*;

    /// A workload on which every variant gains so many percent, and the best prefix the same.
    pub fn outcome(program: &str, stands_for: &'static str, gain: f64) -> Outcome {
        let linux = Window {
            instructions: 1_000_000,
            cycles: 4_000_000,
            misses: 10_000,
            ..Window::default()
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "millions")]
        let cycles = (4_000_000.0 / (1.0 + gain / 100.0)).round() as u64;
        let online = Variant::ACTIVE.map(|variant| Online {
            variant,
            window: Window { cycles, ..linux },
            whole_ipc: 0.25,
            confined: 100,
            trials: if variant == Variant::Model { 1 } else { 11 },
            profiles: 1,
            left: 0,
            settled: true,
            cycles: 100_000_000,
            monitoring: 1_000_000,
            moving: 1_000_000,
        });
        Outcome {
            program: program.into(),
            stands_for,
            traced: false,
            pages: 1000,
            linux,
            online: online.into(),
            offline: vec![Prefix { pages: 100, gain }],
            seen: Seen { requests: 100, misses: 50 },
            regions: Vec::new(),
        }
    }

    fn find<'a>(claims: &'a [Claim], text: &str) -> &'a Claim {
        claims.iter().find(|claim| claim.text.contains(text)).expect(text)
    }

    const SEVEN: [&str; 7] = ["art", "swim", "mgrid", "apsi", "twolf", "vpr", "CG"];

    #[test]
    fn gains_hold_of_all_seven_or_not_at_all() {
        let all: Vec<Outcome> = SEVEN.iter().map(|name| outcome(name, name, 40.0)).collect();
        let found = claims(&all);
        assert!(find(&found, "16 % on average").holds && find(&found, "best gain").holds);
        assert!(find(&found, "slows no workload").holds);
        assert!(!find(&claims(&all[1..]), "16 % on average").holds, "six are not seven");
        let slow: Vec<Outcome> = SEVEN.iter().map(|name| outcome(name, name, -3.0)).collect();
        let found = claims(&slow);
        assert!(!find(&found, "16 % on average").holds && !find(&found, "slows no workload").holds);
        assert!(!find(&found, "model slows no").holds);
    }

    #[test]
    fn what_lacks_more_than_the_bar_is_named() {
        let mut one = outcome("vpr", "vpr", 5.0);
        one.offline.push(Prefix { pages: 200, gain: 9.0 });
        let found = claims(&[one.clone()]);
        let near = find(&found, "best of all prefixes");
        assert!(!near.holds && near.measured.contains("vpr 4.0"), "{near:?}");
        assert!(find(&found, "a tenth of the mappings").holds);
        one.online[2].trials = 5;
        assert!(!find(&claims(&[one]), "a tenth of the mappings").holds);
    }

    #[test]
    fn art_needs_its_weights_confined_and_its_layer_helped() {
        let region = |name, confined, misses| Region {
            name,
            pages: 100,
            confined,
            before: Seen { requests: 100, misses: 42 },
            after: Seen { requests: 100, misses },
        };
        let mut art = outcome("art", "art", 20.0);
        art.regions = vec![region("weights", 90, 80), region("layer", 10, 35)];
        assert!(find(&claims(&[art.clone()]), "streamed arrays").holds);
        assert!(find(&claims(&[art.clone()]), "layer's miss rate").holds);
        art.regions = vec![region("weights", 10, 80), region("layer", 90, 36)];
        assert!(!find(&claims(&[art.clone()]), "streamed arrays").holds);
        assert!(!find(&claims(&[art]), "layer's miss rate").holds);
        assert!(!find(&claims(&[outcome("vpr", "vpr", 1.0)]), "streamed arrays").holds);
    }

    #[test]
    fn swim_has_to_save_in_walks() {
        let mut swim = outcome("swim-across", "swim", 100.0);
        (swim.linux.tlb_cycles, swim.linux.walks, swim.linux.walk_cycles) =
            (2_000_000, 5_000, 2_000_000);
        let window = &mut swim.online[0].window;
        (window.tlb_cycles, window.walks, window.walk_cycles) = (600_000, 5_000, 600_000);
        assert!(find(&claims(&[swim.clone()]), "swim: more").holds);
        swim.online[0].window.tlb_cycles = 1_500_000;
        assert!(!find(&claims(&[swim]), "swim: more").holds);
    }

    #[test]
    fn nothing_holds_of_nothing() {
        assert_eq!(claims(&[]), []);
        let mut empty = outcome("a", "", 50.0);
        (empty.online, empty.offline) = (Vec::new(), Vec::new());
        // One that ended before its window began.
        let mut short = outcome("CG", "CG", 50.0);
        (short.linux, short.offline, short.traced) = (Window::default(), Vec::new(), true);
        for online in &mut short.online {
            (online.window, online.trials, online.profiles) = (Window::default(), 0, 0);
        }
        let found = claims(&[empty, short]);
        let holds: Vec<&Claim> = found.iter().filter(|c| c.holds).collect();
        assert_eq!(holds, Vec::<&Claim>::new());
    }
}
