//! Colours of a hashed outer level that leave a private inner level whole: what a page decides of
//! the outer index, less what the inner one uses (Scolari 2016, section 4.2, whose
//! `h2 h1 a16 a15` comes out for its processor). Beside it the hash-unaware colouring, which takes
//! the same number of plain address bits, and how many slices a page spreads over. Which index a
//! machine has is for others to know.

use thiserror::Error;

use crate::addr::{PAGE_BYTES, PageSize, Pfn, PhysAddr};
use crate::gf2;
use crate::index::{IndexError, IndexFunction};
use crate::set::{Color, MAX_COLORS};

/// Why there are no such colours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum HashedError {
    /// One of the index functions is wrong.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A mask with bits inside a page.
    #[error(
        "mask {mask:#x} uses bits inside a page of 4 KiB, which no page decides; clear the bits below 12"
    )]
    InPage { mask: u64 },
    /// Dependent masks: some colours would have no frame.
    #[error("the color masks are linearly dependent; leave out those that others add up to")]
    Dependent,
    /// More masks than a [`ColorSet`](crate::ColorSet) has room for.
    #[error("{masks} color masks give more than 4096 colors; use at most 12")]
    TooMany { masks: usize },
}

/// Colours whose bits are parities of address bits: bit i of the colour is the parity of the
/// address AND mask i. The default has one colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinearColors {
    masks: Vec<u64>,
    /// The colour of every value of each byte of a frame number, the other bytes being 0.
    by_byte: Vec<[u16; 256]>,
}

impl LinearColors {
    /// Colours of at most 12 independent masks, all above the page.
    ///
    /// # Errors
    /// `InPage`, `Dependent`, `TooMany`.
    pub fn new(masks: Vec<u64>) -> Result<LinearColors, HashedError> {
        if let Some(&mask) = masks.iter().find(|mask| **mask & (PAGE_BYTES - 1) != 0) {
            return Err(HashedError::InPage { mask });
        }
        if gf2::rank(&masks) != masks.len() {
            return Err(HashedError::Dependent);
        }
        if 1 << masks.len() > u64::from(MAX_COLORS) {
            return Err(HashedError::TooMany { masks: masks.len() });
        }
        let by_byte = by_byte(&masks);
        Ok(LinearColors { masks, by_byte })
    }

    /// How many colours there are: 2^masks.
    pub const fn colors(&self) -> u16 {
        1 << self.masks.len()
    }

    /// The masks, the lowest bit of the colour first.
    pub fn masks(&self) -> &[u64] {
        &self.masks
    }

    /// These colours, each divided by the colours of an inner level: colour c becomes those from
    /// c * n on, n being how many the inner level has. Whoever hands them out in turns uses the
    /// inner level evenly too; in turns over the coarse ones alone, pages that follow each other
    /// can all lie in one colour of the inner level.
    ///
    /// # Errors
    /// `Index` for a bad function, `Dependent` where the two have something in common, `TooMany`.
    pub fn divided_by(&self, inner: &IndexFunction) -> Result<LinearColors, HashedError> {
        inner.check()?;
        LinearColors::new([used_by(Some(inner)), self.masks.clone()].concat())
    }

    /// The colour of a frame; a table look-up for each byte that matters.
    #[inline]
    pub fn color(&self, pfn: Pfn) -> Color {
        let bytes = pfn.0.to_le_bytes();
        let parts = self.by_byte.iter().zip(bytes).map(|(part, byte)| part[usize::from(byte)]);
        Color(parts.fold(0, |color, part| color ^ part))
    }
}

/// As many tables as bytes of a frame number matter.
fn by_byte(masks: &[u64]) -> Vec<[u16; 256]> {
    let bits = PageSize::BASE.bits();
    let used = masks.iter().fold(0, |all, mask| all | mask) >> bits;
    let bytes = (u64::BITS - used.leading_zeros()).div_ceil(8);
    let color = |byte: u32, value: usize| {
        let color = gf2::evaluate(masks, (value as u64) << (8 * byte) << bits);
        u16::try_from(color).unwrap_or(0)
    };
    (0..bytes).map(|byte| std::array::from_fn(|value| color(byte, value))).collect()
}

/// The largest set of functions that a page decides of the outer place and that leave all of the
/// inner level to each of their colours: plain set bits, lowest first, then slice bits as the
/// index has them, set bits left out of them. Without an inner level all that a page decides.
/// Of a base sequence only the set bits, since its slices are not linear.
///
/// # Errors
/// `Index` for a bad function, `TooMany` above 4096 colours.
pub fn hash_aware(
    outer: &IndexFunction,
    inner: Option<&IndexFunction>,
) -> Result<LinearColors, HashedError> {
    outer.check()?;
    inner.map_or(Ok(()), IndexFunction::check)?;
    let page = PageSize::BASE.bits();
    let plain = set_rows(outer);
    let field = plain.iter().fold(0, |all, row| all | row);
    let slices: Vec<u64> = match outer {
        IndexFunction::Xor { slice_masks, .. } => slice_masks.clone(),
        IndexFunction::Linear { .. } | IndexFunction::Permuted { .. } => Vec::new(),
    };
    // The last are needed where a slice bit alone is not decided by a page and a sum is.
    let decided = gf2::above(&[plain.clone(), slices.clone()].concat(), page);
    let hashed = slices.iter().map(|mask| mask & !field);
    let candidates = plain.iter().copied().chain(hashed).chain(decided);
    LinearColors::new(independent(&used_by(inner), candidates))
}

/// The colouring of those who do not know of the hash: the outer level taken for one cache of as
/// many sets as all slices have, chosen by plain address bits, less what the inner level uses
/// (section 5.2: bits 15 to 18).
///
/// # Errors
/// `Index` for a bad function or a number of slices that is not a power of two.
pub fn hash_unaware(
    outer: &IndexFunction,
    inner: Option<&IndexFunction>,
) -> Result<LinearColors, HashedError> {
    outer.check()?;
    inner.map_or(Ok(()), IndexFunction::check)?;
    let (line, slices) = (outer.line_bits(), outer.slices());
    if !slices.is_power_of_two() {
        let sets = slices << outer.set_bits();
        return Err(IndexError::NotLinear { sets, line_bytes: 1 << line }.into());
    }
    let plain = IndexFunction::linear(line, outer.set_bits() + slices.trailing_zeros())?;
    LinearColors::new(independent(&used_by(inner), set_rows(&plain)))
}

fn set_rows(index: &IndexFunction) -> Vec<u64> {
    let first = index.line_bits();
    (first..first + index.set_bits()).map(|bit| 1 << bit).collect()
}

fn used_by(inner: Option<&IndexFunction>) -> Vec<u64> {
    inner.map_or_else(Vec::new, |inner| gf2::above(&inner.rows(), PageSize::BASE.bits()))
}

/// The candidates above the page that neither `used` nor those before them add up to.
fn independent(used: &[u64], candidates: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut all = used.to_vec();
    let mut rank = gf2::rank(&all);
    for mask in candidates {
        all.push(mask);
        let more = gf2::rank(&all);
        if mask & (PAGE_BYTES - 1) == 0 && more > rank {
            rank = more;
        } else {
            all.pop();
        }
    }
    all.split_off(used.len())
}

/// Over how many slices the lines of a page lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSpread {
    /// Slices that hold lines of a page.
    pub slices: u32,
    /// Slices there are.
    pub of: u32,
    /// Address bits inside a page that the slice depends on.
    pub bits: u64,
}

impl SliceSpread {
    /// How the lines of a page are spread: of any page where the slice is linear, of page 0 where
    /// it is looked up in a base sequence. Looks at each line of a page.
    pub fn of(index: &IndexFunction) -> SliceSpread {
        let lines = (0..PAGE_BYTES).step_by(1 << index.line_bits());
        let mut slices: Vec<u16> = lines.map(|at| index.locate(PhysAddr(at)).slice).collect();
        let bits = (index.line_bits()..PageSize::BASE.bits()).map(|bit| 1_u64 << bit);
        let matters = |bit: &u64| {
            let step = usize::try_from(bit >> index.line_bits()).unwrap_or(0);
            (0..slices.len()).any(|at| slices[at] != slices[at ^ step])
        };
        let bits = bits.filter(matters).sum();
        slices.sort_unstable();
        slices.dedup();
        let count = u32::try_from(slices.len()).unwrap_or(u32::MAX);
        SliceSpread { slices: count, of: index.slices(), bits }
    }

    /// Whether a partition can consist of whole slices: a page lies in one slice only.
    pub const fn whole_slices(&self) -> bool {
        self.slices == 1
    }

    /// What follows for partitions, in words; nothing for a cache of one slice.
    pub fn explanation(&self) -> Option<String> {
        if self.of == 1 {
            return None;
        }
        if self.whole_slices() {
            return Some(format!(
                "a page lies in one of {} slices, so that partitions of whole slices exist",
                self.of
            ));
        }
        let bits: Vec<String> =
            (0..12).filter(|bit| self.bits >> bit & 1 == 1).map(|bit| bit.to_string()).collect();
        Some(format!(
            "the hash takes address bits inside a page ({}), so that each page has lines in {} of \
             {} slices and no partition of whole slices exists; colours are parts of sets in all \
             of them, and no less separate",
            bits.join(", "),
            self.slices,
            self.of
        ))
    }
}
