//! Into which list a free block belongs: by its mcolor where colours are linear, and where they are
//! not, single frames by a table and larger blocks all into one. Nothing here holds frames.

use huepage_color::{Color, ColorMap, LinearColors, Pfn};

use super::quotient::Mcolors;

/// How the colours of frames are known.
#[derive(Clone, Debug)]
pub enum Coloring {
    /// Parities of address bits: blocks of all orders have mcolors.
    Linear(Mcolors),
    /// Anything else: only single frames have a colour, and some may have none.
    Table(Box<ColorMap>),
}

impl Coloring {
    /// The colours of a map, for blocks of up to 2^`largest` frames; one colour without a map.
    pub fn new(map: Option<&ColorMap>, largest: u32) -> Coloring {
        let masks = map.map_or(Some(&[][..]), ColorMap::masks);
        let linear = masks.and_then(|masks| LinearColors::new(masks.to_vec()).ok());
        match (linear, map) {
            (None, Some(map)) => Coloring::Table(Box::new(map.clone())),
            (linear, _) => Coloring::Linear(Mcolors::new(linear.unwrap_or_default(), largest)),
        }
    }

    /// How many colours there are.
    pub fn colors(&self) -> u16 {
        match self {
            Coloring::Linear(mcolors) => mcolors.colors().colors(),
            Coloring::Table(map) => map.colors(),
        }
    }

    /// The colour of a frame, if it has one.
    #[inline]
    pub fn color(&self, frame: Pfn) -> Option<Color> {
        match self {
            Coloring::Linear(mcolors) => Some(mcolors.colors().color(frame)),
            Coloring::Table(map) => map.color(frame),
        }
    }

    /// How many lists blocks of an order need; the last of single frames without linear colours
    /// is of those that have none.
    pub(super) fn lists(&self, order: u32) -> u16 {
        match self {
            Coloring::Linear(mcolors) => mcolors.count(order),
            Coloring::Table(map) if order == 0 => map.colors() + 1,
            Coloring::Table(_) => 1,
        }
    }

    /// The list of a block.
    #[inline]
    pub(super) fn list(&self, first: Pfn, order: u32) -> u16 {
        match self {
            Coloring::Linear(mcolors) => mcolors.of_block(first, order),
            Coloring::Table(map) if order == 0 => {
                map.color(first).map_or(map.colors(), |color| color.0)
            }
            Coloring::Table(_) => 0,
        }
    }
}
