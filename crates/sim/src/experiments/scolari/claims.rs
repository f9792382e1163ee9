//! What Scolari says of figures 9 to 11, as statements with a bar each, and whether the outcomes
//! bear them out. Whatever fails is named with its figure.

use super::super::report::{Claim, claim_of, list};
use super::cases::{COLORS, Part, Scheme};
use super::outcome::{Outcome, Results};
use super::programs::PROGRAMS;

/// A slowdown from which on a program is sensitive (section 5.2).
const SENSITIVE: f64 = 0.30;
/// What two runs of a program may differ by and still be called equal.
const EQUAL: f64 = 0.01;
/// How far a target beside others may be from its time alone.
const NEAR: f64 = 0.10;
/// Colours from which on bits 15 and 16 have all their values.
const PLATEAU: u16 = 4;

/// All statements for whose part there are outcomes.
pub fn claims(outcomes: &[Outcome]) -> Vec<Claim> {
    let results = Results(outcomes);
    let has = |part| outcomes.iter().any(|outcome| outcome.part == part);
    let mut all = Vec::new();
    if has(Part::Alone) {
        all.extend([
            monotonic(results),
            classified(results),
            plateau(results),
            larger_plateau(results),
            quarter(results),
            never_slower(results),
        ]);
    }
    for part in [Part::Mixed, Part::Limited] {
        if has(part) {
            all.extend([isolated(results, part), not_isolated(results, part)]);
        }
    }
    all
}

type Curve = (String, Vec<(u16, f64)>);

/// Slowdowns of every program alone, of those that have at least two shares.
fn curves(results: Results<'_>, scheme: Scheme) -> Vec<Curve> {
    let all = PROGRAMS
        .iter()
        .map(|own| (own.name.to_owned(), results.slowdowns(Part::Alone, own.name, scheme)));
    all.filter(|(_, curve)| curve.len() > 1).collect()
}

/// How much faster a program is with the first share than with the second.
fn gain(from: f64, to: f64) -> f64 {
    (1.0 + from) / (1.0 + to) - 1.0
}

fn percent(names: Vec<(String, f64)>) -> String {
    let names: Vec<_> = names.into_iter().map(|(name, part)| (name, 100.0 * part)).collect();
    list(&names, 1)
}

fn monotonic(results: Results<'_>) -> Claim {
    let curves = curves(results, Scheme::Aware);
    let worst = |(name, curve): &Curve| {
        let rises = curve.windows(2).map(|pair| -gain(pair[0].1, pair[1].1));
        (name.clone(), rises.fold(0.0, f64::max))
    };
    let rises: Vec<_> = curves.iter().map(worst).filter(|(_, rise)| *rise > 0.0).collect();
    let holds = rises.iter().all(|(_, rise)| *rise <= EQUAL);
    let text = "alone, hash-aware: every slowdown falls monotonically with the share (no larger \
                share is slower by more than 1 %)";
    claim_of(curves.len(), text, format!("percent slower: {}", percent(rises)), holds)
}

/// Table II. Beginning below the paper's plots would classify by what the paper has not seen.
fn classified(results: Results<'_>) -> Claim {
    let least = PROGRAMS.iter().filter_map(|own| {
        let curve = results.slowdowns(Part::Alone, own.name, Scheme::Aware).into_iter();
        let mut plotted = curve.filter(|(share, _)| (own.least..COLORS).contains(share));
        Some((own, plotted.next()?.1))
    });
    let least: Vec<_> = least.collect();
    let holds = least.iter().all(|(own, slowdown)| (*slowdown >= SENSITIVE) == own.sensitive);
    let measured = least.iter().map(|(own, slowdown)| (own.name.to_owned(), *slowdown)).collect();
    let text = "alone, hash-aware: the sensitive programs are those of table II (30 % and more \
                slower with the least share, from 1.88 MB on for bzip2 and gcc)";
    claim_of(least.len(), text, format!("percent: {}", percent(measured)), holds)
}

/// Bits 17 and 18 do not limit.
fn plateau(results: Results<'_>) -> Claim {
    let curves = curves(results, Scheme::Unaware);
    let most = |(name, curve): &Curve| {
        let whole = curve.last()?.1;
        let flat = curve.iter().filter(|(share, _)| (PLATEAU..COLORS).contains(share));
        let apart = flat.map(|(_, slowdown)| gain(*slowdown, whole).abs());
        Some((name.clone(), apart.reduce(f64::max)?))
    };
    let apart: Vec<_> = curves.iter().filter_map(most).collect();
    let holds = apart.iter().all(|(_, apart)| *apart <= EQUAL);
    let text = "alone, hash-unaware: from 2.5 MB on every program is as fast as with the whole \
                cache, to 1 % (bits 17 and 18 do not limit)";
    claim_of(apart.len(), text, format!("percent apart: {}", percent(apart)), holds)
}

/// The least share from which on a program is as fast as with the largest, to 1 %.
fn begins(curve: &[(u16, f64)]) -> Option<u16> {
    let whole = curve.last()?.1;
    let flat = curve.iter().rev().take_while(|(_, own)| gain(*own, whole).abs() <= EQUAL);
    flat.last().map(|(share, _)| *share)
}

/// Section 5.2: hash-unaware curves have the larger plateaus.
fn larger_plateau(results: Results<'_>) -> Claim {
    let sensitive = PROGRAMS.iter().filter(|own| own.sensitive);
    let found = sensitive.filter_map(|own| {
        let of = |scheme| begins(&results.slowdowns(Part::Alone, own.name, scheme));
        Some((own.name, of(Scheme::Unaware)?, of(Scheme::Aware)?))
    });
    let found: Vec<_> = found.collect();
    let holds = found.iter().all(|(_, unaware, aware)| unaware < aware);
    let each = found.iter().map(|(name, u, a)| format!("{name} {u} against {a}"));
    let measured = format!("colours: {}", each.collect::<Vec<_>>().join(", "));
    let text = "alone: every sensitive program is as fast as with the whole cache, to 1 %, in fewer \
                colours hash-unaware than hash-aware";
    claim_of(found.len(), text, measured, holds)
}

/// Section 5.2: 1.25 MB unaware are like 5 MB aware, since half of each slice is reached.
fn quarter(results: Results<'_>) -> Claim {
    let sensitive = PROGRAMS.iter().filter(|own| own.sensitive);
    let apart = sensitive.filter_map(|own| {
        let rate =
            |scheme, share| Some(results.alone(own.name, scheme, share)?.counted.miss_rate());
        let apart = rate(Scheme::Unaware, 2)? - rate(Scheme::Aware, 8)?;
        Some((own.name.to_owned(), apart))
    });
    let apart: Vec<_> = apart.collect();
    let holds = apart.iter().all(|(_, apart)| apart.abs() <= 0.05);
    let text = "alone: miss rates of sensitive programs hash-unaware with 1.25 MB are within 5 \
                points of those hash-aware with 5 MB";
    claim_of(apart.len(), text, format!("points apart: {}", percent(apart)), holds)
}

fn never_slower(results: Results<'_>) -> Claim {
    let aware = curves(results, Scheme::Aware);
    let mut worst = Vec::new();
    for (name, curve) in &aware {
        let unaware = results.slowdowns(Part::Alone, name, Scheme::Unaware);
        let pairs = curve.iter().filter_map(|(share, aware)| {
            let own = unaware.iter().find(|(other, _)| other == share)?.1;
            Some(gain(own, *aware))
        });
        worst.extend(pairs.reduce(f64::max).map(|slower| (name.clone(), slower)));
    }
    let compared = worst.len();
    let holds = worst.iter().all(|(_, slower)| *slower <= EQUAL);
    worst.retain(|(_, slower)| *slower > 0.0);
    let text = "alone: no program is slower hash-unaware than hash-aware with the same share, by \
                more than 1 %";
    claim_of(compared, text, format!("percent slower: {}", percent(worst)), holds)
}

/// For each workload that was run, how far its target is from its time alone at the worst.
fn worst(results: Results<'_>, part: Part, scheme: Scheme) -> Vec<(String, f64)> {
    let all = results.workloads(part).into_iter().filter_map(|workload| {
        let disturbed = results.disturbed(part, workload, scheme).into_iter();
        let worst =
            disturbed.map(|(_, apart)| apart).reduce(|a, b| if b.abs() > a.abs() { b } else { a });
        Some((workload.to_owned(), worst?))
    });
    all.collect()
}

fn isolated(results: Results<'_>, part: Part) -> Claim {
    let worst = worst(results, part, Scheme::Aware);
    let outside = results.outside(part, Scheme::Aware);
    let holds = outside == 0 && worst.iter().all(|(_, apart)| apart.abs() <= NEAR);
    let text = format!(
        "{}, hash-aware: at every share the target beside polluters is within 10 % of its time \
         alone, and no frame is of a colour that was not due",
        names(part)
    );
    let (compared, worst) = (worst.len(), percent(worst));
    let measured = match outside {
        0 => format!("percent at worst: {worst}"),
        some => format!("percent at worst: {worst}; frames of another colour: {some}"),
    };
    claim_of(compared, &text, measured, holds)
}

fn not_isolated(results: Results<'_>, part: Part) -> Claim {
    let worst = worst(results, part, Scheme::Unaware);
    let holds = worst.iter().all(|(_, apart)| apart.abs() > NEAR);
    let text = format!("{}, hash-unaware: it is not, in any workload", names(part));
    claim_of(worst.len(), &text, format!("percent at worst: {}", percent(worst)), holds)
}

const fn names(part: Part) -> &'static str {
    match part {
        Part::Alone => "alone",
        Part::Mixed => "W1 to W4",
        Part::Limited => "X1 to X4",
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::coloris::outcome::Sums;
    use super::super::outcome::Told;
    use super::*;

    /// A run of `target` that takes this many cycles for 1000 instructions.
    fn outcome(part: Part, workload: &str, scheme: Scheme, share: u16, cycles: u64) -> Outcome {
        let counted = Sums { instructions: 1000, cycles, requests: 100, misses: cycles / 100 };
        let target = if part == Part::Alone { workload } else { "bzip2" };
        let programs = vec![Told { name: target.to_owned(), counted, outside: 0 }];
        Outcome { part, workload: workload.to_owned(), scheme, share, programs }
    }

    fn alone(scheme: Scheme, cycles: [u64; 4]) -> Vec<Outcome> {
        let shares = [2, 4, 8, 16].into_iter().zip(cycles);
        shares.map(|(share, c)| outcome(Part::Alone, "bzip2", scheme, share, c)).collect()
    }

    fn holds(outcomes: &[Outcome], text: &str) -> bool {
        let all = claims(outcomes);
        all.iter()
            .find(|c| c.text.contains(text))
            .unwrap_or_else(|| panic!("{text}: {all:?}"))
            .holds
    }

    #[test]
    fn curves_alone_are_held_against_their_bars() {
        let mut all = alone(Scheme::Aware, [4000, 3000, 2500, 2000]);
        all.extend(alone(Scheme::Unaware, [2500, 2000, 2000, 2000]));
        for text in [
            "falls monotonically",
            "table II",
            "from 2.5 MB on",
            "in fewer colours",
            "within 5 points",
            "no program is slower",
        ] {
            assert!(holds(&all, text), "{text}");
        }
        all[1].programs[0].counted.cycles = 4100;
        assert!(!holds(&all, "falls monotonically"));
        all[0].programs[0].counted.cycles = 2500;
        assert!(holds(&all, "table II"), "the paper's bzip2 has no run in two colours");
        all[1].programs[0].counted.cycles = 2500;
        assert!(!holds(&all, "table II"), "not sensitive");
        all[5].programs[0].counted.cycles = 2100;
        assert!(!holds(&all, "from 2.5 MB on"));
        all[1].programs[0].counted.cycles = 2000;
        assert!(!holds(&all, "no program is slower"));
        all[4].programs[0].counted.cycles = 2000;
        all[5].programs[0].counted.cycles = 2000;
        assert!(holds(&all, "in fewer colours"), "one against eight");
        all[4].programs[0].counted.cycles = 2500;
        all[5].programs[0].counted.cycles = 2500;
        all[6].programs[0].counted.cycles = 2500;
        assert!(!holds(&all, "in fewer colours"));
        all[4].programs[0].counted.misses = 90;
        assert!(!holds(&all, "within 5 points"));
    }

    #[test]
    fn targets_beside_polluters_are_held_against_themselves_alone() {
        let mut all = alone(Scheme::Aware, [4000, 3000, 2500, 2000]);
        all.extend(alone(Scheme::Unaware, [2500, 2000, 2000, 2000]));
        all.push(outcome(Part::Mixed, "W1", Scheme::Aware, 2, 4300));
        all.push(outcome(Part::Mixed, "W1", Scheme::Unaware, 2, 3000));
        assert!(holds(&all, "W1 to W4, hash-aware") && holds(&all, "W1 to W4, hash-unaware"));
        all[8].programs[0].outside = 1;
        assert!(!holds(&all, "W1 to W4, hash-aware"), "a frame of another colour");
        all[8].programs[0].outside = 0;
        all[8].programs[0].counted.cycles = 4500;
        all[9].programs[0].counted.cycles = 2700;
        assert!(!holds(&all, "W1 to W4, hash-aware") && !holds(&all, "W1 to W4, hash-unaware"));
    }

    #[test]
    fn nothing_holds_of_what_was_not_run() {
        assert_eq!(claims(&[]), []);
        for part in Part::ALL {
            let lone = Outcome {
                part,
                workload: "?".to_owned(),
                scheme: Scheme::Aware,
                share: 1,
                programs: vec![],
            };
            let found = claims(&[lone]);
            assert!(!found.is_empty() && found.iter().all(|claim| !claim.holds), "{part:?}");
        }
    }
}
