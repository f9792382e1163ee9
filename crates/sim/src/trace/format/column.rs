//! A column of a block: one byte per record, or the differences. It is stored in the form
//! that is quickest to read, unless a slower one is clearly shorter: one value if all bytes
//! are equal, a bit each if there are two values, raw, or compressed.
//!
//! On file: method u8, length u32, stored length u32, then the stored bytes.

use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, compress_bound};

use super::{size, u32_at, word};

const CONSTANT: u8 = 0;
const RAW: u8 = 1;
const ZSTD: u8 = 2;
/// The two values, then a bit for each byte, the lowest first.
const PAIR: u8 = 3;
const HEAD: usize = 9;
/// The fastest of zstd's regular levels: traces are written while the program waits.
const LEVEL: i32 = 1;
/// Columns of a block, each of which keeps to a form for a while.
pub const COLUMNS: usize = 5;
/// Blocks until all forms are tried again: what a program does changes more slowly.
const PATIENCE: u8 = 8;

/// Writes columns.
pub struct Packer {
    /// Finds repetitions anywhere in the block.
    wide: Compressor<'static>,
    /// Hardly finds any, so that what remains is an entropy code, which unpacks far faster
    /// than many short repetitions.
    narrow: Compressor<'static>,
    buffer: Vec<u8>,
    habits: [Habit; COLUMNS],
}

/// How a column was stored when all forms were last tried, and for how many blocks that holds.
#[derive(Clone, Copy, Default)]
struct Habit {
    form: Form,
    blocks: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Plain,
    Narrow,
    Wide,
}

impl Packer {
    /// A packer; it keeps its tables between columns.
    pub fn new() -> io::Result<Packer> {
        let mut narrow = Compressor::new(LEVEL)?;
        narrow.set_parameter(CParameter::WindowLog(17))?;
        narrow.set_parameter(CParameter::HashLog(6))?;
        narrow.set_parameter(CParameter::MinMatch(7))?;
        let (wide, habits) = (Compressor::new(LEVEL)?, Default::default());
        Ok(Packer { wide, narrow, buffer: Vec::new(), habits })
    }

    /// Appends the column of that number, below [`COLUMNS`], to `out`.
    pub fn pack(&mut self, number: usize, column: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let head = out.len();
        out.resize(head + HEAD, 0);
        let method = self.store(number, column, out)?;
        let stored = out.len() - head - HEAD;
        out[head] = method;
        out[head + 1..head + 5].copy_from_slice(&word(column.len()).to_le_bytes());
        out[head + 5..head + 9].copy_from_slice(&word(stored).to_le_bytes());
        Ok(())
    }

    fn store(&mut self, number: usize, column: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let first = column.first().copied().unwrap_or_default();
        let Some(second) = column.iter().copied().find(|byte| *byte != first) else {
            out.extend_from_slice(&column[..column.len().min(1)]);
            return Ok(if column.is_empty() { RAW } else { CONSTANT });
        };
        let start = out.len();
        let bits = column.len().div_ceil(8) + 2;
        let pair = bits <= column.len() && column.iter().all(|b| *b == first || *b == second);
        let plain = if pair { bits } else { column.len() };
        if self.compress(number, column, plain, out)? {
            return Ok(ZSTD);
        }
        out.truncate(start);
        if !pair {
            out.extend_from_slice(column);
            return Ok(RAW);
        }
        out.extend_from_slice(&[first, second]);
        let bits = |bytes: &[u8]| {
            bytes.iter().rev().fold(0, |bits, byte| bits << 1 | u8::from(*byte == second))
        };
        out.extend(column.chunks(8).map(bits));
        Ok(PAIR)
    }

    /// Appends the compressed form that the column's habit is, if it is shorter than `plain`
    /// bytes; tries both forms when the habit is old.
    fn compress(
        &mut self,
        number: usize,
        column: &[u8],
        plain: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let start = out.len();
        out.resize(start + compress_bound(column.len()), 0);
        let room = &mut out[start..];
        let Habit { form, blocks } = self.habits[number];
        let (form, length) = match form {
            _ if blocks == 0 => self.best(column, plain, room)?,
            Form::Plain => (form, 0),
            Form::Narrow => (form, self.narrow.compress_to_buffer(column, room)?),
            Form::Wide => (form, self.wide.compress_to_buffer(column, room)?),
        };
        out.truncate(start + length);
        // What no longer fits its habit is looked at anew, in the next block.
        let fits = form == Form::Plain || length < plain;
        let left = if blocks == 0 { PATIENCE } else { blocks - 1 };
        self.habits[number] = Habit { form, blocks: if fits { left } else { 0 } };
        Ok(form != Form::Plain && fits)
    }

    /// Tries both compressed forms; the length is that of what is left in `room`.
    fn best(&mut self, column: &[u8], plain: usize, room: &mut [u8]) -> io::Result<(Form, usize)> {
        let wide = self.wide.compress_to_buffer(column, room)?;
        self.buffer.resize(room.len(), 0);
        let narrow = self.narrow.compress_to_buffer(column, &mut self.buffer[..])?;
        // Quicker forms may be an eighth or a quarter longer.
        if narrow <= wide + wide / 4 && narrow < plain - plain / 8 {
            room[..narrow].copy_from_slice(&self.buffer[..narrow]);
            return Ok((Form::Narrow, narrow));
        }
        let form = if wide < plain - plain / 4 { Form::Wide } else { Form::Plain };
        Ok((form, wide))
    }
}

/// Reads columns.
pub struct Unpacker(Decompressor<'static>);

impl Unpacker {
    /// An unpacker; it keeps its tables between columns.
    pub fn new() -> io::Result<Unpacker> {
        Decompressor::new().map(Unpacker)
    }

    /// Takes the column at the front of `input` into `out`, which it replaces; at most
    /// `longest` bytes, followed by `pad` zeros.
    ///
    /// # Errors
    /// What is wrong with the column.
    pub fn unpack(
        &mut self,
        input: &mut &[u8],
        longest: usize,
        pad: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let (head, rest) = input.split_at_checked(HEAD).ok_or("a column is cut off")?;
        let (length, stored) = (size(u32_at(head, 1)), size(u32_at(head, 5)));
        let (bytes, rest) = rest.split_at_checked(stored).ok_or("a column is cut off")?;
        if length > longest {
            return Err("a column is longer than its block");
        }
        *input = rest;
        out.resize(length + pad, 0);
        let (column, zeros) = out.split_at_mut(length);
        zeros.fill(0);
        self.restore(head[0], bytes, column)
    }

    fn restore(&mut self, method: u8, bytes: &[u8], column: &mut [u8]) -> Result<(), &'static str> {
        match (method, bytes) {
            (CONSTANT, [value]) => column.fill(*value),
            (PAIR, [first, second, bits @ ..]) if bits.len() == column.len().div_ceil(8) => {
                expand(*first, *second, bits, column);
            }
            (RAW, bytes) if bytes.len() == column.len() => column.copy_from_slice(bytes),
            (ZSTD, bytes) => match self.0.decompress_to_buffer(bytes, column) {
                Ok(n) if n == column.len() => {}
                _ => return Err("a column does not unpack"),
            },
            _ => return Err("a column has an unknown form"),
        }
        Ok(())
    }
}

/// Makes a byte of each bit, eight at once: bit i of a byte is moved to byte i of a word, made
/// one there, and multiplied by what tells the two values apart.
fn expand(first: u8, second: u8, bits: &[u8], column: &mut [u8]) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const DIAGONAL: u64 = 0x8040_2010_0804_0201;
    let (base, change) = (EACH * u64::from(first), u64::from(first ^ second));
    for (bytes, bits) in column.chunks_mut(8).zip(bits) {
        let spread = (u64::from(*bits) * EACH) & DIAGONAL;
        let ones = (spread + 0x7f * EACH) >> 7 & EACH;
        let eight = (base ^ (ones * change)).to_le_bytes();
        bytes.copy_from_slice(&eight[..bytes.len()]);
    }
}

/// The value that all bytes of a column on file have, if it is stored that way.
pub fn constant(input: &[u8]) -> Option<u8> {
    (input.len() > HEAD && input[0] == CONSTANT).then(|| input[HEAD])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Columns of few values and of many, so that every form occurs.
        #[test]
        fn what_is_packed_unpacks(
            values in prop::sample::select(vec![1_u8, 2, 3, 16, 255]),
            column in prop::collection::vec(any::<u8>(), 0..3000),
        ) {
            let column: Vec<u8> = column.iter().map(|byte| byte % values).collect();
            let mut packed = Vec::new();
            Packer::new().unwrap().pack(0, &column, &mut packed).unwrap();
            let (mut rest, mut found) = (packed.as_slice(), vec![7; 9]);
            let mut unpacker = Unpacker::new().unwrap();
            unpacker.unpack(&mut rest, column.len(), 2, &mut found).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(&found[..column.len()], column.as_slice());
            prop_assert_eq!(&found[column.len()..], [0, 0]);
            prop_assert!(packed.len() <= HEAD + column.len().max(1));
        }
    }

    #[test]
    fn two_bytes_are_shorter_than_their_two_values_and_a_bit_each() {
        for column in [&[86_u8, 1][..], &[86, 1, 1]] {
            let mut packed = Vec::new();
            Packer::new().unwrap().pack(0, column, &mut packed).unwrap();
            assert_eq!(packed.len(), HEAD + column.len(), "{column:?}");
        }
    }

    #[test]
    fn two_values_are_a_bit_each_and_noise_stays_raw() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[7]
        };
        for (mask, method) in [(1, PAIR), (255, RAW), (7, ZSTD)] {
            let column: Vec<u8> = (0..10_000).map(|_| noise() & mask).collect();
            let mut packed = Vec::new();
            Packer::new().unwrap().pack(0, &column, &mut packed).unwrap();
            assert_eq!(packed[0], method, "values masked by {mask}");
        }
    }
}
