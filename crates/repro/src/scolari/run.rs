//! Runs a case: programs on the cores of the simulated Xeon E5-1410, each core with a clock of its
//! own and the one that is least far next. The first program has its partition, the others share
//! the rest of the cache; frames come from the mcolor buddy allocator, whose colours know the hash
//! or do not. Everything ends at one time.

use huepage_color::{
    CacheLevel, ColorMap, ColorSet, HashedError, IndexFunction, LinearColors, Provenance,
    hash_aware, hash_unaware,
};

use super::super::coloris::apps::{App, Open, Together};
use super::super::run::RunFailed;
use super::cases::{COLORS, Scheme, ScolariCase};
use super::outcome::{ScolariOutcome, ScolariProgramResult};
use super::programs::program;
use huepage_sim::experiment::WishError;
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::Machine;
use huepage_sim::system::System;

const XEON: &str = include_str!("../../../../machines/xeon-e5-1410.toml");

/// Simulated cycles between reports of progress.
const REPORT: u64 = 1_000_000;

/// The machine, and its colours: the [`COLORS`] of the scheme, each divided by those of the L2, so
/// that pages that follow each other do not compete there.
///
/// # Errors
/// When its file makes no sense.
pub fn machine(scheme: Scheme) -> Result<(Machine, ColorMap), WishError> {
    let machine = Machine::parse(XEON).map_err(wish)?;
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
    };
    coarse?.divided_by(inner)
}

/// The colours of the first so many of [`COLORS`].
fn first(share: u16, map: &ColorMap) -> ColorSet {
    ColorSet::first(share * (map.colors() / COLORS), map.colors())
}

/// A case at work.
struct CoRun<'a, E> {
    system: System,
    apps: Vec<App<'a, E>>,
    clocks: Vec<u64>,
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
    let times = case.times(quick);
    let mut run = CoRun::new(case, open)?;
    run.through(times.warm_up, times.end, heard)?;
    run.finish(case)
}

impl<'a, E> Together<'a, E> for CoRun<'a, E> {
    fn parts(&mut self) -> (&mut System, &mut [App<'a, E>]) {
        (&mut self.system, &mut self.apps)
    }

    /// Everything runs until all cores have reached a time.
    fn until(&mut self, end: u64, heard: &dyn Fn(u64)) -> Result<(), RunFailed<E>> {
        let mut told = self.clocks.iter().sum::<u64>();
        loop {
            let next = (0..self.clocks.len()).min_by_key(|&core| self.clocks[core]);
            let Some(core) = next.filter(|&core| self.clocks[core] < end) else { break };
            self.clocks[core] += self.apps[core].step(&mut self.system)?;
            let now = self.clocks.iter().sum::<u64>();
            if now - told >= REPORT {
                heard(now - told);
                told = now;
            }
        }
        Ok(())
    }
}

impl<'a, E> CoRun<'a, E> {
    fn new(case: &ScolariCase, open: Open<'a, E>) -> Result<CoRun<'a, E>, RunFailed<E>> {
        let (machine, map) = machine(case.scheme)?;
        let all = map.all();
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
        let clocks = vec![0; apps.len()];
        Ok(CoRun { system, apps, clocks })
    }

    fn finish(mut self, case: &ScolariCase) -> Result<ScolariOutcome, RunFailed<E>> {
        self.system.finish();
        self.system.check().map_err(RunFailed::Unsound)?;
        let outside = self.system.frames_mut().outside();
        let mut outcome = ScolariOutcome::of(case);
        for app in self.apps {
            let counted = app.sums(&self.system).since(app.warm);
            outcome.programs.push(ScolariProgramResult {
                name: app.program.name.clone(),
                counted,
                outside,
            });
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_color::{Pfn, PhysAddr};
    use std::collections::{BTreeMap, BTreeSet};

    /// The slices and page-sized runs of sets that frames of a colour reach.
    fn places(scheme: Scheme, share: u16) -> usize {
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
    fn only_colors_that_know_the_hash_limit_the_space() {
        let all = places(Scheme::Aware, 16);
        for share in [1, 2, 4, 8] {
            assert_eq!(places(Scheme::Aware, share) * 16, all * usize::from(share));
            let unaware = places(Scheme::Unaware, share) * 4;
            assert_eq!(unaware, all * usize::from(share.min(4)), "bits 17 and 18 do not limit");
        }
    }
}
