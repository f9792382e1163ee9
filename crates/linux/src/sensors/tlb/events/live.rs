//! The whole path by page faults, which every kernel samples and whose addresses a test knows.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use rustix::thread::gettid;

use super::*;
use crate::kernel::cpus::{OnCpu, allowed_cpus};
use crate::kernel::pmu::Drained;
use crate::kernel::procfs::ProcError;
use crate::kernel::procfs::fake::own_pid;
use crate::kernel::testing::{Anonymous, alone, events};

const PAGE: u64 = 4096;

fn own_thread() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// A sampler of page faults, or none where this user may not.
fn faults(name: &str, pid: i32, ring_bytes: usize) -> Option<Sampler> {
    events(name, PmuSource::PageFaults.with_rings(pid, 1, ring_bytes))
}

/// Pages of an area that were seen, and how many samples that took.
fn pages(of: &Anonymous, samples: &[PmuSample], tid: i32) -> (BTreeSet<u64>, usize) {
    let inside = |s: &&PmuSample| s.tid == tid && of.range().contains(&s.address);
    let found: Vec<u64> =
        samples.iter().filter(inside).map(|s| (s.address - of.start()) / PAGE).collect();
    (found.iter().copied().collect(), found.len())
}

/// Stays on one CPU, so that all samples come through one ring.
fn pin() -> OnCpu {
    OnCpu::new(allowed_cpus()[0]).unwrap()
}

#[test]
fn fresh_pages_give_their_addresses_in_old_threads_and_in_new_ones() {
    if !alone(module_path!(), "fresh_pages_give_their_addresses_in_old_threads_and_in_new_ones") {
        return;
    }
    let before = now();
    let name = "fresh_pages_give_their_addresses";
    let Some(mut sampler) = faults(name, own_pid(), RING_BYTES) else { return };
    let work = || {
        let area = Anonymous::new(64);
        (0..64).step_by(2).for_each(|page| area.touch(page));
        (area, own_thread())
    };
    let (old, new) = (work(), std::thread::spawn(work).join().unwrap());
    let mut samples = Vec::new();
    let drained = sampler.drain(&mut samples).unwrap();
    let want: BTreeSet<u64> = (0..64).step_by(2).collect();
    for (area, tid) in [&old, &new] {
        assert_eq!(pages(area, &samples, *tid), (want.clone(), want.len()));
    }
    assert_eq!(drained.samples as usize, samples.len());
    assert_eq!((drained.lost, drained.throttled), (0, 0));
    let times = before..=now();
    assert!(samples.iter().all(|s| s.pid == own_pid() && times.contains(&s.time)));
    eprintln!("{name}: {drained:?}");
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// A record has 48 bytes, which do not divide a page: every round splits one.
#[test]
fn a_small_ring_goes_round_without_loss() {
    let name = "a_small_ring_goes_round_without_loss";
    if !alone(module_path!(), name) {
        return;
    }
    let _on = pin();
    let Some(mut sampler) = faults(name, own_pid(), 4096) else { return };
    let (area, mut samples) = (Anonymous::new(1000), Vec::new());
    let mut lost = 0;
    for page in 0..1000 {
        area.touch(page);
        if page % 20 == 19 {
            lost += sampler.drain(&mut samples).unwrap().lost;
        }
    }
    let (found, count) = pages(&area, &samples, own_thread());
    eprintln!("{name}: {} samples, {lost} lost", samples.len());
    assert_eq!((found.len(), count, lost), (1000, 1000, 0));
}

#[test]
fn a_full_ring_loses_samples_and_says_how_many() {
    let name = "a_full_ring_loses_samples_and_says_how_many";
    if !alone(module_path!(), name) {
        return;
    }
    let _on = pin();
    // Memory of the reader's own that it would touch for the first time between two records.
    let (area, mut samples) = (Anonymous::new(1001), vec![PmuSample::default(); 2000]);
    samples.clear();
    let Some(mut sampler) = faults(name, own_pid(), 4096) else { return };
    (0..1000).for_each(|page| area.touch(page));
    let first = sampler.drain(&mut samples).unwrap();
    area.touch(1000);
    let second = sampler.drain(&mut samples).unwrap();
    eprintln!("{name}: {first:?}, {second:?}");
    // 85 records of 48 bytes fit a page.
    assert_eq!((first.samples, first.lost), (85, 0));
    let all = first.samples + second.samples + second.lost;
    assert!((1001..1100).contains(&all) && second.lost > 890, "{first:?}, {second:?}");
    let found = pages(&area, &samples, own_thread()).0;
    assert!(found.contains(&1000) && found.contains(&0) && !found.contains(&999));
}

#[test]
fn another_process_is_watched_without_those_it_starts() {
    let name = "another_process_is_watched";
    let script = "read line; x=$(seq 1 40000); /bin/true";
    let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().cast_signed();
    // The shell may still be starting; it waits at `read`.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let sampler = faults(name, pid, RING_BYTES);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait().unwrap();
    let Some(mut sampler) = sampler else { return };
    let mut samples = Vec::new();
    let drained = sampler.drain(&mut samples).unwrap();
    eprintln!("{name}: {drained:?}");
    assert!(drained.samples > 20, "{drained:?}");
    assert!(samples.iter().all(|s| s.pid == pid && s.tid == pid));
}

#[test]
fn a_process_that_has_ended_is_gone() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().cast_signed();
    child.wait().unwrap();
    match PmuSource::PageFaults.open(pid, 1).map(drop) {
        Err(PmuError::Process(ProcError::NoProcess(gone))) => assert_eq!(gone, pid),
        Err(PmuError::Denied(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_machine_without_samples_says_why() {
    let opened = PmuSource::here().open(own_pid(), 1000);
    match PmuSource::supported() {
        Ok(source) => assert!(opened.is_ok() && source == PmuSource::here()),
        Err(error) => {
            eprintln!("no samples here: {error}");
            assert!(matches!(error, PmuError::Unsupported(..) | PmuError::Denied(_)), "{error:?}");
            assert!(opened.is_err());
        }
    }
}

/// Where there is a PMU: a walk over many pages misses on them.
#[test]
fn a_walk_over_many_pages_misses_where_there_is_a_pmu() {
    let name = "a_walk_over_many_pages_misses";
    let Ok(mut sampler) = PmuSource::here().open(own_pid(), 500) else {
        // A virtual machine cannot be made to have one, so this is not held against it.
        return huepage_testing::lacks(name, "no PMU that gives addresses");
    };
    let area = Anonymous::new(32 << 10);
    let mut samples = Vec::new();
    let mut drained = Drained::default();
    for round in 0..20 * (32 << 10) {
        area.touch(round * 7919 % (32 << 10));
        if round % 4096 == 0 {
            let some = sampler.drain(&mut samples).unwrap();
            drained.samples += some.samples;
            drained.unusable += some.unusable;
        }
    }
    let found = pages(&area, &samples, own_thread()).1;
    assert!(found > 100, "{found} of {drained:?}");
}
