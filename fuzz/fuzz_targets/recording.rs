//! The reader of recorded residency, and the policy that is driven with what it read: nothing may
//! panic, an error is one line, and what was counted of lines that were read is written and read again
//! the same.

#![no_main]

use huepage_policy::residency::offline::{Cache, confined};
use huepage_policy::residency::recording::{Head, Reader, Recorded, RecordingError};

fn read(bytes: &[u8]) -> Result<Recorded, RecordingError> {
    let mut reader = Reader::default();
    bytes.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| reader.line(line))?;
    reader.finish()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match read(bytes) {
        Ok(recorded) => {
            let areas = &recorded.tally.areas;
            let few = areas.iter().map(|area| area.resident).sum::<u64>() < 10_000;
            let cache = Cache { colors: 16, ways: 8, buffer: 1 };
            if let Some(confined) = few.then(|| confined(&recorded.tally, cache)).flatten() {
                let fits = areas.iter().zip(&confined.by_area).all(|(area, n)| *n <= area.resident);
                assert!(fits);
            }
            if let Some(estimate) = recorded.tally.estimate() {
                assert!((0.0..=1.0).contains(&estimate.miss_rate), "{estimate:?}");
            }
            let mut head = Head::of(recorded.head.pid, recorded.head.cache_bytes, &recorded.tally);
            head.sensor.clone_from(&recorded.head.sensor);
            assert_eq!(head, recorded.head);
        }
        Err(error) => assert!(!error.to_string().contains(['\n', '\r']), "{error}"),
    }
});
