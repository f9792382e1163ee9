//! What each workload runs under: plain Linux, and three ways of ROCS; and what the sensors cost
//! on the paper's machine.

use huepage_color::{ColorMap, ColorSet};
use huepage_policy::RocsSettings;
use huepage_policy::rocs::SearchMethod;
use serde::Serialize;

use super::programs::{MEMORY, RocsProgram, WAYS};
use crate::run;
use huepage_sim::experiment::{Experiment, FrameMapping, WishError};
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::system::System;

const MACHINE: &str = include_str!("../../../../machines/powerpc-970fx.toml");

/// Cycles between samples (section 5.1: the shortest that disturbs little).
pub const PERIOD: u64 = 5_000;
/// Cycles of an interrupt for a sample: 15 % of the time at one in 10,000 cycles (figure 6).
pub const HANDLER: u64 = 1_500;
/// Lines that the interrupt touches besides the page's count: a stack frame, the saved registers
/// and the counters of its module. The paper says only that these disturb the L1.
pub const HANDLER_LINES: u64 = 16;
/// Cycles for a page's move besides the copy: page table, TLB, and lists of free pages.
pub const REMAP: u64 = 2_000;

/// A way to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RocsVariant {
    /// Nothing done.
    Linux,
    /// The paper's algorithm.
    Rocs,
    /// The same, with the prefetcher on during the profile.
    Prefetching,
    /// One trial, by the model; and pages that are reused leave the buffer.
    Model,
}

impl RocsVariant {
    /// Those that act.
    pub const ACTIVE: [RocsVariant; 3] =
        [RocsVariant::Rocs, RocsVariant::Prefetching, RocsVariant::Model];

    /// Its name in tables.
    pub const fn text(self) -> &'static str {
        match self {
            RocsVariant::Linux => "Linux",
            RocsVariant::Rocs => "ROCS",
            RocsVariant::Prefetching => "ROCS, profiled with prefetcher",
            RocsVariant::Model => "by model",
        }
    }
}

/// The colours of the machine's L2.
pub const COLORS: u16 = 16;

/// The paper's pollute buffer: 1/16 of the L2 (section 6).
pub fn buffer() -> ColorSet {
    ColorSet::first(1, COLORS)
}

/// The settings of a variant for a workload; a search has so many steps.
pub fn settings(variant: RocsVariant, program: &RocsProgram, steps: usize) -> RocsSettings {
    let paper = RocsSettings::paper(buffer());
    RocsSettings {
        method: match variant {
            RocsVariant::Model => SearchMethod::Model { ways: program.ways },
            _ => SearchMethod::Search,
        },
        start: program.start,
        interval: 2 * program.trial,
        samples: program.samples,
        trial: program.trial,
        settle: program.trial / 4,
        steps,
        prefetch_off: variant != RocsVariant::Prefetching,
        try_without_hits: variant == RocsVariant::Model,
        review: (variant == RocsVariant::Model && !program.later).then_some(4),
        ..paper
    }
}

/// What the policy sees and pays. The counters of misses and the ticks that tell the time stand
/// for counters that are read when a trial ends, which costs next to nothing.
pub fn sense(program: &RocsProgram) -> Sense {
    Sense {
        sample: Some(Every { every: PERIOD, cost: HANDLER }),
        sample_misses: true,
        sample_later: program.later,
        handler_lines: HANDLER_LINES,
        overflow: Some(Every { every: 100, cost: 0 }),
        progress: Some(Every { every: (program.trial / 16).max(1), cost: 0 }),
        recolor_cost: REMAP,
        ..Sense::default()
    }
}

/// An idle machine that hands out frames as Linux does: by chance as to colour; a miss takes as long as
/// the program waits for one, and a walk waits for all of its read.
///
/// # Errors
/// When the machine's file is wrong.
pub fn system(program: &RocsProgram) -> Result<System, WishError> {
    built(program, experiment()?)
}

/// The same, whose prefetcher brings a stream's next line into the L1, too, and the one after into the L2
/// (section 3.2.3).
///
/// # Errors
/// When the machine's file is wrong.
pub fn prefetching_into_both(program: &RocsProgram) -> Result<System, WishError> {
    let mut wanted = experiment()?;
    if let [nearest, .., last] = wanted.machine.data_path()[..] {
        wanted.machine.cache[nearest].stride = wanted.machine.cache[last].stride;
    }
    built(program, wanted)
}

fn built(program: &RocsProgram, mut wanted: Experiment) -> Result<System, WishError> {
    if let Some(&last) = wanted.machine.data_path().last() {
        let cache = &mut wanted.machine.cache[last];
        cache.size.0 = cache.size.0 / u64::from(WAYS) * u64::from(program.ways);
        cache.ways = usize::from(program.ways);
    }
    wanted.machine.memory_latency = program.latency;
    wanted.machine.prefetch_latency = program.latency;
    let mut system = wanted.build()?;
    system.charge_walks(MEMORY);
    Ok(system)
}

fn experiment() -> Result<Experiment, WishError> {
    let machine = run::machine(MACHINE)?;
    Ok(Experiment { level: Some(2), ..run::experiment(machine, FrameMapping::Random(1)) })
}

/// The colours of the machine's frames.
///
/// # Errors
/// When the machine's file is wrong.
pub fn colors() -> Result<ColorMap, WishError> {
    let found = experiment()?.colors()?;
    found
        .map(|(map, _)| map)
        .ok_or_else(|| WishError::new("the L2 has no colours; report it".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocs::programs::programs;

    #[test]
    fn the_buffer_is_one_of_the_machines_sixteen_colours() {
        assert_eq!(colors().map(|map| map.colors()), Ok(COLORS));
        assert_eq!(buffer().len(), 1);
        let machine = experiment().unwrap().machine;
        let last = &machine.cache[*machine.data_path().last().unwrap()];
        assert_eq!(last.ways, usize::from(WAYS));
        // 32 KB (section 6).
        assert_eq!(last.size.0 / u64::from(COLORS), 32 << 10);
    }

    #[test]
    fn variants_differ_in_what_they_are_named_for() {
        let art = &programs(&[], false)[0];
        let [rocs, prefetching, model] = RocsVariant::ACTIVE.map(|v| settings(v, art, 12));
        assert!(rocs.prefetch_off && !prefetching.prefetch_off);
        assert_eq!(
            (rocs.method, model.method),
            (SearchMethod::Search, SearchMethod::Model { ways: 8 })
        );
        assert_eq!((rocs.review, model.review), (None, Some(4)));
    }
}
