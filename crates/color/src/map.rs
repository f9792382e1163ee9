//! `ColorMap`: frame to colour for one cache level, with the provenance of the claim. It either
//! computes colours from an index function or looks up what a probe has measured; it never
//! measures, and it does not decide which of the two is right for a machine.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addr::{PageSize, Pfn};
use crate::classes::{ClassError, PageClasses};
use crate::geometry::CacheLevel;
use crate::hash::NumberHash;
use crate::hashed::LinearColors;
use crate::index::IndexFunction;
use crate::set::{Color, ColorSet, MAX_COLORS};

/// How somebody came to know the colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Computed from the frame number with the machine's own index function.
    Pfn,
    /// Measured by timing; frames that were not measured have no colour.
    Probed,
    /// Computed with an index function that a person or a file gave.
    Declared,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Provenance::Pfn => "pfn",
            Provenance::Probed => "probed",
            Provenance::Declared => "declared",
        })
    }
}

/// Why there is no [`ColorMap`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum MapError {
    /// The classes of the index function cannot be had.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// More colours than a [`ColorSet`] can hold, or none.
    #[error("{level} has {colors} colours; huepage handles 1 to 4096, so choose another level")]
    TooMany { level: CacheLevel, colors: u64 },
    /// A computed map that claims to be probed.
    #[error(
        "an index function gives `pfn` or `declared` colours, never `probed` ones; build the map with ColorMap::probed"
    )]
    NotProbed,
}

/// Frame to colour, for base pages and one cache level.
#[derive(Clone, Debug)]
pub struct ColorMap {
    level: CacheLevel,
    provenance: Provenance,
    colors: u16,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Computed(PageClasses),
    Measured(Measured),
    Linear(LinearColors),
}

impl ColorMap {
    /// A map that computes 4 KiB colours from an index function.
    ///
    /// # Errors
    /// `Classes` for a bad function, `TooMany` above 4096 colours, `NotProbed` if
    /// `provenance` is `Probed`.
    pub fn computed(
        level: CacheLevel,
        index: &IndexFunction,
        provenance: Provenance,
    ) -> Result<ColorMap, MapError> {
        if provenance == Provenance::Probed {
            return Err(MapError::NotProbed);
        }
        let classes = PageClasses::new(index, PageSize::BASE)?;
        let colors = universe(level, classes.colors())?;
        Ok(ColorMap { level, provenance, colors, source: Source::Computed(classes) })
    }

    /// An empty map of `colors` colours, to be filled with [`ColorMap::record`].
    ///
    /// # Errors
    /// `TooMany` if there are no colours or more than 4096.
    pub fn probed(level: CacheLevel, colors: u16) -> Result<ColorMap, MapError> {
        let colors = universe(level, u64::from(colors))?;
        let source = Source::Measured(Measured::default());
        Ok(ColorMap { level, provenance: Provenance::Probed, colors, source })
    }

    /// A map of colours that are parities of address bits, such as
    /// [`hash_aware`](crate::hash_aware) gives.
    ///
    /// # Errors
    /// `NotProbed` if `provenance` is `Probed`.
    pub fn linear(
        level: CacheLevel,
        colors: LinearColors,
        provenance: Provenance,
    ) -> Result<ColorMap, MapError> {
        if provenance == Provenance::Probed {
            return Err(MapError::NotProbed);
        }
        let (count, source) = (colors.colors(), Source::Linear(colors));
        Ok(ColorMap { level, provenance, colors: count, source })
    }

    /// One mask per bit of the colour, the lowest first, where every bit is the parity of the
    /// address AND its mask; none of measured colours, and of a base sequence.
    pub fn masks(&self) -> Option<&[u64]> {
        match &self.source {
            Source::Computed(classes) => classes.is_linear().then(|| classes.masks()),
            Source::Linear(colors) => Some(colors.masks()),
            Source::Measured(_) => None,
        }
    }

    /// The colour of a frame; `None` if it was to be probed and has not been.
    #[inline]
    pub fn color(&self, pfn: Pfn) -> Option<Color> {
        match &self.source {
            Source::Computed(classes) => u16::try_from(classes.color(pfn)).ok().map(Color),
            Source::Measured(measured) => measured.get(pfn),
            Source::Linear(colors) => Some(colors.color(pfn)),
        }
    }

    /// Notes the measured colour of a frame and returns the one noted before. A computed map
    /// knows better and ignores it, returning its own answer.
    ///
    /// # Panics
    /// If `color` is not below [`Self::colors`].
    pub fn record(&mut self, pfn: Pfn, color: Color) -> Option<Color> {
        assert!(color.0 < self.colors, "colour {color} of {}", self.colors);
        match &mut self.source {
            Source::Computed(_) | Source::Linear(_) => self.color(pfn),
            Source::Measured(measured) => measured.set(pfn, Some(color)),
        }
    }

    /// Forgets the measured colour of a frame, which is due when the frame is given back: the
    /// host may change what lies behind it. Computed colours stay.
    pub fn forget(&mut self, pfn: Pfn) -> Option<Color> {
        match &mut self.source {
            Source::Computed(_) | Source::Linear(_) => None,
            Source::Measured(measured) => measured.set(pfn, None),
        }
    }

    /// The frames that were measured, ascending, with their colours; empty for a computed map.
    pub fn recorded(&self) -> impl Iterator<Item = (Pfn, Color)> + '_ {
        let measured = match &self.source {
            Source::Computed(_) | Source::Linear(_) => None,
            Source::Measured(measured) => Some(measured),
        };
        measured.into_iter().flat_map(Measured::iter)
    }

    /// How many frames were measured; 0 for a computed map.
    pub const fn recorded_len(&self) -> usize {
        match &self.source {
            Source::Computed(_) | Source::Linear(_) => 0,
            Source::Measured(measured) => measured.len,
        }
    }

    /// The number of colours, 1 to 4096.
    pub const fn colors(&self) -> u16 {
        self.colors
    }

    /// The set of all colours of this level.
    pub fn all(&self) -> ColorSet {
        ColorSet::all(self.colors)
    }

    /// The cache level.
    pub const fn level(&self) -> CacheLevel {
        self.level
    }

    /// How the colours are known.
    pub const fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// The classes behind a computed map.
    pub const fn classes(&self) -> Option<&PageClasses> {
        match &self.source {
            Source::Computed(classes) => Some(classes),
            Source::Measured(_) | Source::Linear(_) => None,
        }
    }
}

fn universe(level: CacheLevel, colors: u64) -> Result<u16, MapError> {
    match u16::try_from(colors) {
        Ok(count) if (1..=MAX_COLORS).contains(&count) => Ok(count),
        _ => Err(MapError::TooMany { level, colors }),
    }
}

/// Frames of one chunk: 2 MiB of memory costs 1 KiB here, as frames come in runs.
const CHUNK: usize = 512;
/// A cell of a frame that was not measured; no colour has this number.
const UNKNOWN: u16 = u16::MAX;

#[derive(Clone, Debug, Default)]
struct Measured {
    chunks: HashMap<u64, Box<[u16; CHUNK]>, NumberHash>,
    len: usize,
}

impl Measured {
    fn get(&self, pfn: Pfn) -> Option<Color> {
        let (chunk, cell) = place(pfn);
        known(self.chunks.get(&chunk)?[cell])
    }

    fn set(&mut self, pfn: Pfn, color: Option<Color>) -> Option<Color> {
        let blank = || Box::new([UNKNOWN; CHUNK]);
        let (chunk, cell) = place(pfn);
        let cells = self.chunks.entry(chunk).or_insert_with(blank);
        let new = color.map_or(UNKNOWN, |c| c.0);
        let old = known(std::mem::replace(&mut cells[cell], new));
        self.len += usize::from(color.is_some());
        self.len -= usize::from(old.is_some());
        old
    }

    fn iter(&self) -> impl Iterator<Item = (Pfn, Color)> + '_ {
        let mut chunks: Vec<_> = self.chunks.iter().collect();
        chunks.sort_unstable_by_key(|chunk| chunk.0);
        chunks.into_iter().flat_map(|(&chunk, cells)| {
            let frames = (chunk * CHUNK as u64..).map(Pfn).zip(cells.iter());
            frames.filter_map(|(pfn, &cell)| known(cell).map(|color| (pfn, color)))
        })
    }
}

/// The chunk of a frame and its cell there.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is below 512")]
const fn place(pfn: Pfn) -> (u64, usize) {
    (pfn.0 / CHUNK as u64, (pfn.0 % CHUNK as u64) as usize)
}

fn known(cell: u16) -> Option<Color> {
    (cell != UNKNOWN).then_some(Color(cell))
}
