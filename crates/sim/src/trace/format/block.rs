//! The payload of a block, and making it: a dictionary and five columns. `decoder` takes it
//! apart.
//!
//! What seldom changes from record to record (space, thread, bytes, kind) is one byte, the
//! index of a dictionary of at most 256; the address is a control byte and a difference (see
//! `code`); the instruction count is two columns, of which the higher is nearly always one
//! constant. A block ends early when its dictionary is full.
//!
//! ```text
//! entries - 1 u8, then per entry: space u16, thread u16, bytes u8, kind u8
//! columns: entry of each record, control, instructions low, instructions high, differences
//! ```

use std::io;

use super::BLOCK_RECORDS;
use super::code::Slots;
use super::column::{COLUMNS, Packer};
use crate::record::{AccessKind, Record};

/// Entries of a full dictionary.
pub const ENTRIES: usize = 256;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 6;
/// Places of the encoder's shortcut into its dictionary.
const SHORTCUTS: usize = 64;

/// The records that share slots: those of a thread that fetch, or those that do not.
pub type SlotGroup = (u16, u16, bool);

/// The group of a record.
pub fn group(record: &Record) -> SlotGroup {
    (record.space, record.thread, record.kind == AccessKind::Fetch)
}

/// What a dictionary entry says, as one number.
fn key(record: &Record) -> u64 {
    u64::from(record.space) << 32
        | u64::from(record.thread) << 16
        | u64::from(record.bytes) << 8
        | record.kind as u64
}

/// Gathers the records of a block.
pub struct Encoder {
    keys: Vec<u64>,
    groups: Vec<SlotGroup>,
    group_of: Vec<usize>,
    slots: Vec<Slots>,
    shortcuts: [(u64, u8); SHORTCUTS],
    /// Full length; `records` of each count.
    columns: [Vec<u8>; 4],
    records: usize,
    /// Full length; `length` bytes count.
    differences: Vec<u8>,
    length: usize,
    packer: Packer,
}

impl Encoder {
    /// Without records.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder {
            keys: Vec::new(),
            groups: Vec::new(),
            group_of: Vec::new(),
            slots: Vec::new(),
            shortcuts: [(u64::MAX, 0); SHORTCUTS],
            columns: std::array::from_fn(|_| vec![0; BLOCK_RECORDS]),
            records: 0,
            differences: vec![0; BLOCK_RECORDS * 8],
            length: 0,
            packer: Packer::new()?,
        })
    }

    /// Records so far.
    pub const fn len(&self) -> usize {
        self.records
    }

    /// Takes a record; false if there is no room for it.
    #[inline]
    pub fn push(&mut self, record: &Record) -> bool {
        let n = self.records;
        if n == BLOCK_RECORDS {
            return false;
        }
        let Some(entry) = self.entry(record) else { return false };
        let slots = &mut self.slots[self.group_of[usize::from(entry)]];
        let (control, number, length) = slots.encode(record.address.0, record.bytes);
        let [low, high] = record.instructions.to_le_bytes();
        for (column, byte) in self.columns.iter_mut().zip([entry, control, low, high]) {
            column[n] = byte;
        }
        self.differences[self.length..self.length + 8].copy_from_slice(&number);
        self.length += length;
        self.records += 1;
        true
    }

    #[inline]
    fn entry(&mut self, record: &Record) -> Option<u8> {
        let key = key(record);
        let [mixed, ..] = (key ^ (key >> 6) ^ (key >> 13) ^ (key >> 29)).to_le_bytes();
        let place = usize::from(mixed) % SHORTCUTS;
        if self.shortcuts[place].0 != key {
            self.shortcuts[place] = (key, self.find(key, record)?);
        }
        Some(self.shortcuts[place].1)
    }

    /// The entry of a key, made if there is none.
    fn find(&mut self, key: u64, record: &Record) -> Option<u8> {
        let place = self.keys.iter().position(|k| *k == key).unwrap_or(self.keys.len());
        if place == self.keys.len() && place < ENTRIES {
            let group = group(record);
            let known = self.groups.iter().position(|g| *g == group);
            let index = known.unwrap_or(self.groups.len());
            if index == self.groups.len() {
                self.groups.push(group);
                self.slots.push(Slots::default());
            }
            self.keys.push(key);
            self.group_of.push(index);
        }
        u8::try_from(place).ok()
    }

    /// Appends the payload to `out` and forgets the records.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(u8::try_from(self.keys.len().saturating_sub(1)).unwrap_or(u8::MAX));
        for key in &self.keys {
            let [kind, bytes, thread, more_thread, space, more_space, ..] = key.to_le_bytes();
            out.extend_from_slice(&[space, more_space, thread, more_thread, bytes, kind]);
        }
        for (number, column) in self.columns.iter().enumerate() {
            self.packer.pack(number, &column[..self.records], out)?;
        }
        self.packer.pack(COLUMNS - 1, &self.differences[..self.length], out)?;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.groups.clear();
        self.group_of.clear();
        self.slots.clear();
        self.shortcuts = [(u64::MAX, 0); SHORTCUTS];
        (self.records, self.length) = (0, 0);
    }
}
