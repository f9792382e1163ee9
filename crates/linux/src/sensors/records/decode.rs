//! Words of the plugin to records of a trace: the parts of one wide access are joined again,
//! and instruction counts too large for one record are carried to the next.

use huepage_color::VirtAddr;
use huepage_model::record::{AccessKind, Record};

use super::protocol::{RecordWord, decode};
use super::ring::Chunk;

/// Widest access that parts are joined to, in bytes: a cache line, and a vector register.
const WIDEST: u8 = 64;

/// What is carried from chunk to chunk, for every thread.
#[derive(Debug, Default)]
pub struct WordDecoder {
    /// Instructions not yet told, by space and thread.
    owed: std::collections::HashMap<(u32, u32), u64>,
}

impl WordDecoder {
    /// Gives the records of a chunk to `push`, in order; ends early with its error.
    ///
    /// The emulator makes an access of 16 bytes or more as several of 8. Parts of the same
    /// instruction that continue each other are given as one record.
    pub fn chunk<E>(
        &mut self,
        chunk: Chunk<'_>,
        mut push: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<(), E> {
        let owed = self.owed.entry((chunk.space, chunk.thread)).or_default();
        let part = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let blank = Record {
            space: part(chunk.space),
            thread: part(chunk.thread),
            ..Record::plain(0, AccessKind::Load)
        };
        let mut held: Option<Record> = None;
        for word in chunk.words {
            let (delta, access) = access_of(*word);
            *owed = owed.saturating_add(delta);
            let Some((address, bytes, kind)) = access else { continue };
            if let Some(whole) = held.as_mut().filter(|_| *owed == 0)
                && continues(whole, address, bytes, kind)
            {
                whole.bytes += bytes;
                continue;
            }
            if let Some(whole) = held.take() {
                push(&whole)?;
            }
            let instructions = u16::try_from(*owed).unwrap_or(u16::MAX);
            *owed -= u64::from(instructions);
            held = Some(Record { address: VirtAddr(address), bytes, kind, instructions, ..blank });
        }
        held.map_or(Ok(()), |whole| push(&whole))
    }
}

/// Instructions that a word counts, and its access (address, bytes, kind), if it is one.
fn access_of(word: u64) -> (u64, Option<(u64, u8, AccessKind)>) {
    match decode(word) {
        RecordWord::Count(more) => (more, None),
        RecordWord::Fetch { address, bytes, delta } => {
            (delta, Some((address, u8::try_from(bytes).unwrap_or(WIDEST), AccessKind::Fetch)))
        }
        RecordWord::Data { address, store, shift, delta } => {
            let kind = if store { AccessKind::Store } else { AccessKind::Load };
            (delta, Some((address, 1 << shift.min(6), kind)))
        }
    }
}

/// Whether an access without an instruction of its own is the next part of the one before.
fn continues(whole: &Record, address: u64, bytes: u8, kind: AccessKind) -> bool {
    kind != AccessKind::Fetch
        && kind == whole.kind
        && address == whole.address.0 + u64::from(whole.bytes)
        && bytes >= 8
        && whole.bytes + bytes <= WIDEST
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{DATA_DELTA, FETCH_DELTA, count, data, fetch};
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn records(decoder: &mut WordDecoder, words: &[u64]) -> Vec<Record> {
        let mut all = Vec::new();
        let push = |r: &Record| {
            all.push(*r);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = decoder.chunk(Chunk { words, space: 3, thread: 2 }, push);
        all
    }

    fn summary(records: &[Record]) -> Vec<(u64, u8, AccessKind, u16)> {
        records.iter().map(|r| (r.address.0, r.bytes, r.kind, r.instructions)).collect()
    }

    #[test]
    fn parts_of_a_vector_are_one_access() {
        let words = [data(64, false, 3, 1), data(72, false, 3, 0), data(80, true, 3, 0)];
        let found = records(&mut WordDecoder::default(), &words);
        assert_eq!(summary(&found), [(64, 16, AccessKind::Load, 1), (80, 8, AccessKind::Store, 0)]);
        assert_eq!((found[0].space, found[0].thread), (3, 2));
    }

    #[test]
    fn neighbours_of_different_instructions_stay_apart() {
        let words = [data(64, false, 3, 1), data(72, false, 3, 1), data(80, false, 2, 0)];
        assert_eq!(records(&mut WordDecoder::default(), &words).len(), 3);
    }

    #[test]
    fn large_counts_are_carried_even_into_the_next_chunk() {
        let mut decoder = WordDecoder::default();
        let first = records(&mut decoder, &[count(100_000), data(8, false, 0, 5)]);
        let second = records(&mut decoder, &[data(80, false, 0, 1)]);
        assert_eq!(summary(&first), [(8, 1, AccessKind::Load, 65_535)]);
        assert_eq!(summary(&second), [(80, 1, AccessKind::Load, 34_471)]);
    }

    fn word() -> impl Strategy<Value = (u64, u64, u64)> {
        let address = 0..1u64 << 47;
        prop_oneof![
            (address.clone(), any::<bool>(), 0u32..7, 0..=DATA_DELTA).prop_map(
                |(a, store, shift, delta)| (data(a, store, shift, delta), 1 << shift, delta)
            ),
            (address, 1u32..=64, 0..=FETCH_DELTA).prop_map(|(a, bytes, delta)| (
                fetch(a, bytes, delta),
                u64::from(bytes),
                delta
            )),
        ]
    }

    proptest! {
        #[test]
        fn no_byte_and_no_instruction_is_lost(words in prop::collection::vec(word(), 0..200)) {
            let coded: Vec<u64> = words.iter().map(|w| w.0).collect();
            let found = records(&mut WordDecoder::default(), &coded);
            let bytes: u64 = found.iter().map(|r| u64::from(r.bytes)).sum();
            prop_assert_eq!(bytes, words.iter().map(|w| w.1).sum::<u64>());
            let told: u64 = found.iter().map(|r| u64::from(r.instructions)).sum();
            prop_assert_eq!(told, words.iter().map(|w| w.2).sum::<u64>());
        }
    }
}
