//! The readers of what stands in arguments, over arbitrary text: colour sets, levels, sizes,
//! sweeps, parts, ways to choose frames, workloads and formats. What is read must be what
//! its own printed form says, and what is not must be one line.

use std::fmt::Display;

use huepage_color::{ColorSet, LevelChoice};
use huepage_sim::bytes::Bytes;
use huepage_sim::experiment::{FrameMapping, Shard, Sweep};
use huepage_sim::trace::Format;
use huepage_sim::workloads::WorkloadSpec;

/// Reads `bytes`; panics where a promise is broken.
pub fn read_and_check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for count in [1, 16, 64, 1000, u16::MAX] {
        if let Some(set) = told(ColorSet::parse(text, count)) {
            assert!(!set.is_empty());
            assert_eq!(ColorSet::parse(&set.to_string(), count).ok(), Some(set));
        }
    }
    told(text.parse::<LevelChoice>());
    told(Bytes::parse(text));
    told(text.parse::<FrameMapping>());
    told(text.parse::<Format>());
    if let Some(sweep) = told(text.parse::<Sweep>()) {
        assert!(!sweep.values.is_empty());
    }
    if let Some(part) = told(text.parse::<Shard>()) {
        assert!(part.has(part.number - 1));
    }
    if let Some(spec) = told(text.parse::<WorkloadSpec>()) {
        let again = spec.to_string().parse::<WorkloadSpec>();
        assert!(again.is_ok_and(|again| again.to_string() == spec.to_string()), "{spec}");
    }
}

/// The value, or nothing after an error of one line, whatever it quotes.
fn told<T, E: Display>(found: Result<T, E>) -> Option<T> {
    found.inspect_err(|error| assert!(is_line(&error.to_string()), "{error}")).ok()
}

fn is_line(message: &str) -> bool {
    !message.is_empty() && !message.contains(['\n', '\r'])
}
