//! `Color` and `ColorSet`: which colours a partition owns, how a person writes them and how
//! they are printed. A set always knows the universe it lives in (the number of colours of
//! one cache level), so sets of two levels cannot be mixed up silently. What a colour means
//! for the cache is none of this file's business.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The largest universe a [`ColorSet`] can have.
pub const MAX_COLORS: u16 = 4096;

/// One colour: a number below the colour count of its cache level.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Color(pub u16);

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a text or a list of colours is not a [`ColorSet`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ColorSetError {
    /// Nothing was written at all, or the mask had no bit set.
    #[error("the colour set is empty; the level has {}, for example `{}`", range(*.count), example(*.count))]
    Empty { count: u16 },
    /// A colour (or a mask bit) at or above the colour count.
    #[error("colour {color} does not exist: this level has {}; write for example `{}`", range(*.count), example(*.count))]
    OutOfRange { color: u64, count: u16 },
    /// A colour named twice.
    #[error(
        "colour {color} is named twice in `{}`; name every colour once, for example `0-3,6`",
        .text.escape_debug()
    )]
    Overlap { color: u16, text: String },
    /// A range whose end is below its start.
    #[error(
        "the range `{low}-{high}` runs backwards; write the smaller colour first: `{high}-{low}`"
    )]
    Reversed { low: u64, high: u64 },
    /// A part that is not a number, range, mask or share.
    #[error("`{}` is not a colour; expected a list `0-7,12`, a mask `0xff` or a share `25%`", .part.escape_debug())]
    BadNumber { part: String },
    /// A share that is not a percentage.
    #[error(
        "`{}` is not a share; expected a percentage above 0 and up to 100, for example `25%`",
        .text.escape_debug()
    )]
    BadShare { text: String },
    /// A share above 100 %.
    #[error(
        "a share of {} is more than the whole cache; ask for 100% or less, for example `50%`",
        .text.escape_debug()
    )]
    ShareTooLarge { text: String },
    /// A share smaller than one colour.
    #[error(
        "a share of {} of {count} colours is less than one colour; ask for at least {least}",
        .text.escape_debug()
    )]
    ShareTooSmall { text: String, count: u16, least: String },
    /// A universe of no colours, or of more than [`MAX_COLORS`].
    #[error(
        "a level with {count} colours cannot be partitioned; huepage handles 1 to 4096, for example 16"
    )]
    BadUniverse { count: u64 },
}

fn range(count: u16) -> String {
    match count {
        1 => "only colour 0".to_owned(),
        _ => format!("colours 0-{}", count - 1),
    }
}

/// The lower half of the colours, as one would write it.
fn example(count: u16) -> String {
    ColorSet::first((count / 2).max(1), count.clamp(1, MAX_COLORS)).to_string()
}

/// A set of colours within a universe of 1 to [`MAX_COLORS`] colours.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ColorSet {
    words: Vec<u64>,
    count: u16,
}

/// The serialised form: the list and its universe.
#[derive(Serialize, Deserialize)]
struct Written {
    colors: String,
    of: u16,
}

impl From<ColorSet> for Written {
    fn from(set: ColorSet) -> Self {
        Written { colors: set.to_string(), of: set.count }
    }
}

impl TryFrom<Written> for ColorSet {
    type Error = ColorSetError;

    fn try_from(written: Written) -> Result<Self, ColorSetError> {
        check_universe(written.of)?;
        if written.colors.is_empty() {
            return Ok(ColorSet::empty(written.of));
        }
        ColorSet::parse(&written.colors, written.of)
    }
}

fn check_universe(count: u16) -> Result<(), ColorSetError> {
    if count == 0 || count > MAX_COLORS {
        return Err(ColorSetError::BadUniverse { count: u64::from(count) });
    }
    Ok(())
}

impl ColorSet {
    /// No colour out of `count`.
    ///
    /// # Panics
    /// If `count` is 0 or above [`MAX_COLORS`]; counts that come from outside go through
    /// [`ColorSet::parse`] or [`crate::ColorMap`], which return an error instead.
    pub fn empty(count: u16) -> ColorSet {
        assert!(check_universe(count).is_ok(), "universe of {count} colours");
        ColorSet { words: vec![0; usize::from(count).div_ceil(64)], count }
    }

    /// Every colour out of `count`.
    ///
    /// # Panics
    /// As [`ColorSet::empty`].
    pub fn all(count: u16) -> ColorSet {
        ColorSet::first(count, count)
    }

    /// The `n` lowest colours out of `count` (all of them if `n` is larger).
    ///
    /// # Panics
    /// As [`ColorSet::empty`].
    pub fn first(n: u16, count: u16) -> ColorSet {
        let mut set = ColorSet::empty(count);
        for color in 0..n.min(count) {
            set.insert(Color(color));
        }
        set
    }

    /// The given colours; the same colour may occur more than once.
    ///
    /// # Errors
    /// `BadUniverse` or `OutOfRange`. An empty list gives an empty set.
    pub fn from_colors(
        colors: impl IntoIterator<Item = Color>,
        count: u16,
    ) -> Result<ColorSet, ColorSetError> {
        check_universe(count)?;
        let mut set = ColorSet::empty(count);
        for color in colors {
            in_range(u64::from(color.0), count)?;
            set.insert(color);
        }
        Ok(set)
    }

    /// Reads a list `0-7,12`, a bit mask `0xff` or a share `25%` (the lowest colours,
    /// rounded down). Spaces around parts are allowed.
    ///
    /// # Errors
    /// Any [`ColorSetError`]; an empty set is an error.
    pub fn parse(text: &str, count: u16) -> Result<ColorSet, ColorSetError> {
        check_universe(count)?;
        let text = text.trim();
        if text.is_empty() {
            return Err(ColorSetError::Empty { count });
        }
        if text.ends_with('%') {
            return ColorSet::share(text, count);
        }
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => parse_mask(digits, text, count),
            None => parse_list(text, count),
        }
    }

    /// The lowest colours that make up a share such as `25%` or `12.5%` (the sign may be
    /// left out), rounded down to whole colours.
    ///
    /// # Errors
    /// `BadShare`, `ShareTooLarge` (above 100 %), `ShareTooSmall` (less than one colour).
    pub fn share(text: &str, count: u16) -> Result<ColorSet, ColorSetError> {
        check_universe(count)?;
        let text = text.trim();
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        let milli = milli(number)
            .filter(|&milli| milli > 0)
            .ok_or_else(|| ColorSetError::BadShare { text: text.to_owned() })?;
        if milli > 100_000 {
            return Err(ColorSetError::ShareTooLarge { text: text.to_owned() });
        }
        let colors = milli * u64::from(count) / 100_000;
        match u16::try_from(colors) {
            Ok(n) if n > 0 => Ok(ColorSet::first(n, count)),
            _ => Err(ColorSetError::ShareTooSmall {
                text: text.to_owned(),
                count,
                least: percent(100_000_u64.div_ceil(u64::from(count))),
            }),
        }
    }

    /// How many colours the level has, in the set or not.
    pub const fn universe(&self) -> u16 {
        self.count
    }

    /// Whether `color` is in the set; colours outside the universe never are.
    pub fn contains(&self, color: Color) -> bool {
        let (word, bit) = position(color);
        self.words.get(word).is_some_and(|w| w >> bit & 1 == 1)
    }

    /// Adds a colour; says whether it was absent.
    ///
    /// # Panics
    /// If `color` is outside the universe.
    pub fn insert(&mut self, color: Color) -> bool {
        assert!(color.0 < self.count, "colour {color} of {}", self.count);
        let (word, bit) = position(color);
        let absent = self.words[word] >> bit & 1 == 0;
        self.words[word] |= 1 << bit;
        absent
    }

    /// Takes a colour out; says whether it was there.
    pub fn remove(&mut self, color: Color) -> bool {
        let present = self.contains(color);
        if present {
            let (word, bit) = position(color);
            self.words[word] &= !(1 << bit);
        }
        present
    }

    /// How many colours are in the set.
    pub fn len(&self) -> u16 {
        self.words.iter().fold(0, |n, w| n + ones(*w))
    }

    /// Whether no colour is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// Whether every colour of the universe is in the set.
    pub fn is_full(&self) -> bool {
        self.len() == self.count
    }

    /// The colours of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Color> + '_ {
        (0..self.count).map(Color).filter(|&c| self.contains(c))
    }

    /// The lowest colour of the set.
    pub fn first_color(&self) -> Option<Color> {
        self.at_or_above(0)
    }

    /// The next colour of the set after `color`, starting again at the lowest behind the
    /// highest; `color` itself need not be in the set. `None` only if the set is empty.
    pub fn next_after(&self, color: Color) -> Option<Color> {
        self.at_or_above(usize::from(color.0) + 1).or_else(|| self.at_or_above(0))
    }

    /// The lowest member that is at least `start`; word by word, as the engine asks per page.
    fn at_or_above(&self, start: usize) -> Option<Color> {
        let mut word = start / 64;
        let mut bits = *self.words.get(word)? & (u64::MAX << (start % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        let found = word * 64 + bits.trailing_zeros() as usize;
        u16::try_from(found).ok().map(Color)
    }

    /// The colours in either set.
    ///
    /// # Panics
    /// This and the other set operations panic if the universes differ: the sets then belong
    /// to different cache levels and no answer would mean anything.
    #[must_use]
    pub fn union(&self, other: &ColorSet) -> ColorSet {
        self.zip(other, |a, b| a | b)
    }

    /// The colours in both sets.
    #[must_use]
    pub fn intersection(&self, other: &ColorSet) -> ColorSet {
        self.zip(other, |a, b| a & b)
    }

    /// The colours of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &ColorSet) -> ColorSet {
        self.zip(other, |a, b| a & !b)
    }

    /// The colours of the universe that are not in this set.
    #[must_use]
    pub fn complement(&self) -> ColorSet {
        ColorSet::all(self.count).difference(self)
    }

    /// Whether every colour of this set is in `other`.
    pub fn is_subset(&self, other: &ColorSet) -> bool {
        self.difference(other).is_empty()
    }

    fn zip(&self, other: &ColorSet, op: impl Fn(u64, u64) -> u64) -> ColorSet {
        assert_eq!(self.count, other.count, "colour sets of two different levels");
        let words = self.words.iter().zip(&other.words).map(|(&a, &b)| op(a, b)).collect();
        ColorSet { words, count: self.count }
    }
}

impl fmt::Display for ColorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut colors = self.iter().map(|c| c.0).peekable();
        let mut comma = "";
        while let Some(low) = colors.next() {
            let mut high = low;
            while let Some(next) = colors.next_if_eq(&(high + 1)) {
                high = next;
            }
            match high {
                _ if high == low => write!(f, "{comma}{low}")?,
                _ => write!(f, "{comma}{low}-{high}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for ColorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColorSet({self} of {})", self.count)
    }
}

/// Bits set in a word, in the type that counts colours.
#[expect(clippy::cast_possible_truncation, reason = "at most 64")]
const fn ones(word: u64) -> u16 {
    word.count_ones() as u16
}

fn position(color: Color) -> (usize, u32) {
    (usize::from(color.0 / 64), u32::from(color.0 % 64))
}

fn in_range(color: u64, count: u16) -> Result<Color, ColorSetError> {
    match u16::try_from(color) {
        Ok(small) if small < count => Ok(Color(small)),
        _ => Err(ColorSetError::OutOfRange { color, count }),
    }
}

fn parse_list(text: &str, count: u16) -> Result<ColorSet, ColorSetError> {
    let mut set = ColorSet::empty(count);
    for part in text.split(',') {
        let (low, high) = parse_part(part.trim(), count)?;
        for color in low.0..=high.0 {
            if !set.insert(Color(color)) {
                return Err(ColorSetError::Overlap { color, text: text.to_owned() });
            }
        }
    }
    Ok(set)
}

/// One colour or one range, both ends checked against the universe.
fn parse_part(part: &str, count: u16) -> Result<(Color, Color), ColorSetError> {
    let bad = || ColorSetError::BadNumber { part: part.to_owned() };
    let (low, high) = part.split_once('-').unwrap_or((part, part));
    let low = number(low.trim()).ok_or_else(bad)?;
    let high = number(high.trim()).ok_or_else(bad)?;
    if high < low {
        return Err(ColorSetError::Reversed { low, high });
    }
    Ok((in_range(low, count)?, in_range(high, count)?))
}

/// Decimal digits only: `parse` alone would also take a plus sign.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A mask may be longer than any integer: it is read digit by digit from the right.
fn parse_mask(digits: &str, text: &str, count: u16) -> Result<ColorSet, ColorSetError> {
    let bad = || ColorSetError::BadNumber { part: text.to_owned() };
    if digits.is_empty() {
        return Err(bad());
    }
    let mut set = ColorSet::empty(count);
    for (place, digit) in (0_u64..).zip(digits.chars().rev()) {
        let nibble = digit.to_digit(16).ok_or_else(bad)?;
        for bit in (0..4).filter(|bit| nibble >> bit & 1 == 1) {
            set.insert(in_range(place * 4 + bit, count)?);
        }
    }
    if set.is_empty() { Err(ColorSetError::Empty { count }) } else { Ok(set) }
}

/// `12.5` as 12500: thousandths of a percent, at most three decimals.
fn milli(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.len() > 3 {
        return None;
    }
    let whole = number(whole)?.checked_mul(1000)?;
    let part = number(&format!("{part:0<3}"))?;
    whole.checked_add(part)
}

/// Thousandths of a percent as text, without trailing zeros.
fn percent(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
