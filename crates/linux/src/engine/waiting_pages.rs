//! Pages that are waited for until somebody touches them. No page of a running program can be trapped
//! without stopping it there; in place of a trap its accessed bit is cleared once and looked at now and
//! then. Here is which pages those are, whose turn it is to be looked at, and which of them were touched by
//! what page tables say. Clears and reads nothing.

use std::collections::BTreeMap;

use huepage_color::Vpn;

use crate::kernel::page_tables::{Bits512, BlockMapping};
use crate::kernel::process_memory::SUPERPAGE_PAGES;

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitingPages {
    /// The pages of each block of 2 MiB that has some, by its address divided by 2 MiB.
    blocks: BTreeMap<u64, Bits512>,
    /// Where the next look begins.
    next: u64,
}

/// The block that a page lies in, and its place there.
fn place(page: Vpn) -> (u64, usize) {
    (page.0 / SUPERPAGE_PAGES, usize::try_from(page.0 % SUPERPAGE_PAGES).unwrap_or(0))
}

impl WaitingPages {
    /// A page is waited for from now on.
    pub fn set(&mut self, page: Vpn) {
        let (block, at) = place(page);
        self.blocks.entry(block).or_default().set(at);
    }

    /// Whether a page is waited for.
    pub fn holds(&self, page: Vpn) -> bool {
        let (block, at) = place(page);
        !self.blocks.is_empty() && self.blocks.get(&block).is_some_and(|pages| pages.get(at))
    }

    /// Pages that are waited for. Takes time in proportion to the blocks.
    pub fn count(&self) -> u64 {
        self.blocks.values().map(|pages| u64::from(pages.count())).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks that are to be looked at now, `most` at most; all have their turn before any comes again.
    pub fn turn(&mut self, most: usize) -> Vec<u64> {
        let (before, after) = (self.blocks.range(..self.next), self.blocks.range(self.next..));
        let turn: Vec<u64> = after.chain(before).map(|(&block, _)| block).take(most).collect();
        self.next = turn.last().map_or(0, |block| block + 1);
        turn
    }

    /// The pages that were touched by what was found of some blocks, ascending in each. They are waited for
    /// no longer. Of pages that are not there nothing is known: they go on being waited for.
    pub fn take_touched(&mut self, blocks: &[u64], found: &[BlockMapping]) -> Vec<Vpn> {
        let mut all = Vec::new();
        for (block, found) in blocks.iter().zip(found) {
            let Some(pages) = self.blocks.get_mut(block) else { continue };
            let touched = match found {
                BlockMapping::Pages { accessed, .. } => *pages & *accessed,
                BlockMapping::Huge { accessed: true } => *pages,
                _ => continue,
            };
            touched.iter().for_each(|at| pages.clear(at));
            all.extend(touched.iter().map(|at| Vpn(block * SUPERPAGE_PAGES + at as u64)));
            if pages.is_empty() {
                self.blocks.remove(block);
            }
        }
        all
    }

    /// Only pages that the other one has too are waited for any longer.
    pub fn keep(&mut self, other: &WaitingPages) {
        self.blocks.retain(|block, pages| {
            *pages = *pages & other.blocks.get(block).copied().unwrap_or_default();
            !pages.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;

    /// What happens to pages.
    #[derive(Clone, Debug)]
    enum Act {
        /// These are waited for.
        Set(Vec<u64>),
        /// The program touches these.
        Touch(Vec<u64>),
        /// These come or go.
        Toggle(Vec<u64>),
        /// A block becomes one page, or single ones.
        Huge(u64),
        /// So many blocks are looked at.
        Look(usize),
        /// An audit finds that of the pages only every so-manieth is still outside.
        Audit(u64),
    }

    /// Some pages of six blocks.
    fn pages() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            (0..6_u64, 0..9_u64).prop_map(|(b, at)| b * SUPERPAGE_PAGES + at * 60),
            0..20,
        )
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            pages().prop_map(Act::Set),
            pages().prop_map(Act::Touch),
            pages().prop_map(Act::Toggle),
            (0..6_u64).prop_map(Act::Huge),
            (0..8_usize).prop_map(Act::Look),
            (1..4_u64).prop_map(Act::Audit),
        ]
    }

    /// A naive model: sets of pages, and page tables.
    #[derive(Default)]
    struct Model {
        waited: BTreeSet<u64>,
        accessed: BTreeSet<u64>,
        away: BTreeSet<u64>,
        huge: BTreeSet<u64>,
    }

    impl Model {
        fn block(&self, block: u64) -> BlockMapping {
            let inside = |page: &&u64| **page / SUPERPAGE_PAGES == block;
            if self.huge.contains(&block) {
                return BlockMapping::Huge {
                    accessed: self.accessed.iter().any(|page| inside(&page)),
                };
            }
            let bits = |pages: &mut dyn Iterator<Item = u64>| {
                let mut bits = Bits512::NONE;
                pages.for_each(|page| bits.set(usize::try_from(page % SUPERPAGE_PAGES).unwrap()));
                bits
            };
            let there = |page: &&u64| !self.away.contains(page);
            let accessed = bits(&mut self.accessed.iter().filter(inside).filter(there).copied());
            BlockMapping::Pages { present: Bits512::ALL, accessed }
        }

        /// Those that are due to move, of blocks that are looked at.
        fn touched(&self, blocks: &[u64]) -> BTreeSet<u64> {
            let touched = |page: &u64| match self.block(page / SUPERPAGE_PAGES) {
                BlockMapping::Huge { accessed } => accessed,
                _ => self.accessed.contains(page) && !self.away.contains(page),
            };
            let due = self.waited.iter().filter(|page| blocks.contains(&(*page / SUPERPAGE_PAGES)));
            due.copied().filter(touched).collect()
        }
    }

    proptest! {
        #[test]
        fn what_was_touched_and_nothing_else_is_due(acts in prop::collection::vec(act(), 0..60)) {
            let (mut traps, mut model) = (WaitingPages::default(), Model::default());
            for act in acts {
                match act {
                    Act::Set(pages) => for page in pages {
                        traps.set(Vpn(page));
                        model.waited.insert(page);
                    },
                    Act::Touch(pages) => model.accessed.extend(pages),
                    Act::Toggle(pages) => for page in pages {
                        if !model.away.remove(&page) {
                            model.away.insert(page);
                        }
                    },
                    Act::Huge(block) => if !model.huge.remove(&block) {
                        model.huge.insert(block);
                    },
                    Act::Look(most) => {
                        let blocks = traps.turn(most);
                        prop_assert!(blocks.len() <= most);
                        let found: Vec<BlockMapping> =
                            blocks.iter().map(|&block| model.block(block)).collect();
                        let due: BTreeSet<u64> =
                            traps.take_touched(&blocks, &found).iter().map(|page| page.0).collect();
                        prop_assert_eq!(&due, &model.touched(&blocks));
                        model.waited.retain(|page| !due.contains(page));
                    }
                    Act::Audit(every) => {
                        let mut seen = WaitingPages::default();
                        let outside = |page: &u64| page.is_multiple_of(every);
                        (0..6 * SUPERPAGE_PAGES).filter(outside).for_each(|page| seen.set(Vpn(page)));
                        traps.keep(&seen);
                        model.waited.retain(outside);
                    }
                }
                prop_assert_eq!(traps.count(), model.waited.len() as u64);
                prop_assert_eq!(traps.is_empty(), model.waited.is_empty());
                for page in 0..6 * SUPERPAGE_PAGES {
                    prop_assert_eq!(traps.holds(Vpn(page)), model.waited.contains(&page));
                }
            }
        }

        #[test]
        fn all_have_their_turn(blocks in prop::collection::btree_set(0..40_u64, 1..20), most in 1..9_usize) {
            let mut traps = WaitingPages::default();
            blocks.iter().for_each(|block| traps.set(Vpn(block * SUPERPAGE_PAGES)));
            let mut turns: HashMap<u64, usize> = HashMap::new();
            for _ in 0..blocks.len().div_ceil(most) {
                traps.turn(most).into_iter().for_each(|block| *turns.entry(block).or_default() += 1);
            }
            prop_assert_eq!(turns.len(), blocks.len());
        }
    }
}
