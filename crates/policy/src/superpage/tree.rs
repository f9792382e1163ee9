//! The books of superpages that could be: for each, how many of its parts have entries in the
//! TLB (`tlbcount`) and how many misses it could have prevented (`prefetch`), after Romer 1998,
//! section 3.5.2. A miss costs a look-up and a walk up the tree that ends, for `tlbcount`, at the
//! first superpage that had an entry already. Charges of large superpages are put off: the
//! sizes above 64 KiB are brought up to date when a charge could be the one that counts, so
//! that every promotion comes at the same miss as if they were not put off.
//!
//! Beyond the thesis: any set of sizes, not only every power of two (`tlbcount` is the number
//! of parts with entries, whatever the fan-out), and a page may be in several TLBs at a time.
//! What is done about a superpage with charges enough is decided by the policies.
//!
//! Memory: 48 bytes per page seen and per superpage around one, and its place in a table.

use std::collections::HashMap;

use huepage_color::{NumberHash, Vpn};

use super::sizes::Sizes;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;
/// The largest size that is updated at every miss: 64 KiB, best in Romer 1998, section 3.5.2.
const AT_ONCE: u32 = 4;
/// Updates are put off by at least so many charges, or not at all: bringing a tree of 8 MiB up
/// to date takes 256 steps, so that putting off costs a step a miss at most.
const WORTH_IT: u32 = 256;
/// The widest subtree that is brought up to date in one go, as log2 of its parts.
const WIDEST: u32 = 9;
/// A limit that is never reached.
pub(crate) const NEVER: u32 = u32::MAX;
/// Doublings of the threshold after refusals.
const MOST_DOUBLINGS: u8 = 10;

/// A page, or a superpage that is or could be.
#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    /// The first part that was seen, and the next of the same whole.
    child: u32,
    next: u32,
    tree: u32,
    /// Charges, but those put off.
    prefetch: u32,
    /// Charges of this node that those above it have not got yet.
    deferred: u32,
    /// Charges that promote it.
    limit: u32,
    /// `tlbcount`: parts with entries, or TLBs that have an entry of its own.
    present: u16,
    level: u8,
    refusals: u8,
    /// It is a superpage.
    whole: bool,
    /// Somebody has been asked about it.
    pending: bool,
    first: u64,
}

/// One superpage of the largest size and all in it.
#[derive(Clone, Copy, Debug)]
struct Group {
    top: u32,
    /// Charges until it has to be brought up to date; 0: nothing is put off.
    budget: u32,
}

/// The books.
#[derive(Clone, Debug)]
pub struct Tree {
    sizes: Sizes,
    nodes: Vec<Node>,
    index: HashMap<u64, u32, NumberHash>,
    groups: Vec<Group>,
    /// Charges that promote, by level.
    limits: Vec<u32>,
    /// The last level that is updated at every miss.
    at_once: u8,
    /// TLBs that can have the same page.
    copies: u16,
}

const fn key(first: u64, order: u32) -> u64 {
    first << 1 | 1 << order
}

impl Tree {
    /// Empty books. `limits` are the charges that promote, by size; the first is of base pages
    /// and does not matter. `copies` TLBs can hold the same page. Nothing is put off unless
    /// `deferred`, and where the sizes make it no gain.
    pub fn new(sizes: Sizes, limits: Vec<u32>, copies: u16, deferred: bool) -> Tree {
        let last = sizes.orders().len() - 1;
        let at_once = sizes.orders().iter().rposition(|&order| order <= AT_ONCE).unwrap_or(0);
        let narrow = sizes.largest() - sizes.orders()[at_once] <= WIDEST;
        let at_once = if deferred && narrow && last > at_once + 1 { at_once } else { last };
        let at_once = u8::try_from(at_once).unwrap_or(u8::MAX);
        let copies = copies.max(1);
        let (nodes, index, groups) = (Vec::new(), HashMap::default(), Vec::new());
        Tree { sizes, nodes, index, groups, limits, at_once, copies }
    }

    /// The sizes.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Pages and possible superpages that are kept.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no page was seen yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Parts of a superpage with entries in a TLB, or the entries of a page.
    pub fn tlb_count(&self, page: Vpn, order: u32) -> u16 {
        self.find(page, order).map_or(0, |at| self.nodes[at as usize].present)
    }

    /// The charges of a superpage, those put off included. Walks all that lies in it.
    pub fn charges(&self, page: Vpn, order: u32) -> u32 {
        let Some(at) = self.find(page, order) else { return 0 };
        self.nodes[at as usize].prefetch + self.owed(at)
    }

    /// What those below owe to a node.
    fn owed(&self, at: u32) -> u32 {
        if self.nodes[at as usize].level <= self.at_once {
            return 0;
        }
        self.children(at).map(|child| self.owed(child) + self.nodes[child as usize].deferred).sum()
    }

    fn children(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.nodes[at as usize].child).filter(|&child| child != NONE);
        std::iter::successors(first, |&child| {
            Some(self.nodes[child as usize].next).filter(|&next| next != NONE)
        })
    }

    pub(crate) fn find(&self, page: Vpn, order: u32) -> Option<u32> {
        self.index.get(&key(page.0 >> order << order, order)).copied()
    }

    /// The node of a page of a known size, made with all above it if need be.
    pub(crate) fn node(&mut self, page: Vpn, order: u32) -> Option<u32> {
        if let Some(at) = self.find(page, order) {
            return Some(at);
        }
        let level = self.sizes.level(order)?;
        Some(self.make(page, level))
    }

    #[cold]
    fn make(&mut self, page: Vpn, level: u8) -> u32 {
        let mut below = NONE;
        let mut lowest = NONE;
        for level in level..u8::try_from(self.sizes.orders().len()).unwrap_or(u8::MAX) {
            let order = self.sizes.orders()[usize::from(level)];
            let found = self.find(page, order);
            let at = found.unwrap_or_else(|| self.push(page, level, order));
            self.adopt(at, below);
            lowest = if lowest == NONE { at } else { lowest };
            if found.is_some() {
                self.inherit(lowest, at);
                return lowest;
            }
            below = at;
        }
        self.groups.push(Group { top: below, budget: 1 });
        let tree = u32::try_from(self.groups.len() - 1).unwrap_or(NONE);
        self.nodes[below as usize].tree = tree;
        self.inherit(lowest, below);
        lowest
    }

    fn push(&mut self, page: Vpn, level: u8, order: u32) -> u32 {
        let at = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let first = page.0 >> order << order;
        self.nodes.push(Node {
            parent: NONE,
            child: NONE,
            next: NONE,
            tree: NONE,
            prefetch: 0,
            deferred: 0,
            limit: self.limits.get(usize::from(level)).copied().unwrap_or(NEVER),
            present: 0,
            level,
            refusals: 0,
            whole: false,
            pending: false,
            first,
        });
        self.index.insert(key(first, order), at);
        at
    }

    fn adopt(&mut self, parent: u32, child: u32) {
        if child != NONE {
            self.nodes[child as usize].next = self.nodes[parent as usize].child;
            self.nodes[child as usize].parent = parent;
            self.nodes[parent as usize].child = child;
        }
    }

    /// From `at` up to `top`, all belong to the same tree, which has to be brought up to date
    /// before a new one of them can have charges enough.
    fn inherit(&mut self, mut at: u32, top: u32) {
        let tree = self.nodes[top as usize].tree;
        let group = &mut self.groups[tree as usize];
        while at != top {
            let node = &mut self.nodes[at as usize];
            node.tree = tree;
            if node.level > self.at_once {
                group.budget = group.budget.min(node.limit);
            }
            at = node.parent;
        }
    }

    /// A page was not in the TLB and is now. Gives the smallest superpage that has charges
    /// enough through it and nobody has been asked about, or [`NONE`].
    #[inline]
    pub(crate) fn miss(&mut self, at: u32) -> u32 {
        let charged = self.enter(at);
        if charged == NONE { NONE } else { self.charge(charged) }
    }

    /// Enters a page; gives the smallest superpage that had an entry of another page.
    fn enter(&mut self, at: u32) -> u32 {
        let node = &mut self.nodes[at as usize];
        let mut above = node.parent;
        if node.present > 0 {
            // In another TLB, or lost without a word: it is its own company no better than before.
            node.present = (node.present + 1).min(self.copies);
            while above != NONE && self.nodes[above as usize].present < 2 {
                above = self.nodes[above as usize].parent;
            }
            return above;
        }
        node.present = 1;
        while above != NONE {
            let node = &mut self.nodes[above as usize];
            node.present += 1;
            if node.present > 1 {
                break;
            }
            above = node.parent;
        }
        above
    }

    /// An entry of a page was thrown out of a TLB.
    #[inline]
    pub(crate) fn leave(&mut self, page: Vpn, order: u32) {
        if let Some(at) = self.find(page, order) {
            self.lose(at, 1);
        }
    }

    fn lose(&mut self, mut at: u32, entries: u16) {
        if self.nodes[at as usize].present == 0 {
            return;
        }
        self.nodes[at as usize].present = self.nodes[at as usize].present.saturating_sub(entries);
        while self.nodes[at as usize].present == 0 && self.nodes[at as usize].parent != NONE {
            at = self.nodes[at as usize].parent;
            self.nodes[at as usize].present = self.nodes[at as usize].present.saturating_sub(1);
        }
    }

    /// Charges a miss to a superpage and all that contain it.
    fn charge(&mut self, from: u32) -> u32 {
        let tree = self.nodes[from as usize].tree as usize;
        let at_once = if self.groups[tree].budget == 0 { u8::MAX } else { self.at_once };
        let (mut at, mut last, mut ready) = (from, NONE, NONE);
        while at != NONE && (last == NONE || self.nodes[at as usize].level <= at_once) {
            let node = &mut self.nodes[at as usize];
            node.prefetch += 1;
            if ready == NONE && node.prefetch >= node.limit && !node.pending && !node.whole {
                ready = at;
            }
            (last, at) = (at, node.parent);
        }
        if at_once == u8::MAX {
            return ready;
        }
        self.nodes[last as usize].deferred += u32::from(at != NONE);
        self.groups[tree].budget -= 1;
        if self.groups[tree].budget > 0 {
            return ready;
        }
        self.settle(tree);
        if ready == NONE { self.first_ready(from) } else { ready }
    }

    /// The smallest superpage from a node up that has charges enough.
    fn first_ready(&self, mut at: u32) -> u32 {
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.prefetch >= node.limit && !node.pending && !node.whole {
                return at;
            }
            at = node.parent;
        }
        NONE
    }

    /// Brings a tree up to date, and finds how many charges may be put off from now on.
    fn settle(&mut self, tree: usize) {
        if usize::from(self.at_once) + 1 >= self.sizes.orders().len() {
            self.groups[tree].budget = 0;
            return;
        }
        let mut slack = NEVER;
        self.collect(self.groups[tree].top, &mut slack);
        self.groups[tree].budget = if slack < WORTH_IT { 0 } else { slack };
    }

    /// Passes on what a node and those below it owe; gives it.
    fn collect(&mut self, at: u32, slack: &mut u32) -> u32 {
        let mut gained = 0;
        if self.nodes[at as usize].level > self.at_once {
            let mut child = self.nodes[at as usize].child;
            while child != NONE {
                gained += self.collect(child, slack);
                child = self.nodes[child as usize].next;
            }
            let node = &mut self.nodes[at as usize];
            node.prefetch += gained;
            if !node.pending && !node.whole {
                *slack = (*slack).min(node.limit.saturating_sub(node.prefetch));
            }
        }
        gained + std::mem::take(&mut self.nodes[at as usize].deferred)
    }

    /// A superpage was built: charges to larger ones that it would have prevented do not count
    /// any more (Romer 1998, section 3.3.2), and no TLB has its parts.
    pub(crate) fn promoted(&mut self, at: u32) {
        let tree = self.nodes[at as usize].tree as usize;
        self.settle(tree);
        let by = self.nodes[at as usize].prefetch;
        let mut above = self.nodes[at as usize].parent;
        while above != NONE {
            let node = &mut self.nodes[above as usize];
            node.prefetch = node.prefetch.saturating_sub(by);
            above = node.parent;
        }
        self.empty(at);
        let node = &mut self.nodes[at as usize];
        (node.whole, node.pending, node.refusals) = (true, false, 0);
        self.settle(tree);
    }

    /// No TLB has a superpage nor any part of it.
    fn empty(&mut self, at: u32) {
        self.lose(at, u16::MAX);
        let mut child = self.nodes[at as usize].child;
        while child != NONE {
            self.clear(child);
            child = self.nodes[child as usize].next;
        }
    }

    fn clear(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        (node.present, node.whole, node.pending) = (0, false, false);
        let mut child = node.child;
        while child != NONE {
            self.clear(child);
            child = self.nodes[child as usize].next;
        }
    }

    /// A superpage is none any more; it has to earn its promotion anew.
    pub(crate) fn demoted(&mut self, at: u32) {
        self.empty(at);
        let tree = self.nodes[at as usize].tree as usize;
        self.settle(tree);
        let node = &mut self.nodes[at as usize];
        (node.whole, node.pending, node.prefetch) = (false, false, 0);
        self.settle(tree);
    }

    /// A superpage could not be built: its charges start anew, and it takes twice as many as the
    /// last time, so that an engine in need is not asked again and again.
    pub(crate) fn refused(&mut self, at: u32) {
        let tree = self.nodes[at as usize].tree as usize;
        self.settle(tree);
        let node = &mut self.nodes[at as usize];
        node.refusals = (node.refusals + 1).min(MOST_DOUBLINGS);
        let limit = self.limits[usize::from(node.level)];
        node.limit = limit.checked_shl(u32::from(node.refusals)).unwrap_or(NEVER).max(limit);
        (node.prefetch, node.pending) = (0, false);
        self.settle(tree);
    }

    /// Sets the charges that promote one superpage; true if it has them.
    pub(crate) fn limit(&mut self, at: u32, limit: u32) -> bool {
        let tree = self.nodes[at as usize].tree as usize;
        self.settle(tree);
        let node = &mut self.nodes[at as usize];
        node.limit = limit;
        node.pending = node.prefetch >= limit;
        let enough = node.pending;
        self.settle(tree);
        enough
    }

    /// Somebody was asked about a superpage. Gives its first base page and order.
    pub(crate) fn ask(&mut self, at: u32) -> (Vpn, u32) {
        self.nodes[at as usize].pending = true;
        self.place(at)
    }

    /// Whether a superpage is none yet and nobody has been asked about it.
    pub(crate) fn can_be_asked(&self, at: u32) -> bool {
        let node = &self.nodes[at as usize];
        !node.whole && !node.pending
    }

    /// First base page and order.
    pub(crate) fn place(&self, at: u32) -> (Vpn, u32) {
        let node = &self.nodes[at as usize];
        (Vpn(node.first), self.sizes.orders()[usize::from(node.level)])
    }

    /// All possible superpages: first base page, order, and charges as of the last settling.
    pub(crate) fn superpages(&self) -> impl Iterator<Item = (u32, Vpn, u32, u32)> + '_ {
        (0_u32..).zip(&self.nodes).filter(|(_, node)| node.level > 0 && !node.whole).map(
            |(at, node)| {
                let order = self.sizes.orders()[usize::from(node.level)];
                (at, Vpn(node.first), order, node.prefetch)
            },
        )
    }

    /// Takes every TLB to be empty, as after a time in which nobody told of misses.
    pub(crate) fn forget_entries(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.present = 0);
    }
}
