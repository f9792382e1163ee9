//! What COMBINED is worth where memory is slower (section 6.6.3). The thesis estimates it: what misses, moves and
//! copies cost is stretched by as much as the latency. Here the machine is also run with that latency. Page
//! coloring.

use super::fit;
use super::results::RomerResults;
use super::run::RomerOutcome;
use super::variants::RomerPart;
use crate::engine::MeasuredFigures;
use crate::report::TableCell;

/// Times the cycles of an L2 miss.
const TIMES: f64 = 4.0;

/// MCPI that COMBINED saves.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Benefit {
    /// With the thesis's latency.
    now: f64,
    /// With four times that, as the thesis estimates it.
    estimated: f64,
    /// With four times that, simulated.
    simulated: f64,
}

impl Benefit {
    fn of(results: RomerResults<'_>, program: &str) -> Option<Benefit> {
        let saved = |[without, with]: [&str; 2], figure: fn(&RomerOutcome) -> f64| {
            let [without, with] =
                [without, with].map(|policy| results.colored(RomerPart::Latency, program, policy));
            Some(figure(without?) - figure(with?))
        };
        let (usual, slow) = (["DM x1", "COMBINED x1"], ["DM x4", "COMBINED x4"]);
        Some(Benefit {
            now: saved(usual, RomerOutcome::l2_mcpi)?,
            estimated: saved(usual, stretched)?,
            simulated: saved(slow, RomerOutcome::l2_mcpi)?,
        })
    }
}

/// L2 and TLB MCPI with the cycles of L2 misses, recolouring and copies stretched; handlers of TLB misses and their
/// books stay as they are.
fn stretched(outcome: &RomerOutcome) -> f64 {
    let handlers = outcome.costs.tlb_cycles as f64 / outcome.costs.instructions.max(1) as f64;
    handlers + TIMES * (outcome.l2_mcpi() - handlers)
}

/// The three figures of a workload.
pub fn cells(results: RomerResults<'_>, program: &str) -> Vec<TableCell> {
    let benefit = Benefit::of(results, program);
    let figures = |Benefit { now, estimated, simulated }| [now, estimated, simulated].map(Some);
    benefit.map_or([None; 3], figures).into()
}

/// For each workload that counts how many times its estimate the simulated benefit is, or how much more of it
/// there is than now.
pub fn measure(results: RomerResults<'_>, name: &str) -> MeasuredFigures {
    let figure = |program| {
        let benefit = Benefit::of(results, program)?;
        let more = benefit.simulated - benefit.now;
        let ratio = benefit.simulated / benefit.estimated;
        Some((program, if name == "benefit-by-estimate" { ratio } else { more }))
    };
    let counted = fit::counted(results, RomerPart::Latency).into_iter();
    MeasuredFigures::each(counted.filter_map(figure))
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    fn of(policy: &str, tlb_misses: u64, beyond_second: u64) -> RomerOutcome {
        let mut own = outcome(RomerPart::Latency, policy, tlb_misses, 0, 9);
        own.costs.beyond_second = beyond_second;
        own.rates = own.costs.rates();
        own
    }

    #[test]
    fn all_but_handlers_is_stretched() {
        let base = outcome(RomerPart::Combined, "DM", 0, 0, 9);
        // 0.3 and 0.15 CPI for the TLB; 0.2 and 0.1 for L2 misses, and 0.7 and 0.35 where they are slow.
        let all = [
            of("DM x1", 10_000, 200_000),
            of("COMBINED x1", 5_000, 100_000),
            of("DM x4", 10_000, 700_000),
            of("COMBINED x4", 5_000, 350_000),
            base,
        ];
        let results = RomerResults(&all);
        let near = |own: f64, wanted: f64| assert!((own - wanted).abs() < 1e-9, "{own} {wanted}");
        let benefit = Benefit::of(results, "p").expect("all were run");
        near(benefit.now, 0.25);
        near(benefit.estimated, 0.15 + 0.4);
        near(benefit.simulated, 0.5);
        near(measure(results, "benefit-by-estimate").figures[0].1, 0.5 / 0.55);
        near(measure(results, "benefit-more").figures[0].1, 0.25);
        assert_eq!(cells(RomerResults(&all[..3]), "p"), [None; 3]);
    }
}
