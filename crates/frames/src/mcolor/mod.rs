//! The mcolor buddy allocator (Scolari 2016, section 4.2): one list of free blocks for each order
//! and mcolor, so that a frame of any colour is found, split off and given back in a time that
//! depends neither on how much memory there is nor on how many colours. The paper derives mcolors
//! by hand for one hash; here [`Mcolors`] derives them for any linear one. Colours that are not
//! linear have their single frames in lists by table. Who wants which colour is not known here.

mod coloring;
mod links;
mod noted;
mod quotient;
mod zone;

use huepage_color::{Color, ColorMap, ColorSet, Pfn};
use thiserror::Error;

pub use coloring::Coloring;
pub use quotient::Mcolors;

use crate::order::RoundRobin;
use crate::pool::Handed;
use zone::Zone;

/// Why there is no such allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum McolorError {
    /// Blocks that are too large.
    #[error("blocks of 2^{order} frames are too large; use at most order 14")]
    Order { order: u32 },
    /// A zone that is too large.
    #[error("a zone of {frames} frames is too large; make several of less than 2^30 frames each")]
    TooLarge { frames: u64 },
    /// Two zones with a frame in common.
    #[error("frame {frame} is in two zones; make them end where the next begins")]
    Overlap { frame: Pfn },
}

/// The free frames of some zones. Earlier zones are used first.
#[derive(Clone, Debug)]
pub struct McolorBuddy {
    coloring: Coloring,
    zones: Vec<Zone>,
    largest: u32,
}

impl McolorBuddy {
    /// Free zones, each by its first frame and its length, in blocks of at most 2^`largest`
    /// frames. Metadata is 8 bytes for each frame, paged in as memory is handed out.
    ///
    /// # Errors
    /// `Order`, `TooLarge`, `Overlap`.
    pub fn new(
        zones: &[(Pfn, u64)],
        map: Option<&ColorMap>,
        largest: u32,
    ) -> Result<McolorBuddy, McolorError> {
        if largest > links::MAX_ORDER {
            return Err(McolorError::Order { order: largest });
        }
        if let Some(&(_, frames)) = zones.iter().find(|zone| zone.1 > links::MAX_FRAMES) {
            return Err(McolorError::TooLarge { frames });
        }
        check_overlap(zones)?;
        let coloring = Coloring::new(map, largest);
        let zone = |&(first, frames): &(Pfn, u64)| Zone::new(first, frames, largest, &coloring);
        let zones = zones.iter().map(zone).collect();
        Ok(McolorBuddy { coloring, zones, largest })
    }

    /// How colours are known.
    pub const fn coloring(&self) -> &Coloring {
        &self.coloring
    }

    /// How many colours there are.
    pub fn colors(&self) -> u16 {
        self.coloring.colors()
    }

    /// The colour of a frame, if it has one.
    #[inline]
    pub fn color(&self, frame: Pfn) -> Option<Color> {
        self.coloring.color(frame)
    }

    /// Free frames.
    pub fn available(&self) -> u64 {
        self.zones.iter().map(Zone::available).sum()
    }

    /// All frames, free or not.
    pub fn total(&self) -> u64 {
        self.zones.iter().map(Zone::total).sum()
    }

    /// A block of 2^`order` frames that contains this colour: a frame of it for order 0. A few
    /// steps for each order and zone; none if no free block contains it.
    ///
    /// # Panics
    /// If the colour does not exist.
    #[inline]
    pub fn take(&mut self, color: Color, order: u32) -> Option<Pfn> {
        assert!(color.0 < self.colors(), "colour {color} of {}", self.colors());
        if order > self.largest {
            return None;
        }
        self.zones.iter_mut().find_map(|zone| zone.take(&self.coloring, color, order))
    }

    /// A frame of the colour of a set that is due in a rotation, or of the next that has one;
    /// none when all of them are used up. A few steps for each colour that is used up.
    pub fn take_next(&mut self, turns: &mut RoundRobin, set: &ColorSet) -> Option<Handed<Pfn>> {
        let mut color = turns.peek(set)?;
        for _ in 0..set.len() {
            if let Some(frame) = self.take(color, 0) {
                turns.advance(color);
                return Some(Handed { color, frame, outside: false });
            }
            color = set.next_after(color)?;
        }
        None
    }

    /// A block all of whose colours are in a set. Takes time for each colour, not for each block,
    /// unless colours are known by table: then every free block is looked at.
    ///
    /// # Panics
    /// If the set is of another universe.
    pub fn take_within(&mut self, set: &ColorSet, order: u32) -> Option<Pfn> {
        if order > self.largest {
            return None;
        }
        let found = match &self.coloring {
            Coloring::Linear(mcolors) => {
                let wanted: Vec<Color> = whole(mcolors, set, order);
                return wanted.into_iter().find_map(|color| self.take(color, order));
            }
            Coloring::Table(map) => {
                self.zones.iter_mut().for_each(|zone| zone.settle(&self.coloring));
                let inside = |frame| map.color(Pfn(frame)).is_some_and(|c| set.contains(c));
                let fits = |first: &Pfn| (first.0..first.0 + (1 << order)).all(inside);
                self.candidates(order).find(fits)?
            }
        };
        self.take_exact(found, order).then_some(found)
    }

    /// A block of those colours that `crowd` has least of in all; colours that it does not name
    /// count nothing. Takes time for each colour, unless colours are known by table: then every
    /// free block is looked at.
    pub fn take_least(&mut self, crowd: &[u64], order: u32) -> Option<Pfn> {
        if order > self.largest {
            return None;
        }
        let of = |color: Color| crowd.get(usize::from(color.0)).copied().unwrap_or(0);
        let found = match &self.coloring {
            Coloring::Linear(mcolors) => {
                let ranked = ranked(mcolors, of, order);
                return ranked.into_iter().find_map(|color| self.take(color, order));
            }
            Coloring::Table(map) => {
                self.zones.iter_mut().for_each(|zone| zone.settle(&self.coloring));
                let frame = |frame| map.color(Pfn(frame)).map_or(0, of);
                let all = |first: &Pfn| (first.0..first.0 + (1 << order)).map(frame).sum::<u64>();
                self.candidates(order).min_by_key(all)?
            }
        };
        self.take_exact(found, order).then_some(found)
    }

    /// A block of whatever colours: the smallest free one that will do, and in memory that was
    /// never used the next in order. A few steps for each order and zone.
    pub fn take_any(&mut self, order: u32) -> Option<Pfn> {
        if order > self.largest {
            return None;
        }
        self.zones.iter_mut().find_map(|zone| zone.take_any(&self.coloring, order))
    }

    /// Takes one block in particular; false if part of it is not free. A few steps for each order.
    ///
    /// # Panics
    /// If `first` is not aligned to 2^`order`.
    pub fn take_exact(&mut self, first: Pfn, order: u32) -> bool {
        assert!(first.0.is_multiple_of(1 << order), "{first} is not aligned to order {order}");
        let places = self.zones.iter_mut().filter_map(|zone| Some((zone.place(first)?, zone)));
        let mut places = places.filter(|_| order <= self.largest);
        places.next().is_some_and(|(at, zone)| zone.take_exact(&self.coloring, at, order))
    }

    /// Whether all of a block is free.
    pub fn is_free(&self, first: Pfn, order: u32) -> bool {
        let mut zones = self.zones.iter();
        zones.any(|zone| zone.place(first).is_some_and(|at| zone.is_free(at, order)))
    }

    /// Every block of 2^`order` frames that could be taken once all is settled, smallest free blocks first.
    fn candidates(&self, order: u32) -> impl Iterator<Item = Pfn> + '_ {
        self.zones.iter().flat_map(move |zone| zone.candidate_frames(&self.coloring, order))
    }

    /// Gives a block back, or part of one. A few steps for each order.
    ///
    /// # Panics
    /// If it is in no zone, or free already. That it lies within a larger free block is noticed
    /// in debug builds only.
    #[inline]
    pub fn give(&mut self, first: Pfn, order: u32) {
        let mut zones = self.zones.iter_mut();
        let found = zones.find_map(|zone| Some((zone.place(first)?, zone)));
        let (at, zone) = found.unwrap_or_else(|| panic!("{first} is in no zone"));
        zone.give(&self.coloring, at, order);
    }

    /// Joins the free frames that wait, which happens without asking when a larger block is wanted
    /// and there is none: at most 64 of each colour, and all single frames where colours are known
    /// by table. Every frame is looked at once for each time it came back.
    pub fn settle(&mut self) {
        self.zones.iter_mut().for_each(|zone| zone.settle(&self.coloring));
    }

    /// Free blocks of exactly each order; memory that was never used counts as the largest blocks
    /// that fit. Looks at every free block.
    pub fn blocks(&self) -> Vec<u64> {
        let mut blocks = vec![0; self.largest as usize + 1];
        self.whole_zones().for_each(|zone| zone.count_blocks(&self.coloring, &mut blocks));
        blocks
    }

    /// Whether all lists, marks and counts agree: for tests. Looks at every free block.
    pub fn sound(&self) -> bool {
        self.whole_zones().all(|zone| zone.sound(&self.coloring))
    }

    /// Zones of which nothing is only noted.
    fn whole_zones(&self) -> impl Iterator<Item = Zone> + '_ {
        self.zones.iter().cloned().map(|mut zone| {
            zone.cut_out_noted(&self.coloring);
            zone
        })
    }
}

/// A colour of each mcolor that has none outside the set.
fn whole(mcolors: &Mcolors, set: &ColorSet, order: u32) -> Vec<Color> {
    let lists = usize::from(mcolors.count(order));
    let in_each = usize::from(mcolors.colors().colors()) / lists;
    let mut seen = vec![0; lists];
    let complete = |color: &Color| {
        let list = usize::from(mcolors.lookup(*color, order));
        seen[list] += 1;
        seen[list] == in_each
    };
    set.iter().filter(complete).collect()
}

/// A colour of each mcolor, that of the smallest sum first.
fn ranked(mcolors: &Mcolors, of: impl Fn(Color) -> u64, order: u32) -> Vec<Color> {
    let mut sums = vec![(0, Color(0)); usize::from(mcolors.count(order))];
    for color in (0..mcolors.colors().colors()).map(Color) {
        let sum = &mut sums[usize::from(mcolors.lookup(color, order))];
        *sum = (sum.0 + of(color), color);
    }
    sums.sort_unstable();
    sums.into_iter().map(|(_, color)| color).collect()
}

fn check_overlap(zones: &[(Pfn, u64)]) -> Result<(), McolorError> {
    let mut sorted = zones.to_vec();
    sorted.sort_unstable();
    let twice = sorted.windows(2).find(|pair| pair[0].0.0 + pair[0].1 > pair[1].0.0);
    twice.map_or(Ok(()), |pair| Err(McolorError::Overlap { frame: pair[1].0 }))
}
