//! Which pages of a program have entries in its TLBs: a bit for each base page, in groups of
//! equal size, with bits above that say which words have any. A superpage has the bit of its
//! first base page. Entering a page tells the smallest aligned block that had an entry of
//! another page; it costs a word or two of memory, however large the block. Knows nothing of
//! page sizes and charges.
//!
//! Beyond the thesis, which has a counter for every possible superpage.

use std::collections::HashMap;

use huepage_color::NumberHash;

/// log2 of the bits of a word.
const BITS: u32 = 6;

/// 64 base pages.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// Pages with entries.
    present: u64,
    /// Of these, pages with more than one.
    more: u64,
}

/// The bits of all groups.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    /// log2 of the base pages of a group, 0 to 18.
    width: u32,
    words: Vec<Word>,
    /// Which words have bits, and which words of these, group by group.
    upper: Vec<u64>,
    /// log2 of the words of pages in a group.
    words_each: u32,
    /// Words above them in a group; the last is the word of words of words.
    upper_each: usize,
    /// TLBs that can have the same page.
    copies: u16,
    /// Entries of pages with more than one, by place.
    extra: HashMap<u64, u16, NumberHash>,
}

/// The smallest order at which a block around bit `at` has one of these other bits.
#[inline]
fn nearest(others: u64, at: u32) -> u32 {
    // The longest prefix in common is that with the next number above or the next below.
    let above = others >> at << at;
    let below = others ^ above;
    // Without one of the two its order comes out above all of a word: no branch to guess.
    let order = |bit: u32| u32::BITS - (bit ^ at).leading_zeros();
    let (up, down) = (above.trailing_zeros(), 63_u32.wrapping_sub(below.leading_zeros()));
    order(up).min(order(down))
}

impl Resident {
    /// No groups yet, of 2^`width` base pages, 0 to 18. `copies` TLBs can have the same page.
    pub(crate) fn new(width: u32, copies: u16) -> Resident {
        let (words, upper, extra) = (Vec::new(), Vec::new(), HashMap::default());
        let words_each = width.saturating_sub(BITS);
        let upper_each = (1 << width.saturating_sub(2 * BITS)) + 1;
        let copies = copies.max(1);
        Resident { width, words, upper, words_each, upper_each, copies, extra }
    }

    /// One group more.
    pub(crate) fn grow(&mut self) {
        self.words.resize(self.words.len() + (1 << self.words_each), Word::default());
        self.upper.resize(self.upper.len() + self.upper_each, 0);
    }

    /// Bytes of the bits.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.upper)
    }

    #[inline]
    fn word_at(&self, group: u32, offset: u32) -> usize {
        ((group as usize) << self.words_each) + (offset >> BITS) as usize
    }

    /// Places above a page: the word of words, and the word of words of words.
    #[inline]
    fn upper_at(&self, group: u32, offset: u32) -> (usize, usize) {
        let first = group as usize * self.upper_each;
        (first + (offset >> (2 * BITS)) as usize, first + self.upper_each - 1)
    }

    const fn place(&self, group: u32, offset: u32) -> u64 {
        (group as u64) << self.width | offset as u64
    }

    /// A page has an entry now, or one more. Gives the order of the smallest block around it
    /// that has an entry of another page.
    #[inline]
    pub(crate) fn enter(&mut self, group: u32, offset: u32) -> Option<u32> {
        let at = self.word_at(group, offset);
        let (word, bit) = (&mut self.words[at], offset & 63);
        let others = word.present & !(1 << bit);
        let held = word.present != others;
        word.present |= 1 << bit;
        if held {
            self.enter_again(group, offset);
        }
        let (middle, _) = self.upper_at(group, offset);
        let word = offset >> BITS & 63;
        let words = self.upper[middle] & !(1 << word);
        self.upper[middle] |= 1 << word;
        // Choosing first leaves one search and no branch to guess.
        let (others, at, order) = if others != 0 { (others, bit, 0) } else { (words, word, BITS) };
        if others != 0 {
            return Some(order + nearest(others, at));
        }
        self.enter_word(group, offset)
    }

    /// What [`Self::enter`] does above 4,096 pages without another entry.
    #[inline]
    fn enter_word(&mut self, group: u32, offset: u32) -> Option<u32> {
        let (_, top) = self.upper_at(group, offset);
        let bit = offset >> (2 * BITS);
        let others = self.upper[top] & !(1 << bit);
        self.upper[top] |= 1 << bit;
        (others != 0).then(|| 2 * BITS + nearest(others, bit))
    }

    /// In another TLB, or lost without a word.
    #[cold]
    fn enter_again(&mut self, group: u32, offset: u32) {
        if self.copies > 1 {
            let at = self.word_at(group, offset);
            self.words[at].more |= 1 << (offset & 63);
            let entries = self.extra.entry(self.place(group, offset)).or_insert(1);
            *entries = (*entries + 1).min(self.copies);
        }
    }

    /// A page has an entry less.
    #[inline]
    pub(crate) fn leave(&mut self, group: u32, offset: u32) {
        let at = self.word_at(group, offset);
        let (word, bit) = (self.words[at], 1 << (offset & 63));
        if word.more & bit != 0 {
            return self.leave_one(group, offset);
        }
        let left = word.present & !bit;
        self.words[at].present = left;
        self.leave_word(group, offset, left == 0);
    }

    /// Notes above a word whether it is empty now.
    #[inline]
    fn leave_word(&mut self, group: u32, offset: u32, empty: bool) {
        let (middle, top) = self.upper_at(group, offset);
        let words = self.upper[middle] & !(u64::from(empty) << (offset >> BITS & 63));
        self.upper[middle] = words;
        if words == 0 {
            self.upper[top] &= !(1 << (offset >> (2 * BITS)));
        }
    }

    #[cold]
    fn leave_one(&mut self, group: u32, offset: u32) {
        let (at, place) = (self.word_at(group, offset), self.place(group, offset));
        let entries = self.extra.entry(place).or_insert(2);
        *entries -= 1;
        if *entries < 2 {
            self.extra.remove(&place);
            self.words[at].more &= !(1 << (offset & 63));
        }
    }

    /// The entries of a page.
    pub(crate) fn entries(&self, group: u32, offset: u32) -> u16 {
        let (word, bit) = (self.words[self.word_at(group, offset)], 1_u64 << (offset & 63));
        if word.more & bit != 0 {
            return self.extra.get(&self.place(group, offset)).copied().unwrap_or(2);
        }
        u16::from(word.present & bit != 0)
    }

    /// The words of an aligned block, and its bits in each.
    fn block(&self, group: u32, offset: u32, order: u32) -> (std::ops::Range<usize>, u64) {
        let first = self.word_at(group, offset);
        match order.checked_sub(BITS) {
            Some(words) => (first..first + (1 << words), u64::MAX),
            None => (first..first + 1, ((1 << (1 << order)) - 1) << (offset & 63)),
        }
    }

    /// Whether any page of an aligned block has an entry.
    pub(crate) fn any(&self, group: u32, offset: u32, order: u32) -> bool {
        let (words, bits) = self.block(group, offset, order);
        self.words[words].iter().any(|word| word.present & bits != 0)
    }

    /// No page of an aligned block has an entry any more.
    pub(crate) fn clear(&mut self, group: u32, offset: u32, order: u32) {
        let (words, bits) = self.block(group, offset, order);
        let steps = (offset..offset + (1 << order)).step_by(1 << BITS);
        for (at, offset) in words.zip(steps) {
            let word = &mut self.words[at];
            let (held, doubled) = (word.present, word.more & bits);
            (word.present, word.more) = (word.present & !bits, word.more & !bits);
            self.leave_word(group, offset, held & !bits == 0);
            let doubled = (0..64_u32).filter(|bit| doubled >> bit & 1 == 1);
            let places: Vec<u64> =
                doubled.map(|bit| self.place(group, (offset & !63) + bit)).collect();
            places.iter().for_each(|place| _ = self.extra.remove(place));
        }
    }

    /// No page has an entry.
    pub(crate) fn forget(&mut self) {
        self.words.fill(Word::default());
        self.upper.fill(0);
        self.extra.clear();
    }
}
