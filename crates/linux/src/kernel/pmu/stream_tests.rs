//! Loads from the kernel's records to the policy: a recorded stream, byte by byte as it lies in a ring, and
//! the real ring with samples that every kernel gives.

use std::collections::BTreeSet;

use huepage_color::CacheLevel;
use rustix::thread::gettid;

use super::event::Pace;
use super::loads::{LoadEvents, LoadSource};
use super::ring::tests::{body, record};
use super::ring::{PmuSample, parse};
use super::{DataSource, Drained, Served};
use crate::kernel::testing::{Anonymous, alone, events};

/// Splits a stream into records by their headers, as it is done with a ring.
pub(crate) fn read_stream(stream: &[u8], source: LoadSource) -> (Vec<PmuSample>, Drained) {
    let (mut out, mut drained, mut rest) = (Vec::new(), Drained::default(), stream);
    while !rest.is_empty() {
        let half = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]);
        let kind = u32::from_le_bytes(rest[..4].try_into().unwrap());
        let (misc, size) = (half(4), usize::from(half(6)));
        let found = parse(kind, misc, &rest[8..size]).expect("whole");
        drained.note(found, source.wanted(), &mut out);
        rest = &rest[size..];
    }
    (out, drained)
}

/// A load of a page that was answered by the L2, or from memory.
pub(crate) fn load(page: u64, memory: bool) -> PmuSample {
    // As Intel's table has them: hit in L2, number 2; hit in local memory, number 13.
    let level =
        if memory { (0x02 | 0x80) << 5 | 0xd << 33 } else { (0x02 | 0x20) << 5 | 0x2 << 33 };
    let source = DataSource(0x02 | level);
    let weight = if memory { 320 } else { 16 };
    PmuSample { pid: 7, tid: 8, address: page * 4096 + 0x40, time: page, weight, source }
}

#[test]
fn a_recorded_stream_is_told_apart() {
    let store = PmuSample { source: DataSource(0x04 | (0x02 | 0x08) << 5), ..load(5, false) };
    let mut stream = record(9, 2, &body(&load(3, true)));
    stream.extend(record(2, 0, &[0_u64, 40].map(u64::to_le_bytes).concat()));
    stream.extend(record(9, 2, &body(&store)));
    stream.extend(record(9, 1, &body(&load(4, true))));
    stream.extend(record(5, 0, &[0; 24]));
    stream.extend(record(9, 2, &body(&load(6, false))));
    stream.extend(record(13, 0, &2_u64.to_le_bytes()));
    let (samples, drained) = read_stream(&stream, LoadSource::Ibs);
    assert_eq!(samples, [load(3, true), load(6, false)]);
    assert_eq!(drained, Drained { samples: 2, lost: 42, unusable: 2, throttled: 1 });
    assert_eq!(drained.taken(), 46);
    let served: Vec<_> = samples.iter().map(|s| s.source.served()).collect();
    assert_eq!(served, [Some(Served::Beyond), Some(Served::L2)]);
    let missed = |s: &PmuSample| s.source.served()?.missed(CacheLevel::L2);
    assert_eq!(samples.iter().map(missed).collect::<Vec<_>>(), [Some(true), Some(false)]);
}

/// The reader of loads on page faults: addresses come as they were touched, and nobody says who answered.
#[test]
fn the_reader_of_loads_gives_addresses_that_were_touched() {
    let name = "the_reader_of_loads_gives_addresses_that_were_touched";
    if !alone(module_path!(), name) {
        return;
    }
    let pid = std::process::id().cast_signed();
    let opened = LoadEvents::faults().with_pace(pid, Pace::Every(1), 16 << 10);
    let Some(mut sampler) = events(name, opened) else { return };
    let (area, mut samples) = (Anonymous::new(900), Vec::new());
    let mut drained = Drained::default();
    // Many times round a ring of 341 records.
    for page in 0..900 {
        area.touch(page);
        if page % 50 == 49 {
            drained += sampler.drain(&mut samples).unwrap();
        }
    }
    drained += sampler.drain(&mut samples).unwrap();
    let own = gettid().as_raw_nonzero().get();
    let inside = samples.iter().filter(|s| s.tid == own && area.range().contains(&s.address));
    let pages: BTreeSet<u64> = inside.map(|s| (s.address - area.start()) / 4096).collect();
    eprintln!("{name}: {drained:?}");
    assert_eq!((pages.len(), drained.lost), (900, 0), "{drained:?}");
    assert!(samples.iter().all(|s| s.source.served().is_none() && s.pid == pid));
}

/// Where there is a PMU: loads of more than fits any cache come from memory.
#[test]
fn loads_are_sampled_where_there_is_a_pmu() {
    let name = "loads_are_sampled_where_there_is_a_pmu";
    let Ok(events) = LoadEvents::here(CacheLevel(3)) else {
        // A virtual machine cannot be made to have one, so this is not held against it.
        return huepage_testing::lacks(name, "no PMU that samples loads");
    };
    let pid = std::process::id().cast_signed();
    let mut sampler = events.open(pid, 5000).unwrap();
    let (area, mut samples) = (Anonymous::new(64 << 10), Vec::new());
    (0..64 << 10).for_each(|page| area.touch(page));
    let mut drained = Drained::default();
    for round in 0..40 * (64 << 10) {
        area.read(round * 7919 % (64 << 10));
        if round % 4096 == 0 {
            drained += sampler.drain(&mut samples).unwrap();
        }
    }
    let beyond = samples.iter().filter(|s| s.source.served() == Some(Served::Beyond));
    assert!(beyond.count() > 50, "{drained:?}");
}
