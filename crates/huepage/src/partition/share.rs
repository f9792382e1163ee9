//! A share of a cache as people say it: a percentage, a size, or a line of resctrl's `schemata`, with the cache in
//! front where it is not the L2: `25%`, `512K`, `llc: 30%`, `L2:0=00ff`.
//!
//! A schemata's mask counts ways; here each way stands for as many colours, so that masks with no bit in common
//! are partitions with no colour in common.

use huepage_color::{CacheGeometry, CacheLevel, Color, ColorSet};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::values::parse_size;

/// A cache that can be partitioned.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The second level, private to a core on most machines
    L2,
    /// The last level, shared by cores
    Llc,
}

/// A share as it was said.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheShare {
    /// The cache, if it was named.
    pub level: Option<Level>,
    amount: ShareAmount,
}

/// How much.
#[derive(Clone, Debug, PartialEq)]
enum ShareAmount {
    /// A percentage.
    Part(String),
    /// Bytes of the cache.
    Bytes(u64),
    /// Ways, a bit for each: how much, and which part.
    Ways(u64),
}

impl CacheShare {
    /// Reads one; whether the cache is large enough for it is not known yet.
    ///
    /// # Errors
    /// In words: text of another kind.
    pub fn parse(text: &str) -> Result<CacheShare, String> {
        let (level, rest) = match text.split_once(':') {
            Some((name, rest)) => (Some(level(name)?), rest.trim()),
            None => (None, text.trim()),
        };
        let amount = if rest.contains('=') {
            level.ok_or_else(|| format!("`{text}` names no cache; write for instance L2:0=0f"))?;
            ShareAmount::Ways(mask(rest)?)
        } else if rest.ends_with(|last: char| last.is_ascii_alphabetic()) {
            ShareAmount::Bytes(parse_size(rest)?)
        } else {
            ColorSet::share(rest, 1 << 12).map_err(|e| e.to_string())?;
            ShareAmount::Part(rest.to_owned())
        };
        Ok(CacheShare { level, amount })
    }

    /// The share in percent, if that was said.
    pub fn percent(&self) -> Option<f64> {
        match &self.amount {
            ShareAmount::Part(text) => text.trim_end_matches('%').trim().parse().ok(),
            _ => None,
        }
    }

    /// Whether it says which colours, and not only how many.
    pub const fn is_placed(&self) -> bool {
        matches!(self.amount, ShareAmount::Ways(_))
    }

    /// The colours of a cache that has `universe` of them: the lowest, unless it says which.
    ///
    /// # Errors
    /// In words: less than a colour, more than the cache.
    pub fn colors(&self, universe: u16, cache: &CacheGeometry) -> Result<ColorSet, String> {
        match &self.amount {
            ShareAmount::Part(text) => ColorSet::share(text, universe).map_err(|e| e.to_string()),
            ShareAmount::Bytes(bytes) => first_of(*bytes, universe, cache.size_bytes),
            ShareAmount::Ways(mask) => of_ways(*mask, universe, cache),
        }
    }
}

fn level(name: &str) -> Result<Level, String> {
    match name.trim().to_ascii_lowercase().as_str() {
        "l2" => Ok(Level::L2),
        "l3" | "llc" => Ok(Level::Llc),
        other => Err(format!("`{other}` is no cache that can be divided; write l2, l3 or llc")),
    }
}

/// The mask of `0=ff;1=ff`: a program runs on any processor, so each cache has to say the same.
fn mask(domains: &str) -> Result<u64, String> {
    let bad = |part: &str| format!("`{part}` is no mask; write for instance L2:0=0f");
    let mut found = None;
    for part in domains.split(';') {
        let (id, digits) = part.split_once('=').ok_or_else(|| bad(part))?;
        let ways = u64::from_str_radix(digits.trim(), 16).ok().filter(|&ways| ways > 0);
        let ways = id.trim().parse::<u32>().ok().and(ways).ok_or_else(|| bad(part))?;
        if *found.get_or_insert(ways) != ways {
            return Err(format!(
                "`{domains}` has another mask for each cache; colours are the same in all: give one mask"
            ));
        }
    }
    found.ok_or_else(|| bad(domains))
}

fn first_of(bytes: u64, universe: u16, size: u64) -> Result<ColorSet, String> {
    let least = (size / u64::from(universe.max(1))) >> 10;
    let colors = u128::from(bytes) * u128::from(universe) / u128::from(size.max(1));
    match u16::try_from(colors) {
        Ok(0) => Err(format!(
            "{bytes} bytes are less than one of {universe} colours; ask for at least {least}K"
        )),
        Ok(n) if n <= universe => Ok(ColorSet::first(n, universe)),
        _ => Err(format!("{bytes} bytes are more than the cache; it has {}K", size >> 10)),
    }
}

fn of_ways(mask: u64, universe: u16, cache: &CacheGeometry) -> Result<ColorSet, String> {
    let ways = cache.ways.clamp(1, 64);
    if mask.checked_shr(ways).is_some_and(|beyond| beyond > 0) {
        let full = u64::MAX >> (64 - ways);
        let level = cache.level;
        return Err(format!("mask {mask:x}: the {level} has {ways} ways; {full:x} is all of it"));
    }
    let first = |way: u32| u64::from(way) * u64::from(universe) / u64::from(ways);
    let mut colors = ColorSet::empty(universe);
    for way in (0..ways).filter(|way| mask >> way & 1 == 1) {
        let range = first(way)..first(way + 1);
        range.filter_map(|color| u16::try_from(color).ok()).for_each(|color| {
            colors.insert(Color(color));
        });
    }
    if colors.is_empty() {
        return Err(format!("mask {mask:x} is less than one of {universe} colours; set more bits"));
    }
    Ok(colors)
}

/// The line of a `schemata` that says the same, where colours are whole ways.
pub fn schemata(colors: &ColorSet, cache: &CacheGeometry) -> Option<String> {
    let ways = u16::try_from(cache.ways).ok().filter(|ways| (1..=64).contains(ways))?;
    let each =
        colors.universe().checked_div(ways).filter(|each| each * ways == colors.universe())?;
    let held =
        |way: u16| (way * each..(way + 1) * each).filter(|&c| colors.contains(Color(c))).count();
    let mut mask = 0_u64;
    for way in 0..ways {
        match held(way) {
            0 => {}
            all if all == usize::from(each) => mask |= 1 << way,
            _ => return None,
        }
    }
    let level = if cache.level == CacheLevel::L2 { "L2" } else { "L3" };
    (each > 0 && mask > 0).then(|| format!("{level}:0={mask:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_entry::CACHE;

    fn colors(text: &str) -> Result<String, String> {
        CacheShare::parse(text)?.colors(32, &CACHE).map(|colors| colors.to_string())
    }

    #[test]
    fn a_share_may_be_a_percentage_a_size_or_a_mask_of_ways() {
        for (text, expected) in [
            ("25%", "0-7"),
            ("12.5", "0-3"),
            ("512K", "0-15"),
            ("1M", "0-31"),
            ("33k", "0"),
            ("llc: 50%", "0-15"),
            ("l2:256K", "0-7"),
            ("L2:0=0f", "0-15"),
            ("L3:0=f0;1=f0", "16-31"),
            ("L2: 0 = 81", "0-3,28-31"),
        ] {
            assert_eq!(colors(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(
            CacheShare::parse("LLC: 1/2".replace("1/2", "50%").as_str()).unwrap().level,
            Some(Level::Llc)
        );
        assert_eq!(CacheShare::parse("512K").unwrap().level, None);
    }

    #[test]
    fn what_is_no_share_is_told_with_what_to_write() {
        for (text, expected) in [
            ("l1: 30%", "l2, l3 or llc"),
            ("0=ff", "names no cache"),
            ("L2:0=0", "L2:0=0f"),
            ("L2:x=f", "L2:0=0f"),
            ("L2:0=f;1=e", "give one mask"),
            ("L2:0=1ff", "ff is all of it"),
            ("1K", "at least 32K"),
            ("2M", "it has 1024K"),
            ("0%", "25%"),
            ("12X", "512K"),
            ("", "25%"),
            ("1%", "3.125"),
        ] {
            let error = colors(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn whole_ways_are_printed_as_a_schemata_and_read_again() {
        for text in ["L2:0=1", "L2:0=f0", "L2:0=ff", "L2:0=81"] {
            let set = CacheShare::parse(text).unwrap().colors(32, &CACHE).unwrap();
            assert_eq!(schemata(&set, &CACHE).as_deref(), Some(text));
        }
        assert_eq!(schemata(&ColorSet::first(3, 32), &CACHE), None);
        assert_eq!(schemata(&ColorSet::first(4, 4), &CACHE), None);
        assert_eq!(schemata(&ColorSet::empty(32), &CACHE), None);
    }
}
