//! What came of a case, program by program, and ways to find it. Nothing is judged here.

use serde::Serialize;

use super::super::coloris::outcome::Sums;
use super::cases::{COLORS, Scheme, ScolariCase, ScolariPart};
use super::changes::ScolariChange;

/// A program of a case.
#[derive(Clone, Debug, Serialize)]
pub struct ScolariProgramResult {
    /// Its name.
    pub name: String,
    /// From the end of the warm-up on.
    pub counted: Sums,
    /// Requests that its L2 answered meanwhile.
    pub l2_hits: u64,
    /// Frames of the whole machine that had to be of another colour than the one that was due: all
    /// programs of a case have the same number, since the allocator counts for nobody in particular.
    pub outside: u64,
}

impl ScolariProgramResult {
    /// Misses of the L2 per request; 0 without any.
    pub fn l2_miss_rate(&self) -> f64 {
        let all = self.l2_hits + self.counted.requests;
        if all == 0 { 0.0 } else { self.counted.requests as f64 / all as f64 }
    }
}

/// What came of a case.
#[derive(Clone, Debug, Serialize)]
pub struct ScolariOutcome {
    /// The figure.
    pub part: ScolariPart,
    /// The workload.
    pub workload: String,
    /// What a colour is made of.
    pub scheme: Scheme,
    /// Colours of the first program.
    pub share: u16,
    /// Cycles of the clock in which it was counted.
    pub elapsed: u64,
    /// Its programs, the target first.
    pub programs: Vec<ScolariProgramResult>,
    /// What was not as in the paper's experiment.
    pub change: ScolariChange,
}

impl ScolariOutcome {
    /// Without programs yet.
    pub fn of(case: &ScolariCase) -> ScolariOutcome {
        let ScolariCase { part, scheme, share, change, .. } = *case;
        ScolariOutcome {
            part,
            workload: case.workload.clone(),
            scheme,
            share,
            elapsed: 0,
            programs: Vec::new(),
            change,
        }
    }

    /// The first program.
    pub fn target(&self) -> Option<&ScolariProgramResult> {
        self.programs.first()
    }
}

/// All outcomes.
#[derive(Clone, Copy, Debug)]
pub struct ScolariResults<'a>(pub &'a [ScolariOutcome]);

impl<'a> ScolariResults<'a> {
    /// The workloads of a part that were run, in that order.
    pub fn workloads(self, part: ScolariPart) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for outcome in self.0.iter().filter(|outcome| outcome.part == part) {
            if !names.contains(&outcome.workload.as_str()) {
                names.push(&outcome.workload);
            }
        }
        names
    }

    /// The outcomes of a workload under a scheme, by share.
    pub fn curve(
        self,
        part: ScolariPart,
        workload: &str,
        scheme: Scheme,
    ) -> Vec<&'a ScolariOutcome> {
        let is = |o: &&ScolariOutcome| {
            (o.part, o.workload.as_str(), o.scheme) == (part, workload, scheme)
        };
        let mut all: Vec<_> = self.0.iter().filter(is).collect();
        all.sort_by_key(|outcome| outcome.share);
        all
    }

    /// A program alone in a share.
    pub fn alone(
        self,
        program: &str,
        scheme: Scheme,
        share: u16,
    ) -> Option<&'a ScolariProgramResult> {
        let curve = self.curve(ScolariPart::Alone, program, scheme);
        curve.into_iter().find(|outcome| outcome.share == share)?.target()
    }

    /// By how much a program is slower than alone with the whole cache: 0 is as fast.
    pub fn slowdown(self, told: &ScolariProgramResult) -> Option<f64> {
        let whole = self.alone(&told.name, Scheme::Aware, COLORS)?.counted.cpi();
        (whole > 0.0).then(|| told.counted.cpi() / whole - 1.0)
    }

    /// Shares and slowdowns of the target of a workload, ascending.
    pub fn slowdowns(self, part: ScolariPart, workload: &str, scheme: Scheme) -> Vec<(u16, f64)> {
        let curve = self.curve(part, workload, scheme).into_iter();
        curve.filter_map(|o| Some((o.share, self.slowdown_of(o)?))).collect()
    }

    /// By how much the target of an outcome is slower than with the whole cache; in figure 5 that is the whole
    /// cache of the same colours.
    pub fn slowdown_of(self, outcome: &ScolariOutcome) -> Option<f64> {
        let target = outcome.target()?;
        if outcome.part != ScolariPart::Profiles {
            return self.slowdown(target);
        }
        let curve = self.curve(outcome.part, &outcome.workload, outcome.scheme);
        let whole = curve.into_iter().find(|own| own.share == COLORS)?.target()?.counted.cpi();
        (whole > 0.0).then(|| target.counted.cpi() / whole - 1.0)
    }

    /// For each share, by how much the target's time differs from that alone with as many colours
    /// of the same scheme.
    pub fn disturbed(self, part: ScolariPart, workload: &str, scheme: Scheme) -> Vec<(u16, f64)> {
        let curve = self.curve(part, workload, scheme).into_iter();
        let each = curve.filter_map(|outcome| {
            let target = outcome.target()?;
            let alone = self.alone(&target.name, scheme, outcome.share)?.counted.cpi();
            (alone > 0.0).then(|| (outcome.share, target.counted.cpi() / alone - 1.0))
        });
        each.collect()
    }

    /// Most frames of another colour than the one that was due, of any run of a part.
    pub fn outside(self, part: ScolariPart, scheme: Scheme) -> u64 {
        let of = self.0.iter().filter(|own| (own.part, own.scheme) == (part, scheme));
        of.flat_map(|own| &own.programs).map(|told| told.outside).max().unwrap_or(0)
    }

    /// The harmonic mean of how many times slower the polluters are than alone with the whole
    /// cache, less one.
    pub fn polluters(self, outcome: &ScolariOutcome) -> Option<f64> {
        let times: Option<Vec<f64>> =
            outcome.programs.iter().skip(1).map(|told| Some(1.0 + self.slowdown(told)?)).collect();
        let times = times.filter(|times| !times.is_empty())?;
        Some(times.len() as f64 / times.iter().map(|time| 1.0 / time).sum::<f64>() - 1.0)
    }
}
