//! Takes the payload of a block apart, see `block`: a batch of records at a time.

use std::io;

use huepage_color::VirtAddr;

use super::block::{ENTRIES, ENTRY_BYTES, SlotGroup, TOKEN_COLUMNS, group};
use super::code::{FORMS, Form, SLOTS};
use super::column::Unpacker;
use super::size;
use crate::record::{AccessKind, Record};

/// All slots that 256 entries can have.
const ALL_SLOTS: usize = ENTRIES * SLOTS;
/// Records taken at once, at most: 16 KiB of them, which the nearest cache holds beside what
/// the decoder uses.
pub const MOST: usize = 1024;
/// Zeros after the differences: eight bytes can be read for each record of a batch.
const PAD: usize = MOST * 8;

/// What a token says, ready to become a record. 32 bytes, so that finding one takes a shift.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Shape {
    /// Without its address.
    record: Record,
    /// See [`Form`]: the factor, the shift and the length.
    factor: u64,
    slot: u16,
    shift: u8,
    length: u8,
}

/// Takes a payload apart, a batch at a time.
pub struct PayloadDecoder {
    unpacker: Unpacker,
    /// By token.
    shapes: Vec<Shape>,
    /// Of the tokens: entry, control, instructions low and high.
    columns: [Vec<u8>; TOKEN_COLUMNS],
    /// Of the records: the number of the token, low and high; empty where each is its own.
    numbers: [Vec<u8>; 2],
    slots: Box<[u64; ALL_SLOTS]>,
    differences: Vec<u8>,
    /// Where the next difference is.
    at: usize,
    /// Of a batch: places in `shapes`.
    places: Box<[u16; MOST]>,
    records: usize,
    next: usize,
}

impl PayloadDecoder {
    /// Without a block.
    pub fn new() -> io::Result<PayloadDecoder> {
        Ok(PayloadDecoder {
            unpacker: Unpacker::new()?,
            shapes: Vec::new(),
            columns: Default::default(),
            numbers: Default::default(),
            slots: Box::new([0; ALL_SLOTS]),
            differences: Vec::new(),
            at: 0,
            places: Box::new([0; MOST]),
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

    /// Takes the payload of a block of that many records, in a trace of that version.
    ///
    /// # Errors
    /// What is wrong with it; the decoder then has no records.
    pub fn load(
        &mut self,
        payload: &[u8],
        records: usize,
        version: u32,
    ) -> Result<(), &'static str> {
        self.forget();
        let (tokens, rest) = if version == 1 { (0, payload) } else { tokens(payload, records)? };
        let (entries, mut rest) = dictionary(rest)?;
        let kept = if tokens == 0 { records } else { tokens };
        for column in &mut self.columns {
            self.unpacker.unpack_whole(&mut rest, kept, column)?;
        }
        for column in &mut self.numbers {
            column.clear();
            if tokens > 0 {
                self.unpacker.unpack_whole(&mut rest, records, column)?;
            }
        }
        self.unpacker.unpack(&mut rest, records * 8, PAD, &mut self.differences)?;
        if !rest.is_empty() {
            return Err("bytes are left after the last column");
        }
        self.shape(&entries)?;
        (self.at, self.records) = (0, records);
        Ok(())
    }

    /// Makes the shapes of all tokens, and empties the slots.
    fn shape(&mut self, entries: &[Entry]) -> Result<(), &'static str> {
        let [entry, control, low, high] = &self.columns;
        self.shapes.clear();
        for ((entry, control), (low, high)) in entry.iter().zip(control).zip(low.iter().zip(high)) {
            let entry = entries.get(usize::from(*entry)).ok_or("a token has no entry")?;
            self.shapes.push(shape(entry, *control, u16::from_le_bytes([*low, *high])));
        }
        let groups = entries.iter().map(|entry| entry.group + 1).max().unwrap_or_default();
        self.slots[..groups * SLOTS].fill(0);
        Ok(())
    }

    /// Replaces `out` by the next records, at most `most` and at most [`MOST`].
    ///
    /// # Errors
    /// The differences do not match the tokens; the decoder then has no records.
    pub fn take(&mut self, most: usize, out: &mut Vec<Record>) -> Result<(), &'static str> {
        let count = most.min(self.left()).min(MOST);
        // What `out` holds is overwritten: clearing it first would cost as much as decoding.
        out.resize(count, Record::plain(0, AccessKind::Load));
        let whole = self.place(count) && self.fill(out);
        self.next += count;
        if whole && (self.left() > 0 || self.at + PAD == self.differences.len()) {
            return Ok(());
        }
        out.clear();
        self.forget();
        Err("the differences do not fit the records")
    }

    /// Finds the tokens of the next records; whether there are all of them.
    fn place(&mut self, count: usize) -> bool {
        let places = &mut self.places[..count];
        let [low, high] = &self.numbers;
        if low.is_empty() {
            // A block has no more records than a place can say.
            for (place, number) in places.iter_mut().zip(self.next..) {
                *place = u16::try_from(number).unwrap_or_default();
            }
            return true;
        }
        let all = self.next..self.next + count;
        for (place, (low, high)) in places.iter_mut().zip(low[all.clone()].iter().zip(&high[all])) {
            *place = u16::from_le_bytes([*low, *high]);
        }
        let last = places.iter().fold(0, |last, &place| last.max(place));
        usize::from(last) < self.shapes.len()
    }

    /// Makes records of what was found; false if the differences end before.
    #[allow(unsafe_code, reason = "measured hot loop: made for this processor's shifts")]
    fn fill(&mut self, out: &mut [Record]) -> bool {
        let batch = Batch {
            places: &self.places[..out.len()],
            shapes: &self.shapes,
            slots: &mut self.slots,
            differences: &self.differences,
        };
        // Eight bytes a record are always enough: nothing is left to check in the loop.
        if self.at + out.len() * 8 > batch.differences.len() {
            return false;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has what `with_bmi2` was made for; `place` has compared
            // all places with the shapes, and the differences were checked above.
            self.at = unsafe { with_bmi2(batch, self.at, out) };
            return self.at + PAD <= self.differences.len();
        }
        // SAFETY: as above.
        self.at = unsafe { batch.fill(self.at, out) };
        self.at + PAD <= self.differences.len()
    }
}

/// What the loop reads, and the slots.
struct Batch<'a> {
    places: &'a [u16],
    shapes: &'a [Shape],
    slots: &'a mut [u64; ALL_SLOTS],
    differences: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "measured hot loop: made for this processor's shifts")]
#[target_feature(enable = "bmi1,bmi2")]
unsafe fn with_bmi2(batch: Batch<'_>, at: usize, out: &mut [Record]) -> usize {
    // SAFETY: promised by the caller.
    unsafe { batch.fill(at, out) }
}

impl Batch<'_> {
    /// Where the differences go on.
    ///
    /// # Safety
    /// All places are below the number of shapes, and eight bytes of differences follow for
    /// each from `at` on.
    #[inline(always)]
    #[allow(unsafe_code, reason = "measured hot loop")]
    unsafe fn fill(mut self, mut at: usize, out: &mut [Record]) -> usize {
        for (out, place) in out.iter_mut().zip(self.places) {
            // SAFETY: promised by the caller.
            unsafe { self.record(*place, &mut at, out) };
        }
        at
    }

    /// The next record: what reading a trace is. No branch.
    ///
    /// # Safety
    /// The place is below the number of shapes, and eight bytes of differences are at `at`.
    #[inline(always)]
    #[allow(unsafe_code, reason = "measured hot loop: with its checks it takes half as long again")]
    unsafe fn record(&mut self, place: u16, at: &mut usize, out: &mut Record) {
        // SAFETY: as promised.
        let (shape, number) = unsafe {
            let number = self.differences.as_ptr().add(*at).cast::<u64>().read_unaligned();
            (self.shapes.get_unchecked(usize::from(place)), u64::from_le(number))
        };
        *at += usize::from(shape.length);
        let form = Form { factor: shape.factor, shift: shape.shift, length: shape.length };
        let difference = form.difference(number);
        // SAFETY: `shape` makes no other slots than there are.
        let slot = unsafe { self.slots.get_unchecked_mut(usize::from(shape.slot)) };
        let address = slot.wrapping_add_signed(difference);
        // Added up apart, since the next record may wait for the slot.
        *slot = slot.wrapping_add_signed(difference.wrapping_add(shape.record.bytes.into()));
        *out = shape.record;
        out.address = VirtAddr(address);
    }
}

/// An entry of the dictionary.
struct Entry {
    record: Record,
    /// The number of its group, below [`ENTRIES`].
    group: usize,
}

/// Reads the number of tokens and gives what follows it.
fn tokens(payload: &[u8], records: usize) -> Result<(usize, &[u8]), &'static str> {
    let (tokens, rest) = payload.split_first_chunk().ok_or("the number of tokens is cut off")?;
    let tokens = size(u32::from_le_bytes(*tokens));
    if tokens > records { Err("there are more tokens than records") } else { Ok((tokens, rest)) }
}

/// Reads the dictionary and gives what follows it.
fn dictionary(payload: &[u8]) -> Result<(Vec<Entry>, &[u8]), &'static str> {
    let (&last, rest) = payload.split_first().ok_or("the payload is empty")?;
    let length = (usize::from(last) + 1) * ENTRY_BYTES;
    let (dictionary, rest) = rest.split_at_checked(length).ok_or("the dictionary is cut off")?;
    let mut groups: Vec<SlotGroup> = Vec::new();
    let mut entries = Vec::new();
    for bytes in dictionary.chunks_exact(ENTRY_BYTES) {
        let record = parse_entry(bytes)?;
        let own = group(&record);
        let known = groups.iter().position(|group| *group == own);
        let group = known.unwrap_or(groups.len());
        if known.is_none() {
            groups.push(own);
        }
        entries.push(Entry { record, group });
    }
    Ok((entries, rest))
}

/// What a token says of a record.
fn shape(entry: &Entry, control: u8, instructions: u16) -> Shape {
    let slot = entry.group * SLOTS + usize::from(control) % SLOTS;
    let slot = u16::try_from(slot % ALL_SLOTS).unwrap_or_default();
    let Form { factor, shift, length } = FORMS[usize::from(control) / SLOTS];
    Shape { record: Record { instructions, ..entry.record }, factor, slot, shift, length }
}

fn parse_entry(bytes: &[u8]) -> Result<Record, &'static str> {
    let kind = match bytes[5] {
        0 => AccessKind::Fetch,
        1 => AccessKind::Load,
        2 => AccessKind::Store,
        _ => return Err("an access is of an unknown kind"),
    };
    let half = |at| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    Ok(Record { space: half(0), thread: half(2), bytes: bytes[4], ..Record::plain(0, kind) })
}
