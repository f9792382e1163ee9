//! Index functions: physical address to (slice, set) of one cache level. Three forms cover the
//! published ones: plain bit fields, slice bits that are parities, and slices looked up in a
//! base sequence for slice counts that are no power of two. Recovering a function from a
//! machine, and believing one, is left to others.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addr::PhysAddr;
use crate::gf2;

/// Where a line lives in a cache: everything that competes with it has the same location.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Location {
    /// Slice number; 0 in a cache that is not sliced.
    pub slice: u16,
    /// Set number within the slice.
    pub set: u32,
}

/// Why an index function makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum IndexError {
    /// Line and set bits out of range.
    #[error(
        "{line_bits} line bits and {set_bits} set bits are not a cache; use 4-12 line bits and at most 24 set bits"
    )]
    BadBits { line_bits: u32, set_bits: u32 },
    /// A mask with bits inside the line: a line would be in two slices.
    #[error(
        "mask {mask:#x} uses bits inside a line of 2^{line_bits} bytes; clear the bits below {line_bits}"
    )]
    MaskInLine { mask: u64, line_bits: u32 },
    /// More slice masks than a slice number can hold.
    #[error("{count} slice masks are too many; give at most 8")]
    TooManyMasks { count: usize },
    /// Dependent slice masks: some slices would never be used.
    #[error(
        "the slice masks are linearly dependent, so some slices would stay empty; check them for a repeated mask"
    )]
    Dependent,
    /// A base sequence of a length that is not a power of two from 2 to 65536.
    #[error(
        "a base sequence of {length} entries cannot be indexed by address bits; give 2^n entries, n from 1 to 16"
    )]
    BadBase { length: usize },
    /// More permutation masks than the index has bits.
    #[error(
        "{masks} permutation masks for a base sequence of {length} entries; give at most one per index bit"
    )]
    BadPermutation { masks: usize, length: usize },
    /// A set count or line size that plain address bits cannot select.
    #[error(
        "{sets} sets of {line_bytes}-byte lines are no powers of two, so the index is not linear; declare it or use --colors-from probe"
    )]
    NotLinear { sets: u32, line_bytes: u32 },
}

/// Physical address to [`Location`]. Make one with the constructors, which check it; one that
/// comes from a file goes through [`IndexFunction::check`]. Of all, `line_bits` is log2 of the line size in bytes,
/// and `set_bits` log2 of the sets per slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[expect(missing_docs, reason = "fields are as said above")]
pub enum IndexFunction {
    /// One slice; the set is the bit field above the line.
    Linear { line_bits: u32, set_bits: u32 },
    /// Slice bit i is the parity of the address AND mask i; the set is a bit field.
    Xor { line_bits: u32, set_bits: u32, slice_masks: Vec<u64> },
    /// The slice is looked up in a base sequence at (the low bits of the line number) XOR (one
    /// parity per permutation mask); the set is a bit field. For any number of slices.
    Permuted {
        line_bits: u32,
        set_bits: u32,
        /// Slice of each line of the first 2^n lines; its length is a power of two.
        base: Vec<u8>,
        /// Mask i gives bit i of the number that the place in the base sequence is XORed with.
        permutation: Vec<u64>,
    },
}

impl IndexFunction {
    /// A linear index.
    ///
    /// # Errors
    /// `BadBits`.
    pub fn linear(line_bits: u32, set_bits: u32) -> Result<Self, IndexError> {
        IndexFunction::Linear { line_bits, set_bits }.checked()
    }

    /// An index with parity slice bits.
    ///
    /// # Errors
    /// `BadBits`, `MaskInLine`, `TooManyMasks`, `Dependent`.
    pub fn xor(line_bits: u32, set_bits: u32, slice_masks: Vec<u64>) -> Result<Self, IndexError> {
        IndexFunction::Xor { line_bits, set_bits, slice_masks }.checked()
    }

    /// An index with a permuted base sequence.
    ///
    /// # Errors
    /// `BadBits`, `MaskInLine`, `BadBase`, `BadPermutation`.
    pub fn permuted(
        line_bits: u32,
        set_bits: u32,
        base: Vec<u8>,
        permutation: Vec<u64>,
    ) -> Result<Self, IndexError> {
        IndexFunction::Permuted { line_bits, set_bits, base, permutation }.checked()
    }

    fn checked(self) -> Result<Self, IndexError> {
        self.check().map(|()| self)
    }

    /// Whether the function makes sense; needed only for one read from a file.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self) -> Result<(), IndexError> {
        let (line_bits, set_bits) = (self.line_bits(), self.set_bits());
        if !(4..=12).contains(&line_bits) || set_bits > 24 {
            return Err(IndexError::BadBits { line_bits, set_bits });
        }
        let in_line = |mask: &&u64| **mask & ((1 << line_bits) - 1) != 0;
        if let Some(&mask) = self.masks().iter().find(in_line) {
            return Err(IndexError::MaskInLine { mask, line_bits });
        }
        match self {
            IndexFunction::Linear { .. } => Ok(()),
            IndexFunction::Xor { slice_masks, .. } => check_slices(slice_masks),
            IndexFunction::Permuted { base, permutation, .. } => check_base(base, permutation),
        }
    }

    fn masks(&self) -> &[u64] {
        match self {
            IndexFunction::Linear { .. } => &[],
            IndexFunction::Xor { slice_masks, .. } => slice_masks,
            IndexFunction::Permuted { permutation, .. } => permutation,
        }
    }

    /// log2 of the line size in bytes.
    pub const fn line_bits(&self) -> u32 {
        match self {
            IndexFunction::Linear { line_bits, .. }
            | IndexFunction::Xor { line_bits, .. }
            | IndexFunction::Permuted { line_bits, .. } => *line_bits,
        }
    }

    /// log2 of the sets per slice.
    pub const fn set_bits(&self) -> u32 {
        match self {
            IndexFunction::Linear { set_bits, .. }
            | IndexFunction::Xor { set_bits, .. }
            | IndexFunction::Permuted { set_bits, .. } => *set_bits,
        }
    }

    /// How many slices there are (the highest slice of the base sequence plus one).
    pub fn slices(&self) -> u32 {
        match self {
            IndexFunction::Linear { .. } => 1,
            IndexFunction::Xor { slice_masks, .. } => 1 << slice_masks.len(),
            IndexFunction::Permuted { base, .. } => {
                base.iter().max().map_or(1, |&slice| u32::from(slice) + 1)
            }
        }
    }

    /// The slice and set that the line of this address competes for. No allocation: simulators
    /// call this for every access.
    pub fn locate(&self, addr: PhysAddr) -> Location {
        let line = addr.0 >> self.line_bits();
        let set = line & ((1 << self.set_bits()) - 1);
        let above = match self {
            IndexFunction::Linear { .. } => 0,
            IndexFunction::Xor { slice_masks, .. } => gf2::evaluate(slice_masks, addr.0),
            IndexFunction::Permuted { base, permutation, .. } => {
                (line & (base.len() as u64 - 1)) ^ gf2::evaluate(permutation, addr.0)
            }
        };
        self.resolve(above << self.set_bits() | set)
    }

    /// One mask per bit of the *place*: set bits first, then slice bits or, for a permuted
    /// index, the bits of the position in the base sequence. [`Self::resolve`] makes a location
    /// of a place; up to there everything is linear.
    pub(crate) fn rows(&self) -> Vec<u64> {
        let line = self.line_bits();
        let mut rows: Vec<u64> = (0..self.set_bits()).map(|bit| 1 << (line + bit)).collect();
        match self {
            IndexFunction::Linear { .. } => {}
            IndexFunction::Xor { slice_masks, .. } => rows.extend(slice_masks),
            IndexFunction::Permuted { base, permutation, .. } => {
                let mask = |bit| permutation.get(bit as usize).copied().unwrap_or(0);
                let bits = base.len().trailing_zeros();
                rows.extend((0..bits).map(|bit| 1 << (line + bit) ^ mask(bit)));
            }
        }
        rows
    }

    /// The location of a place, see [`Self::rows`].
    #[expect(clippy::cast_possible_truncation, reason = "at most 24 set bits and 8 slice bits")]
    pub(crate) fn resolve(&self, place: u64) -> Location {
        let set = (place & ((1 << self.set_bits()) - 1)) as u32;
        let rest = place >> self.set_bits();
        match self {
            IndexFunction::Linear { .. } => Location { slice: 0, set },
            IndexFunction::Xor { .. } => Location { slice: rest as u16, set },
            IndexFunction::Permuted { base, .. } => {
                Location { slice: u16::from(base[rest as usize]), set }
            }
        }
    }
}

fn check_slices(masks: &[u64]) -> Result<(), IndexError> {
    if masks.len() > 8 {
        return Err(IndexError::TooManyMasks { count: masks.len() });
    }
    if gf2::rank(masks) != masks.len() {
        return Err(IndexError::Dependent);
    }
    Ok(())
}

fn check_base(base: &[u8], permutation: &[u64]) -> Result<(), IndexError> {
    let length = base.len();
    if !length.is_power_of_two() || !(2..=1 << 16).contains(&length) {
        return Err(IndexError::BadBase { length });
    }
    if permutation.len() > length.trailing_zeros() as usize {
        return Err(IndexError::BadPermutation { masks: permutation.len(), length });
    }
    Ok(())
}
