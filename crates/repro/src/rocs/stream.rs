//! The accesses of one program, in blocks. Loads in a row from one line are handed over as one:
//! they hit at the front of the nearest cache whatever frames there are. Makes no accesses itself.

use std::collections::HashSet;

use huepage_color::{NumberHash, PAGE_BYTES};

use crate::run::{BatchReader, OwnAccesses, RunFailed};
use huepage_sim::record::{AccessKind, Record};

/// Records in a block.
const BLOCK: usize = 1 << 14;
/// log2 of the bytes of a line.
const LINE_BITS: u32 = 7;

/// A program's accesses from the start.
pub(super) struct Blocks<'a, E> {
    accesses: OwnAccesses<'a, E>,
    /// Instructions handed over.
    pub(super) instructions: u64,
}

impl<'a, E> Blocks<'a, E> {
    pub(super) const fn new(batches: BatchReader<'a, E>) -> Blocks<'a, E> {
        Blocks { accesses: OwnAccesses::new(batches, u64::MAX), instructions: 0 }
    }

    /// Replaces `block`; false at the end.
    pub(super) fn next(&mut self, block: &mut Vec<Record>) -> Result<bool, RunFailed<E>> {
        block.clear();
        while block.len() < BLOCK && !self.accesses.over {
            self.accesses.next(|record| {
                // Everything here is counted in instructions; a trace may not know them.
                let instructions = record.instructions.max(1);
                push(block, Record { instructions, ..record });
                self.instructions += u64::from(instructions);
            })?;
        }
        Ok(!block.is_empty())
    }
}

/// Picks the first access to each page, which gives it its frame.
#[derive(Debug, Default)]
pub(super) struct FirstTouches(HashSet<u64, NumberHash>);

impl FirstTouches {
    /// Those among some accesses.
    pub(super) fn of(&mut self, block: &[Record]) -> Vec<Record> {
        let mut first = |record: &&Record| {
            let [from, to] = [0, u64::from(record.bytes.max(1)) - 1]
                .map(|offset| (record.address.0 + offset) / PAGE_BYTES);
            let from = self.0.insert(from);
            from | self.0.insert(to)
        };
        block.iter().filter(|record| first(record)).copied().collect()
    }
}

/// Appends an access, or adds its instructions to the last if that is a load from the same line.
fn push(block: &mut Vec<Record>, record: Record) {
    let line = |record: &Record| {
        let (first, last) =
            (record.address.0, record.address.0 + u64::from(record.bytes.max(1) - 1));
        (first >> LINE_BITS == last >> LINE_BITS && record.kind == AccessKind::Load)
            .then_some(first >> LINE_BITS)
    };
    if let Some(last) = block.last_mut()
        && let (Some(old), Some(new)) = (line(last), line(&record))
        && old == new
        && let Some(instructions) = last.instructions.checked_add(record.instructions)
    {
        last.instructions = instructions;
        return;
    }
    block.push(record);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_touched_once() {
        let at = |address| Record::plain(address, AccessKind::Load);
        let block = [at(0), at(8), at(4096), at(4), at(8190), at(8192)];
        let mut touches = FirstTouches::default();
        let places: Vec<u64> = touches.of(&block).iter().map(|own| own.address.0).collect();
        assert_eq!(places, [0, 4096, 8190]);
        assert_eq!(touches.of(&block), []);
    }

    #[test]
    fn loads_from_one_line_are_one_and_nothing_else_is() {
        let mut block = Vec::new();
        let [a, b, c] = [0, 8, 128].map(|at| Record::plain(at, AccessKind::Load));
        let store = Record::plain(128, AccessKind::Store);
        let across = Record::plain(252, AccessKind::Load);
        for record in [a, b, c, store, c, across, c] {
            push(&mut block, record);
        }
        let instructions: Vec<u16> = block.iter().map(|record| record.instructions).collect();
        assert_eq!(instructions, [2, 1, 1, 1, 1, 1]);
    }
}
