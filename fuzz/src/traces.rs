//! The readers of traces: the project's own and foreign ones, over arbitrary bytes, and the payload of
//! a block with a good frame around it.

use huepage_sim::trace::Format;

use super::{drain::drain, frame};

/// The project's own traces.
pub fn own(bytes: &[u8]) {
    drain(bytes, Format::Huepage);
}

/// lackey's text.
pub fn lackey(bytes: &[u8]) {
    drain(bytes, Format::Lackey);
}

/// Dinero's text.
pub fn din(bytes: &[u8]) {
    drain(bytes, Format::Din);
}

/// ChampSim's instructions.
pub fn champsim(bytes: &[u8]) {
    drain(bytes, Format::Champsim);
}

/// What DynamoRIO's drmemtrace prints.
pub fn drmemtrace(bytes: &[u8]) {
    drain(bytes, Format::Drmemtrace);
}

/// Raw addresses.
pub fn raw(bytes: &[u8]) {
    drain(bytes, Format::Raw);
}

/// The payload of a block: the frame around it, with its checksum, is made good, which no fuzzer finds
/// by itself. The first two bytes are the number of records. Of each version of the format.
pub fn block(bytes: &[u8]) {
    let Some((count, payload)) = bytes.split_first_chunk() else { return };
    let records = u32::from(u16::from_le_bytes(*count)) + 1;
    for version in [1, 2] {
        drain(&frame::trace(version, records, payload), Format::Huepage);
    }
}
