//! The project's own trace format against a naive decoder, which follows the description of the
//! layout a field at a time, and a naive writer of version 1: the fast reader must read both
//! versions as they do.

use std::collections::HashMap;

use huepage_color::VirtAddr;
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::{Header, TraceReader, Writer};
use proptest::prelude::*;

const KINDS: [AccessKind; 3] = [AccessKind::Fetch, AccessKind::Load, AccessKind::Store];

/// Takes bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(n);
    *bytes = rest;
    front
}

/// A number of `n` bytes from the front.
fn number(bytes: &mut &[u8], n: usize) -> usize {
    take(bytes, n).iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn column(bytes: &mut &[u8]) -> Vec<u8> {
    let (method, length, stored) = (number(bytes, 1), number(bytes, 4), number(bytes, 4));
    let stored = take(bytes, stored);
    match method {
        0 => vec![stored[0]; length],
        1 => stored.to_vec(),
        2 => zstd::bulk::decompress(stored, length).unwrap(),
        3 => {
            let bit = |at: usize| stored[2 + at / 8] >> (at % 8) & 1;
            (0..length).map(|at| stored[usize::from(bit(at))]).collect()
        }
        4 => repetitions(stored),
        other => panic!("method {other}"),
    }
}

/// Unpacks a block of LZ4: literals, then a repetition of what came before.
fn repetitions(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let length = |bytes: &mut &[u8], nibble: usize| {
        let mut length = nibble;
        let mut more = nibble == 15;
        while more {
            let byte = number(bytes, 1);
            length += byte;
            more = byte == 255;
        }
        length
    };
    while !bytes.is_empty() {
        let token = number(&mut bytes, 1);
        let literals = length(&mut bytes, token >> 4);
        out.extend_from_slice(take(&mut bytes, literals));
        if !bytes.is_empty() {
            let back = number(&mut bytes, 2);
            for _ in 0..length(&mut bytes, token & 15) + 4 {
                out.push(out[out.len() - back]);
            }
        }
    }
    out
}

/// The records of a payload.
fn payload(version: usize, records: usize, mut bytes: &[u8], out: &mut Vec<Record>) {
    let tokens = if version == 1 { 0 } else { number(&mut bytes, 4) };
    let entries = number(&mut bytes, 1) + 1;
    let entries: Vec<Vec<usize>> = (0..entries)
        .map(|_| [2, 2, 1, 1].map(|width| number(&mut bytes, width)).to_vec())
        .collect();
    let token: Vec<Vec<u8>> = (0..4).map(|_| column(&mut bytes)).collect();
    let numbers: Vec<Vec<u8>> = (0..2).filter(|_| tokens > 0).map(|_| column(&mut bytes)).collect();
    let differences = column(&mut bytes);
    let (mut left, mut slots) = (differences.as_slice(), HashMap::new());
    for at in 0..records {
        let at = match numbers.as_slice() {
            [low, high] => usize::from(low[at]) | usize::from(high[at]) << 8,
            _ => at,
        };
        let [space, thread, size, kind] = entries[usize::from(token[0][at])][..] else { panic!() };
        let control = usize::from(token[1][at]);
        let width = [0, 1, 2, 3, 4, 5, 6, 8][control >> 3 & 7];
        let mut word = if take_sign(left, width) { u64::MAX } else { 0 };
        for byte in take(&mut left, width).iter().rev() {
            word = word << 8 | u64::from(*byte);
        }
        let slot: &mut u64 = slots.entry((space, thread, kind == 0, control & 7)).or_default();
        let address = slot.wrapping_add(word << [0, 2, 3, 6][control >> 6]);
        *slot = address.wrapping_add(size as u64);
        out.push(Record {
            address: VirtAddr(address),
            space: u16::try_from(space).unwrap(),
            thread: u16::try_from(thread).unwrap(),
            instructions: u16::from_le_bytes([token[2][at], token[3][at]]),
            bytes: u8::try_from(size).unwrap(),
            kind: KINDS[kind],
        });
    }
    assert!(left.is_empty() && bytes.is_empty());
}

/// Whether a difference of that width is negative.
fn take_sign(bytes: &[u8], width: usize) -> bool {
    width > 0 && bytes[width - 1] > 127
}

/// All records of a trace.
fn naive(mut bytes: &[u8]) -> Vec<Record> {
    let (mut all, bytes) = (Vec::new(), &mut bytes);
    assert_eq!(take(bytes, 8), b"huetrace");
    let (version, header) = (number(bytes, 4), number(bytes, 4));
    take(bytes, 4 + header);
    while take(bytes, 4) == b"BLOK" {
        let (length, records) = (number(bytes, 4), number(bytes, 4));
        take(bytes, 20);
        payload(version, records, take(bytes, length), &mut all);
    }
    all
}

fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}

fn word(n: usize) -> [u8; 4] {
    u32::try_from(n).unwrap().to_le_bytes()
}

/// A trace of version 1 without an index, of one block, all columns raw and all differences of
/// eight bytes in one slot.
fn version_1(records: &[Record]) -> Vec<u8> {
    let mut entries: Vec<[u8; 6]> = Vec::new();
    let mut columns: [Vec<u8>; 5] = Default::default();
    let mut slots = HashMap::new();
    for record in records {
        let ([a, b], [c, d]) = (record.space.to_le_bytes(), record.thread.to_le_bytes());
        let entry = [a, b, c, d, record.bytes, record.kind as u8];
        if !entries.contains(&entry) {
            entries.push(entry);
        }
        let entry = entries.iter().position(|other| *other == entry).unwrap();
        let [low, high] = record.instructions.to_le_bytes();
        let bytes = [u8::try_from(entry).unwrap(), 7 << 3, low, high];
        columns.iter_mut().zip(bytes).for_each(|(column, byte)| column.push(byte));
        let group = (record.space, record.thread, record.kind == AccessKind::Fetch);
        let slot: &mut u64 = slots.entry(group).or_default();
        columns[4].extend_from_slice(&record.address.0.wrapping_sub(*slot).to_le_bytes());
        *slot = record.address.0.wrapping_add(u64::from(record.bytes));
    }
    let mut payload = vec![u8::try_from(entries.len() - 1).unwrap()];
    payload.extend(entries.concat());
    for column in columns {
        payload.extend([&[1][..], &word(column.len()), &word(column.len()), &column].concat());
    }
    let header = br#"{"program":"p"}"#;
    let (version, length) = (1_u32.to_le_bytes(), word(header.len()));
    let sum = checksum(&[&version, &length, header]);
    let front = [*b"BLOK", word(payload.len()), word(records.len())].concat();
    let own = checksum(&[&front, &[0; 16], &payload]);
    let head = [b"huetrace", &version[..], &length, &sum, header].concat();
    [head, front, own.to_vec(), vec![0; 16], payload].concat()
}

fn read(bytes: &[u8]) -> Vec<Record> {
    TraceReader::new(bytes).unwrap().map_while(Result::ok).collect()
}

/// Loops over a few accesses, some of which walk, with some at random between.
fn program() -> impl Strategy<Value = Vec<Record>> {
    let record = (any::<u64>(), 0..3_u16, 0..2_u16, 0..300_u16, 1..=255_u8, 0..3_usize);
    let record = record.prop_map(|(address, space, thread, instructions, bytes, kind)| Record {
        address: VirtAddr(address >> (address % 64)),
        space,
        thread,
        instructions,
        bytes,
        kind: KINDS[kind],
    });
    let body = prop::collection::vec((record, -9..9_i64), 1..9);
    let one_loop = (body, 1..200_usize).prop_map(|(body, rounds)| {
        (0..rounds)
            .flat_map(|round| {
                let step = move |(record, step): &(Record, i64)| {
                    let moved = step.wrapping_mul(8 * round.cast_signed() as i64);
                    let address = record.address.0.wrapping_add_signed(moved);
                    Record { address: VirtAddr(address), ..*record }
                };
                body.iter().map(step).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    });
    prop::collection::vec(one_loop, 1..12).prop_map(|loops| loops.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_reader_reads_what_a_naive_decoder_reads(records in program(), block in 1..3000_usize) {
        let mut bytes = Vec::new();
        let mut writer = Writer::with_block(&mut bytes, &Header::default(), block).unwrap();
        records.iter().for_each(|record| writer.push(record).unwrap());
        writer.finish().unwrap();
        prop_assert_eq!(&naive(&bytes), &records);
        prop_assert_eq!(read(&bytes), records);
    }

    #[test]
    fn version_1_is_read_as_it_was_written(records in program()) {
        let bytes = version_1(&records[..records.len().min(1 << 16)]);
        let mut ended = bytes.clone();
        ended.extend_from_slice(b"INDX");
        prop_assert_eq!(&naive(&ended), &records);
        prop_assert_eq!(read(&bytes), records);
    }
}

#[test]
fn full_blocks_of_either_kind_are_read() {
    let stream: Vec<Record> = MixStream::new(Mix::Hot).take(100_000).collect();
    // As many tokens as records: each has a count of its own.
    let apart = (0_u16..=u16::MAX).zip(&stream);
    let apart: Vec<Record> = apart.map(|(instructions, r)| Record { instructions, ..*r }).collect();
    for records in [&stream, &apart] {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &Header::default()).unwrap();
        records.iter().for_each(|record| writer.push(record).unwrap());
        writer.finish().unwrap();
        assert!(naive(&bytes) == **records && read(&bytes) == **records);
    }
}

/// A file of the first version, as `huepage trace import` wrote it.
#[test]
fn a_file_of_version_1_is_read_to_its_end() {
    let bytes = include_bytes!("../../../../fuzz/seeds/own/small");
    assert_eq!(bytes[8], 1, "its version");
    let found = TraceReader::new(&bytes[..]).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(found.len(), 120);
    assert_eq!(found, naive(bytes));
}
