//! The project's own trace format: compact, fast to read, checked, seekable. This file holds
//! what writer and reader share: the layout and the types at its ends.
//!
//! All numbers are little-endian. A trace is a head, blocks, and an index:
//!
//! ```text
//! head   "huetrace", version u32, length u32, checksum u32, Header as JSON of that length
//! block  "BLOK", length u32, records u32, checksum u32, number of its first record u64,
//!        instructions before it u64, then a payload of that length (see `block`)
//! index  "INDX", blocks u32, checksum u32, then per block: offset u64, first record u64,
//!        instructions before u64; then records, instructions, fetches, loads, stores u64 each
//! tail   offset of the index u64, "huetrend"
//! ```
//!
//! Checksums are CRC-32, which finds every change of up to 32 neighbouring bits; they cover
//! their part except themselves. A block decodes without any other, so damage costs at most
//! the block it is in, and a trace without its index still reads to its end.

mod block;
mod code;
mod column;
mod decoder;
mod index;
mod pool;
mod reader;
mod writer;

pub use reader::TraceReader;
pub use writer::Writer;

use serde::{Deserialize, Serialize};

use crate::record::{AccessKind, Record};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"huetrace";
/// Last bytes of a complete trace.
const END: [u8; 8] = *b"huetrend";
/// The version that is written. All from 1 on are read: they differ in the payload of blocks.
const VERSION: u32 = 2;
/// Bytes before the JSON of the header.
const HEAD: usize = 20;
const BLOCK_TAG: [u8; 4] = *b"BLOK";
const INDEX_TAG: [u8; 4] = *b"INDX";
/// Bytes of a block before its payload.
const BLOCK_HEAD: usize = 32;
/// Bytes of the index before its entries.
const INDEX_HEAD: usize = 12;
/// Bytes after the index.
const TAIL: usize = 16;
/// A longer header is damage: Linux allows 2 MiB of arguments.
const LONGEST_HEADER: u32 = 16 << 20;
/// Records in a block unless its dictionary fills first. Large enough for compression and
/// for the cost of a block to vanish, small enough that damage costs little.
pub const BLOCK_RECORDS: usize = 1 << 16;
/// No payload is longer: a dictionary, and 14 bytes a record at the very worst.
const LONGEST_PAYLOAD: usize = BLOCK_RECORDS * 14 + (4 << 10);

/// What a trace is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The program that ran.
    pub program: String,
    /// Its arguments, without the program's name.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// How the trace came to be, for instance `qemu-user plugin` or `lackey, imported`.
    #[serde(default)]
    pub source: String,
}

/// What a trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSummary {
    /// Accesses of every kind.
    pub records: u64,
    /// Instructions retired, by the records' own counts.
    pub instructions: u64,
    /// Accesses that read instructions.
    pub fetches: u64,
    /// Accesses that read data.
    pub loads: u64,
    /// Accesses that write data.
    pub stores: u64,
    /// Blocks.
    pub blocks: u64,
    /// The whole file.
    pub bytes: u64,
}

impl TraceSummary {
    /// Counts a record; blocks and bytes stay as they are.
    #[inline]
    pub fn add(&mut self, record: &Record) {
        self.records += 1;
        self.instructions += u64::from(record.instructions);
        match record.kind {
            AccessKind::Fetch => self.fetches += 1,
            AccessKind::Load => self.loads += 1,
            AccessKind::Store => self.stores += 1,
        }
    }
}

/// The `u32` at a place; the place must exist.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The `u64` at a place; the place must exist.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A length that came from the same machine's `usize` or was checked against a limit.
fn size(n: u32) -> usize {
    n as usize
}

/// A count that is below 2^32 by the limits of the format.
fn word(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The checksum of several pieces as one.
fn checksum(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize()
}
