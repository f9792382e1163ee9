//! The accesses of `sim-speed`: made streams, and programs recorded from start to end, of which a part is taken.
//!
//! The bare loop knows loads and stores of one space that each stay in a line, pages by a small number, and an
//! instruction for each. Recorded accesses are brought into that form before either side sees them: pages are
//! numbered in the order of their first use, which keeps what a cache sees of them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use huepage_sim::generators::{Mix, MixStream};
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::TraceReader;

use crate::launch::Huepage;
use crate::suite::traces;

/// What is run through every machine file.
pub(super) struct Stream {
    pub name: &'static str,
    pub of: Accesses,
}

/// Where accesses come from.
pub(super) enum Accesses {
    /// A made mix.
    Made(Mix),
    /// A program that is recorded.
    Recorded(&'static str),
}

/// All of them.
pub(super) const STREAMS: [Stream; 4] = [
    Stream { name: "misses", of: Accesses::Made(Mix::MissHeavy) },
    Stream { name: "hits", of: Accesses::Made(Mix::Hot) },
    Stream { name: "bzip2", of: Accesses::Recorded("bzip2") },
    Stream { name: "gcc", of: Accesses::Recorded("gcc") },
];

/// The shortest line of a machine file.
const LINE: u64 = 32;

impl Accesses {
    /// So many of them; those of a program are the second so many, as the first ones start it.
    pub fn accesses(
        &self,
        count: usize,
        huepage: &Huepage,
        dir: &Path,
    ) -> Result<Vec<Record>, String> {
        match self {
            Accesses::Made(mix) => Ok(MixStream::new(*mix).take(count).collect()),
            Accesses::Recorded(program) => {
                let path = traces::record(huepage, program, dir)?;
                let read = part_of(&path, count);
                let _ = std::fs::remove_file(&path);
                read
            }
        }
    }
}

fn part_of(path: &Path, count: usize) -> Result<Vec<Record>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| wrong(&error))?;
    let records = TraceReader::new(file).map_err(|error| wrong(&error))?;
    let data = records
        .filter(|record| record.as_ref().map_or(true, |record| record.kind != AccessKind::Fetch));
    let part: Result<Vec<Record>, _> = data.skip(count).take(count).collect();
    let part = part.map_err(|error| wrong(&error))?;
    if part.len() < count {
        return Err(format!("{}: fewer than {} accesses", path.display(), 2 * count));
    }
    Ok(simplified(part))
}

/// The same accesses in the form that the bare loop knows.
fn simplified(mut records: Vec<Record>) -> Vec<Record> {
    let mut pages: HashMap<(u16, u64), u64> = HashMap::new();
    for record in &mut records {
        let address = record.address.0;
        let next = pages.len() as u64;
        let page = *pages.entry((record.space, address >> 12)).or_insert(next);
        let left = LINE - address % LINE;
        let bytes = record.bytes.min(u8::try_from(left).unwrap_or(1));
        *record = Record { bytes, ..Record::plain(page << 12 | address & 4095, record.kind) };
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_by_their_first_use_and_lines_are_kept() {
        let mut record = MixStream::new(Mix::Hot).next().expect("a record");
        let mut at = |address: u64| {
            (record.address.0, record.bytes, record.instructions) = (address, 8, 7);
            record
        };
        let all = simplified(vec![at(0x7fff_1234_501c), at(0x5000_0008), at(0x7fff_1234_5000)]);
        let seen: Vec<_> = all.iter().map(|of| (of.address.0, of.bytes, of.instructions)).collect();
        assert_eq!(seen, [(0x01c, 4, 1), (0x1008, 8, 1), (0, 8, 1)]);
    }
}
