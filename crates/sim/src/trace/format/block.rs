//! The payload of a block, and making it: a dictionary, tokens and differences. `decoder` takes
//! it apart.
//!
//! What seldom changes from record to record (space, thread, bytes, kind) is one byte, the
//! index of a dictionary of at most 256; the address is a control byte and a difference (see
//! `code`); the instruction count has two bytes, of which the higher is nearly always zero.
//! These four bytes together are a token. Programs are loops, so a block has few of them: each
//! is stored once, the commonest first, and a record is the number of its token. One byte then
//! says all but the difference, of which the higher is again nearly always zero; that is what
//! makes reading fast. Where there are many tokens, each record is its own and has no number.
//! A block ends early when its dictionary is full.
//!
//! ```text
//! tokens u32, or 0 if each record is its own
//! entries - 1 u8, then per entry: space u16, thread u16, bytes u8, kind u8
//! columns of tokens: entry, control, instructions low, instructions high
//! columns of records, if they are not their own tokens: number low, number high
//! column of differences
//! ```
//!
//! Version 1 has no number of tokens: each record is its own.

use std::collections::HashMap;
use std::io;

use huepage_color::NumberHash;

use super::code::Slots;
use super::column::{COLUMNS, Packer};
use super::{BLOCK_RECORDS, word};
use crate::record::{AccessKind, Record};

/// Entries of a full dictionary.
pub const ENTRIES: usize = 256;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 6;
/// Bytes of a token, a column each.
pub const TOKEN_COLUMNS: usize = 4;
/// Places of the encoder's shortcut into its dictionary.
const SHORTCUTS: usize = 64;
/// Places of its shortcut to the numbers of tokens.
const TOKEN_SHORTCUTS: usize = 1024;
/// Places for control bytes by what was before them.
const USUAL: usize = 4096;

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

/// The tokens of a block, numbered as they come.
struct Tokens {
    all: Vec<u32>,
    numbers: HashMap<u32, u16, NumberHash>,
    /// Tokens and their numbers, most of which are found here.
    shortcuts: Vec<(u32, u16)>,
    /// Of each record.
    places: Vec<u16>,
}

impl Tokens {
    fn new() -> Tokens {
        let (all, numbers, places) = (Vec::new(), HashMap::default(), Vec::new());
        let mut tokens = Tokens { all, numbers, shortcuts: Vec::new(), places };
        tokens.clear();
        tokens
    }

    fn clear(&mut self) {
        self.all.clear();
        self.numbers.clear();
        self.places.clear();
        self.shortcuts.clear();
        // Found at no other place than its own, so that no number is taken for token 0.
        self.shortcuts.resize(TOKEN_SHORTCUTS, (0, 0));
        self.shortcuts[0].0 = 1;
    }

    /// Notes the token of the next record.
    #[inline]
    fn push(&mut self, token: u32) {
        let place = (token.wrapping_mul(0x9e37_79b1) >> 16) as usize % TOKEN_SHORTCUTS;
        if self.shortcuts[place].0 != token {
            self.shortcuts[place] = (token, self.number(token));
        }
        self.places.push(self.shortcuts[place].1);
    }

    /// The number of a token. A block has no more records than there are numbers.
    fn number(&mut self, token: u32) -> u16 {
        let next = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        *self.numbers.entry(token).or_insert_with(|| {
            self.all.push(token);
            next
        })
    }

    /// Renumbers them, the commonest first; false, and gives each record its own, where there are
    /// so many that numbers would not shorten them.
    fn settle(&mut self) -> bool {
        if self.all.len() > self.places.len() / 2 {
            self.all = self.places.iter().map(|&place| self.all[usize::from(place)]).collect();
            return false;
        }
        let mut counts = vec![0_u32; self.all.len()];
        self.places.iter().for_each(|&place| counts[usize::from(place)] += 1);
        let mut order: Vec<u16> = (0..=u16::MAX).take(self.all.len()).collect();
        order.sort_by_key(|&number| std::cmp::Reverse(counts[usize::from(number)]));
        let mut renumbered = vec![0; self.all.len()];
        (0..).zip(&order).for_each(|(new, &old)| renumbered[usize::from(old)] = new);
        self.all = order.iter().map(|&old| self.all[usize::from(old)]).collect();
        self.places.iter_mut().for_each(|place| *place = renumbered[usize::from(*place)]);
        true
    }
}

/// The control byte that a record had when the same token was before it.
struct Usual {
    controls: Vec<u8>,
    before: u32,
}

impl Usual {
    fn new() -> Usual {
        Usual { controls: vec![0; USUAL], before: 0 }
    }

    /// Of a record of which all but its control byte is known.
    #[inline]
    fn after(&mut self, record: u32) -> &mut u8 {
        let both = self.before.wrapping_mul(0x9e37_79b1) ^ record.wrapping_mul(0x85eb_ca6b);
        &mut self.controls[(both >> 16) as usize % USUAL]
    }

    fn clear(&mut self) {
        self.controls.fill(0);
        self.before = 0;
    }
}

/// Gathers the records of a block.
pub struct Encoder {
    keys: Vec<u64>,
    groups: Vec<SlotGroup>,
    group_of: Vec<usize>,
    slots: Vec<Slots>,
    shortcuts: [(u64, u8); SHORTCUTS],
    tokens: Tokens,
    usual: Usual,
    /// Full length; `length` bytes count.
    differences: Vec<u8>,
    length: usize,
    packer: Packer,
    /// The bytes of a column.
    column: Vec<u8>,
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
            tokens: Tokens::new(),
            usual: Usual::new(),
            differences: vec![0; BLOCK_RECORDS * 8],
            length: 0,
            packer: Packer::new()?,
            column: Vec::new(),
        })
    }

    /// Records so far.
    pub const fn len(&self) -> usize {
        self.tokens.places.len()
    }

    /// Takes a record; false if there is no room for it.
    #[inline]
    pub fn push(&mut self, record: &Record) -> bool {
        if self.len() == BLOCK_RECORDS {
            return false;
        }
        let Some(entry) = self.entry(record) else { return false };
        let slots = &mut self.slots[self.group_of[usize::from(entry)]];
        let [low, high] = record.instructions.to_le_bytes();
        let usual = self.usual.after(u32::from_le_bytes([entry, 0, low, high]));
        let (control, number, length) = slots.encode(record.address.0, record.bytes, *usual);
        *usual = control;
        let token = u32::from_le_bytes([entry, control, low, high]);
        self.usual.before = token;
        self.tokens.push(token);
        self.differences[self.length..self.length + 8].copy_from_slice(&number);
        self.length += length;
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
        let numbered = self.tokens.settle();
        let tokens = if numbered { self.tokens.all.len() } else { 0 };
        out.extend_from_slice(&word(tokens).to_le_bytes());
        out.push(u8::try_from(self.keys.len().saturating_sub(1)).unwrap_or(u8::MAX));
        for key in &self.keys {
            let [kind, bytes, thread, more_thread, space, more_space, ..] = key.to_le_bytes();
            out.extend_from_slice(&[space, more_space, thread, more_thread, bytes, kind]);
        }
        for byte in 0..TOKEN_COLUMNS {
            self.column.clear();
            self.column.extend(self.tokens.all.iter().map(|token| token.to_le_bytes()[byte]));
            self.packer.pack(byte, &self.column, out)?;
        }
        for byte in (0..2).filter(|_| numbered) {
            self.column.clear();
            self.column.extend(self.tokens.places.iter().map(|place| place.to_le_bytes()[byte]));
            self.packer.pack(TOKEN_COLUMNS + byte, &self.column, out)?;
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
        self.tokens.clear();
        self.usual.clear();
        self.length = 0;
    }
}
