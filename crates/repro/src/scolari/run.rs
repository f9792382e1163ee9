//! Runs a case on the cores of the simulated Xeon E5-1410. The first program has its partition, the others share
//! the rest of the cache; frames come from the mcolor buddy allocator, whose colours know the hash
//! or do not.

use std::collections::BTreeSet;

use huepage_color::{
    CacheLevel, ColorMap, ColorSet, HashedError, IndexFunction, LinearColors, Provenance,
    hash_aware, hash_unaware,
};

use super::super::coloris::apps::{App, CoRun, Open};
use super::super::coloris::outcome::Sums;
use super::super::run::{self, RunFailed};
use super::cases::{COLORS, Scheme, ScolariCase, ScolariPart, THREADS};
use super::changes::ScolariChange;
use super::outcome::{ScolariOutcome, ScolariProgramResult};
use super::parsec::is_shared;
use super::programs::program;
use super::threads::{BANKS, ROW};
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

/// Gives each core a second hardware thread, which has its caches with it, and here TLBs of its own.
fn hardware_threads(machine: &mut Machine) {
    machine.cores *= 2;
    for cache in &mut machine.cache {
        cache.shared_by *= 2;
    }
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
    let (mut machine, map) = machine(case.scheme)?;
    if case.change.at_a_time() {
        hardware_threads(&mut machine);
    }
    let l2 = l2_stall(&machine);
    let target = first(case.share, &map);
    let colors = [map.all().difference(&target), target];
    let frames = Frames::new(machine.memory.0 >> 12, Choice::InOrder, Some(map));
    let mut system = System::new(machine, frames);
    if case.part == ScolariPart::Threads {
        system.share_banks(BANKS, ROW);
    }
    let apps = apps(case, &mut system, &colors, open)?;
    let times = case.times(quick);
    let mut run = CoRun::new(system, apps, times.turn, None);
    run.run([REPORT, times.warm_up, times.end], heard)?;
    let mut outcome = ScolariOutcome::of(case);
    outcome.elapsed = times.end - times.warm_up;
    outcome.programs = (0..case.programs.len()).map(|at| told(case, at, &mut run, l2)).collect();
    Ok(outcome)
}

/// The threads of all programs in their places, those whose turn comes first on a core before the others. The
/// first program has the last colours.
fn apps<'a, E>(
    case: &ScolariCase,
    system: &mut System,
    colors: &[ColorSet; 2],
    open: Open<'a, E>,
) -> Result<Vec<App<'a, E>>, RunFailed<E>> {
    let mut apps = Vec::new();
    for (at, name) in case.programs.iter().enumerate() {
        let colors = &colors[usize::from(at == 0)];
        for place in places(case, at) {
            let choice = Choice::Partition(colors.clone());
            system.frames_mut().choose_for(place.space, choice);
            let program = program(name, case.change.stand_in(name), place.seed);
            apps.push(App::new(&program, place.core, place.space, colors.clone(), open)?);
        }
    }
    if case.part == ScolariPart::Threads {
        let in_step = case.change == ScolariChange::InStep;
        let of = |app: &App<'_, E>| turn(if in_step { 0 } else { app.core }, app.space);
        apps.sort_by_key(of);
    }
    Ok(apps)
}

/// Where a thread of a program runs.
struct Place {
    core: u16,
    space: u16,
    /// Copies of a program are not in step, nor are threads.
    seed: u64,
}

/// The places of all threads of a program, by its number in the case.
fn places(case: &ScolariCase, at: usize) -> Vec<Place> {
    let at = u16::try_from(at).unwrap_or(0);
    if case.part != ScolariPart::Threads {
        return vec![Place { core: at, space: at, seed: 1 + u64::from(at) }];
    }
    let (first, shared) = (at * THREADS, is_shared(&case.programs[usize::from(at)]));
    let at_a_time = case.change.at_a_time();
    let thread = |core: u16| Place {
        core: if at_a_time { 2 * core + at } else { core },
        space: if shared { first } else { first + core },
        seed: u64::from(1 + first + core),
    };
    (0..THREADS).map(thread).collect()
}

/// Whose turn comes first on a core: the target's on every other core and the polluter's on those between, so
/// that both run at any time. Schedulers of cores are not in step.
const fn turn(core: u16, space: u16) -> u16 {
    (space / THREADS + core) % 2
}

/// What a program did with all its threads.
fn told<E>(case: &ScolariCase, at: usize, run: &mut CoRun<'_, E>, l2: u64) -> ScolariProgramResult {
    let spaces: BTreeSet<u16> = places(case, at).iter().map(|place| place.space).collect();
    let mut counted = Sums::default();
    for space in spaces {
        // All threads in a space have its account.
        let app = run.apps.iter().find(|app| app.space == space);
        counted = app.map_or(counted, |app| counted.and(app.sums(&run.system).since(app.warm)));
    }
    let (name, outside) = (case.programs[at].clone(), run.system.frames_mut().outside());
    ScolariProgramResult { name, counted, l2_hits: counted.second / l2, outside }
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_color::{Pfn, PhysAddr};
    use std::collections::BTreeMap;

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
    fn threads_have_a_core_each_and_share_memory_where_their_program_does() {
        let case = |part, programs: [&str; 2]| ScolariCase {
            part,
            workload: "P1".to_owned(),
            scheme: Scheme::Aware,
            share: 2,
            programs: programs.map(str::to_owned).to_vec(),
            change: ScolariChange::Nothing,
        };
        let pair = case(ScolariPart::Threads, ["bodytrack", "swaptions"]);
        let of = |at: usize| places(&pair, at).iter().map(|own| (own.core, own.space)).collect();
        let (target, polluter): (Vec<_>, Vec<_>) = (of(0), of(1));
        assert_eq!(target, [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(polluter, [(0, 4), (1, 5), (2, 6), (3, 7)]);
        let turns = |all: &[(u16, u16)]| -> Vec<u16> {
            all.iter().map(|&(core, space)| turn(core, space)).collect()
        };
        assert_eq!((turns(&target), turns(&polluter)), (vec![0, 1, 0, 1], vec![1, 0, 1, 0]));
        let other = places(&case(ScolariPart::Mixed, ["bzip2", "gcc"]), 1);
        assert_eq!((other.len(), other[0].core, other[0].space, other[0].seed), (1, 1, 1, 2));
    }

    #[test]
    fn hardware_threads_of_a_core_are_one_of_each_program() {
        let all = ScolariChange::HardwareThreads.cases(false);
        let case = all.into_iter().find(|case| case.programs.len() == 2).expect("a pair");
        let cores = [0, 1].map(|at| places(&case, at).iter().map(|own| own.core).collect());
        let [target, polluter]: [Vec<_>; 2] = cores;
        assert_eq!((target, polluter), (vec![0, 2, 4, 6], vec![1, 3, 5, 7]));
        let (mut machine, _) = machine(Scheme::Aware).expect("a machine");
        hardware_threads(&mut machine);
        let shared: Vec<_> = machine.cache.iter().map(|cache| cache.shared_by).collect();
        assert_eq!((machine.cores as u64, &shared[..]), (case.cores(), &[2, 2, 2, 8][..]));
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
