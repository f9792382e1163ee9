//! Which frame a page gets when it is first touched: the choices that operating systems make
//! blindly and the papers make on purpose. All of them take from one mcolor buddy allocator, so
//! that memory is finite, can be fragmented, and every frame has one owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use huepage_color::{Color, ColorMap, ColorSet, NumberHash, Pfn, Vpn};
use huepage_frames::{McolorBuddy, RoundRobin};
use huepage_policy::conflict::target::Random;

/// The largest free block is of 2^11 frames: 8 MiB, the largest page of Romer 1998, section 3.2.
/// Linux's is half as large.
const LARGEST_BLOCK: u32 = 11;

/// How frames are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The lowest free one.
    InOrder,
    /// Any free one, by a generator with this seed.
    Random(u64),
    /// One whose colour is that of the page's number, so that pages that follow each other
    /// compete as in a virtually indexed cache ("page coloring").
    Coloring,
    /// The next colour at each fault of a space ("bin hopping").
    BinHopping,
    /// The next colour of a partition at each fault.
    Partition(ColorSet),
    /// The page's place in a block of 2^n frames that is set aside at the first touch of any
    /// page of the block, so that a superpage can be made of it without copying; the lowest
    /// free frame where no block is left.
    Reservation(u32),
    /// The one with the page's number: what is run are physical addresses.
    Identity,
}

impl Choice {
    /// Whether frames are chosen by their colour.
    pub const fn by_color(&self) -> bool {
        matches!(self, Choice::Coloring | Choice::BinHopping | Choice::Partition(_))
    }
}

/// What a frame is wanted for; each kind of owner can have a choice of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A page of a program's memory.
    Space(u16),
    /// A page of a file that this program asked for.
    File {
        /// The program.
        space: u16,
        /// The file.
        file: u64,
    },
}

/// Whose choice it is. Numbered for the hasher: files have all numbers below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key(u64);

impl Key {
    const fn space(space: u16) -> Key {
        Key(1 << 63 | space as u64)
    }

    const fn files_of(space: u16) -> Key {
        Key(1 << 63 | 1 << 16 | space as u64)
    }

    const fn file(file: u64) -> Key {
        Key(file & !(1 << 63))
    }
}

/// There is no free frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {frames} frames are in use; give the machine more memory")]
pub struct OutOfFrames {
    /// Frames there are.
    pub frames: u64,
}

/// A block set aside for the pages of one aligned range.
#[derive(Clone, Debug)]
struct Reserved {
    first: Pfn,
    /// Offsets handed out.
    taken: BTreeSet<u64>,
}

/// A number from 0 to below 1.
const fn chance(dice: &mut Random) -> f64 {
    (dice.word() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The frames of a machine.
#[derive(Clone, Debug)]
pub struct Frames {
    buddy: McolorBuddy,
    choice: Choice,
    /// Spaces, files, and the files of spaces with a choice of their own.
    own: HashMap<Key, Choice, NumberHash>,
    colors: Option<ColorMap>,
    random: Random,
    orders: HashMap<Key, RoundRobin, NumberHash>,
    /// Free frames by colour; kept once somebody has asked.
    stock: Option<Vec<u64>>,
    /// By space and number of the range, oldest spaces first.
    reserved: BTreeMap<(u16, u64), Reserved>,
    used: u64,
    outside: u64,
}

impl Frames {
    /// `total` free frames; `colors` is needed by every choice that goes by colour.
    ///
    /// # Panics
    /// If a choice by colour comes without colours, or a partition of another universe; and above
    /// 2^30 frames.
    pub fn new(total: u64, choice: Choice, colors: Option<ColorMap>) -> Frames {
        let buddy = McolorBuddy::new(&[(Pfn(0), total)], colors.as_ref(), LARGEST_BLOCK);
        let seed = if let Choice::Random(seed) = choice { seed } else { 0 };
        let mut frames = Frames {
            buddy: buddy.unwrap_or_else(|error| panic!("{error}")),
            choice: Choice::InOrder,
            own: HashMap::default(),
            colors,
            random: Random::new(seed),
            orders: HashMap::default(),
            stock: None,
            reserved: BTreeMap::new(),
            used: 0,
            outside: 0,
        };
        frames.check_choice(&choice);
        frames.choice = choice;
        frames
    }

    /// Whether others choose frames in the same way; not whether the same are free.
    pub fn is_alike(&self, other: &Frames) -> bool {
        self.total() == other.total()
            && self.colors() == other.colors()
            && self.choice == other.choice
            && self.own == other.own
    }

    fn check_choice(&self, choice: &Choice) {
        let colors = self.colors.as_ref().map(ColorMap::colors);
        assert!(!choice.by_color() || colors.is_some(), "a choice by colour without colours");
        if let Choice::Partition(set) = choice {
            assert!(Some(set.universe()) == colors, "a partition of other colours");
        }
    }

    /// Gives a space a choice of its own, from its next page on.
    ///
    /// # Panics
    /// As [`Frames::new`].
    pub fn choose_for(&mut self, space: u16, choice: Choice) {
        self.check_choice(&choice);
        self.own.insert(Key::space(space), choice);
    }

    /// Gives a file a choice of its own from its next page on, whoever asks for it; none: it
    /// has none any more.
    ///
    /// # Panics
    /// As [`Frames::new`].
    pub fn choose_for_file(&mut self, file: u64, choice: Option<Choice>) {
        self.set_choice(Key::file(file), choice);
    }

    /// Gives the files that a program asks for a choice of their own, but for those that have
    /// one by name; none: the files of this program lie as those of others.
    ///
    /// # Panics
    /// As [`Frames::new`].
    pub fn choose_for_files_of(&mut self, space: u16, choice: Option<Choice>) {
        self.set_choice(Key::files_of(space), choice);
    }

    fn set_choice(&mut self, key: Key, choice: Option<Choice>) {
        if let Some(choice) = &choice {
            self.check_choice(choice);
        }
        match choice {
            Some(choice) => self.own.insert(key, choice),
            None => self.own.remove(&key),
        };
    }

    /// Whose choice and whose rotation counts for an owner.
    fn key(&self, owner: Owner) -> Key {
        match owner {
            Owner::Space(space) => Key::space(space),
            Owner::File { file, .. } if self.own.contains_key(&Key::file(file)) => Key::file(file),
            Owner::File { space, .. } => Key::files_of(space),
        }
    }

    /// Spoils this share of the largest free blocks by taking one frame out of each: memory
    /// after long use. Those frames are nobody's for the rest of the run.
    pub fn fragment(&mut self, share: f64, seed: u64) {
        let mut dice = Random::new(seed);
        let total = self.buddy.total();
        for block in (0..total).step_by(1 << LARGEST_BLOCK) {
            let chosen = chance(&mut dice) < share;
            let offset = (dice.word() >> 11) % (1_u64 << LARGEST_BLOCK).min(total - block);
            if chosen {
                self.buddy.take_exact(Pfn(block + offset), 0);
            }
        }
        self.stock = None;
    }

    /// Takes this share of all blocks of 2^`order` frames, at random: memory of which others have a part, in
    /// blocks. Those frames are nobody's for the rest of the run.
    pub fn occupy(&mut self, order: u32, share: f64, seed: u64) {
        let mut dice = Random::new(seed);
        for block in (0..self.buddy.total()).step_by(1 << order) {
            if chance(&mut dice) < share {
                self.buddy.take_exact(Pfn(block), order);
            }
        }
        self.stock = None;
    }

    /// All frames, free or not.
    pub fn total(&self) -> u64 {
        self.buddy.total()
    }

    /// Frames handed out and not given back; reserved ones count once they are used.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Whether a frame is free and not reserved.
    pub fn is_free(&self, frame: Pfn) -> bool {
        frame.0 < self.total() && self.buddy.is_free(frame, 0)
    }

    /// Frames that are free or only reserved.
    pub fn available(&self) -> u64 {
        self.buddy.available() + self.set_aside()
    }

    fn set_aside(&self) -> u64 {
        let order = self.block_order();
        self.reserved.values().map(|r| (1 << order) - r.taken.len() as u64).sum()
    }

    /// Frames that had to be of another colour than the one that was due.
    pub const fn outside(&self) -> u64 {
        self.outside
    }

    /// The colour of a frame, where the machine has colours.
    #[inline]
    pub fn color(&self, frame: Pfn) -> Option<Color> {
        self.colors.as_ref().and_then(|map| map.color(frame))
    }

    /// What gives frames their colours, where the machine has colours.
    pub const fn color_map(&self) -> Option<&ColorMap> {
        self.colors.as_ref()
    }

    /// How many colours there are; 1 where colours play no part.
    pub fn colors(&self) -> u16 {
        self.colors.as_ref().map_or(1, ColorMap::colors)
    }

    /// A frame for a page of a space.
    ///
    /// # Errors
    /// When none is free.
    pub fn take(&mut self, space: u16, page: Vpn) -> Result<Pfn, OutOfFrames> {
        self.take_for(Owner::Space(space), page)
    }

    /// A frame for a page of an owner. Reservations are for memory only: files get the lowest
    /// frame where that is the choice.
    ///
    /// # Errors
    /// When none is free.
    pub fn take_for(&mut self, owner: Owner, page: Vpn) -> Result<Pfn, OutOfFrames> {
        if let Some(color) = self.due(owner, page) {
            return self.take_color(color);
        }
        let choice = self.own.get(&self.key(owner)).unwrap_or(&self.choice);
        let found = match (choice, owner) {
            (Choice::Random(_), _) => self.any(),
            (Choice::Identity, _) => {
                let frame = Pfn(page.0);
                let found = self.buddy.take_exact(frame, 0).then_some(frame);
                return self.taken(found, 0).ok_or(self.none_left());
            }
            (Choice::Reservation(order), Owner::Space(space)) => self.reserve(space, page, *order),
            _ => self.buddy.take_any(0),
        };
        let found = found.or_else(|| self.unreserve().then(|| self.buddy.take_any(0)).flatten());
        self.taken(found, 0).ok_or(self.none_left())
    }

    /// The colour that is due for a page of an owner, which is then no longer due; none if its
    /// choice is not by colour.
    pub fn due(&mut self, owner: Owner, page: Vpn) -> Option<Color> {
        let (key, universe) = (self.key(owner), self.colors());
        let choice = self.own.get(&key).unwrap_or(&self.choice);
        let plain = u16::try_from(page.0 % u64::from(universe)).unwrap_or(0);
        let next = match choice {
            Choice::Coloring => None,
            Choice::BinHopping => {
                self.orders.entry(key).or_default().next(&ColorSet::all(universe))
            }
            Choice::Partition(set) => self.orders.entry(key).or_default().next(set),
            _ => return None,
        };
        Some(next.unwrap_or(Color(plain)))
    }

    /// Whether an owner's pages have to lie in its colours: in a partition. Other choices by
    /// colour are wishes.
    pub fn insists(&self, owner: Owner) -> bool {
        let choice = self.own.get(&self.key(owner)).unwrap_or(&self.choice);
        matches!(choice, Choice::Partition(_))
    }

    pub(crate) fn none_left(&self) -> OutOfFrames {
        OutOfFrames { frames: self.buddy.total() }
    }

    /// Keeps the books of a block of 2^`order` frames that was found.
    fn taken(&mut self, found: Option<Pfn>, order: u32) -> Option<Pfn> {
        let first = found?;
        self.used += 1 << order;
        self.book(first, order, true);
        found
    }

    /// A frame of a colour, or of the next colour that has one; reservations are given up for
    /// it.
    ///
    /// # Errors
    /// When no frame is free.
    pub fn take_color(&mut self, color: Color) -> Result<Pfn, OutOfFrames> {
        let found = self.colored(color);
        let found = found.or_else(|| self.unreserve().then(|| self.buddy.take_any(0)).flatten());
        self.taken(found, 0).ok_or(self.none_left())
    }

    /// A frame of a colour and no other, if one is free.
    pub fn take_color_only(&mut self, color: Color) -> Option<Pfn> {
        let found = self.buddy.take(color, 0);
        self.taken(found, 0)
    }

    /// Free frames by colour, reserved ones included. The first call looks at every frame
    /// there is; after that, taking and giving back keep count.
    pub fn free_by_color(&mut self) -> Vec<u64> {
        let stock = self.stock.take().unwrap_or_else(|| self.count_free());
        self.stock.insert(stock).clone()
    }

    fn count_free(&self) -> Vec<u64> {
        let mut free = vec![0; usize::from(self.colors())];
        let reserved: BTreeSet<u64> = self.reserved_frames().collect();
        for frame in (0..self.buddy.total()).map(Pfn) {
            if self.buddy.is_free(frame, 0) || reserved.contains(&frame.0) {
                free[self.color(frame).map_or(0, |color| usize::from(color.0))] += 1;
            }
        }
        free
    }

    /// Frames that are set aside and not in use.
    fn reserved_frames(&self) -> impl Iterator<Item = u64> + '_ {
        let order = self.block_order();
        self.reserved.values().flat_map(move |block| {
            let unused = (0..1_u64 << order).filter(|offset| !block.taken.contains(offset));
            unused.map(|offset| block.first.0 + offset)
        })
    }

    /// Counts frames out of the stock of their colours, or into it.
    fn book(&mut self, first: Pfn, order: u32, out: bool) {
        let Some(mut stock) = self.stock.take() else { return };
        for frame in first.0..first.0 + (1 << order) {
            let at = self.color(Pfn(frame)).map_or(0, |color| usize::from(color.0));
            if out {
                stock[at] -= 1;
            } else {
                stock[at] += 1;
            }
        }
        self.stock = Some(stock);
    }

    /// A block of frames for a superpage, if there is one in one piece.
    pub fn take_block(&mut self, order: u32) -> Option<Pfn> {
        let found = self.buddy.take_any(order);
        self.taken(found, order)
    }

    /// A block for a superpage in those colours of which `crowd` has least: a superpage smaller
    /// than the cache has some of the colours only, and two that share theirs conflict. Takes time
    /// for each colour.
    pub fn take_even_block(&mut self, order: u32, crowd: &[u64]) -> Option<Pfn> {
        if order >= 63 || 1 << order >= u64::from(self.colors()) {
            return self.take_block(order);
        }
        let found = self.buddy.take_least(crowd, order);
        self.taken(found, order)
    }

    /// The partition that a space's pages have to lie in, if it has one.
    pub fn partition_of(&self, space: u16) -> Option<ColorSet> {
        match self.own.get(&Key::space(space)).unwrap_or(&self.choice) {
            Choice::Partition(set) => Some(set.clone()),
            _ => None,
        }
    }

    /// A block of frames all of whose colours are in a set. Takes time for each colour.
    pub fn take_block_of(&mut self, order: u32, set: &ColorSet) -> Option<Pfn> {
        let found = self.buddy.take_within(set, order);
        self.taken(found, order)
    }

    /// A frame for the operating system's own use, such as a page table: the lowest.
    ///
    /// # Errors
    /// When none is free.
    pub fn take_own(&mut self) -> Result<Pfn, OutOfFrames> {
        self.take_own_block(0)
    }

    /// The same, 2^`order` of them in one piece.
    ///
    /// # Errors
    /// When there are not so many in one piece.
    pub fn take_own_block(&mut self, order: u32) -> Result<Pfn, OutOfFrames> {
        let found = self
            .buddy
            .take_any(order)
            .or_else(|| self.unreserve().then(|| self.buddy.take_any(order)).flatten());
        self.taken(found, order).ok_or(self.none_left())
    }

    /// Takes all of these frames, or none.
    pub fn take_these(&mut self, wanted: &[Pfn]) -> bool {
        let mut taken = Vec::new();
        for &frame in wanted {
            if !self.use_reserved(frame) && !self.buddy.take_exact(frame, 0) {
                taken.into_iter().for_each(|frame| self.give_back(frame, 0));
                return false;
            }
            self.taken(Some(frame), 0);
            taken.push(frame);
        }
        true
    }

    /// A reserved frame that is not in use yet is.
    fn use_reserved(&mut self, frame: Pfn) -> bool {
        let order = self.block_order();
        let holds = |r: &&mut Reserved| (r.first.0..r.first.0 + (1 << order)).contains(&frame.0);
        let home = self.reserved.values_mut().find(holds);
        home.is_some_and(|r| r.taken.insert(frame.0 - r.first.0))
    }

    /// Takes a block back.
    pub fn give_back(&mut self, first: Pfn, order: u32) {
        self.used -= 1 << order;
        self.book(first, order, false);
        for frame in first.0..first.0 + (1 << order) {
            if !self.back_to_reserve(frame) {
                self.buddy.give(Pfn(frame), 0);
            }
        }
    }

    /// A frame of a reservation stays reserved.
    fn back_to_reserve(&mut self, frame: u64) -> bool {
        let order = self.block_order();
        let home = self
            .reserved
            .values_mut()
            .find(|r| (r.first.0..r.first.0 + (1 << order)).contains(&frame));
        home.is_some_and(|r| r.taken.remove(&(frame - r.first.0)))
    }

    /// A free frame by chance; the next free one where chance fails for long.
    fn any(&mut self) -> Option<Pfn> {
        let total = self.buddy.total();
        for _ in 0..64 {
            let frame = Pfn(self.random.below(total));
            if self.buddy.take_exact(frame, 0) {
                return Some(frame);
            }
        }
        let from = self.random.below(total);
        (from..total).chain(0..from).map(Pfn).find(|&frame| self.buddy.take_exact(frame, 0))
    }

    fn colored(&mut self, color: Color) -> Option<Pfn> {
        let n = self.colors();
        (0..n).find_map(|step| {
            let found = self.buddy.take(Color((color.0 + step) % n), 0);
            self.outside += u64::from(found.is_some() && step > 0);
            found
        })
    }

    /// log2 of the frames of a reserved block.
    fn block_order(&self) -> u32 {
        let all = self.own.values().chain([&self.choice]);
        let order =
            all.filter_map(|c| if let Choice::Reservation(o) = c { Some(*o) } else { None });
        order.max().unwrap_or(0)
    }

    fn reserve(&mut self, space: u16, page: Vpn, order: u32) -> Option<Pfn> {
        let (range, offset) = (page.0 >> order, page.0 & ((1 << order) - 1));
        if !self.reserved.contains_key(&(space, range)) {
            let Some(first) = self.buddy.take_any(order) else { return self.buddy.take_any(0) };
            self.reserved.insert((space, range), Reserved { first, taken: BTreeSet::new() });
        }
        let block = self.reserved.get_mut(&(space, range))?;
        let fresh = block.taken.insert(offset);
        if fresh { Some(Pfn(block.first.0 + offset)) } else { self.buddy.take_any(0) }
    }

    /// Gives up one reservation; its unused frames are free again. False if there is none.
    fn unreserve(&mut self) -> bool {
        let order = self.block_order();
        let Some((_, block)) = self.reserved.pop_first() else { return false };
        let unused = (0..1_u64 << order).filter(|offset| !block.taken.contains(offset));
        for frame in unused.map(|offset| Pfn(block.first.0 + offset)) {
            self.buddy.give(frame, 0);
        }
        self.buddy.available() > 0 || self.unreserve()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragmentation_is_what_was_asked_for() {
        for (share, low, high) in [(0.0, 0, 0), (0.5, 450, 574), (1.0, 1024, 1024)] {
            let mut frames = Frames::new(1 << 21, Choice::InOrder, None);
            frames.fragment(share, 7);
            let spoilt = 1024 - frames.buddy.blocks()[11];
            assert!((low..=high).contains(&spoilt), "{spoilt} of 1024 blocks at {share}");
            assert_eq!(frames.available(), (1 << 21) - spoilt, "a frame of each");
        }
    }
    #[test]
    fn what_others_have_of_memory_lies_in_blocks() {
        let mut frames = Frames::new(1 << 16, Choice::InOrder, None);
        frames.occupy(4, 0.5, 7);
        let left = frames.available();
        assert!((30_000..36_000).contains(&left) && left.is_multiple_of(16), "{left} frames");
        let mut taken = (0..640).map(|page| frames.take(0, Vpn(page)).expect("a frame").0);
        let mut firsts = Vec::new();
        while let Some(first) = taken.next() {
            assert!(first.is_multiple_of(16), "{first} begins a block");
            assert!(taken.by_ref().take(15).eq(first + 1..first + 16), "all of it");
            firsts.push(first);
        }
        let apart = firsts.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) != 16).count();
        assert!(apart >= 8, "others are between {apart} of 39 pairs");
    }
}
