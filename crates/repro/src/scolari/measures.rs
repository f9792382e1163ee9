//! What the statements about Scolari's figures 5 and 9 to 12 ask for, computed from the outcomes.

use super::cases::{COLORS, Scheme, ScolariPart};
use super::outcome::{ScolariOutcome, ScolariResults};
use super::programs::PROGRAMS;
use super::tables::l2_of;
use super::threads;
use crate::engine::{MeasuredFigures, Named as _};

/// What two runs of a program may differ by and still be called equal.
const EQUAL: f64 = 0.01;
/// Colours from which on bits 15 and 16 have all their values.
const PLATEAU: u16 = 4;

/// The figures of a measure.
///
/// # Panics
/// At a name that it does not know.
pub fn measure(outcomes: &[ScolariOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
    let results = ScolariResults(outcomes);
    match (name, told) {
        ("larger-share-slower", _) => larger_share_slower(results),
        ("wrongly-classified", &[percent]) => wrongly_classified(results, number(percent) / 100.0),
        ("apart-from-whole", _) => apart_from_whole(results),
        ("plateau-unaware-over-aware", _) => plateaus(results),
        ("quarter-apart", _) => quarter_apart(results),
        ("unaware-slower", _) => unaware_slower(results),
        ("sensitive-with-l2", &[percent]) => sensitive_with_l2(results, number(percent) / 100.0),
        ("l2-correlation", &[percent]) => l2_correlation(results, number(percent) / 100.0),
        ("slower-than-with-all-l2", &[percent]) => {
            slower_than_with_all_l2(results, number(percent) / 100.0)
        }
        ("threads-miss-rates-apart", _) => threads::miss_rates_apart(results),
        ("threads-clock-slower", _) => threads::clock_slower(results),
        ("threads-memory-slower", _) => threads::memory_slower(results),
        ("disturbed", &[scheme, part]) => {
            disturbed(results, ScolariPart::named(part), Scheme::named(scheme))
        }
        ("frames-of-other-colours", &[part]) => MeasuredFigures::one(Some(
            results.outside(ScolariPart::named(part), Scheme::Aware) as f64,
        )),
        _ => panic!("Scolari has no measure {name} of {told:?}"),
    }
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Shares and slowdowns.
type Curve = Vec<(u16, f64)>;

/// Slowdowns of every program alone, of those that have at least two shares.
fn curves(results: ScolariResults<'_>, scheme: Scheme) -> Vec<(&'static str, Curve)> {
    let all = PROGRAMS
        .iter()
        .map(|own| (own.name, results.slowdowns(ScolariPart::Alone, own.name, scheme)));
    all.filter(|(_, curve)| curve.len() > 1).collect()
}

/// How much faster a program is with the first share than with the second.
fn gain(from: f64, to: f64) -> f64 {
    (1.0 + from) / (1.0 + to) - 1.0
}

/// Percent that a program is slower with a larger share, at worst.
fn larger_share_slower(results: ScolariResults<'_>) -> MeasuredFigures {
    let worst = |(name, curve): (&'static str, Curve)| {
        let rises = curve.windows(2).map(|pair| -gain(pair[0].1, pair[1].1));
        (name, 100.0 * rises.fold(0.0, f64::max))
    };
    MeasuredFigures::each(curves(results, Scheme::Aware).into_iter().map(worst))
}

/// Programs that are not as table II has them, with percent slower in the least share. Beginning below the
/// paper's plots would classify by what the paper has not seen.
fn wrongly_classified(results: ScolariResults<'_>, sensitive: f64) -> MeasuredFigures {
    let least = PROGRAMS.iter().filter_map(|own| {
        let curve = results.slowdowns(ScolariPart::Alone, own.name, Scheme::Aware).into_iter();
        let mut plotted = curve.filter(|(share, _)| (own.least..COLORS).contains(share));
        Some((own, plotted.next()?.1))
    });
    let least: Vec<_> = least.collect();
    let wrong = least.iter().filter(|(own, slower)| (*slower >= sensitive) != own.sensitive);
    let wrong = wrong.map(|(own, slower)| (own.name.to_owned(), 100.0 * slower));
    MeasuredFigures::against(wrong.collect(), least.len())
}

/// A program of figure 5 and the part of its curve that the paper plots. bzip2, which begins with nearly all
/// of its L2 and is not counted there, is left out.
fn profiles(results: ScolariResults<'_>) -> Vec<(&'static str, Curve)> {
    let counted = PROGRAMS.iter().filter(|own| own.name != "bzip2");
    let curves = counted.map(|own| {
        let scheme = ScolariPart::Profiles.schemes()[0];
        (own.name, results.slowdowns(ScolariPart::Profiles, own.name, scheme))
    });
    curves.filter(|(_, curve)| curve.len() > 1).collect()
}

/// Those that are so much slower with the least share.
fn sensitive(results: ScolariResults<'_>, least: f64) -> Vec<(&'static str, Curve)> {
    profiles(results).into_iter().filter(|(_, curve)| curve[0].1 >= least).collect()
}

/// Section 4: how many programs are sensitive where colours divide the L2, too; 5 in the paper.
fn sensitive_with_l2(results: ScolariResults<'_>, least: f64) -> MeasuredFigures {
    let run = profiles(results).len();
    MeasuredFigures::one((run > 0).then(|| sensitive(results, least).len() as f64))
}

/// Section 4, figure 5: the correlation (Pearson's) of slowdown and amount of L2, of sensitive programs.
fn l2_correlation(results: ScolariResults<'_>, least: f64) -> MeasuredFigures {
    let of = |(name, curve): (&'static str, Curve)| {
        let points: Vec<_> = curve.iter().map(|(share, slow)| (l2_of(*share), *slow)).collect();
        Some((name, correlation(&points)?))
    };
    MeasuredFigures::each(sensitive(results, least).into_iter().filter_map(of))
}

/// Pearson's; none where one of the two never changes.
fn correlation(points: &[(f64, f64)]) -> Option<f64> {
    let mean =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|point| of(point.0 - x, point.1 - y)).sum()
    };
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    (spread > 0.0).then(|| sum(&|x, y| x * y) / spread)
}

/// Percent that a sensitive program is slower with the least share of figure 5 than in as much of the last
/// level with all of its L2 (hash-aware, figure 9).
fn slower_than_with_all_l2(results: ScolariResults<'_>, least: f64) -> MeasuredFigures {
    let of = |(name, curve): (&'static str, Curve)| {
        let all = results.slowdowns(ScolariPart::Alone, name, Scheme::Aware);
        let all = all.iter().find(|(share, _)| *share == curve[0].0)?.1;
        Some((name, 100.0 * gain(curve[0].1, all)))
    };
    MeasuredFigures::each(sensitive(results, least).into_iter().filter_map(of))
}

/// Percent that a program's time from the plateau on differs from that with the whole cache, at most:
/// bits 17 and 18 do not limit.
fn apart_from_whole(results: ScolariResults<'_>) -> MeasuredFigures {
    let most = |(name, curve): (&'static str, Curve)| {
        let whole = curve.last()?.1;
        let flat = curve.iter().filter(|(share, _)| (PLATEAU..COLORS).contains(share));
        let apart = flat.map(|(_, slowdown)| gain(*slowdown, whole).abs());
        Some((name, 100.0 * apart.reduce(f64::max)?))
    };
    MeasuredFigures::each(curves(results, Scheme::Unaware).into_iter().filter_map(most))
}

/// The least share from which on a program is as fast as with the largest.
fn begins(curve: &[(u16, f64)]) -> Option<u16> {
    let whole = curve.last()?.1;
    let flat = curve.iter().rev().take_while(|(_, own)| gain(*own, whole).abs() <= EQUAL);
    flat.last().map(|(share, _)| *share)
}

/// Section 5.2, hash-unaware curves have the larger plateaus: colours in which they begin, less those of
/// hash-aware ones.
fn plateaus(results: ScolariResults<'_>) -> MeasuredFigures {
    let sensitive = PROGRAMS.iter().filter(|own| own.sensitive);
    let found = sensitive.filter_map(|own| {
        let of = |scheme| {
            begins(&results.slowdowns(ScolariPart::Alone, own.name, scheme)).map(f64::from)
        };
        Some((own.name, of(Scheme::Unaware)? - of(Scheme::Aware)?))
    });
    MeasuredFigures::each(found)
}

/// Section 5.2: 1.25 MB unaware are like 5 MB aware, since half of each slice is reached. Points between
/// the miss rates.
fn quarter_apart(results: ScolariResults<'_>) -> MeasuredFigures {
    let sensitive = PROGRAMS.iter().filter(|own| own.sensitive);
    let apart = sensitive.filter_map(|own| {
        let rate =
            |scheme, share| Some(results.alone(own.name, scheme, share)?.counted.miss_rate());
        let apart: f64 = rate(Scheme::Unaware, 2)? - rate(Scheme::Aware, 8)?;
        Some((own.name, 100.0 * apart.abs()))
    });
    MeasuredFigures::each(apart)
}

/// Percent that a program is slower hash-unaware in the same share, at worst.
fn unaware_slower(results: ScolariResults<'_>) -> MeasuredFigures {
    let worst = |(name, curve): (&'static str, Curve)| {
        let unaware = results.slowdowns(ScolariPart::Alone, name, Scheme::Unaware);
        let pairs = curve.iter().filter_map(|(share, aware)| {
            let own = unaware.iter().find(|(other, _)| other == share)?.1;
            Some(gain(own, *aware))
        });
        pairs.reduce(f64::max).map(|slower| (name, 100.0 * slower))
    };
    MeasuredFigures::each(curves(results, Scheme::Aware).into_iter().filter_map(worst))
}

/// For each workload that was run, percent that its target's time differs from that alone, at worst.
fn disturbed(results: ScolariResults<'_>, part: ScolariPart, scheme: Scheme) -> MeasuredFigures {
    let all = results.workloads(part).into_iter().filter_map(|workload| {
        let disturbed = results.disturbed(part, workload, scheme).into_iter();
        let worst = disturbed.map(|(_, apart)| apart.abs()).reduce(f64::max);
        Some((workload, 100.0 * worst?))
    });
    MeasuredFigures::each(all)
}

#[cfg(test)]
mod tests {
    use super::super::ScolariStudy;
    use super::super::changes::ScolariChange;
    use super::super::outcome::ScolariProgramResult;
    use super::*;
    use crate::coloris::outcome::Sums;
    use crate::engine;
    use crate::report::StatementResult;

    fn judged(outcomes: &[ScolariOutcome]) -> Vec<StatementResult> {
        engine::claims::<ScolariStudy>(outcomes, &[])
    }

    /// A run of `target` that takes this many cycles for 1000 instructions.
    fn outcome(
        part: ScolariPart,
        workload: &str,
        scheme: Scheme,
        share: u16,
        cycles: u64,
    ) -> ScolariOutcome {
        let misses = cycles / 100;
        let counted =
            Sums { instructions: 1000, cycles, requests: 100, misses, second: 800, memory: 0 };
        let alone = [ScolariPart::Alone, ScolariPart::Profiles].contains(&part);
        let name = if alone { workload } else { "bzip2" }.to_owned();
        let programs = vec![ScolariProgramResult { name, counted, l2_hits: 100, outside: 0 }];
        let workload = workload.to_owned();
        let change = ScolariChange::Nothing;
        ScolariOutcome { part, workload, scheme, share, elapsed: cycles, programs, change }
    }

    fn alone(scheme: Scheme, cycles: [u64; 4]) -> Vec<ScolariOutcome> {
        let shares = [2, 4, 8, 16].into_iter().zip(cycles);
        shares.map(|(share, c)| outcome(ScolariPart::Alone, "bzip2", scheme, share, c)).collect()
    }

    fn holds(outcomes: &[ScolariOutcome], text: &str) -> bool {
        let all = judged(outcomes);
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
        all.push(outcome(ScolariPart::Mixed, "W1", Scheme::Aware, 2, 4300));
        all.push(outcome(ScolariPart::Mixed, "W1", Scheme::Unaware, 2, 3000));
        assert!(holds(&all, "W1 to W4, hash-aware") && holds(&all, "W1 to W4, hash-unaware"));
        all[8].programs[0].outside = 1;
        assert!(!holds(&all, "W1 to W4, hash-aware"), "a frame of another colour");
        all[8].programs[0].outside = 0;
        all[8].programs[0].counted.cycles = 4500;
        all[9].programs[0].counted.cycles = 2700;
        assert!(!holds(&all, "W1 to W4, hash-aware") && !holds(&all, "W1 to W4, hash-unaware"));
    }

    /// Figure 5 of a program: cycles for 1000 instructions with 2, 4, 8 and 32 colours of 32.
    fn with_l2(name: &str, cycles: [u64; 4]) -> Vec<ScolariOutcome> {
        let shares = [1, 2, 4, 16].into_iter().zip(cycles);
        let of = |(share, c)| outcome(ScolariPart::Profiles, name, Scheme::WithL2, share, c);
        shares.map(of).collect()
    }

    #[test]
    fn slowdowns_follow_the_l2_where_colours_divide_it() {
        // Slower by a half, by a quarter, and not at all: with a quarter, half and all of the L2.
        let names = ["omnetpp", "xalancbmk", "sphinx", "astar", "gcc"];
        let mut all: Vec<_> =
            names.iter().flat_map(|name| with_l2(name, [3000, 2667, 2000, 2000])).collect();
        all.extend(with_l2("bzip2", [9000, 2000, 2000, 2000]));
        all.extend(with_l2("libquantum", [2500, 2000, 2000, 2000]));
        assert!(holds(&all, "five programs") && holds(&all, "amount of its L2"));
        assert!(!holds(&all, "all of its L2 (figure 9)"), "not run");
        for (name, cycles) in names.into_iter().zip([2900; 5]) {
            for (share, cycles) in [(1, cycles), (16, 2000)] {
                all.push(outcome(ScolariPart::Alone, name, Scheme::Aware, share, cycles));
            }
        }
        assert!(holds(&all, "all of its L2 (figure 9)"), "3.4 % slower");
        // As slow until all of the last level is there.
        all[1].programs[0].counted.cycles = 3000;
        all[2].programs[0].counted.cycles = 3000;
        assert!(!holds(&all, "amount of its L2"));
        all.extend(with_l2("leslie3d", [3000, 2000, 2000, 2000]));
        assert!(!holds(&all, "five programs"), "six");
    }

    #[test]
    fn nothing_holds_of_what_was_not_run() {
        assert_eq!(engine::claims::<ScolariStudy>(&[], &[]), []);
        for part in ScolariPart::all() {
            let lone = ScolariOutcome {
                part,
                workload: "?".to_owned(),
                scheme: Scheme::Aware,
                share: 1,
                elapsed: 0,
                programs: vec![],
                change: ScolariChange::Nothing,
            };
            let found = judged(&[lone]);
            assert!(!found.is_empty() && found.iter().all(|claim| !claim.holds), "{part:?}");
        }
    }
}
