//! Records of a perf ring buffer: what the kernel wrote, as samples, losses and the rest.
//!
//! Only bytes are read here, in the layout that perf_event_open(2) documents for the fields asked
//! for in [`FIELDS`]; the ring itself, its tail and records split at its end are the business of
//! `perf-event2`. That crate's parser of records is not used: five words need none that makes a
//! structure of forty fields for each. A sample without an address of the process is told apart,
//! not guessed at.

use perf_event::{SampleFlag, Sampler};

use super::PmuError;
use super::source::DataSource;

/// The fields of every sample, in the order in which the kernel writes them.
pub(crate) const FIELDS: SampleFlag = SampleFlag::TID
    .union(SampleFlag::TIME)
    .union(SampleFlag::ADDR)
    .union(SampleFlag::WEIGHT)
    .union(SampleFlag::DATA_SRC);

const RECORD_LOST: u32 = 2;
const RECORD_THROTTLE: u32 = 5;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;
/// The mode of the processor in a record's `misc`; 1 is the kernel, 2 a process.
const MODE_MASK: u16 = 7;
const MODE_USER: u16 = 2;
/// No record is shorter than its header and a word.
const SHORTEST: usize = 16;

/// One access that was sampled, or whatever else the event counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PmuSample {
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The data address, not rounded to a page.
    pub address: u64,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// What it cost, where the processor says so: of loads the cycles until the data came.
    pub weight: u64,
    /// Who answered.
    pub source: DataSource,
}

/// What one record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Sample(PmuSample),
    /// A sample of the kernel, or without an address.
    Unusable,
    Lost(u64),
    Throttled,
    Other,
}

/// Reads the bytes behind a record's header; `None` if they are too few.
pub(crate) fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<Found> {
    Some(match kind {
        RECORD_SAMPLE => sample(misc, body)?,
        RECORD_LOST => Found::Lost(word(body, 1)?),
        RECORD_LOST_SAMPLES => Found::Lost(word(body, 0)?),
        RECORD_THROTTLE => Found::Throttled,
        _ => Found::Other,
    })
}

fn sample(misc: u16, body: &[u8]) -> Option<Found> {
    let (task, time, address) = (word(body, 0)?, word(body, 1)?, word(body, 2)?);
    let (weight, source) = (word(body, 3)?, DataSource(word(body, 4)?));
    if misc & MODE_MASK != MODE_USER || address == 0 || address >= 1 << 63 {
        return Some(Found::Unusable);
    }
    let half = |shift: u32| ((task >> shift) & 0xffff_ffff) as u32;
    let (pid, tid) = (half(0).cast_signed(), half(32).cast_signed());
    Some(Found::Sample(PmuSample { pid, tid, address, time, weight, source }))
}

/// A word of a record; pids come two to a word, the first in the lower half (little endian).
fn word(body: &[u8], n: usize) -> Option<u64> {
    let bytes = body.get(n * 8..n * 8 + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Takes the records of a ring of `bytes`, the oldest first. Not more than it holds, since a fast
/// writer could keep a reader for ever.
pub(crate) fn drain(
    ring: &mut Sampler,
    bytes: usize,
    mut each: impl FnMut(Found),
) -> Result<(), PmuError> {
    for _ in 0..bytes / SHORTEST {
        let Some(record) = ring.next_record() else { break };
        let body = record.to_contiguous();
        let found = parse(record.ty(), record.misc(), &body);
        each(found.ok_or(PmuError::Malformed { kind: record.ty(), bytes: body.len() })?);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SEEN: PmuSample = PmuSample {
        pid: 41,
        tid: 42,
        address: 0x7f00_1234_5678,
        time: 99,
        weight: 230,
        source: DataSource(0x14 << 26 | 0x02),
    };

    /// The body of a sample, field by field.
    pub fn body(sample: &PmuSample) -> Vec<u8> {
        let mut found = sample.pid.to_le_bytes().to_vec();
        found.extend(sample.tid.to_le_bytes());
        let rest = [sample.time, sample.address, sample.weight, sample.source.0];
        rest.iter().for_each(|w| found.extend(w.to_le_bytes()));
        found
    }

    /// A record with its header, as it lies in a ring.
    pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(8 + body.len()).unwrap();
        let mut found = kind.to_le_bytes().to_vec();
        found.extend(misc.to_le_bytes());
        found.extend(size.to_le_bytes());
        found.extend(body);
        found
    }

    #[test]
    fn samples_are_read_in_the_documented_layout() {
        assert_eq!(parse(9, 2, &body(&SEEN)), Some(Found::Sample(SEEN)));
        // `EXACT_IP` and other bits beside the mode.
        assert_eq!(parse(9, 1 << 14 | 2, &body(&SEEN)), Some(Found::Sample(SEEN)));
    }

    #[test]
    fn samples_of_the_kernel_or_without_an_address_are_unusable() {
        assert_eq!(parse(9, 1, &body(&SEEN)), Some(Found::Unusable));
        for address in [0, 0xffff_8880_0000_0000] {
            let found = parse(9, 2, &body(&PmuSample { address, ..SEEN }));
            assert_eq!(found, Some(Found::Unusable));
        }
    }

    #[test]
    fn losses_throttling_and_the_rest_are_told_apart() {
        let words = |w: &[u64]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(parse(2, 0, &words(&[7, 300])), Some(Found::Lost(300)));
        assert_eq!(parse(13, 0, &words(&[5])), Some(Found::Lost(5)));
        assert_eq!(parse(5, 0, &words(&[1, 2, 3])), Some(Found::Throttled));
        assert_eq!(parse(6, 0, &words(&[1, 2, 3])), Some(Found::Other));
        assert_eq!(parse(99, 0, &[]), Some(Found::Other));
    }

    #[test]
    fn short_records_are_refused() {
        let whole = body(&SEEN);
        for len in 0..whole.len() {
            assert_eq!(parse(9, 2, &whole[..len]), None, "{len} bytes");
        }
        assert_eq!(parse(2, 0, &[0; 8]), None);
        assert_eq!(parse(13, 0, &[0; 7]), None);
    }
}
