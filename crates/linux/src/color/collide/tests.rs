//! The live collider against the probe's classifier, on the L2 of this machine: two ways of
//! measuring that share nothing but the timed loads. Needs root, for frame numbers. On a busy
//! machine tries are lost to noise, so there are more until it passes.

use std::time::{Duration, Instant};

use huepage_color::{CacheLevel, LevelChoice};
use huepage_recover::collide::{GatherSettings, classify, groups};
use huepage_recover::{HashOutcome, Observations, RecoverOptions, recover};

use super::*;
use crate::color::probe::{
    Classifier, FrameVerdict, ProbeParams, ReferenceSet, measure_verdict, open_reference,
};
use crate::kernel::machine::HostMachine;
use crate::kernel::testing::live;

/// A loaded machine has quieter minutes.
const PATIENCE: Duration = Duration::from_secs(400);
const PROBES: usize = 600;
/// Lines that are to evict another, as multiples of half of the ways.
const FULL: [usize; 2] = [3, 6];

/// Why the test cannot run, or the parameters of the L2.
fn l2() -> Result<ProbeParams, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("not root".into());
    }
    let machine = HostMachine::read().map_err(|e| e.to_string())?;
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2)).map_err(|e| e.to_string())?;
    ProbeParams::for_cache(&l2.geometry).map_err(|e| e.to_string())
}

/// Lines sorted by evictions, if the machine was quiet enough for half of the groups to be found.
fn gathered(
    params: &ProbeParams,
    live: &mut LiveCollider,
    turn: usize,
) -> Result<Observations, String> {
    let (colors, ways) = (usize::from(params.colors), params.ways as usize);
    // Replacement is not by age: some caches are sure to evict after half as many lines again as they
    // have ways (Cascade Lake), others after three times as many (family 6, model 167).
    let how = GatherSettings { ways: ways * FULL[turn % FULL.len()] / 2, votes: 3 };
    // A line of each page: bits of the frame number are not to be believed here.
    let lines = live.lines(0x740, 6, 6);
    let (pool, probes) = lines.split_at(lines.len() - PROBES);
    live.calibrate(pool, how.ways / 2).map_err(|e| e.to_string())?;
    let mut found = groups(live, pool, how).map_err(|e| e.to_string())?;
    let seen = classify(live, &mut found, probes.iter().copied(), how, || true);
    let (seen, groups) = (seen.map_err(|e| e.to_string())?, found.groups.len());
    let enough = 2 * groups >= colors && 4 * groups <= 5 * colors;
    let what = format!("{groups} groups of {colors}, {} lines of {PROBES}", seen.list.len());
    enough.then_some(seen).ok_or(what)
}

/// The share of lines whose group is the one that most lines of their colour are in.
fn agreement(set: &ReferenceSet, live: LiveCollider, seen: &Observations, cpu: usize) -> f64 {
    let pages: Vec<u64> = seen.members().map(|(addr, _)| live.mapped[&addr.pfn().0]).collect();
    let mut bench = set.bench(cpu).unwrap();
    // SAFETY: `live` keeps the pages mapped to the end of this function, and `bench` ends first.
    pages.iter().for_each(|&page| unsafe { bench.allow(page..page + PAGE_BYTES) });
    let colours = Classifier::new(set.classes.clone()).classify(&mut bench, &pages).unwrap();
    drop((bench, live));
    let both: Vec<(u16, u16)> = seen
        .members()
        .zip(colours)
        .filter_map(|((_, group), colour)| Some((group.0, colour.color?.0)))
        .collect();
    let count = |group, colour| both.iter().filter(|&&one| one == (group, colour)).count();
    let best = |group| (0..set.classes.colors()).map(|colour| count(group, colour)).max();
    let same: usize = (0..256).filter_map(best).sum();
    same as f64 / both.len() as f64
}

#[test]
fn groups_found_by_evictions_are_the_colours_that_the_probe_measures() {
    let Some(params) = live("groups_found_by_evictions", l2()) else { return };
    if params.depth > 1 {
        // The collider is for the last level, whose misses are ten times as far from its hits.
        let why = "this clock cannot tell single lines of the L2 from others";
        return huepage_testing::lacks("groups_found_by_evictions", why);
    }
    let cpu = rustix::thread::sched_getcpu();
    // The machine's own, or, beside a busy neighbour, what several tries give.
    let set = open_reference(&params, cpu).unwrap().set;
    let pages = 3 * usize::from(params.colors) * (params.ways as usize) * 3 / 2 + PROBES;
    let (mut tried, began) = (Vec::new(), Instant::now());
    let seen = loop {
        assert!(began.elapsed() < PATIENCE, "{tried:?}");
        let mut live = LiveCollider::new(cpu, pages).unwrap();
        match gathered(&params, &mut live, tried.len()) {
            Err(why) => tried.push(why),
            Ok(seen) => match agreement(&set, live, &seen, cpu) {
                share if share >= 0.7 => break seen,
                share => tried.push(format!("{share} agree")),
            },
        }
    };
    // Where frame numbers say nothing about the cache, no hash of them may come out.
    let mut bench = set.bench(cpu).unwrap();
    let mut probe = Classifier::new(set.classes.clone());
    let verdict = measure_verdict(&mut probe, &mut bench, 2048).unwrap().verdict;
    let outcome =
        recover(&seen, &RecoverOptions { trials: 20_000, ..RecoverOptions::default() }).outcome;
    if verdict == FrameVerdict::MustProbe {
        assert!(!matches!(outcome, HashOutcome::Linear(_)), "{outcome:?}");
    }
}
