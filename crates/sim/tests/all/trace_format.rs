//! The project's own trace format: what is written is read, from any record on; what is
//! damaged gives an error that names the place, and every record before it.

use std::io::Cursor;

use huepage_color::VirtAddr;
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::{Header, TraceError, TraceReader, TraceSummary, Writer};
use proptest::prelude::*;

fn header() -> Header {
    Header { program: "true".into(), arguments: vec!["--help".into()], source: "a test".into() }
}

fn write(records: &[Record], block: usize) -> (Vec<u8>, TraceSummary) {
    let mut bytes = Vec::new();
    let mut writer = Writer::with_block(&mut bytes, &header(), block).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    let summary = writer.finish().unwrap();
    assert_eq!(summary.bytes, bytes.len() as u64);
    (bytes, summary)
}

/// All records up to the end or the error.
fn read(bytes: &[u8]) -> (Vec<Record>, Option<TraceError>) {
    let mut records = Vec::new();
    let reader = match TraceReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    for record in reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

fn offset(error: &TraceError) -> u64 {
    match error {
        TraceError::Bytes { offset, .. } => *offset,
        other => panic!("not about bytes: {other}"),
    }
}

fn arbitrary() -> impl Strategy<Value = Record> {
    let kind = prop::sample::select(vec![AccessKind::Fetch, AccessKind::Load, AccessKind::Store]);
    let narrow = prop_oneof![Just(0_u16), 0..4_u16, any::<u16>()];
    let address = (any::<u64>(), 0..64_u32).prop_map(|(word, shift)| VirtAddr(word >> shift));
    (address, narrow.clone(), narrow.clone(), narrow, any::<u8>(), kind).prop_map(
        |(address, space, thread, instructions, bytes, kind)| Record {
            address,
            space,
            thread,
            instructions,
            bytes,
            kind,
        },
    )
}

fn some() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(arbitrary(), 0..600)
}

fn synthetic(n: usize) -> Vec<Record> {
    MixStream::new(Mix::MissHeavy).take(n).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(records in some(), block in 1..700_usize) {
        let (bytes, summary) = write(&records, block);
        let (found, error) = read(&bytes);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(found, records.clone());
        let count = |kind| records.iter().filter(|r| r.kind == kind).count() as u64;
        prop_assert_eq!(summary.fetches, count(AccessKind::Fetch));
        prop_assert_eq!(summary.loads, count(AccessKind::Load));
        prop_assert_eq!(summary.stores, count(AccessKind::Store));
        let instructions: u64 = records.iter().map(|r| u64::from(r.instructions)).sum();
        prop_assert_eq!(summary.instructions, instructions);
        let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
        prop_assert_eq!(reader.summary().unwrap(), Some(summary));
    }

    #[test]
    fn any_record_can_be_sought(records in some(), block in 1..700_usize, places in prop::collection::vec(any::<prop::sample::Index>(), 1..5), index in any::<bool>()) {
        let (mut bytes, _) = write(&records, block);
        if !index {
            bytes.pop();
        }
        let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
        for place in places {
            let place = place.index(records.len() + 1);
            reader.seek_to(place as u64).unwrap();
            prop_assert_eq!(reader.record_number(), place as u64);
            let rest: Vec<Record> = reader.by_ref().map_while(Result::ok).collect();
            prop_assert_eq!(rest, records[place..].to_vec());
        }
        prop_assert!(reader.seek_to(records.len() as u64 + 1).is_err());
    }

    #[test]
    fn instructions_can_be_skipped(records in some(), block in 1..700_usize, part in 0..100_u64) {
        let (bytes, summary) = write(&records, block);
        let wanted = summary.instructions * part / 100;
        let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
        let place = usize::try_from(reader.skip_instructions(wanted).unwrap()).unwrap();
        let passed = |n: usize| records[..n].iter().map(|r| u64::from(r.instructions)).sum::<u64>();
        prop_assert!(passed(place) >= wanted);
        prop_assert!(place == 0 || passed(place - 1) <= wanted);
        let rest: Vec<Record> = reader.map(Result::unwrap).collect();
        prop_assert_eq!(rest, records[place..].to_vec());
    }

    #[test]
    fn a_cut_trace_gives_all_before_the_cut(records in some(), block in 1..100_usize, at in any::<prop::sample::Index>()) {
        let (bytes, _) = write(&records, block);
        let at = at.index(bytes.len());
        let (found, error) = read(&bytes[..at]);
        prop_assert_eq!(&found[..], &records[..found.len()]);
        let error = error.expect("a cut trace is no whole one");
        prop_assert!(offset(&error) <= at as u64, "{error} in {at} bytes");
        prop_assert!(found.len() >= whole_blocks(&bytes, at));
    }

    #[test]
    fn a_changed_byte_is_found_and_all_before_it_is_good(records in some(), block in 1..100_usize, at in any::<prop::sample::Index>(), change in 1..=255_u8) {
        let (mut bytes, _) = write(&records, block);
        let at = at.index(bytes.len());
        let before = whole_blocks(&bytes, at);
        bytes[at] ^= change;
        let (found, error) = read(&bytes);
        prop_assert_eq!(&found[..], &records[..found.len()]);
        prop_assert!(found.len() >= before);
        let error = error.expect("every byte is checked");
        prop_assert!(offset(&error) <= bytes.len() as u64);
    }
}

/// Records in the blocks that end at or before a place, by the undamaged trace's own index.
fn whole_blocks(bytes: &[u8], at: usize) -> usize {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let place = |n: u64| usize::try_from(n).unwrap();
    let index = place(word(bytes.len() - 16));
    let entries = &bytes[index + 12..bytes.len() - 56];
    let mut records = 0;
    for entry in entries.chunks_exact(24) {
        let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
        if place(number(0)) <= at {
            records = place(number(8));
        }
    }
    if index <= at { place(word(bytes.len() - 56)) } else { records }
}

#[test]
fn the_header_is_kept() {
    let (bytes, _) = write(&[], 1);
    assert_eq!(*TraceReader::new(bytes.as_slice()).unwrap().header(), header());
}

#[test]
fn batches_and_single_records_can_be_mixed() {
    let records = synthetic(10_000);
    let (bytes, _) = write(&records, 6000);
    let mut reader = TraceReader::new(bytes.as_slice()).unwrap();
    let (mut found, mut batch) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next() {
        found.push(record.unwrap());
        reader.next_block(&mut batch).unwrap();
        found.append(&mut batch);
    }
    assert_eq!(found, records);
}

#[test]
fn the_synthetic_streams_take_less_than_two_bytes_a_record() {
    for mix in [Mix::MissHeavy, Mix::Hot] {
        let records: Vec<Record> = MixStream::new(mix).take(200_000).collect();
        let (bytes, summary) = write(&records, 1 << 16);
        let each = bytes.len() as f64 / summary.records as f64;
        assert!(each < 2.0, "{mix:?}: {each} bytes a record");
    }
}

#[test]
fn what_was_flushed_is_usable_before_the_end() {
    let records = synthetic(1000);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header()).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.flush().unwrap();
    drop(writer);
    let (found, error) = read(&bytes);
    assert_eq!(found, records);
    let message = error.expect("it has no index").to_string();
    assert!(message.contains("cut") && message.contains("1000 records"), "{message}");
}

#[test]
fn errors_name_the_offset_and_what_to_do() {
    let (bytes, _) = write(&synthetic(1000), 100);
    let (_, none) = read(b"#!/bin/sh");
    assert!(none.unwrap().to_string().contains("import it first"));
    let mut version = bytes.clone();
    version[8] = 9;
    assert!(
        read(&version)
            .1
            .unwrap()
            .to_string()
            .starts_with("offset 8: version 9 where 1 to 2 are known")
    );
    let longer = [bytes.as_slice(), b"x"].concat();
    let message = read(&longer).1.unwrap().to_string();
    assert!(message.starts_with(&format!("offset {}: more bytes", bytes.len())), "{message}");
    assert!(message.contains("use the 1000 records"), "{message}");
}

/// Where the blocks begin, by the trace's own index.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let place = |n: u64| usize::try_from(n).unwrap();
    let index = place(word(bytes.len() - 16));
    (index + 12..bytes.len() - 56).step_by(24).map(|entry| place(word(entry))).collect()
}

#[test]
fn seeking_does_not_believe_a_block_that_does_not_follow() {
    let records = synthetic(1000);
    let (whole, _) = write(&records, 100);
    let starts = blocks(&whole);
    // Without an index blocks are found by their heads; here one has another number.
    for (block, number) in [(0, 50_u64), (3, 250), (3, 350), (3, 0)] {
        let mut bytes = whole[..whole.len() - 20].to_vec();
        bytes[starts[block] + 16..][..8].copy_from_slice(&number.to_le_bytes());
        let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
        for record in [0_usize, 5, 299, 300, 320, 360, 999] {
            let found = reader.seek_to(record as u64);
            assert_eq!(
                found.is_ok(),
                record <= block * 100,
                "{record} with block {block} {number}"
            );
            if found.is_ok() && record < block * 100 {
                assert_eq!(reader.next().unwrap().unwrap(), records[record]);
            }
        }
    }
}

#[test]
fn seeking_before_the_first_entry_of_an_index_begins_at_the_first_block() {
    let records = synthetic(300);
    let (mut bytes, _) = write(&records, 100);
    let end = bytes.len();
    let index = usize::try_from(u64::from_le_bytes(bytes[end - 16..end - 8].try_into().unwrap()));
    let index = index.unwrap();
    bytes[index + 20] = 7;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[index..index + 8]);
    sum.update(&bytes[index + 12..end - 16]);
    bytes[index + 8..index + 12].copy_from_slice(&sum.finalize().to_le_bytes());
    let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
    reader.seek_to(3).unwrap();
    assert_eq!(reader.record_number(), 3);
    assert_eq!(reader.next().unwrap().unwrap(), records[3]);
}

#[test]
fn threads_write_what_one_writes() {
    let mut records = synthetic(200_000);
    // Too many threads for one dictionary, so that a batch becomes several blocks.
    for (i, record) in (0_u16..).zip(&mut records[70_000..72_000]) {
        record.thread = i;
    }
    let by = |threads| {
        let mut bytes = Vec::new();
        let mut writer = Writer::with_threads(&mut bytes, &header(), threads).unwrap();
        for (n, record) in records.iter().enumerate() {
            writer.push(record).unwrap();
            // In the middle of a batch.
            if n == 150_000 {
                writer.flush().unwrap();
            }
        }
        let summary = writer.finish().unwrap();
        (bytes, summary)
    };
    for threads in [1, 2, 3] {
        let (bytes, summary) = by(threads);
        let (found, error) = read(&bytes);
        assert!(error.is_none() && found == records, "{threads} threads: {error:?}");
        let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
        assert_eq!(reader.summary().unwrap(), Some(summary));
        assert_eq!((summary.records, summary.bytes), (200_000, bytes.len() as u64));
        assert!(summary.blocks > 8, "{} blocks", summary.blocks);
        reader.seek_to(71_500).unwrap();
        assert_eq!(reader.next().unwrap().unwrap(), records[71_500]);
        assert!(by(threads).0 == bytes, "the same records make the same file");
    }
}
