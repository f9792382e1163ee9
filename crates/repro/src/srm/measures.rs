//! What the statements about SRM-buffer ask for, computed from the outcomes, in percent.

use super::cases::{RESCANS, SORTING, greps_name, order_name};
use super::hits::MEMORIES;
use super::place::PaperMachine;
use super::programs::{DIMENSIONS, SCAN, SORT_BLOCKS};
use super::results::{self, At, SrmResults};
use super::run::SrmOutcome;
use super::tables::rescan_loss;
use super::variants::SrmVariant;
use crate::engine::MeasuredFigures;

const LINUX: SrmVariant = SrmVariant::Linux;
const SRM: SrmVariant = SrmVariant::SRM;

/// The figures of a measure.
///
/// # Panics
/// At a name that it does not know.
pub fn measure(outcomes: &[SrmOutcome], name: &str, told: &[&str]) -> MeasuredFigures {
    let results = SrmResults(outcomes);
    of_programs(results, name, told)
        .or_else(|| of_files(results, name, told))
        .or_else(|| of_sorters(results, name, told))
        .unwrap_or_else(|| panic!("SRM-buffer has no measure {name} of {told:?}"))
}

/// What programs beside others lose and get back.
fn of_programs(results: SrmResults<'_>, name: &str, told: &[&str]) -> Option<MeasuredFigures> {
    let mergesort = &At::new(PaperMachine::Xeon, "mergesort 1536K", "grep");
    let mm = &At::new(PaperMachine::CoreI7, "spmv", "grep");
    Some(match (name, told) {
        ("mergesort-slower", &[variant]) => {
            MeasuredFigures::one(results.slowdown(mergesort, named(variant)))
        }
        ("mergesort-removed", &[variant]) => {
            MeasuredFigures::one(results.removed(mergesort, named(variant)))
        }
        ("joins-slower", &[place]) => joins(place, |at| results.slowdown(at, LINUX)),
        ("joins-saved", &[place]) => joins(place, |at| results.saved(at, SRM)),
        ("pairs-removed", _) => each(results::pairs(), |at| results.removed(at, SRM)),
        ("pairs-saved", _) => each(results::pairs(), |at| results.saved(at, SRM)),
        ("pairs-others-slower", _) => each(results::pairs(), |at| {
            let cpi = |variant| Some(results.other(at, &at.beside, variant)?.cpi());
            Some(100.0 * (cpi(SRM)? / cpi(LINUX)? - 1.0))
        }),
        ("four-removed", _) => each(results::four(), |at| results.removed(at, SRM)),
        ("mm-removed", _) => MeasuredFigures::one(results.removed(mm, SRM)),
        ("queries-removed", &[beside]) => {
            each(results::queries(beside == "scans"), |at| results.slowdown_removed(at))
        }
        ("queries-slower", _) => each(results::queries(true), |at| results.slowdown(at, LINUX)),
        ("scans-changed", _) => each(results::queries(true), |at| {
            let cpi = |variant| Some(results.other(at, &at.beside, variant)?.cpi());
            Some(100.0 * (cpi(SRM)? / cpi(LINUX)? - 1.0))
        }),
        ("mm-slower", _) => MeasuredFigures::one(results.slowdown(mm, SRM)),
        ("greps-slower", _) => greps(results),
        ("greps-three-over-one", _) => three_over_one(results),
        ("orders-saved", _) => each(results::orders(), |at| results.saved(at, SRM)),
        ("orders-kept", _) => each(results::orders(), |at| kept(results, at)),
        _ => return None,
    })
}

/// What the readers of files lose, by memory and threshold.
fn of_files(results: SrmResults<'_>, name: &str, told: &[&str]) -> Option<MeasuredFigures> {
    Some(match (name, told) {
        ("random-slower", _) => each(results::random(), |at| Some(-results.saved(at, SRM)?)),
        ("rescan-loss", &[variant]) => {
            let loss = |(place, _): (PaperMachine, u64)| {
                Some((place.text(), rescan_loss(results, place, named(variant))?))
            };
            MeasuredFigures::each(RESCANS.into_iter().filter_map(loss))
        }
        ("hits-lost", &["512", variant]) => {
            MeasuredFigures::one(results.hits_lost(512, named(variant)))
        }
        ("hits-lost-more", _) => {
            let lost = |variant| results.hits_lost(512, variant);
            MeasuredFigures::one(
                lost(SRM).zip(lost(SrmVariant::Srm(128))).map(|(large, small)| large - small),
            )
        }
        ("hits-lost-large", _) => hits_lost_with_large_memories(results),
        ("threshold-steps", _) => threshold_steps(results),
        ("threshold-beyond", _) => {
            let [last, before] = [512, 128].map(|tl| results.mean_saved(tl));
            MeasuredFigures::one(last.zip(before).map(|(last, before)| last - before))
        }
        ("traces-saved", _) => each(results.traced(), |at| results.saved(at, SRM)),
        _ => return None,
    })
}

/// What programs on all cores that sort files lose (section 4.7).
fn of_sorters(results: SrmResults<'_>, name: &str, told: &[&str]) -> Option<MeasuredFigures> {
    let slower = |place, kib| results.sorters_slower(place, kib);
    let [small, large] = SORT_BLOCKS;
    Some(match (name, told) {
        ("sorters-slower", &[place, block]) => {
            let (place, kib) = (sorting_at(place), if block == "0.5" { small } else { large });
            MeasuredFigures::one(slower(place, kib))
        }
        ("sorters-larger-blocks", _) => {
            MeasuredFigures::each(SORTING.into_iter().filter_map(|(place, _)| {
                Some((place.text(), slower(place, large)? - slower(place, small)?))
            }))
        }
        ("sorters-more-cores", _) => {
            let [few, many] = SORTING.map(|(place, _)| place);
            let more = |kib| Some((format!("{kib} KiB"), slower(many, kib)? - slower(few, kib)?));
            MeasuredFigures::each(SORT_BLOCKS.into_iter().filter_map(more))
        }
        _ => return None,
    })
}

/// The machine of this name.
fn sorting_at(text: &str) -> PaperMachine {
    let found = SORTING.into_iter().find(|(place, _)| place.text() == text);
    found.unwrap_or_else(|| panic!("nothing is sorted on {text}")).0
}

/// Hits that files lose to SRM, by memory of 1 GiB and more.
fn hits_lost_with_large_memories(results: SrmResults<'_>) -> MeasuredFigures {
    let large = MEMORIES.into_iter().filter(|memory| *memory >= 1024);
    let lost = |memory| Some((format!("{memory} MiB"), results.hits_lost(memory, SRM)?));
    MeasuredFigures::each(large.filter_map(lost))
}

/// What each doubling of the threshold changes.
fn threshold_steps(results: SrmResults<'_>) -> MeasuredFigures {
    let step = |tl: u64| {
        let more = results.mean_saved(2 * tl)? - results.mean_saved(tl)?;
        Some((format!("{tl} to {}", 2 * tl), more))
    };
    MeasuredFigures::each([16, 32, 64].into_iter().filter_map(step))
}

/// The variant of these words.
fn named(text: &str) -> SrmVariant {
    let all = [LINUX, SrmVariant::OneColor, SRM, SrmVariant::Srm(128), SrmVariant::Rescan];
    let found = all.into_iter().find(|variant| variant.text() == text);
    found.unwrap_or_else(|| panic!("no variant {text}"))
}

/// Programs beside others, and a figure of each.
fn each(all: Vec<At>, of: impl Fn(&At) -> Option<f64>) -> MeasuredFigures {
    MeasuredFigures::each(all.iter().filter_map(|at| Some((at.text(), of(at)?))))
}

/// Figure 8.
fn joins(place: &str, of: impl Fn(&At) -> Option<f64>) -> MeasuredFigures {
    let place =
        if place == PaperMachine::Xeon.text() { PaperMachine::Xeon } else { PaperMachine::CoreI7 };
    let figure = |(_, mib): (u64, u64)| {
        let at = At::new(place, format!("join {mib}M"), SCAN);
        Some((at.program.clone(), of(&at)?))
    };
    MeasuredFigures::each(DIMENSIONS.into_iter().filter_map(figure))
}

fn greps(results: SrmResults<'_>) -> MeasuredFigures {
    let label = |at: &At| at.text().replace(" x grep", "");
    let all = results::many_greps();
    MeasuredFigures::each(all.iter().filter_map(|at| Some((label(at), results.slowdown(at, SRM)?))))
}

/// What three greps cost more than one (figure 13).
fn three_over_one(results: SrmResults<'_>) -> MeasuredFigures {
    let beside = |name, count| At::new(PaperMachine::CoreI7, name, greps_name(count));
    let of = |name, count| results.slowdown(&beside(name, count), LINUX);
    let more = |name: &'static str| Some((name, of(name, 3)? - of(name, 1)?));
    MeasuredFigures::each(["spmv", "lu"].into_iter().filter_map(more))
}

/// What the other's order saves of what the own one does (figure 14).
fn kept(results: SrmResults<'_>, at: &At) -> Option<f64> {
    let (reads, _) = at.beside.split_once(' ')?;
    let own = At::new(at.place, &at.program, order_name(reads, reads));
    let same = results.saved(&own, SRM);
    let same = same.filter(|same| *same > 0.0 && own.beside != at.beside)?;
    Some(100.0 * results.saved(at, SRM)? / same)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::SrmStudy;
    use super::super::cases::{ALONE, SrmPart, THRESHOLDS, TOGETHER};
    use super::super::changes::SrmChange;
    use super::super::programs::sorter_name;
    use super::*;
    use crate::engine::{self, Named as _};
    use crate::report::StatementResult;

    fn judged(outcomes: &[SrmOutcome]) -> Vec<StatementResult> {
        engine::claims::<SrmStudy>(outcomes, &[])
    }

    /// An outcome of 1,000 instructions.
    pub(in super::super) fn outcome(
        part: SrmPart,
        place: PaperMachine,
        program: &str,
        beside: &str,
        variant: SrmVariant,
        cycles: u64,
        misses: u64,
    ) -> SrmOutcome {
        SrmOutcome {
            part,
            place,
            program: program.into(),
            among: vec![program.into()],
            beside: beside.into(),
            variant,
            change: SrmChange::Nothing,
            counts: true,
            instructions: 1000,
            cycles,
            misses,
            policy_cycles: 0,
            moved: 0,
            file_hits: 0,
            file_reads: 0,
            memory: 0,
        }
    }

    fn find<'a>(claims: &'a [StatementResult], text: &str) -> &'a StatementResult {
        claims.iter().find(|claim| claim.text.contains(text)).unwrap_or_else(|| panic!("{text}"))
    }

    fn sized(cycles: [u64; 4], misses: [u64; 2]) -> Vec<StatementResult> {
        let of = |beside, variant, cycles, misses| {
            outcome(
                SrmPart::Sizes,
                PaperMachine::Xeon,
                "mergesort 1536K",
                beside,
                variant,
                cycles,
                misses,
            )
        };
        let all = [
            of(ALONE, LINUX, cycles[0], 1),
            of(ALONE, SRM, cycles[1], 1),
            of("grep", LINUX, cycles[2], misses[0]),
            of("grep", SRM, cycles[3], misses[1]),
        ];
        judged(&all)
    }

    #[test]
    fn mergesort_has_to_meet_each_of_its_bars() {
        let good = sized([1000, 1000, 2010, 1290], [100, 22]);
        assert_eq!(good.iter().filter(|claim| claim.holds).count(), 3, "{good:?}");
        let bad = sized([1000, 1000, 1990, 1310], [100, 23]);
        assert_eq!(bad.iter().filter(|claim| claim.holds).count(), 0, "{bad:?}");
        assert_eq!(bad.len(), 3, "one colour was not run");
    }

    #[test]
    fn pairs_that_miss_a_bar_are_named() {
        let of = |program, variant, cycles, misses| {
            outcome(SrmPart::Pairs, PaperMachine::Xeon, program, "grep", variant, cycles, misses)
        };
        let all = [
            of("fft", LINUX, 2000, 100),
            of("fft", SRM, 1400, 14),
            of("lu", LINUX, 2000, 100),
            of("lu", SRM, 1900, 70),
        ];
        let found = judged(&all);
        let each = find(&found, "34 % fewer misses");
        assert!(!each.holds && each.measured.contains("not: lu + grep 30"), "{each:?}");
        assert!(find(&found, "the best of these pairs").holds);
        assert!(!find(&found, "22 % less time").holds, "17.5 on average");
        assert!(!find(&found, "no slower than on Linux").holds, "no other was run");
    }

    #[test]
    fn thresholds_have_to_rise_and_to_level_out() {
        let of = |variant, cycles| {
            outcome(SrmPart::Thresholds, PaperMachine::Xeon, "fft", "grep", variant, cycles, 0)
        };
        let with = |saved: [u64; 6]| {
            let srm =
                THRESHOLDS.iter().zip(saved).map(|(&tl, s)| of(SrmVariant::Srm(tl), 1000 - s));
            let all: Vec<SrmOutcome> = srm.chain([of(LINUX, 1000)]).collect();
            judged(&all).iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(with([140, 180, 200, 240, 250, 257]), [true, true]);
        assert_eq!(with([140, 180, 170, 240, 250, 270]), [false, false]);
    }

    #[test]
    fn sorting_has_to_lose_more_on_more_cores_and_with_larger_blocks() {
        let with = |slower: [u64; 4]| {
            let each = SORTING.into_iter().flat_map(|at| SORT_BLOCKS.map(|kib| (at, kib)));
            let of = |(((place, count), kib), slower): (((PaperMachine, u32), u64), u64)| {
                let name = sorter_name(kib, count / 2);
                [(ALONE, 1000), (TOGETHER, 1000 + 10 * slower)].map(|(beside, cycles)| {
                    outcome(SrmPart::Cores, place, &name, beside, LINUX, cycles, 0)
                })
            };
            let all: Vec<SrmOutcome> = each.zip(slower).flat_map(of).collect();
            judged(&all).iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(with([11, 15, 13, 25]), [true; 5], "the paper's own figures");
        assert_eq!(with([11, 23, 6, 12]), [false, false, false, true, false]);
        assert_eq!(with([11, 7, 20, 38]), [false, false, false, false, true]);
    }

    #[test]
    fn queries_have_to_gain_and_scans_to_stay_as_they_are() {
        let of = |at: &At, variant, cycles, counts| {
            let all = (SrmPart::Queries, PaperMachine::Xeon);
            let own = outcome(all.0, all.1, &at.program, &at.beside, variant, cycles, 1);
            let other = SrmOutcome {
                program: at.beside.clone(),
                counts: false,
                cycles: 1000 + counts,
                ..own.clone()
            };
            [own, other]
        };
        let with = |[linux, srm, scan]: [u64; 3]| {
            let ats = [true, false].into_iter().flat_map(results::queries);
            let each = |at: At| {
                let (scan, alone) = (if is_beside_scan(&at) { scan } else { 0 }, at.alone());
                let with = [of(&at, LINUX, linux, 0), of(&at, SRM, srm, scan)];
                let alone = [of(&alone, LINUX, 1000, 0), of(&alone, SRM, 1000, 0)];
                with.into_iter().chain(alone).flatten()
            };
            let all: Vec<SrmOutcome> = ats.flat_map(each).collect();
            judged(&all).iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(with([1200, 1120, 5]), [true; 4]);
        assert_eq!(with([1450, 1450, 20]), [false; 4]);
        assert_eq!(with([1060, 1040, 5]), [false, false, true, true]);
    }

    fn is_beside_scan(at: &At) -> bool {
        at.beside.starts_with(SCAN)
    }

    #[test]
    fn nothing_holds_of_what_was_not_run() {
        let found = engine::claims::<SrmStudy>(
            &[],
            &SrmPart::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>(),
        );
        assert!(found.len() > 8);
        assert_eq!(found.iter().filter(|claim| claim.holds).count(), 0);
        assert_eq!(engine::claims::<SrmStudy>(&[], &[]), []);
    }
}
