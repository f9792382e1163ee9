//! The payload of a block: a dictionary and five columns.
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

use huepage_color::VirtAddr;

use super::BLOCK_RECORDS;
use super::code::{FORMS, SLOTS, Slots};
use super::column::{COLUMNS, Packer, Unpacker, constant};
use crate::record::{Kind, Record};

/// Entries of a full dictionary.
const ENTRIES: usize = 256;
const ENTRY_BYTES: usize = 6;
/// Places of the encoder's shortcut into its dictionary.
const SHORTCUTS: usize = 64;

/// The records that share slots: those of a thread that fetch, or those that do not.
type Group = (u16, u16, bool);

fn group(record: &Record) -> Group {
    (record.space, record.thread, record.kind == Kind::Fetch)
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
    groups: Vec<Group>,
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

/// A dictionary entry, ready to become a record.
#[derive(Clone, Copy)]
struct Entry {
    record: Record,
    /// The first slot of its group.
    slots: usize,
}

/// All slots that 256 entries can have.
const ALL_SLOTS: usize = ENTRIES * SLOTS;
/// Zeros after the differences, so that eight bytes can be read at each.
const PAD: usize = 8;

/// Takes a payload apart, a batch at a time.
pub struct Decoder {
    unpacker: Unpacker,
    entries: Box<[Entry; ENTRIES]>,
    /// Entry, control, instructions low and high.
    columns: [Vec<u8>; 4],
    counts: Counts,
    addresses: Addresses,
    records: usize,
    next: usize,
}

/// Where the instruction counts of a block are.
#[derive(Clone, Copy)]
enum Counts {
    /// All are equal, and in the dictionary.
    One,
    /// The higher bytes are equal.
    Low(u8),
    /// In both columns.
    Both,
}

/// What makes addresses of control bytes.
struct Addresses {
    slots: Box<[u64; ALL_SLOTS]>,
    differences: Vec<u8>,
    at: usize,
}

impl Decoder {
    /// Without a block.
    pub fn new() -> io::Result<Decoder> {
        let entry = Entry { record: Record::plain(0, Kind::Load), slots: 0 };
        let slots = Box::new([0; ALL_SLOTS]);
        Ok(Decoder {
            unpacker: Unpacker::new()?,
            entries: Box::new([entry; ENTRIES]),
            columns: Default::default(),
            counts: Counts::One,
            addresses: Addresses { slots, differences: Vec::new(), at: 0 },
            records: 0,
            next: 0,
        })
    }

    /// Records not yet given.
    pub const fn left(&self) -> usize {
        self.records - self.next
    }

    /// Has no records any more.
    pub const fn forget(&mut self) {
        (self.records, self.next) = (0, 0);
    }

    /// Takes the payload of a block of that many records.
    ///
    /// # Errors
    /// What is wrong with it; the decoder then has no records.
    pub fn load(&mut self, payload: &[u8], records: usize) -> Result<(), &'static str> {
        self.forget();
        let mut rest = self.dictionary(payload)?;
        let mut constants = [None; 4];
        for (column, value) in self.columns.iter_mut().zip(&mut constants) {
            *value = constant(rest);
            self.unpacker.unpack(&mut rest, records, 0, column)?;
            if column.len() != records {
                return Err("a column is shorter than its block");
            }
        }
        self.addresses.at = 0;
        self.unpacker.unpack(&mut rest, records * 8, PAD, &mut self.addresses.differences)?;
        if !rest.is_empty() {
            return Err("bytes are left after the last column");
        }
        self.counts = self.counts(constants[2], constants[3]);
        self.records = records;
        Ok(())
    }

    /// Where the counts are; one for all goes into the dictionary.
    fn counts(&mut self, low: Option<u8>, high: Option<u8>) -> Counts {
        match (low, high) {
            (Some(low), Some(high)) => {
                let count = u16::from_le_bytes([low, high]);
                self.entries.iter_mut().for_each(|entry| entry.record.instructions = count);
                Counts::One
            }
            (None, Some(high)) => Counts::Low(high),
            (_, None) => Counts::Both,
        }
    }

    /// Reads the dictionary and gives what follows it. Entries beyond its end stay as they
    /// were: no encoder refers to them, and a damaged block that does is caught by its
    /// checksum.
    fn dictionary<'a>(&mut self, payload: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let (&last, rest) = payload.split_first().ok_or("the payload is empty")?;
        let length = (usize::from(last) + 1) * ENTRY_BYTES;
        let (dictionary, rest) =
            rest.split_at_checked(length).ok_or("the dictionary is cut off")?;
        let mut groups: Vec<Group> = Vec::new();
        for (entry, bytes) in self.entries.iter_mut().zip(dictionary.chunks_exact(ENTRY_BYTES)) {
            let record = parse_entry(bytes)?;
            let group = group(&record);
            let known = groups.iter().position(|g| *g == group);
            let index = known.unwrap_or(groups.len());
            if index == groups.len() {
                groups.push(group);
            }
            *entry = Entry { record, slots: index * SLOTS };
        }
        self.addresses.slots[..groups.len() * SLOTS].fill(0);
        Ok(rest)
    }

    /// Replaces `out` by the next records, at most `most`.
    ///
    /// # Errors
    /// The differences do not match the control bytes; the decoder then has no records.
    pub fn take(&mut self, most: usize, out: &mut Vec<Record>) -> Result<(), &'static str> {
        let count = most.min(self.left());
        // What `out` holds is overwritten: clearing it first would cost as much as decoding.
        out.resize(count, Record::plain(0, Kind::Load));
        let [entries, controls, low, high] =
            self.columns.each_ref().map(|column| &column[self.next..self.next + count]);
        let rows = out.iter_mut().zip(entries.iter().zip(controls));
        let (table, addresses) = (&self.entries, &mut self.addresses);
        let whole = match self.counts {
            Counts::One => addresses.fill(table, rows.map(|row| (row, None))),
            Counts::Low(high) => {
                let counts = low.iter().map(|low| Some(u16::from_le_bytes([*low, high])));
                addresses.fill(table, rows.zip(counts))
            }
            Counts::Both => {
                let counts = low.iter().zip(high).map(|(l, h)| Some(u16::from_le_bytes([*l, *h])));
                addresses.fill(table, rows.zip(counts))
            }
        };
        self.next += count;
        if whole && (self.left() > 0 || self.addresses.at + PAD == self.addresses.differences.len())
        {
            return Ok(());
        }
        out.clear();
        self.forget();
        Err("the differences do not fit the records")
    }
}

/// A record to fill, its entry and control byte, and its instruction count unless the entry
/// has it.
type Row<'a> = ((&'a mut Record, (&'a u8, &'a u8)), Option<u16>);

impl Addresses {
    /// The loop that reading a trace is: no branch but the loop's own and the end of the
    /// differences, which is never taken in an undamaged block. False if it was.
    #[inline]
    fn fill<'a>(
        &mut self,
        entries: &[Entry; ENTRIES],
        rows: impl Iterator<Item = Row<'a>>,
    ) -> bool {
        let slots = &mut *self.slots;
        let differences = self.differences.as_slice();
        let mut at = self.at;
        for ((out, (entry, control)), count) in rows {
            let entry = &entries[usize::from(*entry)];
            let form = &FORMS[usize::from(control >> 3)];
            let Some(bytes) = differences.get(at..at + 8) else { return false };
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            at += form.length;
            let slot = &mut slots[(entry.slots + usize::from(control & 7)) % ALL_SLOTS];
            let address = slot.wrapping_add(form.difference(u64::from_le_bytes(number)));
            *slot = address.wrapping_add(u64::from(entry.record.bytes));
            *out = entry.record;
            out.address = VirtAddr(address);
            if let Some(count) = count {
                out.instructions = count;
            }
        }
        self.at = at;
        true
    }
}

fn parse_entry(bytes: &[u8]) -> Result<Record, &'static str> {
    let kind = match bytes[5] {
        0 => Kind::Fetch,
        1 => Kind::Load,
        2 => Kind::Store,
        _ => return Err("an access is of an unknown kind"),
    };
    let half = |at| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    Ok(Record { space: half(0), thread: half(2), bytes: bytes[4], ..Record::plain(0, kind) })
}
