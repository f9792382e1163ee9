//! One stretch of memory: its free blocks, split towards a colour and joined when both halves are
//! free (Scolari 2016, algorithms 1 and 2). A single frame that comes back waits at the head of its
//! list, to be handed out again as it is, and is joined when its list has many that wait or a
//! larger block is wanted: halving the largest block and joining it again for every frame would
//! take several times as long, and every frame is joined once at most for each time it came back.
//! Memory that was never handed out is kept as one mark, from which blocks are cut when no list has
//! what is wanted. Single frames that are taken out of it by number, in whatever order, are noted and
//! cut out when anything else is asked: who takes frames by chance never asks, and the blocks that it
//! would cut lie all over the links. Which zone serves a request is decided elsewhere.

use huepage_color::{Color, Pfn};

use super::coloring::Coloring;
use super::links::Links;
use super::noted::Noted;
use super::quotient::Mcolors;

/// Frames of a colour that wait to be joined; about what Linux keeps for each processor.
const WAIT: u32 = 64;

/// A zone. Frames are counted from its base, which is aligned to the largest block.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    links: Links,
    base: u64,
    /// Its first frame and the one behind its last.
    start: u64,
    end: u64,
    /// From here on nothing was ever handed out.
    fresh: u64,
    largest: u32,
    available: u64,
    /// For each list of single frames, how many from its head on may be one half of two that are
    /// both free; no others are.
    waiting: Vec<u32>,
    /// Frames of untouched memory that are taken and not cut out yet.
    noted: Noted,
}

impl Zone {
    pub(super) fn new(first: Pfn, frames: u64, largest: u32, coloring: &Coloring) -> Zone {
        let base = first.0 >> largest << largest;
        let (start, end) = (first.0 - base, first.0 - base + frames);
        let lists: Vec<u16> = (0..=largest).map(|order| coloring.lists(order)).collect();
        let waiting = vec![0; usize::from(lists[0])];
        let links = Links::new(end, &lists);
        let noted = Noted::default();
        Zone { links, base, start, end, fresh: start, largest, available: frames, waiting, noted }
    }

    pub(super) const fn available(&self) -> u64 {
        self.available
    }

    pub(super) const fn total(&self) -> u64 {
        self.end - self.start
    }

    /// Where a frame is, counted from the base, if it is of this zone.
    #[inline]
    pub(super) fn place(&self, frame: Pfn) -> Option<u64> {
        let at = frame.0.checked_sub(self.base)?;
        (self.start..self.end).contains(&at).then_some(at)
    }

    #[inline]
    const fn pfn(&self, at: u64) -> Pfn {
        Pfn(self.base + at)
    }

    /// A block that contains a colour.
    #[inline]
    pub(super) fn take(&mut self, coloring: &Coloring, color: Color, order: u32) -> Option<Pfn> {
        self.cut_out_noted(coloring);
        let at = match coloring {
            Coloring::Linear(mcolors) => self.take_linear(mcolors, coloring, color, order),
            Coloring::Table(_) if order == 0 => self.take_listed(coloring, color),
            Coloring::Table(_) => self.take_holding(coloring, color, order),
        }?;
        self.available -= 1 << order;
        Some(self.pfn(at))
    }

    #[inline]
    fn take_linear(
        &mut self,
        mcolors: &Mcolors,
        coloring: &Coloring,
        color: Color,
        order: u32,
    ) -> Option<u64> {
        if order == 0
            && let Some(at) = self.pop_frame(color.0)
        {
            return Some(at);
        }
        let found = self.pop_linear(mcolors, color, order.max(1));
        let found = found.or_else(|| {
            // Single frames that wait make no block with a colour that none of them has.
            if order > 0 {
                self.settle(coloring);
            }
            self.pop_linear(mcolors, color, order)
        });
        let block = found.or_else(|| {
            let from = self.grow_to(mcolors, coloring, color, order)?;
            Some((self.links.pop(from, mcolors.lookup(color, from))?, from))
        })?;
        Some(self.split(mcolors, block, color, order))
    }

    #[inline]
    fn pop_frame(&mut self, list: u16) -> Option<u64> {
        let at = self.links.pop(0, list)?;
        let waiting = &mut self.waiting[usize::from(list)];
        *waiting = waiting.saturating_sub(1);
        Some(at)
    }

    /// The smallest block that contains a colour, of at least an order.
    fn pop_linear(&mut self, mcolors: &Mcolors, color: Color, order: u32) -> Option<(u64, u32)> {
        let mut orders = self.links.orders_from(order);
        while orders != 0 {
            let from = orders.trailing_zeros();
            if let Some(at) = self.links.pop(from, mcolors.lookup(color, from)) {
                return Some((at, from));
            }
            orders &= orders - 1;
        }
        None
    }

    /// Cuts blocks of untouched memory until one has the colour; its order. Every block is cut
    /// once, whatever is asked for.
    #[cold]
    fn grow_to(
        &mut self,
        mcolors: &Mcolors,
        coloring: &Coloring,
        color: Color,
        order: u32,
    ) -> Option<u32> {
        loop {
            let (at, from) = self.grow(coloring)?;
            let has = mcolors.of_block(self.pfn(at), from) == mcolors.lookup(color, from);
            if from >= order && has {
                return Some(from);
            }
        }
    }

    /// Halves a block down to an order, keeping the half that has the colour.
    #[inline]
    fn split(&mut self, mcolors: &Mcolors, block: (u64, u32), color: Color, order: u32) -> u64 {
        let (mut at, from) = block;
        if from == order {
            return at;
        }
        let mut own = mcolors.colors().color(self.pfn(at));
        for half in (order..from).rev() {
            let (upper, above) = (at + (1 << half), mcolors.upper(own, half));
            let lower = mcolors.lookup(own, half);
            if lower == mcolors.lookup(color, half) {
                self.put(upper, half, mcolors.lookup(above, half));
            } else {
                self.put(at, half, lower);
                (at, own) = (upper, above);
            }
        }
        at
    }

    /// Adds a block that is joined as far as it can be: single frames behind those that wait.
    #[inline]
    fn put(&mut self, at: u64, order: u32, list: u16) {
        if order == 0 {
            self.links.append(at, 0, list);
        } else {
            self.links.insert(at, order, list);
        }
    }

    /// Adds a single frame that is not joined yet.
    #[inline]
    fn put_waiting(&mut self, at: u64, list: u16) {
        self.links.insert(at, 0, list);
        self.waiting[usize::from(list)] += 1;
    }

    /// A single frame of a colour known by table: blocks are taken apart until one turns up.
    fn take_listed(&mut self, coloring: &Coloring, color: Color) -> Option<u64> {
        loop {
            if let Some(at) = self.pop_frame(color.0) {
                return Some(at);
            }
            let orders = self.links.orders_from(1);
            let (at, order) = match orders {
                0 => self.grow(coloring)?,
                _ => (self.links.iter(orders.trailing_zeros(), 0).next()?, orders.trailing_zeros()),
            };
            self.links.remove(at, order);
            self.list_frames(coloring, at, order);
        }
    }

    /// Single frames, the lowest to be handed out first.
    fn list_frames(&mut self, coloring: &Coloring, at: u64, order: u32) {
        for frame in (at..at + (1 << order)).rev() {
            self.put_waiting(frame, coloring.list(self.pfn(frame), 0));
        }
    }

    /// A block with a colour known by table: looks at free blocks until one has it.
    fn take_holding(&mut self, coloring: &Coloring, color: Color, order: u32) -> Option<u64> {
        self.settle(coloring);
        let has = |first: &u64| {
            (*first..first + (1 << order)).any(|at| coloring.color(self.pfn(at)) == Some(color))
        };
        let found = self.candidates(coloring, order).find(has)?;
        self.uncover(coloring, found + (1 << order));
        self.cut_out(coloring, found, order).then_some(found)
    }

    /// A block of whatever colours, the smallest that will do.
    pub(super) fn take_any(&mut self, coloring: &Coloring, order: u32) -> Option<Pfn> {
        self.cut_out_noted(coloring);
        let block = self.pop_any(order).or_else(|| {
            if order > 0 {
                self.settle(coloring);
            }
            while self.links.orders_from(order) == 0 {
                self.grow(coloring)?;
            }
            self.pop_any(order)
        })?;
        let at = block.0;
        self.keep(coloring, block, at, order);
        self.available -= 1 << order;
        Some(self.pfn(at))
    }

    fn pop_any(&mut self, order: u32) -> Option<(u64, u32)> {
        let orders = self.links.orders_from(order);
        if orders == 0 {
            return None;
        }
        let from = orders.trailing_zeros();
        let list = self.links.first_filled(from)?;
        let found = if from == 0 { self.pop_frame(list) } else { self.links.pop(from, list) };
        found.map(|at| (at, from))
    }

    /// Frees all of a block but the 2^`order` frames from `kept` on.
    fn keep(&mut self, coloring: &Coloring, block: (u64, u32), kept: u64, order: u32) {
        let (mut at, from) = block;
        for half in (order..from).rev() {
            let upper = at + (1 << half);
            let other = if kept >= upper { at } else { upper };
            self.put(other, half, coloring.list(self.pfn(other), half));
            at = if kept >= upper { upper } else { at };
        }
    }

    /// Takes one block in particular; false if part of it is not free.
    pub(super) fn take_exact(&mut self, coloring: &Coloring, at: u64, order: u32) -> bool {
        if at + (1 << order) > self.end {
            return false;
        }
        if order == 0 && at >= self.fresh {
            let is_new = self.noted.add(at, self.end);
            self.available -= u64::from(is_new);
            return is_new;
        }
        self.cut_out_noted(coloring);
        self.uncover(coloring, at + (1 << order));
        let mut taken = self.cut_out(coloring, at, order);
        if !taken && order > 0 && self.is_free(at, order) {
            self.settle(coloring);
            taken = self.cut_out(coloring, at, order);
        }
        if taken {
            self.available -= 1 << order;
        }
        taken
    }

    /// Cuts out what was only noted, in the order in which it was taken: all is then as if it had been done
    /// at once.
    #[inline]
    pub(super) fn cut_out_noted(&mut self, coloring: &Coloring) {
        if !self.noted.is_empty() {
            self.cut_out_each(coloring);
        }
    }

    #[cold]
    fn cut_out_each(&mut self, coloring: &Coloring) {
        for at in std::mem::take(&mut self.noted).into_frames() {
            self.uncover(coloring, at + 1);
            let was_free = self.cut_out(coloring, at, 0);
            debug_assert!(was_free, "{} was noted twice", self.pfn(at));
        }
    }

    /// Cuts blocks of untouched memory up to a place.
    fn uncover(&mut self, coloring: &Coloring, end: u64) {
        while self.fresh < end && self.grow(coloring).is_some() {}
    }

    fn cut_out(&mut self, coloring: &Coloring, at: u64, order: u32) -> bool {
        let Some(from) = self.order_of(at, order) else { return false };
        let block = at >> from << from;
        self.links.remove(block, from);
        self.keep(coloring, (block, from), at, order);
        true
    }

    /// The order of the free block that holds all of the given one.
    fn order_of(&self, at: u64, order: u32) -> Option<u32> {
        (order..=self.largest).rev().find(|&o| self.links.order_at(at >> o << o) == Some(o))
    }

    /// Whether all of a block is free: in one piece, or in halves that wait to be joined.
    pub(super) fn is_free(&self, at: u64, order: u32) -> bool {
        let within = at + (1 << order) <= self.end && order <= self.largest;
        let half = |at| self.is_free(at, order - 1);
        within
            && self.noted.has_none(at, 1 << order)
            && (at >= self.fresh
                || self.order_of(at, order).is_some()
                || (order > 0 && half(at) && half(at + (1 << (order - 1)))))
    }

    /// Gives a block back.
    #[inline]
    pub(super) fn give(&mut self, coloring: &Coloring, at: u64, order: u32) {
        self.cut_out_noted(coloring);
        assert!(
            at < self.fresh && self.links.order_at(at).is_none(),
            "{} is given back twice",
            self.pfn(at)
        );
        debug_assert!(!self.is_free(at, 0), "{} is given back twice", self.pfn(at));
        self.available += 1 << order;
        if order > 0 {
            self.put_joined(coloring, at, order);
            return;
        }
        let list = coloring.list(self.pfn(at), 0);
        // Frames that have a colour by table only are apart until a larger block is wanted.
        let full = self.waiting[usize::from(list)] >= WAIT;
        if full && matches!(coloring, Coloring::Linear(_)) {
            self.settle_list(coloring, list);
        }
        self.put_waiting(at, list);
    }

    /// Adds a block together with its free halves.
    fn put_joined(&mut self, coloring: &Coloring, at: u64, order: u32) {
        let (at, order) = self.join(at, order);
        self.put(at, order, coloring.list(self.pfn(at), order));
    }

    /// Takes free halves out and says what they make with the given block.
    #[inline]
    fn join(&mut self, mut at: u64, mut order: u32) -> (u64, u32) {
        while order < self.largest {
            let buddy = at ^ 1 << order;
            if buddy >= self.end || self.links.order_at(buddy) != Some(order) {
                break;
            }
            self.links.remove(buddy, order);
            at &= buddy;
            order += 1;
        }
        (at, order)
    }

    /// Joins all single frames that wait. Looks at each list, and at each frame that may wait.
    #[cold]
    pub(super) fn settle(&mut self, coloring: &Coloring) {
        self.cut_out_noted(coloring);
        (0..coloring.lists(0)).for_each(|list| self.settle_list(coloring, list));
    }

    /// Joins the single frames of a list that wait.
    fn settle_list(&mut self, coloring: &Coloring, list: u16) {
        for _ in 0..std::mem::take(&mut self.waiting[usize::from(list)]) {
            let Some(at) = self.links.pop(0, list) else { return };
            self.put_joined(coloring, at, 0);
        }
    }

    /// Makes one more block of untouched memory.
    fn grow(&mut self, coloring: &Coloring) -> Option<(u64, u32)> {
        if self.fresh == self.end {
            return None;
        }
        let (at, order) = (self.fresh, self.fitting(self.fresh));
        // A single frame here has no second half in the zone: it never waits to be joined.
        self.put(at, order, coloring.list(self.pfn(at), order));
        self.fresh += 1 << order;
        Some((at, order))
    }

    /// The largest block that begins at a frame and ends within the zone.
    fn fitting(&self, at: u64) -> u32 {
        let aligned = if at == 0 { self.largest } else { at.trailing_zeros().min(self.largest) };
        aligned.min((self.end - at).ilog2())
    }

    /// Every block of an order that could be taken: those of the smallest free blocks first.
    pub(super) fn candidates<'a>(
        &'a self,
        coloring: &'a Coloring,
        order: u32,
    ) -> impl Iterator<Item = u64> + 'a {
        let each = move |from: u32| {
            let lists = (0..coloring.lists(from)).filter(move |&l| !self.links.is_empty(from, l));
            lists
                .flat_map(move |list| self.links.iter(from, list))
                .flat_map(move |block| (block..block + (1 << from)).step_by(1 << order))
        };
        let first = self.fresh.next_multiple_of(1 << order);
        let fresh = (first..self.end).step_by(1 << order);
        let fresh = fresh.filter(move |at| at + (1 << order) <= self.end && order <= self.largest);
        (order..=self.largest).flat_map(each).chain(fresh)
    }

    /// [`Self::candidates`] as frame numbers.
    pub(super) fn candidate_frames<'a>(
        &'a self,
        coloring: &'a Coloring,
        order: u32,
    ) -> impl Iterator<Item = Pfn> + 'a {
        self.candidates(coloring, order).map(|at| self.pfn(at))
    }

    /// Adds the free blocks of each order; untouched memory, of which no frame may be noted, counts as the
    /// largest that fit.
    pub(super) fn count_blocks(&self, coloring: &Coloring, blocks: &mut [u64]) {
        for (order, count) in (0..=self.largest).zip(blocks.iter_mut()) {
            let lists = (0..coloring.lists(order)).map(|list| self.links.iter(order, list).count());
            *count += lists.sum::<usize>() as u64;
        }
        let mut at = self.fresh;
        while at < self.end {
            let order = self.fitting(at);
            blocks[order as usize] += 1;
            at += 1 << order;
        }
    }

    /// Whether lists, marks and counts agree: for tests. Looks at every free block.
    pub(super) fn sound(&self, coloring: &Coloring) -> bool {
        let mut blocks = vec![0; self.largest as usize + 1];
        self.count_blocks(coloring, &mut blocks);
        let free: u64 = blocks.iter().zip(0..).map(|(count, order)| count << order).sum();
        let orders = 0..=self.largest;
        free == self.available
            && orders.clone().all(|order| self.links.sound(order, coloring.lists(order)))
            && orders.clone().all(|order| self.listed_rightly(coloring, order))
            && self.waits_rightly(coloring)
    }

    /// Whether of two free halves one at least is among those that wait to be joined; single frames
    /// by table all wait.
    fn waits_rightly(&self, coloring: &Coloring) -> bool {
        (0..coloring.lists(0)).all(|list| {
            let waiting = self.waiting[usize::from(list)] as usize;
            let mut settled = self.links.iter(0, list).skip(waiting);
            settled.all(|at| {
                let other = at ^ 1;
                other >= self.end
                    || self.links.order_at(other) != Some(0)
                    || self.is_waiting(coloring, other)
            })
        })
    }

    fn is_waiting(&self, coloring: &Coloring, at: u64) -> bool {
        let list = coloring.list(self.pfn(at), 0);
        let waiting = self.waiting[usize::from(list)] as usize;
        self.links.iter(0, list).take(waiting).any(|one| one == at)
    }

    fn listed_rightly(&self, coloring: &Coloring, order: u32) -> bool {
        (0..coloring.lists(order)).all(|list| {
            let mut blocks = self.links.iter(order, list);
            blocks.all(|at| coloring.list(self.pfn(at), order) == list)
        })
    }
}
