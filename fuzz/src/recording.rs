//! The reader of recordings, and the policies that are driven with what it read: nothing may panic, an
//! error is one line, and what was counted of lines that were read is written and read again the same.

use huepage_policy::coloris::offline::Listener;
use huepage_policy::recording::residency::{self as residency, ResidencyHead};
use huepage_policy::recording::touches::{self, TouchTally};
use huepage_policy::recording::{Heard, Recording, RecordingError, RecordingReader};
use huepage_policy::rocs::offline::{RocsCache, confined};

/// What was read, and every step of it.
fn read(bytes: &[u8]) -> Result<(Recording, Vec<Heard>), RecordingError> {
    let (mut reader, mut heard, mut listener) = (RecordingReader::default(), Vec::new(), None);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let step = reader.line(line)?;
        let listener =
            listener.get_or_insert_with(|| Some(Listener::new(&reader.residency()?.tally, 16)));
        if let (Heard::Look(look), Some(listener)) = (&step, listener) {
            listener.look(look);
        }
        heard.push(step);
    }
    Ok((reader.finish()?, heard))
}

fn check_residency(recorded: &residency::ResidencyRecording) {
    let areas = &recorded.tally.areas;
    let few = areas.iter().map(|area| area.resident).sum::<u64>() < 10_000;
    let cache = RocsCache { colors: 16, ways: 8, buffer: 1 };
    if let Some(confined) =
        few.then(|| confined(&recorded.tally, recorded.errors(), cache)).flatten()
    {
        let fits = areas.iter().zip(&confined.by_area).all(|(area, n)| *n <= area.resident);
        assert!(fits);
    }
    if let Some(estimate) = recorded.estimate() {
        assert!((0.0..=1.0).contains(&estimate.miss_rate), "{estimate:?}");
    }
    let mut head = ResidencyHead::of(recorded.head.pid, recorded.head.cache_bytes, &recorded.tally);
    head.sensor.clone_from(&recorded.head.sensor);
    head.in_use.clone_from(&recorded.head.in_use);
    assert_eq!(head, recorded.head);
}

fn check_touches(recorded: &touches::TouchRecording, heard: &[Heard]) {
    let mut tally = TouchTally::of(&recorded.head);
    for step in heard {
        if let Heard::Step(step) = step {
            tally.note(step);
        }
    }
    assert_eq!(tally, recorded.tally);
    assert!(tally.touched <= tally.pages);
}

/// Reads `bytes`; panics where a promise is broken.
pub fn read_and_check(bytes: &[u8]) {
    match read(bytes) {
        Ok((Recording::Residency(recorded), _)) => check_residency(&recorded),
        Ok((Recording::Touches(recorded), heard)) => check_touches(&recorded, &heard),
        Err(error) => assert!(!error.to_string().contains(['\n', '\r']), "{error}"),
    }
}
