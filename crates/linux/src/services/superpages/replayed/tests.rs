//! Recordings made by hand, replayed: what pays is built, what is sparse is not, and the same comes of it
//! each time.

use huepage_policy::recording::touches::{RecordedTlb, ResidentBlock as Recorded, Sampling};
use huepage_policy::recording::{RecordedSensor, VERSION};

use super::*;

/// Blocks of the process, from this address on divided by 2 MiB.
const FIRST: u64 = 1 << 16;
const BLOCKS: u64 = 64;

fn head(event: Option<SampledEvent>) -> TouchHead {
    let source = String::new();
    TouchHead {
        huepage_recording: VERSION,
        sensor: if event.is_some() { RecordedSensor::Pmu } else { RecordedSensor::AccessedBits },
        pid: 7,
        tlb: RecordedTlb { entries: 1024, walk_ns: 30 },
        samples: event.map(|event| Sampling { event, source, period: 4096, level: None }),
        areas: Vec::new(),
    }
}

/// Blocks of which so many pages are resident.
fn survey(resident: u16) -> TouchStep {
    let block = |at| Recorded { at: FIRST + at, resident, zero: 0, huge: false };
    let blocks: Vec<Recorded> = (0..BLOCKS).map(block).collect();
    let resident = BLOCKS * u64::from(resident);
    TouchStep::Survey(Survey { survey: 0.0, resident, blocks, gone: Vec::new() })
}

/// Half of the pages that are looked at were touched: far more than the TLB holds.
fn look(second: f64, resident: u32) -> TouchStep {
    let group = |at| BlockLook {
        block: FIRST + at,
        pages: 128.min(resident),
        resident,
        stands_for: 0.5,
        touched: (0..128).step_by(2).collect(),
        late: Vec::new(),
    };
    let groups = (0..BLOCKS).map(group).collect();
    TouchStep::Look(TouchLook {
        at: second,
        cpu: second,
        window_ns: 10_000_000,
        slow: false,
        groups,
    })
}

fn samples(second: f64) -> TouchStep {
    // One in 4096 misses, of each block some.
    let missed = (0..BLOCKS * 4).map(|n| (FIRST + n % BLOCKS) * SUPERPAGE_PAGES + n).collect();
    TouchStep::Samples(TouchSamples { at: second, cpu: second, missed, hit: Vec::new() })
}

fn named(text: &str) -> Settings {
    Settings::parse(text).expect("a policy")
}

fn replayed(head: &TouchHead, choice: Option<&str>, steps: &[TouchStep]) -> ReplayOutcome {
    let mut replay = Replay::new(head, choice.map(named).as_ref(), 0.04);
    steps.iter().for_each(|step| replay.step(step));
    replay.outcome()
}

fn steps(resident: u16) -> Vec<TouchStep> {
    let looks = (1..=5).map(|second| look(f64::from(second), resident.into()));
    std::iter::once(survey(resident)).chain(looks).collect()
}

#[test]
fn what_misses_is_built_and_misses_no_more() {
    let (head, steps) = (head(None), steps(512));
    let base = replayed(&head, None, &steps);
    // 69.3 touches a second and page, 94 % of which miss: see the test of `replay`.
    let expected = 69.3 * 512.0 * 64.0 * 0.94 * 0.5 * 4.0;
    assert!((base.walks as f64 / expected - 1.0).abs() < 0.1, "{base:?} of {expected}");
    assert_eq!((base.promotions, base.half_after), (0, None));
    for choice in ["approx-online", "online", "throttle"] {
        let found = replayed(&head, Some(choice), &steps);
        assert_eq!(found.promotions, BLOCKS, "{choice:?} {found:?}");
        assert!(found.walks < base.walks / 4, "{choice:?} {found:?}");
        assert!(found.tlb_seconds < base.tlb_seconds && found.promotion_seconds > 0.0);
        assert_eq!((found.filled_pages, found.half_after), (0, Some(1.0)), "{choice:?}");
        assert_eq!(found, replayed(&head, Some(choice), &steps), "the same each time");
    }
}

#[test]
fn asap_goes_by_what_is_there() {
    let found = replayed(&head(None), Some("asap"), &[survey(512)]);
    assert_eq!((found.promotions, found.resident_pages), (BLOCKS, BLOCKS * 512));
    let found = replayed(&head(None), Some("asap"), &[survey(511)]);
    assert_eq!(found.promotions, 0, "not every page was touched");
    let faults = head(Some(SampledEvent::PageFaults));
    let found = replayed(&faults, Some("asap"), &[survey(512), samples(1.0)]);
    assert_eq!((found.promotions, found.walks), (BLOCKS, 0), "faults are no misses");
}

#[test]
fn what_would_take_too_much_memory_is_not_built() {
    let found = replayed(&head(None), Some("approx-online"), &steps(200));
    // 4 % of 64 times 200 pages are 512: one block with its 312 holes.
    assert_eq!((found.promotions, found.filled_pages), (1, 312), "{found:?}");
    assert!(found.refused[&NotBuilt::Sparse] > 0, "{found:?}");
}

#[test]
fn sampled_misses_count_for_their_period() {
    let head = head(Some(SampledEvent::TlbMisses));
    let steps = [survey(512), samples(1.0), samples(2.0), samples(3.0)];
    let base = replayed(&head, None, &steps);
    assert_eq!(base.walks, 3 * 4 * BLOCKS * 4096);
    let found = replayed(&head, Some("approx-online"), &steps);
    assert_eq!(found.promotions, BLOCKS, "{found:?}");
    assert!(found.walks < base.walks, "{found:?}");
}

#[test]
fn what_is_unmapped_is_none_any_more() {
    let gone = (0..BLOCKS).map(|at| FIRST + at).collect();
    let over = Survey { survey: 2.0, resident: 0, blocks: Vec::new(), gone };
    let mut replay = Replay::new(&head(None), Some(&named("approx-online")), 1.0);
    [survey(200), look(1.0, 200)].iter().for_each(|step| replay.step(step));
    let before = replay.outcome();
    assert!(before.promotions > 0 && before.filled_pages > 0, "{before:?}");
    replay.step(&TouchStep::Survey(over));
    let after = replay.outcome();
    assert_eq!((after.filled_pages, after.resident_pages), (0, 0));
    assert_eq!(after.promotions, before.promotions);
}

#[test]
fn a_policy_that_lacks_misses_names_the_sensor_to_record_with() {
    for event in [SampledEvent::PageFaults, SampledEvent::Loads] {
        let why = lacking(&named("online"), &head(Some(event))).unwrap();
        assert!(why.contains(event.text()) && why.contains("--sensor accessed-bits"), "{why}");
        assert_eq!(lacking(&named("asap"), &head(Some(event))), None);
    }
    for event in [None, Some(SampledEvent::TlbMisses)] {
        assert_eq!(lacking(&named("throttle"), &head(event)), None);
    }
}
