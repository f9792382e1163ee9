//! What is known of one cache: level, size, line, ways, sets, who shares it. The numbers come
//! from sysfs, CPUID or a file; this module judges them (hypervisors report caches that cannot
//! exist) but never reads them itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addr::PageSize;
use crate::index::{IndexError, IndexFunction};

/// A cache level by its number: 1 is nearest to the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CacheLevel(pub u8);

impl CacheLevel {
    /// First level.
    pub const L1: CacheLevel = CacheLevel(1);
    /// Second level.
    pub const L2: CacheLevel = CacheLevel(2);
    /// Third level.
    pub const L3: CacheLevel = CacheLevel(3);
}

impl fmt::Display for CacheLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// A text that names no cache level, or a level the machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum LevelError {
    /// Not `l1`..`l9` nor `llc`.
    #[error("`{}` is not a cache level; write `l2`, `l3` or `llc`", .text.escape_debug())]
    Unknown { text: String },
    /// The machine reports no data cache of this level.
    #[error("this machine reports no {choice} cache; see `huepage info` for those it has")]
    Absent { choice: LevelChoice },
}

/// A level as a person asks for it: by number, or "the last one" whichever that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LevelChoice {
    /// This level.
    Level(CacheLevel),
    /// The last level cache.
    Llc,
}

impl LevelChoice {
    /// The data or unified cache meant, out of those of one CPU. `Llc` is the highest level.
    ///
    /// # Errors
    /// `Absent` if no cache fits.
    pub fn resolve(self, caches: &[CacheGeometry]) -> Result<&CacheGeometry, LevelError> {
        let data = caches.iter().filter(|c| c.kind != CacheKind::Instruction);
        match self {
            LevelChoice::Level(level) => data.into_iter().find(|c| c.level == level),
            LevelChoice::Llc => data.max_by_key(|c| c.level),
        }
        .ok_or(LevelError::Absent { choice: self })
    }
}

impl fmt::Display for LevelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LevelChoice::Level(level) => level.fmt(f),
            LevelChoice::Llc => f.write_str("last-level"),
        }
    }
}

impl FromStr for LevelChoice {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let low = text.trim().to_ascii_lowercase();
        match low.strip_prefix('l').unwrap_or(&low).as_bytes() {
            b"lc" => Ok(LevelChoice::Llc),
            [digit @ b'1'..=b'9'] => Ok(LevelChoice::Level(CacheLevel(digit - b'0'))),
            _ => Err(LevelError::Unknown { text: text.to_owned() }),
        }
    }
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// A reason why a reported cache cannot exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Nonsense {
    /// A size, line, way or set count, or the number of CPUs, is zero.
    #[error("{what} is zero")]
    Zero { what: &'static str },
    /// One set of one way: what hypervisors answer when they do not say.
    #[error("1 set x 1 way is a placeholder of the hypervisor, not a cache of {size_bytes} bytes")]
    Placeholder { size_bytes: u64 },
    /// The line size is not a power of two.
    #[error("a line of {line_bytes} bytes is not a power of two")]
    OddLine { line_bytes: u32 },
    /// Sets times ways times line is not the size.
    #[error(
        "{sets} sets x {ways} ways x {line_bytes} bytes is {product} bytes, not the {size_bytes} reported"
    )]
    SizeMismatch { sets: u32, ways: u32, line_bytes: u32, product: u64, size_bytes: u64 },
    /// The sets cannot be spread evenly over the slices.
    #[error("{sets} sets cannot be spread over {slices} slices")]
    UnevenSlices { sets: u32, slices: u32 },
}

/// One cache as somebody reports it; see [`CacheGeometry::nonsense`] before believing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGeometry {
    /// Its level.
    pub level: CacheLevel,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Ways (associativity).
    pub ways: u32,
    /// Sets in all slices together, as sysfs counts them.
    pub sets: u32,
    /// Slices, where known; 1 for a cache that is not sliced.
    pub slices: Option<u32>,
    /// Logical CPUs that share it.
    pub shared_cpus: u32,
    /// Whether it is the last level before memory.
    pub last_level: bool,
}

impl CacheGeometry {
    /// Everything that makes this report impossible; empty if it could be true.
    pub fn nonsense(&self) -> Vec<Nonsense> {
        let mut found = self.zeros();
        if self.sets == 1 && self.ways == 1 {
            found.push(Nonsense::Placeholder { size_bytes: self.size_bytes });
        } else if found.is_empty() && self.product() != self.size_bytes {
            found.push(Nonsense::SizeMismatch {
                sets: self.sets,
                ways: self.ways,
                line_bytes: self.line_bytes,
                product: self.product(),
                size_bytes: self.size_bytes,
            });
        }
        if self.line_bytes != 0 && !self.line_bytes.is_power_of_two() {
            found.push(Nonsense::OddLine { line_bytes: self.line_bytes });
        }
        if let Some(slices) = self.slices.filter(|&s| s != 0 && !self.sets.is_multiple_of(s)) {
            found.push(Nonsense::UnevenSlices { sets: self.sets, slices });
        }
        found
    }

    fn zeros(&self) -> Vec<Nonsense> {
        let checked = [
            ("the size", self.size_bytes == 0),
            ("the line size", self.line_bytes == 0),
            ("the number of ways", self.ways == 0),
            ("the number of sets", self.sets == 0),
            ("the number of CPUs that share it", self.shared_cpus == 0),
            ("the number of slices", self.slices == Some(0)),
        ];
        checked.into_iter().filter(|c| c.1).map(|(what, _)| Nonsense::Zero { what }).collect()
    }

    /// Sets x ways x line, in bytes, without overflow.
    fn product(&self) -> u64 {
        (u64::from(self.sets) * u64::from(self.ways)).saturating_mul(u64::from(self.line_bytes))
    }

    /// Whether only one CPU (with its hardware threads, at most `threads`) uses it.
    pub const fn is_private(&self, threads: u32) -> bool {
        self.shared_cpus <= threads
    }

    /// The index function of a cache that picks sets by plain address bits and has one slice.
    /// Right for nearly every L1 and L2, wrong for most sliced last levels.
    ///
    /// # Errors
    /// If the line size or the set count is not a power of two.
    pub fn linear_index(&self) -> Result<IndexFunction, IndexError> {
        if !self.line_bytes.is_power_of_two() || !self.sets.is_power_of_two() {
            return Err(IndexError::NotLinear { sets: self.sets, line_bytes: self.line_bytes });
        }
        IndexFunction::linear(self.line_bytes.trailing_zeros(), self.sets.trailing_zeros())
    }

    /// How many colours pages of this size have if the index is linear: one way divided by
    /// the page size, at least 1. `None` where the report is not of a linear cache.
    pub fn linear_colors(&self, page: PageSize) -> Option<u64> {
        self.linear_index().ok()?;
        Some((u64::from(self.sets) * u64::from(self.line_bytes) / page.bytes()).max(1))
    }
}
