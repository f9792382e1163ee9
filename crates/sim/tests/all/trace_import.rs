//! The readers of other tools' traces, on samples written by hand: what they mean, where they
//! are wrong, and how they are told apart.

use huepage_color::VirtAddr;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::{
    Batches, ChampSim, Din, Drmemtrace, Format, Lackey, Raw, TraceError, detect, open,
};

const LACKEY: &str = "\
==42== Lackey, an example Valgrind tool
SB 04001000
I  04001000,3
 L 1ffeffe7e0,8
I  04001003,5
 S 1ffeffe7d8,4
 M 0421c7cc,2

==42== Exit code: 0
";

const DRMEMTRACE: &str = "\
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:        4711 <marker: version 6>
           4           1:        4711 ifetch       3 byte(s) @ 0x0000000004001000 48 89 e7             mov    %rsp, %rdi
           5           1:        4711 read         8 byte(s) @ 0x0000001ffeffe7e0 by PC 0x0000000004001000
           6           1:        4712 write       64 byte(s) @ 0x0000001ffeffe7f0 by PC 0x0000000004001003
           7           1:        4711 pref-r      64 byte(s) @ 0x0000000000001000 by PC 0x0000000004001000
           8           1:        4711 <thread 4711 exited>
View tool results:
              1 : total instructions
";

fn record(kind: AccessKind, address: u64, bytes: u8, instructions: u16) -> Record {
    Record { address: VirtAddr(address), bytes, instructions, ..Record::plain(0, kind) }
}

fn all(trace: impl Iterator<Item = Result<Record, TraceError>>) -> Vec<Record> {
    trace.map(|record| record.expect("a sound trace")).collect()
}

fn message(mut trace: impl Iterator<Item = Result<Record, TraceError>>) -> String {
    let error = trace.find_map(Result::err).expect("an error");
    assert!(trace.next().is_none(), "records after an error");
    error.to_string()
}

#[test]
fn lackey_counts_fetches_as_instructions_and_a_modify_twice() {
    let expected = [
        record(AccessKind::Fetch, 0x0400_1000, 3, 1),
        record(AccessKind::Load, 0x1f_feff_e7e0, 8, 0),
        record(AccessKind::Fetch, 0x0400_1003, 5, 1),
        record(AccessKind::Store, 0x1f_feff_e7d8, 4, 0),
        record(AccessKind::Load, 0x0421_c7cc, 2, 0),
        record(AccessKind::Store, 0x0421_c7cc, 2, 0),
    ];
    assert_eq!(all(Lackey::new(LACKEY.as_bytes())), expected);
}

#[test]
fn drmemtrace_numbers_threads_as_they_come_and_skips_what_is_no_access() {
    let expected = [
        record(AccessKind::Fetch, 0x0400_1000, 3, 1),
        record(AccessKind::Load, 0x1f_feff_e7e0, 8, 0),
        Record { thread: 1, ..record(AccessKind::Store, 0x1f_feff_e7f0, 64, 0) },
    ];
    assert_eq!(all(Drmemtrace::new(DRMEMTRACE.as_bytes())), expected);
    // Versions before 9 name no numbers of records.
    let early = "T4711 read  8 byte(s) @ 0x1ffeffe7e0 by PC 0x4001000\n";
    assert_eq!(all(Drmemtrace::new(early.as_bytes())), expected[1..2]);
}

#[test]
fn malformed_drmemtrace_names_the_line_and_what_was_expected() {
    for bad in [
        "x read 8 byte(s) @ 0x10",
        "1 read 0 byte(s) @ 0x10",
        "1 read 8 byte(s) @ 1x0",
        "read 8 byte(s) @ 0x1",
    ] {
        let found =
            message(Drmemtrace::new(format!("1 write 8 byte(s) @ 0x10\n{bad}\n").as_bytes()));
        assert!(found.starts_with("line 2: ") && found.contains("expected"), "{bad}: {found}");
    }
}

#[test]
fn a_long_access_is_several_records_that_cover_it() {
    let found = all(Lackey::new(" M 1000,600\n".as_bytes()));
    for kind in [AccessKind::Load, AccessKind::Store] {
        let mut next = 0x1000;
        for piece in found.iter().filter(|record| record.kind == kind) {
            assert_eq!(piece.address.0, next);
            next += u64::from(piece.bytes);
        }
        assert_eq!(next, 0x1000 + 600, "{kind:?}");
    }
    let first_store = found.iter().position(|record| record.kind == AccessKind::Store);
    assert_eq!(first_store, Some(found.len() / 2), "loads come first");
}

#[test]
fn malformed_lackey_names_the_line_and_what_was_expected() {
    for (text, part) in [
        ("I  04001000,3\n X 12,4\n", "line 2: `X 12,4` begins with none of I, L, S and M"),
        (" L 12\n", "line 1: ` L 12` has no address and size"),
        (" L zz,8\n", "has no address and size"),
        (" L +12,8\n", "has no address and size"),
        (" L 12,0\n", "has a size that no access has"),
        (" L 12,99999999\n", "has a size that no access has"),
        (" L 11112222333344445,8\n", "has no address and size"),
    ] {
        let found = message(Lackey::new(text.as_bytes()));
        let found = found.replace("line 2: ` X", "line 2: `X");
        assert!(found.contains(part) && found.contains("expected"), "{text:?}: {found}");
    }
    let long = "I".repeat(5000);
    assert!(message(Lackey::new(long.as_bytes())).starts_with("line 1: `IIII"));
}

#[test]
fn din_has_loads_stores_fetches_and_escapes() {
    let text = "0 1000 a comment\n1 0x2000\n\n2 fff8\n3 10\n4 0\nr 20\n";
    let expected = [
        record(AccessKind::Load, 0x1000, 4, 0),
        record(AccessKind::Store, 0x2000, 4, 0),
        record(AccessKind::Fetch, 0xfff8, 4, 1),
        record(AccessKind::Load, 0x10, 4, 0),
        record(AccessKind::Load, 0x20, 4, 0),
    ];
    assert_eq!(all(Din::new(text.as_bytes())), expected);
}

#[test]
fn malformed_din_names_the_line_and_what_was_expected() {
    for (text, part) in [
        ("0 1000\n7 1000\n", "line 2: `7 1000` begins with no label from 0 to 4"),
        ("0\n", "line 1: `0` has no hexadecimal address"),
        ("0 xyz\n", "line 1: `0 xyz` has no hexadecimal address"),
    ] {
        let found = message(Din::new(text.as_bytes()));
        assert!(found.starts_with(part) && found.contains("expected"), "{found}");
    }
}

fn instruction(ip: u64, loads: &[u64], stores: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(0, ip);
    stores.iter().enumerate().for_each(|(i, store)| put(16 + 8 * i, *store));
    loads.iter().enumerate().for_each(|(i, load)| put(32 + 8 * i, *load));
    bytes
}

#[test]
fn champsim_fetches_then_loads_then_stores() {
    let bytes =
        [instruction(0x40_0000, &[0x1000, 0, 0x3000], &[0x2000]), instruction(0x40_0004, &[], &[])];
    let expected = [
        record(AccessKind::Fetch, 0x40_0000, 4, 1),
        record(AccessKind::Load, 0x1000, 8, 0),
        record(AccessKind::Load, 0x3000, 8, 0),
        record(AccessKind::Store, 0x2000, 8, 0),
        record(AccessKind::Fetch, 0x40_0004, 4, 1),
    ];
    assert_eq!(all(ChampSim::new(bytes.concat().as_slice())), expected);
}

#[test]
fn malformed_champsim_names_the_offset() {
    let mut bytes = [instruction(1, &[], &[]), instruction(2, &[], &[])].concat();
    let cut = message(ChampSim::new(&bytes[..100]));
    assert!(cut.starts_with("offset 64: 36 bytes are left"), "{cut}");
    bytes[64 + 9] = 7;
    let flags = message(ChampSim::new(bytes.as_slice()));
    assert!(flags.starts_with("offset 72: branch flags [0, 7]"), "{flags}");
}

#[test]
fn raw_addresses_mark_stores_by_the_top_bit_or_not_at_all() {
    let words = [0x1000_u64, 0x2000 | 1 << 63].map(u64::to_le_bytes).concat();
    let expected =
        [Record::plain(0x1000, AccessKind::Load), Record::plain(0x2000, AccessKind::Store)];
    assert_eq!(all(Raw::new(words.as_slice())), expected);
    let expected =
        [0x1000, 0x2000 | 1 << 63].map(|address| Record::plain(address, AccessKind::Load));
    assert_eq!(all(Raw::loads(words.as_slice())), expected);
    let cut = message(Raw::new(&words[..12]));
    assert!(cut.starts_with("offset 8: 4 bytes are left"), "{cut}");
}

#[test]
fn formats_are_told_apart() {
    let champsim = [instruction(0x40_0000, &[0x1000], &[0x2000]), instruction(0x40_0004, &[], &[])];
    let raw: Vec<u8> = (0..100_u64).flat_map(|i| (0x1000_2345 + 40 * i).to_le_bytes()).collect();
    let cases: [(&[u8], Option<Format>); 9] = [
        (b"huetrace\x01", Some(Format::Huepage)),
        (LACKEY.as_bytes(), Some(Format::Lackey)),
        (b"0 1000\n1 2000\n", Some(Format::Din)),
        (&champsim.concat(), Some(Format::Champsim)),
        (DRMEMTRACE.as_bytes(), Some(Format::Drmemtrace)),
        (&raw, Some(Format::Raw)),
        (b"#!/bin/sh\n", None),
        (b"\x7fELF\x02\x01\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff", None),
        (b"", None),
    ];
    for (sample, format) in cases {
        assert_eq!(detect(sample), format, "{:?}", &sample[..sample.len().min(20)]);
    }
}

#[test]
fn names_of_formats_are_read_back() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!("elf".parse::<Format>().unwrap_err().contains("lackey, din"));
}

#[test]
fn batches_give_every_record_before_an_error() {
    let text: String = (0..10_000).map(|i| format!("0 {i:x}\n")).chain(["bad\n".into()]).collect();
    let mut trace = open(text.as_bytes(), Format::Din).unwrap();
    let (mut batch, mut count) = (Vec::new(), 0);
    let error = loop {
        match trace.next_batch(&mut batch) {
            Ok(more) => assert!(more, "it ended without the error"),
            Err(error) => break error.to_string(),
        }
        count += batch.len();
    };
    assert_eq!(count, 10_000);
    assert!(error.starts_with("line 10001: `bad`"), "{error}");
    assert!(!trace.next_batch(&mut batch).unwrap() && batch.is_empty());
}
