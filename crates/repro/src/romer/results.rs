//! The outcomes of all runs, and ways to find one.

use std::collections::BTreeSet;

use super::run::RomerOutcome;
use super::variants::{Initial, RomerPart};
use crate::report::TableCell;

/// All outcomes, and ways to find them.
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
                && (variant.part, variant.initial) == (part, initial)
                && variant.policy == policy
        })
    }

    /// The workloads of a part in the order in which they were given, and what they stand for.
    pub fn programs(&self, part: RomerPart) -> Vec<(&'a str, &'static str)> {
        let mut seen = BTreeSet::new();
        let of = self.0.iter().filter(|outcome| outcome.variant.part == part);
        of.filter(|outcome| seen.insert(outcome.program.as_str()))
            .map(|outcome| (outcome.program.as_str(), outcome.stands_for))
            .collect()
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
