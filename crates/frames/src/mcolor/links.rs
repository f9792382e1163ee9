//! Doubly linked lists of free blocks, threaded through one array with a word for each frame:
//! next, previous, and the order of the free block that begins there. A list closes through a
//! word of its own behind the frames', so that taking a block out needs neither its list nor its
//! colour, and the array of all zeroes is one without free blocks: memory that is never touched
//! is never paged in. Beside it a bit for each list that is not empty. Which block belongs into
//! which list is decided elsewhere.

/// Bits of an index: 2^30 words, 4 TiB of frames, in an array.
const BITS: u32 = 30;
const MASK: u64 = (1 << BITS) - 1;
/// The largest order that fits beside two indices.
pub(super) const MAX_ORDER: u32 = 14;
/// The most frames of one array: some words are kept for lists.
pub(super) const MAX_FRAMES: u64 = MASK - (1 << 20);

/// The lists of one zone. Lists are numbered within their order.
#[derive(Clone, Debug)]
pub(super) struct Links {
    words: Vec<u64>,
    frames: u64,
    /// Number of the first list of each order; a multiple of 64.
    first: Vec<u32>,
    /// A bit for each list with blocks.
    filled: Vec<u64>,
    /// A bit for each word of `filled` that is not zero, per order.
    summary: Vec<u128>,
    /// A bit for each order with blocks.
    orders: u32,
}

impl Links {
    /// Empty lists for `frames` frames, `lists[k]` of them for order k.
    pub(super) fn new(frames: u64, lists: &[u16]) -> Links {
        let mut first = Vec::with_capacity(lists.len());
        let mut all = 0;
        for &count in lists {
            first.push(all);
            all += u32::from(count).next_multiple_of(64);
        }
        let summary = vec![0; lists.len()];
        let filled = vec![0; (all / 64) as usize];
        let mut links = Links {
            words: zeroes(frames + u64::from(all)),
            frames,
            first,
            filled,
            summary,
            orders: 0,
        };
        (frames..frames + u64::from(all)).for_each(|at| links.join(at, at));
        links
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "indices have 30 bits")]
    fn word(&self, at: u64) -> u64 {
        self.words[at as usize]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "indices have 30 bits")]
    fn word_mut(&mut self, at: u64) -> &mut u64 {
        &mut self.words[at as usize]
    }

    #[inline]
    fn next(&self, at: u64) -> u64 {
        self.word(at) & MASK
    }

    #[inline]
    fn previous(&self, at: u64) -> u64 {
        self.word(at) >> BITS & MASK
    }

    /// Makes `after` follow `before`.
    #[inline]
    fn join(&mut self, before: u64, after: u64) {
        let word = self.word_mut(before);
        *word = *word & !MASK | after;
        let word = self.word_mut(after);
        *word = *word & !(MASK << BITS) | before << BITS;
    }

    /// The order of the free block that begins at a frame.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "four bits are left")]
    pub(super) fn order_at(&self, frame: u64) -> Option<u32> {
        (self.word(frame) >> (2 * BITS)).checked_sub(1).map(|order| order as u32)
    }

    #[inline]
    fn head(&self, order: u32, list: u16) -> u64 {
        self.frames + u64::from(self.first[order as usize] + u32::from(list))
    }

    /// Adds a block at the head of a list.
    #[inline]
    pub(super) fn insert(&mut self, frame: u64, order: u32, list: u16) {
        let head = self.head(order, list);
        let after = self.next(head);
        if after == head {
            self.mark(order, list);
        }
        let state = u64::from(order + 1) << (2 * BITS);
        *self.word_mut(frame) = state | head << BITS | after;
        let word = self.word_mut(head);
        *word = *word & !MASK | frame;
        let word = self.word_mut(after);
        *word = *word & !(MASK << BITS) | frame << BITS;
    }

    /// Adds a block at the end of a list.
    pub(super) fn append(&mut self, frame: u64, order: u32, list: u16) {
        let head = self.head(order, list);
        let before = self.previous(head);
        if before == head {
            self.mark(order, list);
        }
        *self.word_mut(frame) = u64::from(order + 1) << (2 * BITS);
        self.join(before, frame);
        self.join(frame, head);
    }

    /// Takes a block out of whatever list of its order it is in.
    #[inline]
    pub(super) fn remove(&mut self, frame: u64, order: u32) {
        let word = self.word(frame);
        let (before, after) = (word >> BITS & MASK, word & MASK);
        *self.word_mut(frame) = 0;
        self.join(before, after);
        // It was the only one: the word of its list lay on both sides.
        if before == after {
            self.unmark(order, before - self.frames);
        }
    }

    /// Takes the block out that was added to a list last.
    #[inline]
    pub(super) fn pop(&mut self, order: u32, list: u16) -> Option<u64> {
        let head = self.head(order, list);
        let frame = self.next(head);
        if frame == head {
            return None;
        }
        self.remove(frame, order);
        Some(frame)
    }

    /// Whether a list has no blocks.
    #[inline]
    pub(super) fn is_empty(&self, order: u32, list: u16) -> bool {
        let at = self.first[order as usize] + u32::from(list);
        self.filled[(at / 64) as usize] >> (at % 64) & 1 == 0
    }

    /// Orders from `least` on that have blocks, as bits.
    #[inline]
    pub(super) const fn orders_from(&self, least: u32) -> u32 {
        self.orders >> least << least
    }

    /// The lowest list of an order that has blocks. Constant time.
    pub(super) fn first_filled(&self, order: u32) -> Option<u16> {
        let summary = self.summary[order as usize];
        if summary == 0 {
            return None;
        }
        let word = summary.trailing_zeros();
        let at = self.first[order as usize] / 64 + word;
        let list = word * 64 + self.filled[at as usize].trailing_zeros();
        u16::try_from(list).ok()
    }

    fn mark(&mut self, order: u32, list: u16) {
        let at = self.first[order as usize] + u32::from(list);
        self.filled[(at / 64) as usize] |= 1 << (at % 64);
        self.summary[order as usize] |= 1 << (list / 64);
        self.orders |= 1 << order;
    }

    /// `at` counts the lists of all orders.
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^16 lists")]
    fn unmark(&mut self, order: u32, at: u64) {
        let word = (at / 64) as usize;
        self.filled[word] &= !(1 << (at % 64));
        if self.filled[word] == 0 {
            let summary = &mut self.summary[order as usize];
            *summary &= !(1 << (word as u32 - self.first[order as usize] / 64));
            if *summary == 0 {
                self.orders &= !(1 << order);
            }
        }
    }

    /// The blocks of a list, the one added last first.
    pub(super) fn iter(&self, order: u32, list: u16) -> impl Iterator<Item = u64> + '_ {
        let head = self.head(order, list);
        let next = move |at: u64| Some(self.next(at)).filter(|&at| at != head);
        std::iter::successors(next(head), move |&at| next(at))
    }

    /// Whether all links of an order's lists run back as they run forth, all blocks are of that
    /// order, and the marks are right: for tests.
    pub(super) fn sound(&self, order: u32, lists: u16) -> bool {
        (0..lists).all(|list| {
            let head = self.head(order, list);
            let mut before = head;
            let right = self.iter(order, list).all(|at| {
                let right = self.previous(at) == before && self.order_at(at) == Some(order);
                before = at;
                right
            });
            right && self.previous(head) == before && self.is_empty(order, list) == (before == head)
        })
    }
}

/// Zeroes of the allocator that the kernel has not paged in.
#[expect(clippy::cast_possible_truncation, reason = "indices have 30 bits")]
fn zeroes(words: u64) -> Vec<u64> {
    vec![0; words as usize]
}
