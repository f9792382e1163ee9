//! Seeking in arbitrary bytes that begin as a trace does: index, search without an index,
//! skipping. The first two bytes say where to.

use std::io::Cursor;

use huepage_sim::trace::{TraceError, TraceReader};

/// Reads `bytes`; panics where a promise is broken.
pub fn read_and_check(bytes: &[u8]) {
    let Some((place, trace)) = bytes.split_first_chunk() else { return };
    let place = u64::from(u16::from_le_bytes(*place));
    let _ = seek(trace, place).inspect_err(|error| {
        assert!(!error.to_string().contains('\n'), "{error}");
    });
}

fn seek(trace: &[u8], place: u64) -> Result<(), TraceError> {
    let mut reader = TraceReader::new(Cursor::new(trace))?;
    let known = reader.summary()?;
    if reader.seek_to(place).is_ok() {
        assert_eq!(reader.record_number(), place);
        let next = reader.next();
        let end = known.is_some_and(|summary| summary.records == place);
        assert!(!end || next.is_none_or(|record| record.is_err()), "a record after the last");
    }
    reader.skip_instructions(place).map(drop)
}
