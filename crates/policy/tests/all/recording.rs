//! Recordings of residency: what a sensor counted is what their reader counts, made by hand, by chance
//! and damaged in thousands of ways; and what ROCS would confine of what they hold.

use std::time::Duration;

use huepage_color::Vpn;
use huepage_policy::AreaKind;
use huepage_policy::conflict::target::Random;
use huepage_policy::recording::residency::{
    ResidencyHead, ResidencyLook, ResidencyRecording, ResidencyTail, ResidencyTotals,
};
use huepage_policy::recording::{Heard, Recording, RecordingError, RecordingReader};
use huepage_policy::residency::{Errors, ResidencyTally};
use huepage_policy::rocs::offline::{Confined, RocsCache, confined};
use proptest::prelude::*;

const HEAD: &str = r#"{"huepage_recording":1,"sensor":"residency","pid":7,"cache_bytes":1048576,"areas":[{"start":4096,"end":16384,"kind":"heap","name":"[heap]","resident":3,"pages":[1,2]},{"start":65536,"end":131072,"kind":"shared_file","name":"/f","resident":10,"pages":[16,20,31]}]}"#;
const LOOKS: &str = r#"{"at":0.5,"found":[1,1,16],"missed":[2,31]}
{"at":0.75,"found":[1],"missed":[20,31]}"#;
const TAIL: &str = r#"{"end":{"samples":8,"found":4,"looks":3,"seconds":1.5,"cpu_seconds":0.01,"latencies":[50,90],"ended":false}}"#;

type ReadRecording = Result<(Recording, Vec<Heard>), RecordingError>;

fn read_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> ReadRecording {
    let mut reader = RecordingReader::default();
    let heard = lines.map(|line| reader.line(line)).collect::<Result<Vec<_>, _>>()?;
    assert!(reader.has_head() || heard.is_empty());
    Ok((reader.finish()?, heard))
}

/// A recording of any sensor, and what each line of it said.
pub fn read_any(text: &str) -> ReadRecording {
    read_lines(text.lines().map(str::as_bytes))
}

fn read(text: &str) -> Result<ResidencyRecording, RecordingError> {
    read_any(text).map(|(found, _)| match found {
        Recording::Residency(found) => found,
        Recording::Touches(found) => panic!("{found:?}"),
    })
}

/// The error of a text, which is one line.
pub fn refused(text: &str) -> String {
    let error = read_any(text).expect_err(text).to_string();
    assert!(!error.is_empty() && !error.contains(['\n', '\r']), "{error}");
    error
}

#[test]
fn a_recording_made_by_hand_is_counted() {
    let recorded = read(&format!("{HEAD}\n{LOOKS}\n{TAIL}\n")).unwrap();
    let pages: Vec<(u64, u32, u32)> =
        recorded.tally.sampled_pages.iter().map(|s| (s.page.0, s.samples, s.found)).collect();
    assert_eq!(pages, [(1, 3, 3), (2, 1, 0), (16, 1, 1), (20, 1, 0), (31, 2, 0)]);
    let areas: Vec<(u64, u64)> =
        recorded.tally.areas.iter().map(|area| (area.samples, area.found)).collect();
    assert_eq!(areas, [(4, 3), (4, 1)]);
    assert_eq!((recorded.looks, recorded.last, recorded.head.pid), (2, 0.75, 7));
    assert_eq!(recorded.totals.unwrap().latencies, Some([50, 90]));
    assert_eq!(recorded.tally.estimate().unwrap().samples, 8);
}

#[test]
fn looks_that_were_wrong_are_taken_out_of_the_estimate_if_they_were_told() {
    let told = TAIL.replace("\"ended\"", "\"errors\":{\"found\":0.1,\"lost\":0.3},\"ended\"");
    let [old, new] = [TAIL, &told].map(|tail| read(&format!("{HEAD}\n{LOOKS}\n{tail}\n")).unwrap());
    assert_eq!((old.errors(), new.errors()), (Errors::default(), Errors { found: 0.1, lost: 0.3 }));
    assert_eq!(old.estimate(), old.tally.estimate());
    assert_eq!(new.estimate(), new.tally.estimate_with(new.errors()));
    assert_ne!(old.estimate(), new.estimate());
}

#[test]
fn one_that_was_cut_short_has_no_totals() {
    let recorded = read(&format!("{HEAD}\n{LOOKS}")).unwrap();
    assert_eq!((recorded.totals, recorded.tally.samples()), (None, 8));
    assert_eq!(read(HEAD).unwrap().tally.estimate(), None);
}

#[test]
fn other_texts_are_refused_with_the_line() {
    assert_eq!(read(""), Err(RecordingError::Empty));
    for other in ["\n", "{}", "[1]", "{\"at\":1,\"found\":[],\"missed\":[]}", "\u{0}", TAIL] {
        assert_eq!(read(other), Err(RecordingError::NoHead), "{other}");
    }
    assert_eq!(read(&HEAD.replace(":1,", ":2,")), Err(RecordingError::Version(2)));
    let newer = r#"{"huepage_recording":3,"whatever":[]}"#;
    assert!(refused(newer).contains("version 3"));
    let wrong = |head: &str, line: &str, what: &str| {
        let said = refused(&format!("{head}\n{LOOKS}\n{line}"));
        assert!(said.contains(what) && said.starts_with("line "), "{said}");
    };
    wrong(HEAD, r#"{"at":0.9,"found":[3],"missed":[]}"#, "line 4: page 3 is not in the head");
    wrong(HEAD, r#"{"at":0.7,"found":[],"missed":[]}"#, "before the look before it");
    wrong(HEAD, r#"{"at":1e999,"found":[],"missed":[]}"#, "line 4");
    wrong(HEAD, r#"{"at":1,"found":[-1],"missed":[]}"#, "line 4");
    wrong(HEAD, r#"{"at":1,"found":[],"missed":[],"more":1}"#, "line 4");
    wrong(HEAD, " ", "line 4");
    wrong(HEAD, &TAIL.replace(":8,", ":9,"), "the looks 4 of 8");
    wrong(HEAD, &TAIL.replace("1.5", "-1"), "line 4");
    wrong(HEAD, &format!("{TAIL}\n{TAIL}"), "line 5: it comes behind the totals");
}

#[test]
fn heads_that_make_no_sense_are_refused() {
    for (from, to) in [
        ("\"end\":16384", "\"end\":4096"),
        ("\"end\":16384", "\"end\":16385"),
        ("\"start\":65536", "\"start\":8192"),
        ("\"resident\":3", "\"resident\":4"),
        ("\"resident\":3", "\"resident\":1"),
        ("[1,2]", "[2,1]"),
        ("[1,2]", "[1,1]"),
        ("[1,2]", "[1,4]"),
        ("\"end\":131072", "\"end\":18446744073709547520"),
        ("heap\",\"name", "heaps\",\"name"),
        ("\"pid\":7", "\"pid\":7,\"own\":1"),
    ] {
        let head = HEAD.replacen(from, to, 1);
        assert_ne!(head, HEAD, "{from}");
        assert!(refused(&head).starts_with("line 1: "), "{from} -> {to}");
    }
}

/// A process with some areas, and what looks saw of it, as a sensor counts it.
fn sensed() -> impl Strategy<Value = (ResidencyTally, Vec<Vec<(usize, bool)>>)> {
    let area = (1_u64..50, 1_u64..2000, 1_usize..40);
    let looks =
        prop::collection::vec(prop::collection::vec((any::<usize>(), any::<bool>()), 1..52), 0..40);
    (prop::collection::vec(area, 1..6), looks).prop_map(|(areas, mut looks)| {
        let (mut tally, mut next) = (ResidencyTally::default(), 16);
        for (gap, pages, sampled_pages) in areas {
            let start = next + gap;
            next = start + pages;
            let step = usize::try_from(pages).unwrap().div_ceil(sampled_pages);
            let own = (start..next).step_by(step).map(Vpn);
            let named = (AreaKind::Anonymous, "\"odd\"\n name".to_owned());
            tally.add((start * 4096, next * 4096), named, pages, own);
        }
        let sampled_pages = tally.sampled_pages.len();
        looks.iter_mut().flatten().for_each(|(sampled_page, _)| *sampled_page %= sampled_pages);
        (tally, looks)
    })
}

/// What the command writes of it, and the tally that the sensor has then.
fn written(mut tally: ResidencyTally, looks: &[Vec<(usize, bool)>]) -> (String, ResidencyTally) {
    let json = |value: serde_json::Result<String>| value.unwrap() + "\n";
    let mut text = json(serde_json::to_string(&ResidencyHead::of(7, 1 << 20, &tally)));
    for (at, seen) in looks.iter().enumerate() {
        seen.iter().for_each(|&(sampled_page, found)| tally.note(sampled_page, found));
        let pages = |wanted| {
            let some = seen.iter().filter(move |(_, found)| *found == wanted);
            some.map(|&(sampled_page, _)| tally.sampled_pages[sampled_page].page.0).collect()
        };
        let at = Duration::from_millis(at as u64).as_secs_f64();
        text += &json(serde_json::to_string(&ResidencyLook {
            at,
            found: pages(true),
            missed: pages(false),
        }));
    }
    let (samples, found) = (tally.samples(), tally.found());
    let end =
        ResidencyTotals { samples, found, looks: looks.len() as u64, ..ResidencyTotals::default() };
    (text + &json(serde_json::to_string(&ResidencyTail { end })), tally)
}

proptest! {
    #[test]
    fn a_replay_counts_as_the_sensor_did((tally, looks) in sensed()) {
        let (text, tally) = written(tally, &looks);
        let recorded = read(&text).unwrap();
        prop_assert_eq!(&recorded.tally, &tally);
        prop_assert_eq!(recorded.tally.estimate(), tally.estimate());
        prop_assert_eq!(recorded.looks, looks.len() as u64);
        prop_assert!(recorded.totals.is_some());
    }

    #[test]
    fn what_is_confined_is_there((tally, looks) in sensed(), ways in 1_u16..20, buffer in 1_u16..4) {
        let (_, tally) = written(tally, &looks);
        let confined = confined(&tally, Errors::default(), RocsCache { colors: 4, ways, buffer: buffer.min(3) }).unwrap();
        prop_assert_eq!(confined.by_area.len(), tally.areas.len());
        for (area, pages) in tally.areas.iter().zip(&confined.by_area) {
            prop_assert!(*pages <= area.resident);
        }
    }
}

/// Changes, cuts, doubles or inserts at one to three places.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.index(3) {
        let at = random.index(bytes.len().max(1));
        let byte = b"0123456789-.e{}[],:\"\n\0\xffat"[random.index(25)];
        match random.index(6) {
            _ if bytes.is_empty() => bytes.push(byte),
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte),
            2 => bytes.extend_from_within(at..),
            _ => bytes[at] = byte,
        }
        bytes.truncate(1 << 16);
    }
}

/// Damages texts in thousands of ways, every second time behind the head alone, that more gets further. Some are
/// read all the same, and some are refused, in one line.
pub fn damage_and_read(seed: u64, texts: &[String], check: impl Fn(Recording)) {
    let (mut random, mut counts) = (Random::new(seed), [0; 2]);
    for round in 0..6_000 {
        let mut bytes = texts[round % texts.len()].clone().into_bytes();
        let head = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut rest =
            bytes.split_off(if (round / texts.len()).is_multiple_of(2) { 0 } else { head });
        damage(&mut random, &mut rest);
        bytes.extend(rest);
        let found = read_lines(bytes.split_inclusive(|byte| *byte == b'\n'));
        counts[usize::from(found.is_err())] += 1;
        match found {
            Ok((found, _)) => check(found),
            Err(error) => assert!(!error.to_string().contains(['\n', '\r']), "{error}"),
        }
    }
    assert!(counts.iter().all(|&n| n > 50), "read and refused: {counts:?}");
}

#[test]
fn damaged_recordings_are_read_or_refused_in_one_line() {
    damage_and_read(31, &[format!("{HEAD}\n{LOOKS}\n{TAIL}\n")], |found| {
        let Recording::Residency(found) = found else { panic!("{found:?}") };
        let cache = RocsCache { colors: 16, ways: 8, buffer: 1 };
        let _ = confined(&found.tally, found.errors(), cache);
        assert!(found.tally.found() <= found.tally.samples());
    });
}

/// A hot set of so many pages and a scan of many, both looked at twenty times.
fn hot_and_scan(hot: u64, scan: u64, share: f64) -> ResidencyTally {
    let mut tally = ResidencyTally::default();
    for (start, pages) in [(1 << 16, hot), (1 << 24, scan)] {
        let own = (start..start + pages).map(Vpn);
        let name = (AreaKind::Anonymous, String::new());
        tally.add((start * 4096, (start + pages) * 4096), name, pages, own);
    }
    for sampled_page in 0..tally.sampled_pages.len() {
        let share = if (sampled_page as u64) < hot { share } else { 0.02 };
        (0..50).for_each(|look| tally.note(sampled_page, f64::from(look) < 50.0 * share));
    }
    tally
}

#[test]
fn a_scan_is_confined_and_a_hot_set_is_not() {
    let cache = RocsCache { colors: 16, ways: 16, buffer: 1 };
    let Confined { by_area, sampled } =
        confined(&hot_and_scan(200, 4000, 0.7), Errors::default(), cache).unwrap();
    assert_eq!(sampled, 4200);
    assert!(by_area[1] >= 3900, "{by_area:?}");
    assert!(by_area[0] <= 10, "{by_area:?}");
}

#[test]
fn what_fits_is_left_alone() {
    let cache = RocsCache { colors: 16, ways: 16, buffer: 1 };
    let found = confined(&hot_and_scan(100, 20, 0.9), Errors::default(), cache).unwrap();
    assert_eq!(found.by_area, [0, 0]);
    assert_eq!(
        confined(&ResidencyTally::default(), Errors::default(), cache),
        Some(Confined::default())
    );
    let mut huge = ResidencyTally::default();
    huge.add((0, 1 << 50), (AreaKind::Heap, String::new()), 1 << 38, []);
    assert_eq!(confined(&huge, Errors::default(), cache), None);
}
