//! A buddy allocator of frames: blocks of 2^n frames, aligned to their size, split when a
//! smaller one is wanted and joined when both halves are free. Handing out goes by the lowest
//! address, or takes one particular frame, which is how choices by colour or by chance stand
//! on the same free memory. Memory that was never touched costs nothing to keep.

use huepage_color::Pfn;

use crate::blocks::Blocks;

/// log2 of the frames of the largest block: 4 MiB, as Linux has it.
pub const MAX_ORDER: u32 = 10;

/// The free frames of one zone.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// Free blocks, counted in blocks of their order; all below `fresh`.
    free: Vec<Blocks>,
    /// From here on nothing was ever handed out.
    fresh: u64,
    total: u64,
    largest: u32,
    available: u64,
}

impl Buddy {
    /// `total` free frames from frame 0 on, in blocks of at most 2^`largest` frames.
    pub fn new(total: u64, largest: u32) -> Buddy {
        let free = vec![Blocks::default(); largest as usize + 1];
        Buddy { free, fresh: 0, total, largest, available: total }
    }

    /// Free frames.
    pub const fn available(&self) -> u64 {
        self.available
    }

    /// All frames, free or not.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The lowest of the smallest free blocks that are large enough, cut to 2^`order` frames.
    /// Takes a few steps for each order.
    pub fn take(&mut self, order: u32) -> Option<Pfn> {
        if order > self.largest {
            return None;
        }
        while !(order..=self.largest).any(|o| !self.free[o as usize].is_empty()) {
            if !self.grow() {
                return None;
            }
        }
        let from = (order..=self.largest).find(|&o| !self.free[o as usize].is_empty())?;
        let block = self.free[from as usize].pop_first()? << from;
        self.split(block, from, order, block);
        self.available -= 1 << order;
        Some(Pfn(block))
    }

    /// Takes one block in particular; false if part of it is not free. Takes a few steps for
    /// each order.
    ///
    /// # Panics
    /// If `first` is not aligned to 2^`order`.
    pub fn take_exact(&mut self, first: Pfn, order: u32) -> bool {
        assert!(first.0.is_multiple_of(1 << order), "{first} is not aligned to order {order}");
        while self.fresh < first.0 + (1 << order) && self.grow() {}
        let Some(from) = self.order_of(first, order) else { return false };
        let block = first.0 >> from << from;
        self.free[from as usize].remove(block >> from);
        self.split(block, from, order, first.0);
        self.available -= 1 << order;
        true
    }

    /// Whether all of a block is free, in one piece.
    pub fn is_free(&self, first: Pfn, order: u32) -> bool {
        let end = first.0 + (1 << order);
        (first.0 >= self.fresh && end <= self.total && order <= self.largest)
            || self.order_of(first, order).is_some()
    }

    /// Every block of 2^`order` frames that could be taken: those of the smallest free blocks
    /// first, then by address. Some are handed out before the last is found.
    pub fn candidates(&self, order: u32) -> impl Iterator<Item = Pfn> + '_ {
        let known = (order..=self.largest).flat_map(move |from| {
            let each = 1_u64 << (from - order);
            let blocks = self.free[from as usize].iter();
            blocks.flat_map(move |block| (0..each).map(move |i| block * each + i))
        });
        let (first, end) = (self.fresh.div_ceil(1 << order), self.total >> order);
        let fresh = (first..end).filter(move |_| order <= self.largest);
        known.chain(fresh).map(move |block| Pfn(block << order))
    }

    /// Gives a block back and joins it with its free neighbours.
    ///
    /// # Panics
    /// If it is free already, which a caller's books must prevent.
    pub fn give(&mut self, first: Pfn, order: u32) {
        assert!(!self.is_free(first, 0), "{first} is given back twice");
        self.available += 1 << order;
        let (mut block, mut order) = (first.0, order);
        while order < self.largest && self.free[order as usize].remove(block >> order ^ 1) {
            block &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(block >> order);
    }

    /// Free blocks of exactly each order; what was never touched counts as largest blocks.
    pub fn blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.free.iter().map(Blocks::len).collect();
        let mut at = self.fresh;
        while at < self.total {
            let order = self.fitting(at);
            blocks[order as usize] += 1;
            at += 1 << order;
        }
        blocks
    }

    /// Takes single frames so that, of every `of` largest blocks, `spoilt` are no longer whole:
    /// memory as it is after long use. The frames taken, in no order, are the caller's; `seed`
    /// says which.
    pub fn fragment(&mut self, spoilt: f64, seed: u64) -> Vec<Pfn> {
        let (step, mut random) =
            (1_u64 << self.largest, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut next = || {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
        };
        let mut taken = Vec::new();
        for block in (0..self.total).step_by(1 << self.largest) {
            let (chance, frame) = (
                next() as f64 / (1_u64 << 53) as f64,
                Pfn(block + next() % step.min(self.total - block)),
            );
            if chance < spoilt && self.take_exact(frame, 0) {
                taken.push(frame);
            }
        }
        taken
    }

    /// The order of the free block that holds all of the given one.
    fn order_of(&self, first: Pfn, order: u32) -> Option<u32> {
        let holds = |o: &u32| self.free[*o as usize].contains(first.0 >> *o);
        // Most free memory is in large blocks.
        (order..=self.largest).rev().find(holds)
    }

    /// Keeps 2^`order` frames from `kept` on of a block and frees the rest in halves.
    fn split(&mut self, mut block: u64, from: u32, order: u32, kept: u64) {
        for half in (order..from).rev() {
            let upper = block + (1 << half);
            let other = if kept >= upper { block } else { upper };
            self.free[half as usize].insert(other >> half);
            block = if kept >= upper { upper } else { block };
        }
    }

    /// Makes one more block of untouched memory; false if there is none.
    fn grow(&mut self) -> bool {
        if self.fresh == self.total {
            return false;
        }
        let order = self.fitting(self.fresh);
        self.free[order as usize].insert(self.fresh >> order);
        self.fresh += 1 << order;
        true
    }

    /// The largest block that begins at a frame and ends within memory.
    fn fitting(&self, at: u64) -> u32 {
        let aligned = if at == 0 { self.largest } else { at.trailing_zeros().min(self.largest) };
        aligned.min((self.total - at).ilog2())
    }
}
