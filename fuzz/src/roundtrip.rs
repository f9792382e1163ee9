//! Arbitrary records through writer and reader: the same come back, and in the same order
//! from any place on. The first byte is the size of a block; each record is fourteen.

use std::io::Cursor;

use huepage_color::VirtAddr;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::{Header, TraceReader, Writer};

/// Reads `bytes`; panics where a promise is broken.
pub fn read_and_check(bytes: &[u8]) {
    let Some((block, rest)) = bytes.split_first() else { return };
    let records: Vec<Record> = rest.as_chunks().0.iter().map(record).collect();
    let mut trace = Vec::new();
    let block = usize::from(*block) + 1;
    let mut writer = Writer::with_block(&mut trace, &Header::default(), block).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    let summary = writer.finish().unwrap();
    assert_eq!(summary.bytes, trace.len() as u64);
    let mut reader = TraceReader::new(Cursor::new(&trace)).unwrap();
    let found: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(found, records);
    let middle = records.len() / 2;
    reader.seek_to(middle as u64).unwrap();
    assert!(reader.map(Result::unwrap).eq(records[middle..].iter().copied()));
}

fn record(bytes: &[u8; 14]) -> Record {
    let [a, b, c, d, e, f, g, h, space, thread, low, high, size, kind] = *bytes;
    Record {
        address: VirtAddr(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        space: u16::from(space),
        thread: u16::from(thread),
        instructions: u16::from_le_bytes([low, high]),
        bytes: size.max(1),
        kind: [AccessKind::Fetch, AccessKind::Load, AccessKind::Store][usize::from(kind % 3)],
    }
}
