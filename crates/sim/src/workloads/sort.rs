//! Merge sort: of records of one cache line each, and of the records of files, block by block.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::Parameters;
use super::file::File;
use super::file_access::{FileNumber, ROOM_BITS};
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Words of a record; the first is its key.
pub(super) const RECORD: usize = 8;

/// Sorts an array of 64-byte records by a two-way merge without recursion, `rounds` times with
/// fresh keys. The size is that of the array and of the room it is merged into.
///
/// Stands for mergesort (SRM-buffer section 2: 64-byte records, an array of up to 1.5 MiB and
/// a working set of twice that): each pass reads one array and writes the other from start
/// to end, so that a record comes back after one whole pass; while both fit in the cache all
/// is well, and a scan beside it takes that away (114 % slower).
pub fn mergesort<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / (2 * 8 * RECORD)).max(1);
    let mut sum = Checksum::default();
    let (mut from, mut to) = (m.array(n * RECORD), m.array(n * RECORD));
    for round in 0..p.rounds {
        let mut random = SplitMix::new(p.seed.wrapping_add(round as u64));
        m.fill(&mut from, |_| random.word());
        sort(m, &mut from, &mut to);
        for at in (0..n).map(|record| record * RECORD) {
            sum.add(m.load(&from, at));
        }
    }
    sum.value()
}

/// Sorts `from`, with `to` as room.
pub(super) fn sort<M: ProgramMemory>(m: &mut M, from: &mut Array<u64>, to: &mut Array<u64>) {
    let n = from.len() / RECORD;
    let mut run = 1;
    while run < n {
        for start in (0..n).step_by(2 * run) {
            merge(m, from, to, [start, (start + run).min(n), (start + 2 * run).min(n)]);
        }
        std::mem::swap(from, to);
        run *= 2;
    }
}

/// Merges the two sorted runs between three bounds.
fn merge<M: ProgramMemory>(m: &mut M, from: &Array<u64>, to: &mut Array<u64>, bounds: [usize; 3]) {
    let [start, middle, end] = bounds;
    let (mut left, mut right) = (start, middle);
    for out in start..end {
        m.work(6);
        let take_left = right == end
            || left < middle && m.load(from, left * RECORD) <= m.load(from, right * RECORD);
        let taken = if take_left { &mut left } else { &mut right };
        for word in 0..RECORD {
            let value = m.load(from, *taken * RECORD + word);
            m.store(to, out * RECORD + word, value);
        }
        *taken += 1;
    }
}

/// Bytes of a record in a file (SRM-buffer section 4.7).
const FILE_RECORD: usize = 32;
/// Bytes of a record's key: a vector register.
const KEY: usize = 16;
/// Bytes of a read or a write.
const CALL: usize = 64 << 10;

/// Sorts the records of a file: reads all of it, sorts each block by a two-way merge, merges the
/// blocks and writes the file. The size is that of a block; the file has `rounds` of them.
///
/// Stands for the benchmark of SRM-buffer section 4.7: files of 32 to 64 MiB, records of 32
/// bytes, a blocked mergesort with blocks of 0.5 and 0.75 MiB. While a block is sorted, it and its
/// room come back with every pass; while the file is read or written, they do not.
pub fn sort_file<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let block = p.size / FILE_RECORD * FILE_RECORD;
    let most = (1 << ROOM_BITS) / block;
    let mut sum = Checksum::default();
    for (number, first) in (0..p.rounds).step_by(most).enumerate() {
        let id = FileNumber(u32::try_from(number).unwrap_or(u32::MAX));
        let bytes = block * most.min(p.rounds - first);
        sum.add(sort_one(m, &mut File { id, bytes, seed: p.seed }, block));
    }
    sum.value()
}

/// Sorts a file; gives a checksum of what it has then.
fn sort_one<M: ProgramMemory>(m: &mut M, file: &mut File, block: usize) -> u64 {
    let calls = |bytes: usize| (0..bytes).step_by(CALL).map(move |at| at..(at + CALL).min(bytes));
    let (mut records, mut sorted) = (m.array(file.bytes), m.array(file.bytes));
    for piece in calls(file.bytes) {
        file.read(m, piece.start, &mut records, piece.start, piece.len());
    }
    sort_blocks(m, &mut records, block);
    merge_blocks(m, &records, &mut sorted, block);
    let mut sum = Checksum::default();
    for piece in calls(file.bytes) {
        sum.add(file.write(m, piece.start, &sorted, piece));
    }
    sum.value()
}

/// Sorts every block by itself.
fn sort_blocks<M: ProgramMemory>(m: &mut M, records: &mut Array<u8>, block: usize) {
    let (mut from, mut to) = (m.array(block), m.array(block));
    for start in (0..records.len()).step_by(block) {
        let bytes = block.min(records.len() - start);
        for at in (0..bytes).step_by(FILE_RECORD) {
            copy_record(m, records, start + at, &mut from, at);
        }
        let mut run = FILE_RECORD;
        while run < bytes {
            for left in (0..bytes).step_by(2 * run) {
                let middle = (left + run).min(bytes);
                merge_runs(m, &from, &mut to, left..middle, middle..(middle + run).min(bytes));
            }
            std::mem::swap(&mut from, &mut to);
            run *= 2;
        }
        for at in (0..bytes).step_by(FILE_RECORD) {
            copy_record(m, &from, at, records, start + at);
        }
    }
}

/// Merges two sorted runs that lie one after the other.
fn merge_runs<M: ProgramMemory>(
    m: &mut M,
    from: &Array<u8>,
    to: &mut Array<u8>,
    mut left: Range<usize>,
    mut right: Range<usize>,
) {
    for out in (left.start..right.end).step_by(FILE_RECORD) {
        m.work(6);
        let take_left = right.is_empty()
            || !left.is_empty() && key(m, from, left.start) <= key(m, from, right.start);
        let taken = if take_left { &mut left } else { &mut right };
        copy_record(m, from, taken.start, to, out);
        taken.start += FILE_RECORD;
    }
}

/// Merges the sorted blocks. The heap of their heads stays in the nearest cache.
fn merge_blocks<M: ProgramMemory>(
    m: &mut M,
    records: &Array<u8>,
    sorted: &mut Array<u8>,
    block: usize,
) {
    let starts = (0..records.len()).step_by(block);
    let mut heads: BinaryHeap<_> = starts.map(|at| Reverse((key(m, records, at), at))).collect();
    let levels = heads.len().next_power_of_two().ilog2();
    for out in (0..sorted.len()).step_by(FILE_RECORD) {
        let Some(Reverse((_, at))) = heads.pop() else { break };
        m.work(6 * levels);
        copy_record(m, records, at, sorted, out);
        let next = at + FILE_RECORD;
        if !next.is_multiple_of(block) && next < records.len() {
            heads.push(Reverse((key(m, records, next), next)));
        }
    }
}

fn key<M: ProgramMemory>(m: &mut M, records: &Array<u8>, at: usize) -> u128 {
    let bytes = m.load_bytes(records, at..at + KEY);
    bytes.iter().fold(0, |key, &byte| key << 8 | u128::from(byte))
}

fn copy_record<M: ProgramMemory>(
    m: &mut M,
    from: &Array<u8>,
    at: usize,
    to: &mut Array<u8>,
    out: usize,
) {
    let record = m.load_bytes(from, at..at + FILE_RECORD);
    m.store_bytes(to, out..out + FILE_RECORD, |place| place.copy_from_slice(record));
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_sorted_whole_and_in_order(keys in prop::collection::vec(0_u64..20, 1..100)) {
            let word = |at: usize| match at % RECORD {
                0 => keys[at / RECORD],
                _ => (at / RECORD) as u64,
            };
            let mut a = Native.filled(keys.len() * RECORD, word);
            let mut room = Native.array(keys.len() * RECORD);
            sort(&mut Native, &mut a, &mut room);
            let mut want: Vec<(u64, u64)> = keys.iter().copied().zip(0..).collect();
            want.sort();
            for (record, (key, number)) in a.peek().chunks(RECORD).zip(want) {
                prop_assert_eq!(record[0], key);
                prop_assert!(record[1..].iter().all(|&word| word == number));
            }
        }
    }

    proptest! {
        #[test]
        fn blocks_are_sorted_and_merged(
            keys in prop::collection::vec(0_u8..30, 1..120),
            block in 1_usize..20,
        ) {
            // A key of one byte, then the record's number.
            let byte = |at: usize| match at % FILE_RECORD {
                0 => keys[at / FILE_RECORD],
                KEY => u8::try_from(at / FILE_RECORD).unwrap_or(0),
                _ => 0,
            };
            let bytes = keys.len() * FILE_RECORD;
            let (mut records, mut sorted) = (Native.filled(bytes, byte), Native.array(bytes));
            sort_blocks(&mut Native, &mut records, block * FILE_RECORD);
            merge_blocks(&mut Native, &records, &mut sorted, block * FILE_RECORD);
            let mut want: Vec<(u8, u8)> = keys.iter().copied().zip(0..).collect();
            want.sort();
            let found = sorted.peek().chunks(FILE_RECORD).map(|record| (record[0], record[KEY]));
            prop_assert_eq!(found.collect::<Vec<_>>(), want);
        }
    }
}
