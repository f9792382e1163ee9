//! Runs a case on the cores of the simulated Xeon E5-1410. The first program has its partition, the others share
//! the rest of the cache; frames come from the mcolor buddy allocator, whose colours know the hash
//! or do not.

use huepage_color::{
    CacheLevel, ColorMap, ColorSet, HashedError, IndexFunction, LinearColors, Provenance,
    hash_aware, hash_unaware,
};

use super::super::coloris::apps::{App, CoRun, Open};
use super::super::run::{self, RunFailed};
use super::cases::{COLORS, Scheme, ScolariCase};
use super::outcome::{ScolariOutcome, ScolariProgramResult};
use super::programs::program;
use huepage_sim::cache::Replacement;
use huepage_sim::experiment::WishError;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::Machine;
use huepage_sim::system::System;

const XEON: &str = include_str!("../../../../machines/xeon-e5-1410.toml");

/// Simulated cycles between reports of progress.
const REPORT: u64 = 1_000_000;

/// The machine, whose last level knows only which lines were used lately: on these Xeons it ages lines by two bits,
/// and [`Replacement::Nru`] is nearest to that. And its colours: the [`COLORS`] of the scheme, each divided by those of the L2, so
/// that pages that follow each other do not compete there. Bits 12 to 16 have twice as many.
///
/// # Errors
/// When its file makes no sense.
pub fn machine(scheme: Scheme) -> Result<(Machine, ColorMap), WishError> {
    let mut machine = run::machine(XEON)?;
    if let Some(last) = machine.cache.last_mut() {
        last.replacement = Replacement::Nru;
    }
    let colors = colors(&machine, scheme).map_err(wish)?;
    let map = ColorMap::linear(CacheLevel(3), colors, Provenance::Declared).map_err(wish)?;
    Ok((machine, map))
}

fn wish(error: impl std::fmt::Display) -> WishError {
    WishError::new(error.to_string())
}

fn colors(machine: &Machine, scheme: Scheme) -> Result<LinearColors, HashedError> {
    let levels: Vec<IndexFunction> = machine
        .data_path()
        .into_iter()
        .map(|at| {
            let cache = &machine.cache[at];
            let plain = || IndexFunction::linear(cache.line.0.ilog2(), cache.sets().ilog2());
            cache.index.clone().map_or_else(plain, Ok)
        })
        .collect::<Result<_, _>>()?;
    let (outer, inner) = (&levels[levels.len() - 1], &levels[levels.len() - 2]);
    let coarse = match scheme {
        Scheme::Aware => hash_aware(outer, Some(inner)),
        Scheme::Unaware => hash_unaware(outer, Some(inner)),
        // The lowest bit first: two colours have two of the L2's eight, and eight have all of them.
        Scheme::WithL2 => return LinearColors::new((12..=16).map(|bit| 1 << bit).collect()),
    };
    coarse?.divided_by(inner)
}

/// Cycles of waiting for a line that the L2 has.
fn l2_stall(machine: &Machine) -> u64 {
    let path = machine.data_path();
    let latency = |depth: usize| path.get(depth).map_or(0, |&at| machine.cache[at].latency);
    latency(1).saturating_sub(latency(0)).max(1)
}

/// The colours of the first so many of [`COLORS`].
fn first(share: u16, map: &ColorMap) -> ColorSet {
    ColorSet::first(share * (map.colors() / COLORS), map.colors())
}

/// Runs a case; `heard` gets numbers of cycles simulated, of all cores that have a program.
///
/// # Errors
/// When a source or the machine cannot.
pub fn run<'a, E>(
    case: &ScolariCase,
    quick: bool,
    open: Open<'a, E>,
    heard: &dyn Fn(u64),
) -> Result<ScolariOutcome, RunFailed<E>> {
    let (machine, map) = machine(case.scheme)?;
    let (all, l2) = (map.all(), l2_stall(&machine));
    let target = first(case.share, &map);
    let rest = all.difference(&target);
    let frames = Frames::new(machine.memory.0 >> 12, Choice::InOrder, Some(map));
    let mut system = System::new(machine, frames);
    let mut apps = Vec::new();
    for (at, name) in (0..).zip(&case.programs) {
        // Copies of a program are not in step.
        let program = program(name, 1 + u64::from(at));
        let colors = if at == 0 { target.clone() } else { rest.clone() };
        system.frames_mut().choose_for(at, Choice::Partition(colors.clone()));
        apps.push(App::new(&program, at, at, colors, open)?);
    }
    let (times, mut run) = (case.times(quick), CoRun::new(system, apps, u64::MAX, None));
    run.run([REPORT, times.warm_up, times.end], heard)?;
    let (outside, mut outcome) = (run.system.frames_mut().outside(), ScolariOutcome::of(case));
    for app in run.apps {
        let counted = app.sums(&run.system).since(app.warm);
        let (name, l2_hits) = (app.program.name.clone(), counted.second / l2);
        outcome.programs.push(ScolariProgramResult { name, counted, l2_hits, outside });
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_color::{Pfn, PhysAddr};
    use std::collections::{BTreeMap, BTreeSet};

    /// The slices and page-sized runs of sets that frames of a colour reach.
    fn reached(scheme: Scheme, share: u16) -> usize {
        let (machine, map) = machine(scheme).expect("a machine");
        let last = machine.cache.last().and_then(|cache| cache.index.clone()).expect("an index");
        let set = first(share, &map);
        let mut reached = BTreeMap::new();
        for frame in (0..40_000_u64).map(|n| Pfn(n * 37 % (6 << 18))) {
            if map.color(frame).is_some_and(|color| set.contains(color)) {
                let at = last.locate(PhysAddr(frame.base().0));
                reached.entry((at.slice, at.set)).or_insert(0_u32);
            }
        }
        reached.into_keys().collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn bits_12_to_16_divide_the_l2_up_to_eight_colors() {
        let (machine, map) = machine(Scheme::WithL2).expect("a machine");
        assert_eq!((map.colors(), l2_stall(&machine)), (32, 8));
        let all = reached(Scheme::WithL2, 16);
        for (share, of_l2) in [(1, 2), (2, 4), (3, 6), (4, 8), (8, 8)] {
            let set = first(share, &map);
            let frames = (0..64).map(Pfn);
            let mine = frames.filter(|frame| map.color(*frame).is_some_and(|c| set.contains(c)));
            let mine: BTreeSet<u64> = mine.map(|frame| frame.0 % 8).collect();
            assert_eq!(mine.len(), of_l2, "of the eight colours of the L2");
            assert_eq!(reached(Scheme::WithL2, share) * 16, all * usize::from(share));
        }
    }

    #[test]
    fn only_colors_that_know_the_hash_limit_the_space() {
        let all = reached(Scheme::Aware, 16);
        for share in [1, 2, 4, 8] {
            assert_eq!(reached(Scheme::Aware, share) * 16, all * usize::from(share));
            let unaware = reached(Scheme::Unaware, share) * 4;
            assert_eq!(unaware, all * usize::from(share.min(4)), "bits 17 and 18 do not limit");
        }
    }
}
