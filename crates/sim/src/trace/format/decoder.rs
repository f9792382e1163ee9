//! Takes the payload of a block apart, see `block`: a batch of records at a time.

use std::io;

use huepage_color::VirtAddr;

use super::block::{ENTRIES, ENTRY_BYTES, SlotGroup, group};
use super::code::{FORMS, Form, SLOTS};
use super::column::{Unpacker, constant};
use crate::record::{AccessKind, Record};

/// All slots that 256 entries can have.
const ALL_SLOTS: usize = ENTRIES * SLOTS;
/// Control bytes that there are.
const CONTROLS: usize = 256;
/// Records taken at once, at most: 16 KiB of them, which the nearest cache holds beside what
/// the decoder uses.
pub const MOST: usize = 1024;
/// Zeros after the differences: eight bytes can be read for each record of a batch.
const PAD: usize = MOST * 8;

/// What entry and control byte say together, ready to become a record. 32 bytes, so that
/// finding one takes a shift.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Shape {
    /// Without its address, and perhaps without its instructions.
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
    /// By entry and control byte: one look for both. A block uses few of them.
    shapes: Vec<Shape>,
    /// Entry, control, instructions low and high.
    columns: [Vec<u8>; 4],
    counted: bool,
    slots: Box<[u64; ALL_SLOTS]>,
    differences: Vec<u8>,
    /// Where the next difference is.
    at: usize,
    /// Of a batch: places in `shapes`, and instructions.
    joined: Box<[[u16; MOST]; 2]>,
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
            counted: false,
            slots: Box::new([0; ALL_SLOTS]),
            differences: Vec::new(),
            at: 0,
            joined: Box::new([[0; MOST]; 2]),
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
        self.unpacker.unpack(&mut rest, records * 8, PAD, &mut self.differences)?;
        if !rest.is_empty() {
            return Err("bytes are left after the last column");
        }
        self.count(constants[2], constants[3]);
        (self.at, self.records) = (0, records);
        Ok(())
    }

    /// A count that is equal for all goes into the shapes.
    fn count(&mut self, low: Option<u8>, high: Option<u8>) {
        let count = low.zip(high).map(|(low, high)| u16::from_le_bytes([low, high]));
        self.counted = count.is_none();
        if let Some(count) = count {
            self.shapes.iter_mut().for_each(|shape| shape.record.instructions = count);
        }
    }

    /// Reads the dictionary and gives what follows it.
    fn dictionary<'a>(&mut self, payload: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let (&last, rest) = payload.split_first().ok_or("the payload is empty")?;
        let length = (usize::from(last) + 1) * ENTRY_BYTES;
        let (dictionary, rest) =
            rest.split_at_checked(length).ok_or("the dictionary is cut off")?;
        let mut groups: Vec<SlotGroup> = Vec::new();
        self.shapes.clear();
        for bytes in dictionary.chunks_exact(ENTRY_BYTES) {
            let record = parse_entry(bytes)?;
            let group = group(&record);
            let known = groups.iter().position(|g| *g == group);
            let index = known.unwrap_or(groups.len());
            if index == groups.len() {
                groups.push(group);
            }
            self.shapes.extend((0..CONTROLS).map(|control| shape(record, control, index)));
        }
        self.slots[..groups.len() * SLOTS].fill(0);
        Ok(rest)
    }

    /// Replaces `out` by the next records, at most `most` and at most [`MOST`].
    ///
    /// # Errors
    /// The differences do not match the tokens; the decoder then has no records.
    pub fn take(&mut self, most: usize, out: &mut Vec<Record>) -> Result<(), &'static str> {
        let count = most.min(self.left()).min(MOST);
        // What `out` holds is overwritten: clearing it first would cost as much as decoding.
        out.resize(count, Record::plain(0, AccessKind::Load));
        let whole = self.join(count) && self.fill(out);
        self.next += count;
        if whole && (self.left() > 0 || self.at + PAD == self.differences.len()) {
            return Ok(());
        }
        out.clear();
        self.forget();
        Err("the differences do not fit the records")
    }

    /// Joins the bytes of the next records; whether all entries are in the dictionary.
    fn join(&mut self, count: usize) -> bool {
        let [entries, controls, low, high] =
            self.columns.each_ref().map(|column| &column[self.next..self.next + count]);
        let [shapes, counts] = &mut *self.joined;
        join(controls, entries, shapes);
        if self.counted {
            join(low, high, counts);
        }
        let last = entries.iter().copied().max().unwrap_or_default();
        usize::from(last) * CONTROLS < self.shapes.len()
    }

    /// Makes records of what was joined; false if the differences end before.
    #[allow(unsafe_code, reason = "measured hot loop: made for this processor's shifts")]
    fn fill(&mut self, out: &mut [Record]) -> bool {
        let [places, counts] = &*self.joined;
        let batch = Batch {
            places: &places[..out.len()],
            counts: self.counted.then(|| &counts[..out.len()]),
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
            // SAFETY: the processor has what `with_bmi2` was made for; `join` has compared
            // all entries with the dictionary, and the differences were checked above.
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
    /// None where the shapes have them.
    counts: Option<&'a [u16]>,
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
        match self.counts {
            // SAFETY: promised by the caller.
            None => {
                for (out, place) in out.iter_mut().zip(self.places) {
                    // SAFETY: promised by the caller.
                    unsafe { self.record(*place, &mut at, out) };
                }
            }
            Some(counts) => {
                for ((out, place), count) in out.iter_mut().zip(self.places).zip(counts) {
                    // SAFETY: promised by the caller.
                    unsafe { self.record(*place, &mut at, out) };
                    out.instructions = *count;
                }
            }
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

fn join(low: &[u8], high: &[u8], out: &mut [u16; MOST]) {
    for (out, (low, high)) in out.iter_mut().zip(low.iter().zip(high)) {
        *out = u16::from_le_bytes([*low, *high]);
    }
}

/// What a control byte says of a record of the group of that number, below 256.
fn shape(record: Record, control: usize, group: usize) -> Shape {
    let slot = u16::try_from((group * SLOTS + control % SLOTS) % ALL_SLOTS).unwrap_or_default();
    let Form { factor, shift, length } = FORMS[control / SLOTS];
    Shape { record, factor, slot, shift, length }
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
