//! What the statements of COLORIS ask for, computed from the outcomes, and what ours has to show beyond
//! them.

use super::cases::{ColorisPart, FOREGROUND, FOUR, MOVING, REDISTRIBUTION, UTILITY, bounds};
use super::outcome::ColorisOutcome;
use super::programs::{MCF, PROGRAMS};
use super::tables::{CONFIGS, ColorisResults};
use crate::engine::{MeasuredFigures, Named as _};

/// What three repetitions of the paper do not tell apart, as a share.
const ALIKE: f64 = 0.001;

/// The figures of a measure.
///
/// # Panics
/// At a name that it does not know.
pub fn measure(outcomes: &[ColorisOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
    let results = ColorisResults(outcomes);
    match (name, told) {
        ("over-linux", &[config]) => of_programs(|name| results.over_linux(name, config)),
        ("scanned", &[config]) => of_programs(|name| results.scanned(name, config)),
        ("omnetpp-over-high", &[policy]) => omnetpp_over_high(results, policy),
        ("over-own-high", _) => over_own_high(results),
        ("povray-colours", &[policy]) => povray(results, policy),
        ("colours-apart", &[policy]) => apart(results, policy),
        ("pages-over-moving", _) => {
            of_both(results, |own| own.recolored() as f64, |moving, other| other / moving)
        }
        ("instructions-over-moving", _) => of_both(
            results,
            |own| own.instructions() as f64,
            |moving, other| 100.0 * (other / moving - 1.0),
        ),
        ("total-of-c3", _) => total_of_c3(results),
        ("utility-over-best", _) => utility_over_best(results),
        ("varies-more", &[part]) => varies_more(results, ColorisPart::named(part)),
        ("gobmk-saves", _) => gobmk_saves(results),
        ("of-unpartitioned", &[program, policy]) => of_unpartitioned(results, program, policy),
        ("real-varies-more", _) => real_varies_more(results),
        _ => panic!("COLORIS has no measure {name} of {told:?}"),
    }
}

/// A figure of each program that was run.
fn of_programs(of: impl Fn(&str) -> Option<f64>) -> MeasuredFigures {
    let all = PROGRAMS.iter().chain([&MCF]);
    MeasuredFigures::each(all.filter_map(|(name, ..)| Some((*name, of(name)?))))
}

/// Outcomes of all configurations of a policy in which colours may move, with their names.
fn moving<'a>(results: ColorisResults<'a>, policy: &'a str) -> Vec<(String, &'a ColorisOutcome)> {
    let configs = CONFIGS.iter().filter(|(_, own)| *own == policy);
    let of = |&(config, _): &(&'static str, _)| {
        let all = results.all(ColorisPart::Recoloring, config, policy);
        (1..).zip(all).map(move |(at, outcome)| (format!("{config} ({at})"), outcome))
    };
    configs.flat_map(of).collect()
}

fn percent_over(outcome: &ColorisOutcome, program: &str, high: f64) -> Option<f64> {
    Some(100.0 * (outcome.program(program)?.counted.miss_rate() - high))
}

/// Section 4.3, the cache-hungry program's quality of service: points above HighThreshold.
fn omnetpp_over_high(results: ColorisResults<'_>, policy: &str) -> MeasuredFigures {
    let over = |(name, outcome): (String, &ColorisOutcome)| {
        Some((name, percent_over(outcome, "omnetpp", bounds(outcome.config)?[2])?))
    };
    MeasuredFigures::each(moving(results, policy).into_iter().filter_map(over))
}

/// C4: points above each program's own threshold.
fn over_own_high(results: ColorisResults<'_>) -> MeasuredFigures {
    let (mut over, highs) = (Vec::new(), bounds("C4").unwrap_or([1.0; 4]));
    for policy in [MOVING, REDISTRIBUTION, UTILITY] {
        for outcome in results.all(ColorisPart::Recoloring, "C4", policy) {
            let own = |(program, high): (&str, f64)| {
                let name = format!("{program} with {policy}");
                Some((name, percent_over(outcome, program, high)?))
            };
            over.extend(FOUR.into_iter().zip(highs).filter_map(own));
        }
    }
    MeasuredFigures::each(over)
}

/// Table 5: colours of povray in the end of C1 and C4.
fn povray(results: ColorisResults<'_>, policy: &str) -> MeasuredFigures {
    let all = moving(results, policy).into_iter();
    let those = all.filter(|(_, outcome)| ["C1", "C4"].contains(&outcome.config));
    let colors = |(name, outcome): (String, &ColorisOutcome)| {
        Some((name, f64::from(outcome.program("povray")?.colors)))
    };
    MeasuredFigures::each(those.filter_map(colors))
}

/// Table 5: how far the assignments of a configuration lie apart over its seeds, in colours.
fn apart(results: ColorisResults<'_>, policy: &str) -> MeasuredFigures {
    let configs = CONFIGS.iter().filter(|(_, own)| *own == policy);
    let spread = |(config, _): &(&'static str, &str)| {
        let all = results.all(ColorisPart::Recoloring, config, policy);
        let of = |program: &&str| {
            let colors = || all.iter().filter_map(|o| o.program(program)).map(|told| told.colors);
            Some(colors().max()? - colors().min()?)
        };
        let most = FOUR.iter().filter_map(of).max().unwrap_or(0);
        (all.len() > 1).then_some((*config, f64::from(most)))
    };
    MeasuredFigures::each(configs.filter_map(spread))
}

/// A figure of C1, C2 and C4 with Redistribution against that with Selective Moving.
fn of_both(
    results: ColorisResults<'_>,
    of: impl Fn(&ColorisOutcome) -> f64,
    compared: impl Fn(f64, f64) -> f64,
) -> MeasuredFigures {
    let mean = |config, policy| results.mean_of(ColorisPart::Recoloring, (config, policy), &of);
    let each = ["C1", "C2", "C4"].into_iter().filter_map(|config| {
        Some((config, compared(mean(config, MOVING)?, mean(config, REDISTRIBUTION)?)))
    });
    MeasuredFigures::each(each)
}

/// Table 3: instructions of all, in percent of those in C3, with every policy of the paper.
fn total_of_c3(results: ColorisResults<'_>) -> MeasuredFigures {
    let total =
        |config| results.mean_of(ColorisPart::Recoloring, config, |own| own.instructions() as f64);
    let paper = CONFIGS.iter().filter(|(_, policy)| *policy != UTILITY);
    let share = |&(config, policy): &(&'static str, &'static str)| {
        let share = 100.0 * total((config, policy))? / total(("C3", ""))?;
        Some((format!("{config} {policy}"), share))
    };
    MeasuredFigures::each(paper.filter_map(share))
}

/// Percent more instructions with ours than with the better of the paper's.
fn utility_over_best(results: ColorisResults<'_>) -> MeasuredFigures {
    let total = |config, policy| {
        results.mean_of(ColorisPart::Recoloring, (config, policy), |o| o.instructions() as f64)
    };
    let gain = |config| {
        let best = total(config, MOVING)?.max(total(config, REDISTRIBUTION)?);
        Some((config, 100.0 * (total(config, UTILITY)? / best - 1.0)))
    };
    MeasuredFigures::each(["C1", "C2", "C4"].into_iter().filter_map(gain))
}

/// Sections 4.2 and 4.5: points that time varies more in a partition than without.
fn varies_more(results: ColorisResults<'_>, part: ColorisPart) -> MeasuredFigures {
    let more = |program: &&'static str| {
        let [with, without] = results.variation(part, program)?;
        Some((*program, 100.0 * (with - without.max(ALIKE))))
    };
    MeasuredFigures::each(FOREGROUND.iter().filter_map(more))
}

/// Section 4.2: percent less time in a partition, up to 13 in the paper.
fn gobmk_saves(results: ColorisResults<'_>) -> MeasuredFigures {
    let cpi =
        |config| Some(results.foreground(ColorisPart::Isolation, config, "gobmk")?.counted.cpi());
    MeasuredFigures::one(
        cpi("H").zip(cpi("H+P")).map(|(shared, parted)| 100.0 * (1.0 - parted / shared)),
    )
}

/// Section 4.4: instructions of a program, or in total, in percent of those without partitions. gobmk is
/// what section 4.2 calls sensitive.
fn of_unpartitioned(results: ColorisResults<'_>, program: &str, policy: &str) -> MeasuredFigures {
    let own = |outcome: &ColorisOutcome| match program {
        "total" => outcome.instructions() as f64,
        program => outcome.program(program).map_or(0.0, |told| told.counted.instructions as f64),
    };
    let mean = |config| results.mean_of(ColorisPart::Overcommitted, config, own);
    let share = mean(("C7", policy)).zip(mean(("C9", "")));
    MeasuredFigures::one(share.map(|(with, without)| 100.0 * with / without))
}

/// Points that the time of a program nobody here wrote varies more in a partition than without.
fn real_varies_more(results: ColorisResults<'_>) -> MeasuredFigures {
    let first = results.real().first().copied().unwrap_or("");
    let cpi = |config| Some(results.foreground(ColorisPart::Real, config, first)?.counted.cpi());
    let more = |alone, beside| Some(100.0 * (cpi(beside)? / cpi(alone)? - 1.0).abs());
    let found = more("S", "H+P").zip(more("F", "H"));
    MeasuredFigures::each(found.map(|(with, without)| (first, with - without)))
}

#[cfg(test)]
mod tests {
    use super::super::ColorisStudy;
    use super::super::cases::ColorisChange;
    use super::super::outcome::{ColorisProgramResult, Sums};
    use super::*;
    use crate::engine;
    use crate::report::StatementResult;

    fn judged(outcomes: &[ColorisOutcome]) -> Vec<StatementResult> {
        engine::claims::<ColorisStudy>(outcomes, &[])
    }

    fn told(name: &str, colors: u16, misses: u64, instructions: u64) -> ColorisProgramResult {
        let counted =
            Sums { instructions, cycles: 1_000_000, requests: 100, misses, ..Sums::default() };
        let (core, recolored, history) = (0, 10, Vec::new());
        ColorisProgramResult {
            name: name.into(),
            core,
            counted,
            whole: counted,
            colors,
            history,
            recolored,
        }
    }

    fn outcome(
        config: &'static str,
        policy: &'static str,
        seed: u64,
        colors: u16,
    ) -> ColorisOutcome {
        let programs = vec![
            told("povray", 4, 1, 1000),
            told("tonto", 12, 20, 1000),
            told("omnetpp", colors, 60, 1000 + u64::from(colors)),
            told("gamess", 8, 20, 1000),
        ];
        let (part, change) = (ColorisPart::Recoloring, ColorisChange::Nothing);
        ColorisOutcome { part, config, policy, seed, change, programs }
    }

    fn find(claims: &[StatementResult], text: &str) -> StatementResult {
        claims.iter().find(|c| c.text.starts_with(text)).unwrap_or_else(|| panic!("{text}")).clone()
    }

    #[test]
    fn thresholds_floors_and_seeds_are_held_against_their_bars() {
        let same = [outcome("C1", MOVING, 1, 40), outcome("C1", MOVING, 2, 44)];
        let found = judged(&same);
        assert!(find(&found, "Selective Moving: omnetpp's miss rate ends").holds);
        assert!(find(&found, "Selective Moving: povray").holds);
        assert!(find(&found, "Selective Moving: assignments").holds);
        assert!(!find(&found, "Redistribution: assignments").holds, "not run");
        let apart = [outcome("C1", MOVING, 1, 36), outcome("C1", MOVING, 2, 44)];
        assert!(!find(&judged(&apart), "Selective Moving: assignments").holds);
        let mut over = same.clone();
        over[1].programs[2].counted.misses = 66;
        over[0].programs[0].colors = 8;
        assert!(!find(&judged(&over), "Selective Moving: omnetpp's miss rate ends").holds);
        assert!(!find(&judged(&over), "Selective Moving: povray").holds);
    }

    #[test]
    fn policies_are_compared_where_both_were_run() {
        let mut all = vec![
            outcome("C3", "", 1, 16),
            outcome("C1", MOVING, 1, 40),
            outcome("C1", REDISTRIBUTION, 1, 44),
            outcome("C1", UTILITY, 1, 48),
        ];
        assert!(find(&judged(&all), "Redistribution gains more").holds);
        assert!(find(&judged(&all), "Utility (ours) retires").holds);
        assert!(!find(&judged(&all), "Redistribution recolours more").holds, "as many");
        assert!(!find(&judged(&all[..2]), "the total stays").holds, "0.6 % more than in C3");
        all[1].programs[0].counted.instructions = 990;
        assert!(find(&judged(&all[..2]), "the total stays").holds, "0.3 %");
        all[1].programs[0].counted.instructions = 1100;
        assert!(!find(&judged(&all), "the total stays").holds);
        all[1].programs[0].counted.instructions = 1000;
        all[3].programs[2].counted.instructions = 1;
        assert!(!find(&judged(&all), "Utility (ours) retires").holds);
        all.remove(2);
        assert!(!find(&judged(&all), "Redistribution gains more").holds, "nothing to compare");
    }

    fn alone(config: &'static str, seed: u64, cycles: u64) -> ColorisOutcome {
        let mut program = told("gobmk", 64, 1, 1_000_000);
        program.counted.cycles = cycles;
        let (part, change) = (ColorisPart::Allocator, ColorisChange::Nothing);
        ColorisOutcome { part, config, policy: "", seed, change, programs: vec![program] }
    }

    #[test]
    fn frames_and_scans_are_held_against_the_same_program_without() {
        let mut all = vec![
            alone("Linux", 1, 1_000_000),
            alone("Linux", 2, 1_020_000),
            alone("Linux in order", 1, 1_000_000),
            alone("COLORIS", 1, 1_000_000),
            alone("COLORIS", 2, 1_000_000),
            alone("every 1 ms", 1, 1_040_000),
            alone("every 10 ms", 1, 1_004_000),
        ];
        let judge = |all: &[ColorisOutcome], texts: [&str; 4], expected: [bool; 4]| {
            let found = judged(all);
            let holds = |text: &str| found.iter().find(|c| c.text.contains(text)).map(|c| c.holds);
            assert_eq!(texts.map(holds), expected.map(Some), "{found:?}");
        };
        let texts = ["frames at random", "frames in order", "every 1 ms", "every 10 ms"];
        judge(&all, texts, [true, true, true, false]);
        all[3].programs[0].counted.cycles = 1_060_000;
        judge(&all, texts, [true, false, false, false]);
        all[4].programs[0].counted.cycles = 940_000;
        all[0].programs[0].counted.cycles = 1_080_000;
        judge(&all, texts, [false, true, false, false]);
    }

    #[test]
    fn nothing_holds_of_what_was_not_run() {
        assert_eq!(engine::claims::<ColorisStudy>(&[], &[]), []);
        for part in ColorisPart::all() {
            let (change, programs) = (ColorisChange::Nothing, Vec::new());
            let lone = ColorisOutcome { part, config: "?", policy: "", seed: 1, change, programs };
            let found = judged(&[lone]);
            assert!(!found.is_empty() && found.iter().all(|claim| !claim.holds), "{part:?}");
        }
    }
}
