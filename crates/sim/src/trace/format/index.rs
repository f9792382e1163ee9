//! The index at the end of a trace: where each block begins, and the totals. Its checksum
//! covers everything between itself and the tail.

use super::{INDEX_TAG, TraceSummary, checksum, u64_at, word};

/// Bytes of an entry.
pub const ENTRY: usize = 24;
/// Bytes of the totals.
pub const TOTALS: usize = 40;

/// A block's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Of its first byte in the file.
    pub offset: u64,
    /// The number of its first record, from 0.
    pub first: u64,
    /// Instructions retired before it.
    pub instructions: u64,
}

impl IndexEntry {
    pub fn parse(bytes: &[u8]) -> IndexEntry {
        let [offset, first, instructions] = [0, 8, 16].map(|at| u64_at(bytes, at));
        IndexEntry { offset, first, instructions }
    }

    fn bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let words = [self.offset, self.first, self.instructions];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The index of these blocks, complete.
pub fn write(entries: &[IndexEntry], totals: &TraceSummary) -> Vec<u8> {
    let mut body: Vec<u8> = entries.iter().flat_map(|entry| entry.bytes()).collect();
    let TraceSummary { records, instructions, fetches, loads, stores, .. } = *totals;
    for number in [records, instructions, fetches, loads, stores] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    let count = word(entries.len()).to_le_bytes();
    let sum = checksum(&[&INDEX_TAG, &count, &body]).to_le_bytes();
    [&INDEX_TAG[..], &count, &sum, &body].concat()
}

/// The totals as they stand in the index; blocks and bytes are the caller's to add.
pub fn totals(bytes: &[u8]) -> TraceSummary {
    let [records, instructions, fetches, loads, stores] =
        [0, 8, 16, 24, 32].map(|at| u64_at(bytes, at));
    TraceSummary { records, instructions, fetches, loads, stores, ..TraceSummary::default() }
}
