//! A column of a block: one byte per token or record, or the differences. It is stored in the form
//! that is quickest to read, unless a slower one is clearly shorter: one value if all bytes
//! are equal, a bit each if there are two values, raw, repetitions (LZ4), or an entropy code (zstd).
//! LZ4 unpacks three times as fast as zstd and finds most of what zstd does in loops.
//!
//! On file: method u8, length u32, stored length u32, then the stored bytes.

use std::io;

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, compress_bound};

use super::{size, u32_at, word};

const CONSTANT: u8 = 0;
const RAW: u8 = 1;
const ZSTD: u8 = 2;
/// The two values, then a bit for each byte, the lowest first.
const PAIR: u8 = 3;
const LZ4: u8 = 4;
const HEAD: usize = 9;
/// The fastest of zstd's regular levels: traces are written while the program waits.
const LEVEL: i32 = 1;
/// Columns of a block, each of which keeps to a form for a while.
pub const COLUMNS: usize = 7;
/// Blocks until all forms are tried again: what a program does changes more slowly.
const PATIENCE: u8 = 8;

/// Writes columns.
pub struct Packer {
    /// Hardly finds any repetitions, so that what remains is an entropy code, which unpacks far
    /// faster than many short ones.
    entropy: Compressor<'static>,
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
    Repetitions,
    Entropy,
}

impl Packer {
    /// A packer; it keeps its tables between columns.
    pub fn new() -> io::Result<Packer> {
        let mut entropy = Compressor::new(LEVEL)?;
        entropy.set_parameter(CParameter::WindowLog(17))?;
        entropy.set_parameter(CParameter::HashLog(6))?;
        entropy.set_parameter(CParameter::MinMatch(7))?;
        Ok(Packer { entropy, habits: Default::default() })
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
        match self.compress(number, column, plain, out)? {
            Form::Plain => out.truncate(start),
            Form::Repetitions => return Ok(LZ4),
            Form::Entropy => return Ok(ZSTD),
        }
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

    /// Appends the compressed form that the column's habit is and names it, if it is shorter than
    /// `plain` bytes; tries both forms when the habit is old.
    fn compress(
        &mut self,
        number: usize,
        column: &[u8],
        plain: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<Form> {
        let start = out.len();
        let longest = compress_bound(column.len()).max(get_maximum_output_size(column.len()));
        out.resize(start + longest, 0);
        let room = &mut out[start..];
        let Habit { form, blocks } = self.habits[number];
        let (form, length) = match form {
            _ if blocks == 0 => self.best(column, plain, room)?,
            Form::Plain => (form, 0),
            Form::Repetitions => (form, repetitions(column, room)?),
            Form::Entropy => (form, self.entropy.compress_to_buffer(column, room)?),
        };
        out.truncate(start + length);
        // What no longer fits its habit is looked at anew, in the next block.
        let fits = form == Form::Plain || length < plain;
        let left = if blocks == 0 { PATIENCE } else { blocks - 1 };
        self.habits[number] = Habit { form, blocks: if fits { left } else { 0 } };
        Ok(if fits { form } else { Form::Plain })
    }

    /// The first form, of the quicker ones first, that is clearly shorter; its length is that of
    /// what is left in `room`.
    fn best(&mut self, column: &[u8], plain: usize, room: &mut [u8]) -> io::Result<(Form, usize)> {
        let length = repetitions(column, room)?;
        if length < plain - plain / 4 {
            return Ok((Form::Repetitions, length));
        }
        let length = self.entropy.compress_to_buffer(column, room)?;
        let form = if length < plain - plain / 8 { Form::Entropy } else { Form::Plain };
        Ok((form, length))
    }
}

/// Compresses by LZ4; the length.
fn repetitions(column: &[u8], room: &mut [u8]) -> io::Result<usize> {
    compress_into(column, room).map_err(io::Error::other)
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

    /// The same for a column that must have that length.
    ///
    /// # Errors
    /// What is wrong with the column.
    pub fn unpack_whole(
        &mut self,
        input: &mut &[u8],
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        self.unpack(input, length, 0, out)?;
        if out.len() == length { Ok(()) } else { Err("a column is shorter than its block") }
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
            (LZ4, bytes) => match decompress_into(bytes, column) {
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
