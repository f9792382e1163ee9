//! Speed and density of the trace format on the two synthetic streams: nanoseconds a record
//! to encode and to decode, medians of interleaved rounds, and bytes a record.
//!
//! `cargo run --release -p huepage-sim --example trace_speed [ROUNDS [FILE]]`; with the name
//! of a trace it measures that as well. A copy of the same records in memory is measured
//! beside, since that is what reading a trace replaces.

use std::hint::black_box;
use std::time::Instant;

use huepage_sim::generators::{Mix, Stream};
use huepage_sim::record::Record;
use huepage_sim::trace::{Header, Reader, Writer};

const RECORDS: usize = 5_000_000;

struct Case {
    name: String,
    records: Vec<Record>,
    bytes: Vec<u8>,
    /// Nanoseconds a record, a row per round: encode, decode, copy.
    rounds: [Vec<f64>; 3],
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(9), |n| n.parse())?;
    let stream = |mix| Stream::new(mix).take(RECORDS).collect();
    let mut cases =
        vec![case("miss-heavy", stream(Mix::MissHeavy))?, case("hot", stream(Mix::Hot))?];
    for path in arguments {
        let trace = Reader::new(std::fs::File::open(&path)?)?;
        cases.push(case(&path, trace.take(4 * RECORDS).collect::<Result<_, _>>()?)?);
    }
    for _ in 0..rounds {
        cases.iter_mut().try_for_each(round)?;
    }
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>12}",
        "ns/record", "encode", "decode", "copy", "bytes/record"
    );
    for case in &mut cases {
        let [encode, decode, copy] = case.rounds.each_mut().map(|times| median(times));
        let bytes = case.bytes.len() as f64 / case.records.len() as f64;
        println!("{:<24} {encode:>10.2} {decode:>10.2} {copy:>10.2} {bytes:>12.3}", case.name);
    }
    Ok(())
}

fn case(name: &str, records: Vec<Record>) -> std::io::Result<Case> {
    let bytes = encode(&records)?;
    Ok(Case { name: name.to_owned(), records, bytes, rounds: Default::default() })
}

fn round(case: &mut Case) -> Result<(), Box<dyn std::error::Error>> {
    let per_record = |start: Instant| start.elapsed().as_nanos() as f64 / case.records.len() as f64;
    let start = Instant::now();
    black_box(encode(&case.records)?);
    case.rounds[0].push(per_record(start));

    let start = Instant::now();
    let mut reader = Reader::new(case.bytes.as_slice())?;
    let (mut batch, mut sum, mut count) = (Vec::new(), 0_u64, 0);
    while reader.next_block(&mut batch)? {
        count += batch.len();
        sum = sum.wrapping_add(batch[batch.len() / 2].address.0);
    }
    black_box(sum);
    case.rounds[1].push(per_record(start));
    assert_eq!(count, case.records.len(), "records were lost");

    let start = Instant::now();
    for part in case.records.chunks(4096) {
        batch.clear();
        batch.extend_from_slice(part);
        black_box(&batch);
    }
    case.rounds[2].push(per_record(start));
    Ok(())
}

fn encode(records: &[Record]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default())?;
    records.iter().try_for_each(|record| writer.push(record))?;
    writer.finish()?;
    Ok(bytes)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
