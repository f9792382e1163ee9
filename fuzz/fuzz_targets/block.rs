//! The payload of a block over arbitrary bytes: the frame around it, with its checksum, is
//! made good, which no fuzzer finds by itself. The first two bytes are the number of records.

#![no_main]

mod drain;
mod frame;

use huepage_sim::trace::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((count, payload)) = bytes.split_first_chunk() else { return };
    let records = u32::from(u16::from_le_bytes(*count)) + 1;
    drain::drain(&frame::trace(records, payload), Format::Huepage);
});
