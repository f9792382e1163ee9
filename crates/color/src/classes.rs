//! Page-level classes of an index function: what of (slice, set) a page of some size decides.
//!
//! A page covers a set of locations. Two pages have the same colour if they compete: their
//! covers are equal or, through a chain of other pages, overlap. For linear and parity indexes
//! covers are cosets, so any two are equal or disjoint and the colour is plain algebra: the
//! functions in the span of the index rows that use no bit inside the page. A base sequence is
//! not linear; there the covers of the linear classes are compared location by location.
//! Which frames exist, and where a level comes from, is not decided here.

use std::collections::HashSet;

use thiserror::Error;

use crate::addr::{PageSize, Pfn};
use crate::gf2;
use crate::index::{IndexError, IndexFunction, Location};

/// The largest number of lines that are compared one by one for a base sequence.
const MAX_PLACES_BITS: usize = 26;

/// Why the classes of an index function cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ClassError {
    /// The index function itself is wrong.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A base sequence over too many sets.
    #[error(
        "the base sequence spreads over 2^{bits} lines, too many to compare; shorten it or use at most 26 bits in all"
    )]
    TooLarge { bits: usize },
}

/// The colours that pages of one size have under one index function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageClasses {
    index: IndexFunction,
    page: PageSize,
    /// Reduced basis of the address functions that a page decides.
    masks: Vec<u64>,
    /// The class of a frame, by the bytes of its number: classes are linear, so that those of
    /// the bytes add up (without carry). As many bytes as matter.
    by_byte: Vec<[u64; 256]>,
    /// Colour of every linear class, where covers of different classes can overlap.
    merged: Option<Vec<u32>>,
    colors: u64,
}

impl PageClasses {
    /// Works out the classes of pages of size `page`.
    ///
    /// # Errors
    /// `Index` if the function fails its check, `TooLarge` for a base sequence of 2^26 lines
    /// and more.
    pub fn new(index: &IndexFunction, page: PageSize) -> Result<PageClasses, ClassError> {
        index.check()?;
        let masks = gf2::above(&index.rows(), page.bits());
        let colors = 1 << masks.len();
        let by_byte = by_byte(&masks);
        let (index, merged) = (index.clone(), None);
        let mut classes = PageClasses { index, page, masks, by_byte, merged, colors };
        if let IndexFunction::Permuted { .. } = classes.index {
            classes.check_size()?;
            classes.merge();
        }
        Ok(classes)
    }

    /// The number of colours: groups of pages that never compete with another group.
    pub const fn colors(&self) -> u64 {
        self.colors
    }

    /// The page size these classes are about.
    pub const fn page(&self) -> PageSize {
        self.page
    }

    /// The address functions (parities) that a page decides; bit i of the linear class is the
    /// parity of the address AND mask i. For a linear or parity index the colour is this class.
    pub fn masks(&self) -> &[u64] {
        &self.masks
    }

    /// Whether the colour is the linear class of [`Self::masks`]: the index is no base sequence.
    pub const fn is_linear(&self) -> bool {
        self.merged.is_none()
    }

    /// The colour of the page that holds this frame, below [`Self::colors`].
    #[inline]
    pub fn color(&self, pfn: Pfn) -> u64 {
        let bytes = pfn.0.to_le_bytes();
        let parts = self.by_byte.iter().zip(bytes).map(|(class, byte)| class[usize::from(byte)]);
        let class = parts.fold(0, |class, part| class ^ part);
        match &self.merged {
            None => class,
            Some(colors) => usize::try_from(class).map_or(0, |at| u64::from(colors[at])),
        }
    }

    /// The locations that the page holding this frame covers, ascending, each once.
    pub fn cover(&self, pfn: Pfn) -> Vec<Location> {
        let start = pfn.base().0 & !(self.page.bytes() - 1);
        self.cover_from(gf2::evaluate(&self.index.rows(), start), &self.inside())
    }

    /// How many different covers pages have. Equal to [`Self::colors`] unless a base sequence
    /// makes covers overlap in part; then it is larger, and covers of one colour still compete.
    pub fn covers(&self) -> u64 {
        if self.merged.is_none() {
            return self.colors;
        }
        let inside = self.inside();
        let rows = self.index.rows();
        let distinct: HashSet<u128> = (0..1 << self.masks.len())
            .map(|class| gf2::evaluate(&rows, gf2::representative(&self.masks, class)))
            .map(|place| fingerprint(&self.cover_from(place, &inside)))
            .collect();
        distinct.len() as u64
    }

    /// What the address bits inside a page can do to the place, as a reduced basis.
    fn inside(&self) -> Vec<u64> {
        let rows = self.index.rows();
        let bits = self.index.line_bits()..self.page.bits();
        gf2::reduce(&bits.map(|bit| gf2::evaluate(&rows, 1 << bit)).collect::<Vec<_>>())
    }

    fn cover_from(&self, place: u64, inside: &[u64]) -> Vec<Location> {
        let mut cover: Vec<Location> =
            coset(place, inside).map(|place| self.index.resolve(place)).collect();
        cover.sort_unstable();
        cover.dedup();
        cover
    }

    fn check_size(&self) -> Result<(), ClassError> {
        let table = (self.index.slices().ilog2() + 1 + self.index.set_bits()) as usize;
        let bits = gf2::rank(&self.index.rows()).max(table);
        if bits > MAX_PLACES_BITS { Err(ClassError::TooLarge { bits }) } else { Ok(()) }
    }

    /// Joins the linear classes whose covers overlap and numbers what remains.
    fn merge(&mut self) {
        let mut classes = Joined::new(1 << self.masks.len());
        let mut owner = vec![u32::MAX; (self.index.slices() as usize) << self.index.set_bits()];
        let (rows, inside) = (self.index.rows(), self.inside());
        for (class, number) in (0_u64..1 << self.masks.len()).zip(0_u32..) {
            let start = gf2::evaluate(&rows, gf2::representative(&self.masks, class));
            for place in coset(start, &inside) {
                let at = self.index.resolve(place);
                let cell = (usize::from(at.slice) << self.index.set_bits()) + at.set as usize;
                match owner[cell] {
                    u32::MAX => owner[cell] = number,
                    other => classes.join(other, number),
                }
            }
        }
        let (numbers, count) = classes.numbers();
        self.merged = Some(numbers);
        self.colors = u64::from(count);
    }
}

/// Every sum of `start` and some of `basis`, stepping by one basis vector at a time.
fn coset(start: u64, basis: &[u64]) -> impl Iterator<Item = u64> + '_ {
    (1_u64..=1 << basis.len()).scan(start, move |place, step| {
        let now = *place;
        if let Some(change) = basis.get(step.trailing_zeros() as usize) {
            *place ^= change;
        }
        Some(now)
    })
}

/// 128 bits that differ for different covers, but for a chance of about one in 10^25.
fn fingerprint(cover: &[Location]) -> u128 {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    // Not from zero: the first location, all zeroes, has to count as well.
    cover.iter().fold(ODD ^ cover.len() as u128, |sum, at| {
        let mixed = (sum ^ (u128::from(at.set) << 16 | u128::from(at.slice))).wrapping_mul(ODD);
        mixed ^ mixed >> 61
    })
}

/// Union-find over class numbers; the lowest member stands for its group.
struct Joined(Vec<u32>);

impl Joined {
    fn new(count: u32) -> Joined {
        Joined((0..count).collect())
    }

    fn find(&mut self, mut class: u32) -> u32 {
        while self.0[class as usize] != class {
            let parent = self.0[class as usize];
            self.0[class as usize] = self.0[parent as usize];
            class = parent;
        }
        class
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }

    /// A dense number for each class's group, in order of the lowest members, and their count.
    fn numbers(mut self) -> (Vec<u32>, u32) {
        let mut numbers: Vec<u32> = Vec::with_capacity(self.0.len());
        let mut count = 0;
        for class in (0_u32..).take(self.0.len()) {
            let lowest = self.find(class);
            numbers.push(if lowest == class { count } else { numbers[lowest as usize] });
            count += u32::from(lowest == class);
        }
        (numbers, count)
    }
}

/// The class of every value of each byte of a frame number, the others being 0.
fn by_byte(masks: &[u64]) -> Vec<[u64; 256]> {
    let bits = PageSize::BASE.bits();
    let used = masks.iter().fold(0, |all, mask| all | mask) >> bits;
    let bytes = (u64::BITS - used.leading_zeros()).div_ceil(8);
    let class = |byte: u32, value: u64| gf2::evaluate(masks, value << (8 * byte) << bits);
    (0..bytes).map(|byte| std::array::from_fn(|value| class(byte, value as u64))).collect()
}
