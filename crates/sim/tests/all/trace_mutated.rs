//! Every reader over thousands of damaged inputs: none may panic, loop or take more memory
//! than its input warrants. The same as the targets in `fuzz/`, without a fuzzer.

use std::fmt::Display;
use std::io::Cursor;

use huepage_color::{ColorSet, LevelChoice};
use huepage_sim::bytes::Bytes;
use huepage_sim::experiment::{FrameMapping, Shard, Sweep};
use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::{Batches as _, Format, Header, TraceReader, Writer, detect, open};
use huepage_sim::workloads::WorkloadSpec;

const ROUNDS: usize = 3000;

/// A small generator: tests need no better one, and the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n.max(1)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// Changes, cuts, doubles or inserts at one to eight places.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            match self.below(6) {
                _ if bytes.is_empty() => bytes.push(self.byte()),
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 => bytes.extend_from_within(at..),
                3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                _ => bytes[at] = self.byte(),
            }
            bytes.truncate(1 << 16);
        }
    }
}

/// Reads to the end or the error; gives the records.
fn drain(bytes: &[u8], format: Format) -> (usize, bool) {
    let Ok(mut trace) = open(bytes, format) else { return (0, true) };
    let (mut batch, mut count) = (Vec::new(), 0);
    loop {
        match trace.next_batch(&mut batch) {
            Ok(true) => count += batch.len(),
            Ok(false) => return (count, false),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains('\n'), "{text:?} is more than one line");
                return (count, true);
            }
        }
    }
}

/// Mutates `sample` and reads it; `most` records may come of a byte.
fn torment(format: Format, sample: &[u8], most: usize) {
    let mut random = Random(format as u64 + 1);
    let (whole, failed) = drain(sample, format);
    assert!(whole > 0 && !failed, "{format}: the sample itself is not read");
    let mut errors = 0;
    for _ in 0..ROUNDS {
        let mut bytes = sample.to_vec();
        random.damage(&mut bytes);
        let (count, failed) = drain(&bytes, format);
        assert!(count <= bytes.len() * most, "{format}: {count} records of {} bytes", bytes.len());
        errors += usize::from(failed);
        let _ = detect(&bytes);
    }
    assert!(format == Format::RawLoads || errors > ROUNDS / 10, "{format}: {errors} errors");
}

fn own() -> Vec<u8> {
    let header = Header { program: "p".into(), ..Header::default() };
    let mut bytes = Vec::new();
    let mut writer = Writer::with_block(&mut bytes, &header, 50).unwrap();
    for (i, record) in (0_u16..).zip(MixStream::new(Mix::Hot).take(300)) {
        let kind = [AccessKind::Fetch, record.kind][usize::from(i % 2)];
        writer.push(&Record { kind, thread: i % 3, instructions: i, ..record }).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

#[test]
fn the_own_format() {
    torment(Format::Huepage, &own(), 1 << 16);
}

/// Without the checksums in the way: payloads with a right checksum over wrong bytes.
#[test]
fn the_own_format_with_checksums_made_good() {
    let sample = own();
    let mut random = Random(99);
    let head = 20 + usize::from(sample[12]);
    let (mut read, mut failed) = (0, 0);
    for _ in 0..ROUNDS {
        let mut bytes = sample.clone();
        let length = usize::from(u16::from_le_bytes([bytes[head + 4], bytes[head + 5]]));
        for _ in 0..=random.below(4) {
            let at = head + 32 + random.below(length);
            bytes[at] = random.byte();
        }
        let block = &mut bytes[head..head + 32 + length];
        let mut sum = crc32fast::Hasher::new();
        sum.update(&block[..12]);
        sum.update(&block[16..]);
        block[12..16].copy_from_slice(&sum.finalize().to_le_bytes());
        let (count, error) = drain(&bytes, Format::Huepage);
        read += usize::from(count > 0);
        failed += usize::from(error);
    }
    assert!(read > 0 && failed > 0, "{read} read, {failed} failed");
}

#[test]
fn lackey() {
    let sample = "==1== x\nI  04001000,3\n L 1ffeffe7e0,8\n S 10,4\n M 0421c7cc,600\n".repeat(5);
    torment(Format::Lackey, sample.as_bytes(), 1 << 10);
}

#[test]
fn din() {
    torment(Format::Din, "0 1000\n1 2000 comment\n2 fff8\n4 0\n".repeat(9).as_bytes(), 1);
}

#[test]
fn drmemtrace() {
    let sample =
        "1 1: 7 ifetch 3 byte(s) @ 0x401000 jump\n2 1: 8 write 600 byte(s) @ 0x10 by PC 0x401000\n"
            .repeat(9);
    torment(Format::Drmemtrace, sample.as_bytes(), 1 << 10);
}

#[test]
fn champsim() {
    let mut sample = vec![0; 64 * 20];
    for (i, byte) in (0_u8..).zip(sample.chunks_exact_mut(64)) {
        byte[0] = i + 1;
        byte[33] = 7;
    }
    torment(Format::Champsim, &sample, 1);
}

#[test]
fn raw() {
    let sample: Vec<u8> = (0..64_u64).flat_map(|i| (i << 12).to_le_bytes()).collect();
    torment(Format::Raw, &sample, 1);
    torment(Format::RawLoads, &sample, 1);
}

#[test]
fn machine_files() {
    let sample = include_str!("../../../../machines/cascade-lake-like.toml");
    Machine::parse(sample).expect("the shipped file is sound");
    let mut random = Random(5);
    let mut errors = 0;
    for _ in 0..ROUNDS {
        let mut bytes = sample.as_bytes().to_vec();
        random.damage(&mut bytes);
        if let Err(error) = Machine::parse(&String::from_utf8_lossy(&bytes)) {
            assert!(!error.to_string().contains('\n'), "{error}");
            errors += 1;
        }
    }
    assert!(errors > ROUNDS / 10, "only {errors} errors");
}

#[test]
fn seeking() {
    let sample = own();
    let mut random = Random(17);
    let (mut arrived, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let mut bytes = sample.clone();
        random.damage(&mut bytes);
        let Ok(mut reader) = TraceReader::new(Cursor::new(&bytes)) else { continue };
        for place in [random.below(320) as u64, random.below(320) as u64] {
            match reader.seek_to(place) {
                Ok(()) => {
                    assert_eq!(reader.record_number(), place);
                    arrived += 1;
                }
                Err(error) => {
                    assert!(!error.to_string().contains('\n'), "{error}");
                    refused += 1;
                }
            }
        }
        let _ = reader.skip_instructions(random.below(50_000) as u64);
    }
    assert!(arrived > ROUNDS / 10 && refused > ROUNDS / 10, "{arrived} arrived, {refused} refused");
}

/// Counts what was understood, and looks at the error of what was not.
fn told<T, E: Display>(text: &str, found: Result<T, E>, understood: &mut [usize; 2]) {
    understood[usize::from(found.is_err())] += 1;
    if let Err(error) = found {
        let error = error.to_string();
        assert!(!error.is_empty(), "{text:?} is refused without a word");
        assert!(!error.contains(['\n', '\r']), "{text:?}: {error}");
    }
}

#[test]
fn arguments() {
    let samples = ["0-7,12", "0xff", "25%", "l2", "llc", "64K", "random:7", "colors=1..16", "2/5"];
    let more = ["seed=1,2,3", "gups:size=64K", "coloring", "champsim", "raw-loads", "in-order"];
    let mut random = Random(23);
    let mut counts = [[0; 2]; 7];
    for sample in samples.iter().chain(&more) {
        for round in 0..ROUNDS / 10 {
            let mut bytes = sample.as_bytes().to_vec();
            if round > 0 {
                random.damage(&mut bytes);
            }
            // What is quoted in an error must not break its line.
            bytes.extend_from_slice(if round % 4 == 3 { b"\n" } else { b"" });
            let text = &*String::from_utf8_lossy(&bytes);
            told(text, ColorSet::parse(text, 16), &mut counts[0]);
            told(text, text.parse::<LevelChoice>(), &mut counts[1]);
            told(text, Bytes::parse(text), &mut counts[2]);
            told(text, text.parse::<FrameMapping>(), &mut counts[3]);
            told(text, text.parse::<Format>(), &mut counts[4]);
            told(text, text.parse::<Sweep>(), &mut counts[5]);
            told(text, text.parse::<Shard>(), &mut counts[6]);
            told(text, text.parse::<WorkloadSpec>(), &mut [0; 2]);
        }
    }
    let both = |count: &[usize; 2]| count.iter().all(|n| *n > 0);
    assert!(counts.iter().all(both), "understood and refused: {counts:?}");
}
