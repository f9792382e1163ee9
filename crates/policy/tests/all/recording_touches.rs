//! Recordings of touches and samples: what a sensor counted is what their reader counts, made by hand, by
//! chance and damaged in thousands of ways; and the reader that takes any recording.

use std::collections::BTreeMap;

use huepage_policy::AreaKind;
use huepage_policy::recording::touches::{
    BlockLook, RecordedArea, RecordedTlb, ResidentBlock, SampledEvent, Sampling, Survey, TouchHead,
    TouchLook, TouchRecording, TouchSamples, TouchStep, TouchTail, TouchTally, TouchTotals,
};
use huepage_policy::recording::{
    Heard, RecordedSensor, Recording, RecordingError, RecordingReader, VERSION,
};
use proptest::prelude::*;

use super::recording::{damage_and_read, read_any, refused};

const HEAD: &str = r#"{"huepage_recording":1,"sensor":"accessed-bits","pid":7,"tlb":{"entries":1536,"walk_ns":30},"areas":[{"start":2097152,"end":8388608,"kind":"heap","name":"[heap]"}]}"#;
const STEPS: &str = r#"{"survey":0.1,"resident":900,"blocks":[[1,512,0,false],[2,100,3,true],[9,5,0,false]],"gone":[]}
{"at":0.2,"cpu":3.5,"window_ns":4000000,"slow":false,"groups":[{"block":1,"pages":128,"resident":512,"stands_for":0.5,"touched":[0,7,127],"late":[7]},{"block":9,"pages":5,"resident":5,"stands_for":0.5,"touched":[],"late":[]}]}
{"survey":0.3,"resident":800,"blocks":[[1,500,0,false]],"gone":[2]}"#;
const TAIL: &str = r#"{"end":{"looks":1,"pages":133,"touched":3,"samples":0,"lost":0,"unusable":0,"seconds":1.5,"cpu_seconds":0.01,"ended":false}}"#;

const PMU: &str = r#"{"huepage_recording":1,"sensor":"pmu","pid":7,"tlb":{"entries":64,"walk_ns":12},"samples":{"event":"loads","source":"loads by PEBS","period":0,"level":2},"areas":[]}
{"at":0.2,"cpu":1.0,"missed":[512,513],"hit":[7]}
{"at":0.2,"cpu":1.5,"missed":[]}
{"end":{"looks":2,"pages":0,"touched":0,"samples":3,"lost":4,"unusable":5,"seconds":1.0,"cpu_seconds":0.0,"ended":true}}"#;

fn of_touches(recording: Recording) -> TouchRecording {
    match recording {
        Recording::Touches(found) => found,
        Recording::Residency(found) => panic!("{found:?}"),
    }
}

fn read(text: &str) -> Result<TouchRecording, RecordingError> {
    read_any(text).map(|(found, _)| of_touches(found))
}

#[test]
fn a_recording_made_by_hand_is_counted() {
    let found = read(&format!("{HEAD}\n{STEPS}\n{TAIL}\n")).unwrap();
    let TouchTally { areas, blocks, resident, surveys, looks, pages, touched, .. } = &found.tally;
    assert_eq!((*resident, *surveys, *looks, *pages, *touched), (800, 2, 1, 133, 3));
    assert_eq!(blocks.keys().copied().collect::<Vec<_>>(), [1, 9]);
    let counts: Vec<_> = areas.iter().map(|a| (a.resident, a.pages, a.touched)).collect();
    assert_eq!(counts, [(500, 128, 3), (5, 5, 0)], "the second is of what was mapped later");
    assert_eq!((found.last, found.cpu), (0.3, Some([3.5, 3.5])));
    assert!(found.totals.is_some());
    let short = read(&format!("{HEAD}\n{STEPS}")).unwrap();
    assert_eq!((short.totals, short.tally), (None, found.tally));
}

#[test]
fn samples_are_counted() {
    let found = read(PMU).unwrap();
    let sampling = found.head.samples.unwrap();
    assert_eq!((sampling.event, sampling.level), (SampledEvent::Loads, Some(2)));
    assert_eq!((found.tally.samples, found.tally.looks, found.cpu), (3, 2, Some([1.0, 1.5])));
    assert_eq!(found.tally.areas[0].samples, 3);
}

#[test]
fn other_texts_are_refused_with_the_line() {
    assert_eq!(read(""), Err(RecordingError::Empty));
    let wrong = |line: &str, what: &str| {
        let said = refused(&format!("{HEAD}\n{STEPS}\n{line}"));
        assert!(said.contains(what) && said.starts_with("line "), "{said}");
        assert!(said.ends_with("record again"), "{said}");
    };
    let look = |from: &str, to: &str| {
        let line = STEPS.lines().nth(1).unwrap().replacen("0.2", "0.4", 1);
        let other = line.replacen(from, to, 1);
        assert_ne!(line, other, "{from}");
        other
    };
    wrong(&look("0.4", "0.2"), "line 5: 0.2 s is before");
    wrong(&look("3.5", "3.4"), "less than before");
    wrong(&look("4000000", "0"), "no sensor looks like this");
    wrong(&look("[0,7,127]", "[0,127,7]"), "do not fit");
    wrong(&look("[0,7,127]", "[0,7,512]"), "do not fit");
    wrong(&look("[7]", "[8]"), "do not fit");
    wrong(&look("\"pages\":128", "\"pages\":2"), "do not fit");
    wrong(&look("\"resident\":512", "\"resident\":513"), "do not fit");
    wrong(&look("\"block\":9", "\"block\":1"), "do not fit");
    wrong(&look("\"slow\"", "\"slo\""), "no survey, look, sample or total");
    wrong(r#"{"survey":0.5,"resident":1,"blocks":[[3,600,0,false]],"gone":[]}"#, "no such block");
    wrong(r#"{"survey":0.5,"resident":1,"blocks":[[3,0,0,false]],"gone":[]}"#, "no such block");
    let twice = r#"{"survey":0.5,"resident":1,"blocks":[[3,1,0,false],[3,2,0,false]],"gone":[]}"#;
    wrong(twice, "out of order");
    for gone in ["[2]", "[1,1]"] {
        let line = format!(r#"{{"survey":0.5,"resident":1,"blocks":[],"gone":{gone}}}"#);
        wrong(&line, "gone that was not there");
    }
    wrong(r#"{"at":0.5,"cpu":4.0,"missed":[1]}"#, "samples in a recording of accessed bits");
    wrong(&TAIL.replace("133", "134"), "not those of the lines before");
    wrong(&format!("{TAIL}\n{TAIL}"), "behind the totals");
    let of_misses = PMU.replacen("\"loads\"", "\"tlb-misses\"", 1);
    assert!(refused(&of_misses).contains("hits among misses"));
    let bits = format!("{}\n{}", PMU.lines().next().unwrap(), STEPS.lines().nth(1).unwrap());
    assert!(refused(&bits).contains("accessed bits in a recording of samples"));
}

#[test]
fn heads_that_make_no_sense_are_refused() {
    for (from, to) in [
        ("accessed-bits", "residency"),
        ("accessed-bits", "pmu"),
        ("\"entries\":1536", "\"entries\":0"),
        ("\"walk_ns\":30", "\"walk_ns\":0"),
        ("\"end\":8388608", "\"end\":2097152"),
        ("\"end\":8388608", "\"end\":8388609"),
        ("\"end\":8388608", "\"end\":18446744073709547520"),
        ("\"pid\":7", "\"pid\":7,\"own\":1"),
        ("heap\"", "heaps\""),
    ] {
        let head = HEAD.replacen(from, to, 1);
        assert_ne!(head, HEAD, "{from}");
        assert!(refused(&head).starts_with("line 1: "), "{from} -> {to}");
    }
    assert_eq!(read(&HEAD.replacen(":1,", ":2,", 1)), Err(RecordingError::Version(2)));
}

#[test]
fn any_recording_is_known_by_its_first_line() {
    let (found, heard) = read_any(&format!("{HEAD}\n{STEPS}\n{TAIL}")).unwrap();
    assert!(matches!(found, Recording::Touches(found) if found.tally.touched == 3));
    assert!(matches!(
        heard[..],
        [
            Heard::Frame,
            Heard::Step(TouchStep::Survey(_)),
            Heard::Step(TouchStep::Look(_)),
            Heard::Step(TouchStep::Survey(_)),
            Heard::Frame
        ]
    ));
    let residency = r#"{"huepage_recording":1,"sensor":"residency","pid":7,"cache_bytes":1048576,"areas":[{"start":4096,"end":16384,"kind":"heap","name":"[heap]","resident":3,"pages":[1,2]}],"in_use":{"colors":16,"ways":16,"of":[3,null]}}
{"at":0.5,"found":[1],"missed":[2]}"#;
    let (found, heard) = read_any(residency).unwrap();
    let Recording::Residency(found) = found else { panic!("{found:?}") };
    assert_eq!(found.head.in_use.unwrap().of, [Some(3), None]);
    assert!(matches!(&heard[1], Heard::Look(look) if look.found == [1]));
    for other in ["[3]", "[3,16]", "[3,-1]"] {
        let said = read_any(&residency.replace("[3,null]", other)).unwrap_err().to_string();
        assert!(said.starts_with("line 1: "), "{said}");
    }
    assert_eq!(read_any(""), Err(RecordingError::Empty));
    assert_eq!(read_any("{}"), Err(RecordingError::NoHead));
    assert_eq!(read_any(&HEAD.replacen(":1,", ":9,", 1)), Err(RecordingError::Version(9)));
    let other = read_any(&HEAD.replace("accessed-bits", "a\\nb")).unwrap_err();
    assert_eq!(other, RecordingError::Sensor("a\\nb".to_owned()));
    assert!(!other.to_string().contains('\n'), "{other}");
}

/// What a sensor may see: surveys and looks, in turns.
fn seen() -> impl Strategy<Value = Vec<TouchStep>> {
    let block = (0_u64..40, 0_u16..=400, 0_u16..=100, any::<bool>());
    let blocks = prop::collection::vec(block, 0..20);
    let touched = prop::collection::btree_set(0_u16..512, 0..40);
    let groups = prop::collection::vec((0_u64..40, touched, any::<u64>()), 0..10);
    prop::collection::vec((blocks, groups, 0.0_f64..1.0), 0..12).prop_map(|seen| {
        let (mut steps, mut at, mut known) = (Vec::new(), 0.0, BTreeMap::new());
        for (blocks, groups, wait) in seen {
            let now: BTreeMap<u64, ResidentBlock> = blocks
                .into_iter()
                .map(|(at, resident, zero, huge)| {
                    (at, ResidentBlock { at, resident: resident + 1, zero, huge })
                })
                .collect();
            let tally = TouchTally { blocks: known, ..TouchTally::default() };
            let (blocks, gone) = tally.changes(&now);
            known = now;
            at += wait;
            steps.push(TouchStep::Survey(Survey { survey: at, resident: 77, blocks, gone }));
            steps.push(TouchStep::Look(look(at, groups)));
        }
        steps
    })
}

fn look(at: f64, groups: Vec<(u64, std::collections::BTreeSet<u16>, u64)>) -> TouchLook {
    let once: BTreeMap<u64, _> = groups.into_iter().map(|(at, t, mask)| (at, (t, mask))).collect();
    let group = |(block, (touched, mask)): (u64, (std::collections::BTreeSet<u16>, u64))| {
        let touched: Vec<u16> = touched.into_iter().collect();
        let late = touched.iter().copied().filter(|page| mask >> (page % 64) & 1 == 1).collect();
        let pages = u32::try_from(touched.len()).unwrap() + 1;
        BlockLook { block, pages, resident: pages + 9, stands_for: at / 3.0, touched, late }
    };
    let groups = once.into_iter().map(group).collect();
    TouchLook { at, cpu: at * 0.7, window_ns: 1 + groups_seed(at), slow: at > 2.0, groups }
}

fn groups_seed(at: f64) -> u64 {
    at.to_bits() % 1_000_000
}

fn head() -> TouchHead {
    let area = |start: u64| RecordedArea {
        start: start << 21,
        end: (start + 12) << 21,
        kind: AreaKind::Anonymous,
        name: "\"odd\"\n name".to_owned(),
    };
    let tlb = RecordedTlb { entries: 1536, walk_ns: 30 };
    let areas = vec![area(1), area(20)];
    let sensor = RecordedSensor::AccessedBits;
    TouchHead { huepage_recording: VERSION, sensor, pid: 7, tlb, samples: None, areas }
}

proptest! {
    #[test]
    fn a_replay_counts_as_the_sensor_did(steps in seen()) {
        let (head, mut reader) = (head(), RecordingReader::default());
        let mut tally = TouchTally::of(&head);
        let json = |text: serde_json::Result<String>| text.unwrap().into_bytes();
        prop_assert_eq!(reader.line(&json(serde_json::to_string(&head))).unwrap(), Heard::Frame);
        for step in &steps {
            tally.note(step);
            let heard = reader.line(&json(serde_json::to_string(step))).unwrap();
            prop_assert_eq!(heard, Heard::Step(step.clone()), "as it was, to the last digit");
        }
        let TouchTally { looks, pages, touched, samples, .. } = tally;
        let end = TouchTotals { looks, pages, touched, samples, ..TouchTotals::default() };
        reader.line(&json(serde_json::to_string(&TouchTail { end }))).unwrap();
        let found = of_touches(reader.finish().unwrap());
        prop_assert!(found.totals.is_some());
        prop_assert_eq!(found.tally, tally);
        prop_assert_eq!(found.head, head);
    }
}

#[test]
fn samples_are_written_as_they_are_read() {
    let sampling = Sampling {
        event: SampledEvent::PageFaults,
        source: "x".to_owned(),
        period: 1,
        level: None,
    };
    let head = TouchHead { sensor: RecordedSensor::Pmu, samples: Some(sampling), ..head() };
    let step =
        TouchStep::Samples(TouchSamples { at: 0.1, cpu: 0.2, missed: vec![3, 1], hit: Vec::new() });
    let mut reader = RecordingReader::default();
    reader.line(serde_json::to_string(&head).unwrap().as_bytes()).unwrap();
    let heard = reader.line(serde_json::to_string(&step).unwrap().as_bytes()).unwrap();
    assert_eq!(heard, Heard::Step(step));
}

#[test]
fn damaged_recordings_are_read_or_refused_in_one_line() {
    damage_and_read(37, &[format!("{HEAD}\n{STEPS}\n{TAIL}\n"), format!("{PMU}\n")], |found| {
        let TouchRecording { tally, .. } = of_touches(found);
        assert!(tally.touched <= tally.pages);
        let resident: u64 = tally.areas.iter().map(|area| area.resident).sum();
        let blocks = tally.blocks.values().map(|block| u64::from(block.resident));
        assert_eq!(resident, blocks.sum::<u64>());
    });
}
