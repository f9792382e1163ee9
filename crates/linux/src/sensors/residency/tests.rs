//! The sensor on the running kernel, which takes root: lines of our own, and a process with a hot set.

use std::sync::Arc;

use huepage_color::{CacheLevel, LevelChoice};

use super::*;
use crate::color::frame_colors::{ColorMethod, FrameColors};
use crate::color::probe::{Classifier, LocalBench};
use crate::color::sources::{ColorSource, Probed};
use crate::kernel::testing::live;

#[test]
fn what_was_just_loaded_is_told_from_what_was_not() {
    let Some(mut timer) = live("what_was_just_loaded", Timer::open()) else { return };
    let pages = OwnPages::populated(1 << 14).unwrap();
    let frames = frames_of(&pages).unwrap();
    let (mut random, mut classifier) = (Rng::with_seed(7), HitClassifier::default());
    let any = |random: &mut Rng| TimedLine {
        frame: frames[random.usize(..frames.len())],
        index: random.usize(..64).to_le_bytes()[0],
    };
    for _ in 0..200 {
        let fresh: Vec<TimedLine> = (0..16).map(|_| any(&mut random)).collect();
        let took = timer.time(&[&fresh[..], &fresh[..]].concat()).unwrap();
        assert_eq!(took.len(), 32);
        took[..16].iter().flatten().for_each(|&took| classifier.gone(took));
        took[16..].iter().flatten().for_each(|&took| classifier.there(took));
    }
    let [there, gone] = classifier.medians().expect("memory of our own");
    assert!(classifier.cut().is_some(), "{there} ns and {gone} ns");
}

/// Nanoseconds by which quartiles of equal times differ: reading the clock takes far longer than a line does, and both
/// levels may take the same by it.
const CLOCK_NOISE: u64 = 3;

/// Bytes of the second level here.
fn l2_bytes() -> u64 {
    let machine = crate::kernel::machine::HostMachine::read().unwrap();
    machine.cache(LevelChoice::Level(CacheLevel::L2)).unwrap().geometry.size_bytes
}

#[test]
fn lines_of_the_private_cache_take_no_longer_than_those_of_the_next() {
    let Some(mut timer) = live("lines_of_the_private_cache", Timer::open()) else { return };
    let bytes = l2_bytes();
    let (own, frames) = cold(bytes).unwrap();
    let mut levels = Levels::default();
    for _ in 0..10 * MEASURE_REPEATS {
        levels.measure(&mut timer, (&own, &frames), bytes, &mut Rng::with_seed(3)).unwrap();
    }
    let Levels { mut private, mut next } = levels;
    assert!(private.len() >= 10 * MEASURE_REPEATS && next.len() > private.len());
    private.sort_unstable();
    next.sort_unstable();
    // Neighbours evict: what a line takes undisturbed is seen in the faster ones.
    let [nearer, farther] = [private, next].map(|all| all[all.len() / 4]);
    assert!(nearer <= farther + CLOCK_NOISE, "{nearer} {farther}");
}

#[test]
fn frames_that_are_no_memory_have_no_latency() {
    let Some(mut timer) = live("frames_that_are_no_memory", Timer::open()) else { return };
    let page = OwnPages::populated(1).unwrap();
    let own = TimedLine { frame: frames_of(&page).unwrap()[0], index: 5 };
    let nowhere = TimedLine { frame: Pfn(1 << 39), index: 0 };
    let took = timer.time(&[own, nowhere, own]).unwrap();
    assert!(took[0].is_some() && took[1].is_none() && took[2].is_some(), "{took:?}");
    assert_eq!(timer.time(&[own; 300]).unwrap().len(), Timer::MOST);
    assert_eq!(timer.time(&[]).unwrap(), []);
}

#[test]
fn a_budget_holds_from_the_start_once_the_start_is_saved() {
    let (mut spent, mut elapsed, mut looks) = (Duration::from_millis(30), Duration::ZERO, 0);
    while elapsed < Duration::from_secs(6) {
        elapsed += pause(spent, elapsed, 0.01);
        spent += Duration::from_micros(200);
        looks += 1;
    }
    assert!(spent <= elapsed.div_f64(99.0), "{spent:?} of {elapsed:?}");
    assert!(looks > 100, "{looks}");
}

#[test]
fn a_process_that_ends_is_noticed() {
    let Some(_) = live("a_process_that_ends", Timer::open()) else { return };
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut watch = Watch::open(pid, 1 << 20, 0.01).unwrap();
    for _ in 0..20 {
        // It may have been caught before it fell asleep.
        watch.look().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = (0..20).find_map(|_| watch.look().err());
    assert!(matches!(gone, Some(ResidencyError::Gone(p)) if p == pid), "{gone:?}");
    assert!(matches!(Watch::open(pid, 1 << 20, 0.01), Err(ResidencyError::Gone(_))));
}

/// Colours of pages of ours, as their owner measures them and as somebody else does who knows only
/// their frames.
#[test]
fn colours_of_frames_are_those_of_their_pages() {
    let Some(_) = live("colours_of_frames", Timer::open()) else { return };
    let machine = crate::kernel::machine::HostMachine::read().unwrap();
    let level = LevelChoice::Level(CacheLevel::L2);
    let probed = Probed::open(&machine.cache(level).unwrap().geometry);
    let Some(probed) = live("colours_of_frames", probed) else { return };
    let method = probed.method();
    let ColorMethod::Measured(opened, cpu) = method.clone() else { panic!("{method:?}") };
    let pages = Arc::new(OwnPages::populated(600).unwrap());
    let mut seen = FrameColors::open(method).unwrap();
    let (mut best, mut both) = (0, 0);
    for _ in 0..5 {
        let mut bench = LocalBench::with_reference(cpu, &opened.set.memory).unwrap();
        bench.allow_pages(&pages);
        let mut classifier = Classifier::new(opened.set.classes.clone());
        let owner = classifier.classify(&mut bench, &pages.addresses()).unwrap();
        drop(bench);
        let other = seen.colors_of(&frames_of(&pages).unwrap()).unwrap();
        let known = owner.iter().zip(&other).filter_map(|(a, b)| Some((a.color?, (*b)?)));
        let known: Vec<_> = known.collect();
        best = known.iter().filter(|(a, b)| a == b).count();
        both = known.len();
        if both > 500 && best * 20 > both * 19 {
            return;
        }
    }
    panic!("{best} of {both} known to both are the same");
}
