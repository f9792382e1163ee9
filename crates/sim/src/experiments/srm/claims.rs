//! What the paper says of SRM-buffer, as statements with a bar each, and whether the outcomes bear
//! them out. Bars are the paper's figures. A workload that fails is named with its figure.

use super::super::report::{Claim, claim, claim_of, list};
use super::cases::{ORDERS, Part, Place, RESCANS, SCAN, THRESHOLDS, greps_name, order_name};
use super::hits::MEMORIES;
use super::paper;
use super::programs::{DIMENSIONS, FILE_BOUND, MEMORY_BOUND, SCIMARK};
use super::results::{At, Results, mean};
use super::run::Outcome;
use super::tables::{rescan_loss, threshold_mean, traced};
use super::variants::Variant;

const LINUX: Variant = Variant::Linux;
const SRM: Variant = Variant::SRM;
/// What makes no difference, in percent.
const EQUAL: f64 = 1.0;

/// A part of the experiment and its statements.
type Statements = (Part, fn(Results<'_>) -> Vec<Claim>);

/// All statements about the parts that were asked for.
pub fn claims(outcomes: &[Outcome], parts: &[Part]) -> Vec<Claim> {
    let results = Results(outcomes);
    let all: [Statements; 11] = [
        (Part::Sizes, sizes),
        (Part::Joins, joins),
        (Part::Pairs, pairs),
        (Part::Four, four),
        (Part::Greps, greps),
        (Part::Orders, orders),
        (Part::Random, random),
        (Part::Rescans, rescans),
        (Part::Hits, hits),
        (Part::Thresholds, thresholds),
        (Part::Traces, traces),
    ];
    let wanted = all.into_iter().filter(|(part, _)| parts.contains(part));
    wanted.flat_map(|(_, statements)| statements(results)).collect()
}

const fn xeon<'a>(program: &'a str, beside: &'a str) -> At<'a> {
    At { place: Place::Xeon, program, beside }
}

/// Names with figures of those that are there.
type Named = Vec<(String, f64)>;

/// A statement that all figures are at least, or at most, a bar.
fn all_of(found: &Named, text: &str, digits: usize, good: impl Fn(f64) -> bool) -> Claim {
    let bad: Named = found.iter().filter(|(_, value)| !good(*value)).cloned().collect();
    let values = || found.iter().map(|(_, value)| *value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let measured = if found.is_empty() {
        "none was run".to_owned()
    } else {
        format!("{low:.digits$} to {high:.digits$}; not: {}", list(&bad, digits))
    };
    claim_of(found.len(), text, measured, bad.is_empty())
}

/// A statement about one figure, if it is there.
fn one(value: Option<f64>, text: &str, digits: usize, good: impl Fn(f64) -> bool) -> Option<Claim> {
    value.map(|value| claim(text, format!("{value:.digits$}"), good(value)))
}

/// Figure 2.
fn sizes(results: Results<'_>) -> Vec<Claim> {
    let at = xeon("mergesort 1536K", "grep");
    let slower = |variant| results.slowdown(at, variant);
    let removed = |variant| results.removed(at, variant);
    let text = "mergesort of 1.5 MiB beside grep is more than 100 % slower on Linux, in percent";
    let mut all = vec![one(slower(LINUX), text, 0, |value| value > 100.0)];
    for (variant, name) in [(Variant::OneColor, "all files in one colour"), (SRM, "SRM-buffer")] {
        let text = format!("it is less than 30 % slower with {name}, in percent");
        all.push(one(slower(variant), &text, 1, |value| value < paper::MERGESORT[1]));
        let text = format!("its misses are fewer by 78 % or more with {name}");
        all.push(one(removed(variant), &text, 1, |value| value >= paper::MERGESORT_MISSES));
    }
    all.into_iter().flatten().collect()
}

/// Figure 8.
fn joins(results: Results<'_>) -> Vec<Claim> {
    let mut all = Vec::new();
    for (place, [linux, _, least]) in
        [Place::Xeon, Place::CoreI7].into_iter().zip(paper::JOIN_MEANS)
    {
        let saved = |(_, mib): (u64, u64)| {
            let name = format!("join {mib}M");
            results.saved(At { place, program: &name, beside: SCAN }, SRM)
        };
        let slower = |(_, mib): (u64, u64)| {
            let name = format!("join {mib}M");
            results.slowdown(At { place, program: &name, beside: SCAN }, LINUX)
        };
        let place = place.text();
        let text = format!(
            "hash joins beside a scan are slower by {linux} % or more on average on Linux, {place}"
        );
        all.push(one(mean(DIMENSIONS.map(slower).into_iter()), &text, 1, |v| v >= linux));
        let text =
            format!("SRM-buffer saves them {least} % of the time or more on average, {place}");
        all.push(one(mean(DIMENSIONS.map(saved).into_iter()), &text, 1, |v| v >= least));
    }
    all.into_iter().flatten().collect()
}

/// Pairs of a memory-bound and a file-bound program, and a figure of each.
fn of_pairs(of: impl Fn(At<'_>) -> Option<f64>) -> Named {
    let names = MEMORY_BOUND.iter().flat_map(|(name, ..)| FILE_BOUND.map(|other| (*name, other)));
    names.filter_map(|(name, o)| Some((format!("{name} + {o}"), of(xeon(name, o))?))).collect()
}

fn best(found: &Named) -> Option<f64> {
    found.iter().map(|(_, value)| *value).max_by(f64::total_cmp)
}

/// Figures 10 and 11.
fn pairs(results: Results<'_>) -> Vec<Claim> {
    let [least, most] = paper::PAIR_MISSES;
    let removed = of_pairs(|at| results.removed(at, SRM));
    let text = "FFT, MM, LU and mergesort beside grep, tar and PostMark have 34 % fewer misses or \
                better with SRM-buffer, Xeon 5355";
    let mut all = vec![Some(all_of(&removed, text, 0, |value| value >= least))];
    let text = "the best of these pairs has 85 % fewer misses or better";
    all.push(one(best(&removed), text, 1, |value| value >= most));
    let saved = of_pairs(|at| results.saved(at, SRM));
    let text = "these programs take 22 % less time or better on average (figure 10)";
    let average = mean(saved.iter().map(|(_, value)| Some(*value)));
    all.push(one(average, text, 1, |value| value >= paper::PAIR_MEANS[2]));
    let harm = of_pairs(|at| {
        let cpi = |variant| Some(results.other(at, at.beside, variant)?.cpi());
        Some(100.0 * (cpi(SRM)? / cpi(LINUX)? - 1.0))
    });
    let text = "the file-bound programs are no slower than on Linux (section 4.3: no noticeable \
                difference), by 1 % at most";
    all.push(Some(all_of(&harm, text, 1, |value| value <= EQUAL)));
    all.into_iter().flatten().collect()
}

/// Figure 12.
fn four(results: Results<'_>) -> Vec<Claim> {
    let at = |name, other| At { place: Place::CoreI7, program: name, beside: other };
    let names = || SCIMARK.iter().flat_map(|name| ["grep", "tar"].map(|other| (*name, other)));
    let removed = names()
        .filter_map(|(n, o)| Some((format!("{n} + {o}"), results.removed(at(n, o), SRM)?)))
        .collect();
    let text = "three of them together beside grep or tar have 34 % fewer misses each or better, \
                Core i7 860";
    let [_, most, _, gone] = paper::MM_BESIDE_GREP;
    let mm = at("spmv", "grep");
    let few = "MM among them beside grep has 90 % fewer misses or better (figure 12c)";
    let slower = format!("it is slower than alone by {most} % at most, in percent (figure 12a)");
    let all = [
        Some(all_of(&removed, text, 0, |value| value >= paper::PAIR_MISSES[0])),
        one(results.removed(mm, SRM), few, 1, |value| value >= gone),
        one(results.slowdown(mm, SRM), &slower, 1, |value| value <= most),
    ];
    all.into_iter().flatten().collect()
}

/// Figure 13.
fn greps(results: Results<'_>) -> Vec<Claim> {
    let slower = |name: &str, count: u32, variant| {
        let beside = greps_name(count);
        results.slowdown(At { place: Place::CoreI7, program: name, beside: &beside }, variant)
    };
    let each = || ["spmv", "lu"].into_iter().flat_map(|name| [1, 2, 3].map(|n| (name, n)));
    let srm: Named = each()
        .filter_map(|(name, n)| Some((format!("{name} + {n}"), slower(name, n, SRM)?)))
        .collect();
    let text = "MM and LU beside one to three greps are slower by 26 % at most with SRM-buffer, in \
                percent";
    let grows: Named = ["spmv", "lu"]
        .iter()
        .filter_map(|name| {
            Some(((*name).to_owned(), slower(name, 3, LINUX)? - slower(name, 1, LINUX)?))
        })
        .collect();
    let more = "on Linux three greps cost them more than one, in percent of their time alone";
    vec![
        all_of(&srm, text, 1, |value| value <= paper::GREPS_MOST),
        all_of(&grows, more, 1, |value| value > 0.0),
    ]
}

/// Figure 14.
fn orders(results: Results<'_>) -> Vec<Claim> {
    let saved = |name: &str, reads: &str, loads: &str| {
        results.saved(xeon(name, &order_name(reads, loads)), SRM)
    };
    let each =
        || SCIMARK.iter().flat_map(|name| ORDERS.map(|(reads, loads)| (*name, reads, loads)));
    let all: Named = each()
        .filter_map(|(n, r, l)| Some((format!("{n} + {}", order_name(r, l)), saved(n, r, l)?)))
        .collect();
    let text = "SRM-buffer saves time whoever has loaded what grep and diff read, percent";
    let kept: Named = each()
        .filter(|(_, reads, loads)| reads != loads)
        .filter_map(|(name, reads, loads)| {
            let same = saved(name, reads, reads).filter(|same| *same > 0.0)?;
            let kept = 100.0 * saved(name, reads, loads)? / same;
            Some((format!("{name} + {}", order_name(reads, loads)), kept))
        })
        .collect();
    let half = "in the other's order it saves at least half of that in the own one, percent of it";
    vec![all_of(&all, text, 1, |value| value > 0.0), all_of(&kept, half, 0, |value| value >= 50.0)]
}

/// Section 4.5.
fn random(results: Results<'_>) -> Vec<Claim> {
    let harm =
        |name: &&str| Some(((*name).to_owned(), -results.saved(xeon(name, "random-reader"), SRM)?));
    let found = SCIMARK.iter().filter_map(harm).collect();
    let text = "beside a random reader FFT, MM and LU are no slower than on Linux, by 1 % at most";
    vec![all_of(&found, text, 1, |value| value <= EQUAL)]
}

fn rescans(results: Results<'_>) -> Vec<Claim> {
    let of = |variant| -> Named {
        let loss = |(place, _): (Place, u64)| {
            Some((place.text().to_owned(), rescan_loss(results, place, variant)?))
        };
        RESCANS.into_iter().filter_map(loss).collect()
    };
    let text = "a file that fits the cache and is scanned again and again loses 12 % or more with \
                the paper's SRM-buffer, percent";
    let with = "with the detector it loses 2 % at most, in the long run";
    vec![
        all_of(&of(SRM), text, 1, |value| value >= paper::RESCANS[0]),
        all_of(&of(Variant::Rescan), with, 1, |value| value <= 2.0),
    ]
}

/// Figure 15.
fn hits(results: Results<'_>) -> Vec<Claim> {
    let lost = |memory, variant| results.hits_lost(memory, variant);
    let [most, less] = paper::HITS_LOST;
    let large: Named = MEMORIES
        .into_iter()
        .filter(|memory| *memory >= 1024)
        .filter_map(|memory| Some((format!("{memory} MiB"), lost(memory, SRM)?)))
        .collect();
    let small = Variant::Srm(128);
    let both = || Some(lost(512, SRM)? - lost(512, small)?);
    let few =
        format!("with 512 MiB of memory and Tl 256, {most} % of the hit ratio is lost at most");
    let fewer = format!("with Tl 128, {less} % at most");
    let all = [
        one(lost(512, SRM), &few, 2, |value| value <= most),
        one(lost(512, small), &fewer, 2, |value| value <= less),
        one(both(), "the larger threshold loses more, in percent", 2, |value| value > 0.0),
        (!large.is_empty()).then(|| {
            let text = "from 1 GiB of memory on 2 % is lost at most (section 4.5: little impact)";
            all_of(&large, text, 2, |value| value <= 2.0)
        }),
    ];
    all.into_iter().flatten().collect()
}

/// Figure 16.
fn thresholds(results: Results<'_>) -> Vec<Claim> {
    let at = |tl| threshold_mean(results, tl);
    let means: Vec<f64> = THRESHOLDS.iter().filter_map(|&tl| at(tl)).collect();
    let shown = means.iter().map(|mean| format!("{mean:.1}")).collect::<Vec<_>>().join(", ");
    let complete = means.len() == THRESHOLDS.len();
    let rising = complete && means[..4].windows(2).all(|pair| pair[0] < pair[1]);
    let text = "the time saved rises with Tl from 16 to 128, means in percent for 16 to 512";
    let more = || Some(at(512)? - at(128)?);
    let flat = "beyond 128 it saves 2 points more at most (the paper: 1.7)";
    let mut all = vec![claim_of(means.len(), text, shown, rising)];
    all.extend(one(more(), flat, 1, |value| value <= 2.0));
    all
}

fn traces(results: Results<'_>) -> Vec<Claim> {
    let found: Named = traced(results)
        .into_iter()
        .filter_map(|(name, o)| Some((format!("{name} + {o}"), results.saved(xeon(name, o), SRM)?)))
        .collect();
    if found.is_empty() && !results.0.iter().any(|outcome| outcome.part == Part::Traces) {
        return Vec::new();
    }
    let text = "SRM-buffer saves real programs beside a scan 1 % of the time or more";
    vec![all_of(&found, text, 1, |value| value >= EQUAL)]
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cases::ALONE;
    use super::*;

    /// An outcome of 1,000 instructions.
    pub(in super::super) fn outcome(
        part: Part,
        place: Place,
        program: &str,
        beside: &str,
        variant: Variant,
        cycles: u64,
        misses: u64,
    ) -> Outcome {
        Outcome {
            part,
            place,
            program: program.into(),
            among: vec![program.into()],
            beside: beside.into(),
            variant,
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

    fn find<'a>(claims: &'a [Claim], text: &str) -> &'a Claim {
        claims.iter().find(|claim| claim.text.contains(text)).unwrap_or_else(|| panic!("{text}"))
    }

    fn sized(cycles: [u64; 4], misses: [u64; 2]) -> Vec<Claim> {
        let of = |beside, variant, cycles, misses| {
            outcome(Part::Sizes, Place::Xeon, "mergesort 1536K", beside, variant, cycles, misses)
        };
        let all = [
            of(ALONE, LINUX, cycles[0], 1),
            of(ALONE, SRM, cycles[1], 1),
            of("grep", LINUX, cycles[2], misses[0]),
            of("grep", SRM, cycles[3], misses[1]),
        ];
        claims(&all, &[Part::Sizes])
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
            outcome(Part::Pairs, Place::Xeon, program, "grep", variant, cycles, misses)
        };
        let all = [
            of("fft", LINUX, 2000, 100),
            of("fft", SRM, 1400, 14),
            of("lu", LINUX, 2000, 100),
            of("lu", SRM, 1900, 70),
        ];
        let found = claims(&all, &[Part::Pairs]);
        let each = find(&found, "34 % fewer misses");
        assert!(!each.holds && each.measured.contains("not: lu + grep 30"), "{each:?}");
        assert!(find(&found, "the best of these pairs").holds);
        assert!(!find(&found, "22 % less time").holds, "17.5 on average");
        assert!(!find(&found, "no slower than on Linux").holds, "no other was run");
    }

    #[test]
    fn thresholds_have_to_rise_and_to_level_out() {
        let of = |variant, cycles| {
            outcome(Part::Thresholds, Place::Xeon, "fft", "grep", variant, cycles, 0)
        };
        let with = |saved: [u64; 6]| {
            let srm = THRESHOLDS.iter().zip(saved).map(|(&tl, s)| of(Variant::Srm(tl), 1000 - s));
            let all: Vec<Outcome> = srm.chain([of(LINUX, 1000)]).collect();
            claims(&all, &[Part::Thresholds]).iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(with([140, 180, 200, 240, 250, 257]), [true, true]);
        assert_eq!(with([140, 180, 170, 240, 250, 270]), [false, false]);
    }

    #[test]
    fn nothing_holds_of_what_was_not_run() {
        let found = claims(&[], &Part::ALL);
        assert!(found.len() > 8);
        assert_eq!(found.iter().filter(|claim| claim.holds).count(), 0);
        assert_eq!(claims(&[], &[]), []);
    }
}
