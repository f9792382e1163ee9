//! The outcomes of all runs, and ways to find one.

use std::collections::BTreeSet;

use super::run::RomerOutcome;
use super::variants::{Initial, RomerChange, RomerPart, RomerVariant};
use crate::report::TableCell;

/// The change of outcomes that are looked for.
const NOTHING: RomerChange = RomerChange::Nothing;

/// All outcomes, and ways to find those with nothing changed.
#[derive(Clone, Copy, Debug)]
pub struct RomerResults<'a>(pub &'a [RomerOutcome]);

impl<'a> RomerResults<'a> {
    /// The outcome of a workload under a policy.
    pub fn get(
        &self,
        part: RomerPart,
        initial: Initial,
        program: &str,
        policy: &str,
    ) -> Option<&'a RomerOutcome> {
        self.0.iter().find(|outcome| {
            let variant = &outcome.variant;
            outcome.program == program
                && (variant.part, variant.initial, variant.change) == (part, initial, NOTHING)
                && variant.policy == policy
        })
    }

    /// The workloads of a part in the order in which they were given, and what they stand for.
    pub fn programs(&self, part: RomerPart) -> Vec<(&'a str, &'static str)> {
        let mut seen = BTreeSet::new();
        let own = |variant: &RomerVariant| (variant.part, variant.change) == (part, NOTHING);
        let of = self.0.iter().filter(|outcome| own(&outcome.variant));
        of.filter(|outcome| seen.insert(outcome.program.as_str()))
            .map(|outcome| (outcome.program.as_str(), outcome.stands_for))
            .collect()
    }

    /// All outcomes with those of an experiment in the place of the others; none if none was run.
    pub fn changed(&self, change: RomerChange) -> Option<Vec<RomerOutcome>> {
        let of = |change| self.0.iter().filter(move |outcome| outcome.variant.change == change);
        let as_before = |outcome: &RomerOutcome| {
            let variant = RomerVariant { change: NOTHING, ..outcome.variant.clone() };
            RomerOutcome { variant, ..outcome.clone() }
        };
        let again: Vec<RomerOutcome> = of(change).map(as_before).collect();
        // The first of its kind is found.
        let below = Some(change.on_top_of()).filter(|below| *below != NOTHING);
        let below = below.into_iter().flat_map(of).map(as_before);
        let before = of(NOTHING).cloned();
        (!again.is_empty()).then(|| again.into_iter().chain(below).chain(before).collect())
    }

    /// The outcome under page coloring.
    pub fn colored(
        &self,
        part: RomerPart,
        program: &str,
        policy: &str,
    ) -> Option<&'a RomerOutcome> {
        self.get(part, Initial::Coloring, program, policy)
    }

    /// Memory beyond that with pages of 4 KB, as a share (section 3.1).
    pub fn growth(&self, program: &str, policy: &str) -> TableCell {
        let [base, with] = ["FIXED 4 KB", policy].map(|policy| {
            self.colored(RomerPart::Superpages, program, policy).map(|o| o.pages as f64)
        });
        Some(with? / base? - 1.0)
    }
}

/// Whether a statement is about a workload: `except` some, `only` some, or all.
pub(super) fn is_wanted(program: &str, told: &[&str]) -> bool {
    match told {
        ["except", names @ ..] => !names.contains(&program),
        ["only", names @ ..] => names.contains(&program),
        _ => true,
    }
}
