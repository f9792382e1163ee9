//! The colour-aware page allocator of COLORIS (2014, section 3.1): a pool of free frames by
//! colour between programs and a buddy allocator. A request takes the colours of its program in
//! turns; where the one that is due is used up, another of them; where all are, the buddy
//! allocator fills the pool with frames of whatever colours. Frames that come back stay in the
//! pool until their colour is full. Which colours a program has is not known here.

use huepage_color::{Color, ColorMap, ColorSet, Pfn};

use crate::mcolor::McolorBuddy;
use crate::order::RoundRobin;
use crate::pool::{ColorPool, Handed, WhenExhausted};

/// The allocator.
///
/// # Panics
/// Methods that take a [`ColorSet`] panic if it is of another universe than the colour map's.
#[derive(Clone, Debug)]
pub struct ColorAllocator {
    /// The pool.
    pub pool: ColorPool<Pfn>,
    buddy: McolorBuddy,
    map: ColorMap,
    /// Most frames of a colour that are kept.
    depth: usize,
    /// How often the buddy allocator had to be asked.
    pub refills: u64,
}

/// Frames asked of the buddy allocator at a time.
const REFILL: usize = 64;

impl ColorAllocator {
    /// A pool of at most `depth` frames of each colour, at least 1, over a buddy allocator. It
    /// is empty at first. The paper's has 1 GB: 4096 frames of each of 64 colours. Its buddy
    /// allocator knows no colours; one of one colour stands for it.
    pub fn new(buddy: McolorBuddy, map: ColorMap, depth: usize) -> ColorAllocator {
        let pool = ColorPool::new(map.colors());
        ColorAllocator { pool, buddy, map, depth: depth.max(1), refills: 0 }
    }

    /// Frames that are free, in the pool or not.
    pub fn free(&self) -> u64 {
        self.buddy.available() + self.pool.len() as u64
    }

    /// A frame of one of these colours, which take turns; none when there is none any more, or
    /// `colors` is empty. Constant time while the pool lasts; a refill looks at free frames until
    /// one is right.
    pub fn allocate(&mut self, order: &mut RoundRobin, colors: &ColorSet) -> Option<Handed<Pfn>> {
        if colors.is_empty() {
            return None;
        }
        let found = self.pool.take_next(order, colors, WhenExhausted::SkipColor);
        found.or_else(|| {
            self.refill(colors);
            self.pool.take_next(order, colors, WhenExhausted::SkipColor)
        })
    }

    /// Takes a frame back.
    ///
    /// # Panics
    /// If the colour map does not know its colour, so that it was never handed out.
    pub fn release(&mut self, frame: Pfn) {
        let color = self.map.color(frame);
        let color = color.unwrap_or_else(|| panic!("{frame} is of no color, so not from here"));
        if self.pool.count(color) < self.depth {
            self.pool.add(color, frame);
        } else {
            self.buddy.give(frame, 0);
        }
    }

    /// Fills the pool until it has a frame of one of these colours. Frames of colours that are
    /// full go back at the end, so that the buddy allocator does not hand them out again at once.
    fn refill(&mut self, colors: &ColorSet) {
        self.refills += 1;
        let mut surplus = Vec::new();
        loop {
            let batch: Vec<Pfn> = (0..REFILL).map_while(|_| self.buddy.take_any(0)).collect();
            let more = batch.len() == REFILL;
            for frame in batch {
                match self.map.color(frame).filter(|&color| self.wants(color)) {
                    Some(color) => self.pool.add(color, frame),
                    None => surplus.push(frame),
                }
            }
            if !more || self.pool.available(colors) > 0 {
                break;
            }
        }
        surplus.into_iter().for_each(|frame| self.buddy.give(frame, 0));
    }

    fn wants(&self, color: Color) -> bool {
        self.pool.count(color) < self.depth
    }
}
