//! The outcomes as drawings like those of ROCS (2008): pages by miss rates (figure 2), what samples cost (figure
//! 6), overhead (figure 7), speedups (figure 8), misses (figure 9), and the
//! gain over the pages confined, which the paper does not draw.

use super::super::report::{BarGroup, Drawing, Shape, figure};
use super::profiles::ProfilePrefetch;
use super::run::RocsOutcome;
use super::tables;
use super::variants::RocsVariant;

/// The drawings for which there are outcomes.
pub fn figures(outcomes: &[RocsOutcome]) -> Vec<Drawing> {
    if outcomes.is_empty() {
        return Vec::new();
    }
    let all = [miss_rates, samples, overheads, speedups, misses, prefixes];
    all.map(|drawn| drawn(outcomes)).to_vec()
}

fn bars(
    outcomes: &[RocsOutcome],
    of: impl Fn(&RocsOutcome) -> Vec<(String, Vec<f64>)>,
) -> Vec<BarGroup> {
    outcomes.iter().map(|outcome| (outcome.program.clone(), of(outcome))).collect()
}

fn miss_rates(outcomes: &[RocsOutcome]) -> Drawing {
    let groups = bars(outcomes, |outcome| {
        let seen = outcome.profiles.of(ProfilePrefetch::Off);
        seen.map(|seen| ("Linux".to_owned(), seen.page_percents().to_vec())).into_iter().collect()
    });
    let parts = vec!["below 25 %", "below 50 %", "below 75 %", "above"];
    let shape = Shape::Bars { up: "percent of the pages", parts, groups };
    figure("rocs-2", "Pages by their miss rate (figure 2)", shape)
}

fn samples(outcomes: &[RocsOutcome]) -> Drawing {
    let sampled = outcomes.iter().filter(|outcome| !outcome.profiles.sampled.is_empty());
    let series = sampled.map(|outcome| {
        let points = outcome.profiles.sampled.iter().map(|run| (run.period as f64, run.slower));
        (outcome.program.clone(), points.collect())
    });
    let shape = Shape::Points {
        across: "cycles between samples",
        up: "percent more time",
        joined: true,
        series: series.collect(),
    };
    figure("rocs-6", "What samples cost (figure 6)", shape)
}

/// Losses are drawn as nothing: bars begin at 0.
fn speedups(outcomes: &[RocsOutcome]) -> Drawing {
    let groups = bars(outcomes, |outcome| {
        let best = outcome.best().map(|best| ("every prefix".to_owned(), vec![best.gain.max(0.0)]));
        let gains = RocsVariant::ACTIVE.iter().filter_map(|&variant| {
            Some((variant.text().to_owned(), vec![outcome.gain(variant)?.max(0.0)]))
        });
        best.into_iter().chain(gains).collect()
    });
    let up = "percent more instructions per cycle";
    let shape = Shape::Bars { up, parts: vec!["gain"], groups };
    figure("rocs-8", "Gain over Linux (figure 8)", shape)
}

fn misses(outcomes: &[RocsOutcome]) -> Drawing {
    let groups = bars(outcomes, |outcome| {
        let linux = ("Linux".to_owned(), vec![outcome.linux.mpki()]);
        let rocs =
            outcome.of(RocsVariant::Rocs).map(|r| ("ROCS".to_owned(), vec![r.window.mpki()]));
        std::iter::once(linux).chain(rocs).collect()
    });
    let shape = Shape::Bars { up: "misses per 1000 instructions", parts: vec!["misses"], groups };
    figure("rocs-9", "Misses (figure 9)", shape)
}

fn overheads(outcomes: &[RocsOutcome]) -> Drawing {
    let groups = bars(outcomes, |outcome| {
        let parts = outcome.of(RocsVariant::Rocs).and_then(|r| tables::share_of_paper(outcome, r));
        parts.map(|parts| ("ROCS".to_owned(), parts.to_vec())).into_iter().collect()
    });
    let parts = vec!["monitoring", "moving pages"];
    let shape = Shape::Bars { up: "percent of the paper's run", parts, groups };
    figure("rocs-7", "Overhead (figure 7)", shape)
}

fn prefixes(outcomes: &[RocsOutcome]) -> Drawing {
    let series = outcomes.iter().map(|outcome| {
        let share = |pages: usize| 100.0 * pages as f64 / outcome.pages.max(1) as f64;
        let points = outcome.offline.iter().map(|p| (share(p.pages), p.gain.max(0.0))).collect();
        (outcome.program.clone(), points)
    });
    let shape = Shape::Points {
        across: "percent of the pages confined",
        up: "percent more instructions per cycle",
        joined: true,
        series: series.collect(),
    };
    figure("rocs-prefixes", "Every prefix of the miss-rate stack", shape)
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    #[test]
    fn every_workload_has_its_bars() {
        assert_eq!(figures(&[]), []);
        let all = figures(&[outcome("art", "art", 30.0), outcome("vpr", "vpr", -5.0)]);
        let speedups = all.iter().find(|drawing| drawing.name == "rocs-8").unwrap();
        let Shape::Bars { groups, .. } = &speedups.shape else { panic!("bars") };
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().all(|(_, bars)| bars.len() == 4));
        assert!(groups[1].1.iter().all(|(_, heights)| heights[0] >= 0.0));
    }
}
