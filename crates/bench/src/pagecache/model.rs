//! What a file must hold, byte by byte, kept in memory by the only one who writes to it.
//!
//! What is written is blocks that name themselves: file, generation, place, and a checksum of
//! the three. A file that differs from its model tells from its blocks whether a write was
//! lost (an older generation), went astray (another file or place) or was damaged.

use std::fmt;
use std::ops::Range;

use crate::mix::{pattern, scramble};

/// Bytes of a block: four to a page, so that pages hold blocks of several generations.
pub const BLOCK: usize = 1024;
const WORD: usize = 8;

/// The contents that a file must have.
#[derive(Clone, Debug, Default)]
pub struct FileModel {
    bytes: Vec<u8>,
}

/// The first block of a file that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Length found and length expected, in bytes.
    pub lengths: (usize, usize),
    /// Number of the block.
    pub block: usize,
    /// What the block found says of itself.
    pub found: FileBlock,
    /// What the block expected says of itself.
    pub expected: FileBlock,
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileBlock {
    /// It is behind the end.
    Absent,
    /// All zeros.
    Zeros,
    /// Written as block `place` of a file, in a generation.
    Written {
        /// The file.
        file: u64,
        /// The generation.
        generation: u64,
        /// The block's number.
        place: u64,
    },
    /// Its checksum is wrong, or it is a part only.
    Damaged,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, expected) = self.lengths;
        write!(f, "block {} is {:?} instead of {:?}", self.block, self.found, self.expected)?;
        write!(f, " ({found} bytes long instead of {expected})")
    }
}

/// A block's contents.
fn contents(file: u64, generation: u64, place: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for (at, word) in block.chunks_exact_mut(WORD).enumerate() {
        let value = match at {
            0 => file,
            1 => generation,
            2 => place,
            3 => checksum(file, generation, place),
            _ => pattern(file ^ place << 32, generation, at as u64),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    block
}

const fn checksum(file: u64, generation: u64, place: u64) -> u64 {
    scramble(file ^ scramble(generation ^ scramble(place ^ 0x7cac_4e5e)))
}

impl FileBlock {
    /// Reads what a block says of itself.
    pub fn of(bytes: &[u8]) -> FileBlock {
        let word = |at: usize| {
            let word = bytes.get(at * WORD..)?.first_chunk::<WORD>()?;
            Some(u64::from_le_bytes(*word))
        };
        if bytes.is_empty() {
            return FileBlock::Absent;
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return FileBlock::Zeros;
        }
        match (word(0), word(1), word(2)) {
            (Some(file), Some(generation), Some(place))
                if bytes == contents(file, generation, place) =>
            {
                FileBlock::Written { file, generation, place }
            }
            _ => FileBlock::Damaged,
        }
    }
}

impl FileModel {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Cuts it off, or adds zeros.
    pub fn resize(&mut self, bytes: usize) {
        self.bytes.resize(bytes, 0);
    }

    /// Writes blocks of a generation; gives what was written. Its length grows as a file's.
    pub fn write(&mut self, file: u64, generation: u64, blocks: Range<usize>) -> &[u8] {
        let bytes = blocks.start * BLOCK..blocks.end * BLOCK;
        if self.bytes.len() < bytes.end {
            self.resize(bytes.end);
        }
        for place in blocks {
            let at = place * BLOCK..(place + 1) * BLOCK;
            self.bytes[at].copy_from_slice(&contents(file, generation, place as u64));
        }
        &self.bytes[bytes]
    }

    /// Where a file differs; `None` when it does not.
    pub fn difference(&self, found: &[u8]) -> Option<Difference> {
        if found == self.bytes {
            return None;
        }
        let longest = found.len().max(self.bytes.len());
        let part = |bytes: &[u8], place: usize| {
            let end = bytes.len().min((place + 1) * BLOCK);
            bytes.get(place * BLOCK..end).unwrap_or_default().to_vec()
        };
        let differs = |place: &usize| part(found, *place) != part(&self.bytes, *place);
        let block = (0..longest.div_ceil(BLOCK)).find(differs)?;
        Some(Difference {
            lengths: (found.len(), self.bytes.len()),
            block,
            found: FileBlock::of(&part(found, block)),
            expected: FileBlock::of(&part(&self.bytes, block)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_as_written_does_not_differ() {
        let mut model = FileModel::default();
        let mut file = model.write(3, 1, 0..4).to_vec();
        assert_eq!((model.len(), model.difference(&file)), (4 * BLOCK, None));
        file[BLOCK..3 * BLOCK].copy_from_slice(model.write(3, 2, 1..3));
        assert_eq!(model.difference(&file), None);
        model.resize(6 * BLOCK + 5);
        file.resize(6 * BLOCK + 5, 0);
        assert_eq!(model.difference(&file), None);
        assert!(!model.is_empty());
    }

    #[test]
    fn a_lost_write_is_told_from_damage_and_from_a_stray_one() {
        let mut model = FileModel::default();
        let old = model.write(3, 1, 0..4).to_vec();
        model.write(3, 2, 2..3);
        let lost = model.difference(&old).unwrap();
        let written = |generation| FileBlock::Written { file: 3, generation, place: 2 };
        assert_eq!((lost.block, lost.found, lost.expected), (2, written(1), written(2)));
        let mut damaged = model.bytes().to_vec();
        damaged[3 * BLOCK + 700] ^= 4;
        assert_eq!(model.difference(&damaged).unwrap().found, FileBlock::Damaged);
        let mut stray = model.bytes().to_vec();
        stray[..BLOCK].copy_from_slice(&contents(4, 9, 0));
        let said = model.difference(&stray).unwrap().to_string();
        assert!(said.contains("file: 4, generation: 9"), "{said}");
        let short = model.difference(&model.bytes()[..BLOCK]).unwrap();
        assert_eq!((short.block, short.found, short.lengths.0), (1, FileBlock::Absent, BLOCK));
        let mut zeros = model.bytes().to_vec();
        zeros[..BLOCK].fill(0);
        assert_eq!(model.difference(&zeros).unwrap().found, FileBlock::Zeros);
    }
}
