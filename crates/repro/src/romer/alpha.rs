//! Snapshot-Miss as it was built on an Alpha (section 4.5), beside the same initial mapping without it: table 4-8.
//! The thesis measured programs on a workstation. Here the workloads of chapter 4 run on the simulated machine,
//! with the periods of the implementation and the prices of table 4-7.

use super::fit;
use super::results::{RomerResults, is_wanted};
use super::run::RomerOutcome;
use super::variants::{Initial, RomerPart};
use crate::engine::{MeasuredFigures, Named as _};
use crate::report::TableCell;

/// Cycles of a move on the Alpha (table 4-7).
pub const MOVE: u64 = 29_000;
/// The mappings of table 4-8, in its order.
const MAPPINGS: [Initial; 2] = [Initial::Coloring, Initial::BinHopping];

/// What Snapshot-Miss does to a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Effect {
    /// Percent of the time without it that it saves.
    improvement: f64,
    /// Percent of the time with it that it takes itself: interrupts, looks at TLB misses, analyses and moves.
    overhead: f64,
    /// Pages recoloured.
    recolors: u64,
}

impl Effect {
    fn of(results: RomerResults<'_>, program: &str, initial: Initial) -> Option<Effect> {
        let get = |policy| results.get(RomerPart::Alpha, initial, program, policy);
        Some(Effect::between(get("DM")?, get("Snapshot-Miss")?))
    }

    fn between(without: &RomerOutcome, with: &RomerOutcome) -> Effect {
        let (before, after) = (&without.costs, &with.costs);
        let moves = MOVE * after.recolorings;
        let time = (after.cycles() - after.recolor_cycles + moves) as f64;
        let looks = after.tlb_cycles.saturating_sub(before.tlb_cycles);
        let own = (after.policy_cycles + moves + looks) as f64;
        Effect {
            improvement: 100.0 * (1.0 - time / before.cycles() as f64),
            overhead: 100.0 * own / time,
            recolors: after.recolorings,
        }
    }
}

/// Improvement and overhead with each mapping, or the recolourings.
pub fn cells(results: RomerResults<'_>, table: &str, program: &str) -> Vec<TableCell> {
    let effects = MAPPINGS.map(|initial| Effect::of(results, program, initial));
    let of = |effect: Option<Effect>| match (table, effect) {
        ("4-8r", effect) => vec![effect.map(|effect| effect.recolors as f64)],
        (_, Some(Effect { improvement, overhead, .. })) => vec![Some(improvement), Some(overhead)],
        (_, None) => vec![None; 2],
    };
    effects.into_iter().flat_map(of).collect()
}

/// `improvement` or `overhead` with each mapping, of the workloads that count; `except` or `only` and workloads
/// can follow.
pub fn measure(results: RomerResults<'_>, name: &str, told: &[&str]) -> MeasuredFigures {
    let counted = fit::counted(results, RomerPart::Alpha).into_iter();
    let wanted = counted.filter(|program| is_wanted(program, told));
    let pairs = wanted.flat_map(|program| MAPPINGS.map(|initial| (program, initial)));
    MeasuredFigures::each(pairs.filter_map(|(program, initial)| {
        let effect = Effect::of(results, program, initial)?;
        let figure = if name == "alpha-overhead" { effect.overhead } else { effect.improvement };
        Some((format!("{program}, {}", initial.name()), figure))
    }))
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    fn of(policy: &str, tlb_misses: u64, beyond: u64, recolorings: u64) -> RomerOutcome {
        let mut own = outcome(RomerPart::Alpha, policy, tlb_misses, 0, 9);
        own.costs.miss_cycles[0] = beyond;
        (own.costs.recolorings, own.costs.recolor_cycles) = (recolorings, 5_000 * recolorings);
        own.costs.policy_cycles = 11_000 * recolorings;
        own
    }

    #[test]
    fn moves_have_the_price_of_the_alpha() {
        // A million instructions and 30 cycles for each of 1,000 TLB misses.
        let without = of("DM", 1_000, 970_000, 0);
        let with = of("Snapshot-Miss", 2_000, 480_000, 10);
        let Effect { improvement, overhead, recolors } = Effect::between(&without, &with);
        let own = 10.0 * 29_000.0 + 10.0 * 11_000.0 + 30_000.0;
        let time = 1_000_000.0 + 30_000.0 + 480_000.0 + own;
        assert!((improvement - 100.0 * (1.0 - time / 2_000_000.0)).abs() < 1e-9, "{improvement}");
        assert!((overhead - 100.0 * own / time).abs() < 1e-9, "{overhead}");
        assert_eq!(recolors, 10);
    }

    #[test]
    fn each_mapping_has_its_columns() {
        let base = outcome(RomerPart::Conflicts, "DM", 0, 0, 9);
        let all = [of("DM", 0, 1_000_000, 0), of("Snapshot-Miss", 0, 500_000, 0), base];
        let results = RomerResults(&all);
        assert_eq!(cells(results, "4-8", "p"), [Some(25.0), Some(0.0), None, None]);
        assert_eq!(cells(results, "4-8r", "p"), [Some(0.0), None]);
        let figures = measure(results, "alpha-improvement", &[]).figures;
        assert_eq!(figures, [("p, page coloring".to_owned(), 25.0)]);
        assert!(measure(results, "alpha-overhead", &["except", "p"]).figures.is_empty());
    }
}
