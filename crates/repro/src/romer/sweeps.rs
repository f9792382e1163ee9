//! What settings of a policy change: sections 5.6 and 6.5.2 try other values than the thesis's own and say how
//! much worse or better a program is for each. Here are these differences, and the tables of them. Which settings
//! are tried, [`super::variants`] says.

use super::fit;
use super::results::{RomerResults, is_wanted};
use super::run::RomerOutcome;
use super::variants::RomerPart;
use crate::engine::MeasuredFigures;
use crate::report::TableCell;

/// The thesis's own thresholds, which go with the target that it uses, `sequential`.
const USUAL: &str = "260/320";

/// A figure of an outcome.
type Figure = fn(&RomerOutcome) -> f64;

fn recolors(outcome: &RomerOutcome) -> f64 {
    outcome.costs.recolorings as f64
}

/// Cycles per instruction of recolouring and of reading the CML buffer.
fn overhead(outcome: &RomerOutcome) -> f64 {
    outcome.rates.recolor_cpi + outcome.rates.policy_cpi
}

/// A row of a table with a column for each setting of CML.
pub fn of_cml(
    results: RomerResults<'_>,
    table: &str,
    (part, program): (RomerPart, &str),
    head: &[String],
) -> Vec<TableCell> {
    let figure: Figure = match table {
        "f5-6o" => overhead,
        "f5-6r" => recolors,
        _ => RomerOutcome::l2_mcpi,
    };
    let cell = |name: &String| {
        let policy = format!("CML {}", setting(name));
        Some(figure(results.colored(part, program, &policy)?))
    };
    head.iter().map(cell).collect()
}

/// The setting of a name.
fn setting(name: &str) -> &str {
    if name == "sequential" { USUAL } else { name }
}

/// The policy of a column: THROTTLE where it is a setting such as `t=0.005`.
pub fn throttle(column: &str) -> String {
    if column.contains('=') { format!("THROTTLE {column}") } else { column.to_owned() }
}

/// The figures of a measure of this module; none at a name that it does not know.
pub fn measure(results: RomerResults<'_>, name: &str, told: &[&str]) -> Option<MeasuredFigures> {
    let compare = |part, policy, figure, told: &[&str]| {
        Some(Comparison { results, part, policy, figure }.with_first(told))
    };
    match name {
        "l2-by-page-size" => compare(RomerPart::PageSizes, "CML", RomerOutcome::l2_mcpi, told),
        "recolors-by-page-size" => compare(RomerPart::PageSizes, "CML", recolors, told),
        "l2-by-setting" => compare(RomerPart::Settings, "CML", RomerOutcome::l2_mcpi, told),
        "tlb-by-rests" => compare(RomerPart::Rests, "", |outcome| outcome.rates.tlb_mcpi, told),
        "worst-target" => Some(worse_than_both(results, told)),
        _ => None,
    }
}

/// How much more L2 MCPI a target has than each of two others.
fn worse_than_both(results: RomerResults<'_>, told: &[&str]) -> MeasuredFigures {
    let (part, figure) = (RomerPart::Settings, RomerOutcome::l2_mcpi);
    let of = Comparison { results, part, policy: "CML", figure };
    let more = |program| {
        let &[own, one, other] = told else { return None };
        let worse = of.figure(program, one)?.max(of.figure(program, other)?);
        Some((program, of.figure(program, own)? - worse))
    };
    MeasuredFigures::each(fit::counted(results, part).into_iter().filter_map(more))
}

/// A policy under several settings, and what is compared.
struct Comparison<'a> {
    results: RomerResults<'a>,
    part: RomerPart,
    policy: &'a str,
    figure: Figure,
}

impl Comparison<'_> {
    /// How much more a figure is under each other setting than under the first that is told, on each workload
    /// that counts; `except` or `only` and workloads can follow.
    fn with_first(&self, told: &[&str]) -> MeasuredFigures {
        let is_end = |word: &&str| ["except", "only"].contains(word);
        let end = told.iter().position(is_end).unwrap_or(told.len());
        let (settings, programs) = told.split_at(end);
        let [first, others @ ..] = settings else { return MeasuredFigures::default() };
        let counted = fit::counted(self.results, self.part).into_iter();
        let wanted: Vec<&str> = counted.filter(|program| is_wanted(program, programs)).collect();
        let pairs =
            others.iter().flat_map(|other| wanted.iter().map(move |program| (other, *program)));
        MeasuredFigures::each(pairs.filter_map(|(other, program)| {
            let more = self.figure(program, other)? - self.figure(program, first)?;
            Some((format!("{other} on {program}"), more))
        }))
    }

    fn figure(&self, program: &str, setting: &str) -> Option<f64> {
        let policy = format!("{} {}", self.policy, self::setting(setting));
        Some((self.figure)(self.results.colored(self.part, program, policy.trim())?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    fn page_sizes(program: &str, recolors: [u64; 3]) -> Vec<RomerOutcome> {
        let of = |(policy, recolorings)| {
            let mut own = outcome(RomerPart::PageSizes, policy, 10 * recolorings, 0, 9);
            own.program = program.into();
            own.costs.recolorings = recolorings;
            own
        };
        let base = outcome(RomerPart::Conflicts, "DM", 0, 0, 9);
        let base = RomerOutcome { program: program.into(), ..base };
        let sizes = ["CML 4 KB", "CML 8 KB", "CML 16 KB"].into_iter().zip(recolors).map(of);
        sizes.chain([base]).collect()
    }

    #[test]
    fn settings_are_compared_with_the_first_on_each_workload() {
        let all = [page_sizes("p", [30, 20, 10]), page_sizes("q", [1, 2, 4])].concat();
        let of = |name, told: &[&str]| measure(RomerResults(&all), name, told).unwrap().figures;
        let named = |figures: &[(&str, f64)]| -> Vec<(String, f64)> {
            figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect()
        };
        assert_eq!(
            of("recolors-by-page-size", &["8 KB", "16 KB"]),
            named(&[("16 KB on p", -10.0), ("16 KB on q", 2.0)])
        );
        assert_eq!(
            of("recolors-by-page-size", &["8 KB", "4 KB", "16 KB", "only", "q"]),
            named(&[("4 KB on q", -1.0), ("16 KB on q", 2.0)])
        );
        // 30 cycles for each of 10 misses to a recolouring, in a million instructions.
        let l2 = of("l2-by-page-size", &["8 KB", "4 KB", "except", "q"]);
        assert!(l2.len() == 1 && (l2[0].1 - 0.003).abs() < 1e-9, "{l2:?}");
        assert!(measure(RomerResults(&all), "?", &[]).is_none());
    }

    #[test]
    fn workloads_count_by_the_baselines_of_the_part_that_they_are_from() {
        let all = page_sizes("p", [3, 2, 1]);
        let without = &all[..3];
        assert_eq!(fit::counted(RomerResults(&all), RomerPart::PageSizes), ["p"]);
        assert!(fit::counted(RomerResults(without), RomerPart::PageSizes).is_empty());
    }

    #[test]
    fn a_target_is_worse_than_both_others_or_not() {
        let of = |policy, misses| outcome(RomerPart::Settings, policy, misses, 0, 9);
        let base = outcome(RomerPart::Conflicts, "DM", 0, 0, 9);
        let all =
            [of("CML 260/320", 100), of("CML random", 300), of("CML coldest-miss", 200), base];
        let told = |own, one, other| {
            let figures = worse_than_both(RomerResults(&all), &[own, one, other]).figures;
            figures[0].1
        };
        let near = |figure: f64, wanted: f64| (figure - wanted).abs() < 1e-9;
        assert!(near(told("coldest-miss", "sequential", "random"), -0.003));
        assert!(near(told("random", "sequential", "coldest-miss"), 0.003));
    }

    #[test]
    fn tables_have_a_figure_for_each_setting() {
        let all = page_sizes("p", [3, 2, 1]);
        let head = ["4 KB", "16 KB", "32 KB"].map(str::to_owned);
        let row = |table| of_cml(RomerResults(&all), table, (RomerPart::PageSizes, "p"), &head);
        assert_eq!(row("f5-6r"), [Some(3.0), Some(1.0), None]);
        assert_eq!(row("f5-6o"), [Some(0.0), Some(0.0), None]);
        assert!(row("f5-6")[0].is_some_and(|l2| (l2 - 0.0009).abs() < 1e-9));
    }
}
