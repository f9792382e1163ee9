//! The books of superpages that could be: for each, how many of its parts have entries in the
//! TLB (`tlbcount`) and how many misses it could have prevented (`prefetch`), after Romer 1998,
//! section 3.5.2. Charges of large superpages are put off: the sizes above 64 KiB are brought up
//! to date when a charge could be the one that counts, so that every promotion comes at the same
//! miss as if they were not put off.
//!
//! The thesis keeps `tlbcount` as a counter and walks up the tree at every miss. Here a bit for
//! each base page says whether it has an entry (see [`super::resident`]), from which the smallest
//! superpage with another entry follows in a few instructions; `tlbcount` itself is worked out
//! for those who ask. Counters lie in arrays by place, those of 64 KiB of memory together, and
//! count down to their threshold.
//!
//! Beyond the thesis: any set of sizes, not only every power of two (`tlbcount` is the number
//! of parts with entries, whatever the fan-out), and a page may be in several TLBs at a time.
//! What is done about a superpage with charges enough is decided by the policies.
//!
//! Memory: for each group, an aligned range of the largest size of which a page was seen, 5.3
//! bytes per base page with every size from 4 KiB to 8 MiB (0.13 %; the thesis: 0.4 %), and an
//! entry of a table for each superpage that was promoted or refused.

use std::collections::HashMap;

use huepage_color::{NumberHash, Vpn};

use super::resident::Resident;
use super::sizes::PageSizes;

/// The largest size that is updated at every miss: 64 KiB, best in Romer 1998, section 3.5.2.
const AT_ONCE: u32 = 4;
/// Updates are put off by at least so many charges, or not at all: bringing a group of 8 MiB up
/// to date takes 256 steps, so that putting off costs a step a miss at most.
const WORTH_IT: i32 = 256;
/// The widest group that is brought up to date in one go, as log2 of its parts.
const WIDEST: u32 = 9;
/// A limit that is never reached.
pub(crate) const NEVER: u32 = i32::MAX as u32;
/// Doublings of the threshold after refusals.
const MOST_DOUBLINGS: u8 = 10;
/// Groups that are found without a look into a table, if their numbers allow it.
const NEAR: usize = 64;
/// There is no size as large as that.
const NO_LEVEL: u8 = u8::MAX;

/// A page, or a superpage that is or could be: its place in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    group: u32,
    /// Its first base page, counted from the group's.
    offset: u32,
    level: u8,
}

/// The counter of a large superpage.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Charges that are missing to its threshold; as low as it goes once it is there.
    left: i32,
    /// Its charges that those above it have not got yet.
    deferred: u32,
}

/// What only some superpages have.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Charges that promote it, if not as many as others of its size.
    limit: Option<i32>,
    refusals: u8,
    /// It is a superpage. Its counter stands still.
    whole: bool,
    /// Somebody has been asked about it.
    pending: bool,
}

/// The books.
#[derive(Clone, Debug)]
pub struct Tree {
    sizes: PageSizes,
    /// log2 of the base pages of a group.
    width: u32,
    /// Sizes below have their counters by blocks of this size.
    split: u32,
    /// The smallest level that is at least as large, by order.
    at_least: [u8; 20],
    /// Orders by level.
    orders: [u8; 20],
    /// Charges that promote, by level.
    limits: Vec<i32>,
    /// The last of the levels from 1 on that are promoted without a charge; 0: there is none.
    free: u8,
    /// The last level that is updated at every miss.
    at_once: u8,
    groups: HashMap<u64, u32, NumberHash>,
    /// Groups asked for lately, with their numbers, by the low bits of these.
    near: [(u64, u32); NEAR],
    /// First base pages of groups, divided by the base pages of one.
    numbers: Vec<u64>,
    /// Charges until a group has to be brought up to date; 0: nothing is put off.
    budgets: Vec<u32>,
    resident: Resident,
    /// Charges that are missing to the thresholds of sizes below the split.
    small: Vec<i32>,
    large: Vec<Slot>,
    states: HashMap<u64, State, NumberHash>,
}

pub(crate) const fn key(first: u64, order: u32) -> u64 {
    first << 1 | 1 << order
}

#[inline]
fn near_at(number: u64) -> usize {
    usize::try_from(number % NEAR as u64).unwrap_or(0)
}

fn limit(charges: u32) -> i32 {
    i32::try_from(charges).unwrap_or(i32::MAX)
}

impl Tree {
    /// Empty books. `limits` are the charges that promote, by size; the first is of base pages
    /// and does not matter; 0 promotes at the first miss in a superpage. `copies` TLBs can hold the
    /// same page. Nothing is put off unless `deferred`, and where the sizes make it no gain.
    pub fn new(sizes: PageSizes, limits: Vec<u32>, copies: u16, deferred: bool) -> Tree {
        let mut by_level = [0; 20];
        for (at, &order) in by_level.iter_mut().zip(sizes.orders()) {
            *at = u8::try_from(order).unwrap_or(0);
        }
        let orders = sizes.orders();
        let last = orders.len() - 1;
        let near = orders.iter().rposition(|&order| order <= AT_ONCE).unwrap_or(0);
        let narrow = sizes.largest() - orders[near] <= WIDEST;
        let at_once = if deferred && narrow && last > near + 1 { near } else { last };
        let split = if orders[near] > 0 { orders[near] } else { orders[last.min(1)] };
        let level = |order| orders.iter().position(|&size| size >= order);
        let level = |order| level(order).and_then(|level| u8::try_from(level).ok());
        let free = limits.iter().skip(1).take_while(|&&limit| limit == 0).count();
        let mut at_least = [NO_LEVEL; 20];
        (0..).zip(&mut at_least).for_each(|(order, at)| *at = level(order).unwrap_or(NO_LEVEL));
        Tree {
            width: sizes.largest(),
            split,
            at_least,
            orders: by_level,
            free: u8::try_from(free).unwrap_or(0),
            limits: limits.into_iter().map(limit).collect(),
            at_once: u8::try_from(at_once).unwrap_or(NO_LEVEL),
            groups: HashMap::default(),
            near: [(u64::MAX, 0); NEAR],
            numbers: Vec::new(),
            budgets: Vec::new(),
            resident: Resident::new(sizes.largest(), copies),
            small: Vec::new(),
            large: Vec::new(),
            states: HashMap::default(),
            sizes,
        }
    }

    /// The sizes.
    pub const fn sizes(&self) -> &PageSizes {
        &self.sizes
    }

    /// Bytes that the books take, but for tables of superpages promoted or refused.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.small) + size_of_val(&*self.large) + self.resident.bytes()
    }

    /// Parts of a superpage with entries in a TLB, or the entries of a page.
    pub fn tlb_count(&self, page: Vpn, order: u32) -> u16 {
        let Some(node) = self.find(page, order) else { return 0 };
        if node.level == 0 || self.state(node).whole {
            return self.resident.entries(node.group, node.offset);
        }
        let part = self.order(node.level - 1);
        let parts = (node.offset..node.offset + (1 << order)).step_by(1 << part);
        let held = parts.filter(|&first| self.resident.any(node.group, first, part));
        u16::try_from(held.count()).unwrap_or(u16::MAX)
    }

    /// The charges of a superpage, those put off included. Walks all that lies in it.
    pub fn charges(&self, page: Vpn, order: u32) -> u32 {
        let Some(node) = self.find(page, order).filter(|node| node.level > 0) else { return 0 };
        self.prefetch(node) + self.owed(node)
    }

    /// What those below owe to a superpage.
    fn owed(&self, node: Node) -> u32 {
        let below = self.at_once.max(1)..node.level;
        below.flat_map(|level| self.parts(node, level)).map(|at| self.large[at].deferred).sum()
    }

    /// Places of the counters of a level of large sizes within a superpage.
    fn parts(&self, node: Node, level: u8) -> std::ops::Range<usize> {
        let (order, whole) = (self.order(level), self.order(node.level));
        let first = self.large_at(node.group, node.offset, order);
        first..first + (1 << (whole - order))
    }

    #[inline]
    fn order(&self, level: u8) -> u32 {
        u32::from(self.orders[usize::from(level)])
    }

    #[inline]
    fn last(&self) -> u8 {
        self.at_least[self.width as usize]
    }

    #[inline]
    fn small_at(&self, group: u32, offset: u32, order: u32) -> usize {
        let block = offset >> self.split << self.split;
        let place = ((1 << self.split) + (offset - block)) >> order;
        ((group as usize) << self.width) + (block + place) as usize
    }

    #[inline]
    fn large_at(&self, group: u32, offset: u32, order: u32) -> usize {
        let place = ((1 << self.width) + offset) >> order;
        ((group as usize) << (self.width - self.split + 1)) + place as usize
    }

    #[inline]
    fn left(&mut self, group: u32, offset: u32, order: u32) -> &mut i32 {
        if order < self.split {
            let at = self.small_at(group, offset, order);
            &mut self.small[at]
        } else {
            let at = self.large_at(group, offset, order);
            &mut self.large[at].left
        }
    }

    fn left_of(&mut self, node: Node) -> &mut i32 {
        self.left(node.group, node.offset, self.order(node.level))
    }

    fn state(&self, node: Node) -> State {
        let (page, order) = self.place(node);
        self.states.get(&key(page.0, order)).copied().unwrap_or_default()
    }

    fn state_mut(&mut self, node: Node) -> &mut State {
        let (page, order) = self.place(node);
        self.states.entry(key(page.0, order)).or_default()
    }

    fn limit_of(&self, node: Node) -> i32 {
        self.state(node).limit.unwrap_or(self.limits[usize::from(node.level)])
    }

    /// Charges, but those put off; 0 for base pages.
    fn prefetch(&self, node: Node) -> u32 {
        let order = self.order(node.level);
        let left = if order < self.split {
            self.small[self.small_at(node.group, node.offset, order)]
        } else {
            self.large[self.large_at(node.group, node.offset, order)].left
        };
        u32::try_from(i64::from(self.limit_of(node)) - i64::from(left)).unwrap_or(0)
    }

    fn at(&self, group: u32, page: Vpn, level: u8) -> Node {
        let within = page.0 & ((1 << self.width) - 1);
        let order = self.order(level);
        let offset = u32::try_from(within).unwrap_or(0) >> order << order;
        Node { group, offset, level }
    }

    pub(crate) fn find(&self, page: Vpn, order: u32) -> Option<Node> {
        let level = self.sizes.level(order)?;
        let group = self.groups.get(&(page.0 >> self.width))?;
        Some(self.at(*group, page, level))
    }

    /// The node of a page of a known size, in books that are begun if need be.
    #[inline]
    pub(crate) fn node(&mut self, page: Vpn, order: u32) -> Option<Node> {
        let level = self.sizes.level(order)?;
        let number = page.0 >> self.width;
        let group = match self.near[near_at(number)] {
            (near, group) if near == number => group,
            _ => self.look_up(number),
        };
        Some(self.at(group, page, level))
    }

    #[cold]
    fn look_up(&mut self, number: u64) -> u32 {
        let known = self.groups.get(&number).copied();
        let group = known.unwrap_or_else(|| self.begin(number));
        self.near[near_at(number)] = (number, group);
        group
    }

    /// Begins the books of a group.
    fn begin(&mut self, number: u64) -> u32 {
        let group = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.push(number);
        self.groups.insert(number, group);
        self.resident.grow();
        let large = self.large.len() + (2 << (self.width - self.split));
        self.large.resize(large, Slot { left: i32::MAX, deferred: 0 });
        if self.sizes.orders().iter().any(|order| (1..self.split).contains(order)) {
            self.small.resize(self.small.len() + (1 << self.width), i32::MAX);
        }
        for level in 1..=self.last() {
            let (order, limit) = (self.order(level), self.limits[usize::from(level)]);
            let firsts = (0..1_u32 << self.width).step_by(1 << order);
            firsts.for_each(|offset| *self.left(group, offset, order) = limit);
        }
        self.budgets.push(1);
        self.settle(group);
        group
    }

    /// A page was not in the TLB and is now. Gives the smallest superpage that has charges
    /// enough through it and nobody has been asked about.
    #[inline]
    pub(crate) fn miss(&mut self, node: Node) -> Option<Node> {
        let charged = self.resident.enter(node.group, node.offset).and_then(|shared| {
            // What lies within the page itself was there without anybody having told that it went.
            let shared = shared.max(self.order(node.level) + 1);
            let level = self.at_least[shared as usize];
            if level == NO_LEVEL { None } else { self.charge(node.group, node.offset, level) }
        });
        if self.free == 0 { charged } else { self.first_free(node, charged) }
    }

    /// Of a superpage that has charges enough and those around a page that need none, the
    /// smallest.
    #[cold]
    fn first_free(&mut self, page: Node, charged: Option<Node>) -> Option<Node> {
        let free = self.first_ready(page.group, page.offset, page.level + 1..=self.free);
        [charged, free].into_iter().flatten().min_by_key(|node| node.level)
    }

    /// An entry of a page was thrown out of a TLB.
    #[inline]
    pub(crate) fn leave(&mut self, page: Vpn, order: u32) {
        if let Some(node) = self.node(page, order) {
            self.resident.leave(node.group, node.offset);
        }
    }

    /// No TLB has a base page any more, as when its frame changed.
    pub(crate) fn shot_down(&mut self, page: Vpn) {
        if let Some(node) = self.find(page, 0) {
            self.resident.clear(node.group, node.offset, 0);
        }
    }

    /// Charges a miss to a superpage and all that contain it.
    #[inline]
    fn charge(&mut self, group: u32, offset: u32, from: u8) -> Option<Node> {
        if self.budgets[group as usize] > 0 {
            return self.charge_some(group, offset, from);
        }
        let mut full = false;
        for level in from..=self.last() {
            let left = self.left(group, offset, self.order(level));
            *left = left.wrapping_sub(1);
            full |= *left <= 0;
        }
        if full { self.first_ready(group, offset, from..=self.last()) } else { None }
    }

    /// [`Self::charge`] where those above the level that is updated at once get theirs later.
    #[inline]
    fn charge_some(&mut self, group: u32, offset: u32, from: u8) -> Option<Node> {
        let to = self.at_once.max(from);
        let mut full = false;
        for level in from..to {
            let at = self.small_at(group, offset, self.order(level));
            self.small[at] = self.small[at].wrapping_sub(1);
            full |= self.small[at] <= 0;
        }
        let at = self.large_at(group, offset, self.order(to));
        let slot = &mut self.large[at];
        slot.left = slot.left.wrapping_sub(1);
        slot.deferred += u32::from(to != self.at_least[self.width as usize]);
        full |= slot.left <= 0;
        let ready = if full { self.first_ready(group, offset, from..=to) } else { None };
        let budget = &mut self.budgets[group as usize];
        *budget -= 1;
        if *budget > 0 { ready } else { self.end_of_budget(group, offset, from, ready) }
    }

    #[cold]
    fn end_of_budget(
        &mut self,
        group: u32,
        offset: u32,
        from: u8,
        ready: Option<Node>,
    ) -> Option<Node> {
        self.settle(group);
        ready.or_else(|| self.first_ready(group, offset, from..=self.last()))
    }

    /// The smallest superpage around a page that has charges enough.
    #[cold]
    fn first_ready(
        &mut self,
        group: u32,
        offset: u32,
        levels: std::ops::RangeInclusive<u8>,
    ) -> Option<Node> {
        for level in levels {
            let offset = offset >> self.order(level) << self.order(level);
            let node = Node { group, offset, level };
            if *self.left_of(node) <= 0 && self.can_be_asked(node) {
                return Some(node);
            }
        }
        None
    }

    /// Brings a group up to date, and finds how many charges may be put off from now on.
    fn settle(&mut self, group: u32) {
        if self.at_once == self.last() {
            self.budgets[group as usize] = 0;
            return;
        }
        let top = Node { group, offset: 0, level: self.last() };
        let mut slack = i32::MAX;
        for level in self.at_once.max(1)..=self.last() {
            if level > self.at_once {
                slack = self.slack(group, level, slack);
            }
            for at in self.parts(top, level) {
                let owed = std::mem::take(&mut self.large[at].deferred);
                if owed > 0 && level < self.last() {
                    self.pass_on(group, at, level, owed);
                }
            }
        }
        let slack = if slack < WORTH_IT { 0 } else { slack };
        self.budgets[group as usize] = u32::try_from(slack).unwrap_or(0);
    }

    /// Gives charges to the superpage one level above a counter.
    fn pass_on(&mut self, group: u32, from: usize, level: u8, owed: u32) {
        let first = self.large_at(group, 0, self.order(level));
        let steps = self.order(level + 1) - self.order(level);
        let above = self.large_at(group, 0, self.order(level + 1)) + ((from - first) >> steps);
        let slot = &mut self.large[above];
        slot.left = slot.left.saturating_sub(limit(owed));
        slot.deferred += owed;
    }

    /// The fewest charges that make one of a level ready, or `slack` if that is less.
    fn slack(&self, group: u32, level: u8, mut slack: i32) -> i32 {
        let order = self.order(level);
        let top = Node { group, offset: 0, level: self.last() };
        for (place, at) in (0_u32..).zip(self.parts(top, level)) {
            let left = self.large[at].left.max(0);
            if left < slack && self.can_be_asked(Node { group, offset: place << order, level }) {
                slack = left;
            }
        }
        slack
    }

    /// A superpage was built: charges to larger ones that it would have prevented do not count
    /// any more (Romer 1998, section 3.3.2), and no TLB has its parts.
    pub(crate) fn promoted(&mut self, node: Node) {
        self.settle(node.group);
        let by = limit(self.prefetch(node));
        for level in node.level + 1..=self.last() {
            let above = Node { offset: self.start(node, level), level, ..node };
            let (most, whole) = (self.limit_of(above), self.state(above).whole);
            let left = self.left_of(above);
            if !whole {
                *left = left.saturating_add(by).min(most);
            }
        }
        self.empty(node);
        let state = self.state_mut(node);
        *state = State { whole: true, ..State::default() };
        *self.left_of(node) = i32::MAX;
        self.settle(node.group);
    }

    /// Where the superpage of a level begins that a node lies in.
    fn start(&self, node: Node, level: u8) -> u32 {
        node.offset >> self.order(level) << self.order(level)
    }

    /// No TLB has a superpage nor any part of it, and none of these is a superpage.
    fn empty(&mut self, node: Node) {
        let order = self.order(node.level);
        self.resident.clear(node.group, node.offset, order);
        for level in 1..node.level {
            let firsts = node.offset..node.offset + (1 << order);
            for offset in firsts.step_by(1 << self.order(level)) {
                let part = Node { offset, level, ..node };
                let (page, order) = self.place(part);
                if self.states.remove(&key(page.0, order)).is_some() {
                    *self.left_of(part) = self.limits[usize::from(level)];
                }
            }
        }
    }

    /// A superpage is none any more; it has to earn its promotion anew.
    pub(crate) fn demoted(&mut self, node: Node) {
        self.empty(node);
        self.settle(node.group);
        *self.state_mut(node) = State::default();
        *self.left_of(node) = self.limits[usize::from(node.level)];
        self.settle(node.group);
    }

    /// A superpage could not be built: its charges start anew, and it takes twice as many as the
    /// last time, so that an engine in need is not asked again and again.
    pub(crate) fn refused(&mut self, node: Node) {
        self.settle(node.group);
        let most = self.limits[usize::from(node.level)];
        let state = self.state_mut(node);
        state.refusals = (state.refusals + 1).min(MOST_DOUBLINGS);
        let doubled = i64::from(most.max(1)) << state.refusals;
        let raised = i32::try_from(doubled).unwrap_or(i32::MAX);
        (state.limit, state.pending) = (Some(raised), false);
        *self.left_of(node) = raised;
        self.settle(node.group);
    }

    /// Sets the charges that promote one superpage; true if it has them.
    pub(crate) fn limit(&mut self, node: Node, charges: u32) -> bool {
        self.settle(node.group);
        let left = limit(charges).saturating_sub(limit(self.prefetch(node)));
        *self.left_of(node) = left;
        let state = self.state_mut(node);
        (state.limit, state.pending) = (Some(limit(charges)), left <= 0);
        self.settle(node.group);
        left <= 0
    }

    /// Somebody was asked about a superpage. Gives its first base page and order.
    pub(crate) fn ask(&mut self, node: Node) -> (Vpn, u32) {
        self.state_mut(node).pending = true;
        self.place(node)
    }

    /// Whether a superpage is none yet and nobody has been asked about it.
    pub(crate) fn can_be_asked(&self, node: Node) -> bool {
        let state = self.state(node);
        !state.whole && !state.pending
    }

    /// First base page and order.
    pub(crate) fn place(&self, node: Node) -> (Vpn, u32) {
        let first = self.numbers[node.group as usize] << self.width;
        (Vpn(first + u64::from(node.offset)), self.order(node.level))
    }

    /// All possible superpages around pages of known groups: first base page, order, and charges
    /// as of the last settling.
    pub(crate) fn superpages(&self) -> impl Iterator<Item = (Vpn, u32, u32)> + '_ {
        let groups = (0_u32..).zip(&self.numbers).map(|(group, _)| group);
        let levels = groups.flat_map(|group| (1..=self.last()).map(move |level| (group, level)));
        let nodes = levels.flat_map(|(group, level)| {
            let offsets = (0..1_u32 << self.width).step_by(1 << self.order(level));
            offsets.map(move |offset| Node { group, offset, level })
        });
        nodes.filter(|&node| !self.state(node).whole).map(|node| {
            let (page, order) = self.place(node);
            (page, order, self.prefetch(node))
        })
    }

    /// Takes every TLB to be empty, as after a time in which nobody told of misses.
    pub(crate) fn forget_entries(&mut self) {
        self.resident.forget();
    }
}
